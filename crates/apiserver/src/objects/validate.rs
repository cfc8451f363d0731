//! The rules of built-in kinds that controllers rely on, and those of all objects.
//!
//! It is not all of Kubernetes' validation, only what our kinds, our controllers and our tests can
//! run into.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{event, meta, names};
use crate::kinds::KindInfo;
use crate::status::{ApiError, FieldError, FieldErrorKind};

/// Largest data of a ConfigMap or Secret, in bytes.
const MAX_DATA: usize = 1 << 20;

/// Validates the metadata that every object has.
pub fn metadata(kind: &KindInfo, object: &Value) -> Vec<FieldError> {
    let metadata = &object["metadata"];
    let mut errors = Vec::new();
    match meta(object, "name") {
        "" => {
            errors.push(FieldError::required("metadata.name", "name or generateName is required"))
        }
        name => errors.extend(names::check_name(kind, "metadata.name", name)),
    }
    errors.extend(names::check_labels("metadata.labels", &metadata["labels"]));
    errors.extend(names::check_annotations("metadata.annotations", &metadata["annotations"]));
    errors.extend(owners(&metadata["ownerReferences"]));
    let finalizers = &metadata["finalizers"];
    errors.extend(names::check_finalizers(kind, "metadata.finalizers", finalizers));
    errors
}

fn owners(references: &Value) -> Vec<FieldError> {
    let path = "metadata.ownerReferences";
    let mut errors = Vec::new();
    let mut controller: Option<&Value> = None;
    for (at, reference) in references.as_array().into_iter().flatten().enumerate() {
        let text = |field: &str| reference[field].as_str().unwrap_or_default();
        for field in ["apiVersion", "kind", "name", "uid"] {
            if text(field).is_empty() {
                let path = format!("{path}[{at}].{field}");
                errors.push(FieldError::required(path, "must not be empty"));
            }
        }
        if text("apiVersion") == "v1" && text("kind") == "Event" {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            errors.push(FieldError::invalid(format!("{path}[{at}]"), reference.clone(), detail));
        }
        if reference["controller"] == true {
            let Some(first) = controller else {
                controller = Some(reference);
                continue;
            };
            let detail = format!(
                "Only one reference can have Controller set to true. Found \"true\" in references for {}/{} and {}/{}",
                first["kind"].as_str().unwrap_or_default(),
                first["name"].as_str().unwrap_or_default(),
                text("kind"),
                text("name"),
            );
            errors.push(FieldError::invalid(path, references.clone(), detail));
        }
    }
    errors
}

/// Converts an object of a built-in kind into its stored form, if that differs from what clients
/// send.
///
/// # Errors
/// 400 for fields that do not parse.
pub fn normalize(kind: &KindInfo, object: &mut Value) -> Result<(), ApiError> {
    if kind.is("coordination.k8s.io", "leases") {
        for field in ["acquireTime", "renewTime"] {
            let spec = object.get_mut("spec");
            let time = spec.and_then(|s| s.get_mut(field)).filter(|t| !t.is_null());
            if let Some(time) = time {
                *time = json!(micro_time(kind, time)?);
            }
        }
    }
    Ok(())
}

/// A time with microseconds.
fn micro_time(kind: &KindInfo, time: &Value) -> Result<String, ApiError> {
    let text = time.as_str().unwrap_or_default();
    let parsed: Timestamp = text.parse().map_err(|_| {
        ApiError::bad_request(format!(
            "{} in version \"{}\" cannot be handled as a {}: parsing time {time} as \"2006-01-02T15:04:05.000000Z07:00\"",
            kind.kind, kind.version, kind.kind
        ))
    })?;
    Ok(parsed.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string())
}

/// Validates an object of a built-in kind, given the one that it replaces.
pub fn builtin(kind: &KindInfo, current: Option<&Value>, object: &Value) -> Vec<FieldError> {
    match (kind.group.as_str(), kind.plural.as_str()) {
        ("coordination.k8s.io", "leases") => lease(&object["spec"]),
        ("", "configmaps") => data(current, object, &["data", "binaryData"]),
        ("", "secrets") => data(current, object, &["data"]),
        ("", "services") => service(current, object),
        ("", "pods") => pod(&object["spec"], "spec"),
        ("" | "events.k8s.io", "events") => event::validate(kind, current, object),
        ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets") => {
            workload(kind, current, object)
        }
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => {
            immutable(current, object, "roleRef", "cannot change roleRef").into_iter().collect()
        }
        _ => Vec::new(),
    }
}

