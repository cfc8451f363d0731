//! Ready-made predicates for [`crate::Controller::predicate`].

use crate::object::Object;

/// Holds when an object is new, gone, being deleted, or has another `metadata.generation`: for
/// kinds with a status subresource, everything but changes of status and metadata.
///
/// For kinds without a generation (ConfigMaps, Secrets) it never sees a change: do not use it there.
pub fn generation_changed<K: Object>()
-> impl Fn(Option<&K>, Option<&K>) -> bool + Send + Sync + 'static {
    |old, new| match (old, new) {
        (Some(old), Some(new)) => {
            let (old, new) = (old.meta(), new.meta());
            old.generation != new.generation
                || old.uid != new.uid
                || old.deletion_timestamp.is_some() != new.deletion_timestamp.is_some()
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use serde_json::json;

    use super::*;

    #[test]
    fn status_changes_do_not_count() {
        let object = |generation: u64, ready: u64| -> Deployment {
            serde_json::from_value(json!({
                "metadata": {"name": "a", "uid": "u", "generation": generation},
                "status": {"readyReplicas": ready},
            }))
            .unwrap()
        };
        let changed = generation_changed::<Deployment>();
        assert!(!changed(Some(&object(1, 0)), Some(&object(1, 1))));
        assert!(changed(Some(&object(1, 0)), Some(&object(2, 0))));
        assert!(changed(None, Some(&object(1, 0))));
        assert!(changed(Some(&object(1, 0)), None));
    }
}
