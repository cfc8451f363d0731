//! The objects of a cluster, and its Pods.

use k8s_openapi::api::apps::v1::StatefulSet;
use serde_json::json;

use super::*;
use crate::keyring::EXPORTER_FILE;
use crate::pods::{digest, stateful_set};
use crate::testkit::{cluster, users};
use crate::wanted::accepted;

fn files() -> BTreeMap<String, String> {
    BTreeMap::from([("my.cnf".to_owned(), "[mysqld]".to_owned())])
}

fn made(cluster: &MySQLCluster) -> StatefulSet {
    let wanted = accepted(cluster).unwrap();
    stateful_set(Parts { cluster, wanted: &wanted, files: &files() }, wanted.replicas)
}

fn digest_of(spec: Value, files: &BTreeMap<String, String>) -> String {
    let cluster = cluster(spec);
    let wanted = accepted(&cluster).unwrap();
    digest(Parts { cluster: &cluster, wanted: &wanted, files })
}

#[test]
fn the_users_manifest_becomes_a_stateful_set_that_updates_nothing_by_itself() {
    let set = made(&users());
    let spec = set.spec;
    assert_eq!(
        (spec.replicas, spec.service_name.as_deref()),
        (Some(2), Some("my-cluster-instances"))
    );
    assert_eq!(spec.update_strategy.unwrap().type_.as_deref(), Some("OnDelete"));
    assert_eq!(spec.pod_management_policy.as_deref(), Some("Parallel"));
    let volume = &spec.volume_claim_templates.unwrap()[0];
    let requests =
        volume.spec.as_ref().unwrap().resources.as_ref().unwrap().requests.as_ref().unwrap();
    assert_eq!((volume.name_any(), requests["storage"].0.as_str()), ("data".to_owned(), "1Gi"));
    let pod = spec.template.spec.unwrap();
    let [container] = &pod.containers[..] else { panic!("{:?}", pod.containers) };
    assert_eq!(container.image.as_deref(), Some("mysql:latest"));
    assert_eq!(container.image_pull_policy.as_deref(), Some("IfNotPresent"));
    assert_eq!(container.command.as_ref().unwrap(), &["/bin/sh", "/leasehold/server.sh"]);
    let security = pod.security_context.unwrap();
    assert_eq!((security.run_as_user, security.fs_group), (Some(999), Some(999)));
    assert!(pod.affinity.unwrap().pod_anti_affinity.is_some());
    for mount in container.volume_mounts.as_ref().unwrap() {
        let is_there = pod.volumes.as_ref().unwrap().iter().any(|volume| volume.name == mount.name);
        assert!(is_there || mount.name == "data", "{}", mount.name);
    }
}

#[test]
fn what_a_running_pod_cannot_follow_is_in_the_digest_and_nothing_else() {
    let first = digest_of(json!({}), &files());
    for other in [
        json!({"image": "mysql:9.1.0"}),
        json!({"resources": {"limits": {"cpu": "1"}}}),
        json!({"maxLag": "30s"}),
        json!({"exporter": {}}),
        json!({"imagePullSecrets": ["a"]}),
        json!({"pod": {"labels": {"a": "b"}}}),
        json!({"pod": {"nodeSelector": {"a": "b"}}}),
    ] {
        assert_ne!(digest_of(other.clone(), &files()), first, "{other}");
    }
    for same in [
        json!({"replicas": 5, "acks": 2, "storage": "9Gi", "port": 3307, "whenAlone": "Continue"}),
        json!({"failoverAfter": "9s", "primary": "db-1", "volumeReclaim": "Retain"}),
        json!({"tls": {"renewal": "10h"}}),
    ] {
        assert_eq!(digest_of(same.clone(), &files()), first, "{same}");
    }
    let other = BTreeMap::from([("my.cnf".to_owned(), "[mysqld]\nport=1".to_owned())]);
    assert_ne!(digest_of(json!({}), &other), first);
    let annotations = made(&cluster(json!({}))).spec.template.metadata.unwrap().annotations;
    assert_eq!(annotations.unwrap()[names::TEMPLATE], first);
}

