//! The report: the scenario, what was measured, and how it is judged. `markdown` and `html` show it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use anyhow::Context;
use loadtest::scrape::Histogram;
use serde::Serialize;

use crate::generate::Changes;
use crate::growth::{self, Growth};
use crate::latencies::{self, Convergence, Seconds};
use crate::machine::Machine;
use crate::replicas::Stretch;
use crate::sampler::{Sample, Scraped};
use crate::scenario::Scenario;
use crate::series::{self, ReplicaSecond, Second};
use crate::slo::{self, Exceeded, Figures, Measure};
use crate::track::Measured;

/// The version of what `report.json` says.
pub const FORMAT: u32 = 2;

/// Everything measured in one run.
#[derive(Debug, Serialize)]
pub struct Report {
    /// [`FORMAT`].
    pub format: u32,
    /// The scenario.
    pub scenario: Scenario,
    /// The generator's seed.
    pub seed: u64,
    /// What it was made on.
    pub machine: Machine,
    /// What it is judged by.
    pub figures: Figures,
    /// The limits that it exceeded.
    pub exceeded: Vec<Exceeded>,
    /// What the initial objects cost each replica.
    pub start: Vec<Start>,
    /// Changes made under load.
    pub changes: Changes,
    /// Changes per second that were actually made under load.
    pub changes_per_second: f64,
    /// Changes per second of flooded clusters, all together.
    pub flood_per_second: f64,
    /// What the same load measured before other clusters made trouble, if they did.
    pub calm: Option<Calm>,
    /// Time from change to convergence under load, measured from outside.
    pub convergence: Convergence,
    /// The same, of changes that were due outside the windows of all faults, if there were faults.
    pub away_from_faults: Option<Convergence>,
    /// The faults of the load.
    pub faults: Vec<Suffered>,
    /// Changes under load whose object was deleted before they converged: they have no latency.
    pub deleted: u64,
    /// Changes that never converged.
    pub unconverged: usize,
    /// Some of their objects.
    pub unconverged_examples: Vec<String>,
    /// Of the load test's own watch that broke last: which cluster's, and why.
    pub watch_broke: Option<String>,
    /// Deployments of deleted TDSets that were not deleted.
    pub orphans: usize,
    /// Whether a manager of the load test did not end on SIGTERM, in time and with exit code 0.
    pub unclean_stop: bool,
    /// The replicas.
    pub replicas: Vec<Replica>,
    /// What grew under the load, if it was long, in each replica that ran through all of it.
    pub growth: Vec<Growth>,
    /// What the run did when.
    pub phases: Vec<Phase>,
    /// Every second of it.
    pub seconds: Vec<Second>,
}

/// What was measured before other clusters made trouble.
#[derive(Debug, Serialize)]
pub struct Calm {
    /// Time from change to convergence, measured from outside.
    pub convergence: Convergence,
    /// Time in queue of the measured clusters' keys, 99th percentile.
    pub queue_p99_ms: Option<f64>,
}

/// A fault, and what changes suffered through it.
#[derive(Debug, Serialize)]
pub struct Suffered {
    /// What it did.
    pub what: String,
    /// Each time that it was made: when it began and when its last step was done, in seconds since the start of
    /// the run.
    pub made_seconds: Vec<(f64, f64)>,
    /// How long changes counted as suffering from it after that.
    pub window_seconds: f64,
    /// Time from change to convergence of changes that were due in these whole seconds.
    pub convergence: Convergence,
}

/// A part of the run.
#[derive(Debug, Serialize)]
pub struct Phase {
    /// What it does.
    pub name: &'static str,
    /// When it began, in seconds since the start of the run.
    pub from_seconds: f64,
}

/// What the initial objects cost one replica.
#[derive(Debug, Serialize)]
pub struct Start {
    /// Its identity.
    pub name: String,
    /// CPU time used since the run began, in seconds.
    pub cpu_seconds: f64,
    /// Resident memory, in MiB.
    pub resident_mib: f64,
    /// Most resident memory so far, in MiB.
    pub peak_mib: f64,
}

