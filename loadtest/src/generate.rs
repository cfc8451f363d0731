//! The generator: creates, updates and deletes TDSets when they are due.
//!
//! It is open-loop: neither convergence nor answers decide when the next change is made. Each change
//! has its time from [`Schedule`], its latency counts from that, and how late the generator was itself
//! is measured too. What bounds it, [`MAX_IN_FLIGHT`] and that changes of one object never overtake each
//! other, makes changes late, and so shows.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures::{StreamExt, TryStreamExt, stream};
use hdrhistogram::Histogram;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::fleet;
use crate::scenario::{Load, Objects, Scenario};
use crate::schedule::{Action, Due, Schedule};
use crate::tdset::{self, Key, Pods};
use crate::track::{Fact, Message};

/// The most changes that wait for an answer.
pub const MAX_IN_FLIGHT: usize = 1024;
/// The longest lag that is recorded as such, in microseconds: ten minutes.
const MAX_LAG_US: u64 = 600_000_000;

/// An object of the generator.
#[derive(Clone)]
pub struct Made {
    client: kube::Client,
    cluster: Arc<str>,
    namespace: Arc<str>,
    name: String,
    pods: Pods,
    padding: u32,
    /// The run that made it, if its label says so.
    run: Option<Arc<str>>,
    /// How often its spec was changed.
    change: u32,
}

/// Makes changes and reports each to the tracker.
pub struct Generator {
    clusters: Vec<(Arc<str>, kube::Client)>,
    namespaces: Vec<Arc<str>>,
    objects: Objects,
    /// What the label [`tdset::RUN`] of each object says, if it has one.
    pub run: Option<Arc<str>>,
    messages: mpsc::Sender<Message>,
    started: Instant,
    rng: fastrand::Rng,
    /// The objects that no request is under way for.
    idle: Vec<Made>,
    numbered: u32,
}

/// How many changes of each kind were made, and how late.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize)]
pub struct Changes {
    /// Objects created.
    pub creates: u64,
    /// Specs changed.
    pub updates: u64,
    /// Objects deleted.
    pub deletes: u64,
    /// Updates and deletions that were due when there was no object.
    pub impossible: u64,
    /// From the time at which a change was due until it was sent, 99th percentile, in milliseconds.
    pub lag_p99_ms: f64,
    /// The longest of these.
    pub lag_max_ms: f64,
}

/// What is counted while a load is made.
struct Tally {
    changes: Changes,
    lag_us: Histogram<u64>,
}

/// One change that was made.
struct Done {
    action: Action,
    /// The object, unless it is deleted.
    object: Option<Made>,
    lag: Duration,
}

/// One change under way.
type UnderWay = JoinSet<anyhow::Result<Done>>;

impl Changes {
    /// All of them.
    pub fn made(&self) -> u64 {
        self.creates + self.updates + self.deletes
    }
}

impl Tally {
    fn new() -> Self {
        let lag_us = Histogram::new_with_bounds(1, MAX_LAG_US, 3)
            .expect("the bounds are constants that hdrhistogram accepts");
        Self { changes: Changes::default(), lag_us }
    }

    fn add(&mut self, action: Action, lag: Duration) {
        match action {
            Action::Create => self.changes.creates += 1,
            Action::Update => self.changes.updates += 1,
            Action::Delete => self.changes.deletes += 1,
        }
        let lag = u64::try_from(lag.as_micros()).unwrap_or(MAX_LAG_US);
        self.lag_us.saturating_record(lag.max(1));
    }

    fn changes(&self) -> Changes {
        let ms = |us: u64| us as f64 / 1e3;
        Changes {
            lag_p99_ms: ms(self.lag_us.value_at_quantile(0.99)),
            lag_max_ms: ms(self.lag_us.max()),
            ..self.changes
        }
    }
}

