//! Clusters that exceed their budget: what happens to their shards, what is reported, and what others notice.

use std::sync::Arc;
use std::time::Duration;

use engine::testing::{Server, config_map, server};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use model::{Budget, Clock, Cluster, ClusterName, Workload};
use serde_json::json;

use super::world::{MAPS, World, holding, idle, maps, run, settle};
use crate::{Controller, FleetLookup, ObjectKey};

/// A cluster with a budget of three objects.
fn engage_small(world: &World, name: &str) -> Server {
    let (client, server) = server();
    world.engage_with(name, 1, client, Some(Budget { max_objects: 3, ..Budget::default() }));
    server
}

fn objects(count: usize) -> Vec<serde_json::Value> {
    (0..count).map(|number| config_map(&format!("m{number}"), 1)).collect()
}

fn failing(world: &World, cluster: &str) -> Option<Arc<str>> {
    world.meter.failing().remove(&cluster.parse::<ClusterName>().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_cluster_beyond_its_budget_is_left_alone_and_tried_again_and_others_go_on() {
    let world = World::start(vec![maps(idle)]);
    let mut east = engage_small(&world, "east");
    let mut west = world.engage("west", 1);
    world.hold_active("east", 1);
    world.hold_active("west", 1);
    let west_list = west.expect(MAPS).await.list(5, &objects(2));
    world.wait_entries(4).await;
    let quarantined =
        || world.metric(r#"leasehold_cluster_quarantined{cluster="east",reason="objects"}"#);
    for (times, pause) in [(1, 15), (2, 30), (3, 60)] {
        let stream = east.expect(MAPS).await.watch();
        settle().await;
        // Only its first list is waited for.
        assert_eq!(world.status.readiness().ready, times > 1);
        objects(4).iter().for_each(|object| stream.event("ADDED", object));
        stream.hung_up().await;
        settle().await;
        let reason = failing(&world, "east").expect("it is reported");
        assert!(
            reason.contains("more than 3 objects") && reason.contains("budget.maxObjects"),
            "{reason}"
        );
        assert_eq!(quarantined(), "1");
        let status = world.status.quarantines().remove(0);
        assert_eq!((status.times, status.retry_seconds.is_some()), (times, true));
        let held = world.status.informers();
        assert!(held.iter().all(|one| one.cluster.as_str() == "west"), "nothing is kept: {held:?}");
        assert!(world.status.readiness().ready);
        east.quiet(Duration::from_secs(pause - 1)).await;
    }
    // The others notice nothing, and a cluster that keeps within its budget is served.
    west_list.event("ADDED", &config_map("m9", 9));
    world.wait_journal("end west/ns/m9@1").await;
    let before = world.journal().len();
    let _list = east.expect(MAPS).await.list(6, &objects(3));
    world.wait_entries(before + 6).await;
    assert_eq!((failing(&world, "east"), quarantined()), (None, "absent".to_owned()));
    assert_eq!(failing(&world, "west"), None);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_shard_can_be_handed_over_while_its_cluster_is_left_alone() {
    let world = World::start(vec![maps(idle)]);
    let mut east = engage_small(&world, "east");
    world.hold_active("east", 1);
    east.expect(MAPS).await.list(5, &objects(4)).hung_up().await;
    settle().await;
    world.drain("east", 1, Duration::from_secs(5));
    world.wait_acknowledged("east/g/0/1@1").await;
    world.hold("east", None);
    east.quiet(Duration::from_secs(600)).await;
    // Another kubeconfig is another chance.
    let mut anew = world.engage("east", 2);
    world.hold_active("east", 3);
    anew.expect(MAPS).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn keys_that_wait_for_owners_that_do_not_exist_are_charged() {
    let spec = Controller::for_kind::<ConfigMap>("maps").owns::<Secret>().reconciler(run(idle));
    let world = World::start(vec![spec]);
    let budget = Budget { max_cache_bytes: 1 << 20, ..Budget::default() };
    let (client, mut east) = server();
    world.engage_with("east", 1, client, Some(budget));
    world.hold_active("east", 1);
    // The primary kind is never listed, so that no shard is opened.
    let (mut asked, mut secrets) = (Vec::new(), None);
    for _ in 0..2 {
        let request = east.asked().await;
        if request.line.contains("/secrets") {
            secrets = Some(request.watch());
        } else {
            asked.push(request.watch());
        }
    }
    let secrets = secrets.expect("both kinds are listed");
    for number in 0..3000 {
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": format!("o-{number}"),
            "uid": format!("uid-{number}"), "controller": true});
        let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "ns",
            "name": "s", "uid": "s", "resourceVersion": (10 + number).to_string(),
            "ownerReferences": [owner]}});
        secrets.event(if number == 0 { "ADDED" } else { "MODIFIED" }, &object);
        settle().await;
    }
    secrets.hung_up().await;
    let reason = failing(&world, "east").expect("it is reported");
    assert!(reason.contains("budget.maxCacheBytes"), "{reason}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn keys_of_other_clusters_are_charged_to_the_cluster_that_names_them() {
    let east_key = |name: String| ObjectKey::new("east".parse().unwrap(), Some("ns"), &name);
    let spec = Controller::for_kind::<ConfigMap>("maps")
        .watches_across::<Secret>(move |secret: &Secret, lookup: &FleetLookup<'_>| {
            if lookup.cluster().as_str() != "hub" {
                return Vec::new();
            }
            let name = secret.metadata.name.clone().unwrap_or_default();
            (0..1000).map(|number| east_key(format!("{name}-{number}"))).collect()
        })
        .reconciler(run(idle));
    let world = World::start(vec![spec]);
    let budget = Budget { max_cache_bytes: 16 << 20, ..Budget::default() };
    let engage = async |name: &str| {
        let (client, mut server) = server();
        world.engage_with(name, 1, client, Some(budget));
        world.hold_active(name, 1);
        let (first, second) = (server.asked().await, server.asked().await);
        let is_primary = first.line.contains("/configmaps");
        let (maps, secrets) = if is_primary { (first, second) } else { (second, first) };
        (maps.watch(), secrets.watch(), server)
    };
    // The east is never listed to its end, so that nothing is taken out of its queue.
    let (in_east, _east_secrets, _east) = engage("east").await;
    let (in_hub, secrets, _hub) = engage("hub").await;
    in_hub.initial_end(5);
    secrets.initial_end(5);
    settle().await;
    let add = async |from: u64| {
        for number in from..from + 100 {
            in_east.event("ADDED", &config_map(&format!("m{number}"), 10 + number));
            settle().await;
        }
    };
    for number in 0..100 {
        let object = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "ns",
            "name": format!("s{number}"), "uid": format!("s{number}"),
            "resourceVersion": (10 + number).to_string()}});
        secrets.event("ADDED", &object);
        settle().await;
        if number == 10 {
            add(0).await;
        }
    }
    let reason = failing(&world, "hub").expect("it is reported");
    assert!(reason.contains("budget.maxCacheBytes"), "{reason}");
    // Nor are they the fault of the other when nobody is left to whom they can be charged.
    add(100).await;
    assert_eq!(failing(&world, "east"), None);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_goes_down_gets_no_other_chance_by_that() {
    let world = World::start(vec![maps(idle)]);
    let (client, mut east) = server();
    let budget = Some(Budget { max_objects: 3, ..Budget::default() });
    let cluster = Cluster { budget, ..Cluster::new("east".parse().unwrap(), client, 1) };
    world.engage_as(cluster.clone());
    world.hold_active("east", 1);
    east.expect(MAPS).await.list(5, &objects(4)).hung_up().await;
    settle().await;
    assert_eq!(world.status.quarantines()[0].times, 1);
    world.go_down("east");
    settle().await;
    // The same server, in another incarnation.
    world.engage_as(Cluster { incarnation: 2, ..cluster });
    east.quiet(Duration::from_secs(14)).await;
    east.expect(MAPS).await.list(5, &objects(4)).hung_up().await;
    settle().await;
    assert_eq!(world.status.quarantines()[0].times, 2);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn another_budget_holds_at_once_and_a_larger_one_ends_a_quarantine() {
    let world = World::start(vec![maps(idle)]);
    let (client, mut east) = server();
    let with = |max_objects| Some(Budget { max_objects, ..Budget::default() });
    let cluster = Cluster { budget: with(5), ..Cluster::new("east".parse().unwrap(), client, 1) };
    world.engage_as(cluster.clone());
    world.hold_active("east", 1);
    let list = east.expect(MAPS).await.list(5, &objects(4));
    world.wait_entries(8).await;
    world.engage_as(Cluster { budget: with(3), ..cluster.clone() });
    list.hung_up().await;
    settle().await;
    assert_eq!(world.status.quarantines()[0].times, 1);
    let began = world.clock.now();
    world.engage_as(Cluster { budget: with(4), ..cluster });
    let again = east.expect(MAPS).await;
    assert!(world.clock.now().since(began) < Duration::from_secs(1), "it waits for no pause");
    let _list = again.list(6, &objects(4));
    world.wait_entries(16).await;
    assert_eq!(failing(&world, "east"), None);
    world.stop().await;
}

/// Whoever changes a cluster's kubeconfig or identity again and again lets every list of it begin anew.
#[tokio::test(start_paused = true)]
async fn a_replica_that_has_been_ready_is_so_whatever_is_listed_later() {
    let world = World::start(vec![maps(idle)]);
    settle().await;
    assert!(world.status.is_ready(), "it holds nothing");
    let mut east = world.engage("east", 1);
    world.hold_active("east", 1);
    let first = east.expect(MAPS).await;
    assert!(!world.status.is_ready(), "its first lists are waited for");
    let _list = first.list(5, &objects(1));
    world.wait_entries(2).await;
    assert!(world.status.is_ready());
    for incarnation in 2..5 {
        let mut east = world.engage("east", incarnation);
        let _stream = east.expect(MAPS).await.watch();
        settle().await;
        let readiness = world.status.readiness();
        assert!(readiness.ready && world.status.is_ready(), "{readiness:?}");
        assert_eq!(readiness.waiting, ["east/ConfigMap"]);
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    world.stop().await;
}

/// Nor can they keep a replica from being ready that has just started.
#[tokio::test(start_paused = true)]
async fn first_lists_that_begin_again_and_again_are_waited_for_a_minute() {
    let world = World::start(vec![maps(idle)]);
    world.hold_active("east", 1);
    for incarnation in 1..10 {
        let mut east = world.engage("east", incarnation);
        let _stream = east.expect(MAPS).await.watch();
        settle().await;
        assert_eq!(world.status.readiness().ready, incarnation > 6, "{incarnation}");
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_list_that_comes_to_no_end_keeps_nobody_unready_and_one_that_fails_is_reported() {
    let (world, mut east) = holding(vec![maps(idle)], 1);
    let stream = east.expect(MAPS).await.watch();
    for _ in 0..12 {
        stream.event("ADDED", &config_map("m1", 1));
        assert!(!world.status.readiness().ready, "it is waited for");
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    let readiness = world.status.readiness();
    assert!(
        readiness.ready && readiness.failing[0].contains("not ended within 60s"),
        "{readiness:?}"
    );
    assert_eq!(failing(&world, "east"), None, "it may be long");
    stream.text("no event");
    for _ in 0..6 {
        let stream = east.asked().await.watch();
        stream.text("no event");
        stream.hung_up().await;
    }
    // By now it is asked for pages.
    tokio::time::sleep(Duration::from_secs(30)).await;
    let reason = failing(&world, "east").expect("it is reported");
    assert!(reason.starts_with("its ConfigMap cannot be listed or watched"), "{reason}");
    world.stop().await;
}
