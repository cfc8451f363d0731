//! The command line as typed. Nothing here is checked beyond its syntax.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use ops::Output;

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
    /// Look at a fleet, and say what is wanted of it.
    #[command(flatten)]
    Ops(ops::Command),
    /// Look for what is wrong, in the fleet and in each cluster, and say what to do.
    Doctor(super::doctor::DoctorArgs),
    /// Say what would move if members left or joined, in an invented fleet or a live one.
    Simulate(super::simulate::SimulateArgs),
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
