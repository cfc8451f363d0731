//! The unit of ownership, and the epoch that counts its owners.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{ClusterName, GroupName, Range};

/// One slice of work: a controller group in a cluster, over a range of object uids.
///
/// Written `cluster/group/i/n`, as in `east/tdset/0/1`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ShardId {
    /// The cluster.
    pub cluster: ClusterName,
    /// The controller group.
    pub group: GroupName,
    /// The slice of uids.
    pub range: Range,
}

/// Counts the owners of one shard. It rises with each change of owner, so of two owners the one with the
/// higher epoch is the later.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Epoch(pub u64);

/// A text that is not a shard id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a shard: write it cluster/group/i/n, as in east/tdset/0/1")]
pub struct InvalidShard(String);

impl Epoch {
    /// The highest epoch that home takes in a ShardMap. Owners do not follow each other so often by far.
    pub const MAX: Epoch = Epoch(1 << 62);

    /// The epoch of the next owner.
    #[must_use]
    pub fn next(self) -> Epoch {
        Epoch(self.0.saturating_add(1))
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.cluster, self.group, self.range)
    }
}

impl FromStr for ShardId {
    type Err = InvalidShard;
    fn from_str(text: &str) -> Result<Self, InvalidShard> {
        let parse = || {
            let mut parts = text.splitn(3, '/');
            Some(ShardId {
                cluster: parts.next()?.parse().ok()?,
                group: parts.next()?.parse().ok()?,
                range: parts.next()?.parse().ok()?,
            })
        };
        parse().ok_or_else(|| InvalidShard(text.to_owned()))
    }
}

impl TryFrom<String> for ShardId {
    type Error = InvalidShard;
    fn try_from(text: String) -> Result<Self, InvalidShard> {
        text.parse()
    }
}

impl From<ShardId> for String {
    fn from(shard: ShardId) -> String {
        shard.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_reads_back_as_written() {
        let shard: ShardId = "east/tdset/1/2".parse().unwrap();
        assert_eq!((shard.group.as_str(), shard.to_string().as_str()), ("tdset", "east/tdset/1/2"));
        assert!("east/tdset".parse::<ShardId>().is_err());
    }
}
