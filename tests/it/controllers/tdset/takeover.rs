//! Whose a Deployment is: one of an earlier operator, of nobody, or of a TDSet that names another workload.
//! The stories are listed with the other trouble.

use std::time::Duration;

use controllers::TDSet;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, DeleteParams, PostParams};
use kube::{Resource, ResourceExt};
use leasehold::testing::TestEnv;
use serde_json::{Value, json};

use super::super::crash::at_every_write;
use super::super::{merge, quiet, reasons};
use super::trouble::{MORNING, has, stateful_set, to};
use super::{NAME, NAMESPACE, condition, deployments, example, replicas, sets, start, world};

/// A Deployment with another selector and another name of the container.
fn old(owner: Option<&TDSet>) -> Deployment {
    let mut deployment: Deployment = serde_json::from_value(json!({
        "metadata": {"name": NAME},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": NAME}},
            "template": {
                "metadata": {"labels": {"app": NAME}},
                "spec": {"containers": [{
                    "name": NAME, "image": "crccheck/hello-world",
                    "ports": [{"containerPort": 8000}],
                }]},
            },
        },
    }))
    .unwrap();
    let owner = owner.and_then(|set| set.controller_owner_ref(&()));
    deployment.metadata.owner_references = owner.map(|owner| vec![owner]);
    deployment
}

async fn taken_over(env: &TestEnv) {
    condition(env, "True", "ReplicasAvailable").await;
    let found = replicas(env, 5).await;
    assert_eq!(found.spec.selector.match_labels.unwrap(), [("app".into(), NAME.into())].into());
    let containers = found.spec.template.spec.unwrap().containers;
    assert_eq!((containers.len(), &*containers[0].name), (1, NAME));
    assert_eq!(found.metadata.owner_references.unwrap().len(), 1);
    quiet(env, Duration::from_secs(600)).await;
}

pub(super) async fn earlier_operator() {
    let builder = TestEnv::builder().at(MORNING).crds(controllers::crds()).namespace(NAMESPACE);
    let mut env = builder.start().await;
    env.apply(example()).await;
    let set = sets(&env).get(NAME).await.unwrap();
    deployments(&env).create(&PostParams::default(), &old(Some(&set))).await.unwrap();
    start(&mut env);
    taken_over(&env).await;
}

pub(super) async fn left_alone() {
    let env = world(MORNING).await;
    let made = deployments(&env).create(&PostParams::default(), &old(None)).await.unwrap();
    env.apply(example()).await;
    let set = condition(&env, "False", "Conflict").await;
    let told = set.status.unwrap().conditions.into_iter().find(|found| found.type_ == "Ready");
    assert!(told.unwrap().message.contains("set spec.adopt to take it over"));
    merge(&sets(&env), NAME, json!({"spec": {"adopt": true}})).await;
    taken_over(&env).await;
    assert_eq!(deployments(&env).get(NAME).await.unwrap().uid(), made.uid());
}

pub(super) async fn other_container() {
    let env = world(MORNING).await;
    deployments(&env).create(&PostParams::default(), &old(None)).await.unwrap();
    env.apply(example()).await;
    condition(&env, "False", "Conflict").await;
    merge(&sets(&env), NAME, json!({"spec": {"adopt": true, "container": {"name": "app"}}})).await;
    condition(&env, "False", "ContainersLeft").await;
    replicas(&env, 1).await;
    merge(&sets(&env), NAME, json!({"spec": {"container": {"name": NAME}}})).await;
    taken_over(&env).await;
    // Whoever made it owns that container too: it would stay beside another one.
    merge(&sets(&env), NAME, json!({"spec": {"container": {"name": "app"}}})).await;
    condition(&env, "False", "ContainersLeft").await;
    merge(&sets(&env), NAME, json!({"spec": {"container": {"name": NAME}}})).await;
    taken_over(&env).await;
}

async fn with_service() -> TestEnv {
    let env = world(MORNING).await;
    env.apply(example()).await;
    merge(&sets(&env), NAME, json!({"spec": {"service": {"port": 80}}})).await;
    let services: Api<Service> = env.api(NAMESPACE);
    env.until_object(&services, NAME, |_| true).await;
    condition(&env, "True", "ReplicasAvailable").await;
    env
}

async fn names(env: &TestEnv, kind: &str, name: &str) {
    let mut spec = to(kind, name);
    (spec["container"], spec["service"]) = (Value::Null, Value::Null);
    merge(&sets(env), NAME, json!({"spec": spec})).await;
}

pub(super) async fn renamed() {
    let env = with_service().await;
    let api = stateful_set(&env).await;
    names(&env, "StatefulSet", "db").await;
    has(&env, &api, 5).await;
    env.until_gone(&deployments(&env), NAME).await;
    env.until_gone(&env.api::<Service>(NAMESPACE), NAME).await;
    condition(&env, "True", "ReplicasAvailable").await;
    assert!(!reasons(&env, NAMESPACE).await.contains(&"Rejected".to_owned()));
}

pub(super) async fn released() {
    let env = with_service().await;
    names(&env, "Deployment", NAME).await;
    env.until_object(&deployments(&env), NAME, |found| found.owner_references().is_empty()).await;
    env.until_gone(&env.api::<Service>(NAMESPACE), NAME).await;
    condition(&env, "True", "ReplicasAvailable").await;
    quiet(&env, Duration::from_secs(600)).await;
    sets(&env).delete(NAME, &DeleteParams::default()).await.unwrap();
    env.until_gone(&sets(&env), NAME).await;
    env.pass(Duration::from_secs(60)).await;
    let found = replicas(&env, 5).await.spec.template.spec.unwrap().containers;
    assert_eq!(found.len(), 1, "it stays as it is");
}

#[tokio::test(start_paused = true)]
async fn a_crash_while_a_deployment_is_let_go_ends_alike() {
    let writes = at_every_write(async |crash| {
        let mut env = with_service().await;
        env.stop().await;
        let made = replicas(&env, 5).await.uid();
        names(&env, "Deployment", NAME).await;
        crash.watch(&env);
        let free = |found: &Deployment| found.owner_references().is_empty();
        crash
            .survived(
                &mut env,
                || controllers::build("tdset", 2),
                async |env| {
                    env.until_object(&deployments(env), NAME, free).await;
                    env.until_gone(&env.api::<Service>(NAMESPACE), NAME).await;
                    let told = |set: &TDSet| {
                        let seen =
                            set.status.as_ref().and_then(|status| status.observed_generation);
                        seen == set.metadata.generation
                    };
                    env.until_object(&sets(env), NAME, told).await;
                },
            )
            .await;
        condition(&env, "True", "ReplicasAvailable").await;
        assert_eq!(replicas(&env, 5).await.uid(), made);
        quiet(&env, Duration::from_secs(600)).await;
    })
    .await;
    assert!(writes >= 3, "the owner, the Service, the status: {writes}");
}
