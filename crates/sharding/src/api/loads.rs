//! The sums of loads that a Member reports.

use model::ClusterName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The most shards whose load a Member reports; [`crate::load::MAX_LOAD_BYTES`] bounds them too.
pub(crate) const MAX_LOADS: usize = 1024;
/// The most clusters for which a Member reports the sum of further loads.
pub(crate) const MAX_CLUSTER_LOADS: usize = 256;

/// The sum of the loads of those shards of a cluster which a member holds and whose loads it does not report
/// by themselves.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterLoad {
    /// The cluster.
    #[schemars(with = "String", length(min = 1, max = 63))]
    pub cluster: ClusterName,
    /// The sum.
    #[serde(flatten)]
    pub sum: LoadSum,
}

/// A sum of loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoadSum {
    /// Milliseconds of work in each second.
    #[serde(default)]
    #[schemars(with = "i32", range(min = 0))]
    pub busy: u32,
    /// Watch events in each thousand seconds.
    #[serde(default)]
    #[schemars(with = "i64", range(min = 0))]
    pub events: u64,
    /// The size of the objects in the cache, in KiB.
    #[serde(default)]
    #[schemars(with = "i64", range(min = 0))]
    pub cached: u64,
}
