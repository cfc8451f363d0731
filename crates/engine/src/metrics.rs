//! Counters and histograms, compatible by name, label and bucket with controller-runtime and
//! client-go. Gauges that mirror state are computed when scraped: see `gauges`.
//!
//! # Invariants
//! - Counters of a controller exist, as zeros, before its first reconcile.
//! - At most `cap` clusters have label values of their own; the others share [`model::labels::OTHER_CLUSTERS`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use model::{ClusterLabels, ClusterName, ControllerName, Kind};
use prometheus::core::{Collector, MetricVec, MetricVecBuilder};
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
};

use queue::QueueMetrics;

/// How many clusters get label values of their own, by default.
pub const DEFAULT_CLUSTER_LABELS: usize = 1000;

const RECONCILE_BUCKETS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9,
    1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0,
    25.0, 30.0, 40.0, 50.0, 60.0,
];
const CLUSTER_RECONCILE_BUCKETS: &[f64] =
    &[0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
/// Fine at the beginning: there it shows whether one cluster holds up another.
const CLUSTER_QUEUE_BUCKETS: &[f64] = &[
    0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0,
    10.0, 60.0,
];
const REST_BUCKETS: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
const INFORMER_BUCKETS: &[f64] =
    &[0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// client-go's workqueue buckets: ten nanoseconds times powers of ten, twelve of them.
fn queue_buckets() -> Vec<f64> {
    (0..12).map(|power| 10e-9 * 10_f64.powi(power)).collect()
}

/// How a reconcile ended, as controller-runtime labels it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReconcileResult {
    Success,
    RequeueAfter,
    Requeue,
    Error,
}

impl ReconcileResult {
    const ALL: [Self; 4] = [Self::Error, Self::RequeueAfter, Self::Requeue, Self::Success];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::RequeueAfter => "requeue_after",
            Self::Requeue => "requeue",
            Self::Error => "error",
        }
    }
}

/// Every counter and histogram of the engine.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    pub(crate) labels: Arc<ClusterLabels>,
    pub(crate) fence_rejected: IntCounter,
    reconcile_total: IntCounterVec,
    reconcile_errors: IntCounterVec,
    terminal_errors: IntCounterVec,
    panics: IntCounterVec,
    timeouts: IntCounterVec,
    stale: IntCounterVec,
    reconcile_time: HistogramVec,
    max_concurrent: IntGaugeVec,
    active_workers: IntGaugeVec,
    cluster_reconcile: HistogramVec,
    cluster_queue: HistogramVec,
    adds: IntCounterVec,
    retries: IntCounterVec,
    queue_duration: HistogramVec,
    work_duration: HistogramVec,
    requests: IntCounterVec,
    request_duration: HistogramVec,
    request_retries: IntCounterVec,
    limiter_duration: HistogramVec,
    watch_restarts: IntCounterVec,
    processing_latency: HistogramVec,
}

