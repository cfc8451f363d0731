//! What is read of the managers while they run: CPU time, memory, and their metrics.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::future::join_all;
use loadtest::scrape::{self, Histogram};
use loadtest::usage::Usage;
use serde::Serialize;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

use crate::probe::Probe;
use crate::series::ReplicaSecond;

/// How often the managers are looked at.
const EVERY: Duration = Duration::from_secs(1);
/// A manager is scraped for the time series at most a fiftieth of the time, so that large pages do not
/// change what is measured.
const REST: u32 = 50;

/// How long one may take to answer, so that a manager that hangs hides no second of the others.
const ANSWER_BOUND: Duration = Duration::from_millis(800);

/// What one page of metrics costs.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Scraped {
    /// Its series.
    pub series: usize,
    /// Those of the cluster that has most.
    pub most_of_a_cluster: usize,
    /// Its length.
    pub bytes: usize,
    /// Its length as it travels, compressed with gzip. Absent where it is read through an API server.
    pub compressed_bytes: Option<usize>,
}

/// One replica's figures at one moment.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// When, since the start of the run.
    pub at: Duration,
    /// CPU time and memory.
    pub usage: Usage,
    /// Its metrics.
    pub scraped: Scraped,
    /// Reconciles so far.
    pub reconciles: f64,
    /// Errors so far.
    pub errors: f64,
    /// Shards held.
    pub shards: f64,
    /// Requests to the home cluster so far.
    pub home_requests: f64,
    /// Time in queue so far, of the measured clusters.
    pub queue: Histogram,
    /// Time in reconcile so far.
    pub reconcile: Histogram,
}

/// What the sampler remembers of a process.
struct Previous {
    at: Duration,
    cpu: Duration,
    /// When it may be scraped again.
    scrape_from: Duration,
    figures: ReplicaSecond,
}

/// Everything about one manager now. Labels of the measured clusters' series contain one of `measured`.
///
/// # Errors
/// If it does not answer, or has ended.
pub async fn sample(
    probe: &Probe,
    started: Instant,
    measured: &[String],
) -> anyhow::Result<Sample> {
    let text = probe.metrics().await?;
    let (series, most_of_a_cluster) = scrape::series(&text, "cluster");
    let scraped = Scraped {
        series,
        most_of_a_cluster,
        bytes: text.len(),
        compressed_bytes: probe.compressed_bytes().await?,
    };
    Ok(Sample {
        at: started.elapsed(),
        usage: probe.usage(Some(&text))?,
        scraped,
        reconciles: scrape::sum(&text, "controller_runtime_reconcile_total"),
        errors: scrape::sum(&text, "controller_runtime_reconcile_errors_total"),
        shards: scrape::sum(&text, SHARDS),
        home_requests: scrape::sum(&text, "leasehold_home_requests_total"),
        queue: waits(&text, measured),
        reconcile: scrape::histogram(&text, "controller_runtime_reconcile_time_seconds"),
    })
}

/// Time in queue of the measured clusters.
pub fn waits(text: &str, measured: &[String]) -> Histogram {
    scrape::histogram_where(text, "leasehold_cluster_queue_seconds", |labels| {
        measured.iter().any(|cluster| labels.contains(cluster.as_str()))
    })
}

/// The metric that says how many shards a replica holds.
pub const SHARDS: &str = "leasehold_shards_owned";

