//! Which Services are taken on, and when their address is published: while connections come through, and only if
//! a Tunnel can give what they ask for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// Runs the controller, with connections that come through while the switch is on.
fn switched(world: &mut World) -> Arc<AtomicBool> {
    let passes = Arc::new(AtomicBool::new(true));
    let shown = Arc::clone(&passes);
    let probe = connections("refused", move |_| shown.load(Ordering::SeqCst));
    world.env.run(parts(2, &Settings { probe, ..settings(&world.cloud) }));
    passes
}

/// Checks that an address that stops to work goes within a minute.
async fn dies(world: &World, passes: &AtomicBool) {
    passes.store(false, Ordering::SeqCst);
    world.env.pass(Duration::from_secs(60)).await;
    let told = world.tunnels().get(NAME).await.unwrap();
    assert!(tells("Unreachable", "refused")(&told), "{:?}", told.status);
    world.addressless().await;
}

#[tokio::test(start_paused = true)]
async fn an_address_is_published_while_connections_come_through() {
    let mut world = world("digitalocean", DIGITALOCEAN, Machines::default()).await;
    let passes = Arc::new(AtomicBool::new(false));
    let shown = Arc::clone(&passes);
    let probe = connections("refused", move |to| shown.load(Ordering::SeqCst) && to.port() == 80);
    world.env.run(parts(2, &Settings { probe, ..settings(&world.cloud) }));
    world.env.apply(controllers::get("tunnel").unwrap().example).await;
    let tunnel = reason(&world.env, "Unreachable").await;
    assert!(tunnel.status.unwrap().conditions[0].message.ends_with(":80: refused"));
    world.rests().await;
    assert_eq!(ingress(&world.services().get(SERVICE).await.unwrap()), None);
    for _ in 0..2 {
        passes.store(true, Ordering::SeqCst);
        world.served().await;
        world.rests().await;
        // It is noticed within a minute, and one lost connection is not enough.
        passes.store(false, Ordering::SeqCst);
        world.env.pass(Duration::from_secs(60)).await;
        world.addressless().await;
        reason(&world.env, "Unreachable").await;
    }
    let told = reasons(&world.env, NAMESPACE).await;
    assert!(told.contains(&"Unreachable".to_owned()), "{told:?}");
    assert_eq!(world.hosts().len(), 1, "the host is kept");
}

/// Its ports stay open: its process hangs, or its node is cut off.
#[tokio::test(start_paused = true)]
async fn an_address_whose_only_client_does_not_answer_goes_within_a_minute_and_comes_back() {
    let mut world = world("digitalocean", DIGITALOCEAN, Machines::default()).await;
    let answers = Arc::new(AtomicBool::new(true));
    let shown = Arc::clone(&answers);
    let settings = settings(&world.cloud);
    let probe = settings.probe.clone().checking(move |to| {
        let answers = shown.load(Ordering::SeqCst) || to.port() != 2334;
        async move { if answers { Ok(()) } else { Err("refused".to_owned()) } }.boxed()
    });
    world.env.run(parts(2, &Settings { probe, ..settings }));
    let first = world.example().await.status.unwrap();
    let config = world.client_config(CLIENT).await;
    let asked = "[client.services.tcp-2334]\nlocal_addr = \"127.0.0.1:1\"\n";
    assert!(config.contains(asked), "{config}");
    for _ in 0..2 {
        dies(&world, &answers).await;
        world.rests().await;
        answers.store(true, Ordering::SeqCst);
        world.served().await;
    }
    assert_eq!(world.hosts(), [first.host_id.unwrap().parse::<u64>().unwrap()]);
    // A Service that has that port itself is judged by its own ports.
    let ports = json!([{"port": 80, "name": "a"}, {"port": 2334, "name": "b"}]);
    merge(&world.services(), SERVICE, json!({"spec": {"ports": ports}})).await;
    world.until_status(|status| status.observed_generation == Some(2)).await;
    world.served().await;
    assert!(!world.client_config(CLIENT).await.contains(asked));
    answers.store(false, Ordering::SeqCst);
    world.rests().await;
    assert_eq!(ingress(&world.services().get(SERVICE).await.unwrap()), first.host_ip);
}

