use kube::CustomResourceExt;
use leasehold::testing::TestEnv;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_post_is_published() {
    let mut env = TestEnv::builder().crd(BlogPost::crd()).at("2026-01-01T12:00:00Z").start().await;
    env.run([controller()]);
    env.apply(include_str!("post.yaml")).await;
    let published = |post: &BlogPost| post.status.is_some();
    let post = env.until_object(&env.api("default"), "blog-post-1", published).await;
    let at = post.status.unwrap().published_at.unwrap();
    assert!(at.starts_with("2026-01-01T12:00:0"), "{at}");
}
