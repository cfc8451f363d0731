//! What the author of a Service or Tunnel must not get: other people's Secrets, hosts and money.

use std::sync::{Arc, Mutex};

use super::*;

/// A running controller, and where each of its requests to providers went.
async fn watched_world() -> (World, Arc<Mutex<Vec<String>>>) {
    let mut world = world("digitalocean", DIGITALOCEAN, Machines::default()).await;
    let asked = Arc::new(Mutex::new(Vec::new()));
    let (cloud, hosts) = (world.cloud.clone(), Arc::clone(&asked));
    let through = Http::through(move |request: Request<Bytes>| {
        hosts.lock().unwrap().push(request.uri().host().unwrap_or_default().to_owned());
        cloud.send(request)
    });
    let settings = Settings { http: through, ..settings(&world.cloud) };
    world.env.run(parts(2, &settings));
    (world, asked)
}

/// Somebody writes the Tunnel, with a port and one more field of their own.
async fn apply_own(world: &World, port: i32, (field, value): (&str, &str)) {
    let own = json!({
        "apiVersion": "inlets.inlets.dev/v1alpha1", "kind": "Tunnel",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {
            "serviceName": SERVICE, "ports": [{"port": port}], "provider": "digitalocean",
            "endpoint": DIGITALOCEAN, field: value,
        },
    });
    world.env.apply(&own.to_string()).await;
}

#[tokio::test(start_paused = true)]
async fn a_service_sends_no_secret_of_its_choice_anywhere() {
    let (world, asked) = watched_world().await;
    world
        .env
        .apply(
            "{apiVersion: v1, kind: Secret, metadata: {name: database, namespace: default}, \
             stringData: {password: hunter2}}\n---\n\
             {apiVersion: v1, kind: ConfigMap, metadata: {name: leasehold-tunnel, namespace: default}, \
             data: {provider: digitalocean, endpoint: 'https://evil.test/v2', tokenSecret: database, \
             tokenSecretKey: password}}",
        )
        .await;
    world.env.apply(controllers::get("tunnel").unwrap().example).await;
    world.served().await;
    for (annotations, message) in [
        (
            json!({
                "leasehold.dev/tunnel-endpoint": "https://evil.test/v2",
                "leasehold.dev/tunnel-token-secret": "database",
                "leasehold.dev/tunnel-token-secret-key": "password",
            }),
            "endpoint",
        ),
        (json!({"leasehold.dev/tunnel-endpoint": null}), "tokenSecretRef"),
    ] {
        let annotated = json!({"metadata": {"annotations": annotations}});
        // A new Tunnel: one whose host exists is still looked after where that is.
        world.tunnels().delete(NAME, &DeleteParams::default()).await.unwrap();
        merge(&world.services(), SERVICE, annotated).await;
        world.env.until_object(&world.tunnels(), NAME, tells("NotPermitted", message)).await;
    }
    assert!(asked.lock().unwrap().iter().all(|host| host == "cloud.test"));
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_not_the_tunnels_own_outlives_it() {
    let mut world = World::running().await;
    world.example().await;
    let [stranger] = world.hosts()[..] else { panic!("one host") };
    let example = controllers::get("tunnel").unwrap().example;
    world.env.apply(&example.replace("nginx-1", "thief")).await;
    let thief = "thief-tunnel";
    let tunnels = world.tunnels();
    let tunnel = world.env.until_object(&tunnels, thief, |tunnel| {
        tunnel.status.as_ref().is_some_and(|status| status.host_status == Some(HostStatus::Active))
    });
    let own = tunnel.await.status.and_then(|status| status.host_id).expect("its host");
    assert_ne!(own, stranger.to_string());
    // Nothing corrects the claim before the Tunnel is deleted.
    world.env.stop().await;
    let claim = Patch::Merge(json!({"status": {"hostID": stranger.to_string()}}));
    let claims = tunnels.patch_status(thief, &PatchParams::default(), &claim).await.unwrap();
    assert_eq!(claims.status.unwrap().host_id, Some(stranger.to_string()));
    world.services().delete("thief", &DeleteParams::default()).await.unwrap();
    let ends = |tunnel: &Tunnel| tunnel.metadata.deletion_timestamp.is_some();
    world.env.until_object(&tunnels, thief, ends).await;
    world.run();
    world.env.until_gone(&tunnels, thief).await;
    assert_eq!(world.hosts(), [stranger]);
}

/// Who may create Services and Tunnels need not be allowed to run any image.
#[tokio::test(start_paused = true)]
async fn a_tunnel_runs_no_image_of_its_choice() {
    let world = World::running().await;
    apply_own(&world, 80, ("clientImage", "evil.test/miner")).await;
    let refused = reason(&world.env, "NotPermitted").await;
    assert!(refused.status.unwrap().conditions[0].message.starts_with("clientImage"));
    world.defaults(json!({"clientImages": "other.test/rathole, evil.test/miner"})).await;
    reason(&world.env, "Connected").await;
}

/// A Deployment of others under the name of the client's.
fn theirs(labels: Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": CLIENT, "namespace": NAMESPACE},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "client", "image": "theirs"}]},
            },
        },
    })
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_takes_no_object_of_others() {
    let world = World::running().await;
    let theirs = [
        theirs(json!({"app": "theirs"})),
        json!({
            "apiVersion": "v1", "kind": "Secret", "stringData": {"token": "theirs"},
            "metadata": {"name": CREDENTIALS, "namespace": NAMESPACE},
        }),
    ];
    for object in &theirs {
        world.env.apply(&object.to_string()).await;
    }
    world.env.apply(controllers::get("tunnel").unwrap().example).await;
    for kind in ["Deployment", "Secret"] {
        world.env.until_object(&world.tunnels(), NAME, tells("NameTaken", kind)).await;
        world.rests().await;
        assert_eq!(world.hosts(), [0; 0], "{kind}");
        let clients: Api<Deployment> = world.env.api(NAMESPACE);
        if let Some(client) = clients.get_opt(CLIENT).await.unwrap() {
            assert_eq!(client.metadata.owner_references, None);
            clients.delete(CLIENT, &DeleteParams::default()).await.unwrap();
        }
    }
    world.lose_keys().await;
    world.served().await;
}

