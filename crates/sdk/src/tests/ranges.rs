//! Members that hold parts of a cluster: what they cache, read and reconcile.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use model::{Hold, Range, uid_hash};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::world::{MAPS, SECRETS, World, holding, holding_shard, idle, maps, run, settle};
use crate::{Action, Controller, ControllerSpec, Selector};
use engine::testing::config_map;

pub(super) const LOW: &str = "east/g/0/2";
pub(super) const HIGH: &str = "east/g/1/2";

/// A list of a part, asked for in pages to see whether the server knows parts.
pub(super) fn part(kind: &str, from: &str, to: &str) -> String {
    let range = format!("shardRange%28object.metadata.uid%2C+%270x{from}%27%2C+%270x{to}%27%29");
    format!("GET /api/v1/{kind} limit=500&shardSelector={range}")
}

pub(super) fn low(kind: &str) -> String {
    part(kind, "0000000000000000", "8000000000000000")
}

pub(super) fn high(kind: &str) -> String {
    part(kind, "8000000000000000", "10000000000000000")
}

pub(super) fn watch(kind: &str, version: u64) -> String {
    format!("GET /api/v1/{kind} watch=true&resourceVersion={version}")
}

fn is_low(name: &str) -> bool {
    "0/2".parse::<Range>().unwrap().contains(uid_hash(&format!("uid-{name}")))
}

/// Names of objects in the lower half, and of objects in the upper.
pub(super) fn names(count: usize) -> (Vec<String>, Vec<String>) {
    (0..count).map(|index| format!("map-{index}")).partition(|name| is_low(name))
}

/// An object that nobody can decode, nor even scan to its end.
pub(super) fn hostile(name: &str, version: u64) -> Value {
    let mut map = config_map(name, version);
    map["metadata"]["labels"] = json!(["no", "labels"]);
    map["metadata"]["generation"] = json!({});
    map
}

fn secret(name: &str, version: u64, owner: Option<&str>) -> Value {
    let owners = owner.map(|owner| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner,
            "uid": format!("uid-{owner}"), "controller": true})
    });
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "ns", "name": name,
        "uid": format!("uid-{name}"), "resourceVersion": version.to_string(),
        "ownerReferences": owners.into_iter().collect::<Vec<_>>()}})
}

pub(super) fn all(names: &[String], version: u64) -> Vec<Value> {
    names.iter().map(|name| config_map(name, version)).collect()
}

/// What was reconciled, each key once.
pub(super) fn reconciled(world: &World) -> BTreeSet<String> {
    let journal = world.journal();
    let ended = journal.iter().filter_map(|entry| entry.strip_prefix("end east/ns/"));
    ended.map(|entry| entry.split('@').next().unwrap().to_owned()).collect()
}

pub(super) fn set(names: &[String]) -> BTreeSet<String> {
    names.iter().cloned().collect()
}

/// Ranges, mode and objects of the informer of a kind.
pub(super) fn held(world: &World, kind: &str) -> String {
    let informers = world.status.informers();
    let informers: Vec<_> = informers.iter().filter(|informer| informer.kind == kind).collect();
    let [informer] = informers[..] else { panic!("{} informers", informers.len()) };
    format!("{} {} {}", informer.ranges, informer.mode.label(), informer.objects)
}

/// A controller that notes which ConfigMaps it finds cached.
fn looking() -> (ControllerSpec, Arc<Mutex<BTreeSet<String>>>) {
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let noted = Arc::clone(&seen);
    let spec = maps(move |ctx, _| {
        let found = ctx.list::<ConfigMap>(None, &Selector::all()).unwrap();
        *noted.lock().unwrap() = found.iter().filter_map(|m| m.metadata.name.clone()).collect();
        std::future::ready(Ok(Action::Done)).boxed()
    });
    (spec, seen)
}

