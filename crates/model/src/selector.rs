//! Label selectors: parsed once, matched against the headers in the cache, printed for the server.

use std::fmt;
use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::Expression;

use crate::error::foreign;

/// A parsed label selector. All its requirements must hold; without any it selects everything.
///
/// ```
/// use leasehold_model::Selector;
/// let selector: Selector = "app=web,tier in (front,edge),!legacy".parse()?;
/// assert!(selector.matches(|key| match key {
///     "app" => Some("web"),
///     "tier" => Some("edge"),
///     _ => None,
/// }));
/// # Ok::<(), leasehold_model::SelectorError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selector(Vec<Expression>);

/// The most requirements of a selector: each is asked of every object.
const MAX_REQUIREMENTS: usize = 256;
const TOO_MANY: &str = "it has more than 256 requirements";

/// A text or structure that is not a label selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not a label selector: {problem}")]
pub struct SelectorError {
    found: String,
    problem: &'static str,
}

impl Selector {
    /// Selects everything.
    pub const fn all() -> Self {
        Self(Vec::new())
    }

    /// Whether it selects everything.
    pub fn is_all(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether labels, given as a look-up by key, satisfy every requirement.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|expression| match expression {
            Expression::In(key, values) => label(key).is_some_and(|v| values.contains(v)),
            Expression::NotIn(key, values) => label(key).is_none_or(|v| !values.contains(v)),
            Expression::Equal(key, value) => label(key) == Some(value),
            Expression::NotEqual(key, value) => label(key) != Some(value),
            Expression::Exists(key) => label(key).is_some(),
            Expression::DoesNotExist(key) => label(key).is_none(),
        })
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, expression) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            write!(f, "{expression}")?;
        }
        Ok(())
    }
}

impl TryFrom<LabelSelector> for Selector {
    type Error = SelectorError;
    fn try_from(selector: LabelSelector) -> Result<Self, SelectorError> {
        let found = || {
            let expressions = selector.match_expressions.as_deref().unwrap_or_default();
            foreign(&format!("{expressions:?}"))
        };
        let refused = |problem| SelectorError { found: found(), problem };
        let expressions = selector.match_expressions.as_ref().map_or(0, Vec::len);
        if expressions + selector.match_labels.as_ref().map_or(0, |labels| labels.len())
            > MAX_REQUIREMENTS
        {
            return Err(refused(TOO_MANY));
        }
        let problem = "operators are In, NotIn (with values), Exists and DoesNotExist";
        let parsed = kube::core::Selector::try_from(selector.clone());
        let parsed = parsed.map_err(|_| refused(problem))?;
        let checked = parsed.into_iter().map(checked).collect::<Result<_, _>>();
        checked.map(Self).map_err(refused)
    }
}

impl FromStr for Selector {
    type Err = SelectorError;
    fn from_str(text: &str) -> Result<Self, SelectorError> {
        if split_requirements(text).nth(MAX_REQUIREMENTS).is_some() {
            return Err(SelectorError { found: foreign(text), problem: TOO_MANY });
        }
        split_requirements(text)
            .filter(|part| !part.is_empty())
            .map(|part| {
                requirement(part).map_err(|problem| SelectorError { found: foreign(text), problem })
            })
            .collect::<Result<_, _>>()
            .map(Self)
    }
}

/// The requirement, if it is written the same in a text: else a server would be asked for something else.
fn checked(requirement: Expression) -> Result<Expression, &'static str> {
    let (key, values): (_, Vec<_>) = match &requirement {
        Expression::In(key, values) | Expression::NotIn(key, values) => {
            (key, values.iter().collect())
        }
        Expression::Equal(key, value) | Expression::NotEqual(key, value) => (key, vec![value]),
        Expression::Exists(key) | Expression::DoesNotExist(key) => (key, Vec::new()),
    };
    if matches!(&requirement, Expression::In(_, none) | Expression::NotIn(_, none) if none.is_empty())
    {
        return Err("In and NotIn have values");
    }
    let is_written = label_key(key)? == *key;
    let all_written = values
        .into_iter()
        .try_fold(is_written, |all, value| Ok::<_, &str>(all && label_value(value)? == *value))?;
    if all_written { Ok(requirement) } else { Err("keys and values have no spaces around them") }
}

/// Splits at commas outside parentheses.
fn split_requirements(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
    .map(str::trim)
}

