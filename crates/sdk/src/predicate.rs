//! Predicates for [`crate::Controller::predicate`]: which changes of an object are worth a
//! reconcile.
//!
//! The ready-made ones hold for every object that is new, gone, being deleted or replaced by a
//! namesake, so none of them swallows a deletion. All but [`annotations_changed`] are decided from
//! the cache's headers, without decoding anything.

use std::marker::PhantomData;

use cache::{Entry, Header};
use model::Object;

/// Says which changes count.
///
/// Implemented for every `Fn(Option<&K>, Option<&K>) -> bool`, which gets the object before and
/// after: the first is absent for a new object, the second for a deleted one.
pub trait Predicate<K>: Send + Sync + 'static {
    /// Whether a change from `old` to `new` counts, as the cache has them.
    fn holds(&self, old: Option<&Entry>, new: Option<&Entry>) -> bool;
}

impl<K, F> Predicate<K> for F
where
    K: Object,
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

/// A predicate on headers.
struct OnHeaders<F>(F);

impl<K: Object, F> Predicate<K> for OnHeaders<F>
where
    F: Fn(&Header, &Header) -> bool + Send + Sync + 'static,
{
    fn holds(&self, old: Option<&Entry>, new: Option<&Entry>) -> bool {
        match (old, new) {
            (Some(old), Some(new)) => {
                is_another(&old.header, &new.header) || (self.0)(&old.header, &new.header)
            }
            _ => true,
        }
    }
}

fn is_another(old: &Header, new: &Header) -> bool {
    old.uid != new.uid || old.deleting != new.deleting
}

/// Holds when the object has another `metadata.generation`: for kinds with a status subresource,
/// everything but changes of status and metadata.
///
/// For kinds without a generation (ConfigMaps, Secrets) it never sees a change: do not use it there.
pub fn generation_changed<K: Object>() -> impl Predicate<K> {
    OnHeaders(|old: &Header, new: &Header| old.generation != new.generation)
}

/// Holds when the object has other labels.
pub fn labels_changed<K: Object>() -> impl Predicate<K> {
    OnHeaders(|old: &Header, new: &Header| old.labels != new.labels)
}

/// Holds when one label of the object has come, gone or got another value.
pub fn label_changed<K: Object>(key: &str) -> impl Predicate<K> {
    let key = key.to_owned();
    OnHeaders(move |old: &Header, new: &Header| old.label(&key) != new.label(&key))
}

/// Holds when the object has other annotations.
pub fn annotations_changed<K: Object>() -> impl Predicate<K> {
    let ends = OnHeaders(|_: &Header, _: &Header| false);
    either(ends, |old: Option<&K>, new: Option<&K>| {
        old.map(|old| &old.meta().annotations) != new.map(|new| &new.meta().annotations)
    })
}

/// Holds when one of two predicates does.
pub fn either<K: Object>(one: impl Predicate<K>, other: impl Predicate<K>) -> impl Predicate<K> {
    Either { one, other, kind: PhantomData::<fn() -> K> }
}

struct Either<A, B, K> {
    one: A,
    other: B,
    kind: PhantomData<fn() -> K>,
}

impl<K: Object, A: Predicate<K>, B: Predicate<K>> Predicate<K> for Either<A, B, K> {
    fn holds(&self, old: Option<&Entry>, new: Option<&Entry>) -> bool {
        self.one.holds(old, new) || self.other.holds(old, new)
    }
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
            },
            "status": {"readyReplicas": 0},
        });
        change(&mut object);
        std::sync::Arc::into_inner(StoreWriter::default().parse(&object.to_string()).unwrap())
            .expect("nobody else has it")
    }

    type Change = fn(&mut Value);

    const CHANGES: [(&str, Change); 7] = [
        ("status", |object| object["status"]["readyReplicas"] = 1.into()),
        ("spec", |object| object["metadata"]["generation"] = 2.into()),
        ("label app", |object| object["metadata"]["labels"]["app"] = "api".into()),
        ("label tier", |object| object["metadata"]["labels"]["tier"] = "back".into()),
        ("annotation", |object| object["metadata"]["annotations"]["note"] = "y".into()),
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
            (
                Box::new(either(generation_changed(), label_changed("tier"))),
                vec!["spec", "label tier"],
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
