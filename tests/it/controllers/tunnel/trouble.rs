//! What stops the controller takes nothing away that works, and what a provider refuses is told.

use super::*;

/// A condition of the Tunnel, as type, status and reason, and its message.
fn conditions(tunnel: &Tunnel) -> Vec<(String, String)> {
    let conditions = tunnel.status.iter().flat_map(|status| &status.conditions);
    let told = conditions.map(|found| {
        (format!("{} {} {}", found.type_, found.status, found.reason), found.message.clone())
    });
    told.collect()
}

impl World {
    /// Waits until the Tunnel says exactly this of itself. Returns the last message.
    async fn says(&self, expect: &[&str]) -> String {
        let says = |tunnel: &Tunnel| {
            conditions(tunnel).iter().map(|(told, _)| told.as_str()).eq(expect.iter().copied())
        };
        let tunnel = self.env.until_object(&self.tunnels(), NAME, says).await;
        conditions(&tunnel).pop().unwrap().1
    }

    /// Another token of the account: no Secret has it.
    fn renew(&self, token: &str) {
        self.cloud.machines(|machines| machines.token = token.to_owned());
    }

    /// A Service whose token is in its own namespace.
    async fn with_own_token(&self) -> Tunnel {
        self.defaults(json!({"tokenSecrets": "mine, other"})).await;
        self.secret(NAMESPACE, "mine").await;
        self.env.apply(controllers::get("tunnel").unwrap().example).await;
        self.annotate("tunnel-token-secret", json!("mine")).await;
        let at = Some(format!("digitalocean/{NAMESPACE}/mine"));
        self.until_status(|status| status.placement.as_ref().is_some_and(|p| p.account == at))
            .await;
        self.served().await
    }
}

/// Each takes the controller's hold of the host away, and leaves the host as it is.
#[tokio::test(start_paused = true)]
async fn what_stops_the_controller_takes_no_address_away_that_works() {
    let world = World::running().await;
    let first = world.example().await.status.unwrap();
    let secrets: Api<Secret> = world.env.api("leasehold-system");
    for reason in ["TokenRefused", "TokenMissing", "InvalidDefaults", "PortReserved", "HostRefused"]
    {
        match reason {
            "TokenRefused" => world.renew("renewed"),
            "TokenMissing" => {
                secrets.delete("cloud", &DeleteParams::default()).await.unwrap();
            }
            "InvalidDefaults" => world.defaults(json!({"ratholeSha256": "abc"})).await,
            "PortReserved" => {
                let ports = json!([{"port": 22, "name": "a"}, {"port": 80, "name": "b"}]);
                merge(&world.services(), SERVICE, json!({"spec": {"ports": ports}})).await;
            }
            _ => world.cloud.set_trouble(|_| Trouble::Refuse(404)),
        }
        for _ in 0..15 {
            world.env.pass(Duration::from_secs(60)).await;
            let service = world.services().get(SERVICE).await.unwrap();
            assert_eq!(ingress(&service), first.host_ip, "{reason}");
        }
        let managed = format!("Managed False {reason}");
        world.says(&["Ready True Connected", &managed]).await;
        world.rests().await;
        assert!(reasons(&world.env, NAMESPACE).await.contains(&reason.to_owned()));
        match reason {
            "TokenRefused" => world.renew("secret"),
            "TokenMissing" => world.secret("leasehold-system", "cloud").await,
            "InvalidDefaults" => world.defaults(json!({"ratholeSha256": null})).await,
            "PortReserved" => {
                merge(&world.services(), SERVICE, json!({"spec": {"ports": [{"port": 80}]}})).await;
            }
            _ => world.cloud.end_trouble(),
        }
        world.says(&["Ready True Connected"]).await;
    }
    let last = world.served().await.status.unwrap();
    assert_eq!((last.host_id, last.host_ip), (first.host_id, first.host_ip));
    assert_eq!(world.hosts().len(), 1);
}

/// It is tried all the while, also by a replica that never saw the host.
#[tokio::test(start_paused = true)]
async fn an_address_that_does_not_work_goes_although_the_controller_is_stopped() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    let mut world = world("digitalocean", DIGITALOCEAN, Machines::default()).await;
    let passes = Arc::new(AtomicBool::new(true));
    let run = |world: &mut World| {
        let shown = Arc::clone(&passes);
        let probe = connections("refused", move |_| shown.load(Ordering::SeqCst));
        world.env.run(parts(2, &Settings { probe, ..settings(&world.cloud) }));
    };
    run(&mut world);
    world.example().await;
    world.renew("renewed");
    for replica in 0..2 {
        world.env.pass(Duration::from_secs(900)).await;
        world.says(&["Ready True Connected", "Managed False TokenRefused"]).await;
        passes.store(false, Ordering::SeqCst);
        world.env.pass(Duration::from_secs(75)).await;
        world.says(&["Ready False Unreachable", "Managed False TokenRefused"]).await;
        world.addressless().await;
        passes.store(true, Ordering::SeqCst);
        world.served().await;
        if replica == 0 {
            world.env.stop().await;
            run(&mut world);
        }
    }
}

