//! Load: what the work of a shard costs, as `engine` counts it and `sharding` weighs it, and which
//! clusters refuse to have work done.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use crate::{ClusterName, ShardId};

/// The work done for one shard by this process, counted since the process began. `busy` and
/// `events` never fall while a shard is held; whoever wants a rate takes two counts and the time
/// between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// How long reconciles ran, summed over all workers.
    pub busy: Duration,
    /// How many watch events belonged to it.
    pub events: u64,
    /// How many bytes the cache holds for it now.
    pub cached_bytes: u64,
}

/// The counters. Implemented by `engine`, asked by `sharding` every few seconds.
pub trait Workload: Debug + Send + Sync + 'static {
    /// Every shard held now, and the work done for it.
    fn measure(&self) -> BTreeMap<ShardId, Work>;

    /// The clusters that are left alone now because they fail, and those that lack a kind which a
    /// controller needs; with a text for people.
    fn failing(&self) -> BTreeMap<ClusterName, Arc<str>>;
}

/// A process that measures nothing: every shard weighs alike.
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
