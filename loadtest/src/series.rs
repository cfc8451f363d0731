//! Every second of a run, as the report keeps it. Pure.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::latencies::{Convergence, Seconds};

/// One second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Second {
    /// Seconds since the start of the run.
    pub at: u32,
    /// Changes that were due in it and were made.
    pub made: u32,
    /// Changes that converged in it.
    pub converged: u32,
    /// From change to converged, of changes that were due in it: median.
    pub p50_ms: Option<u32>,
    /// 99th percentile.
    pub p99_ms: Option<u32>,
    /// The replicas that ran.
    pub replicas: Vec<ReplicaSecond>,
}

/// One replica in one second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ReplicaSecond {
    /// Its name.
    pub name: String,
    /// Cores used; absent when it has just begun.
    pub cores: Option<f64>,
    /// Resident memory, in MiB.
    pub resident_mib: f64,
    /// Keys that wait in its queues; absent where it was not scraped.
    pub queued: Option<f64>,
    /// Shards that it holds; absent where it was not scraped.
    pub shards: Option<f64>,
    /// Series of its page of metrics; absent where it was not scraped.
    pub series: Option<f64>,
    /// Tasks of its runtime; absent where it was not scraped.
    pub tasks: Option<f64>,
    /// Files that it has open, most of them connections; absent where it was not scraped.
    pub open_files: Option<f64>,
}

/// Puts together what the tracker and the sampler saw.
pub fn of(changes: &Seconds, mut replicas: BTreeMap<u32, Vec<ReplicaSecond>>) -> Vec<Second> {
    let end = replicas.keys().next_back().map_or(0, |last| last + 1);
    let mut seconds: Vec<Second> = Vec::new();
    for (at, tallied) in (0..).zip(changes.iter()) {
        let due = Convergence::of(tallied.latencies_ms.clone());
        let known = |ms: u32| (due.changes > 0).then_some(ms);
        seconds.push(Second {
            at,
            made: tallied.made,
            converged: tallied.converged,
            p50_ms: known(due.p50_ms),
            p99_ms: known(due.p99_ms),
            replicas: replicas.remove(&at).unwrap_or_default(),
        });
    }
    for at in seconds.len() as u32..end {
        let replicas = replicas.remove(&at).unwrap_or_default();
        seconds.push(Second { at, replicas, ..Second::default() });
    }
    seconds
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn seconds_without_changes_or_without_samples_are_there() {
        let mut changes = Seconds::default();
        changes.made(Duration::from_millis(1_100));
        changes.converged(Duration::from_millis(1_100), Duration::from_millis(1_140));
        let replica = ReplicaSecond {
            name: "a".into(),
            resident_mib: 1.0,
            shards: Some(2.0),
            ..ReplicaSecond::default()
        };
        let all = of(&changes, BTreeMap::from([(3, vec![replica.clone()])]));
        let empty = |at| Second { at, ..Second::default() };
        let busy = Second { made: 1, converged: 1, p50_ms: Some(40), p99_ms: Some(40), ..empty(1) };
        let last = Second { replicas: vec![replica], ..empty(3) };
        assert_eq!(all, [empty(0), busy, empty(2), last]);
    }
}
