//! The metrics of sharding. A member reports itself and the shards it holds. All members report the
//! number of unowned shards, which all see alike.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use model::{ClusterLabel, ClusterLabels, ClusterName, Hold, OwnedShards, ShardId};
use prometheus::{
    Gauge, GaugeVec, HistogramOpts, HistogramVec, IntCounter, IntGauge, IntGaugeVec, Opts, Registry,
};

use crate::lease::COORDINATOR;
use crate::node::{Handover, HandoverCause};

/// Bucket bounds of handover times, in seconds. They include the SLOs and usual Lease durations.
const HANDOVER_SECONDS: [f64; 14] =
    [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 8.0, 10.0, 15.0, 30.0, 60.0];

/// How many shards of one cluster have series of their own. A cluster that is divided into hundreds, or in which
/// hundreds of groups work, costs no more.
const MAX_NAMED_SHARDS: usize = 16;
/// The group and the range of those beyond, which are counted together.
const OTHER_SHARDS: &str = "other";

/// All metrics of one member.
pub(crate) struct Metrics {
    shard_owner: IntGaugeVec,
    shard_epoch: IntGaugeVec,
    shards_owned: IntGaugeVec,
    shards_unowned: IntGauge,
    shards_paused: IntGauge,
    shards_unserved: IntGauge,
    handover_seconds: HistogramVec,
    moves_total: IntCounter,
    oldest_move: Gauge,
    history_changes_total: IntCounter,
    lease_age: Gauge,
    lease_duration: Gauge,
    is_coordinator: IntGauge,
    master_status: GaugeVec,
    shown: Option<Arc<OwnedShards>>,
    labels: Arc<ClusterLabels>,
    /// Those of the clusters with shards held.
    kept: BTreeMap<ClusterName, ClusterLabel>,
}

impl Metrics {
    pub(crate) fn register(
        registry: &Registry,
        labels: Arc<ClusterLabels>,
    ) -> Result<Self, prometheus::Error> {
        let gauge = |name: &str, help: &str| IntGauge::new(format!("leasehold_{name}"), help);
        let gauges = |name: &str, help: &str, labels: &[&str]| {
            IntGaugeVec::new(Opts::new(format!("leasehold_{name}"), help), labels)
        };
        let shard = ["cluster", "group", "range", "member"];
        let metrics = Self {
            shard_owner: gauges("shard_owner", "1 for each shard this member owns.", &shard)?,
            shard_epoch: gauges(
                "shard_epoch",
                "Epoch of each shard this member owns.",
                &shard[..3],
            )?,
            shards_owned: gauges("shards_owned", "Shards this member owns.", &["member"])?,
            shards_unowned: gauge(
                "shards_unowned",
                "Shards of the fleet that nobody owns and that are not paused.",
            )?,
            shards_paused: gauge(
                "shards_paused",
                "Shards of the fleet that nobody owns because a FleetPolicy pauses them.",
            )?,
            shards_unserved: gauge(
                "shards_unserved",
                "Shards this member owns whose cluster it does not have configured or fails to reach.",
            )?,
            handover_seconds: HistogramVec::new(
                HistogramOpts::new(
                    "leasehold_handover_seconds",
                    "From the beginning of a drain, or a dead owner's last sign of life, to the next owner.",
                )
                .buckets(HANDOVER_SECONDS.to_vec()),
                &["reason"],
            )?,
            moves_total: IntCounter::new(
                "leasehold_moves_total",
                "Shards that this member, as coordinator, moved from one owner to the next.",
            )?,
            oldest_move: Gauge::new(
                "leasehold_oldest_move_seconds",
                "For how long the first of all shards that are being handed over has been so, by the wall clock; 0 without one.",
            )?,
            history_changes_total: IntCounter::new(
                "leasehold_home_history_changes_total",
                "How often this member found that the home cluster was restored, emptied or replaced.",
            )?,
            lease_age: Gauge::new(
                "leasehold_member_lease_age_seconds",
                "Time since this member's last successful renewal of its Lease.",
            )?,
            lease_duration: Gauge::new(
                "leasehold_lease_duration_seconds",
                "How long this member's Lease is valid after a renewal.",
            )?,
            is_coordinator: gauge("coordinator_is_leader", "1 if this member coordinates.")?,
            master_status: GaugeVec::new(
                Opts::new(
                    "leader_election_master_status",
                    "1 if this process holds the Lease of that name.",
                ),
                &["name"],
            )?,
            shown: None,
            labels,
            kept: BTreeMap::new(),
        };
        metrics.register_all(registry)?;
        metrics.set_coordinator(false);
        for cause in HandoverCause::ALL {
            metrics.handover_seconds.with_label_values(&[cause.label()]);
        }
        Ok(metrics)
    }

