//! p99 from a change to the status that answers it, against the rate of changes, until it breaks: each peer with the
//! same share of a core.
#![expect(clippy::disallowed_methods, reason = "it measures real time")]

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use futures::stream::FuturesUnordered;
use futures::{AsyncBufReadExt as _, StreamExt as _};
use loadtest::capacity::{self, Point};
use loadtest::cpu_share::CpuShare;
use loadtest::plot::{Line, Plot};
use serde_json::Value;
use tokio::time::Instant;

use super::Plan;
use super::figures::{self, Figure, Target, Unit};
use super::peer::Peer;
use super::running::{Running, Task};
use super::testbed::Testbed;
use crate::harness::kubectl;
use crate::harness::quantiles::quantile;
use crate::harness::table::{Format, Table};

/// The share of a core that a peer gets. Small, so that it breaks before the API server does, which works on the
/// rest.
const SHARE: f64 = 0.05;
/// The first rate, in changes a second, and how many times the one before each is.
const FIRST: f64 = 15.0;
const FACTOR: f64 = 1.35;
/// The most rates.
const MAX_RATES: usize = 14;
/// The limit of p99.
const LIMIT_MS: f64 = 1_000.0;
/// Rates in a row above it that show that a peer has broken.
const ABOVE: usize = 2;
/// How long changes are made at each rate.
const LASTS: Duration = Duration::from_secs(10);
/// How long the last of them may take. What takes longer counts as this long.
const SETTLE: Duration = Duration::from_secs(15);

/// Capacity; in this folder tables and a plot of p99 by rate, written after each peer.
pub async fn rates(testbed: &Testbed<'_>, plan: Plan, out: &Path) -> Result<Vec<Figure>> {
    // As the targets of CPU for a patch: 0.3 and 0.7 of theirs.
    let targets = [Target::Lead(3.3, Peer::ControllerRuntime), Target::Lead(1.4, Peer::KubeRs)];
    let name =
        format!("changes a second at p99 of {LIMIT_MS} ms, {:.0} % of a core", SHARE * 100.0);
    let mut figure = Figure::new(name, Unit::PerSecond, &targets);
    let mut curves: BTreeMap<Peer, Vec<Point>> = BTreeMap::new();
    for peer in plan.turns(&Peer::CONTROLLERS) {
        let rungs = climb(testbed, peer).await?;
        if let Some(found) = capacity::capacity(&rungs, LIMIT_MS) {
            figure.add(peer, found);
        }
        curves.insert(peer, rungs);
        write(&curves, &figure, out)?;
    }
    Ok(vec![figure])
}

async fn climb(testbed: &Testbed<'_>, peer: Peer) -> Result<Vec<Point>> {
    let task = Task::full("rate", testbed, 10);
    let mut running = Running::settled(testbed, peer, task).await?;
    let share = CpuShare::give(running.pid(), SHARE)?;
    let mut rungs: Vec<Point> = Vec::new();
    let mut rate = FIRST;
    while rungs.len() < MAX_RATES {
        let took = at_rate(testbed, rate).await?;
        let p99 = quantile(&took, 0.99).context("no change was made")?;
        eprintln!("{}: {rate:.0} changes a second: p99 {p99:.0} ms", peer.name());
        rungs.push((rate, p99));
        if capacity::above(&rungs, LIMIT_MS) >= ABOVE {
            break;
        }
        rate *= FACTOR;
    }
    share.lift()?;
    running.quiet().await?;
    running.end().await?;
    Ok(rungs)
}

/// What each change at a rate took, in milliseconds, from when it was due.
async fn at_rate(testbed: &Testbed<'_>, rate: f64) -> Result<Vec<f64>> {
    let mut lines = Box::pin(testbed.follow().await?.lines());
    let began = Instant::now();
    let changes = (rate * LASTS.as_secs_f64()) as usize;
    let mut under_way: FuturesUnordered<_> = (0..changes)
        .map(async |change| {
            let due = began + Duration::from_secs_f64(change as f64 / rate);
            tokio::time::sleep_until(due).await;
            let (index, number) = (change % testbed.objects, testbed.next_number());
            testbed.touch(index, number).await?;
            anyhow::Ok((index, number, due))
        })
        .collect();
    let mut seen: Seen = Seen::default();
    let end = began + LASTS + SETTLE;
    while seen.took.len() < changes {
        tokio::select! {
            Some(made) = under_way.next() => {
                let (index, number, due) = made?;
                seen.touched(index, number, due);
            }
            line = lines.next() => {
                let Some(line) = line else { bail!("the API server has ended a watch") };
                let event: Value = serde_json::from_str(&line?).context("read a watch")?;
                seen.answered(&event["object"], Instant::now());
            }
            () = tokio::time::sleep_until(end) => break,
        }
    }
    let late = changes - seen.took.len();
    seen.took.extend(std::iter::repeat_n(SETTLE.as_secs_f64() * 1e3, late));
    Ok(seen.took)
}

