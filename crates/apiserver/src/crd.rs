//! CustomResourceDefinitions: checked, completed, established, and turned into served resources.
//!
//! Pure. A real server establishes a definition in the background; this one does so with the next
//! revision, before the create returns, so that its kind is served at once.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::clock;
use crate::kinds::{KindInfo, PrinterColumn, ScalePaths};
use crate::objects::names;
use crate::resource::{Conversion, Resource, table_id};
use crate::schema::{Schema, structural};
use crate::status::FieldError;

/// Fills in what a definition may leave out.
pub fn apply_defaults(definition: &mut Value) {
    let Some(spec) = definition.get_mut("spec").filter(|spec| spec.is_object()) else { return };
    if spec["conversion"].is_null() {
        spec["conversion"] = json!({"strategy": "None"});
    }
    let kind = spec["names"]["kind"].as_str().unwrap_or_default().to_owned();
    let Some(names) = spec["names"].as_object_mut() else { return };
    names.entry("singular").or_insert_with(|| json!(kind.to_lowercase()));
    names.entry("listKind").or_insert_with(|| json!(format!("{kind}List")));
}

/// What is wrong with a definition.
pub fn validate(definition: &Value) -> Vec<FieldError> {
    let spec = &definition["spec"];
    let mut errors = Vec::new();
    let (plural, group) = (text(&spec["names"], "plural"), text(spec, "group"));
    let name = definition["metadata"]["name"].as_str().unwrap_or_default();
    if name != format!("{plural}.{group}") {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid("metadata.name", name, detail));
    }
    for (path, value) in [
        ("spec.group", group),
        ("spec.names.plural", plural),
        ("spec.names.kind", text(&spec["names"], "kind")),
        ("spec.scope", text(spec, "scope")),
    ] {
        if value.is_empty() {
            errors.push(FieldError::required(path, ""));
        }
    }
    if !["Cluster", "Namespaced", ""].contains(&text(spec, "scope")) {
        let found = text(spec, "scope");
        errors.push(FieldError::not_supported("spec.scope", found, &["Cluster", "Namespaced"]));
    }
    let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    if versions.iter().filter(|v| v["storage"] == true).count() != 1 {
        let detail = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid("spec.versions", spec["versions"].clone(), detail));
    }
    for (at, version) in versions.iter().enumerate() {
        errors.extend(validate_version(at, version));
    }
    errors.extend(validate_schemas(versions));
    errors
}

fn validate_version(at: usize, version: &Value) -> Vec<FieldError> {
    let path = format!("spec.versions[{at}]");
    let mut errors = Vec::new();
    let name = text(version, "name");
    if !names::is_label_value(name) || name.is_empty() {
        let detail = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character";
        errors.push(FieldError::invalid(format!("{path}.name"), name, detail));
    }
    if schema(version).is_null() {
        let path = format!("{path}.schema.openAPIV3Schema");
        errors.push(FieldError::required(path, "schemas are required"));
    }
    errors
}

/// A schema that all versions share is checked once, and named as real servers do.
fn validate_schemas(versions: &[Value]) -> Vec<FieldError> {
    let is_shared = versions.windows(2).all(|pair| schema(&pair[0]) == schema(&pair[1]));
    let different = if is_shared { versions.len().min(1) } else { versions.len() };
    let mut errors = Vec::new();
    for (at, version) in versions[..different].iter().enumerate() {
        let schema = schema(version);
        let path = if is_shared {
            "spec.validation.openAPIV3Schema".to_owned()
        } else {
            format!("spec.versions[{at}].schema.openAPIV3Schema")
        };
        match Schema::parse(schema) {
            Ok(_) => errors.extend(structural::check(schema, &path)),
            // Said already, of the version.
            Err(_) if schema.is_null() => {}
            Err(e) => errors.push(FieldError::invalid(path, Value::Null, e.to_string())),
        }
    }
    errors
}

