//! Label selectors in their string form, such as `a=b,c in (d,e),!f`.

use serde_json::Value;

/// All requirements must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Test {
    Exists,
    Absent,
    In(Vec<String>),
    NotIn(Vec<String>),
    Above(i64),
    Below(i64),
}

impl LabelSelector {
    /// Parses the string form; an empty text selects everything.
    ///
    /// # Errors
    /// Says what was found and what was expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut requirements = Vec::new();
        let mut rest = text.trim();
        while !rest.is_empty() {
            let (requirement, tail) = Requirement::parse(rest)?;
            requirements.push(requirement);
            rest = match tail.trim_start() {
                "" => "",
                tail => {
                    let next = tail.strip_prefix(',').ok_or_else(|| {
                        format!("found '{}', expected: ',' or 'end of string'", word(tail).0)
                    })?;
                    if next.trim().is_empty() {
                        return Err("found '', expected: identifier after ','".into());
                    }
                    next.trim_start()
                }
            };
        }
        Ok(Self(requirements))
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an object's labels satisfy every requirement.
    pub fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.0.iter().all(|r| r.test.holds(labels.get(&r.key).and_then(Value::as_str)))
    }
}

impl Requirement {
    fn parse(text: &str) -> Result<(Self, &str), String> {
        if let Some(rest) = text.strip_prefix('!') {
            let (key, rest) = key(rest.trim_start())?;
            return Ok((Self { key, test: Test::Absent }, rest));
        }
        let (key, rest) = key(text)?;
        let (test, rest) = Test::parse(rest.trim_start())?;
        Ok((Self { key, test }, rest))
    }
}

impl Test {
    fn parse(text: &str) -> Result<(Self, &str), String> {
        for (operator, negative) in [("==", false), ("!=", true), ("=", false)] {
            if let Some(rest) = text.strip_prefix(operator) {
                let (value, rest) = label_value(rest.trim_start())?;
                let values = vec![value];
                let test = if negative { Self::NotIn(values) } else { Self::In(values) };
                return Ok((test, rest));
            }
        }
        if let Some(rest) = text.strip_prefix('>') {
            let (bound, rest) = number(rest.trim_start())?;
            return Ok((Self::Above(bound), rest));
        }
        if let Some(rest) = text.strip_prefix('<') {
            let (bound, rest) = number(rest.trim_start())?;
            return Ok((Self::Below(bound), rest));
        }
        match word(text) {
            ("in", rest) => set(rest.trim_start()).map(|(v, rest)| (Self::In(v), rest)),
            ("notin", rest) => set(rest.trim_start()).map(|(v, rest)| (Self::NotIn(v), rest)),
            ("", rest) if rest.is_empty() || rest.starts_with(',') => Ok((Self::Exists, text)),
            ("", rest) => {
                let found: String = rest.chars().take(1).collect();
                Err(format!("found '{found}', expected: in, notin, =, ==, !=, gt, lt"))
            }
            (found, _) => Err(format!("found '{found}', expected: in, notin, =, ==, !=, gt, lt")),
        }
    }

    fn holds(&self, label: Option<&str>) -> bool {
        let number = || label.and_then(|l| l.parse::<i64>().ok());
        match self {
            Self::Exists => label.is_some(),
            Self::Absent => label.is_none(),
            Self::In(values) => label.is_some_and(|l| values.iter().any(|v| v == l)),
            Self::NotIn(values) => label.is_none_or(|l| values.iter().all(|v| v != l)),
            Self::Above(bound) => number().is_some_and(|n| n > *bound),
            Self::Below(bound) => number().is_some_and(|n| n < *bound),
        }
    }
}

fn word(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| " ,()=!<>\t".contains(c)).unwrap_or(text.len());
    text.split_at(end)
}

