//! OpenAPI: enough for clients to find out that the server validates fields, and to know the
//! schemas of custom kinds. Built-in kinds are described as open objects.

use http::{HeaderMap, Response, StatusCode};
use serde_json::{Map, Value, json};

use super::answer::{self, Body};
use super::discovery::fingerprint;
use super::{health, negotiate};
use crate::catalog::{Catalog, Resource};
use crate::status::ApiError;

/// `/openapi/v2`.
///
/// # Errors
/// 406 for clients that take only protobuf.
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
            paths.insert(
                object_path(resource),
                json!({"patch": operation("patch"), "put": operation("put")}),
            );
            definitions.insert(schema_name(resource), schema(resource));
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
        paths.insert(
            object_path(resource),
            json!({"put": operation("put"), "patch": operation("patch")}),
        );
        schemas.insert(name, schema(resource));
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

/// Names as the real server has them: reversed group, version, kind.
fn schema_name(resource: &Resource) -> String {
    let info = &resource.info;
    let group = if info.custom {
        info.group.split('.').rev().collect::<Vec<_>>().join(".")
    } else {
        let short = info.group.split('.').next().unwrap_or_default();
        format!("io.k8s.api.{}", if short.is_empty() { "core" } else { short })
    };
    format!("{group}.{}.{}", info.version, info.kind)
}

fn schema(resource: &Resource) -> Value {
    let mut schema = match &resource.openapi {
        Some(Value::Object(declared)) => Value::Object(declared.clone()),
        _ => json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
    };
    schema["x-kubernetes-group-version-kind"] = json!([gvk(resource)]);
    schema
}
