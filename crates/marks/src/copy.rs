//! Whether a copy of this fleet works in a cluster. Pure.
//!
//! A copy of home (a backup that is restored elsewhere while the first goes on) has the fleet's id, so each of the
//! two takes the other's mark for its own. What differs is who lives: the mark is written again and again by a process
//! that home does not show as a living member. Who sees that in a cluster where its own fleet has written nothing
//! before is the copy, and yields. A fleet that is established writes over it at once, so that the copy sees it.
//!
//! One such write proves nothing: what home shows may be a moment old. Nor does a write by a process that was a living
//! member at the look before, or may have been.

use std::time::Duration;

use model::Living;

use super::RENEW_AFTER;

/// After how many writes of living members a fleet is established in a cluster, and how many of strangers in a row
/// prove a copy.
const ENOUGH: u32 = 2;
/// When a mark is renewed that a stranger wrote: a member of the stranger's fleet comes first.
const RENEW_STRANGERS: Duration = Duration::from_secs(2 * RENEW_AFTER.as_secs());
/// When a process renews it that does not know who lives: those that know come first, and it comes before the mark is
/// stale.
const RENEW_UNKNOWING: Duration = Duration::from_secs(120);

/// Who wrote our fleet's mark since this process looks at it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Writers {
    members: u32,
    /// In a row, up to the last write.
    strangers: u32,
}

impl Writers {
    /// The mark was written anew by `by`, since the look before, when these `lived`.
    pub(super) fn wrote(&mut self, by: &str, living: &Living, lived: &Living) {
        match living.includes(by) {
            Some(true) => {
                self.members = self.members.saturating_add(1);
                self.strangers = 0;
            }
            Some(false) if lived.includes(by) == Some(false) => {
                self.strangers = self.strangers.saturating_add(1);
            }
            // It may have been a member, and have ended since: an update replaces one after the other.
            Some(false) | None => {}
        }
    }

    /// Whether ours is the copy.
    pub(super) fn yields(&self) -> bool {
        self.strangers >= ENOUGH && !self.is_established()
    }

    /// When the mark that `by` wrote is due to be written anew.
    pub(super) fn renew_after(&self, by: &str, living: &Living) -> Duration {
        match living.includes(by) {
            Some(true) => RENEW_AFTER,
            Some(false) if self.is_established() => Duration::ZERO,
            Some(false) => RENEW_STRANGERS,
            None => RENEW_UNKNOWING,
        }
    }

    fn is_established(&self) -> bool {
        self.members >= ENOUGH
    }
}
