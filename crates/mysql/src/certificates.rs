//! The certificate of a cluster: one for all instances and their Services, of an authority of its own.

use std::collections::BTreeSet;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use operands::certificates::{AUTHORITY, CERTIFICATE, LeafSpec, Usage, Wanted};
use operands::children::Obstacle;
use sdk::Context;

use crate::api::MySQLCluster;
use crate::names;

/// What is remembered of each cluster.
#[derive(Debug, Default)]
pub(crate) struct Certificates(operands::certificates::Certificates<Trust>);

/// What a cluster's instances show, and what to trust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trust {
    /// The certificate of the authority, as PEM.
    pub(crate) authority: String,
    /// The instances' certificate, as PEM. When it is another one, running servers must read it anew.
    pub(crate) certificate: String,
}

impl Certificates {
    /// Sees to it that the cluster has its certificate. Beside it, why the server does not take the next one.
    pub(crate) async fn ensure(
        &self,
        ctx: &Context,
        cluster: &MySQLCluster,
        valid: SignedDuration,
    ) -> Result<(Trust, Option<String>), Obstacle> {
        let wanted = Wanted {
            authority: names::authority(cluster),
            title: format!("{} mysql", cluster.name_any()),
            labels: names::labels(cluster),
            leaves: vec![(names::certificate(cluster), leaf(cluster, valid))],
        };
        self.0.ensure(ctx, cluster, wanted, trust_in).await
    }
}

/// What the certificate says. A wildcard stands for the instances, so it stays when there are more.
fn leaf(cluster: &MySQLCluster, valid: SignedDuration) -> LeafSpec {
    let namespace = cluster.namespace().unwrap_or_default();
    let spellings = |name: &str| {
        let short = format!("{name}.{namespace}");
        [format!("{short}.svc"), format!("{short}.svc.cluster.local"), short]
    };
    let (primary, replicas) = (cluster.name_any(), names::replicas(cluster));
    let mut dns: BTreeSet<String> = spellings(&format!("*.{}", names::instances(cluster))).into();
    dns.extend(spellings(&primary));
    dns.extend(spellings(&replicas));
    dns.extend([primary, replicas, "localhost".to_owned()]);
    LeafSpec {
        common_name: names::service_host(cluster, &cluster.name_any()),
        dns,
        // The manager reaches an instance through its own Pod.
        ips: ["127.0.0.1", "::1"].iter().filter_map(|ip| ip.parse().ok()).collect(),
        usage: Usage::Server,
        valid,
    }
}

fn trust_in(secret: &Secret) -> Option<Trust> {
    let text = |key: &str| {
        let value = secret.data.as_ref()?.get(key)?;
        String::from_utf8(value.0.clone()).ok()
    };
    Some(Trust { authority: text(AUTHORITY)?, certificate: text(CERTIFICATE)? })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testkit::cluster;

    #[test]
    fn one_certificate_serves_all_names_and_does_not_change_with_the_number_of_instances() {
        let of = |spec| leaf(&cluster(spec), SignedDuration::from_hours(9));
        let leaf = of(json!({}));
        for name in [
            "*.db-instances.web.svc",
            "db.web.svc.cluster.local",
            "db-replicas.web.svc",
            "db",
            "localhost",
        ] {
            assert!(leaf.dns.contains(name), "{name}: {:?}", leaf.dns);
        }
        assert_eq!((leaf.usage, leaf.ips.len()), (Usage::Server, 2));
        assert_eq!(of(json!({"replicas": 9})), leaf);
    }
}
