//! Whatever a Service, a Tunnel or an access list says: token, endpoint, size and image are those that the administrator
//! allows, nothing is granted to a namespace that no list names, and no answer of a provider brings anything down.

use std::net::{IpAddr, Ipv6Addr};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use sdk::access::Asker;
use serde_json::{Value, json};

use crate::access::{self, Access};
use crate::api::{Tunnel, TunnelSpec};
use crate::choice::{self, Defaults, TokenRef};
use crate::exit::{self, Archives, Exit};
use crate::ipv6::Ipv6;
use crate::plan;
use crate::provider::{self, Address, Host};
use crate::service::{self, Step};

/// What the administrator allows.
const ENDPOINT: &str = "https://cloud.example";
const SECRETS: [&str; 2] = ["cloud", "mine"];
const SIZES: [&str; 3] = ["small", "large", "s-1vcpu-512mb-10gb"];

fn defaults() -> Defaults {
    let map = json!({
        "metadata": {"name": "leasehold-tunnel", "namespace": "leasehold-system"},
        "data": {
            "provider": "digitalocean", "endpoint": ENDPOINT, "tokenSecret": SECRETS[0],
            "tokenSecrets": SECRETS[1], "size": SIZES[0], "sizes": SIZES[1], "clientImages": "registry.example/client:1",
        },
    });
    let map: ConfigMap = serde_json::from_value(map).expect("a ConfigMap");
    Defaults::of_system([&map], "leasehold-system")
}

/// What a spec comes to, if nothing refuses it.
fn judge(spec: &TunnelSpec) {
    let defaults = defaults();
    let Ok(placement) = choice::placement(spec) else { return };
    let token = choice::token(spec, "shop", &defaults, &placement);
    let size = choice::check_size(&placement, &defaults);
    let image = choice::check_image(spec, &defaults);
    for refused in [token.as_ref().err(), size.as_ref().err(), image.as_ref().err()] {
        assert!(refused.is_none_or(|refused| !refused.reason().is_empty()));
    }
    if placement.provider == "local" {
        return;
    }
    if let Ok(Some(TokenRef { namespace, secret })) = &token {
        let (at, name) = (namespace.as_str(), secret.name.as_str());
        let known = [("leasehold-system", SECRETS[0]), ("shop", SECRETS[1])];
        assert!(known.contains(&(at, name)), "{spec:?}");
        // A token is sent to the provider's own API, or where the administrator says that this provider is.
        let endpoint = placement.endpoint.as_deref();
        let own = placement.provider == "digitalocean" && endpoint == Some(ENDPOINT);
        assert!(endpoint.is_none() || own, "{spec:?}");
    }
    if size.is_ok() && placement.provider == "digitalocean" {
        assert!(SIZES.contains(&placement.size.as_str()), "{spec:?}");
    }
    if image.is_ok() {
        let known = ["registry.example/client:1", &exit::client_image()];
        assert!(spec.client_image.as_deref().is_none_or(|it| known.contains(&it)), "{spec:?}");
    }
    if choice::check_ports(spec, 1).is_ok() {
        assert!(!spec.ports.is_empty());
    }
}