fn immutable(
    current: Option<&Value>,
    object: &Value,
    path: &str,
    detail: &str,
) -> Option<FieldError> {
    let (old, new) = (at(current?, path), at(object, path));
    (old != new).then(|| FieldError::invalid(path, new.clone(), detail))
}

fn at<'a>(object: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(object, |value, part| &value[part])
}

fn lease(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let below = |field: &str, least: i64| spec[field].as_i64().filter(|n| *n < least);
    if let Some(found) = below("leaseDurationSeconds", 1) {
        let path = "spec.leaseDurationSeconds";
        errors.push(FieldError::invalid(path, found, "must be greater than 0"));
    }
    if let Some(found) = below("leaseTransitions", 0) {
        let path = "spec.leaseTransitions";
        errors.push(FieldError::invalid(path, found, "must be greater than or equal to 0"));
    }
    errors
}

fn data(current: Option<&Value>, object: &Value, fields: &[&str]) -> Vec<FieldError> {
    const KEY_RULE: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
    let mut errors = Vec::new();
    let mut size = 0;
    for field in fields {
        for (key, value) in object[*field].as_object().into_iter().flatten() {
            let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            if key.is_empty() || !key.chars().all(fits) {
                errors.push(FieldError::invalid(format!("{field}[{key}]"), key.as_str(), KEY_RULE));
            }
            size += value.as_str().map_or(0, str::len);
        }
    }
    if size > MAX_DATA {
        let detail = format!("may not be more than {MAX_DATA} bytes");
        errors.push(FieldError::new(FieldErrorKind::TooLong, fields[0], Value::Null, detail));
    }
    if let Some(current) = current.filter(|c| c["immutable"] == true) {
        for field in fields.iter().chain(&["immutable"]) {
            if current[*field] != object[*field] {
                let detail = "field is immutable when `immutable` is set";
                errors.push(FieldError::forbidden(*field, detail));
            }
        }
    }
    errors
}

fn service(current: Option<&Value>, object: &Value) -> Vec<FieldError> {
    let spec = &object["spec"];
    let mut errors = Vec::new();
    let headless = spec["clusterIP"] == "None" || spec["type"] == "ExternalName";
    let ports = spec["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    if ports.is_empty() && !headless {
        errors.push(FieldError::required("spec.ports", ""));
    }
    for (at, port) in ports.iter().enumerate() {
        let path = format!("spec.ports[{at}]");
        if ports.len() > 1 && port["name"].as_str().unwrap_or_default().is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        }
        let number = port["port"].as_i64().unwrap_or_default();
        errors.extend(port_number(&format!("{path}.port"), number));
    }
    if current
        .is_some_and(|c| c["spec"]["clusterIP"].is_string() && c["spec"]["type"] == spec["type"])
    {
        errors.extend(immutable(current, object, "spec.clusterIP", "field is immutable"));
    }
    errors
}

fn port_number(path: &str, number: i64) -> Option<FieldError> {
    let rule = "must be between 1 and 65535, inclusive";
    (!(1..=65_535).contains(&number)).then(|| FieldError::invalid(path, number, rule))
}

fn workload(kind: &KindInfo, current: Option<&Value>, object: &Value) -> Vec<FieldError> {
    let spec = &object["spec"];
    let mut errors = Vec::new();
    if let Some(replicas) = spec["replicas"].as_i64().filter(|n| *n < 0) {
        let rule = "must be greater than or equal to 0";
        errors.push(FieldError::invalid("spec.replicas", replicas, rule));
    }
    let labels = &spec["template"]["metadata"]["labels"];
    match spec.get("selector").filter(|s| s.is_object()) {
        None => errors.push(FieldError::required("spec.selector", "")),
        Some(selector) => {
            let wanted = selector["matchLabels"].as_object();
            if wanted.into_iter().flatten().any(|(key, value)| labels.get(key) != Some(value)) {
                errors.push(FieldError::invalid(
                    "spec.template.metadata.labels",
                    labels.clone(),
                    format!("`selector` does not match template `labels` for {}", kind.kind),
                ));
            }
        }
    }
    errors.extend(immutable(current, object, "spec.selector", "field is immutable"));
    errors.extend(pod(&spec["template"]["spec"], "spec.template.spec"));
    errors
}

