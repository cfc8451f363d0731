//! The fields of an object that belong to the server, which sets them on create and keeps them
//! through updates: identity, timestamps, generation, and status if it is a subresource.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{deleting, finalizers, meta, set_meta};
use crate::clock;
use crate::kinds::KindInfo;
use crate::status::{ApiError, FieldError};

/// Metadata that clients cannot set.
const SYSTEM_FIELDS: &[&str] =
    &["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"];

/// Prepares an object for its creation.
pub fn for_create(kind: &KindInfo, object: &mut Value, uid: String, now: Timestamp) {
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"]
    {
        set_meta(object, field, None);
    }
    set_meta(object, "uid", Some(json!(uid)));
    set_meta(object, "creationTimestamp", Some(json!(clock::seconds(now))));
    if kind.generation {
        set_meta(object, "generation", Some(json!(1)));
    }
    if kind.status
        && let Some(fields) = object.as_object_mut()
    {
        fields.remove("status");
    }
    tidy(kind, object);
}

/// Turns a proposed object into the one that replaces `current`.
///
/// # Errors
/// 409 for another incarnation or version, 422 for a missing version or for finalizers added
/// during deletion.
pub fn for_update(
    kind: &KindInfo,
    subresource: Option<&str>,
    current: &Value,
    mut proposed: Value,
) -> Result<Value, ApiError> {
    check_uid(kind, current, &proposed)?;
    check_version(kind, current, &proposed)?;
    let name = meta(current, "name");
    if subresource == Some("status") {
        proposed = with_status_of(kind, current, proposed);
    } else if kind.status {
        copy_member(current, &mut proposed, "status");
    }
    for field in SYSTEM_FIELDS.iter().chain(&["generation", "resourceVersion", "name", "namespace"])
    {
        set_meta(&mut proposed, field, current["metadata"].get(field).cloned());
    }
    set_meta(&mut proposed, "selfLink", None);
    tidy(kind, &mut proposed);
    check_finalizers(kind, name, current, &proposed)?;
    Ok(proposed)
}

/// Raises the generation if the spec has changed. The objects must be complete: a default that was
/// left out and filled in again is not a change.
pub fn count_generation(kind: &KindInfo, current: &Value, next: &mut Value) {
    if kind.generation && differs_in_substance(kind, current, next) {
        let generation = current["metadata"]["generation"].as_i64().unwrap_or_default() + 1;
        set_meta(next, "generation", Some(json!(generation)));
    }
}

/// Whether two versions differ outside metadata, and outside status where that is kept apart.
fn differs_in_substance(kind: &KindInfo, current: &Value, proposed: &Value) -> bool {
    !substance(kind, current).eq(substance(kind, proposed))
}

/// The members that are compared.
fn substance<'a>(
    kind: &'a KindInfo,
    object: &'a Value,
) -> impl Iterator<Item = (&'a String, &'a Value)> {
    let fields = object.as_object().into_iter().flatten();
    fields.filter(move |(key, _)| match key.as_str() {
        "metadata" | "apiVersion" => false,
        "status" => !kind.status,
        _ => true,
    })
}

/// A write keeps the uid. Only a patch can get here with another one: see [`uid_precondition`].
fn check_uid(kind: &KindInfo, current: &Value, proposed: &Value) -> Result<(), ApiError> {
    let uid = meta(proposed, "uid");
    if uid.is_empty() || uid == meta(current, "uid") {
        return Ok(());
    }
    let error = FieldError::invalid("metadata.uid", uid, "field is immutable");
    Err(ApiError::invalid(kind, meta(current, "name"), &[error]))
}

/// The resourceVersion a write names must be that of the stored object.
fn check_version(kind: &KindInfo, current: &Value, proposed: &Value) -> Result<(), ApiError> {
    let name = meta(current, "name");
    match meta(proposed, "resourceVersion") {
        "" | "0" if kind.unconditional_update => Ok(()),
        "" | "0" => {
            let error = FieldError::invalid(
                "metadata.resourceVersion",
                Value::from(0),
                "must be specified for an update",
            );
            // The real server puts the resource where the kind belongs, and so do we.
            Err(ApiError::invalid_kind(&kind.group, &kind.plural, name, &[error]))
        }
        version if version == meta(current, "resourceVersion") => Ok(()),
        _ => Err(ApiError::conflict(kind, name)),
    }
}

/// An update with a uid is meant only for that incarnation; an absent object has none.
///
/// # Errors
/// 409 in the words of the storage layer of a real server.
pub fn uid_precondition(
    kind: &KindInfo,
    current: Option<&Value>,
    proposed: &Value,
) -> Result<(), ApiError> {
    let uid = meta(proposed, "uid");
    let stored = current.map_or("", |current| meta(current, "uid"));
    if uid.is_empty() || uid == stored {
        return Ok(());
    }
    let (namespace, name) = (meta(proposed, "namespace"), meta(proposed, "name"));
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: \
         Precondition failed: UID in precondition: {uid}, UID in object meta: {stored}",
        storage_key(kind, namespace, name)
    );
    Err(ApiError::conflict_because(kind, name, &why))
}

