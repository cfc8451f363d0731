//! How one cluster of a fleet stands, in words: pure.

use std::collections::BTreeSet;

use model::ClusterName;
use sharding::api::Phase;

use crate::{Fleet, FleetShard};

/// What is left in home of a cluster that was removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeftOver {
    /// Nothing.
    Nothing,
    /// So many shards without an owner, and the policy that pauses one of them.
    Idle(usize, Option<String>),
    /// Shards that these members own.
    Owned(Vec<String>),
}

impl LeftOver {
    /// That shards stay where nobody has them, and until when. `flags` are those by which commands find the fleet.
    pub fn says(&self, cluster: &ClusterName, flags: &str) -> Option<String> {
        let Self::Idle(count, policy) = self else { return None };
        let until = match policy {
            Some(policy) => {
                format!(
                    "while the FleetPolicy {policy} pauses them: `leasehold lift {policy}{flags}`"
                )
            }
            None => format!("until the coordinator removes them: `leasehold status{flags}`"),
        };
        Some(format!("{cluster}: nobody has its {count} shards; home keeps them {until}"))
    }
}

impl Fleet {
    /// What is left of a cluster.
    pub fn remains_of(&self, cluster: &ClusterName) -> LeftOver {
        let shards = self.shards_of(cluster);
        let owners: BTreeSet<_> = shards.iter().filter_map(|shard| shard.owner.as_ref()).collect();
        if !owners.is_empty() {
            return LeftOver::Owned(owners.into_iter().map(ToString::to_string).collect());
        }
        match shards.len() {
            0 => LeftOver::Nothing,
            count => LeftOver::Idle(count, shards.iter().find_map(|shard| shard.paused_by.clone())),
        }
    }

    /// Whether a cluster is served, and if not, why. It is down only if nobody serves any of it.
    pub fn state_of(&self, cluster: &ClusterName) -> String {
        let shards = self.shards_of(cluster);
        let down = self.alive().filter_map(|member| {
            let mut down = member.down_clusters.iter();
            let reason = &down.find(|down| down.cluster == *cluster)?.reason;
            Some((member.identity.as_str(), reason))
        });
        let (who, reasons): (Vec<&str>, Vec<&String>) = down.unzip();
        let is_served = |shard: &&FleetShard| {
            shard.paused_by.is_some() || (shard.phase != Phase::Unowned && !shard.unserved)
        };
        match reasons.first() {
            None if shards.is_empty() => "not in use: no replica knows it yet".to_owned(),
            None => served(&shards).to_owned(),
            Some(reason) if !shards.iter().any(is_served) => format!("down: {reason}"),
            Some(reason) => format!("{}; down for {}: {reason}", served(&shards), who.join(", ")),
        }
    }
}

/// Whether the shards of a cluster are served.
fn served(shards: &[&FleetShard]) -> &'static str {
    let any = |is: &dyn Fn(&FleetShard) -> bool| shards.iter().any(|shard| is(shard));
    if any(&|shard| shard.unserved) {
        "not served: an owner fails to reach it"
    } else if any(&|shard| shard.paused_by.is_some()) {
        "paused"
    } else if any(&|shard| shard.phase == Phase::Unowned) {
        "not served: a shard has no owner"
    } else if any(&|shard| shard.phase == Phase::Draining) {
        "served, moving"
    } else {
        "served"
    }
}

#[cfg(test)]
mod tests {
    use sharding::api::DownCluster;

    use super::*;
    use crate::{FleetMember, LeaseStanding};

    fn east() -> ClusterName {
        "east".parse().unwrap()
    }

    fn shard(owner: Option<&str>, phase: Phase) -> FleetShard {
        FleetShard::example("east/g/0/1", owner, phase)
    }

    fn paused() -> FleetShard {
        FleetShard { paused_by: Some("p".into()), ..shard(None, Phase::Unowned) }
    }

    #[test]
    fn a_cluster_that_one_replica_cannot_use_is_served_by_the_others() {
        let owned = || shard(Some("m-0"), Phase::Owned);
        let unserved = || FleetShard { unserved: true, ..owned() };
        for (shards, is_down, expect) in [
            (vec![], false, "not in use: no replica knows it yet"),
            (vec![], true, "down: no route"),
            (vec![owned()], false, "served"),
            (vec![owned()], true, "served; down for m-1: no route"),
            (vec![unserved()], true, "down: no route"),
            (vec![shard(None, Phase::Unowned)], true, "down: no route"),
            (vec![paused()], true, "paused; down for m-1: no route"),
            (
                vec![owned(), unserved()],
                true,
                "not served: an owner fails to reach it; down for m-1: no route",
            ),
        ] {
            let mut member = FleetMember::example("m-1");
            if is_down {
                member.down_clusters =
                    vec![DownCluster { cluster: east(), reason: "no route".into() }];
            }
            let mut fleet = Fleet { members: vec![member], shards, ..Fleet::default() };
            assert_eq!(fleet.state_of(&east()), expect);
            fleet.members[0].lease = LeaseStanding::Taken;
            assert!(!fleet.state_of(&east()).contains("down"), "the dead say nothing any more");
        }
    }

    #[test]
    fn shards_that_nobody_owns_do_not_keep_the_user_of_a_cluster() {
        let of = |shards: Vec<FleetShard>| Fleet { shards, ..Fleet::default() }.remains_of(&east());
        assert_eq!(of(Vec::new()), LeftOver::Nothing);
        let owned = of(vec![shard(Some("m-0"), Phase::Draining), shard(None, Phase::Unowned)]);
        assert_eq!(owned, LeftOver::Owned(vec!["m-0".into()]));
        let idle = of(vec![paused()]);
        assert_eq!(idle, LeftOver::Idle(1, Some("p".into())));
        let text = idle.says(&east(), " --namespace lh").unwrap();
        assert!(text.ends_with("`leasehold lift p --namespace lh`"), "{text}");
    }
}
