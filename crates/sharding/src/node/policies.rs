//! When the member takes in what people want, as home shows it.
//!
//! A list that lacks a pause may be that of a restored home of which this member does not know yet: its watches begin
//! anew sooner than it renews its Lease. So what would end a pause waits for a renewal that is sent after it came. If
//! that one is refused because home's history changed, the pause holds ([`crate::policy`]). What else it says counts at
//! once, above all what it pauses.

use model::Moment;

use super::Node;
use crate::member::Standing;
use crate::policy::{Policies, PolicyRecord};
use crate::record::Write;

/// What home shows, not taken in yet.
#[derive(Clone, Debug)]
pub(super) struct ShownPolicies {
    records: Vec<PolicyRecord>,
    /// Whether it lists them. Else it refuses to, and is believed to have none.
    is_listed: bool,
    since: Moment,
    /// Whether a renewal was asked for since, and whether one was sent and accepted.
    is_doubted: bool,
    is_confirmed: bool,
}

impl Node {
    /// Nothing is known of policies.
    pub(super) fn await_policies(&mut self) {
        if !self.reread {
            (self.policies, self.shown) = (None, None);
            self.policies_changed();
        }
    }

    /// Home shows these policies; it lists none if it refuses to list them. From a change of its history until it is read
    /// anew, nothing counts.
    pub(super) fn see_policies(&mut self, listed: Option<Vec<PolicyRecord>>, now: Moment) {
        if self.reread {
            return;
        }
        if self.policies.as_ref().is_some_and(Policies::miss_any) {
            // What is written and deleted again was written: none of it is left out.
            self.follow_policies(now);
        }
        let is_listed = listed.is_some();
        let (records, since) = (listed.unwrap_or_default(), now);
        let (is_doubted, is_confirmed) = (false, false);
        self.shown = Some(ShownPolicies { records, is_listed, since, is_doubted, is_confirmed });
    }

    /// Takes in what home showed last.
    pub(super) fn follow_policies(&mut self, now: Moment) {
        let Some(mut shown) = self.shown.take() else { return };
        let before = self.policies.take().unwrap_or_default();
        let lost = if shown.is_confirmed { Vec::new() } else { before.lost_by(&shown.records) };
        let is_doubted = std::mem::replace(&mut shown.is_doubted, !lost.is_empty());
        if is_doubted && shown.is_doubted {
            (self.policies, self.shown) = (Some(before), Some(shown));
            return;
        }
        let mut records = shown.records.clone();
        records.extend(lost);
        let policies = before.read_again(records);
        self.policies = Some(if shown.is_listed { policies } else { policies.unlisted() });
        self.policies_changed();
        if shown.is_doubted {
            self.shown = Some(shown);
            self.ask_about_policies(now);
        }
    }

    /// A renewal that was sent then was accepted, or a Lease was made.
    pub(super) fn confirm_policies(&mut self, renewal: &Write, sent: Moment, now: Moment) {
        if let (Some(shown), Write::Replace(_)) = (&mut self.shown, renewal) {
            shown.is_confirmed |= sent >= shown.since;
        }
        self.ask_about_policies(now);
    }

    /// Renews at once if a pause waits for a renewal that is sent from now on.
    fn ask_about_policies(&mut self, now: Moment) {
        let waits = self.shown.as_ref().is_some_and(|it| it.is_doubted && !it.is_confirmed);
        if waits && matches!(self.membership.standing(), Standing::Holding { .. }) {
            self.membership.renew_now(now);
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