impl Metrics {
    /// Makes and registers them.
    pub(crate) fn new(registry: &Registry, cluster_cap: usize) -> Result<Self, prometheus::Error> {
        let queue_labels = &["name", "controller"];
        let metrics = Self {
            labels: Arc::new(ClusterLabels::new(cluster_cap)),
            fence_rejected: IntCounter::new(
                "leasehold_fence_rejected_writes_total",
                "Writes not sent because the fence refused them.",
            )?,
            reconcile_total: counters(
                "controller_runtime_reconcile_total",
                "Reconciles by result.",
                &["controller", "result"],
            )?,
            reconcile_errors: counters(
                "controller_runtime_reconcile_errors_total",
                "Reconciles that failed.",
                &["controller"],
            )?,
            terminal_errors: counters(
                "controller_runtime_terminal_reconcile_errors_total",
                "Reconciles that failed and are not retried.",
                &["controller"],
            )?,
            panics: counters(
                "controller_runtime_reconcile_panics_total",
                "Reconciles that panicked.",
                &["controller"],
            )?,
            timeouts: counters(
                "controller_runtime_reconcile_timeouts_total",
                "Reconciles that ran into their timeout.",
                &["controller"],
            )?,
            stale: counters(
                "leasehold_stale_reconciles_total",
                "Reconciles begun though the cache had not shown yet what the last one wrote.",
                &["controller"],
            )?,
            reconcile_time: histograms(
                "controller_runtime_reconcile_time_seconds",
                "How long reconciles take.",
                &["controller"],
                RECONCILE_BUCKETS.to_vec(),
            )?,
            max_concurrent: gauges(
                "controller_runtime_max_concurrent_reconciles",
                "Reconciles that may run at once: workers per cluster times clusters held.",
                &["controller"],
            )?,
            active_workers: gauges(
                "controller_runtime_active_workers",
                "Reconciles that run.",
                &["controller"],
            )?,
            cluster_reconcile: histograms(
                "leasehold_cluster_reconcile_seconds",
                "How long reconciles take, by cluster.",
                &["cluster", "controller"],
                CLUSTER_RECONCILE_BUCKETS.to_vec(),
            )?,
            cluster_queue: histograms(
                "leasehold_cluster_queue_seconds",
                "How long a ready key waits, by cluster.",
                &["cluster", "controller"],
                CLUSTER_QUEUE_BUCKETS.to_vec(),
            )?,
            adds: counters("workqueue_adds_total", "Keys that became ready.", queue_labels)?,
            retries: counters("workqueue_retries_total", "Delayed adds.", queue_labels)?,
            queue_duration: histograms(
                "workqueue_queue_duration_seconds",
                "How long a ready key waits.",
                queue_labels,
                queue_buckets(),
            )?,
            work_duration: histograms(
                "workqueue_work_duration_seconds",
                "How long a key is processed.",
                queue_labels,
                queue_buckets(),
            )?,
            requests: counters(
                "rest_client_requests_total",
                "Requests to API servers by answer. The host is the cluster's name.",
                &["code", "method", "host"],
            )?,
            request_duration: histograms(
                "rest_client_request_duration_seconds",
                "Time until an API server begins its answer. The host is the cluster's name.",
                &["verb", "host"],
                REST_BUCKETS.to_vec(),
            )?,
            request_retries: counters(
                "rest_client_request_retries_total",
                "Requests repeated below the controllers. There are none.",
                &["code", "verb", "host"],
            )?,
            limiter_duration: histograms(
                "rest_client_rate_limiter_duration_seconds",
                "How long requests wait for their turn. The host is the cluster's name.",
                &["verb", "host"],
                REST_BUCKETS.to_vec(),
            )?,
            watch_restarts: counters(
                "leasehold_watch_restarts_total",
                "Watches that had to be opened anew, by reason.",
                &["cluster", "kind", "reason"],
            )?,
            processing_latency: histograms(
                "informer_processing_latency_seconds",
                "From the arrival of a watch event until its keys are queued.",
                &["name", "group", "version", "resource"],
                INFORMER_BUCKETS.to_vec(),
            )?,
        };
        metrics.register(registry)?;
        Ok(metrics)
    }

    fn register(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        registry.register(Box::new(self.fence_rejected.clone()))?;
        for counters in [
            &self.reconcile_total,
            &self.reconcile_errors,
            &self.terminal_errors,
            &self.panics,
            &self.timeouts,
            &self.stale,
            &self.adds,
            &self.retries,
            &self.requests,
            &self.request_retries,
            &self.watch_restarts,
        ] {
            registry.register(Box::new(counters.clone()))?;
        }
        for gauges in [&self.max_concurrent, &self.active_workers] {
            registry.register(Box::new(gauges.clone()))?;
        }
        for histograms in [
            &self.reconcile_time,
            &self.cluster_reconcile,
            &self.cluster_queue,
            &self.queue_duration,
            &self.work_duration,
            &self.request_duration,
            &self.limiter_duration,
            &self.processing_latency,
        ] {
            registry.register(Box::new(histograms.clone()))?;
        }
        Ok(())
    }

