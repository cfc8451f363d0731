//! The IO of garbage collection: follows every kind's metadata, carries out decisions.
//!
//! One task owns the graph. An object has at most one decision in flight; its changes come back as
//! events, from which the next decision follows.
#![expect(clippy::disallowed_methods, reason = "the shell rests between discoveries")]

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions, PropagationPolicy};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::expiry::Expiry;
use super::graph::{Decision, Graph, KindName, Node};
use super::kinds::{Kinds, KnownKind};
use crate::clock::Clock;
use crate::follow::{Bare, FollowEvent, Source, follow};

/// How many changes may wait.
const MESSAGES: usize = 1024;
/// How many changes are processed before the next decisions.
const BATCH: usize = 256;
/// The most objects with a decision in flight.
const MAX_IN_FLIGHT: usize = 32;
/// The pause before a failed decision is made again.
const RETRY: Duration = Duration::from_millis(200);
/// How long no definition must change before discovery runs again.
const DISCOVERY_DELAY: Duration = Duration::from_millis(50);
/// How often expired Events are deleted.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(60);

const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";
const NAMESPACES: &str = "namespaces";
const EVENTS: &str = "events";

/// A change of an object of one kind.
struct Message(KindName, FollowEvent<Bare>);

/// Runs garbage collection until `shutdown`.
pub fn spawn(client: Client, clock: Clock, shutdown: CancellationToken) -> JoinHandle<()> {
    tokio::spawn(async move {
        let (sender, messages) = mpsc::channel(MESSAGES);
        let mut collector = Collector::new(client, clock, sender, shutdown.clone());
        tokio::select! {
            () = collector.run(messages) => {}
            () = shutdown.cancelled() => {}
        }
        collector.work.shutdown().await;
    })
}

/// The task that owns the graph.
struct Collector {
    client: Client,
    clock: Clock,
    sender: mpsc::Sender<Message>,
    shutdown: CancellationToken,
    kinds: Arc<Kinds>,
    followers: BTreeMap<KindName, CancellationToken>,
    /// Kinds that have been listed.
    listed: HashSet<KindName>,
    graph: Graph,
    expiry: Expiry,
    /// Namespaces that are being deleted, with their uids.
    terminating: BTreeMap<String, String>,
    dirty: BTreeSet<String>,
    busy: HashSet<String>,
    work: JoinSet<Done>,
    resting: JoinSet<String>,
    /// When discovery runs again.
    discover_at: Option<tokio::time::Instant>,
}

/// The result of a decision.
struct Done {
    uid: String,
    result: kube::Result<()>,
}

/// Something to do about one object.
enum Task {
    Decided(Decision),
    Expired,
    /// An object of a namespace that is being deleted.
    Evicted,
    /// A namespace that seems empty and can be removed.
    Finalize,
}

impl Collector {
    fn new(
        client: Client,
        clock: Clock,
        sender: mpsc::Sender<Message>,
        shutdown: CancellationToken,
    ) -> Self {
        Self {
            client,
            clock,
            sender,
            shutdown,
            kinds: Arc::default(),
            followers: BTreeMap::new(),
            listed: HashSet::new(),
            graph: Graph::default(),
            expiry: Expiry::default(),
            terminating: BTreeMap::new(),
            dirty: BTreeSet::new(),
            busy: HashSet::new(),
            work: JoinSet::new(),
            resting: JoinSet::new(),
            discover_at: Some(tokio::time::Instant::now()),
        }
    }

    async fn run(&mut self, mut messages: mpsc::Receiver<Message>) {
        let mut batch = Vec::with_capacity(BATCH);
        let mut expiry = tokio::time::interval(EXPIRY_INTERVAL);
        loop {
            let discover_at = self.discover_at;
            tokio::select! {
                received = messages.recv_many(&mut batch, BATCH) => {
                    if received == 0 {
                        return;
                    }
                    batch.drain(..).for_each(|message| self.enter(message));
                }
                Some(Ok(done)) = self.work.join_next() => self.finish(done),
                Some(Ok(uid)) = self.resting.join_next() => drop(self.dirty.insert(uid)),
                () = at(discover_at), if discover_at.is_some() => self.discover().await,
                _ = expiry.tick() => self.dirty.extend(self.expiry.due((self.clock)())),
            }
            self.dispatch();
        }
    }

