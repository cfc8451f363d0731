//! Predicates for [`crate::Controller::predicate`] and [`crate::Watch::predicate`]: which changes of
//! an object are worth a reconcile.
//!
//! The ready-made predicates hold for every object that is new, gone, being deleted or replaced by
//! another of the same name, so none of them hides a deletion; neither do [`and`], [`or`] and [`not`] of
//! them. Most read only the cache's headers and decode nothing; [`annotations_changed`] and
//! [`finalizers_changed`] read the metadata.
//!
//! ```
//! # use leasehold_sdk::{Action, Context, Controller, ObjectKey, ReconcileError, Reconciler, Watch};
//! # use k8s_openapi::api::{apps::v1::Deployment, core::v1::{ConfigMap, Secret}};
//! # struct Roll;
//! # impl Reconciler for Roll {
//! #     type Kind = Deployment;
//! #     async fn reconcile(&self, _: &Context, _: &ObjectKey) -> Result<Action, ReconcileError> {
//! #         Ok(Action::Done)
//! #     }
//! # }
//! use leasehold_sdk::predicate::{finalizers_changed, generation_changed, label_changed, not, or};
//!
//! let is_hidden = |_: Option<&Secret>, new: Option<&Secret>| {
//!     new.is_some_and(|secret| secret.type_.as_deref() == Some("example.com/hidden"))
//! };
//! let spec = Controller::for_kind::<Deployment>("roll")
//!     .predicate(or(generation_changed(), or(finalizers_changed(), label_changed("tier"))))
//!     .owns_with(Watch::<Secret>::all().predicate(not(is_hidden)))
//!     .reconciler(Roll);
//! ```

use std::collections::BTreeMap;

use cache::{Entry, Header};
use model::AnyObject;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Says which changes count.
///
/// Implemented for every `Fn(Option<&K>, Option<&K>) -> bool`, which gets the object before and
/// after: the first is absent for a new object, the second for a deleted one.
pub trait Predicate<K>: Send + Sync + 'static {
    /// Whether a change from `old` to `new`, both as cached, counts.
    fn holds(&self, old: Option<&Entry>, new: Option<&Entry>) -> bool;
}

impl<K, F> Predicate<K> for F
where
    K: AnyObject,
    F: Fn(Option<&K>, Option<&K>) -> bool + Send + Sync + 'static,
{
    fn holds(&self, old: Option<&Entry>, new: Option<&Entry>) -> bool {
        let decode = |entry: Option<&Entry>| entry.map(Entry::decode::<K>).transpose();
        match (decode(old), decode(new)) {
            (Ok(old), Ok(new)) => self(old.as_ref(), new.as_ref()),
            // Let the reconcile say what is wrong with it.
            _ => true,
        }
    }
}

/// A predicate on what the cache has.
struct OnEntries<F>(F);

impl<K, F> Predicate<K> for OnEntries<F>
where
    F: Fn(Option<&Entry>, Option<&Entry>) -> bool + Send + Sync + 'static,
{
    fn holds(&self, old: Option<&Entry>, new: Option<&Entry>) -> bool {
        (self.0)(old, new)
    }
}

/// A predicate on changes of an object that existed before and is not being deleted; it holds for all
/// other changes.
fn on_change<K: AnyObject>(
    counts: impl Fn(&Entry, &Entry) -> bool + Send + Sync + 'static,
) -> impl Predicate<K> {
    OnEntries(move |old: Option<&Entry>, new: Option<&Entry>| match (old, new) {
        (Some(old), Some(new)) => is_another(&old.header, &new.header) || counts(old, new),
        _ => true,
    })
}

/// A predicate on changes that the headers show.
fn on_headers<K: AnyObject>(
    counts: impl Fn(&Header, &Header) -> bool + Send + Sync + 'static,
) -> impl Predicate<K> {
    on_change(move |old, new| counts(&old.header, &new.header))
}

fn is_another(old: &Header, new: &Header) -> bool {
    old.uid != new.uid || old.deleting != new.deleting
}

/// Holds when the object has another `metadata.generation`: in kinds with a status subresource, after
/// every change except of status and metadata.
///
/// Kinds without a generation (ConfigMaps, Secrets) never change it: do not use this predicate there.
pub fn generation_changed<K: AnyObject>() -> impl Predicate<K> {
    on_headers(|old, new| old.generation != new.generation)
}

/// Holds when the object has another `metadata.resourceVersion`, as after every write of it.
pub fn resource_version_changed<K: AnyObject>() -> impl Predicate<K> {
    on_headers(|old, new| old.resource_version != new.resource_version)
}

/// Holds when the object has other labels.
pub fn labels_changed<K: AnyObject>() -> impl Predicate<K> {
    on_headers(|old, new| old.labels != new.labels)
}

/// Holds when one label of the object has come, gone or got another value.
pub fn label_changed<K: AnyObject>(key: &str) -> impl Predicate<K> {
    let key = key.to_owned();
    on_headers(move |old, new| old.label(&key) != new.label(&key))
}

/// Holds when the object has other annotations.
pub fn annotations_changed<K: AnyObject>() -> impl Predicate<K> {
    #[derive(Deserialize, PartialEq)]
    struct Annotated {
        annotations: Option<BTreeMap<String, String>>,
    }
    on_change(metadata_changed::<Annotated>)
}

