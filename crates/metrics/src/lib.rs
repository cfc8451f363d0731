//! What the engine measures: counters and histograms, compatible by name, label and bucket with
//! controller-runtime and client-go, and the series of single clusters ([`SeriesByCluster`]).
//!
//! Does not own: gauges that mirror state, which the engine computes when scraped.
//!
//! # Invariants
//! - Counters of a controller exist, as zeros, before its first reconcile.
//! - Only the series in `clusters` have the name of a cluster as a label value.

mod clusters;
mod received;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::{Method, Response, StatusCode};
use model::wire::Answer;
use model::{ClusterLabels, ClusterName, ControllerName, Kind};
use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
};

pub use crate::clusters::{ClusterSeries, SeriesByCluster};
use queue::QueueMetrics;

/// The `host` of requests: the servers of all clusters are one, because each value costs dozens of series.
const HOST: &str = "clusters";
/// The `name` of informers, as in client-go the program's.
pub const INFORMERS: &str = "leasehold";
/// The code of a request without an answer, as in client-go.
const NO_ANSWER: &str = "<error>";
/// The code of an answer with a status that no standard knows: a server may send hundreds of them.
const UNKNOWN_STATUS: &str = "<unknown>";

const RECONCILE_BUCKETS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9,
    1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0,
    25.0, 30.0, 40.0, 50.0, 60.0,
];
const REST_BUCKETS: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
/// client-go's sizes, in bytes.
const SIZE_BUCKETS: &[f64] = &[
    64.0,
    256.0,
    512.0,
    1024.0,
    4096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
];
const INFORMER_BUCKETS: &[f64] =
    &[0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// client-go's workqueue buckets: ten nanoseconds times powers of ten, twelve of them.
fn queue_buckets() -> Vec<f64> {
    (0..12).map(|power| 10e-9 * 10_f64.powi(power)).collect()
}

/// How a reconcile ended, as controller-runtime labels it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReconcileResult {
    /// It is done.
    Success,
    /// It runs again after a while, because it asked for that or its turn has not come.
    RequeueAfter,
    /// It is tried again, and that is no failure.
    Requeue,
    /// It failed.
    Error,
}

impl ReconcileResult {
    /// In the order of their declaration.
    const ALL: [Self; 4] = [Self::Success, Self::RequeueAfter, Self::Requeue, Self::Error];

    /// Its value of the label `result`.
    pub fn label(self) -> &'static str {
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
pub struct Metrics {
    /// The series of single clusters.
    pub clusters: SeriesByCluster,
    /// Writes that the fence refused.
    pub fence_rejected: IntCounter,
    reconcile_total: IntCounterVec,
    reconcile_errors: IntCounterVec,
    terminal_errors: IntCounterVec,
    panics: IntCounterVec,
    timeouts: IntCounterVec,
    stale: IntCounterVec,
    reconcile_time: HistogramVec,
    max_concurrent: IntGaugeVec,
    active_workers: IntGaugeVec,
    adds: IntCounterVec,
    retries: IntCounterVec,
    queue_duration: HistogramVec,
    work_duration: HistogramVec,
    requests: IntCounterVec,
    request_duration: HistogramVec,
    request_size: HistogramVec,
    response_size: HistogramVec,
    request_retries: IntCounterVec,
    limiter_duration: HistogramVec,
    processing_latency: HistogramVec,
    by_method: Arc<[(Method, MethodSeries); 5]>,
}

/// The series of requests with one method. Each is there from its first count on, and looked up once: a lookup
/// takes more than a count.
#[derive(Debug, Default)]
struct MethodSeries {
    waited: OnceLock<Histogram>,
    sent: OnceLock<Histogram>,
    received: OnceLock<Histogram>,
    took: OnceLock<Histogram>,
    /// Requests that were answered with 200, as most are.
    answered: OnceLock<IntCounter>,
}

impl Metrics {
    /// Makes and registers them. Clusters get their label values from `labels`.
    ///
    /// # Errors
    /// If series of these names are registered already.
    pub fn new(registry: &Registry, labels: Arc<ClusterLabels>) -> Result<Self, prometheus::Error> {
        let queue_labels = &["name", "controller"];
        let metrics = Self {
            clusters: SeriesByCluster::new(labels)?,
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
                "Requests to API servers by answer.",
                &["code", "method", "host"],
            )?,
            request_duration: histograms(
                "rest_client_request_duration_seconds",
                "Time until an API server begins its answer.",
                &["verb", "host"],
                REST_BUCKETS.to_vec(),
            )?,
            request_size: histograms(
                "rest_client_request_size_bytes",
                "Size of the bodies of requests to API servers.",
                &["verb", "host"],
                SIZE_BUCKETS.to_vec(),
            )?,
            response_size: histograms(
                "rest_client_response_size_bytes",
                "Size of the bodies of API servers' answers as far as they were read; watches left out.",
                &["verb", "host"],
                SIZE_BUCKETS.to_vec(),
            )?,
            request_retries: counters(
                "rest_client_request_retries_total",
                "Requests repeated below the controllers. There are none.",
                &["code", "verb", "host"],
            )?,
            limiter_duration: histograms(
                "rest_client_rate_limiter_duration_seconds",
                "How long requests wait for their turn.",
                &["verb", "host"],
                REST_BUCKETS.to_vec(),
            )?,
            processing_latency: histograms(
                "informer_processing_latency_seconds",
                "From the arrival of a watch event until its keys are queued.",
                &["name", "group", "version", "resource"],
                INFORMER_BUCKETS.to_vec(),
            )?,
            by_method: Arc::new(
                [Method::GET, Method::PATCH, Method::POST, Method::PUT, Method::DELETE]
                    .map(|method| (method, MethodSeries::default())),
            ),
        };
        metrics.register(registry)?;
        Ok(metrics)
    }