fn pod(spec: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let containers = spec["containers"].as_array().map(Vec::as_slice).unwrap_or_default();
    if containers.is_empty() {
        errors.push(FieldError::required(format!("{path}.containers"), ""));
    }
    for (at, container) in containers.iter().enumerate() {
        let path = format!("{path}.containers[{at}]");
        for field in ["name", "image"] {
            if container[field].as_str().unwrap_or_default().is_empty() {
                errors.push(FieldError::required(format!("{path}.{field}"), ""));
            }
        }
        let name = container["name"].as_str().unwrap_or_default();
        if containers[..at].iter().any(|c| !name.is_empty() && c["name"] == name) {
            let path = format!("{path}.name");
            errors.push(FieldError::new(FieldErrorKind::Duplicate, path, name, ""));
        }
        for (n, port) in container["ports"].as_array().into_iter().flatten().enumerate() {
            let number = port["containerPort"].as_i64().unwrap_or_default();
            errors.extend(port_number(&format!("{path}.ports[{n}].containerPort"), number));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds;

    fn kind(plural: &str) -> KindInfo {
        kinds::builtin().into_iter().find(|k| k.plural == plural).unwrap()
    }

    fn texts(plural: &str, current: Option<Value>, object: Value) -> Vec<String> {
        builtin(&kind(plural), current.as_ref(), &object).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn leases_have_valid_numbers_and_exact_times() {
        assert_eq!(
            texts(
                "leases",
                None,
                json!({"spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1}})
            ),
            [
                "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
                "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0",
            ]
        );
        let mut lease = json!({"spec": {"renewTime": "2024-05-06T07:08:09.1+02:00"}});
        normalize(&kind("leases"), &mut lease).unwrap();
        assert_eq!(lease["spec"]["renewTime"], "2024-05-06T05:08:09.100000Z");
        let mut lease = json!({"spec": {"renewTime": "yesterday"}});
        assert_eq!(normalize(&kind("leases"), &mut lease).unwrap_err().code, 400);
    }

    #[test]
    fn a_workload_always_selects_its_own_template() {
        let workload = |selector: &str, label: &str| {
            json!({"spec": {
                "selector": {"matchLabels": {"app": selector}},
                "template": {"metadata": {"labels": {"app": label}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
            }})
        };
        assert!(texts("deployments", None, workload("a", "a")).is_empty());
        assert_eq!(texts("deployments", None, workload("a", "b")).len(), 1);
        assert_eq!(texts("deployments", Some(workload("a", "a")), workload("b", "b")).len(), 1);
        assert_eq!(
            texts("deployments", None, json!({"spec": {}})),
            ["spec.selector: Required value", "spec.template.spec.containers: Required value"]
        );
    }

    #[test]
    fn immutable_data_stays() {
        let old = json!({"immutable": true, "data": {"a": "b"}});
        let new = json!({"immutable": true, "data": {"a": "c"}});
        assert_eq!(
            texts("configmaps", Some(old), new),
            ["data: Forbidden: field is immutable when `immutable` is set"]
        );
    }

    #[test]
    fn an_object_has_a_name_and_one_controller_and_finalizers_have_names() {
        let owner =
            json!({"apiVersion": "v1", "kind": "A", "name": "a", "uid": "u", "controller": true});
        let object = json!({"metadata": {"name": "x", "ownerReferences": [owner, owner]}});
        assert_eq!(metadata(&kind("configmaps"), &object).len(), 1);
        let incomplete = json!({"apiVersion": "v1", "kind": "Event", "name": "a"});
        let object = json!({"metadata": {"name": "x", "ownerReferences": [owner, incomplete]}});
        let errors = metadata(&kind("configmaps"), &object);
        let paths: Vec<&str> = errors.iter().map(|error| error.path.as_str()).collect();
        assert_eq!(paths, ["metadata.ownerReferences[1].uid", "metadata.ownerReferences[1]"]);
        let held = |finalizers: &[&str]| {
            let object = json!({"metadata": {"name": "x", "finalizers": finalizers}});
            metadata(&kind("configmaps"), &object).len()
        };
        assert_eq!(held(&["orphan", "example.com/b"]), 0);
        assert_eq!(held(&["example.com/a b"]), 1);
        let nameless = json!({"metadata": {}});
        assert_eq!(
            metadata(&kind("configmaps"), &nameless)[0].to_string(),
            "metadata.name: Required value: name or generateName is required"
        );
    }
}
