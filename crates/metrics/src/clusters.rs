//! The series of each cluster on which this member works, and of no other: they begin with its first
//! shard here and go when nothing of its last one runs any more.
//!
//! # Invariants
//! - What a cluster costs does not grow with what its server answers: labels have few, known values.
//! - A count that comes later, of a request that outlives the last shard, is dropped.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use model::labels::OTHER_CLUSTERS;
use model::{ClusterLabel, ClusterLabels, ClusterName, ControllerName, WeakMap, wire};
use prometheus::core::{Collector, Desc};
use prometheus::proto::{MetricFamily, MetricType, Summary};
use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, Opts};

use crate::ReconcileResult;

/// None: there is a sum and a count for each controller of each cluster, and nobody looks at more.
const RECONCILE_BUCKETS: &[f64] = &[f64::INFINITY];
/// Fine at the beginning, where it shows whether one cluster holds up another, and with an edge at the
/// objective, one second.
const QUEUE_BUCKETS: &[f64] = &[0.001, 0.05, 1.0, 10.0];
const REQUEST_BUCKETS: &[f64] = &[0.025, 0.25, 2.0, 10.0];

/// The series of all these clusters. Clones share them.
#[derive(Clone, Debug)]
pub struct SeriesByCluster(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    labels: Arc<ClusterLabels>,
    held: Mutex<Held>,
    descs: Vec<Desc>,
}

#[derive(Debug, Default)]
struct Held {
    by_cluster: WeakMap<ClusterName, ClusterSeries>,
    /// What all clusters share that have no label value of their own.
    others: Weak<Families>,
}

/// The series of one cluster, shared by all who work there.
#[derive(Debug)]
pub struct ClusterSeries {
    label: ClusterLabel,
    families: Arc<Families>,
}

/// All series with one label value.
#[derive(Debug)]
struct Families {
    reconcile: HistogramVec,
    reconciles: IntCounterVec,
    /// Those that succeeded, as most do: looked up once.
    succeeded: OnceLock<IntCounter>,
    queue: Histogram,
    request: Histogram,
    requests: IntCounterVec,
    watch_restarts: IntCounterVec,
}

// === impl SeriesByCluster ===

impl SeriesByCluster {
    /// Of clusters that get their label values from `labels`. Whoever makes them registers them.
    ///
    /// # Errors
    /// None, as long as the names here are well formed.
    pub fn new(labels: Arc<ClusterLabels>) -> Result<Self, prometheus::Error> {
        let families = Families::new(OTHER_CLUSTERS)?;
        let descs = families.all().iter().flat_map(|family| family.desc()).cloned().collect();
        Ok(Self(Arc::new(Inner { labels, held: Mutex::default(), descs })))
    }

    /// The series of a cluster, for as long as somebody keeps them.
    pub fn hold(&self, cluster: &ClusterName) -> Arc<ClusterSeries> {
        self.with(|held| {
            if let Some(series) = held.by_cluster.get(cluster) {
                return series;
            }
            let label = self.0.labels.keep(cluster);
            let families = match label.value() {
                OTHER_CLUSTERS => held.others.upgrade(),
                _ => None,
            };
            let families = families.unwrap_or_else(|| {
                let families = Families::new(label.value());
                Arc::new(families.expect("only the label's value differs from what was checked"))
            });
            if label.value() == OTHER_CLUSTERS {
                held.others = Arc::downgrade(&families);
            }
            let series = Arc::new(ClusterSeries { label, families });
            held.by_cluster.insert(cluster.clone(), &series);
            series
        })
    }

    /// The series of a cluster, if this member works on it.
    pub fn of(&self, cluster: &ClusterName) -> Option<Arc<ClusterSeries>> {
        self.with(|held| held.by_cluster.get(cluster))
    }

