//! What a run is judged by: its measures, the limits that a scenario sets them, and which it exceeded.
//! Pure.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use serde::{Deserialize, Serialize};

use crate::latencies::MAX_LATENCY_MS;

/// One measure of a run. Of each, less is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// From the start of the managers until all initial objects converged.
    StartSeconds,
    /// From change to converged under load, median.
    ConvergedP50Ms,
    /// The same, 99th percentile.
    ConvergedP99Ms,
    /// The same, of changes that were due outside the windows of all faults.
    CalmP99Ms,
    /// The same, of changes that were due within the window of a fault; of the worst fault.
    FaultP99Ms,
    /// Time in queue under load, 99th percentile.
    QueueP99Ms,
    /// Time in reconcile under load, 99th percentile.
    ReconcileP99Ms,
    /// Reconciles that ended in an error, in all replicas and the whole run.
    ReconcileErrors,
    /// Most resident memory of the replica that had most.
    PeakRssMib,
    /// CPU time of all replicas under load for each reconcile.
    CpuPerReconcileMs,
    /// Requests of all replicas to the home cluster under load, in a second.
    HomeRequestsPerSecond,
    /// Cores that all replicas used together under load.
    Cores,
    /// Series of the replica that has most.
    Series,
    /// Series of the cluster that has most, on its replica.
    ClusterSeries,
    /// Length of the longest page of metrics, not compressed.
    ScrapeBytes,
    /// From when a change was due until the generator sent it, 99th percentile.
    GeneratorLagP99Ms,
    /// By how much resident memory certainly grew in an hour of load: see `growth`.
    RssGrowthMibPerHour,
    /// The same of series.
    SeriesGrowthPerHour,
    /// The same of tasks.
    TasksGrowthPerHour,
    /// The same of open files.
    OpenFilesGrowthPerHour,
}

/// The figures of a run. What it did not measure is absent.
pub type Figures = BTreeMap<Measure, f64>;

/// The limits of a scenario.
pub type Slo = BTreeMap<Measure, f64>;

/// A limit that a run exceeded, or that it has no figure for.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Exceeded {
    /// Which.
    pub measure: Measure,
    /// Its limit.
    pub limit: f64,
    /// Its figure.
    pub measured: Option<f64>,
}

/// The limits that these figures exceed. A limit without a figure counts too, because nothing shows that
/// it was kept; so does one whose figure is no number.
pub fn judge(slo: &Slo, figures: &Figures) -> Vec<Exceeded> {
    let judged = slo.iter().map(|(&measure, &limit)| {
        let measured = figures.get(&measure).copied().filter(|value| value.is_finite());
        Exceeded { measure, limit, measured }
    });
    judged.filter(|e| e.measured.is_none_or(|measured| measured > e.limit)).collect()
}

impl Measure {
    /// Its key in a scenario, what it is, and its unit.
    pub fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::StartSeconds => ("start_seconds", "all initial objects converged after", "s"),
            Self::ConvergedP50Ms => ("converged_p50_ms", "change to converged, median", "ms"),
            Self::ConvergedP99Ms => ("converged_p99_ms", "change to converged, p99", "ms"),
            Self::CalmP99Ms => ("calm_p99_ms", "change to converged away from faults, p99", "ms"),
            Self::FaultP99Ms => ("fault_p99_ms", "change to converged after a fault, p99", "ms"),
            Self::QueueP99Ms => ("queue_p99_ms", "time in queue, p99", "ms"),
            Self::ReconcileP99Ms => ("reconcile_p99_ms", "time in reconcile, p99", "ms"),
            Self::ReconcileErrors => ("reconcile_errors", "reconciles that ended in an error", ""),
            Self::PeakRssMib => ("peak_rss_mib", "peak memory of a replica", "MiB"),
            Self::CpuPerReconcileMs => ("cpu_per_reconcile_ms", "CPU time for a reconcile", "ms"),
            Self::HomeRequestsPerSecond => {
                ("home_requests_per_second", "requests to the home cluster in a second", "")
            }
            Self::Cores => ("cores", "cores of all replicas", ""),
            Self::Series => ("series", "series of a replica", ""),
            Self::ClusterSeries => ("cluster_series", "series of a cluster", ""),
            Self::ScrapeBytes => ("scrape_bytes", "page of metrics of a replica", "bytes"),
            Self::GeneratorLagP99Ms => ("generator_lag_p99_ms", "lag of the generator, p99", "ms"),
            Self::RssGrowthMibPerHour => (
                "rss_growth_mib_per_hour",
                "growth of memory in an hour, less twice its error",
                "MiB",
            ),
            Self::SeriesGrowthPerHour => {
                ("series_growth_per_hour", "growth of series in an hour, less twice its error", "")
            }
            Self::TasksGrowthPerHour => {
                ("tasks_growth_per_hour", "growth of tasks in an hour, less twice its error", "")
            }
            Self::OpenFilesGrowthPerHour => (
                "open_files_growth_per_hour",
                "growth of open files in an hour, less twice its error",
                "",
            ),
        }
    }

    /// The highest limit that it can exceed. Managers' histograms end at 10 s in a queue and 60 s in a reconcile, and
    /// what took longer is measured as this; so are latencies and lags of more than ten minutes.
    pub fn highest_limit(self) -> f64 {
        let most: f64 = match self {
            Self::QueueP99Ms => 10_000.0,
            Self::ReconcileP99Ms => 60_000.0,
            Self::ConvergedP50Ms
            | Self::ConvergedP99Ms
            | Self::CalmP99Ms
            | Self::FaultP99Ms
            | Self::GeneratorLagP99Ms => MAX_LATENCY_MS.into(),
            _ => f64::MAX,
        };
        most - 1.0
    }

    /// A value with its unit.
    pub fn shown(self, value: f64) -> String {
        let (_, _, unit) = self.words();
        let digits = if value.fract() == 0.0 || value >= 1_000.0 { 0 } else { 2 };
        format!("{value:.digits$} {unit}").trim_end().to_owned()
    }
}

