//! The Pod template of a spec, as people write it. Pure.
//!
//! A field that is not known would be lost without a word, so it is refused and named. What a server takes is
//! taken: nulls, which are fields that nobody sets, and quantities that are written as numbers. What a server leaves
//! out, because it says what is so without it, is left out: such as `tty: false`, which templates of Helm often have.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::Value;

use super::invalid::Invalid;

/// The template of a spec.
///
/// # Errors
/// If it is none.
pub(super) fn read(template: &Value) -> Result<PodTemplateSpec, Invalid> {
    let wrong = |why| Invalid::Template { why };
    let given = without_nulls(template);
    let read: PodTemplateSpec =
        serde_json::from_value(given.clone()).map_err(|error| wrong(error.to_string()))?;
    let mut kept = serde_json::to_value(&read).map_err(|error| wrong(error.to_string()))?;
    if let Some(path) = lost(&given, &kept) {
        return Err(wrong(format!(
            "none has the field spec.template{path}: correct its name, or remove it"
        )));
    }
    leave_out_zeros(&mut kept);
    serde_json::from_value(kept).map_err(|error| wrong(error.to_string()))
}

/// The fields that hold texts by names of people's own: an empty text is there like any other.
const MAPS: [&str; 8] = [
    "annotations",
    "labels",
    "limits",
    "matchLabels",
    "nodeSelector",
    "options",
    "requests",
    "volumeAttributes",
];
/// The numbers and flags that are no pointers in Kubernetes' own types, and need not be there.
const PLAIN: [&str; 14] = [
    "failureThreshold",
    "hostIPC",
    "hostNetwork",
    "hostPID",
    "hostPort",
    "initialDelaySeconds",
    "partition",
    "periodSeconds",
    "readOnly",
    "stdin",
    "stdinOnce",
    "successThreshold",
    "timeoutSeconds",
    "tty",
];
/// The class of a volume, where an empty text says that it has none.
const CLASS: &str = "storageClassName";

/// Removes what a server leaves out: empty texts and maps, and fields that are no pointers and have their zero value.
fn leave_out_zeros(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.retain(|name, value| {
            let name = name.as_str();
            if MAPS.contains(&name) {
                return value.as_object().is_none_or(|map| !map.is_empty());
            }
            leave_out_zeros(value);
            let is_zero = PLAIN.contains(&name) && (*value == false || *value == 0);
            !is_zero && (*value != "" || name == CLASS)
        }),
        Value::Array(elements) => elements.iter_mut().for_each(leave_out_zeros),
        _ => {}
    }
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, value)| !value.is_null());
            fields.map(|(key, value)| (key.clone(), without_nulls(value))).collect()
        }
        Value::Array(elements) => elements.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