impl Made {
    /// The object of this number, which is not created yet.
    pub fn new(
        client: &kube::Client,
        cluster: &str,
        namespace: &str,
        n: usize,
        (pods, padding): (Pods, u32),
    ) -> Self {
        Self {
            client: client.clone(),
            cluster: Arc::from(cluster),
            namespace: Arc::from(namespace),
            name: format!("tdset-{n:06}"),
            pods,
            padding,
            run: None,
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
        let mut object = tdset::object(&self.name, self.pods, self.change, self.padding);
        let run = self.run.iter().map(|run| (tdset::RUN.to_owned(), run.to_string()));
        object.metadata.labels = self.run.is_some().then(|| run.collect());
        let made = api.create(&PostParams::default(), &object).await?;
        Ok(made.metadata.generation.unwrap_or_default())
    }

    /// Writes its spec. Returns its generation.
    ///
    /// # Errors
    /// If the server refuses.
    pub async fn update(&self) -> Result<i64, kube::Error> {
        let api = tdset::namespaced(self.client.clone(), &self.namespace);
        let patch = Patch::Merge(json!({ "spec": tdset::spec(self.pods, self.change) }));
        let changed = api.patch(&self.name, &PatchParams::default(), &patch).await?;
        Ok(changed.metadata.generation.unwrap_or_default())
    }

    async fn delete(&self) -> Result<(), kube::Error> {
        let api = tdset::namespaced(self.client.clone(), &self.namespace);
        api.delete(&self.name, &DeleteParams::background()).await.map(drop)
    }

    /// Makes a change that was due then, and says what the tracker should know.
    async fn carry_out(&self, action: Action, due: Duration) -> anyhow::Result<Fact> {
        let key = self.key();
        let generation = match action {
            Action::Create => self.create().await.with_context(|| format!("create {key}"))?,
            Action::Update => self.update().await.with_context(|| format!("update {key}"))?,
            Action::Delete => {
                self.delete().await.with_context(|| format!("delete {key}"))?;
                return Ok(Fact::Deleted { key, due });
            }
        };
        Ok(Fact::Written { key, generation, due })
    }
}

impl Generator {
    /// A generator over these clusters, with a seed for its random choices.
    pub fn new(
        scenario: &Scenario,
        clusters: &[(String, kube::Client)],
        messages: mpsc::Sender<Message>,
        started: Instant,
        seed: u64,
    ) -> Self {
        let clients = clusters.iter().map(|(name, client)| (Arc::from(&**name), client.clone()));
        Self {
            clusters: clients.collect(),
            objects: scenario.objects.clone(),
            run: None,
            namespaces: fleet::namespaces(scenario).map(Arc::from).collect(),
            messages,
            started,
            rng: fastrand::Rng::with_seed(seed),
            idle: Vec::new(),
            numbered: 0,
        }
    }

