//! The curves: the same load, faster and faster, for one replica and for more, each with an equal share of
//! a core and the servers on another.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use loadtest::usage;
use serde::Serialize;

use crate::climb::{self, Climb, Curve, Rung};
use crate::cpu_share::CpuShare;
use crate::fleet::Fleet;
use crate::html;
use crate::machine::Machine;
use crate::managers::Binary;
use crate::plot::{Form, Line, Plot};
use crate::replicas::{Replicas, Stretch};
use crate::run::{Options, Run};
use crate::scenario::{Load, Scenario};

/// The core of the servers, generator and tracker.
const SERVERS_CORE: usize = 0;
/// The core of all replicas together.
const REPLICAS_CORE: usize = 1;
/// How long the replicas are watched while nothing changes.
const IDLE: Duration = Duration::from_secs(10);
/// How long the changes of one rate may take to converge before it counts as too high.
const SETTLE: Duration = Duration::from_secs(30);

/// Everything that was found.
#[derive(Serialize)]
struct Curves<'a> {
    scenario: &'a Scenario,
    machine: Machine,
    climbs: Vec<Climb>,
}

/// Runs this program anew on [`SERVERS_CORE`] alone. Returns only if that fails.
pub fn rerun_on_one_core() -> anyhow::Error {
    let run = || -> anyhow::Result<std::io::Error> {
        let me = std::env::current_exe().context("find the path of this program")?;
        let arguments = std::env::args_os().skip(1);
        let mut command = Command::new("taskset");
        command.args(["-c", &SERVERS_CORE.to_string()]).arg(me).args(arguments).arg("--pinned");
        Ok(command.exec())
    };
    match run() {
        Ok(error) => anyhow::Error::new(error).context("run taskset, which util-linux has"),
        Err(error) => error,
    }
}

/// Climbs with each number of replicas, writes the report, and returns its tables.
///
/// # Errors
/// If the scenario has no curve, or a run fails.
pub async fn run(options: &Options) -> anyhow::Result<String> {
    let Options { scenario, out, .. } = options;
    let curve = scenario.curve.as_ref().context("the scenario has no [curve]")?;
    std::fs::create_dir_all(out).with_context(|| format!("create {}", out.display()))?;
    let mut binary = Binary::find(options.manager.clone()).await?;
    let machine = Machine::here(binary.version().await?)?;
    binary.core = Some(REPLICAS_CORE);
    let mut climbs = Vec::new();
    for &replicas in &curve.replicas {
        println!("{replicas} replicas");
        let mut scenario = scenario.clone();
        scenario.fleet.replicas = replicas;
        let options = Options { scenario, manager: None, out: out.clone(), seed: options.seed };
        climbs.push(climb(&options, curve, &binary).await?);
    }
    write(curve, Curves { scenario, machine, climbs }, out)
}

async fn climb(options: &Options, curve: &Curve, binary: &Binary) -> anyhow::Result<Climb> {
    let Options { scenario, out, .. } = options;
    let crds = binary.crds().await?;
    let fleet = Fleet::start(scenario, out, &crds).await?;
    let mut replicas = Replicas::new(binary, scenario, &fleet, out, crate::run::now());
    let mut run = Run::new(scenario, &fleet, &crds, options.seed, &mut replicas);
    let climbed = climb_on(&mut run, curve).await;
    run.stop().await;
    // Their shares have ended, so they stop as fast as they can.
    let clean = replicas.stop().await;
    fleet.stop().await;
    let climbed = climbed?;
    ensure!(clean, "a manager did not stop cleanly on SIGTERM; see the logs in {}", out.display());
    Ok(climbed)
}

async fn climb_on(run: &mut Run<'_, '_>, curve: &Curve) -> anyhow::Result<Climb> {
    run.start_up().await?;
    let probes = run.replicas.probes().borrow().clone();
    let shares: Vec<CpuShare> =
        probes.iter().map(|p| CpuShare::give(p.pid, curve.share)).collect::<Result<_, _>>()?;
    run.replicas.begin().await?;
    tokio::time::sleep(IDLE).await;
    let idle = cores(&run.replicas.begin().await?);
    let mut rungs: Vec<Rung> = Vec::new();
    let mut peak_mib = 0.0;
    while !curve.is_done(&rungs) {
        let first = run.scenario.load.updates_per_second;
        let per_second = curve.next(first, &rungs);
        let (rung, peak) = step(run, per_second).await?;
        println!("  {per_second:.0} changes a second: p99 {:.0} ms", rung.p99_ms);
        peak_mib = f64::max(peak_mib, peak);
        rungs.push(rung);
    }
    for share in shares {
        share.lift()?;
    }
    let replicas = run.scenario.fleet.replicas;
    let idle_cores = idle.iter().sum::<f64>() / f64::from(replicas);
    Ok(Climb { replicas, idle_cores, peak_mib, rungs })
}