/// A NetworkPolicy between the client and the backends, or one that hangs: connections stay open, and nothing comes
/// back. What has to come back the administrator says.
#[tokio::test(start_paused = true)]
async fn an_address_is_published_only_once_a_backend_shows_what_is_asked_for() {
    for (value, asked) in
        [(json!(null), Proof::End), (json!("answer"), Proof::Answer), (json!("open"), Proof::Open)]
    {
        let mut world = world("digitalocean", DIGITALOCEAN, Machines::default()).await;
        world.defaults(json!({"probe": value})).await;
        let comes_back = Arc::new(AtomicBool::new(false));
        let shown = Arc::clone(&comes_back);
        let probe = Probe::proving(move |_, proof| {
            let passes = proof == asked && shown.load(Ordering::SeqCst);
            async move { if passes { Ok(()) } else { Err("refused".to_owned()) } }.boxed()
        });
        world.env.run(parts(2, &Settings { probe, ..settings(&world.cloud) }));
        world.env.apply(controllers::get("tunnel").unwrap().example).await;
        reason(&world.env, "Unreachable").await;
        world.rests().await;
        assert_eq!(ingress(&world.services().get(SERVICE).await.unwrap()), None, "{asked:?}");
        comes_back.store(true, Ordering::SeqCst);
        world.served().await;
        dies(&world, &comes_back).await;
    }
}

/// A host that comes in the place of another and takes no connections of clients is not paid for for ever.
#[tokio::test(start_paused = true)]
async fn a_host_that_does_not_come_to_serve_is_given_up_and_tried_later() {
    let mut world = world("digitalocean", DIGITALOCEAN, Machines::default()).await;
    let comes = Arc::new(AtomicBool::new(false));
    let shown = Arc::clone(&comes);
    let probe =
        connections("timed out", move |to| shown.load(Ordering::SeqCst) || to.port() != 2333);
    world.env.run(parts(2, &Settings { probe, ..settings(&world.cloud) }));
    let first = world.example().await.status.unwrap();
    world.lose_keys().await;
    // The key is missed within ten minutes or so, and the other host has fifteen.
    let (mut with_two, mut minutes) = (0, 0);
    while !reasons(&world.env, NAMESPACE).await.contains(&"NotReplaced".to_owned()) {
        world.env.pass(Duration::from_secs(60)).await;
        with_two += usize::from(world.hosts().len() == 2);
        minutes += 1;
        assert!(with_two <= 17 && minutes <= 40, "it is not given up: {with_two} of {minutes} min");
    }
    assert!(with_two >= 14, "it might have come: {with_two} min");
    let [_] = world.hosts()[..] else { panic!("{:?}", world.hosts()) };
    let still = world.served().await.status.unwrap();
    assert_eq!((still.host_id, still.host_ip), (first.host_id.clone(), first.host_ip));
    comes.store(true, Ordering::SeqCst);
    world.env.pass(Duration::from_secs(2_500)).await;
    let second = world.served().await.status.unwrap();
    assert_ne!(second.host_id, first.host_id);
    assert_eq!(world.hosts().len(), 1);
}

/// Its account is full, and then it dies.
#[tokio::test(start_paused = true)]
async fn a_host_that_waits_for_another_is_tried_all_the_while() {
    let mut world = world("digitalocean", DIGITALOCEAN, Machines::default()).await;
    let passes = switched(&mut world);
    let first = world.example().await.status.unwrap();
    world.cloud.machines(|machines| machines.quota = 1);
    world.lose_keys().await;
    world.env.pass(Duration::from_secs(1_500)).await;
    let told = reason(&world.env, "QuotaExceeded").await.status.unwrap();
    let said: Vec<_> = told.conditions.iter().map(|one| (&*one.type_, &*one.status)).collect();
    assert_eq!(said, [("Ready", "True"), ("Managed", "False")]);
    assert_eq!(ingress(&world.services().get(SERVICE).await.unwrap()), first.host_ip);
    for _ in 0..2 {
        dies(&world, &passes).await;
        passes.store(true, Ordering::SeqCst);
        world.served().await;
        // Of which the provider is asked no more often than of any other.
        world.env.pass(Duration::from_secs(600)).await;
        assert!(tells("QuotaExceeded", "")(&world.tunnels().get(NAME).await.unwrap()));
    }
    let told = reasons(&world.env, NAMESPACE).await;
    assert_eq!(told.iter().filter(|reason| *reason == "QuotaExceeded").count(), 1, "{told:?}");
}

