//! The nouns that all other crates share: names, shards, ownership, keys and clocks. No IO.
//!
//! In data order: `clusters` engages a [`Cluster`] and publishes it in a [`ClusterSet`];
//! [`group::groups`] joins controllers into groups, each with a [`GroupName`]; a [`ShardId`] is one
//! `(cluster, group, range)`; `sharding` publishes this member's shards as [`OwnedShards`] and answers
//! the fence through [`Ownership`]; `engine` dispatches [`ObjectKey`]s under it.
//!
//! # Invariants
//! - Nothing here reads a clock, draws a random number or touches the network: [`Clock`] is a trait, and
//!   its implementations are in shell files elsewhere.
//! - `sharding`, `clusters` and `engine` meet only through traits of this crate.

pub mod bucket;
pub mod budget;
pub mod clock;
pub mod cluster;
pub mod definition;
mod duration;
pub mod error;
#[cfg(test)]
mod fuzz;
mod gathered;
pub mod group;
pub mod heaviest;
pub mod key;
pub mod kind;
pub mod labels;
pub mod load;
pub mod name;
pub mod ownership;
pub mod prefix;
pub mod range;
pub mod rbac;
pub mod selector;
pub mod shard;
pub mod single;
pub mod task;
#[cfg(feature = "testing")]
pub mod testing;
pub mod validity;
pub mod weak;
pub mod wire;

pub use bucket::{Bucket, Rate};
pub use budget::{Budget, Budgets, SourceBudget};
pub use clock::{Clock, ManualClock, Moment, Sleep};
pub use cluster::{Cluster, ClusterSet, ClusterState, DisputedNames, Identity, Living};
pub use duration::{doubled, duration};
pub use gathered::Gathered;
pub use group::{GroupScope, GroupTraits};
pub use key::ObjectKey;
pub use kind::{AnyObject, Kind, Object};
pub use labels::{ClusterLabel, ClusterLabels};
pub use load::{Unmeasured, Work, Workload};
pub use name::{
    ClusterName, ClusterUid, ControllerName, FleetId, GroupName, InvalidName, MemberId,
};
pub use ownership::{FenceError, Hold, Holding, OwnedShards, Ownership, Permit, Purpose};
pub use prefix::{Prefix, cluster_name, may_be_called};
pub use range::{Range, uid_hash};
pub use selector::{Selector, SelectorError};
pub use shard::{Epoch, ShardId};
pub use task::{TaskEnd, VitalTask, panic_text};
pub use validity::Validity;
pub use weak::WeakMap;
pub use wire::Wire;