    async fn discover(&mut self) {
        self.discover_at = None;
        let kinds = match Kinds::discover(self.client.clone()).await {
            Ok(kinds) => kinds,
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "gc: discovery");
                self.discover_at = Some(tokio::time::Instant::now() + RETRY);
                return;
            }
        };
        let gone: Vec<_> =
            self.followers.keys().filter(|name| !kinds.0.contains_key(*name)).cloned().collect();
        for name in gone {
            if let Some(follower) = self.followers.remove(&name) {
                follower.cancel();
            }
            self.listed.remove(&name);
            self.graph.reset(&name, Vec::new(), &mut self.dirty);
        }
        for (name, kind) in &kinds.0 {
            if !self.followers.contains_key(name) {
                let stop = self.start(name, kind);
                self.followers.insert(name.clone(), stop);
            }
        }
        self.kinds = Arc::new(kinds);
    }

    fn start(&self, name: &str, kind: &KnownKind) -> CancellationToken {
        let stop = self.shutdown.child_token();
        let path = kind.api(&self.client, "").resource_url().to_owned();
        let source = Source { client: self.client.clone(), path, metadata: true };
        let name = name.to_owned();
        let wrap = move |change| Message(name.clone(), change);
        tokio::spawn(follow(source, wrap, self.sender.clone(), stop.clone()));
        stop
    }

    fn enter(&mut self, Message(kind, change): Message) {
        // A stopped follower may have left changes behind.
        if !self.followers.contains_key(&kind) {
            return;
        }
        if kind == DEFINITIONS && !matches!(change, FollowEvent::Bookmark(_)) {
            self.discover_at = Some(tokio::time::Instant::now() + DISCOVERY_DELAY);
        }
        match change {
            FollowEvent::Reset(objects, _) => {
                if kind == NAMESPACES {
                    self.terminating.clear();
                    objects.iter().for_each(|object| self.note_namespace(object, true));
                }
                for object in objects.iter().filter(|_| kind == EVENTS) {
                    let created = object.metadata.creation_timestamp.as_ref();
                    let written = created.map_or_else(&*self.clock, |t| t.0);
                    self.expiry.touch(object.uid(), written);
                }
                let node = |o: &Bare| (o.uid().to_owned(), Node::new(&kind, &o.metadata));
                let nodes = objects.iter().map(node);
                self.graph.reset(&kind, nodes.collect(), &mut self.dirty);
                self.listed.insert(kind);
            }
            FollowEvent::Applied(object) => {
                if kind == EVENTS {
                    self.expiry.touch(object.uid(), (self.clock)());
                }
                if kind == NAMESPACES {
                    self.note_namespace(&object, true);
                }
                let node = Node::new(&kind, &object.metadata);
                self.graph.apply(object.uid(), node, &mut self.dirty);
            }
            FollowEvent::Deleted(object) => {
                self.expiry.forget(object.uid());
                if kind == NAMESPACES {
                    self.note_namespace(&object, false);
                }
                self.graph.remove(object.uid(), &mut self.dirty);
                // A namespace that is being deleted is checked again when its last object is gone.
                let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
                if self.graph.in_namespace(namespace).next().is_none() {
                    self.dirty.extend(self.terminating.get(namespace).cloned());
                }
            }
            FollowEvent::Bookmark(_) => {}
        }
    }

    /// Maintains the list of namespaces that are being deleted.
    fn note_namespace(&mut self, object: &Bare, exists: bool) {
        let (name, uid) = (object.name(), object.uid());
        if exists && object.metadata.deletion_timestamp.is_some() {
            self.terminating.insert(name.to_owned(), uid.to_owned());
        } else if self.terminating.get(name).is_some_and(|known| exists || known == uid) {
            self.terminating.remove(name);
        }
    }

    fn dispatch(&mut self) {
        if self.followers.is_empty() || self.followers.keys().any(|k| !self.listed.contains(k)) {
            return;
        }
        let mut later = BTreeSet::new();
        while self.work.len() < MAX_IN_FLIGHT {
            let Some(uid) = self.dirty.pop_first() else { break };
            if self.busy.contains(&uid) {
                later.insert(uid);
                continue;
            }
            let Some(task) = self.task(&uid) else { continue };
            let Some(node) = self.graph.get(&uid).cloned() else { continue };
            self.busy.insert(uid.clone());
            let hand = Hand { client: self.client.clone(), kinds: self.kinds.clone(), node, uid };
            self.work.spawn(hand.carry_out(task));
        }
        self.dirty.append(&mut later);
    }

    fn task(&mut self, uid: &str) -> Option<Task> {
        let node = self.graph.get(uid)?;
        if node.at.kind == NAMESPACES && node.deleting {
            let inside: Vec<_> = self
                .graph
                .in_namespace(&node.at.name)
                .map(|(uid, node)| (uid.to_owned(), node.deleting))
                .collect();
            let alive = inside.iter().filter(|(_, deleting)| !deleting);
            self.dirty.extend(alive.map(|(uid, _)| uid.clone()));
            return inside.is_empty().then_some(Task::Finalize);
        }
        if let Some(decision) = self.graph.decide(uid) {
            return Some(Task::Decided(decision));
        }
        if node.deleting {
            return None;
        }
        if node.at.kind == EVENTS && self.expiry.is_due(uid, (self.clock)()) {
            return Some(Task::Expired);
        }
        self.terminating.contains_key(&node.at.namespace).then_some(Task::Evicted)
    }

    fn finish(&mut self, done: Done) {
        self.busy.remove(&done.uid);
        if let Err(error) = done.result {
            tracing::debug!(error = &error as &dyn std::error::Error, uid = done.uid, "gc: write");
            self.resting.spawn(async move {
                tokio::time::sleep(RETRY).await;
                done.uid
            });
        }
    }
}

