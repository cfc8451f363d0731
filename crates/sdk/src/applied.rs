//! Whether an object in the cache shows that applying it again would change nothing. Pure.
//!
//! The object alone does not say what server-side apply would correct in it. The schema of its kind says
//! whether a list is atomic, a set, or a map to which others add elements of their own, and whether a
//! map is atomic; `managedFields`, which are not cached, say who owns which field; and a field that the
//! server filled in looks like one that somebody added. So nothing is guessed. An apply is skipped only
//! if the object is
//!
//! - *exact*: every field that is applied has exactly the value that is applied, lists and maps with
//!   the same elements in the same order and no others. Of labels and annotations, which are maps of
//!   single values in every kind, only the applied ones are compared. An annotation, written with the
//!   object, holds the digest of what was applied: if it differs, something was added or removed since.
//! - *unchanged*: it is the server's answer to the last apply of exactly these fields, which this
//!   process remembers (`remembered`): the same version, or with the same content. So what a server adds
//!   by itself, as defaults, injected sidecars or numbers in another form, is sent once and then left
//!   alone, and so are elements of others in lists that may have them. Every later change, by anybody,
//!   causes one apply.
//!
//! Everything else is sent; a server that finds nothing to change writes nothing. Nothing is remembered
//! after a start or a handover: objects that are not exact are then applied once more.

use std::hash::BuildHasher;

use cache::{ResourceVersion, Uid};
use model::uid_hash;
use serde::de::DeserializeSeed;
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::digest::{Concern, Digest};
use crate::remembered::{Known, Part};

/// The prefix of the annotation; its name is the field manager.
const PREFIX: &str = "applied.leasehold.dev";
/// The fields of the metadata that identify an object.
const IDENTITY: [&str; 2] = ["name", "namespace"];

/// What is applied: an object, or its status.
#[derive(Debug)]
pub(crate) struct Applied {
    body: Map<String, Value>,
    digest: u64,
    part: Part,
}

impl Applied {
    /// An object as `manager` applies it: with the annotation.
    pub(crate) fn object(mut object: Value, manager: &str) -> Self {
        let digest = uid_hash(&object.to_string());
        annotate(&mut object, format!("{PREFIX}/{manager}"), format!("{digest:016x}"));
        Self { body: fields(object), digest, part: Part::Object }
    }

    /// The status of an object, with only the fields that identify it.
    pub(crate) fn status(object: Value) -> Self {
        let mut body = fields(object);
        body.retain(|field, value| match field.as_str() {
            "apiVersion" | "kind" | "metadata" => true,
            "status" => !value.is_null(),
            _ => false,
        });
        if let Some(Value::Object(metadata)) = body.get_mut("metadata") {
            metadata.retain(|field, _| IDENTITY.contains(&field.as_str()));
        }
        let digest = uid_hash(&Value::from(body.clone()).to_string());
        Self { body, digest, part: Part::Status }
    }

    /// What to send.
    pub(crate) fn body(&self) -> &Map<String, Value> {
        &self.body
    }

    pub(crate) fn part(&self) -> Part {
        self.part
    }

    /// Whether `found` has exactly what is applied.
    pub(crate) fn is_exactly(&self, found: &Value) -> bool {
        if self.part == Part::Status {
            return found.get("status") == self.body.get("status");
        }
        self.body.iter().all(|(field, wanted)| match field.as_str() {
            // Elements of lists come without.
            "apiVersion" | "kind" => true,
            "metadata" => wanted.as_object().into_iter().flatten().all(|(field, wanted)| {
                concerned(field, wanted, found["metadata"].get(field))
                    == concerned(field, wanted, Some(wanted))
            }),
            _ => found.get(field) == Some(wanted),
        })
    }

    /// What to remember of the server's answer to this apply, and of which object; nothing if it names none,
    /// or no version. Of the answer, only what is needed is read.
    ///
    /// # Errors
    /// If it is no object in JSON.
    pub(crate) fn known(
        &self,
        answer: &str,
        hasher: &impl BuildHasher,
    ) -> serde_json::Result<Option<(Uid, Known)>> {
        let Answer { metadata: AnswerMeta { uid, resource_version } } =
            serde_json::from_str(answer)?;
        if uid.is_empty() || resource_version.is_empty() {
            return Ok(None);
        }
        let content = self.content(&mut serde_json::Deserializer::from_str(answer), hasher)?;
        let version = hasher.hash_one(ResourceVersion::new(&resource_version));
        let known = Known { digest: self.digest, version, content: Some(content) };
        Ok(Some((Uid::new(&uid), known)))
    }

    /// Whether the version with this digest is the result of the last apply of the same content.
    pub(crate) fn left_version(&self, known: Known, version: u64) -> bool {
        known.digest == self.digest && known.version == version
    }

    /// Whether `found` has the content that resulted from the last apply of the same content.
    pub(crate) fn left_content(
        &self,
        known: Known,
        found: &Value,
        hasher: &impl BuildHasher,
    ) -> bool {
        let content = || self.content(found, hasher).ok();
        known.digest == self.digest && known.content.is_some() && known.content == content()
    }

