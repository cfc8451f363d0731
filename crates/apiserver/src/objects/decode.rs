//! Reading request bodies: JSON or YAML into a value whose type, place and metadata fit the
//! request.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{meta, set_meta};
use crate::kinds::KindInfo;
use crate::status::{ApiError, FieldError};
use crate::types::{self, protobuf};

/// Media types of objects.
const OBJECT_TYPES: &[&str] = &["application/json", "application/yaml", protobuf::MEDIA_TYPE];

/// Parses a body that should hold an object of kind `expected`, by its media type without
/// parameters; an absent type is JSON.
///
/// # Errors
/// 415 for other media types, 400 for text that does not parse.
pub fn parse(expected: &str, media_type: Option<&str>, body: &[u8]) -> Result<Value, ApiError> {
    match media_type {
        None | Some("" | "application/json" | "*/*") => {
            serde_json::from_slice(body).map_err(|e| not_json(expected, &e, body))
        }
        Some(protobuf::MEDIA_TYPE) => {
            protobuf::decode(body).map_err(|e| ApiError::bad_request(e.to_string()))
        }
        Some("application/yaml" | "text/yaml" | "application/x-yaml") => yaml(body),
        Some(_) => Err(ApiError::unsupported_media_type(OBJECT_TYPES)),
    }
}

/// How many bytes of a body a refusal quotes at most.
const REPEATED_BYTES: usize = 30;

/// 400 for a body that is not JSON, quoting its beginning.
fn not_json(expected: &str, error: &serde_json::Error, body: &[u8]) -> ApiError {
    let why =
        if error.is_eof() { "unexpected end of JSON input".to_owned() } else { error.to_string() };
    let shown = &body[..body.len().min(REPEATED_BYTES)];
    let shown = match shown.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(shown).into_owned(),
        Some(_) => shown.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    let rest = if body.len() > REPEATED_BYTES { " ..." } else { "" };
    ApiError::bad_request(format!(
        "the object provided is unrecognized (must be of type {expected}): couldn't get \
         version/kind; json parse error: {why} ({shown}{rest})"
    ))
}

/// Parses YAML, of which JSON is a subset.
///
/// # Errors
/// 400 for text that does not parse.
pub fn yaml(body: &[u8]) -> Result<Value, ApiError> {
    if let Ok(value) = serde_json::from_slice(body) {
        return Ok(value);
    }
    std::str::from_utf8(body)
        .map_err(|e| ApiError::bad_request(format!("error converting YAML to JSON: {e}")))
        .and_then(|text| {
            serde_saphyr::from_str(text)
                .map_err(|e| ApiError::bad_request(format!("error converting YAML to JSON: {e}")))
        })
}

/// Checks that an object is of the kind and version the path names, and that its metadata has
/// the right shape. Absent type fields are filled in.
///
/// # Errors
/// 400 in the words of the real server.
pub fn check_types(kind: &KindInfo, object: &mut Value) -> Result<(), ApiError> {
    check_kind(kind, object)?;
    check_metadata(kind, object)
}

/// Checks that an object is of the kind and version the path names, and fills them in if absent.
///
/// # Errors
/// 400 in the words of the real server.
pub fn check_kind(kind: &KindInfo, object: &mut Value) -> Result<(), ApiError> {
    let Some(fields) = object.as_object_mut() else {
        return Err(unrecognized(kind, "expected a JSON object"));
    };
    let expected = kind.api_version();
    let found = fields.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    let found_kind = fields.get("kind").and_then(Value::as_str).unwrap_or_default();
    if kind.custom && (found.is_empty() || found_kind.is_empty()) {
        let missing = if found_kind.is_empty() { "Kind" } else { "apiVersion" };
        return Err(unrecognized(kind, &format!("Object '{missing}' is missing")));
    }
    if !kind.custom && found != expected && is_other_type(kind, found, found_kind) {
        return Err(other_type(kind, found, found_kind));
    }
    if !found.is_empty() && found != expected {
        return Err(ApiError::bad_request(if kind.custom {
            format!(
                "the API version in the data ({found}) does not match the expected API version ({expected})"
            )
        } else {
            format!(
                "{name} in version \"{found}\" cannot be handled as a {name}: no kind \"{name}\" is \
                 registered for version \"{found}\" in scheme \"pkg/runtime/scheme.go:111\"",
                name = kind.kind
            )
        }));
    }
    if kind.custom && found_kind != kind.kind {
        let wrong = FieldError::invalid("kind", found_kind, format!("must be {}", kind.kind));
        let name = fields.get("metadata").and_then(|metadata| metadata["name"].as_str());
        let name = name.unwrap_or_default();
        return Err(ApiError::invalid_kind(&kind.group, found_kind, name, &[wrong]));
    }
    if !found_kind.is_empty() && found_kind != kind.kind {
        return Err(other_type(kind, &expected, found_kind));
    }
    fields.insert("apiVersion".into(), json!(expected));
    fields.insert("kind".into(), json!(kind.kind));
    Ok(())
}