fn key(text: &str) -> Result<(String, &str), String> {
    let (key, rest) = word(text);
    if key.is_empty() {
        let found = text.chars().next().map(String::from).unwrap_or_default();
        return Err(format!("found '{found}', expected: !, identifier, or 'end of string'"));
    }
    let name = key.rsplit('/').next().unwrap_or_default();
    if !crate::objects::names::is_qualified_part(name) {
        return Err(format!(
            "<nil>: Invalid value: \"{key}\": {}",
            crate::objects::names::QUALIFIED_NAME_RULE
        ));
    }
    Ok((key.to_owned(), rest))
}

fn label_value(text: &str) -> Result<(String, &str), String> {
    let (value, rest) = word(text);
    if !crate::objects::names::is_label_value(value) {
        return Err(format!(
            "values[0]: Invalid value: \"{value}\": {}",
            crate::objects::names::LABEL_VALUE_RULE
        ));
    }
    Ok((value.to_owned(), rest))
}

fn number(text: &str) -> Result<(i64, &str), String> {
    let (value, rest) = word(text);
    let number = value.parse().map_err(|_| {
        format!("values[0]: Invalid value: \"{value}\": for 'Gt', 'Lt' operators, the value must be an integer")
    })?;
    Ok((number, rest))
}

fn set(text: &str) -> Result<(Vec<String>, &str), String> {
    let inner =
        text.strip_prefix('(').ok_or_else(|| format!("found '{}' expected: '('", word(text).0))?;
    let end = inner.find(')').ok_or("found '', expected: ',' or ')'")?;
    let values = inner[..end]
        .split(',')
        .map(|v| label_value(v.trim()).map(|(value, _)| value))
        .collect::<Result<_, _>>()?;
    Ok((values, &inner[end + 1..]))
}

/// The terms of a `LabelSelector` object, or of a plain map of labels, in the string form.
pub fn terms(selector: &Value) -> Vec<String> {
    let labels = selector.get("matchLabels").unwrap_or(selector).as_object().into_iter().flatten();
    let mut terms: Vec<String> =
        labels.filter_map(|(name, value)| Some(format!("{name}={}", value.as_str()?))).collect();
    for requirement in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = requirement["key"].as_str().unwrap_or_default();
        let values = requirement["values"].as_array().into_iter().flatten();
        let values = values.filter_map(Value::as_str).collect::<Vec<_>>().join(",");
        terms.push(match requirement["operator"].as_str() {
            Some("In") => format!("{key} in ({values})"),
            Some("NotIn") => format!("{key} notin ({values})"),
            Some("DoesNotExist") => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    terms
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    proptest! {
        /// For any text, the result is a selector or a reason.
        #[test]
        fn no_text_makes_it_panic(text in "[a-z=!<>(), é/.]{0,20}|.{0,20}") {
            let _ = LabelSelector::parse(&text);
        }
    }

    #[test]
    fn selects_as_a_real_server_does() {
        let object = json!({"metadata": {"labels": {"app": "web", "tier": "5", "a.b/c": ""}}});
        let cases = [
            ("", true),
            ("app", true),
            ("!app", false),
            ("!other", true),
            ("app=web", true),
            ("app==web,tier=5", true),
            ("app = web , tier = 5", true),
            ("app!=web", false),
            ("other!=web", true),
            ("app in (api, web)", true),
            ("app in (api),tier", false),
            ("app notin (api,db)", true),
            ("other notin (api)", true),
            ("tier>4", true),
            ("tier<5", false),
            ("a.b/c=", true),
            ("a.b/c", true),
            ("app=", false),
        ];
        for (text, expected) in cases {
            assert_eq!(LabelSelector::parse(text).unwrap().matches(&object), expected, "{text:?}");
        }
    }

    #[test]
    fn invalid_selectors_are_refused() {
        for text in ["=a", "a b", "a in b", "a in (b", "a,,b", "a=b,", "a>x", "a=b c", "a?b", "a=?"]
        {
            assert!(LabelSelector::parse(text).is_err(), "{text:?}");
        }
    }
}
