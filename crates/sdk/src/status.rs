//! Writes of the status: the whole of it, or some fields.

use std::hash::{BuildHasher, Hash, Hasher};

use cache::ResourceVersion;
use engine::ReconcileError;
use http::HeaderValue;
use http::header::ACCEPT;
use kube::ResourceExt;
use kube::api::{Patch, PostParams};
use model::{AnyObject, Kind};
use serde::Serialize;
use serde_json::Value;

use crate::applied::Answer;
use crate::context::Context;
use crate::owner::named;
use crate::remembered::{Known, Part};
use crate::writes::{Unwritable, json, name, requests, unless_gone};

/// Asks for the metadata of an object only
/// (<https://kubernetes.io/docs/reference/using-api/api-concepts/#alternate-representations-of-resources>).
const METADATA: HeaderValue =
    HeaderValue::from_static("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1");

/// A merge patch of a status.
#[derive(Serialize)]
struct StatusPatch {
    status: Value,
}

/// What a patch of a status asks for, in short.
#[derive(Clone, Copy)]
struct Desired {
    /// Which fields.
    fields: Part,
    /// Of the fields with their values.
    digest: u64,
}

impl Desired {
    fn of(status: &Value, hasher: &impl BuildHasher) -> Self {
        let mut names = hasher.build_hasher();
        hash_names(status, &mut names);
        Self { fields: Part::Fields(names.finish()), digest: hasher.hash_one(status) }
    }
}

impl Context {
    /// Replaces the status of `object`, which must have been read. Nothing is sent if the cached object
    /// has the same version and status.
    ///
    /// Returns the resulting object; `None` if it is gone, which is no error.
    ///
    /// # Errors
    /// What the server says; a conflict if the object changed since it was read.
    pub async fn update_status<K: AnyObject>(
        &self,
        object: &K,
    ) -> Result<Option<K>, ReconcileError> {
        let kind = self.kind_of(object)?;
        let json = json(&kind, object)?;
        let name = name(&kind, object)?;
        if object.resource_version().is_none() {
            return Err(Unwritable::Unread(named(&kind, object)).into());
        }
        if let Some(entry) = self.as_cached(&kind, object)
            && entry.decode_field("status")?.as_ref() == json.get("status")
        {
            return Ok(Some(object.clone()));
        }
        let params =
            PostParams { field_manager: Some(self.field_manager().into()), dry_run: false };
        let body = json.to_string().into_bytes();
        let request = requests(&kind, object).replace_subresource("status", &name, &params, body);
        unless_gone(self.send(request).await)
    }

    /// Sets some fields of the status of `object` with a merge patch ([RFC 7386]): fields that `status`
    /// does not name are left alone, and fields that are null in it are removed. Nothing is sent if
    /// `object` has these values already; if the last patch of the same fields set other values, the
    /// patch is sent without that check.
    ///
    /// Returns whether the object still exists. The server returns only metadata, which saves work at
    /// both ends; the next reconcile of the key finds the result in the cache. If you need the object at
    /// once, use [`Self::update_status`].
    ///
    /// [RFC 7386]: https://www.rfc-editor.org/rfc/rfc7386
    ///
    /// # Errors
    /// What the server says; terminal if the object has no name.
    pub async fn patch_status<K: AnyObject>(
        &self,
        object: &K,
        status: impl Serialize,
    ) -> Result<bool, ReconcileError> {
        let kind = self.kind_of(object)?;
        let status = serde_json::to_value(status);
        let status = status.map_err(|error| Unwritable::Json(kind.clone(), error))?;
        let desired = Desired::of(&status, self.remembered().hasher());
        if self.has_status(&kind, object, &status, desired)? {
            return Ok(true);
        }
        let (name, params) = (name(&kind, object)?, self.merging());
        let patch = Patch::Merge(StatusPatch { status });
        let request = requests(&kind, object).patch_subresource("status", &name, &params, &patch);
        let request = request.map(|mut request| {
            request.headers_mut().insert(ACCEPT, METADATA);
            request
        });
        let answer: Option<Answer> = unless_gone(self.send(request).await)?;
        if let Some(Answer { metadata }) = &answer {
            self.remember_status(object, desired, &metadata.resource_version);
        }
        Ok(answer.is_some())
    }

