//! Faults under load, round by round, and what is measured on the way.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use super::evidence;
use super::faults::{Fault, Round};
use super::field::{self, Field};
use super::figures;
use super::gap::{self, Gap};
use super::history::{History, Timings, Window};
use super::oracle::{self, Finding, Judgement};
use super::report::{self, Format, Row};
use crate::real::Scene;
use crate::real::load::{Expected, Load};
use crate::real::wait::{self, Stopwatch};

/// Workload clusters on real API servers, and on embedded ones.
const REAL: [&str; 2] = ["east", "west"];
const EMBEDDED: usize = 6;

/// Between one change and the next, in each cluster.
const PAUSE: Duration = Duration::from_millis(250);
/// How long the load goes on before the fault.
const BREATH: Duration = Duration::from_secs(2);
const CONVERGE_DEADLINE: Duration = Duration::from_secs(90);

/// What belongs to no round: the fleet is brought back to its size.
const BETWEEN: &str = "(between rounds)";
/// The most findings told one by one.
const TOLD: usize = 10;

/// What is to be done.
#[derive(Debug)]
pub struct Plan<'a> {
    /// The faults.
    pub faults: &'a [&'static Fault],
    /// How often each of them.
    pub rounds: usize,
    /// How many replicas there are.
    pub members: usize,
    /// How long SIGSTOP lasts.
    pub stop_for: Duration,
    /// The form of the table.
    pub format: Format,
}

