//! How a member of etcd is started: what its container's arguments say. Pure.

use std::collections::BTreeMap;

use apiserver::Start;
use serde_json::Value;

use crate::standin::tls::Paths;
use crate::standin::volume::volume;

/// The version of an image whose tag is none.
const VERSION: &str = "3.6.0";

/// The arguments of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Launch {
    /// What its data is kept under: the claim behind its data folder, or its Pod.
    pub(super) volume: String,
    pub(super) name: String,
    pub(super) peer_urls: Vec<String>,
    pub(super) client_urls: Vec<String>,
    /// Whether it founds a cluster, if it has no data; otherwise it joins one.
    pub(super) founds: bool,
    /// The members at the start, as name and address.
    pub(super) initial: Vec<(String, String)>,
    pub(super) token: String,
    /// Of etcd, by the image's tag.
    pub(super) version: String,
    /// The bytes that its database may have.
    pub(super) quota: Option<i64>,
    /// The port for clients, and whether it speaks TLS.
    pub(super) client: (u16, bool),
    /// The port for members.
    pub(super) peer: u16,
    /// The port for probes and metrics, without TLS.
    pub(super) metrics: Option<u16>,
    flags: BTreeMap<String, String>,
}

impl Launch {
    /// Reads what a container is told.
    pub(super) fn read(start: &Start) -> Self {
        let spec = start.spec();
        let flags = flags(spec);
        let text = |name: &str| flags.get(name).cloned().unwrap_or_default();
        let list = |name: &str| -> Vec<String> {
            text(name).split(',').filter(|item| !item.is_empty()).map(str::to_owned).collect()
        };
        let initial = list("initial-cluster");
        let initial = initial.iter().filter_map(|member| member.split_once('='));
        let listens = list("listen-client-urls");
        let listen = listens.first().map_or("http://localhost:2379", String::as_str);
        Self {
            volume: volume(start, &text("data-dir")),
            name: flags.get("name").cloned().unwrap_or_else(|| "default".into()),
            peer_urls: list("initial-advertise-peer-urls"),
            client_urls: list("advertise-client-urls"),
            founds: text("initial-cluster-state") != "existing",
            initial: initial.map(|(name, url)| (name.to_owned(), url.to_owned())).collect(),
            token: text("initial-cluster-token"),
            version: version(spec["image"].as_str().unwrap_or_default()),
            quota: text("quota-backend-bytes").parse().ok().filter(|bytes| *bytes > 0),
            client: (port(listen).unwrap_or(2379), listen.starts_with("https://")),
            peer: list("listen-peer-urls").first().and_then(|url| port(url)).unwrap_or(2380),
            metrics: list("listen-metrics-urls").first().and_then(|url| port(url)),
            flags,
        }
    }

    /// The files of its TLS: with `--client-cert-auth` only clients with a certificate of the trusted
    /// authority are accepted.
    pub(super) fn tls(&self) -> Paths<'_> {
        let path = |name| self.flag(name).unwrap_or_default();
        let asks = self.flag("client-cert-auth") == Some("true");
        Paths {
            certificate: path("cert-file"),
            key: path("key-file"),
            clients: asks.then(|| path("trusted-ca-file")),
        }
    }

    /// The value of another argument.
    fn flag(&self, name: &str) -> Option<&str> {
        self.flags.get(name).map(String::as_str)
    }
}

/// `--name=value`, `--name value` and `--name`.
fn flags(spec: &Value) -> BTreeMap<String, String> {
    let all = ["command", "args"].into_iter().filter_map(|field| spec[field].as_array());
    let mut words = all.flatten().filter_map(Value::as_str).peekable();
    let mut flags = BTreeMap::new();
    while let Some(word) = words.next() {
        let Some(flag) = word.strip_prefix("--") else { continue };
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, value),
            None => (flag, words.next_if(|next| !next.starts_with("--")).unwrap_or("true")),
        };
        flags.insert(name.to_owned(), value.to_owned());
    }
    flags
}

fn version(image: &str) -> String {
    let tag = image.rsplit_once(':').map_or("", |(_, tag)| tag);
    let version = tag.trim_start_matches('v');
    let is_version = version.starts_with(|first: char| first.is_ascii_digit());
    if is_version { version.to_owned() } else { VERSION.to_owned() }
}

fn port(url: &str) -> Option<u16> {
    url.rsplit_once(':')?.1.trim_end_matches('/').parse().ok()
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    /// A member that starts with these arguments on a volume.
    pub(in super::super) fn start(name: &str, volume: &str, more: &[&str]) -> Start {
        let mut args = vec![
            format!("--name={name}"),
            "--data-dir=/var/lib/etcd/data".into(),
            "--listen-client-urls=http://0.0.0.0:2379".into(),
            "--listen-peer-urls=http://0.0.0.0:2380".into(),
            "--listen-metrics-urls=http://0.0.0.0:2381".into(),
            format!("--initial-advertise-peer-urls=http://{name}:2380"),
            format!("--advertise-client-urls=http://{name}:2379"),
        ];
        args.extend(more.iter().map(|arg| (*arg).to_owned()));
        Start {
            pod: json!({"metadata": {"uid": "pod"}, "spec": {"containers": [{
                "name": "etcd", "image": "example.org:5000/etcd:v3.6.5",
                "command": ["/usr/local/bin/etcd"], "args": args,
                "volumeMounts": [{"name": "data", "mountPath": "/var/lib/etcd"}],
            }]}}),
            container: "etcd".into(),
            claims: BTreeMap::from([("data".into(), volume.into())]),
            files: BTreeMap::new(),
            restarts: 0,
        }
    }

    #[test]
    fn arguments_are_read() {
        let launch = Launch::read(&start("a", "v", &["--quota-backend-bytes", "7", "--x"]));
        assert_eq!((launch.name.as_str(), launch.volume.as_str()), ("a", "v"));
        assert_eq!((launch.quota, launch.flag("x")), (Some(7), Some("true")));
        assert_eq!((launch.client, launch.peer, launch.metrics), ((2379, false), 2380, Some(2381)));
        assert_eq!((launch.version.as_str(), launch.founds), ("3.6.5", true));
        assert_eq!(version("etcd"), VERSION);
    }
}
