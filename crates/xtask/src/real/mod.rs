//! `cargo xtask real`: the product against real Kubernetes components, as a black box.
//!
//! ```text
//! tools (built once) ─▶ scene (one temporary folder per check) ─▶ control planes, nodes, managers
//!                                                              └─▶ checks look, break things, look
//! ```
//!
//! # Invariants
//! - Whatever a check starts is owned by a value whose drop removes it, so a failure and Ctrl-C
//!   leave as little behind as success does: nothing.
//! - Only free ports and fresh names are used: several runs can go on side by side.
//! - `wait` alone reads a clock.

pub mod audit;
mod checks;
mod conformance;
pub mod control_plane;
pub mod embedded;
mod helm;
mod image;
pub mod kubectl;
pub mod link;
pub mod load;
pub mod manager;
mod node;
mod pki;
pub mod process;
pub mod tools;
mod traffic;
pub mod wait;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};

use checks::{CHECKS, Check};
use tools::{Need, Tools};
use wait::Stopwatch;

/// Runs the product against a real Kubernetes.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print the checks and what each of them shows, and run none.
    #[arg(long)]
    list: bool,
    /// Run only this check; may be given several times.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Use this `leasehold` instead of building one. `node` needs a static one.
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Build and install what the checks need, and run none.
    #[arg(long)]
    build_only: bool,
}

/// Where one check takes place: a temporary folder and the tools.
#[derive(Debug)]
pub struct Scene {
    tools: Tools,
    dir: TempDir,
}

impl Scene {
    /// A new one.
    ///
    /// # Errors
    /// If no folder can be made.
    pub fn new(tools: &Tools) -> Result<Self> {
        let dir = tempfile::Builder::new().prefix("leasehold-real-").tempdir()?;
        Ok(Self { tools: tools.clone(), dir })
    }

    /// The tools.
    pub fn tools(&self) -> &Tools {
        &self.tools
    }

    /// The check's own folder. Gone when the check is over.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Where logs go; kept if the check fails.
    pub fn logs(&self) -> PathBuf {
        self.dir.path().join("logs")
    }
}

/// Lists or runs the checks.
///
/// # Errors
/// If something is missing, or a check fails.
pub fn run(args: &Args) -> Result<()> {
    if args.list {
        CHECKS.iter().for_each(|check| println!("{:18}{}", check.name, check.about));
        return Ok(());
    }
    let chosen = choose(&args.only)?;
    let tools = Tools::new(args.binary.as_deref())?;
    let needs: BTreeSet<Need> = chosen.iter().flat_map(|check| check.needs).copied().collect();
    tools.prepare(&needs.into_iter().collect::<Vec<_>>())?;
    if args.build_only {
        return Ok(());
    }
    // One thread: a child dies with the thread that started it (see `process`).
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(run_all(&tools, &chosen))
}

fn choose(only: &[String]) -> Result<Vec<&'static Check>> {
    let unknown = only.iter().find(|name| !CHECKS.iter().any(|check| check.name == **name));
    if let Some(name) = unknown {
        let known: Vec<&str> = CHECKS.iter().map(|check| check.name).collect();
        bail!("there is no check {name:?}; there are {}", known.join(", "));
    }
    let chosen = |check: &&Check| only.is_empty() || only.iter().any(|name| name == check.name);
    Ok(CHECKS.iter().filter(chosen).collect())
}

async fn run_all(tools: &Tools, checks: &[&Check]) -> Result<()> {
    let watch = Stopwatch::start();
    let mut failed = Vec::new();
    for check in checks {
        if !run_one(tools, check).await? {
            failed.push(check.name);
        }
    }
    if !failed.is_empty() {
        bail!(
            "failed: {} ({} of {} checks, {watch})",
            failed.join(", "),
            failed.len(),
            checks.len()
        );
    }
    println!("all {} checks passed in {watch}", checks.len());
    Ok(())
}

/// Whether the check passed. Fails only when interrupted, after everything was taken down.
async fn run_one(tools: &Tools, check: &Check) -> Result<bool> {
    println!("\n== {}: {}", check.name, check.about);
    let watch = Stopwatch::start();
    let scene = Scene::new(tools)?;
    let (mut interrupt, mut terminate) =
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    // Dropping the check's future drops every process, node and folder it owns.
    let outcome = tokio::select! {
        outcome = (check.run)(&scene) => outcome,
        _ = interrupt.recv() => bail!("interrupted during {}; everything was taken down", check.name),
        _ = terminate.recv() => bail!("terminated during {}; everything was taken down", check.name),
    };
    match outcome {
        Ok(()) => println!("ok: {} in {watch}", check.name),
        Err(error) => {
            println!("FAILED: {} after {watch}: {error:#}", check.name);
            println!("its logs: {}", keep_logs(&scene, check.name)?.display());
            return Ok(false);
        }
    }
    Ok(true)
}

/// Copies what was logged in the scene to `target/real/failed/NAME`, replacing an earlier failure's.
///
/// # Errors
/// If it cannot be copied.
pub fn keep_logs(scene: &Scene, name: &str) -> Result<PathBuf> {
    let kept = scene.tools.failed_dir().join(name);
    let _ = fs::remove_dir_all(&kept);
    copy_files(&scene.logs(), &kept)?;
    Ok(kept)
}

fn copy_files(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).into_iter().flatten() {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()? {
            kind if kind.is_dir() => copy_files(&entry.path(), &target)?,
            kind if kind.is_file() => {
                fs::copy(entry.path(), target)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// `tests/real`, with the Go modules and the node's files.
fn real_dir() -> PathBuf {
    xtask::root().join("tests/real")
}
