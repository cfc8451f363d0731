use kube::Api;
use leasehold::testing::TestEnv;

use super::*;

/// The objects of a cluster.
fn api(env: &TestEnv, cluster: &str) -> Api<DynamicObject> {
    let resource = Kind::of_crd(&settings()).unwrap().api_resource();
    Api::namespaced_with(env.cluster(cluster).client(), "default", &resource)
}

async fn env() -> TestEnv {
    let mut env =
        TestEnv::builder().clusters(["hub", "east", "west"]).crd(settings()).start().await;
    let kind = Kind::of_crd(&settings()).unwrap();
    env.run([controller(kind, "hub".parse().unwrap())]);
    env
}

/// Whether an object says that the sky has this colour.
fn sky(colour: &'static str) -> impl FnMut(&DynamicObject) -> bool {
    move |setting| setting.data.pointer("/data/sky").is_some_and(|sky| sky == colour)
}

#[tokio::test(start_paused = true)]
async fn what_is_in_the_hub_is_everywhere_and_goes_with_it() {
    let env = env().await;
    env.cluster("hub").apply(EXAMPLE).await;
    for cluster in ["east", "west"] {
        let copy = env.until_object(&api(&env, cluster), "colours", sky("blue")).await;
        assert!(copy.labels().contains_key(LABEL));
    }
    env.cluster("hub").apply(&EXAMPLE.replace("blue", "grey")).await;
    for cluster in ["east", "west"] {
        env.until_object(&api(&env, cluster), "colours", sky("grey")).await;
    }
    // A copy that somebody changed is put right, and one that somebody deleted is made again.
    env.cluster("east").apply(&EXAMPLE.replace("blue", "pink")).await;
    env.until_object(&api(&env, "east"), "colours", sky("grey")).await;
    api(&env, "west").delete("colours", &Default::default()).await.unwrap();
    env.until_object(&api(&env, "west"), "colours", sky("grey")).await;

    api(&env, "hub").delete("colours", &Default::default()).await.unwrap();
    for cluster in ["east", "west"] {
        env.until_gone(&api(&env, cluster), "colours").await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_not_a_copy_stays_as_it_is() {
    let env = env().await;
    env.cluster("east").apply(&EXAMPLE.replace("blue", "green")).await;
    env.cluster("hub").apply(EXAMPLE).await;
    env.until_object(&api(&env, "west"), "colours", sky("blue")).await;
    api(&env, "hub").delete("colours", &Default::default()).await.unwrap();
    env.until_gone(&api(&env, "west"), "colours").await;
    assert!(sky("green")(&api(&env, "east").get("colours").await.unwrap()));
}

#[test]
fn a_kind_is_read_from_the_command_line() {
    let path = |text| kind(text).map(|kind| kind.collection_path(Some("web")));
    let settings = "/apis/example.com/v1/namespaces/web/settings";
    assert_eq!(path("example.com/v1/Setting").as_deref(), Ok(settings));
    assert_eq!(path("/v1/ConfigMap").as_deref(), Ok("/api/v1/namespaces/web/configmaps"));
    assert!(path("v1/ConfigMap").is_err());
}
