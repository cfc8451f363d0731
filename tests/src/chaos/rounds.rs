//! Faults under load, round by round, and what is measured meanwhile.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use super::evidence;
use super::faults::{NamedFault, Round};
use super::figures;
use super::fleet::{self, Fleet};
use super::gap::{self, Gap};
use super::history::{Timings, Window};
use super::oracle::{self, Finding, Judgement};
use super::report::{self, Row};
use crate::harness::Scene;
use crate::harness::load::{Desired, Load};
use crate::harness::table::Format;
use crate::harness::wait::{self, Stopwatch};

/// Workload clusters on real API servers, and on embedded ones.
const REAL: [&str; 2] = ["east", "west"];
/// With them, there are more clusters than the coordinator takes away at once (`sharding`, `removal`).
const EMBEDDED: usize = 9;

/// The time between two changes in a cluster.
const PAUSE: Duration = Duration::from_millis(250);
/// How long the load runs before the fault, at least.
const MIN_LOAD: Duration = Duration::from_secs(2);
/// How much longer it runs in each round than in the one before, modulo [`RENEW_INTERVAL`]: the
/// golden section of it, which spreads the faults evenly between two renewals of a Lease.
const LATER: Duration = Duration::from_millis(1236);
/// The default of `leasehold run`.
const RENEW_INTERVAL: Duration = Duration::from_secs(2);
const CONVERGE_DEADLINE: Duration = Duration::from_secs(90);

/// The row of what happens outside all rounds, while replicas are started and dismissed.
const BETWEEN: &str = "(between rounds)";

/// What to run.
#[derive(Debug)]
pub struct Schedule<'a> {
    /// The faults.
    pub faults: &'a [&'static NamedFault],
    /// How often each of them is run.
    pub rounds: usize,
    /// How many replicas there are.
    pub members: usize,
    /// How long SIGSTOP lasts.
    pub stop_for: Duration,
    /// The form of the table.
    pub format: Format,
}

/// What was noted during the rounds.
#[derive(Default)]
struct Notes {
    windows: Vec<(Window, &'static NamedFault)>,
    converged: BTreeMap<&'static str, Vec<Duration>>,
    /// What `leasehold status` said that was not true.
    untrue: BTreeMap<&'static str, Vec<String>>,
    /// The fault from which the fleet did not recover.
    broken: Option<&'static str>,
}

/// Runs the faults and prints the table. Returns whether every promise was kept.
pub async fn run(scene: &Scene, plan: &Schedule<'_>) -> Result<bool> {
    let watch = Stopwatch::start();
    let mut fleet = Fleet::prepare(scene, fleet_plan(scene)).await?;
    fleet.restore(plan.members).await?;
    eprintln!("{} replicas over {} clusters after {watch}", plan.members, fleet.clusters());
    let notes = disturb(&mut fleet, plan).await;
    let samples = fleet.sampler.samples();
    let history = evidence::gather(&mut fleet).await?;
    let gaps = gap::gaps(&history, Timings::DEFAULT);
    let judgement = oracle::judge(&history);
    let mut rows = rows(plan, &notes, &gaps, &judgement);
    for (window, fault) in &notes.windows {
        let changes = figures::judge(&samples, window, &gaps, fault.expected);
        let row = rows.iter_mut().find(|row| row.fault == fault.name);
        let Some(row) = row else { continue };
        row.refused += changes.refused as u64;
        row.untrue += changes.untrue.len();
        changes.untrue.iter().for_each(|what| eprintln!("untrue in {}: {what}", fault.name));
    }
    for (fault, untrue) in &notes.untrue {
        untrue.iter().for_each(|what| eprintln!("untrue in {fault}: {what}"));
    }
    judgement.print();
    eprintln!(
        "{} dispatches in the journals of {} replicas and {} writes in audit logs were compared with the ShardMaps",
        history.dispatches.len(),
        history.lives.len(),
        history.writes
    );
    match plan.format {
        Format::Json => println!("{}", serde_json::to_string_pretty(&report::json(&rows))?),
        format => print!("{}", report::table(&rows).render(format)),
    }
    eprintln!("took {watch}");
    Ok(notes.broken.is_none() && !rows.iter().any(Row::is_bad))
}

fn fleet_plan(scene: &Scene) -> fleet::FleetSpec<'static> {
    fleet::FleetSpec {
        real: &REAL,
        embedded: EMBEDDED,
        has_sets: true,
        program: vec![scene.tools().leasehold(), "run".into()],
        controllers: json!({"tdset": {"workers": 4}, "configmonitor": {"workers": 2}}),
    }
}

/// Runs every fault as often as asked for, until the fleet does not recover from one.
async fn disturb(fleet: &mut Fleet<'_>, plan: &Schedule<'_>) -> Notes {
    let mut notes = Notes::default();
    let mut expected = Desired::default();
    for fault in plan.faults {
        if let Some(why) = (fault.obstacle)() {
            eprintln!("{}: skipped: {why}", fault.name);
            continue;
        }
        for number in 0..plan.rounds {
            let round = Round { number, stop_for: plan.stop_for };
            let outcome = once(fleet, plan, fault, round, expected, &mut notes).await;
            expected = match outcome {
                Ok(expected) => expected,
                Err(error) => {
                    eprintln!("{}, round {}: {error:#}", fault.name, number + 1);
                    notes.broken = Some(fault.name);
                    return notes;
                }
            };
        }
    }
    notes
}

