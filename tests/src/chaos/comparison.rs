//! Repeats on our replicas the events that were measured of multicluster-runtime's sharded
//! coordinator at its default timings: 3 replicas, 30 clusters, one change a second in each,
//! reconciles of 2 s.
//!
//! Overlaps are counted in the same way: one key in two replicas at once. A shard that changes
//! owners is unserved from the old owner's last possible dispatch to the new owner's first one.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use futures::future::try_join_all;
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;

use super::evidence;
use super::fleet::{Fleet, FleetSpec};
use super::gap;
use super::history::{Timings, Window};
use super::oracle;
use super::report::seconds;
use crate::harness::table::{Format, Table};
use crate::harness::wait::{self, Stopwatch};
use crate::harness::{Scene, kubectl, load};

const CLUSTERS: usize = 30;
const REPLICAS: usize = 3;
/// The time between two changes in a cluster.
const TICK: Duration = Duration::from_secs(1);
/// How long an event is watched after the fleet has settled: several reconciles.
const AFTERMATH: Duration = Duration::from_secs(8);

/// The events, what was measured of multicluster-runtime, and our targets.
const EVENTS: [[&str; 3]; 5] = [
    ["start of 3 replicas", "21 overlaps in 7 clusters", "0 overlaps"],
    ["SIGKILL of one", "unserved for up to 46.8 s", "lease duration + 1 s"],
    ["SIGTERM of one", "unserved for up to 28.8 s", "longest in-flight reconcile + 100 ms"],
    ["a fourth joins", "29 overlaps in 13 clusters", "0 overlaps, no cluster unserved"],
    ["SIGSTOP (60 s), then SIGCONT", "238 overlaps in 17 clusters", "0 overlaps"],
];

/// Runs the events and prints the table. Returns whether there was no overlap.
pub async fn run(scene: &Scene, stop_for: Duration, format: Format) -> Result<bool> {
    let watch = Stopwatch::start();
    let plan = FleetSpec {
        real: &[],
        embedded: CLUSTERS,
        has_sets: false,
        program: vec![scene.tools().slow()],
        controllers: json!({"slow": {"workers": 4}}),
    };
    let mut fleet = Fleet::prepare(scene, plan).await?;
    let clients: Vec<Client> = fleet.embedded.iter().map(|s| s.client.clone()).collect();
    try_join_all(clients.iter().map(create)).await?;
    let _changes = AbortOnDropHandle::new(tokio::spawn(tick(clients)));
    eprintln!("{CLUSTERS} clusters with a change a second are up after {watch}");
    let (windows, owners) = events(&mut fleet, stop_for).await?;
    let history = evidence::gather(&mut fleet).await?;
    let judgement = oracle::judge(&history);
    let gaps = gap::gaps(&history, Timings::DEFAULT);
    let ours = windows.iter().map(|window| {
        let of_window = gaps.iter().filter(|gap| window.contains(gap.until));
        let unserved = of_window.filter_map(gap::Gap::unserved).max();
        let overlaps = judgement.overlaps.iter().filter(|f| window.contains(f.at)).count();
        outcome(overlaps, unserved)
    });
    eprintln!("SIGSTOP lasted {} s for our replica", stop_for.as_secs());
    let table = table(ours.collect(), &owners);
    match format {
        Format::Json => println!("{}", serde_json::to_string_pretty(&as_json(&table))?),
        format => print!("{}", table.render(format)),
    }
    judgement.print();
    eprintln!("took {watch}");
    Ok(judgement.overlaps.is_empty() && judgement.violations.is_empty())
}

/// Runs the events, each in a window of its own. Returns the windows, and how many clusters each of
/// three replicas owned.
async fn events(fleet: &mut Fleet<'_>, stop_for: Duration) -> Result<(Vec<Window>, Vec<usize>)> {
    let mut windows = Vec::new();
    let mut done = async |fleet: &mut Fleet<'_>, from: Timestamp| -> Result<()> {
        fleet.settle().await?;
        tokio::time::sleep(AFTERMATH).await;
        let fault = EVENTS[windows.len()][0];
        windows.push(Window { fault, from, until: wait::now() });
        eprintln!("{fault}: settled");
        Ok(())
    };
    let from = wait::now();
    for _ in 0..REPLICAS {
        fleet.start().await?;
    }
    done(fleet, from).await?;
    let owners = owners(fleet).await?;

    let (from, victim) = (wait::now(), fleet.busiest().await?);
    fleet.kill(&[victim]);
    done(fleet, from).await?;
    fleet.restore(REPLICAS).await?;

    let (from, leaver) = (wait::now(), fleet.busiest().await?);
    fleet.dismiss(leaver).await?;
    done(fleet, from).await?;
    fleet.restore(REPLICAS).await?;

    let from = wait::now();
    fleet.start().await?;
    done(fleet, from).await?;
    fleet.restore(REPLICAS).await?;

    let (from, sleeper) = (wait::now(), fleet.busiest().await?);
    fleet.replicas[sleeper].sleep(stop_for).await;
    done(fleet, from).await?;
    Ok((windows, owners))
}

/// How many clusters each replica owns, the most first.
async fn owners(fleet: &Fleet<'_>) -> Result<Vec<usize>> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for owner in fleet.entries().await?.into_iter().filter_map(|entry| entry.owner) {
        *counts.entry(owner).or_default() += 1;
    }
    let mut counts: Vec<usize> = counts.into_values().collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    Ok(counts)
}

fn outcome(overlaps: usize, unserved: Option<Duration>) -> String {
    let unserved = match unserved {
        Some(time) => format!("a shard unserved for up to {}", seconds(time)),
        None => "no shard unserved".to_owned(),
    };
    format!("{overlaps} overlaps, {unserved}")
}

fn table(ours: Vec<String>, owners: &[usize]) -> Table {
    let heading = ["event", "multicluster-runtime", "target", "ours"].map(str::to_owned).to_vec();
    let mut rows: Vec<Vec<String>> = EVENTS
        .iter()
        .zip(ours)
        .map(|(event, ours)| event.iter().map(|cell| (*cell).to_owned()).chain([ours]).collect())
        .collect();
    let counts: Vec<String> = owners.iter().map(usize::to_string).collect();
    let settled = ["owners settled at", "15 / 8 / 7", "10 / 10 / 10"].map(str::to_owned);
    rows.push(settled.into_iter().chain([counts.join(" / ")]).collect());
    Table { heading, rows }
}

fn as_json(table: &Table) -> Value {
    let row = |cells: &Vec<String>| -> Value {
        table.heading.iter().cloned().zip(cells.iter().map(|cell| json!(cell))).collect()
    };
    table.rows.iter().map(row).collect()
}

const CHANGED_OBJECT: &str = "tick";

async fn create(client: &Client) -> Result<()> {
    let namespace = json!({"metadata": {"name": load::NAMESPACE}});
    kubectl::create(client, "/api/v1/namespaces", &namespace).await?;
    let path = format!("/api/v1/namespaces/{}/configmaps", load::NAMESPACE);
    kubectl::create(client, &path, &json!({"metadata": {"name": CHANGED_OBJECT}})).await
}

/// Changes each cluster's object once a second. If a change fails, the next one makes up for it.
async fn tick(clients: Vec<Client>) {
    let mut ticks = tokio::time::interval(TICK);
    for number in 0_u64.. {
        ticks.tick().await;
        let patch = json!({"data": {"number": number.to_string()}});
        let path = format!("/api/v1/namespaces/{}/configmaps/{CHANGED_OBJECT}", load::NAMESPACE);
        for client in &clients {
            let _ = kubectl::merge(client, &path, &patch).await;
        }
    }
}
