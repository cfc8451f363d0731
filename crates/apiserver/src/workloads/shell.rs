//! The IO of the stand-ins: follows the kinds, dispatches plans, carries out actions.
//!
//! One task owns the world. A key has at most one batch of writes in flight; when it returns, the
//! key waits until the world has seen what was written. The event of the last write makes it dirty
//! again, so nothing has to be polled.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Request;
use kube::{Client, Resource};
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::action::{Action, Kind, ObjectRef};
use super::mounts;
use super::object::Object;
use super::world::{News, World};
use crate::clock::Clock;
use crate::follow::{Source, Versioned, follow};
use crate::program::{Processes, Start, State};

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
/// Pause before a program that has ended starts again; doubles up to [`MAX_RESTART`].
const MIN_RESTART: Duration = Duration::from_millis(100);
/// The longest such pause.
const MAX_RESTART: Duration = Duration::from_secs(2);

/// Runs the stand-ins until `shutdown`.
pub(crate) fn spawn(
    client: Client,
    clock: Clock,
    processes: Arc<Processes>,
    shutdown: CancellationToken,
) -> JoinHandle<()> {
    tokio::spawn(run(client, clock, processes, shutdown))
}

async fn run(client: Client, clock: Clock, processes: Arc<Processes>, shutdown: CancellationToken) {
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

    let mut shell = Shell::new(client, clock, processes);
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
            Some(changed) = shell.followed.join_next() => {
                if let Ok((key, state)) = changed {
                    shell.dirty.insert(key.clone());
                    shell.follow(key, state);
                }
            }
        }
        shell.dispatch();
    }
    shell.writing.shutdown().await;
    shell.processes.stop_all();
}

/// The task that owns the world.
struct Shell {
    client: Arc<Client>,
    clock: Clock,
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
    processes: Arc<Processes>,
    /// The Pods in which something was started.
    started: HashMap<ObjectRef, Inhabited>,
    /// What was started, until it says something new.
    followed: JoinSet<(ObjectRef, Option<Follow>)>,
}

/// A Pod in which something was started.
struct Inhabited {
    uid: String,
    /// Cancelled when nobody listens any more to what was started.
    ended: CancellationToken,
}

/// How to follow a process.
type Follow = watch::Receiver<State>;

/// A batch of writes that has returned.
struct Done {
    key: ObjectRef,
    floors: Vec<(Kind, u64)>,
    gone: Vec<(ObjectRef, String)>,
    started: Vec<Option<Follow>>,
    failed: bool,
}

/// What one write did.
enum Outcome {
    Wrote(Kind, u64),
    Gone(ObjectRef, String),
    Started(Option<Follow>),
}

impl Shell {
    fn new(client: Client, clock: Clock, processes: Arc<Processes>) -> Self {
        Self {
            client: Arc::new(client),
            clock,
            world: World::default(),
            dirty: BTreeSet::new(),
            busy: HashSet::new(),
            floors: HashMap::new(),
            writing: JoinSet::new(),
            resting: JoinSet::new(),
            processes,
            started: HashMap::new(),
            followed: JoinSet::new(),
        }
    }

    fn dispatch(&mut self) {
        if !self.world.is_complete() {
            return;
        }
        let now = (self.clock)();
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
            self.stop_gone(&key);
            let actions = self.world.plan(&key, &self.processes, now);
            for action in &actions {
                if let Action::Start { key, uid, .. } = action {
                    let inhabited =
                        || Inhabited { uid: uid.clone(), ended: CancellationToken::new() };
                    self.started.entry(key.clone()).or_insert_with(inhabited);
                }
            }
            if !actions.is_empty() {
                self.busy.insert(key.clone());
                let (client, processes) = (self.client.clone(), self.processes.clone());
                self.writing.spawn(carry_out(client, processes, key, actions));
            }
        }
        self.dirty.append(&mut later);
    }

    /// Ends what was started in a Pod that is gone or has finished.
    fn stop_gone(&mut self, key: &ObjectRef) {
        let live = self.world.live_pod(key);
        if let Some(pod) = self.started.get(key).filter(|pod| live.as_ref() != Some(&pod.uid)) {
            self.processes.stop(&pod.uid);
            pod.ended.cancel();
            self.started.remove(key);
        }
    }

    /// Waits for what a process says next.
    fn follow(&mut self, key: ObjectRef, state: Option<Follow>) {
        let Some((mut state, pod)) = state.zip(self.started.get(&key)) else { return };
        let ended = pod.ended.clone();
        self.followed.spawn(async move {
            let changed = ended.run_until_cancelled_owned(state.changed()).await;
            let alive =
                matches!(changed, Some(Ok(()))) && matches!(*state.borrow(), State::Running { .. });
            (key, alive.then_some(state))
        });
    }

    fn finish(&mut self, done: Result<Done, tokio::task::JoinError>) {
        let Ok(done) = done else { return };
        self.busy.remove(&done.key);
        for (key, uid) in &done.gone {
            self.world.forget(key, uid);
        }
        if !done.gone.is_empty() || !done.started.is_empty() {
            self.dirty.insert(done.key.clone());
        }
        for state in done.started {
            self.follow(done.key.clone(), state);
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

async fn carry_out(
    client: Arc<Client>,
    processes: Arc<Processes>,
    key: ObjectRef,
    actions: Vec<Action>,
) -> Done {
    let mut done =
        Done { key, floors: Vec::new(), gone: Vec::new(), started: Vec::new(), failed: false };
    let mut writes = futures::stream::iter(actions)
        .map(|action| act(&client, &processes, action))
        .buffer_unordered(MAX_WRITES);
    while let Some(result) = writes.next().await {
        match result {
            Ok(Outcome::Wrote(kind, version)) => done.floors.push((kind, version)),
            Ok(Outcome::Gone(key, uid)) => done.gone.push((key, uid)),
            Ok(Outcome::Started(state)) => done.started.push(state),
            Err(error) => {
                let error = &error as &dyn std::error::Error;
                tracing::debug!(error, key = ?done.key, "workloads: write");
                done.failed = true;
            }
        }
    }
    done
}

/// Starts a program; at once, unless it has run before.
async fn begin(
    client: &Client,
    processes: &Processes,
    (namespace, uid): (&str, &str),
    mut start: Box<Start>,
) -> kube::Result<Outcome> {
    if let Some(before) = start.restarts.checked_sub(1) {
        let pause = MIN_RESTART * 2u32.saturating_pow(before.min(8));
        tokio::time::sleep(pause.min(MAX_RESTART)).await;
    }
    start.files = mounts::files(client, namespace, &start).await?;
    Ok(Outcome::Started(processes.start(uid, &start)))
}

async fn act(client: &Client, processes: &Processes, action: Action) -> kube::Result<Outcome> {
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
        Action::Start { key, uid, start } => {
            return begin(client, processes, (&key.namespace, &uid), start).await;
        }
    };
    let written: Versioned = client.request(request.map_err(kube::Error::BuildRequest)?).await?;
    Ok(Outcome::Wrote(kind, written.number()))
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
    let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
    Request::new(Object::url_path(&kind, namespace))
}
