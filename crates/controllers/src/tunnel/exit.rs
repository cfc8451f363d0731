//! The tunnel itself: [rathole](https://github.com/rapiz1/rathole), TCP and UDP over connections that
//! the client opens. What runs on the host, and what connects the cluster to it. Pure.
//!
//! The ends speak Noise NK: the client insists on the host's public key, and shows the host a token
//! inside of what that key protects. rathole's TLS would want a certificate authority for hosts that
//! have no names. Which ports the host opens is the host's own configuration, so a client that was
//! taken over cannot open others; and other ports are another configuration, which has a digest.
//!
//! Options and configuration are those of rathole 0.5.0, from its own README and source.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::api::{Protocol, Tunnel, TunnelPort};
use super::credentials::Credentials;
use super::names;
use crate::label::label_value;

/// The rathole that hosts and clients run, unless the defaults name another client image.
pub const VERSION: &str = "0.5.0";
/// Where the host listens for its client.
pub const CONTROL_PORT: i32 = 2333;
/// Ports of the host's own: SSH, and the client's.
pub const RESERVED_PORTS: [i32; 2] = [22, CONTROL_PORT];
/// Where a machine of Ubuntu resolves names for itself.
const DNS: i32 = 53;

/// How the ends encrypt, and the one key they know: the host's.
const PATTERN: &str = "Noise_NK_25519_ChaChaPoly_BLAKE2s";
/// The key of the client's Secret with its configuration, and the name of the file.
const CLIENT_FILE: &str = "client.toml";
/// Where the client's Pod has that file.
const CLIENT_FOLDER: &str = "/etc/rathole";
/// What changes with the client's configuration, so that its Pod is replaced.
const CONFIG_ANNOTATION: &str = "leasehold.dev/tunnel-config";

/// What a host runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// What it and its client know each other by.
    pub credentials: Credentials,
    /// What it opens.
    pub ports: Vec<TunnelPort>,
}

impl Exit {
    /// The host's configuration, given the address of its own that it listens on.
    pub fn config(&self, interface: &str) -> String {
        let Credentials { private_key, token, .. } = &self.credentials;
        let service = |port: &TunnelPort| json!({"type": word(port.protocol), "bind_addr": format!("{interface}:{}", port.port)});
        toml(&json!({"server": {
            "bind_addr": format!("{interface}:{CONTROL_PORT}"),
            "default_token": token,
            "transport": {
                "type": "noise",
                "noise": {"pattern": PATTERN, "local_private_key": private_key},
            },
            "services": services(&self.ports, service),
        }}))
    }

    /// What tells this configuration from others, in a form that every provider takes for a tag.
    pub fn digest(&self) -> String {
        digest(&self.config("0.0.0.0"))
    }

    /// rathole's arguments, given where its configuration is.
    pub fn arguments(file: &str) -> [&str; 2] {
        ["--server", file]
    }

    /// What a new machine is told, for cloud-init
    /// (<https://cloudinit.readthedocs.io/en/latest/reference/modules.html>). JSON is YAML.
    pub fn user_data(&self) -> String {
        // `%d` is where systemd shows the credential to a user that may read nothing else of it
        // (<https://www.freedesktop.org/software/systemd/man/latest/systemd.exec.html#Credentials>).
        let arguments = Self::arguments("%d/server.toml").join(" ");
        let unit = format!(
            "[Unit]\nDescription=Tunnel of a Kubernetes Service\nWants=network-online.target\n\
             After=network-online.target\n\n[Service]\nDynamicUser=yes\n\
             AmbientCapabilities=CAP_NET_BIND_SERVICE\nLimitNOFILE=1048576\n\
             LoadCredential=server.toml:/etc/leasehold/server.toml\n\
             ExecStartPre=+/usr/local/sbin/leasehold-exit\n\
             ExecStart=/usr/local/bin/rathole {arguments}\nRestart=always\nRestartSec=5\n\n\
             [Install]\nWantedBy=multi-user.target\n"
        );
        let file = |path: &str, mode: &str, content: &str| {
            json!({
                "path": path, "permissions": mode, "encoding": "b64",
                "content": STANDARD.encode(content),
            })
        };
        let mut files = vec![
            file("/etc/leasehold/server.toml", "0600", &self.config("0.0.0.0")),
            file("/usr/local/sbin/leasehold-exit", "0755", &install()),
            file("/etc/systemd/system/leasehold-exit.service", "0644", &unit),
        ];
        let mut commands = Vec::new();
        if self.ports.iter().any(|port| port.port == DNS) {
            // The machine's own resolver listens there
            // (<https://www.freedesktop.org/software/systemd/man/latest/resolved.conf.html>).
            let silent = "[Resolve]\nDNSStubListener=no\n";
            files.push(file("/etc/systemd/resolved.conf.d/leasehold-exit.conf", "0644", silent));
            let servers = "/run/systemd/resolve/resolv.conf";
            commands.push(json!(["ln", "-sf", servers, "/etc/resolv.conf"]));
            commands.push(json!(["systemctl", "restart", "systemd-resolved.service"]));
        }
        commands.push(json!(["systemctl", "daemon-reload"]));
        commands.push(json!(["systemctl", "enable", "--now", "leasehold-exit.service"]));
        let config = json!({"write_files": files, "runcmd": commands});
        format!("#cloud-config\n{config}\n")
    }
}

