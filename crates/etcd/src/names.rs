//! What belongs together: names, labels, ports and addresses. Pure.

use std::collections::BTreeMap;

use kube::ResourceExt;
use sdk::label_value;

use crate::api::EtcdCluster;

/// The label of everything that belongs to a cluster: the name of its EtcdCluster.
pub(crate) const CLUSTER_LABEL: &str = "data.leasehold.dev/etcd-cluster";

/// The label of a Pod, a volume and a Secret that belong to one member: its name.
pub(crate) const MEMBER_LABEL: &str = "data.leasehold.dev/etcd-member";

/// The label of a volume: the uid of its EtcdCluster, because a volume that stays has no owner.
pub(crate) const UID_LABEL: &str = "data.leasehold.dev/etcd-cluster-uid";

/// The annotation of a Pod: the digest of what it was made from.
pub(crate) const TEMPLATE: &str = "data.leasehold.dev/template";

/// The annotation of a Pod: the members with which it joins, or nothing once its member has joined.
pub(crate) const INITIAL: &str = "data.leasehold.dev/initial-cluster";

/// The port for clients.
pub(crate) const CLIENT_PORT: u16 = 2379;

/// The port for members.
pub(crate) const PEER_PORT: u16 = 2380;

/// The port for probes and metrics, without TLS.
pub(crate) const METRICS_PORT: u16 = 2381;

/// The longest name of an EtcdCluster: `-peers` and a member's number must fit into a label of DNS.
pub(crate) const MAX_NAME: usize = 52;

/// The name of a member.
pub(crate) fn member(cluster: &EtcdCluster, number: i64) -> String {
    format!("{}-{number}", cluster.name_any())
}

/// The number of a member by its name.
pub(crate) fn number(cluster: &EtcdCluster, member: &str) -> Option<i64> {
    let number = member.strip_prefix(&cluster.name_any())?.strip_prefix('-')?;
    let number: i64 = number.parse().ok()?;
    (number >= 0 && self::member(cluster, number) == member).then_some(number)
}

/// The headless Service through which members find each other.
pub(crate) fn peers(cluster: &EtcdCluster) -> String {
    format!("{}-peers", cluster.name_any())
}

/// The Secret of the cluster's authority.
pub(crate) fn authority(cluster: &EtcdCluster) -> String {
    format!("{}-ca", cluster.name_any())
}

/// The Secret with the clients' certificate.
pub(crate) fn client(cluster: &EtcdCluster) -> String {
    format!("{}-client", cluster.name_any())
}

/// The Secret with a member's certificate.
pub(crate) fn certificate(member: &str) -> String {
    format!("{member}-tls")
}

/// The Job that brings a snapshot onto the volume of the first member.
pub(crate) fn restore(cluster: &EtcdCluster) -> String {
    format!("{}-restore", cluster.name_any())
}

/// The DNS name of a member, as certificates and addresses have it.
pub(crate) fn host(cluster: &EtcdCluster, member: &str) -> String {
    format!("{member}.{}.{}.svc", peers(cluster), cluster.namespace().unwrap_or_default())
}

fn scheme(cluster: &EtcdCluster) -> &'static str {
    if cluster.spec.tls.enabled { "https" } else { "http" }
}

/// The address of a member for the others. Names are never reused, so it identifies the member.
pub(crate) fn peer_url(cluster: &EtcdCluster, member: &str) -> String {
    format!("{}://{}:{PEER_PORT}", scheme(cluster), host(cluster, member))
}

/// The address of a member for clients.
pub(crate) fn client_url(cluster: &EtcdCluster, member: &str) -> String {
    format!("{}://{}:{CLIENT_PORT}", scheme(cluster), host(cluster, member))
}

/// An address to listen on.
pub(crate) fn listen_url(cluster: &EtcdCluster, port: u16) -> String {
    format!("{}://0.0.0.0:{port}", scheme(cluster))
}

/// The member that has this address, if it is one of the cluster's names.
pub(crate) fn member_at(cluster: &EtcdCluster, url: &str) -> Option<String> {
    let (_, rest) = url.split_once("://")?;
    let name = rest.split('.').next()?;
    number(cluster, name)?;
    (peer_url(cluster, name) == url).then(|| name.to_owned())
}

/// The labels by which Services find the Pods of a cluster.
pub(crate) fn selector(cluster: &EtcdCluster) -> BTreeMap<String, String> {
    BTreeMap::from([(CLUSTER_LABEL.to_owned(), label_value(&cluster.name_any()))])
}

/// The labels of everything that belongs to a cluster.
pub(crate) fn labels(cluster: &EtcdCluster) -> BTreeMap<String, String> {
    let mut labels = selector(cluster);
    let ours = [
        ("app.kubernetes.io/name", "etcd".to_owned()),
        ("app.kubernetes.io/instance", label_value(&cluster.name_any())),
        ("app.kubernetes.io/managed-by", "leasehold".to_owned()),
    ];
    labels.extend(ours.map(|(key, value)| (key.to_owned(), value)));
    labels
}

/// The labels of what belongs to one member.
pub(crate) fn member_labels(cluster: &EtcdCluster, member: &str) -> BTreeMap<String, String> {
    let mut labels = labels(cluster);
    labels.insert(MEMBER_LABEL.to_owned(), label_value(member));
    labels
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::cluster;

    #[test]
    fn a_member_is_known_by_its_address() {
        let cluster = cluster(serde_json::json!({"version": "3.6.5"}));
        let url = peer_url(&cluster, "db-7");
        assert_eq!(url, "https://db-7.db-peers.web.svc:2380");
        assert_eq!(member_at(&cluster, &url).as_deref(), Some("db-7"));
        for other in
            ["https://db-07.db-peers.web.svc:2380", "http://db-7.db-peers.web.svc:2380", "x", ""]
        {
            assert_eq!(member_at(&cluster, other), None, "{other}");
        }
        for (name, expect) in [
            ("db-0", Some(0)),
            ("db-12", Some(12)),
            ("db--1", None),
            ("db-x", None),
            ("db", None),
            ("db-+1", None),
        ] {
            assert_eq!(number(&cluster, name), expect, "{name}");
        }
    }
}
