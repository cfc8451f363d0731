//! `cargo xtask bench`: our engine beside its peers, over one real API server, in one run.
//!
//! ```text
//! arena: kube-apiserver, etcd, objects ◀── watch, patch ── peers, one at a time
//!    │ triggers, changes                                     │ lines of JSON; /proc
//!    └──────────▶ reconciles, caches, latency, queue ◀───────┘
//!                                │
//!                                └─▶ table: medians, ratios, targets
//! ```
//!
//! | file | what it does |
//! |---|---|
//! | `arena`, `objects` | where it takes place, and what is there |
//! | `peer`, `proc` | a peer as a process: what it says, and what the kernel says of it |
//! | `reconciles`, `caches`, `latency`, `queue` | the figures |
//! | `table` | pure: medians, ratios, targets |
//!
//! Peers take turns in each round, so that what else the machine does hits all alike. Compare
//! ratios: absolute figures are the machine's as much as the program's.

mod arena;
mod caches;
mod latency;
mod objects;
mod peer;
mod proc;
mod queue;
mod reconciles;
mod table;

use anyhow::{Result, bail};
use tokio::signal::unix::{SignalKind, signal};

use crate::chaos::report::Format;
use crate::real::tools::{Need, Tools};
use crate::real::wait::Stopwatch;
use crate::real::{Scene, keep_logs};
use arena::Arena;
use peer::Peer;
use table::Figure;

/// What can be asked for, and what that is.
const FIGURES: [(&str, &str); 7] = [
    ("patch", "CPU of a reconcile that patches a status"),
    ("noop", "reconciles a second that do nothing, with 1, 4 and 16 workers"),
    ("customs", "memory and CPU to cache custom resources of 2.3 KB"),
    ("latency", "time from a change to its reconcile"),
    ("kinds", "connections to one cluster with 20 watched kinds"),
    ("pods", "memory and CPU to cache Pods of 8 KB"),
    ("queue", "the work queue by itself"),
];

/// Measures our engine beside controller-runtime and kube-rs.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print the figures and measure none.
    #[arg(long)]
    list: bool,
    /// Measure only this; may be given several times.
    #[arg(long, value_name = "FIGURE")]
    only: Vec<String>,
    /// How often each peer is measured; medians are shown.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Objects of each kind.
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(2..=50_000))]
    objects: u32,
    /// Print JSON instead of a table, every value that was measured in it.
    #[arg(long)]
    json: bool,
}

/// Who is measured when.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    rounds: usize,
}

impl Plan {
    /// The peers round by round, each time another first.
    pub fn turns(self, peers: &[Peer]) -> impl Iterator<Item = Peer> {
        (0..self.rounds).flat_map(move |round| {
            (0..peers.len()).map(move |turn| peers[(round + turn) % peers.len()])
        })
    }
}

/// Lists the figures or measures them.
///
/// # Errors
/// If something is missing, or a peer fails. A target that is not met is no error.
pub fn run(args: &Args) -> Result<()> {
    if args.list {
        FIGURES.iter().for_each(|(name, about)| println!("{name:10}{about}"));
        return Ok(());
    }
    let chosen = choose(&args.only)?;
    let tools = Tools::new(None)?;
    tools.prepare(&[Need::Kube, Need::Peers])?;
    // One thread: a child dies with the thread that started it (see `real::process`).
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let watch = Stopwatch::start();
    let figures = runtime.block_on(guarded(&tools, args, &chosen))?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&table::json(&figures))?);
    } else {
        print!("{}", table::table(&figures).render(Format::Text));
    }
    eprintln!("measured in {watch}");
    Ok(())
}

fn choose(only: &[String]) -> Result<Vec<&'static str>> {
    let known = FIGURES.map(|(name, _)| name);
    if let Some(name) = only.iter().find(|name| !known.contains(&name.as_str())) {
        bail!("there is no figure {name:?}; there are {}", known.join(", "));
    }
    let chosen = |name: &&str| only.is_empty() || only.iter().any(|chosen| chosen == name);
    Ok(known.into_iter().filter(chosen).collect())
}

/// Measures in a scene of its own, keeps its logs if that fails, and takes everything down when
/// interrupted.
async fn guarded(tools: &Tools, args: &Args, chosen: &[&str]) -> Result<Vec<Figure>> {
    let scene = Scene::new(tools)?;
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let outcome = tokio::select! {
        outcome = measure(&scene, args, chosen) => outcome,
        _ = interrupt.recv() => bail!("interrupted; everything was taken down"),
        _ = terminate.recv() => bail!("terminated; everything was taken down"),
    };
    if outcome.is_err() {
        eprintln!("the logs: {}", keep_logs(&scene, "bench")?.display());
    }
    outcome
}

async fn measure(scene: &Scene, args: &Args, chosen: &[&str]) -> Result<Vec<Figure>> {
    let plan = Plan { rounds: args.rounds.into() };
    let mut figures = Vec::new();
    if chosen.iter().any(|name| *name != "queue") {
        let arena = Arena::prepare(scene, usize::try_from(args.objects)?).await?;
        if chosen.iter().any(|name| !["queue", "pods", "kinds"].contains(name)) {
            arena.add_customs().await?;
        }
        for name in chosen {
            figures.extend(match *name {
                "patch" => reconciles::patches(&arena, plan).await?,
                "noop" => reconciles::noops(&arena, plan).await?,
                "customs" => caches::customs(&arena, plan).await?,
                "latency" => latency::latency(&arena, plan).await?,
                "kinds" => latency::connections(&arena, plan).await?,
                "pods" => {
                    arena.add_pods().await?;
                    caches::pods(&arena, plan).await?
                }
                _ => Vec::new(),
            });
        }
    }
    if chosen.contains(&"queue") {
        figures.extend(queue::queues(scene.tools(), plan)?);
    }
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_each_round_another_peer_is_first() {
        use Peer::{Bare, KubeRs, Leasehold};
        let turns: Vec<_> = Plan { rounds: 2 }.turns(&[Leasehold, KubeRs, Bare]).collect();
        assert_eq!(turns, [Leasehold, KubeRs, Bare, KubeRs, Bare, Leasehold]);
    }

    #[test]
    fn figures_are_chosen_by_name() {
        assert_eq!(choose(&[]).unwrap().len(), FIGURES.len());
        assert_eq!(choose(&["queue".to_owned()]).unwrap(), ["queue"]);
        let error = choose(&["speed".to_owned()]).unwrap_err().to_string();
        assert!(error.contains("\"speed\"") && error.contains("latency"), "{error}");
    }
}
