//! A history, in the form that oracles need.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::Dispatch;
use serde_json::Value;

use crate::world::Outcome;
use crate::world::history::{Applied, Event, ProcessId, Request};
use crate::world::process::DRAIN_TIMEOUT;

/// The prefix of the names of members' Leases.
pub(super) const MEMBER_LEASE: &str = "leasehold-member-";

/// How exact the times are that were read from the clocks of processes.
const CLOCK_SLACK_US: u64 = 10_000;

/// How much time retries, elections and round trips may add to the Lease and the drain.
pub(super) const SLACK: Duration = Duration::from_secs(12);

/// The evidence of a run, sorted.
pub(super) struct Reading<'a> {
    pub(super) outcome: &'a Outcome,
    /// Every reconcile, in the order in which they began.
    pub(super) runs: Vec<Run<'a>>,
    /// Every write that reconciles sent.
    pub(super) sent: Vec<Sent<'a>>,
    /// Every write that a server carried out, with the time.
    pub(super) applied: Vec<(u64, &'a Applied)>,
    /// The process of each member.
    pub(super) members: BTreeMap<String, ProcessId>,
    /// When each process was stopped.
    halts: BTreeMap<ProcessId, Vec<(u64, u64)>>,
    /// When faults ended.
    healed_us: u64,
}

/// One reconcile.
#[derive(Debug)]
pub(super) struct Run<'a> {
    pub(super) process: ProcessId,
    pub(super) dispatch: &'a Dispatch,
    pub(super) from_us: u64,
    /// When it ended, or its process did.
    pub(super) until_us: u64,
    /// When its code was last let run, if it ended.
    ran_us: Option<u64>,
    /// The parts of it in which its process ran, until its code was last let run.
    pub(super) live: Vec<(u64, u64)>,
}

/// One write that a reconcile sent.
#[derive(Debug)]
pub(super) struct Sent<'a> {
    pub(super) at_us: u64,
    pub(super) request: &'a Request,
}

/// In microseconds.
pub(super) fn us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl<'a> Reading<'a> {
    pub(super) fn of(outcome: &'a Outcome) -> Self {
        let mut reading = Self {
            outcome,
            runs: Vec::new(),
            sent: Vec::new(),
            applied: Vec::new(),
            members: BTreeMap::new(),
            halts: BTreeMap::new(),
            healed_us: 0,
        };
        for record in &outcome.records {
            reading.take(record.at_us, &record.event);
        }
        let end = outcome.plan.setup.end_us;
        for run in &mut reading.runs {
            run.until_us = run.until_us.min(end);
            let halts = reading.halts.get(&run.process).map_or(&[][..], Vec::as_slice);
            let ran_us = run.ran_us.unwrap_or(run.until_us).min(run.until_us);
            // If its process slept between the check that let it begin and its first line, it ran then.
            let slept = ran_us + CLOCK_SLACK_US < run.from_us;
            let from_us = if slept { ran_us } else { run.from_us };
            run.live = without((from_us, ran_us.max(from_us)), halts);
        }
        reading
    }

    /// When the fleet has had the time to get over all faults.
    pub(super) fn recovered_us(&self) -> u64 {
        self.healed_us + us(self.outcome.plan.setup.lease.silence() + DRAIN_TIMEOUT + SLACK)
    }

    fn take(&mut self, at_us: u64, event: &'a Event) {
        match event {
            Event::Started(process, dispatch) => self.runs.push(Run {
                process: *process,
                dispatch,
                from_us: at_us,
                until_us: u64::MAX,
                ran_us: None,
                live: Vec::new(),
            }),
            Event::Finished(process, dispatch, ran_us) => {
                self.finish(*process, dispatch, (at_us, *ran_us));
            }
            Event::Ended(process, _) => self.gone(*process, at_us),
            Event::Stopped(process) => {
                self.halts.entry(*process).or_default().push((at_us, u64::MAX));
            }
            Event::Resumed(process) => self.end_halt(*process, at_us),
            Event::Sent(_, request)
                if !request.agent.member.is_empty() && request.method != http::Method::GET =>
            {
                self.sent.push(Sent { at_us, request });
            }
            Event::Applied(applied) => self.apply(at_us, applied),
            Event::Healed => self.healed_us = at_us,
            _ => {}
        }
    }

    fn gone(&mut self, process: ProcessId, at_us: u64) {
        self.end_halt(process, at_us);
        let open = |run: &&mut Run<'_>| run.process == process && run.until_us == u64::MAX;
        self.runs.iter_mut().filter(open).for_each(|run| run.until_us = at_us);
    }

    fn end_halt(&mut self, process: ProcessId, at_us: u64) {
        let last = self.halts.get_mut(&process).and_then(|halts| halts.last_mut());
        if let Some(last) = last.filter(|last| last.1 == u64::MAX) {
            last.1 = at_us;
        }
    }

    fn finish(&mut self, process: ProcessId, dispatch: &Dispatch, (at_us, ran_us): (u64, u64)) {
        let same = |run: &&mut Run<'_>| {
            run.process == process && run.until_us == u64::MAX && run.dispatch == dispatch
        };
        if let Some(run) = self.runs.iter_mut().rev().find(same) {
            (run.until_us, run.ran_us) = (at_us, Some(ran_us));
        }
    }

    fn apply(&mut self, at_us: u64, applied: &'a Applied) {
        let (plural, _) = applied.place();
        if plural == "leases"
            && applied.request.method == http::Method::POST
            && let Some(member) = applied.name().strip_prefix(MEMBER_LEASE)
        {
            self.members.insert(member.to_owned(), applied.process);
        }
        self.applied.push((at_us, applied));
    }

    /// Writes of this kind to the home cluster, in order, with the object's name.
    pub(super) fn home(
        &self,
        kind: &'static str,
    ) -> impl Iterator<Item = (u64, &'a Applied, &'a str)> {
        self.applied.iter().filter_map(move |&(at_us, applied)| {
            let ours = applied.request.cluster == 0 && applied.place().0 == kind;
            ours.then_some((at_us, applied, applied.name()))
        })
    }
}

/// A value as text; empty if it is not text.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The items of a list; none if it is not a list.
pub(super) fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The parts of a span of time outside of `halts`. A part of no length at the end of a halt is left
/// out: it is the moment in which a process woke and gave up.
fn without((from, until): (u64, u64), halts: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut left = Vec::new();
    let mut at = from;
    for &(stopped, resumed) in halts {
        if resumed > at && stopped < until {
            if stopped > at || (stopped == at && at == from) {
                left.push((at, stopped.max(at)));
            }
            at = resumed;
        }
    }
    if at < until || at == from {
        left.push((at, until));
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_process_does_not_run() {
        for (run, halts, expect) in [
            ((1, 9), &[][..], &[(1, 9)][..]),
            ((1, 9), &[(3, 5)][..], &[(1, 3), (5, 9)][..]),
            ((1, 5), &[(3, 5)][..], &[(1, 3)][..]),
            ((1, 9), &[(3, 20)][..], &[(1, 3)][..]),
            ((4, 4), &[(5, 8)][..], &[(4, 4)][..]),
            ((8, 9), &[(5, 8)][..], &[(8, 9)][..]),
        ] {
            assert_eq!(without(run, halts), expect, "{run:?} without {halts:?}");
        }
    }
}
