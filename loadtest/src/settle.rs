//! Waiting for what a load leaves behind: changes that have not converged, shards that nobody holds,
//! Deployments of deleted TDSets.

use std::collections::HashSet;
use std::time::Duration;

use anyhow::{Context, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::ListParams;
use kube::{Api, Client};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::oversee::LOOK;
use crate::progress;
use crate::replicas::Replicas;
use crate::tdset;
use crate::track::{Measured, Message, Tracker, watch_cluster};

/// The most messages that wait for the tracker.
const MESSAGES_BOUND: usize = 4096;

/// The tracker's task and its watches.
pub struct Tracking {
    /// To the tracker.
    pub messages: mpsc::Sender<Message>,
    /// How many changes have not converged.
    pub pending: watch::Receiver<usize>,
    tasks: JoinSet<()>,
}

impl Tracking {
    /// Starts watching the fleet.
    pub fn start(clusters: &[(String, Client)], started: Instant) -> Self {
        let (messages, mut incoming) = mpsc::channel(MESSAGES_BOUND);
        let (pending_out, pending) = watch::channel(0);
        let mut tasks = JoinSet::new();
        for (name, client) in clusters {
            let api = tdset::all(client.clone());
            tasks.spawn(watch_cluster(name.clone(), api, started, messages.clone()));
        }
        tasks.spawn(async move {
            let mut tracker = Tracker::default();
            while let Some(message) = incoming.recv().await {
                tracker.handle(message);
                let now = tracker.pending();
                pending_out.send_if_modified(|seen| std::mem::replace(seen, now) != now);
            }
        });
        Self { messages, pending, tasks }
    }

    /// What was measured so far, including everything that was sent before this call.
    ///
    /// # Errors
    /// If the tracker has stopped.
    pub async fn measured(&self) -> anyhow::Result<Measured> {
        let (reply, answer) = oneshot::channel();
        self.messages.send(Message::Measure(reply)).await.context("the tracker has stopped")?;
        answer.await.context("the tracker has stopped")
    }

    /// Waits until nothing is pending, or as long as the scenario allows.
    ///
    /// # Errors
    /// If a manager ends on its own.
    pub async fn settle(
        &mut self,
        replicas: &mut Replicas<'_>,
        within: Duration,
        what: &str,
    ) -> anyhow::Result<Measured> {
        let settled = async {
            let mut left = self.measured().await?.pending;
            let bar = progress::bar(left as u64, what);
            while left > 0 {
                // The next change or the next look, whichever is first.
                let _ = tokio::time::timeout(LOOK, self.pending.changed()).await;
                replicas.check()?;
                left = *self.pending.borrow_and_update();
                bar.set_position(bar.length().unwrap_or_default().saturating_sub(left as u64));
            }
            bar.finish_and_clear();
            anyhow::Ok(())
        };
        if let Ok(settled) = tokio::time::timeout(within, settled).await {
            settled?;
        }
        self.measured().await
    }

    /// Stops watching.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

/// Waits until the managers hold this many shards.
///
/// # Errors
/// If they do not within this time.
pub async fn held(replicas: &Replicas<'_>, shards: usize, within: Duration) -> anyhow::Result<()> {
    let mut held = 0.0;
    let waited = async {
        loop {
            held = replicas.samples().await?.iter().map(|sample| sample.shards).sum();
            if held >= shards as f64 {
                return anyhow::Ok(());
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    let waited = tokio::time::timeout(within, waited).await;
    ensure!(waited.is_ok(), "the managers hold {held} of {shards} shards after {within:?}");
    waited?
}

/// Waits until the garbage collectors have handled the last deletions, or as long as the scenario
/// allows. Returns how many Deployments are left behind then.
///
/// # Errors
/// If a server does not answer.
pub async fn orphans(clusters: &[(String, Client)], within: Duration) -> anyhow::Result<usize> {
    let gone = async {
        while count_orphans(clusters).await? > 0 {
            tokio::time::sleep(LOOK).await;
        }
        anyhow::Ok(())
    };
    match tokio::time::timeout(within, gone).await {
        Ok(gone) => gone.map(|()| 0),
        Err(_) => count_orphans(clusters).await,
    }
}

/// Deployments of a TDSet that is gone.
async fn count_orphans(clusters: &[(String, Client)]) -> anyhow::Result<usize> {
    let all = ListParams::default();
    let mut orphans = 0;
    for (name, client) in clusters {
        let deployments: Api<Deployment> = Api::all(client.clone());
        let deployments = deployments.list(&all).await;
        let deployments = deployments.with_context(|| format!("list Deployments of {name}"))?;
        let tdsets = tdset::all(client.clone()).list(&all).await;
        let tdsets = tdsets.with_context(|| format!("list TDSets of {name}"))?;
        let alive: HashSet<_> =
            tdsets.items.iter().filter_map(|object| object.metadata.uid.as_deref()).collect();
        let is_orphan = |deployment: &&Deployment| {
            let owners = deployment.metadata.owner_references.iter().flatten();
            let mut owners = owners.filter(|owner| owner.kind == tdset::KIND).peekable();
            owners.peek().is_some() && owners.all(|owner| !alive.contains(owner.uid.as_str()))
        };
        orphans += deployments.items.iter().filter(is_orphan).count();
    }
    Ok(orphans)
}
