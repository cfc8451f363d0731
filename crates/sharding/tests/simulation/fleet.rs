//! The members, their clocks, the network between them and the store, and an engine that keeps
//! every shard busy.

mod clock;
mod faults;
mod hands;
mod home;
mod kubelet;
mod names;
mod plans;
mod policy;
mod reach;
mod sight;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::time::Duration;

use leasehold_sharding::ProtocolVersions;
use leasehold_sharding::api::MemberContainer;
use leasehold_sharding::death::Ended;
use leasehold_sharding::identity::Identities;
use leasehold_sharding::node::{Input, Node, PlanTask, Published};
use leasehold_sharding::policy::PolicyRecord;
use leasehold_sharding::policy_list::PolicyList;
use leasehold_sharding::record::{Kind, Target, Write, WriteOutcome};
use leasehold_sharding::world::LeasesSeen;
use leasehold_sharding::{Config, DEFAULT_INSTALLATION, LeaseTimings};
use model::{ClusterName, Epoch, Hold, MemberId, Purpose, ShardId, Work};

use self::clock::{DriftingClock, Heat};
pub use self::faults::Fault;
pub use self::hands::Edit;
use self::reach::Reached;
pub use self::reach::{Bug, clusters};
use crate::oracle::Oracle;
use crate::server::Server;

/// The longest a reconcile takes.
pub const LONGEST_RECONCILE_MS: u64 = 3_000;
/// How long a member waits for the answer to a write.
const WRITE_TIMEOUT_US: u64 = 1_400_000;
const MS: u64 = 1_000;
/// How often the engine reports how much work it has done.
const MEASURE_INTERVAL_US: u64 = 5_000_000;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    Step,
    Watch { upto: usize },
    Measure,
    Ended(Ended),
    Policies,
    Leases,
    Planned,
    Answer { request: u64 },
    Finish { shard: ShardId, run: u64 },
}

/// How the network behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// Answers within milliseconds.
    Calm,
    /// One message in a hundred takes up to a second, one in two hundred is lost.
    Rough,
}

/// A fleet under one seed.
pub struct Fleet {
    pub server: Server,
    pub oracle: Oracle,
    /// The versions of the protocol that the next replica speaks.
    pub speaks: ProtocolVersions,
    /// The timings of the next replica.
    pub lease: LeaseTimings,
    /// The installation of the next replica.
    pub installation: &'static str,
    /// Whether replicas notice that a cluster fails of which they hold no shard.
    pub probes: bool,
    pub bug: Bug,
    network: Network,
    rng: fastrand::Rng,
    /// For how long plans take.
    pace: fastrand::Rng,
    now_us: u64,
    sequence: u64,
    agenda: BinaryHeap<Reverse<(u64, u64, usize, Happening)>>,
    arrivals: BTreeMap<(u64, u64), (usize, u64, Write)>,
    replicas: Vec<Replica>,
    clusters: BTreeSet<ClusterName>,
    /// Which clusters these are, for the next replica.
    identities: Identities,
    heat: BTreeMap<ClusterName, Heat>,
    /// What people want.
    policies: Vec<PolicyRecord>,
    /// Until when home refuses to list that.
    policies_refused_until: u64,
    /// Until when home answers nobody.
    home_away_until: u64,
}

struct Replica {
    node: Node,
    clock: DriftingClock,
    speaks: ProtocolVersions,
    reached: Reached,
    container: MemberContainer,
    gone: bool,
    paused_until: u64,
    cut_off_until: u64,
    frozen_until: u64,
    watched: usize,
    requests: BTreeMap<u64, (Target, WriteOutcome)>,
    running: BTreeMap<ShardId, Run>,
    /// Which Leases its watch shows.
    leases: LeasesSeen,
    /// What its watch of policies knows.
    policies: PolicyList,
    /// The plans that are being made.
    plans: VecDeque<(u64, PlanTask)>,
    /// What its engine knew last.
    held: Option<Published>,
    planned_step: u64,
}

