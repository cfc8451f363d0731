//! Tunnel: a Service gets an address and gives it back, with a stand-in for the cloud provider.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use controllers::Tunnel;
use demo::cloud::{Cloud, Machines, Trouble};
use futures::FutureExt;
use http::{Method, Request};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, Service};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use leasehold::testing::{ApiError, Fault, Reason, TestEnv};
use serde_json::{Value, json};
use tunnel::api::{HostStatus, TunnelStatus};
use tunnel::exit::CONTROL_PORT;
use tunnel::names::{CLUSTER_TAG, TUNNEL_TAG};
use tunnel::{Http, Probe, Proof, Settings, controllers as parts};

use super::crash::{Crash, Fate, at_every_write};
use super::{merge, reasons};

mod accounts;
mod clients;
mod ipv6;
mod many;
mod providers;
mod reach;
mod rights;
mod stable;
mod trouble;

const NAMESPACE: &str = "default";
const SERVICE: &str = "nginx-1";
const NAME: &str = "nginx-1-tunnel";
const CLIENT: &str = "nginx-1-tunnel-client";
const CREDENTIALS: &str = "nginx-1-tunnel-credentials";
const DIGITALOCEAN: &str = "https://cloud.test/v2";
const HETZNER: &str = "https://cloud.test/v1";

/// A cluster and a cloud.
struct World {
    env: TestEnv,
    cloud: Cloud,
}

/// A cluster whose defaults name the provider at `endpoint`, and nothing else in it.
async fn world(provider: &str, endpoint: &str, machines: Machines) -> World {
    // A host that was requested may stay unlisted for two minutes.
    let deadline = Duration::from_secs(600);
    let builder = TestEnv::builder().deadline(deadline).namespace("leasehold-system");
    let env = builder.crds(controllers::crds()).start().await;
    let cloud = Cloud::new(machines, env.clock());
    env.apply(&format!(
        "{{apiVersion: v1, kind: ConfigMap, \
          metadata: {{name: leasehold-tunnel, namespace: leasehold-system}}, \
          data: {{provider: {provider}, endpoint: '{endpoint}', tokenSecret: cloud, \
          claimServicesWithoutClass: 'true', maxHosts: '1000'}}}}\n---\n\
         {{apiVersion: v1, kind: Secret, metadata: {{name: cloud, namespace: leasehold-system}}, \
          stringData: {{token: secret}}}}"
    ))
    .await;
    super::confine(&env, super::rights_of("tunnel"));
    World { env, cloud }
}

/// Settings whose way to the providers is the cloud in this process.
fn settings(cloud: &Cloud) -> Settings {
    let cloud = cloud.clone();
    Settings {
        http: Http::through(move |request| cloud.send(request)),
        // There are machines in name only.
        probe: Probe::through(|_| async { Ok(()) }.boxed()),
        ..Settings::default()
    }
}

impl World {
    /// A cluster whose provider is DigitalOcean, with the controller.
    async fn running() -> Self {
        let mut world = world("digitalocean", DIGITALOCEAN, Machines::default()).await;
        world.run();
        world
    }

    fn parts(&self) -> Vec<sdk::ControllerSpec> {
        parts(2, &settings(&self.cloud))
    }

    fn run(&mut self) {
        let parts = self.parts();
        self.env.run(parts);
    }

    fn tunnels(&self) -> Api<Tunnel> {
        self.env.api(NAMESPACE)
    }

    fn services(&self) -> Api<Service> {
        self.env.api(NAMESPACE)
    }

    /// The ids of all machines.
    fn hosts(&self) -> Vec<u64> {
        self.cloud.machines(|machines| machines.alive().map(|machine| machine.id).collect())
    }

    async fn served(&self) -> Tunnel {
        let tunnel = reason(&self.env, "Connected").await;
        let address = tunnel.status.as_ref().and_then(|status| status.host_ip.clone());
        self.env
            .until_object(&self.services(), SERVICE, |service| ingress(service) == address)
            .await;
        tunnel
    }