/// Whether the body is of another built-in type.
fn is_other_type(kind: &KindInfo, api_version: &str, found_kind: &str) -> bool {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    found_kind != kind.kind && types::of_kind(group, version, found_kind).is_some()
}

/// 400 for a body of another built-in type.
fn other_type(kind: &KindInfo, api_version: &str, found_kind: &str) -> ApiError {
    let KindInfo { group, kind: name, .. } = kind;
    let version = api_version.rsplit('/').next().unwrap_or_default();
    // Go's names of the two types: the outer by version, the inner by the package of its group.
    let package = group.split('.').next().filter(|group| !group.is_empty()).unwrap_or("core");
    ApiError::bad_request(format!(
        "{found_kind} in version \"{version}\" cannot be handled as a {name}: converting \
         ({version}.{found_kind}) to ({package}.{name}): unknown conversion"
    ))
}

/// Checks that an applied configuration has its kind and version, which other bodies of built-in
/// kinds may leave out.
///
/// # Errors
/// 400 in the words of the real server.
pub fn check_applied(kind: &KindInfo, object: &Value) -> Result<(), ApiError> {
    let word = |field| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let (api_version, found_kind) = (word("apiVersion"), word("kind"));
    if kind.custom || !(api_version.is_empty() || found_kind.is_empty()) {
        return Ok(());
    }
    let group_version =
        if api_version.contains('/') { api_version.to_owned() } else { format!("/{api_version}") };
    Err(ApiError::bad_request(format!("invalid object type: {group_version}, Kind={found_kind}")))
}

fn unrecognized(kind: &KindInfo, why: &str) -> ApiError {
    ApiError::bad_request(format!(
        "the object provided is unrecognized (must be of type {}): {why}",
        kind.kind
    ))
}

/// Checks the shape of an object's metadata.
///
/// # Errors
/// 400 in the words of the real server.
pub fn check_metadata(kind: &KindInfo, object: &mut Value) -> Result<(), ApiError> {
    if object["metadata"].is_null() {
        object["metadata"] = json!({});
    }
    ObjectMeta::deserialize(&object["metadata"]).map(drop).map_err(|e| {
        ApiError::bad_request(format!(
            "{} in version \"{}\" cannot be handled as a {}: metadata: {e}",
            kind.kind, kind.version, kind.kind
        ))
    })
}

/// Sets an object's namespace to the path's.
///
/// # Errors
/// 400 if they contradict each other.
pub fn check_namespace(object: &mut Value, namespace: Option<&str>) -> Result<(), ApiError> {
    match (meta(object, "namespace"), namespace) {
        ("", Some(namespace)) => set_meta(object, "namespace", Some(json!(namespace))),
        ("", None) => {}
        (found, Some(namespace)) if found == namespace => {}
        (_, Some(_)) => {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        (_, None) => set_meta(object, "namespace", None),
    }
    Ok(())
}

/// Sets an object's name to the path's.
///
/// # Errors
/// 400 if they contradict each other.
pub fn check_name(object: &mut Value, name: &str) -> Result<(), ApiError> {
    match meta(object, "name") {
        "" => set_meta(object, "name", Some(json!(name))),
        found if found == name => {}
        found => {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({found}) does not match the name on the URL ({name})"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;

    fn configmap() -> KindInfo {
        kinds::builtin().into_iter().find(|k| k.plural == "configmaps").unwrap()
    }

    #[test]
    fn types_are_checked_and_filled_in() {
        let mut bare = json!({"metadata": {"name": "a"}});
        check_types(&configmap(), &mut bare).unwrap();
        assert_eq!(
            (bare["kind"].as_str(), bare["apiVersion"].as_str()),
            (Some("ConfigMap"), Some("v1"))
        );
        for mut wrong in [
            json!({"kind": "Secret"}),
            json!({"apiVersion": "v2"}),
            json!([1]),
            json!({"metadata": {"labels": {"a": 1}}}),
        ] {
            assert_eq!(check_types(&configmap(), &mut wrong).unwrap_err().code, 400, "{wrong}");
        }
    }

    #[test]
    fn bodies_are_json_or_yaml() {
        assert_eq!(parse("ConfigMap", Some("application/yaml"), b"a: 1").unwrap(), json!({"a": 1}));
        assert_eq!(parse("ConfigMap", None, b"{\"a\":1}").unwrap(), json!({"a": 1}));
        assert_eq!(parse("ConfigMap", None, b"{").unwrap_err().code, 400);
        assert_eq!(parse("ConfigMap", Some("text/html"), b"{}").unwrap_err().code, 415);
    }
}
