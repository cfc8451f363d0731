//! Who makes the host: annotations before defaults, and whose token may go where.

use serde_json::json;

use super::*;

fn defaults(namespace: &str, data: serde_json::Value) -> ConfigMap {
    let name = CONFIG_MAP;
    serde_json::from_value(
        json!({"metadata": {"name": name, "namespace": namespace}, "data": data}),
    )
    .unwrap()
}

fn service(annotations: serde_json::Value) -> Service {
    serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "shop", "annotations": annotations},
        "spec": {"ports": [{"port": 443}, {"port": 53, "protocol": "UDP"}, {"port": 9, "protocol": "SCTP"}]},
    }))
    .unwrap()
}

#[test]
fn only_the_administrators_defaults_apply() {
    let maps = [
        defaults("kube-system", json!({"provider": "hetzner"})),
        defaults("leasehold-system", json!({"provider": "digitalocean", "region": "ams3"})),
        defaults("other", json!({"provider": "local"})),
    ];
    for (namespace, expect) in [
        ("leasehold-system", Some(("digitalocean", Some("ams3")))),
        ("kube-system", Some(("hetzner", None))),
        ("missing", None),
    ] {
        let found = spec(&service(json!({})), &Defaults::of_system(&maps, namespace));
        let found = found.provider.as_deref().map(|name| (name, found.region.as_deref()));
        assert_eq!(found, expect, "{namespace}");
    }
    let none = spec(&service(json!({})), &Defaults::default());
    assert_eq!(placement(&none).unwrap_err().reason(), "NoProvider");
}

#[test]
fn annotations_win_and_take_no_region_of_another_provider() {
    let map = defaults(
        "kube-system",
        json!({"provider": "digitalocean", "region": "ams3", "tokenSecrets": "other, mine"}),
    );
    let defaults = Defaults::of(&map);
    let annotated = service(json!({
        "leasehold.dev/tunnel-provider": "hetzner", "leasehold.dev/tunnel-token-secret": "mine",
    }));
    let spec = spec(&annotated, &defaults);
    assert_eq!((spec.provider.as_deref(), spec.region.as_deref()), (Some("hetzner"), None));
    assert_eq!(placement(&spec).unwrap().region, "fsn1");
    let ports: Vec<_> = spec.ports.iter().map(|port| (port.port, port.protocol)).collect();
    assert_eq!(ports, [(53, Protocol::Udp), (443, Protocol::Tcp)]);
    let placement = placement(&spec).unwrap();
    let found = token(&spec, "shop", &defaults, &placement).unwrap().unwrap();
    assert_eq!((&*found.namespace, &*found.secret.name), ("shop", "mine"));
}

/// Two annotations would send any value of the namespace to any address.
#[test]
fn a_service_names_no_endpoint_secret_or_size_that_the_administrator_does_not() {
    let allowed = "https://cloud.example";
    let map = defaults(
        "kube-system",
        json!({
            "provider": "digitalocean", "endpoint": allowed, "tokenSecret": "t",
            "tokenSecrets": "mine", "size": "small", "sizes": "middle, large",
        }),
    );
    let defaults = Defaults::of(&map);
    for (annotations, expect) in [
        (json!({}), "kube-system/t"),
        (json!({"endpoint": "https://evil.example", "token-secret": "database"}), "endpoint"),
        (json!({"endpoint": "https://evil.example", "token-secret": "mine"}), "endpoint"),
        // What one provider may be asked at, another may not.
        (json!({"provider": "hetzner", "endpoint": allowed, "token-secret": "mine"}), "endpoint"),
        (json!({"token-secret": "database"}), "tokenSecretRef"),
        (json!({"token-secret": "mine"}), "shop/mine"),
        (json!({"size": "large"}), "kube-system/t"),
        (json!({"size": "s-1vcpu-512mb-10gb"}), "kube-system/t"),
        (json!({"size": "huge"}), "size"),
        // What is empty is not said.
        (json!({"size": "", "endpoint": "", "token-secret": ""}), "kube-system/t"),
    ] {
        let prefixed = annotations.as_object().unwrap().iter();
        let prefixed = prefixed.map(|(key, value)| (format!("{ANNOTATION}{key}"), value.clone()));
        let spec = spec(&service(prefixed.collect()), &defaults);
        let placement = placement(&spec).unwrap();
        let found = check_size(&placement, &defaults)
            .and_then(|()| token(&spec, "shop", &defaults, &placement));
        let found = match found {
            Ok(token) => token.map(|of| format!("{}/{}", of.namespace, of.secret.name)).unwrap(),
            Err(InvalidTunnel::NotPermitted { what, .. }) => what.to_owned(),
            Err(other) => panic!("{other}"),
        };
        assert_eq!(found, expect, "{annotations}");
    }
}