#[test]
fn users_labels_neither_hide_ours_nor_choose_a_primary() {
    let given = json!({names::CLUSTER_LABEL: "x", names::ROLE_LABEL: "primary", "team": "a"});
    let set = made(&cluster(json!({"pod": {"labels": given}})));
    let labels = set.spec.template.metadata.unwrap().labels.unwrap();
    assert_eq!((&*labels[names::CLUSTER_LABEL], &*labels["team"]), ("db", "a"));
    assert_eq!(labels.get(names::ROLE_LABEL), None);
}

#[test]
fn services_choose_pods_by_role() {
    let [instances, primary, replicas] = services(&cluster(json!({"port": 3307})));
    assert_eq!(instances.spec.as_ref().unwrap().cluster_ip.as_deref(), Some("None"));
    for (service, name, role) in [(primary, "db", "primary"), (replicas, "db-replicas", "replica")]
    {
        assert_eq!(service.name_any(), name);
        let spec = service.spec.unwrap();
        assert_eq!(spec.selector.unwrap()[names::ROLE_LABEL], role);
        let port = &spec.ports.unwrap()[0];
        assert_eq!((port.port, json!(port.target_port)), (3307, json!(3306)));
    }
    let ports = |spec: Value| {
        let [instances, ..] = services(&cluster(spec));
        instances.spec.unwrap().ports.unwrap().len()
    };
    assert_eq!((ports(json!({})), ports(json!({"exporter": {}}))), (1, 2));
}

#[test]
fn volumes_stay_or_go_as_the_spec_says() {
    for (spec, expect) in [(json!({}), "Delete"), (json!({"volumeReclaim": "Retain"}), "Retain")] {
        let policy = made(&cluster(spec)).spec.persistent_volume_claim_retention_policy;
        let policy = policy.unwrap();
        assert_eq!(policy.when_deleted.as_deref(), Some(expect));
        assert_eq!(policy.when_scaled.as_deref(), Some(expect));
    }
    let volume = first_volume(&cluster(json!({"storageClass": "fast"})));
    assert_eq!(volume.name_any(), "data-db-0");
    let owner = &volume.owner_references()[0];
    assert_eq!((&*owner.uid, owner.controller), ("u1", None));
    let stays = first_volume(&cluster(json!({"volumeReclaim": "Retain"})));
    assert!(stays.owner_references().is_empty());
    assert_eq!(volume.spec.unwrap().storage_class_name.as_deref(), Some("fast"));
}

#[test]
fn evictions_take_one_instance_at_a_time() {
    let budget = budget(&cluster(json!({})));
    assert_eq!(json!(budget.spec.unwrap().max_unavailable), json!(1));
}

#[test]
fn a_container_has_the_passwords_that_it_needs_alone() {
    let pod = made(&cluster(json!({"exporter": {}}))).spec.template.spec.unwrap();
    let keys = |container: usize, path: &str| {
        let mounts = pod.containers[container].volume_mounts.as_ref().unwrap();
        let mount = mounts.iter().find(|mount| mount.mount_path == path).unwrap();
        let volume = pod.volumes.as_ref().unwrap().iter().find(|one| one.name == mount.name);
        let items = volume.unwrap().secret.as_ref().unwrap().items.as_ref();
        items.map(|items| items.iter().map(|item| item.key.clone()).collect::<Vec<_>>())
    };
    let ours = ["leasehold", "replication", "probe", "exporter", "backup"].map(String::from);
    assert_eq!(keys(0, names::PASSWORDS), Some(ours.to_vec()));
    assert_eq!(keys(1, names::PASSWORDS), Some(vec![EXPORTER_FILE.to_owned()]));
    assert_eq!(keys(1, names::TLS), Some(vec!["ca.crt".to_owned()]));
    let alone = made(&cluster(json!({}))).spec.template.spec.unwrap().volumes.unwrap();
    assert!(!alone.iter().any(|volume| volume.name.starts_with("exporter")));
}