/// The path of the first field that was given and not kept.
fn lost(given: &Value, kept: &Value) -> Option<String> {
    let below = |step: String, given, kept: Option<&Value>| match kept {
        Some(kept) => lost(given, kept).map(|rest| step + &rest),
        None => Some(step),
    };
    match (given, kept) {
        (Value::Object(given), Value::Object(kept)) => {
            given.iter().find_map(|(key, value)| below(format!(".{key}"), value, kept.get(key)))
        }
        (Value::Array(given), Value::Array(kept)) => given
            .iter()
            .enumerate()
            .find_map(|(index, value)| below(format!("[{index}]"), value, kept.get(index))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_server_takes_is_taken_and_what_would_be_lost_is_named() {
        let pod = |spec: Value| json!({"spec": spec});
        let with = |field: &str, value: Value| {
            let mut container = json!({"name": "web", "image": "web"});
            container[field] = value;
            pod(json!({"containers": [{"name": "log", "image": "log"}, container]}))
        };
        for (template, expect) in [
            (json!({}), Ok(())),
            (with("resources", json!({"requests": {"cpu": 1, "memory": "1Gi"}})), Ok(())),
            (with("resources", json!({"limits": {"cpu": 0.5}})), Ok(())),
            (with("resources", json!({})), Ok(())),
            (with("args", json!([])), Ok(())),
            (with("env", json!([{"name": "A", "value": null}])), Ok(())),
            (with("livenessProbe", json!({"httpGet": {"port": 80, "path": "/"}})), Ok(())),
            (with("livenessProbe", json!({"httpGet": {"port": "web", "path": "/"}})), Ok(())),
            (json!({"metadata": {"creationTimestamp": null, "labels": {"a": "b"}}}), Ok(())),
            (pod(json!({"containers": [], "nodeSelector": null})), Ok(())),
            (
                pod(json!({"containers": [], "volumes": [
                    {"name": "v", "emptyDir": {"sizeLimit": 1_073_741_824}},
                    {"name": "w", "emptyDir": {}},
                ]})),
                Ok(()),
            ),
            (
                pod(json!({"contaniers": [{"name": "web"}]})),
                Err("field spec.template.spec.contaniers:"),
            ),
            (with("imagee", json!("x")), Err("field spec.template.spec.containers[1].imagee:")),
            (
                with("resources", json!({"limit": {"cpu": 1}})),
                Err("field spec.template.spec.containers[1].resources.limit:"),
            ),
            (
                with("env", json!([{"name": "A"}, {"name": "B", "from": "x"}])),
                Err("field spec.template.spec.containers[1].env[1].from:"),
            ),
            (pod(json!({"containers": "web"})), Err("not a Pod template: invalid type")),
            (with("env", json!([null])), Err("not a Pod template: invalid type")),
        ] {
            match (read(&template), expect) {
                (Ok(_), Ok(())) => {}
                (Err(problem), Err(words)) => {
                    assert!(problem.to_string().contains(words), "{problem}");
                }
                (found, _) => panic!("{template}: {found:?}"),
            }
        }
        let zeros = json!({"spec": {
            "hostNetwork": false, "serviceAccountName": "", "automountServiceAccountToken": false,
            "containers": [{
                "name": "web", "tty": false, "env": [{"name": "A", "value": ""}],
                "volumeMounts": [{"name": "v", "mountPath": "/v", "readOnly": false}],
                "readinessProbe": {"initialDelaySeconds": 0, "periodSeconds": 5},
                "securityContext": {"allowPrivilegeEscalation": false}, "resources": {"limits": {}},
            }],
            "nodeSelector": {"own/node": ""}, "affinity": {}, "volumes": [
                {"name": "v", "emptyDir": {"medium": ""}},
                {"name": "w", "persistentVolumeClaim": {"claimName": "w", "readOnly": false}},
                {"name": "x", "ephemeral": {"volumeClaimTemplate": {
                    "spec": {"storageClassName": "", "volumeName": ""},
                }}},
            ],
            "tolerations": [{"key": "", "operator": "Exists", "tolerationSeconds": 0}],
        }, "metadata": {"annotations": {}, "labels": {"own": ""}}});
        let left = json!({"spec": {
            "automountServiceAccountToken": false,
            "containers": [{
                "name": "web", "env": [{"name": "A"}],
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                "readinessProbe": {"periodSeconds": 5},
                "securityContext": {"allowPrivilegeEscalation": false}, "resources": {},
            }],
            "nodeSelector": {"own/node": ""}, "affinity": {}, "volumes": [
                {"name": "v", "emptyDir": {}},
                {"name": "w", "persistentVolumeClaim": {"claimName": "w"}},
                {"name": "x", "ephemeral": {"volumeClaimTemplate": {
                    "spec": {"storageClassName": ""},
                }}},
            ],
            "tolerations": [{"operator": "Exists", "tolerationSeconds": 0}],
        }, "metadata": {"labels": {"own": ""}}});
        assert_eq!(json!(read(&zeros).unwrap()), left);
        let found = read(&with("resources", json!({"limits": {"cpu": 0.5, "pods": 2}}))).unwrap();
        let limits = found.spec.unwrap().containers.remove(1).resources.unwrap().limits.unwrap();
        assert_eq!(json!(limits), json!({"cpu": "0.5", "pods": "2"}));
    }
}