/// The administrator's token goes to the administrator's provider at the administrator's address.
#[test]
fn a_token_of_the_defaults_goes_nowhere_else() {
    let map = defaults("kube-system", json!({"provider": "digitalocean", "tokenSecret": "t"}));
    let defaults = Defaults::of(&map);
    for (annotations, expect) in [
        (json!({}), "kube-system/t"),
        (json!({"leasehold.dev/tunnel-endpoint": "https://evil.example"}), "NotPermitted"),
        (json!({"leasehold.dev/tunnel-provider": "hetzner"}), "NoToken"),
        (json!({"leasehold.dev/tunnel-provider": "local"}), "none"),
    ] {
        let spec = spec(&service(annotations.clone()), &defaults);
        let placement = placement(&spec).unwrap();
        let found = match token(&spec, "shop", &defaults, &placement) {
            Ok(Some(token)) => format!("{}/{}", token.namespace, token.secret.name),
            Ok(None) => "none".to_owned(),
            Err(invalid) => invalid.reason().to_owned(),
        };
        assert_eq!(found, expect, "{annotations}");
    }
}

/// A default is for new hosts: another version has others.
#[test]
fn what_is_not_asked_for_is_as_the_host_is() {
    let tunnel = |spec: serde_json::Value, status: serde_json::Value| -> Tunnel {
        let mut spec = spec;
        spec["serviceName"] = json!("web");
        let of = json!({
            "apiVersion": "inlets.inlets.dev/v1alpha1", "kind": "Tunnel",
            "metadata": {"name": "web-tunnel"}, "spec": spec, "status": status,
        });
        serde_json::from_value(of).unwrap()
    };
    let map = defaults("kube-system", json!({"provider": "hetzner", "sizes": "cx33"}));
    let of_map = Defaults::of(&map);
    let at = json!({"provider": "hetzner", "region": "nbg1", "size": "cx11"});
    let host = json!({"hostID": "1", "placement": at});
    let asked = json!({"creatingSince": "2026-11-22T12:00:00Z", "placement": at});
    let stable = json!({"address": {"id": "1", "ip": "1.2.3.4", "seal": ""}, "placement": at});
    let gone = json!({"placement": at});
    let hetzner = |more: &[(&str, &str)]| {
        let mut spec = json!({"provider": "hetzner"});
        more.iter().for_each(|(key, value)| spec[*key] = json!(value));
        spec
    };
    for (spec, status, expect) in [
        (hetzner(&[]), &host, "nbg1 cx11"),
        (hetzner(&[]), &asked, "nbg1 cx11"),
        (hetzner(&[("region", "fsn1")]), &host, "fsn1 cx11"),
        (hetzner(&[("size", "cx23")]), &host, "nbg1 cx23"),
        (hetzner(&[("size", "cx33")]), &host, "nbg1 cx33"),
        // It need not be one that new hosts may have.
        (hetzner(&[("size", "cx11")]), &host, "nbg1 cx11"),
        (hetzner(&[("size", "cx11")]), &gone, "NotPermitted"),
        (hetzner(&[("size", "huge")]), &host, "NotPermitted"),
        // An address is of its region, and has no size.
        (hetzner(&[]), &stable, "nbg1 cx23"),
        (hetzner(&[]), &gone, "fsn1 cx23"),
        (json!({"provider": "digitalocean"}), &host, "fra1 s-1vcpu-512mb-10gb"),
    ] {
        let found = wanted(&tunnel(spec.clone(), status.clone()), &of_map);
        let found = match found {
            Ok(placement) => format!("{} {}", placement.region, placement.size),
            Err(invalid) => invalid.reason().to_owned(),
        };
        assert_eq!(found, expect, "{spec} {status}");
    }
}

#[test]
fn what_cannot_be_is_named_with_its_remedy() {
    let ports = |list: &[i32]| TunnelSpec {
        service_name: "web".to_owned(),
        ports: list.iter().map(|&port| TunnelPort { port, protocol: Protocol::Tcp }).collect(),
        ..TunnelSpec::default()
    };
    assert_eq!(check_ports(&ports(&[80, 443]), 1), Ok(()));
    assert_eq!(check_ports(&ports(&[]), 1).unwrap_err().reason(), "NoPorts");
    assert_eq!(
        check_ports(&ports(&[80, 22]), 1).unwrap_err().to_string(),
        "port 22 is used by the host itself: give Service web another port"
    );
    // Only a host with several clients has a balancer.
    assert_eq!(check_ports(&ports(&[2334]), 1), Ok(()));
    assert_eq!(check_ports(&ports(&[2334]), 2).unwrap_err().reason(), "PortReserved");
    // What the balancer says there is no sign of a backend.
    for (clients, expect) in [(1, &[2334, 8080][..]), (2, &[8080])] {
        let open = open_ports(&ports(&[2333, 2334, 8080]), clients);
        assert_eq!(open.iter().map(|port| port.port).collect::<Vec<_>>(), expect, "{clients}");
    }
    let unknown = TunnelSpec { provider: Some("aws".to_owned()), ..ports(&[80]) };
    assert_eq!(
        placement(&unknown).unwrap_err().to_string(),
        r#""aws" is not a provider: use digitalocean, hetzner or local"#
    );
}