/// An outage of a region takes the API and the hosts there.
#[tokio::test(start_paused = true)]
async fn a_host_of_a_provider_that_does_not_answer_is_tried_all_the_while() {
    let mut world = world("digitalocean", DIGITALOCEAN, Machines::default()).await;
    let passes = switched(&mut world);
    let first = world.example().await.status.unwrap();
    world.cloud.set_trouble(|_| Trouble::Refuse(503));
    for _ in 0..2 {
        world.env.pass(Duration::from_secs(900)).await;
        assert_eq!(ingress(&world.services().get(SERVICE).await.unwrap()), first.host_ip);
        dies(&world, &passes).await;
        passes.store(true, Ordering::SeqCst);
        world.served().await;
    }
    world.cloud.end_trouble();
    world.env.pass(Duration::from_secs(120)).await;
    let last = world.served().await.status.unwrap();
    assert_eq!((last.host_id, last.host_ip), (first.host_id, first.host_ip));
}

/// No write of a client succeeds.
fn without_webhook(world: &World) {
    refuse_patches(&world.env, Reason::InternalError, "the webhook is down", is_client);
}

/// The admission webhook was where the client was, and so was the replica that looked after it.
#[tokio::test(start_paused = true)]
async fn a_host_whose_client_cannot_be_applied_is_tried_all_the_while() {
    let mut world = world("digitalocean", DIGITALOCEAN, Machines::default()).await;
    switched(&mut world);
    world.example().await;
    world.env.stop().await;
    without_webhook(&world);
    let passes = switched(&mut world);
    dies(&world, &passes).await;
    passes.store(true, Ordering::SeqCst);
    world.served().await;
}

#[tokio::test(start_paused = true)]
async fn one_connection_that_is_lost_takes_no_address_away() {
    let mut world = world("digitalocean", DIGITALOCEAN, Machines::default()).await;
    let count = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let probe = Probe::through(move |_| {
        let lost = counted.fetch_add(1, Ordering::SeqCst) % 3 == 2;
        async move { if lost { Err("reset".to_owned()) } else { Ok(()) } }.boxed()
    });
    world.env.run(parts(2, &Settings { probe, ..settings(&world.cloud) }));
    world.example().await;
    world.rests().await;
    assert!(count.load(Ordering::SeqCst) > 15);
}

#[tokio::test(start_paused = true)]
async fn a_service_for_some_addresses_only_is_refused() {
    let world = World::running().await;
    let ranges = json!({"spec": {"loadBalancerSourceRanges": ["203.0.113.0/24"]}});
    let annotated = json!({"metadata": {"annotations": {
        "service.beta.kubernetes.io/load-balancer-source-ranges": "203.0.113.0/24",
    }}});
    let none = [
        json!({"spec": {"loadBalancerSourceRanges": null}}),
        json!({"metadata": {"annotations": null}}),
    ];
    for (ranges, none) in [ranges, annotated].into_iter().zip(none) {
        world.example().await;
        merge(&world.services(), SERVICE, ranges).await;
        let refused = |found: &Condition| {
            found.reason == "SourceRangesUnsupported" && found.status == "False"
        };
        let told =
            |service: &Service| conditions_of(service).any(refused) && ingress(service).is_none();
        world.env.until_object(&world.services(), SERVICE, told).await;
        world.gone().await;
        assert_eq!(world.hosts(), [0; 0], "what is open to all is gone");
        world.rests().await;
        merge(&world.services(), SERVICE, none).await;
    }
    world.served().await;
}

/// The provider takes the token no more, so the host stays, and listens for everybody.
#[tokio::test(start_paused = true)]
async fn nobody_reaches_a_service_that_is_refused_while_its_host_cannot_be_removed() {
    let world = World::running().await;
    world.example().await;
    world.cloud.machines(|machines| machines.token = "renewed".to_owned());
    let ranges = json!({"spec": {"loadBalancerSourceRanges": ["203.0.113.0/24"]}});
    merge(&world.services(), SERVICE, ranges).await;
    let told = tells("Deleting", "Unable to authenticate");
    world.env.until_object(&world.tunnels(), NAME, told).await;
    assert_eq!(world.hosts().len(), 1);
    let clients: Api<Deployment> = world.env.api(NAMESPACE);
    assert_eq!(clients.get(CLIENT).await.unwrap().spec.replicas, Some(0));
    world.rests().await;
    world.cloud.machines(|machines| machines.token = "secret".to_owned());
    world.gone().await;
    assert_eq!(world.hosts(), [0; 0]);
}