/// What the administrator refuses of an account is no accident.
#[tokio::test(start_paused = true)]
async fn an_account_that_the_administrator_allows_no_more_serves_no_more() {
    let world = World::running().await;
    world.with_own_token().await;
    world.defaults(json!({"tokenSecrets": "other"})).await;
    world.says(&["Ready False NotPermitted"]).await;
    world.addressless().await;
    world.rests().await;
    assert_eq!(world.hosts().len(), 1);
}

/// Versions have other default sizes and regions.
#[tokio::test(start_paused = true)]
async fn a_host_of_an_earlier_default_stays() {
    let mut world = world("hetzner", HETZNER, Machines::default()).await;
    world.run();
    let first = world.example().await.status.unwrap();
    world.env.stop().await;
    let earlier = json!({"status": {"placement": {"size": "cx11", "region": "nbg1"}}});
    let tunnels = world.tunnels();
    tunnels.patch_status(NAME, &PatchParams::default(), &Patch::Merge(earlier)).await.unwrap();
    world.run();
    world.env.pass(Duration::from_secs(1_200)).await;
    let status = world.served().await.status.unwrap();
    assert_eq!(status.host_id, first.host_id);
    assert_eq!(status.placement.unwrap().size, "cx11");
    // What is asked for counts.
    world.annotate("tunnel-size", json!("cx23")).await;
    world.until_status(|status| status.host_id != first.host_id).await;
    world.served().await;
}

/// The namespace takes the Secret with it: not before the host is gone.
#[tokio::test(start_paused = true)]
async fn the_secret_of_a_service_outlives_its_host() {
    let world = World::running().await;
    world.with_own_token().await;
    let secrets: Api<Secret> = world.env.api(NAMESPACE);
    let held = async |name: &str| {
        secrets.get_opt(name).await.unwrap().map(|found| found.metadata.finalizers)
    };
    assert_eq!(held("mine").await.unwrap().unwrap().len(), 1);
    world.rests().await;
    // Another one is held instead, once its account has the host.
    world.secret(NAMESPACE, "other").await;
    world.annotate("tunnel-token-secret", json!("other")).await;
    world.env.until("the other Secret to be held", async || held("other").await?).await;
    world.served().await;
    assert_eq!(held("mine").await, Some(None));
    world.rests().await;

    // With a namespace goes what is in it, in any order.
    secrets.delete("other", &DeleteParams::default()).await.unwrap();
    world.env.pass(Duration::from_secs(120)).await;
    world.delete().await;
    world.env.until_gone(&secrets, "other").await;
    assert_eq!(world.hosts(), [0; 0]);
}

