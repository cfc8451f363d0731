//! The StatefulSet of a cluster and its Pods. Pure.
//!
//! Its update strategy is `OnDelete`: the controller decides which Pod is made anew, and when. So the
//! template may change at any time without harm. A Pod's annotation has the digest of what it was made
//! from, and one with another digest is outdated.

use k8s_openapi::api::apps::v1::StatefulSet;
use kube::ResourceExt;
use operands::pod::{apart, confined, fingerprint, merge, typed, user, without_nulls};
use serde_json::{Map, Value, json};

use crate::api::{MySQLCluster, VolumeReclaim};
use crate::calls::Account;
use crate::keyring::EXPORTER_FILE;
use crate::names::{
    self, FILES, METRICS_PORT, PASSWORDS, PORT, TEMPLATE, TLS, VOLUME, labels, selector,
};
use crate::objects::{Parts, files_digest, metadata, volume_spec};

/// The user and the group of MySQL in its official image.
pub(crate) const USER: i64 = 999;
/// How long mysqld may take to end, in seconds. Its data survives if it is killed then.
const GRACE: i64 = 60;

/// The container of mysqld.
pub(crate) const CONTAINER: &str = "mysql";

/// The StatefulSet with so many replicas, which may be others than are wanted while it grows or shrinks.
pub(crate) fn stateful_set(parts: Parts<'_>, replicas: usize) -> StatefulSet {
    let cluster = parts.cluster;
    let reclaim = match cluster.spec.volume_reclaim {
        VolumeReclaim::Delete => "Delete",
        VolumeReclaim::Retain => "Retain",
    };
    typed(json!({
        "metadata": metadata(cluster, &cluster.name_any()),
        "spec": {
            "replicas": replicas,
            "serviceName": names::instances(cluster),
            "selector": {"matchLabels": selector(cluster)},
            // Who may start, and who is the first, is said in the status and not by an order of Pods.
            "podManagementPolicy": "Parallel",
            "updateStrategy": {"type": "OnDelete"},
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": reclaim, "whenScaled": reclaim},
            "template": template(parts),
            "volumeClaimTemplates": [{
                "metadata": {"name": "data", "labels": labels(cluster)},
                "spec": volume_spec(cluster),
            }],
        },
    }))
}

/// The digest of what a Pod is made from, as its annotation [`TEMPLATE`] has it.
pub(crate) fn digest(parts: Parts<'_>) -> String {
    let (labels, annotations, spec) = content(parts);
    fingerprint(&json!([labels, annotations, spec, files_digest(parts.files)]))
}

fn template(parts: Parts<'_>) -> Value {
    let (labels, mut annotations, spec) = content(parts);
    merge(&mut annotations, json!({TEMPLATE: digest(parts)}));
    json!({"metadata": {"labels": labels, "annotations": annotations}, "spec": spec})
}

/// Labels, annotations and spec of a Pod. The users' labels do not hide ours.
fn content(parts: Parts<'_>) -> (Value, Value, Value) {
    let pod = &parts.cluster.spec.pod;
    let mut all = json!(pod.labels);
    if let Some(given) = all.as_object_mut() {
        // Who is primary is not a matter of the template.
        given.remove(names::ROLE_LABEL);
    }
    merge(&mut all, json!(labels(parts.cluster)));
    (all, json!(pod.annotations), pod_spec(parts))
}

fn pod_spec(parts: Parts<'_>) -> Value {
    let (cluster, wanted) = (parts.cluster, parts.wanted);
    let pod = &cluster.spec.pod;
    let mut containers = vec![container(parts)];
    let mut volumes = volumes(cluster);
    if let Some(exporter) = exporter(parts) {
        containers.push(exporter);
        volumes.push(keys("exporter", names::accounts(cluster), &[EXPORTER_FILE]));
        volumes.push(keys("exporter-tls", names::certificate(cluster), &["ca.crt"]));
    }
    let affinity = wanted.pod.affinity.as_ref();
    let affinity = affinity.map_or_else(|| apart(&selector(cluster)), |affinity| json!(affinity));
    let secrets: Vec<_> =
        cluster.spec.image_pull_secrets.iter().map(|name| json!({"name": name})).collect();
    let mut spec = json!({
        "containers": containers,
        "volumes": volumes,
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": GRACE,
        "securityContext": user(USER),
        "tolerations": wanted.pod.tolerations,
        "affinity": affinity,
        "priorityClassName": pod.priority_class_name,
        "topologySpreadConstraints": wanted.pod.spread,
    });
    let optional =
        [("nodeSelector", json!(pod.node_selector)), ("imagePullSecrets", json!(secrets))];
    let is_empty =
        |value: &Value| *value == json!({}) || value.as_array().is_some_and(Vec::is_empty);
    let given = optional.into_iter().filter(|(_, value)| !is_empty(value));
    let given: Map<_, _> = given.map(|(name, value)| (name.to_owned(), value)).collect();
    merge(&mut spec, given.into());
    without_nulls(spec)
}

