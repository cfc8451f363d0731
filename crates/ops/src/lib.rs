//! The commands by which people look at a fleet and say what they want of it, one file each. All of them reach it
//! through its home cluster (`home`); `explain`, `top`, `console` and `bundle` ask its replicas too (`replicas`). `policy` has the
//! verbs that write FleetPolicies, `policies` shows them, and `rbac` prints the rights that people need for all of this.
//!
//! What they print goes through `output`: for people, or for programs; a reader that has seen enough is no panic, nor is
//! a standard error that takes nothing. Names that people give are checked by `names`, and what a policy selects by
//! `selection`. Whoever waits is told by `stall` that nobody coordinates.

#![deny(unreachable_pub, clippy::print_stdout, clippy::print_stderr)]

mod bundle;
mod columns;
mod console;
mod drain;
mod events;
mod explain;
#[cfg(test)]
mod fuzz;
mod home;
mod names;
mod output;
mod policies;
mod policy;
mod program;
mod rbac;
mod redact;
mod replicas;
mod selection;
mod stall;
mod status;
mod top;

use std::process::ExitCode;

use clap::Subcommand;

pub use columns::columns;
pub use home::{DEFAULT_NAMESPACE, HomeArgs, HomeCluster, in_time, quoted, within};
pub use output::{Output, Pace, print, warn};
pub use program::{Connect, Program};
pub use replicas::{AskArgs, Replica, Replicas};

/// The commands.
#[derive(Debug, Subcommand)]
#[expect(private_interfaces, reason = "arguments are made by the command line alone")]
pub enum Command {
    /// Show members and shards, read from the home cluster. Unless it waits, the exit code is 3 if something is
    /// wrong.
    Status(status::StatusArgs),
    /// Show where the work is: controllers, clusters, and the objects that run longest or fail most.
    Top(top::TopArgs),
    /// Show the fleet's Events: moves of shards, fences, clusters that went down.
    Events(events::EventsArgs),
    /// Say where one object stands: its shard, its owner, its queue, its last failure.
    Explain(explain::ExplainArgs),
    /// Serve pages about the fleet on this machine: members, clusters, shards, queues, objects, Events.
    Console(console::ConsoleArgs),
    /// Hand over everything a member has and give it nothing new, for maintenance.
    Drain(drain::DrainArgs),
    /// Stop all work on some shards: a cluster, a controller group, or everything.
    Pause(policy::PauseArgs),
    /// Take a pause back.
    Resume(policy::ResumeArgs),
    /// Say which members are to have some shards.
    Pin(policy::PlaceArgs),
    /// Say which members are not to have some shards.
    Avoid(policy::PlaceArgs),
    /// Say how much load some shards count for, whatever is measured.
    Weigh(policy::WeighArgs),
    /// Say what members may carry, and how many shards may move at a time.
    Limit(policy::LimitArgs),
    /// Delete policies: take a pin, an avoidance, a weight or a limit back.
    Lift(policy::LiftArgs),
    /// Show the policies: what people want of the fleet.
    Policies(policies::PoliciesArgs),
    /// Print the rights that somebody needs to watch a fleet or to run one: `| kubectl apply -f -`.
    Rbac(rbac::RbacArgs),
    /// Write what those need who help: the fleet, its replicas' views, metrics and logs, without secrets.
    SupportBundle(bundle::BundleArgs),
}

/// Runs a command, and gives the exit code.
///
/// # Errors
/// When the home cluster cannot be named, reached or read, or refuses.
pub async fn run(command: &Command, program: &Program) -> anyhow::Result<ExitCode> {
    match command {
        Command::Status(args) => return status::run(args, program).await,
        Command::Top(args) => return top::run(args, program).await,
        Command::Events(args) => return events::run(args, program).await,
        Command::Explain(args) => return explain::run(args, program).await,
        Command::Console(args) => return console::run(args, program).await,
        Command::SupportBundle(args) => return bundle::run(args, program).await,
        Command::Drain(args) => drain::run(args, program).await,
        Command::Pause(args) => policy::pause(args, program).await,
        Command::Resume(args) => policy::resume(args, program).await,
        Command::Pin(args) => policy::pin(args, program).await,
        Command::Avoid(args) => policy::avoid(args, program).await,
        Command::Weigh(args) => policy::weigh(args, program).await,
        Command::Limit(args) => policy::limit(args, program).await,
        Command::Lift(args) => policy::lift(args, program).await,
        Command::Policies(args) => policies::run(args, program).await,
        Command::Rbac(args) => print(&rbac::yaml(args)?),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// A command line of these commands alone.
#[cfg(test)]
#[derive(Debug, clap::Parser)]
struct One {
    #[command(subcommand)]
    command: Command,
}
