//! BlogPost: published once, whatever happens.

use std::time::Duration;

use controllers::BlogPost;
use kube::Api;
use leasehold::testing::TestEnv;
use serde_json::json;

use super::crash::at_every_write;
use super::{Story, confine, merge, quiet, rights_of, tell};

const STORIES: &[Story] = &[
    ("the example is published once and then left alone", || Box::pin(example())),
    ("a post needs neither title nor author", || Box::pin(bare())),
    ("a crash at any write still publishes once", || Box::pin(crashes())),
];

const NAME: &str = "blog-post-1";

#[tokio::test(start_paused = true)]
async fn stories() {
    tell(STORIES).await;
}

async fn world() -> TestEnv {
    let env = TestEnv::builder().at("2026-11-21T10:00:00Z").crds(controllers::crds());
    let env = env.start().await;
    confine(&env, rights_of("blogpost"));
    env.apply(controllers::get("blogpost").unwrap().example).await;
    env
}

fn posts(env: &TestEnv) -> Api<BlogPost> {
    env.api("default")
}

async fn published(env: &TestEnv) -> String {
    let post = env.until_condition(&posts(env), NAME, "Ready").await;
    post.status.unwrap().published_at.unwrap()
}

async fn example() {
    let mut env = world().await;
    env.run(controllers::build("blogpost", 2));
    let at = published(&env).await;
    assert!(at.starts_with("2026-11-21T10:00:0"), "{at}");
    quiet(&env, Duration::from_secs(600)).await;

    merge(&posts(&env), NAME, json!({"spec": {"title": "Another title"}})).await;
    let observed = |post: &BlogPost| post.status.as_ref().unwrap().observed_generation == Some(2);
    env.until_object(&posts(&env), NAME, observed).await;
    assert_eq!(published(&env).await, at);
}

/// As users wrote the kind: no field is required.
async fn bare() {
    let mut env = TestEnv::builder().crds(controllers::crds()).start().await;
    for (name, spec) in [
        ("bare", json!({})),
        ("untitled", json!({"author": "A. Writer"})),
        ("anonymous", json!({"title": "On leases"})),
    ] {
        let post = json!({"metadata": {"name": name}, "spec": spec,
            "apiVersion": "iximiuz.com/v1alpha1", "kind": "BlogPost"});
        env.apply(&post.to_string()).await;
    }
    env.run(controllers::build("blogpost", 2));
    for name in ["bare", "untitled", "anonymous"] {
        let post = env.until_condition(&posts(&env), name, "Ready").await;
        assert!(post.status.unwrap().published_at.is_some());
    }
}

async fn crashes() {
    let writes = at_every_write(async |crash| {
        let mut env = world().await;
        crash.watch(&env);
        let controllers = || controllers::build("blogpost", 2).into_iter().collect();
        crash
            .survived(&mut env, controllers, async |env| {
                published(env).await;
            })
            .await;
        let at = published(&env).await;
        env.stop().await;
        env.pass(Duration::from_secs(60)).await;
        env.run(controllers());
        env.pass(Duration::from_secs(60)).await;
        assert_eq!(published(&env).await, at);
    })
    .await;
    assert!(writes >= 1, "the status: {writes}");
}
