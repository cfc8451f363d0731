//! The curves: the same load, faster and faster, for one replica and for more, each with an equal share of
//! a core and the servers on another.

use std::ops::Range;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use futures::future::try_join_all;
use loadtest::cpu_share::CpuShare;
use loadtest::plot::{Line, Plot};
use loadtest::scrape;
use loadtest::usage::{self, Usage};
use serde::Serialize;

use crate::climb::{self, Climb, Curve, Rung, replicas_of};
use crate::fleet::Fleet;
use crate::html;
use crate::latencies;
use crate::machine::Machine;
use crate::markdown::UNCLEAN_STOP;
use crate::probe::Probe;
use crate::process::Binary;
use crate::replicas::Replicas;
use crate::results::{self, Outcome};
use crate::run::{Options, Run};
use crate::sampler::SHARDS;
use crate::scenario::{Load, Scenario};
use crate::track::Measured;

/// The core of the servers, generator and tracker.
pub const SERVERS_CORE: usize = 0;
/// The core of all replicas together.
pub const REPLICAS_CORE: usize = 1;
/// How long the replicas are watched while nothing changes.
const IDLE: Duration = Duration::from_secs(10);

/// How often a rate is tried again because something else used the machine. Then it counts as it is, and the
/// report shows it.
const RETRIES: u32 = 5;
/// How long the rest of the machine is watched before each try, and how often, until it is calm.
const CALM_LOOK: Duration = Duration::from_secs(2);
const CALM_LOOKS: u32 = 60;

/// Everything that was found.
#[derive(Serialize)]
struct Curves<'a> {
    scenario: &'a Scenario,
    machine: &'a Machine,
    climbs: &'a [Climb],
}

/// Runs this program anew on [`SERVERS_CORE`] alone. Returns only if that fails.
pub fn rerun_on_one_core() -> anyhow::Error {
    let run = || -> anyhow::Result<std::io::Error> {
        let me = std::env::current_exe().context("find the path of this program")?;
        let mut arguments = std::env::args_os().skip(1);
        let mut command = Command::new("taskset");
        command.args(["-c", &SERVERS_CORE.to_string()]).arg(me);
        // After the subcommand, and before what may be no option.
        command.args(arguments.next()).arg("--pinned").args(arguments);
        Ok(command.exec())
    };
    match run() {
        Ok(error) => anyhow::Error::new(error).context("run taskset, which util-linux has"),
        Err(error) => error,
    }
}

/// Climbs with each number of replicas, and writes the report after each, so that one that fails takes nothing of those
/// before along.
///
/// # Errors
/// If the scenario has no curve, the manager does not run at all, or a file cannot be written.
pub async fn run(options: &Options) -> anyhow::Result<Outcome> {
    let Options { scenario, out, .. } = options;
    let curve = scenario.curve.as_ref().context("the scenario has no [curve]")?;
    let mut binary = Binary::find(options.manager.clone()).await?;
    let _held = results::begin(out)?;
    let machine = Machine::here(binary.version().await?, options.cpu)?;
    binary.cpu = options.cpu;
    let (mut climbs, mut found) = (Vec::new(), Outcome::default());
    for &replicas in &curve.replicas {
        println!("{}", replicas_of(replicas));
        // The logs of one climb outlive the next.
        let folder = out.join(format!("{replicas}-replicas"));
        let _held = results::begin(&folder)?;
        let mut with = scenario.clone();
        with.fleet.replicas = replicas;
        let logs = folder.display().to_string();
        let options = Options { scenario: with, out: folder, manager: None, ..*options };
        match climb(&options, curve, &binary).await {
            Ok((climb, clean)) => {
                found.wrong.extend(climb.doubts(curve));
                let unclean = (!clean).then(|| format!("{UNCLEAN_STOP} in {logs}"));
                found.wrong.extend(unclean);
                climbs.push(climb);
            }
            Err(error) => {
                let failed = format!("{}: {error:#}; see {logs}", replicas_of(replicas));
                // The next takes a while.
                println!("  {failed}");
                found.wrong.push(failed);
            }
        }
        let curves = Curves { scenario, machine: &machine, climbs: &climbs };
        let (tables, plot) = write(curve, &curves, out)?;
        (found.tables, found.plots) = (tables, vec![plot]);
    }
    found.wrong.extend(curve.missed(&climbs));
    Ok(found)
}

/// One climb, and whether the managers stopped cleanly then.
async fn climb(options: &Options, curve: &Curve, binary: &Binary) -> anyhow::Result<(Climb, bool)> {
    let Options { scenario, out, .. } = options;
    let crds = binary.crds().await?;
    let fleet = Fleet::start(scenario, out, &crds).await?;
    let mut replicas = Replicas::processes(binary, scenario, &fleet, out, crate::run::now());
    let mut run =
        Run::new(scenario, &fleet.clusters, Some((&fleet, &crds)), options.seed, &mut replicas);
    let climbed = climb_on(&mut run, curve).await;
    run.stop().await;
    // Their shares have ended, so they stop as fast as they can.
    let clean = replicas.stop().await;
    fleet.stop().await;
    Ok((climbed?, clean))
}

