//! A history in the form in which oracles ask about it.

use std::collections::BTreeMap;

use engine::Dispatch;
use serde_json::Value;

use crate::world::Outcome;
use crate::world::history::{Applied, Event, Process, Request};

/// A run's evidence, sorted.
pub(super) struct Reading<'a> {
    pub(super) outcome: &'a Outcome,
    /// Every reconcile, in the order of its beginning.
    pub(super) runs: Vec<Run<'a>>,
    /// Every request that reconciles sent to change something.
    pub(super) sent: Vec<Sent<'a>>,
    /// Every write a server carried out, with the time.
    pub(super) applied: Vec<(u64, &'a Applied)>,
    /// The process of each member.
    pub(super) members: BTreeMap<String, Process>,
    /// When faults ended.
    pub(super) healed_us: u64,
}

/// One reconcile.
#[derive(Debug)]
pub(super) struct Run<'a> {
    pub(super) process: Process,
    pub(super) dispatch: &'a Dispatch,
    pub(super) from_us: u64,
    /// When it ended, or its process did.
    pub(super) until_us: u64,
    /// The parts of it in which its process ran.
    pub(super) live: Vec<(u64, u64)>,
}

/// One write that a reconcile sent.
#[derive(Debug)]
pub(super) struct Sent<'a> {
    pub(super) at_us: u64,
    pub(super) request: &'a Request,
}

impl<'a> Reading<'a> {
    pub(super) fn of(outcome: &'a Outcome) -> Self {
        let mut reading = Self {
            outcome,
            runs: Vec::new(),
            sent: Vec::new(),
            applied: Vec::new(),
            members: BTreeMap::new(),
            healed_us: 0,
        };
        let mut halts: BTreeMap<Process, Vec<(u64, u64)>> = BTreeMap::new();
        for record in &outcome.records {
            let at_us = record.at_us;
            match &record.event {
                Event::Started(process, dispatch) => reading.runs.push(Run {
                    process: *process,
                    dispatch,
                    from_us: at_us,
                    until_us: u64::MAX,
                    live: Vec::new(),
                }),
                Event::Finished(process, dispatch) => reading.finish(*process, dispatch, at_us),
                Event::Gone(process, _) => {
                    end_halt(halts.get_mut(process), at_us);
                    let theirs = |run: &&mut Run<'_>| run.process == *process;
                    let open = reading.runs.iter_mut().filter(theirs);
                    open.filter(|run| run.until_us == u64::MAX).for_each(|r| r.until_us = at_us);
                }
                Event::Stopped(process) => {
                    halts.entry(*process).or_default().push((at_us, u64::MAX));
                }
                Event::Resumed(process) => end_halt(halts.get_mut(process), at_us),
                Event::Sent(_, request) if !request.agent.member.is_empty() => {
                    reading.sent.push(Sent { at_us, request });
                }
                Event::Applied(applied) => reading.apply(at_us, applied),
                Event::Healed => reading.healed_us = at_us,
                _ => {}
            }
        }
        let end = outcome.plan.setup.end_us;
        for run in &mut reading.runs {
            run.until_us = run.until_us.min(end);
            let halts = halts.get(&run.process).map_or(&[][..], Vec::as_slice);
            run.live = without((run.from_us, run.until_us), halts);
        }
        reading.sent.retain(|sent| sent.request.method != http::Method::GET);
        reading
    }

    fn finish(&mut self, process: Process, dispatch: &Dispatch, at_us: u64) {
        let same = |run: &&mut Run<'_>| {
            run.process == process && run.until_us == u64::MAX && run.dispatch == dispatch
        };
        if let Some(run) = self.runs.iter_mut().rev().find(same) {
            run.until_us = at_us;
        }
    }

    fn apply(&mut self, at_us: u64, applied: &'a Applied) {
        let (plural, _) = applied.place();
        if plural == "leases" && applied.request.method == http::Method::POST {
            let name = text(&applied.answer["metadata"]["name"]);
            if let Some(member) = name.strip_prefix("leasehold-member-") {
                self.members.insert(member.to_owned(), applied.process);
            }
        }
        self.applied.push((at_us, applied));
    }

    /// Writes of this kind to the home cluster, in order, with the object's name.
    pub(super) fn home(
        &self,
        kind: &'static str,
    ) -> impl Iterator<Item = (u64, &'a Applied, &'a str)> {
        self.applied.iter().filter_map(move |&(at_us, applied)| {
            let (plural, named) = applied.place();
            let name = applied.answer["metadata"]["name"].as_str().unwrap_or(named);
            let name = if named.is_empty() { name } else { named };
            (applied.request.cluster == 0 && plural == kind).then_some((at_us, applied, name))
        })
    }
}

/// A value as text; empty if it is none.
pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The items of a list; none if it is none.
pub(super) fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn end_halt(halts: Option<&mut Vec<(u64, u64)>>, at_us: u64) {
    if let Some(last) = halts.and_then(|halts| halts.last_mut())
        && last.1 == u64::MAX
    {
        last.1 = at_us;
    }
}

/// What is left of a stretch of time without others. A remainder of no length at the end of a
/// halt is the moment in which a process woke and gave up: it is left out.
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
