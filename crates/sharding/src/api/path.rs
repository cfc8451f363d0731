//! A shard as a ShardMap names it.

use std::fmt;
use std::str::FromStr;

use model::{ClusterName, GroupName, Range, ShardId};
use serde::{Deserialize, Serialize};

/// A shard inside its cluster: `group/i/n`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ShardPath {
    /// The controller group.
    pub group: GroupName,
    /// The slice of uids.
    pub range: Range,
}

/// A text that is not a shard's path.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a shard of a cluster: write it group/i/n, as in tdset/0/1")]
pub struct InvalidShardPath(String);

// === impl ShardPath ===

impl ShardPath {
    /// The whole of a group.
    pub fn whole(group: GroupName) -> Self {
        Self { group, range: Range::WHOLE }
    }

    /// This shard, in that cluster.
    pub fn in_cluster(&self, cluster: &ClusterName) -> ShardId {
        ShardId { cluster: cluster.clone(), group: self.group.clone(), range: self.range }
    }
}

impl From<&ShardId> for ShardPath {
    fn from(shard: &ShardId) -> Self {
        Self { group: shard.group.clone(), range: shard.range }
    }
}

impl fmt::Display for ShardPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.group, self.range)
    }
}

impl FromStr for ShardPath {
    type Err = InvalidShardPath;
    fn from_str(text: &str) -> Result<Self, InvalidShardPath> {
        let parse = || {
            let (group, range) = text.split_once('/')?;
            Some(Self { group: group.parse().ok()?, range: range.parse().ok()? })
        };
        parse().ok_or_else(|| InvalidShardPath(text.to_owned()))
    }
}

impl TryFrom<String> for ShardPath {
    type Error = InvalidShardPath;
    fn try_from(text: String) -> Result<Self, InvalidShardPath> {
        text.parse()
    }
}

impl From<ShardPath> for String {
    fn from(path: ShardPath) -> String {
        path.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_reads_back_as_written() {
        let path: ShardPath = "tdset/1/2".parse().unwrap();
        assert_eq!(path.to_string(), "tdset/1/2");
        assert!("tdset/2/2".parse::<ShardPath>().is_err());
    }
}
