//! Lists: pages, versions, selectors, forms.

use leasehold_apiserver::WindowLimits;
use serde_json::{Value, json};

use crate::world::{CONFIGMAPS, World, configmap, version};

async fn with_objects(count: usize) -> World {
    let world = World::new().await;
    for at in 0..count {
        world.post(CONFIGMAPS, configmap(&format!("c{at}"), "1")).await.expect(201);
    }
    world
}

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap();
    items.iter().map(|i| i["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn pages_share_one_version() {
    let world = with_objects(5).await;
    let first = world.get(&format!("{CONFIGMAPS}?limit=2")).await.expect(200);
    assert_eq!(names(&first), ["c0", "c1"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    world.delete(&format!("{CONFIGMAPS}/c2"), json!({})).await.expect(200);
    world.post(CONFIGMAPS, configmap("c9", "1")).await.expect(201);
    let mut token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    let mut seen = names(&first);
    while !token.is_empty() {
        let page = world.get(&format!("{CONFIGMAPS}?limit=2&continue={token}")).await.expect(200);
        assert_eq!(page["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
        seen.extend(names(&page));
        token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
    }
    assert_eq!(seen, ["c0", "c1", "c2", "c3", "c4"]);
}

#[tokio::test]
async fn an_expired_page_offers_a_way_on() {
    let world = with_objects(3).await;
    let first = world.get(&format!("{CONFIGMAPS}?limit=1")).await.expect(200);
    world.merge(&format!("{CONFIGMAPS}/c2"), json!({"data": {"key": "2"}})).await.expect(200);
    world.server.compact();
    let token = first["metadata"]["continue"].as_str().unwrap();
    let gone = world.get(&format!("{CONFIGMAPS}?limit=1&continue={token}")).await;
    assert_eq!((gone.code, gone.status().1.as_str()), (410, "Expired"));
    let fresh = gone.json()["metadata"]["continue"].as_str().unwrap().to_owned();
    let rest = world.get(&format!("{CONFIGMAPS}?continue={fresh}")).await.expect(200);
    assert_eq!(names(&rest), ["c1", "c2"]);
}

#[tokio::test]
async fn a_list_can_be_of_an_exact_version() {
    let world = with_objects(2).await;
    let then = world.server.revision();
    world.post(CONFIGMAPS, configmap("late", "1")).await.expect(201);
    let exact = format!("{CONFIGMAPS}?resourceVersion={then}&resourceVersionMatch=Exact");
    assert_eq!(names(&world.get(&exact).await.expect(200)), ["c0", "c1"]);
    world.server.compact();
    assert_eq!(world.get(&exact).await.status().1, "Expired");
}

#[tokio::test(start_paused = true)]
async fn a_version_not_reached_is_waited_for_in_vain() {
    let world = with_objects(1).await;
    let ahead = world.get(&format!("{CONFIGMAPS}?resourceVersion=99999")).await;
    assert_eq!((ahead.code, ahead.status().1.as_str()), (504, "Timeout"));
    assert_eq!(ahead.json()["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    assert_eq!(ahead.headers["retry-after"], "1");
}

#[tokio::test]
async fn selectors_choose() {
    let world = with_objects(3).await;
    world
        .merge(&format!("{CONFIGMAPS}/c1"), json!({"metadata": {"labels": {"a": "b"}}}))
        .await
        .expect(200);
    for (query, expected) in [
        ("labelSelector=a%3Db", vec!["c1"]),
        ("labelSelector=!a", vec!["c0", "c2"]),
        ("fieldSelector=metadata.name%3Dc2", vec!["c2"]),
    ] {
        let list = world.get(&format!("{CONFIGMAPS}?{query}")).await.expect(200);
        assert_eq!(names(&list), expected, "{query}");
    }
    let some = world.get(&format!("{CONFIGMAPS}?limit=1&labelSelector=!a")).await.expect(200);
    assert!(some["metadata"]["continue"].is_string());
    assert!(some["metadata"].get("remainingItemCount").is_none());
    assert_eq!(world.get(&format!("{CONFIGMAPS}?labelSelector=a%20b")).await.status().0, 400);
    assert_eq!(world.get(&format!("{CONFIGMAPS}?fieldSelector=spec.x%3Dy")).await.status().0, 400);
}

#[tokio::test]
async fn lists_come_as_metadata_and_as_tables() {
    let world = with_objects(2).await;
    let metadata = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let partial = world.get_as(CONFIGMAPS, metadata).await.expect(200);
    assert_eq!(partial["kind"], "PartialObjectMetadataList");
    let names = [0, 1].map(|n| partial["items"][n]["metadata"]["name"].clone());
    assert_eq!(names, [json!("c0"), json!("c1")]);
    assert!(partial["items"][0].get("data").is_none());
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let table = world.get_as(CONFIGMAPS, table).await.expect(200);
    assert_eq!(table["kind"], "Table");
    assert_eq!(table["rows"][0]["cells"][0], "c0");
    assert_eq!(version(&table), world.server.revision());
    let protobuf = world.get_as(CONFIGMAPS, "application/vnd.kubernetes.protobuf").await;
    assert_eq!(protobuf.code, 406);
}

#[tokio::test]
async fn the_past_is_bounded() {
    let limits = WindowLimits { events: 2, bytes: usize::MAX };
    let world = World::with(leasehold_apiserver::Server::builder().window(limits)).await;
    for at in 0..5 {
        world.post(CONFIGMAPS, configmap(&format!("c{at}"), "1")).await.expect(201);
    }
    let mut late = world.watch(&format!("{CONFIGMAPS}?watch=1&resourceVersion=1")).await;
    let event = late.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(event["object"]["reason"], "Expired");
    assert!(late.next().await.is_none(), "the watch ends with its error");
}