fn requirement(part: &str) -> Result<Expression, &'static str> {
    if let Some(key) = part.strip_prefix('!') {
        return Ok(Expression::DoesNotExist(label_key(key)?));
    }
    if let Some((head, values)) = part.split_once('(') {
        let values = values.strip_suffix(')').ok_or("a '(' is never closed")?;
        let values = values.split(',').map(|v| label_value(v.trim())).collect::<Result<_, _>>()?;
        let mut words = head.split_whitespace();
        let key = label_key(words.next().unwrap_or_default())?;
        return match (words.next(), words.next()) {
            (Some("in"), None) => Ok(Expression::In(key, values)),
            (Some("notin"), None) => Ok(Expression::NotIn(key, values)),
            _ => Err("before '(' comes 'in' or 'notin'"),
        };
    }
    if let Some((key, value)) = part.split_once("!=") {
        return Ok(Expression::NotEqual(label_key(key)?, label_value(value)?));
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return Ok(Expression::Equal(label_key(key)?, label_value(value)?));
    }
    Ok(Expression::Exists(label_key(part)?))
}

fn is_label_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.')
}

fn label_key(text: &str) -> Result<String, &'static str> {
    let key = text.trim();
    if !key.is_empty() && key.chars().all(|c| is_label_char(c) || c == '/') {
        Ok(key.to_owned())
    } else {
        Err("a key consists of letters, digits, '-', '_', '.' and one '/'")
    }
}

fn label_value(text: &str) -> Result<String, &'static str> {
    let value = text.trim();
    if value.chars().all(is_label_char) {
        Ok(value.to_owned())
    } else {
        Err("a value consists of letters, digits, '-', '_' and '.'")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(selector: &str, labels: &[(&str, &str)], expect: bool) {
        let parsed: Selector = selector.parse().unwrap();
        let found = parsed.matches(|key| labels.iter().find(|(k, _)| *k == key).map(|(_, v)| *v));
        assert_eq!(found, expect, "{selector} on {labels:?}");
    }

    #[test]
    fn a_selector_has_a_bound() {
        let text = |number: usize| vec!["a=b"; number].join(",");
        assert!(text(MAX_REQUIREMENTS).parse::<Selector>().is_ok());
        let error = text(MAX_REQUIREMENTS + 1).parse::<Selector>().unwrap_err().to_string();
        assert!(error.ends_with(TOO_MANY), "{error}");
        let labels = (0..=MAX_REQUIREMENTS).map(|n| (n.to_string(), String::new())).collect();
        let many = LabelSelector { match_labels: Some(labels), ..LabelSelector::default() };
        assert!(Selector::try_from(many).unwrap_err().to_string().ends_with(TOO_MANY));
    }

    #[test]
    fn requirements_select_as_in_kubernetes() {
        let web = [("app", "web"), ("tier", "front")];
        check("", &[], true);
        check("app=web", &web, true);
        check("app == web , tier=back", &web, false);
        check("app!=web", &web, false);
        check("absent!=web", &web, true);
        check("tier in (front, edge),app", &web, true);
        check("tier notin (front)", &web, false);
        check("absent notin (front)", &web, true);
        check("!app", &web, false);
        check("!absent,example.com/x_y!=1", &web, true);
        check("app=", &[("app", "")], true);
    }

    #[test]
    fn what_is_printed_parses_back() {
        for text in ["app=web", "a!=b,c in (d,e),f notin (g),h,!i", ""] {
            let parsed: Selector = text.parse().unwrap();
            assert_eq!(parsed.to_string(), text);
        }
    }

    #[test]
    fn bad_text_is_refused() {
        for bad in ["a in (b", "a of (b)", "=b", "a=b c", "!", "a&b"] {
            assert!(bad.parse::<Selector>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_label_selector_structure_converts() {
        let selector: LabelSelector = serde_json::from_value(serde_json::json!({
            "matchLabels": {"app": "web"},
            "matchExpressions": [{"key": "tier", "operator": "In", "values": ["a", "b"]}],
        }))
        .unwrap();
        assert_eq!(Selector::try_from(selector).unwrap().to_string(), "app=web,tier in (a,b)");
        for key in ["", "a,!b", " a", "a in (b),c"] {
            let selector =
                serde_json::json!({"matchExpressions": [{"key": key, "operator": "Exists"}]});
            let selector: LabelSelector = serde_json::from_value(selector).unwrap();
            assert!(
                Selector::try_from(selector).is_err(),
                "{key:?} means something else in a text"
            );
        }
    }
}
