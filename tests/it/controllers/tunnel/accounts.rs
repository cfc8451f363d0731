//! Accounts: who may use which, how many hosts one may have, and that none keeps hosts that nobody has.

use super::*;
use tunnel::Access;
use tunnel::api::Placement;

/// The account of the defaults.
const ACCOUNT: &str = "digitalocean/leasehold-system/cloud";

impl World {
    /// Runs the controller, from now on with these settings of the configuration.
    async fn run_with(&mut self, access: Value) {
        self.env.stop().await;
        let access = Access::parse(&access).unwrap();
        self.env.run(parts(2, &Settings { access, ..settings(&self.cloud) }));
    }

    /// A Tunnel that no Service asked for, once it is connected.
    async fn alone(&self) -> Tunnel {
        let tunnel = json!({
            "apiVersion": "inlets.inlets.dev/v1alpha1", "kind": "Tunnel",
            "metadata": {"name": NAME, "namespace": NAMESPACE},
            "spec": {
                "serviceName": "web", "ports": [{"port": 80}], "provider": "digitalocean",
                "endpoint": DIGITALOCEAN,
            },
        });
        self.env.apply(&tunnel.to_string()).await;
        reason(&self.env, "Connected").await
    }

    /// Waits until the Service is refused, and has no address.
    async fn refused(&self) -> Condition {
        let told = |service: &Service| {
            conditions_of(service).find(|found| found.reason == "NotPermitted").cloned()
        };
        let refused = |service: &Service| told(service).is_some() && ingress(service).is_none();
        told(&self.env.until_object(&self.services(), SERVICE, refused).await).unwrap()
    }
}

fn list(entry: Value) -> Value {
    json!({"access": [entry]})
}

