//! Was a key dispatched twice at once, and did a member act on a shard that it did not own? Pure: a
//! [`Evidence`] in, a [`Judgement`] out.
//!
//! The ShardMaps of the home cluster say who owned a shard when, and no two of these times overlap.
//! So it is enough that each dispatch lies inside its owner's time (S1, S2, S5). Overlaps of two
//! dispatches of one key are looked for separately too, because that check needs nothing
//! but the journals.
//!
//! A dispatch counts until its code was last let run, which the journal's line of its end says: the
//! fence is asked before each poll of a reconcile. So a reconcile that goes on after its process was
//! stopped and its shard got another owner is judged like any other. What is left of it, to wait for a
//! write that was sent before, is judged by the audit logs. A dispatch without an end counts until its
//! process ended, or was stopped for the last time.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::history::{Evidence, Life};
use super::journal::{Dispatch, Subject};

/// The most violations that are printed.
const MAX_PRINTED: usize = 10;

/// Something that must not happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// When it happened.
    pub at: Timestamp,
    /// What happened, in a sentence.
    pub what: String,
}

/// What the evidence shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// Pairs of dispatches of one key that ran at once.
    pub overlaps: Vec<Finding>,
    /// Dispatches and writes outside the owner's time, and ShardMaps that break their own rules.
    pub violations: Vec<Finding>,
}

/// A dispatch until its code was last let run.
struct Active<'a> {
    dispatch: &'a Dispatch,
    until: Timestamp,
}

/// Judges all of it.
pub fn judge(history: &Evidence) -> Judgement {
    let mut judgement = Judgement::default();
    let mut by_subject: BTreeMap<&Subject, Vec<Active<'_>>> = BTreeMap::new();
    for dispatch in &history.dispatches {
        let active = Active { dispatch, until: last_run(dispatch, history.life(&dispatch.member)) };
        let Dispatch { member, shard, epoch, subject, from, .. } = dispatch;
        let allowed = history.ownership.allows(member, shard, *epoch, *from, active.until);
        if let Err(reason) = allowed {
            let key = &subject.1;
            let what = format!("{member} dispatched {key} of {shard} at epoch {epoch}: {reason}");
            judgement.violations.push(Finding { at: *from, what });
        }
        by_subject.entry(&dispatch.subject).or_default().push(active);
    }
    for (subject, mut actives) in by_subject {
        actives.sort_by_key(|active| (active.dispatch.from, active.until));
        judgement.overlaps.extend(overlaps(subject, &actives));
    }
    let written = history.bad_writes.iter();
    judgement.violations.extend(written.map(|(at, what)| Finding { at: *at, what: what.clone() }));
    // A ShardMap that breaks its own rules does so at no particular time.
    let maps = history.ownership.violations.iter();
    judgement
        .violations
        .extend(maps.map(|what| Finding { at: Timestamp::MIN, what: what.clone() }));
    judgement
}

impl Judgement {
    /// Prints the first violations.
    pub fn print(&self) {
        for finding in self.overlaps.iter().chain(&self.violations).take(MAX_PRINTED) {
            eprintln!("broken at {}: {}", finding.at, finding.what);
        }
    }
}

/// Until when the code of a dispatch may have run.
fn last_run(dispatch: &Dispatch, life: Option<&Life>) -> Timestamp {
    if let Some(ran) = dispatch.until {
        return ran;
    }
    let Some(Life { ended, pauses, .. }) = life else { return Timestamp::MAX };
    let last = pauses.last().filter(|(_, woke)| woke >= ended).map(|(stopped, _)| stopped);
    *last.unwrap_or(ended)
}

/// The pairs that ran at once, of dispatches sorted by their start: each with the earlier one that
/// ends last. One that begins when another ends does not overlap it.
fn overlaps(subject: &Subject, sorted: &[Active<'_>]) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut latest: Option<&Active<'_>> = None;
    for active in sorted {
        if let Some(earlier) = latest
            && active.dispatch.from < earlier.until
        {
            let (controller, key) = subject;
            let [first, second] = [earlier, active].map(|a| {
                let Dispatch { member, epoch, from, .. } = a.dispatch;
                format!("{member} (epoch {epoch}) from {from} to {}", a.until)
            });
            found.push(Finding {
                at: active.dispatch.from,
                what: format!("{controller} {key}: {first} and {second}"),
            });
        }
        if latest.is_none_or(|earlier| earlier.until < active.until) {
            latest = Some(active);
        }
    }
    found
}

#[cfg(test)]
#[path = "oracle_tests.rs"]
mod tests;
