//! The order in which clusters give out keys.

use std::collections::VecDeque;

use super::concurrency::Concurrency;

/// How many turns that are over may be kept, beside as many as there are clusters.
const KEPT: usize = 64;

/// How a cluster of which no key runs has fared so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pace {
    /// No run of it has ended yet.
    Unknown,
    /// Its last run was quick.
    Quick,
    /// It was not; or a key runs.
    Slow,
}

/// A cluster's turn to give out a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) id: u64,
    pub(super) pace: Pace,
}

/// Turns in order, each with the number of its cluster.
type Line = VecDeque<(usize, u64)>;

/// The turns of all clusters. Those of clusters whose pace is unknown come before those of slow ones, which is once for
/// each. Quick and unknown ones have room of their own.
///
/// Turns that are over are passed over: to take each out at once would make the loss of many clusters take long.
#[derive(Debug, Default)]
pub(super) struct Turns {
    unknown: Line,
    quick: Line,
    slow: Line,
}

impl Turns {
    /// Adds a turn of a cluster.
    pub(super) fn push(&mut self, number: usize, Turn { id, pace }: Turn) {
        let line = match pace {
            Pace::Unknown => &mut self.unknown,
            Pace::Quick => &mut self.quick,
            Pace::Slow => &mut self.slow,
        };
        line.push_back((number, id));
    }

    /// Takes the first turn that may be had now.
    pub(super) fn next(&mut self, concurrency: &Concurrency) -> Option<(usize, u64)> {
        let first = |line: &Line, pace| {
            line.front().map(|(_, id)| *id).filter(|_| concurrency.has_room(pace))
        };
        let other = first(&self.unknown, Pace::Unknown);
        let is_known = other.is_none();
        let other = other.or_else(|| first(&self.slow, Pace::Slow));
        let line = match (other, first(&self.quick, Pace::Quick)) {
            (Some(other), quick) if quick.is_none_or(|quick| other < quick) => {
                if is_known {
                    &mut self.slow
                } else {
                    &mut self.unknown
                }
            }
            (_, quick) => quick.map(|_| &mut self.quick)?,
        };
        line.pop_front()
    }

    /// Whether a turn may be had now.
    pub(super) fn has_next(&self, concurrency: &Concurrency) -> bool {
        self.lines().any(|pace| concurrency.has_room(pace))
    }

    /// Whether a turn waits until fewer run.
    pub(super) fn waits(&self, concurrency: &Concurrency) -> bool {
        self.lines().any(|pace| !concurrency.has_room(pace))
    }

    /// The paces of which there are turns.
    fn lines(&self) -> impl Iterator<Item = Pace> {
        let Self { unknown, quick, slow } = self;
        let lines = [(unknown, Pace::Unknown), (quick, Pace::Quick), (slow, Pace::Slow)];
        lines.into_iter().filter(|(line, _)| !line.is_empty()).map(|(_, pace)| pace)
    }

    /// Drops the turns that are over, once they are many for so many clusters.
    pub(super) fn tidy(&mut self, clusters: usize, is_there: impl Fn(usize, Turn) -> bool) {
        let Self { unknown, quick, slow } = self;
        for (line, pace) in [(unknown, Pace::Unknown), (quick, Pace::Quick), (slow, Pace::Slow)] {
            if line.len() > 2 * clusters + KEPT {
                line.retain(|(number, id)| is_there(*number, Turn { id: *id, pace }));
            }
        }
    }
}
