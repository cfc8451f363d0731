//! What both ends are told, as a snapshot; and what makes it another.

use super::*;
use crate::api::TunnelSpec;

fn exit(ports: &[(i32, Protocol)]) -> Exit {
    let credentials = Credentials {
        private_key: "private".to_owned(),
        public_key: "public".to_owned(),
        token: "token".to_owned(),
    };
    let ports = ports.iter().map(|&(port, protocol)| TunnelPort { port, protocol }).collect();
    Exit { credentials, ports, archives: Archives::default(), address: None, clients: 1 }
}

/// The Tunnel whose host is told that.
fn tunnel(exit: &Exit) -> Tunnel {
    let spec = TunnelSpec {
        service_name: "web".to_owned(),
        ports: exit.ports.clone(),
        ..TunnelSpec::default()
    };
    let mut tunnel = Tunnel::new("web-tunnel", spec);
    tunnel.metadata.namespace = Some("shop".to_owned());
    tunnel
}

#[test]
fn both_ends_call_a_port_by_one_name() {
    let exit = exit(&[(53, Protocol::Udp), (53, Protocol::Tcp), (80, Protocol::Tcp)]);
    let mut tunnel = tunnel(&exit);
    let client = client_config(&tunnel, "203.0.113.7", &exit.credentials, Form::Tokens(1), 0);
    let config = exit.config(&Addresses::machine("[::]"));
    let services: Vec<_> =
        config.split("\n\n").filter(|part| part.contains(".services.")).collect();
    assert_eq!(services.len(), 2 * 65_535 - 2, "all but those of the host itself");
    let of = |name: &str| {
        let head = format!("[server.services.{name}]");
        services.iter().find(|part| part.starts_with(&head)).copied()
    };
    assert_eq!((of("tcp-22"), of("tcp-2333")), (None, None));
    let some = ["tcp-53", "tcp-80", "udp-53"].map(|name| of(name).unwrap());
    insta::assert_snapshot!("host", format!("{}\n{}", exit.head("[::]"), some.join("\n")));
    insta::assert_snapshot!("client", client);
    insta::assert_yaml_snapshot!("deployment", super::client(&tunnel, (0, 1), &client, "7", None));
    // An image that somebody names may run everywhere.
    let image = |image: &str| {
        tunnel.spec.client_image = Some(image.to_owned());
        let client = super::client(&tunnel, (0, 1), &client, "7", Some("high"));
        client.spec.template.spec.unwrap()
    };
    let [named, usual] = ["registry.example/client:1", &client_image()].map(image);
    assert!(named.affinity.is_none() && usual.affinity.is_some());
    assert_eq!(named.tolerations.unwrap().len(), 2);
    assert_eq!(named.priority_class_name.as_deref(), Some("high"));
}

/// Each client has ports of its own, to which haproxy connects, and the first alone has those of UDP.
#[test]
fn several_clients_share_a_host_and_no_name() {
    let ports = [(53, Protocol::Udp), (53, Protocol::Tcp)];
    let exit = Exit { clients: 2, ..exit(&ports) };
    let config = exit.config(&Addresses::machine("[::]"));
    let services: Vec<_> =
        config.split("\n\n").filter(|part| part.contains(".services.")).collect();
    assert_eq!(services.len(), 3 * 65_535 - 2 * 3 + 2, "all but those of the host itself");
    let bind = |name: &str| {
        let head = format!("[server.services.{name}]");
        let found = services.iter().find(|part| part.starts_with(&head))?;
        found.lines().find_map(|line| line.strip_prefix("bind_addr = "))
    };
    for (name, expect) in [
        ("tcp-53-0", Some("\"127.0.0.2:53\"")),
        ("tcp-53-1", Some("\"127.0.0.3:53\"")),
        ("udp-53", Some("\"[::]:53\"")),
        ("check-1", Some("\"127.0.0.1:2341\"")),
        ("tcp-53", None),
        ("tcp-2334-0", None),
        ("tcp-53-2", None),
        ("check-2", None),
    ] {
        assert_eq!(bind(name), expect, "{name}");
    }
    let balancer = balance::machine(2);
    assert!(balancer.contains("server 1 127.0.0.3 addr 127.0.0.1 port 2341\n"), "{balancer}");

    let tunnel = tunnel(&exit);
    let told =
        |client| client_config(&tunnel, "203.0.113.7", &exit.credentials, Form::Tokens(2), client);
    insta::assert_snapshot!("clients", [told(0), told(1)].join("\n----\n"));
    for name in ["tcp-53-1", "check-1"] {
        assert!(told(1).contains(&token(&exit.key(), name)));
    }
    let [first, second] =
        [0, 1].map(|client| super::client(&tunnel, (client, 2), "", "7", None).spec);
    assert_ne!(first.selector, second.selector);
    let spread = second.template.spec.unwrap().topology_spread_constraints;
    assert_eq!(spread, first.template.spec.unwrap().topology_spread_constraints);
    insta::assert_yaml_snapshot!("spread", spread);
}