    /// Whether the status of `object` is as desired. It is read only if the last patch of these fields
    /// does not answer that: in a controller whose status changes all the time, reading it would be a
    /// fifth of the cost of a patch here.
    fn has_status<K: AnyObject>(
        &self,
        kind: &Kind,
        object: &K,
        status: &Value,
        desired: Desired,
    ) -> Result<bool, ReconcileError> {
        let meta = object.meta();
        let version = meta.resource_version.as_deref().unwrap_or_default();
        let known = meta.uid.as_ref().and_then(|uid| {
            let uid = uid.as_str();
            self.remembered().get(self.cluster(), desired.fields, &uid)
        });
        match known {
            // Other values than the last time.
            Some(known) if known.digest != desired.digest => return Ok(false),
            Some(known) if known.version == self.version_digest(version) => return Ok(true),
            _ => {}
        }
        let found = match self.as_cached(kind, object) {
            Some(entry) => entry.decode_field("status")?,
            None => json(kind, object)?.get_mut("status").map(Value::take),
        };
        let has = found.is_some_and(|found| has_merged(&found, status));
        if has {
            self.remember_status(object, desired, version);
        }
        Ok(has)
    }

    /// Remembers that a version of an object has what is desired.
    fn remember_status<K: AnyObject>(&self, object: &K, desired: Desired, version: &str) {
        let Some(uid) = object.meta().uid.as_deref().filter(|_| !version.is_empty()) else {
            return;
        };
        let version = self.version_digest(version);
        let known = Known { digest: desired.digest, version, content: None };
        self.remembered().keep(self.cluster(), desired.fields, &uid, known);
    }

    fn version_digest(&self, version: &str) -> u64 {
        self.remembered().hasher().hash_one(ResourceVersion::new(version))
    }
}

/// Hashes the names of all fields, without their values.
fn hash_names(value: &Value, names: &mut impl Hasher) {
    if let Value::Object(fields) = value {
        fields.len().hash(names);
        for (name, value) in fields {
            name.hash(names);
            hash_names(value, names);
        }
    }
}

/// Whether a merge patch would change nothing.
fn has_merged(found: &Value, patch: &Value) -> bool {
    match (found, patch) {
        (Value::Object(found), Value::Object(patch)) => {
            patch.iter().all(|(field, patch)| match found.get(field) {
                Some(found) => has_merged(found, patch),
                None => patch.is_null(),
            })
        }
        _ => found == patch,
    }
}

#[cfg(test)]
mod tests {
    use std::hash::RandomState;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_merge_patch_that_changes_nothing_is_recognised() {
        let found = json!({"phase": "Bound", "capacity": {"storage": "1Gi"}, "list": [1]});
        for (patch, expect) in [
            (json!({}), true),
            (json!({"phase": "Bound", "capacity": {}}), true),
            (json!({"capacity": {"storage": "1Gi", "other": null}}), true),
            (json!({"conditions": null}), true),
            (json!({"phase": null}), false),
            (json!({"list": [1, 2]}), false),
            (json!({"list": []}), false),
            (json!({"new": {}}), false),
            (json!(null), false),
        ] {
            assert_eq!(has_merged(&found, &patch), expect, "{patch}");
        }
    }

    #[test]
    fn patches_of_the_same_fields_are_told_from_others() {
        let hasher = RandomState::new();
        let desired = |status| Desired::of(&status, &hasher);
        let one = desired(json!({"a": 1, "b": {"c": 2}}));
        let other = desired(json!({"b": {"c": 3}, "a": [1]}));
        assert!(one.fields == other.fields && one.digest != other.digest);
        for fields in
            [json!({"a": 1}), json!({"a": 1, "b": {"d": 2}}), json!({"a": {"b": {"c": 2}}})]
        {
            assert_ne!(desired(fields.clone()).fields, one.fields, "{fields}");
        }
    }
}
