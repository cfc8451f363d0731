//! What people want, and when each replica reads it.

use leasehold_sharding::node::Input;
use leasehold_sharding::policy::{Policies, PolicyRecord};

use super::{Bug, Fleet, Happening};

impl Fleet {
    /// People write these policies in place of the present ones.
    pub fn set_policies(&mut self, policies: Vec<PolicyRecord>) {
        self.policies = policies;
        for replica in 0..self.replicas.len() {
            let delay = self.delay();
            self.schedule(delay, replica, Happening::Policies);
        }
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

    pub(super) fn tell_policies(&mut self, replica: usize) {
        let told = &mut self.replicas[replica];
        let deaf_until = told.cut_off_until.max(told.frozen_until);
        if deaf_until > self.now_us {
            let after = deaf_until - self.now_us + 1;
            self.schedule(after, replica, Happening::Policies);
            return;
        }
        let now = told.clock.read(self.now_us);
        told.node.handle(Input::Policies(Some(Policies::read(self.policies.clone()))), now);
    }
}
