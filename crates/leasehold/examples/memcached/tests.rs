use kube::CustomResourceExt;
use leasehold::testing::TestEnv;

use super::*;

#[tokio::test(start_paused = true)]
async fn size_becomes_pods() {
    let mut env = TestEnv::builder().crd(Memcached::crd()).start().await;
    env.run([controller()]);
    env.apply(EXAMPLE).await;
    let run = |size| move |m: &Memcached| m.status.as_ref().is_some_and(|s| s.pods.len() == size);
    env.until_object(&env.api("default"), "cache", run(3)).await;
    env.apply(&EXAMPLE.replace("size: 3", "size: 1")).await;
    env.until_object(&env.api("default"), "cache", run(1)).await;
}