/// A reconcile under way.
struct Run {
    number: u64,
    member: MemberId,
    epoch: Epoch,
}

impl Fleet {
    /// A store and that many clusters, without members.
    pub fn new(seed: u64, clusters: usize, network: Network) -> Self {
        let mut fleet = Self {
            server: Server::default(),
            oracle: Oracle::default(),
            speaks: ProtocolVersions::SPOKEN,
            lease: LeaseTimings::default(),
            installation: DEFAULT_INSTALLATION,
            probes: true,
            bug: Bug::None,
            network,
            rng: fastrand::Rng::with_seed(seed),
            pace: fastrand::Rng::with_seed(seed.wrapping_add(1)),
            now_us: 0,
            sequence: 0,
            agenda: BinaryHeap::new(),
            arrivals: BTreeMap::new(),
            replicas: Vec::new(),
            clusters: BTreeSet::new(),
            identities: Identities::new(),
            heat: BTreeMap::new(),
            policies: Vec::new(),
            policies_refused_until: 0,
            home_away_until: 0,
        };
        fleet.set_clusters(clusters);
        fleet
    }

    /// A random number from the seed.
    pub fn draw(&mut self, range: std::ops::Range<u64>) -> u64 {
        self.rng.u64(range)
    }

    /// Starts that many more replicas.
    pub fn start_all(&mut self, count: usize) {
        for _ in 0..count {
            self.start();
        }
    }

    /// Starts another replica.
    pub fn start(&mut self) {
        let container = kubelet::container(self.replicas.len(), 0);
        self.start_in(container);
    }

    fn start_in(&mut self, container: MemberContainer) {
        let clock = DriftingClock {
            origin_us: self.draw(0..1_000_000_000),
            rate_ppm: self.draw(0..40_000) as i64 - 20_000,
        };
        let identity = format!("replica-{}", self.replicas.len());
        let groups = BTreeSet::from(["tdset".parse().expect("a name")]);
        let config = Config {
            lease: self.lease,
            speaks: self.speaks,
            installation: self.installation.to_owned(),
            container: Some(container.clone()),
            ..Config::new(&identity, groups, self.rng.u64(..))
        };
        let node = Node::new(config, clock.read(self.now_us));
        self.replicas.push(Replica {
            node,
            clock,
            speaks: self.speaks,
            reached: Reached::default(),
            container,
            gone: false,
            paused_until: 0,
            cut_off_until: 0,
            frozen_until: 0,
            watched: usize::MAX,
            requests: BTreeMap::new(),
            running: BTreeMap::new(),
            leases: LeasesSeen::All,
            policies: PolicyList::after(None),
            plans: VecDeque::new(),
            held: None,
            planned_step: u64::MAX,
        });
        let replica = self.replicas.len() - 1;
        self.configure(replica, &self.clusters.clone());
        self.identify(replica, self.identities.clone());
        self.begin_policies(replica);
        let (list, step) = (self.delay(), self.draw(0..50) * MS);
        self.schedule(list, replica, Happening::Watch { upto: usize::MAX });
        self.schedule(step, replica, Happening::Step);
        self.schedule(MEASURE_INTERVAL_US, replica, Happening::Measure);
    }

    /// From now on a cluster needs that many milliseconds of work per second.
    pub fn heat(&mut self, cluster: usize, rate: u64) {
        let cluster: ClusterName = format!("c{cluster}").parse().expect("a name");
        let before_us = self.heat.get(&cluster).map_or(0, |heat| heat.worked_us(self.now_us));
        self.heat.insert(cluster, Heat { rate, since_us: self.now_us, before_us });
    }

    /// Configures that many clusters.
    pub fn set_clusters(&mut self, count: usize) {
        self.clusters = (0..count).map(|n| format!("c{n}").parse().expect("a name")).collect();
        for replica in 0..self.replicas.len() {
            self.configure(replica, &self.clusters.clone());
        }
    }