    fn register(&self, registry: &Registry) -> Result<(), prometheus::Error> {
        registry.register(Box::new(self.clusters.clone()))?;
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
        ] {
            registry.register(Box::new(counters.clone()))?;
        }
        for gauges in [&self.max_concurrent, &self.active_workers] {
            registry.register(Box::new(gauges.clone()))?;
        }
        for histograms in [
            &self.reconcile_time,
            &self.queue_duration,
            &self.work_duration,
            &self.request_duration,
            &self.request_size,
            &self.response_size,
            &self.limiter_duration,
            &self.processing_latency,
        ] {
            registry.register(Box::new(histograms.clone()))?;
        }
        Ok(())
    }

    /// The series of one controller, all of them at zero from now on.
    pub fn controller(&self, name: &ControllerName) -> ControllerMetrics {
        let label = &[name.as_str()];
        let total = |result: ReconcileResult| {
            self.reconcile_total.with_label_values(&[name.as_str(), result.label()])
        };
        ControllerMetrics {
            errors: self.reconcile_errors.with_label_values(label),
            terminal_errors: self.terminal_errors.with_label_values(label),
            panics: self.panics.with_label_values(label),
            timeouts: self.timeouts.with_label_values(label),
            stale: self.stale.with_label_values(label),
            time: self.reconcile_time.with_label_values(label),
            max_concurrent: self.max_concurrent.with_label_values(label),
            active: self.active_workers.with_label_values(label),
            totals: ReconcileResult::ALL.map(total),
            name: name.clone(),
        }
    }

    /// The series of one controller's queue.
    pub fn queue(&self, name: &ControllerName) -> QueueMetrics {
        let label = &[name.as_str(), name.as_str()];
        QueueMetrics {
            adds: self.adds.with_label_values(label),
            retries: self.retries.with_label_values(label),
            waited: self.queue_duration.with_label_values(label),
            worked: self.work_duration.with_label_values(label),
        }
    }

    /// The series of one cluster's requests.
    pub fn rest(&self, cluster: &ClusterName) -> RestMetrics {
        RestMetrics { cluster: cluster.clone(), all: self.clone() }
    }

    /// The series of one cluster's informers.
    pub fn informer(&self, cluster: &ClusterName) -> InformerMetrics {
        InformerMetrics { clusters: self.clusters.clone(), cluster: cluster.clone() }
    }

    /// How long events of a kind take to be queued, in all clusters.
    pub fn latency(&self, kind: &Kind) -> Histogram {
        let labels = [INFORMERS, &kind.group, &kind.version, &kind.plural];
        self.processing_latency.with_label_values(&labels)
    }
}

/// The series of one controller.
#[derive(Clone, Debug)]
pub struct ControllerMetrics {
    /// Reconciles that failed.
    pub errors: IntCounter,
    /// Those that are not retried.
    pub terminal_errors: IntCounter,
    /// Reconciles that panicked.
    pub panics: IntCounter,
    /// Reconciles that took too long.
    pub timeouts: IntCounter,
    /// Reconciles begun before the cache showed what the last one wrote.
    pub stale: IntCounter,
    /// How many reconciles may run.
    pub max_concurrent: IntGauge,
    /// How many do.
    pub active: IntGauge,
    /// In the order of the results' declaration.
    totals: [IntCounter; 4],
    time: Histogram,
    name: ControllerName,
}

impl ControllerMetrics {
    /// Counts one reconcile that ended.
    pub fn observe(&self, cluster: &ClusterSeries, result: ReconcileResult, took: Duration) {
        self.totals[result as usize].inc();
        self.time.observe(took.as_secs_f64());
        cluster.reconciled(&self.name, result, took);
    }
}

/// The series of one cluster's requests.
#[derive(Debug)]
pub struct RestMetrics {
    cluster: ClusterName,
    all: Metrics,
}

