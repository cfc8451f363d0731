//! Each state of a restore and its step.

use serde_json::{Value, json};

use super::*;
use crate::snapshot::jobs;
use crate::tests::cluster;

const SEED: Seed<'_> =
    Seed { member: "db-0", volume_uid: "v1", version: Version { major: 3, minor: 6, patch: 5 } };

fn restoring(from: Value) -> EtcdCluster {
    cluster(json!({"version": "3.6.5", "restoreFrom": from}))
}

fn snapshot(status: Value) -> EtcdSnapshot {
    serde_json::from_value(json!({
        "apiVersion": "data.leasehold.dev/v1alpha1", "kind": "EtcdSnapshot",
        "metadata": {"name": "old", "namespace": "web"},
        "spec": {"cluster": "db", "destination": {"volume": {"claimName": "backups"}}},
        "status": status,
    }))
    .unwrap()
}

fn reason(verdict: Restored) -> &'static str {
    let Restored::No { reason, .. } = verdict else { panic!("{verdict:?}") };
    reason
}

#[test]
fn what_the_spec_names_is_found_or_said() {
    let named = restoring(json!({"snapshot": "old"}));
    let look = |snapshot: Option<Value>| {
        origin(&named, snapshot.map(self::snapshot).as_ref(), SEED.version)
    };
    let complete = json!({"phase": "Complete", "key": "web/db/old", "version": "3.6.9"});
    assert_eq!(look(Some(complete)).unwrap().unwrap().key, "web/db/old");
    for (status, expected) in [
        (None, "SnapshotMissing"),
        (Some(json!({"phase": "Pending"})), "Restoring"),
        (Some(json!({"phase": "Running", "key": "k"})), "Restoring"),
        (Some(json!({"phase": "Failed", "key": "k"})), "SnapshotUnusable"),
        (Some(json!({"phase": "Complete", "key": "k", "version": "3.7.0"})), "SnapshotTooNew"),
    ] {
        assert_eq!(reason(look(status).unwrap_err()), expected);
    }
    let volume = json!({"volume": {"claimName": "backups"}});
    for (from, fine) in [
        (json!({"destination": volume, "key": "a"}), true),
        (json!({"destination": volume}), false),
        (json!({"snapshot": "old", "destination": volume, "key": "a"}), false),
        (json!({"destination": {}, "key": "a"}), false),
        (json!({}), false),
    ] {
        let found = origin(&restoring(from.clone()), None, SEED.version);
        assert_eq!(found.is_ok(), fine, "{from}");
    }
    assert_eq!(origin(&cluster(json!({"version": "3.6.5"})), None, SEED.version), Ok(None));
}

#[test]
fn the_job_stages_the_data_and_raises_the_revision_where_etcd_can() {
    let cluster = restoring(json!({"snapshot": "old"}));
    let origin = Origin {
        destination: serde_json::from_value(json!({"volume": {"claimName": "backups"}})).unwrap(),
        key: "web/db/old".to_owned(),
        sha256: Some("ab12".to_owned()),
    };
    let arguments = |version: &str| {
        let version = version.parse().unwrap();
        let job = jobs::restore(&cluster, "db-0", version, "v1", &origin, "leasehold:1").unwrap();
        let spec = job.spec.unwrap();
        assert_eq!(spec.ttl_seconds_after_finished, None);
        let pod = spec.template.spec.unwrap();
        let first = pod.init_containers.unwrap();
        let all = first.into_iter().chain(pod.containers);
        all.map(|container| container.args.unwrap().join(" ")).collect::<Vec<_>>()
    };
    let [fetch, restore, finish] = &arguments("3.6.5")[..] else { panic!() };
    for part in ["--clear=/var/lib/etcd/restore", "--folder=/backups", "--sha256=ab12"] {
        assert!(fetch.contains(part), "{part}: {fetch}");
    }
    assert!(restore.contains("--data-dir=/var/lib/etcd/restore/data"), "{restore}");
    assert!(restore.contains("--bump-revision=1000000000 --mark-compacted"), "{restore}");
    assert!(
        restore.contains("--initial-cluster=db-0=https://db-0.db-peers.web.svc:2380"),
        "{restore}"
    );
    assert!(
        finish.contains("--from=/var/lib/etcd/restore/data --to=/var/lib/etcd/data"),
        "{finish}"
    );
    assert!(!arguments("3.5.21")[1].contains("--bump-revision"));
}
