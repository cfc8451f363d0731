//! A host's IPv6 address: beside that of IPv4, for Services that ask for it, while connections come through, and
//! never at the cost of the first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// The addresses of the Service's status, all of which are passed by the host itself.
fn addresses(service: &Service) -> Vec<String> {
    let balancer = service.status.as_ref().and_then(|status| status.load_balancer.clone());
    let entries = balancer.and_then(|balancer| balancer.ingress).unwrap_or_default();
    assert!(entries.iter().all(|entry| entry.ip_mode.as_deref() == Some("Proxy")), "{entries:?}");
    entries.into_iter().filter_map(|entry| entry.ip).collect()
}

/// Waits until the Service has so many addresses.
async fn have(world: &World, count: usize) -> Vec<String> {
    let has = |service: &Service| addresses(service).len() == count;
    addresses(&world.env.until_object(&world.services(), SERVICE, has).await)
}

/// Waits until the Tunnel says that of its IPv6 address.
async fn says(world: &World, reason: &str) -> (Tunnel, String) {
    let found = |tunnel: &Tunnel| {
        let conditions = tunnel.status.iter().flat_map(|status| &status.conditions);
        let mut said = conditions.filter(|found| found.type_ == "IPv6" && found.reason == reason);
        said.next().map(|found| found.message.clone())
    };
    let tunnel =
        world.env.until_object(&world.tunnels(), NAME, |tunnel| found(tunnel).is_some()).await;
    let message = found(&tunnel).unwrap();
    (tunnel, message)
}

async fn policy(world: &World, policy: &str) {
    merge(&world.services(), SERVICE, json!({"spec": {"ipFamilyPolicy": policy}})).await;
}

/// A world in which connections by IPv6 come through while that says so.
async fn switched(provider: &str, endpoint: &str, why: &'static str) -> (World, Arc<AtomicBool>) {
    let mut world = world(provider, endpoint, Machines::default()).await;
    let passes = Arc::new(AtomicBool::new(true));
    let shown = Arc::clone(&passes);
    let probe = connections(why, move |to| to.is_ipv4() || shown.load(Ordering::SeqCst));
    world.env.run(parts(2, &Settings { probe, ..settings(&world.cloud) }));
    (world, passes)
}

