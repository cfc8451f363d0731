//! When the member takes in what people want, as home shows it.
//!
//! A list that lacks a pause may be that of a restored home of which this member does not know yet: its watches begin
//! anew sooner than it renews its Lease. So what would end a pause waits for a renewal that is sent after it came. If
//! that one is refused because home's history changed, the pause holds ([`crate::policy`]).

use model::Moment;

use super::Node;
use crate::member::Standing;
use crate::policy::{Policies, PolicyRecord};
use crate::record::Write;

/// What home shows, not taken in yet.
#[derive(Clone, Debug)]
pub(super) struct ShownPolicies {
    records: Vec<PolicyRecord>,
    since: Moment,
    /// Whether a renewal was asked for since, and whether one was sent and accepted.
    is_doubted: bool,
    is_confirmed: bool,
}

impl Node {
    /// Home shows these policies. From a change of its history until it is read anew, nothing counts.
    pub(super) fn see_policies(&mut self, records: Option<Vec<PolicyRecord>>, now: Moment) {
        if self.reread {
            return;
        }
        let Some(records) = records else {
            (self.policies, self.shown) = (None, None);
            return self.policies_changed();
        };
        if self.policies.as_ref().is_some_and(Policies::miss_any) {
            // What is written and deleted again was written: none of it is left out.
            self.follow_policies(now);
        }
        self.shown =
            Some(ShownPolicies { records, since: now, is_doubted: false, is_confirmed: false });
    }

    /// Takes in what home showed last.
    pub(super) fn follow_policies(&mut self, now: Moment) {
        let Some(mut shown) = self.shown.take() else { return };
        let before = self.policies.take().unwrap_or_default();
        if !shown.is_confirmed && before.lose_a_pause(&shown.records) {
            let is_first = !std::mem::replace(&mut shown.is_doubted, true);
            (self.policies, self.shown) = (Some(before), Some(shown));
            if is_first && matches!(self.membership.standing(), Standing::Holding { .. }) {
                self.membership.renew_now(now);
            }
            return;
        }
        self.policies = Some(before.read_again(shown.records));
        self.policies_changed();
    }

    /// A renewal was accepted that was sent then.
    pub(super) fn confirm_policies(&mut self, renewal: &Write, sent: Moment) {
        if let (Some(shown), Write::Replace(_)) = (&mut self.shown, renewal) {
            shown.is_confirmed |= sent >= shown.since;
        }
    }

    fn policies_changed(&mut self) {
        self.policy_changes += 1;
        self.planning.afresh();
        self.find_problems_again();
    }
}

#[cfg(test)]
#[path = "policies_tests.rs"]
mod tests;
