//! The rules of Events. `events.k8s.io` wants more of them than the core group, which old clients
//! use.
//!
//! Texts and paths are those of a real server, which names fields as the core group does in both
//! groups.

use jiff::Timestamp;
use serde_json::Value;

use super::{meta, names};
use crate::kinds::KindInfo;
use crate::resource::EVENT_FIELDS;
use crate::status::FieldError;

/// Longest `reportingInstance`, `action` and `reason`, in bytes.
const MAX_WORD: usize = 128;
/// Longest `message`, in bytes.
const MAX_MESSAGE: usize = 1024;

/// What `events.k8s.io` lets nobody change; `eventTime` is compared apart.
const IMMUTABLE: &str = "involvedObject reason message source firstTimestamp lastTimestamp count \
                         type action related reportingComponent reportingInstance";

/// An Event of either group; fields are asked for by their names in the core group.
#[derive(Clone, Copy)]
struct Event<'a>(&'a Value);

/// Validates an Event, given the one that it replaces.
pub(super) fn validate(
    kind: &KindInfo,
    current: Option<&Value>,
    object: &Value,
) -> Vec<FieldError> {
    let event = Event(object);
    // The one path that a real server words by the group.
    let reporter = if kind.group.is_empty() { "reportingComponent" } else { "reportingController" };
    let mut errors: Vec<FieldError> = if event.time("eventTime").is_none() {
        event.namespaces_differ().into_iter().collect()
    } else {
        event.missing(reporter)
    };
    if kind.group.is_empty() {
        return errors;
    }
    match current.map(Event) {
        None => errors.extend(event.refused_when_new()),
        Some(current) => errors.extend(event.changed(current)),
    }
    errors
}

// === impl Event ===

impl<'a> Event<'a> {
    fn field(self, name: &str) -> &'a Value {
        let other = EVENT_FIELDS.iter().find(|(core, _)| *core == name);
        match (&self.0[name], other) {
            (Value::Null, Some((_, other))) => &self.0[*other],
            (found, _) => found,
        }
    }

    fn text(self, name: &str) -> &'a str {
        self.field(name).as_str().unwrap_or_default()
    }

    fn time(self, name: &str) -> Option<Timestamp> {
        self.text(name).parse().ok()
    }

    /// The error of an Event that is about an object in a namespace other than its own.
    fn namespaces_differ(self) -> Option<FieldError> {
        let about = self.field("involvedObject")["namespace"].as_str().unwrap_or_default();
        let own = meta(self.0, "namespace");
        let agree = if about.is_empty() { own == "default" } else { about == own };
        (!agree).then(|| differs(about))
    }

    /// What an Event with an `eventTime` lacks.
    fn missing(self, reporter: &str) -> Vec<FieldError> {
        let mut errors = Vec::new();
        let about = self.field("involvedObject")["namespace"].as_str().unwrap_or_default();
        if about.is_empty() && !matches!(meta(self.0, "namespace"), "default" | "kube-system") {
            errors.push(differs(about));
        }
        let component = self.text("reportingComponent");
        if component.is_empty() {
            errors.push(FieldError::required(reporter, ""));
        }
        errors.extend(names::check_key(reporter, component));
        for name in ["reportingInstance", "action", "reason"] {
            if self.text(name).is_empty() {
                errors.push(FieldError::required(name, ""));
            }
            errors.extend(self.too_long(name, MAX_WORD));
        }
        errors.extend(self.too_long("message", MAX_MESSAGE));
        errors
    }

    fn too_long(self, name: &str, longest: usize) -> Option<FieldError> {
        let detail = format!("can have at most {longest} characters");
        (self.text(name).len() > longest).then(|| FieldError::invalid(name, "", detail))
    }

    /// What `events.k8s.io` refuses in a new Event.
    fn refused_when_new(self) -> Vec<FieldError> {
        let mut errors = self.series();
        if self.time("eventTime").is_none() {
            errors.push(FieldError::required("eventTime", ""));
        }
        let kind = self.text("type");
        if !matches!(kind, "Normal" | "Warning") {
            errors.push(FieldError::invalid("type", "", format!("has invalid value: {kind}")));
        }
        let source = self.field("source");
        let is_set = |part: &str| source[part].as_str().is_some_and(|text| !text.is_empty());
        for (name, is_set) in [
            ("firstTimestamp", self.time("firstTimestamp").is_some()),
            ("lastTimestamp", self.time("lastTimestamp").is_some()),
            ("count", self.field("count").as_i64().is_some_and(|count| count != 0)),
            ("source", is_set("component") || is_set("host")),
        ] {
            if is_set {
                errors.push(FieldError::invalid(name, "", "needs to be unset"));
            }
        }
        errors
    }

    /// What `events.k8s.io` refuses in an Event that replaces `current`.
    fn changed(self, current: Self) -> Vec<FieldError> {
        const RULE: &str = "field is immutable";
        let mut errors = Vec::new();
        if self.field("series") != current.field("series") {
            errors.extend(self.series());
        }
        for name in IMMUTABLE.split(' ') {
            let (old, new) = (current.field(name), self.field(name));
            let path = match name {
                "reportingComponent" => "reportingController",
                name => name,
            };
            if !is_same(old, new) {
                errors.push(FieldError::invalid(path, new.clone(), RULE));
            }
        }
        // Clients that know nothing of nanoseconds do not change the time.
        let moment = |event: Self| event.time("eventTime").map(Timestamp::as_microsecond);
        if moment(self) != moment(current) {
            let new = self.field("eventTime").clone();
            errors.push(FieldError::invalid("eventTime", new, RULE));
        }
        errors
    }

    fn series(self) -> Vec<FieldError> {
        let series = self.field("series");
        let mut errors = Vec::new();
        if series.is_null() {
            return errors;
        }
        if series["count"].as_i64().unwrap_or_default() < 2 {
            errors.push(FieldError::invalid("series.count", "", "should be at least 2"));
        }
        if Event(series).time("lastObservedTime").is_none() {
            errors.push(FieldError::required("series.lastObservedTime", ""));
        }
        errors
    }
}

