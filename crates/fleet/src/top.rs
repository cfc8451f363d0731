//! Where the work of a fleet is: what its replicas say of their queues, summed up. Pure.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use queue::QueueStatus;
use serde::Serialize;

/// What a fleet has to do.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Top {
    /// The controllers, those with the most ready keys first.
    pub controllers: Vec<ControllerLoad>,
    /// The clusters with ready keys, those with the most first.
    pub clusters: Vec<ClusterLoad>,
    /// The keys that have run longest.
    pub longest: Vec<Key>,
    /// The keys that failed most often since they succeeded.
    pub failing: Vec<Key>,
}

/// A controller in all replicas.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ControllerLoad {
    /// Its name.
    pub controller: String,
    /// Keys ready to be dispatched.
    pub ready: usize,
    /// Keys that wait for a retry, or to be requeued.
    pub delayed: usize,
    /// Keys being reconciled.
    pub running: usize,
    /// How long the oldest ready key has waited.
    pub oldest_seconds: f64,
}

/// A cluster in all replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterLoad {
    /// Its name.
    pub cluster: String,
    /// Its ready keys, of all controllers.
    pub ready: usize,
}

/// A key that stands out.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Key {
    /// The controller.
    pub controller: String,
    /// The resource that it reconciles, as `deployments.apps`, if the replica says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The object, as `cluster/namespace/name`.
    pub key: String,
    /// The replica.
    pub member: String,
    /// For how long it has run, or how long ago it failed last.
    pub seconds: f64,
    /// How often it failed; none if it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<u32>,
    /// How it failed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl Top {
    /// Sums up what members say of their queues, with at most `count` lines of each kind; of
    /// controllers there are few, and none is left out.
    pub fn of(queues: &[(String, Vec<QueueStatus>)], count: usize) -> Self {
        let mut controllers: BTreeMap<&str, ControllerLoad> = BTreeMap::new();
        let mut clusters: BTreeMap<&str, usize> = BTreeMap::new();
        let (mut longest, mut failing) = (Vec::new(), Vec::new());
        for (member, queue) in
            queues.iter().flat_map(|(m, queues)| queues.iter().map(move |q| (m, q)))
        {
            let name = queue.controller.as_str();
            let load = controllers.entry(name).or_default();
            load.ready += queue.depth;
            load.delayed += queue.delayed;
            load.running += queue.running;
            load.oldest_seconds = load.oldest_seconds.max(queue.oldest_seconds);
            for (cluster, ready) in &queue.clusters {
                *clusters.entry(cluster.as_str()).or_default() += ready;
            }
            let key = |key: &str, seconds, times, error| Key {
                controller: name.to_owned(),
                resource: queue.resource.clone(),
                key: key.to_owned(),
                member: member.clone(),
                seconds,
                times,
                error,
            };
            longest.extend(queue.longest.iter().map(|run| key(&run.key, run.seconds, None, None)));
            failing.extend(queue.failing.iter().map(|failing| {
                let failure = &failing.failure;
                let error = format!("{}: {}", failure.result, failure.error);
                key(&failing.key, failure.last_seconds, Some(failure.times), Some(error))
            }));
        }
        let load = |(name, load): (&str, ControllerLoad)| ControllerLoad {
            controller: name.to_owned(),
            ..load
        };
        let mut controllers: Vec<_> = controllers.into_iter().map(load).collect();
        controllers.sort_by_key(|load| Reverse((load.ready, load.running)));
        let cluster =
            |(name, ready): (&str, usize)| ClusterLoad { cluster: name.to_owned(), ready };
        let waits = |(_, ready): &(&str, usize)| *ready > 0;
        let mut clusters: Vec<_> = clusters.into_iter().filter(waits).map(cluster).collect();
        clusters.sort_by_key(|load| Reverse(load.ready));
        longest.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        failing.sort_by_key(|key| Reverse(key.times));
        clusters.truncate(count);
        longest.truncate(count);
        failing.truncate(count);
        Self { controllers, clusters, longest, failing }
    }
}

#[cfg(test)]
mod tests {
    use queue::{FailingKey, FailureStatus, RunningKey};

    use super::*;

    fn queue(controller: &str, ready: usize, cluster: &str, runs: f64, fails: u32) -> QueueStatus {
        let failure = FailureStatus {
            result: "failed".into(),
            error: "no route".into(),
            times: fails,
            last_seconds: 1.0,
            first_seconds: 9.0,
        };
        QueueStatus {
            controller: controller.parse().unwrap(),
            resource: Some("pods".into()),
            depth: ready,
            delayed: 1,
            running: 1,
            oldest_seconds: runs,
            clusters: [(cluster.parse().unwrap(), ready)].into(),
            longest: vec![RunningKey { key: format!("{cluster}/ns/slow"), seconds: runs }],
            failing: vec![FailingKey { key: format!("{cluster}/ns/bad"), failure }],
        }
    }

    #[test]
    fn queues_of_all_members_are_summed_and_the_worst_come_first() {
        let queues = [
            ("m-0".to_owned(), vec![queue("a", 1, "east", 2.0, 1), queue("b", 5, "west", 1.0, 9)]),
            ("m-1".to_owned(), vec![queue("a", 3, "west", 7.0, 4), queue("c", 0, "idle", 0.0, 0)]),
        ];
        let top = Top::of(&queues, 2);
        let all: Vec<_> = Top::of(&queues, 9).clusters.into_iter().map(|l| l.cluster).collect();
        assert_eq!(all, ["west", "east"], "no row for a cluster without ready keys");
        let loads: Vec<_> =
            top.controllers.iter().map(|l| (l.controller.as_str(), l.ready)).collect();
        assert_eq!(loads, [("b", 5), ("a", 4), ("c", 0)], "no controller is left out");
        assert_eq!((top.controllers[1].delayed, top.controllers[1].oldest_seconds), (2, 7.0));
        let clusters: Vec<_> = top.clusters.iter().map(|l| (l.cluster.as_str(), l.ready)).collect();
        assert_eq!(clusters, [("west", 8), ("east", 1)]);
        let longest: Vec<_> = top.longest.iter().map(|k| (k.member.as_str(), k.seconds)).collect();
        assert_eq!(longest, [("m-1", 7.0), ("m-0", 2.0)]);
        let failing: Vec<_> =
            top.failing.iter().map(|k| (k.controller.as_str(), k.times)).collect();
        assert_eq!(failing, [("b", Some(9)), ("a", Some(4))]);
        assert_eq!(top.failing[0].resource.as_deref(), Some("pods"));
        assert_eq!(top.failing[0].error.as_deref(), Some("failed: no route"));
    }
}
