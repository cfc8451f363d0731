//! OpenAPI: enough for clients to find out that the server validates fields, and to explain the
//! fields of built-in and custom kinds.

use http::{HeaderMap, Response, StatusCode};
use serde_json::{Map, Value, json};

use super::answer::{self, Body};
use super::discovery::fingerprint;
use super::{health, negotiate};
use crate::catalog::Catalog;
use crate::resource::Resource;
use crate::status::ApiError;
use crate::types::{self, Message, Shape};

/// `/openapi/v2`.
///
/// # Errors
/// 406 for clients that accept only protobuf.
pub(super) fn v2(catalog: &Catalog, headers: &HeaderMap) -> Result<Response<Body>, ApiError> {
    if !negotiate::accepts_json(headers) {
        return Err(ApiError::not_acceptable(&["application/json"]));
    }
    let mut paths = Map::new();
    let mut definitions = Map::new();
    for (_, resources) in catalog.groups().iter().flat_map(|g| &g.versions) {
        for resource in resources {
            let operation = |action| {
                json!({
                    "x-kubernetes-action": action, "x-kubernetes-group-version-kind": gvk(resource),
                    "parameters": [{"name": "fieldValidation", "in": "query", "type": "string"}],
                    "responses": {"200": {"description": "OK"}},
                })
            };
            if resource.info.stored {
                let operations = json!({"patch": operation("patch"), "put": operation("put")});
                paths.insert(object_path(resource), operations);
            }
            definitions.insert(schema_name(resource), open_schema(resource));
        }
    }
    let document = json!({
        "swagger": "2.0", "info": info(), "paths": paths, "definitions": definitions,
    });
    Ok(answer::value(StatusCode::OK, &document))
}

/// `/openapi/v3`.
pub(super) fn index(catalog: &Catalog) -> Response<Body> {
    let mut paths = Map::new();
    for group in catalog.groups() {
        for (version, resources) in &group.versions {
            let path = version_path(&group.name, version);
            let hash = fingerprint(document(resources).to_string().as_bytes());
            let url = format!("/openapi/v3/{path}?hash={hash:016X}");
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
    }
    answer::value(StatusCode::OK, &json!({ "paths": paths }))
}

/// `/openapi/v3/{path}`.
pub(super) fn v3(catalog: &Catalog, path: &str) -> Option<Response<Body>> {
    let (group, version) = match path.split('/').collect::<Vec<_>>().as_slice() {
        ["api", version] => ("", *version),
        ["apis", group, version] => (*group, *version),
        _ => return None,
    };
    let resources = catalog.version(group, version)?;
    Some(answer::value(StatusCode::OK, &document(resources)))
}

fn version_path(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

fn info() -> Value {
    json!({"title": "Kubernetes", "version": health::GIT_VERSION})
}

fn document(resources: &[std::sync::Arc<Resource>]) -> Value {
    let mut paths = Map::new();
    let mut schemas = Map::new();
    for resource in resources {
        let name = schema_name(resource);
        let reference = json!({"$ref": format!("#/components/schemas/{name}")});
        let content = json!({"application/json": {"schema": reference}});
        let operation = |action: &str| {
            json!({
                "x-kubernetes-action": action, "x-kubernetes-group-version-kind": gvk(resource),
                "parameters": write_parameters(),
                "responses": {"200": {"description": "OK", "content": content}},
            })
        };
        let all = collection_path(resource);
        paths.insert(all, json!({"post": operation("post")}));
        if resource.info.stored {
            let operations = json!({"put": operation("put"), "patch": operation("patch")});
            paths.insert(object_path(resource), operations);
        }
        match types::of(&resource.info) {
            Some(message) => {
                described(message, &mut schemas);
                schemas[&name]["x-kubernetes-group-version-kind"] = json!([gvk(resource)]);
            }
            None => drop(schemas.insert(name, open_schema(resource))),
        }
    }
    json!({
        "openapi": "3.0.0", "info": info(), "paths": paths, "components": {"schemas": schemas},
    })
}

fn write_parameters() -> Value {
    let parameter = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}});
    json!([parameter("dryRun"), parameter("fieldManager"), parameter("fieldValidation")])
}