fn differs(namespace: &str) -> FieldError {
    FieldError::invalid("involvedObject.namespace", namespace, "does not match event.namespace")
}

/// Whether a field has not changed: one that is absent equals an empty one.
fn is_same(old: &Value, new: &Value) -> bool {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        value => *value == 0,
    };
    old == new || (is_empty(old) && is_empty(new))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kinds;

    fn texts(group: &str, current: Option<&Value>, object: &Value) -> Vec<String> {
        let is_asked = |kind: &KindInfo| kind.group == group && kind.plural == "events";
        let kind = kinds::builtin().into_iter().find(is_asked).unwrap();
        validate(&kind, current, object).iter().map(ToString::to_string).collect()
    }

    /// An Event that both groups take, as a group names its fields, with changes.
    fn event(group: &str, changes: &Value) -> Value {
        let about = json!({"kind": "Pod", "namespace": "n", "name": "p"});
        let mut event = json!({
            "metadata": {"name": "e", "namespace": "n"}, "eventTime": "2026-01-01T00:00:00.000000Z",
            "type": "Normal", "reason": "R", "action": "A", "reportingInstance": "i",
        });
        if group.is_empty() {
            event["involvedObject"] = about;
            event["reportingComponent"] = json!("c");
        } else {
            event["regarding"] = about;
            event["reportingController"] = json!("c");
        }
        json_patch::merge(&mut event, changes);
        event
    }

    #[test]
    fn an_event_is_about_an_object_in_its_namespace() {
        for (namespace, about, fits) in [
            ("n", json!("n"), true),
            ("n", json!("m"), false),
            ("n", Value::Null, false),
            ("default", Value::Null, true),
            ("kube-system", Value::Null, false),
        ] {
            let event = json!({
                "metadata": {"name": "e", "namespace": namespace},
                "involvedObject": {"namespace": about},
            });
            assert_eq!(texts("", None, &event).is_empty(), fits, "{event}");
        }
        assert_eq!(
            texts("", None, &json!({"metadata": {"namespace": "n"}, "involvedObject": {}})),
            ["involvedObject.namespace: Invalid value: \"\": does not match event.namespace"]
        );
    }

    #[test]
    fn an_event_with_a_time_says_who_reports_what() {
        for group in ["", "events.k8s.io"] {
            let reporter =
                if group.is_empty() { "reportingComponent" } else { "reportingController" };
            assert!(texts(group, None, &event(group, &json!({}))).is_empty());
            for (changes, path) in [
                (json!({"action": null}), "action"),
                (json!({"reason": "r".repeat(129)}), "reason"),
                (json!({"reportingInstance": ""}), "reportingInstance"),
                (json!({reporter: "a b"}), reporter),
                (json!({"metadata": {"namespace": "kube-system"}}), ""),
            ] {
                let found = texts(group, None, &event(group, &changes));
                let starts = found.iter().all(|text| text.starts_with(&format!("{path}: ")));
                assert!(if path.is_empty() { found.is_empty() } else { starts }, "{found:?}");
                assert_eq!(found.len(), usize::from(!path.is_empty()), "{changes}");
            }
        }
    }

    #[test]
    fn the_newer_group_is_strict() {
        const GROUP: &str = "events.k8s.io";
        let deprecated = json!({
            "deprecatedCount": 1, "deprecatedFirstTimestamp": "2026-01-01T00:00:00Z",
            "deprecatedSource": {"component": "c"}, "series": {"count": 1}, "type": "Other",
        });
        assert_eq!(
            texts(GROUP, None, &event(GROUP, &deprecated)),
            [
                "series.count: Invalid value: \"\": should be at least 2",
                "series.lastObservedTime: Required value",
                "type: Invalid value: \"\": has invalid value: Other",
                "firstTimestamp: Invalid value: \"\": needs to be unset",
                "count: Invalid value: \"\": needs to be unset",
                "source: Invalid value: \"\": needs to be unset",
            ]
        );
        let timeless = event(GROUP, &json!({"eventTime": null}));
        assert_eq!(texts(GROUP, None, &timeless), ["eventTime: Required value"]);
        let old = event("", &json!({"type": "Other", "count": 1}));
        assert!(texts("", None, &old).is_empty());
    }

    #[test]
    fn only_the_series_of_the_newer_group_changes() {
        const GROUP: &str = "events.k8s.io";
        let current = event(GROUP, &json!({}));
        let time = "2026-01-01T00:00:01.000000Z";
        for (changes, expected) in [
            (json!({"series": {"count": 2, "lastObservedTime": time}, "note": ""}), vec![]),
            (json!({"eventTime": "2026-01-01T00:00:00.000000001Z"}), vec![]),
            (json!({"note": "x"}), vec!["message: Invalid value: \"x\": field is immutable"]),
            (
                json!({"reportingController": "d"}),
                vec!["reportingController: Invalid value: \"d\": field is immutable"],
            ),
            (
                json!({"eventTime": time}),
                vec![
                    "eventTime: Invalid value: \"2026-01-01T00:00:01.000000Z\": field is immutable",
                ],
            ),
        ] {
            assert_eq!(texts(GROUP, Some(&current), &event(GROUP, &changes)), expected);
        }
        let changed = event("", &json!({"message": "x"}));
        assert!(texts("", Some(&event("", &json!({}))), &changed).is_empty());
    }
}
