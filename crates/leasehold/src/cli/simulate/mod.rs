//! `leasehold simulate`: what the coordinator would do to a fleet when members leave or join, and
//! how even the load is before and after.
//!
//! In data order: `args` is the command line; `scenario` invents a fleet, `live` reads one from its
//! home cluster; `policies` reads FleetPolicies as the API server would take them; `fleet` runs the production coordinator over it, in simulated time and with members
//! that obey at once; `report` describes the result.
//!
//! Nothing is written to a live fleet: the objects read are changed in memory only.

pub(super) mod args;
pub(super) mod fleet;
mod live;
mod policies;
pub(super) mod report;
pub(super) mod scenario;

use std::process::ExitCode;

use sharding::policy::PolicyRecord;

use self::args::Format;
pub(super) use self::args::SimulateArgs;
use self::fleet::Fleet;
use self::report::Report;
use self::scenario::{Change, Scenario};

/// Simulates the change and prints what it does.
///
/// # Errors
/// When the arguments contradict each other, the fleet is impossible, or the home cluster of a live
/// one cannot be read.
pub(super) fn run(args: &SimulateArgs) -> anyhow::Result<ExitCode> {
    args.check()?;
    let scenario = match args.live() {
        Some(home) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(live::read(&home))?
        }
        None => Scenario::invent(&args.shape(), args.seed),
    };
    let read = |path| policies::read(path, scenario.namespace.as_deref());
    let policies = args.policy.as_deref().map(read).transpose()?.unwrap_or_default();
    let (text, problems) = if args.next {
        let mut fleet = Fleet::new(scenario);
        fleet.write_policies(policies);
        let steps = fleet.next()?;
        let text = match args.output {
            Format::Text if steps.is_empty() => "nothing: the fleet is at rest\n".to_owned(),
            Format::Text => steps.join("\n") + "\n",
            Format::Json => serde_json::to_string_pretty(&steps)? + "\n",
        };
        (text, fleet.problems().to_vec())
    } else {
        let report = play(scenario, args.change(), policies, args.seed)?;
        let text = match args.output {
            Format::Text => report.to_string(),
            Format::Json => serde_json::to_string_pretty(&report)? + "\n",
        };
        (text, report.problems)
    };
    problems.iter().for_each(ops::warn);
    ops::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Lets a fleet settle, changes it, and lets it settle again.
///
/// # Errors
/// When it does not settle, or would be left without members.
pub(super) fn play(
    scenario: Scenario,
    change: Change,
    policies: Vec<PolicyRecord>,
    seed: u64,
) -> Result<Report, fleet::SimulationError> {
    let title = scenario.title.clone();
    let mut fleet = Fleet::new(scenario);
    fleet.settle()?;
    let before = fleet.counts();
    let report = Report::new(title, change, seed, fleet.standing());
    fleet.change(change, seed)?;
    let written = policies.len();
    fleet.write_policies(policies);
    let settled_after_seconds = fleet.settle()?.as_secs();
    Ok(Report {
        policies: written,
        after: fleet.standing(),
        counts: fleet.counts().since(before),
        settled_after_seconds,
        problems: fleet.problems().to_vec(),
        ..report
    })
}

#[cfg(test)]
mod tests;
