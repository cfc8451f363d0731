//! The members, the network between them and home, and an engine that drains what it must.
#![expect(clippy::disallowed_methods, reason = "it measures how long steps and plans take")]

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_sharding::Config;
use leasehold_sharding::api::DownCluster;
use leasehold_sharding::handover::Entry;
use leasehold_sharding::identity::Identities;
use leasehold_sharding::node::{Input, MadePlan, Node};
use leasehold_sharding::record::{Kind, Object, Target, Write, WriteOutcome};
use leasehold_sharding::world::LeasesSeen;
use model::{
    ClusterName, Epoch, GroupName, Hold, Identity, MemberId, Moment, OwnedShards, ShardId, Work,
};

use crate::home::Home;

/// How long a message takes, one way.
const LATENCY_US: u64 = 2_000;
/// How long home needs for a write: it takes them one after the other.
const WRITE_US: u64 = 500;
/// How often a member takes in what its watches have.
const BATCH_US: u64 = 5_000;
/// How long a drain takes.
const DRAIN_US: u64 = 100_000;
/// How often the engine reports how much work it has done.
const MEASURE_US: u64 = 5_000_000;

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Step,
    Watch,
    Measure,
    Drained(ShardId, Epoch),
    Arrive(u64),
    Answer(u64),
    Planned(u64),
}

/// A fleet.
pub struct Fleet {
    pub home: Home,
    pub coordinator: Thinking,
    now_us: u64,
    /// Until when home is busy with writes.
    busy_until: u64,
    sequence: u64,
    agenda: BinaryHeap<Reverse<(u64, u64, usize, Happening)>>,
    requests: HashMap<u64, Write>,
    answers: HashMap<u64, (Target, WriteOutcome)>,
    plans: HashMap<u64, (MadePlan, Duration)>,
    members: Vec<Member>,
    clusters: BTreeSet<ClusterName>,
    /// Those for which nobody has a client.
    dead: Vec<DownCluster>,
    identities: Identities,
    groups: BTreeSet<GroupName>,
}

/// The time that coordinators took.
#[derive(Clone, Copy, Default)]
pub struct Thinking {
    /// For steps, on the loop that renews the Lease.
    pub steps: Duration,
    pub longest_step: Duration,
    /// For plans, beside it.
    pub plans: Duration,
    pub longest_plan: Duration,
}

struct Member {
    node: Node,
    gone: bool,
    /// How far it has read the log.
    read: usize,
    watch_due: bool,
    /// Which Leases it watches, and whether a list of them is due.
    leases: LeasesSeen,
    lists_leases: bool,
    step_at: u64,
    owned: Arc<OwnedShards>,
    draining: HashSet<(ShardId, Epoch)>,
}

fn down(cluster: ClusterName) -> DownCluster {
    DownCluster { cluster, reason: "its certificate has run out".to_owned() }
}

impl Fleet {
    /// A fleet without members. So many of the clusters are down.
    pub fn new(clusters: usize, groups: usize, dead: usize) -> Self {
        let named = (0..clusters).map(|n| {
            let name: ClusterName = format!("cluster-{n:05}").parse().expect("a name");
            let uid = format!("11111111-1111-4111-8111-{n:012}").parse().expect("a uid");
            let origin = Arc::from("kubeconfig");
            (name, Arc::new(Identity { uid, origin, place: n }))
        });
        let identities: Identities = named.collect();
        Self {
            home: Home::default(),
            coordinator: Thinking::default(),
            now_us: 0,
            busy_until: 0,
            sequence: 0,
            agenda: BinaryHeap::new(),
            requests: HashMap::new(),
            answers: HashMap::new(),
            plans: HashMap::new(),
            members: Vec::new(),
            clusters: identities.keys().cloned().collect(),
            dead: identities.keys().take(dead).cloned().map(down).collect(),
            identities,
            groups: (0..groups).map(|n| format!("group-{n:02}").parse().expect("a name")).collect(),
        }
    }

    /// Starts a member.
    pub fn start(&mut self) -> usize {
        let number = self.members.len();
        let identity = format!("leasehold-6f7d9c5b4-{number:05}");
        let config = Config::new(&identity, self.groups.clone(), number as u64);
        let now = self.now();
        let mut node = Node::new(config, now);
        node.handle(Input::Clusters(self.clusters.clone(), self.dead.clone()), now);
        node.handle(Input::Identified(self.identities.clone()), now);
        let owned = node.published().owned;
        self.members.push(Member {
            node,
            gone: false,
            read: usize::MAX,
            watch_due: true,
            leases: LeasesSeen::All,
            lists_leases: false,
            step_at: u64::MAX,
            owned,
            draining: HashSet::new(),
        });
        self.schedule(LATENCY_US * 2, number, Happening::Watch);
        self.schedule(MEASURE_US, number, Happening::Measure);
        self.step_soon(number);
        number
    }

