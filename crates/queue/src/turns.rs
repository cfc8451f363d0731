//! The order in which clusters give out keys.

use std::collections::VecDeque;

use super::concurrency::{Concurrency, Pace};

/// How many turns that are over may be kept, beside as many as there are clusters.
const KEPT: usize = 64;

/// A cluster's turn to give out a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    pub(super) id: u64,
    pub(super) pace: Pace,
}

/// Turns in order, each with the number of its cluster.
type Line = VecDeque<(usize, u64)>;

/// The turns of all clusters, a line for each pace, because each has another limit.
///
/// Turns that are over are passed over: to take each out at once would make the loss of many clusters take long.
#[derive(Debug, Default)]
pub(super) struct Turns([Line; Pace::ALL.len()]);

impl Turns {
    /// Adds a turn of a cluster.
    pub(super) fn push(&mut self, number: usize, Turn { id, pace }: Turn) {
        self.0[pace as usize].push_back((number, id));
    }

    /// Takes the first turn that may be had now.
    pub(super) fn next(&mut self, concurrency: &Concurrency) -> Option<(usize, u64)> {
        let lines = Pace::ALL.into_iter().filter(|pace| concurrency.has_room(*pace));
        let first = |pace| self.0[pace as usize].front().map(|(_, id)| (*id, pace));
        let (_, pace) = lines.filter_map(first).min_by_key(|(id, _)| *id)?;
        self.0[pace as usize].pop_front()
    }

    /// Whether a turn may be had now.
    pub(super) fn has_next(&self, concurrency: &Concurrency) -> bool {
        self.paces().any(|pace| concurrency.has_room(pace))
    }

    /// Whether a turn waits until fewer run.
    pub(super) fn waits(&self, concurrency: &Concurrency) -> bool {
        self.paces().any(|pace| !concurrency.has_room(pace))
    }

    /// The paces of which there are turns.
    fn paces(&self) -> impl Iterator<Item = Pace> {
        Pace::ALL.into_iter().filter(|pace| !self.0[*pace as usize].is_empty())
    }

    /// Drops the turns that are over, once they are many for so many clusters.
    pub(super) fn tidy(&mut self, clusters: usize, is_there: impl Fn(usize, Turn) -> bool) {
        for (line, pace) in self.0.iter_mut().zip(Pace::ALL) {
            if line.len() > 2 * clusters + KEPT {
                line.retain(|(number, id)| is_there(*number, Turn { id: *id, pace }));
            }
        }
    }
}
