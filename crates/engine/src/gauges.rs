//! Gauges that mirror state, computed when scraped: depths, ages, caches, watches. No code has to
//! remember to update them, and what no longer exists leaves no series behind.
//!
//! # Invariants
//! - A cluster has series while this member works on it, or leaves it alone because of its budget.
//! - What there is nothing to say about has none: a kind without objects or one that is not divided, a server that
//!   speaks, a queue without keys.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use model::{ClusterName, Moment};
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{GaugeVec, IntGauge, IntGaugeVec, Opts};

use crate::assignment::AssignmentQueue;
use crate::status::Board;
use cache::DecodedCache;
use extent::ShardMode;
use informer::InformerState;
use metrics::{ClusterSeries, INFORMERS, SeriesByCluster};
use queue::Priority;
use upstream::Reading;

/// Only a longer silence of a server says something: servers send a bookmark about each minute.
const QUIET: Duration = Duration::from_secs(75);
/// Kinds of which the cache holds less share a series.
const SMALL_BYTES: usize = 64 << 10;
const SMALL_KINDS: &str = "other";

/// Computes the gauges of one engine.
pub(crate) struct Gauges {
    board: Arc<Board>,
    clusters: SeriesByCluster,
    decoded: Arc<DecodedCache>,
    descs: Vec<Desc>,
    /// One scrape at a time fills and reads them.
    families: Mutex<Families>,
}

struct Families {
    depth: IntGaugeVec,
    unfinished: GaugeVec,
    longest: GaugeVec,
    oldest: GaugeVec,
    cluster_depth: IntGaugeVec,
    queued_items: IntGaugeVec,
    store_version: GaugeVec,
    lag: GaugeVec,
    objects: IntGaugeVec,
    bytes: IntGaugeVec,
    decoded: IntGauge,
    mode: IntGaugeVec,
    missing: IntGaugeVec,
    breaker: IntGaugeVec,
    quarantined: IntGaugeVec,
    throttled: IntGaugeVec,
    concurrency: IntGaugeVec,
}

/// The clusters on which this member works.
type HeldClusters = BTreeMap<ClusterName, Arc<ClusterSeries>>;

impl Gauges {
    pub(crate) fn new(
        board: Arc<Board>,
        clusters: SeriesByCluster,
        decoded: Arc<DecodedCache>,
    ) -> Result<Self, prometheus::Error> {
        let families = Families::new()?;
        let descs = families.collectors().iter().flat_map(|c| c.desc()).cloned().collect();
        Ok(Self { board, clusters, decoded, descs, families: Mutex::new(families) })
    }
}

impl Collector for Gauges {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let families = self.families.lock().expect("no holder of this lock panics");
        let (now, held) = (self.board.now(), self.clusters.all());
        families.reset();
        for queue in self.board.queues() {
            families.queue(queue, &held);
        }
        for informer in self.board.informers() {
            families.informer(&informer, now, &held);
        }
        for labels in self.board.presences().missing(&held) {
            families.missing.with_label_values(&labels.each_ref().map(String::as_str)).set(1);
        }
        for (cluster, gate) in self.board.gates() {
            if let Some(series) = held.get(&cluster) {
                families.gate(series, &gate.reading(now));
            }
        }
        let alone = self.board.quarantines().words(now).into_iter();
        let labels = self.clusters.labels();
        let alone = alone.map(|(cluster, reason)| (labels.keep_idle(&cluster), reason));
        // Given back at the end of the scrape.
        let alone: Vec<_> = alone.collect();
        for (cluster, reason) in &alone {
            families.quarantined.with_label_values(&[cluster.value(), *reason]).set(1);
        }
        families.decoded.set(i64::try_from(self.decoded.bytes()).unwrap_or(i64::MAX));
        families.collectors().iter().flat_map(|collector| collector.collect()).collect()
    }
}

impl Families {
    fn new() -> Result<Self, prometheus::Error> {
        let queue = &["name", "controller"];
        let informer = &["name", "group", "version", "resource"];
        let watch = &["cluster", "kind"];
        Ok(Self {
            depth: ints("workqueue_depth", "Ready keys.", &["name", "controller", "priority"])?,
            unfinished: floats(
                "workqueue_unfinished_work_seconds",
                "Time that the keys being reconciled have taken so far, summed.",
                queue,
            )?,
            longest: floats(
                "workqueue_longest_running_processor_seconds",
                "Time that the longest running reconcile has taken so far.",
                queue,
            )?,
            oldest: floats(
                "leasehold_queue_oldest_item_seconds",
                "How long the key has waited that is ready longest.",
                &["controller"],
            )?,
            cluster_depth: ints(
                "leasehold_cluster_queue_depth",
                "Ready keys by cluster.",
                &["cluster", "controller"],
            )?,
            queued_items: ints(
                "informer_queued_items",
                "Events of all clusters that wait for subscribers.",
                informer,
            )?,
            store_version: floats(
                "informer_store_resource_version",
                "The newest resourceVersion seen, of all clusters.",
                informer,
            )?,
            lag: floats(
                "leasehold_watch_lag_seconds",
                "Since the server was last heard, from 75 seconds on.",
                watch,
            )?,
            objects: ints(
                "leasehold_cache_objects",
                "Objects in the cache. Kinds below 64 KiB share a series.",
                watch,
            )?,
            bytes: ints(
                "leasehold_cache_bytes",
                "Bytes of the cache: objects, tables, dictionaries. Kinds below 64 KiB share a series.",
                watch,
            )?,
            decoded: IntGauge::new(
                "leasehold_cache_decoded_bytes",
                "Bytes of decoded objects that are worked on, an estimate.",
            )?,
            mode: ints(
                "leasehold_shard_mode",
                "1 for the way a kind is divided into ranges: by the server, or the client.",
                &["cluster", "kind", "mode"],
            )?,
            missing: ints(
                "leasehold_source_missing",
                "1 for a kind that a controller watches, and that a cluster lacks or does not let us watch.",
                &["cluster", "controller", "kind", "optional"],
            )?,
            breaker: ints(
                "leasehold_cluster_breaker_state",
                "Whether requests to a cluster pass: 0 closed, they do; 1 half-open, one does to see \
                 whether it answers; 2 open, none does until a pause is over.",
                &["cluster"],
            )?,
            quarantined: ints(
                "leasehold_cluster_quarantined",
                "1 for a cluster that exceeded its budget and is left alone until a pause is over, with the \
                 bound that it exceeded.",
                &["cluster", "reason"],
            )?,
            throttled: ints(
                "leasehold_cluster_throttled",
                "1 for a cluster of which less is taken in than it sends, so that others do not notice it, \
                 with the reason: changes, more than 2,000 a second; pages, which come slowly.",
                &["cluster", "reason"],
            )?,
            concurrency: ints(
                "leasehold_cluster_concurrency_limit",
                "Requests to a cluster that may be under way at once, fewer when it is overloaded.",
                &["cluster"],
            )?,
        })
    }