/// Holds when the object has other finalizers, or the same in another order.
pub fn finalizers_changed<K: AnyObject>() -> impl Predicate<K> {
    #[derive(Deserialize, PartialEq)]
    struct Finalized {
        finalizers: Option<Vec<String>>,
    }
    on_change(metadata_changed::<Finalized>)
}

/// Whether a part of the metadata differs from before.
fn metadata_changed<T: DeserializeOwned + PartialEq>(old: &Entry, new: &Entry) -> bool {
    #[derive(Deserialize)]
    struct Part<T> {
        metadata: T,
    }
    match (old.decode_dynamic::<Part<T>>(), new.decode_dynamic::<Part<T>>()) {
        (Ok(old), Ok(new)) => old.metadata != new.metadata,
        // Let the reconcile say what is wrong with it.
        _ => true,
    }
}

/// Holds when both predicates do.
pub fn and<K: AnyObject>(one: impl Predicate<K>, other: impl Predicate<K>) -> impl Predicate<K> {
    OnEntries(move |old: Option<&Entry>, new: Option<&Entry>| {
        one.holds(old, new) && other.holds(old, new)
    })
}

/// Holds when one of two predicates does.
pub fn or<K: AnyObject>(one: impl Predicate<K>, other: impl Predicate<K>) -> impl Predicate<K> {
    OnEntries(move |old: Option<&Entry>, new: Option<&Entry>| {
        one.holds(old, new) || other.holds(old, new)
    })
}

/// Holds for the changes for which `predicate` does not; and for objects that are new, gone, being
/// deleted or replaced, as all ready-made predicates do.
pub fn not<K: AnyObject>(predicate: impl Predicate<K>) -> impl Predicate<K> {
    on_change(move |old, new| !predicate.holds(Some(old), Some(new)))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use serde_json::{Value, json};

    use super::*;
    use cache::StoreWriter;

    fn entry(change: impl FnOnce(&mut Value)) -> Entry {
        let mut object = json!({
            "metadata": {
                "name": "a", "uid": "u", "resourceVersion": "1", "generation": 1,
                "labels": {"app": "web", "tier": "front"}, "annotations": {"note": "x"},
                "finalizers": ["example.com/a"],
            },
            "status": {"readyReplicas": 0},
        });
        change(&mut object);
        std::sync::Arc::into_inner(StoreWriter::default().parse(&object.to_string()).unwrap())
            .expect("nobody else has it")
    }

    type Change = fn(&mut Value);

    const CHANGES: [(&str, Change); 9] = [
        ("version", |object| object["metadata"]["resourceVersion"] = "2".into()),
        ("status", |object| object["status"]["readyReplicas"] = 1.into()),
        ("spec", |object| object["metadata"]["generation"] = 2.into()),
        ("label app", |object| object["metadata"]["labels"]["app"] = "api".into()),
        ("label tier", |object| object["metadata"]["labels"]["tier"] = "back".into()),
        ("annotation", |object| object["metadata"]["annotations"]["note"] = "y".into()),
        ("finalizer", |object| object["metadata"]["finalizers"] = json!(["example.com/b"])),
        ("deleting", |object| {
            object["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z".into()
        }),
        ("namesake", |object| object["metadata"]["uid"] = "v".into()),
    ];

    /// The changes for which a predicate holds.
    fn seen(predicate: &dyn Predicate<Deployment>) -> Vec<&'static str> {
        let old = entry(|_| {});
        assert!(predicate.holds(None, Some(&old)) && predicate.holds(Some(&old), None));
        let holds = |change: Change| predicate.holds(Some(&old), Some(&entry(change)));
        CHANGES.iter().filter(|(_, change)| holds(*change)).map(|(name, _)| *name).collect()
    }

    #[test]
    fn each_sees_its_own_changes_and_all_see_what_ends_an_object() {
        let ends = ["deleting", "namesake"];
        for (predicate, sees) in [
            (Box::new(generation_changed()) as Box<dyn Predicate<_>>, vec!["spec"]),
            (Box::new(labels_changed()), vec!["label app", "label tier"]),
            (Box::new(label_changed("app")), vec!["label app"]),
            (Box::new(annotations_changed()), vec!["annotation"]),
            (Box::new(resource_version_changed()), vec!["version"]),
            (Box::new(finalizers_changed()), vec!["finalizer"]),
            (Box::new(or(generation_changed(), label_changed("tier"))), vec!["spec", "label tier"]),
            (Box::new(and(labels_changed(), not(label_changed("tier")))), vec!["label app"]),
            (
                Box::new(not(or(
                    labels_changed(),
                    or(generation_changed(), annotations_changed()),
                ))),
                vec!["version", "status", "finalizer"],
            ),
        ] {
            assert_eq!(seen(&*predicate), [sees, ends.to_vec()].concat());
        }
    }

    #[test]
    fn a_function_sees_the_objects() {
        let ready = |object: Option<&Deployment>| object?.status.as_ref()?.ready_replicas;
        let changed = move |old: Option<&Deployment>, new: Option<&Deployment>| {
            old.is_none() || new.is_none() || ready(old) != ready(new)
        };
        assert_eq!(seen(&changed), ["status"]);
    }
}