    /// The series of one controller, all of them at zero from now on.
    pub(crate) fn controller(&self, name: &ControllerName) -> ControllerMetrics {
        let label = &[name.as_str()];
        for result in ReconcileResult::ALL {
            self.reconcile_total.with_label_values(&[name.as_str(), result.label()]);
        }
        ControllerMetrics {
            errors: self.reconcile_errors.with_label_values(label),
            terminal_errors: self.terminal_errors.with_label_values(label),
            panics: self.panics.with_label_values(label),
            timeouts: self.timeouts.with_label_values(label),
            stale: self.stale.with_label_values(label),
            time: self.reconcile_time.with_label_values(label),
            max_concurrent: self.max_concurrent.with_label_values(label),
            active: self.active_workers.with_label_values(label),
            name: name.clone(),
            all: self.clone(),
        }
    }

    /// The series of one controller's queue.
    pub(crate) fn queue(&self, name: &ControllerName) -> QueueMetrics {
        let label = &[name.as_str(), name.as_str()];
        QueueMetrics {
            controller: name.clone(),
            adds: self.adds.with_label_values(label),
            retries: self.retries.with_label_values(label),
            waited: self.queue_duration.with_label_values(label),
            worked: self.work_duration.with_label_values(label),
            waited_by_cluster: self.cluster_queue.clone(),
            labels: Arc::clone(&self.labels),
        }
    }

    /// The series of one cluster's requests.
    pub(crate) fn rest(&self, cluster: &ClusterName) -> RestMetrics {
        RestMetrics { host: Arc::from(self.labels.of(cluster)), all: self.clone() }
    }

    /// The series of one informer.
    pub(crate) fn informer(&self, cluster: &ClusterName, kind: &Kind) -> InformerMetrics {
        let cluster = self.labels.of(cluster);
        let labels = [cluster, &kind.group, &kind.version, &kind.plural];
        InformerMetrics {
            latency: self.processing_latency.with_label_values(&labels),
            restarts: self.watch_restarts.clone(),
            cluster: Arc::from(cluster),
            kind: Arc::from(kind.to_string()),
        }
    }

    /// Frees the label value of a cluster that is gone, and drops its series.
    pub(crate) fn forget_cluster(&self, cluster: &ClusterName) {
        if !self.labels.release(cluster) {
            return;
        }
        let cluster = cluster.as_str();
        remove(&self.cluster_reconcile, "cluster", cluster);
        remove(&self.cluster_queue, "cluster", cluster);
        remove(&self.watch_restarts, "cluster", cluster);
        remove(&self.requests, "host", cluster);
        remove(&self.request_duration, "host", cluster);
        remove(&self.limiter_duration, "host", cluster);
        remove(&self.processing_latency, "name", cluster);
    }
}

/// Removes every series of a family whose `label` has this value.
fn remove<B: MetricVecBuilder>(family: &MetricVec<B>, label: &str, value: &str) {
    for metric in family.collect().iter().flat_map(|family| family.get_metric()) {
        let labels: HashMap<_, _> =
            metric.get_label().iter().map(|pair| (pair.name(), pair.value())).collect();
        if labels.get(label) == Some(&value) {
            // Absent only if somebody else has just removed it.
            let _ = family.remove(&labels);
        }
    }
}

/// The series of one controller.
#[derive(Clone, Debug)]
pub(crate) struct ControllerMetrics {
    pub(crate) errors: IntCounter,
    pub(crate) terminal_errors: IntCounter,
    pub(crate) panics: IntCounter,
    pub(crate) timeouts: IntCounter,
    pub(crate) stale: IntCounter,
    pub(crate) max_concurrent: IntGauge,
    pub(crate) active: IntGauge,
    time: Histogram,
    name: ControllerName,
    all: Metrics,
}