    async fn example(&self) -> Tunnel {
        self.env.apply(controllers::get("tunnel").unwrap().example).await;
        self.served().await
    }

    /// Checks that nothing is written for long enough to notice any write.
    async fn rests(&self) {
        // An Event follows what the test waited for.
        self.env.pass(Duration::from_secs(5)).await;
        super::quiet(&self.env, Duration::from_secs(600)).await;
    }

    /// The configuration of a client in its Secret.
    async fn client_config(&self, client: &str) -> String {
        let secrets: Api<Secret> = self.env.api(NAMESPACE);
        let mut data = secrets.get(client).await.unwrap().data.unwrap();
        String::from_utf8(data.remove("client.toml").unwrap().0).unwrap()
    }

    /// A Secret with the account's token.
    async fn secret(&self, namespace: &str, name: &str) {
        let token = self.cloud.machines(|machines| machines.token.clone());
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "stringData": {"token": token},
            "metadata": {"name": name, "namespace": namespace},
        });
        self.env.apply(&secret.to_string()).await;
    }

    /// Sets these fields of the administrator's defaults.
    async fn defaults(&self, data: Value) {
        let defaults: Api<ConfigMap> = self.env.api("leasehold-system");
        merge(&defaults, "leasehold-tunnel", json!({"data": data})).await;
    }

    /// Sets the annotation `leasehold.dev/<name>` of the Service.
    async fn annotate(&self, name: &str, value: Value) {
        let annotations = json!({format!("leasehold.dev/{name}"): value});
        merge(&self.services(), SERVICE, json!({"metadata": {"annotations": annotations}})).await;
    }

    /// Deletes the keys: a host cannot get others, so another host takes its place.
    async fn lose_keys(&self) {
        let secrets: Api<Secret> = self.env.api(NAMESPACE);
        secrets.delete(CREDENTIALS, &DeleteParams::default()).await.unwrap();
    }

    /// Deletes the Service, and waits until its Tunnel is gone.
    async fn delete(&self) {
        self.services().delete(SERVICE, &DeleteParams::default()).await.unwrap();
        self.gone().await;
    }

    /// The same, with a Tunnel that leaves behind what it has at the provider.
    async fn abandon(&self) {
        let abandon = json!({"metadata": {"annotations": {"leasehold.dev/abandon": "true"}}});
        merge(&self.tunnels(), NAME, abandon).await;
        self.delete().await;
    }

    /// Waits until this holds of the Tunnel's status.
    async fn until_status(&self, mut holds: impl FnMut(&TunnelStatus) -> bool) -> TunnelStatus {
        let found = |tunnel: &Tunnel| tunnel.status.as_ref().is_some_and(&mut holds);
        self.env.until_object(&self.tunnels(), NAME, found).await.status.unwrap()
    }

    /// Waits until the Service has no address.
    async fn addressless(&self) {
        let without = |service: &Service| ingress(service).is_none();
        self.env.until_object(&self.services(), SERVICE, without).await;
    }

    async fn gone(&self) {
        self.env.until_gone(&self.tunnels(), NAME).await;
        let clients: Api<Deployment> = self.env.api(NAMESPACE);
        self.env.until_gone(&clients, CLIENT).await;
        let secrets: Api<Secret> = self.env.api(NAMESPACE);
        self.env.until_gone(&secrets, CREDENTIALS).await;
        self.env.until_gone(&secrets, CLIENT).await;
    }
}

fn ingress(service: &Service) -> Option<String> {
    service.status.as_ref()?.load_balancer.as_ref()?.ingress.as_ref()?.first()?.ip.clone()
}

fn conditions_of(service: &Service) -> impl Iterator<Item = &Condition> {
    service.status.iter().flat_map(|status| status.conditions.iter().flatten())
}

/// Waits until the Tunnel is ready, or not ready, for this reason.
async fn reason(env: &TestEnv, reason: &str) -> Tunnel {
    env.until_object(&env.api::<Tunnel>(NAMESPACE), NAME, tells(reason, "")).await
}

