//! Was a key dispatched twice at once, and did a member act on a shard that it did not own? Pure: a
//! [`Evidence`] in, a [`Judgement`] out.
//!
//! The ShardMaps of the home cluster say who owned a shard when, and no two of these times overlap.
//! So it is enough that each dispatch lies inside its owner's time (S1, S2, S5). Overlaps of two
//! dispatches of one key are looked for separately too, because that check needs nothing
//! but the journals.
//!
//! A process that is stopped in the middle of a reconcile does nothing until it wakes, and then
//! nothing can prevent it from executing a few instructions. So a dispatch counts until its process
//! stopped, and what follows the waking is reported separately, as [`Woken`]. It must not write,
//! which the audit logs show, and must not begin a dispatch, which is judged like any other.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::history::{Evidence, Life};
use super::journal::{Dispatch, Subject};
use super::report::seconds;

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

/// A reconcile whose process was stopped until its shard had another owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Woken {
    /// When the process woke.
    pub at: Timestamp,
    /// How long the reconcile continued then.
    pub lasted: Duration,
}

/// What the evidence shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// Pairs of dispatches of one key that ran at once.
    pub overlaps: Vec<Finding>,
    /// Dispatches and writes outside the owner's time, and ShardMaps that break their own rules.
    pub violations: Vec<Finding>,
    /// Reconciles whose process was stopped until their shard had another owner.
    pub woken: Vec<Woken>,
}

/// A dispatch until its process was stopped or ended.
struct Active<'a> {
    dispatch: &'a Dispatch,
    until: Timestamp,
}

/// Judges all of it.
pub fn judge(history: &Evidence) -> Judgement {
    let mut judgement = Judgement::default();
    let mut by_subject: BTreeMap<&Subject, Vec<Active<'_>>> = BTreeMap::new();
    for dispatch in &history.dispatches {
        let (active, woken) = awake(dispatch, history.life(&dispatch.member));
        judgement.woken.extend(woken);
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
    /// Prints the first violations, and how long reconciles continued whose process woke.
    pub fn print(&self, dispatches: usize) {
        for finding in self.overlaps.iter().chain(&self.violations).take(MAX_PRINTED) {
            eprintln!("broken at {}: {}", finding.at, finding.what);
        }
        if let Some(longest) = self.woken.iter().map(|woken| woken.lasted).max() {
            eprintln!(
                "of {dispatches} dispatches, {} were asleep until their shard had another owner; the last of them was given up {} after waking",
                self.woken.len(),
                seconds(longest)
            );
        }
    }
}

/// The part of a dispatch before its process was stopped or ended, and what followed the waking.
fn awake<'a>(dispatch: &'a Dispatch, life: Option<&Life>) -> (Active<'a>, Option<Woken>) {
    let ended = life.map_or(Timestamp::MAX, |life| life.ended);
    let until = dispatch.until.unwrap_or(ended).min(ended);
    let mut pauses = life.map_or(&[][..], |life| &life.pauses).iter();
    match pauses.find(|(stopped, _)| dispatch.from < *stopped && *stopped < until) {
        None => (Active { dispatch, until }, None),
        Some((stopped, woke)) => {
            let lasted = until.duration_since(*woke).try_into().unwrap_or_default();
            (Active { dispatch, until: *stopped }, Some(Woken { at: *woke, lasted }))
        }
    }
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
