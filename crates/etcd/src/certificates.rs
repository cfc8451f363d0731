//! The certificates of a cluster: its authority, one for each member, one for clients.

use std::collections::BTreeSet;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use operands::certificates::{AUTHORITY, CERTIFICATE, LeafSpec, PRIVATE_KEY, Usage, Wanted};
use operands::children::Obstacle;
use sdk::Context;

use crate::api::EtcdCluster;
use crate::calls::Trust;
use crate::names;
use crate::objects::{CLIENT_NAME, MEMBER_NAME};

/// What is remembered of each cluster.
#[derive(Debug, Default)]
pub(crate) struct Certificates(operands::certificates::Certificates<Trust>);

impl Certificates {
    /// Sees to it that each member and the clients have a certificate. Returns what to trust and to show and,
    /// beside it, why the server does not take a certificate that is due.
    pub(crate) async fn ensure(
        &self,
        ctx: &Context,
        cluster: &EtcdCluster,
        members: &[String],
        valid: SignedDuration,
    ) -> Result<(Trust, Option<String>), Obstacle> {
        let wanted = Wanted {
            authority: names::authority(cluster),
            title: format!("{} etcd", cluster.name_any()),
            labels: names::labels(cluster),
            leaves: leaves(cluster, members, valid),
        };
        self.0.ensure(ctx, cluster, wanted, trust_in).await
    }

    /// Forgets a cluster, because a member did not accept what was remembered.
    pub(crate) fn forget(&self, ctx: &Context, cluster: &EtcdCluster) {
        self.0.forget(ctx, cluster);
    }
}

/// What the certificates of a cluster should say, by the names of their Secrets; the clients' is last.
fn leaves(
    cluster: &EtcdCluster,
    members: &[String],
    valid: SignedDuration,
) -> Vec<(String, LeafSpec)> {
    let namespace = cluster.namespace().unwrap_or_default();
    let spellings = |name: &str| {
        let short = format!("{name}.{namespace}");
        [name.to_owned(), format!("{short}.svc"), format!("{short}.svc.cluster.local"), short]
    };
    let member = |member: &String| {
        let own = spellings(&format!("{member}.{}", names::peers(cluster)));
        let shared = spellings(&cluster.name_any());
        let dns: BTreeSet<String> =
            own.into_iter().chain(shared).chain(["localhost".into()]).collect();
        let ips = ["127.0.0.1", "::1"].iter().filter_map(|ip| ip.parse().ok()).collect();
        // etcd shows it to the other members too, and its gateway to itself.
        let (common_name, usage) = (MEMBER_NAME.to_owned(), Usage::Both);
        (names::certificate(member), LeafSpec { common_name, dns, ips, usage, valid })
    };
    let client = LeafSpec {
        common_name: CLIENT_NAME.to_owned(),
        dns: BTreeSet::new(),
        ips: BTreeSet::new(),
        usage: Usage::Client,
        valid,
    };
    let all = members.iter().map(member);
    all.chain([(names::client(cluster), client)]).collect()
}

fn trust_in(secret: &Secret) -> Option<Trust> {
    let text = |key: &str| {
        let value = secret.data.as_ref()?.get(key)?;
        String::from_utf8(value.0.clone()).ok()
    };
    Some(Trust {
        authority: text(AUTHORITY)?,
        certificate: text(CERTIFICATE)?,
        key: text(PRIVATE_KEY)?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tests::cluster;

    #[test]
    fn members_serve_their_own_names_and_clients_serve_none() {
        let cluster = cluster(json!({"version": "3.6.5"}));
        let leaves = leaves(&cluster, &["db-3".to_owned()], SignedDuration::from_hours(9));
        let (name, member) = &leaves[0];
        assert_eq!((name.as_str(), member.usage), ("db-3-tls", Usage::Both));
        for name in ["db-3.db-peers.web.svc", "db.web.svc", "db", "localhost"] {
            assert!(member.dns.contains(name), "{name}");
        }
        assert_eq!(names::host(&cluster, "db-3"), "db-3.db-peers.web.svc");
        let (name, client) = &leaves[1];
        assert_eq!((name.as_str(), client.usage), ("db-client", Usage::Client));
        assert!(client.dns.is_empty() && client.common_name != member.common_name);
    }
}
