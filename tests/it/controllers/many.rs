//! A thousand objects of the smallest controllers: each costs the necessary requests once, then
//! none.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apiserver::faults::{Fault, Request};
use controllers::blogpost::api::BlogPostSpec;
use controllers::restartpods::annotation::{RESTART_PODS, record};
use controllers::{BlogPost, Memcached};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ListParams, PostParams};
use leasehold::testing::TestEnv;
use serde_json::json;

use super::merge;

const MANY: usize = 1_000;
/// Longer than a thousand objects of any kind take here.
const AMPLE: Duration = Duration::from_secs(120);

/// Requests of the manager, as `verb resource/subresource`, without lists and watches.
#[derive(Clone, Debug, Default)]
struct Asked(Arc<Mutex<BTreeMap<String, usize>>>);

impl Asked {
    fn of(env: &TestEnv) -> Self {
        let asked = Self::default();
        let counted = asked.clone();
        env.set_faults(move |request: &Request| {
            let Request { verb, resource, subresource, user_agent, .. } = request;
            if user_agent.starts_with("leasehold/") && !matches!(*verb, "list" | "watch") {
                let what = format!("{verb} {resource}/{subresource}");
                *counted.0.lock().unwrap().entry(what).or_default() += 1;
            }
            Fault::None
        });
        asked
    }

    /// The requests since the last call.
    fn taken(&self) -> BTreeMap<String, usize> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// Checks that there are no requests in an hour, nor from a new manager.
async fn rests(env: &mut TestEnv, name: &str, asked: &Asked) {
    rests_but(env, name, asked, BTreeMap::new()).await;
}

/// Checks that there are no requests in an hour, and only these from a new manager.
async fn rests_but(env: &mut TestEnv, name: &str, asked: &Asked, first: BTreeMap<String, usize>) {
    env.pass(Duration::from_secs(3_600)).await;
    assert_eq!(asked.taken(), BTreeMap::new());
    env.stop().await;
    env.run(controllers::build(name, 4));
    env.pass(Duration::from_secs(600)).await;
    assert_eq!(asked.taken(), first);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_posts_are_a_thousand_writes_and_events() {
    let mut env = TestEnv::builder().crds(controllers::crds()).start().await;
    let posts: Api<BlogPost> = env.api("default");
    for number in 0..MANY {
        let spec = BlogPostSpec { title: Some(format!("Post {number}")), author: None };
        let post = BlogPost::new(&format!("post-{number}"), spec);
        posts.create(&PostParams::default(), &post).await.unwrap();
    }
    let asked = Asked::of(&env);
    env.run(controllers::build("blogpost", 4));
    env.pass(AMPLE).await;
    let published = |post: &BlogPost| post.status.as_ref()?.published_at.clone();
    let posts = posts.list(&ListParams::default()).await.unwrap().items;
    assert!(posts.iter().all(|post| published(post).is_some()));
    let once = asked.taken();
    let expected = [("create events/", MANY), ("update blogposts/status", MANY)];
    assert_eq!(once, expected.map(|(what, count)| (what.to_owned(), count)).into());
    rests(&mut env, "blogpost", &asked).await;
}

#[tokio::test(start_paused = true)]
async fn a_thousand_annotated_config_maps_restart_what_they_name_once_each() {
    const DEPLOYMENTS: usize = 100;
    let mut env = TestEnv::builder().start().await;
    let maps: Api<ConfigMap> = env.api("default");
    for number in 0..DEPLOYMENTS {
        let name = format!("app-{number}");
        let template = json!({"metadata": {"labels": {"app": name}}, "spec": {"containers": [
            {"name": "app", "image": "app:1"},
        ]}});
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": name}}, "template": template},
        });
        env.apply(&deployment.to_string()).await;
    }
    for number in 0..MANY {
        let selector = format!("app=app-{number}");
        let map = serde_json::from_value(json!({
            "metadata": {"name": format!("map-{number}"), "annotations": {RESTART_PODS: selector}},
            "data": {"version": "1"},
        }));
        maps.create(&PostParams::default(), &map.unwrap()).await.unwrap();
    }
    let asked = Asked::of(&env);
    env.run(controllers::build("restart-pods", 4));
    let restarts = async |env: &TestEnv| {
        env.pass(AMPLE).await;
        let maps = maps.list(&ListParams::default()).await.unwrap().items;
        let records: Vec<_> = maps.iter().map(|map| record(&map.metadata).record).collect();
        assert!(records.iter().all(|record| record.hash.is_some() && record.pending.is_none()));
        records.iter().map(|record| record.restarts).sum::<i64>()
    };
    assert_eq!(restarts(&env).await, 0);
    let first = asked.taken();
    assert_eq!(first["patch configmaps/"], MANY, "{first:?}");
    assert!(first.values().sum::<usize>() <= 2 * MANY, "each is read once more: {first:?}");

    for number in 0..MANY {
        merge(&maps, &format!("map-{number}"), json!({"data": {"version": "2"}})).await;
    }
    assert_eq!(restarts(&env).await, DEPLOYMENTS as i64);
    let change = asked.taken();
    println!("for a change of each of {MANY} ConfigMaps: {change:?}");
    assert_eq!(change["patch deployments/"], DEPLOYMENTS, "the others name no Pods: {change:?}");
    // Seen and done; where there is something to restart also decided, and begun if it is not done at once.
    let records = 2 * MANY + 2 * DEPLOYMENTS;
    assert!(change["patch configmaps/"] <= records, "{change:?}");
    let deployments: Api<Deployment> = env.api("default");
    for deployment in deployments.list(&ListParams::default()).await.unwrap() {
        assert_eq!(deployment.metadata.generation, Some(2), "changed once");
    }
    // A record in an annotation cannot name the version that it makes: a new manager reads each content once.
    let reads = BTreeMap::from([("get configmaps/".to_owned(), MANY)]);
    rests_but(&mut env, "restart-pods", &asked, reads).await;
}

/// Each costs three children, an Event, and a few writes of its status while its nodes come.
#[tokio::test(start_paused = true)]
async fn a_thousand_memcacheds_are_made_once_and_then_rest() {
    const SIZE: usize = 2;
    let mut env = TestEnv::builder().crds(controllers::crds()).start().await;
    let memcacheds: Api<Memcached> = env.api("default");
    for number in 0..MANY {
        let spec = serde_json::from_value(json!({"size": SIZE})).unwrap();
        let memcached = Memcached::new(&format!("cache-{number}"), spec);
        memcacheds.create(&PostParams::default(), &memcached).await.unwrap();
    }
    let asked = Asked::of(&env);
    env.run(controllers::build("memcached", 4));
    let listed = async |env: &TestEnv| {
        env.pass(AMPLE).await;
        let found = memcacheds.list(&ListParams::default()).await.unwrap().items;
        let nodes = found.iter().filter_map(|memcached| memcached.status.as_ref());
        nodes.map(|status| status.nodes.len()).sum::<usize>()
    };
    assert_eq!(listed(&env).await, SIZE * MANY);
    let made = asked.taken();
    println!("for {MANY} Memcacheds: {made:?}");
    for child in ["services", "statefulsets", "poddisruptionbudgets"] {
        assert_eq!(made[&format!("patch {child}/")], MANY, "{made:?}");
    }
    assert_eq!(made["create events/"], MANY, "{made:?}");
    // Written, nodes that exist, nodes that are ready: at most one write for each step.
    assert!(made["update memcacheds/status"] <= 8 * MANY, "{made:?}");
    rests(&mut env, "memcached", &asked).await;
}
