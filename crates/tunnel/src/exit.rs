//! The tunnel itself: [rathole](https://github.com/rapiz1/rathole) carries TCP and UDP over connections
//! that the client opens. What runs on the host, and what connects the cluster to it. Pure.
//!
//! The ends speak Noise NK: the client pins the host's public key, and shows a token inside the
//! encrypted connection. rathole's TLS would need a certificate authority for hosts without names.
//! A host's configuration cannot be changed once it runs, and a Service's ports can. So a host has a token for each
//! port there is, which it derives from its secret, and its client has the tokens of the Service's ports alone. A host
//! listens on a port while its client asks for it: other ports are another configuration of the client only, and a
//! client that was taken over cannot open others. The only client of a host asks for one port more, by which it is
//! tried whether it lives: it leads to where nobody listens, so that a client that lives closes what comes there.
//!
//! Options and configuration are those of rathole 0.5.0, from its own README and source.

use std::fmt::Write;
use std::net::Ipv4Addr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use data_encoding::HEXLOWER;
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use ring::hmac;
use sdk::label_value;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::api::{Protocol, Tunnel, TunnelPort, TunnelSpec};
use crate::balance::{self, Addresses, BALANCE_PORT, MAX_CLIENTS};
use crate::credentials::Credentials;
use crate::names;

/// The rathole that hosts and clients run, unless the defaults name another client image.
pub const VERSION: &str = "0.5.0";
/// Where the host listens for its client.
pub const CONTROL_PORT: i32 = 2333;
/// Ports that the host needs for itself: SSH, the clients', and that of several.
const RESERVED_PORTS: [i32; 3] = [22, CONTROL_PORT, BALANCE_PORT];
/// The last port there is.
const LAST_PORT: i32 = 65_535;
/// How often a host tries whether its client is there. What the client no longer asks for is closed at the first
/// connection after that.
const HEARTBEAT_SECONDS: u32 = 5;
/// How long a client waits for its node to come back. A cluster notices a lost node after 40 to 50 s, and would leave
/// Pods there for five minutes more; a client has nothing to lose by the move, and a kubelet that restarts is back sooner.
const NODE_LOST_SECONDS: u32 = 15;
/// The bytes of a machine's swap file: what a host knows of ports that nobody uses need not stay in its memory.
const SWAP: u32 = 512 << 20;

/// What a machine listens on: all its addresses, of IPv4 and IPv6.
const ANY: &str = "[::]";
/// How the ends encrypt: the client knows the host's key.
const PATTERN: &str = "Noise_NK_25519_ChaChaPoly_BLAKE2s";
/// The key of the client's Secret with its configuration, and the name of the file.
const CLIENT_FILE: &str = "client.toml";
/// Where nobody listens in a client's Pod.
const NOWHERE: &str = "127.0.0.1:1";
/// Where the client's Pod has that file.
const CLIENT_FOLDER: &str = "/etc/rathole";
/// Changes with the client's configuration, so that its Pod is replaced.
const CONFIG_ANNOTATION: &str = "leasehold.dev/tunnel-config";

/// What a host runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// What it and its client know each other by.
    pub credentials: Credentials,
    /// What its client opens at first.
    pub ports: Vec<TunnelPort>,
    /// The archives with rathole that it may download.
    pub archives: Archives,
    /// A reserved address that the host must know of to take what is sent there.
    pub address: Option<Ipv4Addr>,
    /// How many clients it has.
    pub clients: usize,
}

/// The SHA-256 of the archive for each kind of machine, in hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archives {
    /// For amd64.
    pub x86_64: String,
    /// For arm64.
    pub aarch64: String,
}

/// Those of [`VERSION`]. The project publishes none (<https://github.com/rapiz1/rathole/releases/tag/v0.5.0>): these
/// are the checksums as packaged by the Arch User Repository's rathole-bin packages.
impl Default for Archives {
    fn default() -> Self {
        let x86_64 = "3e7d0d0f365120cd3cd351d147d1a12ee960c8068b464d4dd533a3821873b80e";
        let aarch64 = "fa4a6fc63d86f8f1faa7c103a845e4715ce79a048455c0eec897b27237576564";
        Self { x86_64: x86_64.to_owned(), aarch64: aarch64.to_owned() }
    }
}

/// How a host knows which ports its client may open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Each port has a token, for each of so many clients.
    Tokens(usize),
    /// It has a list of ports and one token, as earlier versions made it.
    List,
}

