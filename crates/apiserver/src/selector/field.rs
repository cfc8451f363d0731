//! Field selectors, such as `metadata.name=x,status.phase!=Running`.

use serde_json::Value;

use crate::kinds::KindInfo;

/// All terms must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<Term>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    path: String,
    value: String,
    equal: bool,
}

impl FieldSelector {
    /// Parses the string form for a kind; an empty text selects everything.
    ///
    /// # Errors
    /// Says what cannot be parsed, or by which field the kind cannot be selected.
    pub fn parse(kind: &KindInfo, selectable: &[String], text: &str) -> Result<Self, String> {
        let terms = text
            .split(',')
            .filter(|t| !t.is_empty())
            .map(|text| Term::parse(kind, selectable, text))
            .collect::<Result<_, _>>()?;
        Ok(Self(terms))
    }

    /// Whether it selects everything.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether an object satisfies every term.
    pub fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|term| term.holds(object))
    }
}

impl Term {
    fn parse(kind: &KindInfo, selectable: &[String], text: &str) -> Result<Self, String> {
        let (path, value, equal) = text
            .split_once("!=")
            .map(|(p, v)| (p, v, false))
            .or_else(|| text.split_once("==").map(|(p, v)| (p, v, true)))
            .or_else(|| text.split_once('=').map(|(p, v)| (p, v, true)))
            .ok_or_else(|| format!("invalid selector: '{text}'; can't understand '{text}'"))?;
        if !supported(kind, selectable, path) {
            return Err(match known(kind) {
                "" if !kind.custom => format!(
                    "{path:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                ),
                _ => format!("field label not supported: {path}"),
            });
        }
        Ok(Self { path: stored(kind, path), value: value.into(), equal })
    }

    fn holds(&self, object: &Value) -> bool {
        let field = |path: &str| path.split('.').fold(object, |at, part| &at[part]);
        let found = match field(&self.path) {
            Value::Null if self.path == SOURCE => field("reportingComponent"),
            found => found,
        };
        let same = match found {
            Value::String(text) => *text == self.value,
            Value::Null => absent(&self.path) == self.value,
            Value::Bool(flag) => (if *flag { "true" } else { "false" }) == self.value,
            Value::Number(number) => number.to_string() == self.value,
            Value::Array(_) | Value::Object(_) => false,
        };
        same == self.equal
    }
}

/// The value of an unset field: booleans and numbers are zero.
fn absent(path: &str) -> &'static str {
    match path {
        "spec.unschedulable" | "spec.hostNetwork" => "false",
        "status.replicas" | "status.successful" => "0",
        _ => "",
    }
}

fn supported(kind: &KindInfo, selectable: &[String], path: &str) -> bool {
    if path == "metadata.name" || path == "metadata.namespace" {
        return true;
    }
    if kind.custom {
        return selectable.iter().any(|s| s.strip_prefix('.').unwrap_or(s) == path);
    }
    known(kind).split_whitespace().any(|field| field == path)
}

/// Who wrote an Event; one without it says so in `reportingComponent`.
const SOURCE: &str = "source.component";

/// A field as objects of a kind are stored: Events are as the core group has them.
fn stored(kind: &KindInfo, path: &str) -> String {
    match (kind.group.as_str(), path.split_once('.')) {
        ("events.k8s.io", Some(("regarding", of))) => format!("involvedObject.{of}"),
        ("events.k8s.io", None) if path == "reportingController" => "reportingComponent".to_owned(),
        ("", None) if kind.plural == "events" && path == "source" => SOURCE.to_owned(),
        _ => path.to_owned(),
    }
}

/// The fields by which a built-in kind can be selected, besides name and namespace.
fn known(kind: &KindInfo) -> &'static str {
    match (kind.group.as_str(), kind.plural.as_str()) {
        ("", "pods") => {
            "spec.nodeName spec.restartPolicy spec.schedulerName spec.serviceAccountName \
             spec.hostNetwork status.phase status.podIP status.nominatedNodeName"
        }
        ("", "events") => {
            "involvedObject.kind involvedObject.namespace involvedObject.name involvedObject.uid \
             involvedObject.apiVersion involvedObject.resourceVersion involvedObject.fieldPath \
             reason reportingComponent source type"
        }
        ("events.k8s.io", "events") => {
            "reason regarding.kind regarding.namespace regarding.name regarding.uid \
             regarding.apiVersion regarding.resourceVersion regarding.fieldPath \
             reportingController type"
        }
        ("", "secrets") => "type",
        ("", "namespaces") => "status.phase",
        ("", "nodes") => "spec.unschedulable",
        ("", "services") => "spec.clusterIP spec.type",
        ("apps", "replicasets") => "status.replicas",
        ("batch", "jobs") => "status.successful",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;
    use serde_json::json;

    fn kind(plural: &str) -> KindInfo {
        kinds::builtin().into_iter().find(|k| k.plural == plural).unwrap()
    }

    #[test]
    fn events_are_selected_by_their_fields_under_both_names() {
        let stored = json!({"reportingComponent": "c", "involvedObject": {"kind": "Pod"}});
        let of = |group: &str| {
            let mut kinds = kinds::builtin().into_iter();
            kinds.find(|kind| kind.plural == "events" && kind.group == group).unwrap()
        };
        for (group, fields) in [
            ("", ["reportingComponent", "involvedObject.kind"]),
            ("events.k8s.io", ["reportingController", "regarding.kind"]),
        ] {
            let [by, about] = fields;
            for (text, expected) in [
                (format!("{by}=c,{about}=Pod"), true),
                (format!("{by}=d"), false),
                (format!("{about}=Node"), false),
            ] {
                let selector = FieldSelector::parse(&of(group), &[], &text).unwrap();
                assert_eq!(selector.matches(&stored), expected, "{text}");
            }
        }
        assert!(FieldSelector::parse(&of("events.k8s.io"), &[], "reportingComponent=c").is_err());
        let selector = FieldSelector::parse(&of(""), &[], "source=c").unwrap();
        for (event, expected) in [
            (stored, true),
            (json!({"source": {"component": "c"}}), true),
            (json!({"source": {"component": "d"}, "reportingComponent": "c"}), false),
        ] {
            assert_eq!(selector.matches(&event), expected, "{event}");
        }
    }

    #[test]
    fn selects_by_the_fields_a_kind_offers() {
        let pod = json!({"metadata": {"name": "a"}, "status": {"phase": "Running"}});
        let cases = [
            ("metadata.name=a", true),
            ("metadata.name!=a", false),
            ("status.phase==Running,metadata.name=a", true),
            ("spec.nodeName=", true),
            ("spec.nodeName!=", false),
        ];
        for (text, expected) in cases {
            let selector = FieldSelector::parse(&kind("pods"), &[], text).unwrap();
            assert_eq!(selector.matches(&pod), expected, "{text}");
        }
        assert!(FieldSelector::parse(&kind("pods"), &[], "spec.color=red").is_err());
        assert!(FieldSelector::parse(&kind("configmaps"), &[], "status.phase=x").is_err());
        assert!(FieldSelector::parse(&kind("configmaps"), &[], "nonsense").is_err());
    }

    #[test]
    fn custom_kinds_select_by_declared_fields() {
        let custom = KindInfo { custom: true, ..kind("configmaps") };
        let object = json!({"metadata": {"name": "a"}, "spec": {"color": "red"}});
        let selectable = [".spec.color".to_owned()];
        let selector = FieldSelector::parse(&custom, &selectable, "spec.color=red").unwrap();
        assert!(selector.matches(&object));
        assert!(FieldSelector::parse(&custom, &[], "spec.color=red").is_err());
    }
}
