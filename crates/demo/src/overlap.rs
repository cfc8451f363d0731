//! The check of the journals: was any key ever dispatched twice at once?
//!
//! Each replica writes a line at the start and at the end of every reconcile, with the time on
//! `CLOCK_BOOTTIME`, which all processes of a machine share. The check pairs the lines into intervals
//! and looks for two that overlap in time and name the same key of the same controller. A process that
//! died leaves intervals open: they end when it was seen dead.
//!
//! Pure: journals as text in, [`Evidence`] out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Deserialize;

/// The most overlaps that are listed.
const TOLD: usize = 20;

/// One journal, and when its process was known to have ended, in microseconds.
#[derive(Clone, Debug)]
pub(crate) struct Journal<'a> {
    /// Names the journal in messages.
    pub name: String,
    /// Its lines.
    pub text: &'a str,
    /// When its process had certainly ended.
    pub ended_us: u64,
}

/// What the journals say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Evidence {
    /// Reconciles that began.
    pub dispatches: u64,
    /// Their keys, for each controller.
    pub keys: usize,
    /// Members that dispatched.
    pub members: usize,
    /// When the first reconcile ended, in microseconds.
    pub first_end_us: Option<u64>,
    /// Pairs of dispatches of one key that overlapped.
    pub overlaps: u64,
    /// The first of them.
    pub examples: Vec<Overlap>,
}

/// Two dispatches of one key that overlapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Overlap {
    controller: String,
    key: String,
    first: Interval,
    second: Interval,
}

/// A journal that cannot be used as evidence.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JournalError {
    /// A line does not parse, and it is not the last one, which its process may have died writing.
    #[error("read line {line} of journal {journal}: {text:?}")]
    Malformed {
        /// The journal.
        journal: String,
        /// The line, from 1.
        line: usize,
        /// Its text.
        text: String,
        /// Why it does not parse.
        #[source]
        source: serde_json::Error,
    },
    /// The replica could not write fast enough.
    #[error("read line {line} of journal {journal}: {count} lines were lost there")]
    Lost {
        /// The journal.
        journal: String,
        /// The line, from 1.
        line: usize,
        /// How many.
        count: u64,
    },
    /// An end without a start.
    #[error("read line {line} of journal {journal}: {key} ended but never began")]
    Unbegun {
        /// The journal.
        journal: String,
        /// The line, from 1.
        line: usize,
        /// The key.
        key: String,
    },
}

#[derive(Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Line {
    Start(Dispatch),
    End(Dispatch),
    /// Lines for which the writer had no room.
    Lost {
        count: u64,
    },
}

#[derive(Deserialize)]
struct Dispatch {
    t: u64,
    member: String,
    shard: String,
    epoch: u64,
    controller: String,
    key: String,
}

/// One dispatch.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Interval {
    start_us: u64,
    end_us: u64,
    member: String,
    shard: String,
    epoch: u64,
}

/// Controller and key.
type Subject = (String, String);

