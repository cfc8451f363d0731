//! Work that is one for the whole fleet and of no cluster: held as a shard, on one replica at a time.
//!
//! Such work is a group of its own, named `single.<name>`, with one shard in the [`fleet_cluster`]: a
//! name that stands for the fleet itself. Its ShardMap is an object like those of clusters, so epochs,
//! fence, drains and handover are those of any shard. The name is fixed: had the work its shard in one
//! of the clusters, it would move, or run twice, when that one goes.
//!
//! What lies where is told by the names alone ([`lies_in`]). So every coordinator decides alike, also
//! one whose configuration does not have the work.

use crate::name::OF_FLEET;
use crate::{ClusterName, GroupName, InvalidName, Range, ShardId};

/// The name that stands for the fleet where a shard names its cluster.
pub const FLEET: &str = OF_FLEET;
/// What the names of such groups begin with.
const PREFIX: &str = "single.";

/// The cluster in which work that is of no cluster has its shards.
pub fn fleet_cluster() -> ClusterName {
    FLEET.parse().expect("the name is valid")
}

/// The group of the single work of that name.
///
/// # Errors
/// If that gives no valid name.
pub fn group(name: &str) -> Result<GroupName, InvalidName> {
    format!("{PREFIX}{name}").parse()
}

/// The one shard of a group of single work.
pub fn shard(group: &GroupName) -> ShardId {
    ShardId { cluster: fleet_cluster(), group: group.clone(), range: Range::WHOLE }
}

/// Whether a group is one of single work.
pub fn is_single(group: &GroupName) -> bool {
    group.as_str().starts_with(PREFIX)
}

/// Whether a group has shards in a cluster: single work in [`FLEET`] and nowhere else, all others
/// everywhere else.
pub fn lies_in(group: &GroupName, cluster: &ClusterName) -> bool {
    is_single(group) == (cluster.as_str() == FLEET)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_work_lies_in_the_fleet_and_controllers_lie_in_clusters() {
        let (single, controller) = (group("report").unwrap(), "tdset".parse().unwrap());
        assert_eq!(shard(&single).to_string(), "fleet.leasehold.dev/single.report/0/1");
        let east = "east".parse().unwrap();
        assert!(lies_in(&single, &fleet_cluster()) && !lies_in(&single, &east));
        assert!(lies_in(&controller, &east) && !lies_in(&controller, &fleet_cluster()));
        assert!(group("Report").is_err());
    }
}
