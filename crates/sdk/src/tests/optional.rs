//! Kinds that a cluster does not have, or that it does not allow us to watch.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use model::{Hold, Workload};
use serde_json::{Value, json};

use super::world::{MAPS, SECRETS, World, holding, holding_shard, idle, listed, run, settle};
use crate::{Action, Controller, ControllerSpec, Selector, Watch, mapping};
use engine::testing::{Server, Watch as Stream, config_map};
use engine::{Absence, AbsentSource};

fn secret(name: &str, version: u64, owner: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "ns", "name": name,
        "uid": format!("uid-{name}"), "resourceVersion": version.to_string(),
        "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": owner,
            "uid": format!("uid-{owner}"), "controller": true}]}})
}

type Seen = Arc<Mutex<Vec<String>>>;

/// A controller that does without Secrets, and notes what each run finds of them.
fn without(
    watched: impl FnOnce(Controller<ConfigMap>) -> Controller<ConfigMap>,
) -> (ControllerSpec, Seen) {
    let seen = Seen::default();
    let noted = Arc::clone(&seen);
    let spec = watched(Controller::for_kind("maps")).reconciler(run(move |ctx, key| {
        let found = ctx.list::<Secret>(None, &Selector::all()).unwrap().len();
        let there = ctx.available::<Secret>().unwrap();
        noted.lock().unwrap().push(format!("{} {there} {found}", key.name));
        std::future::ready(Ok(Action::Done)).boxed()
    }));
    (spec, seen)
}

fn owned() -> (ControllerSpec, Seen) {
    without(|controller| controller.owns_with(Watch::<Secret>::all().optional()))
}

fn take(seen: &Seen) -> Vec<String> {
    let mut lines = std::mem::take(&mut *seen.lock().unwrap());
    lines.sort();
    lines
}

/// Lists two ConfigMaps, and refuses Secrets with this status.
async fn refused(server: &mut Server, status: u16) -> Stream {
    let maps = [config_map("a", 1), config_map("b", 1)];
    let maps = server.expect(MAPS).await.list(5, &maps);
    server.expect(SECRETS).await.refuse(status, "No");
    maps
}