/// What the load cost one replica.
#[derive(Debug, Serialize)]
pub struct Replica {
    /// Its identity, with a number from its second process on.
    pub name: String,
    /// Reconciles during the load.
    pub reconciles: f64,
    /// Shards held at the end.
    pub shards: f64,
    /// Requests to the home cluster during the load, those that move its Lease too.
    pub home_requests: f64,
    /// CPU time used during the load, in seconds.
    pub cpu_seconds: f64,
    /// Cores used while it ran during the load; 1.0 is one core.
    pub cores: f64,
    /// Resident memory at the end, in MiB.
    pub resident_mib: f64,
    /// The part of it that no file backs, in MiB; not known of a Pod.
    pub anonymous_mib: Option<f64>,
    /// Most resident memory of the run, in MiB.
    pub peak_mib: f64,
    /// Its metrics at the end.
    pub scraped: Scraped,
}

/// What one load did.
pub struct Loaded {
    /// When, since the start of the run.
    pub span: Range<Duration>,
    /// The changes it made.
    pub changes: Changes,
    /// When each fault was made, each time.
    pub faults: Vec<Vec<Range<Duration>>>,
    /// The changes of flooded clusters that were answered.
    pub flooded: u64,
}

/// What a run measured, before anything is computed of it.
pub struct Measurements {
    /// From the start of the managers until all initial objects converged, in seconds.
    pub initial_seconds: f64,
    /// What that cost.
    pub start: Vec<Start>,
    /// The load before other clusters made trouble.
    pub calm: Option<(Range<Duration>, Vec<Stretch>)>,
    /// The load.
    pub loaded: Loaded,
    /// What each process did under it.
    pub stretches: Vec<Stretch>,
    /// What the tracker saw in all.
    pub last: Measured,
    /// Deployments left behind.
    pub orphans: usize,
    /// What the run did when.
    pub phases: Vec<Phase>,
    /// What the sampler saw, by second.
    pub samples: BTreeMap<u32, Vec<ReplicaSecond>>,
}

impl Report {
    /// The report of a run.
    pub fn of(scenario: Scenario, seed: u64, machine: Machine, measured: Measurements) -> Self {
        let Measurements { initial_seconds, start, calm, loaded, stretches, .. } = measured;
        let Measured { pending, examples, broke, seconds } = measured.last;
        let span = latencies::whole(&loaded.span);
        let convergence = seconds.due(|second| span.contains(&second));
        let (away_from_faults, faults) = suffered(&scenario, &loaded, &seconds);
        let replicas: Vec<Replica> = stretches.iter().map(Replica::of).collect();
        let lasted = (loaded.span.end - loaded.span.start).as_secs_f64();
        let mut figures = costs(&stretches, &replicas, lasted);
        let all = series::of(&seconds, measured.samples);
        let growth = growth::of(&all, &span);
        figures.extend(growth::figures(&growth, &scenario.slo));
        figures.insert(Measure::StartSeconds, initial_seconds);
        let lag = (Measure::GeneratorLagP99Ms, loaded.changes.lag_p99_ms);
        figures.extend((loaded.changes.made() > 0).then_some(lag));
        let through = faults.iter().map(|fault| fault.convergence);
        figures.extend(converged(convergence, away_from_faults, through));
        let calm = calm.map(|(span, stretches)| Calm {
            convergence: seconds.due(|second| latencies::whole(&span).contains(&second)),
            queue_p99_ms: p99_ms(&stretches, |sample| &sample.queue),
        });
        Self {
            format: FORMAT,
            exceeded: slo::judge(&scenario.slo, &figures),
            scenario,
            seed,
            machine,
            figures,
            start,
            changes: loaded.changes,
            flood_per_second: loaded.flooded as f64 / lasted,
            changes_per_second: loaded.changes.made() as f64 / lasted,
            calm,
            convergence,
            away_from_faults,
            faults,
            deleted: seconds.deleted(|second| span.contains(&second)),
            unconverged: pending,
            unconverged_examples: examples,
            watch_broke: broke,
            orphans: measured.orphans,
            unclean_stop: false,
            replicas,
            growth,
            phases: measured.phases,
            seconds: all,
        }
    }

