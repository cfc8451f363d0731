//! `cargo xtask bench`: our engine beside its peers, over one real API server, in one run.
//!
//! ```text
//! testbed: kube-apiserver, etcd, objects ◀── watch, patch ── peers, one at a time
//!    │ triggers, changes                                       │ lines of JSON; /proc
//!    └───────────▶ reconciles, caches, latency, queue ◀────────┘
//!                                 │
//!                                 └─▶ figures: medians, ratios, targets
//! ```
//!
//! | file | what it does |
//! |---|---|
//! | `testbed`, `objects` | the API server and its objects |
//! | `peer`, `running` | a peer, and its process: what it writes, and what `/proc` says of it |
//! | `reconciles`, `caches`, `latency`, `rates`, `queue` | the measurements |
//! | `figures` | pure: medians, ratios, targets |
//!
//! Peers take turns in each round, so that other work of the machine affects all alike. Compare
//! ratios: absolute figures depend on the machine as much as on the program.

mod caches;
mod figures;
mod latency;
mod objects;
mod peer;
mod queue;
mod rates;
mod reconciles;
mod running;
mod testbed;

use std::path::PathBuf;

use anyhow::Result;

use crate::harness::table::Format;
use crate::harness::tools::{self, Need, Tools};
use crate::harness::wait::Stopwatch;
use crate::harness::{Scene, scene};
use figures::Figure;
use peer::Peer;
use testbed::Testbed;

/// The figures by name.
const FIGURES: [(&str, &str); 8] = [
    ("patch", "CPU of a reconcile that patches a status"),
    ("noop", "empty reconciles a second, with 1, 4 and 16 workers"),
    ("customs", "memory and CPU to cache custom resources of 2.3 KB"),
    ("latency", "time from a change to its reconcile"),
    ("rates", "p99 by the rate of changes until it breaks, with a share of a core; needs root"),
    ("kinds", "connections to one cluster with 20 watched kinds"),
    ("pods", "memory and CPU to cache Pods of 8 KB"),
    ("queue", "the work queue alone"),
];

/// Measures our engine beside controller-runtime and kube-rs.
#[derive(Debug, clap::Args)]
pub struct BenchArgs {
    /// Print the figures and measure none.
    #[arg(long)]
    list: bool,
    /// Measure only this figure; may be given several times.
    #[arg(long, value_name = "FIGURE")]
    only: Vec<String>,
    /// How often to measure each peer; the table shows medians.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// How many objects of each kind there are.
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(2..=50_000))]
    objects: u32,
    /// Print JSON instead of a table, with every measured value.
    #[arg(long)]
    json: bool,
    /// Where the tables and the plot of `rates` go [default: the folder `bench` of the build's]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

/// The order in which peers are measured.
#[derive(Clone, Copy, Debug)]
struct Plan {
    rounds: usize,
}

impl Plan {
    /// The peers round by round, each time with another one first.
    fn turns(self, peers: &[Peer]) -> impl Iterator<Item = Peer> {
        (0..self.rounds).flat_map(move |round| {
            (0..peers.len()).map(move |turn| peers[(round + turn) % peers.len()])
        })
    }
}

/// Lists the figures or measures them.
///
/// # Errors
/// If something is missing, or a peer fails. A target that is not met is not an error.
pub fn run(args: &BenchArgs) -> Result<()> {
    if args.list {
        FIGURES.iter().for_each(|(name, about)| println!("{name:10}{about}"));
        return Ok(());
    }
    let chosen = scene::choose("figure", FIGURES.map(|(name, _)| name), &args.only)?;
    let tools = Tools::new(None)?;
    tools.prepare(&[Need::Kube, Need::Peers])?;
    let watch = Stopwatch::start();
    // If a peer fails after half an hour, what was measured before is shown too.
    let mut figures = Vec::new();
    let measured = scene::run(&tools, "bench", async |scene| {
        measure(scene, args, &chosen, &mut figures).await
    });
    let outcome = scene::one_thread()?.block_on(measured);
    if args.json {
        println!("{}", serde_json::to_string_pretty(&figures::json(&figures))?);
    } else {
        print!("{}", figures::table(&figures).render(Format::Text));
    }
    outcome??;
    eprintln!("measured in {watch}");
    Ok(())
}

async fn measure(
    scene: &Scene,
    args: &BenchArgs,
    chosen: &[&str],
    figures: &mut Vec<Figure>,
) -> Result<()> {
    let plan = Plan { rounds: args.rounds.into() };
    if chosen.iter().any(|name| *name != "queue") {
        let testbed = Testbed::prepare(scene, usize::try_from(args.objects)?).await?;
        if chosen.iter().any(|name| !["queue", "pods", "kinds"].contains(name)) {
            testbed.add_customs().await?;
        }
        for name in chosen {
            figures.extend(match *name {
                "patch" => reconciles::patches(&testbed, plan).await?,
                "noop" => reconciles::noops(&testbed, plan).await?,
                "customs" => caches::customs(&testbed, plan).await?,
                "latency" => latency::latency(&testbed, plan).await?,
                "rates" => {
                    let out = args.out.clone();
                    let out = out.unwrap_or_else(|| tools::target_dir().join("bench"));
                    rates::rates(&testbed, plan, &out).await?
                }
                "kinds" => latency::connections(&testbed, plan).await?,
                "pods" => {
                    testbed.add_pods().await?;
                    caches::pods(&testbed, plan).await?
                }
                _ => Vec::new(),
            });
        }
    }
    if chosen.contains(&"queue") {
        figures.extend(queue::queues(scene.tools(), plan)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_peer_is_first_in_each_round() {
        use Peer::{Bare, KubeRs, Leasehold};
        let turns: Vec<_> = Plan { rounds: 2 }.turns(&[Leasehold, KubeRs, Bare]).collect();
        assert_eq!(turns, [Leasehold, KubeRs, Bare, KubeRs, Bare, Leasehold]);
    }
}
