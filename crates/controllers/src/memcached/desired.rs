//! The children that a Memcached should have. Pure.
//!
//! # Invariants
//! - What is in the Pod's template restarts every node when it changes, one at a time, and each loses its
//!   keys. So the template depends on the spec alone: neither on the number of nodes, nor on this program's
//!   version. A snapshot test shows it.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Affinity, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::api::{Amount, AntiAffinity, Memcached, MemcachedSpec, Resources};
use super::arguments::{PORT, arguments};
use super::invalid::Invalid;
use super::sizing::{Sizing, bytes, quantity};
use crate::children::ownership;

/// The label by which the children find the Pods of a Memcached. Its value is the Memcached's name.
pub(super) const LABEL: &str = "data.leasehold.dev/memcached";
/// The container that runs memcached.
pub(super) const CONTAINER: &str = "memcached";

/// The longest name. A StatefulSet's Pods have its name and a revision of eleven characters in a label,
/// which has 63 at most.
const MAX_NAME: usize = 52;
/// The exporter's port.
const METRICS_PORT: i32 = 9_150;

/// The children that a spec asks for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Desired {
    /// Gives the Pods their names in DNS.
    pub service: Service,
    /// Runs the Pods.
    pub stateful_set: StatefulSet,
    /// Keeps more than one node from being evicted at once, if there are several.
    pub budget: Option<PodDisruptionBudget>,
}

/// The children of a Memcached.
///
/// # Errors
/// [`Invalid`]: nothing can be done until the spec changes.
pub(super) fn desired(memcached: &Memcached) -> Result<Desired, Invalid> {
    let name = memcached.name_any();
    if !fits(&name) {
        let name = sdk::error::foreign(&name);
        return Err(Invalid::Name { name, most: MAX_NAME });
    }
    Ok(Desired {
        stateful_set: stateful_set(memcached)?,
        service: service(memcached),
        budget: (memcached.spec.size > 1).then(|| budget(memcached)),
    })
}

/// The labels that select the Pods.
pub(super) fn selector(name: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(LABEL.to_owned(), name.to_owned())])
}

/// The address of a node as clients use it. It works in every cluster, whatever its domain is.
pub(super) fn address(memcached: &Memcached, ordinal: i32) -> String {
    let (name, namespace) = (memcached.name_any(), memcached.namespace().unwrap_or_default());
    format!("{name}-{ordinal}.{name}.{namespace}.svc:{PORT}")
}

/// Whether a Service may have this name, and the Pods with a revision appended.
fn fits(name: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    name.len() <= MAX_NAME
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && !name.ends_with('-')
        && name.chars().all(allowed)
}

fn service(memcached: &Memcached) -> Service {
    let mut ports = vec![json!({
        "name": "memcached", "port": PORT, "protocol": "TCP", "targetPort": "memcached",
    })];
    if memcached.spec.exporter.is_some() {
        ports.push(json!({
            "name": "metrics", "port": METRICS_PORT, "protocol": "TCP", "targetPort": "metrics",
        }));
    }
    typed(json!({
        "metadata": metadata(memcached),
        "spec": {
            "clusterIP": "None",
            "selector": selector(&memcached.name_any()),
            // A node keeps its name while it is not ready: a client then fails to connect, which it
            // expects, and does not find a list of servers without it, by which it would move keys.
            "publishNotReadyAddresses": true,
            "ports": ports,
        },
    }))
}

fn budget(memcached: &Memcached) -> PodDisruptionBudget {
    typed(json!({
        "metadata": metadata(memcached),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": selector(&memcached.name_any())},
            // A Pod that is not ready has no keys to lose.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }))
}

fn stateful_set(memcached: &Memcached) -> Result<StatefulSet, Invalid> {
    let (name, spec) = (memcached.name_any(), &memcached.spec);
    let mut pod_labels = labels(&name);
    for (key, value) in &spec.pod_labels {
        if pod_labels.insert(key.clone(), value.clone()).is_some() {
            return Err(Invalid::Label { key: sdk::error::foreign(key) });
        }
    }
    let mut template = Map::from_iter([("labels".to_owned(), json!(pod_labels))]);
    if !spec.pod_annotations.is_empty() {
        template.insert("annotations".to_owned(), json!(spec.pod_annotations));
    }
    Ok(typed(json!({
        "metadata": metadata(memcached),
        "spec": {
            "replicas": spec.size,
            "serviceName": name,
            "selector": {"matchLabels": selector(&name)},
            // Nodes know nothing of each other: all may start at once. An update still goes one by one.
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "RollingUpdate"},
            // A server leaves 0 out.
            "minReadySeconds": Some(spec.min_ready_seconds).filter(|seconds| *seconds != 0),
            "template": {"metadata": template, "spec": pod(&name, spec)?},
        },
    })))
}

fn pod(name: &str, spec: &MemcachedSpec) -> Result<Value, Invalid> {
    let sizing = Sizing::of(spec)?;
    let mut containers = vec![memcached_container(spec, sizing)?];
    containers.extend(spec.exporter.as_ref().map(|exporter| {
        json!({
            "name": "exporter",
            "image": exporter.image,
            "args": [
                format!("--memcached.address=localhost:{PORT}"),
                format!("--web.listen-address=:{METRICS_PORT}"),
            ],
            "ports": [{"name": "metrics", "containerPort": METRICS_PORT, "protocol": "TCP"}],
            "resources": resources(&exporter.resources),
            "securityContext": confined(),
        })
    }));
    let mut pod = json!({
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": spec.run_as_user,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": containers,
        "topologySpreadConstraints": [{
            "maxSkew": 1,
            "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": selector(name)},
        }],
    });
    let optional = [
        ("affinity", affinity(name, spec)?),
        ("imagePullSecrets", json!(spec.image_pull_secrets)),
        ("nodeSelector", json!(spec.node_selector)),
        ("priorityClassName", json!(spec.priority_class_name)),
        ("tolerations", json!(spec.tolerations)),
    ];
    for (field, value) in optional {
        let is_empty = value.as_array().is_some_and(Vec::is_empty)
            || value.as_object().is_some_and(Map::is_empty);
        if !is_empty && !value.is_null() {
            pod[field] = value;
        }
    }
    Ok(pod)
}

fn memcached_container(spec: &MemcachedSpec, sizing: Sizing) -> Result<Value, Invalid> {
    let port = json!({"port": "memcached"});
    Ok(json!({
        "name": CONTAINER,
        "image": spec.image,
        // Images differ in their entrypoints, and agree on the program.
        "command": ["memcached"],
        "args": arguments(spec, sizing)?,
        "ports": [{"name": "memcached", "containerPort": PORT, "protocol": "TCP"}],
        "readinessProbe": {"tcpSocket": port, "periodSeconds": 5, "timeoutSeconds": 3},
        // Slow to act: to kill a node that is merely busy would lose its keys.
        "livenessProbe": {
            "tcpSocket": port, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 6,
        },
        "resources": sized(&spec.resources, sizing)?,
        "securityContext": confined(),
    }))
}

fn confined() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "readOnlyRootFilesystem": true,
        "capabilities": {"drop": ["ALL"]},
    })
}

