//! Capacity: at which rate of changes the latency of so many replicas crosses its limit. Pure.
//!
//! p99 of a minute at one rate is noise where the limit is near: a backlog of a second decides over it. So rates near
//! the limit are run several times and the median counts, and the rates around the crossing come close to each other.
//! Both are the same for all numbers of replicas.

use std::fmt::Write;
use std::time::Duration;

use loadtest::capacity;
use serde::{Deserialize, Serialize};

use crate::durations::{duration, seconds};
use crate::latencies::GREAT_LAG;

/// The most rates that are tried with one number of replicas, but for those around the crossing.
pub const MAX_STEPS: u32 = 40;
/// How many rates in a row above the limit, each [`Curve::factor`] times the one before, show that it is crossed.
const ABOVE: i32 = 3;
/// How often a rate is run whose p99 is near the limit, or which is between others.
const RUNS: usize = 3;
/// A p99 is near the limit if it is neither above nor below it by more than this factor.
const NEAR: f64 = 2.0;
/// What a multiple of a factor may lack by the precision of numbers.
const EXACT: f64 = 1.0 - 1e-9;
/// The part of their core above which the servers are a limit, too.
const SERVERS_FULL: f64 = 0.9;

/// What so many replicas should reach.
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
    /// How long the first rate lasts once before, with the shares: replicas measure the loads of their shards, and these
    /// move and are split until each has its part.
    #[serde(deserialize_with = "duration", serialize_with = "seconds")]
    pub balance: Duration,
    /// The limit of the 99th percentile from change to converged, in milliseconds.
    pub p99_ms: f64,
    /// How many times the rate before each rate is. The first is that of the scenario's load for each replica, so that
    /// all numbers of replicas are tried as finely.
    pub factor: f64,
    /// How many times the last rate within the limit the first above it is at most: the middle of the two is tried
    /// until they are so close.
    pub resolution: f64,
    /// How many rates are tried at most before that.
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
    /// That of each run of this rate, ascending. The other figures are those of the middle one.
    pub runs_p99_ms: Vec<f64>,
    /// Changes made in one run.
    pub changes: u64,
    /// CPU time of all replicas for each change, in milliseconds.
    pub cpu_per_change_ms: f64,
    /// The cores that the busiest replica used, by the mean of all.
    pub busiest: f64,
    /// The part of its share that it used.
    pub busiest_of_share: f64,
    /// The shards of the replica that had most, by the mean of all. Absent if one did not say.
    pub most_shards: Option<f64>,
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
    /// What to say if the goal is not reached.
    pub fn missed(&self, climbs: &[Climb]) -> Option<String> {
        let Goal { replicas, times } = self.goal?;
        let of = |climb: &Climb| climb.capacity(self.p99_ms);
        let first = climbs.first().and_then(of);
        let climb = climbs.iter().find(|climb| climb.replicas == replicas).and_then(of);
        let found = climb.zip(first).map(|(found, first)| found / first);
        let shown = found.map_or("nothing".to_owned(), |found| format!("{found:.2} times"));
        let is_reached = found.is_some_and(|found| found >= times);
        (!is_reached).then(|| {
            format!(
                "capacity of {}: goal at least {times} times that of {}, measured {shown}",
                replicas_of(replicas),
                replicas_of(self.replicas.first().copied().unwrap_or_default())
            )
        })
    }

    /// The rate after these, which are ascending. `None` if the limit is crossed for good, or enough were tried.
    pub fn next(&self, first: f64, rungs: &[Rung]) -> Option<f64> {
        let Some(last) = rungs.last() else { return Some(first) };
        let points = points(rungs);
        let within = points.len() - capacity::above(&points, self.p99_ms);
        let below = within.checked_sub(1).and_then(|n| points.get(n));
        let above = points.get(within);
        if let Some((below, above)) = below.zip(above)
            && above.0 > below.0 * self.resolution
        {
            return Some((below.0 * above.0).sqrt());
        }
        let highest = self.factor.powi(ABOVE - 1) * EXACT;
        let is_crossed = above.is_some_and(|above| last.per_second >= above.0 * highest);
        let is_enough = rungs.len() >= self.steps as usize;
        (!is_crossed && !is_enough).then_some(last.per_second * self.factor)
    }

    /// Whether to run a rate again after these runs of it and those of others. Between two rates, one run that is far
    /// off would move the crossing by all that is between them.
    pub fn again(&self, rungs: &[Rung], runs: &[Rung]) -> bool {
        let near = self.p99_ms / NEAR..=self.p99_ms * NEAR;
        runs.first().is_none_or(|first| {
            let is_between = rungs.last().is_some_and(|last| first.per_second < last.per_second);
            (is_between || near.contains(&first.p99_ms)) && runs.len() < RUNS
        })
    }
}