    /// The report as JSON, with what is wrong with the run in words.
    ///
    /// # Errors
    /// If a figure is no number.
    pub fn json(&self) -> anyhow::Result<String> {
        #[derive(Serialize)]
        struct Judged<'a> {
            #[serde(flatten)]
            report: &'a Report,
            verdict: Vec<String>,
        }
        let judged = Judged { report: self, verdict: self.verdict() };
        serde_json::to_string_pretty(&judged).context("write the report as JSON")
    }

    /// Whether nothing is wrong with the run.
    pub fn succeeded(&self) -> bool {
        self.verdict().is_empty()
    }
}

/// What changes took away from all faults, if there were faults, and what through each.
fn suffered(
    scenario: &Scenario,
    loaded: &Loaded,
    seconds: &Seconds,
) -> (Option<Convergence>, Vec<Suffered>) {
    let span = latencies::whole(&loaded.span);
    let made = || scenario.faults.iter().zip(&loaded.faults);
    let windows: Vec<Vec<Range<u64>>> = made()
        .map(|(fault, made)| {
            let window = |one: &Range<_>| latencies::whole(&(one.start..one.end + fault.window()));
            made.iter().map(window).collect()
        })
        .collect();
    let is_in = |windows: &[Range<u64>], second| windows.iter().any(|w| w.contains(&second));
    let is_away = |second: u64| !windows.iter().any(|windows| is_in(windows, second));
    let away = seconds.due(|second| span.contains(&second) && is_away(second));
    let suffered = made().zip(&windows).map(|((fault, made), windows)| Suffered {
        what: fault.words(),
        made_seconds: (made.iter())
            .map(|made| (made.start.as_secs_f64(), made.end.as_secs_f64()))
            .collect(),
        window_seconds: fault.window().as_secs_f64(),
        convergence: seconds.due(|second| span.contains(&second) && is_in(windows, second)),
    });
    ((!windows.is_empty()).then_some(away), suffered.collect())
}

impl Suffered {
    /// When, for people.
    pub fn when(&self) -> String {
        let after = format!("{:.0} s after", self.window_seconds);
        match &self.made_seconds[..] {
            [(from, until)] => format!("{from:.1} s to {until:.1} s, and {after}"),
            many => format!("{} times, and {after} each", many.len()),
        }
    }
}

/// The figures of what the managers say of themselves and what they cost. Each has some memory, uses a processor, asks
/// home and has series, so that nothing of these was not measured; neither are errors where no reconcile is counted.
fn costs(stretches: &[Stretch], replicas: &[Replica], lasted: f64) -> Figures {
    let most = |pick: fn(&Replica) -> f64| replicas.iter().map(pick).fold(0.0, f64::max);
    let sum = |pick: fn(&Replica) -> f64| replicas.iter().map(pick).sum::<f64>();
    let reconciles = sum(|replica| replica.reconciles);
    let cpu_ms = sum(|replica| replica.cpu_seconds) * 1e3;
    let errors = stretches.iter().map(|stretch| stretch.errors).sum();
    let counted = stretches.iter().any(|stretch| stretch.after.reconciles > 0.0);
    let some = |value: f64| (value > 0.0).then_some(value);
    let figures = [
        (Measure::QueueP99Ms, p99_ms(stretches, |sample| &sample.queue)),
        (Measure::ReconcileP99Ms, p99_ms(stretches, |sample| &sample.reconcile)),
        (Measure::ReconcileErrors, counted.then_some(errors)),
        (Measure::PeakRssMib, some(most(|replica| replica.peak_mib))),
        (Measure::CpuPerReconcileMs, some(reconciles).zip(some(cpu_ms)).map(|(n, ms)| ms / n)),
        (Measure::HomeRequestsPerSecond, some(sum(|replica| replica.home_requests) / lasted)),
        (Measure::Cores, some(sum(|replica| replica.cpu_seconds) / lasted)),
        (Measure::Series, some(most(|replica| replica.scraped.series as f64))),
        (Measure::ClusterSeries, some(most(|replica| replica.scraped.most_of_a_cluster as f64))),
        (Measure::ScrapeBytes, some(most(|replica| replica.scraped.bytes as f64))),
    ];
    figures.into_iter().filter_map(|(measure, value)| Some((measure, value?))).collect()
}

