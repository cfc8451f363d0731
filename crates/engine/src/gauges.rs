//! Gauges that mirror state, computed when scraped: depths, ages, caches, watches. No code has to
//! remember to update them, and what no longer exists leaves no series behind.
//!
//! # Invariants
//! - A cluster has series while this member works on it, or leaves it alone because of its budget.
//! - What there is nothing to say about has none: a kind without objects or one that is not divided, a server that
//!   speaks, a queue without keys.
//! - However many kinds there are, a cluster has series of a few: those of which there is most to say. All others
//!   share a series, `kind="other"`. So no server that falls silent, or lacks every kind, costs more than others.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
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
/// The most kinds of a cluster that have series of their own in one family.
const MOST_KINDS: usize = 4;
/// The most kinds that a cluster lacks, each for a controller. Of a controller whose kind is missing there is
/// nothing else to say.
const MOST_MISSING: usize = 8;
/// All other kinds, and controllers.
const OTHERS: &str = "other";

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
    queue_limit: IntGaugeVec,
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
        let mut by_cluster: BTreeMap<&str, Kinds> = BTreeMap::new();
        for informer in self.board.informers() {
            families.informer(&informer, now, &held, &mut by_cluster);
        }
        for (cluster, kinds) in by_cluster {
            families.kinds(cluster, kinds);
        }
        families.missing(self.board.presences().missing(&held));
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
            queue_limit: ints(
                "leasehold_queue_concurrency_limit",
                "Reconciles that may run at once, of all clusters that get on: fewer while their writes make \
                 each other late.",
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
                "Objects in the cache. Kinds below 64 KiB, and those after the largest, share a series.",
                watch,
            )?,
            bytes: ints(
                "leasehold_cache_bytes",
                "Bytes of the cache: objects, tables, dictionaries. Kinds below 64 KiB, and those after the \
                 largest, share a series.",
                watch,
            )?,
            decoded: IntGauge::new(
                "leasehold_cache_decoded_bytes",
                "Bytes of decoded objects that are worked on: with jemalloc counted, else an estimate.",
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

    fn collectors(&self) -> [&dyn Collector; 18] {
        [
            &self.depth,
            &self.unfinished,
            &self.longest,
            &self.oldest,
            &self.queue_limit,
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
        self.queue_limit.with_label_values(&[name]).set(int(gauges.concurrency_limit));
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

    fn informer<'h>(
        &self,
        informer: &InformerState,
        now: Moment,
        held: &'h HeldClusters,
        by_cluster: &mut BTreeMap<&'h str, Kinds>,
    ) {
        let kind = &informer.target.kind;
        let resource = [INFORMERS, &*kind.group, &*kind.version, &*kind.plural];
        self.queued_items.with_label_values(&resource).add(int(informer.queued()));
        let Some(series) = held.get(&informer.target.cluster) else { return };
        if let Some(seen) = informer.seen().and_then(|seen| seen.to_string().parse::<f64>().ok()) {
            let gauge = self.store_version.with_label_values(&resource);
            gauge.set(gauge.get().max(seen));
        }
        for reason in informer.intake.throttled() {
            self.throttled.with_label_values(&[series.label(), reason.label()]).set(1);
        }
        // Clusters past the cap are one.
        let kinds = by_cluster.entry(series.label()).or_default();
        if let Some(lag) = informer.lag(now).filter(|lag| *lag >= QUIET) {
            let known = kinds.silent.entry(kind.to_string()).or_default();
            *known = lag.max(*known);
        }
        let mode = informer.condition().mode;
        if mode != ShardMode::None {
            kinds.divided.insert((kind.to_string(), mode.label()));
        }
        if !informer.store.is_empty() {
            let cached = kinds.cached.entry(kind.to_string()).or_default();
            cached.objects += informer.store.len();
            cached.bytes += informer.store.bytes();
        }
    }

    /// Shows what there is to say about the kinds of a cluster.
    fn kinds(&self, cluster: &str, kinds: Kinds) {
        let Kinds { cached, silent, divided } = kinds;
        let mut cached: Vec<_> = cached.into_iter().collect();
        cached.sort_by_key(|(_, cached)| Reverse(cached.bytes));
        for (at, (kind, Amount { objects, bytes })) in cached.iter().enumerate() {
            let of = &[cluster, if *bytes < SMALL_BYTES { OTHERS } else { shown(at, kind) }];
            self.objects.with_label_values(of).add(int(*objects));
            self.bytes.with_label_values(of).add(int(*bytes));
        }
        let mut silent: Vec<_> = silent.into_iter().collect();
        silent.sort_by_key(|(_, lag)| Reverse(*lag));
        for (at, (kind, lag)) in silent.iter().enumerate() {
            let of = &[cluster, shown(at, kind)];
            let gauge = self.lag.with_label_values(of);
            gauge.set(gauge.get().max(lag.as_secs_f64()));
        }
        for (at, (kind, mode)) in divided.iter().enumerate() {
            self.mode.with_label_values(&[cluster, shown(at, kind), *mode]).set(1);
        }
    }

    /// Shows the kinds that clusters lack: of each cluster a few, those that are needed first.
    fn missing(&self, all: BTreeSet<[String; 4]>) {
        let mut by_cluster: BTreeMap<String, Vec<[String; 3]>> = BTreeMap::new();
        for [cluster, controller, kind, optional] in all {
            by_cluster.entry(cluster).or_default().push([optional, controller, kind]);
        }
        for (cluster, mut missing) in by_cluster {
            // "false" comes before "true".
            missing.sort();
            for (at, [optional, controller, kind]) in missing.iter().enumerate() {
                let [controller, kind] = match at < MOST_MISSING {
                    true => [controller.as_str(), kind.as_str()],
                    false => [OTHERS; 2],
                };
                let of = &[cluster.as_str(), controller, kind, optional.as_str()];
                self.missing.with_label_values(of).set(1);
            }
        }
    }
}

/// What there is to say about the kinds of the clusters with one label value.
#[derive(Default)]
struct Kinds {
    cached: BTreeMap<String, Amount>,
    /// For how long its server was not heard.
    silent: BTreeMap<String, Duration>,
    divided: BTreeSet<(String, &'static str)>,
}

#[derive(Default)]
struct Amount {
    objects: usize,
    bytes: usize,
}

/// Under which name a kind is shown that comes after so many others.
fn shown(before: usize, kind: &str) -> &str {
    if before < MOST_KINDS { kind } else { OTHERS }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The series of a family: the values of their labels.
    fn series(family: &dyn Collector) -> Vec<String> {
        let found = family.collect();
        let found = found.iter().flat_map(|family| family.get_metric());
        let values = found.map(|metric| {
            let values: Vec<_> = metric.get_label().iter().map(|pair| pair.value()).collect();
            values.join(" ")
        });
        let mut values: Vec<_> = values.collect();
        values.sort();
        values
    }

    #[test]
    fn however_many_kinds_a_cluster_has_they_cost_a_few_series() {
        let families = Families::new().unwrap();
        let mut kinds = Kinds::default();
        for number in 1..=40_u32 {
            let kind = format!("kind-{number}");
            let bytes = number as usize * SMALL_BYTES;
            kinds.cached.insert(kind.clone(), Amount { objects: 1, bytes });
            kinds.silent.insert(kind.clone(), QUIET * number);
            kinds.divided.insert((kind, "client"));
        }
        families.kinds("east", kinds);
        let first = ["kind-37", "kind-38", "kind-39", "kind-40", "other"];
        let first = first.map(|kind| format!("east {kind}"));
        for family in [&families.objects, &families.bytes] {
            assert_eq!(series(family), first);
        }
        assert_eq!(families.objects.with_label_values(&["east", "other"]).get(), 36);
        assert_eq!(series(&families.lag), first);
        let worst = families.lag.with_label_values(&["east", "other"]).get();
        assert!((worst - (QUIET * 36).as_secs_f64()).abs() < 1e-9, "{worst}");
        assert_eq!(series(&families.mode).len(), MOST_KINDS + 1);
    }

    #[test]
    fn however_much_a_cluster_lacks_it_costs_a_few_series_and_what_is_needed_comes_first() {
        let families = Families::new().unwrap();
        let lacks =
            |kind: &str, optional: &str| ["east", "maps", kind, optional].map(str::to_owned);
        let optional = (0..40).map(|number| lacks(&format!("a{number}"), "true"));
        families.missing(optional.chain([lacks("z", "false")]).collect());
        let found = series(&families.missing);
        assert_eq!(found.len(), MOST_MISSING + 1, "{found:?}");
        for expect in ["east maps z false", "east other other true"] {
            assert!(found.iter().any(|found| found == expect), "{expect} in {found:?}");
        }
    }
}