    /// A member ends at once, and nobody says so.
    pub fn crash(&mut self, member: usize) {
        self.members[member].gone = true;
    }

    /// A member leaves.
    pub fn leave(&mut self, member: usize) {
        let now = self.now();
        self.members[member].node.handle(Input::Leave, now);
        self.step_soon(member);
    }

    /// Whether a member has left, and how.
    pub fn departure(&self, member: usize) -> Option<leasehold_sharding::Departure> {
        self.members[member].node.departed()
    }

    /// The members that run.
    pub fn running(&self) -> impl Iterator<Item = usize> {
        (0..self.members.len()).filter(|&member| !self.members[member].gone)
    }

    /// The coordinator.
    pub fn coordinating(&self) -> Option<usize> {
        let now = self.now();
        self.running().find(|&member| self.members[member].node.is_coordinator(now))
    }

    /// The time that passed, in seconds.
    pub fn seconds(&self) -> f64 {
        Duration::from_micros(self.now_us).as_secs_f64()
    }

    /// How many shards nobody serves: without an owner, draining, or owned by a member that does not run.
    pub fn unserved(&self) -> usize {
        let running: HashSet<&MemberId> =
            self.running().map(|member| self.members[member].node.id()).collect();
        let maps = self.home.objects().filter_map(|object| match object {
            Object::Map(map) => Some(map),
            _ => None,
        });
        let mut served = 0;
        for map in maps {
            let is_served = |entry: &&Entry| matches!(entry, Entry::Owned { owner, .. } if running.contains(owner));
            served += map.entries.values().filter(is_served).count();
        }
        (self.clusters.len() * self.groups.len()).saturating_sub(served)
    }

    /// Lets time pass.
    pub fn run_for(&mut self, duration: Duration) {
        let end = self.now_us + duration.as_micros() as u64;
        while let Some(Reverse((at, ..))) = self.agenda.peek()
            && *at <= end
        {
            let Some(Reverse((at, _, member, happening))) = self.agenda.pop() else { break };
            self.now_us = at.max(self.now_us);
            self.happen(member, happening);
        }
        self.now_us = end;
    }

    fn now(&self) -> Moment {
        Moment::from_origin(Duration::from_micros(self.now_us + 1_000_000))
    }

    fn schedule(&mut self, after_us: u64, member: usize, happening: Happening) {
        self.sequence += 1;
        self.agenda.push(Reverse((self.now_us + after_us, self.sequence, member, happening)));
    }

    /// Steps once, whatever happens at this moment.
    fn step_soon(&mut self, member: usize) {
        if self.members[member].step_at > self.now_us {
            self.members[member].step_at = self.now_us;
            self.schedule(0, member, Happening::Step);
        }
    }

    fn happen(&mut self, member: usize, happening: Happening) {
        if let Happening::Arrive(request) = happening {
            // What was sent arrives, whatever became of the sender.
            return self.arrive(member, request);
        }
        if self.members[member].gone {
            return;
        }
        let now = self.now();
        match happening {
            Happening::Step => return self.step(member),
            Happening::Watch => self.read(member),
            Happening::Measure => {
                let work = self.work(member);
                self.members[member].node.handle(Input::Measured(work), now);
                self.schedule(MEASURE_US, member, Happening::Measure);
            }
            Happening::Drained(shard, epoch) => {
                self.members[member].draining.remove(&(shard.clone(), epoch));
                self.members[member].node.handle(Input::Acknowledged(shard, epoch), now);
            }
            Happening::Answer(request) => {
                if let Some((target, outcome)) = self.answers.remove(&request) {
                    self.members[member].node.handle(Input::Completed(target, outcome), now);
                }
            }
            Happening::Planned(plan) => {
                if let Some((made, took)) = self.plans.remove(&plan) {
                    self.members[member].node.handle(Input::Planned(Box::new(made), took), now);
                }
            }
            Happening::Arrive(_) => {}
        }
        self.step_soon(member);
    }

