//! The IO of the stand-ins: follows the kinds, dispatches plans, carries out actions.
//!
//! One task owns the world. A key has at most one batch of writes in flight; when it returns, the
//! key waits until the world has seen what was written. The event of the last write makes it dirty
//! again, so nothing has to be polled.
#![expect(clippy::disallowed_methods, reason = "the shell gives plans their time")]

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Request;
use kube::{Client, Resource, ResourceExt};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::action::{Action, Kind, ObjectRef};
use super::object::Object;
use super::world::{News, World};
use crate::follow::{Source, follow, version_number};

/// Field manager of every write.
const MANAGER: &str = "embedded-workloads";
/// How many changes may wait.
const MESSAGES: usize = 1024;
/// How many changes are processed before the next plans.
const BATCH: usize = 256;
/// The most objects with writes in flight.
const MAX_IN_FLIGHT: usize = 32;
/// The most writes of one object in flight.
const MAX_WRITES: usize = 8;
/// Pause before an object whose write failed is planned again.
const RETRY: Duration = Duration::from_millis(200);

/// Runs the stand-ins until `shutdown`.
pub fn spawn(client: Client, shutdown: CancellationToken) -> JoinHandle<()> {
    tokio::spawn(run(client, shutdown))
}

async fn run(client: Client, shutdown: CancellationToken) {
    let (sender, mut messages) = mpsc::channel(MESSAGES);
    let mut followers = JoinSet::new();
    for kind in Kind::ALL {
        let path = Object::url_path(&kind, None);
        let source = Source { client: client.clone(), path, metadata: false };
        let wrap = move |change| News::Object(kind, change);
        followers.spawn(follow(source, wrap, sender.clone(), shutdown.clone()));
    }
    let path = Node::url_path(&(), None);
    let nodes = Source { client: client.clone(), path, metadata: true };
    followers.spawn(follow(nodes, News::Node, sender, shutdown.clone()));

    let mut shell = Shell::new(client);
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        tokio::select! {
            () = shutdown.cancelled() => break,
            received = messages.recv_many(&mut batch, BATCH) => {
                if received == 0 {
                    break;
                }
                for message in batch.drain(..) {
                    shell.world.enter(message, &mut shell.dirty);
                }
            }
            Some(done) = shell.writing.join_next() => shell.finish(done),
            Some(key) = shell.resting.join_next() => shell.dirty.extend(key.ok()),
        }
        shell.dispatch();
    }
    shell.writing.shutdown().await;
}

/// The task that owns the world.
struct Shell {
    client: Arc<Client>,
    world: World,
    /// Objects to plan.
    dirty: BTreeSet<ObjectRef>,
    /// Objects with writes in flight.
    busy: HashSet<ObjectRef>,
    /// The versions that the world must have seen before an object is planned again.
    floors: HashMap<ObjectRef, Vec<(Kind, u64)>>,
    writing: JoinSet<Done>,
    /// Objects that pause after a failure.
    resting: JoinSet<ObjectRef>,
}

/// A batch of writes that has returned.
struct Done {
    key: ObjectRef,
    floors: Vec<(Kind, u64)>,
    gone: Vec<(ObjectRef, String)>,
    failed: bool,
}

/// What one write did.
enum Outcome {
    Wrote(Kind, u64),
    Gone(ObjectRef, String),
}

impl Shell {
    fn new(client: Client) -> Self {
        Self {
            client: Arc::new(client),
            world: World::default(),
            dirty: BTreeSet::new(),
            busy: HashSet::new(),
            floors: HashMap::new(),
            writing: JoinSet::new(),
            resting: JoinSet::new(),
        }
    }

    fn dispatch(&mut self) {
        if !self.world.is_complete() {
            return;
        }
        let now = Timestamp::now();
        let mut later = BTreeSet::new();
        while self.writing.len() < MAX_IN_FLIGHT {
            let Some(key) = self.dirty.pop_first() else { break };
            if self.busy.contains(&key) {
                later.insert(key);
                continue;
            }
            if let Some(floors) = self.floors.get(&key) {
                if floors.iter().any(|(kind, at)| self.world.seen(*kind).unwrap_or(0) < *at) {
                    // The event that lifts the floor makes the key dirty again.
                    continue;
                }
                self.floors.remove(&key);
            }
            let actions = self.world.plan(&key, now);
            if !actions.is_empty() {
                self.busy.insert(key.clone());
                self.writing.spawn(carry_out(self.client.clone(), key, actions));
            }
        }
        self.dirty.append(&mut later);
    }

    fn finish(&mut self, done: Result<Done, tokio::task::JoinError>) {
        let Ok(done) = done else { return };
        self.busy.remove(&done.key);
        for (key, uid) in &done.gone {
            self.world.forget(key, uid);
        }
        if !done.gone.is_empty() {
            self.dirty.insert(done.key.clone());
        }
        if !done.floors.is_empty() {
            // An event may have come before the answer.
            self.dirty.insert(done.key.clone());
            self.floors.insert(done.key.clone(), done.floors);
        }
        if done.failed {
            self.resting.spawn(async move {
                tokio::time::sleep(RETRY).await;
                done.key
            });
        }
    }
}

async fn carry_out(client: Arc<Client>, key: ObjectRef, actions: Vec<Action>) -> Done {
    let mut done = Done { key, floors: Vec::new(), gone: Vec::new(), failed: false };
    let mut writes = futures::stream::iter(actions)
        .map(|action| write(&client, action))
        .buffer_unordered(MAX_WRITES);
    while let Some(result) = writes.next().await {
        match result {
            Ok(Outcome::Wrote(kind, version)) => done.floors.push((kind, version)),
            Ok(Outcome::Gone(key, uid)) => done.gone.push((key, uid)),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::debug!(error, key = ?done.key, "workloads: write");
                done.failed = true;
            }
        }
    }
    done
}

async fn write(client: &Client, action: Action) -> kube::Result<Outcome> {
    let params = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
    let (kind, request) = match action {
        Action::Create { kind, namespace, body } => {
            let params =
                PostParams { field_manager: Some(MANAGER.into()), ..PostParams::default() };
            let body = serde_json::to_vec(&body).map_err(kube::Error::SerdeError)?;
            (kind, requests(kind, &namespace).create(&params, body))
        }
        Action::Patch { key, body } => {
            let request = requests(key.kind, &key.namespace);
            (key.kind, request.patch(&key.name, &params, &Patch::Merge(body)))
        }
        Action::PatchStatus { key, body } => {
            let (request, patch) = (requests(key.kind, &key.namespace), Patch::Merge(body));
            (key.kind, request.patch_subresource("status", &key.name, &params, &patch))
        }
        Action::Delete { key, uid } => return delete(client, key, uid).await,
    };
    let written: Object = client.request(request.map_err(kube::Error::BuildRequest)?).await?;
    Ok(Outcome::Wrote(kind, version_number(written.resource_version().as_deref())))
}

async fn delete(client: &Client, key: ObjectRef, uid: String) -> kube::Result<Outcome> {
    let preconditions = Preconditions { uid: Some(uid.clone()), resource_version: None };
    let params = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(preconditions),
        ..DeleteParams::background()
    };
    let request = requests(key.kind, &key.namespace).delete(&key.name, &params);
    match client.request_text(request.map_err(kube::Error::BuildRequest)?).await {
        Ok(_) => Ok(Outcome::Gone(key, uid)),
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
            Ok(Outcome::Gone(key, uid))
        }
        Err(error) => Err(error),
    }
}

fn requests(kind: Kind, namespace: &str) -> Request {
    Request::new(Object::url_path(&kind, Some(namespace)))
}