async fn climb_on(run: &mut Run<'_, '_>, curve: &Curve) -> anyhow::Result<Climb> {
    run.start_up().await?;
    // What is done once, such as training dictionaries, takes seconds of a small share and is no matter of capacity.
    let first = run.scenario.load.updates_per_second * f64::from(run.scenario.fleet.replicas);
    let load = Load { updates_per_second: first, ..run.scenario.load.clone() };
    run.load("warm-up", &load, &[]).await?;
    let within = run.scenario.limits.settle;
    run.tracking.settle(run.replicas, within, "changes of the warm-up").await?;
    let probes = run.replicas.probes().borrow().clone();
    let shares: Vec<CpuShare> =
        probes.iter().map(|p| CpuShare::give(p.pid()?, curve.share)).collect::<Result<_, _>>()?;
    let before = usages(&probes)?;
    tokio::time::sleep(IDLE).await;
    let idle: f64 = used(&before, &usages(&probes)?).iter().sum();
    run.load("balance", &Load { duration: curve.balance, ..load }, &[]).await?;
    run.tracking.settle(run.replicas, within, "changes before the first rate").await?;
    let mut rungs: Vec<Rung> = Vec::new();
    let mut peak_mib = 0.0;
    while let Some(per_second) = curve.next(first, &rungs) {
        let mut runs: Vec<Rung> = Vec::new();
        while curve.again(&rungs, &runs) {
            let (rung, peak) = undisturbed(run, &probes, per_second, curve).await?;
            peak_mib = f64::max(peak_mib, peak);
            runs.push(rung);
        }
        let place = rungs.partition_point(|rung| rung.per_second < per_second);
        rungs.insert(place, climb::median(runs).context("a rate was not run")?);
    }
    for share in shares {
        share.lift()?;
    }
    let replicas = run.scenario.fleet.replicas;
    let idle_cores = idle / IDLE.as_secs_f64() / f64::from(replicas);
    Ok(Climb { replicas, idle_cores, peak_mib, rungs })
}

/// One rate, tried until nothing else used the machine.
async fn undisturbed(
    run: &mut Run<'_, '_>,
    probes: &[Probe],
    per_second: f64,
    curve: &Curve,
) -> anyhow::Result<(Rung, f64)> {
    let others_cores = curve.others_cores;
    let mut tries = 0;
    loop {
        calm(others_cores).await?;
        let (rung, peak) = step(run, probes, per_second, curve.share).await?;
        let disturbed = rung.others_cores > others_cores && tries < RETRIES;
        let again = if disturbed { ", again" } else { "" };
        println!(
            "  {per_second:.0} changes a second: p99 {:.0} ms, others used {:.2} cores{again}",
            rung.p99_ms, rung.others_cores
        );
        if !disturbed {
            return Ok((rung, peak));
        }
        tries += 1;
    }
}

/// Waits until the rest of the machine is calm, or for a few minutes. What the managers use then is little.
async fn calm(others_cores: f64) -> anyhow::Result<()> {
    for _ in 0..CALM_LOOKS {
        let before = (usage::machine()?, usage::cpu(std::process::id())?);
        tokio::time::sleep(CALM_LOOK).await;
        let own = usage::cpu(std::process::id())? - before.1;
        let others = (usage::machine()? - before.0).saturating_sub(own);
        if others.as_secs_f64() / CALM_LOOK.as_secs_f64() <= others_cores {
            break;
        }
    }
    Ok(())
}

/// One rate: what it brought, and the peak memory of the largest replica. Nothing is scraped before its changes have
/// converged, because a page of metrics takes a good part of a small share.
async fn step(
    run: &mut Run<'_, '_>,
    probes: &[Probe],
    per_second: f64,
    share: f64,
) -> anyhow::Result<(Rung, f64)> {
    let load = Load { updates_per_second: per_second, ..run.scenario.load.clone() };
    let me = std::process::id();
    let (before, servers_before, machine_before) =
        (usages(probes)?, usage::cpu(me)?, usage::machine()?);
    let loaded = run.load("load", &load, &[]).await?;
    let (after, servers, machine) =
        (usages(probes)?, usage::cpu(me)? - servers_before, usage::machine()? - machine_before);
    // What is left would make the next rate slower than it is.
    let within = run.scenario.limits.settle;
    let last = run.tracking.settle(run.replicas, within, "changes of this rate").await?;
    let impossible = loaded.changes.impossible;
    ensure!(impossible == 0, "{impossible} changes had no object to change: give more objects");
    let p99_ms = p99_ms(&last, &latencies::whole(&loaded.span))
        .with_context(|| format!("{per_second:.0} changes a second"))?;
    let each = used(&before, &after);
    let cpu: f64 = each.iter().sum();
    let lasted = (loaded.span.end - loaded.span.start).as_secs_f64();
    let most = each.iter().copied().fold(0.0, f64::max);
    let rung = Rung {
        per_second,
        p99_ms,
        runs_p99_ms: vec![p99_ms],
        changes: loaded.changes.made(),
        cpu_per_change_ms: cpu * 1e3 / loaded.changes.made().max(1) as f64,
        busiest: most * each.len() as f64 / cpu,
        busiest_of_share: most / lasted / share,
        most_shards: most_shards(probes).await,
        servers_cores: servers.as_secs_f64() / lasted,
        others_cores: (machine.saturating_sub(servers).as_secs_f64() - cpu).max(0.0) / lasted,
        lag_p99_ms: loaded.changes.lag_p99_ms,
    };
    let peak = after.iter().map(|usage| usage.peak_resident_bytes).max().unwrap_or_default();
    Ok((rung, peak as f64 / f64::from(1 << 20)))
}

