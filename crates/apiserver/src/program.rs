//! Programs: what runs in the containers of Pods, as far as whoever embeds the server says so.
//!
//! A container whose image or name matches runs its program; the stand-ins for workload controllers
//! start it, and the `portforward` subresource of Pods connects to it. Other containers run nothing:
//! they are Ready at once, and nothing listens in them.
//!
//! Owns the public face and the table of what runs ([`Processes`]). When something starts, ends and
//! is Ready, `workloads` decides.
//!
//! # Invariants
//! - A process is in the table from its start until its Pod is gone, has finished or has started it
//!   again; then it is dropped, which ends it.
//! - No foreign code runs under the lock.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::io::DuplexStream;
use tokio::sync::watch;

/// Something that can run in a container.
pub trait Program: Send + Sync + 'static {
    /// Starts it. It ends when the answer is dropped: the Pod is gone or has finished, or the
    /// container starts again.
    fn start(&self, start: &Start) -> Arc<dyn Process>;
}

/// A program that runs in one container.
pub trait Process: Send + Sync + 'static {
    /// Opens a connection to a port, as somebody in the Pod would; `None` if nothing listens there.
    fn connect(&self, port: u16) -> Option<DuplexStream>;

    /// How it is, if that changes. Without an answer it runs for ever, and is Ready at once.
    fn state(&self) -> Option<watch::Receiver<State>> {
        None
    }
}

/// What a program is told when it starts.
#[derive(Debug, Clone)]
pub struct Start {
    /// The Pod, with the address that it will have in `status.podIP`.
    pub pod: Value,
    /// Which of its containers.
    pub container: String,
    /// The uid of the claim behind each volume that has one, by the volume's name. What a program
    /// keeps under it outlives the Pod.
    pub claims: BTreeMap<String, String>,
    /// What is in the Secrets and ConfigMaps that are mounted into the container, by the path of each
    /// file, as it was when the container started.
    pub files: BTreeMap<String, Vec<u8>>,
    /// How many times the container was started before.
    pub restarts: u32,
}

/// How a process is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It runs.
    Running {
        /// Whether its container is Ready.
        ready: bool,
    },
    /// It has ended. The Pod's restart policy says what follows.
    Exited(Exit),
}

/// How a process ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Exit {
    /// The exit code; 0 is success.
    pub code: i32,
    /// What it wrote to its termination log, or nothing.
    pub message: String,
}

/// The containers that run a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Matcher {
    /// Their image begins with this text.
    Image(String),
    /// They have this name.
    Container(String),
}

/// The programs of a server. The first that matches counts.
#[derive(Clone, Default)]
pub(crate) struct Programs(Vec<(Matcher, Arc<dyn Program>)>);

/// One container as its Pod's status should show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) state: State,
    pub(crate) restarts: u32,
}

/// A process and what is known about it.
struct Started {
    process: Arc<dyn Process>,
    state: Option<watch::Receiver<State>>,
    restarts: u32,
}

/// What runs, by the uid of the Pod and the name of the container.
#[derive(Default)]
pub(crate) struct Processes {
    programs: Programs,
    table: Mutex<HashMap<String, BTreeMap<String, Started>>>,
}

// === impl Start ===

impl Start {
    /// The container's own part of the Pod's spec; null if there is none.
    pub fn spec(&self) -> &Value {
        let mut containers = self.pod["spec"]["containers"].as_array().into_iter().flatten();
        containers.find(|c| c["name"] == self.container.as_str()).unwrap_or(&Value::Null)
    }
}

// === impl Matcher ===

impl Matcher {
    /// Whether a container of a Pod's spec runs the program.
    fn matches(&self, container: &Value) -> bool {
        match self {
            Self::Image(prefix) => {
                container["image"].as_str().is_some_and(|image| image.starts_with(prefix))
            }
            Self::Container(name) => container["name"] == name.as_str(),
        }
    }
}

// === impl Programs ===

impl Programs {
    pub(crate) fn add(&mut self, matcher: Matcher, program: Arc<dyn Program>) {
        self.0.push((matcher, program));
    }

    fn of(&self, container: &Value) -> Option<&Arc<dyn Program>> {
        self.0.iter().find(|(matcher, _)| matcher.matches(container)).map(|(_, program)| program)
    }
}

// === impl Processes ===

impl Processes {
    pub(crate) fn new(programs: Programs) -> Self {
        Self { programs, ..Self::default() }
    }

    /// The names of the containers of a Pod's spec that run a program.
    pub(crate) fn expected<'a>(&self, spec: &'a Value) -> Vec<&'a str> {
        let containers = spec["containers"].as_array().into_iter().flatten();
        let ours = containers.filter(|container| self.programs.of(container).is_some());
        ours.filter_map(|container| container["name"].as_str()).collect()
    }

    /// What was started in a Pod, by container.
    pub(crate) fn runs(&self, uid: &str) -> BTreeMap<String, Run> {
        let table = self.table();
        let started = table.get(uid).into_iter().flatten();
        let run = |started: &Started| Run {
            state: started
                .state
                .as_ref()
                .map_or(State::Running { ready: true }, |state| state.borrow().clone()),
            restarts: started.restarts,
        };
        started.map(|(name, started)| (name.clone(), run(started))).collect()
    }

    /// Starts the program of a container, in place of what ran there. Answers how to follow it.
    pub(crate) fn start(&self, uid: &str, start: &Start) -> Option<watch::Receiver<State>> {
        let program = self.programs.of(start.spec())?;
        // What ran before has ended when the next one starts.
        let before = self.table().get_mut(uid).and_then(|pod| pod.remove(&start.container));
        drop(before);
        let process = program.start(start);
        let state = process.state();
        let started = Started { process, state: state.clone(), restarts: start.restarts };
        self.table().entry(uid.into()).or_default().insert(start.container.clone(), started);
        state
    }

    /// Ends whatever runs in a Pod.
    pub(crate) fn stop(&self, uid: &str) {
        let stopped = self.table().remove(uid);
        drop(stopped);
    }

    /// Ends everything.
    pub(crate) fn stop_all(&self) {
        let stopped = std::mem::take(&mut *self.table());
        drop(stopped);
    }

    /// Opens a connection to a port of a Pod, if anything listens there.
    pub(crate) fn connect(&self, uid: &str, port: u16) -> Option<DuplexStream> {
        let running: Vec<Arc<dyn Process>> = {
            let table = self.table();
            let started = table.get(uid).into_iter().flat_map(BTreeMap::values);
            started.filter(|s| s.runs()).map(|s| s.process.clone()).collect()
        };
        running.iter().find_map(|process| process.connect(port))
    }

    fn table(&self) -> MutexGuard<'_, HashMap<String, BTreeMap<String, Started>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Started {
    fn runs(&self) -> bool {
        let state = self.state.as_ref();
        state.is_none_or(|state| matches!(*state.borrow(), State::Running { .. }))
    }
}

impl std::fmt::Debug for Processes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Processes").finish_non_exhaustive()
    }
}
