//! The clients' Pods: where they run, that another version's take over on the same host, and that several share one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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
    world.defaults(data).await;
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

/// Waits until the Tunnel says this of its clients.
async fn counted(world: &World, message: &str) -> Tunnel {
    let told = |tunnel: &Tunnel| {
        let conditions = tunnel.status.iter().flat_map(|status| &status.conditions);
        conditions.into_iter().any(|found| found.type_ == "Clients" && found.message == message)
    };
    world.env.until_object(&world.tunnels(), NAME, told).await
}

#[tokio::test(start_paused = true)]
async fn another_number_of_clients_is_another_host_and_the_present_one_serves_until_then() {
    let world = World::running().await;
    let deployments: Api<Deployment> = world.env.api(NAMESPACE);
    let (first, one) =
        (world.example().await.status.unwrap(), deployments.get(CLIENT).await.unwrap());
    world.defaults(json!({"clients": "2"})).await;
    let mut most = 0;
    for _ in 0..12 {
        world.env.pass(Duration::from_secs(10)).await;
        most = most.max(world.hosts().len());
        assert!(ingress(&world.services().get(SERVICE).await.unwrap()).is_some());
    }
    assert_eq!(most, 2, "the other is made first");
    let second =
        counted(&world, "2 of 2 clients are running; the host does not say how many are connected")
            .await
            .status
            .unwrap();
    assert_ne!((&second.host_id, &second.host_ip), (&first.host_id, &first.host_ip));
    world.served().await;
    let other = format!("{CLIENT}-1");
    for name in [CLIENT, &other] {
        let found = deployments.get(name).await.unwrap();
        assert_eq!(found.spec.replicas, Some(1));
        let pod = found.spec.template.spec.unwrap();
        assert_eq!(pod.topology_spread_constraints.unwrap().len(), 1);
        assert_eq!(
            pod.volumes.unwrap()[0].secret.as_ref().unwrap().secret_name.as_deref(),
            Some(name)
        );
    }
    let told = [world.client_config(CLIENT).await, world.client_config(&other).await];
    for (client, told) in told.iter().enumerate() {
        assert!(told.contains(&format!("[client.services.tcp-80-{client}]")), "{told}");
        let check = format!("local_addr = \"{}:2334\"", second.host_ip.as_deref().unwrap());
        assert!(told.contains(&check), "{told}");
    }
    world.rests().await;
    assert_eq!(world.hosts().len(), 1);

    world.defaults(json!({"clients": null})).await;
    let rests = |found: &Deployment| found.spec.replicas == Some(0);
    world.env.until_object(&deployments, &other, rests).await;
    world.until_status(|now| now.host_id != second.host_id && now.conditions.len() == 1).await;
    world.served().await;
    world.env.pass(Duration::from_secs(60)).await;
    assert_eq!(world.hosts().len(), 1);
    assert!(!world.client_config(CLIENT).await.contains("tcp-80-0"));
    let found = deployments.get(CLIENT).await.unwrap().spec;
    assert_eq!(found.selector, one.spec.selector);
    assert!(found.template.spec.unwrap().topology_spread_constraints.is_none());
    world.rests().await;

    world.defaults(json!({"clients": "4"})).await;
    let told = reason(&world.env, "InvalidDefaults").await.status.unwrap().conditions;
    assert!(told[1].message.contains("clients is \"4\""), "{}", told[1].message);
}

/// The host knows who is connected, which no Pod shows.
#[tokio::test(start_paused = true)]
async fn a_tunnel_says_how_many_of_its_clients_are_connected() {
    let mut world = world("digitalocean", DIGITALOCEAN, Machines::default()).await;
    world.defaults(json!({"clients": "2"})).await;
    // With none it does not answer.
    let live = Arc::new(AtomicUsize::new(2));
    let shown = Arc::clone(&live);
    let settings = settings(&world.cloud);
    let probe = settings.probe.clone().asking(move |to| {
        let live = shown.load(Ordering::SeqCst);
        async move { Some(live).filter(|live| *live > 0 && to.port() == 2334) }.boxed()
    });
    world.env.run(parts(2, &Settings { probe, ..settings }));
    let first = world.example().await.status.unwrap();
    counted(&world, "2 of 2 clients are connected").await;
    world.rests().await;
    for (now, message) in [
        (1, "1 of 2 clients is connected"),
        (0, "2 of 2 clients are running; the host does not say how many are connected"),
        (2, "2 of 2 clients are connected"),
    ] {
        live.store(now, Ordering::SeqCst);
        world.env.pass(Duration::from_secs(60)).await;
        let told = counted(&world, message).await.status.unwrap();
        assert_eq!((told.host_id, told.host_ip), (first.host_id.clone(), first.host_ip.clone()));
        world.served().await;
        world.rests().await;
    }
}

/// What has the name of another client is left alone.
#[tokio::test(start_paused = true)]
async fn a_deployment_of_others_is_no_client() {
    let world = World::running().await;
    let first = world.example().await.status.unwrap();
    let deployments: Api<Deployment> = world.env.api(NAMESPACE);
    let other = format!("{CLIENT}-1");
    let foreign = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": other, "namespace": NAMESPACE},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "x"}},
            "template": {
                "metadata": {"labels": {"app": "x"}},
                "spec": {"containers": [{"name": "x", "image": "x"}]},
            },
        },
    });
    world.env.apply(&foreign.to_string()).await;
    world.defaults(json!({"clients": "2"})).await;
    let told = reason(&world.env, "NameTaken").await.status.unwrap();
    assert!(told.conditions[1].message.contains(&other), "{}", told.conditions[1].message);
    assert_eq!(told.host_id, first.host_id);
    world.rests().await;
    assert_eq!(world.hosts().len(), 1);
    let found = deployments.get(&other).await.unwrap();
    assert_eq!(found.spec.template.spec.unwrap().containers[0].image.as_deref(), Some("x"));
    // The first client serves on.
    assert_eq!(world.served().await.status.unwrap().host_ip, first.host_ip);
}