    fn collectors(&self) -> [&dyn Collector; 17] {
        [
            &self.depth,
            &self.unfinished,
            &self.longest,
            &self.oldest,
            &self.cluster_depth,
            &self.queued_items,
            &self.store_version,
            &self.lag,
            &self.objects,
            &self.bytes,
            &self.decoded,
            &self.mode,
            &self.missing,
            &self.breaker,
            &self.quarantined,
            &self.throttled,
            &self.concurrency,
        ]
    }

    fn reset(&self) {
        for floats in
            [&self.unfinished, &self.longest, &self.oldest, &self.store_version, &self.lag]
        {
            floats.reset();
        }
        for ints in [
            &self.depth,
            &self.cluster_depth,
            &self.queued_items,
            &self.objects,
            &self.bytes,
            &self.mode,
            &self.missing,
            &self.breaker,
            &self.quarantined,
            &self.throttled,
            &self.concurrency,
        ] {
            ints.reset();
        }
    }

    fn queue(&self, queue: &AssignmentQueue, held: &HeldClusters) {
        let name = queue.name().as_str();
        let (gauges, clusters) = queue.gauges();
        for (priority, depth) in Priority::ALL.into_iter().zip(gauges.depth) {
            self.depth.with_label_values(&[name, name, priority.label()]).set(int(depth));
        }
        let queue = &[name, name];
        self.unfinished.with_label_values(queue).set(gauges.unfinished.as_secs_f64());
        self.longest.with_label_values(queue).set(gauges.longest_running.as_secs_f64());
        self.oldest.with_label_values(&[name]).set(gauges.oldest.as_secs_f64());
        for (cluster, depth) in clusters.into_iter().filter(|(_, depth)| *depth > 0) {
            if let Some(series) = held.get(&cluster) {
                // Clusters past the cap share a series, so add.
                self.cluster_depth.with_label_values(&[series.label(), name]).add(int(depth));
            }
        }
    }

    fn gate(&self, series: &ClusterSeries, reading: &Reading) {
        let cluster = &[series.label()];
        // Clusters past the cap share a series: it shows the worst breaker, and the sum of limits.
        let breaker = self.breaker.with_label_values(cluster);
        breaker.set(breaker.get().max(reading.phase.number()));
        self.concurrency.with_label_values(cluster).add(int(reading.limit));
    }

    fn informer(&self, informer: &InformerState, now: Moment, held: &HeldClusters) {
        let kind = &informer.target.kind;
        let resource = [INFORMERS, &*kind.group, &*kind.version, &*kind.plural];
        self.queued_items.with_label_values(&resource).add(int(informer.queued()));
        let Some(series) = held.get(&informer.target.cluster) else { return };
        if let Some(seen) = informer.seen().and_then(|seen| seen.to_string().parse::<f64>().ok()) {
            let gauge = self.store_version.with_label_values(&resource);
            gauge.set(gauge.get().max(seen));
        }
        let (cluster, kind) = (series.label(), kind.to_string());
        for reason in informer.intake.throttled() {
            self.throttled.with_label_values(&[cluster, reason.label()]).set(1);
        }
        // Clusters past the cap share these series.
        let watch = &[cluster, kind.as_str()];
        if let Some(lag) = informer.lag(now).filter(|lag| *lag >= QUIET) {
            let gauge = self.lag.with_label_values(watch);
            gauge.set(gauge.get().max(lag.as_secs_f64()));
        }
        let mode = informer.condition().mode;
        if mode != ShardMode::None {
            self.mode.with_label_values(&[cluster, kind.as_str(), mode.label()]).set(1);
        }
        if !informer.store.is_empty() {
            let bytes = informer.store.bytes();
            let of = &[cluster, if bytes < SMALL_BYTES { SMALL_KINDS } else { kind.as_str() }];
            self.objects.with_label_values(of).add(int(informer.store.len()));
            self.bytes.with_label_values(of).add(int(bytes));
        }
    }
}

fn int(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn ints(name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, prometheus::Error> {
    IntGaugeVec::new(Opts::new(name, help), labels)
}

fn floats(name: &str, help: &str, labels: &[&str]) -> Result<GaugeVec, prometheus::Error> {
    GaugeVec::new(Opts::new(name, help), labels)
}
