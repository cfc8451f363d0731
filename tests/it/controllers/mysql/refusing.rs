//! What cannot be carried out is said in words, and ends when its cause does.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use demo::standin::mysql::MySql;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use leasehold::testing::{ApiError, Fault, Reason, TestEnv};
use mysql::{MySQLBackup, MySQLCluster};
use serde_json::json;

use super::kit::{
    NAMESPACE, change, check, clusters, commit, controllers, create, delete, moment, primary,
    running, says, secret, settled,
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
    let (env, _) = running().await;
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
    let (env, _) = running().await;
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
    let (env, servers) = running().await;
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
    let (env, _) = running().await;
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
    let (sets, volumes) = ("statefulsets", "persistentvolumeclaims");
    let larger = json!({"storage": "16Gi"});
    let limit = json!({"resources": {"limits": {"memory": "2Gi"}}});
    for (refused, spec, is_handed_over, reason, words) in [
        (Some(("patch", sets, Reason::Invalid)), limit.clone(), false, "Rejected", "by policy"),
        (Some(("patch", sets, Reason::Forbidden)), limit.clone(), true, "Rejected", "Set db"),
        (Some(("patch", sets, Reason::InternalError)), limit, true, "Rejected", "Set db"),
        (
            Some(("patch", volumes, Reason::Forbidden)),
            larger.clone(),
            false,
            "StorageNotExpandable",
            "allowVolumeExpansion",
        ),
        (
            Some(("patch", volumes, Reason::InternalError)),
            larger.clone(),
            true,
            "Rejected",
            "volume data-db-",
        ),
        (Some(("delete", sets, Reason::Forbidden)), larger, false, "Rejected", "Set db"),
        (None, json!({}), false, "SecretUnusable", "Secret root does not exist"),
        (None, json!({}), true, "SecretUnusable", "Secret root does not exist"),
    ] {
        let (mut env, servers) = running().await;
        create(&env, "db", json!({"replicas": 3})).await;
        settled(&env, "db").await;
        commit(&env, &servers).await;
        match refused {
            Some((verb, resource, why)) => {
                refuse(&env, verb, resource, why);
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

        taken_over(&env, &servers).await;

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

fn refuse(env: &TestEnv, verb: &'static str, resource: &'static str, why: Reason) {
    env.set_faults(move |request| match request.verb == verb && request.resource == resource {
        true => Fault::Error(ApiError::new(why, "not by policy")),
        false => Fault::None,
    });
}

/// The primary's node is lost, and another instance takes over in time.
async fn taken_over(env: &TestEnv, servers: &MySql) {
    servers.cut_off(NAMESPACE, "db-0", true);
    let cut_at = env.now();
    env.until_object(&clusters(env), "db", |one| !["", "db-0"].contains(&&*primary(one))).await;
    let took = env.now().duration_since(cut_at).as_secs();
    assert!((5..=20).contains(&took), "{took} s");
    moment(env).await;
    commit(env, servers).await;
}

/// As a webhook for Pods whose only Pod was on the lost node, or a policy for labels.
#[tokio::test(start_paused = true)]
async fn a_label_that_the_server_does_not_take_stops_no_takeover() {
    for why in [Reason::InternalError, Reason::Forbidden] {
        let (env, servers) = running().await;
        create(&env, "db", json!({"replicas": 3})).await;
        settled(&env, "db").await;
        refuse(&env, "patch", "pods", why);
        taken_over(&env, &servers).await;
        let message = says(&env, "db", "SpecValid", "Rejected").await;
        assert!(message.contains("not by policy"), "{message}");
        // The others follow the new primary, though it has no label either.
        env.pass(Duration::from_secs(60)).await;
        commit(&env, &servers).await;
        servers.cut_off(NAMESPACE, "db-0", false);
        env.end_faults();
        env.pass(Duration::from_secs(120)).await;
        says(&env, "db", "SpecValid", "Accepted").await;
        let cluster = settled(&env, "db").await;
        check(&servers, &cluster);
        assert_eq!(labelled(&env).await, [primary(&cluster)]);
    }
}

/// As while an API server starts again: nothing is refused.
#[tokio::test(start_paused = true)]
async fn a_label_that_fails_once_is_set_a_moment_later() {
    let (env, servers) = running().await;
    create(&env, "db", json!({"replicas": 3})).await;
    settled(&env, "db").await;
    let fails = AtomicBool::new(true);
    env.set_faults(move |request| {
        let is_label = request.verb == "patch" && request.resource == "pods";
        match is_label && fails.swap(false, Ordering::SeqCst) {
            true => Fault::Error(ApiError::new(Reason::InternalError, "request timed out")),
            false => Fault::None,
        }
    });
    taken_over(&env, &servers).await;
    env.pass(Duration::from_secs(5)).await;
    let cluster = clusters(&env).get("db").await.unwrap();
    assert_eq!(labelled(&env).await, [primary(&cluster)]);
}

/// The Pods that Services take for the primary.
async fn labelled(env: &TestEnv) -> Vec<String> {
    let pods: Api<Pod> = env.api(NAMESPACE);
    let primaries = ListParams::default().labels("mysql.leasehold.dev/role=primary");
    pods.list(&primaries).await.unwrap().items.iter().map(ResourceExt::name_any).collect()
}

/// As `immutable: true`, or a policy by which only one tool writes Secrets.
#[tokio::test(start_paused = true)]
async fn a_secret_that_the_server_does_not_take_stops_no_takeover() {
    for (secret, why) in [
        ("db-tls", Reason::Invalid),
        ("db-tls", Reason::InternalError),
        ("db-accounts", Reason::Forbidden),
    ] {
        let (mut env, servers) = running().await;
        create(&env, "db", json!({"replicas": 3, "tls": {"renewal": "6h"}})).await;
        settled(&env, "db").await;
        refuse(&env, "patch", "secrets", why);
        if secret == "db-tls" {
            env.stop().await;
            env.pass(Duration::from_secs(7 * 3_600)).await;
            env.run(controllers());
        } else {
            delete::<Secret>(&env, secret).await;
        }
        env.pass(Duration::from_secs(120)).await;
        let message = says(&env, "db", "SpecValid", "Rejected").await;
        assert!(message.contains(secret), "{message}");
        taken_over(&env, &servers).await;
        servers.cut_off(NAMESPACE, "db-0", false);
        env.end_faults();
        env.pass(Duration::from_secs(120)).await;
        says(&env, "db", "SpecValid", "Accepted").await;
        // The stand-in for mysqld does not know how passwords are changed, which follows a lost Secret of accounts.
        if secret == "db-tls" {
            check(&servers, &settled(&env, "db").await);
        }
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
        let (env, servers) = running().await;
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