/// What a machine is told: its files, and all.
fn told(exit: &Exit) -> (Vec<String>, Value) {
    let text = exit.user_data();
    let config: Value =
        serde_json::from_str(text.strip_prefix("#cloud-config\n").unwrap()).unwrap();
    let content = |file: &Value| {
        let content = STANDARD.decode(file["content"].as_str().unwrap()).unwrap();
        String::from_utf8(content).unwrap()
    };
    (config["write_files"].as_array().unwrap().iter().map(content).collect(), config)
}

/// Hetzner takes 32 KiB, DigitalOcean 64.
#[test]
fn what_a_machine_is_told_is_as_short_as_every_provider_takes() {
    for clients in 1..=MAX_CLIENTS {
        let address = Some(Ipv4Addr::new(203, 0, 113, 255));
        let credentials = Credentials::draw().unwrap();
        let told = Exit { clients, address, credentials, ..exit(&[]) }.user_data();
        assert!(told.len() <= 32 << 10, "{clients} clients: {} bytes", told.len());
    }
}

#[test]
fn a_machine_with_several_clients_installs_a_balancer() {
    let (files, _) = told(&Exit { clients: 2, ..exit(&[]) });
    insta::assert_snapshot!("machine-of-several", files[2..].join("----\n"));
}

#[test]
fn a_machine_is_told_its_configuration_and_how_to_run_it() {
    let exit = exit(&[(80, Protocol::Tcp)]);
    let (contents, config) = told(&exit);
    let files: Vec<_> = config["write_files"].as_array().unwrap().iter().collect();
    assert_eq!(contents[0], exit.head("[::]"));
    assert_eq!(contents[1], exit.secret());
    assert_eq!(
        (&files[0]["permissions"], &files[1]["permissions"]),
        (&json!("0600"), &json!("0600"))
    );
    insta::assert_snapshot!("machine", contents[2..].join("----\n"));
    assert_eq!(config["disable_root"], true);
    // One that cannot be masked, as it is an alias, leaves none of the others open.
    let commands = config["runcmd"].as_array().unwrap();
    for unit in ["ssh.socket", "ssh.service", "sshd.service"] {
        let closes = json!(["systemctl", "mask", "--now", unit]);
        assert!(commands.contains(&closes), "{commands:?}");
    }

    let archives = Archives { x86_64: "0a".repeat(32), aarch64: "0b".repeat(32) };
    let checked = Exit { archives, ..exit }.install();
    for (target, sum) in [("aarch64-unknown-linux-musl", "0b"), ("x86_64-unknown-linux-gnu", "0a")]
    {
        let told = format!("target={target} sum='{}' ;;", sum.repeat(32));
        assert!(checked.contains(&told), "{checked}");
    }
}