    /// A digest of everything in an object that this apply may concern. It covers only the applied fields
    /// of the metadata, since the server sets the rest, and the status only if it is applied, since it
    /// changes all the time.
    fn content<'de, D: Deserializer<'de>>(
        &self,
        object: D,
        hasher: &impl BuildHasher,
    ) -> Result<u64, D::Error> {
        let applied = self.body.get("metadata").and_then(Value::as_object);
        let of_metadata = |field: &str| match (field, applied?.get(field)?) {
            ("labels" | "annotations", Value::Object(wanted)) => Some(Concern::Keys(wanted)),
            _ => Some(Concern::All),
        };
        let of_object = |field: &str| match field {
            "status" => self.body.contains_key(field).then_some(Concern::All),
            _ if self.part == Part::Status => None,
            "apiVersion" | "kind" => None,
            "metadata" => Some(Concern::Some(&of_metadata)),
            _ => Some(Concern::All),
        };
        Digest { concern: Concern::Some(&of_object), hasher }.deserialize(object)
    }
}

/// What an answer is read for beside its content.
#[derive(Deserialize)]
pub(crate) struct Answer {
    #[serde(default)]
    pub(crate) metadata: AnswerMeta,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct AnswerMeta {
    uid: String,
    pub(crate) resource_version: String,
}

fn fields(object: Value) -> Map<String, Value> {
    match object {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn annotate(object: &mut Value, key: String, value: String) {
    let mut at = object;
    for field in ["metadata", "annotations"] {
        let Some(fields) = at.as_object_mut() else { return };
        at = fields.entry(field).or_insert_with(|| Value::Object(Map::new()));
    }
    if let Some(annotations) = at.as_object_mut() {
        annotations.insert(key, value.into());
    }
}

/// The part of a field of the metadata that applying it concerns: for labels and annotations the applied
/// keys, else all of it.
fn concerned<'a>(field: &str, wanted: &Value, found: Option<&'a Value>) -> Vec<Option<&'a Value>> {
    match (field, wanted) {
        ("labels" | "annotations", Value::Object(wanted)) => {
            wanted.keys().map(|key| found?.get(key)).collect()
        }
        _ => vec![found],
    }
}

#[cfg(test)]
mod tests {
    use std::hash::RandomState;

    use serde_json::json;

    use super::*;

    fn wanted() -> Value {
        json!({
            "apiVersion": "example.com/v1", "kind": "Web",
            "metadata": {"name": "a", "labels": {"app": "web"}},
            "spec": {
                "replicas": 2, "ports": [{"port": 80}, {"port": 81}], "args": ["x", "y"],
                "selector": {"app": "web"}, "none": [], "extra": {}, "null": null,
            },
        })
    }

    /// What a server that adds nothing holds after `wanted` was applied, changed.
    fn held(change: impl FnOnce(&mut Value)) -> Value {
        let mut held = Value::from(Applied::object(wanted(), "tests").body);
        held["metadata"]["uid"] = "u".into();
        held["metadata"]["resourceVersion"] = "7".into();
        held["metadata"]["labels"]["theirs"] = "x".into();
        held["status"] = json!({"ready": true});
        change(&mut held);
        held
    }

    /// What is remembered of the answer `left`.
    fn known(applied: &Applied, left: &Value, hasher: &RandomState) -> Known {
        let (uid, known) = applied.known(&left.to_string(), hasher).unwrap().unwrap();
        assert_eq!(uid, Uid::new("u"));
        known
    }

    fn push(list: &mut Value, element: Value) {
        list.as_array_mut().unwrap().push(element);
    }

    fn remove(object: &mut Value, field: &str) {
        object.as_object_mut().unwrap().remove(field);
    }

    type Change = fn(&mut Value);

    /// Every way in which somebody else may change what was applied, and more.
    fn changes() -> Vec<(&'static str, Change)> {
        vec![
            ("a scalar", |held| held["spec"]["replicas"] = 3.into()),
            ("a scalar that goes", |held| remove(&mut held["spec"], "replicas")),
            ("a label", |held| held["metadata"]["labels"]["app"] = "api".into()),
            ("a label that goes", |held| held["metadata"]["labels"] = json!({})),
            ("an element more", |held| push(&mut held["spec"]["ports"], json!({"port": 9090}))),
            ("an element less", |held| held["spec"]["ports"] = json!([{"port": 80}])),
            ("a list emptied", |held| held["spec"]["ports"] = json!([])),
            ("a list that goes", |held| remove(&mut held["spec"], "ports")),
            ("another order", |held| held["spec"]["args"] = json!(["y", "x"])),
            ("another order of objects", |held| {
                held["spec"]["ports"] = json!([{"port": 81}, {"port": 80}]);
            }),
            ("an element twice", |held| held["spec"]["ports"][1] = json!({"port": 80})),
            ("a field in an element", |held| {
                held["spec"]["ports"][0]["protocol"] = "TCP".into();
            }),
            ("a value in a list of values", |held| held["spec"]["args"] = json!(["x", "y", "z"])),
            ("a key in a map", |held| held["spec"]["selector"]["more"] = "x".into()),
            ("a key that goes", |held| held["spec"]["selector"] = json!({})),
            ("an empty list filled", |held| held["spec"]["none"] = json!([1])),
            ("an empty map filled", |held| held["spec"]["extra"] = json!({"a": 1})),
            ("a null filled", |held| held["spec"]["null"] = 1.into()),
            ("another field", |held| held["spec"]["defaulted"] = true.into()),
        ]
    }

