//! How sources are watched: with predicates of their own, in several namespaces, and by every owner.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
use serde_json::{Value, json};

use super::ranges::{HIGH, LOW, held, low, names, reconciled, set, watch};
use super::world::{SECRETS, World, holding, holding_shard, idle, run, settle};
use crate::{Action, Controller, Scope, Selector, Watch, mapping, predicate};
use engine::testing::{Server, config_map};

/// A Secret with these owners, of which the first controls it if `controlled`.
fn secret(name: &str, version: u64, owners: &[&str], controlled: bool) -> Value {
    let owners = owners.iter().enumerate().map(|(at, owner)| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner,
            "uid": format!("uid-{owner}"), "controller": controlled && at == 0})
    });
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "ns", "name": name,
        "uid": format!("uid-{name}"), "resourceVersion": version.to_string(),
        "ownerReferences": owners.collect::<Vec<_>>()}})
}

fn labelled(mut object: Value, label: &str) -> Value {
    object["metadata"]["labels"] = json!({"for": label});
    object
}

/// The keys that were run since the journal had `from` entries.
fn runs(world: &World, from: usize) -> Vec<String> {
    let journal = world.journal();
    let ended = journal[from..].iter().filter_map(|entry| entry.strip_prefix("end east/"));
    let mut names: Vec<_> =
        ended.map(|entry| entry.split('@').next().unwrap().to_owned()).collect();
    names.sort();
    names
}

