//! Addresses that outlive hosts: kept when a host is replaced, given back with the Tunnel, and none left over.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;

/// A cluster whose administrator pays for addresses like this.
async fn stable(provider: &str, endpoint: &str, machines: Machines, value: &str) -> World {
    let world = world(provider, endpoint, machines).await;
    world.defaults(json!({"stableAddress": value})).await;
    world
}

impl World {
    /// The reserved addresses, and the machines that have them.
    fn reserved(&self) -> Vec<(String, Option<u64>)> {
        self.cloud.machines(|machines| {
            let shown =
                |one: &demo::cloud::Reserved| (one.address().to_string(), machines.holder(one));
            machines.reserved().map(shown).collect()
        })
    }

    /// Waits until another host than this one serves.
    async fn replaced(&self, before: &Option<String>) -> TunnelStatus {
        let active = Some(HostStatus::Active);
        self.until_status(|status| status.host_status == active && status.host_id != *before).await;
        self.served().await.status.unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn the_address_stays_when_the_host_is_lost_and_goes_with_the_tunnel() {
    for (provider, endpoint) in [("digitalocean", DIGITALOCEAN), ("hetzner", HETZNER)] {
        let mut world = stable(provider, endpoint, lagging(Duration::from_secs(5)), "true").await;
        world.run();
        let first = world.example().await.status.unwrap();
        let address = first.host_ip.clone().unwrap();
        assert_eq!(world.reserved(), [(address.clone(), Some(world.hosts()[0]))], "{provider}");
        world.rests().await;
        let (id, now) = (world.hosts()[0], world.env.now());
        world.cloud.machines(|machines| assert!(machines.delete(id, now)));
        // It is checked about every ten minutes.
        world.env.pass(Duration::from_secs(1_300)).await;
        let second = world.replaced(&first.host_id).await;
        assert_eq!(second.host_ip.as_ref(), Some(&address), "{provider}");
        assert_eq!(world.reserved(), [(address.clone(), Some(world.hosts()[0]))], "{provider}");
        assert_eq!(world.cloud.machines(|machines| machines.most_reserved()), 1);
        world.delete().await;
        assert_eq!((world.hosts(), world.reserved()), (vec![], vec![]), "{provider}");
    }
}

/// Another key is another host: the address moves to it once it runs, and the Service has it all the time.
#[tokio::test(start_paused = true)]
async fn the_address_moves_to_a_host_that_runs_before_the_old_one_goes() {
    for (provider, endpoint) in [("digitalocean", DIGITALOCEAN), ("hetzner", HETZNER)] {
        let mut world = stable(provider, endpoint, Machines::default(), "true").await;
        world.run();
        let first = world.example().await.status.unwrap();
        world.lose_keys().await;
        for _ in 0..90 {
            world.env.pass(Duration::from_secs(10)).await;
            assert_eq!(ingress(&world.services().get(SERVICE).await.unwrap()), first.host_ip);
            assert!(!world.hosts().is_empty());
        }
        let second = world.replaced(&first.host_id).await;
        assert_eq!(second.host_ip, first.host_ip);
        let [host] = world.hosts()[..] else { panic!("one host") };
        assert_eq!(world.reserved(), [(first.host_ip.unwrap(), Some(host))], "{provider}");
        world.rests().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_address_is_paid_for_only_where_the_administrator_says_so() {
    let mut world = stable("hetzner", HETZNER, Machines::default(), "false").await;
    world.run();
    world.env.apply(controllers::get("tunnel").unwrap().example).await;
    world.served().await;
    world.annotate("tunnel-stable-address", json!("true")).await;
    let told = reason(&world.env, "NotPermitted").await.status.unwrap().conditions.remove(1);
    assert!(told.message.starts_with("stableAddress"), "{}", told.message);
    world.rests().await;
    assert_eq!(world.reserved(), []);
    world.defaults(json!({"stableAddress": "optional"})).await;
    let has = |is: bool| {
        move |status: &TunnelStatus| {
            let ready = status.conditions.iter().any(|found| found.reason == "Connected");
            let ip = status.host_ip.as_ref();
            let stable = status.address.as_ref().is_some_and(|stable| Some(&stable.ip) == ip);
            ready && stable == is
        }
    };
    // At Hetzner a host must know of the address, so another takes its place.
    world.until_status(has(true)).await;
    world.env.pass(Duration::from_secs(60)).await;
    assert_eq!((world.hosts().len(), world.reserved().len()), (1, 1));
    world.annotate("tunnel-stable-address", json!(null)).await;
    world.until_status(has(false)).await;
    world.env.pass(Duration::from_secs(120)).await;
    assert_eq!((world.hosts().len(), world.reserved().len()), (1, 0));
    world.rests().await;
}

#[tokio::test(start_paused = true)]
async fn no_address_is_left_over_by_a_crash_at_any_write() {
    for (provider, endpoint) in [("digitalocean", DIGITALOCEAN), ("hetzner", HETZNER)] {
        let writes = at_every_write(async |crash| {
            let lag = Duration::from_secs(20);
            let mut world = stable(provider, endpoint, lagging(lag), "true").await;
            world.env.apply(controllers::get("tunnel").unwrap().example).await;
            crash.watch(&world.env);
            watched(&world.cloud, &crash);
            let settings = settings(&world.cloud);
            crash.survived(&mut world.env, || parts(2, &settings), comes_and_goes).await;
            world.gone().await;
            assert_eq!((world.hosts(), world.reserved()), (vec![], vec![]));
            let most = world.cloud.machines(|machines| machines.most_reserved());
            assert_eq!(most, 1, "and there never were two");
        })
        .await;
        assert!(writes >= 15, "{writes}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_address_without_a_tunnel_is_swept() {
    for (provider, endpoint) in [("digitalocean", DIGITALOCEAN), ("hetzner", HETZNER)] {
        let mut world = stable(provider, endpoint, Machines::default(), "true").await;
        world.run();
        world.example().await;
        let now = world.env.now();
        let foreign = world.cloud.machines(|machines| {
            let one = machines.reserve("foreign", "fra1", foreign_tags(), None, true, now);
            one.unwrap().address().to_string()
        });
        world.abandon().await;
        assert_eq!((world.hosts().len(), world.reserved().len()), (1, 2), "left behind");
        world.env.pass(Duration::from_secs(4_800)).await;
        assert_eq!(
            (world.hosts(), world.reserved()),
            (vec![], vec![(foreign, None)]),
            "{provider}"
        );
    }
}

/// Others may write a status: what it names is not the Tunnel's for that.
#[tokio::test(start_paused = true)]
async fn an_address_that_is_not_the_tunnels_own_outlives_it() {
    let mut world = stable("digitalocean", DIGITALOCEAN, Machines::default(), "true").await;
    world.run();
    let now = world.env.now();
    let stranger = world.cloud.machines(|machines| {
        let one = machines.reserve("", "fra1", Default::default(), None, false, now);
        one.unwrap().address().to_string()
    });
    world.example().await;
    let claimed = json!({"status": {"address": {"id": stranger, "ip": stranger, "seal": "00"}}});
    let tunnels = world.tunnels();
    tunnels.patch_status(NAME, &PatchParams::default(), &Patch::Merge(claimed)).await.unwrap();
    world.delete().await;
    assert_eq!(world.reserved(), [(stranger, None)]);
}

/// The new host, the address's move and the old host's end: whatever is interrupted goes on.
#[tokio::test(start_paused = true)]
async fn a_crash_while_a_host_is_replaced_leaves_one_host_and_the_address() {
    for (provider, endpoint) in [("digitalocean", DIGITALOCEAN), ("hetzner", HETZNER)] {
        let writes = at_every_write(async |crash| {
            let lag = Duration::from_secs(20);
            let mut world = stable(provider, endpoint, lagging(lag), "true").await;
            world.run();
            let first = world.example().await.status.unwrap();
            world.env.stop().await;
            world.lose_keys().await;
            crash.watch(&world.env);
            watched(&world.cloud, &crash);
            let (settings, cloud) = (settings(&world.cloud), world.cloud.clone());
            let scenario = async |env: &TestEnv| {
                let other = |tunnel: &Tunnel| {
                    let status = tunnel.status.clone().unwrap_or_default();
                    status.host_status == Some(HostStatus::Active)
                        && status.host_id != first.host_id
                };
                env.until_object(&env.api::<Tunnel>(NAMESPACE), NAME, other).await;
                for _ in 0..60 {
                    if cloud.machines(|machines| machines.alive().count()) == 1 {
                        break;
                    }
                    env.pass(Duration::from_secs(10)).await;
                }
            };
            crash.survived(&mut world.env, || parts(2, &settings), scenario).await;
            let second = world.replaced(&first.host_id).await;
            assert_eq!(second.host_ip, first.host_ip);
            let [host] = world.hosts()[..] else { panic!("one host") };
            assert_eq!(second.host_id, Some(host.to_string()));
            assert_eq!(world.reserved(), [(first.host_ip.unwrap(), Some(host))]);
            let most = world.cloud.machines(|machines| machines.most_at_once(TUNNEL_TAG));
            assert!(most <= 2, "{most}");
        })
        .await;
        assert!(writes >= 6, "{writes}");
    }
}

/// A way to the cloud on which requests to move an address come to nothing while the switch is off, that switch, and how
/// often the cloud was asked.
fn moving(world: &World) -> (Http, Arc<AtomicBool>, Arc<AtomicUsize>) {
    let (works, asked) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let (cloud, moves, count) = (world.cloud.clone(), Arc::clone(&works), Arc::clone(&asked));
    let through = Http::through(move |request: Request<Bytes>| {
        count.fetch_add(1, Ordering::SeqCst);
        let is_move =
            request.method() == Method::POST && request.uri().path().ends_with("/actions");
        if is_move && !moves.load(Ordering::SeqCst) {
            let taken = Bytes::from_static(br#"{"action": {"status": "in-progress"}}"#);
            return async move { Ok(http::Response::new(taken)) }.boxed();
        }
        cloud.send(request)
    });
    (through, works, asked)
}

/// The present host serves until the other one has its address.
#[tokio::test(start_paused = true)]
async fn a_host_stays_until_its_address_has_moved() {
    let mut world = stable("digitalocean", DIGITALOCEAN, Machines::default(), "true").await;
    let (http, works, _) = moving(&world);
    world.env.run(parts(2, &Settings { http, ..settings(&world.cloud) }));
    let first = world.example().await.status.unwrap();
    works.store(false, Ordering::SeqCst);
    let [old] = world.hosts()[..] else { panic!("one host") };
    world.lose_keys().await;
    for _ in 0..120 {
        world.env.pass(Duration::from_secs(10)).await;
        assert!(world.hosts().contains(&old), "it has the address");
        assert_eq!(ingress(&world.services().get(SERVICE).await.unwrap()), first.host_ip);
    }
    assert_eq!(world.hosts().len(), 2, "another one runs");
    works.store(true, Ordering::SeqCst);
    let second = world.replaced(&first.host_id).await;
    assert_eq!(second.host_ip, first.host_ip);
    let alone = async || (world.hosts().len() == 1).then_some(());
    world.env.until("the first host to go", alone).await;
}

/// The provider takes the request to move the address, and its action comes to nothing.
#[tokio::test(start_paused = true)]
async fn an_address_that_does_not_move_is_asked_for_in_moderation() {
    let mut world = stable("digitalocean", DIGITALOCEAN, Machines::default(), "true").await;
    let (http, works, asked) = moving(&world);
    world.env.run(parts(2, &Settings { http, ..settings(&world.cloud) }));
    let first = world.example().await.status.unwrap();
    works.store(false, Ordering::SeqCst);
    let (id, now) = (world.hosts()[0], world.env.now());
    world.cloud.machines(|machines| assert!(machines.delete(id, now)));
    // It is missed within 17.5 minutes, and another runs after half a minute.
    world.env.pass(Duration::from_secs(1_200)).await;
    assert_eq!(world.hosts().len(), 1);
    assert_ne!(world.hosts(), [id]);
    let before = asked.load(Ordering::SeqCst);
    world.env.pass(Duration::from_secs(300)).await;
    let since = asked.load(Ordering::SeqCst) - before;
    assert!((30..250).contains(&since), "{since} requests in five minutes");
    let told = world.tunnels().get(NAME).await.unwrap().status.unwrap().conditions.remove(0);
    assert!(told.message.ends_with("runs, and waits for its address"), "{}", told.message);
    assert_eq!(ingress(&world.services().get(SERVICE).await.unwrap()), None);
    works.store(true, Ordering::SeqCst);
    let second = world.replaced(&first.host_id).await;
    assert_eq!(second.host_ip, first.host_ip);
}