/// Fetches rathole's release once. It has no checksums to hold it against
/// (<https://github.com/rapiz1/rathole/releases/tag/v0.5.0>), so the way there is what vouches for it.
/// Python unpacks it: cloud-init is Python, and unzip may not be there.
fn install() -> String {
    format!(
        "#!/bin/sh\nset -eu\n[ -x /usr/local/bin/rathole ] && exit 0\n\
         case $(uname -m) in aarch64) target=aarch64-unknown-linux-musl ;;\n\
         *) target=x86_64-unknown-linux-gnu ;; esac\ncd \"$(mktemp -d)\"\n\
         curl -fsSL --proto '=https' --retry 5 -o rathole.zip \\\n  \
         \"https://github.com/rapiz1/rathole/releases/download/v{VERSION}/rathole-$target.zip\"\n\
         python3 -m zipfile -e rathole.zip .\ninstall -m 0755 rathole /usr/local/bin/rathole\n"
    )
}

/// What one end says of each port, under the name by which both ends call it.
fn services(ports: &[TunnelPort], of: impl Fn(&TunnelPort) -> Value) -> Map<String, Value> {
    let name = |port: &TunnelPort| format!("{}-{}", word(port.protocol), port.port);
    ports.iter().map(|port| (name(port), of(port))).collect()
}

fn word(protocol: Protocol) -> &'static str {
    match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
    }
}

fn toml(value: &Value) -> String {
    toml::to_string(value).expect("a table of tables and strings is TOML")
}

/// A part of a hash that nobody can go back from: what is hashed holds a key that was drawn.
fn digest(text: &str) -> String {
    Sha256::digest(text).iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

/// The client's configuration for a host at an address.
pub fn client_config(tunnel: &Tunnel, address: &str, credentials: &Credentials) -> String {
    let namespace = tunnel.namespace().unwrap_or_default();
    let service = |port: &TunnelPort| {
        let service = format!("{}.{namespace}.svc:{}", tunnel.spec.service_name, port.port);
        json!({"type": word(port.protocol), "local_addr": service})
    };
    toml(&json!({"client": {
        "remote_addr": format!("{address}:{CONTROL_PORT}"),
        "default_token": credentials.token,
        "transport": {
            "type": "noise",
            "noise": {"pattern": PATTERN, "remote_public_key": credentials.public_key},
        },
        "services": services(&tunnel.spec.ports, service),
    }}))
}

/// The Secret that the client's Pod has its configuration from.
pub fn client_secret(tunnel: &Tunnel, config: &str) -> Secret {
    let mut secret = Secret::default();
    secret.metadata.name = Some(names::client(&tunnel.name_any()));
    secret.metadata.namespace = tunnel.namespace();
    let bytes = ByteString(config.as_bytes().to_vec());
    secret.data = Some([(CLIENT_FILE.to_owned(), bytes)].into());
    secret
}

/// The Deployment that connects the Service to a host, by that configuration.
///
/// # Panics
/// Never: it is written here.
pub fn client(tunnel: &Tunnel, config: &str) -> Deployment {
    let name = tunnel.name_any();
    let labels = json!({
        "app.kubernetes.io/name": "tunnel-client",
        "app.kubernetes.io/instance": label_value(&name),
        "app.kubernetes.io/managed-by": "leasehold",
    });
    let deployment: Value = json!({
        "metadata": {"name": names::client(&name), "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            // A host passes connections to one client only: the last that came.
            "strategy": {"type": "Recreate"},
            "template": {
                "metadata": {
                    "labels": labels,
                    "annotations": {CONFIG_ANNOTATION: digest(config)},
                },
                "spec": {
                    "automountServiceAccountToken": false,
                    "containers": [container(tunnel)],
                    "volumes": [
                        {"name": "config", "secret": {"secretName": names::client(&name)}},
                    ],
                },
            },
        },
    });
    // Read as what comes from a server is: the code for that is there already.
    let mut deployment: Deployment = serde_json::from_str(&deployment.to_string())
        .expect("a Deployment written here has its shape");
    deployment.metadata.namespace = tunnel.namespace();
    deployment
}

/// The image's entry point is rathole.
fn container(tunnel: &Tunnel) -> Value {
    let image = tunnel.spec.client_image.clone();
    json!({
        "name": "client",
        "image": image.unwrap_or_else(|| format!("rapiz1/rathole:v{VERSION}")),
        "args": ["--client", format!("{CLIENT_FOLDER}/{CLIENT_FILE}")],
        "volumeMounts": [{"name": "config", "mountPath": CLIENT_FOLDER, "readOnly": true}],
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
            "runAsNonRoot": true,
            "runAsUser": 65_532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    })
}

#[cfg(test)]
#[path = "exit_tests.rs"]
mod tests;
