//! When the changes of a load are due: fixed before it begins, whatever the answers take. Pure.
//!
//! A generator that waits for answers makes fewer changes exactly when the system is slow, and what it
//! then measures looks better than what users would have seen. Here each change has its time, and its
//! latency counts from that.

use std::time::Duration;

use crate::scenario::{Arrivals, Load};

/// What a change does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Creates an object.
    Create,
    /// Changes the spec of an object.
    Update,
    /// Deletes an object.
    Delete,
}

/// One change of the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// When, since the load began.
    pub at: Duration,
    /// What.
    pub action: Action,
}

/// All changes of a load, by time.
pub struct Schedule {
    streams: [Stream; 3],
    end: Duration,
}

/// The changes of one kind.
struct Stream {
    action: Action,
    per_second: f64,
    /// How many were taken.
    taken: u64,
    /// When the next one is due, in seconds.
    next: f64,
    /// Draws the gaps, if they are random.
    gaps: Option<fastrand::Rng>,
}

impl Schedule {
    /// The changes of `load`; the seed decides random gaps.
    pub fn new(load: &Load, seed: u64) -> Self {
        let mut seeds = fastrand::Rng::with_seed(seed);
        let mut stream = |action, per_second: f64| {
            let gaps = fastrand::Rng::with_seed(seeds.u64(..));
            let gaps = (load.arrivals == Arrivals::Poisson).then_some(gaps);
            let mut stream = Stream { action, per_second, taken: 0, next: 0.0, gaps };
            stream.advance();
            stream
        };
        let streams = [
            stream(Action::Delete, load.deletes_per_second),
            stream(Action::Update, load.updates_per_second),
            stream(Action::Create, load.creates_per_second),
        ];
        Self { streams, end: load.duration }
    }
}

impl Stream {
    fn advance(&mut self) {
        self.taken += 1;
        self.next = match &mut self.gaps {
            // A multiple instead of a sum, which would drift.
            None => self.taken as f64 / self.per_second,
            Some(rng) => self.next - (1.0 - rng.f64()).ln() / self.per_second,
        };
    }
}

impl Iterator for Schedule {
    type Item = Due;

    fn next(&mut self) -> Option<Due> {
        let next = self.streams.iter_mut().min_by(|a, b| a.next.total_cmp(&b.next))?;
        // At a rate of nothing the first is due after an endless time.
        let at = Duration::try_from_secs_f64(next.next).ok().filter(|at| *at <= self.end)?;
        let due = Due { at, action: next.action };
        next.advance();
        Some(due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(arrivals: Arrivals, updates: f64, creates: f64) -> Load {
        Load {
            duration: Duration::from_secs(10),
            arrivals,
            updates_per_second: updates,
            creates_per_second: creates,
            deletes_per_second: 0.0,
        }
    }

    fn count(changes: &[Due], action: Action) -> usize {
        changes.iter().filter(|due| due.action == action).count()
    }

    #[test]
    fn even_changes_are_due_at_multiples_of_their_gap() {
        let all: Vec<Due> = Schedule::new(&load(Arrivals::Even, 2.0, 0.5), 1).collect();
        assert_eq!((count(&all, Action::Update), count(&all, Action::Create)), (20, 5));
        assert_eq!(count(&all, Action::Delete), 0);
        let first = [(500, Action::Update), (1_000, Action::Update), (1_500, Action::Update)];
        let first = first.map(|(ms, action)| Due { at: Duration::from_millis(ms), action });
        assert_eq!(all[..3], first);
        assert_eq!(all.last().map(|due| due.at), Some(Duration::from_secs(10)));
        assert!(all.is_sorted_by_key(|due| due.at));
    }

    #[test]
    fn random_gaps_keep_the_rate_and_follow_the_seed() {
        let schedule = |seed| -> Vec<Due> {
            Schedule::new(&load(Arrivals::Poisson, 400.0, 100.0), seed).collect()
        };
        let all = schedule(7);
        assert_eq!(all, schedule(7));
        assert_ne!(all, schedule(8));
        assert!(all.is_sorted_by_key(|due| due.at));
        // Four standard deviations around 4,000 and 1,000.
        assert!(count(&all, Action::Update).abs_diff(4_000) < 253, "{}", all.len());
        assert!(count(&all, Action::Create).abs_diff(1_000) < 127, "{}", all.len());
        // Half of the gaps of a Poisson stream are below ln 2 of their mean; even gaps never are.
        let gaps: Vec<f64> = all.windows(2).map(|w| (w[1].at - w[0].at).as_secs_f64()).collect();
        let short = gaps.iter().filter(|gap| **gap < 2f64.ln() / 500.0).count();
        assert!((short as f64 / gaps.len() as f64 - 0.5).abs() < 0.05);
    }

    #[test]
    fn a_load_of_nothing_ends() {
        assert_eq!(Schedule::new(&load(Arrivals::Even, 0.0, 0.0), 1).count(), 0);
        assert_eq!(Schedule::new(&load(Arrivals::Poisson, 0.0, 0.0), 1).count(), 0);
    }
}
