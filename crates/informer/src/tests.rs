//! Informers: what subscribers are told, through lists, gaps and refusals.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::PartialObjectMeta;
use listwatch::{Form, IDLE_TIMEOUT, Scope};
use model::Budget;
use queue::Priority;

use crate::mailbox::SUBSCRIBER_BUFFER;
use crate::task::Task;
use crate::testing::{PATIENCE, Server, config_map, informer, informer_with};
use crate::{Absence, Change, Informer, Subscription};
use extent::RangeScope;

pub(crate) const STREAM: &str =
    "GET /api/v1/configmaps watch=true&sendInitialEvents=true&resourceVersion=";
pub(crate) const PAGED: &str = "GET /api/v1/configmaps limit=500";

fn watch(version: u64) -> String {
    format!("GET /api/v1/configmaps watch=true&resourceVersion={version}")
}

/// Lets everything that can run do so.
pub(crate) async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

fn informer_without_scope(form: Form) -> (Arc<Informer>, Server) {
    let (informer, _, server) = informer_with(form, Scope::default(), Budget::default());
    (informer, server)
}

/// An informer of all metadata.
fn metadata_informer() -> (Arc<Informer>, Server) {
    let (informer, server) = informer_without_scope(Form::Metadata);
    std::mem::forget(informer.require(RangeScope::Whole));
    (informer, server)
}

/// The next event: `+name@version`, `~name@version`, `-name@version` or `synced`, with `!` before
/// those of the first list.
async fn next(subscription: &mut Subscription) -> String {
    let event = tokio::time::timeout(PATIENCE, subscription.next()).await;
    let event = event.expect("an event").expect("a running informer");
    let (sign, entry) = match &event.change {
        Change::Synced(_) => return "synced".to_owned(),
        Change::Absent(absence, number) => return format!("{absence:?}@{number}"),
        Change::Upsert { old: None, new } => ('+', new),
        Change::Upsert { new, .. } => ('~', new),
        Change::Delete { old } => ('-', old),
    };
    let first = if event.priority == Priority::Initial { "!" } else { "" };
    let header = &entry.header;
    format!("{first}{sign}{}@{}", header.key.name, header.resource_version)
}

