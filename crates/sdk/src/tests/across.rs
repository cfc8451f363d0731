//! Mappings across clusters: what changes in one concerns keys of others.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;

use super::playing::Play;
use super::world::{MAPS, World, idle, run, settle};
use crate::{ClusterName, Controller, ControllerSpec, GroupScope, ObjectKey, mapping};

fn hub() -> ClusterName {
    "hub".parse().unwrap()
}

/// A controller that reconciles the namesakes in other clusters of what changes in the hub.
fn copies() -> ControllerSpec {
    Controller::for_kind::<ConfigMap>("copies")
        .watches_across::<ConfigMap>(mapping::namesakes_elsewhere(hub()))
        .reconciler(run(idle))
}

fn gain(world: &World, cluster: &str) -> Play {
    let play = Play::default();
    play.answer(world.engage(cluster, 1));
    world.hold_active(cluster, 1);
    play
}

/// What has been reconciled since the journal had this many entries.
fn ended(world: &World, since: usize) -> BTreeSet<String> {
    let journal = world.journal().split_off(since);
    let ended = journal.iter().filter_map(|entry| entry.strip_prefix("end "));
    ended.map(|entry| entry.split('@').next().unwrap().to_owned()).collect()
}

fn set<const N: usize>(keys: [&str; N]) -> BTreeSet<String> {
    keys.map(str::to_owned).into()
}