#[test]
fn what_cannot_be_a_checksum_is_refused() {
    let of = |sum: &str, arm: &str| {
        let said = json!({"ratholeSha256": sum, "ratholeSha256Arm64": arm});
        let archives = Defaults::of(&defaults("kube-system", said)).archives();
        archives.map(|Archives { x86_64, aarch64 }| (x86_64, aarch64))
    };
    let (one, two) = ("0a".repeat(32), "0B".repeat(32));
    let sums = |x86_64: &String, aarch64: &String| (x86_64.clone(), aarch64.clone());
    // No machine runs what nothing is checked against.
    let known = Archives::default();
    assert_eq!(of("", "").unwrap(), sums(&known.x86_64, &known.aarch64));
    assert_eq!(of(&one, &two).unwrap(), sums(&one, &two));
    assert_eq!(of(&one, "").unwrap(), sums(&one, &known.aarch64));
    assert_eq!(of("", &two).unwrap(), sums(&known.x86_64, &two));
    for wrong in ["abc", &"0g".repeat(32), "'; rm -rf /; '"] {
        assert_eq!(of(wrong, "").unwrap_err().reason(), "InvalidDefaults", "{wrong}");
        assert_eq!(of(&one, wrong).unwrap_err().reason(), "InvalidDefaults", "{wrong}");
    }
}

#[test]
fn there_are_as_many_clients_as_the_administrator_says() {
    for (value, expect) in
        [(json!({}), Ok(1)), (json!({"clients": "3"}), Ok(3)), (json!({"clients": ""}), Ok(1))]
    {
        assert_eq!(Defaults::of(&defaults("kube-system", value)).clients(), expect);
    }
    for value in ["0", "4", "-1", "two"] {
        let invalid = Defaults::of(&defaults("kube-system", json!({"clients": value}))).clients();
        assert_eq!(
            invalid.unwrap_err().to_string(),
            format!(
                "clients is {value:?} in ConfigMap leasehold-tunnel: write a number from 1 to 3"
            )
        );
    }
}

/// What is said in other words takes nothing away from Services that are served.
#[test]
fn services_without_a_class_are_claimed_by_a_known_word() {
    for (value, expect) in [
        ("true", Some(true)),
        ("false", Some(false)),
        ("", None),
        ("True", None),
        ("yes", None),
        (" true", None),
    ] {
        let map = defaults("kube-system", json!({"claimServicesWithoutClass": value}));
        assert_eq!(Defaults::of(&map).serves_classless(), expect, "{value:?}");
    }
}

#[test]
fn ipv6_is_for_who_says_true() {
    for (value, expect) in [
        (json!(null), Ok(false)),
        (json!(""), Ok(false)),
        (json!("false"), Ok(false)),
        (json!("true"), Ok(true)),
        (json!("yes"), Err("ipv6 is \"yes\" in ConfigMap leasehold-tunnel: write true or false")),
    ] {
        let data = if value.is_null() { json!({}) } else { json!({"ipv6": value}) };
        let found = Defaults::of(&defaults("kube-system", data)).ipv6();
        assert_eq!(found.map_err(|error| error.to_string()), expect.map_err(str::to_owned));
    }
}

#[test]
fn an_address_is_proved_unless_the_administrator_says_otherwise() {
    let wrong =
        "probe is \"answers\" in ConfigMap leasehold-tunnel: write true, answer, open or false";
    for (value, expect) in [
        (json!({}), Ok(Some(Proof::End))),
        (json!({"probe": ""}), Ok(Some(Proof::End))),
        (json!({"probe": "true"}), Ok(Some(Proof::End))),
        (json!({"probe": "answer"}), Ok(Some(Proof::Answer))),
        (json!({"probe": "open"}), Ok(Some(Proof::Open))),
        (json!({"probe": "false"}), Ok(None)),
        (json!({"probe": "answers"}), Err(wrong.to_owned())),
    ] {
        let found = Defaults::of(&defaults("kube-system", value)).proof();
        assert_eq!(found.map_err(|error| error.to_string()), expect);
    }
}