    fn register_all(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        registry.register(Box::new(self.shard_owner.clone()))?;
        registry.register(Box::new(self.shard_epoch.clone()))?;
        registry.register(Box::new(self.shards_owned.clone()))?;
        registry.register(Box::new(self.shards_unowned.clone()))?;
        registry.register(Box::new(self.shards_paused.clone()))?;
        registry.register(Box::new(self.shards_unserved.clone()))?;
        registry.register(Box::new(self.handover_seconds.clone()))?;
        registry.register(Box::new(self.moves_total.clone()))?;
        registry.register(Box::new(self.oldest_move.clone()))?;
        registry.register(Box::new(self.history_changes_total.clone()))?;
        registry.register(Box::new(self.lease_age.clone()))?;
        registry.register(Box::new(self.lease_duration.clone()))?;
        registry.register(Box::new(self.is_coordinator.clone()))?;
        registry.register(Box::new(self.master_status.clone()))
    }

    /// Sets the shards held, if they changed.
    pub(crate) fn set_owned(&mut self, owned: &Arc<OwnedShards>) {
        if self.shown.as_ref().is_some_and(|shown| Arc::ptr_eq(shown, owned)) {
            return;
        }
        self.shard_owner.reset();
        self.shard_epoch.reset();
        self.shards_owned.reset();
        let held = || owned.holdings.iter().filter(|(_, held)| held.hold != Hold::Warming);
        // Those that stay are kept again before the old ones go: their values stay the same.
        let keep = |shard: &ShardId| (shard.cluster.clone(), self.labels.keep(&shard.cluster));
        self.kept = held().map(|(shard, _)| keep(shard)).collect();
        let mut named: BTreeMap<&str, BTreeSet<_>> = BTreeMap::new();
        for (ShardId { cluster, group, range }, holding) in held() {
            let cluster = self.kept[cluster].value();
            let of = named.entry(cluster).or_default();
            if of.len() < MAX_NAMED_SHARDS {
                of.insert((group, range));
            }
            let (group, range) = match of.contains(&(group, range)) {
                true => (group.as_str(), range.to_string()),
                false => (OTHER_SHARDS, OTHER_SHARDS.to_owned()),
            };
            let labels = [cluster, group, range.as_str(), owned.member.as_str()];
            // Clusters past the cap share series too: they show how many there are, and the highest epoch.
            self.shard_owner.with_label_values(&labels).inc();
            let epoch = self.shard_epoch.with_label_values(&labels[..3]);
            epoch.set(epoch.get().max(i64::try_from(holding.epoch.0).unwrap_or(i64::MAX)));
        }
        let count = i64::try_from(held().count()).unwrap_or(i64::MAX);
        self.shards_owned.with_label_values(&[owned.member.as_str()]).set(count);
        self.shown = Some(Arc::clone(owned));
    }

    pub(crate) fn set_unowned(&self, shards: u32) {
        self.shards_unowned.set(shards.into());
    }

    pub(crate) fn set_paused(&self, shards: u32) {
        self.shards_paused.set(shards.into());
    }

    pub(crate) fn set_unserved(&self, shards: usize) {
        self.shards_unserved.set(i64::try_from(shards).unwrap_or(i64::MAX));
    }

    /// Sets since when the first of all shards that are being handed over is.
    pub(crate) fn set_oldest_move(&self, since: Option<Timestamp>, wall: Timestamp) {
        let age = since.map_or(0.0, |since| wall.duration_since(since).as_secs_f64());
        self.oldest_move.set(age.max(0.0));
    }

    pub(crate) fn set_lease_age(&self, seconds: f64) {
        self.lease_age.set(seconds);
    }

    pub(crate) fn set_lease_duration(&self, duration: Duration) {
        self.lease_duration.set(duration.as_secs_f64());
    }

    pub(crate) fn set_coordinator(&self, coordinates: bool) {
        self.is_coordinator.set(coordinates.into());
        self.master_status.with_label_values(&[COORDINATOR]).set(u8::from(coordinates).into());
    }

    pub(crate) fn handed_over(&self, handover: &Handover) {
        self.moves_total.inc();
        self.handover_seconds
            .with_label_values(&[handover.reason.label()])
            .observe(handover.took.as_secs_f64());
    }

    /// Counts a change of home's history.
    pub(crate) fn history_changed(&self) {
        self.history_changes_total.inc();
    }
}

#[cfg(test)]
mod tests {
    use model::{Epoch, Holding};

    use super::*;

    /// Every sample as `name{values of its labels} value`; histograms by their count.
    fn samples(registry: &Registry) -> Vec<String> {
        let families = registry.gather();
        let lines = families.iter().flat_map(|family| {
            family.get_metric().iter().map(|metric| {
                let labels: Vec<_> = metric.get_label().iter().map(|label| label.value()).collect();
                let value = match family.get_field_type() {
                    prometheus::proto::MetricType::COUNTER => metric.get_counter().get_value(),
                    prometheus::proto::MetricType::HISTOGRAM => {
                        metric.get_histogram().get_sample_count() as f64
                    }
                    _ => metric.get_gauge().get_value(),
                };
                format!("{}{{{}}} {value}", family.name(), labels.join(","))
            })
        });
        lines.collect()
    }

