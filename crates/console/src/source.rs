//! Where the pages' contents come from.

use std::sync::Arc;

use explain::{Sought, Told};
use fleet::{Fleet, FleetEvents};
use futures::future::BoxFuture;
use queue::QueueStatus;

/// An answer that is awaited by all who want it.
pub type Answer<T> = BoxFuture<'static, T>;

/// What each of some replicas says, or why it says nothing.
pub type Said<T> = Vec<(String, Result<T, String>)>;

/// Reads a fleet. Each answer comes within a bound in time; its errors are for people.
pub trait Source: Send + Sync + 'static {
    /// Which fleet, and from where it is seen.
    fn about(&self) -> String;
    /// The fleet, as its home cluster has it.
    fn fleet(&self) -> Answer<Result<Fleet, String>>;
    /// The queues of its replicas, as far as they can be asked from here. Of a fleet that home does not tell, `fleet`
    /// has nothing.
    fn queues(&self, fleet: Arc<Fleet>) -> Answer<Said<Vec<QueueStatus>>>;
    /// What replicas say of an object, in the same way.
    fn explain(&self, sought: Sought, fleet: Arc<Fleet>) -> Answer<Said<Told>>;
    /// What the fleet told.
    fn events(&self) -> Answer<Result<FleetEvents, String>>;
}

#[cfg(test)]
pub(crate) mod tests {
    use fleet::{FleetMember, FleetShard};
    use sharding::api::{DownCluster, Phase};

    use super::*;

    pub(crate) fn shard(name: &str, owner: Option<&str>, phase: Phase) -> FleetShard {
        FleetShard::example(name, owner, phase)
    }

    pub(crate) fn down(cluster: &str, reason: &str) -> DownCluster {
        DownCluster { cluster: cluster.parse().unwrap(), reason: reason.into() }
    }

    /// Two members and these shards.
    pub(crate) fn fleet(shards: Vec<FleetShard>) -> Fleet {
        let member = |name: &str| FleetMember {
            renewed: Some(jiff::Timestamp::UNIX_EPOCH),
            coordinator: name == "m-0",
            busy: 500,
            ..FleetMember::example(name)
        };
        let coordinator = Some("m-0".parse().unwrap());
        let members = vec![member("m-0"), member("m-1")];
        Fleet { coordinator, members, shards, ..Fleet::default() }
    }
}