/// What Python's `hmac.new(b"private token", b"tcp-80", "sha256").hexdigest()[:32]` says: a machine derives them so.
#[test]
fn the_token_of_a_port_is_what_a_machine_derives() {
    let exit = exit(&[]);
    assert_eq!(token(&exit.key(), "tcp-80"), "dcdbcda6941a3683407792e01cb2db88");
}

#[test]
fn a_client_knows_the_tokens_of_its_ports_alone() {
    let exit = exit(&[(80, Protocol::Tcp)]);
    let spec = TunnelSpec { ports: exit.ports.clone(), ..TunnelSpec::default() };
    let tunnel = Tunnel::new("web-tunnel", spec);
    let config = client_config(&tunnel, "203.0.113.7", &exit.credentials, Form::Tokens(1), 0);
    assert!(config.contains(&token(&exit.key(), "tcp-80")));
    assert_eq!(
        config.matches("local_addr = ").count(),
        2,
        "its own, and that by which it is tried"
    );
    let told = [exit.credentials.token.as_str(), exit.credentials.private_key.as_str()];
    for secret in told.map(|secret| format!("\"{secret}\"")) {
        assert!(!config.contains(&secret), "{config}");
    }
}

/// A Service may have that port itself, and a host that an earlier version made knows no other than its Service's.
#[test]
fn the_only_client_of_a_host_is_asked_where_that_is_possible() {
    for (ports, form, expect) in [
        (vec![80], Form::Tokens(1), true),
        (vec![80, 2334], Form::Tokens(1), false),
        (vec![80], Form::List, false),
        (vec![80], Form::Tokens(2), false),
    ] {
        let ports: Vec<_> = ports.into_iter().map(|port| (port, Protocol::Tcp)).collect();
        let exit = exit(&ports);
        let config = client_config(&tunnel(&exit), "203.0.113.7", &exit.credentials, form, 0);
        let asked = "[client.services.tcp-2334]\nlocal_addr = \"127.0.0.1:1\"\n";
        assert_eq!(config.contains(asked), expect, "{config}");
    }
}

#[test]
fn other_keys_are_another_host_and_other_ports_are_not() {
    use Protocol::{Tcp, Udp};
    let web = exit(&[(80, Tcp)]);
    let other = exit(&[(81, Tcp), (53, Udp)]);
    assert_eq!(web.digest(), other.digest());
    assert_eq!(other.form(Some(&web.digest())), Some(Form::Tokens(1)));
    // A host of an earlier version is kept as long as it is for the same ports.
    assert_eq!(web.form(Some(&web.list_digest())), Some(Form::List));
    assert_eq!(web.form(Some(&other.list_digest())), None);
    let mut renewed = web.clone();
    renewed.credentials.token = "another".to_owned();
    let mut rekeyed = web.clone();
    rekeyed.credentials.private_key = "another".to_owned();
    assert_eq!(web.form(Some(&renewed.digest())), None);
    assert_eq!(web.form(Some(&rekeyed.digest())), None);
    assert_eq!(web.form(None), None);
    // A host that must know of a reserved address is another than one that does not.
    let told = Exit { address: Some(Ipv4Addr::new(203, 0, 113, 7)), ..web.clone() };
    assert_eq!(told.form(Some(&told.digest())), Some(Form::Tokens(1)));
    assert_eq!(told.form(Some(&web.digest())), None);
    assert_eq!(told.form(Some(&web.list_digest())), None);
    // So is one for several clients, and its digest says for how many it is.
    let several = Exit { clients: 2, ..web.clone() };
    assert_eq!(several.form(Some(&web.digest())), Some(Form::Tokens(1)));
    assert_eq!(web.form(Some(&several.digest())), Some(Form::Tokens(2)));
    assert_eq!(several.form(Some(&web.list_digest())), Some(Form::List));
    assert_eq!(several.digests(), [several.digest()]);
    assert_ne!(several.digest(), Exit { clients: 3, ..web.clone() }.digest());
    assert!(told.install().contains("ip address replace 203.0.113.7/32 dev \"$device\""));
}
