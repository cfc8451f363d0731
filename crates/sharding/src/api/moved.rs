//! Why and when a shard came to where it is, for people: no decision depends on it.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ShardEntry, ShardPath};
use crate::planner::Reason;

/// Why and when a shard came to where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Moved {
    /// Why.
    #[schemars(with = "String", length(min = 1, max = 63))]
    pub why: MoveCause,
    /// When the map was written in which its owner, its next owner or its phase changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub at: Option<Time>,
}

/// Why a shard came to where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String")]
pub enum MoveCause {
    /// It is new.
    Created,
    /// Its owner was silent or dead.
    OwnerDied,
    /// Its owner leaves, or cannot run its group any more.
    OwnerLeft,
    /// The member that should get it cannot take it any more.
    TargetLost,
    /// Its owner does not reach its cluster, or does not have it configured, and another member does.
    Unreached,
    /// People do not want it at its owner, or not so many shards there.
    Policy,
    /// Its owner is cordoned.
    Maintenance,
    /// The other shards of its group, of scope `Fleet`, are elsewhere.
    Together,
    /// Its owner carries more than its share, or another member much less.
    Balance,
    /// It is being split, or is a part of one that was.
    Split,
    /// It is being merged with its sibling, or was made of two.
    Merged,
    /// People paused it.
    Paused,
    /// People had paused it, and it goes on.
    Resumed,
    /// People wanted it at no member that could take it, and that has ended.
    Lifted,
    /// Nobody runs its group any more, or nobody has its cluster configured.
    Removed,
    /// A later release knows why.
    Other,
}

/// Why and when the shards of a map came to where they are. It is no part of what tells states of a map apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moves(pub Arc<BTreeMap<ShardPath, Moved>>);

// === impl MoveCause ===

impl MoveCause {
    /// All of them but [`MoveCause::Other`].
    const KNOWN: [Self; 15] = [
        Self::Created,
        Self::OwnerDied,
        Self::OwnerLeft,
        Self::TargetLost,
        Self::Unreached,
        Self::Policy,
        Self::Maintenance,
        Self::Together,
        Self::Balance,
        Self::Split,
        Self::Merged,
        Self::Paused,
        Self::Resumed,
        Self::Lifted,
        Self::Removed,
    ];

    /// Why the planner moves a shard; `None` if the shard just had no owner.
    pub(crate) fn of(reason: Reason) -> Option<Self> {
        Some(match reason {
            Reason::Unowned => return None,
            Reason::OwnerLeaves => Self::OwnerLeft,
            Reason::TargetLost => Self::TargetLost,
            Reason::Unreached => Self::Unreached,
            Reason::Policy => Self::Policy,
            Reason::Maintenance => Self::Maintenance,
            Reason::Together => Self::Together,
            Reason::Balance => Self::Balance,
        })
    }
}

impl From<String> for MoveCause {
    fn from(text: String) -> Self {
        let mut known = Self::KNOWN.into_iter();
        known.find(|cause| format!("{cause:?}") == text).unwrap_or(Self::Other)
    }
}

impl fmt::Display for MoveCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Created => "it is new",
            Self::OwnerDied => "its owner was silent or dead",
            Self::OwnerLeft => "its owner left or could not run it",
            Self::TargetLost => "its next owner could not take it",
            Self::Unreached => "its owner did not reach its cluster",
            Self::Policy => "people want it so",
            Self::Maintenance => "its owner is drained",
            Self::Together => "its group is one for the fleet",
            Self::Balance => "balance",
            Self::Split => "it was split",
            Self::Merged => "it was merged",
            Self::Paused => "people paused it",
            Self::Resumed => "its pause ended",
            Self::Lifted => "a policy ended that had kept it without an owner",
            Self::Removed => "nobody runs its group or has its cluster",
            Self::Other => "for a reason that this release does not know",
        })
    }
}

// === impl Moves ===

impl Moves {
    /// Why a shard came to where it is, if that is known.
    pub fn why(&self, path: &ShardPath) -> Option<MoveCause> {
        Some(self.0.get(path)?.why)
    }

    /// As the entries of a ShardMap say it.
    pub(crate) fn read(entries: &[ShardEntry]) -> Self {
        let moved = entries.iter().filter_map(|e| Some((e.shard.clone(), e.moved.clone()?)));
        Self(Arc::new(moved.collect()))
    }

    /// How a shard came to where it is, if it came there with a map that is written at `wall` or before.
    pub(crate) fn written(&self, path: &ShardPath, wall: Timestamp) -> Option<Moved> {
        let Moved { why, at } = self.0.get(path)?.clone();
        Some(Moved { why, at: Some(at.unwrap_or(Time(wall))) })
    }
}

impl Hash for Moves {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_read_back_as_written_and_unknown_ones_are_read_too() {
        for cause in MoveCause::KNOWN {
            let text = serde_json::to_string(&cause).unwrap();
            assert_eq!(serde_json::from_str::<MoveCause>(&text).unwrap(), cause, "{text}");
        }
        assert_eq!(serde_json::from_str::<MoveCause>("\"Magic\"").unwrap(), MoveCause::Other);
    }
}
