//! Watches: starts, selectors, bookmarks, ends.

use std::time::Duration;

use serde_json::json;

use crate::world::{CONFIGMAPS, World, configmap, version};

#[tokio::test]
async fn a_watch_without_a_version_starts_with_the_state() {
    let world = World::new().await;
    world.post(CONFIGMAPS, configmap("a", "1")).await.expect(201);
    let mut events = world.watch(&format!("{CONFIGMAPS}?watch=true")).await;
    assert_eq!(events.brief().await.0, "ADDED");
    world.merge(&format!("{CONFIGMAPS}/a"), json!({"data": {"key": "2"}})).await.expect(200);
    let event = events.next().await.unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["data"]["key"]),
        (&json!("MODIFIED"), &json!("2"))
    );
}

#[tokio::test]
async fn a_watch_from_a_version_sees_only_what_follows() {
    let world = World::new().await;
    let first = world.post(CONFIGMAPS, configmap("a", "1")).await.expect(201);
    world.post(CONFIGMAPS, configmap("b", "1")).await.expect(201);
    world.post("/api/v1/namespaces/kube-system/configmaps", configmap("x", "1")).await.expect(201);
    world.post(CONFIGMAPS, configmap("c", "1")).await.expect(201);
    let mut events =
        world.watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion={}", version(&first))).await;
    assert_eq!(events.brief().await.1, "b");
    assert_eq!(events.brief().await.1, "c");
    let bad = world.get(&format!("{CONFIGMAPS}?watch=1&resourceVersion=abc")).await;
    assert_eq!(
        bad.status(),
        (500, String::new(), "resourceVersion: Invalid value: \"abc\": strconv.ParseUint: parsing \"abc\": invalid syntax".into())
    );
}

#[tokio::test]
async fn objects_come_and_go_as_they_match() {
    let world = World::new().await;
    let path = format!("{CONFIGMAPS}/a");
    let at = world.server.revision();
    let mut events = world
        .watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion={at}&labelSelector=on%3Dyes"))
        .await;
    let label = |value| json!({"metadata": {"labels": {"on": value}}});
    world.post(CONFIGMAPS, configmap("a", "1")).await.expect(201);
    world.merge(&path, label("yes")).await.expect(200);
    world.merge(&path, json!({"data": {"key": "2"}})).await.expect(200);
    world.merge(&path, label("no")).await.expect(200);
    let left = world.server.revision();
    world.merge(&path, json!({"data": {"key": "3"}})).await.expect(200);
    world.merge(&path, label("yes")).await.expect(200);
    world.delete(&path, json!({})).await.expect(200);
    assert_eq!(events.brief().await.0, "ADDED");
    assert_eq!(events.brief().await.0, "MODIFIED");
    let gone = events.next().await.unwrap();
    assert_eq!(gone["type"], "DELETED");
    assert_eq!(gone["object"]["metadata"]["labels"]["on"], "yes", "its last matching content");
    assert_eq!(version(&gone["object"]), left, "at the version of the event");
    assert_eq!(events.brief().await.0, "ADDED");
    assert_eq!(events.brief().await.0, "DELETED");
}

#[tokio::test]
async fn a_streaming_list_marks_its_end() {
    let world = World::new().await;
    for name in ["a", "b"] {
        world.post(CONFIGMAPS, configmap(name, "1")).await.expect(201);
    }
    let mut events = world
        .watch(&format!("{CONFIGMAPS}?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"))
        .await;
    assert_eq!(events.brief().await.0, "ADDED");
    assert_eq!(events.brief().await.0, "ADDED");
    let end = events.next().await.unwrap();
    assert_eq!(end["type"], "BOOKMARK");
    assert_eq!(
        end["object"],
        json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {
            "resourceVersion": world.server.revision().to_string(),
            "annotations": {"k8s.io/initial-events-end": "true"}}})
    );
    world.post(CONFIGMAPS, configmap("c", "1")).await.expect(201);
    assert_eq!(events.brief().await.1, "c");
}

#[tokio::test(start_paused = true)]
async fn bookmarks_come_each_minute_and_before_the_end() {
    let world = World::new().await;
    let began = tokio::time::sleep(Duration::ZERO).deadline();
    let mut events = world
        .watch(&format!(
            "{CONFIGMAPS}?watch=1&resourceVersion=1&allowWatchBookmarks=true&timeoutSeconds=90"
        ))
        .await;
    let mut at = Vec::new();
    while let Some(event) = events.next().await {
        assert_eq!(event["type"], "BOOKMARK");
        assert_eq!(version(&event["object"]), world.server.revision());
        at.push((tokio::time::sleep(Duration::ZERO).deadline() - began).as_secs());
    }
    assert_eq!(at, [60, 88]);
    assert_eq!((tokio::time::sleep(Duration::ZERO).deadline() - began).as_secs(), 90);
}

#[tokio::test(start_paused = true)]
async fn a_watch_without_a_limit_ends_after_half_an_hour_to_an_hour() {
    let world = World::new().await;
    let began = tokio::time::sleep(Duration::ZERO).deadline();
    let mut events = world.watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion=1")).await;
    assert!(events.next().await.is_none());
    let minutes = (tokio::time::sleep(Duration::ZERO).deadline() - began).as_secs() / 60;
    assert!((30..=60).contains(&minutes), "{minutes}");
}

#[tokio::test]
async fn closing_watches_ends_them() {
    let world = World::new().await;
    let mut events = world.watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion=1")).await;
    world.server.close_watches();
    assert!(events.next().await.is_none());
    let mut next = world.watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion=1")).await;
    world.post(CONFIGMAPS, configmap("a", "1")).await.expect(201);
    assert_eq!(next.brief().await.0, "ADDED");
}