/// The figures of time from change to convergence. Where no change converged there is none.
fn converged(
    all: Convergence,
    away: Option<Convergence>,
    suffered: impl Iterator<Item = Convergence>,
) -> Figures {
    let p99 = |of: Convergence| (of.changes > 0).then_some(f64::from(of.p99_ms));
    let figures = [
        (Measure::ConvergedP50Ms, p99(all).map(|_| f64::from(all.p50_ms))),
        (Measure::ConvergedP99Ms, p99(all)),
        (Measure::CalmP99Ms, away.and_then(p99)),
        (Measure::FaultP99Ms, suffered.filter_map(p99).reduce(f64::max)),
    ];
    figures.into_iter().filter_map(|(measure, value)| Some((measure, value?))).collect()
}

/// The 99th percentile of the observations of all stretches; as exact as the buckets.
fn p99_ms(stretches: &[Stretch], pick: fn(&Sample) -> &Histogram) -> Option<f64> {
    let mut all = Histogram::default();
    for Stretch { before, after, .. } in stretches {
        all.merge(&pick(before).until(pick(after)));
    }
    all.quantile(0.99).map(|seconds| seconds * 1e3)
}

impl Start {
    /// The figures of one replica.
    pub fn of(Stretch { name, before, after, .. }: &Stretch) -> Self {
        let usage = after.usage;
        Self {
            name: name.clone(),
            cpu_seconds: usage.cpu.saturating_sub(before.usage.cpu).as_secs_f64(),
            resident_mib: mib(usage.resident_bytes),
            peak_mib: mib(usage.peak_resident_bytes),
        }
    }
}

impl Replica {
    /// The figures of one process between two samples.
    pub fn of(Stretch { name, before, after, .. }: &Stretch) -> Self {
        let cpu_seconds = (after.usage.cpu.saturating_sub(before.usage.cpu)).as_secs_f64();
        let seconds = after.at.saturating_sub(before.at).as_secs_f64();
        Self {
            name: name.clone(),
            reconciles: after.reconciles - before.reconciles,
            shards: after.shards,
            home_requests: after.home_requests - before.home_requests,
            cpu_seconds,
            cores: if seconds > 0.0 { cpu_seconds / seconds } else { 0.0 },
            resident_mib: mib(after.usage.resident_bytes),
            anonymous_mib: after.usage.anonymous_bytes.map(mib),
            peak_mib: mib(after.usage.peak_resident_bytes),
            scraped: after.scraped,
        }
    }
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[cfg(test)]
pub mod tests {
    use loadtest::scrape::histogram;

    use super::*;
    use crate::scenario::Troubles;
    use crate::track::{Fact, Tracker};

    const SECOND: Duration = Duration::from_secs(1);

    fn stretch(name: &str, cpu: Duration, reconciles: f64, errors: f64, mib: u64) -> Stretch {
        let mut after = Sample { at: SECOND * 30, reconciles, shards: 2.0, ..Sample::default() };
        after.usage.cpu = cpu;
        after.usage.peak_resident_bytes = mib << 20;
        let (series, most_of_a_cluster) = (10 * mib as usize, 7);
        after.scraped = Scraped { series, most_of_a_cluster, bytes: 999, ..Scraped::default() };
        after.home_requests = 30.0;
        after.queue = histogram("q_bucket{le=\"0.1\"} 4\nq_bucket{le=\"+Inf\"} 4\n", "q");
        let before = Sample { at: SECOND * 10, ..Sample::default() };
        Stretch { name: name.to_owned(), before, after, errors }
    }

