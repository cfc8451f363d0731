//! Why keys failed last, for people who ask about one. Pure.
//!
//! # Invariants
//! - Only of keys that fail: a success takes the key out.
//! - At most [`MAX_FAILING`] keys of a cluster are kept, each with at most [`MAX_ERROR_BYTES`] of text; the one that
//!   failed longest ago makes room.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use model::{ClusterName, Moment, ObjectKey};

use super::item::Local;
use super::status::{FailingKey, FailureStatus};

/// The most failing keys of one cluster that are kept.
const MAX_FAILING: usize = 256;
/// The most bytes of an error that are kept.
const MAX_ERROR_BYTES: usize = 1024;

/// The failing keys of a queue.
#[derive(Debug, Default)]
pub(super) struct Failures(BTreeMap<ClusterName, BTreeMap<Local, Failure>>);

#[derive(Debug)]
struct Failure {
    first: Moment,
    last: Moment,
    times: u32,
    result: &'static str,
    error: String,
}

impl Failures {
    /// A run of a key failed.
    pub(super) fn failed(
        &mut self,
        key: &ObjectKey,
        result: &'static str,
        error: &str,
        now: Moment,
    ) {
        let cluster = self.0.entry(key.cluster.clone()).or_default();
        let local = Local::from(key);
        let before = cluster.remove(&local);
        if cluster.len() >= MAX_FAILING {
            let oldest = cluster.iter().min_by_key(|(_, failure)| failure.last);
            let oldest = oldest.map(|(local, _)| local.clone());
            oldest.and_then(|local| cluster.remove(&local));
        }
        let end =
            (0..=MAX_ERROR_BYTES.min(error.len())).rev().find(|end| error.is_char_boundary(*end));
        let error = error[..end.unwrap_or_default()].to_owned();
        let (first, times) = before.map_or((now, 0), |before| (before.first, before.times));
        let times = times.saturating_add(1);
        cluster.insert(local, Failure { first, last: now, times, result, error });
    }

    /// A run of a key did not fail.
    pub(super) fn succeeded(&mut self, key: &ObjectKey) {
        if let Some(cluster) = self.0.get_mut(&key.cluster)
            && cluster.remove(&Local::from(key)).is_some()
            && cluster.is_empty()
        {
            self.0.remove(&key.cluster);
        }
    }

    /// No shard of a cluster is held any more.
    pub(super) fn forget(&mut self, cluster: &ClusterName) {
        self.0.remove(cluster);
    }

    /// How a key failed last, if it fails.
    pub(super) fn of(&self, key: &ObjectKey, now: Moment) -> Option<FailureStatus> {
        Some(self.0.get(&key.cluster)?.get(&Local::from(key))?.status(now))
    }

    /// The keys that failed most often; at most so many.
    pub(super) fn worst(&self, count: usize, now: Moment) -> Vec<FailingKey> {
        let of = |(cluster, keys): (_, _)| {
            let keys: &BTreeMap<Local, Failure> = keys;
            keys.iter().map(move |(local, failure)| (cluster, local, failure))
        };
        let mut all: Vec<(&ClusterName, &Local, &Failure)> = self.0.iter().flat_map(of).collect();
        all.sort_by_key(|(.., failure)| Reverse(failure.times));
        all.truncate(count);
        let shown = |(cluster, local, failure): (&ClusterName, &Local, &Failure)| FailingKey {
            key: local.clone().of(cluster).to_string(),
            failure: failure.status(now),
        };
        all.into_iter().map(shown).collect()
    }
}

impl Failure {
    fn status(&self, now: Moment) -> FailureStatus {
        FailureStatus {
            result: self.result.to_owned(),
            error: self.error.clone(),
            times: self.times,
            last_seconds: now.since(self.last).as_secs_f64(),
            first_seconds: now.since(self.first).as_secs_f64(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn key(cluster: &str, name: &str) -> ObjectKey {
        ObjectKey::new(cluster.parse().unwrap(), Some("ns"), name)
    }

    fn at(seconds: u64) -> Moment {
        Moment::from_origin(Duration::from_secs(seconds))
    }

    #[test]
    fn a_key_is_kept_from_its_first_failure_to_its_next_success() {
        let mut failures = Failures::default();
        let key = key("east", "a");
        failures.failed(&key, "failed", "no route", at(10));
        failures.failed(&key, "timed out", "too long", at(30));
        let expect = FailureStatus {
            result: "timed out".to_owned(),
            error: "too long".to_owned(),
            times: 2,
            last_seconds: 5.0,
            first_seconds: 25.0,
        };
        assert_eq!(failures.of(&key, at(35)), Some(expect));
        failures.succeeded(&key);
        assert_eq!(failures.of(&key, at(36)), None);
        assert!(failures.0.is_empty(), "nothing is kept of a cluster without failing keys");
    }

    #[test]
    fn the_worst_are_those_that_failed_most_often() {
        let mut failures = Failures::default();
        for (cluster, name, times) in [("east", "a", 1), ("east", "b", 3), ("west", "c", 2)] {
            for _ in 0..times {
                failures.failed(&key(cluster, name), "failed", "x", at(1));
            }
        }
        let worst = failures.worst(2, at(2));
        let keys: Vec<_> = worst.iter().map(|failing| failing.key.as_str()).collect();
        assert_eq!(keys, ["east/ns/b", "west/ns/c"]);
        assert_eq!(worst[0].failure.times, 3);
    }

    #[test]
    fn what_is_kept_of_a_cluster_is_bounded_in_keys_and_bytes() {
        let mut failures = Failures::default();
        let other = key("west", "a");
        failures.failed(&other, "failed", "x", at(0));
        // In three bytes each, of which the last does not fit whole.
        let long = "€".repeat(MAX_ERROR_BYTES);
        for number in 0..MAX_FAILING + 10 {
            failures.failed(&key("east", &number.to_string()), "failed", &long, at(number as u64));
        }
        assert_eq!(failures.0[&"east".parse::<ClusterName>().unwrap()].len(), MAX_FAILING);
        assert_eq!(failures.of(&key("east", "9"), at(999)), None, "it failed longest ago");
        let kept = failures.of(&key("east", "10"), at(999)).unwrap();
        assert_eq!(kept.error.len(), MAX_ERROR_BYTES - 1);
        assert!(failures.of(&other, at(999)).is_some(), "no cluster takes another's room");
        failures.forget(&"east".parse().unwrap());
        assert_eq!(failures.0.len(), 1);
    }
}
