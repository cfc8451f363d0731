//! Whole fleets under one seed: manager replicas over embedded API servers, in one thread and in
//! virtual time.
//!
//! - [`plan`]: how large the world is and what goes wrong in it
//! - [`process`]: one replica, on a [`machine`] of its own
//! - [`timeline`]: its time and its clock
//! - [`link`], [`network`], [`site`]: from a process to a server and back, by [`mailbox`]
//! - [`edits`]: what users do meanwhile
//! - [`mirror`]: the controller that replicas run beside the built-in ones
//! - [`history`]: what happened, for oracles
//! - [`planted`]: bugs, which show that the oracles can fail
//!
//! # How time passes
//! In slices of some tens of milliseconds. In each, first the processes run to its end, one after
//! the other, then the servers. Requests reach a server at the moment they were sent for; answers
//! reach a process in a later slice. So no process can notice that it did not run at the same time
//! as the others.
//!
//! ```text
//!   ├──── slice ────┼──── slice ────┤
//!   p0 ───▶ p1 ───▶ servers ─┐
//!                            └▶ p0 ───▶ p1 ───▶ servers
//! ```
//!
//! # What the seed decides
//! Everything: sizes, faults, slices, latencies, clocks, the random sources of members and servers.
//! Two things of tokio are random and cannot be seeded: who is woken first among several receivers
//! of one watch channel, and a `select!` that is not `biased`. The first is kept from mattering
//! (`process`, `site`), the second does not occur.

pub mod edits;
pub mod history;
pub mod link;
pub mod machine;
pub mod mailbox;
pub mod mirror;
pub mod network;
pub mod plan;
pub mod planted;
pub mod process;
pub mod site;
pub mod timeline;
mod troubles;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use kube::core::ApiResource;
use serde_json::Value;

use self::edits::Users;
use self::history::{Event, History, Record};
use self::link::Post;
use self::machine::Machine;
use self::network::{Network, mixed};
use self::plan::{Plan, SECOND_US};
use self::process::{Birth, Configured, Process};
use self::site::{Arrivals, Site};
use self::timeline::{Pace, Timeline};
use self::troubles::Troubles;

/// The shortest and the longest slice, in milliseconds.
const SLICE_MS: Range<u64> = 10..90;
/// The same once faults have ended and all has settled: little happens, and nothing is in doubt.
const CALM_SLICE_MS: Range<u64> = 100..400;
/// How long after the faults' end that is.
const SETTLED_US: u64 = 15 * SECOND_US;
/// Clocks run at most this much faster or slower than the world, in parts per million.
const MAX_DRIFT_PPM: i64 = 20_000;
/// How often users change something while the world is in trouble, on average.
const CHANGE_EVERY_US: u64 = SECOND_US;
/// Users leave things alone for this long before faults end, and after.
const LAST_CHANGE_US: u64 = SECOND_US / 2;

/// How a run ended, for oracles.
#[derive(Debug)]
pub struct Outcome {
    /// What was to happen.
    pub plan: Plan,
    /// What happened.
    pub records: Vec<Record>,
    /// What is in the clusters at the end: cluster by number, kind, objects.
    pub objects: BTreeMap<(usize, &'static str), Vec<Value>>,
    /// The processes that run at the end.
    pub running: Vec<history::Process>,
}

impl fmt::Display for Outcome {
    /// The history, which two runs of one plan share to the byte.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.records.iter().try_for_each(|record| writeln!(f, "{record}"))
    }
}

/// A replica: the process it has, if it has one.
#[derive(Debug, Default)]
struct Replica {
    process: Option<(history::Process, Process)>,
    /// Since when the process stands still.
    stopped_us: Option<u64>,
    /// Whether it is started anew once its process has left.
    returns: bool,
}

/// A world in progress.
#[derive(Debug)]
struct World {
    plan: Plan,
    rng: fastrand::Rng,
    now_us: u64,
    history: History,
    post: Post,
    network: Network,
    users: Users,
    sites: Vec<Arc<Site>>,
    replicas: Vec<Replica>,
    configured: Configured,
    troubles: Troubles,
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
        let site = |number| {
            let seed = mixed(&[seed, 1, number as u64]);
            Arc::new(Site::new(number, seed, &timeline, &history, &arrivals))
        };
        let sites: Vec<_> = (0..setup.clusters).map(site).collect();
        drop(inside);
        let mut users = Users::new(mixed(&[seed, 2]), setup, history.clone());
        users.prepare(&machine, &sites);
        let network = Network::new(mixed(&[seed, 3]), history.clone(), arrivals, sites.clone());
        let mut world = Self {
            rng: fastrand::Rng::with_seed(mixed(&[seed, 4])),
            now_us: 0,
            history,
            post: Post::default(),
            network,
            users,
            sites,
            replicas: Vec::new(),
            configured: setup.workloads().map(|number| (number, Some(1))).collect(),
            troubles: Troubles::of(&plan),
            timeline,
            machine,
            plan,
        };
        for _ in 0..setup.replicas {
            world.join();
        }
        world
    }

    /// Lets a little time pass.
    fn slice(&mut self) {
        let from = self.now_us;
        let settled = from > self.plan.setup.heal_us + SETTLED_US;
        let until = from + self.rng.u64(if settled { CALM_SLICE_MS } else { SLICE_MS }) * 1_000;
        self.trouble();
        self.change();
        for replica in &self.replicas {
            if let (Some((number, process)), None) = (&replica.process, replica.stopped_us) {
                self.network.deliver(*number, from);
                process.run(from, until);
            }
        }
        self.bury();
        let mut sent = self.post.take();
        sent.sort_by_key(|outgoing| outgoing.at_us);
        for outgoing in sent {
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
            self.users.change(self.now_us, &self.machine, &self.sites);
        }
    }

    /// Adds a replica.
    fn join(&mut self) {
        self.replicas.push(Replica::default());
        self.start(self.replicas.len() - 1);
    }

    /// Starts a process of a replica that has none.
    fn start(&mut self, replica: usize) {
        let number = self.network.connect(replica);
        let draw = mixed(&[self.plan.seed, 5, number as u64]);
        let mut rng = fastrand::Rng::with_seed(draw);
        let drift = if self.plan.setup.drift { MAX_DRIFT_PPM } else { 0 };
        let pace = Pace {
            boot: Duration::from_secs(rng.u64(60..1_000_000)),
            drift_ppm: rng.i64(-drift..=drift),
        };
        let process = Process::start(&Birth {
            number,
            replica,
            at_us: self.now_us,
            pace,
            seed: rng.u64(..),
            setup: &self.plan.setup,
            configured: &self.configured,
            post: &self.post,
            history: &self.history,
            bug: self.plan.bug,
        });
        self.history.add(self.now_us, Event::Born(number, replica));
        self.replicas[replica] = Replica { process: Some((number, process)), ..Replica::default() };
    }

    /// Kills the process of a replica.
    fn kill(&mut self, replica: usize, how: &'static str) {
        if let Some((number, process)) = self.replicas[replica].process.take() {
            drop(process);
            self.network.forget(number);
            self.history.add(self.now_us, Event::Gone(number, how));
        }
        self.replicas[replica].stopped_us = None;
    }

    /// Takes away the processes that have ended by themselves.
    fn bury(&mut self) {
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
        for site in &self.sites {
            for (kind, resource) in &kinds {
                let listed = self.machine.block_on(edits::list(site, resource));
                objects.insert((site.number, *kind), listed);
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
