//! The judge: was a key dispatched twice at once, and did anybody act on a shard that was not his?
//! Pure: a [`History`] in, a [`Judgement`] out.
//!
//! The ShardMaps of the home cluster say who owned a shard from when until when, and no two of
//! these times overlap. So it is enough that each dispatch lies inside its owner's time (S1, S2,
//! S5). That two dispatches of one key do not overlap is looked at by itself all the same: that
//! check asks nobody but the journals.
//!
//! A process that was stopped in the middle of a reconcile has done nothing since, and nobody can
//! keep it from executing a few instructions when it wakes. So a dispatch counts until its process
//! stopped; what followed the waking is told apart, as [`Woken`]. It must not write, which the audit
//! logs tell, and must not begin anything, which is judged like any other dispatch.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::history::{History, Life};
use super::journal::{Dispatch, Subject};

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// When.
    pub at: Timestamp,
    /// A sentence.
    pub what: String,
}

/// A reconcile that its process slept through its Lease with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Woken {
    /// When the process woke.
    pub at: Timestamp,
    /// How long the reconcile went on then.
    pub lasted: Duration,
}

/// What the evidence comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// Pairs of dispatches of one key that ran at once.
    pub overlaps: Vec<Finding>,
    /// Dispatches and writes outside the owner's time, and ShardMaps that break their own rules.
    pub trespasses: Vec<Finding>,
    /// Reconciles that were asleep when their shard went to another.
    pub woken: Vec<Woken>,
}

/// A dispatch as far as its process was awake without a break.
struct Active<'a> {
    dispatch: &'a Dispatch,
    until: Timestamp,
}

/// Judges all of it.
pub fn judge(history: &History) -> Judgement {
    let mut judgement = Judgement::default();
    let mut by_subject: BTreeMap<&Subject, Vec<Active<'_>>> = BTreeMap::new();
    for dispatch in &history.dispatches {
        let (active, woken) = awake(dispatch, history.life(&dispatch.member));
        judgement.woken.extend(woken);
        if let Some(what) = trespass(&active, history) {
            judgement.trespasses.push(Finding { at: dispatch.from, what });
        }
        by_subject.entry(&dispatch.subject).or_default().push(active);
    }
    for (subject, mut actives) in by_subject {
        actives.sort_by_key(|active| (active.dispatch.from, active.until));
        judgement.overlaps.extend(overlaps(subject, &actives));
    }
    let written = history.bad_writes.iter();
    judgement.trespasses.extend(written.map(|(at, what)| Finding { at: *at, what: what.clone() }));
    // A map that breaks its own rules does so at no time in particular.
    let maps = history.ownership.violations.iter();
    judgement
        .trespasses
        .extend(maps.map(|what| Finding { at: Timestamp::MIN, what: what.clone() }));
    judgement
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

/// What is wrong with a dispatch by the ShardMaps, if anything is.
fn trespass(active: &Active<'_>, history: &History) -> Option<String> {
    let Dispatch { member, shard, epoch, subject, from, .. } = active.dispatch;
    let told = |reason: String| {
        Some(format!("{member} dispatched {} of {shard} at epoch {epoch}: {reason}", subject.1))
    };
    let tenures = history.ownership.tenures.get(shard).map_or(&[][..], Vec::as_slice);
    let Some(tenure) = tenures.iter().find(|tenure| tenure.epoch == *epoch) else {
        return told("nobody owned it at that epoch".to_owned());
    };
    if tenure.owner != *member {
        return told(format!("{} owned it at that epoch", tenure.owner));
    }
    if *from < tenure.from {
        return told(format!("{from} is before it owned it, {}", tenure.from));
    }
    match tenure.until {
        Some(end) if active.until > end => {
            told(format!("it went on until {}, its ownership until {end}", active.until))
        }
        _ => None,
    }
}

/// Pairs that ran at once, of dispatches sorted by their start: each with the one before it that
/// ends last. Touching is not overlapping.
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
