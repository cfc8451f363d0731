//! The stamp: an annotation on every object that a reconcile writes. It holds the epoch of its shard at
//! the write, so that an admission policy in the cluster can refuse late writes.
//!
//! There is one annotation for each controller group, since each has epochs of its own; the epochs of
//! one object's shards only rise, through handovers, splits and merges. Requests without annotations
//! carry no stamp: deletions, writes to subresources and JSON patches. Nor do Events, which nobody
//! updates.
//!
//! Pure: bytes in, bytes out. A body that is not understood passes unchanged, and everything but the
//! annotations passes byte for byte.

use std::collections::BTreeMap;

use http::Method;
use model::{Epoch, GroupName};
use serde_json::value::{RawValue, to_raw_value};

use crate::path::ResourcePath;

/// The prefix of the annotations; the group follows.
const EPOCH_ANNOTATION: &str = "epoch.leasehold.dev/";

/// The members of a JSON object, unread.
type Members = BTreeMap<String, Box<RawValue>>;

/// Whether a request of that method and path writes an object that can carry a stamp.
pub fn is_stamped(method: &Method, path: &str, content_type: &str) -> bool {
    let whole_object = matches!(*method, Method::POST | Method::PUT);
    let patch = *method == Method::PATCH && !content_type.starts_with("application/json-patch");
    let at = ResourcePath::read(path);
    (whole_object || patch)
        && at.is_some_and(|at| at.plural != "events" && at.subresource.is_none())
}

/// The body with the stamp; nothing if it is no object.
pub fn stamped(body: &[u8], group: &GroupName, epoch: Epoch) -> Option<Vec<u8>> {
    let mut object: Members = serde_json::from_slice(body).ok()?;
    let mut metadata = members(object.get("metadata").map(AsRef::as_ref))?;
    let mut annotations = members(metadata.get("annotations").map(AsRef::as_ref))?;
    let stamp = to_raw_value(&epoch.to_string()).ok()?;
    annotations.insert(format!("{EPOCH_ANNOTATION}{group}"), stamp);
    metadata.insert("annotations".to_owned(), to_raw_value(&annotations).ok()?);
    object.insert("metadata".to_owned(), to_raw_value(&metadata).ok()?);
    serde_json::to_vec(&object).ok()
}

/// The members of an object that may be absent or null.
fn members(value: Option<&RawValue>) -> Option<Members> {
    let Some(value) = value else { return Some(Members::new()) };
    serde_json::from_str::<Option<Members>>(value.get()).ok().map(Option::unwrap_or_default)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn objects_are_stamped_and_subresources_events_and_deletions_are_not() {
        let (merge, json_patch) = ("application/merge-patch+json", "application/json-patch+json");
        for (method, path, content, expect) in [
            (Method::POST, "/api/v1/namespaces/ns/configmaps", "application/json", true),
            (Method::PUT, "/apis/apps/v1/namespaces/ns/deployments/a", "application/json", true),
            (Method::PATCH, "/apis/apps/v1/namespaces/ns/deployments/a", merge, true),
            (Method::PATCH, "/api/v1/nodes/a", "application/apply-patch+yaml", true),
            (Method::PUT, "/api/v1/namespaces/ns", "application/json", true),
            (Method::PATCH, "/api/v1/nodes/a", json_patch, false),
            (Method::PUT, "/apis/apps/v1/namespaces/ns/deployments/a/status", "", false),
            (Method::PUT, "/api/v1/nodes/a/status", "", false),
            (Method::POST, "/api/v1/namespaces/ns/events", "", false),
            (Method::POST, "/apis/events.k8s.io/v1/namespaces/ns/events", "", false),
            (Method::DELETE, "/api/v1/namespaces/ns/configmaps/a", "", false),
            (Method::POST, "/somewhere/else", "", false),
        ] {
            assert_eq!(is_stamped(&method, path, content), expect, "{method} {path} {content}");
        }
    }

    #[test]
    fn a_stamp_is_added_and_the_rest_passes_byte_for_byte() {
        let stamp = |body: &str| {
            let stamped = stamped(body.as_bytes(), &"tdset".parse().unwrap(), Epoch(7))?;
            Some(serde_json::from_slice::<Value>(&stamped).unwrap())
        };
        let expect = json!({"epoch.leasehold.dev/tdset": "7"});
        for body in [r"{}", r#"{"metadata":null}"#, r#"{"metadata":{"annotations":null}}"#] {
            assert_eq!(stamp(body).unwrap()["metadata"]["annotations"], expect, "{body}");
        }
        let body = r#"{"metadata":{"name":"a","annotations":{"b":null,"epoch.leasehold.dev/tdset":"3"}},"x":1.10}"#;
        let stamped = stamped(body.as_bytes(), &"tdset".parse().unwrap(), Epoch(7)).unwrap();
        assert_eq!(
            String::from_utf8(stamped).unwrap(),
            r#"{"metadata":{"annotations":{"b":null,"epoch.leasehold.dev/tdset":"7"},"name":"a"},"x":1.10}"#
        );
        assert_eq!(stamp("[1]"), None);
        assert_eq!(stamp("kind: Yaml"), None);
        assert_eq!(stamp(r#"{"metadata":{"annotations":[]}}"#), None);
    }
}
