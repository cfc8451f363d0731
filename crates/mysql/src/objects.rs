//! The objects of a cluster beside its StatefulSet: Services, a PodDisruptionBudget, the ConfigMap with
//! what instances run, the Secret with the passwords of our accounts. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};
use operands::pod::typed;
use serde_json::{Value, json};

use crate::api::{MySQLCluster, VolumeReclaim};
use crate::names::{self, METRICS_PORT, PORT, TLS, labels, role_selector, selector};
use crate::wanted::Accepted;

/// The accounts that the controller makes, whose passwords are in the Secret under these keys.
pub(crate) const ACCOUNTS: [&str; 5] = ["leasehold", "replication", "probe", "backup", "exporter"];
/// The key of that Secret with what the exporter reads.
pub(crate) const EXPORTER_FILE: &str = "exporter.cnf";

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

/// The Secret with the passwords of our accounts: those that are there stay, and `password` makes those that
/// are missing. Nothing if none is missing. A password consists of ASCII letters and digits.
pub(crate) fn accounts(
    cluster: &MySQLCluster,
    found: Option<&Secret>,
    mut password: impl FnMut() -> String,
) -> Option<Secret> {
    let known = |account: &str| {
        let data = found?.data.as_ref()?.get(account)?;
        let text = String::from_utf8(data.0.clone()).ok()?;
        let is_password = !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric());
        is_password.then_some(text)
    };
    let mut texts = BTreeMap::new();
    let mut is_whole = true;
    for account in ACCOUNTS {
        let password = known(account).unwrap_or_else(|| {
            is_whole = false;
            password()
        });
        texts.insert(account, password);
    }
    let exporter = format!(
        "[client]\nuser=exporter\npassword={}\nhost=127.0.0.1\nport={PORT}\nssl-ca={TLS}/ca.crt\n",
        texts["exporter"]
    );
    texts.insert(EXPORTER_FILE, exporter);
    let has_file = found
        .and_then(|found| found.data.as_ref()?.get(EXPORTER_FILE))
        .is_some_and(|file| file.0 == texts[EXPORTER_FILE].as_bytes());
    if is_whole && has_file {
        return None;
    }
    let mut secret: Secret =
        typed(json!({"metadata": metadata(cluster, &names::accounts(cluster)), "type": "Opaque"}));
    let bytes =
        |(key, text): (&str, String)| (key.to_owned(), k8s_openapi::ByteString(text.into_bytes()));
    secret.data = Some(texts.into_iter().map(bytes).collect());
    Some(secret)
}

/// The volume of the first instance, made before its StatefulSet when a backup should be on it. The
/// StatefulSet takes it as its own. It goes with the cluster even if there never is a StatefulSet.
pub(crate) fn first_volume(cluster: &MySQLCluster) -> PersistentVolumeClaim {
    // Not as its controller: that is the StatefulSet.
    let owner = cluster.owner_ref(&());
    let owner = owner.filter(|_| cluster.spec.volume_reclaim == VolumeReclaim::Delete);
    let metadata = named(cluster, &names::volume(cluster, 0), owner);
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
