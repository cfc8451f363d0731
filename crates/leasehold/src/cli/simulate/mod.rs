//! `leasehold simulate`: what the coordinator would do to a fleet when members leave or join, and
//! how even the load is before and after.
//!
//! In data order: `args` is the command line; `scenario` invents a fleet, `live` reads one from its
//! home cluster; `fleet` runs the production coordinator over it, in simulated time and with members
//! that obey at once; `report` describes the result.
//!
//! Nothing is written to a live fleet: the objects read are changed in memory only.

pub(super) mod args;
pub(super) mod fleet;
mod live;
pub(super) mod report;
pub(super) mod scenario;

use std::path::Path;
use std::process::ExitCode;

use anyhow::Context as _;
use kube::ResourceExt;
use sharding::api::FleetPolicy;
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
    let scenario = match &args.from_live {
        Some(kubeconfig) => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(live::read(kubeconfig, args.namespace.as_deref()))?
        }
        None => Scenario::invent(&args.shape(), args.seed),
    };
    let policies = args.policy.as_deref().map(policies).transpose()?;
    if args.next {
        let mut fleet = Fleet::new(scenario);
        fleet.write_policies(policies.unwrap_or_default());
        let (steps, problems) = fleet.next()?;
        problems.iter().for_each(|problem| eprintln!("leasehold: {problem}"));
        match args.output {
            Format::Text if steps.is_empty() => println!("nothing: the fleet is at rest"),
            Format::Text => steps.iter().for_each(|step| println!("{step}")),
            Format::Json => println!("{}", serde_json::to_string_pretty(&steps)?),
        }
        return Ok(ExitCode::SUCCESS);
    }
    let report = play(scenario, args.change(), policies.unwrap_or_default(), args.seed)?;
    match args.output {
        Format::Text => print!("{report}"),
        Format::Json => println!("{}", serde_json::to_string_pretty(&report)?),
    }
    Ok(ExitCode::SUCCESS)
}

/// The FleetPolicies of a file.
fn policies(path: &Path) -> anyhow::Result<Vec<PolicyRecord>> {
    let what = || format!("read FleetPolicies from {}", path.display());
    let text = std::fs::read_to_string(path).with_context(what)?;
    let policies: Vec<FleetPolicy> = serde_saphyr::from_multiple(&text).with_context(what)?;
    let record =
        |policy: FleetPolicy| PolicyRecord { name: policy.name_any(), spec: Ok(policy.spec) };
    Ok(policies.into_iter().map(record).collect())
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
    fleet.write_policies(policies);
    let settled_after_seconds = fleet.settle()?.as_secs();
    let counts = fleet.counts().since(before);
    Ok(Report { after: fleet.standing(), counts, settled_after_seconds, ..report })
}

#[cfg(test)]
mod tests;
