//! The events that were measured of multicluster-runtime's sharded coordinator at its default
//! timings, done to ours: 3 replicas, 30 clusters, one event a second for each, reconciles of 2 s.
//!
//! What is counted as overlap is the same: one key in two replicas at once. What is counted as
//! unserved is, for each shard that changed hands, the time from the old owner's last possible
//! dispatch to the new owner's first dispatch.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use futures::future::try_join_all;
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};
use tokio_util::task::AbortOnDropHandle;

use super::evidence;
use super::field::{Field, Plan};
use super::gap;
use super::history::{Timings, Window};
use super::oracle::{self, Judgement};
use super::report::{Format, Table, seconds};
use crate::real::wait::{self, Stopwatch};
use crate::real::{Scene, kubectl, load};

const CLUSTERS: usize = 30;
const REPLICAS: usize = 3;
/// Between one event of a cluster and the next.
const TICK: Duration = Duration::from_secs(1);
/// How long an event is watched after the fleet has settled: several reconciles.
const AFTERMATH: Duration = Duration::from_secs(8);

/// The events, what was measured of multicluster-runtime, and what is to be reached.
const EVENTS: [[&str; 3]; 5] = [
    ["start of 3 replicas", "21 overlaps in 7 clusters", "0 overlaps"],
    ["SIGKILL of one", "unserved for up to 46.8 s", "lease duration + 1 s"],
    ["SIGTERM of one", "unserved for up to 28.8 s", "longest in-flight reconcile + 100 ms"],
    ["a fourth joins", "29 overlaps in 13 clusters", "0 overlaps, no cluster unserved"],
    ["SIGSTOP (60 s), then SIGCONT", "238 overlaps in 17 clusters", "0 overlaps"],
];

/// Does the events and prints the table. Says whether there was no overlap.
///
/// # Errors
/// If the fleet does not settle, or its evidence cannot be read.
pub async fn run(scene: &Scene, stop_for: Duration, format: Format) -> Result<bool> {
    let watch = Stopwatch::start();
    let plan = Plan {
        real: &[],
        embedded: CLUSTERS,
        has_sets: false,
        program: vec![scene.tools().slow()],
        controllers: json!({"slow": {"workers": 4}}),
    };
    let mut field = Field::prepare(scene, plan).await?;
    let clients: Vec<Client> = field.embedded.iter().map(|s| s.client.clone()).collect();
    try_join_all(clients.iter().map(create)).await?;
    let _events = AbortOnDropHandle::new(tokio::spawn(tick(clients)));
    eprintln!("{CLUSTERS} clusters with an event a second are up after {watch}");
    let (windows, owners) = happen(&mut field, stop_for).await?;
    let history = evidence::gather(&mut field).await?;
    let judgement = oracle::judge(&history);
    let gaps = gap::gaps(&history, Timings::DEFAULT);
    let ours = windows.iter().map(|window| {
        let of_window = gaps.iter().filter(|gap| window.contains(gap.until));
        let unserved = of_window.filter_map(gap::Gap::unserved).max();
        let overlaps = judgement.overlaps.iter().filter(|f| window.contains(f.at)).count();
        outcome(overlaps, unserved)
    });
    eprintln!("SIGSTOP lasted {} s for ours", stop_for.as_secs());
    let table = table(ours.collect(), &owners);
    match format {
        Format::Json => println!("{}", serde_json::to_string_pretty(&as_json(&table))?),
        format => print!("{}", table.render(format)),
    }
    tell(&judgement, history.dispatches.len());
    eprintln!("in {watch}");
    Ok(judgement.overlaps.is_empty() && judgement.trespasses.is_empty())
}

/// The events, each in a window of its own; and how many clusters each of three replicas owns.
async fn happen(field: &mut Field<'_>, stop_for: Duration) -> Result<(Vec<Window>, Vec<usize>)> {
    let mut windows = Vec::new();
    let mut done = async |field: &mut Field<'_>, from: Timestamp| -> Result<()> {
        field.settle().await?;
        tokio::time::sleep(AFTERMATH).await;
        let fault = EVENTS[windows.len()][0];
        windows.push(Window { fault, from, until: wait::now() });
        eprintln!("{fault}: settled");
        Ok(())
    };
    let from = wait::now();
    for _ in 0..REPLICAS {
        field.start().await?;
    }
    done(field, from).await?;
    let owners = owners(field).await?;

    let (from, victim) = (wait::now(), field.busiest().await?);
    field.kill(&[victim]);
    done(field, from).await?;
    field.restore(REPLICAS).await?;

    let (from, leaver) = (wait::now(), field.busiest().await?);
    field.dismiss(leaver).await?;
    done(field, from).await?;
    field.restore(REPLICAS).await?;

    let from = wait::now();
    field.start().await?;
    done(field, from).await?;
    field.restore(REPLICAS).await?;

    let (from, sleeper) = (wait::now(), field.busiest().await?);
    field.replicas[sleeper].sleep(stop_for).await;
    done(field, from).await?;
    Ok((windows, owners))
}

/// How many clusters each replica owns, the most first.
async fn owners(field: &Field<'_>) -> Result<Vec<usize>> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for owner in field.entries().await?.into_iter().filter_map(|entry| entry.owner) {
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
    let heading = ["event", "multicluster-runtime", "to reach", "ours"].map(str::to_owned).to_vec();
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

fn tell(judgement: &Judgement, dispatches: usize) {
    for finding in judgement.overlaps.iter().chain(&judgement.trespasses).take(10) {
        eprintln!("broken at {}: {}", finding.at, finding.what);
    }
    let longest = judgement.woken.iter().map(|woken| woken.lasted).max().unwrap_or_default();
    eprintln!(
        "{dispatches} dispatches; {} were asleep when their shard went to another, the last of them given up {} after waking",
        judgement.woken.len(),
        seconds(longest)
    );
}

const EVENT_OBJECT: &str = "tick";

async fn create(client: &Client) -> Result<()> {
    let namespace = json!({"metadata": {"name": load::NAMESPACE}});
    post(client, "/api/v1/namespaces", &namespace).await?;
    let path = format!("/api/v1/namespaces/{}/configmaps", load::NAMESPACE);
    post(client, &path, &json!({"metadata": {"name": EVENT_OBJECT}})).await
}

async fn post(client: &Client, path: &str, object: &Value) -> Result<()> {
    let request = http::Request::post(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(serde_json::to_vec(object)?)?;
    client.request::<Value>(request).await?;
    Ok(())
}

/// Changes each cluster's object once a second. One that fails is made up for by the next.
async fn tick(clients: Vec<Client>) {
    let mut ticks = tokio::time::interval(TICK);
    for number in 0_u64.. {
        ticks.tick().await;
        let patch = json!({"data": {"number": number.to_string()}});
        let path = format!("/api/v1/namespaces/{}/configmaps/{EVENT_OBJECT}", load::NAMESPACE);
        for client in &clients {
            let _ = kubectl::merge(client, &path, &patch).await;
        }
    }
}