/// The host counts it as connected, for its own question comes through it.
#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_reach_the_service_is_told_and_takes_no_address_away() {
    let mut world = world("digitalocean", DIGITALOCEAN, Machines::default()).await;
    world.defaults(json!({"clients": "2"})).await;
    let count = Arc::new(AtomicUsize::new(0));
    let probe = Probe::through(move |_| {
        // Each connection is led to the other client.
        let passes = count.fetch_add(1, Ordering::SeqCst).is_multiple_of(2);
        async move { if passes { Ok(()) } else { Err("closed".to_owned()) } }.boxed()
    });
    let probe = probe.asking(|_| async { Some(2) }.boxed());
    world.env.run(parts(2, &Settings { probe, ..settings(&world.cloud) }));
    let first = world.example().await.status.unwrap();
    let message = "2 of 2 clients are connected; 1 of 2 connections comes through: a client does not reach the \
                   Service";
    let told = counted(&world, message).await.status.unwrap();
    assert!(told.conditions.iter().any(|one| one.type_ == "Clients" && one.status == "False"));
    for _ in 0..60 {
        world.env.pass(Duration::from_secs(10)).await;
        assert_eq!(ingress(&world.services().get(SERVICE).await.unwrap()), first.host_ip);
    }
    world.rests().await;
}

/// As by a quota of Deployments, or a policy.
fn refuse(env: &TestEnv) {
    refuse_patches(env, Reason::Forbidden, "exceeded quota", |request| {
        is_client(request) && request.name == format!("{CLIENT}-1")
    });
}

const REFUSED: &str = "1 of 2 clients is running; the host does not say how many are connected; the API server refuses \
     Deployment nginx-1-tunnel-client-1: exceeded quota; change the policy, quota or right that refuses it; it is tried again every minute";

#[tokio::test(start_paused = true)]
async fn a_client_that_the_api_server_refuses_leaves_the_others_as_they_are() {
    let world = World::running().await;
    let deployments: Api<Deployment> = world.env.api(NAMESPACE);
    let first = world.example().await.status.unwrap();
    refuse(&world.env);
    world.defaults(json!({"clients": "2"})).await;
    let (mut templates, mut known) = (0, None);
    for _ in 0..60 {
        world.env.pass(Duration::from_secs(5)).await;
        let template = Some(deployments.get(CLIENT).await.unwrap().spec.template);
        templates += usize::from(template != known);
        known = template;
    }
    assert!(templates <= 2, "its Pod was replaced {} times", templates - 1);
    let second = counted(&world, REFUSED).await.status.unwrap();
    assert_ne!(second.host_id, first.host_id);
    assert_eq!(world.hosts().len(), 1);
    world.served().await;
    world.rests().await;
    world.env.end_faults();
    world.env.pass(Duration::from_secs(90)).await;
    counted(&world, "2 of 2 clients are running; the host does not say how many are connected")
        .await;

    // From the beginning.
    let mut fresh = super::world("digitalocean", DIGITALOCEAN, Machines::default()).await;
    fresh.defaults(json!({"clients": "2"})).await;
    refuse(&fresh.env);
    fresh.run();
    fresh.example().await;
    counted(&fresh, REFUSED).await;
    fresh.rests().await;
}

/// One more client and one less: another host each time, and whatever is interrupted goes on.
#[tokio::test(start_paused = true)]
async fn a_crash_while_the_number_of_clients_changes_leaves_one_host_with_its_clients() {
    let writes = at_every_write(async |crash| {
        let mut world = world("digitalocean", DIGITALOCEAN, lagging(Duration::from_secs(20))).await;
        world.run();
        world.example().await;
        world.env.stop().await;
        crash.watch(&world.env);
        watched(&world.cloud, &crash);
        let (settings, cloud) = (settings(&world.cloud), world.cloud.clone());
        let probe = settings.probe.clone().asking(|_| async { Some(2) }.boxed());
        let settings = Settings { probe, ..settings };
        let scenario = async |env: &TestEnv| {
            let defaults: Api<ConfigMap> = env.api("leasehold-system");
            let other = format!("{CLIENT}-1");
            for (clients, conditions) in [(json!("2"), 2), (json!(null), 1)] {
                let data = json!({"data": {"clients": clients}});
                merge(&defaults, "leasehold-tunnel", data).await;
                let is_so = |tunnel: &Tunnel| {
                    let status = tunnel.status.clone().unwrap_or_default();
                    status.conditions.len() == conditions
                        && status.conditions.iter().all(|one| one.status == "True")
                };
                env.until_object(&env.api::<Tunnel>(NAMESPACE), NAME, is_so).await;
                // One that lists did not show yet when the number changed again goes with the next look.
                for _ in 0..10 {
                    if cloud.machines(|machines| machines.alive().count()) == 1 {
                        break;
                    }
                    env.pass(Duration::from_secs(100)).await;
                }
            }
            let rests = |found: &Deployment| found.spec.replicas == Some(0);
            env.until_object(&env.api::<Deployment>(NAMESPACE), &other, rests).await;
        };
        crash.survived(&mut world.env, || parts(2, &settings), scenario).await;
        world.served().await;
        let [_] = world.hosts()[..] else { panic!("one host") };
        let most = world.cloud.machines(|machines| machines.most_at_once(TUNNEL_TAG));
        assert!(most <= 2, "{most}");
    })
    .await;
    assert!(writes >= 16, "{writes}");
}