/// One rate: what it brought, and the peak memory of the largest replica.
async fn step(run: &mut Run<'_, '_>, per_second: f64) -> anyhow::Result<(Rung, f64)> {
    let load = Load { updates_per_second: per_second, ..run.scenario.load.clone() };
    let me = std::process::id();
    let before = usage::cpu(me)?;
    let loaded = run.load("load", &load, &[]).await?;
    let servers = usage::cpu(me)? - before;
    let stretches = run.replicas.begin().await?;
    let last = run.tracking.settle(run.replicas, SETTLE, "changes of this rate").await?;
    let span = crate::latencies::whole(&loaded.span);
    let converged = last.seconds.due(|second| span.contains(&second));
    // A change that does not converge took at least this long.
    let unconverged = (last.pending > 0).then_some(SETTLE.as_secs_f64() * 1e3);
    let cores = cores(&stretches);
    let mean = cores.iter().sum::<f64>() / cores.len() as f64;
    let cpu: Duration =
        stretches.iter().map(|s| s.after.usage.cpu.saturating_sub(s.before.usage.cpu)).sum();
    let peak = stretches.iter().map(|stretch| stretch.after.usage.peak_resident_bytes).max();
    let lasted = (loaded.span.end - loaded.span.start).as_secs_f64();
    let rung = Rung {
        per_second,
        p99_ms: f64::from(converged.p99_ms).max(unconverged.unwrap_or_default()),
        cpu_per_change_ms: cpu.as_secs_f64() * 1e3 / loaded.changes.made().max(1) as f64,
        busiest: cores.iter().copied().fold(0.0, f64::max) / mean,
        servers_cores: servers.as_secs_f64() / lasted,
        lag_p99_ms: loaded.changes.lag_p99_ms,
    };
    Ok((rung, peak.unwrap_or_default() as f64 / f64::from(1 << 20)))
}

/// The cores that each used.
fn cores(stretches: &[Stretch]) -> Vec<f64> {
    let of = |Stretch { before, after, .. }: &Stretch| {
        let used = after.usage.cpu.saturating_sub(before.usage.cpu);
        used.as_secs_f64() / after.at.saturating_sub(before.at).as_secs_f64().max(f64::EPSILON)
    };
    stretches.iter().map(of).collect()
}

fn write(curve: &Curve, curves: Curves<'_>, out: &Path) -> anyhow::Result<String> {
    let lines = curves.climbs.iter().map(|climb| Line {
        name: format!("{} replicas", climb.replicas),
        points: climb.rungs.iter().map(|rung| (rung.per_second, Some(rung.p99_ms))).collect(),
    });
    let rates = curves.climbs.iter().flat_map(|climb| climb.rungs.last());
    let highest = rates.map(|rung| rung.per_second).fold(1.0, f64::max);
    let title =
        format!("p99 from change to converged, ms, by changes a second; limit {} ms", curve.p99_ms);
    let plot = Plot {
        title: &title,
        lines: lines.collect(),
        form: Form::Logarithmic,
        span: (0.0, highest),
        unit: "/s",
        phases: &[],
        faults: &[],
    };
    let svg = plot.svg()?;
    let tables = climb::markdown(curve, &curves.climbs);
    let text = format!("# Capacity\n\n{}.\n\n{tables}", curves.machine.words());
    let page = html::document(
        "Capacity",
        &[
            "<h1>Capacity</h1>".to_owned(),
            format!("<p class=\"machine\">{}</p>", html::escaped(&curves.machine.words())),
            format!("<figure>{svg}</figure>"),
            html::tables(&tables),
        ],
    );
    let json = serde_json::to_string_pretty(&curves).context("write the curves as JSON")?;
    let files =
        [("curves.md", &text), ("curves.html", &page), ("curves.json", &json), ("p99.svg", &svg)];
    for (name, content) in files {
        let file: PathBuf = out.join(name);
        std::fs::write(&file, content).with_context(|| format!("write {}", file.display()))?;
    }
    Ok(text)
}