/// The cache does not show yet that somebody made a Deployment in place of the client's.
#[tokio::test(start_paused = true)]
async fn a_deployment_of_others_that_the_cache_lacks_is_not_taken_over() {
    let world = World::running().await;
    world.example().await;
    world.env.set_faults(|request: &apiserver::faults::Request| {
        let late = request.verb == "watch" && request.resource == "deployments";
        if late { Fault::Delay(Duration::from_secs(20)) } else { Fault::None }
    });
    world.env.server().close_watches();
    let clients: Api<Deployment> = world.env.api(NAMESPACE);
    clients.delete(CLIENT, &DeleteParams::default()).await.unwrap();
    world.env.until_gone(&clients, CLIENT).await;
    let labels = json!({
        "app.kubernetes.io/name": "tunnel-client", "app.kubernetes.io/instance": NAME,
        "app.kubernetes.io/managed-by": "leasehold",
    });
    world.env.apply(&theirs(labels).to_string()).await;
    merge(&world.services(), SERVICE, json!({"spec": {"ports": [{"port": 81}]}})).await;
    reason(&world.env, "NameTaken").await;
    let found = clients.get(CLIENT).await.unwrap();
    assert_eq!(found.metadata.owner_references, None);
    let containers = found.spec.template.spec.unwrap().containers;
    assert_eq!(containers[0].image.as_deref(), Some("theirs"));
}

/// Both were applied at once, and the cache does not show the Tunnel yet.
#[tokio::test(start_paused = true)]
async fn a_tunnel_of_others_that_the_cache_lacks_is_not_taken_over() {
    let world = World::running().await;
    world.env.set_faults(|request: &apiserver::faults::Request| {
        let late = request.verb == "watch" && request.resource == "tunnels";
        if late { Fault::Delay(Duration::from_secs(20)) } else { Fault::None }
    });
    world.env.server().close_watches();
    apply_own(&world, 81, ("region", "ams3")).await;
    world.env.apply(controllers::get("tunnel").unwrap().example).await;
    let taken = |service: &Service| conditions_of(service).any(|found| found.reason == "NameTaken");
    world.env.until_object(&world.services(), SERVICE, taken).await;
    let found = world.tunnels().get(NAME).await.unwrap();
    assert_eq!(found.metadata.owner_references, None);
    assert_eq!(found.spec.region.as_deref(), Some("ams3"));
}

