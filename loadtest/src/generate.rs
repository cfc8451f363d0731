//! The generator: creates, updates and deletes TDSets at the rates of the scenario.
//!
//! It does not wait until earlier changes have converged, so a slow manager cannot slow the load
//! down. Concurrent requests are bounded.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::fleet::{self, Fleet};
use crate::scenario::{Load, Scenario};
use crate::tdset::{self, Key};
use crate::track::{Fact, Message};

/// How often the generator checks which changes are due.
pub const TICK: Duration = Duration::from_millis(20);
/// The most concurrent changes during the load.
pub const MAX_IN_FLIGHT: usize = 64;

/// An object of the generator.
#[derive(Clone)]
pub struct Made {
    client: kube::Client,
    cluster: Arc<str>,
    namespace: Arc<str>,
    name: String,
    /// How often its spec was changed.
    change: u32,
}

/// Makes changes and reports each to the tracker.
pub struct Generator {
    clusters: Vec<(Arc<str>, kube::Client)>,
    namespaces: Vec<Arc<str>>,
    messages: mpsc::Sender<Message>,
    started: Instant,
    rng: fastrand::Rng,
    objects: Vec<Made>,
    numbered: u32,
}

/// How many changes of each kind were made.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Changes {
    /// Objects created.
    pub creates: u64,
    /// Specs changed.
    pub updates: u64,
    /// Objects deleted.
    pub deletes: u64,
}

impl Changes {
    /// The changes that are due after `elapsed` at the rates of `load`, without those already
    /// `done`.
    fn due(load: &Load, elapsed: Duration, done: Changes) -> Changes {
        let so_far = |rate: f64| (rate * elapsed.as_secs_f64()) as u64;
        Changes {
            creates: so_far(load.creates_per_second).saturating_sub(done.creates),
            updates: so_far(load.updates_per_second).saturating_sub(done.updates),
            deletes: so_far(load.deletes_per_second).saturating_sub(done.deletes),
        }
    }
}

impl Made {
    /// The `n`-th object of a cluster, which is not created yet.
    pub fn new(client: &kube::Client, cluster: &str, namespace: &str, n: usize) -> Self {
        Self {
            client: client.clone(),
            cluster: Arc::from(cluster),
            namespace: Arc::from(namespace),
            name: format!("tdset-{n:06}"),
            change: 0,
        }
    }

    /// The object with its spec changed once more, which is not written yet.
    pub fn changed(&mut self) -> Self {
        self.change += 1;
        self.clone()
    }

    fn key(&self) -> Key {
        format!("{}/{}/{}", self.cluster, self.namespace, self.name)
    }

    /// Creates it. Returns its generation.
    ///
    /// # Errors
    /// If the server refuses.
    pub async fn create(&self) -> Result<i64, kube::Error> {
        let api = tdset::namespaced(self.client.clone(), &self.namespace);
        let object = tdset::object(&self.name, self.change);
        let made = api.create(&PostParams::default(), &object).await?;
        Ok(made.metadata.generation.unwrap_or_default())
    }

    /// Writes its spec. Returns its generation.
    ///
    /// # Errors
    /// If the server refuses.
    pub async fn update(&self) -> Result<i64, kube::Error> {
        let api = tdset::namespaced(self.client.clone(), &self.namespace);
        let patch = Patch::Merge(json!({ "spec": tdset::spec(self.change) }));
        let changed = api.patch(&self.name, &PatchParams::default(), &patch).await?;
        Ok(changed.metadata.generation.unwrap_or_default())
    }

    async fn delete(&self) -> Result<(), kube::Error> {
        let api = tdset::namespaced(self.client.clone(), &self.namespace);
        api.delete(&self.name, &DeleteParams::background()).await.map(drop)
    }
}

impl Generator {
    /// A generator over the fleet's clusters, with a seed for its random choices.
    pub fn new(
        scenario: &Scenario,
        fleet: &Fleet,
        messages: mpsc::Sender<Message>,
        started: Instant,
        seed: u64,
    ) -> Self {
        let clusters = fleet.clusters.iter();
        Self {
            clusters: clusters.map(|(name, s)| (Arc::from(name.as_str()), s.client())).collect(),
            namespaces: fleet::namespaces(scenario).map(Arc::from).collect(),
            messages,
            started,
            rng: fastrand::Rng::with_seed(seed),
            objects: Vec::new(),
            numbered: 0,
        }
    }

    /// The next object, in turn over clusters and namespaces.
    fn next(&mut self) -> Made {
        let n = self.numbered as usize;
        self.numbered += 1;
        let (cluster, client) = &self.clusters[n % self.clusters.len()];
        let namespace = &self.namespaces[(n / self.clusters.len()) % self.namespaces.len()];
        Made::new(client, cluster, namespace, n)
    }