#[tokio::test(start_paused = true)]
async fn what_changes_in_the_hub_concerns_every_other_cluster() {
    let world = World::start(vec![copies()]);
    let (in_hub, in_east) = (gain(&world, "hub"), gain(&world, "east"));
    settle().await;
    let start = world.journal().len();
    in_hub.put("a", "u1");
    settle().await;
    assert_eq!(ended(&world, start), set(["hub/ns/a", "east/ns/a"]), "though the east has none");
    let start = world.journal().len();
    in_east.put("a", "u2");
    settle().await;
    assert_eq!(ended(&world, start), set(["east/ns/a"]), "only the hub's are mapped");
    let start = world.journal().len();
    in_hub.delete("a");
    settle().await;
    assert_eq!(ended(&world, start), set(["hub/ns/a", "east/ns/a"]));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_there_already_is_mapped_when_either_cluster_comes() {
    let world = World::start(vec![copies()]);
    // The east before the hub.
    gain(&world, "east");
    settle().await;
    let play = Play::default();
    play.put("a", "u1");
    play.put("b", "u2");
    play.answer(world.engage("hub", 1));
    world.hold_active("hub", 1);
    settle().await;
    assert_eq!(ended(&world, 0), set(["hub/ns/a", "hub/ns/b", "east/ns/a", "east/ns/b"]));
    // The west after it: for nobody else is anything looked at again.
    let start = world.journal().len();
    gain(&world, "west");
    settle().await;
    assert_eq!(ended(&world, start), set(["west/ns/a", "west/ns/b"]));
    // A cluster that went and comes again.
    world.disengage("west");
    settle().await;
    let start = world.journal().len();
    play.put("c", "u3");
    settle().await;
    gain(&world, "west");
    settle().await;
    let west = set(["west/ns/a", "west/ns/b", "west/ns/c"]);
    let others = set(["hub/ns/c", "east/ns/c"]);
    assert_eq!(ended(&world, start), &west | &others);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(ended(&world, start), &west | &others);
    world.stop().await;
}

/// It goes on slowly itself: what it names waits elsewhere.
#[tokio::test(start_paused = true)]
async fn a_hub_that_names_very_much_delays_no_other_when_a_cluster_comes() {
    let spec = Controller::for_kind::<ConfigMap>("copies")
        .watches_across::<ConfigMap>(|map, lookup| {
            let name = map.metadata.name.as_deref().unwrap();
            let key = |cluster: &str, name: &str| {
                ObjectKey::new(cluster.parse().unwrap(), Some("ns"), name)
            };
            match lookup.cluster().as_str() {
                "a-hub" if name == "many" => {
                    (0..65_600).map(|number: u32| key("east", &number.to_string())).collect()
                }
                "a-hub" | "b-hub" => vec![key("west", name)],
                _ => Vec::new(),
            }
        })
        .reconciler(run(idle));
    let world = World::start(vec![spec]);
    // Its list does not end, so nothing is taken out of its queue.
    let mut east = world.engage("east", 1);
    world.hold_active("east", 1);
    let _stream = east.expect(MAPS).await.watch();
    for (hub, names) in [("a-hub", &["many", "o1", "o2", "o3"][..]), ("b-hub", &["one"])] {
        let play = Play::default();
        for name in names {
            play.put(name, &format!("{hub}-{name}"));
        }
        play.answer(world.engage(hub, 1));
        world.hold_active(hub, 1);
    }
    tokio::time::sleep(Duration::from_secs(20)).await;
    gain(&world, "west");
    settle().await;
    assert!(ended(&world, 0).contains("west/ns/one"));
    come_and_go(&world).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(ended(&world, 0).contains("west/ns/o3"));

    // While the objects of one hub are looked at, another takes its name.
    world.hold("west", None);
    settle().await;
    world.hold_active("west", 32);
    settle().await;
    let other = Play::default();
    other.put("new", "new");
    other.answer(world.engage("a-hub", 2));
    settle().await;
    world.hold("west", None);
    settle().await;
    let start = world.journal().len();
    world.hold_active("west", 33);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(ended(&world, start).contains("west/ns/new"));
    world.stop().await;
}

/// However often a cluster is given up and gained, up to epoch 31: no tasks pile up.
async fn come_and_go(world: &World) {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    for epoch in 2..32 {
        world.hold("west", None);
        settle().await;
        world.hold_active("west", epoch);
        settle().await;
    }
    let after = tasks();
    assert!(after <= before + 4, "{before} tasks, then {after}");
}

/// Each look at it goes over all that is named.
#[tokio::test(start_paused = true)]
async fn however_often_clusters_come_one_task_settles_what_a_hub_names() {
    let spec = Controller::for_kind::<ConfigMap>("copies")
        .watches_across::<ConfigMap>(|_, lookup| {
            let named = if *lookup.cluster() == hub() { 200 } else { 0 };
            let key = |number: u32| {
                ObjectKey::new("east".parse().unwrap(), Some("ns"), &number.to_string())
            };
            (0..named).map(key).collect()
        })
        .reconciler(run(idle));
    let world = World::start(vec![spec]);
    // Its list does not end, so what is named there waits.
    let mut east = world.engage("east", 1);
    world.hold_active("east", 1);
    let _stream = east.expect(MAPS).await.watch();
    let in_hub = gain(&world, "hub");
    in_hub.put("a", "u1");
    gain(&world, "west");
    settle().await;
    come_and_go(&world).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_mapping_looks_into_other_clusters() {
    let spec = Controller::for_kind::<ConfigMap>("lookers")
        .watches_across::<ConfigMap>(|map, lookup| {
            let here = lookup.cluster().clone();
            let clusters = lookup.clusters().into_iter().filter(|cluster| *cluster != here);
            let has_it = clusters.filter(|cluster| {
                let caches = lookup.in_cluster(cluster).unwrap();
                caches.lookup().get::<ConfigMap>(Some("ns"), "wants").is_some()
            });
            let name = map.metadata.name.as_deref().unwrap();
            let key = |cluster| ObjectKey::new(cluster, Some("ns"), name);
            has_it.map(key).collect()
        })
        .reconciler(run(idle));
    let world = World::start(vec![spec]);
    let (in_hub, _in_east) = (gain(&world, "hub"), gain(&world, "east"));
    let in_west = gain(&world, "west");
    in_west.put("wants", "u1");
    settle().await;
    let start = world.journal().len();
    in_hub.put("a", "u2");
    settle().await;
    assert_eq!(ended(&world, start), set(["hub/ns/a", "west/ns/a"]));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_mapping_that_names_what_nothing_can_be_called_names_nothing() {
    let spec = Controller::for_kind::<ConfigMap>("copies")
        .watches_across::<ConfigMap>(|_, lookup| {
            let long = "x".repeat(1 << 20);
            let key = |namespace: &str, name: &str| {
                ObjectKey::new(lookup.cluster().clone(), Some(namespace), name)
            };
            let names = ["", "..", "a/b", "a b", "a\n", &long, "other"];
            let mut keys: Vec<_> = names.iter().map(|name| key("ns", name)).collect();
            keys.extend([key("no/namespace", "b"), key(&long, "b")]);
            keys
        })
        .reconciler(run(idle));
    let world = World::start(vec![spec]);
    let in_hub = gain(&world, "hub");
    settle().await;
    in_hub.put("a", "u1");
    settle().await;
    assert_eq!(ended(&world, 0), set(["hub/ns/a", "hub/ns/other"]));
    world.stop().await;
}

/// Another task of the same thread gets its turn after each object that is mapped when a cluster opens, though the
/// mapping names nothing that could be waited for.
#[tokio::test(start_paused = true)]
async fn a_slow_mapping_of_many_objects_leaves_the_thread_to_others() {
    let (in_a_row, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (count, all) = (Arc::clone(&in_a_row), Arc::clone(&most));
    let spec = Controller::for_kind::<ConfigMap>("copies")
        .watches_across::<ConfigMap>(move |_, _| {
            all.fetch_max(count.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            Vec::new()
        })
        .reconciler(run(idle));
    let world = World::start(vec![spec]);
    let play = Play::default();
    for number in 0..100 {
        play.put(&format!("o{number}"), &format!("u{number}"));
    }
    play.answer(world.engage("hub", 1));
    world.hold_active("hub", 1);
    for _ in 0..50 {
        for _ in 0..400 {
            in_a_row.store(0, Ordering::Relaxed);
            tokio::task::yield_now().await;
        }
        tokio::time::advance(Duration::from_micros(100)).await;
    }
    let most = most.load(Ordering::Relaxed);
    assert!((1..=4).contains(&most), "{most} objects in a row");
    world.stop().await;
}

#[test]
#[should_panic = "controller copies maps across clusters, so its scope must be Fleet, not Cluster"]
fn a_mapping_across_clusters_needs_the_scope() {
    let spec = Controller::for_kind::<ConfigMap>("copies")
        .watches_across::<ConfigMap>(mapping::namesake_in(hub()))
        .group_scope(GroupScope::Cluster);
    drop(spec.reconciler(run(idle)));
}