#[tokio::test(start_paused = true)]
async fn each_source_has_predicates_of_its_own() {
    let owned = Watch::<Secret>::all()
        .labels("own".parse().unwrap())
        .predicate(predicate::finalizers_changed());
    let mapped = Watch::<Secret>::all()
        .labels("for".parse().unwrap())
        .predicate(predicate::label_changed("for"))
        .predicate(|_: Option<&Secret>, new: Option<&Secret>| new.is_some());
    let spec = Controller::for_kind::<ConfigMap>("maps")
        .owns_with(owned)
        .watches_with(mapped, mapping::named_by_label("for"))
        .reconciler(run(idle));
    let (world, mut server) = holding(vec![spec], 1);
    let maps = server.asked().await.list(5, &[config_map("a", 1), config_map("b", 1)]);
    let child = |version| secret("s", version, &["a"], true);
    let owned = server.asked().await.list(5, &[child(2)]);
    let mapped = server.asked().await.list(5, &[labelled(secret("m", 3, &[], false), "a")]);
    world.wait_entries(4).await;
    let after = async |event: &dyn Fn()| {
        let before = world.journal().len();
        event();
        settle().await;
        runs(&world, before).join(" ")
    };
    let finalized = |version, finalizer: &str| {
        let mut child = child(version);
        child["metadata"]["finalizers"] = json!([finalizer]);
        child
    };
    assert_eq!(after(&|| owned.event("MODIFIED", &child(6))).await, "");
    assert_eq!(after(&|| owned.event("MODIFIED", &finalized(7, "x.io/a"))).await, "ns/a");
    assert_eq!(after(&|| owned.event("MODIFIED", &finalized(8, "x.io/a"))).await, "");
    assert_eq!(after(&|| owned.event("DELETED", &finalized(9, "x.io/a"))).await, "ns/a");
    let named = |version, label| labelled(secret("m", version, &[], false), label);
    assert_eq!(after(&|| mapped.event("MODIFIED", &named(10, "a"))).await, "");
    assert_eq!(after(&|| mapped.event("MODIFIED", &named(11, "b"))).await, "ns/a ns/b");
    assert_eq!(after(&|| mapped.event("DELETED", &named(12, "b"))).await, "", "both must hold");
    // They are no business of the primary's.
    assert_eq!(after(&|| maps.event("MODIFIED", &config_map("b", 13))).await, "ns/b");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_name_is_mapped_though_nobody_can_decode_its_object() {
    let spec = Controller::for_kind::<ConfigMap>("maps")
        .index("name", |map: &ConfigMap| map.metadata.name.clone().into_iter().collect())
        .watches_names(Watch::<Secret>::all(), |(_, name), lookup| {
            lookup.indexed_names::<ConfigMap>("name", &name)
        })
        .reconciler(run(idle));
    let (world, mut server) = holding(vec![spec], 1);
    let _maps = server.asked().await.list(5, &[config_map("a", 1), config_map("b", 1)]);
    let unfit = |version| {
        let mut secret = secret("a", version, &[], false);
        secret["data"] = json!({"key": ["no text"]});
        secret
    };
    let secrets = server.asked().await.list(5, &[unfit(2)]);
    world.wait_entries(4).await;
    let before = world.journal().len();
    secrets.event("MODIFIED", &unfit(6));
    settle().await;
    assert_eq!(runs(&world, before), ["ns/a"]);
    world.stop().await;
}

fn in_namespace(mut object: Value, namespace: &str) -> Value {
    object["metadata"]["namespace"] = namespace.into();
    object["metadata"]["uid"] = format!("uid-{namespace}-{}", object["metadata"]["name"]).into();
    object
}

/// The streaming list of a kind in a namespace.
fn list_in(kind: &str, namespace: &str) -> String {
    let path = format!("GET /api/v1/namespaces/{namespace}/{kind}");
    format!("{path} watch=true&sendInitialEvents=true&resourceVersion=")
}

#[tokio::test(start_paused = true)]
async fn several_namespaces_are_watched_each_by_itself_and_read_as_one() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&seen);
    let elsewhere = Scope { namespace: Some("system".into()), ..Scope::default() };
    let spec = Controller::for_kind::<ConfigMap>("maps")
        .namespaces(["web", "api"])
        .index("name", |map: &ConfigMap| map.metadata.name.clone().into_iter().collect())
        .owns::<Secret>()
        .watches_with::<Secret>(elsewhere, |_, _| Vec::new())
        .watches::<Node>(|_, _| Vec::new())
        .reconciler(run(move |ctx, key| {
            let place = |map: &Arc<ConfigMap>| map.metadata.namespace.clone().unwrap();
            let text =
                |maps: Vec<Arc<ConfigMap>>| maps.iter().map(place).collect::<Vec<_>>().join(",");
            let all = text(ctx.list(None, &Selector::all()).unwrap());
            let api = text(ctx.list(Some("api"), &Selector::all()).unwrap());
            let other = text(ctx.list(Some("other"), &Selector::all()).unwrap());
            let indexed = text(ctx.indexed("name", "a").unwrap());
            let found = ctx.get::<ConfigMap>(key.namespace.as_deref(), &key.name).unwrap().unwrap();
            let children = ctx.owned_by::<Secret>(found.metadata.uid.as_deref().unwrap()).unwrap();
            let line = format!("{all} {api} [{other}] {indexed} {}", children.len());
            noted.lock().unwrap().push(format!("{key}: {line}"));
            std::future::ready(Ok(Action::Done)).boxed()
        }));
    let (world, mut server) = holding(vec![spec], 1);
    let mut child = in_namespace(secret("s", 2, &["a"], true), "web");
    child["metadata"]["ownerReferences"][0]["uid"] = r#"uid-web-"a""#.into();
    let mut open = Vec::new();
    for (kind, namespace, objects) in [
        ("configmaps", "api", vec![in_namespace(config_map("a", 1), "api")]),
        ("configmaps", "web", vec![in_namespace(config_map("a", 1), "web")]),
        ("secrets", "api", vec![]),
        ("secrets", "web", vec![child]),
        ("secrets", "system", vec![]),
    ] {
        open.push(server.expect(&list_in(kind, namespace)).await.list(5, &objects));
        settle().await;
        assert!(world.journal().is_empty(), "nothing runs before all have synced");
    }
    assert_eq!(world.status.readiness().waiting, ["east/Node"]);
    let nodes = "GET /api/v1/nodes watch=true&sendInitialEvents=true&resourceVersion=";
    open.push(server.expect(nodes).await.list(5, &[]));
    world.wait_entries(4).await;
    let mut lines = seen.lock().unwrap().clone();
    lines.sort();
    assert_eq!(
        lines,
        ["east/api/a: api,web api [] api,web 0", "east/web/a: api,web api [] api,web 1"]
    );
    let namespaces: Vec<_> = world
        .status
        .informers()
        .into_iter()
        .map(|one| format!("{} {}", one.kind, one.namespace.unwrap_or_default()))
        .collect();
    assert_eq!(
        namespaces,
        ["ConfigMap api", "ConfigMap web", "Node ", "Secret api", "Secret system", "Secret web"]
    );
    // A change in one of them.
    open[1].event("MODIFIED", &in_namespace(config_map("a", 6), "web"));
    world.wait_entries(6).await;
    assert_eq!(runs(&world, 4), ["web/a"]);
    world.stop().await;
}