#[tokio::test(start_paused = true)]
async fn no_more_hosts_are_made_than_the_administrator_pays_for() {
    let world = World::running().await;
    world.defaults(json!({"maxHosts": "two"})).await;
    let example = controllers::get("tunnel").unwrap().example;
    world.env.apply(example).await;
    let told = reason(&world.env, "InvalidDefaults").await.status.unwrap().conditions.remove(0);
    assert!(told.message.contains("maxHosts is \"two\""), "{}", told.message);
    world.defaults(json!({"maxHosts": "1"})).await;
    world.served().await;
    world.env.apply(&example.replace("nginx-1", "second")).await;
    let second = "second-tunnel";
    world.env.until_object(&world.tunnels(), second, tells("TooManyHosts", "")).await;
    world.rests().await;
    assert_eq!(world.hosts().len(), 1);
    world.services().delete(SERVICE, &DeleteParams::default()).await.unwrap();
    world.env.until_object(&world.tunnels(), second, tells("Connected", "")).await;
    assert_eq!(world.hosts().len(), 1);
}

/// Who waits for a place costs the account no requests.
#[tokio::test(start_paused = true)]
async fn tunnels_over_the_number_ask_the_provider_nothing() {
    let (world, asked) = watched_world().await;
    world.defaults(json!({"maxHosts": "0"})).await;
    world.env.apply(controllers::get("tunnel").unwrap().example).await;
    reason(&world.env, "TooManyHosts").await;
    world.env.pass(Duration::from_secs(60)).await;
    let before = asked.lock().unwrap().len();
    // Shorter than the time between two sweeps.
    world.env.pass(Duration::from_secs(1_800)).await;
    assert_eq!(asked.lock().unwrap().len(), before);
    world.defaults(json!({"maxHosts": "1"})).await;
    world.served().await;
}

/// Its Service came first, and it can never have a host.
#[tokio::test(start_paused = true)]
async fn a_tunnel_that_cannot_have_a_host_takes_no_place() {
    let world = World::running().await;
    world.defaults(json!({"maxHosts": "1"})).await;
    let example = controllers::get("tunnel").unwrap().example;
    world.env.apply(&example.replace("nginx-1", "first").replace("port: 80\n", "port: 22\n")).await;
    world.env.until_object(&world.tunnels(), "first-tunnel", tells("PortReserved", "")).await;
    world.env.pass(Duration::from_secs(5)).await;
    world.env.apply(example).await;
    world.served().await;
}

/// Another replica asks for the last place at the same moment, and the cache does not show its mark yet.
#[tokio::test(start_paused = true)]
async fn a_mark_that_the_cache_lacks_has_the_last_place() {
    let world = World::running().await;
    world.defaults(json!({"maxHosts": "0"})).await;
    let (example, tunnels) = (controllers::get("tunnel").unwrap().example, world.tunnels());
    // It waits for another port, which keeps nobody waiting.
    world.env.apply(&example.replace("nginx-1", "other").replace("port: 80\n", "port: 22\n")).await;
    world.env.until_object(&tunnels, "other-tunnel", tells("PortReserved", "")).await;
    world.env.apply(example).await;
    reason(&world.env, "TooManyHosts").await;
    world.env.pass(Duration::from_secs(5)).await;
    world.env.set_faults(|request: &apiserver::faults::Request| {
        let late = request.verb == "watch" && request.resource == "tunnels";
        if late { Fault::Delay(Duration::from_secs(60)) } else { Fault::None }
    });
    world.env.server().close_watches();
    let mark = json!({"status": {
        "creatingSince": world.env.now().to_string(),
        "placement": {
            "provider": "digitalocean", "endpoint": DIGITALOCEAN, "region": "fra1", "size": "s",
        },
    }});
    let mark = Patch::Merge(mark);
    tunnels.patch_status("other-tunnel", &PatchParams::default(), &mark).await.unwrap();
    world.defaults(json!({"maxHosts": "1"})).await;
    world.env.pass(Duration::from_secs(20)).await;
    assert_eq!(world.hosts(), [0; 0], "the other's place is taken");
    assert!(tells("TooManyHosts", "")(&tunnels.get(NAME).await.unwrap()));
    world.env.end_faults();
    world.services().delete("other", &DeleteParams::default()).await.unwrap();
    world.served().await;
    assert_eq!(world.hosts().len(), 1);
}
