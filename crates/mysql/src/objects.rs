//! The objects of a cluster beside its StatefulSet: Services, a PodDisruptionBudget, the ConfigMap with
//! what instances run, the Secret with the passwords of our accounts. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};
use operands::pod::{merge, typed};
use serde_json::{Value, json};

use crate::api::{MySQLCluster, VolumeReclaim};
use crate::names::{self, METRICS_PORT, PORT, UID_LABEL, labels, role_selector, selector};
use crate::wanted::Accepted;

/// Name, labels and owner of an object of a cluster.
pub(crate) fn metadata(cluster: &MySQLCluster, name: &str) -> Value {
    let owner = cluster.controller_owner_ref(&()).map(|mut owner| {
        // Deletion in the foreground waits for what the cluster owns.
        owner.block_owner_deletion = Some(true);
        owner
    });
    named(cluster, name, owner)
}

fn named(cluster: &MySQLCluster, name: &str, owner: Option<OwnerReference>) -> Value {
    json!({
        "name": name,
        "namespace": cluster.namespace(),
        "labels": labels(cluster),
        "ownerReferences": owner.into_iter().collect::<Vec<_>>(),
    })
}

/// The Services: one through which instances find each other before they are ready, one for the primary,
/// one for those that follow. The last two choose Pods by the label of their role, so they switch with it.
pub(crate) fn services(cluster: &MySQLCluster) -> [Service; 3] {
    let port = |port: i32| json!({"name": "mysql", "port": port, "targetPort": PORT});
    let mut own = vec![port(i32::from(PORT))];
    if cluster.spec.exporter.is_some() {
        own.push(json!({"name": "metrics", "port": METRICS_PORT, "targetPort": METRICS_PORT}));
    }
    let instances = json!({
        "metadata": metadata(cluster, &names::instances(cluster)),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": true,
            "selector": selector(cluster),
            "ports": own,
        },
    });
    let clients = |name: &str, role: &str| {
        json!({
            "metadata": metadata(cluster, name),
            "spec": {"selector": role_selector(cluster, role), "ports": [port(cluster.spec.port)]},
        })
    };
    let primary = clients(&cluster.name_any(), "primary");
    let replicas = clients(&names::replicas(cluster), "replica");
    [typed(instances), typed(primary), typed(replicas)]
}

/// Lets evictions take one instance at a time, and a single one too.
pub(crate) fn budget(cluster: &MySQLCluster) -> PodDisruptionBudget {
    typed(json!({
        "metadata": metadata(cluster, &cluster.name_any()),
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": selector(cluster)},
        },
    }))
}

/// The ConfigMap with the scripts and the settings that instances run with.
pub(crate) fn config_map(cluster: &MySQLCluster, files: &BTreeMap<String, String>) -> ConfigMap {
    typed(json!({"metadata": metadata(cluster, &names::files(cluster)), "data": files}))
}

/// The volume of the first instance, made before its StatefulSet when a backup should be on it. The
/// StatefulSet takes it as its own. It goes with the cluster even if there never is a StatefulSet.
pub(crate) fn first_volume(cluster: &MySQLCluster) -> PersistentVolumeClaim {
    // Not as its controller: that is the StatefulSet.
    let owner = cluster.owner_ref(&());
    let owner = owner.filter(|_| cluster.spec.volume_reclaim == VolumeReclaim::Delete);
    let mut metadata = named(cluster, &names::volume(cluster, 0), owner);
    merge(&mut metadata["labels"], json!({UID_LABEL: cluster.uid()}));
    typed(json!({"metadata": metadata, "spec": volume_spec(cluster)}))
}

/// What each volume is like.
pub(crate) fn volume_spec(cluster: &MySQLCluster) -> Value {
    let mut spec = json!({
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": cluster.spec.storage}},
    });
    if let Some(class) = &cluster.spec.storage_class {
        spec["storageClassName"] = class.as_str().into();
    }
    spec
}

/// The digest of what is in the ConfigMap: an instance reads it when it starts.
pub(crate) fn files_digest(files: &BTreeMap<String, String>) -> String {
    operands::pod::fingerprint(&json!(files))
}

/// What a cluster's Pods are made from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts<'a> {
    pub(crate) cluster: &'a MySQLCluster,
    pub(crate) wanted: &'a Accepted,
    /// The scripts and settings by their names: [`config_map`] has them.
    pub(crate) files: &'a BTreeMap<String, String>,
}

#[cfg(test)]
#[path = "objects_tests.rs"]
mod tests;