/// A controller that follows every owner of Secrets and counts those of each object.
fn by_every_owner() -> (crate::ControllerSpec, Arc<Mutex<Vec<String>>>) {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&seen);
    let spec = Controller::for_kind::<ConfigMap>("maps")
        .owns_with(Watch::<Secret>::all().every_owner())
        .reconciler(run(move |ctx, key| {
            let uid = format!("uid-{}", key.name);
            let dependents = ctx.dependents::<Secret>(&uid).unwrap().len();
            let controlled = ctx.owned_by::<Secret>(&uid).unwrap().len();
            noted.lock().unwrap().push(format!("{} {dependents} {controlled}", key.name));
            std::future::ready(Ok(Action::Done)).boxed()
        }));
    (spec, seen)
}

#[tokio::test(start_paused = true)]
async fn every_owner_of_the_kind_is_followed_where_that_is_asked_for() {
    let (spec, seen) = by_every_owner();
    let (world, mut server) = holding(vec![spec], 1);
    let maps = ["a", "b", "c"].map(|name| config_map(name, 1));
    let _maps = server.asked().await.list(5, &maps);
    // One is left over by an owner that is gone; the first look says so, for nobody else would.
    let objects = [secret("s", 2, &["a", "b"], true), secret("t", 3, &["a", "gone"], true)];
    let secrets = server.expect(SECRETS).await.list(5, &objects);
    settle().await;
    let take = || {
        let mut lines = std::mem::take(&mut *seen.lock().unwrap());
        lines.sort();
        lines
    };
    assert_eq!(take(), ["a 2 2", "b 1 0", "c 0 0", "gone 1 0"]);
    secrets.event("MODIFIED", &secret("s", 6, &["a", "c"], false));
    settle().await;
    assert_eq!(take(), ["a 2 1", "b 0 0", "c 1 0"], "those before and those after");
    let mut pods = secret("u", 7, &["b"], false);
    pods["metadata"]["ownerReferences"][0]["kind"] = "Pod".into();
    secrets.event("ADDED", &pods);
    settle().await;
    assert!(take().is_empty(), "an owner of another kind");
    secrets.event("DELETED", &secret("s", 8, &["a", "c"], false));
    settle().await;
    assert_eq!(take(), ["a 1 1", "c 0 0"]);
    world.stop().await;
}

/// Answers the first lists of a member that holds half of the cluster.
async fn listed(server: &mut Server, low_half: bool, secrets: &[Value]) -> engine::testing::Watch {
    let (low_names, high_names) = names(20);
    let all = [super::ranges::all(&low_names, 1), super::ranges::all(&high_names, 1)].concat();
    let list = server.asked().await;
    assert!(list.line.contains("shardSelector"), "{}", list.line);
    assert_eq!(list.line == low("configmaps"), low_half);
    list.page(5, "", &all);
    let secrets = server.expect(SECRETS).await.list(5, secrets);
    std::mem::forget(server.expect(&watch("configmaps", 5)).await.watch());
    secrets
}

#[tokio::test(start_paused = true)]
async fn every_owner_is_followed_where_a_cluster_is_divided() {
    let (low_names, high_names) = names(20);
    let (low_one, high_one) = (low_names[0].as_str(), high_names[0].as_str());
    let both = secret("s", 2, &[low_one, high_one], true);
    for (shard, ours, others) in [(LOW, low_one, high_one), (HIGH, high_one, low_one)] {
        let (spec, _) = by_every_owner();
        let (world, mut server) = holding_shard(vec![spec], shard, 1);
        let secrets = listed(&mut server, shard == LOW, std::slice::from_ref(&both)).await;
        settle().await;
        assert_eq!(held(&world, "Secret"), "0/1 none 1", "all of the kind is there");
        let half = if shard == LOW { &low_names } else { &high_names };
        assert_eq!(reconciled(&world), set(half));
        let before = world.journal().len();
        // Who controls it changes sides; each member looks after the owner that is its own.
        secrets.event("MODIFIED", &secret("s", 6, &[high_one, low_one], true));
        settle().await;
        assert_eq!(runs(&world, before), [format!("ns/{ours}")]);
        secrets.event("MODIFIED", &secret("s", 7, &[others], false));
        settle().await;
        assert_eq!(runs(&world, before).len(), 2, "it was ours until now");
        secrets.event("MODIFIED", &secret("s", 8, &[others], true));
        settle().await;
        assert_eq!(runs(&world, before).len(), 2, "and is no more");
        server.quiet(Duration::from_secs(60)).await;
        world.stop().await;
    }
}

#[test]
#[should_panic(expected = "only owns_with follows owners")]
fn what_is_mapped_has_no_owners_to_follow() {
    let _ = Controller::for_kind::<ConfigMap>("maps")
        .watches_with(Watch::<Secret>::all().every_owner(), mapping::namesake());
}
