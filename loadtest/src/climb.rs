//! Capacity: at which rate of changes the latency of so many replicas crosses its limit. Pure.

use std::fmt::Write;
use std::time::Duration;

use loadtest::capacity;
use serde::{Deserialize, Serialize};

use crate::durations::{duration, seconds};

/// The most rates that are tried with one number of replicas.
pub const MAX_STEPS: u32 = 40;
/// How many rates in a row above the limit show that it is crossed.
const ABOVE: usize = 3;

/// What so many replicas are to reach.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    /// The number of replicas, one of those that are run.
    pub replicas: u32,
    /// How many times what the first number of replicas has.
    pub times: f64,
}

/// How capacity is found, as written in a scenario file.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Curve {
    /// Numbers of replicas. The first is what the others are compared with.
    pub replicas: Vec<u32>,
    /// The share of a core that each replica gets.
    pub share: f64,
    /// How long the first rate lasts once before, with the shares: replicas measure the loads of their shards, and shards
    /// move and are split until each has its part.
    #[serde(deserialize_with = "duration", serialize_with = "seconds")]
    pub balance: Duration,
    /// The limit of the 99th percentile from change to converged, in milliseconds.
    pub p99_ms: f64,
    /// How many times the rate before each rate is. The first is that of the scenario's load for each replica, so that
    /// all numbers of replicas are tried as finely.
    pub factor: f64,
    /// How many rates are tried at most.
    pub steps: u32,
    /// The cores that everything else on the machine may use. A rate during which it used more is tried
    /// again, a few times.
    pub others_cores: f64,
    /// Which capacity is enough: without it, whatever is found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<Goal>,
}

/// What one rate brought.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rung {
    /// Changes a second.
    pub per_second: f64,
    /// From change to converged, 99th percentile, in milliseconds.
    pub p99_ms: f64,
    /// CPU time of all replicas for each change, in milliseconds.
    pub cpu_per_change_ms: f64,
    /// The cores that the busiest replica used, by the mean of all.
    pub busiest: f64,
    /// The cores that the servers, generator and tracker used.
    pub servers_cores: f64,
    /// The cores that everything else on the machine used.
    pub others_cores: f64,
    /// From when a change was due until it was sent, 99th percentile, in milliseconds.
    pub lag_p99_ms: f64,
}

/// All rates of one number of replicas.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Climb {
    /// How many replicas.
    pub replicas: u32,
    /// The cores that one uses when nothing changes.
    pub idle_cores: f64,
    /// Peak memory of the largest, in MiB.
    pub peak_mib: f64,
    /// The rates, ascending.
    pub rungs: Vec<Rung>,
}

/// A number of replicas, for people.
pub fn replicas_of(number: u32) -> String {
    format!("{number} {}", if number == 1 { "replica" } else { "replicas" })
}

fn points(rungs: &[Rung]) -> Vec<capacity::Point> {
    rungs.iter().map(|rung| (rung.per_second, rung.p99_ms)).collect()
}

impl Curve {
    /// Whether to stop after these rates: [`ABOVE`] in a row were above the limit, or enough were tried.
    pub fn is_done(&self, rungs: &[Rung]) -> bool {
        capacity::above(&points(rungs), self.p99_ms) >= ABOVE || rungs.len() >= self.steps as usize
    }

    /// What to say if the goal is not reached.
    pub fn missed(&self, climbs: &[Climb]) -> Option<String> {
        let Goal { replicas, times } = self.goal?;
        let first = climbs.first()?.capacity(self.p99_ms);
        let climb = climbs.iter().find(|climb| climb.replicas == replicas)?;
        let found = climb.capacity(self.p99_ms).zip(first).map(|(found, first)| found / first);
        let shown = found.map_or("nothing".to_owned(), |found| format!("{found:.2} times"));
        found.is_none_or(|found| found < times).then(|| {
            format!(
                "capacity of {}: goal at least {times} times that of {}, measured {shown}",
                replicas_of(replicas),
                replicas_of(climbs[0].replicas)
            )
        })
    }

    /// The rate after these.
    pub fn next(&self, first: f64, rungs: &[Rung]) -> f64 {
        rungs.last().map_or(first, |last| last.per_second * self.factor)
    }
}

impl Climb {
    /// The rate at which the latency crosses its limit for good, between the last rate below it and the
    /// next. `None` if it did not, or was above from the first.
    pub fn capacity(&self, limit: f64) -> Option<f64> {
        capacity::capacity(&points(&self.rungs), limit)
    }

    /// The last rate within the limit.
    fn last_good(&self, limit: f64) -> Option<&Rung> {
        self.rungs.iter().rev().find(|rung| rung.p99_ms <= limit)
    }
}

/// The table of capacities, and that of all rates.
pub fn markdown(curve: &Curve, climbs: &[Climb]) -> String {
    let mut text = String::new();
    write_tables(&mut text, curve, climbs).expect("writing to a String cannot fail");
    text
}