impl RestMetrics {
    /// Counts one request's wait for its turn.
    pub fn waited(&self, method: &Method, waited: Duration) {
        let count = |times: &Histogram| times.observe(waited.as_secs_f64());
        self.with(method, |series| &series.waited, &self.all.limiter_duration, count);
    }

    /// Counts the bytes of one request's body.
    #[expect(clippy::cast_precision_loss, reason = "a float holds the size of every body exactly")]
    pub fn sent(&self, method: &Method, bytes: u64) {
        let count = |sizes: &Histogram| sizes.observe(bytes as f64);
        self.with(method, |series| &series.sent, &self.all.request_size, count);
    }

    /// The same answer, whose bytes are counted when it has been read or is dropped.
    pub fn counted(&self, method: &Method, answer: Response<Answer>) -> Response<Answer> {
        let all = &self.all.response_size;
        let sizes = self.with(method, |series| &series.received, all, Histogram::clone);
        received::counted(sizes, answer)
    }

    /// Counts one request; without a status, one that got no answer.
    pub fn observe(&self, method: &Method, status: Option<StatusCode>, took: Duration) {
        let code = match &status {
            None => NO_ANSWER,
            Some(status) if status.canonical_reason().is_none() => UNKNOWN_STATUS,
            Some(status) => status.as_str(),
        };
        let requests = || self.all.requests.with_label_values(&[code, method.as_str(), HOST]);
        match self.series(method) {
            Some(series) if status == Some(StatusCode::OK) => {
                series.answered.get_or_init(requests).inc();
            }
            _ => requests().inc(),
        }
        let count = |times: &Histogram| times.observe(took.as_secs_f64());
        self.with(method, |series| &series.took, &self.all.request_duration, count);
        if let Some(series) = self.all.clusters.of(&self.cluster) {
            series.requested(status.map(|status| status.as_u16()), took);
        }
    }

    /// The series of a method, if it is one of those that change or read objects.
    fn series(&self, method: &Method) -> Option<&MethodSeries> {
        let mut all = self.all.by_method.iter();
        all.find(|(known, _)| known == method).map(|(_, series)| series)
    }

    /// Does `act` with one of the histograms of a method, which is among `all`.
    fn with<T>(
        &self,
        method: &Method,
        one: fn(&MethodSeries) -> &OnceLock<Histogram>,
        all: &HistogramVec,
        act: impl FnOnce(&Histogram) -> T,
    ) -> T {
        let look_up = || all.with_label_values(&[method.as_str(), HOST]);
        match self.series(method) {
            Some(series) => act(one(series).get_or_init(look_up)),
            None => act(&look_up()),
        }
    }
}

/// The series of one informer.
#[derive(Clone, Debug)]
pub struct InformerMetrics {
    clusters: SeriesByCluster,
    cluster: ClusterName,
}

impl InformerMetrics {
    /// Counts a watch that has to be opened again.
    pub fn restarted(&self, reason: &str) {
        if let Some(series) = self.clusters.of(&self.cluster) {
            series.watch_restarted(reason);
        }
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

    /// Requests do not outlive the last shard in the series of their cluster, and a server that answers with
    /// every status there is costs no more than one that knows the standard.
    #[test]
    fn requests_are_counted_by_cluster_only_where_this_member_works() {
        let registry = Registry::new();
        let metrics = Metrics::new(&registry, Arc::default()).unwrap();
        let (east, west): (ClusterName, ClusterName) =
            ("east".parse().unwrap(), "west".parse().unwrap());
        let _held = metrics.clusters.hold(&east);
        for cluster in [&east, &west] {
            let rest = metrics.rest(cluster);
            for status in (100..1000).filter_map(|code| StatusCode::from_u16(code).ok()) {
                rest.observe(&Method::GET, Some(status), Duration::ZERO);
            }
            rest.observe(&Method::GET, None, Duration::ZERO);
            rest.waited(&Method::GET, Duration::ZERO);
            rest.observe(&Method::HEAD, Some(StatusCode::OK), Duration::ZERO);
        }
        let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        assert!(text.contains("cluster=\"east\"") && !text.contains("west"), "{text}");
        assert!(text.matches("rest_client_requests_total{").count() < 80, "{text}");
        for (code, method) in [("<error>", "GET"), ("200", "GET"), ("200", "HEAD")] {
            let labels = format!(r#"code="{code}",host="clusters",method="{method}""#);
            let line = format!("rest_client_requests_total{{{labels}}} 2");
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
        assert!(!text.contains("POST"), "a series is there from its first count on: {text}");
    }

    #[test]
    fn queue_buckets_are_those_of_client_go() {
        let buckets = queue_buckets();
        assert_eq!((buckets.len(), buckets[0]), (12, 10e-9));
        assert!((buckets[11] - 1000.0).abs() < 1e-6, "{}", buckets[11]);
    }
}
