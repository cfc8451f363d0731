//! A steady stream of changes to TDSets, and what must come of them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kube::Client;
use model::Range;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::control_plane::ControlPlane;
use super::{kubectl, wait};

/// The namespace of the TDSets in each cluster.
pub const NAMESPACE: &str = "load";

/// The number of replicas of a TDSet cycles from 1 to this.
const MAX_REPLICAS: u64 = 2;

/// How many objects an error names that have not converged.
const MAX_NAMED: usize = 5;

/// A cluster and how many TDSets it has.
#[derive(Clone)]
pub struct LoadTarget {
    /// The cluster's name.
    pub cluster: String,
    /// A client of it.
    pub client: Client,
    /// How many TDSets there are.
    pub sets: usize,
    /// Whether Pods become ready there, and so TDSets too.
    pub alive: bool,
}

/// A running stream of changes. Dropping it stops it.
pub struct Load {
    targets: Vec<LoadTarget>,
    stop: CancellationToken,
    task: AbortOnDropHandle<Result<Desired>>,
}

/// What must come of the changes.
#[derive(Debug, Default)]
pub struct Desired {
    /// The desired replicas of each TDSet, by cluster and name.
    pub replicas: BTreeMap<(String, String), u64>,
    /// How many changes were made.
    pub changes: usize,
}

impl LoadTarget {
    /// A target with `sets` TDSets in `plane`.
    pub fn new(plane: &ControlPlane, sets: usize, alive: bool) -> Self {
        Self { cluster: plane.name().to_owned(), client: plane.client.clone(), sets, alive }
    }
}

/// Manifests of the namespace and the TDSets of one target, all running `image`.
pub fn manifests(sets: usize, image: &str) -> String {
    let mut text = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {NAMESPACE}}}\n");
    for index in 0..sets {
        let name = name(index);
        write!(
            text,
            "---\napiVersion: schedule.rs/v1\nkind: TDSet\n\
             metadata: {{name: {name}, namespace: {NAMESPACE}}}\n\
             spec: {{container: {{image: \"{image}\", port: 8000}}, defaultReplica: 1}}\n"
        )
        .expect("writing to a string never fails");
    }
    text
}

impl Load {
    /// Every `pause`, changes one TDSet of each target, in turn, until stopped.
    pub fn start(targets: Vec<LoadTarget>, pause: Duration) -> Self {
        Self::resume(targets, pause, Desired::default())
    }

    /// Continues after an earlier load that left `expected`.
    pub fn resume(targets: Vec<LoadTarget>, pause: Duration, expected: Desired) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(change(targets.clone(), pause, stop.clone(), expected));
        Self { targets, stop, task: AbortOnDropHandle::new(task) }
    }

    /// Stops the changes and waits until all of them have taken effect.
    pub async fn settle(self, deadline: Duration) -> Result<Desired> {
        self.stop.cancel();
        let expected = self.task.await??;
        let mut behind = Vec::new();
        let outcome = wait::until(deadline, "every change to take effect", async || {
            behind.clear();
            for target in &self.targets {
                behind.extend(behind_of(target, &expected).await?);
            }
            Ok(behind.is_empty().then_some(()))
        })
        .await;
        if let Err(error) = outcome {
            let count = behind.len();
            behind.truncate(MAX_NAMED);
            bail!("{error:#}; {count} have not converged: {}", behind.join("; "));
        }
        Ok(expected)
    }
}

fn name(index: usize) -> String {
    format!("load-{index:03}")
}

async fn change(
    targets: Vec<LoadTarget>,
    pause: Duration,
    stop: CancellationToken,
    mut expected: Desired,
) -> Result<Desired> {
    for target in &targets {
        for index in 0..target.sets {
            expected.replicas.entry((target.cluster.clone(), name(index))).or_insert(1);
        }
    }
    for round in 0.. {
        for target in targets.iter().filter(|target| target.sets > 0) {
            let set = name(round % target.sets);
            let desired = expected.replicas.get_mut(&(target.cluster.clone(), set.clone()));
            let desired = desired.expect("each TDSet was inserted above");
            *desired = *desired % MAX_REPLICAS + 1;
            let patch = json!({"spec": {"defaultReplica": *desired}});
            kubectl::merge(&target.client, &tdsets(Some(&set)), &patch)
                .await
                .with_context(|| format!("change {set} of {}", target.cluster))?;
            expected.changes += 1;
        }
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(pause) => {}
        }
    }
    Ok(expected)
}

/// How many changes of TDSets their controller has seen in a cluster, over all in some ranges.
pub async fn observed(client: &Client, ranges: &[Range]) -> Result<u64> {
    let sets = kubectl::list(client, &tdsets(None)).await?;
    let is_inside = |set: &&Value| {
        let hash = model::uid_hash(set["metadata"]["uid"].as_str().unwrap_or_default());
        ranges.iter().any(|range| range.contains(hash))
    };
    let seen = |set: &Value| set["status"]["observedGeneration"].as_u64();
    Ok(sets.iter().filter(is_inside).filter_map(seen).sum())
}

fn tdsets(name: Option<&str>) -> String {
    let list = format!("/apis/schedule.rs/v1/namespaces/{NAMESPACE}/tdsets");
    name.map_or(list.clone(), |name| format!("{list}/{name}"))
}

/// The TDSets of `target` that are not yet as expected, a phrase for each.
async fn behind_of(target: &LoadTarget, expected: &Desired) -> Result<Vec<String>> {
    let by_name = |items: Vec<Value>| -> BTreeMap<String, Value> {
        items.into_iter().map(|item| (kubectl::name(&item).to_owned(), item)).collect()
    };
    let sets = by_name(kubectl::list(&target.client, &tdsets(None)).await?);
    let path = format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments");
    let deployments = by_name(kubectl::list(&target.client, &path).await?);
    let mut behind = Vec::new();
    let of_target = expected.replicas.iter().filter(|((cluster, _), _)| *cluster == target.cluster);
    for ((cluster, name), desired) in of_target {
        let set = sets.get(name).unwrap_or(&Value::Null);
        let found = deployments.get(name).map(|deployment| &deployment["spec"]["replicas"]);
        let observed = &set["status"]["observedGeneration"];
        if found.and_then(Value::as_u64) != Some(*desired) {
            behind.push(format!("{cluster}/{name} has {found:?} replicas, not {desired}"));
        } else if *observed != set["metadata"]["generation"] {
            behind.push(format!("{cluster}/{name} reports generation {observed}"));
        } else if target.alive && !kubectl::holds(set, "Ready") {
            behind.push(format!("{cluster}/{name} is not ready"));
        }
    }
    Ok(behind)
}