    /// Ten seconds of start, thirty of load with a change in each second, a kill twelve seconds after it
    /// began. Changes take 20 ms, and two seconds in the window of the fault.
    pub fn example(slo: &[(Measure, f64)]) -> Report {
        let text = include_str!("../scenarios/basic.toml").split("\n[slo]").next().unwrap();
        let mut scenario: Scenario = toml::from_str(text).unwrap();
        let kill =
            "at = \"12s\"\nkind = \"kill\"\nreplica = 2\nback_after = \"1s\"\nwindow = \"5s\"";
        scenario.faults.push(toml::from_str(kill).unwrap());
        scenario.slo = slo.iter().copied().collect();
        let mut tracker = Tracker::default();
        let mut samples = BTreeMap::new();
        for second in 0..40_u32 {
            let due = SECOND * second + Duration::from_millis(500);
            let key = "cluster-001/load-000/tdset-000001".to_owned();
            let generation = i64::from(second);
            tracker.apply(Fact::Written { key: key.clone(), generation, due });
            let took = if (22..28).contains(&second) { 2_000 } else { 20 };
            let at = due + Duration::from_millis(took);
            tracker.apply(Fact::Ready { key, generation, at });
            let killed = |n: u32| n == 2 && (22..24).contains(&second);
            let replicas = (0..3).filter(|n| !killed(*n)).map(|n| ReplicaSecond {
                name: format!("replica-{n}"),
                cores: (second > 0).then_some(0.1 * f64::from(n + 1)),
                resident_mib: 40.0 + f64::from(second.min(10)),
                queued: second.is_multiple_of(2).then_some(f64::from(second)),
                shards: Some(f64::from(5 - n)),
                ..ReplicaSecond::default()
            });
            samples.insert(second, replicas.collect());
        }
        let changes = Changes { updates: 30, lag_p99_ms: 1.5, ..Changes::default() };
        let faults = vec![vec![SECOND * 22..SECOND * 23]];
        let measured = Measurements {
            initial_seconds: 9.5,
            start: Vec::new(),
            calm: None,
            loaded: Loaded { span: SECOND * 10..SECOND * 40, changes, faults, flooded: 26_700 },
            stretches: vec![
                stretch("replica-0", SECOND * 3, 400.0, 1.0, 50),
                stretch("replica-1", SECOND, 100.0, 0.0, 70),
            ],
            last: tracker.measured(),
            orphans: 0,
            phases: vec![
                Phase { name: "start", from_seconds: 0.0 },
                Phase { name: "load", from_seconds: 10.0 },
            ],
            samples,
        };
        let machine = Machine { leasehold: "leasehold <0>".to_owned(), ..Machine::default() };
        Report::of(scenario, 1, machine, measured)
    }

    #[test]
    fn calm_and_faults_are_told_apart() {
        let report = example(&[]);
        assert_eq!((report.convergence.changes, report.convergence.max_ms), (30, 2_000));
        let away = report.away_from_faults.unwrap();
        assert_eq!((away.changes, away.max_ms), (24, 20));
        let [fault] = &report.faults[..] else { panic!("{:?}", report.faults) };
        assert_eq!(fault.made_seconds, [(22.0, 23.0)]);
        assert_eq!((fault.convergence.changes, fault.convergence.p50_ms), (6, 2_000));
        let figure = |measure| report.figures[&measure];
        assert_eq!((figure(Measure::CalmP99Ms), figure(Measure::FaultP99Ms)), (20.0, 2_000.0));
    }