impl Display for Exceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { measure, limit, measured } = *self;
        let (key, title, _) = measure.words();
        let measured = measured.map_or("nothing".to_owned(), |value| measure.shown(value));
        write!(f, "slo.{key}: {title}: limit {}, measured {measured}", measure.shown(limit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Measure; 20] = [
        Measure::StartSeconds,
        Measure::ConvergedP50Ms,
        Measure::ConvergedP99Ms,
        Measure::CalmP99Ms,
        Measure::FaultP99Ms,
        Measure::QueueP99Ms,
        Measure::ReconcileP99Ms,
        Measure::ReconcileErrors,
        Measure::PeakRssMib,
        Measure::CpuPerReconcileMs,
        Measure::HomeRequestsPerSecond,
        Measure::Cores,
        Measure::Series,
        Measure::ClusterSeries,
        Measure::ScrapeBytes,
        Measure::GeneratorLagP99Ms,
        Measure::RssGrowthMibPerHour,
        Measure::SeriesGrowthPerHour,
        Measure::TasksGrowthPerHour,
        Measure::OpenFilesGrowthPerHour,
    ];

    #[test]
    fn keys_are_those_that_scenarios_have() {
        for measure in ALL {
            assert_eq!(serde_json::to_value(measure).unwrap(), measure.words().0);
        }
    }

    #[test]
    fn each_limit_holds_up_to_its_value() {
        for measure in ALL {
            let slo = Slo::from([(measure, 10.0)]);
            let table =
                [(Some(9.5), false), (Some(10.0), false), (Some(10.001), true), (None, true)];
            for (measured, exceeds) in table {
                let figures: Figures = measured.map(|value| (measure, value)).into_iter().collect();
                let expect = Exceeded { measure, limit: 10.0, measured };
                let expect = if exceeds { vec![expect] } else { Vec::new() };
                assert_eq!(judge(&slo, &figures), expect, "{measured:?}");
            }
            let no_number = Figures::from([(measure, f64::NAN)]);
            let expect = Exceeded { measure, limit: 10.0, measured: None };
            assert_eq!(judge(&slo, &no_number), [expect]);
        }
        let figures = ALL.map(|measure| (measure, f64::MAX));
        assert!(judge(&Slo::new(), &figures.into()).is_empty());
    }

    #[test]
    fn a_line_says_which_limit_and_by_how_much() {
        let slo = Slo::from([(Measure::ConvergedP99Ms, 500.0), (Measure::ReconcileErrors, 0.0)]);
        let figures = Figures::from([(Measure::ConvergedP99Ms, 612.5)]);
        let lines: Vec<_> = judge(&slo, &figures).iter().map(Exceeded::to_string).collect();
        let expect = [
            "slo.converged_p99_ms: change to converged, p99: limit 500 ms, measured 612.50 ms",
            "slo.reconcile_errors: reconciles that ended in an error: limit 0, measured nothing",
        ];
        assert_eq!(lines, expect);
    }
}