impl Form {
    /// How many clients such a host has.
    pub(crate) fn clients(self) -> usize {
        match self {
            Self::Tokens(clients) => clients,
            Self::List => 1,
        }
    }
}

impl Exit {
    /// The host's configuration, given the addresses of its own that it listens on: that of every port.
    pub fn config(&self, at: &Addresses) -> String {
        let key = self.key();
        let mut config = self.head(&at.public);
        let mut serve = |name: &str, word: &str, bind: &str| {
            let token = token(&key, name);
            // As the program that a machine runs writes it.
            let _ = write!(
                config,
                "\n[server.services.{name}]\ntype = \"{word}\"\nbind_addr = \"{bind}\"\ntoken = \"{token}\"\n"
            );
        };
        if self.clients > 1 {
            (0..self.clients).for_each(|client| {
                serve(&balance::check_name(client), word(Protocol::Tcp), &at.check(client));
            });
        }
        for (protocol, port) in every_port(self.clients) {
            // Only the first client has UDP, and only several have addresses of their own.
            let is_shared = protocol == Protocol::Tcp && self.clients > 1;
            for client in 0..if is_shared { self.clients } else { 1 } {
                let bind = match is_shared {
                    true => at.port(client, port),
                    false => format!("{}:{port}", at.public),
                };
                serve(&name(self.clients, client, protocol, port), word(protocol), &bind);
            }
        }
        config
    }

    /// The configuration without the ports.
    fn head(&self, interface: &str) -> String {
        toml(&json!({"server": {
            "bind_addr": format!("{interface}:{CONTROL_PORT}"),
            "heartbeat_interval": HEARTBEAT_SECONDS,
            "transport": {
                "type": "noise",
                "noise": {"pattern": PATTERN, "local_private_key": self.credentials.private_key},
            },
        }}))
    }

    /// What the tokens of ports are derived from. No client has all of it.
    fn secret(&self) -> String {
        secret(&self.credentials)
    }

    fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, self.secret().as_bytes())
    }

    /// A digest of what a host is told, in a form that every provider accepts as a tag.
    pub fn digest(&self) -> String {
        let address = self.address.map(|address| format!(" {address}")).unwrap_or_default();
        let clients = match self.clients {
            1 => String::new(),
            several => format!(" clients {several}"),
        };
        digest(&format!("tokens {}{address}{clients}", self.secret()))
    }

    /// The digest of the same host as earlier versions made it: with a list of these ports.
    fn list_digest(&self) -> String {
        let Credentials { private_key, token, .. } = &self.credentials;
        let service = |port: &TunnelPort| json!({"type": word(port.protocol), "bind_addr": format!("0.0.0.0:{}", port.port)});
        digest(&toml(&json!({"server": {
            "bind_addr": format!("0.0.0.0:{CONTROL_PORT}"),
            "default_token": token,
            "transport": {
                "type": "noise",
                "noise": {"pattern": PATTERN, "local_private_key": private_key},
            },
            "services": services(&self.ports, service),
        }})))
    }

    /// The digests of what a host may have been told: of each form.
    pub(crate) fn digests(&self) -> Vec<String> {
        let is_plain = self.address.is_none() && self.clients == 1;
        let listed = is_plain.then(|| self.list_digest());
        std::iter::once(self.digest()).chain(listed).collect()
    }

    /// The form of a host that was told something with that digest, for however many clients; `None` if it was told
    /// something else.
    pub(crate) fn form(&self, told: Option<&str>) -> Option<Form> {
        let told = told?;
        (1..=MAX_CLIENTS).find_map(|clients| {
            let at = Self { clients, ..self.clone() }
                .digests()
                .iter()
                .position(|known| known == told)?;
            Some(if at == 0 { Form::Tokens(clients) } else { Form::List })
        })
    }

    /// rathole's arguments for a configuration file.
    pub fn arguments(file: &str) -> [&str; 2] {
        ["--server", file]
    }

    /// The user data of a new machine, for cloud-init
    /// (<https://cloudinit.readthedocs.io/en/latest/reference/modules.html>). JSON is YAML.
    pub fn user_data(&self) -> String {
        // `%d` is where systemd shows the credentials to the service's user alone, and `%t` the folder that is this
        // user's (<https://www.freedesktop.org/software/systemd/man/latest/systemd.exec.html#Credentials>).
        let arguments = Self::arguments("%t/leasehold-exit/server.toml").join(" ");
        // What several clients need may take minutes to install.
        let patience = if self.clients > 1 { "TimeoutStartSec=600\n" } else { "" };
        let unit = format!(
            "[Unit]\nDescription=Tunnel of a Kubernetes Service\nWants=network-online.target\n\
             After=network-online.target\n\n[Service]\nDynamicUser=yes\n\
             AmbientCapabilities=CAP_NET_BIND_SERVICE\nLimitNOFILE=1048576\n\
             RuntimeDirectory=leasehold-exit\nRuntimeDirectoryMode=0700\n\
             LoadCredential=server.toml:/etc/leasehold/server.toml\n\
             LoadCredential=secret:/etc/leasehold/secret\n{patience}\
             ExecStartPre=+/usr/local/sbin/leasehold-exit\n\
             ExecStartPre=/usr/local/sbin/leasehold-exit-config\n\
             ExecStart=/usr/local/bin/rathole {arguments}\nRestart=always\nRestartSec=5\n\n\
             [Install]\nWantedBy=multi-user.target\n"
        );
        let file = |path: &str, mode: &str, content: &str| {
            json!({
                "path": path, "permissions": mode, "encoding": "b64",
                "content": STANDARD.encode(content),
            })
        };
        // The machine's own resolver listens on port 53
        // (<https://www.freedesktop.org/software/systemd/man/latest/resolved.conf.html>).
        let silent = "[Resolve]\nDNSStubListener=no\n";
        let mut files = vec![
            file("/etc/leasehold/server.toml", "0600", &self.head(ANY)),
            file("/etc/leasehold/secret", "0600", &self.secret()),
            file("/usr/local/sbin/leasehold-exit", "0755", &self.install()),
            file("/usr/local/sbin/leasehold-exit-config", "0755", &self.write_config()),
            file("/etc/systemd/system/leasehold-exit.service", "0644", &unit),
            file("/etc/systemd/resolved.conf.d/leasehold-exit.conf", "0644", silent),
        ];
        if self.clients > 1 {
            let (rules, unit) = (balance::rules(reserved(self.clients)), balance::UNIT);
            files.push(file("/etc/leasehold/haproxy.cfg", "0644", &balance::machine(self.clients)));
            files.push(file("/etc/leasehold/balance.nft", "0644", &rules));
            files.push(file("/etc/systemd/system/leasehold-balance.service", "0644", unit));
        }
        let commands = json!([
            // Nobody has a reason to log in. One by one: a name that is a link already, as an alias is, cannot be
            // masked, and then systemctl stops none of those beside it.
            ["systemctl", "mask", "--now", "ssh.socket"],
            ["systemctl", "mask", "--now", "ssh.service"],
            ["systemctl", "mask", "--now", "sshd.service"],
            ["ln", "-sf", "/run/systemd/resolve/resolv.conf", "/etc/resolv.conf"],
            ["systemctl", "restart", "systemd-resolved.service"],
            ["systemctl", "daemon-reload"],
            ["systemctl", "enable", "--now", "leasehold-exit.service"],
        ]);
        let config = json!({
            "ssh_pwauth": false, "disable_root": true, "write_files": files, "runcmd": commands,
            "swap": {"filename": "/leasehold-exit.swap", "size": SWAP},
        });
        format!("#cloud-config\n{config}\n")
    }

    /// Fetches rathole's release once, and installs nothing else. Python unpacks it: cloud-init is Python, and unzip
    /// may be missing.
    fn install(&self) -> String {
        let Archives { x86_64, aarch64 } = &self.archives;
        let takes = self.address.map(|address| {
            format!(
                "device=$(ip -4 -o route show default | sed -n 's/.* dev \\([^ ]*\\).*/\\1/p' | head -n 1)\n\
                 ip address replace {address}/32 dev \"$device\"\n"
            )
        });
        let takes = takes.unwrap_or_default();
        let balances = if self.clients > 1 { balance::INSTALL } else { "" };
        format!(
            "#!/bin/sh\nset -eu\n{takes}{balances}[ -x /usr/local/bin/rathole ] && exit 0\n\
         case $(uname -m) in aarch64) target=aarch64-unknown-linux-musl sum='{aarch64}' ;;\n\
         *) target=x86_64-unknown-linux-gnu sum='{x86_64}' ;; esac\ncd \"$(mktemp -d)\"\n\
         curl -fsSL --proto '=https' --retry 5 -o rathole.zip \\\n  \
         \"https://github.com/rapiz1/rathole/releases/download/v{VERSION}/rathole-$target.zip\"\n\
         echo \"$sum  rathole.zip\" | sha256sum -c -\n\
         python3 -m zipfile -e rathole.zip .\ninstall -m 0755 rathole /usr/local/bin/rathole\n"
        )
    }

    /// The program by which a machine writes its configuration of every port: too long for user data, and for a
    /// credential of systemd. It must say what [`Exit::config`] says.
    fn write_config(&self) -> String {
        let services = match self.clients {
            1 => write_services(),
            several => balance::write_services(several, LAST_PORT, reserved(several), ANY),
        };
        format!(
            r#"#!/usr/bin/python3
import hmac, os
told, own = os.environ["CREDENTIALS_DIRECTORY"], os.environ["RUNTIME_DIRECTORY"]
head = open(told + "/server.toml").read()
secret = open(told + "/secret", "rb").read()
os.umask(0o077)
with open(own + "/server.toml", "w") as config:
    config.write(head)
{services}"#
        )
    }
}