/// Checks the journals of all processes against each other.
///
/// # Errors
/// A journal that cannot be used as evidence.
pub(crate) fn check(journals: &[Journal<'_>]) -> Result<Evidence, JournalError> {
    let mut evidence = Evidence::default();
    let mut members = BTreeSet::new();
    let mut intervals: BTreeMap<Subject, Vec<Interval>> = BTreeMap::new();
    for journal in journals {
        for (subject, interval) in dispatches(journal, &mut evidence.first_end_us)? {
            evidence.dispatches += 1;
            members.insert(interval.member.clone());
            intervals.entry(subject).or_default().push(interval);
        }
    }
    evidence.keys = intervals.len();
    evidence.members = members.len();
    for ((controller, key), mut of_key) in intervals {
        of_key.sort_by_key(|interval| (interval.start_us, interval.end_us));
        for (first, second) in overlapping(&of_key) {
            evidence.overlaps += 1;
            if evidence.examples.len() < TOLD {
                let (controller, key) = (controller.clone(), key.clone());
                let (first, second) = (first.clone(), second.clone());
                evidence.examples.push(Overlap { controller, key, first, second });
            }
        }
    }
    Ok(evidence)
}

/// The dispatches of one journal. Lines are in the order of writing, so an end belongs to the last start
/// of its subject.
fn dispatches(
    journal: &Journal<'_>,
    first_end_us: &mut Option<u64>,
) -> Result<Vec<(Subject, Interval)>, JournalError> {
    let mut ended = Vec::new();
    let mut open: BTreeMap<Subject, Vec<Interval>> = BTreeMap::new();
    let torn = !journal.text.ends_with('\n');
    let count = journal.text.lines().count();
    for (index, text) in journal.text.lines().enumerate() {
        let line: Line = match serde_json::from_str(text) {
            Ok(line) => line,
            // The process was killed while it wrote this line.
            Err(_) if torn && index + 1 == count => break,
            Err(source) => {
                let (journal, text) = (journal.name.clone(), text.to_owned());
                return Err(JournalError::Malformed { journal, line: index + 1, text, source });
            }
        };
        match line {
            Line::Start(start) => {
                let (subject, interval) = start.opened(journal.ended_us);
                open.entry(subject).or_default().push(interval);
            }
            Line::End(end) => {
                let t = end.t;
                let (subject, _) = end.opened(t);
                let Some(begun) = open.get_mut(&subject).and_then(Vec::pop) else {
                    let (journal, key) = (journal.name.clone(), subject.1);
                    return Err(JournalError::Unbegun { journal, line: index + 1, key });
                };
                ended.push((subject, Interval { end_us: t, ..begun }));
                *first_end_us = Some(first_end_us.map_or(t, |first| first.min(t)));
            }
            Line::Lost { count } => {
                let journal = journal.name.clone();
                return Err(JournalError::Lost { journal, line: index + 1, count });
            }
        }
    }
    let left = open.into_iter().flat_map(|(subject, intervals)| {
        intervals.into_iter().map(move |interval| (subject.clone(), interval))
    });
    ended.extend(left);
    Ok(ended)
}

/// Overlapping pairs of intervals that are sorted by their start: each with the earlier one that ends
/// last. Intervals that touch do not overlap.
fn overlapping(sorted: &[Interval]) -> Vec<(&Interval, &Interval)> {
    let mut pairs = Vec::new();
    let mut latest: Option<&Interval> = None;
    for interval in sorted {
        match latest {
            Some(earlier) if interval.start_us < earlier.end_us => pairs.push((earlier, interval)),
            _ => {}
        }
        if latest.is_none_or(|earlier| earlier.end_us < interval.end_us) {
            latest = Some(interval);
        }
    }
    pairs
}

impl Dispatch {
    /// The subject, and an interval that begins here.
    fn opened(self, end_us: u64) -> (Subject, Interval) {
        let Self { t, member, shard, epoch, controller, key } = self;
        ((controller, key), Interval { start_us: t, end_us, member, shard, epoch })
    }
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { controller, key, first, second } = self;
        write!(f, "{controller} {key}: {first} and {second}")
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { start_us, end_us, member, shard, epoch } = self;
        write!(f, "{member} ({shard} at epoch {epoch}) from {start_us} to {end_us} us")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A journal from lines `time event key`.
    fn journal(member: &str, ended_us: u64, lines: &str) -> (String, String, u64) {
        let text: String = lines
            .split(", ")
            .filter(|line| !line.is_empty())
            .map(|line| {
                let [t, event, key] = line.split(' ').collect::<Vec<_>>()[..] else {
                    panic!("{line}")
                };
                format!(
                    "{{\"t\":{t},\"event\":\"{event}\",\"member\":\"{member}\",\"shard\":\"east/tdset/0/1\",\"epoch\":1,\"controller\":\"tdset\",\"key\":\"{key}\"}}\n"
                )
            })
            .collect();
        (member.to_owned(), text, ended_us)
    }

    fn evidence(journals: &[(String, String, u64)]) -> Result<Evidence, JournalError> {
        let journals: Vec<_> = journals
            .iter()
            .map(|(name, text, ended_us)| Journal { name: name.clone(), text, ended_us: *ended_us })
            .collect();
        check(&journals)
    }

    #[test]
    fn overlaps_are_found_whoever_wrote_them_first() {
        let a = "10 start x, 20 end x, 30 start x, 40 end x";
        for (why, b, killed_at, expect) in [
            ("one after the other", "20 start x, 30 end x", 99, 0),
            ("another key", "15 start y, 35 end y", 99, 0),
            ("inside", "12 start x, 13 end x", 99, 1),
            ("across both", "15 start x, 35 end x", 99, 2),
            ("around both", "5 start x, 50 end x", 99, 2),
            ("open until the process ends", "20 start x", 25, 0),
            ("open beyond the next start", "20 start x", 31, 1),
            ("no time at all", "15 start x, 15 end x", 99, 1),
        ] {
            for swap in [false, true] {
                let mut journals = vec![journal("a", 99, a), journal("b", killed_at, b)];
                if swap {
                    journals.reverse();
                }
                assert_eq!(evidence(&journals).unwrap().overlaps, expect, "{why}");
            }
        }
    }

    #[test]
    fn one_member_must_not_run_a_key_twice_at_once_either() {
        let twice = journal("a", 99, "10 start x, 15 start x, 20 end x, 25 end x");
        let found = evidence(&[twice]).unwrap();
        assert_eq!((found.dispatches, found.overlaps), (2, 1));
        assert_eq!(
            found.examples[0].to_string(),
            "tdset x: a (east/tdset/0/1 at epoch 1) from 10 to 25 us and a (east/tdset/0/1 at epoch 1) from 15 to 20 us"
        );
    }

    #[test]
    fn the_evidence_is_counted() {
        let found = evidence(&[
            journal("a", 99, "10 start x, 12 end x, 30 start y"),
            journal("b", 99, "5 start z, 11 end z"),
            journal("c", 99, ""),
        ])
        .unwrap();
        assert_eq!((found.dispatches, found.keys, found.members), (3, 3, 2));
        assert_eq!(found.first_end_us, Some(11));
        assert_eq!(found.overlaps, 0);
    }

    #[test]
    fn a_torn_last_line_is_forgiven_and_no_other() {
        let (name, mut text, ended) = journal("a", 99, "10 start x, 12 end x");
        text.push_str("{\"t\":13,\"ev");
        assert_eq!(evidence(&[(name.clone(), text.clone(), ended)]).unwrap().dispatches, 1);

        text.push('\n');
        let error = evidence(&[(name, text, ended)]).unwrap_err();
        assert_eq!(error.to_string(), "read line 3 of journal a: \"{\\\"t\\\":13,\\\"ev\"");

        let hole = ("a".to_owned(), "{\"event\":\"lost\",\"count\":3}\n".to_owned(), 99);
        let error = evidence(&[hole]).unwrap_err();
        assert_eq!(error.to_string(), "read line 1 of journal a: 3 lines were lost there");

        let error = evidence(&[journal("a", 99, "10 end x")]).unwrap_err();
        assert_eq!(error.to_string(), "read line 1 of journal a: x ended but never began");
    }
}
