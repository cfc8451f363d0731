//! The names by which things belong together: classes, annotations, children, hosts and their tags.
//! Pure.
//!
//! A host's name and tags follow from the Tunnel's uid alone, and the cluster's identity is the uid of
//! its namespace `kube-system`. So two clusters of one name that share an account at a provider never
//! mistake each other's hosts for their own.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;

use crate::api::Tunnel;

/// The class that opts a Service in.
pub(crate) const CLASS: &str = "leasehold.dev/tunnel";
/// The annotation by which a Service opts out, with the value `"false"`.
pub(crate) const OPT: &str = "leasehold.dev/tunnel";
/// The annotation that lets a Tunnel be deleted without its host, with the value `"true"`.
pub(crate) const ABANDON: &str = "leasehold.dev/abandon";
/// The finalizer that keeps a Tunnel until its host is removed.
pub(crate) const FINALIZER: &str = "leasehold.dev/tunnel-host";
/// Our condition of a Service.
pub(crate) const CONDITION: &str = "leasehold.dev/Tunnel";
/// The condition of a Tunnel: connections come through it.
pub(crate) const READY: &str = "Ready";
/// The condition of a Tunnel whose host serves: it is false while the controller can do nothing about that host, and
/// else there is none.
pub(crate) const MANAGED: &str = "Managed";
/// The condition of a Tunnel whose host is to have an IPv6 address: connections come through at it.
pub(crate) const IPV6: &str = "IPv6";
/// The condition of a Tunnel with several clients: all of them are connected.
pub(crate) const CLIENTS: &str = "Clients";
/// The ConfigMap of defaults.
pub(crate) const CONFIG_MAP: &str = "leasehold-tunnel";
/// What the names of its annotations begin with that record the accounts that were used.
pub(crate) const ACCOUNT: &str = "tunnel-account.leasehold.dev/";
/// The most such accounts: all annotations of an object together may have 256 KiB
/// (<https://kubernetes.io/docs/concepts/overview/working-with-objects/annotations/>).
pub(crate) const MAX_ACCOUNTS: usize = 300;
/// The most of them whose tokens are in one namespace that is not the administrator's.
pub(crate) const MAX_OWN_ACCOUNTS: usize = 10;

/// The finalizer by which the Tunnel with this uid holds the Secret with its token.
pub(crate) fn holder(uid: &str) -> String {
    format!("tunnel.leasehold.dev/{uid}")
}

/// Whether an owner is the Tunnel of that name, or one of the same name that is gone. Others have kinds called so too.
pub(crate) fn is_tunnel(owner: &OwnerReference, name: &str) -> bool {
    let is_kind = owner.kind == Tunnel::kind(&()) && owner.api_version == Tunnel::api_version(&());
    owner.controller == Some(true) && is_kind && owner.name == name
}

/// The Tunnel of a Service.
pub(crate) fn tunnel(service: &str) -> String {
    format!("{service}-tunnel")
}

/// A client of a Tunnel, and the Secret with its configuration. The first is 0.
pub(crate) fn client(tunnel: &str, client: usize) -> String {
    match client {
        0 => format!("{tunnel}-client"),
        other => format!("{tunnel}-client-{other}"),
    }
}

/// The Secret with the credentials of host and client.
pub(crate) fn credentials(tunnel: &str) -> String {
    format!("{tunnel}-credentials")
}

/// The host of a Tunnel, as its provider lists it.
pub(crate) fn host(uid: &str) -> String {
    format!("leasehold-{uid}")
}

/// The host that takes the place of one which cannot be told what it is to run: names may have to be unique, and this
/// is another one for each thing to run.
pub(crate) fn next_host(uid: &str, exit: &str) -> String {
    format!("{}-{}", host(uid), exit.get(..8).unwrap_or(exit))
}

/// A tag of a host. Keys and values keep to what every provider accepts: at
/// DigitalOcean letters, digits, `:`, `-` and `_`, up to 255
/// (<https://docs.digitalocean.com/reference/api/reference/tags/>); at Hetzner values of at most 63
/// letters, digits, `-`, `_` and `.` (<https://docs.hetzner.cloud/reference/cloud#labels>).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The key, such as `leasehold-tunnel`.
    pub key: &'static str,
    /// The value.
    pub value: String,
}

/// The key of the tag with the Tunnel's uid.
pub const TUNNEL_TAG: &str = "leasehold-tunnel";
/// The key of the tag with the cluster's uid.
pub const CLUSTER_TAG: &str = "leasehold-cluster";

/// The key of the tag with the digest of a host's configuration.
pub(crate) const EXIT_TAG: &str = "leasehold-exit";

/// The tag with the digest of a host's configuration.
pub(crate) fn exit_tag(digest: String) -> Tag {
    Tag { key: EXIT_TAG, value: digest }
}

/// The tag that all hosts of one Tunnel have, and no others.
pub fn tunnel_tag(uid: &str) -> Tag {
    Tag { key: TUNNEL_TAG, value: uid.to_owned() }
}

/// The tag that all our hosts of one cluster have.
pub(crate) fn cluster_tag(uid: &str) -> Tag {
    Tag { key: CLUSTER_TAG, value: uid.to_owned() }
}

/// The tags by which a Tunnel's host is found, and two for people.
pub fn tags(cluster_uid: &str, tunnel_uid: &str, namespace: &str, name: &str) -> Vec<Tag> {
    vec![
        cluster_tag(cluster_uid),
        tunnel_tag(tunnel_uid),
        Tag { key: "leasehold-namespace", value: legible(namespace) },
        Tag { key: "leasehold-name", value: legible(name) },
    ]
}

/// A name as a tag's value: for people, so it need not be unique.
fn legible(name: &str) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let value: String = name.chars().map(fits).take(63).collect();
    value.trim_end_matches(['-', '_']).to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What another's Tunnel has is not about to go.
    #[test]
    fn another_kind_of_tunnel_is_none_of_ours() {
        let ours = "inlets.inlets.dev/v1alpha1";
        for (version, kind, name, controls, expect) in [
            (ours, "Tunnel", "web-tunnel", true, true),
            (ours, "Tunnel", "web-tunnel", false, false),
            (ours, "Tunnel", "other-tunnel", true, false),
            (ours, "Exit", "web-tunnel", true, false),
            ("networking.example.com/v1", "Tunnel", "web-tunnel", true, false),
        ] {
            let owner = json!({
                "apiVersion": version, "kind": kind, "name": name, "uid": "1", "controller": controls,
            });
            let owner = serde_json::from_value(owner).unwrap();
            assert_eq!(is_tunnel(&owner, "web-tunnel"), expect, "{version} {kind} {name}");
        }
    }

    #[test]
    fn tags_keep_to_what_every_provider_takes() {
        let name = format!("{}.{}", "a".repeat(60), "b".repeat(60));
        for tag in tags("c-uid", "t-uid", "team.a", &name) {
            assert!(tag.value.len() <= 63, "{tag:?}");
            let fits = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
            assert!(tag.value.chars().all(fits), "{tag:?}");
            assert!(tag.value.ends_with(|c: char| c.is_ascii_alphanumeric()), "{tag:?}");
        }
    }
}
