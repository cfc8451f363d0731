//! Whole fleets from one seed: manager replicas over embedded API servers, in one thread and in
//! virtual time.
//!
//! - [`plan`]: how large the world is and what goes wrong in it
//! - [`process`]: one replica, on its own [`machine`]
//! - [`timeline`]: its time and its clock
//! - [`link`], [`network`], [`server`]: from a process to a server and back, through [`mailbox`]
//! - [`edits`]: what users do meanwhile
//! - `stumble`: a fence at which a machine can stop between check and act
//! - [`mirror`]: the controller that replicas run beside the built-in ones
//! - [`history`]: what happened, for oracles
//! - [`planted`]: bugs, which show that the oracles can fail
//!
//! # How time passes
//! In slices of some tens of milliseconds. In each, the processes run to its end one after the
//! other, and then the servers. A request reaches its server at the time at which it is due; an
//! answer reaches its process in a later slice. So no process can notice that the others did not
//! run at the same time.
//!
//! ```text
//!   ├──── slice ────┼──── slice ────┤
//!   p0 ───▶ p1 ───▶ servers ─┐
//!                            └▶ p0 ───▶ p1 ───▶ servers
//! ```
//!
//! # What the seed decides
//! Everything: sizes, faults, slices, latencies, clocks, the random sources of members and servers.
//! Two things in tokio are random and cannot be seeded: which of several receivers of a watch
//! channel wakes first, and a `select!` that is not `biased`. `process` and `server` make sure that
//! the first does not matter; the second does not occur.

pub mod edits;
mod faults;
pub mod history;
pub mod link;
pub mod machine;
pub mod mailbox;
pub mod mirror;
pub mod network;
pub mod plan;
pub mod planted;
pub mod process;
pub mod server;
mod stumble;
pub mod timeline;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use kube::core::ApiResource;
use serde_json::Value;

use self::edits::Users;
use self::faults::ActiveFaults;
use self::history::{Event, History, Record};
use self::link::{Outbox, Outgoing};
use self::machine::Machine;
use self::network::{Network, mixed};
use self::plan::{Plan, SECOND_US};
use self::process::{Configured, Process, StartConfig};
use self::server::{Arrivals, SimServer};
use self::timeline::{Pace, Timeline};

/// The shortest and the longest slice, in milliseconds.
const SLICE_MS: Range<u64> = 10..90;
/// The same once faults have ended and the fleet has settled, and little happens.
const CALM_SLICE_MS: Range<u64> = 100..400;
/// How long after the end of the faults the fleet has settled.
const SETTLED_US: u64 = 15 * SECOND_US;
/// Clocks run at most this much faster or slower than the world, in parts per million.
const MAX_DRIFT_PPM: i64 = 20_000;
/// How often users change something while there are faults, on average.
const CHANGE_EVERY_US: u64 = SECOND_US;
/// How long before the end of the faults users make their last change.
const LAST_CHANGE_US: u64 = SECOND_US / 2;

/// How a run ended, for oracles.
#[derive(Debug)]
pub struct Outcome {
    /// What should happen.
    pub plan: Plan,
    /// What happened.
    pub records: Vec<Record>,
    /// The objects at the end, by the cluster's number and by kind.
    pub objects: BTreeMap<(usize, &'static str), Vec<Value>>,
    /// The processes that run at the end.
    pub running: Vec<history::ProcessId>,
}

impl fmt::Display for Outcome {
    /// The history. Two runs of one plan have exactly the same.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.records.iter().try_for_each(|record| writeln!(f, "{record}"))
    }
}

/// A replica, with its process if it has one.
#[derive(Debug, Default)]
struct Replica {
    process: Option<(history::ProcessId, Process)>,
    /// When the process was stopped, if it is.
    stopped_us: Option<u64>,
    /// When it runs on by itself, if it stopped between a check and an act.
    stumbled_until_us: Option<u64>,
    /// Whether a new process starts once this one has left.
    returns: bool,
}

/// A world that runs.
#[derive(Debug)]
struct World {
    plan: Plan,
    rng: fastrand::Rng,
    now_us: u64,
    history: History,
    outbox: Outbox,
    /// What has not left the machines that sleep.
    held: Vec<Outgoing>,
    network: Network,
    users: Users,
    servers: Vec<Arc<SimServer>>,
    replicas: Vec<Replica>,
    configured: Configured,
    faults: ActiveFaults,
    timeline: Arc<Timeline>,
    machine: Machine,
}

/// Runs a plan from beginning to end.
pub fn run(plan: Plan) -> Outcome {
    let mut world = World::begin(plan);
    while world.now_us < world.plan.setup.end_us {
        world.slice();
    }
    world.end()
}

