//! EtcdCluster: founded, grown, shrunk, healed, lost, crashed at every write, and a thousand of them;
//! over a stand-in of etcd that runs where Pods do.

mod gateway;
// The lives of clusters in `crates/etcd` use all of it.
#[expect(dead_code, reason = "not all of it is needed here")]
#[path = "../../../../crates/etcd/src/tests/standin.rs"]
mod standin;

use std::sync::Arc;
use std::time::Duration;

use etcd::{EtcdCluster, Settings};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::CustomResourceExt;
use kube::api::{DeleteParams, ListParams, PostParams};
use leasehold::testing::{ApiError, Fault, Reason, TestEnv};
use sdk::ControllerSpec;
use serde_json::json;

use super::crash::at_every_write;
use super::{merge, quiet, reasons};
use gateway::Etcds;

const NAMESPACE: &str = "web";

async fn world() -> (TestEnv, Etcds) {
    let crds = [EtcdCluster::crd(), etcd::EtcdSnapshot::crd()];
    (TestEnv::builder().crds(crds).namespace(NAMESPACE).start().await, Etcds::default())
}

/// A [`world`] in which the controllers run.
async fn running() -> (TestEnv, Etcds) {
    let (mut env, etcds) = world().await;
    env.run(controllers(&etcds));
    (env, etcds)
}

fn controllers(etcds: &Etcds) -> Vec<ControllerSpec> {
    etcd::controllers(4, Arc::new(etcds.clone()), &Settings::default())
}

fn clusters(env: &TestEnv) -> Api<EtcdCluster> {
    env.api(NAMESPACE)
}

async fn create(env: &TestEnv, name: &str, spec: serde_json::Value) {
    let cluster =
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
    clusters(env).create(&PostParams::default(), &cluster).await.unwrap();
}

async fn resize(env: &TestEnv, size: i32) {
    merge(&clusters(env), "db", json!({"spec": {"size": size}})).await;
}

async fn delete<K>(env: &TestEnv, name: &str)
where
    K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
        + serde::de::DeserializeOwned
        + Clone
        + std::fmt::Debug,
{
    env.api::<K>(NAMESPACE).delete(name, &DeleteParams::default()).await.unwrap();
}

/// Waits until all members run as the spec says.
async fn settled(env: &TestEnv, name: &str) -> EtcdCluster {
    env.until_object(&clusters(env), name, |cluster| {
        let status = cluster.status.clone().unwrap_or_default();
        let size = cluster.spec.size;
        status.phase.as_deref() == Some("Running")
            && status.observed_generation == cluster.metadata.generation
            && status.ready == Some(format!("{size}/{size}"))
            && status.members.len() == usize::try_from(size).unwrap()
    })
    .await
}

