//! Clusters of MySQL for tests, over a stand-in that runs where Pods do.

use std::sync::Arc;
use std::time::Duration;

use apiserver::Matcher;
use demo::standin::mysql::MySql;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Resource, ResourceExt};
use leasehold::testing::{Builder, TestEnv};
use mysql::{InstanceRole, MySQLCluster, Settings};
use sdk::ControllerSpec;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::super::merge;

pub(super) const NAMESPACE: &str = "web";

/// An API server with a Secret `root`, and the servers in its Pods.
pub(super) async fn world() -> (TestEnv, MySql) {
    world_of(|usual| usual).await
}

/// The same, and the controllers run.
pub(super) async fn running() -> (TestEnv, MySql) {
    let (mut env, servers) = world().await;
    env.run(controllers());
    (env, servers)
}

/// A [`world`] with something changed.
pub(super) async fn world_of(change: impl FnOnce(Builder) -> Builder) -> (TestEnv, MySql) {
    let servers = MySql::default();
    let usual = TestEnv::builder()
        .crds(mysql::CRDS.iter().map(|crd| crd()))
        .namespace(NAMESPACE)
        .program(Matcher::Container("mysql".to_owned()), Arc::new(servers.clone()));
    let env = change(usual).start().await;
    secret(&env, "root").await;
    (env, servers)
}

pub(super) async fn secret(env: &TestEnv, name: &str) {
    let secret = json!({"apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "namespace": NAMESPACE}, "stringData": {"password": "it's"}});
    env.apply(&secret.to_string()).await;
}

pub(super) fn controllers() -> Vec<ControllerSpec> {
    mysql::controllers(4, &Settings::default())
}

pub(super) fn clusters(env: &TestEnv) -> Api<MySQLCluster> {
    env.api(NAMESPACE)
}

/// Creates a cluster; what `spec` does not say is as usual, with the Secret `root`.
pub(super) async fn create(env: &TestEnv, name: &str, mut spec: Value) {
    if spec["secret"].is_null() {
        spec["secret"] = "root".into();
    }
    let cluster = json!({"metadata": {"name": name}, "spec": spec});
    let cluster = serde_json::from_value(cluster).unwrap();
    clusters(env).create(&PostParams::default(), &cluster).await.unwrap();
}

pub(super) async fn change(env: &TestEnv, spec: Value) {
    merge(&clusters(env), "db", json!({ "spec": spec })).await;
}

/// Waits until all instances run and follow as the spec says.
pub(super) async fn settled(env: &TestEnv, name: &str) -> MySQLCluster {
    env.until_object(&clusters(env), name, is_settled).await
}

pub(super) fn is_settled(cluster: &MySQLCluster) -> bool {
    let status = cluster.status.clone().unwrap_or_default();
    let size = usize::try_from(cluster.spec.replicas).unwrap();
    let role = |wanted| status.instances.iter().filter(|one| one.role == wanted).count();
    status.phase.as_deref() == Some("Running")
        && status.observed_generation == cluster.metadata.generation
        && status.ready == Some(format!("{size}/{size}"))
        && status.instances.len() == size
        && (role(InstanceRole::Primary), role(InstanceRole::Replica)) == (1, size - 1)
        && status.replication.members.len() == size
}

/// Waits until a condition has this reason, and returns its message.
pub(super) async fn says(env: &TestEnv, name: &str, type_: &str, reason: &str) -> String {
    let found = |cluster: &MySQLCluster| {
        let conditions = cluster.status.iter().flat_map(|status| &status.conditions);
        let mut found = conditions.filter(|found| found.type_ == type_ && found.reason == reason);
        found.next().map(|found| found.message.clone())
    };
    let cluster = env.until_object(&clusters(env), name, |one| found(one).is_some()).await;
    found(&cluster).unwrap()
}

pub(super) fn primary(cluster: &MySQLCluster) -> String {
    cluster.status.clone().unwrap_or_default().primary.unwrap_or_default()
}

/// The identity of the data of each instance.
pub(super) fn identities(cluster: &MySQLCluster) -> Vec<(String, String)> {
    let members = cluster.status.iter().flat_map(|status| &status.replication.members);
    let mut all: Vec<_> = members.map(|one| (one.name.clone(), one.uuid.clone())).collect();
    all.sort();
    all
}

/// A client commits at the primary, and is told.
pub(super) async fn commit(env: &TestEnv, servers: &MySql) {
    let primary = primary(&clusters(env).get("db").await.unwrap());
    let commit = servers.commit(NAMESPACE, &primary).expect("the primary takes writes");
    assert!(servers.is_acknowledged(&commit), "a commit at {primary}");
}

/// Fails if something happened that never must, or an instance lacks what clients were told about.
pub(super) fn check(servers: &MySql, cluster: &MySQLCluster) {
    assert_eq!(servers.wrong(), [""; 0]);
    for instance in cluster.status.iter().flat_map(|status| &status.instances) {
        assert_eq!(servers.lacking(NAMESPACE, &instance.name), 0, "{}", instance.name);
    }
}

pub(super) async fn delete<K>(env: &TestEnv, name: &str)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + DeserializeOwned
        + Clone
        + std::fmt::Debug,
{
    env.api::<K>(NAMESPACE).delete(name, &DeleteParams::default()).await.unwrap();
}

/// An instance loses its Pod and its volume.
pub(super) async fn lose(env: &TestEnv, instance: &str) {
    delete::<PersistentVolumeClaim>(env, &format!("data-{instance}")).await;
    delete::<Pod>(env, instance).await;
}

pub(super) async fn uid<K>(env: &TestEnv, name: &str) -> String
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + DeserializeOwned
        + Clone
        + std::fmt::Debug,
{
    env.api::<K>(NAMESPACE).get(name).await.unwrap().uid().unwrap()
}

/// Waits for the end of what a change begins, if it is not seen at once.
pub(super) async fn moment(env: &TestEnv) {
    env.pass(Duration::from_secs(2)).await;
}