    /// Creates the objects that exist when the load begins.
    ///
    /// # Errors
    /// If a server refuses one.
    pub async fn populate(&mut self, scenario: &Scenario) -> anyhow::Result<()> {
        let objects: Vec<Made> = (0..scenario.objects.count).map(|_| self.next()).collect();
        let (messages, started) = (&self.messages, self.started);
        stream::iter(&objects)
            .map(Ok)
            .try_for_each_concurrent(
                scenario.limits.create_concurrency as usize,
                async |made| -> anyhow::Result<()> {
                    let at = started.elapsed();
                    let generation =
                        made.create().await.with_context(|| format!("create {}", made.key()))?;
                    let written = Fact::Written { key: made.key(), generation, at };
                    messages.send(Message::Fact(written)).await.context("the tracker has stopped")
                },
            )
            .await?;
        self.objects = objects;
        Ok(())
    }

    /// Makes changes for the scenario's duration.
    ///
    /// # Errors
    /// If a server refuses a change.
    pub async fn load(&mut self, load: &Load) -> anyhow::Result<Changes> {
        let began = self.started.elapsed();
        let permits = Arc::new(Semaphore::new(MAX_IN_FLIGHT));
        let mut under_way: JoinSet<anyhow::Result<()>> = JoinSet::new();
        let mut done = Changes::default();
        let mut tick = tokio::time::interval(TICK);
        while self.started.elapsed() - began < load.duration {
            tick.tick().await;
            let due = Changes::due(load, self.started.elapsed() - began, done);
            for change in self.draw(due) {
                let permit = Arc::clone(&permits).acquire_owned().await?;
                let (messages, started) = (self.messages.clone(), self.started);
                under_way.spawn(async move {
                    let result = change.carry_out(&messages, started).await;
                    drop(permit);
                    result
                });
            }
            done.creates += due.creates;
            done.updates += due.updates;
            done.deletes += due.deletes;
            while let Some(finished) = under_way.try_join_next() {
                finished??;
            }
        }
        while let Some(finished) = under_way.join_next().await {
            finished??;
        }
        Ok(done)
    }

    /// Chooses objects for the changes that are due. An object is chosen once at most, and not if
    /// it is only created now, so that changes of one object never overtake each other.
    fn draw(&mut self, due: Changes) -> Vec<Change> {
        let mut changes = Vec::new();
        for _ in 0..due.deletes.min(self.objects.len() as u64) {
            let n = self.rng.usize(..self.objects.len());
            changes.push(Change::Delete(self.objects.swap_remove(n)));
        }
        let mut drawn = std::collections::BTreeSet::new();
        for _ in 0..due.updates.min(self.objects.len() as u64) {
            drawn.insert(self.rng.usize(..self.objects.len()));
        }
        for n in drawn {
            changes.push(Change::Update(self.objects[n].changed()));
        }
        for _ in 0..due.creates {
            let made = self.next();
            self.objects.push(made.clone());
            changes.push(Change::Create(made));
        }
        changes
    }
}

enum Change {
    Create(Made),
    Update(Made),
    Delete(Made),
}

impl Change {
    async fn carry_out(
        self,
        messages: &mpsc::Sender<Message>,
        started: Instant,
    ) -> anyhow::Result<()> {
        let at = started.elapsed();
        let fact = match &self {
            Change::Create(made) => {
                let generation =
                    made.create().await.with_context(|| format!("create {}", made.key()))?;
                Fact::Written { key: made.key(), generation, at }
            }
            Change::Update(made) => match made.update().await {
                Ok(generation) => Fact::Written { key: made.key(), generation, at },
                // Its deletion, chosen later, was faster.
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
                Err(error) => {
                    return Err(error).with_context(|| format!("update {}", made.key()));
                }
            },
            Change::Delete(made) => {
                made.delete().await.with_context(|| format!("delete {}", made.key()))?;
                Fact::Deleted { key: made.key() }
            }
        };
        messages.send(Message::Fact(fact)).await.context("the tracker has stopped")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_changes_follow_the_rates_and_none_is_lost() {
        let load = Load {
            duration: Duration::from_secs(9),
            updates_per_second: 40.0,
            creates_per_second: 0.5,
            deletes_per_second: 0.0,
        };
        let due = |ms, done| Changes::due(&load, Duration::from_millis(ms), done);
        let none = Changes::default();
        assert_eq!(due(20, none), none);
        assert_eq!(due(2_000, none), Changes { creates: 1, updates: 80, deletes: 0 });
        assert_eq!(due(2_025, Changes { creates: 1, updates: 80, deletes: 0 }).updates, 1);
    }
}
