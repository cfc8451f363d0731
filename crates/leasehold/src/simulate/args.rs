//! The command line of `leasehold simulate`.

use std::path::PathBuf;

use clap::ValueEnum;

use super::scenario::{Change, Load, Shape};

/// Arguments of `leasehold simulate`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Members of an invented fleet.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub members: u16,
    /// Its clusters.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub clusters: u16,
    /// Controller groups in each of its clusters.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub groups: u16,
    /// How its load is spread over its clusters.
    #[arg(long, value_enum, default_value_t = Load::Uniform)]
    pub load: Load,
    /// Take members and shards from the home cluster of this kubeconfig instead. Nothing is written
    /// there.
    #[arg(long, value_name = "KUBECONFIG",
          conflicts_with_all = ["members", "clusters", "groups", "load"])]
    pub from_live: Option<PathBuf>,
    /// Its namespace of Leases, Members and ShardMaps. Default: leasehold-system.
    #[arg(long, short, value_name = "NAME", requires = "from_live")]
    pub namespace: Option<String>,
    /// So many members leave, in good order.
    #[arg(long, value_name = "N", conflicts_with = "join")]
    pub leave: Option<u16>,
    /// So many members join.
    #[arg(long, value_name = "N")]
    pub join: Option<u16>,
    /// Says which members leave, and which clusters carry much.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The form of the answer.
    #[arg(long, short, value_enum, default_value_t = Output::Text)]
    pub output: Output,
}

/// The form of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
}

impl Args {
    /// The fleet to invent.
    pub fn shape(&self) -> Shape {
        let Self { members, clusters, groups, load, .. } = *self;
        Shape { members, clusters, groups, load }
    }

    /// What happens to it.
    pub fn change(&self) -> Change {
        match (self.leave, self.join) {
            (Some(members), _) => Change::Leave(members),
            (None, Some(members)) => Change::Join(members),
            (None, None) => Change::Nothing,
        }
    }
}