impl World {
    fn begin(plan: Plan) -> Self {
        let (seed, setup) = (plan.seed, plan.setup);
        let history = History::default();
        let arrivals = Arrivals::default();
        let machine = Machine::default();
        let inside = machine.enter();
        let timeline = Timeline::begin(Pace { boot: Duration::ZERO, drift_ppm: 0 }, 0);
        let server = |number| {
            let seed = mixed(&[seed, 1, number as u64]);
            Arc::new(SimServer::new(number, seed, &timeline, &history, &arrivals))
        };
        let servers: Vec<_> = (0..setup.clusters).map(server).collect();
        drop(inside);
        let mut users = Users::new(mixed(&[seed, 2]), setup, history.clone());
        users.prepare(&machine, &servers);
        let network = Network::new(mixed(&[seed, 3]), history.clone(), arrivals, servers.clone());
        let mut world = Self {
            rng: fastrand::Rng::with_seed(mixed(&[seed, 4])),
            now_us: 0,
            history,
            outbox: Outbox::default(),
            held: Vec::new(),
            network,
            users,
            servers,
            replicas: Vec::new(),
            configured: setup.workloads().map(|number| (number, Some(1))).collect(),
            faults: ActiveFaults::of(&plan),
            timeline,
            machine,
            plan,
        };
        for _ in 0..setup.replicas {
            world.join();
        }
        world
    }

    /// Runs one slice of time.
    fn slice(&mut self) {
        let from = self.now_us;
        let settled = from > self.plan.setup.heal_us + SETTLED_US;
        let until = from + self.rng.u64(if settled { CALM_SLICE_MS } else { SLICE_MS }) * 1_000;
        self.recover();
        self.advance_faults();
        self.change();
        for replica in &self.replicas {
            if let (Some((number, process)), None) = (&replica.process, replica.stopped_us) {
                self.network.deliver(*number, from);
                process.run(from, until);
            }
        }
        self.remove_ended();
        let mut sent = self.outbox.take();
        self.stumble(until, &mut sent);
        sent.append(&mut self.held);
        sent.sort_by_key(|outgoing| outgoing.at_us);
        let (leaving, held): (Vec<_>, _) =
            sent.into_iter().partition(|outgoing| outgoing.leaves_us <= until);
        self.held = held;
        for outgoing in leaving {
            self.network.send(outgoing, self.machine.handle());
        }
        let end = self.timeline.enter(from, until);
        self.machine.run_until(end);
        self.network.collect(until);
        self.now_us = until;
    }

    fn change(&mut self) {
        let quiet = self.now_us + LAST_CHANGE_US > self.plan.setup.heal_us;
        let due = self.rng.u64(0..CHANGE_EVERY_US / 1_000) < SLICE_MS.end / 2;
        if due && !quiet {
            self.users.change(self.now_us, &self.machine, &self.servers);
        }
    }

    /// Adds a replica.
    fn join(&mut self) {
        self.replicas.push(Replica::default());
        self.start(self.replicas.len() - 1);
    }

    /// Starts a process for a replica that has none.
    fn start(&mut self, replica: usize) {
        let number = self.network.connect(replica);
        let draw = mixed(&[self.plan.seed, 5, number as u64]);
        let mut rng = fastrand::Rng::with_seed(draw);
        let drift = if self.plan.setup.drift { MAX_DRIFT_PPM } else { 0 };
        let pace = Pace {
            boot: Duration::from_secs(rng.u64(60..1_000_000)),
            drift_ppm: rng.i64(-drift..=drift),
        };
        let process = Process::start(&StartConfig {
            number,
            replica,
            at_us: self.now_us,
            pace,
            seed: rng.u64(..),
            setup: &self.plan.setup,
            configured: &self.configured,
            outbox: &self.outbox,
            history: &self.history,
            bug: self.plan.bug,
        });
        self.history.add(self.now_us, Event::Began(number, replica));
        self.replicas[replica] = Replica { process: Some((number, process)), ..Replica::default() };
    }

    /// Kills the process of a replica.
    fn kill(&mut self, replica: usize, how: &'static str) {
        if let Some((number, process)) = self.replicas[replica].process.take() {
            drop(process);
            self.network.forget(number);
            self.held.retain(|outgoing| outgoing.process != number);
            self.history.end(number, self.now_us, how);
        }
        let replica = &mut self.replicas[replica];
        (replica.stopped_us, replica.stumbled_until_us) = (None, None);
    }

    /// Removes the processes that have ended on their own.
    fn remove_ended(&mut self) {
        for number in 0..self.replicas.len() {
            let Some((_, process)) = &self.replicas[number].process else { continue };
            if process.has_panicked() {
                self.kill(number, "panicked");
            } else if process.has_left() {
                let returns = self.replicas[number].returns;
                self.kill(number, "left");
                if returns {
                    self.start(number);
                }
            }
        }
    }

    fn end(self) -> Outcome {
        let mut objects = BTreeMap::new();
        let kinds: [(&'static str, ApiResource); 6] = [
            ("lease", erased::<k8s_openapi::api::coordination::v1::Lease>()),
            ("member", erased::<sharding::api::Member>()),
            ("shardmap", erased::<sharding::api::ShardMap>()),
            ("configmap", erased::<k8s_openapi::api::core::v1::ConfigMap>()),
            ("deployment", erased::<k8s_openapi::api::apps::v1::Deployment>()),
            ("tdset", erased::<controllers::TDSet>()),
        ];
        for server in &self.servers {
            for (kind, resource) in &kinds {
                let listed = self.machine.block_on(edits::list(server, resource));
                objects.insert((server.number, *kind), listed);
            }
        }
        let running = self.replicas.iter().filter_map(|r| r.process.as_ref());
        let running = running.map(|(number, _)| *number).collect();
        Outcome { records: self.history.take(), plan: self.plan, objects, running }
    }
}

fn erased<K: kube::Resource<DynamicType = ()>>() -> ApiResource {
    ApiResource::erase::<K>(&())
}