    fn step(&mut self, number: usize) {
        let now = self.now();
        let member = &mut self.members[number];
        // Only the step that is due counts: what is left of those before it would go on for ever.
        if member.step_at != self.now_us {
            return;
        }
        member.step_at = u64::MAX;
        member.node.handle(Input::Wall(self.now_us / 1_000_000), now);
        let begun = Instant::now();
        let output = member.node.turn(now);
        let took = begun.elapsed();
        if member.node.is_coordinator(now) {
            self.coordinator.steps += took;
            self.coordinator.longest_step = self.coordinator.longest_step.max(took);
        }
        if let Some(task) = output.plan {
            let begun = Instant::now();
            let made = task.run();
            let took = begun.elapsed();
            self.coordinator.plans += took;
            self.coordinator.longest_plan = self.coordinator.longest_plan.max(took);
            self.sequence += 1;
            self.plans.insert(self.sequence, (made, took));
            self.schedule(took.as_micros() as u64, number, Happening::Planned(self.sequence));
        }
        let member = &mut self.members[number];
        if output.reread {
            member.read = usize::MAX;
            self.schedule(LATENCY_US * 2, number, Happening::Watch);
        }
        let member = &mut self.members[number];
        if member.leases != output.leases {
            (member.leases, member.lists_leases) = (output.leases, true);
            self.schedule(LATENCY_US * 2, number, Happening::Watch);
        }
        for write in output.writes {
            self.sequence += 1;
            let request = self.sequence;
            self.requests.insert(request, write);
            self.busy_until = self.busy_until.max(self.now_us + LATENCY_US) + WRITE_US;
            self.schedule(self.busy_until - self.now_us, number, Happening::Arrive(request));
        }
        self.run_engine(number);
        let member = &mut self.members[number];
        member.gone |= member.node.departed().is_some();
        let wake = output.wake.since(now).as_micros() as u64;
        let at = self.now_us + wake.max(1_000);
        if at < member.step_at {
            member.step_at = at;
            self.schedule(wake.max(1_000), number, Happening::Step);
        }
    }

    fn arrive(&mut self, member: usize, request: u64) {
        let Some(write) = self.requests.remove(&request) else { return };
        let target = write.target();
        let before = self.home.end();
        let outcome = self.home.write(write);
        self.answers.insert(request, (target, outcome));
        self.schedule(LATENCY_US, member, Happening::Answer(request));
        if self.home.end() > before {
            for watcher in 0..self.members.len() {
                if !self.members[watcher].gone && !self.members[watcher].watch_due {
                    self.members[watcher].watch_due = true;
                    self.schedule(LATENCY_US + BATCH_US, watcher, Happening::Watch);
                }
            }
        }
    }

    /// A member takes in what its watches show, from a list on if it has none.
    fn read(&mut self, number: usize) {
        let now = self.now();
        let Self { home, members, .. } = self;
        let member = &mut members[number];
        member.watch_due = false;
        if member.read == usize::MAX {
            member.read = home.end();
            for kind in [Kind::Lease, Kind::Member, Kind::Map] {
                let list = home.list(kind, |target| member.leases.shows(target));
                member.node.handle(Input::Observed(list), now);
            }
            return;
        }
        if member.lists_leases {
            member.lists_leases = false;
            let list = home.list(Kind::Lease, |target| member.leases.shows(target));
            member.node.handle(Input::Observed(list), now);
        }
        while member.read < home.end() {
            let event = home.event(member.read);
            member.read += 1;
            if !member.leases.shows(&event.target) {
                continue;
            }
            home.costs.events += 1;
            home.costs.event_bytes += event.bytes as u64;
            member.node.handle(Input::Observed(event.observation.clone()), now);
        }
    }

    /// What its engine did so far: a steady load, different for each shard.
    fn work(&self, member: usize) -> BTreeMap<ShardId, Work> {
        let owned = self.members[member].node.published().owned;
        let of = |shard: &ShardId| {
            let hash = model::uid_hash(&shard.to_string());
            let rate = 2 + hash % 40;
            Work { busy: Duration::from_micros(self.now_us / 1_000 * rate), ..Work::default() }
        };
        owned.holdings.keys().map(|shard| (shard.clone(), of(shard))).collect()
    }

    fn run_engine(&mut self, number: usize) {
        let owned = self.members[number].node.published().owned;
        if Arc::ptr_eq(&owned, &self.members[number].owned) {
            return;
        }
        let draining = |(shard, held): (&ShardId, &model::Holding)| {
            matches!(held.hold, Hold::Draining { .. }).then(|| (shard.clone(), held.epoch))
        };
        for drain in owned.holdings.iter().filter_map(draining) {
            if self.members[number].draining.insert(drain.clone()) {
                self.schedule(DRAIN_US, number, Happening::Drained(drain.0, drain.1));
            }
        }
        self.members[number].owned = owned;
    }
}
