//! A steady stream of changes to TDSets, and the account of where they must lead.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kube::Client;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::control_plane::ControlPlane;
use super::{kubectl, wait};

/// The namespace the TDSets are in, in each cluster.
pub const NAMESPACE: &str = "load";

/// Replicas go round from 1 to this.
const MAX_REPLICAS: u64 = 2;

/// How many of the objects that lag behind an error names.
const NAMED_LAGGARDS: usize = 5;

/// A cluster and how many TDSets it gets.
#[derive(Clone)]
pub struct Target {
    /// The cluster's name.
    pub cluster: String,
    /// Reaches it.
    pub client: Client,
    /// How many.
    pub sets: usize,
    /// Whether Pods come to life there, so that a TDSet can become ready.
    pub alive: bool,
}

/// A running stream of changes. Stops when dropped.
pub struct Load {
    targets: Vec<Target>,
    stop: CancellationToken,
    task: AbortOnDropHandle<Result<Expected>>,
}

/// Where the changes lead: the replicas of each TDSet by cluster and name.
#[derive(Debug, Default)]
pub struct Expected {
    /// The last wish for each TDSet.
    pub replicas: BTreeMap<(String, String), u64>,
    /// How many changes were made.
    pub changes: usize,
}

impl Target {
    /// `sets` TDSets in `plane`.
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
    /// Changes one TDSet of each target every `pause`, in turn, until stopped.
    pub fn start(targets: Vec<Target>, pause: Duration) -> Self {
        Self::resume(targets, pause, Expected::default())
    }

    /// Goes on from where an earlier load led.
    pub fn resume(targets: Vec<Target>, pause: Duration, expected: Expected) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(change(targets.clone(), pause, stop.clone(), expected));
        Self { targets, stop, task: AbortOnDropHandle::new(task) }
    }

    /// Stops the changes and waits until every one of them has taken effect.
    ///
    /// # Errors
    /// If a change could not be made, or has not taken effect within `deadline`.
    pub async fn settle(self, deadline: Duration) -> Result<Expected> {
        self.stop.cancel();
        let expected = self.task.await??;
        let mut behind = Vec::new();
        let outcome = wait::until(deadline, "every change to take effect", async || {
            behind.clear();
            for target in &self.targets {
                behind.extend(laggards(target, &expected).await?);
            }
            Ok(behind.is_empty().then_some(()))
        })
        .await;
        if let Err(error) = outcome {
            let count = behind.len();
            behind.truncate(NAMED_LAGGARDS);
            bail!("{error:#}; {count} lag behind: {}", behind.join("; "));
        }
        Ok(expected)
    }
}

fn name(index: usize) -> String {
    format!("load-{index:03}")
}

async fn change(
    targets: Vec<Target>,
    pause: Duration,
    stop: CancellationToken,
    mut expected: Expected,
) -> Result<Expected> {
    for target in &targets {
        for index in 0..target.sets {
            expected.replicas.entry((target.cluster.clone(), name(index))).or_insert(1);
        }
    }
    for round in 0.. {
        for target in targets.iter().filter(|target| target.sets > 0) {
            let set = name(round % target.sets);
            let wish = expected.replicas.get_mut(&(target.cluster.clone(), set.clone()));
            let wish = wish.expect("every TDSet has a wish");
            *wish = *wish % MAX_REPLICAS + 1;
            patch(&target.client, &set, *wish)
                .await
                .with_context(|| format!("changing {set} of {}", target.cluster))?;
            expected.changes += 1;
        }
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(pause) => {}
        }
    }
    Ok(expected)
}

async fn patch(client: &Client, name: &str, replicas: u64) -> Result<()> {
    kubectl::merge(client, &tdsets(Some(name)), &json!({"spec": {"defaultReplica": replicas}}))
        .await
}

fn tdsets(name: Option<&str>) -> String {
    let list = format!("/apis/schedule.rs/v1/namespaces/{NAMESPACE}/tdsets");
    name.map_or(list.clone(), |name| format!("{list}/{name}"))
}

/// The TDSets of `target` that are not yet as expected; a phrase each.
async fn laggards(target: &Target, expected: &Expected) -> Result<Vec<String>> {
    let by_name = |items: Vec<Value>| -> BTreeMap<String, Value> {
        let name = |item: &Value| item["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        items.into_iter().map(|item| (name(&item), item)).collect()
    };
    let sets = by_name(kubectl::list(&target.client, &tdsets(None)).await?);
    let path = format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments");
    let deployments = by_name(kubectl::list(&target.client, &path).await?);
    let mut behind = Vec::new();
    let of_target = expected.replicas.iter().filter(|((cluster, _), _)| *cluster == target.cluster);
    for ((cluster, name), wish) in of_target {
        let set = sets.get(name).unwrap_or(&Value::Null);
        let found = deployments.get(name).map(|deployment| &deployment["spec"]["replicas"]);
        let observed = &set["status"]["observedGeneration"];
        if found.and_then(Value::as_u64) != Some(*wish) {
            behind.push(format!("{cluster}/{name} has {found:?} replicas, not {wish}"));
        } else if *observed != set["metadata"]["generation"] {
            behind.push(format!("{cluster}/{name} reports on generation {observed}"));
        } else if target.alive && !holds(set, "Ready") {
            behind.push(format!("{cluster}/{name} is not ready"));
        }
    }
    Ok(behind)
}

/// Whether condition `kind` of an object is true.
pub fn holds(object: &Value, kind: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions.is_some_and(|all| all.iter().any(|c| c["type"] == kind && c["status"] == "True"))
}