    /// How many replicas run.
    pub fn alive(&self) -> usize {
        self.replicas.iter().filter(|replica| !replica.gone).count()
    }

    /// Whether a replica that should leave has handed over its shards and departed.
    pub fn has_departed(&self, replica: usize) -> bool {
        self.replicas[replica].node.departed() == Some(leasehold_sharding::Departure::HandedOver)
    }

    /// How many replicas there ever were.
    pub fn replicas(&self) -> usize {
        self.replicas.len()
    }

    /// The next replica is of one of these releases.
    pub fn draw_release(&mut self, releases: &[ProtocolVersions]) {
        self.speaks = releases[self.rng.usize(..releases.len())];
    }

    /// Lets that many milliseconds pass.
    pub fn run_for(&mut self, ms: u64) {
        let end = self.now_us + ms * MS;
        loop {
            let request = self.arrivals.keys().next().map(|&(at, _)| at).filter(|&at| at <= end);
            let event = self.agenda.peek().map(|Reverse((at, ..))| *at).filter(|&at| at <= end);
            match (request, event) {
                (None, None) => break,
                (Some(at), event) if event.is_none_or(|event| at <= event) => {
                    self.now_us = at.max(self.now_us);
                    self.arrive();
                }
                _ => {
                    let Some(Reverse((at, _, replica, happening))) = self.agenda.pop() else {
                        break;
                    };
                    self.now_us = at.max(self.now_us);
                    self.happen(replica, happening);
                }
            }
        }
        self.now_us = end;
    }

    fn stop(&mut self, replica: usize) {
        let stopped = &mut self.replicas[replica];
        stopped.gone = true;
        for (shard, run) in std::mem::take(&mut stopped.running) {
            self.oracle.ended(&shard, &run.member, self.now_us);
        }
    }

    /// How long the next message takes.
    fn delay(&mut self) -> u64 {
        let slow = self.network == Network::Rough && self.rng.u32(..100) == 0;
        if slow { self.draw(MS..1_000 * MS) } else { self.draw(200..5 * MS) }
    }

    /// Whether the next message to or from a replica is lost.
    fn is_lost(&mut self, replica: usize) -> bool {
        let lost = self.network == Network::Rough && self.rng.u32(..200) == 0;
        lost || self.replicas[replica].cut_off_until.max(self.home_away_until) > self.now_us
    }

    fn schedule(&mut self, after_us: u64, replica: usize, happening: Happening) {
        self.sequence += 1;
        self.agenda.push(Reverse((self.now_us + after_us, self.sequence, replica, happening)));
    }

    fn happen(&mut self, replica: usize, happening: Happening) {
        let (paused_until, gone) = {
            let replica = &self.replicas[replica];
            (replica.paused_until, replica.gone)
        };
        if gone {
            return;
        }
        if paused_until > self.now_us {
            // In any order when it resumes.
            let after = paused_until - self.now_us + self.rng.u64(0..100);
            self.schedule(after, replica, happening);
            return;
        }
        match happening {
            Happening::Step => {
                self.replicas[replica].planned_step = u64::MAX;
            }
            Happening::Watch { upto } => self.deliver(replica, upto),
            Happening::Measure => self.measure(replica),
            Happening::Ended(ended) => self.tell_of_end(replica, ended),
            Happening::Policies => self.tell_policies(replica),
            Happening::Leases => self.relist_leases(replica),
            Happening::Planned => self.planned(replica),
            Happening::Answer { request } => self.answer(replica, request),
            Happening::Finish { shard, run } => {
                let running = &mut self.replicas[replica].running;
                let ends = running.get(&shard).is_some_and(|running| running.number == run);
                if let Some(run) = ends.then(|| running.remove(&shard)).flatten() {
                    self.oracle.ended(&shard, &run.member, self.now_us);
                }
            }
        }
        self.step(replica);
    }

