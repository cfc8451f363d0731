//! The command line as typed. Nothing here is checked beyond its syntax.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use model::ClusterName;

use super::home::HomeArgs;
use super::output::Output;

/// A multi-cluster sharded controller manager for Kubernetes.
#[derive(Debug, Parser)]
#[command(name = "leasehold", version, max_term_width = 100)]
pub(super) struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    #[cfg(feature = "demo")]
    /// Start a whole fleet on this machine and show what it does.
    Demo(demo::Args),
    /// Run one replica of the manager.
    Run(RunArgs),
    /// Show members and shards, read from the home cluster. Unless it waits, the exit code is 3 if something is
    /// wrong.
    Status(StatusArgs),
    /// Look for what is wrong, in the fleet and in each cluster, and say what to do.
    Doctor(super::doctor::DoctorArgs),
    /// Show where the work is: controllers, clusters, and the objects that run longest or fail most.
    Top(super::top::TopArgs),
    /// Show what the fleet has told of itself: moves of shards, fences, clusters that went down.
    Events(super::events::EventsArgs),
    /// Say where one object stands: its shard, its owner, its queue, its last failure.
    Explain(super::explain::ExplainArgs),
    /// Say what would move if members left or joined, in an invented fleet or a live one.
    Simulate(super::simulate::SimulateArgs),
    /// Hand over everything a member has and give it nothing new, for maintenance.
    Drain(DrainArgs),
    /// Stop all work on some shards: a cluster, a controller group, or everything.
    Pause(super::policy::PauseArgs),
    /// Take a pause back.
    Resume(super::policy::ResumeArgs),
    /// Say which members are to have some shards.
    Pin(super::policy::PlaceArgs),
    /// Say which members are not to have some shards.
    Avoid(super::policy::PlaceArgs),
    /// Say how much load some shards count for, whatever is measured.
    Weigh(super::policy::WeighArgs),
    /// Say what members may carry, and how many shards may move at a time.
    Limit(super::policy::LimitArgs),
    /// Delete policies: take a pin, an avoidance, a weight or a limit back.
    Lift(super::policy::LiftArgs),
    /// Show the policies: what people want of the fleet.
    Policies(super::policy::PoliciesArgs),
    /// Give the fleet clusters, and take them away.
    #[command(subcommand)]
    Clusters(super::clusters::ClustersCommand),
    /// Store, fetch, list and delete backups of databases: what controllers run in Jobs.
    #[command(subcommand)]
    Backup(super::backup::BackupCommand),
    #[cfg(feature = "embedded")]
    /// Run the embedded API server by itself.
    Apiserver(ApiserverArgs),
    /// Print the CustomResourceDefinitions as YAML: `leasehold crds | kubectl apply -f -`.
    Crds(CrdsArgs),
    /// Print the rights that somebody needs to watch a fleet or to run one: `| kubectl apply -f -`.
    Rbac(super::rbac::RbacArgs),
    /// Write what those need who help: the fleet, its replicas' views, metrics and logs, without secrets.
    SupportBundle(super::bundle::BundleArgs),
    /// Print a script for a shell that completes this command's arguments.
    Completion(CompletionArgs),
    /// Print the version.
    Version(VersionArgs),
}

/// Arguments of `leasehold completion`.
#[derive(Debug, clap::Args)]
pub(super) struct CompletionArgs {
    /// The shell: `source <(leasehold completion bash)`.
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// Arguments of `leasehold version`.
#[derive(Debug, clap::Args)]
pub(super) struct VersionArgs {
    /// The form of the answer.
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

/// Arguments of `leasehold run`.
#[derive(Debug, clap::Args)]
pub(super) struct RunArgs {
    /// The configuration file; every key is in deploy/leasehold.example.yaml.
    #[arg(long, short, value_name = "FILE", env = "LEASEHOLD_CONFIG")]
    pub config: PathBuf,
    /// Check the configuration file and exit: 0 if it is right, 2 if not.
    #[arg(long)]
    pub check: bool,
    /// Exit at once when standard input closes, so that a child does not outlive a killed parent.
    #[arg(long, hide = true)]
    pub exit_with_stdin: bool,
}

/// Arguments of `leasehold status`.
#[derive(Debug, clap::Args)]
pub(super) struct StatusArgs {
    /// Which fleet.
    #[command(flatten)]
    pub home: HomeArgs,
    /// The form of the answer.
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    pub output: Output,
    /// Only the shards of this cluster.
    #[arg(long, value_name = "NAME")]
    pub cluster: Vec<ClusterName>,
    /// Only this member and its shards: its id, or its identity (the pod's name).
    #[arg(long, value_name = "NAME")]
    pub member: Vec<String>,
    /// Wait until the fleet has settled: a member is alive, each shard is owned by such a one, and nobody is
    /// refused. After this long (40s, 2m), show what there is and exit with 1.
    #[arg(long, value_name = "DURATION", value_parser = crate::local::duration)]
    pub wait: Option<Duration>,
    /// Show it again at each change, until interrupted.
    #[arg(long, short = 'w', conflicts_with = "wait")]
    pub watch: bool,
}

/// Arguments of `leasehold drain`.
#[derive(Debug, clap::Args)]
pub(super) struct DrainArgs {
    /// Which member: its id as `leasehold status` shows it, or its identity (the pod's name).
    #[arg(value_name = "MEMBER")]
    pub member: String,
    /// Take it back: the member gets shards again.
    #[arg(long)]
    pub undo: bool,
    /// Wait until it has no shard left.
    #[arg(long, conflicts_with = "undo")]
    pub wait: bool,
    /// Which fleet.
    #[command(flatten)]
    pub home: HomeArgs,
}

/// Arguments of `leasehold crds`.
#[derive(Debug, clap::Args)]
pub(super) struct CrdsArgs {
    /// Which ones: those of the home cluster, those of workload clusters, or all.
    #[arg(long = "for", value_enum, default_value_t = CrdSet::All, value_name = "CLUSTERS")]
    pub set: CrdSet,
}

/// Which CustomResourceDefinitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum CrdSet {
    /// All of them.
    All,
    /// ShardMap, Member and FleetPolicy.
    Home,
    /// Those of the built-in controllers.
    Workload,
}

#[cfg(feature = "embedded")]
/// Arguments of `leasehold apiserver`.
#[derive(Debug, clap::Args)]
pub(super) struct ApiserverArgs {
    /// The server's own.
    #[command(flatten)]
    pub server: apiserver::Args,
    /// Install the CustomResourceDefinitions of `leasehold crds`.
    #[arg(long)]
    pub crds: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Args::command().debug_assert();
    }
}
