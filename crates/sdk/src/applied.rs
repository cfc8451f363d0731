//! Whether an object in the cache shows that it was applied already, so that applying it again
//! would change nothing. Pure.
//!
//! Two things must hold. An annotation, written with the object, has the digest of what was applied:
//! if it is another, something was added or removed since. And every field that was applied is still
//! there with its value: if not, somebody else changed it.

use model::uid_hash;
use serde_json::{Map, Value};

/// The prefix of the annotation; its name is the field manager.
const PREFIX: &str = "applied.leasehold.dev";

/// An object to be applied.
#[derive(Debug)]
pub(crate) struct Applied {
    annotation: String,
    digest: String,
    /// The object, with the annotation.
    object: Value,
}

impl Applied {
    /// An object as `manager` applies it.
    pub(crate) fn new(mut object: Value, manager: &str) -> Self {
        let annotation = format!("{PREFIX}/{manager}");
        let digest = format!("{:016x}", uid_hash(&object.to_string()));
        annotate(&mut object, &annotation, &digest);
        Self { annotation, digest, object }
    }

    /// What to send.
    pub(crate) fn object(&self) -> &Value {
        &self.object
    }

    /// Whether `found` is what comes of it.
    pub(crate) fn is_shown_by(&self, found: &Value) -> bool {
        let known =
            found.pointer("/metadata/annotations").and_then(|all| all.get(&self.annotation));
        known.and_then(Value::as_str) == Some(&*self.digest) && covers(found, &self.object)
    }
}

fn annotate(object: &mut Value, key: &str, value: &str) {
    let mut at = object;
    for field in ["metadata", "annotations"] {
        let Some(fields) = at.as_object_mut() else { return };
        at = fields.entry(field).or_insert_with(|| Value::Object(Map::new()));
    }
    if let Some(annotations) = at.as_object_mut() {
        annotations.insert(key.to_owned(), value.into());
    }
}

/// Whether everything in `wanted` is in `found`.
///
/// Objects in a list are found wherever they are in it: servers and other writers add elements of
/// their own. Nothing and an empty map or list are the same, as they are to a server.
fn covers(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => wanted.iter().all(|(key, wanted)| {
            found.get(key).map_or_else(|| is_empty(wanted), |found| covers(found, wanted))
        }),
        (Value::Array(found), Value::Array(wanted)) if wanted.iter().all(Value::is_object) => {
            wanted.iter().all(|wanted| found.iter().any(|found| covers(found, wanted)))
        }
        _ => found == wanted || (is_empty(found) && is_empty(wanted)),
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(fields) => fields.is_empty(),
        Value::Array(elements) => elements.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn wanted() -> Value {
        json!({
            "metadata": {"name": "a", "labels": {"app": "web"}},
            "spec": {"replicas": 2, "ports": [{"port": 80}], "args": ["x", "y"], "extra": {}},
        })
    }

    /// What a server holds after `wanted` was applied, changed.
    fn held(change: impl FnOnce(&mut Value)) -> Value {
        let mut held = Applied::new(wanted(), "tests").object;
        held["metadata"]["uid"] = "u".into();
        held["spec"]["defaulted"] = true.into();
        held["spec"]["ports"] = json!([{"port": 9090}, {"port": 80, "protocol": "TCP"}]);
        held["spec"].as_object_mut().unwrap().remove("extra");
        change(&mut held);
        held
    }

    #[test]
    fn an_object_is_applied_again_only_if_that_changes_something() {
        let applied = Applied::new(wanted(), "tests");
        assert!(applied.is_shown_by(&held(|_| {})), "defaults and elements of others do not count");
        assert!(!applied.is_shown_by(&wanted()), "it was made by somebody else");
        let changed = held(|held| held["spec"]["replicas"] = 3.into());
        assert!(!applied.is_shown_by(&changed));
        let changed = held(|held| held["spec"]["args"] = json!(["x", "y", "z"]));
        assert!(!applied.is_shown_by(&changed), "a list of plain values is one value");
        let changed = held(|held| held["spec"]["ports"] = json!([{"port": 81}]));
        assert!(!applied.is_shown_by(&changed));
    }

    #[test]
    fn a_field_that_is_wanted_no_more_is_noticed() {
        let mut less = wanted();
        less["spec"].as_object_mut().unwrap().remove("args");
        assert!(!Applied::new(less, "tests").is_shown_by(&held(|_| {})));
    }

    #[test]
    fn managers_keep_their_own_account() {
        assert!(!Applied::new(wanted(), "others").is_shown_by(&held(|_| {})));
    }
}
