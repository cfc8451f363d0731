//! Changing objects: the four patch types of the Kubernetes API, and who owns which field.
//!
//! - [`apply_json`]: RFC 6902, [`apply_merge`]: RFC 7386;
//! - [`apply_strategic`]: strategic merge, for built-in kinds;
//! - [`server_side_apply`]: merges an applied configuration by ownership; [`track_update`] records
//!   ownership for every other write.
//!
//! In data order for the last two: a [`SchemaLookup`] says how each node merges; `typed` walks
//! values under it and yields field sets; `managed` reads and writes `metadata.managedFields`;
//! `apply` decides conflicts, ownership and removals.
//!
//! # Invariants
//! - Pure: no IO, no clock; `now` is an argument.
//! - A failed patch changes nothing: every function returns a new value.
//! - Applying the same configuration twice changes nothing the second time, not even a timestamp.

mod apply;
mod fieldset;
mod managed;
#[cfg(test)]
mod properties;
mod strategic;
#[cfg(test)]
mod tests;
mod topology;
mod typed;

use json_patch::{AddOperation, PatchOperation, ReplaceOperation};
use serde_json::Value;

pub use apply::{ApplyInput, Part, TrackInput, server_side_apply, track_update};
pub use strategic::apply_strategic;
pub use topology::{BuiltinTopology, SchemaLookup};

use crate::status::{ApiError, Details, Reason};

/// Operations one JSON patch may hold.
pub const MAX_JSON_PATCH_OPERATIONS: usize = 10_000;

/// Applies a JSON patch (RFC 6902).
///
/// # Errors
/// 400 for a body that is not a JSON patch, 413 for one with too many operations, 422 for one that
/// does not fit the object (a failed `test`, a path that does not exist).
pub fn apply_json(current: &Value, body: &[u8]) -> Result<Value, ApiError> {
    let operations = match decode(body)? {
        Value::Array(operations) => operations,
        other => return Err(cannot_unmarshal(&other, "[]handlers.jsonPatchOp")),
    };
    if operations.len() > MAX_JSON_PATCH_OPERATIONS {
        return Err(ApiError::too_large(format!(
            "Request entity too large: The allowed maximum operations in a JSON patch is \
             {MAX_JSON_PATCH_OPERATIONS}, got {}",
            operations.len()
        )));
    }
    let patch: json_patch::Patch = serde_json::from_value(Value::Array(operations))
        .map_err(|e| ApiError::bad_request(format!("error decoding patch: {e}")))?;
    let mut patched = current.clone();
    for operation in patch.0 {
        let operation = lenient(operation, &patched);
        json_patch::patch(&mut patched, &[operation]).map_err(|_| does_not_fit())?;
    }
    Ok(patched)
}

/// Applies a merge patch (RFC 7386).
///
/// # Errors
/// 400 for a body that is not a JSON object.
pub fn apply_merge(current: &Value, body: &[u8]) -> Result<Value, ApiError> {
    let patch: Value = decode(body)?;
    if !patch.is_object() {
        return Err(cannot_unmarshal(&patch, "map[string]interface {}"));
    }
    let mut patched = current.clone();
    json_patch::merge(&mut patched, &patch);
    Ok(patched)
}

/// On a real server `replace` adds a member that does not exist, if its object does.
fn lenient(operation: PatchOperation, current: &Value) -> PatchOperation {
    match operation {
        PatchOperation::Replace(ReplaceOperation { path, value })
            if path
                .parent()
                .and_then(|parent| current.pointer(parent.as_str()))
                .is_some_and(Value::is_object) =>
        {
            PatchOperation::Add(AddOperation { path, value })
        }
        other => other,
    }
}

/// 400 for a patch of the wrong shape, in the words of Go's decoder.
fn cannot_unmarshal(found: &Value, target: &str) -> ApiError {
    let found = match found {
        Value::Array(_) => "array",
        Value::Bool(_) => "bool",
        Value::Null => "null",
        Value::Number(_) => "number",
        Value::Object(_) => "object",
        Value::String(_) => "string",
    };
    ApiError::bad_request(format!(
        "error decoding patch: json: cannot unmarshal {found} into Go value of type {target}"
    ))
}

fn decode<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, ApiError> {
    serde_json::from_slice(body)
        .map_err(|e| ApiError::bad_request(format!("error decoding patch: {e}")))
}

/// The answer to a JSON patch that does not fit. A real server does not give the reason.
fn does_not_fit() -> ApiError {
    ApiError {
        details: Some(Box::new(Details::default())),
        ..ApiError::new(
            Reason::Invalid,
            "the server rejected our request due to an error in our request",
        )
    }
}
