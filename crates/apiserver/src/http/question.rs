//! Questions: bodies of kinds that are not kept, and are answered at once.

use serde_json::{Value, json};

use super::options::WriteOptions;
use super::write::Writer;
use super::{Call, admit};
use crate::api::Api;
use crate::objects::decode;
use crate::resource::Resource;
use crate::status::ApiError;

/// The body of a create, as its kind: without unknown fields, which the warnings name.
///
/// # Errors
/// 400 or 415 for a body that is not of the kind, or of another namespace.
pub(super) fn read(
    call: &Call,
    kind: &Resource,
    options: &WriteOptions,
) -> Result<(Value, Vec<String>), ApiError> {
    let info = &kind.info;
    let mut object = decode::parse(&info.kind, call.media_type(), &call.body)?;
    accept_older_version(kind, &mut object);
    decode::check_types(info, &mut object)?;
    decode::check_namespace(&mut object, call.place.namespace.as_deref())?;
    let warnings = admit::shape(kind, &mut object, options.field_validation)?;
    if !object["spec"].is_object() && !info.is("policy", "evictions") {
        object["spec"] = json!({});
    }
    Ok((object, warnings))
}

/// Evictions may be written in `policy/v1beta1` too, which is the same.
fn accept_older_version(kind: &Resource, object: &mut Value) {
    if kind.info.is("policy", "evictions") && object["apiVersion"] == "policy/v1beta1" {
        object["apiVersion"] = json!("policy/v1");
    }
}

/// Records which fields the client has given.
pub(super) fn track(
    api: &Api,
    call: &Call,
    kind: &Resource,
    options: WriteOptions,
    object: &mut Value,
) {
    let writer = Writer { resource: kind, ..Writer::of(api, call, "create", options) };
    writer.track(None, object);
}
