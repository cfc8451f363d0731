//! Partial metadata: the few fields that decide whether an object is wanted at all. They are its
//! name, uid and version, and the uid of the owner that controls it.
//!
//! It is read before anything is decoded or copied, of every object of which the member holds only
//! some. It ends as soon as it has what it needs, at the latest with the metadata, so what lies
//! behind is never looked at.

use std::borrow::Cow;
use std::ops::ControlFlow;

use super::header::HeaderError;
use super::pass::{Pass, Scan};

/// The fields that decide whether an object is in a range.
#[derive(Debug, PartialEq, Eq)]
pub struct PartialMetadata<'a> {
    /// `metadata.name`.
    pub name: Cow<'a, str>,
    /// `metadata.namespace`; none for kinds without namespaces.
    pub namespace: Option<Cow<'a, str>>,
    /// `metadata.uid`.
    pub uid: Cow<'a, str>,
    /// `metadata.resourceVersion`.
    pub resource_version: Cow<'a, str>,
    /// The uid of the owner with `controller: true`, if it was asked for and there is one.
    pub owner: Option<Cow<'a, str>>,
}

/// Which optional fields to look for.
#[derive(Clone, Copy, Debug)]
pub struct PartialFields {
    /// The kind lives in namespaces.
    pub namespace: bool,
    /// The owner decides.
    pub owner: bool,
}

/// Reads the partial metadata of one object. Of JSON on which the whole scan succeeds, this returns the same;
/// where this succeeds, the whole scan may still fail.
///
/// # Errors
/// When name, uid or version cannot be found in well-formed metadata.
pub fn partial_metadata(
    text: &str,
    wanted: PartialFields,
) -> Result<PartialMetadata<'_>, HeaderError> {
    let mut pass = Pass::new(text);
    let mut missing = Missing::new(wanted);
    pass.members(|pass, key| {
        if key != "metadata" {
            return pass.value().map(|_| ControlFlow::Continue(()));
        }
        pass.members(|pass, key| pass.field(key, &mut missing))?;
        Ok(ControlFlow::Break(()))
    })?;
    let Scan { name, namespace, uid, resource_version, controller, .. } = pass.into_scan();
    for (field, value) in [("name", &name), ("uid", &uid), ("resourceVersion", &resource_version)] {
        if value.is_empty() {
            return Err(HeaderError::Missing(field));
        }
    }
    let namespace = namespace.filter(|namespace| !namespace.is_empty());
    let owner = controller.map(|owner| owner.uid);
    Ok(PartialMetadata { name, namespace, uid, resource_version, owner })
}

/// Fields not found yet.
struct Missing([Option<&'static str>; 5]);

impl Missing {
    fn new(wanted: PartialFields) -> Self {
        let namespace = wanted.namespace.then_some("namespace");
        let owner = wanted.owner.then_some("ownerReferences");
        Self([Some("name"), Some("uid"), Some("resourceVersion"), namespace, owner])
    }

    /// Takes a field off the list, if it is on it.
    fn take(&mut self, key: &str) -> Option<&'static str> {
        self.0.iter_mut().find(|field| **field == Some(key))?.take()
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }
}

impl Pass<'_, '_> {
    /// Reads a member of the metadata if it is missing; says whether to go on.
    fn field(&mut self, key: &str, missing: &mut Missing) -> Result<ControlFlow<()>, HeaderError> {
        let value = self.value()?;
        if let Some(field) = missing.take(key)
            && value != "null"
        {
            self.read(field, value)?;
        }
        Ok(if missing.is_empty() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::super::scan::scan;
    use super::*;

    const BOTH: PartialFields = PartialFields { namespace: true, owner: true };

    #[test]
    fn what_lies_behind_is_never_looked_at() {
        let head =
            r#"{"kind":"X","metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7""#;
        let found =
            |text: &str, wanted| partial_metadata(text, wanted).map(|found| found.uid.into_owned());
        let own = PartialFields { owner: false, ..BOTH };
        assert_eq!(found(&format!("{head},{{{{"), own).unwrap(), "u");
        assert_eq!(found(&format!("{head}}},[[["), BOTH).unwrap(), "u");
        assert!(found(&format!("{head},\"labels\":{{"), BOTH).is_err(), "the owner may follow");
        assert!(found(r#"{"kind":"X"}"#, own).is_err());
        assert!(found(r#"{"metadata":null}"#, own).is_err());
        assert!(found("[]", own).is_err());
    }

    /// Metadata whose fields come in some order, some of them absent, `null`, escaped or empty.
    fn metadata() -> impl Strategy<Value = Vec<(String, Value)>> {
        let text = || prop_oneof![4 => "[a-z]{1,4}".prop_map(Value::from), 1 => "[\"\\\\é]{0,2}".prop_map(Value::from), 1 => Just(Value::Null)];
        let owners = prop::collection::vec(("[a-c]", any::<Option<bool>>()), 0..3).prop_map(|all| {
            let owners = all.into_iter().map(|(uid, controller)| {
                json!({"apiVersion": "v1", "kind": "X", "name": "x", "uid": uid, "controller": controller})
            });
            Value::from_iter(owners)
        });
        let fields = ["name", "namespace", "uid", "resourceVersion"]
            .map(|field| (Just(field.to_owned()), text()));
        let [name, namespace, uid, version] = fields;
        let noise =
            Just(("managedFields".to_owned(), json!([{"fieldsV1": {"uid": "no", "name": ["x"]}}])));
        let labels = Just(("labels".to_owned(), json!({"uid": "nor", "name": "this"})));
        (name, namespace, uid, version, (Just("ownerReferences".to_owned()), owners), noise, labels)
            .prop_map(|(a, b, c, d, e, f, g)| vec![a, b, c, d, e, f, g])
            .prop_shuffle()
            .prop_flat_map(|all| {
                let len = all.len();
                prop::sample::subsequence(all, 0..=len)
            })
    }

    proptest! {
        /// The partial metadata says what the whole scan says, and fails only where that fails.
        #[test]
        fn partial_metadata_agrees_with_the_scan(fields in metadata(), first in any::<bool>(), namespace in any::<bool>(), owner in any::<bool>()) {
            // Written by hand, for a map of serde_json's orders its members.
            let members: Vec<_> = fields.iter().map(|(key, value)| format!("{}: {value}", json!(key))).collect();
            let metadata = format!("\"metadata\": {{{}}}", members.join(" ,"));
            let spec = r#""spec": {"metadata": {"uid": "x"}, "uid": 5}"#;
            let text = if first { format!("{{{metadata}, {spec}}}") } else { format!("{{{spec}, {metadata} }}") };
            let wanted = PartialFields { namespace, owner };
            match scan(&text, None) {
                Ok(whole) => {
                    let found = partial_metadata(&text, wanted).unwrap();
                    prop_assert_eq!(&found.name, &whole.name);
                    prop_assert_eq!(&found.uid, &whole.uid);
                    prop_assert_eq!(&found.resource_version, &whole.resource_version);
                    if namespace {
                        prop_assert_eq!(found.namespace, whole.namespace.filter(|n| !n.is_empty()));
                    }
                    if owner {
                        prop_assert_eq!(found.owner, whole.controller.map(|owner| owner.uid));
                    }
                }
                // Only of what it looks at can it say that it is wrong.
                Err(_) => prop_assert!(partial_metadata(&text, wanted).is_err()),
            }
        }
    }
}
