//! The scale subresource: the replicas of any kind that has them, in one shape.

use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::answer::{self, Body};
use super::options::WriteOptions;
use super::route::Verb;
use super::write::{Proposal, Writer, Written};
use super::{Call, read};
use crate::api::Api;
use crate::kinds::ScalePaths;
use crate::objects::{decode, meta};
use crate::patch::{apply_json, apply_merge};
use crate::selector::label;
use crate::status::{ApiError, FieldError};

/// Answers a request on `/scale`.
pub(super) fn scale(api: &Api, call: &Call, verb: Verb) -> Result<Response<Body>, ApiError> {
    let Some(paths) = &call.resource.info.scale else { return Err(ApiError::no_such_resource()) };
    if verb == Verb::Get {
        let object = read::find(api, call)?;
        return Ok(answer::value(StatusCode::OK, &view(paths, &object.to_value())));
    }
    let (word, kind) = match verb {
        Verb::Update => ("update", "UpdateOptions"),
        Verb::Patch => ("patch", "PatchOptions"),
        _ => return Err(ApiError::method_not_allowed()),
    };
    let options = WriteOptions::parse(&call.query, kind)?;
    // A scale writes the main object, but ownership is recorded under the subresource.
    let writer = Writer { subresource: Some("scale"), ..Writer::of(api, call, word, options) };
    let outcome = writer.write(false, |current| {
        let current = current.ok_or_else(ApiError::no_such_resource)?;
        let wanted = wanted(call, verb, &view(paths, current))?;
        Ok(Proposal { object: scaled(call, paths, current, &wanted)?, applied: false })
    })?;
    let view = match &outcome.written {
        Written::Stored(object) => view(paths, &object.to_value()),
        Written::Draft(object) => view(paths, object),
    };
    Ok(answer::value(StatusCode::OK, &view))
}

/// The requested scale.
fn wanted(call: &Call, verb: Verb, view: &Value) -> Result<Value, ApiError> {
    if verb == Verb::Update {
        return decode::parse("Scale", call.media_type(), &call.body);
    }
    match call.media_type() {
        Some("application/json-patch+json") => apply_json(view, &call.body),
        Some("application/merge-patch+json" | "application/strategic-merge-patch+json") => {
            apply_merge(view, &call.body)
        }
        _ => Err(ApiError::unsupported_media_type(&[
            "application/json-patch+json",
            "application/merge-patch+json",
        ])),
    }
}

/// The object with the replicas of a scale.
fn scaled(
    call: &Call,
    paths: &ScalePaths,
    current: &Value,
    wanted: &Value,
) -> Result<Value, ApiError> {
    let mut object = current.clone();
    let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or(0);
    if replicas < 0 {
        let rule = "must be greater than or equal to 0";
        let error = FieldError::invalid("spec.replicas", replicas, rule);
        return Err(ApiError::invalid(&call.resource.info, meta(current, "name"), &[error]));
    }
    if !matches!(meta(wanted, "resourceVersion"), "" | "0") {
        object["metadata"]["resourceVersion"] = wanted["metadata"]["resourceVersion"].clone();
    }
    set(&mut object, &paths.spec_replicas, json!(replicas));
    Ok(object)
}

fn view(paths: &ScalePaths, object: &Value) -> Value {
    let metadata = &object["metadata"];
    let mut status = json!({"replicas": get(object, &paths.status_replicas).as_i64().unwrap_or(0)});
    if let Some(path) = &paths.selector {
        let text = match get(object, path) {
            Value::String(text) => text.clone(),
            selector => label::terms(selector).join(","),
        };
        if !text.is_empty() {
            status["selector"] = json!(text);
        }
    }
    json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": {"replicas": get(object, &paths.spec_replicas).as_i64().unwrap_or(0)},
        "status": status,
    })
}

/// A dotted path such as `.spec.replicas`, in parts.
fn parts(path: &str) -> impl Iterator<Item = &str> {
    path.split('.').filter(|part| !part.is_empty())
}

/// What is at a path; null if nothing is.
pub(super) fn get<'a>(object: &'a Value, path: &str) -> &'a Value {
    parts(path).fold(object, |at, part| &at[part])
}

fn set(object: &mut Value, path: &str, value: Value) {
    let mut at = object;
    for part in parts(path) {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[part];
    }
    *at = value;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_have_a_string_form() {
        let selector = json!({
            "matchLabels": {"a": "b"},
            "matchExpressions": [
                {"key": "c", "operator": "In", "values": ["d", "e"]},
                {"key": "f", "operator": "DoesNotExist"},
            ],
        });
        assert_eq!(label::terms(&selector).join(","), "a=b,c in (d,e),!f");
    }

    #[test]
    fn paths_reach_and_create() {
        let mut object = json!({});
        set(&mut object, ".spec.size", json!(3));
        assert_eq!(*get(&object, ".spec.size"), 3);
        assert!(get(&object, ".status.size").is_null());
    }
}
