//! One scenario with other numbers of replicas, each time from its start: what more of them make of memory and time.

use std::fmt::Write;

use anyhow::Context;

use crate::climb::{Goal, replicas_of};
use crate::machine::Machine;
use crate::process::Cpu;
use crate::report::{Replica, Report};
use crate::results::{self, Outcome};
use crate::run::{self, Options};
use crate::scenario::Vary;
use crate::slo::Measure;

/// Runs the scenario with each number of replicas, all of them on one core, and writes the table after each. It ends
/// with the first run that fails or exceeds a limit, because the others are compared with the first.
///
/// # Errors
/// If it varies nothing, or a file cannot be written.
pub async fn run(options: &Options) -> anyhow::Result<Outcome> {
    let Options { scenario, manager, out, seed, cpu } = options;
    let vary = scenario.vary.as_ref().context("the scenario has no [vary]")?;
    let folder = |replicas: u32| out.join(format!("{replicas}-replicas"));
    let _held = results::begin(out)?;
    vary.replicas.iter().try_for_each(|replicas| results::begin(&folder(*replicas)).map(drop))?;
    let (mut reports, mut found): (Vec<Report>, _) = (Vec::new(), Outcome::default());
    for &replicas in &vary.replicas {
        println!("{}, {}", scenario.name, replicas_of(replicas));
        let mut scenario = scenario.clone();
        scenario.fleet.replicas = replicas;
        let (manager, cpu) = (manager.clone(), Cpu { share: vary.share, ..*cpu });
        let options = Options { scenario, manager, out: folder(replicas), seed: *seed, cpu };
        let run = run::run(&options).await;
        let wrong = run.as_ref().map_or_else(|error| vec![format!("{error:#}")], Report::wrong);
        if !wrong.is_empty() {
            let (of, wrong, out) = (replicas_of(replicas), wrong.join("; "), options.out.display());
            found.wrong.push(format!("{of}: {wrong}; see {out}"));
            return Ok(found);
        }
        reports.extend(run);
        let machine = reports.first().map(|report| report.machine.clone()).unwrap_or_default();
        found.tables = markdown(vary, &machine, &reports);
        results::write(out, "vary.md", &found.tables)?;
    }
    found.wrong.extend(missed(vary, &reports));
    Ok(found)
}

/// What to say if the largest replica has more memory than the goal allows.
fn missed(vary: &Vary, reports: &[Report]) -> Option<String> {
    let Goal { replicas, times } = vary.goal?;
    let first = reports.first()?;
    let report = reports.iter().find(|report| report.scenario.fleet.replicas == replicas)?;
    let found = largest(report) / largest(first);
    // Without memory there is no number.
    let is_reached = found <= times;
    (!is_reached).then(|| {
        format!(
            "memory of the largest of {}: goal at most {times} times that of {}, measured {found:.2} times",
            replicas_of(replicas),
            replicas_of(first.scenario.fleet.replicas)
        )
    })
}

/// Memory of the largest replica at the end of the load, in MiB.
fn largest(report: &Report) -> f64 {
    most(report, |replica| replica.resident_mib)
}

/// The same without the program's file, of which a replica has as many pages however little it does.
fn anonymous(report: &Report) -> f64 {
    most(report, |replica| replica.anonymous_mib.unwrap_or_default())
}

fn markdown(vary: &Vary, machine: &Machine, reports: &[Report]) -> String {
    let mut text = String::new();
    write_table(&mut text, vary, machine, reports).expect("writing to a String cannot fail");
    text
}

/// Of the replica that has most, at the end of the load.
fn most(report: &Report, pick: fn(&Replica) -> f64) -> f64 {
    report.replicas.iter().map(pick).fold(0.0, f64::max)
}

fn write_table(
    out: &mut String,
    vary: &Vary,
    machine: &Machine,
    reports: &[Report],
) -> std::fmt::Result {
    let Some(first) = reports.first() else { return Ok(()) };
    let share = vary.share.map_or("of them all together on one core".to_owned(), |share| {
        format!("each with {:.0} % of one core", share * 100.0)
    });
    let objects = &first.scenario.objects;
    writeln!(
        out,
        "# {}\n\n{}.\n\n{} objects in {} clusters; replicas {share}, servers and generator on another.\n",
        first.scenario.name,
        machine.words(),
        objects.count,
        first.scenario.fleet.clusters,
    )?;
    writeln!(
        out,
        "| replicas | converged after | times as fast | p99 under load | largest, MiB | of the first | \
         without the program's file | of the first | peak MiB | most shards of one | CPU s to start |\n\
         |---|---|---|---|---|---|---|---|---|---|---|"
    )?;
    for report in reports {
        let figure = |measure| report.figures.get(&measure).copied().unwrap_or_default();
        let (start, peak) = (figure(Measure::StartSeconds), figure(Measure::PeakRssMib));
        let faster = first.figures.get(&Measure::StartSeconds).map_or(0.0, |first| first / start);
        writeln!(
            out,
            "| {} | {start:.0} s | {faster:.2} | {:.0} ms | {:.0} | {:.2} | {:.0} | {:.2} | {peak:.0} | {} | {:.0} |",
            report.scenario.fleet.replicas,
            figure(Measure::ConvergedP99Ms),
            largest(report),
            largest(report) / largest(first),
            anonymous(report),
            anonymous(report) / anonymous(first),
            most(report, |replica| replica.shards),
            report.start.iter().fold(0.0, |sum, start| sum + start.cpu_seconds),
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::example;

    #[test]
    fn the_table_compares_with_the_first() {
        let (mut one, mut three) = (example(&[]), example(&[]));
        for (report, replicas, seconds, mib) in
            [(&mut one, 1, 30.0, 90.0), (&mut three, 3, 12.0, 45.0)]
        {
            report.scenario.fleet.replicas = replicas;
            report.figures.insert(Measure::StartSeconds, seconds);
            report.replicas[0].resident_mib = mib;
            report.replicas[0].anonymous_mib = Some(mib - 40.0);
        }
        let goal = Some(Goal { replicas: 3, times: 0.5 });
        let mut vary = Vary { replicas: vec![1, 3], share: Some(0.2), goal };
        let reports = [one, three];
        assert_eq!(missed(&vary, &reports), None);
        let unmeasured = [1, 3].map(|replicas| {
            let mut report = example(&[]);
            report.scenario.fleet.replicas = replicas;
            report.replicas[0].resident_mib = 0.0;
            report.replicas[1].resident_mib = 0.0;
            report
        });
        assert!(missed(&vary, &unmeasured).is_some());
        vary.goal = Some(Goal { replicas: 3, times: 0.36 });
        let said = missed(&vary, &reports).unwrap();
        assert!(
            said.ends_with("at most 0.36 times that of 1 replica, measured 0.50 times"),
            "{said}"
        );
        let text = markdown(&vary, &Machine::default(), &reports);
        for row in [
            "| 1 | 30 s | 1.00 | 2000 ms | 90 | 1.00 | 50 | 1.00 | 70 | 2 | 0 |",
            "| 3 | 12 s | 2.50 | 2000 ms | 45 | 0.50 | 5 | 0.10 | 70 | 2 | 0 |",
        ] {
            assert!(text.contains(&format!("{row}\n")), "{row}\nis not in\n{text}");
        }
        assert!(text.contains("each with 20 % of one core"), "{text}");
    }
}
