//! The loads that a Member reports.

use std::ops::Deref;
use std::sync::Arc;

use model::ClusterName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ShardLoad;

/// The loads of single shards. Shared, because a member looks at its Member at every step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(from = "Vec<ShardLoad>", into = "Vec<ShardLoad>")]
#[schemars(with = "Vec<ShardLoad>")]
pub struct ShardLoads(Arc<[ShardLoad]>);

/// The sum of the loads of those shards of a cluster which a member holds and whose loads it does not report
/// by themselves.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterLoad {
    /// The cluster.
    #[schemars(with = "String", length(min = 1, max = 63))]
    pub cluster: ClusterName,
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

impl ShardLoads {
    /// Whether there are none.
    pub(crate) fn is_none(&self) -> bool {
        self.0.is_empty()
    }
}

impl Deref for ShardLoads {
    type Target = [ShardLoad];

    fn deref(&self) -> &[ShardLoad] {
        &self.0
    }
}

impl From<Vec<ShardLoad>> for ShardLoads {
    fn from(loads: Vec<ShardLoad>) -> Self {
        Self(loads.into())
    }
}

impl From<ShardLoads> for Vec<ShardLoad> {
    fn from(loads: ShardLoads) -> Self {
        loads.to_vec()
    }
}

impl FromIterator<ShardLoad> for ShardLoads {
    fn from_iter<I: IntoIterator<Item = ShardLoad>>(loads: I) -> Self {
        Self(loads.into_iter().collect())
    }
}
