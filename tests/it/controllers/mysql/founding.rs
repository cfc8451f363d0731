//! A cluster is founded, and then rests.

use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::ListParams;
use kube::{Api, Resource, ResourceExt};
use leasehold::testing::TestEnv;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::kit::{NAMESPACE, check, commit, controllers, create, primary, running, settled};
use crate::controllers::{quiet, reasons};

const ROLE: &str = "mysql.leasehold.dev/role";

/// The owner of an object.
async fn owner<K>(env: &TestEnv, name: &str) -> String
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + DeserializeOwned
        + Clone
        + std::fmt::Debug,
{
    let object = env.api::<K>(NAMESPACE).get(name).await.unwrap_or_else(|e| panic!("{name}: {e}"));
    object.owner_references().iter().map(|owner| owner.name.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_cluster_is_founded_with_all_that_belongs_to_it_and_rests() {
    let (env, servers) = running().await;
    create(&env, "db", json!({"replicas": 3})).await;
    let cluster = settled(&env, "db").await;
    assert_eq!(primary(&cluster), "db-0");
    assert_eq!(cluster.status.as_ref().unwrap().version.as_deref(), Some("8.4.0"));
    for name in ["db", "db-replicas", "db-instances"] {
        assert_eq!(owner::<Service>(&env, name).await, "db");
    }
    for name in ["db-accounts", "db-ca", "db-tls"] {
        assert_eq!(owner::<Secret>(&env, name).await, "db");
    }
    assert_eq!(owner::<StatefulSet>(&env, "db").await, "db");
    assert_eq!(owner::<PodDisruptionBudget>(&env, "db").await, "db");
    assert_eq!(owner::<ConfigMap>(&env, "db-files").await, "db");
    let pods: Api<Pod> = env.api(NAMESPACE);
    let pods = pods.list(&ListParams::default()).await.unwrap().items;
    let roles: Vec<_> = pods.iter().map(|pod| pod.labels()[ROLE].as_str()).collect();
    assert_eq!(roles, ["primary", "replica", "replica"]);
    let told = reasons(&env, NAMESPACE).await;
    let notes = crate::controllers::events(&env, NAMESPACE).await;
    let notes: Vec<_> = notes.into_iter().filter_map(|event| event.note).collect();
    assert_eq!(told, ["Founded", "MemberJoined", "MemberJoined"], "{notes:?}");
    commit(&env, &servers).await;
    // It knows root's password by now, and the least that a primary waits for is one replica.
    env.pass(Duration::from_secs(300)).await;
    assert!(servers.proves(NAMESPACE, "db-2", "root", "it's"));
    quiet(&env, Duration::from_secs(1_200)).await;
    check(&servers, &cluster);
}

/// Another manager that takes over changes nothing but what says so.
#[tokio::test(start_paused = true)]
async fn another_manager_takes_over_and_writes_once() {
    let (mut env, servers) = running().await;
    create(&env, "db", json!({"replicas": 3})).await;
    let before = settled(&env, "db").await;
    env.pass(Duration::from_secs(300)).await;
    env.stop().await;
    let writes = env.server().history().len();
    env.run(controllers());
    env.pass(Duration::from_secs(300)).await;
    let after = settled(&env, "db").await;
    let memory = |cluster: &mysql::MySQLCluster| cluster.status.clone().unwrap().replication;
    let expected = mysql::Memory { reign: memory(&before).reign + 1, ..memory(&before) };
    assert_eq!(memory(&after), expected);
    let written = &env.server().history()[writes..];
    let writes = written.iter().map(|write| (write.verb, &*write.resource));
    let (told, writes): (Vec<_>, Vec<_>) =
        writes.partition(|(_, resource)| resource.starts_with("events"));
    assert!(writes.len() <= 3, "it begins, and is Running again: {writes:?}");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(reasons(&env, NAMESPACE).await.contains(&"ManagerChanged".to_owned()));
    check(&servers, &after);
}
