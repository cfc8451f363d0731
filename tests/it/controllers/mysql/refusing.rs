//! What cannot be carried out is said in words, and ends when its cause does.

use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::Api;
use kube::api::ListParams;
use leasehold::testing::{ApiError, Fault, Reason, TestEnv};
use mysql::{MySQLBackup, MySQLCluster};
use serde_json::json;

use super::kit::{
    NAMESPACE, change, check, clusters, commit, controllers, create, delete, moment, primary, says,
    secret, settled, world,
};
use crate::controllers::{events, quiet, reasons};

/// As users have it.
const USERS: &str = include_str!("../../../../crates/mysql/src/users.yaml");

async fn nothing_runs(env: &TestEnv) {
    let pods: Api<Pod> = env.api(NAMESPACE);
    let sets: Api<StatefulSet> = env.api(NAMESPACE);
    assert!(pods.list(&ListParams::default()).await.unwrap().items.is_empty());
    assert!(sets.list(&ListParams::default()).await.unwrap().items.is_empty());
}

#[tokio::test(start_paused = true)]
async fn without_its_backup_a_cluster_waits_and_goes_on_when_there_is_one() {
    let (mut env, _) = world().await;
    env.run(controllers());
    secret(&env, "my-secret").await;
    let metadata = format!("metadata:\n  namespace: {NAMESPACE}");
    env.apply(&USERS.replace("metadata:", &metadata)).await;
    let message = says(&env, "my-cluster", "Degraded", "BackupNotFound").await;
    let backup = "my-backup-2017-12-14-01-22";
    assert!(message.starts_with(&format!("MySQLBackup {backup} does not exist")), "{message}");
    env.pass(Duration::from_secs(60)).await;
    quiet(&env, Duration::from_secs(300)).await;
    nothing_runs(&env).await;
    assert_eq!(reasons(&env, NAMESPACE).await, ["Degraded"]);

    // It is seen at once whenever it comes, not when the next look is due.
    let made = json!({
        "apiVersion": "cr.mysqloperator.grtl.github.com/v1", "kind": "MySQLBackup",
        "metadata": {"name": backup, "namespace": NAMESPACE},
        "spec": {"cluster": "old", "destination": {"volume": {"claimName": "backups"}}},
    });
    for later in [1, 8, 15] {
        env.pass(Duration::from_secs(later)).await;
        env.apply(&made.to_string()).await;
        moment(&env).await;
        assert_ne!(phase(&env).await, "BackupNotFound");
        delete::<MySQLBackup>(&env, backup).await;
        env.until("its end", async || (phase(&env).await == "BackupNotFound").then_some(())).await;
    }
}

