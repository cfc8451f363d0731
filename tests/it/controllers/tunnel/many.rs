//! Many Tunnels: none is left over, and no provider gets more requests than it allows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use demo::cloud::{Machines, Trouble};
use futures::FutureExt;
use kube::api::{DeleteParams, ListParams};
use serde_json::json;
use tunnel::{Probe, Settings};

use super::{
    DIGITALOCEAN, HETZNER, NAMESPACE, World, foreign_tags, ingress, lagging, parts, settings, world,
};

impl World {
    /// How many Services ask for an address.
    async fn make(&self, services: usize) {
        for number in 0..services {
            let service = json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {"name": format!("web-{number}"), "namespace": NAMESPACE},
                "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
            });
            self.env.apply(&service.to_string()).await;
        }
    }

    /// How many different addresses the Services have.
    async fn addresses(&self) -> usize {
        let services = self.services().list(&ListParams::default()).await.unwrap();
        services.items.iter().filter_map(ingress).collect::<BTreeSet<_>>().len()
    }

    /// Waits, for at most so many steps, until each of so many Services has an address of its own.
    async fn until_addresses(&self, count: usize, steps: usize, step: Duration) {
        for _ in 0..steps {
            if self.addresses().await == count {
                break;
            }
            self.env.pass(step).await;
        }
        assert_eq!(self.addresses().await, count);
    }
}

/// What a seed does to one request: usually nothing.
fn drawn(rng: &mut fastrand::Rng) -> Trouble {
    match rng.u32(0..40) {
        0 => Trouble::Unsent,
        1 => Trouble::Unheard,
        2 => Trouble::Refuse(500),
        3 => Trouble::Refuse(503),
        4 => Trouble::Refuse(429),
        5..10 => Trouble::Delay(Duration::from_millis(rng.u64(50..3_000))),
        _ => Trouble::None,
    }
}

/// Two hundred Services come and go while answers are late, lost and refused, lists lag, and the
/// manager is replaced in between.
#[tokio::test(start_paused = true)]
async fn many_come_and_go_under_faults_and_no_host_is_left_over() {
    const SERVICES: usize = 200;
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    println!("SEED={seed}");
    let lag = Duration::from_secs(10);
    let mut world = world("hetzner", HETZNER, lagging(lag)).await;
    let now = world.env.now();
    let foreign = world.cloud.machines(|machines| {
        machines.create("foreign", "fsn1", foreign_tags(), true, now).unwrap().id
    });
    let rng = Mutex::new(fastrand::Rng::with_seed(seed));
    world.cloud.set_trouble(move |_| drawn(&mut rng.lock().unwrap()));
    world.run();
    world.make(SERVICES).await;
    // Some are deleted while they are being created, the manager is replaced, and the rest
    // converge.
    world.env.pass(Duration::from_secs(120)).await;
    for number in 0..SERVICES / 4 {
        let name = format!("web-{number}");
        world.services().delete(&name, &DeleteParams::default()).await.unwrap();
    }
    world.env.stop().await;
    world.run();
    world.until_addresses(SERVICES - SERVICES / 4, 240, Duration::from_secs(60)).await;
    for number in SERVICES / 4..SERVICES {
        let name = format!("web-{number}");
        world.services().delete(&name, &DeleteParams::default()).await.unwrap();
    }
    for _ in 0..240 {
        if world.tunnels().list(&ListParams::default()).await.unwrap().items.is_empty() {
            break;
        }
        world.env.pass(Duration::from_secs(60)).await;
    }
    let left = world.tunnels().list(&ListParams::default()).await.unwrap().items;
    assert!(left.is_empty(), "{left:#?}");
    assert_eq!(world.hosts(), [foreign], "none is left over, and another's is untouched");
}

