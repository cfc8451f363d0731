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
    Exit { credentials, ports, archive: None }
}

#[test]
fn both_ends_call_a_port_by_one_name() {
    let exit = exit(&[(53, Protocol::Udp), (53, Protocol::Tcp), (80, Protocol::Tcp)]);
    let spec = TunnelSpec {
        service_name: "web".to_owned(),
        ports: exit.ports.clone(),
        ..TunnelSpec::default()
    };
    let mut tunnel = Tunnel::new("web-tunnel", spec);
    tunnel.metadata.namespace = Some("shop".to_owned());
    let client = client_config(&tunnel, "203.0.113.7", &exit.credentials);
    insta::assert_snapshot!("host", exit.config("0.0.0.0"));
    insta::assert_snapshot!("client", client);
    insta::assert_yaml_snapshot!("deployment", super::client(&tunnel, &client));
}

#[test]
fn a_machine_is_told_its_configuration_and_how_to_run_it() {
    let exit = exit(&[(80, Protocol::Tcp)]);
    let text = exit.user_data();
    let config: Value =
        serde_json::from_str(text.strip_prefix("#cloud-config\n").unwrap()).unwrap();
    let files: Vec<_> = config["write_files"].as_array().unwrap().iter().collect();
    let content = |file: &Value| {
        let content = STANDARD.decode(file["content"].as_str().unwrap()).unwrap();
        String::from_utf8(content).unwrap()
    };
    assert_eq!(content(files[0]), exit.config("0.0.0.0"));
    assert_eq!(files[0]["permissions"], "0600");
    let told = files[1..].iter().map(|file| content(file)).collect::<Vec<_>>().join("----\n");
    insta::assert_snapshot!("machine", told);
    assert_eq!(config["disable_root"], true);
    let closes =
        |command: &Value| command[1] == "mask" && command.to_string().contains("ssh.service");
    assert!(config["runcmd"].as_array().unwrap().iter().any(closes));

    let checked = Exit { archive: Some("0a".repeat(32)), ..exit };
    let check = format!("echo '{}  rathole.zip' | sha256sum -c -\npython3", "0a".repeat(32));
    assert!(checked.install().contains(&check));
}

#[test]
fn a_machine_that_is_to_answer_on_53_gives_up_its_own_resolver_there() {
    let resolver = |ports| exit(ports).user_data().contains("systemd-resolved.service");
    assert!(resolver(&[(80, Protocol::Tcp), (53, Protocol::Udp)]));
    assert!(!resolver(&[(80, Protocol::Tcp), (153, Protocol::Udp)]));
}

#[test]
fn other_ports_or_keys_are_another_configuration() {
    use Protocol::{Tcp, Udp};
    let web = exit(&[(80, Tcp)]);
    assert_eq!(web.digest(), exit(&[(80, Tcp)]).digest());
    let mut renewed = web.clone();
    renewed.credentials.token = "another".to_owned();
    let mut rekeyed = web.clone();
    rekeyed.credentials.private_key = "another".to_owned();
    for other in [exit(&[(81, Tcp)]), exit(&[(80, Udp)]), exit(&[(80, Tcp), (443, Tcp)])] {
        assert_ne!(other.digest(), web.digest(), "{:?}", other.ports);
    }
    assert_ne!(renewed.digest(), web.digest());
    assert_ne!(rekeyed.digest(), web.digest());
}
