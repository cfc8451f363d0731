//! Pure: an API server's OpenAPI document and CustomResourceDefinitions as the strict JSON Schemas that
//! kubeconform reads, one file for each kind.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// Where kubeconform looks for a kind, in a folder of [`files`]. The group of the core is its version.
pub const LOCATION: &str = "{{.ResourceKind}}-{{.Group}}-{{.ResourceAPIVersion}}.json";

/// The file that the others refer to.
const SHARED: &str = "definitions.json";

const METADATA: &str = "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";

/// Every file, by name: for each kind of `swagger` (`/openapi/v2`), and for each kind of `custom` (a list
/// of definitions), whose own schemas say more than their version there.
pub fn files(swagger: &Value, custom: &Value) -> BTreeMap<String, Value> {
    let mut files = BTreeMap::new();
    let mut shared = serde_json::Map::new();
    for (name, schema) in swagger["definitions"].as_object().into_iter().flatten() {
        for kind in list(&schema["x-kubernetes-group-version-kind"]) {
            let reference = reference(&format!("#/definitions/{name}"));
            files.insert(file(&kind["group"], &kind["version"], &kind["kind"]), reference);
        }
        let mut schema = strict(schema);
        if name == QUANTITY {
            schema["type"] = json!(["number", "string"]);
        }
        shared.insert(name.clone(), schema);
    }
    for spec in list(&custom["items"]).iter().map(|definition| &definition["spec"]) {
        for version in list(&spec["versions"]) {
            let mut schema = strict(&version["schema"]["openAPIV3Schema"]);
            schema["properties"]["metadata"] = reference(METADATA);
            files.insert(file(&spec["group"], &version["name"], &spec["names"]["kind"]), schema);
        }
    }
    files.insert(SHARED.to_owned(), json!({ "definitions": shared }));
    files
}

fn file(group: &Value, version: &Value, kind: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let group = if text(group).is_empty() { version } else { group };
    format!("{}-{}-{}.json", text(kind).to_lowercase(), text(group), text(version))
}

fn reference(path: &str) -> Value {
    json!({ "$ref": format!("{SHARED}{path}") })
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A schema of OpenAPI as one of JSON Schema that allows only the fields it knows. What `allOf` and the
/// like add stays as it is: it says nothing about other fields.
fn strict(schema: &Value) -> Value {
    // `additionalProperties` may be a Boolean.
    let Some(fields) = schema.as_object() else { return schema.clone() };
    if let Some(path) = fields.get("$ref").and_then(Value::as_str) {
        return reference(path);
    }
    let mut made = fields.clone();
    for key in ["items", "additionalProperties"] {
        if let Some(inner) = fields.get(key) {
            made.insert(key.to_owned(), strict(inner));
        }
    }
    let open = schema["x-kubernetes-preserve-unknown-fields"] == true;
    if let Some(properties) = fields.get("properties").and_then(Value::as_object) {
        let known: serde_json::Map<_, _> =
            properties.iter().map(|(name, inner)| (name.clone(), strict(inner))).collect();
        made.insert("properties".to_owned(), known.into());
        if !open {
            made.entry("additionalProperties").or_insert(Value::Bool(false));
        }
    }
    let either =
        schema["x-kubernetes-int-or-string"] == true || schema["format"] == "int-or-string";
    if either {
        made.insert("type".to_owned(), json!(["integer", "string"]));
    } else if let Some(kind) = fields.get("type").filter(|_| schema["nullable"] == true) {
        made.insert("type".to_owned(), json!([kind, "null"]));
    }
    made.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_api_servers_kinds_become_strict_schemas_that_share_definitions() {
        let swagger = json!({"definitions": {
            "io.k8s.Pod": {
                "properties": {"spec": {"$ref": "#/definitions/io.k8s.PodSpec", "description": "it"}},
                "x-kubernetes-group-version-kind": [{"group": "", "kind": "Pod", "version": "v1"}],
            },
            "io.k8s.PodSpec": {"properties": {
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "port": {"$ref": "#/definitions/io.k8s.IntOrString"},
                "anything": {"type": "object"},
                // A field of this name, as in definitions of kinds.
                "$ref": {"type": "string"},
            }},
            "io.k8s.IntOrString": {"type": "string", "format": "int-or-string"},
            QUANTITY: {"type": "string"},
        }});
        let files = files(&swagger, &json!({"items": []}));

        assert_eq!(files.keys().collect::<Vec<_>>(), [SHARED, "pod-v1-v1.json"]);
        assert_eq!(
            files["pod-v1-v1.json"],
            json!({"$ref": "definitions.json#/definitions/io.k8s.Pod"})
        );
        let shared = &files[SHARED]["definitions"];
        let spec = json!({"$ref": "definitions.json#/definitions/io.k8s.PodSpec"});
        assert_eq!(shared["io.k8s.Pod"]["properties"]["spec"], spec);
        assert_eq!(shared["io.k8s.Pod"]["additionalProperties"], false);
        let fields = json!({
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "port": {"$ref": "definitions.json#/definitions/io.k8s.IntOrString"},
            "anything": {"type": "object"},
            "$ref": {"type": "string"},
        });
        let strict = json!({"properties": fields, "additionalProperties": false});
        assert_eq!(shared["io.k8s.PodSpec"], strict);
        assert_eq!(shared["io.k8s.IntOrString"]["type"], json!(["integer", "string"]));
        assert_eq!(shared[QUANTITY]["type"], json!(["number", "string"]));
    }

    #[test]
    fn a_definition_keeps_open_what_it_leaves_open() {
        let schema = json!({"type": "object", "properties": {
            "metadata": {"type": "object"},
            "open": {"properties": {}, "x-kubernetes-preserve-unknown-fields": true},
            "rules": {"type": "array", "items": {"properties": {"for": {"type": "string"}}}},
            "port": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            "limit": {"type": "integer", "nullable": true},
        }});
        let custom = json!({"items": [{"spec": {
            "group": "keda.sh",
            "names": {"kind": "ScaledObject"},
            "versions": [{"name": "v1alpha1", "schema": {"openAPIV3Schema": schema}}],
        }}]});
        let files = files(&json!({}), &custom);

        let made = &files["scaledobject-keda.sh-v1alpha1.json"];
        let fields = &made["properties"];
        assert_eq!(made["additionalProperties"], false);
        assert_eq!(fields["metadata"], json!({"$ref": format!("{SHARED}{METADATA}")}));
        assert_eq!(fields["open"].get("additionalProperties"), None);
        assert_eq!(fields["rules"]["items"]["additionalProperties"], false);
        assert_eq!(fields["port"]["type"], json!(["integer", "string"]));
        assert_eq!(fields["limit"]["type"], json!(["integer", "null"]));
    }
}
