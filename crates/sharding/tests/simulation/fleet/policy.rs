//! What people want, and when each replica reads it.

use leasehold_sharding::node::Input;
use leasehold_sharding::policy::PolicyRecord;
use leasehold_sharding::policy_list::{PolicyList, Refused};

use super::{Bug, Fleet, Happening, MS};

impl Fleet {
    /// People write these policies in place of the present ones.
    pub fn set_policies(&mut self, policies: Vec<PolicyRecord>) {
        self.policies = policies;
        for replica in 0..self.replicas.len() {
            let delay = self.delay();
            self.schedule(delay, replica, Happening::Policies);
        }
    }

    /// Home has only these policies left, as when it is restored from an older backup. Its watches end later.
    pub fn lose_policies(&mut self, left: Vec<PolicyRecord>) {
        self.policies = left;
    }

    /// For that long home refuses to list policies, as an API server does that has only begun.
    pub fn refuse_policies(&mut self, ms: u64) {
        self.policies_refused_until = self.now_us + ms * MS;
    }

    /// A replica begins: it has not read them yet.
    pub(super) fn begin_policies(&mut self, replica: usize) {
        if self.policies.is_empty() {
            return;
        }
        if self.bug != Bug::ForgetsPauses {
            let now = self.replicas[replica].clock.read(self.now_us);
            self.replicas[replica].node.handle(Input::Policies(None), now);
        }
        // Its list may fail for a while.
        let delay = self.delay() + self.draw(0..20_000_000);
        self.schedule(delay, replica, Happening::Policies);
    }

    /// Its watch of policies begins anew.
    pub(super) fn reread_policies(&mut self, replica: usize) {
        let reader = &mut self.replicas[replica];
        let known = reader.policies.records();
        if self.bug == Bug::ForgetsLostPauses {
            let now = reader.clock.read(self.now_us);
            reader.node.handle(Input::Policies(Some(known.clone())), now);
        }
        reader.policies = PolicyList::after(Some(known).filter(|known| !known.is_empty()));
        let delay = self.delay();
        self.schedule(delay, replica, Happening::Policies);
    }

    pub(super) fn tell_policies(&mut self, replica: usize) {
        let told = &mut self.replicas[replica];
        let deaf_until = told.cut_off_until.max(told.frozen_until).max(self.home_away_until);
        if deaf_until > self.now_us {
            let after = deaf_until - self.now_us + 1;
            self.schedule(after, replica, Happening::Policies);
            return;
        }
        let now = told.clock.read(self.now_us);
        let is_refused = self.policies_refused_until > self.now_us;
        let is_news = if is_refused {
            let refused = told.policies.refused(now);
            let is_believed = matches!(refused, Refused::Believed { is_news: true, .. });
            self.schedule(5_000 * MS, replica, Happening::Policies);
            is_believed || self.bug == Bug::BelievesRefusals
        } else {
            told.policies.listed(self.policies.clone())
        };
        let told = &mut self.replicas[replica];
        if is_news && self.bug == Bug::BelievesLists {
            // Who knows of no policies does not miss one.
            told.node.handle(Input::Policies(None), now);
        }
        if is_news {
            let records = Some(told.policies.records());
            let input = if is_refused { Input::NoPolicies } else { Input::Policies(records) };
            told.node.handle(input, now);
        }
    }
}