/// The changes of each object that are not answered yet, and the answers that came before their request's own.
#[derive(Default)]
struct Seen {
    waiting: BTreeMap<String, VecDeque<(u64, Instant)>>,
    answered: BTreeMap<String, (u64, Instant)>,
    took: Vec<f64>,
}

impl Seen {
    fn touched(&mut self, index: usize, number: u64, due: Instant) {
        let name = super::objects::name(index);
        match self.answered.get(&name) {
            Some((answered, at)) if *answered >= number => self.took.push(millis(*at, due)),
            _ => self.waiting.entry(name).or_default().push_back((number, due)),
        }
    }

    fn answered(&mut self, object: &Value, now: Instant) {
        let name = kubectl::name(object);
        let trigger = object["status"]["trigger"].as_u64().unwrap_or_default();
        if let Some(waiting) = self.waiting.get_mut(name) {
            let met = waiting.iter().filter(|(number, _)| *number <= trigger);
            self.took.extend(met.map(|(_, due)| millis(now, *due)));
            waiting.retain(|(number, _)| *number > trigger);
        }
        let known = self.answered.entry(name.to_owned()).or_insert((0, now));
        if trigger > known.0 {
            *known = (trigger, now);
        }
    }
}

fn millis(at: Instant, due: Instant) -> f64 {
    at.saturating_duration_since(due).as_secs_f64() * 1e3
}

fn write(curves: &BTreeMap<Peer, Vec<Point>>, figure: &Figure, out: &Path) -> Result<()> {
    let lines = curves.iter().map(|(peer, rungs)| Line {
        name: peer.name().to_owned(),
        points: rungs.iter().map(|(rate, p99)| (*rate, Some(*p99))).collect(),
    });
    let title = format!(
        "p99 from a change to its status, ms, by changes a second; each with {:.0} % of a core",
        SHARE * 100.0
    );
    let svg = Plot::by_rate(&title, lines.collect()).svg()?;
    fs::create_dir_all(out).with_context(|| format!("create {}", out.display()))?;
    for (name, content) in [("rates.svg", &svg), ("rates.md", &markdown(curves, figure, &title))] {
        let file = out.join(name);
        fs::write(&file, content).with_context(|| format!("write {}", file.display()))?;
    }
    eprintln!("p99 by rate: {}", out.join("rates.md").display());
    Ok(())
}

fn markdown(curves: &BTreeMap<Peer, Vec<Point>>, figure: &Figure, title: &str) -> String {
    let rows = curves.iter().flat_map(|(peer, rungs)| {
        let row = |(rate, p99): &Point| {
            vec![peer.name().to_owned(), format!("{rate:.0}"), format!("{p99:.0}")]
        };
        rungs.iter().map(row).collect::<Vec<_>>()
    });
    let heading = ["peer", "changes/s", "p99 ms"].map(str::to_owned).to_vec();
    let rates = Table { heading, rows: rows.collect() }.render(Format::Markdown);
    let capacity = figures::table(std::slice::from_ref(figure)).render(Format::Markdown);
    format!("# Rates\n\n{title}.\n\n{capacity}\n{rates}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tables_have_what_was_measured_so_far() {
        let mut figure = Figure::new("changes a second", Unit::PerSecond, &[]);
        figure.add(Peer::Leasehold, 154.0);
        let curves = BTreeMap::from([(Peer::Leasehold, vec![(15.0, 20.4), (20.0, 1_500.0)])]);
        let text = markdown(&curves, &figure, "p99");
        let rows: Vec<Vec<&str>> = (text.lines().filter(|line| line.starts_with("| ")))
            .map(|line| line.split('|').map(str::trim).filter(|cell| !cell.is_empty()).collect())
            .collect();
        assert_eq!(rows[1][..2], ["changes a second", "154 /s"]);
        assert_eq!(rows[3..], [vec!["leasehold", "15", "20"], vec!["leasehold", "20", "1500"]]);
    }

    #[test]
    fn a_change_is_answered_by_its_number_or_a_later_one() {
        let now = Instant::now();
        let ms = Duration::from_millis;
        let name = super::super::objects::name(7);
        let object =
            |trigger: u64| json!({"metadata": {"name": name}, "status": {"trigger": trigger}});
        let mut seen = Seen::default();
        seen.touched(7, 3, now);
        seen.touched(7, 5, now + ms(10));
        seen.touched(7, 9, now + ms(20));
        seen.answered(&object(2), now + ms(25));
        assert!(seen.took.is_empty());
        seen.answered(&object(5), now + ms(30));
        assert_eq!(seen.took, [30.0, 20.0]);
        // The watch may be quicker than the answer to the change itself.
        seen.answered(&object(12), now + ms(40));
        seen.touched(7, 12, now + ms(35));
        assert_eq!(seen.took, [30.0, 20.0, 20.0, 5.0]);
    }
}
