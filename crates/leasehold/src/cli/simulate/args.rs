//! The command line of `leasehold simulate`.

use std::path::PathBuf;

use clap::ValueEnum;
use ops::HomeArgs;

use super::scenario::{Change, Load, Shape};

/// How to read the answer.
const HOW_TO_READ: &str = "\
The fleet forms first and runs until nothing moves (BEFORE). Then the event happens, and the fleet
runs until nothing moves again (AFTER). The real coordinator makes all decisions.

  shards           the units of ownership: a controller group in a cluster, or a range of its objects
  without an owner shards that nobody works on: paused, or no member that they may go to is there
  cache copies     caches that members hold, counted for each cluster and group; ranges of one cluster
                   on several members each need one
  max/mean load    the load of the busiest member over the mean; above 1.1 shards are moved, and split
                   into ranges where moving is not enough
  moves            shards that change owner: from members that leave and to members that join; others
                   move only to relieve a member above 1.1

A load below a tenth of a second of work per second, for the mean member and for each shard, is
noise: then the number of shards is balanced instead.

Examples:
  leasehold simulate --members 10 --clusters 100 --load zipf --join 1
  leasehold simulate --members 5 --clusters 20 --load one-hot -o json
  leasehold simulate --from-live home.kubeconfig --leave 1
  leasehold simulate --from-live home.kubeconfig --policy pin.yaml --next
  leasehold simulate --config leasehold.yaml --leave 1";

/// Arguments of `leasehold simulate`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HOW_TO_READ)]
pub(crate) struct SimulateArgs {
    /// Members of the invented fleet, 1 to 1000.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = |text: &str| number(text, 1000))]
    pub members: u16,
    /// Clusters of the invented fleet, 1 to 10000.
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = |text: &str| number(text, 10_000))]
    pub clusters: u16,
    /// Controller groups in each of its clusters, 1 to 128.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = |text: &str| number(text, 128))]
    pub groups: u16,
    /// How load is spread over its clusters. On average, each group of a cluster takes one second of
    /// work per second.
    #[arg(long, value_enum, default_value_t = Load::Uniform)]
    pub load: Load,
    /// Take members, shards and loads from the home cluster of this kubeconfig instead of inventing
    /// them. Nothing is written there.
    #[arg(long, value_name = "KUBECONFIG", group = "live",
          conflicts_with_all = ["members", "clusters", "groups", "load"])]
    pub from_live: Option<PathBuf>,
    /// The same, from the home cluster of a manager's configuration file.
    #[arg(long, short, value_name = "FILE", group = "live",
          conflicts_with_all = ["members", "clusters", "groups", "load"])]
    pub config: Option<PathBuf>,
    /// The home cluster's context in the kubeconfig. Default: its current one.
    #[arg(long, value_name = "NAME", requires = "from_live")]
    pub context: Option<String>,
    /// The namespace of the live fleet's Leases, Members and ShardMaps. Default: the configuration file's, else
    /// leasehold-system.
    #[arg(long, short, value_name = "NAME")]
    pub namespace: Option<String>,
    /// The event: this many members leave, 1 to 999. They hand over their shards first.
    #[arg(long, value_name = "N", value_parser = |text: &str| number(text, 999))]
    pub leave: Option<u16>,
    /// The event: this many members join, 1 to 1000.
    #[arg(long, value_name = "N", value_parser = |text: &str| number(text, 1000))]
    pub join: Option<u16>,
    /// The event: people write these FleetPolicies, as for `kubectl apply -f`.
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Say what the coordinator would begin now and why, and nothing else; with --policy, after that was written.
    #[arg(long, requires = "live", conflicts_with_all = ["leave", "join"])]
    pub next: bool,
    /// The seed that selects the members that leave and the clusters with much load.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The form of the answer.
    #[arg(long, short, value_enum, default_value_t = Format::Text)]
    pub output: Format,
}

/// The form of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// Arguments that contradict each other.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Contradiction {
    /// Members both leave and join.
    #[error("--leave {leave} and --join {join} are two events; fix: simulate one at a time")]
    TwoEvents {
        /// How many leave.
        leave: u16,
        /// How many join.
        join: u16,
    },
    /// An invented fleet has no namespace.
    #[error(
        "--namespace {0} is of a live fleet, and this one is invented; fix: add --from-live KUBECONFIG or --config FILE, or leave --namespace out"
    )]
    NowhereToLook(String),
}

impl SimulateArgs {
    /// Checks the arguments against each other.
    ///
    /// # Errors
    /// When they contradict each other.
    pub(crate) fn check(&self) -> Result<(), Contradiction> {
        match (self.leave, self.join, self.live(), &self.namespace) {
            (Some(leave), Some(join), ..) => Err(Contradiction::TwoEvents { leave, join }),
            (.., None, Some(name)) => Err(Contradiction::NowhereToLook(name.clone())),
            _ => Ok(()),
        }
    }

    /// The home cluster of the live fleet, if it is one.
    pub(crate) fn live(&self) -> Option<HomeArgs> {
        let (config, kubeconfig) = (self.config.clone(), self.from_live.clone());
        (config.is_some() || kubeconfig.is_some()).then(|| HomeArgs {
            config,
            kubeconfig,
            context: self.context.clone(),
            namespace: self.namespace.clone(),
        })
    }

    /// The fleet to invent.
    pub(crate) fn shape(&self) -> Shape {
        let Self { members, clusters, groups, load, .. } = *self;
        Shape { members, clusters, groups, load }
    }

    /// What happens to it.
    pub(crate) fn change(&self) -> Change {
        match (self.leave, self.join) {
            (Some(members), _) => Change::Leave(members),
            (None, Some(members)) => Change::Join(members),
            (None, None) => Change::Nothing,
        }
    }
}

fn number(text: &str, most: u16) -> Result<u16, String> {
    let number = text.parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| format!("give a whole number from 1 to {most}"))
}