impl ControllerMetrics {
    /// Counts one reconcile that ended.
    pub(crate) fn observe(&self, cluster: &ClusterName, result: ReconcileResult, took: Duration) {
        let name = self.name.as_str();
        self.all.reconcile_total.with_label_values(&[name, result.label()]).inc();
        self.time.observe(took.as_secs_f64());
        let cluster = self.all.labels.of(cluster);
        self.all.cluster_reconcile.with_label_values(&[cluster, name]).observe(took.as_secs_f64());
    }
}

/// The series of one cluster's requests.
#[derive(Debug)]
pub(crate) struct RestMetrics {
    host: Arc<str>,
    all: Metrics,
}

impl RestMetrics {
    /// Counts one request's wait for its turn.
    pub(crate) fn waited(&self, method: &Method, waited: Duration) {
        let labels = [method.as_str(), &self.host];
        self.all.limiter_duration.with_label_values(&labels).observe(waited.as_secs_f64());
    }

    /// Counts one request; without a status, one that got no answer.
    pub(crate) fn observe(&self, method: &Method, status: Option<u16>, took: Duration) {
        let code = status.map_or_else(|| "<error>".to_owned(), |status| status.to_string());
        self.all.requests.with_label_values(&[&code, method.as_str(), &self.host]).inc();
        let labels = [method.as_str(), &self.host];
        self.all.request_duration.with_label_values(&labels).observe(took.as_secs_f64());
    }
}

/// The series of one informer.
#[derive(Clone, Debug)]
pub(crate) struct InformerMetrics {
    pub(crate) latency: Histogram,
    restarts: IntCounterVec,
    cluster: Arc<str>,
    kind: Arc<str>,
}

impl InformerMetrics {
    /// Counts a watch that has to be opened again.
    pub(crate) fn restarted(&self, reason: &str) {
        self.restarts.with_label_values(&[&self.cluster, &self.kind, reason]).inc();
    }
}

fn counters(name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, prometheus::Error> {
    IntCounterVec::new(Opts::new(name, help), labels)
}

fn gauges(name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, prometheus::Error> {
    IntGaugeVec::new(Opts::new(name, help), labels)
}

fn histograms(
    name: &str,
    help: &str,
    labels: &[&str],
    buckets: Vec<f64>,
) -> Result<HistogramVec, prometheus::Error> {
    HistogramVec::new(HistogramOpts::new(name, help).buckets(buckets), labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clusters_past_the_cap_share_a_label() {
        let labels = ClusterLabels::new(2);
        let name = |text: &str| text.parse::<ClusterName>().unwrap();
        assert_eq!(labels.of(&name("a")), "a");
        assert_eq!(labels.of(&name("b")), "b");
        assert_eq!(labels.of(&name("c")), model::labels::OTHER_CLUSTERS);
        assert!(labels.release(&name("a")));
        assert_eq!(labels.of(&name("c")), "c");
    }

    #[test]
    fn a_cluster_that_is_gone_leaves_no_series() {
        let registry = Registry::new();
        let metrics = Metrics::new(&registry, 2).unwrap();
        let (east, west): (ClusterName, ClusterName) =
            ("east".parse().unwrap(), "west".parse().unwrap());
        for cluster in [&east, &west] {
            metrics.rest(cluster).observe(&Method::GET, Some(200), Duration::ZERO);
            metrics.rest(cluster).observe(&Method::GET, None, Duration::ZERO);
            metrics.rest(cluster).waited(&Method::GET, Duration::ZERO);
        }
        metrics.forget_cluster(&east);
        let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        assert!(!text.contains("east") && text.contains("west"), "{text}");
    }

    #[test]
    fn queue_buckets_are_those_of_client_go() {
        let buckets = queue_buckets();
        assert_eq!((buckets.len(), buckets[0]), (12, 10e-9));
        assert!((buckets[11] - 1000.0).abs() < 1e-6, "{}", buckets[11]);
    }
}