#[tokio::test(start_paused = true)]
async fn an_account_serves_only_those_that_the_administrators_list_gives_it_to() {
    let mut world = World::running().await;
    let others = list(json!({"namespaces": ["other"], "accounts": [ACCOUNT]}));
    for (permitted, access) in [
        (true, json!(null)),
        (
            true,
            list(json!({"clusters": ["east"], "namespaces": [NAMESPACE], "accounts": [ACCOUNT]})),
        ),
        (true, list(json!({"namespaces": ["other"], "accounts": ["hetzner"]}))),
        (false, list(json!({"clusters": ["other"], "namespaces": ["*"], "accounts": [ACCOUNT]}))),
        (false, others.clone()),
        (false, list(json!({"namespaces": ["other"]}))),
    ] {
        world.run_with(access.clone()).await;
        world.env.apply(controllers::get("tunnel").unwrap().example).await;
        if permitted {
            world.served().await;
            assert_eq!(world.hosts().len(), 1, "{access}");
        } else {
            let told = world.refused().await;
            assert!(
                told.message.contains(ACCOUNT)
                    && told.message.contains("controllers.tunnel.access")
            );
            world.rests().await;
            assert_eq!(world.hosts(), [0; 0], "{access}");
            assert!(reasons(&world.env, NAMESPACE).await.contains(&"NotPermitted".to_owned()));
        }
        world.delete().await;
    }
    // What is served already gives its address and its host back.
    world.run_with(json!(null)).await;
    world.example().await;
    world.run_with(others).await;
    world.refused().await;
    world.gone().await;
    assert_eq!(world.hosts(), [0; 0]);
    world.run_with(json!(null)).await;
    world.served().await;
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_without_a_service_of_its_own_gives_back_what_it_may_not_have_any_more() {
    let mut world = World::running().await;
    world.alone().await;
    world.run_with(list(json!({"namespaces": ["other"]}))).await;
    let status = world.until_status(|one| one.host_status == Some(HostStatus::Error)).await;
    assert_eq!(status.conditions[0].reason, "NotPermitted");
    assert_eq!((status.host_id, status.host_ip, status.placement), (None, None, None));
    assert_eq!(world.hosts(), [0; 0]);
    let clients: Api<Deployment> = world.env.api(NAMESPACE);
    assert_eq!(clients.get(CLIENT).await.unwrap().spec.replicas, Some(0));
    world.rests().await;
    world.run_with(json!(null)).await;
    reason(&world.env, "Connected").await;
    assert_eq!(clients.get(CLIENT).await.unwrap().spec.replicas, Some(1));
}

/// A spec that cannot be acted on names no account, or another one than the host is in.
#[tokio::test(start_paused = true)]
async fn a_host_that_is_not_permitted_any_more_goes_whatever_the_spec_says() {
    for spec in [
        json!({"ports": [{"port": 22}]}),
        json!({"provider": "aws"}),
        json!({"provider": null}),
        json!({"size": "huge"}),
        json!({"clientImage": "evil.test/miner"}),
        json!({"tokenSecretRef": {"name": "database"}}),
        json!({"endpoint": "https://evil.test/v2"}),
    ] {
        let mut world = World::running().await;
        let placement = world.alone().await.status.unwrap().placement.unwrap();
        assert_eq!(placement.account.as_deref(), Some(ACCOUNT));
        merge(&world.tunnels(), NAME, json!({"spec": spec})).await;
        world.until_status(|status| status.observed_generation == Some(2)).await;
        world.rests().await;
        assert_eq!(world.hosts().len(), 1, "it stays while it is permitted: {spec}");
        world.run_with(list(json!({"namespaces": ["other"], "accounts": [ACCOUNT]}))).await;
        world.until_status(|status| status.placement.is_none()).await;
        assert_eq!(world.hosts(), [0; 0], "{spec}");
        world.rests().await;
    }
}

/// The old account's host is given back there, though neither Service nor ConfigMap names it any more.
#[tokio::test(start_paused = true)]
async fn a_tunnel_that_changes_its_account_leaves_no_host_in_the_old_one() {
    let world = World::running().await;
    world.example().await;
    let [first] = world.hosts()[..] else { panic!("one host") };
    world.secret("leasehold-system", "new").await;
    world.defaults(json!({"provider": "hetzner", "endpoint": HETZNER, "tokenSecret": "new"})).await;
    let is_new = |at: &Placement| at.account.as_deref() == Some("hetzner/leasehold-system/new");
    world.until_status(|status| status.placement.as_ref().is_some_and(is_new)).await;
    world.served().await;
    assert_eq!(world.hosts().len(), 1);
    assert!(!world.hosts().contains(&first));
    // It is deleted although its account is named by nobody.
    world.defaults(json!({"provider": null, "tokenSecret": null})).await;
    world.delete().await;
    assert_eq!(world.hosts(), [0; 0]);
}

/// Each key of a Secret is another account.
#[tokio::test(start_paused = true)]
async fn another_key_of_a_secret_gives_back_what_was_in_the_account_of_the_former() {
    let world = World::running().await;
    world.example().await;
    let [first] = world.hosts()[..] else { panic!("one host") };
    let secrets: Api<Secret> = world.env.api("leasehold-system");
    merge(&secrets, "cloud", json!({"stringData": {"other": "secret"}})).await;
    world.defaults(json!({"tokenSecretKey": "other"})).await;
    let is_other = |at: &Placement| at.token_key.as_deref() == Some("other");
    world.until_status(|status| status.placement.as_ref().is_some_and(is_other)).await;
    world.served().await;
    assert_eq!(world.hosts().len(), 1);
    assert!(!world.hosts().contains(&first));
}

/// What the provider lists counts, of whatever cluster, and what was requested since counts at once.
#[tokio::test(start_paused = true)]
async fn an_account_has_no_more_hosts_in_all_clusters_than_the_administrator_pays_for() {
    for (provider, endpoint) in [("digitalocean", DIGITALOCEAN), ("hetzner", HETZNER)] {
        let mut world = world(provider, endpoint, lagging(Duration::from_secs(20))).await;
        let now = world.env.now();
        let (elsewhere, stranger) = world.cloud.machines(|machines| {
            let mut make = |name, tags| machines.create(name, "fra1", tags, false, now).unwrap().id;
            (make("elsewhere", foreign_tags()), make("stranger", Default::default()))
        });
        world.env.pass(Duration::from_secs(60)).await;
        world.run_with(json!({"maxHostsPerAccount": 3})).await;
        let example = controllers::get("tunnel").unwrap().example;
        for number in 0..5 {
            world.env.apply(&example.replace("nginx-1", &format!("web-{number}"))).await;
        }
        world.env.pass(Duration::from_secs(300)).await;
        world.rests().await;
        assert_eq!(world.hosts().len(), 4, "two, one elsewhere and one that is no Tunnel's");
        let tunnels = world.tunnels().list(&ListParams::default()).await.unwrap().items;
        let conditions = tunnels.into_iter().filter_map(|tunnel| tunnel.status?.conditions.pop());
        let full: Vec<_> = conditions.filter(|found| found.reason == "AccountFull").collect();
        assert_eq!(full.len(), 3);
        let told = "/leasehold-system/cloud has 3 hosts of Tunnels in all clusters";
        assert!(full[0].message.contains(told), "{}", full[0].message);
        assert!(full[0].message.contains("controllers.tunnel.maxHostsPerAccount"));
        // Where there is room again, one more is made.
        world.cloud.machines(|machines| assert!(machines.delete(elsewhere, now)));
        world.env.pass(Duration::from_secs(800)).await;
        assert_eq!(world.hosts().len(), 4);
        assert!(world.hosts().contains(&stranger));
    }
}

/// An account that only a Service's annotations named, and one that the defaults named once.
#[tokio::test(start_paused = true)]
async fn hosts_without_a_tunnel_are_removed_from_every_account_that_was_ever_used() {
    for annotated in [true, false] {
        let world = World::running().await;
        let defaults: Api<ConfigMap> = world.env.api("leasehold-system");
        let example = controllers::get("tunnel").unwrap().example;
        if annotated {
            world.defaults(json!({"tokenSecret": null, "tokenSecrets": "mine"})).await;
            world.secret(NAMESPACE, "mine").await;
        }
        world.env.apply(example).await;
        if annotated {
            world.annotate("tunnel-token-secret", json!("mine")).await;
        }
        world.served().await;
        world.abandon().await;
        assert_eq!(world.hosts().len(), 1, "left behind, as was asked");
        let other = json!({"provider": "hetzner", "endpoint": HETZNER, "tokenSecret": "new"});
        world.defaults(other).await;
        world.env.pass(Duration::from_secs(9_600)).await;
        assert_eq!(world.hosts(), [0; 0], "annotated: {annotated}");
        assert!(
            reasons(&world.env, "leasehold-system").await.contains(&"OrphanRemoved".to_owned())
        );
        // What a namespace chose is forgotten with the last that is there.
        let annotations = defaults.get("leasehold-tunnel").await.unwrap().metadata.annotations;
        let recorded = annotations.unwrap_or_default();
        let of = |name: &str| recorded.values().any(|value| value.contains(name));
        assert!(!of("mine"), "{recorded:?}");
        assert_eq!(of("cloud"), !annotated, "{recorded:?}");
    }
}

/// A Secret that may not be read, and a server that fails, hide no account behind them.
#[tokio::test(start_paused = true)]
async fn an_account_that_cannot_be_swept_keeps_no_other_from_it() {
    let world = World::running().await;
    world.example().await;
    world.abandon().await;
    assert_eq!(world.hosts().len(), 1, "left behind, as was asked");
    world.env.set_faults(|request: &apiserver::faults::Request| {
        let reason = match (&*request.resource, &*request.namespace) {
            ("secrets", "forbidden") => Reason::Forbidden,
            ("secrets", "failing") => Reason::InternalError,
            _ => return Fault::None,
        };
        Fault::Error(ApiError::new(reason, "not now"))
    });
    // Before all others, in the order of their names.
    let of = |namespace: &str| {
        let account = json!({
            "provider": "digitalocean", "namespace": namespace,
            "secret": {"name": "mine", "key": "token"},
        });
        account.to_string()
    };
    let accounts = json!({
        "tunnel-account.leasehold.dev/0": of("forbidden"), "tunnel-account.leasehold.dev/1": of("failing"),
    });
    let defaults: Api<ConfigMap> = world.env.api("leasehold-system");
    merge(&defaults, "leasehold-tunnel", json!({"metadata": {"annotations": accounts}})).await;
    world.env.pass(Duration::from_secs(9_600)).await;
    assert_eq!(world.hosts(), [0; 0]);
    let told = reasons(&world.env, "leasehold-system").await;
    assert!(told.contains(&"NotSwept".to_owned()), "{told:?}");
}

/// The request as a proxy passes it on that takes no notice of what it is to select.
fn unselected(mut request: Request<Bytes>) -> Request<Bytes> {
    let uri = request.uri().to_string();
    let (path, query) = uri.split_once('?').unwrap_or((uri.as_str(), ""));
    let selects =
        |part: &&str| part.starts_with("tag_name=") || part.starts_with("label_selector=");
    let kept: Vec<_> = query.split('&').filter(|part| !selects(part)).collect();
    *request.uri_mut() = format!("{path}?{}", kept.join("&")).parse().unwrap();
    request
}

#[tokio::test(start_paused = true)]
async fn hosts_of_others_outlive_a_provider_that_lists_them_too() {
    for (provider, endpoint) in [("digitalocean", DIGITALOCEAN), ("hetzner", HETZNER)] {
        let mut world = world(provider, endpoint, Machines::default()).await;
        let now = world.env.now();
        let strangers: Vec<_> = world.cloud.machines(|machines| {
            let elsewhere = vec![(TUNNEL_TAG, "y"), (CLUSTER_TAG, "other")];
            let make = |tags: Vec<(&str, &str)>| {
                let tags = tags.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
                machines.create("stranger", "fra1", tags.collect(), false, now).unwrap().id
            };
            [vec![], vec![(TUNNEL_TAG, "x")], elsewhere].into_iter().map(make).collect()
        });
        let cloud = world.cloud.clone();
        let http = Http::through(move |request| cloud.send(unselected(request)));
        world.env.run(parts(2, &Settings { http, ..settings(&world.cloud) }));
        world.example().await;
        // Looks, lists of all, and sweeps.
        world.env.pass(Duration::from_secs(9_600)).await;
        assert_eq!(world.hosts().len(), strangers.len() + 1);
        world.delete().await;
        assert_eq!(world.hosts(), strangers, "{provider}");
    }
}

/// Whoever may create namespaces can make the one that is named by default.
#[tokio::test(start_paused = true)]
async fn defaults_count_in_the_namespace_that_the_configuration_names_alone() {
    let mut world = world("digitalocean", DIGITALOCEAN, Machines::default()).await;
    world.run_with(json!({"configNamespace": "kube-system"})).await;
    world.env.apply(controllers::get("tunnel").unwrap().example).await;
    world.rests().await;
    assert_eq!(world.hosts(), [0; 0]);
    assert!(reasons(&world.env, "leasehold-system").await.contains(&"DefaultsIgnored".to_owned()));
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "stringData": {"token": "secret"},
        "metadata": {"name": "cloud", "namespace": "kube-system"},
    });
    let data = json!({
        "provider": "digitalocean", "endpoint": DIGITALOCEAN, "tokenSecret": "cloud",
        "claimServicesWithoutClass": "true",
    });
    let defaults = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": data,
        "metadata": {"name": "leasehold-tunnel", "namespace": "kube-system"},
    });
    world.env.apply(&secret.to_string()).await;
    world.env.apply(&defaults.to_string()).await;
    let placement = world.served().await.status.unwrap().placement.unwrap();
    assert_eq!(placement.account.as_deref(), Some("digitalocean/kube-system/cloud"));
}
