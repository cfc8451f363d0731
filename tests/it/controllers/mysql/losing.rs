//! What is lost is replaced, and what clients were told about is still there.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;

use super::kit::{
    NAMESPACE, change, check, clusters, commit, create, delete, identities, lose, moment, primary,
    running, settled, uid,
};
use crate::controllers::{events, reasons};

#[tokio::test(start_paused = true)]
async fn a_primary_that_nobody_reaches_is_followed_by_another() {
    let (env, servers) = running().await;
    create(&env, "db", json!({"replicas": 3})).await;
    settled(&env, "db").await;
    commit(&env, &servers).await;
    let cut_at = env.now();
    servers.cut_off(NAMESPACE, "db-0", true);
    let unheard = servers.commit(NAMESPACE, "db-0").expect("it runs on, and is open");
    let cluster = env
        .until_object(&clusters(&env), "db", |one| !["", "db-0"].contains(&&*primary(one)))
        .await;
    let took = env.now().duration_since(cut_at).as_secs();
    assert!((5..=20).contains(&took), "it takes over after failoverAfter: {took} s");
    let heir = primary(&cluster);
    assert_eq!(servers.lacking(NAMESPACE, &heir), 0);
    moment(&env).await;
    commit(&env, &servers).await;
    servers.cut_off(NAMESPACE, "db-0", false);
    let cluster = settled(&env, "db").await;
    assert_eq!(primary(&cluster), heir, "it stays");
    assert!(!servers.is_acknowledged(&unheard), "its client never hears that it is committed");
    check(&servers, &cluster);
    let told = reasons(&env, NAMESPACE).await;
    for reason in ["PrimaryDeposed", "PrimaryElected"] {
        assert_eq!(told.iter().filter(|found| *found == reason).count(), 1, "{told:?}");
    }
    // From whom to whom, why, and for how long nobody took writes.
    let told = events(&env, NAMESPACE).await.into_iter();
    let notes: Vec<_> = told.filter_map(|event| event.note).collect();
    for says in [
        "db-0 is primary no longer: ".to_owned(),
        format!("{heir} becomes primary in the place of db-0"),
        format!("{heir} takes writes: Available was False for about "),
    ] {
        assert!(notes.iter().any(|note| note.starts_with(&says)), "{says}: {notes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_primary_whose_pod_is_deleted_loses_nothing() {
    let (env, servers) = running().await;
    create(&env, "db", json!({"replicas": 3})).await;
    let before = settled(&env, "db").await;
    commit(&env, &servers).await;
    let pod = uid::<Pod>(&env, "db-0").await;
    delete::<Pod>(&env, "db-0").await;
    env.pass(Duration::from_secs(60)).await;
    let cluster = settled(&env, "db").await;
    assert_ne!(uid::<Pod>(&env, "db-0").await, pod);
    assert_eq!(identities(&cluster), identities(&before), "each has its data");
    commit(&env, &servers).await;
    check(&servers, &cluster);
}

#[tokio::test(start_paused = true)]
async fn a_primary_that_lost_its_volume_is_replaced_and_cloned_anew() {
    let (env, servers) = running().await;
    create(&env, "db", json!({"replicas": 3})).await;
    let before = settled(&env, "db").await;
    commit(&env, &servers).await;
    lose(&env, "db-0").await;
    env.pass(Duration::from_secs(60)).await;
    let cluster = settled(&env, "db").await;
    assert_ne!(primary(&cluster), "db-0");
    assert_ne!(identities(&cluster)[0], identities(&before)[0], "it has other data");
    assert_eq!(identities(&cluster)[1..], identities(&before)[1..]);
    commit(&env, &servers).await;
    check(&servers, &cluster);
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_lost_its_volume_is_cloned_anew() {
    let (env, servers) = running().await;
    create(&env, "db", json!({"replicas": 3})).await;
    let before = settled(&env, "db").await;
    commit(&env, &servers).await;
    lose(&env, "db-2").await;
    env.pass(Duration::from_secs(60)).await;
    let cluster = settled(&env, "db").await;
    assert_eq!(primary(&cluster), "db-0");
    assert_ne!(identities(&cluster)[2], identities(&before)[2]);
    check(&servers, &cluster);
    let told = reasons(&env, NAMESPACE).await;
    assert!(!told.contains(&"PrimaryDeposed".to_owned()), "{told:?}");
    // An order that was followed is not told as one that failed.
    let failed = told.iter().filter(|reason| *reason == "Degraded").count();
    assert!(failed <= 1, "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn writes_wait_without_enough_replicas_and_go_on_with_them() {
    let (env, servers) = running().await;
    create(&env, "db", json!({"replicas": 2})).await;
    settled(&env, "db").await;
    servers.cut_off(NAMESPACE, "db-1", true);
    let waiting = servers.commit(NAMESPACE, "db-0").unwrap();
    env.pass(Duration::from_secs(120)).await;
    assert!(!servers.is_acknowledged(&waiting));
    let status = clusters(&env).get("db").await.unwrap().status.unwrap();
    assert_eq!(status.phase.as_deref(), Some("WritesWait"));
    servers.cut_off(NAMESPACE, "db-1", false);
    change(&env, json!({"maxLag": "30s"})).await;
    env.pass(Duration::from_secs(120)).await;
    let cluster = settled(&env, "db").await;
    assert!(servers.is_acknowledged(&waiting));
    check(&servers, &cluster);
}
