//! Parts of the Pods of databases. Pure.

use std::collections::BTreeMap;

use data_encoding::HEXLOWER;
use k8s_openapi::api::core::v1::{Affinity, Pod, Toleration, TopologySpreadConstraint};
use ring::digest::{SHA256, digest};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::spec::{Invalid, part};

/// The longest text of a server that is repeated, in characters.
const MAX_TROUBLE: usize = 300;

/// Why the container of this name does not run, if its Pod says that: it ended, it waits, or no node has
/// room.
pub fn trouble(pod: &Pod, container: &str) -> Option<String> {
    let status = pod.status.as_ref()?;
    let state = status.container_statuses.iter().flatten().find(|found| found.name == container);
    let state = state.and_then(|found| found.state.as_ref());
    let waiting = state.and_then(|state| state.waiting.as_ref()).map(|waiting| {
        let reason = waiting.reason.clone().unwrap_or_default();
        format!("{reason}: {}", waiting.message.as_deref().unwrap_or_default())
    });
    let ended = state.and_then(|state| state.terminated.as_ref()).map(|ended| {
        let reason = ended.reason.clone().unwrap_or_default();
        format!("{reason}: {container} ended with exit code {}", ended.exit_code)
    });
    let scheduled = status.conditions.iter().flatten().find(|found| found.type_ == "PodScheduled");
    let unscheduled = scheduled
        .filter(|found| found.status == "False")
        .map(|found| found.message.clone().unwrap_or_default());
    let text = waiting.or(ended).or(unscheduled)?;
    Some(text.chars().filter(|c| !c.is_control()).take(MAX_TROUBLE).collect())
}

/// What else the Pods of a database have, as in a Pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PodExtras {
    /// More labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub labels: BTreeMap<String, String>,
    /// More annotations.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub annotations: BTreeMap<String, String>,
    /// Labels of the nodes on which they may run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub node_selector: BTreeMap<String, String>,
    /// Taints that they tolerate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_list")]
    pub tolerations: Option<Value>,
    /// Rules of scheduling. Without it they prefer nodes that no other Pod of the database is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_object")]
    pub affinity: Option<Value>,
    /// Their PriorityClass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub priority_class_name: Option<String>,
    /// How they spread over zones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "any_list")]
    pub topology_spread_constraints: Option<Value>,
}

/// [`PodExtras`], read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Extras {
    /// Taints that are tolerated.
    pub tolerations: Option<Vec<Toleration>>,
    /// Rules of scheduling.
    pub affinity: Option<Affinity>,
    /// The spread over zones.
    pub spread: Option<Vec<TopologySpreadConstraint>>,
}

impl PodExtras {
    /// Reads what a schema cannot check.
    ///
    /// # Errors
    /// All that does not fit into a Pod.
    pub fn read(&self) -> Result<Extras, Vec<Invalid>> {
        let tolerations = part("pod.tolerations", self.tolerations.as_ref());
        let affinity = part("pod.affinity", self.affinity.as_ref());
        let constraints = self.topology_spread_constraints.as_ref();
        let spread = part("pod.topologySpreadConstraints", constraints);
        match (tolerations, affinity, spread) {
            (Ok(tolerations), Ok(affinity), Ok(spread)) => {
                Ok(Extras { tolerations, affinity, spread })
            }
            (one, two, three) => {
                Err([one.err(), two.err(), three.err()].into_iter().flatten().collect())
            }
        }
    }
}

/// The schema of a part of a Pod. Kubernetes' own schemas of these parts are long; the server checks
/// them when a Pod is created, and the controller when it reads the spec.
pub fn any_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "nullable": true,
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

/// The schema of a list of parts of a Pod.
fn any_list(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "nullable": true,
        "maxItems": 64,
        "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
    })
}

/// An object or a part of one, from its JSON.
///
/// # Panics
/// If the JSON, which a controller's own code writes, is not of the type.
pub fn typed<T: DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).expect("the fields are those of the type")
}

/// Adds the fields of an object to another's.
pub fn merge(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        into.extend(from);
    }
}

/// The same without fields that are null.
pub fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(
                kept.map(|(key, value)| (key, without_nulls(value))).collect::<Map<_, _>>(),
            )
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

/// A digest of what a Pod is made from: another one asks for another Pod.
pub fn fingerprint(content: &Value) -> String {
    HEXLOWER.encode(&digest(&SHA256, content.to_string().as_bytes()).as_ref()[..8])
}

/// The rules of scheduling by which Pods prefer nodes without another Pod that the selector finds.
pub fn apart(selector: &BTreeMap<String, String>) -> Value {
    json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{
        "weight": 100,
        "podAffinityTerm": {
            "topologyKey": "kubernetes.io/hostname",
            "labelSelector": {"matchLabels": selector},
        },
    }]}})
}

/// The security of a container that writes into its volumes alone.
pub fn confined() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]},
    })
}

/// The security of a Pod whose containers run as this user and this group, who own its volumes.
pub fn user(user: i64) -> Value {
    json!({
        "runAsNonRoot": true, "runAsUser": user, "runAsGroup": user, "fsGroup": user,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    })
}
