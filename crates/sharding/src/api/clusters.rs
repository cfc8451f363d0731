//! What a Member says about the clusters that its process has configured, and which of them it reaches.

use model::{ClusterName, single};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Shared;

/// The most clusters that each list of a Member's [`ConfiguredClusters`] names.
pub(crate) const MAX_NAMED: usize = 256;
/// The most beginnings of names that it says there.
pub(crate) const MAX_OPEN: usize = 16;
/// How much of a Member each of these lists takes at most, in bytes.
pub(crate) const MAX_NAMED_BYTES: usize = 8 * 1024;

/// The clusters that a member has configured, said in a few bytes: how they differ from those that have a
/// ShardMap, or their names if they are few. Count and digest prove that the reader has the same idea of
/// them as the member (`crate::reach`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfiguredClusters {
    /// How many it has configured.
    #[schemars(with = "i32", range(min = 0))]
    pub count: u32,
    /// A digest of all their names, as 16 hexadecimal digits.
    #[schemars(length(max = 16))]
    pub digest: String,
    /// The clusters that have a ShardMap and that it does not have configured.
    #[serde(default, skip_serializing_if = "Shared::is_empty")]
    #[schemars(with = "Vec<String>", length(max = 256))]
    pub lacks: Shared<ClusterName>,
    /// The clusters that it has configured and that have no ShardMap.
    #[serde(default, skip_serializing_if = "Shared::is_empty")]
    #[schemars(with = "Vec<String>", length(max = 256))]
    pub adds: Shared<ClusterName>,
    /// All clusters that it has configured, in place of the two lists above, if they are few or if these
    /// lists would be too long.
    #[serde(default, skip_serializing_if = "Shared::is_empty")]
    #[schemars(with = "Vec<String>", length(max = 256))]
    pub only: Shared<ClusterName>,
    /// The clusters that it has configured and fails to reach: it has no client for them, they do not
    /// answer it, or they lack a kind that one of its controllers needs. Those of which it holds shards
    /// come first.
    #[serde(default, skip_serializing_if = "Shared::is_empty")]
    #[schemars(with = "Vec<String>", length(max = 256))]
    pub fails: Shared<ClusterName>,
    /// How many it fails to reach, if they are more than the list names.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(with = "i32", range(min = 0))]
    pub failing: u32,
    /// What the names of further clusters begin with that it may have configured, of sources that it could not read yet:
    /// of such names it is not known that it does not have them. An empty text stands for all names.
    #[serde(default, skip_serializing_if = "Shared::is_empty")]
    #[schemars(with = "Vec<String>", length(max = 16))]
    pub open: Shared<String>,
}

impl ConfiguredClusters {
    /// Whether the member says that it does not serve a cluster: it does not have it configured, or fails
    /// to reach it.
    pub fn denies(&self, cluster: &ClusterName) -> bool {
        let names_all = self.only.len() == self.count as usize;
        self.fails.contains(cluster)
            || self.lacks.contains(cluster)
            || (names_all && !self.only.contains(cluster) && cluster.as_str() != single::FLEET)
    }

    /// How many clusters it fails to reach, if they are more than it names.
    pub fn unnamed(&self) -> Option<u32> {
        (self.failing as usize > self.fails.len()).then_some(self.failing)
    }
}

// Serde hands over references.
#[expect(clippy::trivially_copy_pass_by_ref)]
pub(super) fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// As many of these names, from the first, as one list has room for.
pub(crate) fn that_fit<'a>(names: impl Iterator<Item = &'a ClusterName>) -> Shared<ClusterName> {
    let mut bytes = 0;
    let room = |name: &&ClusterName| {
        bytes += name.as_str().len() + "\"\",".len();
        bytes <= MAX_NAMED_BYTES
    };
    names.take(MAX_NAMED).take_while(room).cloned().collect()
}