    #[test]
    fn figures_are_of_all_replicas_or_of_the_worst() {
        let report = example(&[]);
        let figure = |measure| report.figures.get(&measure).copied();
        assert_eq!(figure(Measure::CpuPerReconcileMs), Some(8.0));
        assert_eq!(figure(Measure::PeakRssMib), Some(70.0));
        assert_eq!(
            (figure(Measure::Series), figure(Measure::ReconcileErrors)),
            (Some(700.0), Some(1.0))
        );
        assert_eq!(figure(Measure::StartSeconds), Some(9.5));
        assert_eq!(figure(Measure::ReconcileP99Ms), None);
        assert!(figure(Measure::QueueP99Ms).is_some_and(|p99_ms| (p99_ms - 99.0).abs() < 1e-9));
        assert!((report.replicas[0].cores - 0.15).abs() < 1e-9);
        assert!((report.changes_per_second - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_flood_that_is_smaller_than_the_scenario_says_fails_the_run() {
        let mut report = example(&[]);
        let flooded = |clusters, per_second| Troubles {
            from_start: false,
            dead: 0,
            flooded: clusters,
            flooded_objects: 1,
            flood_per_second: per_second,
        };
        let table = [
            (0, 1e3, true),
            (1, 980.0, true),
            (1, 1e3, false),
            (2, 490.0, true),
            (2, 500.0, false),
        ];
        for (clusters, per_second, succeeds) in table {
            report.scenario.troubles = Some(flooded(clusters, per_second));
            assert_eq!(report.succeeded(), succeeds, "{clusters}, {per_second}");
        }
        let said = "scenario basic: the flood made 890 changes a second, and troubles says 1000";
        assert!(report.verdict()[0].starts_with(said), "{:?}", report.verdict());
    }

    #[test]
    fn a_load_of_which_little_was_made_fails_the_run() {
        let mut report = example(&[]);
        for (impossible, succeeds) in [(3, true), (4, false)] {
            report.changes.impossible = impossible;
            assert_eq!(report.succeeded(), succeeds, "{impossible}");
        }
        let said = "scenario basic: 4 of 34 changes were due when there was no object to change";
        assert!(report.verdict()[0].starts_with(said), "{:?}", report.verdict());
        report.changes = Changes::default();
        let said = "scenario basic: no change was due under this load";
        assert!(report.verdict()[0].starts_with(said), "{:?}", report.verdict());
        let still = crate::scenario::Load {
            updates_per_second: 0.0,
            creates_per_second: 0.0,
            deletes_per_second: 0.0,
            ..report.scenario.load.clone()
        };
        report.scenario.load = still;
        assert!(report.succeeded(), "{:?}", report.verdict());
    }

    #[test]
    fn what_a_page_of_metrics_lacks_is_no_figure() {
        let after = Sample { at: SECOND, ..Sample::default() };
        let before = Sample::default();
        let silent = [Stretch { name: "a".into(), before, after, errors: 0.0 }];
        let replicas: Vec<Replica> = silent.iter().map(Replica::of).collect();
        assert_eq!(costs(&silent, &replicas, 1.0), Figures::new());
        let after = Sample { at: SECOND, reconciles: 9.0, ..Sample::default() };
        let before = Sample::default();
        let idle = [Stretch { name: "a".into(), before, after, errors: 0.0 }];
        assert_eq!(costs(&idle, &[], 1.0), [(Measure::ReconcileErrors, 0.0)].into());
    }

    #[test]
    fn what_a_pod_used_before_the_run_is_no_cost_of_its_start() {
        let mut pod = stretch("a", SECOND * 103, 9.0, 0.0, 50);
        pod.before.usage.cpu = SECOND * 100;
        assert!((Start::of(&pod).cpu_seconds - 3.0).abs() < 1e-9);
    }

    #[test]
    fn a_report_succeeds_only_within_its_limits() {
        assert!(example(&[(Measure::CalmP99Ms, 20.0)]).succeeded());
        let report = example(&[(Measure::CalmP99Ms, 19.0), (Measure::ReconcileP99Ms, 5.0)]);
        assert!(!report.succeeded());
        let exceeded: Vec<_> = report.exceeded.iter().map(|exceeded| exceeded.measure).collect();
        assert_eq!(exceeded, [Measure::CalmP99Ms, Measure::ReconcileP99Ms]);
    }

    #[test]
    fn whatever_is_wrong_with_a_run_is_said() {
        let failed = Report {
            unconverged: 2,
            unconverged_examples: vec!["a/ns/x".to_owned(), "b/ns/y".to_owned()],
            orphans: 3,
            unclean_stop: true,
            ..example(&[])
        };
        let expect = [
            "scenario basic: 2 changes never converged, such as those of a/ns/x, b/ns/y",
            "scenario basic: 3 Deployments of deleted TDSets were left behind",
            "scenario basic: a manager did not stop cleanly on SIGTERM; see the logs",
        ];
        assert_eq!(failed.verdict(), expect);
        assert!(!failed.succeeded());
    }

    #[test]
    fn each_figure_above_its_limit_fails_the_run_and_is_named() {
        let all = example(&[]).figures;
        assert_eq!(all.len(), 15, "{all:?}");
        for (measure, value) in all {
            let (key, _, _) = measure.words();
            assert!(example(&[(measure, value)]).succeeded(), "{key}");
            let report = example(&[(measure, value - 0.001)]);
            let [line] = &report.verdict()[..] else { panic!("{key}: {:?}", report.verdict()) };
            assert!(line.starts_with(&format!("scenario basic: slo.{key}: ")), "{line}");
            assert!(!report.succeeded());
        }
    }
}