/// The client goes with the Tunnel then, and the host costs no more.
#[tokio::test(start_paused = true)]
async fn a_client_that_cannot_be_stopped_keeps_no_host() {
    let world = World::running().await;
    world.example().await;
    without_webhook(&world);
    world.delete().await;
    assert_eq!(world.hosts(), [0; 0]);
}

/// A finalizer of others keeps it, such as that of a cloud's controller which runs no more.
#[tokio::test(start_paused = true)]
async fn a_service_whose_deletion_waits_for_others_gives_everything_back() {
    let world = World::running().await;
    world.example().await;
    let kept = json!({"metadata": {"finalizers": ["service.kubernetes.io/load-balancer-cleanup"]}});
    merge(&world.services(), SERVICE, kept).await;
    world.delete().await;
    assert_eq!(world.hosts(), [0; 0]);
    world.addressless().await;
    world.rests().await;
}

/// What becomes of a datagram only its receiver knows. That a host takes no clients anybody sees.
#[tokio::test(start_paused = true)]
async fn an_address_of_udp_alone_goes_within_a_minute_too() {
    let mut world = world("digitalocean", DIGITALOCEAN, Machines::default()).await;
    let passes = switched(&mut world);
    let example = controllers::get("tunnel").unwrap().example;
    let udp = example.replace("  - port: 80", "  - {port: 53, protocol: UDP}");
    world.env.apply(&udp).await;
    world.served().await;
    dies(&world, &passes).await;
    passes.store(true, Ordering::SeqCst);
    world.served().await;
}

#[tokio::test(start_paused = true)]
async fn a_service_without_a_class_is_left_to_others_unless_the_administrator_says_so() {
    let world = World::running().await;
    let claims = async |value: Value| {
        world.defaults(json!({"claimServicesWithoutClass": value})).await;
    };
    claims(json!(null)).await;
    world.env.apply(controllers::get("tunnel").unwrap().example).await;
    world.rests().await;
    assert_eq!(world.hosts(), [0; 0]);
    claims(json!("true")).await;
    world.served().await;
    // One that is served already goes on.
    claims(json!(null)).await;
    world.rests().await;
    world.served().await;
    claims(json!("false")).await;
    world.gone().await;
    world.addressless().await;
}

/// What is served goes on when nothing is said any more, also through a while in which no connection comes through.
#[tokio::test(start_paused = true)]
async fn a_service_without_a_class_outlasts_a_while_without_its_backend() {
    let mut world = world("digitalocean", DIGITALOCEAN, Machines::default()).await;
    let passes = switched(&mut world);
    let first = world.example().await.status.unwrap();
    world.defaults(json!({"claimServicesWithoutClass": null})).await;
    world.rests().await;
    passes.store(false, Ordering::SeqCst);
    world.env.pass(Duration::from_secs(90)).await;
    world.addressless().await;
    passes.store(true, Ordering::SeqCst);
    let again = world.served().await.status.unwrap();
    assert_eq!((again.host_id, again.host_ip), (first.host_id, first.host_ip));
    assert_eq!(world.hosts().len(), 1);
}

/// More ports than a Tunnel may have: the server refuses the Tunnel, and the Service says so and keeps what it has.
#[tokio::test(start_paused = true)]
async fn a_tunnel_that_the_server_refuses_is_told_by_its_service() {
    let world = World::running().await;
    let ports: Vec<_> =
        (1000..1101).map(|port| json!({"port": port, "name": format!("p{port}")})).collect();
    let many = json!({"spec": {"ports": ports}});
    let told = |service: &Service| {
        conditions_of(service).find(|found| found.type_ == "leasehold.dev/Tunnel").cloned()
    };
    let rejected = |service: &Service| told(service).is_some_and(|one| one.reason == "Rejected");
    // Before it has a Tunnel, and after.
    let example = controllers::get("tunnel").unwrap().example;
    let ports = serde_json::to_string(&many["spec"]["ports"]).unwrap();
    world.env.apply(&example.replace("  - port: 80", &format!("    {ports}")).to_string()).await;
    let service = world.env.until_object(&world.services(), SERVICE, rejected).await;
    let Condition { status, message, .. } = told(&service).unwrap();
    assert_eq!(status, "False");
    assert!(message.contains("spec.ports") && message.contains("100"), "{message}");
    assert!(reasons(&world.env, NAMESPACE).await.contains(&"Rejected".to_owned()));
    // It is asked again every five minutes or so, which writes nothing.
    world.rests().await;
    merge(&world.services(), SERVICE, json!({"spec": {"ports": [{"port": 80}]}})).await;
    let before = world.served().await.status.unwrap();
    merge(&world.services(), SERVICE, many).await;
    let service = world.env.until_object(&world.services(), SERVICE, rejected).await;
    assert_eq!(ingress(&service), before.host_ip);
    world.rests().await;
    merge(&world.services(), SERVICE, json!({"spec": {"ports": [{"port": 443}]}})).await;
    world.env.until_object(&world.services(), SERVICE, |service| !rejected(service)).await;
    assert_eq!(world.served().await.status.unwrap().host_id, before.host_id);
}

