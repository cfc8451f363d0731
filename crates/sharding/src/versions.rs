//! The versions of the sharding protocol that a member speaks, as numbers.

use std::fmt;

/// The version of a ShardMap that names none.
pub(crate) const FIRST: u32 = 1;
/// In place of the version of a ShardMap that cannot be read. Nobody speaks it.
pub(crate) const UNREADABLE: u32 = 0;

/// The versions of the protocol that a member speaks, from the oldest to the newest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProtocolVersions {
    /// The oldest.
    pub oldest: u32,
    /// The newest.
    pub newest: u32,
}

impl ProtocolVersions {
    /// What this code speaks.
    pub const SPOKEN: Self = Self { oldest: FIRST, newest: FIRST };

    /// Whether a version is among them.
    pub fn speaks(self, version: u32) -> bool {
        (self.oldest..=self.newest).contains(&version)
    }

    /// Whether both speak some version.
    pub(crate) fn overlaps(self, other: Self) -> bool {
        self.oldest.max(other.oldest) <= self.newest.min(other.newest)
    }

    /// What a Member reports as its oldest version beside the newest.
    pub(crate) fn reported_oldest(self) -> Option<u32> {
        (self.oldest < self.newest).then_some(self.oldest)
    }

    /// What to do about a fleet that uses a version which is not among these.
    pub(crate) fn fix(self, version: u32) -> &'static str {
        if version > self.newest {
            "upgrade this replica to the release of the others, or roll the others back"
        } else {
            "roll this replica back to the release of the others, or upgrade all by way of a \
             release that speaks both versions"
        }
    }
}

impl Default for ProtocolVersions {
    fn default() -> Self {
        Self::SPOKEN
    }
}

impl fmt::Display for ProtocolVersions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.oldest == self.newest {
            write!(f, "protocol version {}", self.newest)
        } else {
            write!(f, "protocol versions {} to {}", self.oldest, self.newest)
        }
    }
}