    #[test]
    fn held_shards_appear_and_lost_ones_disappear() {
        let registry = Registry::new();
        let mut metrics = Metrics::register(&registry, Arc::default()).unwrap();
        let mut owned = OwnedShards::none("m-1".parse().unwrap());
        for (shard, hold) in [("east/g/0/1", Hold::Active), ("west/g/0/1", Hold::Warming)] {
            owned.holdings.insert(shard.parse().unwrap(), Holding { epoch: Epoch(7), hold });
        }
        metrics.set_owned(&Arc::new(owned));
        let shown = samples(&registry);
        for line in [
            "leasehold_shard_owner{east,g,m-1,0/1} 1",
            "leasehold_shard_epoch{east,g,0/1} 7",
            "leasehold_shards_owned{m-1} 1",
        ] {
            assert!(shown.iter().any(|sample| sample == line), "{line} in {shown:#?}");
        }
        assert!(!shown.iter().any(|sample| sample.contains("west")), "warming is not owning");
        metrics.set_owned(&Arc::new(OwnedShards::none("m-2".parse().unwrap())));
        let shown = samples(&registry);
        assert!(!shown.iter().any(|sample| sample.contains("m-1")), "{shown:#?}");
    }

    #[test]
    fn shards_of_clusters_past_the_cap_are_counted_together() {
        let registry = Registry::new();
        let labels = Arc::new(ClusterLabels::new(1));
        let mut metrics = Metrics::register(&registry, Arc::clone(&labels)).unwrap();
        let mut owned = OwnedShards::none("m-1".parse().unwrap());
        for (shard, epoch) in [("a/g/0/1", 1), ("b/g/0/1", 7), ("c/g/0/1", 5)] {
            let holding = Holding { epoch: Epoch(epoch), hold: Hold::Active };
            owned.holdings.insert(shard.parse().unwrap(), holding);
        }
        metrics.set_owned(&Arc::new(owned.clone()));
        let shown = samples(&registry);
        for line in [
            "leasehold_shard_owner{a,g,m-1,0/1} 1",
            "leasehold_shard_owner{other,g,m-1,0/1} 2",
            "leasehold_shard_epoch{other,g,0/1} 7",
            "leasehold_shards_owned{m-1} 3",
        ] {
            assert!(shown.iter().any(|sample| sample == line), "{line} in {shown:#?}");
        }
        owned.holdings.remove(&"a/g/0/1".parse().unwrap());
        metrics.set_owned(&Arc::new(owned));
        assert!(!labels.is_kept(&"a".parse().unwrap()));
        assert!(samples(&registry).iter().all(|sample| !sample.contains("{a,")));
    }

    #[test]
    fn a_cluster_of_many_shards_has_few_series() {
        let registry = Registry::new();
        let mut metrics = Metrics::register(&registry, Arc::default()).unwrap();
        let mut owned = OwnedShards::none("m-1".parse().unwrap());
        let ranges = (0..64).map(|n| (format!("east/a/{n}/64"), n));
        let groups = (0..64).map(|n| (format!("west/g{n:02}/0/1"), n));
        for (shard, epoch) in ranges.chain(groups) {
            let holding = Holding { epoch: Epoch(epoch), hold: Hold::Active };
            owned.holdings.insert(shard.parse().unwrap(), holding);
        }
        metrics.set_owned(&Arc::new(owned));
        let shown = samples(&registry);
        for cluster in ["east", "west"] {
            let of = shown.iter().filter(|sample| sample.contains(&format!("{{{cluster},")));
            assert_eq!(of.count(), 2 * (MAX_NAMED_SHARDS + 1), "{shown:#?}");
            for line in [
                format!("leasehold_shard_owner{{{cluster},other,m-1,other}} 48"),
                format!("leasehold_shard_epoch{{{cluster},other,other}} 63"),
            ] {
                assert!(shown.contains(&line), "{line} in {shown:#?}");
            }
        }
    }

    #[test]
    fn reasons_are_there_from_the_start_and_count_handovers() {
        let registry = Registry::new();
        let metrics = Metrics::register(&registry, Arc::default()).unwrap();
        metrics.handed_over(&Handover {
            shard: "east/g/0/1".parse().unwrap(),
            reason: HandoverCause::Crash,
            why: None,
            to: None,
            took: Duration::from_secs(8),
        });
        metrics.set_coordinator(true);
        let at = |second| Timestamp::from_second(second).unwrap();
        metrics.set_oldest_move(Some(at(40)), at(1000));
        let shown = samples(&registry);
        for line in [
            "leasehold_handover_seconds{crash} 1",
            "leasehold_handover_seconds{drain} 0",
            "leasehold_handover_seconds{leave} 0",
            "leasehold_handover_seconds{split} 0",
            "leasehold_moves_total{} 1",
            "leasehold_oldest_move_seconds{} 960",
            "leasehold_coordinator_is_leader{} 1",
            "leader_election_master_status{leasehold-coordinator} 1",
        ] {
            assert!(shown.iter().any(|sample| sample == line), "{line} in {shown:#?}");
        }
    }
}