pub(crate) async fn told(subscription: &mut Subscription, expect: &str) {
    for expect in expect.split(' ') {
        assert_eq!(next(subscription).await, expect);
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_is_streamed_and_changes_follow() {
    let (informer, mut server) = informer();
    let mut early = informer.subscribe().await;
    let asked = server.expect(STREAM).await;
    assert_eq!(asked.request.headers["accept-encoding"], "identity");
    let list = asked.list(5, &[config_map("a", 3), config_map("b", 4)]);
    told(&mut early, "!+a@3 !+b@4 synced").await;
    list.event("MODIFIED", &config_map("a", 6));
    list.event("DELETED", &config_map("b", 7));
    list.event("DELETED", &config_map("never-seen", 8));
    list.event("ADDED", &config_map("c", 9));
    told(&mut early, "~a@6 -b@7 +c@9").await;

    let mut late = informer.subscribe().await;
    told(&mut late, "!+a@6 !+c@9 synced").await;
    list.event("DELETED", &config_map("a", 10));
    told(&mut late, "-a@10").await;
    told(&mut early, "-a@10").await;
    let status = informer.state().status(model::Moment::default());
    assert_eq!(
        (status.objects, status.subscribers, status.resource_version.as_str()),
        (1, 2, "10")
    );
}

/// It is taken in piece by piece, for a watcher on the same thread sees it grow.
#[tokio::test]
async fn a_page_and_a_stream_leave_turns_to_other_tasks() {
    let objects: Vec<_> = (0..500)
        .map(|n| {
            let mut object = config_map(&format!("c{n}"), 3);
            object["data"] = serde_json::json!({"text": "x".repeat(1024)});
            object
        })
        .collect();
    for is_paged in [true, false] {
        let (informer, mut server) = informer();
        let asked = server.expect(STREAM).await;
        let _list = if is_paged {
            asked.refuse(422, "Invalid");
            server.expect(PAGED).await.page(5, "", &objects);
            None
        } else {
            Some(asked.list(5, &objects))
        };
        let mut partly = std::collections::BTreeSet::new();
        while informer.state().store.len() < objects.len() {
            partly.insert(informer.state().store.len());
            tokio::task::yield_now().await;
        }
        assert!(partly.len() >= 10, "{partly:?}");
    }
}

#[tokio::test]
async fn what_a_list_does_not_mention_goes_piece_by_piece() {
    let objects: Vec<_> = (0..500).map(|n| config_map(&format!("c{n}"), 3)).collect();
    let (informer, mut server) = informer();
    let store = &informer.state().store;
    let list = server.expect(STREAM).await.list(5, &objects);
    list.expired();
    let _empty = server.expect(STREAM).await.list(9, &[]);
    let mut partly = std::collections::BTreeSet::new();
    while !store.is_empty() {
        partly.insert(store.len());
        tokio::task::yield_now().await;
    }
    assert!(partly.range(1..500).next().is_some(), "{partly:?}");
}

#[tokio::test(start_paused = true)]
async fn what_vanished_in_a_gap_is_told_as_last_known() {
    let (informer, mut server) = informer();
    let mut events = informer.subscribe().await;
    let names = ["kept", "changed", "gone", "reborn"];
    let list = server.expect(STREAM).await.list(5, &names.map(|name| config_map(name, 2)));
    told(&mut events, "!+kept@2 !+changed@2 !+gone@2 !+reborn@2 synced").await;
    list.expired();
    let mut reborn = config_map("reborn", 8);
    reborn["metadata"]["uid"] = "another".into();
    let again = server.expect(STREAM).await;
    again.list(9, &[config_map("kept", 2), config_map("changed", 7), reborn]);
    told(&mut events, "~changed@7 -reborn@2 +reborn@8 -gone@2").await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_to_stream_is_paged() {
    let (informer, mut server) = informer();
    let mut events = informer.subscribe().await;
    server.expect(STREAM).await.refuse(422, "Invalid");
    server.expect(PAGED).await.page(6, "token", &[config_map("a", 1)]);
    let second = server.expect(&format!("{PAGED}&continue=token")).await;
    second.page(6, "", &[config_map("b", 2)]);
    told(&mut events, "!+a@1 !+b@2 synced").await;
    let live = server.expect(&watch(6)).await.watch();
    live.event("MODIFIED", &config_map("a", 7));
    told(&mut events, "~a@7").await;
    live.expired();
    server.expect(PAGED).await.page(9, "", &[config_map("b", 2)]);
    told(&mut events, "-a@7").await;
    server.expect(&watch(9)).await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_resumes_where_it_was() {
    let (informer, mut server) = informer();
    let mut events = informer.subscribe().await;
    let list = server.expect(STREAM).await.list(5, &[config_map("a", 3)]);
    told(&mut events, "!+a@3 synced").await;
    list.bookmark(8);
    settle().await;
    list.broken();
    let second = server.expect(&watch(8)).await.watch();
    second.event("MODIFIED", &config_map("a", 9));
    told(&mut events, "~a@9").await;
    // A line that says more than lines do today.
    let object = config_map("a", 10);
    second.text(&format!(r#"{{"type":"MODIFIED","object":{object},"more":{{}}}}"#));
    told(&mut events, "~a@10").await;
    // A line cut off in the middle of its object.
    second.text(r#"{"type":"MODIFIED","object":{"kind":"ConfigMap"}"#);
    server.expect(&watch(10)).await.drop_connection();
    server.expect(&watch(10)).await.refuse(500, "InternalError");
    assert!(informer.state().condition().error.is_some());
    let last = server.expect(&watch(10)).await.watch();
    settle().await;
    assert!(informer.state().condition().error.is_none(), "it works again");
    // Silence is not trusted for long.
    server.quiet(IDLE_TIMEOUT - Duration::from_secs(5)).await;
    server.expect(&watch(10)).await;
    drop(last);
}

#[tokio::test(start_paused = true)]
async fn a_slow_subscriber_holds_up_nobody_and_hears_of_every_object() {
    let (informer, mut server) = informer();
    let mut slow = informer.subscribe().await;
    let mut quick = informer.subscribe().await;
    let list = server.expect(STREAM).await.list(1, &[]);
    told(&mut slow, "synced").await;
    told(&mut quick, "synced").await;
    let count = SUBSCRIBER_BUFFER as u64 * 2 + 10;
    for number in 0..count {
        list.event("ADDED", &config_map(&format!("o{number}"), number + 2));
    }
    for number in 0..count {
        told(&mut quick, &format!("+o{number}@{}", number + 2)).await;
    }
    assert_eq!(informer.state().queued(), count as usize, "all of them wait for the slow one");
    assert_eq!(informer.state().store.len(), count as usize);
    list.event("MODIFIED", &config_map("o0", 1000));
    list.event("MODIFIED", &config_map("o1", 1001));
    list.event("DELETED", &config_map("o1", 1002));
    told(&mut quick, "~o0@1000 ~o1@1001 -o1@1002").await;
    told(&mut slow, "+o0@1000 +o1@1001 -o1@1002 +o2@4").await;
    for number in 3..count {
        told(&mut slow, &format!("+o{number}@{}", number + 2)).await;
    }
    assert_eq!(informer.state().queued(), 0);
    // It knows the object from here on.
    for version in [1003, 1004] {
        list.event("MODIFIED", &config_map("o2", version));
        told(&mut quick, &format!("~o2@{version}")).await;
    }
    told(&mut slow, "~o2@1004").await;
}

/// Else a predicate could pass over an object of a range that was gained again.
#[tokio::test(start_paused = true)]
async fn what_comes_anew_is_told_as_new_to_a_slow_subscriber() {
    let (informer, mut server) = informer_without_scope(Form::Whole);
    let scope = informer.require(RangeScope::Whole);
    let mut slow = informer.subscribe().await;
    let list = server.expect(STREAM).await.list(1, &[]);
    list.event("ADDED", &config_map("a", 2));
    list.event("ADDED", &config_map("b", 3));
    told(&mut slow, "synced +a@2 +b@3").await;
    list.event("MODIFIED", &config_map("a", 4));
    list.event("DELETED", &config_map("a", 5));
    for version in [6, 7] {
        list.event("ADDED", &config_map("a", version));
    }
    list.event("MODIFIED", &config_map("b", 8));
    settle().await;
    drop(scope);
    settle().await;
    let _scope = informer.require(RangeScope::Whole);
    server.expect(STREAM).await.list(9, &[config_map("b", 8), config_map("a", 7)]);
    settle().await;
    told(&mut slow, "-a@2 !+a@7 -b@3 !+b@8 synced").await;
    assert_eq!(informer.state().queued(), 0);
}

/// What one subscriber can take is bounded, whatever comes and goes.
#[tokio::test(start_paused = true)]
async fn an_informer_waits_for_a_subscriber_that_takes_more_than_there_is() {
    let (informer, mut server) = informer();
    let mut slow = informer.subscribe().await;
    let list = server.expect(STREAM).await.list(1, &[]);
    told(&mut slow, "synced").await;
    for number in 0..SUBSCRIBER_BUFFER as u64 * 3 {
        let one = config_map(&format!("o{number}"), number * 2 + 2);
        list.event("ADDED", &one);
        list.event("DELETED", &one);
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(informer.state().queued(), SUBSCRIBER_BUFFER + 1, "at most one of them is there");
    for number in 0..SUBSCRIBER_BUFFER as u64 * 3 {
        let version = number * 2 + 2;
        told(&mut slow, &format!("+o{number}@{version} -o{number}@{version}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_informer_ends_with_its_last_holder() {
    let (informer, mut server) = informer();
    let mut events = informer.subscribe().await;
    let list = server.expect(STREAM).await.list(1, &[]);
    told(&mut events, "synced").await;
    let other = Arc::clone(&informer);
    drop(informer);
    list.event("ADDED", &config_map("a", 2));
    told(&mut events, "+a@2").await;
    drop(other);
    list.hung_up().await;
    assert!(events.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_large_store_is_packed_while_it_is_watched() {
    let (informer, mut server) = informer();
    let maps: Vec<_> = (0..800_u64)
        .map(|version| {
            let mut map = config_map(&format!("map-{version:03}"), version + 1);
            let text = format!("the text of map {version}, which is much like the others; ");
            map["data"]["text"] = text.repeat(16).into();
            map
        })
        .collect();
    let list = server.expect(STREAM).await.list(900, &maps);
    settle().await;
    let store = &informer.state().store;
    assert_eq!(store.len(), maps.len());
    // The training runs on another thread; the paused clock waits for it.
    settle().await;
    let raw: usize = maps.iter().map(|map| map.to_string().len()).sum();
    assert!(store.packed_bytes() * 4 < raw, "{} of {raw}", store.packed_bytes());
    let mut events = informer.subscribe().await;
    list.event("MODIFIED", &config_map("map-000", 901));
    for _ in 0..maps.len() {
        next(&mut events).await;
    }
    told(&mut events, "synced").await;
    let map: ConfigMap = store.get(Some("ns"), "map-799").unwrap().decode().unwrap();
    assert!(map.data.unwrap()["text"].starts_with("the text of map 799,"));
}

#[tokio::test(start_paused = true)]
async fn a_missing_kind_is_reported_once_and_followed_when_it_appears() {
    let (informer, mut server) = informer();
    let mut early = informer.subscribe().await;
    server.expect(STREAM).await.refuse(404, "NotFound");
    told(&mut early, "NotInstalled@1").await;
    server.expect(STREAM).await.refuse(404, "NotFound");
    server.expect(STREAM).await.refuse(503, "ServiceUnavailable");
    let asked = server.expect(STREAM).await;
    assert_eq!(informer.state().absence(), Some(Absence::NotInstalled), "nobody said otherwise");
    // Somebody new, and another shard, are told too.
    let mut late = informer.subscribe().await;
    told(&mut late, "NotInstalled@1").await;
    let scope = informer.require(RangeScope::Own("0/2".parse().unwrap()));
    told(&mut late, "NotInstalled@2").await;
    told(&mut early, "NotInstalled@2").await;
    asked.refuse(403, "Forbidden");
    told(&mut early, "Forbidden@2").await;
    let status = informer.state().status(model::Moment::default());
    assert_eq!(status.absent, Some(Absence::Forbidden));
    assert!(status.error.unwrap().contains("403 Forbidden"));
    let list = server.asked().await.list(5, &[config_map("a", 3)]);
    told(&mut early, "!+a@3 synced").await;
    assert!(informer.state().is_available());

    // It goes again: what was known stays, for a refusal is no list.
    list.expired();
    server.asked().await.refuse(403, "Forbidden");
    told(&mut early, "Forbidden@2").await;
    assert!(!informer.state().is_available());
    assert_eq!(informer.state().store.len(), 1);
    let mut later = informer.subscribe().await;
    told(&mut later, "!+a@3 synced Forbidden@2").await;
    let list = server.asked().await.list(9, &[config_map("a", 8)]);
    told(&mut early, "~a@8").await;
    assert!(informer.state().is_available());
    drop((scope, list));
}

#[tokio::test(start_paused = true)]
async fn of_metadata_nothing_else_is_asked_for_or_kept() {
    let (informer, mut server) = metadata_informer();
    let mut events = informer.subscribe().await;
    let accepted = |asked: &crate::testing::Asked| {
        asked.request.headers["accept"].to_str().unwrap().to_owned()
    };
    let asked = server.expect(STREAM).await;
    let metadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
    assert_eq!(accepted(&asked), metadata);
    asked.refuse(422, "Invalid");
    let asked = server.expect(PAGED).await;
    assert_eq!(accepted(&asked), metadata.replacen("Metadata;", "MetadataList;", 1));
    // A server that sends whole objects nevertheless.
    asked.page(6, "", &[config_map("a", 1)]);
    told(&mut events, "!+a@1 synced").await;
    let asked = server.expect(&watch(6)).await;
    assert_eq!(accepted(&asked), metadata);
    let live = asked.watch();
    let mut partial = config_map("b", 7);
    partial["kind"] = "PartialObjectMetadata".into();
    partial["apiVersion"] = "meta.k8s.io/v1".into();
    partial.as_object_mut().unwrap().remove("data");
    live.event("ADDED", &partial);
    told(&mut events, "+b@7").await;
    for name in ["a", "b"] {
        let entry = informer.state().store.get(Some("ns"), name).unwrap();
        let map: PartialObjectMeta<ConfigMap> = entry.decode().unwrap();
        assert_eq!(map.metadata.name.as_deref(), Some(name));
        assert!(!String::from_utf8(entry.json().unwrap()).unwrap().contains(r#""data""#));
    }
    assert!(informer.state().status(model::Moment::default()).metadata_only);
}

/// A replica has one for each kind of each of its clusters.
#[test]
fn an_informer_at_rest_is_small() {
    fn state<F>(_: impl FnOnce(Box<Task>) -> F) -> usize {
        size_of::<F>()
    }
    let bytes = size_of::<Task>() + state(Task::run);
    assert!(bytes < 3 << 10, "{bytes} bytes");
}