/// The status of a definition. `taken` says why its names are not accepted, if they are not.
pub fn status(definition: &Value, taken: Option<String>, now: Timestamp) -> Value {
    let spec = &definition["spec"];
    let old = &definition["status"]["conditions"];
    let accepted = taken.is_none();
    let word = |yes: bool| if yes { "True" } else { "False" };
    let conditions = [
        condition(
            old,
            ("NamesAccepted", word(accepted)),
            if accepted {
                ("NoConflicts", "no conflicts found")
            } else {
                ("NameConflict", taken.as_deref().unwrap_or_default())
            },
            now,
        ),
        condition(
            old,
            ("Established", word(accepted)),
            if accepted {
                ("InitialNamesAccepted", "the initial names have been accepted")
            } else {
                ("NotAccepted", "not all names are accepted")
            },
            now,
        ),
    ];
    let storage = versions(definition).find(|v| v["storage"] == true).map(|v| text(v, "name"));
    let mut stored: Vec<&str> = definition["status"]["storedVersions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    stored.extend(storage.filter(|s| !stored.contains(s)).into_iter().collect::<Vec<_>>());
    json!({
        "acceptedNames": if accepted { spec["names"].clone() } else { json!({"kind": "", "plural": ""}) },
        "conditions": conditions,
        "storedVersions": stored,
    })
}

fn condition(
    old: &Value,
    (kind, status): (&str, &str),
    (reason, message): (&str, &str),
    now: Timestamp,
) -> Value {
    let unchanged =
        old.as_array().into_iter().flatten().find(|c| c["type"] == kind && c["status"] == status);
    let since =
        unchanged.map_or_else(|| json!(clock::seconds(now)), |c| c["lastTransitionTime"].clone());
    json!({"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": since})
}

/// Whether a definition's kind is served.
pub fn established(definition: &Value) -> bool {
    definition["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|c| c["type"] == "Established" && c["status"] == "True")
}

/// The resources a definition serves, one per served version.
pub fn resources(definition: &Value) -> Vec<Resource> {
    let storage = versions(definition).find(|v| v["storage"] == true);
    let storage = storage.map(|v| text(v, "name")).unwrap_or_default();
    versions(definition)
        .filter(|v| v["served"] == true)
        .map(|version| resource(definition, version, storage))
        .collect()
}

fn resource(definition: &Value, version: &Value, storage: &str) -> Resource {
    let info = kind(definition, version);
    let storage = format!("{}/{storage}", info.group);
    let conversion =
        if info.api_version() == storage { Conversion::None } else { Conversion::Version(storage) };
    let selectable = version["selectableFields"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|f| text(f, "jsonPath").to_owned())
        .collect();
    Resource {
        table: table_id(&info.group, &info.plural),
        conversion,
        // It was checked when the definition was written; one that does not parse checks nothing.
        schema: Schema::parse(schema(version)).ok(),
        openapi: Some(schema(version).clone()),
        selectable,
        info,
    }
}

fn kind(definition: &Value, version: &Value) -> KindInfo {
    let (spec, names) = (&definition["spec"], &definition["spec"]["names"]);
    let subresources = &version["subresources"];
    let scale = subresources.get("scale").map(|scale| ScalePaths {
        spec_replicas: text(scale, "specReplicasPath").into(),
        status_replicas: text(scale, "statusReplicasPath").into(),
        selector: scale["labelSelectorPath"].as_str().map(Into::into),
    });
    KindInfo {
        group: text(spec, "group").into(),
        version: text(version, "name").into(),
        kind: text(names, "kind").into(),
        list_kind: text(names, "listKind").into(),
        plural: text(names, "plural").into(),
        singular: text(names, "singular").into(),
        short_names: texts(&names["shortNames"]),
        categories: texts(&names["categories"]),
        namespaced: text(spec, "scope") == "Namespaced",
        status: subresources.get("status").is_some_and(|s| !s.is_null()),
        scale,
        unconditional_update: false,
        create_on_update: false,
        generation: true,
        stored: true,
        custom: true,
        storage_group: text(spec, "group").into(),
        columns: version["additionalPrinterColumns"]
            .as_array()
            .into_iter()
            .flatten()
            .map(column)
            .collect(),
    }
}

fn column(source: &Value) -> PrinterColumn {
    PrinterColumn {
        name: text(source, "name").into(),
        kind: text(source, "type").into(),
        format: text(source, "format").into(),
        description: text(source, "description").into(),
        priority: source["priority"].as_i64().and_then(|p| i32::try_from(p).ok()).unwrap_or(0),
        json_path: text(source, "jsonPath").into(),
    }
}

fn versions(definition: &Value) -> impl Iterator<Item = &Value> {
    definition["spec"]["versions"].as_array().into_iter().flatten()
}

fn schema(version: &Value) -> &Value {
    &version["schema"]["openAPIV3Schema"]
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(Into::into).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition() -> Value {
        json!({
            "metadata": {"name": "tdsets.schedule.rs"},
            "spec": {
                "group": "schedule.rs", "scope": "Namespaced",
                "names": {"kind": "TDSet", "plural": "tdsets", "shortNames": ["tds"]},
                "versions": [
                    {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}, "subresources": {"status": {}}},
                    {"name": "v2", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}},
                    {"name": "v0", "served": false, "storage": false, "schema": {"openAPIV3Schema": {"type": "object"}}},
                ],
            },
        })
    }

    #[test]
    fn a_definition_becomes_a_resource_per_served_version() {
        let mut definition = definition();
        apply_defaults(&mut definition);
        assert!(validate(&definition).is_empty());
        let served = resources(&definition);
        let versions: Vec<_> = served.iter().map(|r| r.info.api_version()).collect();
        assert_eq!(versions, ["schedule.rs/v1", "schedule.rs/v2"]);
        assert!(served[0].info.status && !served[1].info.status);
        assert_eq!(served[0].info.list_kind, "TDSetList");
        assert!(matches!(&served[1].conversion, Conversion::Version(v) if v == "schedule.rs/v1"));
    }

    #[test]
    fn a_definition_is_established_once() {
        let mut definition = definition();
        assert!(!established(&definition));
        definition["status"] = status(&definition, None, Timestamp::UNIX_EPOCH);
        assert!(established(&definition));
        let later = Timestamp::from_second(99).unwrap();
        assert_eq!(status(&definition, None, later), definition["status"]);
        assert!(!established(&json!({"status": status(&definition, Some("taken".into()), later)})));
    }

    #[test]
    fn names_and_schemas_are_checked() {
        let errors = |edit: fn(&mut Value)| {
            let mut definition = definition();
            edit(&mut definition);
            validate(&definition).len()
        };
        assert_eq!(errors(|d| d["metadata"]["name"] = json!("x")), 1);
        assert_eq!(errors(|d| d["spec"]["versions"][1]["storage"] = json!(true)), 1);
        assert_eq!(errors(|d| d["spec"]["versions"][0]["schema"] = json!({})), 1);
        assert_eq!(errors(|d| d["spec"]["scope"] = json!("Everywhere")), 1);
    }

    #[test]
    fn a_schema_that_is_not_structural_is_named() {
        let wrong = json!({"type": "object", "properties": {"spec": {}}});
        let paths = |versions: &[usize]| -> Vec<String> {
            let mut definition = definition();
            for at in versions {
                definition["spec"]["versions"][*at]["schema"]["openAPIV3Schema"] = wrong.clone();
            }
            validate(&definition).into_iter().map(|error| error.path).collect()
        };
        let below = |place: &str| [format!("{place}.openAPIV3Schema.properties[spec].type")];
        assert_eq!(paths(&[0, 1, 2]), below("spec.validation"));
        assert_eq!(paths(&[1]), below("spec.versions[1].schema"));
    }
}
