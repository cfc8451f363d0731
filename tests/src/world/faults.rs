//! Begins and ends faults.

use super::history::Event;
use super::link::Outgoing;
use super::plan::{Churn, Fault, Kind, Plan};
use super::process::identity;
use super::timeline::Stumble;
use super::{World, edits};

/// The faults of a run: those to come, and those that have begun.
#[derive(Debug)]
pub(super) struct ActiveFaults {
    /// The next one to begin is last.
    coming: Vec<Fault>,
    present: Vec<Fault>,
    /// Replicas that a rolling update still has to replace.
    rolling: Vec<usize>,
    healed: bool,
}

impl ActiveFaults {
    pub(super) fn of(plan: &Plan) -> Self {
        let coming = plan.faults.iter().rev().copied().collect();
        Self { coming, present: Vec::new(), rolling: Vec::new(), healed: false }
    }
}

impl World {
    /// Begins and ends the faults that are due.
    pub(super) fn advance_faults(&mut self) {
        let now = self.now_us;
        let (over, present): (Vec<_>, Vec<_>) =
            self.faults.present.iter().copied().partition(|fault| fault.until_us <= now);
        self.faults.present = present;
        for fault in &over {
            self.history.add(now, Event::Fault(format!("over: {:?}", fault.kind)));
            self.end_fault(fault);
        }
        let mut changed = !over.is_empty();
        while let Some(fault) = self.faults.coming.pop_if(|fault| fault.from_us <= now) {
            self.history.add(now, Event::Fault(fault.to_string()));
            self.faults.present.push(fault);
            self.begin_fault(&fault);
            changed = true;
        }
        if changed {
            self.network.set_faults(self.faults.present.clone());
        }
        self.roll();
        if !self.faults.healed && now >= self.plan.setup.heal_us {
            self.faults.healed = true;
            self.history.add(now, Event::Healed);
        }
    }

    fn begin_fault(&mut self, fault: &Fault) {
        match fault.kind {
            Kind::Crash { replica } => self.kill(replica, "killed"),
            Kind::Leave { replica } => self.leave(replica),
            Kind::Roll => self.faults.rolling = (0..self.replicas.len()).rev().collect(),
            Kind::Join => self.join(),
            Kind::Drain { replica } => self.drain(replica, true),
            Kind::Pause { replica } | Kind::Suspend { replica } => self.stop(replica),
            Kind::Stumble { replica, after, skip } => {
                if let Some((_, process)) = &self.replicas[replica].process {
                    let until_us = fault.until_us;
                    process.timeline().arm(Some(Stumble { after, skip, until_us }));
                }
            }
            Kind::Step { replica, seconds } => {
                if let Some((_, process)) = &self.replicas[replica].process {
                    process.timeline().step_wall(seconds);
                }
            }
            Kind::Restart { cluster, forgets } => {
                self.servers[cluster].go_down(fault.until_us);
                if forgets {
                    self.servers[cluster].api.compact();
                }
            }
            Kind::Churn { cluster, how } => {
                match how {
                    Churn::Removed => drop(self.configured.remove(&cluster)),
                    Churn::Unusable => drop(self.configured.insert(cluster, None)),
                    Churn::Rotated => drop(self.configured.insert(cluster, Some(self.now_us))),
                }
                self.configure();
            }
            Kind::Cut { .. } | Kind::Freeze { .. } | Kind::Requests { .. } => {}
        }
    }

    fn end_fault(&mut self, fault: &Fault) {
        match fault.kind {
            Kind::Crash { replica } if self.replicas[replica].process.is_none() => {
                self.start(replica);
            }
            Kind::Pause { replica } => self.resume(replica, false),
            Kind::Suspend { replica } => self.resume(replica, true),
            Kind::Stumble { replica, .. } => {
                if let Some((_, process)) = &self.replicas[replica].process {
                    process.timeline().arm(None);
                }
            }
            Kind::Drain { replica } => self.drain(replica, false),
            Kind::Freeze { cluster, gap: true, .. } => self.servers[cluster].api.compact(),
            Kind::Churn { cluster, .. } => {
                self.configured.insert(cluster, Some(self.now_us));
                self.configure();
            }
            _ => {}
        }
    }

    /// Stops the replicas that stopped between a check and an act in the slice that ends at `until_us`,
    /// and holds back what they sent: for as long as they sleep what they do after waking, and perhaps
    /// what they sent before.
    pub(super) fn stumble(&mut self, until_us: u64, sent: &mut [Outgoing]) {
        for replica in &mut self.replicas {
            let Some((number, process)) = &replica.process else { continue };
            let Some((at_us, slept_us)) = process.timeline().stood() else { continue };
            if replica.stopped_us.is_some() {
                continue;
            }
            self.history.add(at_us, Event::Stopped(*number));
            self.history.add(at_us + slept_us, Event::Resumed(*number));
            replica.stopped_us = Some(at_us);
            replica.stumbled_until_us = Some(until_us + slept_us);
            let held = self.rng.bool();
            for outgoing in sent.iter_mut().filter(|outgoing| outgoing.process == *number) {
                if held || outgoing.at_us > at_us {
                    outgoing.leaves_us = at_us + slept_us;
                }
            }
        }
    }

    /// Lets the replicas run on whose machines have slept between a check and an act.
    pub(super) fn recover(&mut self) {
        let now = self.now_us;
        for replica in &mut self.replicas {
            if replica.stumbled_until_us.is_some_and(|until_us| until_us <= now) {
                (replica.stopped_us, replica.stumbled_until_us) = (None, None);
            }
        }
    }

    fn leave(&mut self, replica: usize) {
        if let Some((_, process)) = &self.replicas[replica].process {
            process.leave();
            self.replicas[replica].returns = true;
        }
    }

    /// Asks for a drain, as `leasehold drain` does, or takes that back.
    fn drain(&self, replica: usize, drain: bool) {
        self.machine.block_on(edits::drain(&self.servers[0], &identity(replica), drain));
    }

    /// Replaces the next replica of a rolling update once the one before is back.
    fn roll(&mut self) {
        let leaving = self.replicas.iter().any(|replica| replica.returns);
        if !leaving && let Some(next) = self.faults.rolling.pop() {
            self.leave(next);
        }
    }

    fn stop(&mut self, replica: usize) {
        let now = self.now_us;
        let stopped = &mut self.replicas[replica];
        if let (Some((number, _)), None) = (&stopped.process, stopped.stopped_us) {
            stopped.stopped_us = Some(now);
            self.history.add(now, Event::Stopped(*number));
        }
    }

    fn resume(&mut self, replica: usize, slept: bool) {
        let now = self.now_us;
        let stopped = &mut self.replicas[replica];
        if stopped.stumbled_until_us.is_some() {
            return;
        }
        if let (Some((number, process)), Some(since)) =
            (&stopped.process, stopped.stopped_us.take())
        {
            self.history.add(now, Event::Resumed(*number));
            process.resume_at(now, slept.then_some(now - since));
        }
    }

    /// Gives every process the present configuration of clusters.
    fn configure(&mut self) {
        let text = format!("{:?}", self.configured);
        for (number, process) in self.replicas.iter().filter_map(|r| r.process.as_ref()) {
            process.configure(&self.configured);
            self.history.add(self.now_us, Event::Configured(*number, text.clone()));
        }
    }
}