fn resources(resources: &Resources) -> Value {
    let texts = |amounts: &BTreeMap<String, Amount>| -> BTreeMap<String, String> {
        amounts.iter().map(|(name, amount)| (name.clone(), amount.text())).collect()
    };
    let (limits, requests) = (texts(&resources.limits), texts(&resources.requests));
    let mut found = Map::new();
    for (field, amounts) in [("limits", limits), ("requests", requests)] {
        if !amounts.is_empty() {
            found.insert(field.to_owned(), json!(amounts));
        }
    }
    found.into()
}

/// The resources of a node: as they are given, and memory as the sizing says where it is not.
fn sized(given: &Resources, sizing: Sizing) -> Result<Value, Invalid> {
    let requested = given.requests.get("memory");
    let requested = requested.map(|own| bytes("resources.requests.memory", own)).transpose()?;
    let least = requested.unwrap_or(0).div_ceil(1 << 20);
    let mut all = given.clone();
    let amount = |mib| Amount::Text(quantity(mib));
    all.requests.entry("memory".to_owned()).or_insert_with(|| amount(sizing.all_mib));
    let limit = || amount(sizing.all_mib.max(least));
    all.limits.entry("memory".to_owned()).or_insert_with(limit);
    Ok(resources(&all))
}

/// The affinity of the Pods: the user's, and ours beside it.
fn affinity(name: &str, spec: &MemcachedSpec) -> Result<Value, Invalid> {
    let given = spec.affinity.clone().unwrap_or_else(|| json!({}));
    let unlike = |cause: String| Invalid::Affinity { cause: sdk::error::foreign(&cause) };
    let mut affinity: Affinity =
        serde_json::from_value(given).map_err(|error| unlike(error.to_string()))?;
    let term = json!({
        "labelSelector": {"matchLabels": selector(name)},
        "topologyKey": "kubernetes.io/hostname",
    });
    match spec.anti_affinity {
        AntiAffinity::Preferred => {
            let apart = affinity.pod_anti_affinity.get_or_insert_default();
            let preferred = typed(json!({"weight": 100, "podAffinityTerm": term}));
            let list = &mut apart.preferred_during_scheduling_ignored_during_execution;
            list.get_or_insert_default().push(preferred);
        }
        AntiAffinity::Required => {
            let apart = affinity.pod_anti_affinity.get_or_insert_default();
            let list = &mut apart.required_during_scheduling_ignored_during_execution;
            list.get_or_insert_default().push(typed(term));
        }
        AntiAffinity::None => {}
    }
    Ok(json!(affinity))
}

fn metadata(memcached: &Memcached) -> ObjectMeta {
    let name = memcached.name_any();
    ObjectMeta {
        labels: Some(labels(&name)),
        name: Some(name),
        namespace: memcached.metadata.namespace.clone(),
        owner_references: ownership(memcached),
        ..ObjectMeta::default()
    }
}

fn labels(name: &str) -> BTreeMap<String, String> {
    let mut labels = selector(name);
    for (key, value) in [("name", "memcached"), ("instance", name), ("managed-by", "leasehold")] {
        labels.insert(format!("app.kubernetes.io/{key}"), value.to_owned());
    }
    labels
}

/// A part of Kubernetes' own from its JSON, which this file writes.
fn typed<K: DeserializeOwned>(json: Value) -> K {
    serde_json::from_value(json).expect("this file writes JSON of the type")
}

#[cfg(test)]
#[path = "desired_tests.rs"]
mod tests;