/// A finalizer that nobody takes off keeps the Secret and its namespace for ever.
#[tokio::test(start_paused = true)]
async fn a_secret_that_may_not_be_patched_any_more_is_told_and_released_later() {
    let world = World::running().await;
    world.with_own_token().await;
    let secrets = |request: &apiserver::faults::Request| request.resource == "secrets";
    refuse_patches(&world.env, Reason::Forbidden, "not yours", secrets);
    world.services().delete(SERVICE, &DeleteParams::default()).await.unwrap();
    let told = |tunnel: &Tunnel| {
        let told = conditions(tunnel);
        told.iter().any(|(_, told)| told.contains("Secret mine keeps the finalizer tunnel."))
    };
    world.env.until_object(&world.tunnels(), NAME, told).await;
    assert_eq!(world.hosts(), [0; 0]);
    assert!(reasons(&world.env, NAMESPACE).await.contains(&"SecretNotReleased".to_owned()));
    world.env.end_faults();
    world.gone().await;
    let secrets: Api<Secret> = world.env.api(NAMESPACE);
    assert_eq!(secrets.get("mine").await.unwrap().metadata.finalizers, None);
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_write_leaves_no_secret_held() {
    let writes = at_every_write(async |crash| {
        let mut world = world("digitalocean", DIGITALOCEAN, Machines::default()).await;
        world.defaults(json!({"tokenSecrets": "mine"})).await;
        world.secret(NAMESPACE, "mine").await;
        let annotation =
            "metadata: {annotations: {leasehold.dev/tunnel-token-secret: mine}, name: nginx-1}";
        let service = format!(
            "{{apiVersion: v1, kind: Service, {annotation}, \
              spec: {{type: LoadBalancer, ports: [{{port: 80}}]}}}}"
        );
        world.env.apply(&service).await;
        crash.watch(&world.env);
        watched(&world.cloud, &crash);
        let settings = settings(&world.cloud);
        let scenario = async |env: &TestEnv| {
            let tunnels: Api<Tunnel> = env.api(NAMESPACE);
            let services: Api<Service> = env.api(NAMESPACE);
            let secrets: Api<Secret> = env.api(NAMESPACE);
            if services.get_opt(SERVICE).await.unwrap().is_some() {
                env.until_object(&services, SERVICE, |found| ingress(found).is_some()).await;
                secrets.delete("mine", &DeleteParams::default()).await.unwrap();
                services.delete(SERVICE, &DeleteParams::default()).await.unwrap();
            }
            env.until_gone(&tunnels, NAME).await;
        };
        crash.survived(&mut world.env, || parts(2, &settings), scenario).await;
        world.gone().await;
        let secrets: Api<Secret> = world.env.api(NAMESPACE);
        world.env.until_gone(&secrets, "mine").await;
        assert_eq!(world.hosts(), [0; 0], "no host is left over");
    })
    .await;
    assert!(writes >= 14, "{writes}");
}

/// A host under protection, an address that cannot be moved: the provider's words are in the status.
#[tokio::test(start_paused = true)]
async fn what_a_provider_refuses_to_change_is_told() {
    let refuses = |cloud: &Cloud, method: Method, below: &'static str| {
        cloud.set_trouble(move |request: &Request<Bytes>| {
            let is = *request.method() == method && request.uri().path().contains(below);
            if is { Trouble::Refuse(422) } else { Trouble::None }
        });
    };
    let message = async |world: &World, expect: &[&str]| {
        let told = world.says(expect).await;
        assert!(told.contains("there is trouble"), "{told}");
    };
    // A host that should be where it is not.
    let world = World::running().await;
    world.example().await;
    refuses(&world.cloud, Method::DELETE, "/droplets/");
    world.annotate("tunnel-region", json!("ams3")).await;
    message(&world, &["Ready True Connected", "Managed False ChangeRefused"]).await;
    world.rests().await;
    assert!(reasons(&world.env, NAMESPACE).await.contains(&"ChangeRefused".to_owned()));
    // And one that is to go.
    world.services().delete(SERVICE, &DeleteParams::default()).await.unwrap();
    let deleting = |tunnel: &Tunnel| {
        conditions(tunnel).iter().any(|(told, message)| {
            told == "Ready False Deleting"
                && message.contains("there is trouble")
                && message.contains("leasehold.dev/abandon=true")
        })
    };
    world.env.until_object(&world.tunnels(), NAME, deleting).await;
    world.rests().await;
    world.cloud.end_trouble();
    world.gone().await;
    assert_eq!(world.hosts(), [0; 0]);

    world.defaults(json!({"stableAddress": "true"})).await;
    world.example().await;
    refuses(&world.cloud, Method::DELETE, "/reserved_ips/");
    world.services().delete(SERVICE, &DeleteParams::default()).await.unwrap();
    world.env.until_object(&world.tunnels(), NAME, deleting).await;
    world.cloud.end_trouble();
    world.gone().await;

    // An address that the new host does not get.
    let first = world.example().await.status.unwrap();
    refuses(&world.cloud, Method::POST, "/actions");
    world.lose_keys().await;
    world.env.pass(Duration::from_secs(900)).await;
    message(&world, &["Ready True Connected", "Managed False ChangeRefused"]).await;
    assert_eq!(ingress(&world.services().get(SERVICE).await.unwrap()), first.host_ip);
    world.cloud.end_trouble();
    world.env.pass(Duration::from_secs(120)).await;
    world.says(&["Ready True Connected"]).await;
}

/// A policy refuses a child: nothing is hidden, what serves is tried on, and what may not be goes.
#[tokio::test(start_paused = true)]
async fn what_the_api_server_refuses_is_told_and_keeps_nothing() {
    let refuses = |env: &TestEnv| {
        refuse_patches(env, Reason::Forbidden, "the policy says no", is_client);
    };
    let told = |message: String| {
        assert!(
            message.contains("Deployment nginx-1-tunnel-client: the policy says no"),
            "{message}"
        );
    };
    let mut world = World::running().await;
    refuses(&world.env);
    world.env.apply(controllers::get("tunnel").unwrap().example).await;
    told(world.says(&["Ready False Rejected"]).await);
    world.rests().await;
    assert!(reasons(&world.env, NAMESPACE).await.contains(&"Rejected".to_owned()));
    world.env.end_faults();
    world.served().await;

    // Another replica has to send it, and its host is lost meanwhile.
    world.env.stop().await;
    refuses(&world.env);
    let ports = json!({"spec": {"ports": [{"port": 81}]}});
    merge(&world.services(), SERVICE, ports).await;
    let probe = Probe::through(|_| async { Err("refused".to_owned()) }.boxed());
    world.env.run(parts(2, &Settings { probe, ..settings(&world.cloud) }));
    told(world.says(&["Ready False Unreachable", "Managed False Rejected"]).await);
    world.addressless().await;

    // The account is taken from the namespace.
    world.env.stop().await;
    let others = json!({"access": [{"namespaces": ["other"], "accounts": ["digitalocean"]}]});
    let access = tunnel::Access::parse(&others).unwrap();
    world.env.run(parts(2, &Settings { access, ..settings(&world.cloud) }));
    world
        .env
        .until("the host to be removed", async || world.hosts().is_empty().then_some(()))
        .await;
}