/// p99 of all changes that were due in these seconds. None is left out, and none is guessed.
fn p99_ms(last: &Measured, span: &Range<u64>) -> anyhow::Result<f64> {
    ensure!(last.pending == 0, "{} did not converge in time: see limits.settle", last.pending);
    let converged = last.seconds.due(|second| span.contains(&second));
    ensure!(converged.changes > 0, "none was due: let the load last longer");
    Ok(converged.p99_ms.into())
}

/// The shards of the replica that has most, by the mean of all.
async fn most_shards(probes: &[Probe]) -> Option<f64> {
    let pages = try_join_all(probes.iter().map(Probe::metrics)).await.ok()?;
    let shards: Vec<f64> = pages.iter().map(|page| scrape::sum(page, SHARDS)).collect();
    let (all, most) = (shards.iter().sum::<f64>(), shards.iter().copied().fold(0.0, f64::max));
    (all > 0.0).then(|| most * shards.len() as f64 / all)
}

fn usages(probes: &[Probe]) -> anyhow::Result<Vec<Usage>> {
    probes.iter().map(|probe| probe.usage(None)).collect()
}

/// The CPU time that each used between, in seconds.
fn used(before: &[Usage], after: &[Usage]) -> Vec<f64> {
    let pairs = before.iter().zip(after);
    pairs.map(|(before, after)| after.cpu.saturating_sub(before.cpu).as_secs_f64()).collect()
}

/// Writes the report. Returns its tables and its plot.
fn write(curve: &Curve, curves: &Curves<'_>, out: &Path) -> anyhow::Result<(String, String)> {
    let lines = curves.climbs.iter().map(|climb| Line {
        name: replicas_of(climb.replicas),
        points: climb.rungs.iter().map(|rung| (rung.per_second, Some(rung.p99_ms))).collect(),
    });
    let title =
        format!("p99 from change to converged, ms, by changes a second; limit {} ms", curve.p99_ms);
    let plot = Plot::by_rate(&title, lines.collect());
    let svg = plot.svg()?;
    let tables = climb::markdown(curve, curves.climbs);
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
    let json = serde_json::to_string_pretty(curves).context("write the curves as JSON")?;
    let files =
        [("curves.md", &text), ("curves.html", &page), ("curves.json", &json), ("p99.svg", &svg)];
    files.iter().try_for_each(|(name, content)| results::write(out, name, content))?;
    Ok((text, svg))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Cpu;
    use crate::track::{Fact, Tracker};

    #[test]
    fn p99_is_that_of_all_changes_however_slow_the_slowest() {
        let mut tracker = Tracker::default();
        let ms = Duration::from_millis;
        for n in 0..200 {
            let (key, due) = (n.to_string(), ms(n));
            let at = due + ms(if n == 7 { 40_000 } else { 20 });
            tracker.apply(Fact::Written { key: key.clone(), generation: 1, due });
            tracker.apply(Fact::Ready { key, generation: 1, at });
        }
        assert_eq!(p99_ms(&tracker.measured(), &(0..1)).unwrap(), 20.0);
        let none = p99_ms(&tracker.measured(), &(5..6)).unwrap_err().to_string();
        assert!(none.starts_with("none was due"), "{none}");
        tracker.apply(Fact::Written { key: "late".to_owned(), generation: 1, due: ms(0) });
        let late = p99_ms(&tracker.measured(), &(0..1)).unwrap_err().to_string();
        assert!(late.starts_with("1 did not converge in time"), "{late}");
    }

    #[tokio::test]
    async fn each_number_of_replicas_has_a_folder_for_its_logs() {
        let dir = tempfile::tempdir().unwrap();
        let text = include_str!("../scenarios/curves/capacity.toml");
        let scenario: Scenario = toml::from_str(text).unwrap();
        // It says its version, and has no definitions.
        let (manager, out) = (Some("/bin/echo".into()), dir.path().to_owned());
        let options = Options { scenario, manager, out, seed: 1, cpu: Cpu::default() };
        let wrong = run(&options).await.unwrap().wrong;
        assert_eq!(wrong.len(), 5, "{wrong:?}");
        for (why, replicas) in wrong.iter().zip([1, 2, 3, 5]) {
            let folder = dir.path().join(format!("{replicas}-replicas"));
            let said = format!("; see {}", folder.display());
            assert!(folder.is_dir() && why.ends_with(&said), "{why}");
        }
    }
}