fn write_tables(out: &mut String, curve: &Curve, climbs: &[Climb]) -> std::fmt::Result {
    let limit = curve.p99_ms;
    writeln!(
        out,
        "Capacity: changes a second at which p99 from change to converged crosses {limit} ms, each replica \
         with {:.0} % of one core, servers and generator on another.\n",
        curve.share * 100.0
    )?;
    writeln!(
        out,
        "| replicas | capacity | times the first | CPU ms for a change | busiest by mean | idle, cores each | \
         peak MiB |\n|---|---|---|---|---|---|---|"
    )?;
    let first = climbs.first().and_then(|climb| climb.capacity(limit));
    for climb in climbs {
        let capacity = climb.capacity(limit);
        let times = capacity.zip(first).map(|(capacity, first)| format!("{:.2}", capacity / first));
        let good = climb.last_good(limit);
        let of = |pick: fn(&Rung) -> f64| good.map_or(String::new(), |r| format!("{:.2}", pick(r)));
        writeln!(
            out,
            "| {} | {} | {} | {} | {} | {:.3} | {:.0} |",
            climb.replicas,
            capacity.map_or("not found".to_owned(), |capacity| format!("{capacity:.0}/s")),
            times.unwrap_or_default(),
            of(|rung| rung.cpu_per_change_ms),
            of(|rung| rung.busiest),
            climb.idle_cores,
            climb.peak_mib,
        )?;
    }
    writeln!(
        out,
        "\n| replicas | changes/s | p99 ms | CPU ms for a change | servers, cores | others, cores | lag p99 ms |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|")?;
    for climb in climbs {
        for rung in &climb.rungs {
            writeln!(
                out,
                "| {} | {:.0} | {:.0} | {:.2} | {:.2} | {:.2} | {:.1} |",
                climb.replicas,
                rung.per_second,
                rung.p99_ms,
                rung.cpu_per_change_ms,
                rung.servers_cores,
                rung.others_cores,
                rung.lag_p99_ms
            )?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rung(per_second: f64, p99_ms: f64) -> Rung {
        Rung {
            per_second,
            p99_ms,
            cpu_per_change_ms: 0.5,
            busiest: 1.0,
            servers_cores: 0.1,
            others_cores: 0.02,
            lag_p99_ms: 1.0,
        }
    }

    fn climb(replicas: u32, rungs: &[(f64, f64)]) -> Climb {
        let rungs = rungs.iter().map(|&(rate, p99)| rung(rate, p99)).collect();
        Climb { replicas, idle_cores: 0.01, peak_mib: 50.0, rungs }
    }

    fn curve() -> Curve {
        Curve {
            replicas: vec![1, 2],
            share: 0.1,
            balance: Duration::from_secs(1),
            p99_ms: 100.0,
            factor: 2.0,
            steps: 5,
            others_cores: 0.1,
            goal: None,
        }
    }

    #[test]
    fn a_goal_that_is_not_reached_or_not_measured_is_missed() {
        let climbs = [
            climb(1, &[(10.0, 50.0), (40.0, 200.0)]),
            climb(2, &[(10.0, 20.0), (20.0, 50.0), (80.0, 200.0)]),
            climb(3, &[(10.0, 20.0)]),
        ];
        let missed = |replicas, times| {
            Curve { goal: Some(Goal { replicas, times }), ..curve() }.missed(&climbs)
        };
        assert_eq!((curve().missed(&climbs), missed(2, 1.99)), (None, None));
        let said = "goal at least 2.1 times that of 1 replica, measured 2.00 times";
        assert_eq!(missed(2, 2.1), Some(format!("capacity of 2 replicas: {said}")));
        assert!(missed(3, 1.0).is_some_and(|said| said.ends_with("measured nothing")));
    }

    #[test]
    fn capacity_is_where_the_limit_is_crossed_for_good() {
        let capacity = |rungs: &[(f64, f64)]| climb(1, rungs).capacity(100.0);
        // A straight line in logarithms: at half of the way in p99, half of it in rate.
        let found = capacity(&[(10.0, 50.0), (40.0, 200.0)]).unwrap();
        assert!((found - 20.0).abs() < 1e-9, "{found}");
        // One slow rate among good ones is an accident.
        let found = capacity(&[(5.0, 300.0), (10.0, 50.0), (40.0, 200.0), (80.0, 900.0)]).unwrap();
        assert!((found - 20.0).abs() < 1e-9, "{found}");
        assert_eq!(capacity(&[(10.0, 50.0), (20.0, 60.0)]), None);
        assert_eq!(capacity(&[(10.0, 500.0), (20.0, 600.0)]), None);
        assert_eq!(capacity(&[]), None);
    }

    #[test]
    fn it_climbs_until_three_rates_in_a_row_are_too_high() {
        let curve = curve();
        let done = |p99: &[f64]| {
            let rungs: Vec<Rung> = p99.iter().map(|p99| rung(1.0, *p99)).collect();
            curve.is_done(&rungs)
        };
        assert!(!done(&[200.0, 200.0]) && !done(&[200.0, 50.0, 200.0, 200.0]));
        assert!(done(&[50.0, 200.0, 300.0, 101.0]) && done(&[50.0; 5]) && !done(&[50.0; 4]));
        assert!((curve.next(7.0, &[]) - 7.0).abs() < 1e-9);
        assert!((curve.next(7.0, &[rung(10.0, 1.0)]) - 20.0).abs() < 1e-9);
    }

    #[test]
    fn tables_compare_with_the_first() {
        let climbs = [
            climb(1, &[(10.0, 50.0), (40.0, 200.0)]),
            climb(2, &[(10.0, 20.0), (20.0, 50.0), (80.0, 200.0)]),
            climb(3, &[(10.0, 20.0)]),
        ];
        let text = markdown(&curve(), &climbs);
        for row in [
            "| 1 | 20/s | 1.00 | 0.50 | 1.00 | 0.010 | 50 |",
            "| 2 | 40/s | 2.00 | 0.50 | 1.00 | 0.010 | 50 |",
            "| 3 | not found |  | 0.50 | 1.00 | 0.010 | 50 |",
            "| 2 | 80 | 200 | 0.50 | 0.10 | 0.02 | 1.0 |",
        ] {
            assert!(text.contains(&format!("{row}\n")), "{row}\nis not in\n{text}");
        }
    }
}
