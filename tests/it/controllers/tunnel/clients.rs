//! The client's Pods: where they run, and that another version's take over on the same host.

use kube::api::PostParams;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_client_leaves_a_lost_node_soon_and_runs_where_its_image_does() {
    let world = World::running().await;
    let clients: Api<Deployment> = world.env.api(NAMESPACE);
    let first = world.example().await.status.unwrap();
    let pod = async || clients.get(CLIENT).await.unwrap().spec.template.spec.unwrap();
    let usual = pod().await;
    for toleration in usual.tolerations.clone().unwrap() {
        assert_eq!(toleration.toleration_seconds, Some(15), "{toleration:?}");
    }
    let affinity = serde_json::to_string(&usual.affinity).unwrap();
    assert!(affinity.contains(r#""key":"kubernetes.io/arch","operator":"In","values":["amd64"]"#));

    let data =
        json!({"clientImage": "registry.example/rathole:arm64", "clientPriorityClass": "high"});
    let defaults: Api<ConfigMap> = world.env.api("leasehold-system");
    merge(&defaults, "leasehold-tunnel", json!({"data": data})).await;
    let changed = |found: &Deployment| {
        let pod = found.spec.template.spec.as_ref().unwrap();
        pod.affinity.is_none() && pod.priority_class_name.as_deref() == Some("high")
    };
    world.env.until_object(&clients, CLIENT, changed).await;
    world.rests().await;
    assert_eq!(world.served().await.status.unwrap().host_id, first.host_id);
}

/// What an earlier version applied: no tolerations, no affinity.
#[tokio::test(start_paused = true)]
async fn an_upgrade_replaces_the_client_by_one_that_runs_and_keeps_the_host() {
    let mut world = World::running().await;
    let first = world.example().await.status.unwrap();
    let clients: Api<Deployment> = world.env.api(NAMESPACE);
    let now = clients.get(CLIENT).await.unwrap();
    world.env.stop().await;
    let mut before = now.clone();
    let pod = before.spec.template.spec.as_mut().unwrap();
    (pod.tolerations, pod.affinity) = (None, None);
    clients.replace(CLIENT, &PostParams::default(), &before).await.unwrap();
    world.run();
    let template = now.spec.template.clone();
    let upgraded =
        world.env.until_object(&clients, CLIENT, |found| found.spec.template == template).await;
    // The new Pod runs before the old one ends.
    let rolling = upgraded.spec.strategy.and_then(|strategy| strategy.rolling_update).unwrap();
    assert_eq!(serde_json::to_value(rolling).unwrap(), json!({"maxSurge": 1, "maxUnavailable": 0}));
    world.rests().await;
    let after = world.served().await.status.unwrap();
    assert_eq!((after.host_id, after.host_ip), (first.host_id, first.host_ip));
    assert_eq!(world.hosts().len(), 1);
}