/// Looks at all managers every second, until the sender of their list is dropped. Returns what it saw by
/// seconds since the start of the run. A second in which a busy machine gave it no time is absent. A Pod that does
/// not answer in time has the memory and shards that it had before.
pub async fn every_second(
    managers: watch::Receiver<Vec<Probe>>,
    started: Instant,
) -> BTreeMap<u32, Vec<ReplicaSecond>> {
    let mut seen = BTreeMap::new();
    let mut known: BTreeMap<String, Previous> = BTreeMap::new();
    let mut tick = tokio::time::interval_at(started + EVERY, EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
    while managers.has_changed().is_ok() {
        tick.tick().await;
        let probes = managers.borrow().clone();
        let now = started.elapsed();
        let looks = probes.iter().map(|probe| {
            let rested = known.get(&probe.name).is_none_or(|p| p.scrape_from <= now);
            look(probe, rested || probe.is_pod(), started)
        });
        let looks: Vec<Look> = join_all(looks).await.into_iter().flatten().collect();
        let second = u32::try_from(now.as_secs()).unwrap_or(u32::MAX);
        let mut replicas: Vec<ReplicaSecond> =
            looks.iter().map(|look| look.figures(known.get(&look.name))).collect();
        let seen_now = |name: &String| looks.iter().any(|look| look.name == *name);
        let late = probes.iter().filter(|probe| probe.is_pod() && !seen_now(&probe.name));
        let before = late.filter_map(|probe| Some(known.get(&probe.name)?.figures.clone()));
        replicas.extend(before.map(|before| ReplicaSecond { cores: None, ..before }));
        // What a second shows is that which it began with.
        seen.insert(second.saturating_sub(1), replicas);
        for look in looks {
            known.insert(look.name.clone(), look.remembered(&known));
        }
    }
    seen
}

/// What one look at a manager showed.
struct Look {
    name: String,
    at: Duration,
    usage: Usage,
    /// What it says of itself, if it was scraped, and how long that took.
    scraped: Option<(Said, Duration)>,
}

/// What a replica says of itself.
#[derive(Clone, Copy)]
struct Said {
    queued: f64,
    shards: f64,
    series: f64,
    tasks: f64,
    open_files: f64,
}

impl Said {
    fn read(text: &str) -> Self {
        let sum = |name| scrape::sum(text, name);
        Self {
            queued: sum("workqueue_depth"),
            shards: sum(SHARDS),
            series: scrape::series(text, "cluster").0 as f64,
            tasks: sum("leasehold_runtime_tasks"),
            open_files: sum("process_open_fds"),
        }
    }
}

async fn look(probe: &Probe, may_scrape: bool, started: Instant) -> Option<Look> {
    let began = started.elapsed();
    let text = match may_scrape {
        true => tokio::time::timeout(ANSWER_BOUND, probe.metrics()).await.ok().and_then(Result::ok),
        false => None,
    };
    let at = started.elapsed();
    // A process that has ended is absent.
    let usage = probe.usage(text.as_deref()).ok()?;
    let took = at - began;
    let scraped = text.map(|text| (Said::read(&text), took));
    Some(Look { name: probe.name.clone(), at, usage, scraped })
}

impl Look {
    fn figures(&self, previous: Option<&Previous>) -> ReplicaSecond {
        let cores = previous.map(|previous| {
            let used = self.usage.cpu.saturating_sub(previous.cpu);
            used.as_secs_f64() / (self.at - previous.at).as_secs_f64()
        });
        let said = self.scraped.map(|(said, _)| said);
        ReplicaSecond {
            name: self.name.clone(),
            cores,
            resident_mib: self.usage.resident_bytes as f64 / f64::from(1 << 20),
            queued: said.map(|said| said.queued),
            shards: said.map(|said| said.shards),
            series: said.map(|said| said.series),
            tasks: said.map(|said| said.tasks),
            open_files: said.map(|said| said.open_files),
        }
    }

    fn remembered(&self, known: &BTreeMap<String, Previous>) -> Previous {
        let scrape_from = match (self.scraped, known.get(&self.name)) {
            (Some((_, took)), _) => self.at + took * REST,
            (None, Some(previous)) => previous.scrape_from,
            (None, None) => self.at,
        };
        let figures = self.figures(known.get(&self.name));
        Previous { at: self.at, cpu: self.usage.cpu, scrape_from, figures }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(at_ms: u64, cpu_ms: u64, scrape_ms: Option<u64>) -> Look {
        let ms = Duration::from_millis;
        let usage = Usage { cpu: ms(cpu_ms), resident_bytes: 3 << 20, ..Usage::default() };
        let text = "workqueue_depth{name=\"a\"} 4\nprocess_open_fds 9\nleasehold_shards_owned 5\n";
        let scraped = scrape_ms.map(|took| (Said::read(text), ms(took)));
        Look { name: "a".into(), at: ms(at_ms), usage, scraped }
    }

    #[test]
    fn cores_are_the_time_used_between_two_looks() {
        let first = look(1_000, 300, Some(1));
        assert_eq!(first.figures(None).cores, None);
        let previous = first.remembered(&BTreeMap::new());
        let figures = look(3_000, 800, None).figures(Some(&previous));
        assert_eq!((figures.cores, figures.resident_mib), (Some(0.25), 3.0));
        assert_eq!((figures.queued, figures.shards), (None, None));
        let figures = look(4_000, 900, Some(1)).figures(Some(&previous));
        assert_eq!((figures.queued, figures.shards), (Some(4.0), Some(5.0)));
        assert_eq!((figures.series, figures.open_files), (Some(3.0), Some(9.0)));
    }

    #[test]
    fn waits_are_those_of_the_measured_clusters() {
        let line = |cluster| {
            format!(
                "leasehold_cluster_queue_seconds_bucket{{cluster=\"{cluster}\",le=\"+Inf\"}} 1\n"
            )
        };
        let page = ["east", "east-2", "west"].map(line).concat();
        let count = |measured: &[&str]| {
            waits(&page, &measured.iter().map(ToString::to_string).collect::<Vec<_>>()).count()
        };
        assert_eq!(count(&["cluster=\"east\""]), 1.0);
        assert_eq!(count(&["cluster=\"east"]), 2.0);
        assert_eq!(count(&["cluster=\"east\"", "cluster=\"west\""]), 2.0);
    }

    #[test]
    fn large_pages_are_read_seldom() {
        let seconds = |look: &Look, known: &_| look.remembered(known).scrape_from.as_secs();
        let none = BTreeMap::new();
        assert_eq!(seconds(&look(1_000, 0, Some(1)), &none), 1);
        let slow = look(1_000, 0, Some(200));
        assert_eq!(seconds(&slow, &none), 11);
        let known = BTreeMap::from([("a".to_owned(), slow.remembered(&none))]);
        assert_eq!(seconds(&look(2_000, 0, None), &known), 11);
        // A scrape that failed is tried again.
        assert_eq!(seconds(&look(2_000, 0, None), &none), 2);
    }
}