#[tokio::test(start_paused = true)]
async fn a_service_that_asks_gets_both_addresses_of_a_new_host() {
    for (provider, endpoint) in [("digitalocean", DIGITALOCEAN), ("hetzner", HETZNER)] {
        let mut world = world(provider, endpoint, Machines::default()).await;
        world.defaults(json!({"ipv6": "true"})).await;
        world.run();
        let status = world.example().await.status.unwrap();
        let (v4, v6) = (status.host_ip.clone().unwrap(), status.host_ipv6.clone().unwrap());
        let made = world.cloud.machines(|machines| machines.alive().next().unwrap().ipv6());
        assert_eq!(Some(&v6), made.map(|address| address.to_string()).as_ref(), "{provider}");
        world.rests().await;
        assert_eq!(have(&world, 1).await, [v4.as_str()], "it did not ask");
        policy(&world, "PreferDualStack").await;
        assert_eq!(have(&world, 2).await, [v4.as_str(), &v6]);
        // The client goes on connecting to the first.
        let config = world.client_config(CLIENT).await;
        assert!(config.contains(&format!("remote_addr = \"{v4}:{CONTROL_PORT}\"")), "{config}");
        world.rests().await;
        policy(&world, "SingleStack").await;
        assert_eq!(have(&world, 1).await, [v4.as_str()]);
        policy(&world, "PreferDualStack").await;
        have(&world, 2).await;
        // What the administrator takes back goes, and the host stays.
        world.defaults(json!({"ipv6": "false"})).await;
        assert_eq!(have(&world, 1).await, [v4.as_str()]);
        let after = world.served().await.status.unwrap();
        assert_eq!((after.host_id, after.host_ipv6), (status.host_id, None));
        world.rests().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_ipv6_address_is_published_while_connections_come_through_it() {
    let why = "the manager's replica has no IPv6 route";
    let (world, passes) = switched("digitalocean", DIGITALOCEAN, why).await;
    passes.store(false, Ordering::SeqCst);
    world.defaults(json!({"ipv6": "true"})).await;
    world.env.apply(controllers::get("tunnel").unwrap().example).await;
    policy(&world, "PreferDualStack").await;
    let before = world.served().await.status.unwrap();
    let (v4, v6) = (before.host_ip.unwrap(), before.host_ipv6.unwrap());
    let message = says(&world, "Unreachable").await.1;
    assert_eq!(message, format!("no connection comes through at [{v6}]:80: {why}"));
    world.rests().await;
    for _ in 0..2 {
        assert_eq!(have(&world, 1).await, [v4.as_str()]);
        passes.store(true, Ordering::SeqCst);
        world.env.pass(Duration::from_secs(60)).await;
        assert_eq!(have(&world, 2).await, [v4.as_str(), &v6]);
        world.rests().await;
        passes.store(false, Ordering::SeqCst);
        world.env.pass(Duration::from_secs(60)).await;
        says(&world, "Unreachable").await;
        let service = world.services().get(SERVICE).await.unwrap();
        assert_eq!(ingress(&service).as_ref(), Some(&v4), "the first stays");
    }
    let told = reasons(&world.env, NAMESPACE).await;
    assert!(!told.contains(&"Unreachable".to_owned()), "it is the second alone: {told:?}");
}

/// What stops the controller takes no address away that works, nor keeps one that does not.
#[tokio::test(start_paused = true)]
async fn an_ipv6_address_stays_while_nothing_can_be_done_about_the_host() {
    let (world, passes) = switched("hetzner", HETZNER, "refused").await;
    world.defaults(json!({"ipv6": "true"})).await;
    world.env.apply(controllers::get("tunnel").unwrap().example).await;
    policy(&world, "PreferDualStack").await;
    let both = have(&world, 2).await;
    world.defaults(json!({"ipv6": "maybe"})).await;
    let managed = reason(&world.env, "InvalidDefaults").await.status.unwrap();
    let told = managed.conditions.iter().find(|found| found.reason == "InvalidDefaults").unwrap();
    assert!(told.message.contains("ipv6 is \"maybe\""), "{}", told.message);
    world.rests().await;
    assert_eq!(have(&world, 2).await, both);
    for (works, count) in [(false, 1), (true, 2)] {
        passes.store(works, Ordering::SeqCst);
        world.env.pass(Duration::from_secs(60)).await;
        assert_eq!(have(&world, count).await, both[..count]);
    }
    assert_eq!(world.hosts().len(), 1);
}

/// No host is replaced for it: one that has none gets none, and says so, until another takes its place.
#[tokio::test(start_paused = true)]
async fn a_host_without_ipv6_stays_until_it_is_replaced_anyway() {
    let world = World::running().await;
    let first = world.example().await.status.unwrap();
    policy(&world, "PreferDualStack").await;
    world.defaults(json!({"ipv6": "true"})).await;
    says(&world, "NoIPv6Address").await;
    world.rests().await;
    assert_eq!(have(&world, 1).await, [first.host_ip.unwrap()]);
    assert_eq!(world.served().await.status.unwrap().host_id, first.host_id);
    world.lose_keys().await;
    world.env.pass(Duration::from_secs(900)).await;
    let second = world.served().await.status.unwrap();
    assert_ne!(second.host_id, first.host_id);
    assert_eq!(have(&world, 2).await, [second.host_ip.unwrap(), second.host_ipv6.unwrap()]);
}

/// A reserved address is of IPv4: the other one is the host's own.
#[tokio::test(start_paused = true)]
async fn a_reserved_address_has_the_hosts_own_ipv6_address_beside_it() {
    for (provider, endpoint) in [("digitalocean", DIGITALOCEAN), ("hetzner", HETZNER)] {
        let mut world = world(provider, endpoint, Machines::default()).await;
        world.defaults(json!({"ipv6": "true", "stableAddress": "true"})).await;
        world.run();
        world.env.apply(controllers::get("tunnel").unwrap().example).await;
        policy(&world, "PreferDualStack").await;
        let found = have(&world, 2).await;
        let (reserved, machine) = world.cloud.machines(|machines| {
            let reserved = machines.reserved().next().unwrap().address();
            (reserved.to_string(), machines.alive().next().unwrap().ipv6().unwrap().to_string())
        });
        assert_eq!(found, [reserved, machine], "{provider}");
    }
}