/// The part of that program for one client.
fn write_services() -> String {
    let [ssh, control, _] = RESERVED_PORTS;
    format!(
        r#"    for word in "tcp", "udp":
        for port in range(1, {LAST_PORT} + 1):
            if word == "tcp" and port in ({ssh}, {control}):
                continue
            name = f"{{word}}-{{port}}"
            token = hmac.new(secret, name.encode(), "sha256").hexdigest()[:32]
            config.write(f'\n[server.services.{{name}}]\ntype = "{{word}}"\nbind_addr = "{ANY}:{{port}}"\n'
                         f'token = "{{token}}"\n')
"#
    )
}

/// The TCP ports that a host with so many clients needs for itself.
pub(crate) fn reserved(clients: usize) -> &'static [i32] {
    if clients > 1 { &RESERVED_PORTS } else { &RESERVED_PORTS[..2] }
}

/// Every port that a host with so many clients may open.
fn every_port(clients: usize) -> impl Iterator<Item = (Protocol, i32)> {
    let all = [Protocol::Tcp, Protocol::Udp].into_iter();
    let all = all.flat_map(|protocol| (1..=LAST_PORT).map(move |port| (protocol, port)));
    let reserved = reserved(clients);
    all.filter(move |(protocol, port)| *protocol == Protocol::Udp || !reserved.contains(port))
}

/// What the tokens of a host's ports are derived from.
fn secret(Credentials { private_key, token, .. }: &Credentials) -> String {
    format!("{private_key} {token}")
}

/// The token of a port.
fn token(key: &hmac::Key, name: &str) -> String {
    HEXLOWER.encode(&hmac::sign(key, name.as_bytes()).as_ref()[..16])
}

/// The client's image unless another is named. It is for amd64 alone
/// (<https://github.com/rathole-org/rathole/issues/441>).
pub(crate) fn client_image() -> String {
    format!("rapiz1/rathole:v{VERSION}")
}

/// Whether the client runs that image.
pub(crate) fn has_usual_image(spec: &TunnelSpec) -> bool {
    spec.client_image.as_ref().is_none_or(|image| *image == client_image())
}

/// The settings of each port of the only client at one end, under the name that both ends use.
fn services(ports: &[TunnelPort], of: impl Fn(&TunnelPort) -> Value) -> Map<String, Value> {
    ports.iter().map(|port| (name(1, 0, port.protocol, port.port), of(port))).collect()
}

/// The name that both ends use for a port of one of so many clients.
fn name(clients: usize, client: usize, protocol: Protocol, port: i32) -> String {
    match protocol {
        Protocol::Tcp if clients > 1 => format!("tcp-{port}-{client}"),
        Protocol::Tcp | Protocol::Udp => format!("{}-{port}", word(protocol)),
    }
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

/// The configuration of a client for a host of a form at an address.
pub(crate) fn client_config(
    tunnel: &Tunnel,
    address: &str,
    credentials: &Credentials,
    form: Form,
    client: usize,
) -> String {
    let namespace = tunnel.namespace().unwrap_or_default();
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret(credentials).as_bytes());
    let service = |protocol, name: &str, to: String| {
        let token = match form {
            Form::Tokens(_) => token(&key, name),
            Form::List => credentials.token.clone(),
        };
        json!({"type": word(protocol), "local_addr": to, "token": token})
    };
    let own = tunnel.spec.ports.iter();
    let own = own.filter(|port| client == 0 || port.protocol == Protocol::Tcp).map(|port| {
        let name = name(form.clients(), client, port.protocol, port.port);
        let to = format!("{}.{namespace}.svc:{}", tunnel.spec.service_name, port.port);
        let service = service(port.protocol, &name, to);
        (name, service)
    });
    // The host asks itself through each of several clients. The only one is asked from outside.
    let check = match form {
        Form::Tokens(2..) => {
            Some((balance::check_name(client), format!("{address}:{BALANCE_PORT}")))
        }
        Form::Tokens(_) if !balance::is_taken(&tunnel.spec.ports) => {
            Some((name(1, 0, Protocol::Tcp, BALANCE_PORT), NOWHERE.to_owned()))
        }
        Form::Tokens(_) | Form::List => None,
    };
    let check = check.map(|(name, to)| {
        let service = service(Protocol::Tcp, &name, to);
        (name, service)
    });
    toml(&json!({"client": {
        "remote_addr": format!("{address}:{CONTROL_PORT}"),
        "transport": {
            "type": "noise",
            "noise": {"pattern": PATTERN, "remote_public_key": credentials.public_key},
        },
        "services": own.chain(check).collect::<Map<_, _>>(),
    }}))
}