/// Runs one round. Returns what must come of the changes of its load.
async fn once(
    fleet: &mut Fleet<'_>,
    plan: &Schedule<'_>,
    fault: &'static NamedFault,
    round: Round,
    expected: Desired,
    notes: &mut Notes,
) -> Result<Desired> {
    let load = Load::resume(fleet.targets(), PAUSE, expected);
    tokio::time::sleep(load_before(round.number)).await;
    let from = wait::now();
    fleet.sampler.sample().await;
    (fault.run)(fleet, round).await?;
    let after = Stopwatch::start();
    let untrue = fleet.untrue_status_of_home().await?;
    fleet.settle().await?;
    let settled = after.elapsed();
    let expected = load.settle(CONVERGE_DEADLINE).await?;
    let converged = after.elapsed();
    fleet.sampler.sample().await;
    let window = Window { fault: fault.name, from, until: wait::now() };
    let untrue = untrue.or(fleet.untrue_status().await?);
    eprintln!(
        "{}, round {}: settled {} after the fault, converged after {}, {} changes so far",
        fault.name,
        round.number + 1,
        report::seconds(settled),
        report::seconds(converged),
        expected.changes
    );
    notes.windows.push((window, fault));
    notes.converged.entry(fault.name).or_default().push(converged);
    notes.untrue.entry(fault.name).or_default().extend(untrue);
    fleet.restore(plan.members).await?;
    Ok(expected)
}

/// How long the load runs before the fault of a round.
fn load_before(round: usize) -> Duration {
    let later = LATER.as_millis() as u64 * round as u64 % RENEW_INTERVAL.as_millis() as u64;
    MIN_LOAD + Duration::from_millis(later)
}

/// Whether a fault ends or stops replicas while home answers the others.
fn is_crash(fault: &NamedFault) -> bool {
    fault.expected.reason == Some("crash") && !fault.expected.old_lease
}

/// A row for each fault, and one for what happened outside all rounds.
fn rows(plan: &Schedule<'_>, notes: &Notes, gaps: &[Gap], judgement: &Judgement) -> Vec<Row> {
    let name =
        |at| notes.windows.iter().find(|(w, _)| w.contains(at)).map_or(BETWEEN, |(_, f)| f.name);
    let names = plan.faults.iter().map(|fault| fault.name).chain([BETWEEN]);
    let row = |fault: &'static str| {
        let of_fault =
            |findings: &[Finding]| findings.iter().filter(|f| name(f.at) == fault).count();
        let of_gaps = gaps.iter().filter(|gap| name(gap.until) == fault);
        let crashes = plan.faults.iter().any(|known| known.name == fault && is_crash(known));
        let after_crash = of_gaps.clone().filter(|gap| crashes && !gap.drained);
        Row {
            fault: fault.to_owned(),
            rounds: notes.windows.iter().filter(|(_, f)| f.name == fault).count(),
            unowned: of_gaps.map(Gap::unowned).collect(),
            unserved: after_crash.filter_map(Gap::unserved).collect(),
            converged: notes.converged.get(fault).cloned().unwrap_or_default(),
            overlaps: of_fault(&judgement.overlaps),
            violations: of_fault(&judgement.violations),
            refused: 0,
            lost: usize::from(notes.broken == Some(fault)),
            untrue: notes.untrue.get(fault).map_or(0, Vec::len),
        }
    };
    names.map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::faults::FAULTS;
    use crate::chaos::fixture::at;

    #[test]
    fn findings_and_gaps_belong_to_the_round_in_which_they_happen() {
        let fault = &FAULTS[0];
        let window = Window { fault: fault.name, from: at(10), until: at(20) };
        let notes = Notes { windows: vec![(window, fault)], ..Notes::default() };
        let gap = |second| Gap {
            shard: "east/tdset/0/1".to_owned(),
            drained: true,
            from: at(second - 1),
            until: at(second),
            served: None,
        };
        let finding = |second| Finding { at: at(second), what: String::new() };
        let judgement = Judgement {
            overlaps: vec![finding(15), finding(25)],
            violations: vec![finding(20), finding(9), finding(1)],
        };
        let plan = Schedule {
            faults: &[fault],
            rounds: 1,
            members: 3,
            stop_for: Duration::ZERO,
            format: Format::Text,
        };
        let rows = rows(&plan, &notes, &[gap(12), gap(30)], &judgement);
        let counted: Vec<_> = rows
            .iter()
            .map(|row| (&*row.fault, row.rounds, row.unowned.len(), row.overlaps, row.violations))
            .collect();
        assert_eq!(counted, [(fault.name, 1, 1, 1, 1), (BETWEEN, 0, 1, 1, 2)]);
    }
}