async fn at(deadline: Option<tokio::time::Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Carries out one task.
struct Hand {
    client: Client,
    kinds: Arc<Kinds>,
    node: Node,
    uid: String,
}

impl Hand {
    async fn carry_out(self, task: Task) -> Done {
        let result = settle(self.attempt(task).await);
        Done { uid: self.uid, result }
    }

    async fn attempt(&self, task: Task) -> kube::Result<()> {
        match task {
            Task::Decided(Decision::Delete { propagation, absent }) => {
                if self.are_absent(&absent).await? {
                    self.delete(propagation).await?;
                }
                Ok(())
            }
            Task::Decided(Decision::Disown { owners, absent }) => {
                if self.are_absent(&absent).await? {
                    self.disown(&owners).await?;
                }
                Ok(())
            }
            Task::Decided(Decision::RemoveFinalizer(finalizer)) => {
                let left: Vec<_> =
                    self.node.finalizers.iter().filter(|f| *f != finalizer).collect();
                self.patch(json!({ "finalizers": left })).await
            }
            Task::Expired | Task::Evicted => self.delete(PropagationPolicy::Background).await,
            Task::Finalize => self.finalize().await,
        }
    }

    /// Whether the server has none of these owners, in the object's own namespace or in none. For an owner of an
    /// unknown kind that cannot be said, nor for one with a namespace if the object has none.
    async fn are_absent(&self, owners: &[OwnerReference]) -> kube::Result<bool> {
        for owner in owners {
            let Some(kind) = self.kinds.of_owner(&owner.api_version, &owner.kind) else {
                return Ok(false);
            };
            let namespace = &self.node.at.namespace;
            if kind.namespaced && namespace.is_empty() {
                return Ok(false);
            }
            let api = kind.api(&self.client, namespace);
            let found = api.get_metadata_opt(&owner.name).await?;
            if found.is_some_and(|found| found.uid().as_deref() == Some(&owner.uid)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn delete(&self, propagation: PropagationPolicy) -> kube::Result<()> {
        let at = &self.node.at;
        let Some(api) = self.kinds.api(&self.client, &at.kind, &at.namespace) else {
            return Ok(());
        };
        let params = DeleteParams {
            propagation_policy: Some(propagation),
            preconditions: Some(Preconditions {
                uid: Some(self.uid.clone()),
                resource_version: None,
            }),
            ..DeleteParams::default()
        };
        api.delete(&at.name, &params).await.map(drop)
    }

    async fn disown(&self, owners: &BTreeSet<String>) -> kube::Result<()> {
        let left: Vec<_> = self.node.owners.iter().filter(|o| !owners.contains(&o.uid)).collect();
        self.patch(json!({ "ownerReferences": left })).await
    }

    async fn patch(&self, mut metadata: Value) -> kube::Result<()> {
        let at = &self.node.at;
        let Some(api) = self.kinds.api(&self.client, &at.kind, &at.namespace) else {
            return Ok(());
        };
        metadata["uid"] = json!(self.uid);
        metadata["resourceVersion"] = json!(self.node.resource_version);
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        api.patch_metadata(&at.name, &PatchParams::default(), &patch).await.map(drop)
    }

    /// Removes a namespace, if the server agrees that it is empty.
    async fn finalize(&self) -> kube::Result<()> {
        let name = &self.node.at.name;
        for kind in self.kinds.0.values().filter(|kind| kind.namespaced) {
            let one = ListParams::default().limit(1);
            if !kind.api(&self.client, name).list_metadata(&one).await?.items.is_empty() {
                return Ok(());
            }
        }
        let path = format!("/api/v1/namespaces/{name}");
        let build = |method: &str, path: &str, body: Vec<u8>| {
            http::Request::builder()
                .method(method)
                .uri(path)
                .header(http::header::CONTENT_TYPE, "application/json")
                .body(body)
                .map_err(kube::Error::HttpError)
        };
        let mut namespace: Value = self.client.request(build("GET", &path, Vec::new())?).await?;
        if namespace["metadata"]["uid"] != json!(self.uid) {
            return Ok(());
        }
        namespace["spec"]["finalizers"] = json!([]);
        let body = serde_json::to_vec(&namespace).map_err(kube::Error::SerdeError)?;
        let request = build("PUT", &format!("{path}/finalize"), body)?;
        self.client.request::<Value>(request).await.map(drop)
    }
}

/// An object that is gone or has changed meanwhile no longer needs this decision: its event brings
/// the next one.
fn settle(result: kube::Result<()>) -> kube::Result<()> {
    match result {
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        other => other,
    }
}