fn collection_path(resource: &Resource) -> String {
    let info = &resource.info;
    let scope = if info.namespaced { "namespaces/{namespace}/" } else { "" };
    format!("/{}/{scope}{}", version_path(&info.group, &info.version), info.plural)
}

fn object_path(resource: &Resource) -> String {
    format!("{}/{{name}}", collection_path(resource))
}

fn gvk(resource: &Resource) -> Value {
    let info = &resource.info;
    json!({"group": info.group, "version": info.version, "kind": info.kind})
}

/// Names as on the real server: reversed group, version, kind.
fn schema_name(resource: &Resource) -> String {
    let info = &resource.info;
    match types::of(info) {
        Some(message) => type_name(message.name),
        None => {
            let group: Vec<&str> = info.group.split('.').rev().collect();
            format!("{}.{}.{}", group.join("."), info.version, info.kind)
        }
    }
}

fn type_name(name: &str) -> String {
    match name.strip_prefix("meta.") {
        Some(rest) => format!("io.k8s.apimachinery.pkg.apis.meta.{rest}"),
        None => format!("io.k8s.api.{name}"),
    }
}

/// The schema of a kind that has no type: the declared one of a custom kind, or an open object.
fn open_schema(resource: &Resource) -> Value {
    let mut schema = match &resource.openapi {
        Some(Value::Object(declared)) => Value::Object(declared.clone()),
        _ => json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
    };
    schema["x-kubernetes-group-version-kind"] = json!([gvk(resource)]);
    schema
}

/// Adds the schema of a type, and of every type it mentions.
fn described(message: &'static Message, schemas: &mut Map<String, Value>) {
    let name = type_name(message.name);
    if schemas.contains_key(&name) {
        return;
    }
    // Types may contain themselves, so the name is added before the fields are visited.
    schemas.insert(name.clone(), Value::Null);
    let mut properties = Map::new();
    if message.fields.first().is_some_and(|field| field.name == "metadata") {
        for field in ["apiVersion", "kind"] {
            properties.insert(field.into(), json!({"type": "string"}));
        }
    }
    add_properties(message, &mut properties, schemas);
    schemas.insert(name, json!({"type": "object", "properties": properties}));
}

fn add_properties(
    message: &'static Message,
    properties: &mut Map<String, Value>,
    schemas: &mut Map<String, Value>,
) {
    for field in &message.fields {
        match &field.shape {
            Shape::Message(part) if field.inline => {
                if let Some(part) = types::find(part) {
                    add_properties(part, properties, schemas);
                }
            }
            shape => drop(properties.insert(field.name.into(), shape_schema(shape, schemas))),
        }
    }
}

fn shape_schema(shape: &Shape, schemas: &mut Map<String, Value>) -> Value {
    match shape {
        Shape::Bool => json!({"type": "boolean"}),
        Shape::Integer(format) => json!({"type": "integer", "format": format}),
        Shape::Float => json!({"type": "number", "format": "double"}),
        Shape::Text | Shape::Duration => json!({"type": "string"}),
        Shape::Bytes => json!({"type": "string", "format": "byte"}),
        Shape::Time | Shape::MicroTime => json!({"type": "string", "format": "date-time"}),
        Shape::Quantity => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
        Shape::IntOrString => {
            json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]})
        }
        Shape::Json => json!({"type": "object"}),
        Shape::Message(name) => match types::find(name) {
            None => json!({"type": "object"}),
            Some(message) => {
                described(message, schemas);
                // As on the real server, so that other keywords may be present too.
                json!({"allOf": [{"$ref": format!("#/components/schemas/{}", type_name(name))}]})
            }
        },
        Shape::Texts => json!({"type": "array", "items": {"type": "string"}}),
        Shape::List(item) => json!({"type": "array", "items": shape_schema(item, schemas)}),
        Shape::Map(value) => {
            json!({"type": "object", "additionalProperties": shape_schema(value, schemas)})
        }
    }
}