fn names(cluster: &EtcdCluster) -> Vec<String> {
    let members = cluster.status.iter().flat_map(|status| &status.members);
    members.map(|member| member.name.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_founded_with_certificates_and_rests() {
    let (env, etcds) = running().await;
    create(&env, "db", json!({"version": "3.6.5"})).await;
    let cluster = settled(&env, "db").await;
    assert_eq!(names(&cluster), ["db-0", "db-1", "db-2"]);
    let secrets: Api<Secret> = env.api(NAMESPACE);
    for name in ["db-ca", "db-client", "db-0-tls", "db-2-tls"] {
        let secret = secrets.get(name).await.unwrap();
        assert!(secret.data.unwrap().contains_key("tls.crt"), "{name}");
        assert_eq!(secret.metadata.owner_references.unwrap()[0].name, "db");
    }
    let services: Api<Service> = env.api(NAMESPACE);
    assert_eq!(services.list(&ListParams::default()).await.unwrap().items.len(), 2);
    let told = reasons(&env, NAMESPACE).await;
    for reason in ["Founded", "MemberAdded", "MemberPromoted"] {
        assert!(told.iter().any(|found| found == reason), "{reason}: {told:?}");
    }
    env.pass(Duration::from_secs(300)).await;
    quiet(&env, Duration::from_secs(1_200)).await;
    etcds.check();
}

#[tokio::test(start_paused = true)]
async fn members_come_and_go_one_by_one_and_lost_ones_are_replaced() {
    let (env, etcds) = running().await;
    create(&env, "db", json!({"version": "3.6.5", "replaceAfter": "1m"})).await;
    settled(&env, "db").await;
    resize(&env, 5).await;
    assert_eq!(names(&settled(&env, "db").await).len(), 5);
    resize(&env, 3).await;
    let members = names(&settled(&env, "db").await);
    let pods: Api<Pod> = env.api(NAMESPACE);
    let volumes: Api<PersistentVolumeClaim> = env.api(NAMESPACE);
    assert_eq!(pods.list(&ListParams::default()).await.unwrap().items.len(), 3);
    assert_eq!(volumes.list(&ListParams::default()).await.unwrap().items.len(), 3);

    let lost = &members[1];
    volumes.delete(lost, &DeleteParams::default()).await.unwrap();
    pods.delete(lost, &DeleteParams::default()).await.unwrap();
    env.pass(Duration::from_secs(120)).await;
    let healed = names(&settled(&env, "db").await);
    assert!(!healed.contains(lost) && healed.contains(&"db-5".to_owned()), "{healed:?}");
    etcds.check();
}

#[tokio::test(start_paused = true)]
async fn volumes_go_or_stay_as_the_spec_says_when_the_cluster_is_deleted() {
    for (asked, left) in [(&["Retain"][..], 3), (&["Retain", "Delete"][..], 0)] {
        let (env, _) = running().await;
        create(&env, "db", json!({"version": "3.6.5"})).await;
        settled(&env, "db").await;
        for reclaim in asked {
            merge(&clusters(&env), "db", json!({"spec": {"storage": {"reclaim": reclaim}}})).await;
            env.pass(Duration::from_secs(10)).await;
        }
        clusters(&env).delete("db", &DeleteParams::default()).await.unwrap();
        let pods: Api<Pod> = env.api(NAMESPACE);
        env.until("the end of all Pods", async || {
            let found = pods.list(&ListParams::default()).await.unwrap().items;
            found.is_empty().then_some(())
        })
        .await;
        env.pass(Duration::from_secs(60)).await;
        let volumes: Api<PersistentVolumeClaim> = env.api(NAMESPACE);
        assert_eq!(volumes.list(&ListParams::default()).await.unwrap().items.len(), left);
    }
}

/// As a quota of Services, a webhook that is down or a policy for Secrets: a lost member is replaced all the same.
#[tokio::test(start_paused = true)]
async fn what_the_server_does_not_take_stops_no_care_of_members() {
    for (resource, why) in [
        ("services", Reason::Forbidden),
        ("poddisruptionbudgets", Reason::InternalError),
        ("secrets", Reason::Forbidden),
        ("secrets", Reason::InternalError),
    ] {
        let (mut env, etcds) = running().await;
        create(&env, "db", json!({"version": "3.6.5", "tls": {"renewal": "6h"}})).await;
        settled(&env, "db").await;
        env.set_faults(move |request| match request.verb {
            "patch" if request.resource == resource => Fault::Error(ApiError::new(why, "not now")),
            _ => Fault::None,
        });
        // They should come again, and cannot.
        match resource {
            "services" => delete::<Service>(&env, "db").await,
            "secrets" => {
                env.stop().await;
                env.pass(Duration::from_secs(7 * 3_600)).await;
                env.run(controllers(&etcds));
            }
            _ => delete::<PodDisruptionBudget>(&env, "db").await,
        }
        let pods: Api<Pod> = env.api(NAMESPACE);
        pods.delete("db-1", &DeleteParams::default()).await.unwrap();
        env.pass(Duration::from_secs(90)).await;
        let cluster = clusters(&env).get("db").await.unwrap();
        let status = cluster.status.unwrap();
        assert_eq!(status.ready.as_deref(), Some("3/3"));
        let degraded = status.conditions.iter().find(|found| found.type_ == "Degraded").unwrap();
        assert_eq!(degraded.reason, "Rejected", "{}", degraded.message);
        assert!(degraded.message.contains("not now"), "{}", degraded.message);
        env.end_faults();
        env.pass(Duration::from_secs(90)).await;
        settled(&env, "db").await;
        etcds.check();
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_majority_nothing_is_changed_and_it_is_said() {
    let (env, etcds) = running().await;
    create(&env, "db", json!({"version": "3.6.5", "replaceAfter": "1m"})).await;
    let members = names(&settled(&env, "db").await);
    let pods: Api<Pod> = env.api(NAMESPACE);
    let volumes: Api<PersistentVolumeClaim> = env.api(NAMESPACE);
    for lost in &members[..2] {
        volumes.delete(lost, &DeleteParams::default()).await.unwrap();
        pods.delete(lost, &DeleteParams::default()).await.unwrap();
    }
    let cluster = env
        .until_object(&clusters(&env), "db", |cluster| {
            let status = cluster.status.clone().unwrap_or_default();
            status
                .conditions
                .iter()
                .any(|found| found.reason == "QuorumLost" && found.status == "False")
        })
        .await;
    env.pass(Duration::from_secs(3_600)).await;
    assert_eq!(names(&cluster), members);
    assert_eq!(volumes.list(&ListParams::default()).await.unwrap().items.len(), 1);
    assert!(reasons(&env, NAMESPACE).await.contains(&"QuorumLost".to_owned()));
    etcds.check();
}

#[tokio::test(start_paused = true)]
async fn a_bad_size_is_refused_in_words() {
    let (env, _) = running().await;
    create(&env, "db", json!({"version": "3.6.5", "size": 2})).await;
    let said = env
        .until_object(&clusters(&env), "db", |cluster| {
            let status = cluster.status.clone().unwrap_or_default();
            status.conditions.iter().any(|found| found.reason == "InvalidSize")
        })
        .await;
    assert_eq!(said.status.unwrap().phase.as_deref(), Some("Invalid"));
    let pods: Api<Pod> = env.api(NAMESPACE);
    assert!(pods.list(&ListParams::default()).await.unwrap().items.is_empty());
}

/// As an admission policy refuses, or a server that finds the spec's own parts invalid.
#[tokio::test(start_paused = true)]
async fn for_a_pod_that_the_server_refuses_no_member_is_restarted() {
    let (env, etcds) = running().await;
    create(&env, "db", json!({"version": "3.6.5"})).await;
    settled(&env, "db").await;
    let pods: Api<Pod> = env.api(NAMESPACE);
    let uids = async || -> Vec<_> {
        let found = pods.list(&ListParams::default()).await.unwrap().items;
        found.into_iter().map(|pod| (pod.metadata.name, pod.metadata.uid)).collect()
    };
    let before = uids().await;
    env.set_faults(|request| match (request.verb, &*request.resource) {
        ("create", "pods") => Fault::Error(ApiError::new(Reason::Invalid, "memory: 2GiB")),
        _ => Fault::None,
    });
    merge(&clusters(&env), "db", json!({"spec": {"resources": {"limits": {"memory": "2Gi"}}}}))
        .await;
    env.pass(Duration::from_secs(120)).await;
    assert_eq!(uids().await, before);
    let status = clusters(&env).get("db").await.unwrap().status.unwrap();
    let degraded = status.conditions.iter().find(|found| found.type_ == "Degraded").unwrap();
    assert_eq!((&*degraded.status, &*degraded.reason), ("True", "Rejected"));
    assert!(degraded.message.contains("memory: 2GiB"), "{}", degraded.message);

    env.end_faults();
    env.pass(Duration::from_secs(180)).await;
    settled(&env, "db").await;
    let after = uids().await;
    assert_eq!(after.len(), 3);
    assert!(after.iter().all(|one| !before.contains(one)), "they are restarted: {after:?}");
    etcds.check();
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_every_write_ends_in_the_same_cluster() {
    let writes = at_every_write(async |crash| {
        let (mut env, etcds) = world().await;
        create(&env, "db", json!({"version": "3.6.5", "tls": {"enabled": false}})).await;
        crash.watch(&env);
        etcds.watch(crash.clone());
        let run = || controllers(&etcds);
        crash
            .survived(&mut env, run, async |env| {
                settled(env, "db").await;
                resize(env, 1).await;
                settled(env, "db").await;
            })
            .await;
        let pods: Api<Pod> = env.api(NAMESPACE);
        env.pass(Duration::from_secs(60)).await;
        assert_eq!(pods.list(&ListParams::default()).await.unwrap().items.len(), 1);
        etcds.check();
        assert_eq!(etcds.voters(), 1);
    })
    .await;
    println!("{writes} writes");
}

#[tokio::test(start_paused = true)]
async fn a_thousand_clusters_rest() {
    const MANY: usize = 1_000;
    let (mut env, etcds) = world().await;
    let spec = json!({"version": "3.6.5", "size": 1, "tls": {"enabled": false}});
    for number in 0..MANY {
        create(&env, &format!("db-{number}"), spec.clone()).await;
    }
    env.run(controllers(&etcds));
    env.pass(Duration::from_secs(300)).await;
    let all = clusters(&env).list(&ListParams::default()).await.unwrap().items;
    let running = |cluster: &&EtcdCluster| {
        cluster.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
    };
    assert_eq!(all.iter().filter(running).count(), MANY);
    etcds.check();
    let before = etcds.opened();
    quiet(&env, Duration::from_secs(180)).await;
    let opened = etcds.opened() - before;
    println!("{opened} connections to {MANY} clusters in 3 minutes");
    assert!((MANY * 2..=MANY * 4).contains(&opened), "one look a minute: {opened}");
}