/// Of the runs of a rate the one with the median p99. `None` if there are none.
pub fn median(mut runs: Vec<Rung>) -> Option<Rung> {
    runs.sort_by(|a, b| a.p99_ms.total_cmp(&b.p99_ms));
    let runs_p99_ms = runs.iter().map(|run| run.p99_ms).collect();
    let middle = runs.len() / 2;
    Some(Rung { runs_p99_ms, ..runs.into_iter().nth(middle)? })
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

    /// What beside the replicas decided over their capacity: it says little of them then.
    pub fn doubts(&self, curve: &Curve) -> Vec<String> {
        let within = self.rungs.len() - capacity::above(&points(&self.rungs), curve.p99_ms);
        let around = self.rungs.iter().skip(within.saturating_sub(1)).take(2);
        let doubts = around.flat_map(|rung| rung.doubts(curve, self.replicas));
        doubts.chain(self.not_found(curve)).collect()
    }

    /// What to say if no rate shows their capacity.
    fn not_found(&self, curve: &Curve) -> Option<String> {
        self.capacity(curve.p99_ms).is_none().then(|| {
            format!(
                "capacity of {}: not found: p99 crosses {} ms between no two rates; change load.updates_per_second or \
                 curve.steps",
                replicas_of(self.replicas),
                curve.p99_ms
            )
        })
    }
}

