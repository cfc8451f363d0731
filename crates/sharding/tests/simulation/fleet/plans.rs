//! Plans that are made apart from the steps, and are of the past when they are there.

use std::time::Duration;

use leasehold_sharding::node::{Input, PlanTask};

use super::{Fleet, Happening, MS, Network};

/// How long a plan takes at most.
const LONGEST_PLAN_US: u64 = 2_000_000;

impl Fleet {
    /// A plan is made, as long as that takes: it is of the past when it is there.
    pub(super) fn plan(&mut self, replica: usize, task: PlanTask) {
        let longest = if self.network == Network::Rough { LONGEST_PLAN_US } else { MS };
        self.replicas[replica].plans.push_back((self.now_us, task));
        let after = self.pace.u64(0..longest);
        self.schedule(after, replica, Happening::Planned);
    }

    pub(super) fn planned(&mut self, replica: usize) {
        let planner = &mut self.replicas[replica];
        let Some((begun, task)) = planner.plans.pop_front() else { return };
        let took = Duration::from_micros(self.now_us - begun);
        let now = planner.clock.read(self.now_us);
        planner.node.handle(Input::Planned(Box::new(task.run()), took), now);
    }
}