    /// A write reaches the store.
    fn arrive(&mut self) {
        let Some((_, (replica, request, write))) = self.arrivals.pop_first() else { return };
        let (outcome, commit) = self.commit(write);
        if let Some(commit) = commit {
            let replicas = &self.replicas;
            let valid_until = |member: &MemberId| {
                let of = replicas.iter().find(|r| !r.gone && r.node.id() == member)?;
                Some(of.clock.real(of.node.published().valid_until))
            };
            self.oracle.committed(&commit, self.now_us, valid_until);
            let speaks = |member: &MemberId| {
                Some(replicas.iter().find(|r| !r.gone && r.node.id() == member)?.speaks)
            };
            Oracle::understood(&commit, replicas[replica].speaks, speaks);
            self.check_removal(&commit);
            self.tell_watches();
        }
        if !self.is_lost(replica)
            && let Some(answer) = self.replicas[replica].requests.get_mut(&request)
        {
            answer.1 = outcome;
            let delay = self.delay();
            self.schedule(delay, replica, Happening::Answer { request });
        }
    }

    fn tell_watches(&mut self) {
        let upto = self.server.end();
        for watcher in 0..self.replicas.len() {
            let delay = self.delay();
            self.schedule(delay, watcher, Happening::Watch { upto });
        }
    }

    fn answer(&mut self, replica: usize, request: u64) {
        if let Some((target, outcome)) = self.replicas[replica].requests.remove(&request) {
            let input = self.seen(Input::Completed(target, outcome));
            let now = self.replicas[replica].clock.read(self.now_us);
            self.replicas[replica].node.handle(input, now);
        }
    }

    fn deliver(&mut self, replica: usize, upto: usize) {
        let watcher = &mut self.replicas[replica];
        let silent_until = watcher.cut_off_until.max(watcher.frozen_until);
        if silent_until.max(self.home_away_until) > self.now_us {
            return;
        }
        let now = watcher.clock.read(self.now_us);
        if upto == usize::MAX || watcher.watched == usize::MAX {
            for kind in [Kind::Lease, Kind::Member, Kind::Map] {
                self.list(replica, kind);
            }
            self.replicas[replica].watched = self.server.end();
            return;
        }
        let (events, _) = self.server.since(watcher.watched.min(upto));
        let fresh = upto.saturating_sub(watcher.watched);
        let leases = watcher.leases;
        for event in events.into_iter().take(fresh).filter(|event| sight::shows(leases, event)) {
            let event = self.seen(Input::Observed(event));
            self.replicas[replica].node.handle(event, now);
        }
        let watcher = &mut self.replicas[replica];
        watcher.watched = watcher.watched.max(upto.min(self.server.end()));
    }

    /// The engine reports how much work it has done for each shard that it holds.
    fn measure(&mut self, replica: usize) {
        let measured = &mut self.replicas[replica];
        let work = |shard: &ShardId| {
            let heat = self.heat.get(&shard.cluster).copied().unwrap_or_default();
            let busy = Duration::from_micros(heat.worked_us(self.now_us) >> shard.range.bits());
            Work { busy, ..Work::default() }
        };
        let owned = measured.node.published().owned;
        let work = owned.holdings.keys().map(|shard| (shard.clone(), work(shard))).collect();
        let now = measured.clock.read(self.now_us);
        measured.node.handle(Input::Measured(work), now);
        let failing = self.failing(replica);
        self.replicas[replica].node.handle(failing, now);
        self.schedule(MEASURE_INTERVAL_US, replica, Happening::Measure);
    }