fn missing(world: &World, kind: &str, optional: bool) -> String {
    let labels =
        format!(r#"{{cluster="east",controller="maps",kind="{kind}",optional="{optional}"}}"#);
    world.metric(&format!("leasehold_source_missing{labels}"))
}

fn absent(world: &World) -> Vec<(bool, Absence)> {
    world
        .status
        .absent()
        .iter()
        .map(|AbsentSource { optional, absent, .. }| (*optional, *absent))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_controller_runs_without_an_optional_kind_and_joins_it_when_it_comes() {
    for (status, absence) in [(404, Absence::NotInstalled), (403, Absence::Forbidden)] {
        let (spec, seen) = owned();
        let (world, mut server) = holding(vec![spec], 1);
        let maps = refused(&mut server, status).await;
        world.wait_entries(4).await;
        assert_eq!(take(&seen), ["a false 0", "b false 0"]);
        let readiness = world.status.readiness();
        assert!(readiness.ready && readiness.failing.is_empty(), "{readiness:?}");
        assert_eq!(absent(&world), [(true, absence)]);
        assert_eq!(
            (missing(&world, "Secret", true), missing(&world, "ConfigMap", false)),
            ("1".into(), "absent".into())
        );
        assert!(world.meter.failing().is_empty(), "nothing is wrong with the cluster");
        // It goes on being asked for, and the controller goes on.
        let again = server.expect(SECRETS).await;
        maps.event("MODIFIED", &config_map("a", 6));
        world.wait_entries(6).await;
        assert_eq!(take(&seen), ["a false 0"]);
        // It comes, with a child that the reconciles before could not see.
        let secrets = again.list(7, &[secret("s", 3, "b")]);
        world.wait_entries(8).await;
        settle().await;
        assert_eq!(take(&seen), ["b true 1"]);
        assert_eq!((absent(&world), missing(&world, "Secret", true)), (vec![], "absent".into()));
        // From now on it is like any other.
        secrets.event("MODIFIED", &secret("s", 8, "b"));
        world.wait_entries(10).await;
        assert_eq!(take(&seen), ["b true 1"]);
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn everything_that_is_mapped_is_followed_up_when_its_kind_comes() {
    let watch =
        Watch::<Secret>::all().optional().predicate(|_: Option<&Secret>, _: Option<&Secret>| false);
    let (spec, seen) = without(|maps| maps.watches_with(watch, mapping::namesake()));
    let (world, mut server) = holding(vec![spec], 1);
    let _maps = refused(&mut server, 404).await;
    world.wait_entries(4).await;
    take(&seen);
    let named = ["a", "c"].map(|name| secret(name, 3, name));
    let secrets = server.expect(SECRETS).await.list(7, &named);
    world.wait_entries(6).await;
    secrets.event("MODIFIED", &secret("b", 8, "b"));
    settle().await;
    assert_eq!(take(&seen), ["a true 2"], "then the predicate is in force again");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn shards_that_come_while_the_kind_is_not_there_open_without_it() {
    let (low, _) = super::ranges::names(20);
    let (spec, seen) = owned();
    let (world, mut server) = holding_shard(vec![spec], super::ranges::LOW, 1);
    let all: Vec<_> = (0..20).map(|index| config_map(&format!("map-{index}"), 1)).collect();
    server.asked().await.page(5, "", &all);
    server.expect(SECRETS).await.refuse(404, "NotFound");
    let _live = server.asked().await;
    settle().await;
    assert_eq!(take(&seen).len(), low.len());
    world.hold_shards(&[(super::ranges::HIGH, Some((2, Hold::Active)))]);
    // The ConfigMaps are listed again; the Secrets, which nobody has, hold up nothing.
    let asked = [server.asked().await, server.asked().await];
    let [maps, _secrets] = if asked[0].line == MAPS {
        asked
    } else {
        let [a, b] = asked;
        [b, a]
    };
    let _maps = maps.list(6, &all);
    settle().await;
    assert_eq!(take(&seen).len(), 20 - low.len());
    assert_eq!(super::ranges::reconciled(&world).len(), 20);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_optional_kind_that_goes_is_said_to_be_gone_and_kept_as_it_was() {
    let (spec, seen) = owned();
    let (world, mut server, maps) = listed(vec![spec], 1, &["a"]).await;
    let secrets = server.expect(SECRETS).await.list(5, &[secret("s", 2, "a")]);
    world.wait_entries(2).await;
    assert_eq!(take(&seen), ["a true 1"]);
    secrets.broken();
    server.asked().await.refuse(404, "NotFound");
    server.expect(SECRETS).await.refuse(404, "NotFound");
    maps.event("MODIFIED", &config_map("a", 6));
    world.wait_entries(4).await;
    assert_eq!(take(&seen), ["a false 1"], "a refusal deletes nothing");
    assert_eq!(absent(&world), [(true, Absence::NotInstalled)]);
    // Installed again, and empty: now it is known to be gone.
    let _secrets = server.expect(SECRETS).await.list(9, &[]);
    world.wait_entries(6).await;
    assert_eq!(take(&seen), ["a true 0"]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_primary_kind_may_be_optional_too() {
    let spec =
        Controller::for_watch("maps", Watch::<ConfigMap>::all().optional()).reconciler(run(idle));
    let (world, mut server) = holding(vec![spec], 1);
    server.expect(MAPS).await.refuse(404, "NotFound");
    let again = server.expect(MAPS).await;
    settle().await;
    assert!(world.status.readiness().failing.is_empty() && world.journal().is_empty());
    let _maps = again.list(5, &[config_map("a", 1)]);
    world.wait_journal("end east/ns/a@1").await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_needed_keeps_the_controller_out_and_that_is_said() {
    // Another controller does without it, and runs.
    let (mut spec, seen) = owned();
    spec.name = "other".parse().unwrap();
    let needs = Controller::for_kind::<ConfigMap>("maps").owns::<Secret>().reconciler(run(idle));
    let (world, mut server) = holding(vec![needs, spec], 1);
    let _maps = refused(&mut server, 403).await;
    let again = server.expect(SECRETS).await;
    settle().await;
    assert_eq!(take(&seen), ["a false 0", "b false 0"]);
    assert_eq!(world.journal().len(), 4, "of the other alone");
    let readiness = world.status.readiness();
    assert!(readiness.failing[0].starts_with("east/Secret: 403 No"), "{readiness:?}");
    assert_eq!(absent(&world), [(false, Absence::Forbidden), (true, Absence::Forbidden)]);
    assert_eq!(missing(&world, "Secret", false), "1");
    let failing = world.meter.failing();
    let expect = "controller maps needs Secret, which may not be listed or watched; fix: give its user \
                  the rights (`leasehold clusters add` does, `leasehold doctor` names them)";
    assert_eq!(failing.values().map(|why| &**why).collect::<Vec<_>>(), [expect]);
    let _secrets = again.list(6, &[]);
    world.wait_entries(8).await;
    assert!(world.meter.failing().is_empty() && absent(&world).is_empty());
    assert_eq!(missing(&world, "Secret", false), "absent");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_series_of_a_missing_kind_goes_with_the_shard() {
    let (world, mut server) = holding(vec![owned().0], 1);
    let _maps = refused(&mut server, 404).await;
    world.wait_entries(4).await;
    assert_eq!(missing(&world, "Secret", true), "1");
    world.hold("east", None);
    settle().await;
    assert_eq!(missing(&world, "Secret", true), "absent");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn other_refusals_say_nothing_of_the_kind() {
    let (spec, seen) = owned();
    let (world, mut server, _maps) = listed(vec![spec], 1, &["a"]).await;
    for status in [401, 500, 405] {
        server.asked().await.refuse(status, "No");
        settle().await;
    }
    assert!(take(&seen).is_empty() && absent(&world).is_empty());
    assert_eq!(missing(&world, "Secret", true), "absent", "nobody knows");
    assert!(world.meter.failing().is_empty(), "it may pass");
    tokio::time::sleep(Duration::from_secs(30)).await;
    let failing = world.meter.failing();
    let reason = failing.values().next().expect("the controller does not run there");
    assert!(reason.starts_with("its Secret cannot be listed or watched"), "{reason}");
    world.stop().await;
}