/// What was noted while it went on.
#[derive(Default)]
struct Notes {
    windows: Vec<(Window, &'static Fault)>,
    converged: BTreeMap<&'static str, Vec<Duration>>,
    /// What `leasehold status` said that was not true.
    lies: BTreeMap<&'static str, Vec<String>>,
    /// The fault whose harm was never made good, and what was seen last.
    broken: Option<(&'static str, anyhow::Error)>,
}

/// Does all of it and prints the table. Says whether every promise was kept.
///
/// # Errors
/// If the field cannot be prepared, or its evidence cannot be read.
pub async fn run(scene: &Scene, plan: &Plan<'_>) -> Result<bool> {
    let watch = Stopwatch::start();
    let mut field = Field::prepare(scene, field_plan(scene)).await?;
    field.restore(plan.members).await?;
    eprintln!("{} replicas over {} clusters after {watch}", plan.members, field.clusters());
    let notes = disturb(&mut field, plan).await;
    let samples = field.sampler.samples();
    let history = evidence::gather(&mut field).await?;
    let gaps = gap::gaps(&history, Timings::DEFAULT);
    let judgement = oracle::judge(&history);
    let mut rows = rows(plan, &notes, &gaps, &judgement);
    for (window, fault) in &notes.windows {
        let movement = figures::judge(&samples, window, &gaps, fault.expected);
        let row = rows.iter_mut().find(|row| row.fault == fault.name);
        let Some(row) = row else { continue };
        row.refused += movement.refused as u64;
        row.lies += movement.lies.len();
        movement.lies.iter().for_each(|lie| eprintln!("untrue in {}: {lie}", fault.name));
    }
    tell(&notes, &history, &judgement);
    match plan.format {
        Format::Json => println!("{}", serde_json::to_string_pretty(&report::json(&rows))?),
        format => print!("{}", report::table(&rows).render(format)),
    }
    eprintln!("in {watch}");
    Ok(notes.broken.is_none() && !rows.iter().any(Row::is_bad))
}

fn field_plan(scene: &Scene) -> field::Plan<'static> {
    field::Plan {
        real: &REAL,
        embedded: EMBEDDED,
        has_sets: true,
        program: vec![scene.tools().leasehold(), "run".into()],
        controllers: json!({"tdset": {"workers": 4}, "configmonitor": {"workers": 2}}),
    }
}

/// Every fault as often as asked for, until one is not made good.
async fn disturb(field: &mut Field<'_>, plan: &Plan<'_>) -> Notes {
    let mut notes = Notes::default();
    let mut expected = Expected::default();
    for fault in plan.faults {
        if let Some(why) = (fault.obstacle)() {
            eprintln!("{}: skipped: {why}", fault.name);
            continue;
        }
        for number in 0..plan.rounds {
            let round = Round { number, stop_for: plan.stop_for };
            let outcome = once(field, plan, fault, round, expected, &mut notes).await;
            expected = match outcome {
                Ok(expected) => expected,
                Err(error) => {
                    eprintln!("{}, round {}: {error:#}", fault.name, number + 1);
                    notes.broken = Some((fault.name, error));
                    return notes;
                }
            };
        }
    }
    notes
}

/// One round. Gives where its changes lead.
async fn once(
    field: &mut Field<'_>,
    plan: &Plan<'_>,
    fault: &'static Fault,
    round: Round,
    expected: Expected,
    notes: &mut Notes,
) -> Result<Expected> {
    let load = Load::resume(field.targets(), PAUSE, expected);
    tokio::time::sleep(BREATH).await;
    field.sampler.sample().await;
    let from = wait::now();
    field.sampler.sample().await;
    (fault.run)(field, round).await?;
    let after = Stopwatch::start();
    let mut lie = field.untrue_status().await?;
    field.settle().await?;
    let settled = after.elapsed();
    let expected = load.settle(CONVERGE_DEADLINE).await?;
    let converged = after.elapsed();
    field.sampler.sample().await;
    let window = Window { fault: fault.name, from, until: wait::now() };
    lie = lie.or(field.untrue_status().await?);
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
    notes.lies.entry(fault.name).or_default().extend(lie);
    field.restore(plan.members).await?;
    Ok(expected)
}

/// A row for each fault, and one for what happened outside all rounds.
fn rows(plan: &Plan<'_>, notes: &Notes, gaps: &[Gap], judgement: &Judgement) -> Vec<Row> {
    let name =
        |at| notes.windows.iter().find(|(w, _)| w.contains(at)).map_or(BETWEEN, |(_, f)| f.name);
    let names = plan.faults.iter().map(|fault| fault.name).chain([BETWEEN]);
    let row = |fault: &'static str| {
        let of_fault =
            |findings: &[Finding]| findings.iter().filter(|f| name(f.at) == fault).count();
        let of_gaps = gaps.iter().filter(|gap| name(gap.until) == fault);
        Row {
            fault: fault.to_owned(),
            rounds: notes.windows.iter().filter(|(_, f)| f.name == fault).count(),
            unowned: of_gaps.map(Gap::unowned).collect(),
            converged: notes.converged.get(fault).cloned().unwrap_or_default(),
            overlaps: of_fault(&judgement.overlaps),
            trespasses: of_fault(&judgement.trespasses),
            refused: 0,
            lost: usize::from(notes.broken.as_ref().is_some_and(|(name, _)| *name == fault)),
            lies: notes.lies.get(fault).map_or(0, Vec::len),
        }
    };
    names.map(row).collect()
}

/// What the table has no room for.
fn tell(notes: &Notes, history: &History, judgement: &Judgement) {
    for finding in judgement.overlaps.iter().chain(&judgement.trespasses).take(TOLD) {
        eprintln!("broken at {}: {}", finding.at, finding.what);
    }
    for (fault, lies) in &notes.lies {
        lies.iter().for_each(|lie| eprintln!("untrue in {fault}: {lie}"));
    }
    let longest = judgement.woken.iter().map(|woken| woken.lasted).max();
    if let Some(longest) = longest {
        eprintln!(
            "{} reconciles were asleep when their shard went to another; woken, the last of them was given up after {}",
            judgement.woken.len(),
            report::seconds(longest)
        );
    }
    eprintln!(
        "{} dispatches in the journals of {} replicas and {} writes in audit logs were held against the ShardMaps",
        history.dispatches.len(),
        history.lives.len(),
        history.writes
    );
}
