//! The header of an object: what routing, selection and indexing need, read from the raw JSON
//! without decoding the whole object; and the removal of `managedFields` from the raw bytes.
//!
//! `managedFields` make up about half of many objects and no reconciler reads them. They are cut
//! out of the bytes before anything is stored or decoded.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use model::uid_hash;
use serde::Deserialize;
use serde_json::value::RawValue;

/// A bound on the texts one interner keeps; past it, those no object uses any more are dropped.
const INTERNER_SWEEP_MIN: usize = 1024;

/// Names an object of one kind in one cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalKey {
    /// Its namespace; `None` for kinds that are not namespaced.
    pub namespace: Option<Arc<str>>,
    /// Its name.
    pub name: Arc<str>,
}

/// The reference to the owner that controls an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The owner's `apiVersion`, as written.
    pub api_version: Arc<str>,
    /// The owner's kind.
    pub kind: Arc<str>,
    /// The owner's name, in the same namespace or in none.
    pub name: Arc<str>,
    /// The owner's uid.
    pub uid: Arc<str>,
}

/// What is kept of an object beside its bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// Namespace and name.
    pub key: LocalKey,
    /// `metadata.uid`.
    pub uid: Box<str>,
    /// `metadata.resourceVersion`, opaque.
    pub resource_version: Box<str>,
    /// `metadata.generation`, zero where the kind has none.
    pub generation: i64,
    /// Whether `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// The owner with `controller: true`, if there is one.
    pub owner: Option<Box<Owner>>,
    labels: Box<[(Arc<str>, Arc<str>)]>,
}

impl Header {
    /// The value of one label.
    pub fn label(&self, key: &str) -> Option<&str> {
        let found = self.labels.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
        Some(&self.labels[found].1)
    }

    /// The hash that says which range the object falls into: its own uid's.
    pub fn hash(&self) -> u64 {
        uid_hash(&self.uid)
    }

    /// Bytes this header takes on the heap, shared texts left out.
    pub fn heap_bytes(&self) -> usize {
        self.uid.len()
            + self.resource_version.len()
            + self.key.name.len()
            + self.labels.len() * size_of::<(Arc<str>, Arc<str>)>()
            + self
                .owner
                .as_deref()
                .map_or(0, |owner| size_of::<Owner>() + owner.name.len() + owner.uid.len())
    }
}

/// Bytes that are not an object.
#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    /// Not JSON, or metadata of the wrong shape.
    #[error("read the metadata of an object")]
    Json(#[from] serde_json::Error),
    /// `metadata` lacks a field that every stored object has.
    #[error("an object came without metadata.{0}")]
    Missing(&'static str),
}

#[derive(Deserialize)]
struct RawObject<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawMeta<'a> {
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    uid: Cow<'a, str>,
    #[serde(borrow, default)]
    resource_version: Cow<'a, str>,
    #[serde(default)]
    generation: Option<i64>,
    #[serde(borrow, default)]
    deletion_timestamp: Option<&'a RawValue>,
    #[serde(borrow, default)]
    labels: Option<BTreeMap<Cow<'a, str>, Cow<'a, str>>>,
    #[serde(borrow, default)]
    owner_references: Option<Vec<RawOwner<'a>>>,
    #[serde(borrow, default)]
    managed_fields: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawOwner<'a> {
    #[serde(borrow)]
    api_version: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    uid: Cow<'a, str>,
    #[serde(default)]
    controller: Option<bool>,
}

/// Shares equal texts: namespaces, label keys and values repeat in every object.
#[derive(Debug, Default)]
pub struct Interner {
    texts: HashSet<Arc<str>>,
    sweep_at: usize,
}

impl Interner {
    /// The shared copy of a text.
    pub fn share(&mut self, text: &str) -> Arc<str> {
        if let Some(shared) = self.texts.get(text) {
            return Arc::clone(shared);
        }
        if self.texts.len() >= self.sweep_at.max(INTERNER_SWEEP_MIN) {
            self.texts.retain(|text| Arc::strong_count(text) > 1);
            self.sweep_at = self.texts.len() * 2;
        }
        let shared: Arc<str> = Arc::from(text);
        self.texts.insert(Arc::clone(&shared));
        shared
    }
}

/// Reads the header of one object and gives its bytes without `managedFields`.
///
/// # Errors
/// When the bytes are not JSON or lack name, uid or resourceVersion.
pub fn parse(raw: &str, interner: &mut Interner) -> Result<(Header, Box<[u8]>), HeaderError> {
    let object: RawObject<'_> = serde_json::from_str(raw)?;
    let meta: RawMeta<'_> = serde_json::from_str(object.metadata.get())?;
    for (field, value) in
        [("name", &meta.name), ("uid", &meta.uid), ("resourceVersion", &meta.resource_version)]
    {
        if value.is_empty() {
            return Err(HeaderError::Missing(field));
        }
    }
    let bytes = match meta.managed_fields.and_then(|fields| member_span(raw, fields.get())) {
        Some((from, to)) => [&raw.as_bytes()[..from], &raw.as_bytes()[to..]].concat(),
        None => raw.as_bytes().to_vec(),
    };
    Ok((header(&meta, interner), bytes.into_boxed_slice()))
}