    /// One step of the node and of its engine; repeated while the engine acknowledges drains.
    fn step(&mut self, replica: usize) {
        loop {
            let stepping = &mut self.replicas[replica];
            let now = stepping.clock.read(self.now_us);
            if self.bug != Bug::ForgetTime {
                stepping.node.handle(Input::Wall(self.now_us / 1_000_000), now);
            }
            // Half of the plans are made at once.
            let at_once = if self.pace.bool() { usize::MAX } else { 0 };
            let output = stepping.node.step_with(now, at_once, |task| Some(task.run()));
            let wake = stepping.clock.real(output.wake).max(self.now_us + 1);
            if output.reread {
                self.reread(replica);
            }
            self.look_at_leases(replica, output.leases);
            for write in output.writes {
                self.send(replica, write);
            }
            if let Some(task) = output.plan {
                self.plan(replica, task);
            }
            let acknowledged = self.run_engine(replica);
            if wake < self.replicas[replica].planned_step {
                self.replicas[replica].planned_step = wake;
                self.schedule(wake - self.now_us, replica, Happening::Step);
            }
            if self.replicas[replica].node.departed().is_some() {
                self.stop(replica);
            }
            if acknowledged.is_empty() {
                return;
            }
            let stepping = &mut self.replicas[replica];
            for (shard, epoch) in acknowledged {
                stepping.node.handle(Input::Acknowledged(shard, epoch), now);
            }
        }
    }

    fn send(&mut self, replica: usize, write: Write) {
        self.sequence += 1;
        let request = self.sequence;
        // The member assumes this unless an answer comes.
        self.replicas[replica].requests.insert(request, (write.target(), WriteOutcome::Failed));
        self.schedule(WRITE_TIMEOUT_US, replica, Happening::Answer { request });
        if !self.is_lost(replica) {
            let at = self.now_us + self.delay();
            self.arrivals.insert((at, request), (replica, request, write));
        }
    }

    /// Cancels runs that are not allowed, starts those that are, and returns the drains that are done.
    fn run_engine(&mut self, replica: usize) -> Vec<(ShardId, Epoch)> {
        let published = self.believed(replica);
        let runner = &mut self.replicas[replica];
        let now = runner.clock.read(self.now_us);
        let owned = &published.owned;
        let valid_until_us = runner.clock.real(published.valid_until);
        let may_run = |shard: &ShardId, run: &Run| {
            let held = owned.holdings.get(shard).filter(|held| held.epoch == run.epoch);
            let in_time = !matches!(held.map(|h| h.hold), Some(Hold::Draining { deadline }) if now >= deadline);
            held.is_some() && run.member == owned.member && in_time && now < published.valid_until
        };
        let (keep, cancel) = std::mem::take(&mut runner.running)
            .into_iter()
            .partition(|(shard, run)| may_run(shard, run));
        runner.running = keep;
        let cancel: BTreeMap<ShardId, Run> = cancel;
        for (shard, run) in cancel {
            self.oracle.ended(&shard, &run.member, self.now_us);
        }
        let mut drained = Vec::new();
        let mut starting = Vec::new();
        for (shard, held) in &owned.holdings {
            let idle = !self.replicas[replica].running.contains_key(shard);
            if matches!(held.hold, Hold::Draining { .. }) && idle {
                drained.push((shard.clone(), held.epoch));
            }
            let permit =
                owned.permit(shard, held.epoch, Purpose::Dispatch, published.valid_until, now);
            // Its engine has a client for the clusters that are configured.
            let has_client = self.replicas[replica].reached.has(&shard.cluster);
            if idle && has_client && permit.is_ok() {
                starting.push((shard.clone(), held.epoch));
            }
        }
        for (shard, epoch) in starting {
            let duration = self.draw(MS..LONGEST_RECONCILE_MS * MS);
            self.sequence += 1;
            let number = self.sequence;
            let until = (self.now_us + duration).min(valid_until_us);
            self.oracle.dispatched(&shard, &owned.member, self.now_us, until);
            let run = Run { number, member: owned.member.clone(), epoch };
            self.replicas[replica].running.insert(shard.clone(), run);
            self.schedule(duration, replica, Happening::Finish { shard, run: number });
        }
        drained
    }
}