/// As when an admission webhook is down, or a policy denies it.
#[tokio::test(start_paused = true)]
async fn a_host_is_replaced_although_its_client_cannot_be_updated() {
    for (reason, why) in
        [(Reason::InternalError, "the webhook is down"), (Reason::Forbidden, "the policy says no")]
    {
        let world = World::running().await;
        let first = world.example().await.status.unwrap().host_id;
        refuse_patches(&world.env, reason, why, is_client);
        let clients: Api<Deployment> = world.env.api(NAMESPACE);
        merge(&clients, CLIENT, json!({"spec": {"replicas": 3}})).await;
        let (id, now) = (world.hosts()[0], world.env.now());
        world.cloud.machines(|machines| assert!(machines.delete(id, now)));
        world.env.pass(Duration::from_secs(1_500)).await;
        assert_eq!(world.hosts().len(), 1, "another was made although {why}");
        world.env.end_faults();
        // What failed so often is tried again within 1,000 s and half of that again.
        world.env.pass(Duration::from_secs(1500)).await;
        assert_ne!(world.served().await.status.unwrap().host_id, first);
    }
}

/// The Secret of host and client, which somebody damaged.
#[tokio::test(start_paused = true)]
async fn damaged_credentials_are_told_until_they_are_mended() {
    let world = World::running().await;
    world.example().await;
    let secrets: Api<Secret> = world.env.api(NAMESPACE);
    let whole = secrets.get(CREDENTIALS).await.unwrap().data.unwrap();
    merge(&secrets, CREDENTIALS, json!({"data": {"token": null}})).await;
    world.env.pass(Duration::from_secs(900)).await;
    let told = world.says(&["Ready True Connected", "Managed False CredentialsDamaged"]).await;
    assert!(told.contains("Secret nginx-1-tunnel-credentials has no token"), "{told}");
    world.rests().await;
    merge(&secrets, CREDENTIALS, json!({"data": {"token": whole["token"]}})).await;
    world.says(&["Ready True Connected"]).await;
}

/// Its name is taken by the host itself, without the labels by which it is found.
#[tokio::test(start_paused = true)]
async fn a_host_without_its_labels_is_named() {
    let mut world = world("hetzner", HETZNER, Machines::default()).await;
    world.run();
    world.example().await;
    let [id] = world.hosts()[..] else { panic!("one host") };
    world.cloud.machines(|machines| machines.untag(id));
    world.env.pass(Duration::from_secs(900)).await;
    let told = world.says(&["Ready False NameTaken"]).await;
    let uid = world.tunnels().get(NAME).await.unwrap().metadata.uid.unwrap();
    assert!(told.contains(&format!("host leasehold-{uid} exists without the labels")), "{told}");
    assert_eq!(world.hosts(), [id]);
    // It is asked again in half an hour.
    let now = world.env.now();
    world.cloud.machines(|machines| assert!(machines.delete(id, now)));
    world.env.pass(Duration::from_secs(2_100)).await;
    world.served().await;
}

/// Its provider takes the request, and has trouble with the rest.
#[tokio::test(start_paused = true)]
async fn a_host_that_never_comes_to_run_is_replaced() {
    for (provider, endpoint) in [("digitalocean", DIGITALOCEAN), ("hetzner", HETZNER)] {
        let mut machines = Machines::default();
        machines.boot = Duration::from_secs(36_000);
        let mut world = world(provider, endpoint, machines).await;
        world.run();
        world.env.apply(controllers::get("tunnel").unwrap().example).await;
        reason(&world.env, "Provisioning").await;
        let [first] = world.hosts()[..] else { panic!("one host") };
        world.env.pass(Duration::from_secs(840)).await;
        assert_eq!(world.hosts(), [first], "it may take a while");
        let other = async || {
            let hosts = world.hosts();
            (hosts.len() == 1 && hosts != [first]).then_some(())
        };
        world.env.until("another host to be made", other).await;
        world.cloud.machines(|machines| machines.boot = Duration::from_secs(30));
        world.served().await;
        assert_eq!(world.hosts().len(), 1, "{provider}");
        assert!(reasons(&world.env, NAMESPACE).await.contains(&"HostStuck".to_owned()));
    }
}