fn header(meta: &RawMeta<'_>, interner: &mut Interner) -> Header {
    // A BTreeMap iterates in key order, which the binary search of `label` relies on.
    let labels = meta.labels.iter().flatten();
    let labels = labels.map(|(key, value)| (interner.share(key), interner.share(value))).collect();
    let namespace = meta.namespace.as_deref().filter(|namespace| !namespace.is_empty());
    let controller =
        meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
    Header {
        key: LocalKey {
            namespace: namespace.map(|namespace| interner.share(namespace)),
            name: Arc::from(&*meta.name),
        },
        uid: Box::from(&*meta.uid),
        resource_version: Box::from(&*meta.resource_version),
        generation: meta.generation.unwrap_or(0),
        deleting: meta.deletion_timestamp.is_some(),
        owner: controller.map(|owner| {
            Box::new(Owner {
                api_version: interner.share(&owner.api_version),
                kind: interner.share(&owner.kind),
                name: Arc::from(&*owner.name),
                uid: Arc::from(&*owner.uid),
            })
        }),
        labels,
    }
}

/// The bytes of the member `"managedFields": value` inside `raw`, with one of its commas.
///
/// `value` borrows from `raw`, so its place is the difference of two addresses; from there it is a
/// few steps back over `:` and the key. A key written with escapes is left alone: the member then
/// stays, which costs memory and nothing else.
fn member_span(raw: &str, value: &str) -> Option<(usize, usize)> {
    let start = (value.as_ptr() as usize).checked_sub(raw.as_ptr() as usize)?;
    let end = start + value.len();
    let before_colon = raw.get(..start)?.trim_end().strip_suffix(':')?.trim_end();
    let before = before_colon.strip_suffix("\"managedFields\"")?.trim_end();
    if let Some(before) = before.strip_suffix(',') {
        return Some((before.len(), end));
    }
    let after = raw.get(end..)?.trim_start();
    let after = after.strip_prefix(',').unwrap_or(after);
    Some((before.len(), raw.len() - after.len()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn read(raw: &str) -> (Header, Value) {
        let (header, bytes) = parse(raw, &mut Interner::default()).unwrap();
        (header, serde_json::from_slice(&bytes).unwrap())
    }

    #[test]
    fn the_header_holds_what_routing_needs() {
        let (header, _) = read(
            r#"{"kind":"Pod","metadata":{"name":"a","namespace":"web","uid":"u1","resourceVersion":"7",
            "generation":3,"labels":{"b":"2","a":"1"},"deletionTimestamp":"2026-01-01T00:00:00Z",
            "ownerReferences":[{"apiVersion":"v1","kind":"X","name":"x","uid":"ux"},
            {"apiVersion":"apps/v1","kind":"ReplicaSet","name":"rs","uid":"ur","controller":true}]},"spec":{}}"#,
        );
        assert_eq!(header.key.namespace.as_deref(), Some("web"));
        assert_eq!(
            (header.label("a"), header.label("b"), header.label("c")),
            (Some("1"), Some("2"), None)
        );
        assert_eq!((header.generation, header.deleting), (3, true));
        assert_eq!(header.owner.as_deref().map(|owner| &*owner.uid), Some("ur"));
        assert_eq!(header.hash(), uid_hash("u1"));
    }

    #[test]
    fn managed_fields_leave_no_trace_wherever_they_stand() {
        let names = r#""name":"a","uid":"u","resourceVersion":"1""#;
        let fields = r#""managedFields" : [{"fieldsV1":{"f:metadata":{"},":[]}}}]"#;
        for meta in [
            format!("{{{fields} , {names}}}"),
            format!("{{{names} , {fields}}}"),
            format!("{{\"generation\":1,{fields}\n,{names}}}"),
        ] {
            let raw = format!(r#"{{"metadata":{meta},"data":{{"managedFields":"stays"}}}}"#);
            let (_, left) = read(&raw);
            assert!(left["metadata"].get("managedFields").is_none(), "{raw}");
            assert_eq!(left["data"]["managedFields"], "stays");
            assert_eq!(left["metadata"]["name"], "a");
        }
    }

    #[test]
    fn an_object_must_have_its_identity() {
        for raw in ["{}", "[]", "garbage", r#"{"metadata":{"name":"a","uid":"u"}}"#] {
            assert!(parse(raw, &mut Interner::default()).is_err(), "{raw}");
        }
    }

    proptest! {
        #[test]
        fn splicing_removes_exactly_the_member(
            managed in prop_oneof![Just(json!([])), Just(json!([{"manager": "a\"},{"}])), Just(json!(null))],
            annotation in ".*",
            pretty in any::<bool>(),
        ) {
            let mut object = json!({"metadata": {
                "annotations": {"note": annotation}, "managedFields": managed, "name": "a",
                "resourceVersion": "1", "uid": "u"}});
            let raw = if pretty { serde_json::to_string_pretty(&object) } else { serde_json::to_string(&object) };
            let (_, left) = read(&raw.unwrap());
            let expected_gone = !object["metadata"]["managedFields"].is_null();
            if expected_gone {
                object["metadata"].as_object_mut().unwrap().remove("managedFields");
            }
            prop_assert_eq!(left, object);
        }
    }
}