/// The key under which a real server would store the object.
fn storage_key(kind: &KindInfo, namespace: &str, name: &str) -> String {
    let table = match (kind.custom, kind.plural.as_str()) {
        (true, plural) => format!("{}/{plural}", kind.group),
        (false, "services") => "services/specs".to_owned(),
        (false, plural) => plural.to_owned(),
    };
    let parts = ["/registry", &table, namespace, name];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
}

fn check_finalizers(
    kind: &KindInfo,
    name: &str,
    current: &Value,
    proposed: &Value,
) -> Result<(), ApiError> {
    if !deleting(current) {
        return Ok(());
    }
    let known: Vec<&str> = finalizers(current).collect();
    let added: Vec<String> =
        finalizers(proposed).filter(|f| !known.contains(f)).map(|f| format!("{f:?}")).collect();
    if added.is_empty() {
        return Ok(());
    }
    let detail = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        added.join(", ")
    );
    let error = FieldError::forbidden("metadata.finalizers", detail);
    Err(ApiError::invalid(kind, name, &[error]))
}

/// The stored object with the proposed one's status and, of its metadata, what the kind lets a
/// status have.
fn with_status_of(kind: &KindInfo, current: &Value, mut proposed: Value) -> Value {
    let mut next = current.clone();
    if kind.is("", "pods") {
        keep_unknown(current, &mut proposed);
    }
    copy_member(&proposed, &mut next, "status");
    if kind.custom {
        set_meta(&mut next, "managedFields", proposed["metadata"].get("managedFields").cloned());
    } else {
        next["metadata"] = proposed["metadata"].take();
        for field in kind.kept_by_status() {
            set_meta(&mut next, field, current["metadata"].get(field).cloned());
        }
    }
    next
}

/// Parts of a Pod's status that kubelets of older versions do not know, and leave out.
const NEWER_STATUS: &[&str] = &[
    "qosClass",
    "observedGeneration",
    "resourceClaimStatuses",
    "extendedResourceClaimStatus",
    "nodeAllocatableResourceClaimStatuses",
];

/// Keeps the parts of a Pod's status that the proposed one leaves out.
fn keep_unknown(current: &Value, pod: &mut Value) {
    let Some(status) = pod.get_mut("status").and_then(Value::as_object_mut) else { return };
    for field in NEWER_STATUS {
        let new = status.get(*field).unwrap_or(&Value::Null);
        let is_unset = new.is_null() || *new == "" || *new == 0;
        if let (true, Some(old)) = (is_unset, current["status"].get(field)) {
            status.insert((*field).to_owned(), old.clone());
        }
    }
}

fn copy_member(from: &Value, to: &mut Value, member: &str) {
    let Some(fields) = to.as_object_mut() else { return };
    match from.get(member) {
        Some(value) => fields.insert(member.into(), value.clone()),
        None => fields.remove(member),
    };
}

/// Gives equal objects one form: removes empty metadata fields, and every null in built-in kinds.
fn tidy(kind: &KindInfo, object: &mut Value) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|_, value| match value {
            Value::Null => false,
            Value::Object(members) => !members.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::String(text) => !text.is_empty(),
            _ => true,
        });
    }
    if !kind.custom {
        drop_nulls(object);
    }
}