/// The Secret with the configuration of a client's Pod.
pub(crate) fn client_secret(tunnel: &Tunnel, client: usize, config: &str) -> Secret {
    let mut secret = Secret::default();
    secret.metadata.name = Some(names::client(&tunnel.name_any(), client));
    secret.metadata.namespace = tunnel.namespace();
    let bytes = ByteString(config.as_bytes().to_vec());
    secret.data = Some([(CLIENT_FILE.to_owned(), bytes)].into());
    secret
}

/// The Deployment of one of so many clients, which connects the Service to a host by that configuration. Its Pods are
/// replaced with either: behind a reserved address a host is replaced without its client's notice. `priority` is their
/// PriorityClass.
///
/// # Panics
/// Never: it is written here.
pub(crate) fn client(
    tunnel: &Tunnel,
    (client, clients): (usize, usize),
    config: &str,
    host: &str,
    priority: Option<&str>,
) -> Deployment {
    let tunnel_name = tunnel.name_any();
    let name = names::client(&tunnel_name, client);
    let labels = json!({
        "app.kubernetes.io/name": label(client),
        "app.kubernetes.io/instance": label_value(&tunnel_name),
        "app.kubernetes.io/managed-by": "leasehold",
    });
    let deployment: Value = json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            // A host passes a client's connections to the last that came. So a new Pod takes over while the old one
            // still runs, and the old one is ended at once, before it connects again.
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
            },
            "template": {
                "metadata": {
                    "labels": labels,
                    "annotations": {CONFIG_ANNOTATION: digest(&format!("{config}{host}"))},
                },
                "spec": {
                    "automountServiceAccountToken": false,
                    // rathole takes no notice of SIGTERM.
                    "terminationGracePeriodSeconds": 1,
                    "affinity": affinity(&tunnel.spec),
                    "tolerations": [toleration("not-ready"), toleration("unreachable")],
                    "topologySpreadConstraints": spread(&tunnel_name, clients),
                    "priorityClassName": priority,
                    "containers": [container(tunnel)],
                    "volumes": [{"name": "config", "secret": {"secretName": name}}],
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

/// What tells the Pods of a client from those of the others.
fn label(client: usize) -> String {
    match client {
        0 => "tunnel-client".to_owned(),
        other => format!("tunnel-client-{other}"),
    }
}

/// That several clients run on different nodes, if there are as many.
fn spread(tunnel: &str, clients: usize) -> Option<Value> {
    let all: Vec<_> = (0..clients).map(label).collect();
    let pods = json!({
        "matchLabels": {"app.kubernetes.io/instance": label_value(tunnel)},
        "matchExpressions": [{"key": "app.kubernetes.io/name", "operator": "In", "values": all}],
    });
    let nodes = json!({
        "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": pods,
    });
    (clients > 1).then(|| json!([nodes]))
}

/// Where the client can run, if its image does not run everywhere.
fn affinity(spec: &TunnelSpec) -> Option<Value> {
    let arch = json!({"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]});
    let terms = json!({"nodeSelectorTerms": [{"matchExpressions": [arch]}]});
    let node = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}});
    has_usual_image(spec).then_some(node)
}

/// How long a client stays on a node that is lost.
fn toleration(why: &str) -> Value {
    json!({
        "key": format!("node.kubernetes.io/{why}"), "operator": "Exists", "effect": "NoExecute",
        "tolerationSeconds": NODE_LOST_SECONDS,
    })
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