impl Rung {
    fn doubts(&self, curve: &Curve, replicas: u32) -> impl Iterator<Item = String> {
        let (servers, others, lag) = (self.servers_cores, self.others_cores, self.lag_p99_ms);
        let (allowed, at) = (curve.others_cores, self.per_second);
        let whats = [
            (servers > SERVERS_FULL).then(|| {
                format!("the servers used {servers:.2} of their core: give replicas smaller shares")
            }),
            (others > allowed).then(|| {
                format!("the rest of the machine used {others:.2} cores, allowed {allowed}: run it when that rests")
            }),
            (lag > GREAT_LAG * curve.p99_ms).then(|| {
                format!("the generator was late, p99 {lag:.0} ms: give replicas smaller shares")
            }),
        ];
        let of = replicas_of(replicas);
        whats
            .into_iter()
            .flatten()
            .map(move |what| format!("capacity of {of}: at {at:.0} changes a second {what}"))
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
         with {:.0} % of one core, servers and generator on another. Near the limit the median of {RUNS} runs \
         counts.\n",
        curve.share * 100.0
    )?;
    writeln!(
        out,
        "| replicas | capacity | times the first | CPU ms for a change | busiest by mean | most shards by mean | \
         idle, cores each | peak MiB |\n|---|---|---|---|---|---|---|---|"
    )?;
    let first = climbs.first().and_then(|climb| climb.capacity(limit));
    for climb in climbs {
        let capacity = climb.capacity(limit);
        let times = capacity.zip(first).map(|(capacity, first)| format!("{:.2}", capacity / first));
        let good = climb.last_good(limit);
        let of = |pick: fn(&Rung) -> Option<f64>| {
            good.and_then(pick).map_or(String::new(), |value| format!("{value:.2}"))
        };
        writeln!(
            out,
            "| {} | {} | {} | {} | {} | {} | {:.3} | {:.0} |",
            climb.replicas,
            capacity.map_or("not found".to_owned(), |capacity| format!("{capacity:.0}/s")),
            times.unwrap_or_default(),
            of(|rung| Some(rung.cpu_per_change_ms)),
            of(|rung| Some(rung.busiest)),
            of(|rung| rung.most_shards),
            climb.idle_cores,
            climb.peak_mib,
        )?;
    }
    writeln!(
        out,
        "\n| replicas | changes/s | p99 ms | of runs | changes | CPU ms for a change | busiest, of its share | \
         servers, cores | others, cores | lag p99 ms |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|---|---|---|")?;
    for climb in climbs {
        for rung in &climb.rungs {
            let runs: Vec<String> = rung.runs_p99_ms.iter().map(|ms| format!("{ms:.0}")).collect();
            let Rung { per_second, p99_ms, changes, cpu_per_change_ms: cpu, .. } = rung;
            let (servers, others, lag) = (rung.servers_cores, rung.others_cores, rung.lag_p99_ms);
            writeln!(
                out,
                "| {} | {per_second:.1} | {p99_ms:.0} | {} | {changes} | {cpu:.2} | {:.2} | {servers:.2} | \
                 {others:.2} | {lag:.1} |",
                climb.replicas,
                runs.join(", "),
                rung.busiest_of_share
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
            runs_p99_ms: vec![p99_ms],
            changes: 600,
            cpu_per_change_ms: 0.5,
            busiest: 1.0,
            busiest_of_share: 0.75,
            most_shards: Some(1.25),
            servers_cores: 0.1,
            others_cores: 0.02,
            lag_p99_ms: 1.0,
        }
    }

    fn climb(replicas: u32, rungs: &[(f64, f64)]) -> Climb {
        let rungs = rungs.iter().map(|&(rate, p99)| rung(rate, p99)).collect();
        Climb { replicas, idle_cores: 0.01, peak_mib: 50.0, rungs }
    }

    fn climbs() -> [Climb; 3] {
        [
            climb(1, &[(10.0, 50.0), (40.0, 200.0)]),
            climb(2, &[(10.0, 20.0), (20.0, 50.0), (80.0, 200.0)]),
            climb(3, &[(10.0, 20.0)]),
        ]
    }

    fn curve() -> Curve {
        Curve {
            replicas: vec![1, 2],
            share: 0.1,
            balance: Duration::from_secs(1),
            p99_ms: 100.0,
            factor: 2.0,
            resolution: 1.5,
            steps: 5,
            others_cores: 0.1,
            goal: None,
        }
    }

    #[test]
    fn a_goal_that_is_not_reached_or_not_measured_is_missed() {
        let climbs = climbs();
        let missed = |replicas, times| {
            Curve { goal: Some(Goal { replicas, times }), ..curve() }.missed(&climbs)
        };
        assert_eq!((curve().missed(&climbs), missed(2, 1.99)), (None, None));
        let said = "goal at least 2.1 times that of 1 replica, measured 2.00 times";
        assert_eq!(missed(2, 2.1), Some(format!("capacity of 2 replicas: {said}")));
        for replicas in [3, 7] {
            let said = missed(replicas, 0.01).unwrap();
            assert!(said.ends_with("measured nothing"), "{said}");
        }
        let no_number = climb(2, &[(10.0, 0.0), (80.0, 200.0)]);
        let goal = Some(Goal { replicas: 2, times: 0.01 });
        assert!(Curve { goal, ..curve() }.missed(&[climbs[0].clone(), no_number]).is_some());
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
    fn it_climbs_until_the_limit_is_crossed_for_good() {
        let curve = curve();
        let check = |rungs: &[(f64, f64)], expect: Option<f64>| {
            let found = curve.next(7.0, &climb(1, rungs).rungs);
            let same = found.zip(expect).is_some_and(|(a, b)| (a - b).abs() < 1e-9);
            assert!(same || found == expect, "{rungs:?}: {found:?}");
        };
        check(&[], Some(7.0));
        check(&[(10.0, 1.0)], Some(20.0));
        // The middle of where it is crossed, then higher rates, each time of the present crossing.
        check(&[(10.0, 1.0), (20.0, 200.0)], Some(200f64.sqrt()));
        let middle = 200f64.sqrt();
        check(&[(10.0, 1.0), (middle, 200.0), (20.0, 200.0)], Some(40.0));
        check(&[(10.0, 1.0), (middle, 50.0), (20.0, 200.0)], Some(40.0));
        check(&[(10.0, 1.0), (middle, 50.0), (20.0, 200.0), (40.0, 9.0)], Some(80.0));
        check(&[(10.0, 1.0), (middle, 200.0), (20.0, 200.0), (40.0, 200.0)], Some(80.0));
        check(&[(10.0, 1.0), (middle, 200.0), (20.0, 1.0), (40.0, 1.0), (50.0, 300.0)], None);
        let crossed = [(14.0, 50.0), (20.0, 200.0), (40.0, 300.0), (80.0, 900.0)];
        check(&crossed, None);
        check(&crossed[1..], None);
        check(&[(10.0, 1.0), (20.0, 1.0), (40.0, 1.0), (80.0, 1.0), (160.0, 1.0)], None);
    }

    #[test]
    fn the_median_counts_where_the_limit_is_near() {
        let curve = curve();
        let runs = |p99: &[f64]| p99.iter().map(|ms| rung(1.0, *ms)).collect::<Vec<_>>();
        let table: [(&[f64], bool); 7] = [
            (&[], true),
            (&[49.0], false),
            (&[50.0], true),
            (&[200.0], true),
            (&[201.0], false),
            (&[90.0, 900.0], true),
            (&[90.0, 900.0, 1.0], false),
        ];
        for (p99, again) in table {
            assert_eq!(curve.again(&[], &runs(p99)), again, "{p99:?}");
        }
        let higher = [rung(2.0, 201.0)];
        assert!(curve.again(&higher, &runs(&[9000.0, 9000.0])));
        assert!(!curve.again(&higher, &runs(&[9000.0; 3])));
        let found = median(runs(&[90.0, 900.0, 1.0])).unwrap();
        assert_eq!((found.p99_ms, found.runs_p99_ms), (90.0, vec![1.0, 90.0, 900.0]));
        assert_eq!(median(Vec::new()), None);
    }

    #[test]
    fn a_capacity_that_is_not_found_is_told() {
        for rungs in [[(10.0, 50.0), (20.0, 60.0)], [(10.0, 500.0), (20.0, 600.0)]] {
            let said = climb(3, &rungs).doubts(&curve());
            assert!(said[0].starts_with("capacity of 3 replicas: not found: "), "{said:?}");
        }
    }

    #[test]
    fn what_else_decides_over_a_capacity_is_named() {
        let curve = curve();
        let mut climb = climb(2, &[(10.0, 50.0), (20.0, 60.0), (40.0, 200.0), (80.0, 900.0)]);
        assert_eq!(climb.doubts(&curve), [""; 0]);
        // Far from the crossing they decide nothing.
        for far in [0, 3] {
            climb.rungs[far].others_cores = 1.5;
        }
        assert_eq!(climb.doubts(&curve), [""; 0]);
        climb.rungs[1].others_cores = 0.2;
        climb.rungs[2].servers_cores = 0.95;
        climb.rungs[2].lag_p99_ms = 26.0;
        let expect = [
            "at 20 changes a second the rest of the machine used 0.20 cores, allowed 0.1: run it when that rests",
            "at 40 changes a second the servers used 0.95 of their core: give replicas smaller shares",
            "at 40 changes a second the generator was late, p99 26 ms: give replicas smaller shares",
        ];
        let expect = expect.map(|line| format!("capacity of 2 replicas: {line}"));
        assert_eq!(climb.doubts(&curve), expect);
    }

    #[test]
    fn tables_compare_with_the_first() {
        let text = markdown(&curve(), &climbs());
        for row in [
            "| 1 | 20/s | 1.00 | 0.50 | 1.00 | 1.25 | 0.010 | 50 |",
            "| 2 | 40/s | 2.00 | 0.50 | 1.00 | 1.25 | 0.010 | 50 |",
            "| 3 | not found |  | 0.50 | 1.00 | 1.25 | 0.010 | 50 |",
            "| 2 | 80.0 | 200 | 200 | 600 | 0.50 | 0.75 | 0.10 | 0.02 | 1.0 |",
        ] {
            assert!(text.contains(&format!("{row}\n")), "{row}\nis not in\n{text}");
        }
    }
}