/// Many are created at once, a thousand with `TUNNELS=1000`: the provider creates them at the rate
/// it allows, and running hosts are checked together, by a new manager too.
#[tokio::test(start_paused = true)]
async fn running_hosts_are_checked_together() {
    // What DigitalOcean allows in an hour.
    const HOURLY: usize = 5_000;
    let services = std::env::var("TUNNELS").ok().and_then(|many| many.parse().ok()).unwrap_or(200);
    let mut machines = Machines::default();
    machines.quota = services;
    let mut world = world("digitalocean", DIGITALOCEAN, machines).await;
    let asked = Arc::new(Mutex::new(BTreeMap::<i64, usize>::new()));
    let (hours, clock) = (Arc::clone(&asked), world.env.clock());
    world.cloud.set_trouble(move |_| {
        *hours.lock().unwrap().entry(clock.wall().as_second() / 3_600).or_default() += 1;
        Trouble::None
    });
    world.make(services).await;
    world.run();
    world.until_addresses(services, 24, Duration::from_secs(600)).await;
    let made = std::mem::take(&mut *asked.lock().unwrap());
    assert!(made.values().all(|hour| *hour <= HOURLY), "{made:?}");

    // The last ones learn that their client is up when it is their turn.
    world.env.pass(Duration::from_secs(1_500)).await;
    let writes = world.env.server().history().len();
    world.env.pass(Duration::from_secs(1_800)).await;
    world.env.stop().await;
    world.run();
    world.env.pass(Duration::from_secs(900)).await;
    let later = asked.lock().unwrap().clone();
    println!("requests an hour while {services} are made: {made:?}, and then: {later:?}");
    assert!(later.values().all(|hour| *hour < services / 4), "{later:?}");
    assert_eq!(world.env.server().history().len(), writes, "nothing is written");
}

/// Hosts that are being made are looked at in one list, not each in its own, however many look at once.
#[tokio::test(start_paused = true)]
async fn hosts_that_are_being_made_are_looked_at_together() {
    const SERVICES: usize = 40;
    let mut machines = Machines::default();
    machines.boot = Duration::from_secs(300);
    let mut world = world("hetzner", HETZNER, machines).await;
    let asked = Arc::new(Mutex::new(0));
    let count = Arc::clone(&asked);
    world.cloud.set_trouble(move |request| {
        *count.lock().unwrap() += usize::from(request.method() == http::Method::GET);
        Trouble::None
    });
    world.make(SERVICES).await;
    world.env.run(parts(16, &settings(&world.cloud)));
    world.until_addresses(SERVICES, 60, Duration::from_secs(10)).await;
    let asked = *asked.lock().unwrap();
    println!("{asked} lists for {SERVICES} hosts that took 300 s");
    // Each is looked for before it is made, and thirty times are all looked at.
    assert!(asked < SERVICES * 4, "{asked} requests");
}

/// As when a region is lost: its hosts take no packets, so each try lasts as long as it may. With as many workers as the
/// chart gives.
#[tokio::test(start_paused = true)]
async fn addresses_of_hosts_that_are_lost_together_go_soon() {
    const SERVICES: usize = 40;
    let values = include_str!("../../../../deploy/charts/leasehold/values.yaml");
    let (_, own) = values.split_once("\n  tunnel:\n").unwrap();
    let (_, workers) = own.split_once("workers: ").unwrap();
    let workers = workers.lines().next().unwrap().parse().unwrap();
    let mut world = world("digitalocean", DIGITALOCEAN, Machines::default()).await;
    let lost = Arc::new(AtomicBool::new(false));
    let shown = Arc::clone(&lost);
    let probe = Probe::through(move |_| {
        let lost = shown.load(Ordering::SeqCst);
        let tried = async move {
            if lost {
                tokio::time::sleep(Duration::from_secs(5)).await;
                return Err("no answer".to_owned());
            }
            Ok(())
        };
        tried.boxed()
    });
    world.env.run(parts(workers, &Settings { probe, ..settings(&world.cloud) }));
    world.make(SERVICES).await;
    world.until_addresses(SERVICES, 60, Duration::from_secs(10)).await;
    lost.store(true, Ordering::SeqCst);
    world.env.pass(Duration::from_secs(120)).await;
    assert_eq!(world.addresses().await, 0);
}