    /// The next object, in turn over clusters and namespaces.
    fn next(&mut self) -> Made {
        let n = self.numbered as usize;
        self.numbered += 1;
        let (cluster, client) = &self.clusters[n % self.clusters.len()];
        let of_cluster = n / self.clusters.len();
        let namespace = &self.namespaces[of_cluster % self.namespaces.len()];
        let looks = (Pods::of(&self.objects, of_cluster), self.objects.padding);
        Made { run: self.run.clone(), ..Made::new(client, cluster, namespace, n, looks) }
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
                    let due = started.elapsed();
                    let generation =
                        made.create().await.with_context(|| format!("create {}", made.key()))?;
                    let written = Fact::Written { key: made.key(), generation, due };
                    messages.send(Message::Fact(written)).await.context("the tracker has stopped")
                },
            )
            .await?;
        // How soon a Pod starts is not the manager's: those that always run one are not changed.
        self.idle = objects.into_iter().filter(|made| made.pods != Pods::Always(1)).collect();
        Ok(())
    }

    /// Makes the changes of a load that begins then, each when it is due.
    ///
    /// # Errors
    /// If a server refuses a change.
    pub async fn load(&mut self, load: &Load, began: Duration) -> anyhow::Result<Changes> {
        let schedule = Schedule::new(load, self.rng.u64(..));
        let (mut under_way, mut tally) = (UnderWay::new(), Tally::new());
        for Due { at, action } in schedule {
            let due = began + at;
            self.wait(due, action, &mut under_way, &mut tally).await?;
            match self.draw(action) {
                Some(made) => self.send(due, action, made, &mut under_way),
                None => tally.changes.impossible += 1,
            }
        }
        while let Some(done) = under_way.join_next().await {
            self.finish(done??, &mut tally);
        }
        // It lasts as long as the scenario says, also where the last change, or none, was due before.
        tokio::time::sleep_until(self.started + began + load.duration).await;
        Ok(tally.changes())
    }

    /// Waits until a change is due and possible. Meanwhile answers arrive.
    async fn wait(
        &mut self,
        due: Duration,
        action: Action,
        under_way: &mut UnderWay,
        tally: &mut Tally,
    ) -> anyhow::Result<()> {
        loop {
            while let Some(done) = under_way.try_join_next() {
                self.finish(done??, tally);
            }
            let left = due.saturating_sub(self.started.elapsed());
            let all_are_busy = action != Action::Create && self.idle.is_empty();
            let must_wait = under_way.len() >= MAX_IN_FLIGHT || all_are_busy;
            if left.is_zero() && (!must_wait || under_way.is_empty()) {
                return Ok(());
            }
            tokio::select! {
                Some(done) = under_way.join_next() => self.finish(done??, tally),
                () = tokio::time::sleep(left), if !left.is_zero() => {}
            }
        }
    }

    /// Chooses the object of a change: one that no request is under way for, so that changes of one
    /// object never overtake each other. There may be none.
    fn draw(&mut self, action: Action) -> Option<Made> {
        match action {
            Action::Create => Some(self.next()),
            Action::Update | Action::Delete if self.idle.is_empty() => None,
            Action::Update | Action::Delete => {
                let n = self.rng.usize(..self.idle.len());
                let mut made = self.idle.swap_remove(n);
                Some(if action == Action::Update { made.changed() } else { made })
            }
        }
    }

    fn send(&self, due: Duration, action: Action, made: Made, under_way: &mut UnderWay) {
        let (messages, started) = (self.messages.clone(), self.started);
        under_way.spawn(async move {
            let lag = started.elapsed().saturating_sub(due);
            let fact = made.carry_out(action, due).await?;
            messages.send(Message::Fact(fact)).await.context("the tracker has stopped")?;
            Ok(Done { action, object: (action != Action::Delete).then_some(made), lag })
        });
    }

    fn finish(&mut self, done: Done, tally: &mut Tally) {
        tally.add(done.action, done.lag);
        self.idle.extend(done.object);
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use apiserver::Server;
    use apiserver::faults::{Fault, Request};
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
    use kube::api::ListParams;

    /// The scenario with so many objects, and a generator over one server whose answers to changes take
    /// this long. The clock stands still while there is something to do.
    pub async fn slow(
        objects: u32,
        takes: Duration,
    ) -> (Scenario, Server, Generator, mpsc::Receiver<Message>) {
        let text = include_str!("../scenarios/basic.toml");
        let mut scenario: Scenario = toml::from_str(text).unwrap();
        (scenario.objects.count, scenario.objects.namespaces) = (objects, 1);
        let crd: CustomResourceDefinition = serde_json::from_value(json!({
            "metadata": { "name": "tdsets.schedule.rs" },
            "spec": {
                "group": "schedule.rs",
                "scope": "Namespaced",
                "names": { "kind": "TDSet", "plural": "tdsets", "singular": "tdset" },
                "versions": [{
                    "name": "v1", "served": true, "storage": true,
                    "schema": { "openAPIV3Schema": {
                        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                    } },
                }],
            },
        }))
        .unwrap();
        let server = fleet::start("cluster-001", &scenario, &[crd]).await.unwrap();
        let (messages, received) = mpsc::channel(8_192);
        let started = tokio::time::interval(Duration::from_secs(1)).tick().await;
        let clusters = [("cluster-001".to_owned(), server.client())];
        let mut generator = Generator::new(&scenario, &clusters, messages, started, 1);
        generator.populate(&scenario).await.unwrap();
        server.set_faults(Some(Arc::new(move |request: &Request| match &*request.resource {
            "tdsets" => Fault::Delay(takes),
            _ => Fault::None,
        })));
        (scenario, server, generator, received)
    }

    fn load(updates_per_second: f64, creates_per_second: f64) -> Load {
        Load {
            duration: Duration::from_secs(10),
            arrivals: crate::scenario::Arrivals::Even,
            updates_per_second,
            creates_per_second,
            deletes_per_second: 0.0,
        }
    }

    /// When the changes of the load were due, in milliseconds since it began.
    fn due(received: &mut mpsc::Receiver<Message>, began: Duration) -> Vec<u64> {
        let mut all = Vec::new();
        while let Ok(Message::Fact(Fact::Written { due, .. })) = received.try_recv() {
            all.extend(due.checked_sub(began).map(|since| since.as_millis() as u64));
        }
        all.sort_unstable();
        all
    }

    #[tokio::test(start_paused = true)]
    async fn slow_answers_do_not_slow_the_changes() {
        let (_, server, mut generator, mut received) = slow(200, Duration::from_secs(5)).await;
        let began = generator.started.elapsed() + Duration::from_secs(1);
        let changes = generator.load(&load(0.0, 20.0), began).await.unwrap();
        assert_eq!((changes.creates, changes.updates), (200, 0));
        assert!(changes.lag_max_ms < 2.0, "{changes:?}");
        let expect: Vec<u64> = (1..=200).map(|n| n * 50).collect();
        assert_eq!(due(&mut received, began), expect);
        server.shutdown().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_that_waits_for_its_object_counts_from_when_it_was_due() {
        // One object, which each change keeps busy for two seconds.
        let (_, server, mut generator, mut received) = slow(1, Duration::from_secs(2)).await;
        let began = generator.started.elapsed() + Duration::from_secs(1);
        let changes = generator.load(&load(1.0, 0.0), began).await.unwrap();
        assert_eq!((changes.updates, changes.impossible), (10, 0));
        assert_eq!(due(&mut received, began), (1..=10).map(|n| n * 1_000).collect::<Vec<u64>>());
        // The tenth was due after ten seconds and sent after nineteen.
        assert!((changes.lag_max_ms - 9_000.0).abs() < 50.0, "{changes:?}");
        server.shutdown().await;
    }

    #[tokio::test(start_paused = true)]
    async fn changes_beyond_the_bound_wait_and_the_lag_shows_it() {
        let (_, server, mut generator, mut received) = slow(1, Duration::from_secs(20)).await;
        let began = generator.started.elapsed() + Duration::from_secs(1);
        let changes = generator.load(&load(0.0, 110.0), began).await.unwrap();
        assert_eq!(changes.creates, 1_100);
        assert_eq!(due(&mut received, began).len(), 1_100);
        // The 1,025th was due after 9.3 s and sent when the first was answered.
        assert!(changes.lag_max_ms > 10_000.0, "{changes:?}");
        server.shutdown().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_load_lasts_as_long_as_it_says_whatever_is_due() {
        let (_, server, mut generator, _received) = slow(0, Duration::ZERO).await;
        let began = generator.started.elapsed() + Duration::from_secs(1);
        let changes = generator.load(&load(0.0, 0.0), began).await.unwrap();
        assert_eq!(changes.made(), 0);
        let lasted = generator.started.elapsed().checked_sub(began);
        assert!(lasted.is_some_and(|lasted| lasted >= Duration::from_secs(10)), "{lasted:?}");
        server.shutdown().await;
    }

    #[tokio::test(start_paused = true)]
    async fn changes_without_an_object_are_counted() {
        let (_, server, mut generator, _received) = slow(2, Duration::ZERO).await;
        let began = generator.started.elapsed();
        let deletes = Load { deletes_per_second: 1.0, ..load(0.0, 0.0) };
        let changes = generator.load(&deletes, began).await.unwrap();
        assert_eq!((changes.deletes, changes.impossible), (2, 8));
        server.shutdown().await;
    }

    #[tokio::test(start_paused = true)]
    async fn objects_that_always_run_a_pod_are_not_changed() {
        let (mut scenario, server, empty, _) = slow(0, Duration::ZERO).await;
        (scenario.objects.count, scenario.objects.pods) = (3, Some(2));
        let clusters = [("cluster-001".to_owned(), server.client())];
        let (messages, _received) = mpsc::channel(8);
        let mut generator = Generator::new(&scenario, &clusters, messages, empty.started, 1);
        generator.populate(&scenario).await.unwrap();
        let changed: Vec<_> = generator.idle.iter().map(|made| (&*made.name, made.pods)).collect();
        assert_eq!(changed, [("tdset-000002", Pods::Always(0))]);
        let all = tdset::all(server.client()).list(&ListParams::default()).await.unwrap();
        let pods = all
            .items
            .iter()
            .map(|made| made.data["spec"]["schedulingConfig"][0]["replica"].as_i64());
        assert_eq!(pods.collect::<Vec<_>>(), [Some(1), Some(1), Some(0)]);
        server.shutdown().await;
    }

    #[test]
    fn lag_is_that_of_the_slowest_hundredth() {
        let mut tally = Tally::new();
        for n in 0..200 {
            let ms = if n < 196 { 1 } else { 250 };
            tally.add(Action::Update, Duration::from_millis(ms));
        }
        tally.add(Action::Create, Duration::from_secs(10_000));
        let changes = tally.changes();
        assert_eq!((changes.updates, changes.creates, changes.made()), (200, 1, 201));
        assert!((changes.lag_p99_ms - 250.0).abs() < 1.0, "{}", changes.lag_p99_ms);
        assert!((changes.lag_max_ms - 600_000.0).abs() < 600.0, "{}", changes.lag_max_ms);
    }
}