    /// Those of all clusters on which this member works.
    pub fn all(&self) -> BTreeMap<ClusterName, Arc<ClusterSeries>> {
        self.with(|held| {
            held.by_cluster.iter().map(|(name, series)| (name.clone(), series)).collect()
        })
    }

    /// The label values of clusters.
    pub fn labels(&self) -> &Arc<ClusterLabels> {
        &self.0.labels
    }

    fn with<T>(&self, act: impl FnOnce(&mut Held) -> T) -> T {
        act(&mut self.0.held.lock().expect("no holder of this lock panics"))
    }
}

impl Collector for SeriesByCluster {
    fn desc(&self) -> Vec<&Desc> {
        self.0.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let held = self.all();
        // Clusters that share a label value share the families, too.
        let families: BTreeMap<&str, &Families> =
            held.values().map(|series| (series.label(), &*series.families)).collect();
        families.into_values().flat_map(Families::collect).collect()
    }
}

// === impl ClusterSeries ===

impl ClusterSeries {
    /// The label value of the cluster.
    pub fn label(&self) -> &str {
        self.label.value()
    }

    /// Counts a key given out after it was ready for so long.
    pub fn dispatched(&self, waited: Duration) {
        self.families.queue.observe(waited.as_secs_f64());
    }

    /// Counts a reconcile that ended.
    pub fn reconciled(&self, controller: &ControllerName, result: ReconcileResult, took: Duration) {
        let controller = controller.as_str();
        self.families.reconcile.with_label_values(&[controller]).observe(took.as_secs_f64());
        let of =
            |result: ReconcileResult| self.families.reconciles.with_label_values(&[result.label()]);
        let counter = || {
            // There before the first failure, whose increase would not be seen otherwise.
            of(ReconcileResult::Error);
            of(result)
        };
        match result {
            ReconcileResult::Success => self.families.succeeded.get_or_init(counter).inc(),
            _ => counter().inc(),
        }
    }

    /// Counts a request; without a status, one that got no answer.
    pub fn requested(&self, status: Option<u16>, took: Duration) {
        self.families.request.observe(took.as_secs_f64());
        self.families.requests.with_label_values(&[wire::class(status)]).inc();
    }

    /// Counts a watch that has to be opened again.
    pub fn watch_restarted(&self, reason: &str) {
        self.families.watch_restarts.with_label_values(&[reason]).inc();
    }
}

// === impl Families ===

impl Families {
    fn new(cluster: &str) -> Result<Self, prometheus::Error> {
        let histogram = |name: &str, help: &str, buckets: &[f64]| {
            let opts = HistogramOpts::new(format!("leasehold_{name}"), help);
            opts.const_label("cluster", cluster).buckets(buckets.to_vec())
        };
        let counters = |name: &str, help: &str, labels: &[&str]| {
            let opts = Opts::new(format!("leasehold_{name}"), help);
            IntCounterVec::new(opts.const_label("cluster", cluster), labels)
        };
        let reconcile = histogram(
            "cluster_reconcile_seconds",
            "How long reconciles take, by cluster.",
            RECONCILE_BUCKETS,
        );
        Ok(Self {
            reconcile: HistogramVec::new(reconcile, &["controller"])?,
            reconciles: counters(
                "cluster_reconciles_total",
                "Reconciles by cluster and result.",
                &["result"],
            )?,
            succeeded: OnceLock::new(),
            queue: Histogram::with_opts(histogram(
                "cluster_queue_seconds",
                "How long a ready key waits, by cluster.",
                QUEUE_BUCKETS,
            ))?,
            request: Histogram::with_opts(histogram(
                "cluster_request_seconds",
                "Time until a cluster's API server begins its answer.",
                REQUEST_BUCKETS,
            ))?,
            requests: counters(
                "cluster_requests_total",
                "Requests to a cluster's API server by the class of the answer.",
                &["code"],
            )?,
            watch_restarts: counters(
                "watch_restarts_total",
                "Watches that had to be opened again, by reason.",
                &["reason"],
            )?,
        })
    }