/// Whether a Tunnel tells this reason with a message that has these words.
fn tells(reason: &str, words: &str) -> impl Fn(&Tunnel) -> bool {
    move |tunnel| {
        let mut conditions = tunnel.status.iter().flat_map(|status| &status.conditions);
        conditions.any(|found| found.reason == reason && found.message.contains(words))
    }
}

#[tokio::test(start_paused = true)]
async fn the_example_gets_an_address_at_either_provider_and_gives_it_back() {
    for (provider, endpoint) in [("digitalocean", DIGITALOCEAN), ("hetzner", HETZNER)] {
        let mut world = world(provider, endpoint, Machines::default()).await;
        world.run();
        let tunnel = world.example().await;
        let status = tunnel.status.unwrap();
        let hosts = world.hosts();
        assert_eq!(status.host_status, Some(HostStatus::Active));
        assert_eq!(status.host_id, Some(hosts[0].to_string()));
        assert_eq!(hosts.len(), 1);
        let config = world.client_config(CLIENT).await;
        let address = format!("remote_addr = \"{}:{CONTROL_PORT}\"", status.host_ip.unwrap());
        assert!(config.contains(&address), "{config}");
        assert!(config.contains("local_addr = \"nginx-1.default.svc:80\""), "{config}");
        world.rests().await;

        world.delete().await;
        assert_eq!(world.hosts(), [0; 0], "{provider}");
    }
}