fn a_service(input: &[u8]) {
    let Ok(service) = serde_json::from_slice::<Service>(input) else { return };
    let defaults = defaults();
    judge(&choice::spec(&service, &defaults));
    match service::plan(&service, &defaults, None, |_| Ok(())) {
        Step::Apply(tunnel) => judge(&tunnel.spec),
        Step::Refuse { reason, message } => assert!(!reason.is_empty() && !message.is_empty()),
        _ => {}
    }
    // Of a host with two addresses each gets the first, and who asks for IPv6 the second.
    let told = ["Ready", "IPv6"].map(|type_| {
        json!({
            "type": type_, "status": "True", "reason": "Connected", "message": "",
            "lastTransitionTime": "2026-11-22T12:00:00Z",
        })
    });
    let served = json!({
        "apiVersion": "inlets.inlets.dev/v1alpha1", "kind": "Tunnel",
        "metadata": {"name": "web-tunnel"}, "spec": {"serviceName": "web"},
        "status": {
            "hostStatus": "active", "hostIP": "1.2.3.4", "hostIPv6": "2a01:4f8::1",
            "conditions": told,
        },
    });
    let served: Tunnel = serde_json::from_value(served).expect("a Tunnel");
    let step = Step::Apply(Box::new(served.clone()));
    let now = "2026-11-22T12:00:00Z".parse().expect("a time");
    let status = service::status(&service, &step, Some(&served), now);
    let told = status.load_balancer.and_then(|found| found.ingress).unwrap_or_default();
    let told: Vec<_> = told.iter().filter_map(|entry| entry.ip.as_deref()).collect();
    let count = if crate::ipv6::is_wanted(&service) { 2 } else { 1 };
    assert_eq!(told, ["1.2.3.4", "2a01:4f8::1"][..count], "{service:?}");
    // Whoever may use no account gets none.
    let nobody = service::plan(&service, &defaults, None, |account| {
        Err(choice::InvalidTunnel::AccountNotPermitted {
            account: account.to_owned(),
            namespace: "shop".to_owned(),
            cluster: "east".to_owned(),
        })
    });
    if let Step::Apply(tunnel) = nobody {
        let placed = choice::placement(&tunnel.spec);
        let named = placed.and_then(|at| choice::token(&tunnel.spec, "shop", &defaults, &at));
        assert!(named.is_err(), "{:?}", tunnel.spec);
    }
}

fn a_tunnel(input: &[u8]) {
    let Ok(tunnel) = serde_json::from_slice::<Tunnel>(input) else { return };
    judge(&tunnel.spec);
    let status = tunnel.status.unwrap_or_default();
    let _ = plan::keep(&status, &[]);
    let ports = tunnel.spec.ports;
    let credentials = crate::credentials::Credentials::draw().expect("random bytes");
    let exit =
        Exit { credentials, ports, archives: Archives::default(), address: None, clients: 2 };
    assert!(exit.form(Some(&exit.digest())).is_some());
    assert!(exit.user_data().starts_with("#cloud-config\n"));
}

fn answers(input: &[u8]) {
    let Ok(answer) = serde_json::from_slice::<Value>(input) else { return };
    for host in provider::answers::hosts(&answer) {
        let _ = plan::is_late(&host, Timestamp::UNIX_EPOCH);
        let Host { id, ipv6, .. } = host;
        // It becomes a part of paths.
        assert!(id.parse::<u64>().is_ok(), "{id}");
        // What is tried and published is of 2000::/3.
        let ipv6 = Ipv6::of(ipv6);
        let address = ipv6.address().map(|address| address.parse::<Ipv6Addr>().expect("IPv6"));
        assert!(address.is_none_or(|it| it.octets()[0] >> 5 == 1), "{ipv6:?}");
    }
    for Address { id, ip, .. } in provider::answers::addresses(&answer) {
        assert!(id.parse::<u64>().is_ok() || id.parse::<IpAddr>().is_ok(), "{id}");
        assert!(ip.parse::<IpAddr>().is_ok(), "{ip}");
    }
}

fn list(input: &[u8]) {
    let Ok(settings) = serde_json::from_slice::<Value>(input) else { return };
    if access::check(&settings).is_err() {
        return;
    }
    let read = Access::parse(&settings).expect("it was checked");
    let text = settings.to_string();
    if text.contains('*') || text.contains("not-in-any-list") {
        return;
    }
    let account = "digitalocean/leasehold-system/cloud";
    let listed = settings["access"].as_array().is_some_and(|entries| {
        entries.iter().any(|entry| {
            let accounts = entry.get("accounts").and_then(Value::as_array);
            accounts.is_none_or(|all| all.is_empty() || all.iter().any(|one| one == account))
        })
    });
    let asker = Asker { cluster: "east", cluster_uid: None, namespace: "not-in-any-list" };
    assert!(!listed || !read.permits(&asker, account), "{settings}");
}

#[test]
fn services() {
    fuzz::fuzz!("services", a_service);
}

#[test]
fn tunnels() {
    fuzz::fuzz!("tunnels", a_tunnel);
}

#[test]
fn provider_answers() {
    fuzz::fuzz!("answers", answers);
}

#[test]
fn access_lists() {
    fuzz::fuzz!("access", list);
}
