//! Room for a clone. Pure.
//!
//! A clone ends only when no commit waits at its donor. If all that could acknowledge have to be cloned,
//! each waits for the other. Then the primary takes no writes, which could not be acknowledged anyway, until
//! enough of them have its data. Reads go on. Keeps rule 6: sessions that wait are ended with their server.

use std::time::Duration;

use super::*;
use crate::memory::Member;
use crate::observed::InstanceSeen;
use crate::server::Look;

/// For how long those that do not acknowledge are unwell before the primary makes room: they may come back by
/// themselves.
const PATIENCE: Duration = Duration::from_secs(30);

impl Observed {
    /// Closes an open primary whose commits wait for an instance that is cloned, or will be.
    pub(super) fn make_room(&self, primary: &str, source: &Look) -> Option<Step> {
        let is_settled = |member: &Member| {
            let unwell = self.unwell(&member.name);
            self.serves(primary, member) || unwell.is_some_and(|(_, lasts)| lasts >= PATIENCE)
        };
        let waits = !self.is_served(primary, source) && self.others(primary).all(is_settled);
        if !waits || !self.lacks_copies(primary, source) {
            return None;
        }
        Some(match source.waiting {
            0 => Step::tell(primary, Order::Close),
            _ => Step::DeletePod { instance: primary.to_owned(), why: Why::MakesRoom },
        })
    }

    /// Lets others be cloned before the primary is opened.
    pub(super) fn fill_room(&self, primary: &str, source: &Look) -> Option<Step> {
        if !self.lacks_copies(primary, source) {
            return None;
        }
        if let Some(step) = self.label(primary) {
            return Some(step);
        }
        let steps = self.follow(primary, source).into_iter();
        let clones = |step: &Step| matches!(step, Step::Tell { order: Order::CloneFrom(_), .. });
        let waits = Waiting::step(
            "Cloning",
            format!("{primary} takes no writes until those that acknowledge them have its data"),
        );
        next_turn(steps.filter(clones).chain([waits]), self.last.as_ref())
    }

    /// Whether fewer have data of use than acknowledge a commit, and one has to be cloned, or is.
    fn lacks_copies(&self, primary: &str, source: &Look) -> bool {
        let others = || {
            let others = self.instances.iter().filter(|seen| seen.name != primary);
            others.filter(|seen| !self.is_leaving(&seen.name))
        };
        let is_useful = |seen: &&InstanceSeen| {
            let look = seen.answer();
            look.is_some_and(|look| self.flaw(primary, source, &seen.name, look).is_none())
        };
        let is_empty = |seen: &InstanceSeen| {
            let is_member = self.own_look(&seen.name).is_some();
            seen.is_cloning() || (!is_member && seen.answer().is_some() && !is_useful(&seen))
        };
        others().filter(is_useful).count() < self.memory.acks as usize && others().any(is_empty)
    }
}