    fn all(&self) -> [&dyn Collector; 6] {
        let Self { reconcile, reconciles, queue, request, requests, watch_restarts, .. } = self;
        [reconcile, reconciles, queue, request, requests, watch_restarts]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let [reconcile, others @ ..] = self.all();
        let summaries = reconcile.collect().into_iter().map(without_buckets);
        summaries.chain(others.into_iter().flat_map(|family| family.collect())).collect()
    }
}

/// A histogram as a summary, which has a sum and a count, and no bucket for all that there is.
fn without_buckets(mut family: MetricFamily) -> MetricFamily {
    for metric in family.mut_metric() {
        let times = metric.get_histogram();
        let mut summary = Summary::default();
        summary.set_sample_count(times.get_sample_count());
        summary.set_sample_sum(times.get_sample_sum());
        metric.set_summary(summary);
    }
    family.set_field_type(MetricType::SUMMARY);
    family
}

#[cfg(test)]
mod tests {
    use prometheus::Registry;

    use super::*;

    fn name(text: &str) -> ClusterName {
        text.parse().unwrap()
    }

    fn text(registry: &Registry) -> String {
        prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap()
    }

    fn with_cap(cap: usize) -> (SeriesByCluster, Registry) {
        let (registry, labels) = (Registry::new(), Arc::new(ClusterLabels::new(cap)));
        let series = SeriesByCluster::new(labels).unwrap();
        registry.register(Box::new(series.clone())).unwrap();
        (series, registry)
    }

    #[test]
    fn a_cluster_has_series_while_somebody_works_there_whatever_it_answers() {
        let (all, registry) = with_cap(10);
        let east = all.hold(&name("east"));
        for status in (100..1000).map(Some).chain([None]) {
            east.requested(status, Duration::from_secs(1));
        }
        let classes = text(&registry).matches("leasehold_cluster_requests_total{").count();
        assert_eq!(classes, 7);
        let again = all.hold(&name("east"));
        let maps = "maps".parse().unwrap();
        again.reconciled(&maps, ReconcileResult::Success, Duration::from_secs(1));
        drop(east);
        let shown = text(&registry);
        let total = r#"leasehold_cluster_reconciles_total{cluster="east",result="#;
        for line in [
            "# TYPE leasehold_cluster_reconcile_seconds summary",
            r#"leasehold_cluster_reconcile_seconds_count{cluster="east",controller="maps"} 1"#,
            r#"leasehold_cluster_reconcile_seconds_sum{cluster="east",controller="maps"} 1"#,
            &format!(r#"{total}"success"}} 1"#),
            &format!(r#"{total}"error"}} 0"#),
        ] {
            assert!(shown.lines().any(|found| found == line), "{line} in {shown}");
        }
        let of_maps = shown.lines().filter(|line| line.contains(r#"controller="maps""#));
        assert_eq!(of_maps.count(), 2, "there is one for each controller of each cluster: {shown}");
        drop(again);
        assert!(all.of(&name("east")).is_none());
        assert_eq!(text(&registry), "");
    }

    #[test]
    fn clusters_past_the_cap_share_every_series() {
        let (all, registry) = with_cap(1);
        let held = ["east", "north", "west"].map(|cluster| all.hold(&name(cluster)));
        for cluster in &held {
            cluster.dispatched(Duration::from_secs(1));
            cluster.watch_restarted("expired");
        }
        let shown = text(&registry);
        assert!(!shown.contains("north") && !shown.contains("west"), "{shown}");
        for line in [
            r#"leasehold_cluster_queue_seconds_count{cluster="east"} 1"#,
            r#"leasehold_cluster_queue_seconds_count{cluster="other"} 2"#,
            r#"leasehold_watch_restarts_total{cluster="other",reason="expired"} 2"#,
        ] {
            assert!(shown.lines().any(|found| found == line), "{line} in {shown}");
        }
    }
}