    #[test]
    fn only_exactly_what_is_applied_shows_by_itself_that_it_was() {
        let applied = Applied::object(wanted(), "tests");
        assert!(applied.is_exactly(&held(|_| {})), "status and others' labels are not compared");
        assert!(!applied.is_exactly(&wanted()), "it was made by somebody else");
        for (what, change) in changes() {
            assert!(!applied.is_exactly(&held(change)), "{what}");
        }
    }

    #[test]
    fn what_the_last_apply_left_is_known_until_anybody_changes_it() {
        let (applied, hasher) = (Applied::object(wanted(), "tests"), RandomState::new());
        // As a server with defaults and an injecting webhook answers.
        let answer = |held: &mut Value| {
            held["spec"]["replicas"] = 5.into();
            held["spec"]["ports"] = json!([{"port": 80, "protocol": "TCP"}, {"port": 15001}]);
            remove(&mut held["spec"], "none");
        };
        let left = held(answer);
        assert!(!applied.is_exactly(&left));
        let known = known(&applied, &left, &hasher);
        let version = |text: &str| hasher.hash_one(ResourceVersion::new(text));
        assert!(applied.left_version(known, version("7")));
        assert!(!applied.left_version(known, version("8")));
        let is_left =
            |applied: &Applied, found: &Value| applied.left_content(known, found, &hasher);
        let served = held(|held| {
            answer(held);
            held["metadata"]["resourceVersion"] = "9".into();
            held["metadata"]["labels"]["theirs"] = "y".into();
            held["status"] = json!({"ready": false});
        });
        assert!(is_left(&applied, &served), "versions, status and others' labels change");
        for (what, change) in changes() {
            let changed = held(|held| {
                answer(held);
                change(held);
            });
            assert_eq!(is_left(&applied, &changed), changed == left, "{what}");
        }
        let mut less = wanted();
        remove(&mut less["spec"], "args");
        let less = Applied::object(less, "tests");
        assert!(!is_left(&less, &left) && !less.left_version(known, version("7")));
    }

    #[test]
    fn what_is_written_and_never_read_is_guarded_by_the_rest() {
        let secret = json!({"metadata": {"name": "a"}, "stringData": {"key": "value"}});
        let (applied, hasher) = (Applied::object(secret, "tests"), RandomState::new());
        let held = |data: &str| {
            let metadata = json!({"name": "a", "uid": "u", "resourceVersion": "7"});
            json!({"metadata": metadata, "data": {"key": data}, "type": "Opaque"})
        };
        let known = known(&applied, &held("dmFsdWU="), &hasher);
        assert!(applied.left_content(known, &held("dmFsdWU="), &hasher));
        assert!(!applied.left_content(known, &held("b3RoZXI="), &hasher));
    }

    #[test]
    fn an_answer_that_names_no_object_or_version_is_not_remembered() {
        let (applied, hasher) = (Applied::object(wanted(), "tests"), RandomState::new());
        for field in ["uid", "resourceVersion"] {
            let answer = held(|held| remove(&mut held["metadata"], field));
            assert!(applied.known(&answer.to_string(), &hasher).unwrap().is_none(), "{field}");
        }
        assert!(applied.known("<html>", &hasher).is_err());
    }

    #[test]
    fn a_field_that_is_wanted_no_more_is_noticed() {
        let mut less = wanted();
        less["metadata"]["labels"] = json!({});
        assert!(!Applied::object(less, "tests").is_exactly(&held(|_| {})));
    }

    #[test]
    fn managers_keep_their_own_account() {
        assert!(!Applied::object(wanted(), "others").is_exactly(&held(|_| {})));
    }

    #[test]
    fn of_an_applied_status_nothing_else_counts() {
        let object = held(|held| held["metadata"]["managedFields"] = json!([{}]));
        let (applied, hasher) = (Applied::status(object), RandomState::new());
        let expect = json!({
            "apiVersion": "example.com/v1", "kind": "Web", "metadata": {"name": "a"},
            "status": {"ready": true},
        });
        assert_eq!(Value::from(applied.body.clone()), expect);
        assert!(applied.is_exactly(&held(|held| held["spec"] = json!({}))));
        let more = held(|held| held["status"]["theirs"] = 1.into());
        assert!(!applied.is_exactly(&more), "it may be ours, of the last time");
        let known = known(&applied, &more, &hasher);
        assert!(applied.left_content(known, &more, &hasher));
        assert!(!applied.left_content(known, &held(|_| {}), &hasher));
    }

    #[test]
    fn giving_up_a_whole_status_is_an_apply_too() {
        let applied = Applied::status(json!({"metadata": {"name": "a"}, "status": null}));
        assert!(!applied.is_exactly(&held(|_| {})));
        assert!(applied.is_exactly(&held(|held| remove(held, "status"))));
    }
}
