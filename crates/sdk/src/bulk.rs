//! Cached objects that are decoded to be held at once, as those of a list. What they may take is bounded, whatever a
//! cluster puts into them.

use std::sync::Arc;

use cache::{DecodeError, Entry, MOST_FOR_EACH_BYTE};
use engine::{CacheView, ReconcileError};
use model::{AnyObject, Kind};
use serde::de::DeserializeOwned;

/// The most that the objects of a list may take once they are decoded, in MiB, by the cache's estimate: a thousand
/// large Pods, more as `DynamicObject`, and far more of what has few arrays of objects.
const MAX_MIB: usize = 256;
const MAX_BYTES: usize = MAX_MIB << 20;
/// Objects with no more JSON than this take no more, whatever is in them, and need not be weighed.
const LITTLE_JSON: usize = MAX_BYTES / MOST_FOR_EACH_BYTE;

/// An object that cannot be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BulkError {
    /// It does not fit the type.
    #[error(transparent)]
    Unfit(#[from] DecodeError),
    /// With those before it, it takes too much.
    #[error(
        "cluster {cluster}: {count} objects of {kind} would take more than {MAX_MIB} MiB once they are decoded; fix: \
         select fewer by namespace, labels or an index, or do not cache what is not read: Controller::transform, \
         Watch::metadata_only"
    )]
    TooMuch { cluster: String, kind: String, count: usize },
}

impl From<BulkError> for ReconcileError {
    fn from(error: BulkError) -> Self {
        match error {
            BulkError::Unfit(error) => error.into(),
            BulkError::TooMuch { .. } => Self::terminal(error),
        }
    }
}

/// Objects of a kind, decoded one after the other. Ends behind the first that would take too much.
pub(crate) fn objects<T: AnyObject>(
    view: &CacheView,
    kind: &Kind,
    entries: &[Arc<Entry>],
) -> impl Iterator<Item = Result<T, BulkError>> {
    let all = each(view, kind, entries, Entry::decode::<T>, Entry::decode_weighed::<T>);
    all.map(move |found| {
        found.map(|mut object| {
            object.set_kind(kind);
            object
        })
    })
}

/// [`objects`], read as any type.
pub(crate) fn values<T: DeserializeOwned>(
    view: &CacheView,
    kind: &Kind,
    entries: &[Arc<Entry>],
) -> impl Iterator<Item = Result<T, BulkError>> {
    each(view, kind, entries, Entry::decode_dynamic::<T>, Entry::decode_dynamic_weighed::<T>)
}

fn each<T>(
    view: &CacheView,
    kind: &Kind,
    entries: &[Arc<Entry>],
    decode: impl Fn(&Entry) -> Result<T, DecodeError>,
    decode_weighed: impl Fn(&Entry) -> Result<(T, usize), DecodeError>,
) -> impl Iterator<Item = Result<T, BulkError>> {
    let json: usize = entries.iter().map(|entry| entry.json_len()).sum();
    let mut taken = 0;
    entries.iter().map_while(move |entry| {
        if taken > MAX_BYTES {
            return None;
        }
        let found = match json <= LITTLE_JSON {
            true => decode(entry).map(|object| (object, 0)),
            false => decode_weighed(entry),
        };
        let (object, bytes) = match found {
            Ok(found) => found,
            Err(error) => return Some(Err(BulkError::Unfit(error))),
        };
        taken += bytes;
        Some(if taken > MAX_BYTES { Err(too_much(view, kind, entries)) } else { Ok(object) })
    })
}

fn too_much(view: &CacheView, kind: &Kind, entries: &[Arc<Entry>]) -> BulkError {
    let cluster = view.cluster().map_or_else(|| "unknown".to_owned(), ToString::to_string);
    BulkError::TooMuch { cluster, kind: kind.to_string(), count: entries.len() }
}

