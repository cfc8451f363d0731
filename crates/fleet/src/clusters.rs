//! How one cluster of a fleet stands, in words: pure.

use std::collections::{BTreeMap, BTreeSet};

use model::{ClusterName, MemberId};
use sharding::api::Phase;
use sharding::world::World;

use crate::{Fleet, FleetShard};

/// How a cluster stands that was added, and that no replica knows, although replicas are there that work in clusters.
pub const NOT_TAKEN_UP: &str = "not in use: no replica has taken it up; fix: replicas need clusters.secrets with the \
                                selector leasehold.dev/cluster in their configuration (the chart's value of the same name)";

/// The same, while nobody is there who could know it.
const NO_REPLICA: &str =
    "not in use: no replica lives; fix: see why none runs, in its Pod and its log";
/// The same, while nobody has anything to do there.
const NO_CONTROLLER: &str = "not in use: no replica runs a controller that works in clusters; fix: enable one in \
                             their configuration (the chart's controllers.NAME.enabled)";

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
    /// The sentence that shards stay which nobody has, and until when. `flags` are those by which commands find the fleet.
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

    /// How a cluster stands that no replica knows, and what to do.
    pub fn not_taken_up(&self) -> &'static str {
        match self.alive().map(|member| member.works_in_clusters).max() {
            None => NO_REPLICA,
            Some(false) => NO_CONTROLLER,
            Some(true) => NOT_TAKEN_UP,
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
        if let Some(problem) = self.unread_map(cluster.as_str()) {
            return format!("not known: {problem}");
        }
        match reasons.first() {
            None if shards.is_empty() => self.not_taken_up().to_owned(),
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
    } else if any(&|shard| shard.in_doubt) {
        "not known: an owner fails to reach more clusters than it can name"
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

/// Marks the shards of which nobody can tell whether their owners serve them: of those that fail to reach more clusters
/// than they can name. They name first those of which they hold shards; who names others too has named all of these.
pub(crate) fn doubt(world: &World, shards: &mut [FleetShard]) {
    let members = world.members().iter();
    let said = members.filter_map(|(id, member)| Some((id, member.spec.clusters.as_ref()?)));
    let mut doubted: BTreeMap<&MemberId, BTreeSet<&ClusterName>> = said
        .filter(|(_, said)| said.unnamed().is_some())
        .map(|(id, said)| (id, said.fails.iter().collect()))
        .collect();
    for shard in &*shards {
        if let Some(others) = shard.owner.as_ref().and_then(|owner| doubted.get_mut(owner)) {
            others.remove(&shard.shard.cluster);
        }
    }
    doubted.retain(|_, others| others.is_empty());
    for shard in shards {
        let is_owned = shard.phase == Phase::Owned && !shard.unserved;
        let owner = shard.owner.as_ref().filter(|_| is_owned);
        shard.in_doubt = owner.is_some_and(|owner| doubted.contains_key(owner));
    }
}

#[cfg(test)]
mod tests {
    use sharding::api::{DownCluster, Member, MemberSpec, ShardMap};

    use super::*;
    use crate::{FleetMember, LeaseStanding, UnreadObject};

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
        let in_doubt = || FleetShard { in_doubt: true, ..owned() };
        for (shards, is_down, expect) in [
            (vec![], false, NOT_TAKEN_UP),
            (vec![], true, "down: no route"),
            (vec![owned()], false, "served"),
            (
                vec![owned(), in_doubt()],
                false,
                "not known: an owner fails to reach more clusters than it can name",
            ),
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
    fn why_nobody_knows_a_cluster_is_told() {
        let member = |works_in_clusters, lease| FleetMember {
            works_in_clusters,
            lease,
            ..FleetMember::example("m-1")
        };
        let (alive, dead) = (LeaseStanding::Held, LeaseStanding::Taken);
        for (members, expect) in [
            (vec![], NO_REPLICA),
            (vec![member(true, dead)], NO_REPLICA),
            (vec![member(false, alive), member(true, dead)], NO_CONTROLLER),
            (vec![member(false, alive), member(true, alive)], NOT_TAKEN_UP),
        ] {
            let fleet = Fleet { members, ..Fleet::default() };
            assert_eq!(fleet.state_of(&east()), expect);
        }
    }

    #[test]
    fn who_fails_to_reach_more_clusters_than_it_names_leaves_its_shards_in_doubt() {
        let home = |fails: &[&str]| {
            let entry = |member: &str| serde_json::json!({"shard": "g/0/1", "epoch": 1, "phase": "Owned", "owner": member});
            let map = |(cluster, member): (&str, &str)| {
                let spec = serde_json::json!({"shards": [entry(member)]});
                ShardMap::new(cluster, serde_json::from_value(spec).unwrap())
            };
            let mut spec = MemberSpec::new("m-1", Vec::new());
            let said = serde_json::json!({"count": 9, "digest": "", "fails": fails, "failing": 9});
            spec.clusters = Some(serde_json::from_value(said).unwrap());
            let maps = [("east", "m-1"), ("north", "m-1"), ("south", "m-0")].map(map);
            let members = vec![Member::new("m-1", spec)];
            crate::assemble(&crate::Objects { members, maps: maps.into(), ..Default::default() })
        };
        let fleet = home(&["east"]);
        let marks: Vec<_> = fleet.shards.iter().map(|s| (s.unserved, s.in_doubt)).collect();
        assert_eq!(marks, [(true, false), (false, true), (false, false)]);
        assert_eq!(fleet.members[0].failing, Some(9));
        assert!(fleet.state_of(&"north".parse().unwrap()).starts_with("not known"));
        // It names those first of which it has shards.
        assert!(!home(&["east", "south"]).shards.iter().any(|shard| shard.in_doubt));
    }

    #[test]
    fn a_cluster_whose_map_cannot_be_read_is_not_one_that_is_not_in_use() {
        let unread = |later| UnreadObject {
            resource: "shardmaps.leasehold.dev",
            name: "east".into(),
            why: "shardmaps.leasehold.dev east cannot be read".into(),
            later,
        };
        for (later, fix) in [(None, "correct it"), (Some(7), "use the leasehold")] {
            let fleet = Fleet { unread: vec![unread(later)], ..Fleet::default() };
            let expect =
                format!("not known: shardmaps.leasehold.dev east cannot be read; fix: {fix}");
            assert!(fleet.state_of(&east()).starts_with(&expect), "{}", fleet.state_of(&east()));
            assert_eq!(fleet.unread_map("west"), None);
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
