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
fn the_nearest_defaults_apply_alone() {
    let maps = [
        defaults("kube-system", json!({"provider": "hetzner"})),
        defaults("leasehold-system", json!({"provider": "digitalocean", "region": "ams3"})),
        defaults("other", json!({"provider": "local"})),
    ];
    let provider =
        |namespace| spec(&service(json!({})), &Defaults::for_namespace(&maps, namespace));
    assert_eq!(provider("shop").provider.as_deref(), Some("digitalocean"));
    assert_eq!(provider("shop").region.as_deref(), Some("ams3"));
    assert_eq!(provider("other").provider.as_deref(), Some("local"));
    let none = spec(&service(json!({})), &Defaults::default());
    assert_eq!(placement(&none).unwrap_err().reason(), "NoProvider");
}

#[test]
fn annotations_win_and_take_no_region_of_another_provider() {
    let map = defaults("kube-system", json!({"provider": "digitalocean", "region": "ams3"}));
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

/// The administrator's token goes to the administrator's provider at the administrator's address.
#[test]
fn a_token_of_the_defaults_goes_nowhere_else() {
    let map = defaults("kube-system", json!({"provider": "digitalocean", "tokenSecret": "t"}));
    let defaults = Defaults::of(&map);
    for (annotations, expect) in [
        (json!({}), "kube-system/t"),
        (json!({"leasehold.dev/tunnel-endpoint": "https://evil.example"}), "NoToken"),
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

#[test]
fn what_cannot_be_is_named_with_its_remedy() {
    let ports = |list: &[i32]| TunnelSpec {
        service_name: "web".to_owned(),
        ports: list.iter().map(|&port| TunnelPort { port, protocol: Protocol::Tcp }).collect(),
        ..TunnelSpec::default()
    };
    assert_eq!(check_ports(&ports(&[80, 443])), Ok(()));
    assert_eq!(check_ports(&ports(&[])).unwrap_err().reason(), "NoPorts");
    assert_eq!(
        check_ports(&ports(&[80, 22])).unwrap_err().to_string(),
        "port 22 is used by the host itself: give Service web another port"
    );
    let unknown = TunnelSpec { provider: Some("aws".to_owned()), ..ports(&[80]) };
    assert_eq!(
        placement(&unknown).unwrap_err().to_string(),
        r#""aws" is not a provider: use digitalocean, hetzner or local"#
    );
}