#[cfg(test)]
mod tests {
    use cache::StoreWriter;
    use k8s_openapi::api::core::v1::{ConfigMap, Pod};
    use kube::core::{DynamicObject, PartialObjectMeta};
    use serde_json::{Value, json};

    use super::*;

    fn several(count: usize, spec: &str) -> Vec<Arc<Entry>> {
        let metadata = r#"{"name":"a","uid":"u","resourceVersion":"1"}"#;
        let text = format!(r#"{{"metadata":{metadata},"spec":{spec}}}"#);
        vec![StoreWriter::default().parse(&text).unwrap(); count]
    }

    /// How many were had, and what the last one said.
    fn had<T>(found: impl Iterator<Item = Result<T, BulkError>>) -> (usize, String) {
        let (mut count, mut last) = (0, String::new());
        for one in found {
            match one {
                Ok(_) => count += 1,
                Err(error) => last = error.to_string(),
            }
        }
        (count, last)
    }

    /// All of them are 4 MiB of JSON, or a few times as much. A ConfigMap has no such field: the test itself takes
    /// nothing.
    #[test]
    fn little_text_that_takes_gigabytes_is_refused() {
        let (view, kind) = (CacheView::default(), Kind::of::<ConfigMap>());
        let list = |value: &str, count: usize| format!("[{}]", vec![value; count].join(","));
        for (spec, most) in [(list("{}", 16_000), 10), (list("0", 250_000), 20)] {
            let entries = several(85, &spec);
            let (count, error) = had(objects::<ConfigMap>(&view, &kind, &entries));
            assert!((1..most).contains(&count), "{count}");
            let expect = "cluster unknown: 85 objects of ConfigMap would take more than 256 MiB";
            assert!(error.starts_with(expect) && error.contains("; fix: "), "{error}");
        }
        let entries = several(85, &list(r#"{"":0}"#, 16_000));
        let (partial, error) = had(objects::<PartialObjectMeta>(&view, &kind, &entries));
        assert!((1..40).contains(&partial) && error.contains("85 objects"), "{partial}: {error}");
        let entries = several(85, &list("{}", 16_000));
        let (whole, error) = had(objects::<DynamicObject>(&view, &kind, &entries));
        assert!((1..40).contains(&whole) && error.contains("85 objects"), "{whole}: {error}");
        let (read, error) = had(values::<Value>(&view, &kind, &entries));
        assert!((1..40).contains(&read) && error.contains("85 objects"), "{read}: {error}");
    }

    #[test]
    fn a_list_of_ordinary_objects_is_decoded() {
        let (view, kind) = (CacheView::default(), Kind::of::<Pod>());
        let env = json!({"name": "SOME_VARIABLE", "value": "http://service.namespace.svc:8080"});
        let container = json!({
            "name": "main", "image": "registry.example/group/image:v1.2.3", "env": vec![env; 20],
            "resources": {"limits": {"memory": "64Mi"}, "requests": {"cpu": "50m"}},
            "ports": [{"containerPort": 8080}],
            "livenessProbe": {"httpGet": {"path": "/", "port": 8080}},
            "volumeMounts": [{"name": "a", "mountPath": "/a"}, {"name": "b", "mountPath": "/b"}],
        });
        let spec = json!({"containers": [container.clone(), container]}).to_string();
        for count in [10, 2000] {
            let entries = several(count, &spec);
            assert_eq!(had(objects::<Pod>(&view, &kind, &entries)), (count, String::new()));
            assert_eq!(had(values::<Value>(&view, &kind, &entries)), (count, String::new()));
        }
    }

    #[test]
    fn those_that_do_not_fit_are_said_and_the_others_follow() {
        let (view, kind) = (CacheView::default(), Kind::of::<Pod>());
        let mut entries = several(3, "{}");
        entries[1] = several(1, "[]").remove(0);
        let found = objects::<Pod>(&view, &kind, &entries).map(|one| one.is_ok());
        assert_eq!(found.collect::<Vec<_>>(), [true, false, true]);
    }
}