async fn phase(env: &TestEnv) -> String {
    let cluster: MySQLCluster = clusters(env).get("my-cluster").await.unwrap();
    cluster.status.unwrap().phase.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_bad_spec_is_refused_in_words_and_all_at_once() {
    let (mut env, _) = world().await;
    env.run(controllers());
    create(&env, "db", json!({"replicas": 2, "acks": 2, "failoverAfter": "soon"})).await;
    let cluster = env
        .until_object(&clusters(&env), "db", |one| {
            one.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Invalid")
        })
        .await;
    let conditions = cluster.status.unwrap().conditions;
    let valid = conditions.iter().find(|found| found.type_ == "SpecValid").unwrap();
    assert_eq!(valid.status, "False");
    for word in ["acks", "failoverAfter"] {
        assert!(valid.message.contains(word), "{}", valid.message);
    }
    env.pass(Duration::from_secs(5)).await;
    quiet(&env, Duration::from_secs(600)).await;
    nothing_runs(&env).await;
}

#[tokio::test(start_paused = true)]
async fn a_missing_secret_is_said_and_the_cluster_starts_when_it_is_there() {
    let (mut env, servers) = world().await;
    env.run(controllers());
    create(&env, "db", json!({"replicas": 2, "secret": "users"})).await;
    let message = says(&env, "db", "Degraded", "InTheWay").await;
    assert!(message.starts_with("Secret users does not exist"), "{message}");
    env.pass(Duration::from_secs(60)).await;
    quiet(&env, Duration::from_secs(300)).await;
    nothing_runs(&env).await;
    secret(&env, "users").await;
    let cluster = settled(&env, "db").await;
    check(&servers, &cluster);
}

#[tokio::test(start_paused = true)]
async fn a_secret_of_others_is_not_taken() {
    let (mut env, _) = world().await;
    env.run(controllers());
    secret(&env, "db-accounts").await;
    create(&env, "db", json!({"replicas": 2})).await;
    let message = says(&env, "db", "Degraded", "InTheWay").await;
    assert!(message.contains("Secret db-accounts exists and is not of this"), "{message}");
    env.pass(Duration::from_secs(60)).await;
    quiet(&env, Duration::from_secs(300)).await;
    nothing_runs(&env).await;
}

/// As an admission policy, a StorageClass without expansion or a quota refuses, and as people delete Secrets.
#[tokio::test(start_paused = true)]
async fn what_is_refused_or_missing_stops_no_takeover() {
    let larger = json!({"storage": "16Gi"});
    let limit = json!({"resources": {"limits": {"memory": "2Gi"}}});
    for (refused, spec, is_handed_over, reason, words) in [
        (Some(("statefulsets", Reason::Invalid)), limit.clone(), false, "Rejected", "by policy"),
        (Some(("statefulsets", Reason::Forbidden)), limit, true, "Rejected", "StatefulSet db"),
        (
            Some(("persistentvolumeclaims", Reason::Forbidden)),
            larger,
            false,
            "StorageNotExpandable",
            "allowVolumeExpansion",
        ),
        (
            Some(("statefulsets", Reason::InternalError)),
            json!({"resources": {"limits": {"memory": "2Gi"}}}),
            true,
            "Rejected",
            "StatefulSet db",
        ),
        (None, json!({}), false, "SecretUnusable", "Secret root does not exist"),
        (None, json!({}), true, "SecretUnusable", "Secret root does not exist"),
    ] {
        let (mut env, servers) = world().await;
        env.run(controllers());
        create(&env, "db", json!({"replicas": 3})).await;
        settled(&env, "db").await;
        commit(&env, &servers).await;
        match refused {
            Some((resource, why)) => {
                env.set_faults(move |request| match request.verb {
                    "patch" if request.resource == resource => {
                        Fault::Error(ApiError::new(why, "not by policy"))
                    }
                    _ => Fault::None,
                });
                change(&env, spec.clone()).await;
            }
            None => delete::<Secret>(&env, "root").await,
        }
        if is_handed_over {
            // What a manager remembers is gone with it.
            env.stop().await;
            env.run(controllers());
        }
        env.pass(Duration::from_secs(90)).await;
        let message = says(&env, "db", "SpecValid", reason).await;
        assert!(message.contains(words), "{message}");

        servers.cut_off(NAMESPACE, "db-0", true);
        let cut_at = env.now();
        env.until_object(&clusters(&env), "db", |one| !["", "db-0"].contains(&&*primary(one)))
            .await;
        let took = env.now().duration_since(cut_at).as_secs();
        assert!((5..=20).contains(&took), "{reason}: {took} s");
        moment(&env).await;
        commit(&env, &servers).await;

        // It is asked for again without a change of the spec.
        servers.cut_off(NAMESPACE, "db-0", false);
        env.end_faults();
        secret(&env, "root").await;
        env.pass(Duration::from_secs(120)).await;
        says(&env, "db", "SpecValid", "Accepted").await;
        check(&servers, &settled(&env, "db").await);
        let mut told = events(&env, NAMESPACE).await.into_iter().filter_map(|event| event.note);
        assert!(told.any(|note| note.starts_with(reason)), "an Event says {reason}");
    }
}

/// A schema cannot see these. What runs is looked after as though the spec were as before.
#[tokio::test(start_paused = true)]
async fn a_mistake_in_the_spec_stops_no_takeover() {
    for (spec, reason) in [
        (json!({"primary": "db-7"}), "InvalidPrimary"),
        (json!({"replicas": 2, "primary": "db-2"}), "InvalidPrimary"),
        (json!({"storage": "1.5Gi"}), "InvalidStorage"),
        (json!({"aloneAfter": "5s"}), "InvalidDuration"),
        (json!({"image": "mysql:8.0"}), "VersionTooOld"),
        (json!({"mysqlConf": {"skip-log-bin": ""}, "acks": 7}), "InvalidAcks"),
    ] {
        let (mut env, servers) = world().await;
        env.run(controllers());
        create(&env, "db", json!({"replicas": 3})).await;
        settled(&env, "db").await;
        commit(&env, &servers).await;
        let before = clusters(&env).get("db").await.unwrap().status.unwrap().replication;
        change(&env, spec.clone()).await;
        says(&env, "db", "SpecValid", reason).await;
        env.pass(Duration::from_secs(90)).await;
        let status = clusters(&env).get("db").await.unwrap().status.unwrap();
        assert_eq!((status.replication, status.ready.as_deref()), (before, Some("3/3")), "{spec}");

        servers.cut_off(NAMESPACE, "db-0", true);
        env.until_object(&clusters(&env), "db", |one| !["", "db-0"].contains(&&*primary(one)))
            .await;
        moment(&env).await;
        commit(&env, &servers).await;
        servers.cut_off(NAMESPACE, "db-0", false);
        env.pass(Duration::from_secs(60)).await;
        let good = json!({"replicas": 3, "primary": null, "storage": "8Gi", "aloneAfter": "1m",
            "image": null, "mysqlConf": null, "acks": null});
        change(&env, good).await;
        check(&servers, &settled(&env, "db").await);
    }
}
