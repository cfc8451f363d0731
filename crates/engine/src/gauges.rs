//! Gauges that mirror state, computed when scraped: depths, ages, caches, watches. No code has to
//! remember to update them, and what no longer exists leaves no series behind.

use std::sync::{Arc, Mutex};

use model::{ClusterLabels, ClusterName};
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{GaugeVec, IntGauge, IntGaugeVec, Opts};

use crate::assignment::AssignmentQueue;
use crate::informer::InformerState;
use crate::status::Board;
use cache::DecodedCache;
use queue::Priority;
use upstream::Reading;

/// Computes the gauges of one engine.
pub(crate) struct Gauges {
    board: Arc<Board>,
    labels: Arc<ClusterLabels>,
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
    available: IntGaugeVec,
    breaker: IntGaugeVec,
    quarantined: IntGaugeVec,
    concurrency: IntGaugeVec,
}

impl Gauges {
    pub(crate) fn new(
        board: Arc<Board>,
        labels: Arc<ClusterLabels>,
        decoded: Arc<DecodedCache>,
    ) -> Result<Self, prometheus::Error> {
        let families = Families::new()?;
        let descs = families.collectors().iter().flat_map(|c| c.desc()).cloned().collect();
        Ok(Self { board, labels, decoded, descs, families: Mutex::new(families) })
    }
}

impl Collector for Gauges {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let families = self.families.lock().expect("no holder of this lock panics");
        families.reset();
        for queue in self.board.queues() {
            families.queue(queue, &self.labels);
        }
        for informer in self.board.informers() {
            let lag = informer.lag(self.board.now()).map(|lag| lag.as_secs_f64());
            families.informer(&informer, lag, &self.labels);
        }
        for (labels, is_there) in self.board.presences().availability(&self.labels) {
            let labels = labels.each_ref().map(String::as_str);
            families.available.with_label_values(&labels).set(i64::from(is_there));
        }
        for (cluster, gate) in self.board.gates() {
            families.gate(&cluster, &gate.reading(self.board.now()), &self.labels);
        }
        for (cluster, reason) in self.board.quarantines().words(self.board.now()) {
            let cluster = self.labels.of(&cluster);
            families.quarantined.with_label_values(&[cluster, reason]).set(1);
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
                "Events that wait for subscribers. The name is the cluster's.",
                informer,
            )?,
            store_version: floats(
                "informer_store_resource_version",
                "The newest resourceVersion seen. The name is the cluster's.",
                informer,
            )?,
            lag: floats("leasehold_watch_lag_seconds", "Since the server was last heard.", watch)?,
            objects: ints("leasehold_cache_objects", "Objects in the cache.", watch)?,
            bytes: ints(
                "leasehold_cache_bytes",
                "Bytes of the cache: objects, tables, dictionaries.",
                watch,
            )?,
            decoded: IntGauge::new(
                "leasehold_cache_decoded_bytes",
                "Bytes of decoded objects that are worked on, an estimate.",
            )?,
            mode: ints(
                "leasehold_shard_mode",
                "1 for the way a kind is divided into ranges: by the server, the client, or not.",
                &["cluster", "kind", "mode"],
            )?,
            available: ints(
                "leasehold_source_available",
                "1 if a cluster has a kind that a controller watches and lets it be watched, else 0.",
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
            concurrency: ints(
                "leasehold_cluster_concurrency_limit",
                "Requests to a cluster that may be under way at once, fewer when it is overloaded.",
                &["cluster"],
            )?,
        })
    }

    fn collectors(&self) -> [&dyn Collector; 16] {
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
            &self.available,
            &self.breaker,
            &self.quarantined,
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
            &self.available,
            &self.breaker,
            &self.quarantined,
            &self.concurrency,
        ] {
            ints.reset();
        }
    }

    fn queue(&self, queue: &AssignmentQueue, labels: &ClusterLabels) {
        let name = queue.name().as_str();
        let (gauges, clusters) = queue.gauges();
        for (priority, depth) in Priority::ALL.into_iter().zip(gauges.depth) {
            self.depth.with_label_values(&[name, name, priority.label()]).set(int(depth));
        }
        let queue = &[name, name];
        self.unfinished.with_label_values(queue).set(gauges.unfinished.as_secs_f64());
        self.longest.with_label_values(queue).set(gauges.longest_running.as_secs_f64());
        self.oldest.with_label_values(&[name]).set(gauges.oldest.as_secs_f64());
        for (cluster, depth) in clusters {
            // Clusters past the cap share a series, so add.
            self.cluster_depth.with_label_values(&[labels.of(&cluster), name]).add(int(depth));
        }
    }

    fn gate(&self, cluster: &ClusterName, reading: &Reading, labels: &ClusterLabels) {
        let cluster = &[labels.of(cluster)];
        // Clusters past the cap share a series: it shows the worst breaker, and the sum of limits.
        let breaker = self.breaker.with_label_values(cluster);
        breaker.set(breaker.get().max(reading.phase.number()));
        self.concurrency.with_label_values(cluster).add(int(reading.limit));
    }

    fn informer(&self, informer: &InformerState, lag: Option<f64>, labels: &ClusterLabels) {
        let kind = &informer.target.kind;
        let cluster = labels.of(&informer.target.cluster);
        let resource = &[cluster, &*kind.group, &*kind.version, &*kind.plural];
        self.queued_items.with_label_values(resource).add(int(informer.queued()));
        if let Ok(version) = informer.condition().resource_version.parse::<f64>() {
            self.store_version.with_label_values(resource).set(version);
        }
        let kind = kind.to_string();
        let watch = &[cluster, kind.as_str()];
        if let Some(lag) = lag {
            let gauge = self.lag.with_label_values(watch);
            gauge.set(gauge.get().max(lag));
        }
        self.objects.with_label_values(watch).add(int(informer.store.len()));
        self.bytes.with_label_values(watch).add(int(informer.store.bytes()));
        let mode = informer.condition().mode.label();
        self.mode.with_label_values(&[cluster, kind.as_str(), mode]).set(1);
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
