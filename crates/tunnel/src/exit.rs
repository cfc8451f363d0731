//! The tunnel itself: [rathole](https://github.com/rapiz1/rathole) carries TCP and UDP over connections
//! that the client opens. What runs on the host, and what connects the cluster to it. Pure.
//!
//! The ends speak Noise NK: the client pins the host's public key, and shows a token inside the
//! encrypted connection. rathole's TLS would need a certificate authority for hosts without names.
//! The host's own configuration says which ports it opens, so a client that was taken over cannot
//! open others. Other ports are another configuration, with another digest.
//!
//! Options and configuration are those of rathole 0.5.0, from its own README and source.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use data_encoding::HEXLOWER;
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use sdk::label_value;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::api::{Protocol, Tunnel, TunnelPort};
use crate::credentials::Credentials;
use crate::names;

/// The rathole that hosts and clients run, unless the defaults name another client image.
pub const VERSION: &str = "0.5.0";
/// Where the host listens for its client.
pub const CONTROL_PORT: i32 = 2333;
/// Ports that the host needs for itself: SSH, and the client's.
pub(crate) const RESERVED_PORTS: [i32; 2] = [22, CONTROL_PORT];
/// The port of Ubuntu's own resolver.
const DNS: i32 = 53;

/// How the ends encrypt: the client knows the host's key.
const PATTERN: &str = "Noise_NK_25519_ChaChaPoly_BLAKE2s";
/// The key of the client's Secret with its configuration, and the name of the file.
const CLIENT_FILE: &str = "client.toml";
/// Where the client's Pod has that file.
const CLIENT_FOLDER: &str = "/etc/rathole";
/// Changes with the client's configuration, so that its Pod is replaced.
const CONFIG_ANNOTATION: &str = "leasehold.dev/tunnel-config";

/// What a host runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// What it and its client know each other by.
    pub credentials: Credentials,
    /// What it opens.
    pub ports: Vec<TunnelPort>,
    /// The SHA-256 of the archive with rathole that it downloads, in hexadecimal digits; unchecked without.
    pub archive: Option<String>,
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

    /// A digest of this configuration, in a form that every provider accepts as a tag.
    pub fn digest(&self) -> String {
        digest(&self.config("0.0.0.0"))
    }

    /// rathole's arguments for a configuration file.
    pub fn arguments(file: &str) -> [&str; 2] {
        ["--server", file]
    }

    /// The user data of a new machine, for cloud-init
    /// (<https://cloudinit.readthedocs.io/en/latest/reference/modules.html>). JSON is YAML.
    pub fn user_data(&self) -> String {
        // `%d` is where systemd shows the credential to the service's user alone
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
            file("/usr/local/sbin/leasehold-exit", "0755", &self.install()),
            file("/etc/systemd/system/leasehold-exit.service", "0644", &unit),
        ];
        // Nobody has a reason to log in.
        let mut commands = vec![json!([
            "systemctl",
            "mask",
            "--now",
            "ssh.service",
            "ssh.socket",
            "sshd.service"
        ])];
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
        let config = json!({
            "ssh_pwauth": false, "disable_root": true, "write_files": files, "runcmd": commands,
        });
        format!("#cloud-config\n{config}\n")
    }

    /// Fetches rathole's release once. The project publishes no checksums for it
    /// (<https://github.com/rapiz1/rathole/releases/tag/v0.5.0>), so the connection by HTTPS vouches for it unless
    /// the administrator names one. Python unpacks it: cloud-init is Python, and unzip may be missing.
    fn install(&self) -> String {
        let check = self.archive.as_ref();
        let check = check.map(|sum| format!("echo '{sum}  rathole.zip' | sha256sum -c -\n"));
        let check = check.unwrap_or_default();
        format!(
            "#!/bin/sh\nset -eu\n[ -x /usr/local/bin/rathole ] && exit 0\n\
         case $(uname -m) in aarch64) target=aarch64-unknown-linux-musl ;;\n\
         *) target=x86_64-unknown-linux-gnu ;; esac\ncd \"$(mktemp -d)\"\n\
         curl -fsSL --proto '=https' --retry 5 -o rathole.zip \\\n  \
         \"https://github.com/rapiz1/rathole/releases/download/v{VERSION}/rathole-$target.zip\"\n\
         {check}python3 -m zipfile -e rathole.zip .\ninstall -m 0755 rathole /usr/local/bin/rathole\n"
        )
    }
}

/// The client's image unless another is named.
pub(crate) fn client_image() -> String {
    format!("rapiz1/rathole:v{VERSION}")
}

/// The settings of each port at one end, under the name that both ends use.
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

/// The first half of a hash. It cannot be reversed: the hashed text holds a random key.
fn digest(text: &str) -> String {
    HEXLOWER.encode(&Sha256::digest(text)[..16])
}

/// The client's configuration for a host at an address.
pub(crate) fn client_config(tunnel: &Tunnel, address: &str, credentials: &Credentials) -> String {
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

/// The Secret with the configuration of the client's Pod.
pub(crate) fn client_secret(tunnel: &Tunnel, config: &str) -> Secret {
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
pub(crate) fn client(tunnel: &Tunnel, config: &str) -> Deployment {
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
        "image": image.unwrap_or_else(client_image),
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
