//! Load: the work of shards, which `engine` counts and `sharding` weighs, and the clusters that fail.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use crate::{ClusterName, ShardId};

/// The work of this process for one shard, counted since the process started. `busy` and `events` never
/// fall while a shard is held. A rate follows from two counts and the time between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// How long reconciles ran, summed over all workers.
    pub busy: Duration,
    /// How many keys of the initial list wait for a worker now.
    pub waiting: u64,
    /// How many watch events belonged to it.
    pub events: u64,
    /// How many bytes the cache holds for it now.
    pub cached_bytes: u64,
    /// How much of the busy time of the last minute or so one object took, the one that took most, in
    /// thousandths. No split of the shard divides that.
    pub heaviest_permille: u16,
}

/// The counters of work. `engine` implements it, and `sharding` reads it every few seconds.
pub trait Workload: Debug + Send + Sync + 'static {
    /// Every shard held now, with the work done for it.
    fn measure(&self) -> BTreeMap<ShardId, Work>;

    /// The clusters that get no requests now because they fail, and those that lack a kind which a
    /// controller needs, with the reasons.
    fn failing(&self) -> BTreeMap<ClusterName, Arc<str>>;
}

/// A process that measures nothing: all shards have the same weight.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unmeasured;

impl Workload for Unmeasured {
    fn measure(&self) -> BTreeMap<ShardId, Work> {
        BTreeMap::new()
    }

    fn failing(&self) -> BTreeMap<ClusterName, Arc<str>> {
        BTreeMap::new()
    }
}