#[tokio::test(start_paused = true)]
async fn members_cache_disjoint_parts_and_read_nothing_else() {
    let (low_names, high_names) = names(40);
    let mut caches = Vec::new();
    for (shard, list, ours, others) in [
        (LOW, low("configmaps"), &low_names, &high_names),
        (HIGH, high("configmaps"), &high_names, &low_names),
    ] {
        let (spec, seen) = looking();
        let (world, mut server) = holding_shard(vec![spec], shard, 1);
        let mut items = all(ours, 3);
        items.extend(others.iter().map(|name| hostile(name, 3)));
        server.expect(&list).await.page(5, "", &items);
        let live = server.expect(&watch("configmaps", 5)).await.watch();
        live.event("MODIFIED", &hostile(&others[0], 6));
        live.event("DELETED", &hostile(&others[1], 7));
        live.event("MODIFIED", &config_map(&ours[0], 8));
        live.event("ADDED", &hostile(&others[2], 9));
        settle().await;
        assert_eq!(reconciled(&world), set(ours));
        assert_eq!(*seen.lock().unwrap(), set(ours));
        let range = shard.strip_prefix("east/g/").unwrap();
        assert_eq!(held(&world, "ConfigMap"), format!("{range} client {}", ours.len()));
        let mode = |mode: &str| {
            let labels = format!(r#"{{cluster="east",kind="ConfigMap",mode="{mode}"}}"#);
            world.metric(&format!("leasehold_shard_mode{labels}"))
        };
        assert_eq!(["client", "server", "none"].map(mode), ["1", "absent", "absent"]);
        // What others own moves the watch on, too.
        live.broken();
        server.expect(&watch("configmaps", 9)).await;
        let seen = seen.lock().unwrap().clone();
        caches.push(seen);
        world.stop().await;
    }
    let [a, b] = &caches[..] else { panic!("two members") };
    assert!(a.is_disjoint(b));
    assert_eq!(a.union(b).count(), 40, "nothing is cached by nobody");
}

#[tokio::test(start_paused = true)]
async fn a_gained_range_opens_once_its_objects_are_there() {
    let (low_names, high_names) = names(20);
    // New objects are passed over, but not those of a gained range.
    let spec = Controller::for_kind::<ConfigMap>("maps")
        .filter(|old, _| old.is_some())
        .reconciler(run(idle));
    let (world, mut server) = holding_shard(vec![spec], LOW, 1);
    let both = [all(&low_names, 3), all(&high_names, 3)].concat();
    server.expect(&low("configmaps")).await.page(5, "", &both);
    let first = server.expect(&watch("configmaps", 5)).await.watch();
    settle().await;
    assert_eq!(reconciled(&world), set(&low_names));

    // The next owner warms. The server is known not to divide, so all is streamed.
    world.hold_shards(&[(HIGH, Some((4, Hold::Warming)))]);
    let list = server.expect(MAPS).await.watch();
    first.hung_up().await;
    world.hold_shards(&[(HIGH, Some((4, Hold::Active)))]);
    let mut changed = config_map(&low_names[0], 7);
    changed["data"]["colour"] = "red".into();
    list.event("ADDED", &changed);
    for name in &high_names {
        list.event("ADDED", &config_map(name, 3));
    }
    settle().await;
    assert_eq!(held(&world, "ConfigMap"), "0/1 none 20");
    assert_eq!(reconciled(&world), set(&low_names), "the list is not complete");
    let again = format!("end east/ns/{}@1", low_names[0]);
    let runs = world.journal().iter().filter(|entry| **entry == again).count();
    assert_eq!(runs, 2, "what was held before is followed meanwhile");
    for name in &low_names[1..] {
        list.event("ADDED", &config_map(name, 3));
    }
    list.initial_end(8);
    settle().await;
    assert_eq!(reconciled(&world), set(&[low_names, high_names].concat()));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_range_gained_while_a_list_is_read_makes_it_begin_anew() {
    let (low_names, high_names) = names(20);
    let (world, mut server) = holding_shard(vec![maps(idle)], "east/g/0/4", 1);
    let both = [all(&low_names, 3), all(&high_names, 3)].concat();
    let quarter = part("configmaps", "0000000000000000", "4000000000000000");
    server.expect(&quarter).await.page(5, "token", &both[..10]);
    let more = quarter.replace("limit=500", "limit=500&continue=token");
    let more = server.expect(&more).await;
    world.hold_shards(&[("east/g/1/4", Some((1, Hold::Active)))]);
    let list = server.expect(MAPS).await;
    more.page(5, "", &both[10..]);
    settle().await;
    assert!(world.journal().is_empty());
    // Before anything came of it, it serves for more, too.
    world.hold_shards(&[(HIGH, Some((1, Hold::Active)))]);
    settle().await;
    let _list = list.list(6, &both);
    settle().await;
    assert_eq!(reconciled(&world).len(), 20);
    server.quiet(Duration::from_secs(60)).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_range_is_read_until_its_last_run_has_ended() {
    let (low_names, high_names) = names(20);
    let (gate, found) = (Arc::new(Semaphore::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (leave, noted) = (Arc::clone(&gate), Arc::clone(&found));
    let spec = maps(move |ctx, key| {
        let (gate, noted) = (Arc::clone(&leave), Arc::clone(&noted));
        async move {
            gate.acquire().await.expect("the gate is never closed").forget();
            let map = ctx.get::<ConfigMap>(key.namespace.as_deref(), &key.name)?;
            noted.lock().unwrap().push((key.name.to_string(), map.is_some()));
            Ok(Action::Done)
        }
        .boxed()
    });
    let (world, mut server) = holding(vec![spec], 1);
    let _list =
        server.expect(MAPS).await.list(5, &[all(&low_names, 3), all(&high_names, 3)].concat());
    gate.add_permits(18);
    settle().await;
    // Two run, of whichever half.
    world.drain_shard("east/g/0/1", 1);
    tokio::time::sleep(Duration::from_secs(30)).await;
    assert!(world.acknowledged().is_empty());
    assert_eq!(held(&world, "ConfigMap"), "0/1 none 20");
    gate.add_permits(2);
    world.wait_acknowledged("east/g/0/1@1").await;
    assert!(found.lock().unwrap().iter().all(|(_, found)| *found), "all were there to be read");
    assert_eq!(held(&world, "ConfigMap"), "0/1 none 20", "until the map says that it is lost");
    // Split: one half stays, without being listed again.
    gate.add_permits(100);
    world.hold_shards(&[("east/g/0/1", None), (LOW, Some((2, Hold::Active)))]);
    settle().await;
    assert_eq!(held(&world, "ConfigMap"), format!("0/2 client {}", low_names.len()));
    assert_eq!(found.lock().unwrap().len(), 20 + low_names.len());
    server.quiet(Duration::from_secs(60)).await;

    // A run that is cancelled for a shard that was lost holds its objects to its end, no longer.
    world.hold_shards(&[(LOW, None)]);
    settle().await;
    assert!(world.status.informers().is_empty());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn children_that_are_left_over_are_found_at_the_first_look() {
    let (low_names, high_names) = names(20);
    let [ours, gone, was] = [0, 1, 2].map(|index| low_names[index].as_str());
    let again = high_names[0].as_str();
    let spec = Controller::for_kind::<ConfigMap>("maps").owns::<Secret>().reconciler(run(idle));
    let (world, mut server) = holding_shard(vec![spec], LOW, 1);
    let primaries = [config_map(ours, 1), config_map(again, 1)];
    server.expect(&low("configmaps")).await.page(5, "", &primaries);
    let secrets = server.expect(SECRETS).await.watch();
    let _live = server.expect(&watch("configmaps", 5)).await.watch();
    secrets.event("ADDED", &secret("kept", 2, Some(ours)));
    secrets.event("ADDED", &secret("left", 2, Some(gone)));
    // Its owner was made again under its name, and lies in the other half now.
    let mut old = secret("old", 2, Some(was));
    old["metadata"]["ownerReferences"][0]["name"] = again.into();
    secrets.event("ADDED", &old);
    secrets.initial_end(5);
    settle().await;
    assert_eq!(reconciled(&world), set(&[ours, gone, again].map(ToOwned::to_owned)));
    assert_eq!(world.journal().len(), 3 * 2, "each once");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn children_lie_where_their_owners_do() {
    let (low_names, high_names) = names(20);
    let (ours, theirs) = (low_names[0].as_str(), high_names[0].as_str());
    let spec = Controller::for_kind::<ConfigMap>("maps").owns::<Secret>().reconciler(run(idle));
    let (world, mut server) = holding_shard(vec![spec], LOW, 1);
    let primaries = [config_map(ours, 1), config_map(theirs, 1)];
    server.expect(&low("configmaps")).await.page(5, "", &primaries);
    // A server cannot tell owners, so it is not asked to.
    let secrets = server.expect(SECRETS).await.watch();
    let _live = server.expect(&watch("configmaps", 5)).await.watch();
    for (name, owner) in [("a", Some(ours)), ("b", Some(theirs)), ("c", None)] {
        secrets.event("ADDED", &secret(name, 2, owner));
    }
    secrets.initial_end(5);
    settle().await;
    assert_eq!(held(&world, "Secret"), "owner:0/2 client 1");
    let runs = async |event: &str, version, owner: Option<&str>, name: &str| {
        let before = world.journal().len();
        secrets.event(event, &secret(name, version, owner));
        settle().await;
        let objects = held(&world, "Secret");
        let objects = objects.rsplit(' ').next().unwrap().to_owned();
        format!("{objects} held, {} run", (world.journal().len() - before) / 2)
    };
    assert_eq!(runs("MODIFIED", 6, Some(theirs), "a").await, "0 held, 1 run", "it leaves");
    assert_eq!(runs("MODIFIED", 7, Some(theirs), "a").await, "0 held, 0 run");
    assert_eq!(runs("MODIFIED", 8, Some(ours), "b").await, "1 held, 1 run", "it enters");
    assert_eq!(runs("MODIFIED", 9, Some(ours), "c").await, "2 held, 1 run", "it is adopted");
    assert_eq!(runs("MODIFIED", 10, None, "c").await, "1 held, 1 run", "it is let go");
    assert_eq!(runs("DELETED", 11, None, "c").await, "1 held, 0 run");
    assert_eq!(runs("DELETED", 12, Some(theirs), "b").await, "0 held, 1 run", "moved and gone");

    // A child made while the other half is listed is no part of a first look: its owner's shard is
    // open.
    world.hold_shards(&[(HIGH, Some((1, Hold::Active)))]);
    let primaries = server.expect(MAPS).await.list(20, &primaries);
    let secrets = server.expect(SECRETS).await.watch();
    settle().await;
    let before = world.journal().len();
    secrets.event("ADDED", &secret("d", 19, Some(ours)));
    secrets.event("ADDED", &secret("e", 19, Some(theirs)));
    settle().await;
    assert_eq!(
        world.journal()[before..],
        [format!("start east/ns/{ours}@1"), format!("end east/ns/{ours}@1")]
    );
    secrets.initial_end(20);
    world.wait_journal(&format!("end east/ns/{theirs}@1")).await;
    assert_eq!(held(&world, "Secret"), "0/1 none 2");
    drop(primaries);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_mapped_is_held_whole() {
    let (low_names, high_names) = names(20);
    let spec = Controller::for_kind::<ConfigMap>("maps")
        .owns::<Secret>()
        .watches::<Secret>(|secret, lookup| {
            let all = lookup.list::<ConfigMap>(None, &Selector::all());
            let named = |map: &&Arc<ConfigMap>| map.metadata.name == secret.metadata.name;
            all.iter()
                .filter(named)
                .map(|map| (map.metadata.namespace.clone(), map.metadata.name.clone().unwrap()))
                .collect()
        })
        .reconciler(run(idle));
    let (world, mut server) = holding_shard(vec![spec], LOW, 1);
    let both = [all(&low_names, 3), all(&high_names, 3)].concat();
    server.expect(&low("configmaps")).await.page(5, "", &both);
    let secrets =
        server.expect(SECRETS).await.list(5, &[secret("a", 2, None), secret("b", 2, None)]);
    let _live = server.expect(&watch("configmaps", 5)).await.watch();
    settle().await;
    assert_eq!(held(&world, "ConfigMap"), format!("0/2 client {}", low_names.len()));
    assert_eq!(held(&world, "Secret"), "0/1 none 2");
    let before = world.journal().len();
    secrets.event("ADDED", &secret(&low_names[0], 6, None));
    secrets.event("ADDED", &secret(&high_names[0], 7, None));
    settle().await;
    let expect = ["start", "end"].map(|what| format!("{what} east/ns/{}@1", low_names[0]));
    assert_eq!(world.journal()[before..], expect, "others look after the other");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn groups_with_different_ranges_share_one_cache() {
    let (low_names, high_names) = names(20);
    let named =
        |name: &str| Controller::for_kind::<ConfigMap>(name).group(name).reconciler(run(idle));
    let (world, mut server) = holding_shard(vec![named("one"), named("two")], "east/one/0/2", 1);
    let both = [all(&low_names, 3), all(&high_names, 3)].concat();
    server.expect(&low("configmaps")).await.page(5, "", &both);
    let _live = server.expect(&watch("configmaps", 5)).await.watch();
    settle().await;
    // The same range for another group: nothing to be asked.
    world.hold_shards(&[("east/two/0/2", Some((1, Hold::Active)))]);
    settle().await;
    assert_eq!(world.journal().len(), 4 * low_names.len());
    server.quiet(Duration::from_secs(60)).await;
    world.hold_shards(&[("east/two/0/2", None), ("east/two/1/2", Some((2, Hold::Active)))]);
    let _list = server.expect(MAPS).await.list(6, &both);
    settle().await;
    assert_eq!(held(&world, "ConfigMap"), "0/1 none 20");
    assert_eq!(world.journal().len(), 4 * low_names.len() + 2 * high_names.len());
    world.hold_shards(&[("east/one/0/2", None)]);
    settle().await;
    assert_eq!(held(&world, "ConfigMap"), format!("1/2 client {}", high_names.len()));
    server.quiet(Duration::from_secs(60)).await;
    world.stop().await;
}