#[tokio::test(start_paused = true)]
async fn deleting_the_tunnel_makes_another_host() {
    let world = World::running().await;
    let first = world.example().await;
    world.tunnels().delete(NAME, &DeleteParams::default()).await.unwrap();
    world
        .env
        .until_object(&world.tunnels(), NAME, |tunnel| {
            tunnel.metadata.uid != first.metadata.uid
                && tunnel.status.as_ref().is_some_and(|status| status.host_ip.is_some())
        })
        .await;
    let second = world.served().await.status.unwrap();
    assert_ne!(second.host_id, first.status.unwrap().host_id);
    // What the first left behind for a moment is not taken for an object of others.
    assert!(!reasons(&world.env, NAMESPACE).await.contains(&"NameTaken".to_owned()));
    assert_eq!(world.hosts(), [second.host_id.unwrap().parse::<u64>().unwrap()]);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_lost_or_switched_off_is_replaced() {
    let world = World::running().await;
    let mut before = world.example().await.status.unwrap().host_id;
    for (off, event) in [(false, "HostLost"), (true, "HostStopped")] {
        let id = world.hosts()[0];
        let now = world.env.now();
        world.cloud.machines(|machines| match off {
            true => machines.switch(id, false),
            false => assert!(machines.delete(id, now)),
        });
        // It is checked about every ten minutes.
        world.env.pass(Duration::from_secs(1_100)).await;
        let after = world.served().await.status.unwrap().host_id;
        assert_ne!(after, before, "{event}");
        assert_eq!(world.hosts().len(), 1);
        assert!(reasons(&world.env, NAMESPACE).await.contains(&event.to_owned()));
        before = after;
    }
}

/// As a restart shows it, which an administrator or the provider does.
#[tokio::test(start_paused = true)]
async fn a_host_that_is_off_for_a_moment_stays() {
    let world = World::running().await;
    let before = world.example().await.status.unwrap().host_id;
    let id = world.hosts()[0];
    world.cloud.machines(|machines| machines.switch(id, false));
    let is_off = |tunnel: &Tunnel| {
        tunnel.status.as_ref().is_some_and(|status| status.stopped_since.is_some())
    };
    while !is_off(&world.tunnels().get(NAME).await.unwrap()) {
        world.env.pass(Duration::from_secs(60)).await;
    }
    world.cloud.machines(|machines| machines.switch(id, true));
    world.env.pass(Duration::from_secs(1_100)).await;
    let after = world.served().await;
    assert!(!is_off(&after));
    assert_eq!(after.status.unwrap().host_id, before);
    assert_eq!(world.hosts(), [id]);
}

#[tokio::test(start_paused = true)]
async fn other_ports_are_another_configuration_of_the_client_on_the_same_host() {
    let world = World::running().await;
    let clients: Api<Deployment> = world.env.api(NAMESPACE);
    let pods = async || clients.get(CLIENT).await.unwrap().spec.template.metadata;
    let (before, first) = (world.example().await.status.unwrap(), pods().await);
    let ports = json!([{"port": 443, "name": "a"}, {"port": 53, "protocol": "UDP", "name": "b"}]);
    merge(&world.services(), SERVICE, json!({"spec": {"ports": ports}})).await;
    world.until_status(|status| status.observed_generation == Some(2)).await;
    let after = world.served().await.status.unwrap();
    assert_eq!((&after.host_id, &after.host_ip), (&before.host_id, &before.host_ip));
    assert_eq!(world.hosts(), [before.host_id.unwrap().parse::<u64>().unwrap()]);
    let config = world.client_config(CLIENT).await;
    assert!(config.contains("[client.services.udp-53]"), "{config}");
    assert!(config.contains("local_addr = \"nginx-1.default.svc:443\""), "{config}");
    assert!(!config.contains("tcp-80"), "{config}");
    assert_ne!(pods().await, first, "its Pods are replaced");
    world.rests().await;
    assert!(!reasons(&world.env, NAMESPACE).await.contains(&"ExitChanged".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn other_keys_mean_another_host_and_an_event_says_so() {
    let world = World::running().await;
    let old = world.example().await.status.unwrap();
    // The old host serves until the new one does.
    world.lose_keys().await;
    let mut addresses = std::collections::BTreeSet::new();
    // A running host is checked about every ten minutes.
    for _ in 0..90 {
        world.env.pass(Duration::from_secs(10)).await;
        addresses.insert(ingress(&world.services().get(SERVICE).await.unwrap()));
    }
    let new = world.served().await.status.unwrap();
    assert_ne!(new.host_id, old.host_id);
    assert_eq!(addresses, [old.host_ip, new.host_ip].into(), "there was one all the time");
    assert_eq!(world.hosts(), [new.host_id.unwrap().parse::<u64>().unwrap()]);
    assert!(reasons(&world.env, NAMESPACE).await.contains(&"ExitChanged".to_owned()));
    world.rests().await;
}

/// One that cannot be made leaves the present one as it is.
#[tokio::test(start_paused = true)]
async fn a_host_serves_on_while_no_other_can_be_made_in_its_place() {
    let world = World::running().await;
    let old = world.example().await.status.unwrap();
    world.cloud.machines(|machines| machines.quota = 1);
    world.lose_keys().await;
    world.env.pass(Duration::from_secs(1_500)).await;
    let still = world.served().await.status.unwrap();
    assert_eq!((&still.host_id, &still.host_ip), (&old.host_id, &old.host_ip));
    assert!(reasons(&world.env, NAMESPACE).await.contains(&"QuotaExceeded".to_owned()));
    world.cloud.machines(|machines| machines.quota = 2);
    // It is asked again in half an hour.
    world.env.pass(Duration::from_secs(2_500)).await;
    world.until_status(|status| status.host_id != old.host_id).await;
    world.env.pass(Duration::from_secs(60)).await;
    assert_eq!(world.hosts().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_does_not_ask_gets_no_address() {
    let world = World::running().await;
    for (name, spec, annotations) in [
        ("other", json!({"loadBalancerClass": "example.com/other"}), json!({})),
        ("out", json!({}), json!({"leasehold.dev/tunnel": "false"})),
        ("internal", json!({"type": "ClusterIP"}), json!({})),
    ] {
        let mut service = json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": name, "namespace": NAMESPACE, "annotations": annotations},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
        });
        for (key, value) in spec.as_object().unwrap() {
            service["spec"][key] = value.clone();
        }
        world.env.apply(&service.to_string()).await;
    }
    world.env.pass(Duration::from_secs(60)).await;
    assert_eq!(world.tunnels().list(&ListParams::default()).await.unwrap().items.len(), 0);
    assert_eq!(world.hosts(), [0; 0]);

    // A Service that opts out later gives its address back.
    world.example().await;
    world.annotate("tunnel", json!("false")).await;
    world.gone().await;
    world.addressless().await;
    assert_eq!(world.hosts(), [0; 0]);
    world.rests().await;
}

#[tokio::test(start_paused = true)]
async fn bad_input_is_a_condition_that_names_the_remedy_and_not_a_loop() {
    let world = World::running().await;
    world.defaults(json!({"provider": null})).await;
    world.env.apply(controllers::get("tunnel").unwrap().example).await;
    let conditions_for = async |why: &str| reason(&world.env, why).await.status.unwrap().conditions;

    let conditions = conditions_for("NoProvider").await;
    assert!(conditions[0].message.contains("leasehold.dev/tunnel-provider"));
    world.rests().await;
    world.defaults(json!({"provider": "aws"})).await;
    conditions_for("UnknownProvider").await;
    world.defaults(json!({"provider": "local"})).await;
    assert!(conditions_for("Unequipped").await[0].message.contains("LEASEHOLD_TUNNEL_LOCAL=1"));
    world.rests().await;

    world.cloud.machines(|machines| machines.token = "renewed".to_owned());
    world.defaults(json!({"provider": "digitalocean"})).await;
    conditions_for("TokenRefused").await;
    world.rests().await;
    let secrets: Api<Secret> = world.env.api("leasehold-system");
    secrets.delete("cloud", &DeleteParams::default()).await.unwrap();
    let conditions = conditions_for("TokenMissing").await;
    assert!(conditions[0].message.contains("Secret leasehold-system/cloud has no key token"));
    world.rests().await;

    world.secret("leasehold-system", "cloud").await;
    world.served().await;
    assert_eq!(world.hosts().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_full_account_is_rarely_asked_again_unless_the_spec_changes() {
    let world = World::running().await;
    world.cloud.machines(|machines| machines.quota = 0);
    world.env.apply(controllers::get("tunnel").unwrap().example).await;
    let tunnel = reason(&world.env, "QuotaExceeded").await;
    assert_eq!(tunnel.status.unwrap().host_status, Some(HostStatus::Error));
    world.rests().await;
    world.cloud.machines(|machines| machines.quota = 1);
    world.annotate("tunnel-region", json!("ams3")).await;
    world.served().await;
    let region = world.cloud.machines(|machines| machines.alive().next().unwrap().region.clone());
    assert_eq!(region, "ams3");
}

#[tokio::test(start_paused = true)]
async fn a_tunnel_that_cannot_be_cleaned_up_says_so_and_may_be_abandoned() {
    let world = World::running().await;
    world.example().await;
    world.cloud.machines(|machines| machines.token = "renewed".to_owned());
    world.services().delete(SERVICE, &DeleteParams::default()).await.unwrap();
    let told = tells("Deleting", "Unable to authenticate");
    let tunnel = world.env.until_object(&world.tunnels(), NAME, told).await;
    let status = tunnel.status.unwrap();
    assert_eq!(status.host_status, Some(HostStatus::Deleting));
    assert!(status.conditions[0].message.contains("leasehold.dev/abandon=true"));
    world.rests().await;

    let abandons =
        |value: &str| json!({"metadata": {"annotations": {"leasehold.dev/abandon": value}}});
    merge(&world.tunnels(), NAME, abandons("True")).await;
    let told = tells("Deleting", "leasehold.dev/abandon is \"True\"");
    world.env.until_object(&world.tunnels(), NAME, told).await;
    world.rests().await;
    merge(&world.tunnels(), NAME, abandons("true")).await;
    world.gone().await;
    assert!(reasons(&world.env, NAMESPACE).await.contains(&"Abandoned".to_owned()));
    assert_eq!(world.hosts().len(), 1, "left behind, as was said");

    // With a token that works again, the sweep finds it; a host of another cluster is not ours.
    let now = world.env.now();
    let foreign = world.cloud.machines(|machines| {
        machines.token = "secret".to_owned();
        machines.create("foreign", "fra1", foreign_tags(), false, now).unwrap().id
    });
    world.env.pass(Duration::from_secs(4_800)).await;
    assert_eq!(world.hosts(), [foreign]);
}

/// Creates machines at a provider whose lists are this far behind.
fn lagging(lag: Duration) -> Machines {
    let mut machines = Machines::default();
    machines.lag = lag;
    machines
}

/// The tags of a host of another cluster.
fn foreign_tags() -> BTreeMap<String, String> {
    [(CLUSTER_TAG.to_owned(), "other".to_owned()), (TUNNEL_TAG.to_owned(), "x".to_owned())].into()
}

/// Lets the API server refuse those of the controller's patches that are chosen.
fn refuse_patches(
    env: &TestEnv,
    reason: Reason,
    words: &'static str,
    chosen: impl Fn(&apiserver::faults::Request) -> bool + Send + Sync + 'static,
) {
    env.set_faults(move |request: &apiserver::faults::Request| {
        let ours = request.user_agent.starts_with("leasehold/") && request.verb == "patch";
        match ours && chosen(request) {
            true => Fault::Error(ApiError::new(reason, words)),
            false => Fault::None,
        }
    });
}

/// Whether a request is about a client.
fn is_client(request: &apiserver::faults::Request) -> bool {
    request.resource == "deployments"
}

/// Connections that come through to where this says so, and fail elsewhere with these words.
fn connections(
    words: &'static str,
    pass: impl Fn(SocketAddr) -> bool + Send + Sync + 'static,
) -> Probe {
    Probe::through(move |to| {
        let passes = pass(to);
        async move { if passes { Ok(()) } else { Err(words.to_owned()) } }.boxed()
    })
}

/// A change at the provider is a write like those to the API server: the crash decides about it
/// too.
fn watched(cloud: &Cloud, crash: &Crash) {
    let crash = crash.clone();
    cloud.set_trouble(move |request: &Request<Bytes>| {
        if request.method() == Method::GET {
            return Trouble::None;
        }
        match crash.fate(&format!("{} {}", request.method(), request.uri().path())) {
            Fate::Done => Trouble::None,
            Fate::Unheard => Trouble::Unheard,
            Fate::Unsent => Trouble::Unsent,
        }
    });
}

/// The Service gets an address, and is deleted then.
async fn comes_and_goes(env: &TestEnv) {
    let services: Api<Service> = env.api(NAMESPACE);
    if services.get_opt(SERVICE).await.unwrap().is_some() {
        env.until_object(&services, SERVICE, |found| ingress(found).is_some()).await;
        services.delete(SERVICE, &DeleteParams::default()).await.unwrap();
    }
    env.until_gone(&env.api::<Tunnel>(NAMESPACE), NAME).await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_write_creates_one_host_and_leaves_none_behind() {
    for (provider, endpoint) in [("digitalocean", DIGITALOCEAN), ("hetzner", HETZNER)] {
        let writes = at_every_write(async |crash| {
            let lag = Duration::from_secs(20);
            let mut world = world(provider, endpoint, lagging(lag)).await;
            world.env.apply(controllers::get("tunnel").unwrap().example).await;
            crash.watch(&world.env);
            watched(&world.cloud, &crash);
            let settings = settings(&world.cloud);
            crash.survived(&mut world.env, || parts(2, &settings), comes_and_goes).await;
            world.gone().await;
            assert_eq!(world.hosts(), [0; 0], "no host is left over");
            let most = world.cloud.machines(|machines| machines.most_at_once(TUNNEL_TAG));
            assert_eq!(most, 1, "and there never were two");
        })
        .await;
        assert!(writes >= 12, "Tunnel, finalizer, mark, host, client, address and back: {writes}");
    }
}
