//! What belongs together: names, labels, ports and addresses. Pure.

use std::collections::BTreeMap;

use kube::ResourceExt;
use sdk::label_value;

use crate::api::MySQLCluster;

/// The label of everything that belongs to a cluster: the name of its MySQLCluster.
pub(crate) const CLUSTER_LABEL: &str = "mysql.leasehold.dev/cluster";

/// The label of a Pod by which the Services choose it: `primary`, `replica`, or absent.
pub(crate) const ROLE_LABEL: &str = "mysql.leasehold.dev/role";

/// The label of the volume that a backup is brought onto: the uid of its MySQLCluster. One that another of
/// the same name left behind has another one, or none.
pub(crate) const UID_LABEL: &str = "mysql.leasehold.dev/uid";

/// The annotation of a Pod: the digest of what it was made from.
pub(crate) const TEMPLATE: &str = "mysql.leasehold.dev/template";

/// The annotation of a MySQLCluster, and of its accounts' Secret: with another value than the one that the
/// Secret has, the passwords of our accounts are rotated.
pub(crate) const ROTATE: &str = "mysql.leasehold.dev/rotate";

/// The longest value of that annotation that makes a difference, in characters.
const MAX_REQUEST: usize = 64;

/// The port of mysqld.
pub(crate) const PORT: u16 = 3_306;

/// The port of the exporter.
pub(crate) const METRICS_PORT: u16 = 9_104;

/// Where an instance's volume is mounted.
pub(crate) const VOLUME: &str = "/var/lib/mysql";
/// Where the scripts and settings are mounted.
pub(crate) const FILES: &str = "/leasehold";
/// Where the passwords of our accounts are mounted.
pub(crate) const PASSWORDS: &str = "/leasehold-accounts";
/// Where the certificate is mounted.
pub(crate) const TLS: &str = "/leasehold-tls";
/// The longest name of a MySQLCluster: a StatefulSet's Pods have its name and a revision in a label.
pub(crate) const MAX_NAME: usize = 52;
/// The most instances of a cluster.
pub(crate) const MAX_INSTANCES: usize = 9;

/// The name of an instance, which is that of its Pod.
pub(crate) fn instance(cluster: &MySQLCluster, ordinal: usize) -> String {
    format!("{}-{ordinal}", cluster.name_any())
}

/// The number of an instance by its name.
pub(crate) fn ordinal(cluster: &MySQLCluster, instance: &str) -> Option<usize> {
    let number = instance.strip_prefix(&cluster.name_any())?.strip_prefix('-')?;
    let ordinal = number.parse().ok()?;
    (self::instance(cluster, ordinal) == instance).then_some(ordinal)
}

/// The PersistentVolumeClaim of an instance, as its StatefulSet names it.
pub(crate) fn volume(cluster: &MySQLCluster, ordinal: usize) -> String {
    format!("data-{}", instance(cluster, ordinal))
}

/// The headless Service through which instances find each other.
pub(crate) fn instances(cluster: &MySQLCluster) -> String {
    format!("{}-instances", cluster.name_any())
}

/// The Service of those that follow.
pub(crate) fn replicas(cluster: &MySQLCluster) -> String {
    format!("{}-replicas", cluster.name_any())
}

/// The ConfigMap with what instances run.
pub(crate) fn files(cluster: &MySQLCluster) -> String {
    format!("{}-files", cluster.name_any())
}

/// The Secret with the passwords of the accounts that the controller makes.
pub(crate) fn accounts(cluster: &MySQLCluster) -> String {
    format!("{}-accounts", cluster.name_any())
}

/// The Secret of the cluster's authority.
pub(crate) fn authority(cluster: &MySQLCluster) -> String {
    format!("{}-ca", cluster.name_any())
}

/// The Secret with the instances' certificate.
pub(crate) fn certificate(cluster: &MySQLCluster) -> String {
    format!("{}-tls", cluster.name_any())
}

/// The Job that brings a backup onto the volume of the first instance.
pub(crate) fn restore(cluster: &MySQLCluster) -> String {
    format!("{}-restore", cluster.name_any())
}

/// What a person asks for with the annotation [`ROTATE`].
pub(crate) fn request(cluster: &MySQLCluster) -> Option<String> {
    noted_request(cluster.annotations())
}

/// The value of [`ROTATE`] among annotations, as much of it as counts.
pub(crate) fn noted_request(annotations: &BTreeMap<String, String>) -> Option<String> {
    Some(annotations.get(ROTATE)?.chars().take(MAX_REQUEST).collect())
}

/// The DNS name of a Service.
pub(crate) fn service_host(cluster: &MySQLCluster, service: &str) -> String {
    format!("{service}.{}.svc", cluster.namespace().unwrap_or_default())
}

/// The labels by which the Pods of a cluster are found.
pub(crate) fn selector(cluster: &MySQLCluster) -> BTreeMap<String, String> {
    BTreeMap::from([(CLUSTER_LABEL.to_owned(), label_value(&cluster.name_any()))])
}

/// The labels by which a Service finds the Pods of a role.
pub(crate) fn role_selector(cluster: &MySQLCluster, role: &str) -> BTreeMap<String, String> {
    let mut labels = selector(cluster);
    labels.insert(ROLE_LABEL.to_owned(), role.to_owned());
    labels
}

/// The labels of everything that belongs to a cluster.
pub(crate) fn labels(cluster: &MySQLCluster) -> BTreeMap<String, String> {
    let mut labels = selector(cluster);
    let instance = label_value(&cluster.name_any());
    for (key, value) in [("name", "mysql"), ("instance", &*instance), ("managed-by", "leasehold")] {
        labels.insert(format!("app.kubernetes.io/{key}"), value.to_owned());
    }
    labels
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testkit::cluster;

    #[test]
    fn an_instance_is_known_by_its_name() {
        let cluster = cluster(json!({}));
        for (name, expect) in [
            ("db-0", Some(0)),
            ("db-12", Some(12)),
            ("db-012", None),
            ("db-+1", None),
            ("db--1", None),
            ("db-x", None),
            ("db", None),
            ("other-0", None),
        ] {
            assert_eq!(ordinal(&cluster, name), expect, "{name}");
        }
        assert_eq!(volume(&cluster, 1), "data-db-1");
    }

    #[test]
    fn the_longest_name_fits_into_all_that_is_made_from_it() {
        let mut long = cluster(json!({}));
        long.metadata.name = Some("a".repeat(MAX_NAME));
        for name in [instances(&long), replicas(&long), format!("{}-1234567890", long.name_any())] {
            assert!(name.len() <= 63, "{name}");
        }
    }
}