/// Some clients write `null` for a field that is absent.
pub(crate) fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|_, member| !member.is_null());
            members.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;

    fn kind(plural: &str) -> KindInfo {
        kinds::builtin().into_iter().find(|k| k.plural == plural).unwrap()
    }

    fn custom() -> KindInfo {
        KindInfo { custom: true, status: true, generation: true, ..kind("leases") }
    }

    fn stored() -> Value {
        json!({
            "apiVersion": "v1", "kind": "X",
            "metadata": {"name": "a", "uid": "u", "resourceVersion": "5", "generation": 3,
                         "creationTimestamp": "2024-01-01T00:00:00Z"},
            "spec": {"a": 1}, "status": {"s": 1},
        })
    }

    #[test]
    fn a_create_starts_at_generation_one_without_status() {
        let mut object = stored();
        for_create(&custom(), &mut object, "new".into(), Timestamp::UNIX_EPOCH);
        assert_eq!(
            object["metadata"],
            json!({"name": "a", "uid": "new", "generation": 1, "creationTimestamp": "1970-01-01T00:00:00Z"})
        );
        assert!(object.get("status").is_none());
    }

    #[test]
    fn generation_counts_changes_of_the_spec() {
        let change = |edit: fn(&mut Value)| {
            let mut proposed = stored();
            edit(&mut proposed);
            let mut next = for_update(&custom(), None, &stored(), proposed).unwrap();
            count_generation(&custom(), &stored(), &mut next);
            next["metadata"]["generation"].clone()
        };
        assert_eq!(change(|o| o["spec"]["a"] = json!(2)), 4);
        assert_eq!(change(|o| o["status"]["s"] = json!(2)), 3);
        assert_eq!(change(|o| o["metadata"]["labels"] = json!({"l": "1"})), 3);
        assert_eq!(change(|o| o["metadata"]["generation"] = json!(99)), 3);
    }

    #[test]
    fn spec_and_status_are_written_separately() {
        let mut proposed = stored();
        proposed["spec"]["a"] = json!(2);
        proposed["status"]["s"] = json!(2);
        proposed["metadata"]["labels"] = json!({"l": "1"});
        let main = for_update(&custom(), None, &stored(), proposed.clone()).unwrap();
        assert_eq!((&main["spec"]["a"], &main["status"]["s"]), (&json!(2), &json!(1)));
        let status = for_update(&custom(), Some("status"), &stored(), proposed).unwrap();
        assert_eq!((&status["spec"]["a"], &status["status"]["s"]), (&json!(1), &json!(2)));
        assert!(status["metadata"].get("labels").is_none());
    }

    #[test]
    fn the_status_of_a_built_in_kind_comes_with_metadata() {
        let mut proposed = stored();
        proposed["metadata"]["labels"] = json!({"l": "1"});
        proposed["metadata"]["annotations"] = json!({"a": "1"});
        let owner = json!([{"apiVersion": "v1", "kind": "A", "name": "a", "uid": "u"}]);
        proposed["metadata"]["ownerReferences"] = owner;
        proposed["metadata"]["generation"] = json!(9);
        for (plural, dropped) in [
            ("daemonsets", vec![]),
            ("customresourcedefinitions", vec![]),
            ("deployments", vec!["labels"]),
            ("pods", vec!["ownerReferences"]),
        ] {
            let next = for_update(&kind(plural), Some("status"), &stored(), proposed.clone());
            let metadata = next.unwrap()["metadata"].take();
            assert_eq!(metadata["generation"], 3);
            for field in ["labels", "annotations", "ownerReferences"] {
                let is_dropped = metadata.get(field).is_none();
                assert_eq!(is_dropped, dropped.contains(&field), "{field} of {plural}");
            }
        }
    }

    #[test]
    fn the_status_of_a_pod_keeps_what_older_kubelets_leave_out() {
        let mut current = stored();
        current["status"] = json!({"qosClass": "Burstable", "observedGeneration": 3, "phase": "A"});
        let mut proposed = stored();
        proposed["status"] = json!({"phase": "B", "observedGeneration": 4});
        let next = for_update(&kind("pods"), Some("status"), &current, proposed).unwrap();
        let expected = json!({"qosClass": "Burstable", "observedGeneration": 4, "phase": "B"});
        assert_eq!(next["status"], expected);
    }

    #[test]
    fn a_write_names_the_version_it_replaces() {
        let with = |uid: &str, version: &str| {
            let mut object = stored();
            object["metadata"]["uid"] = json!(uid);
            object["metadata"]["resourceVersion"] = json!(version);
            object
        };
        let code =
            |kind: &KindInfo, object| for_update(kind, None, &stored(), object).map_err(|e| e.code);
        assert!(code(&custom(), with("u", "5")).is_ok());
        assert_eq!(code(&custom(), with("u", "4")), Err(409));
        assert_eq!(code(&custom(), with("u", "")), Err(422));
        assert_eq!(code(&custom(), with("other", "5")), Err(422));
        assert!(code(&kind("configmaps"), with("", "")).is_ok());
    }

    #[test]
    fn an_update_is_meant_for_one_incarnation() {
        let code = |uid: &str, current: Option<&Value>| {
            let proposed = json!({"metadata": {"name": "a", "uid": uid}});
            uid_precondition(&kind("leases"), current, &proposed).map_err(|e| e.code)
        };
        assert_eq!(code("u", Some(&stored())), Ok(()));
        assert_eq!(code("", None), Ok(()));
        assert_eq!(code("v", Some(&stored())), Err(409));
        assert_eq!(code("u", None), Err(409));
    }

    #[test]
    fn finalizers_can_only_be_removed_once_deletion_has_begun() {
        let mut current = stored();
        current["metadata"]["deletionTimestamp"] = json!("2024-01-01T00:00:00Z");
        current["metadata"]["finalizers"] = json!(["a/b"]);
        let mut proposed = current.clone();
        proposed["metadata"]["finalizers"] = json!(["a/b", "c/d"]);
        assert_eq!(for_update(&custom(), None, &current, proposed.clone()).unwrap_err().code, 422);
        proposed["metadata"]["finalizers"] = json!([]);
        assert!(for_update(&custom(), None, &current, proposed).is_ok());
    }
}