/// The mounts of a container that runs mysqld.
pub(crate) fn mounts() -> Vec<Value> {
    let read = |name: &str, path: &str| json!({"name": name, "mountPath": path, "readOnly": true});
    let write = |name: &str, path: &str| json!({"name": name, "mountPath": path});
    vec![
        write("data", VOLUME),
        write("run", "/var/run/mysqld"),
        write("tmp", "/tmp"),
        read("files", FILES),
        read("accounts", PASSWORDS),
        // The folder, not files of it: only then a renewed certificate appears in a running Pod.
        read("tls", TLS),
    ]
}

/// What [`mounts`] mount, but for the volume with the data.
pub(crate) fn volumes(cluster: &MySQLCluster) -> Vec<Value> {
    let secret = |name: &str, secret: String| json!({"name": name, "secret": {"secretName": secret, "defaultMode": 0o440}});
    vec![
        json!({"name": "run", "emptyDir": {}}),
        json!({"name": "tmp", "emptyDir": {}}),
        json!({"name": "files", "configMap": {"name": names::files(cluster), "defaultMode": 0o555}}),
        keys("accounts", names::accounts(cluster), &Account::OURS.map(Account::name)),
        secret("tls", names::certificate(cluster)),
    ]
}

/// A volume with these keys of a Secret.
pub(crate) fn keys(volume: &str, secret: String, keys: &[&str]) -> Value {
    let items: Vec<_> = keys.iter().map(|key| json!({"key": key, "path": key})).collect();
    json!({"name": volume, "secret": {"secretName": secret, "items": items, "defaultMode": 0o440}})
}

/// The environment of a container that runs mysqld.
fn environment(parts: Parts<'_>) -> Vec<Value> {
    let name =
        json!({"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}});
    let lag = |lag: u64| json!({"name": "LEASEHOLD_MAX_LAG", "value": lag.to_string()});
    std::iter::once(name).chain(parts.wanted.max_lag.map(lag)).collect()
}

fn container(parts: Parts<'_>) -> Value {
    json!({
        "name": CONTAINER,
        "image": parts.cluster.spec.image,
        "imagePullPolicy": "IfNotPresent",
        // Not the image's own entrypoint: it would make accounts that replicate, on each instance others.
        "command": ["/bin/sh", format!("{FILES}/server.sh")],
        "env": environment(parts),
        "ports": [{"name": "mysql", "containerPort": PORT}],
        "resources": parts.wanted.resources,
        // There is no liveness probe: recovery and clones take as long as they take, and a server that
        // hangs is one that another takes over from.
        "readinessProbe": {
            "exec": {"command": ["/bin/sh", format!("{FILES}/probe.sh")]},
            "periodSeconds": 2, "timeoutSeconds": 5, "failureThreshold": 2,
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": confined(),
        "volumeMounts": mounts(),
    })
}

fn exporter(parts: Parts<'_>) -> Option<Value> {
    let exporter = parts.cluster.spec.exporter.as_ref()?;
    let mount = |name: &str, path: &str| json!({"name": name, "mountPath": path, "readOnly": true});
    Some(json!({
        "name": "exporter",
        "image": exporter.image,
        "imagePullPolicy": "IfNotPresent",
        "args": [
            format!("--config.my-cnf={PASSWORDS}/{EXPORTER_FILE}"),
            format!("--web.listen-address=:{METRICS_PORT}"),
        ],
        "ports": [{"name": "metrics", "containerPort": METRICS_PORT}],
        "resources": parts.wanted.exporter_resources,
        // It reads its file when it starts, and when it is asked here: a rotated password reaches it so.
        "livenessProbe": {
            "httpGet": {"path": "/-/reload", "port": METRICS_PORT},
            "periodSeconds": 60, "timeoutSeconds": 5,
        },
        "securityContext": confined(),
        "volumeMounts": [mount("exporter", PASSWORDS), mount("exporter-tls", TLS)],
    }))
}
