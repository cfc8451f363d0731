//! The tunnel itself: [chisel](https://github.com/jpillora/chisel), TCP and UDP over one SSH
//! connection inside HTTP. What runs on the host, and what connects the cluster to it. Pure.
//!
//! The client insists on the host's key and shows a password. The host lets it open ports and nothing
//! else: a rule for addresses keeps it from being a proxy to elsewhere. Flags and the form of remotes
//! are those of chisel 1.10, from its own README.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::api::{Protocol, Tunnel, TunnelPort};
use super::credentials::{AUTH, Credentials};
use super::names;
use crate::label::label_value;

/// The chisel that hosts and clients run, unless the defaults name another client image.
pub const VERSION: &str = "1.10.1";
/// Where the host listens for its client.
pub const CONTROL_PORT: i32 = 8443;
/// Ports of the host's own: SSH, and the client's.
pub const RESERVED_PORTS: [i32; 2] = [22, CONTROL_PORT];

/// What a host runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// What it and its client know each other by.
    pub credentials: Credentials,
}

impl Exit {
    /// Who may open which addresses: the client, ports of the host.
    pub fn users(&self) -> String {
        json!({&*self.credentials.auth: ["^R:[0-9.]+:[0-9]+(/udp)?$"]}).to_string()
    }

    /// chisel's arguments, given where it listens and where its files are.
    pub fn arguments(host: &str, key_file: &str, users_file: &str) -> Vec<String> {
        let port = CONTROL_PORT.to_string();
        let words = ["server", "--reverse", "--host", host, "--port", &port];
        let files = ["--keyfile", key_file, "--authfile", users_file];
        words.into_iter().chain(files).map(str::to_owned).collect()
    }

    /// What a new machine is told, for cloud-init
    /// (<https://cloudinit.readthedocs.io/en/latest/reference/modules.html>). JSON is YAML.
    pub fn user_data(&self) -> String {
        const KEY: &str = "/etc/leasehold/host.key";
        const USERS: &str = "/etc/leasehold/users.json";
        let arguments = Self::arguments("0.0.0.0", KEY, USERS).join(" ");
        let unit = format!(
            "[Unit]\nDescription=Tunnel of a Kubernetes Service\nWants=network-online.target\n\
             After=network-online.target\n\n[Service]\nExecStartPre=/usr/local/sbin/leasehold-exit\n\
             ExecStart=/usr/local/bin/chisel {arguments}\nRestart=always\nRestartSec=5\n\n\
             [Install]\nWantedBy=multi-user.target\n"
        );
        let file = |path: &str, mode: &str, content: &str| {
            json!({
                "path": path, "permissions": mode, "encoding": "b64",
                "content": STANDARD.encode(content),
            })
        };
        let config = json!({
            "write_files": [
                file(KEY, "0600", &self.credentials.host_key),
                file(USERS, "0600", &self.users()),
                file("/usr/local/sbin/leasehold-exit", "0755", &install()),
                file("/etc/systemd/system/leasehold-exit.service", "0644", &unit),
            ],
            "runcmd": [
                ["systemctl", "daemon-reload"],
                ["systemctl", "enable", "--now", "leasehold-exit.service"],
            ],
        });
        format!("#cloud-config\n{config}\n")
    }
}

/// Fetches chisel once, and holds it against the checksums of its release.
fn install() -> String {
    format!(
        "#!/bin/sh\nset -eu\n[ -x /usr/local/bin/chisel ] && exit 0\n\
         case $(uname -m) in aarch64) arch=arm64 ;; *) arch=amd64 ;; esac\n\
         from=https://github.com/jpillora/chisel/releases/download/v{VERSION}\n\
         file=chisel_{VERSION}_linux_$arch.gz\ncd \"$(mktemp -d)\"\n\
         curl -fsSL --retry 5 -O \"$from/$file\" -O \"$from/chisel_{VERSION}_checksums.txt\"\n\
         grep \" $file$\" chisel_{VERSION}_checksums.txt | sha256sum -c -\n\
         gunzip \"$file\"\ninstall -m 0755 \"${{file%.gz}}\" /usr/local/bin/chisel\n"
    )
}

/// chisel's arguments in the cluster. `address` is the host's, `interface` the one on which it is to
/// open the ports.
pub fn client_arguments(tunnel: &Tunnel, address: &str, fingerprint: &str) -> Vec<String> {
    let namespace = tunnel.namespace().unwrap_or_default();
    let service = format!("{}.{namespace}.svc", tunnel.spec.service_name);
    // A host of this machine's own shares it with others, so each has an address to itself.
    let interface = if address.starts_with("127.") { address } else { "0.0.0.0" };
    let remote = |TunnelPort { port, protocol }: &TunnelPort| {
        let suffix = if *protocol == Protocol::Udp { "/udp" } else { "" };
        format!("R:{interface}:{port}:{service}:{port}{suffix}")
    };
    let server = format!("http://{address}:{CONTROL_PORT}");
    let words = ["client", "--fingerprint", fingerprint, "--max-retry-interval", "10s", &server];
    words.into_iter().map(str::to_owned).chain(tunnel.spec.ports.iter().map(remote)).collect()
}

/// The Deployment that connects the Service to a host.
///
/// # Panics
/// Never: it is written here.
pub fn client(tunnel: &Tunnel, address: &str, fingerprint: &str) -> Deployment {
    let name = tunnel.name_any();
    let labels = json!({
        "app.kubernetes.io/name": "tunnel-client",
        "app.kubernetes.io/instance": label_value(&name),
        "app.kubernetes.io/managed-by": "leasehold",
    });
    let image = tunnel.spec.client_image.clone();
    let image = image.unwrap_or_else(|| format!("jpillora/chisel:{VERSION}"));
    let container = json!({
        "name": "client",
        "image": image,
        "args": client_arguments(tunnel, address, fingerprint),
        // chisel reads the password from here, so that no list of processes shows it.
        "env": [{"name": "AUTH", "valueFrom": {"secretKeyRef": {
            "name": names::credentials(&name), "key": AUTH,
        }}}],
        "resources": {"requests": {"cpu": "10m", "memory": "24Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
            "runAsNonRoot": true,
            "runAsUser": 65_532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    });
    let deployment: Value = json!({
        "metadata": {"name": names::client(&name), "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            // Two clients would ask the host for the same ports.
            "strategy": {"type": "Recreate"},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"automountServiceAccountToken": false, "containers": [container]},
            },
        },
    });
    let mut deployment: Deployment =
        serde_json::from_value(deployment).expect("a Deployment written here has its shape");
    deployment.metadata.namespace = tunnel.namespace();
    deployment
}
