//! Names of clusters, which replicas may know differently.

use std::collections::BTreeSet;
use std::sync::Arc;

use leasehold_sharding::identity::Identities;
use leasehold_sharding::node::Input;
use model::{ClusterName, ClusterUid, Identity};

use super::{Fleet, Happening};

impl Fleet {
    /// Configures a replica, or all of them and the next, with these names, each with the cluster for which
    /// it stands. A cluster without a number of its own, as in `c3=`, does not tell which it is, and one as `c3=?` does
    /// not answer, so that there is no client for it.
    pub fn name_clusters(&mut self, replica: Option<usize>, names: &[&str]) {
        let pairs: Vec<_> =
            names.iter().map(|text| text.split_once('=').expect("name=uid")).collect();
        let name = |text: &str| -> ClusterName { text.parse().expect("a name") };
        let clusters: BTreeSet<ClusterName> = pairs.iter().map(|(text, _)| name(text)).collect();
        let identity = |(place, (text, uid)): (usize, &(&str, &str))| {
            let uid: ClusterUid = uid.parse().ok()?;
            Some((name(text), Arc::new(Identity { uid, origin: "a kubeconfig".into(), place })))
        };
        let identities: Identities = pairs.iter().enumerate().filter_map(identity).collect();
        let silent = pairs.iter().filter(|(_, uid)| *uid == "?").map(|(text, _)| name(text));
        let silent: BTreeSet<ClusterName> = silent.collect();
        let replicas = match replica {
            Some(replica) => replica..replica + 1,
            None => 0..self.replicas.len(),
        };
        for replica in replicas {
            self.replicas[replica].reached.silence(&silent);
            self.configure(replica, &clusters);
            self.identify(replica, Identities::clone(&identities));
        }
        if replica.is_none() {
            (self.clusters, self.identities) = (clusters, identities);
        }
    }

    /// The clusters tell a replica who they are.
    pub(super) fn identify(&mut self, replica: usize, identities: Identities) {
        let now = self.replicas[replica].clock.read(self.now_us);
        self.replicas[replica].node.handle(Input::Identified(identities), now);
        self.schedule(0, replica, Happening::Step);
    }

    /// From now on these names stand for one cluster, as the oracle judges it.
    pub fn are_one(&mut self, names: &[&str]) {
        let parsed = || names.iter().map(|text| text.parse::<ClusterName>().expect("a name"));
        let first = parsed().next().expect("a name");
        self.oracle.clusters.extend(parsed().map(|name| (name, first.clone())));
    }
}
