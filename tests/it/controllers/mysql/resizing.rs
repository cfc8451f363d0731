//! Changes of what is asked for: size, primary, storage.

use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::ListParams;
use leasehold::testing::TestEnv;
use serde_json::json;

use super::kit::{
    NAMESPACE, change, check, clusters, commit, create, identities, primary, running, says,
    settled, uid,
};

async fn sizes(env: &TestEnv) -> Vec<String> {
    let volumes: Api<PersistentVolumeClaim> = env.api(NAMESPACE);
    let volumes = volumes.list(&ListParams::default()).await.unwrap().items;
    let size = |volume: &PersistentVolumeClaim| {
        let resources = volume.spec.as_ref()?.resources.as_ref()?;
        Some(resources.requests.as_ref()?["storage"].0.clone())
    };
    volumes.iter().filter_map(size).collect()
}

#[tokio::test(start_paused = true)]
async fn instances_come_and_go_and_the_primary_moves_as_asked() {
    let (env, servers) = running().await;
    create(&env, "db", json!({"replicas": 1})).await;
    settled(&env, "db").await;
    commit(&env, &servers).await;
    change(&env, json!({"replicas": 3})).await;
    let grown = settled(&env, "db").await;
    assert_eq!(grown.status.as_ref().unwrap().replication.acks, 1);
    commit(&env, &servers).await;
    check(&servers, &grown);

    change(&env, json!({"primary": "db-2"})).await;
    env.until_object(&clusters(&env), "db", |one| primary(one) == "db-2").await;
    let moved = settled(&env, "db").await;
    assert_eq!(identities(&moved), identities(&grown), "nobody was cloned");
    commit(&env, &servers).await;

    // The primary itself is one too many: it hands over first.
    change(&env, json!({"replicas": 2, "primary": null})).await;
    let shrunk = settled(&env, "db").await;
    assert_ne!(primary(&shrunk), "db-2");
    env.pass(Duration::from_secs(60)).await;
    commit(&env, &servers).await;
    check(&servers, &shrunk);
    let pods: Api<Pod> = env.api(NAMESPACE);
    assert_eq!(pods.list(&ListParams::default()).await.unwrap().items.len(), 2);
    assert_eq!(sizes(&env).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn volumes_grow_under_running_pods_and_do_not_shrink() {
    let (env, servers) = running().await;
    create(&env, "db", json!({"replicas": 2, "storage": "1Gi"})).await;
    settled(&env, "db").await;
    let (set, pod) = (uid::<StatefulSet>(&env, "db").await, uid::<Pod>(&env, "db-1").await);
    change(&env, json!({"storage": "2Gi"})).await;
    env.pass(Duration::from_secs(60)).await;
    let cluster = settled(&env, "db").await;
    assert_eq!(sizes(&env).await, ["2Gi", "2Gi"]);
    assert_ne!(uid::<StatefulSet>(&env, "db").await, set, "it is made anew");
    assert_eq!(uid::<Pod>(&env, "db-1").await, pod, "Pods run on");
    check(&servers, &cluster);

    change(&env, json!({"storage": "1Gi"})).await;
    let message = says(&env, "db", "SpecValid", "StorageShrinkRefused").await;
    assert!(message.contains("spec.storage is 1Gi"), "{message}");
    env.pass(Duration::from_secs(60)).await;
    assert_eq!(sizes(&env).await, ["2Gi", "2Gi"]);
    commit(&env, &servers).await;
}

#[tokio::test(start_paused = true)]
async fn an_upgrade_makes_replicas_anew_first_and_loses_nothing() {
    let (env, servers) = running().await;
    create(&env, "db", json!({"replicas": 3, "image": "mysql:8.4.3"})).await;
    let before = settled(&env, "db").await;
    commit(&env, &servers).await;
    change(&env, json!({"image": "mysql:8.4.5"})).await;
    env.pass(Duration::from_secs(120)).await;
    let cluster = settled(&env, "db").await;
    assert_eq!(cluster.status.as_ref().unwrap().version.as_deref(), Some("8.4.5"));
    assert_eq!(identities(&cluster), identities(&before));
    commit(&env, &servers).await;
    check(&servers, &cluster);
}