#[tokio::test(start_paused = true)]
async fn a_port_that_cannot_be_forwarded_is_told() {
    let world = World::running().await;
    world.example().await;
    let ports = json!([
        {"port": 80, "name": "a"}, {"port": 9, "name": "b", "protocol": "SCTP"},
    ]);
    merge(&world.services(), SERVICE, json!({"spec": {"ports": ports}})).await;
    let told = |service: &Service| {
        conditions_of(service).any(|found| found.message.contains("port 9/SCTP"))
    };
    world.env.until_object(&world.services(), SERVICE, told).await;
    world.served().await;
    world.rests().await;
    assert!(reasons(&world.env, NAMESPACE).await.contains(&"PortsNotForwarded".to_owned()));
}

/// The network of a region is gone: the provider's API takes requests and answers none, and its hosts are lost.
#[tokio::test(start_paused = true)]
async fn an_address_goes_within_a_minute_although_its_provider_keeps_its_answers() {
    let mut world = world("digitalocean", DIGITALOCEAN, Machines::default()).await;
    let passes = switched(&mut world);
    world.example().await;
    // The last list is old, and the next look is minutes away.
    world.env.pass(Duration::from_secs(400)).await;
    world.cloud.set_trouble(|_| Trouble::Delay(Duration::from_secs(3_600)));
    dies(&world, &passes).await;
    world.cloud.end_trouble();
    passes.store(true, Ordering::SeqCst);
    world.served().await;
}

/// Nobody knows what is meant, so nothing is made for it, and what serves goes on.
#[tokio::test(start_paused = true)]
async fn what_has_no_meaning_is_told_and_changes_nothing() {
    let world = World::running().await;
    let says = |word: &'static str| {
        move |service: &Service| {
            let ours = conditions_of(service).find(|found| found.type_ == "leasehold.dev/Tunnel");
            ours.is_some_and(|found| found.reason == word)
        }
    };
    let first = world.example().await.status.unwrap();
    for (name, wrong, right) in
        [("tunnel-stable-address", "True", "false"), ("tunnel", "False", "true")]
    {
        world.annotate(name, json!(wrong)).await;
        let told = says("InvalidAnnotation");
        let service = world.env.until_object(&world.services(), SERVICE, told).await;
        assert_eq!(ingress(&service), first.host_ip, "{name}");
        world.rests().await;
        world.annotate(name, json!(right)).await;
        world.env.until_object(&world.services(), SERVICE, says("Active")).await;
    }
    assert!(reasons(&world.env, NAMESPACE).await.contains(&"InvalidAnnotation".to_owned()));
    let new = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": "new", "namespace": NAMESPACE, "annotations": {"leasehold.dev/tunnel": "no"},
        },
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
    });
    world.env.apply(&new.to_string()).await;
    world.env.until_object(&world.services(), "new", says("InvalidAnnotation")).await;
    assert_eq!(world.tunnels().get_opt("new-tunnel").await.unwrap(), None);
    // Of the defaults too, of which no Service can tell.
    world.defaults(json!({"claimServicesWithoutClass": "True"})).await;
    let told = async || {
        let told = reasons(&world.env, "leasehold-system").await;
        told.contains(&"InvalidDefaults".to_owned()).then_some(())
    };
    world.env.until("the ConfigMap to tell it", told).await;
    assert_eq!(world.served().await.status.unwrap().host_id, first.host_id);
}
