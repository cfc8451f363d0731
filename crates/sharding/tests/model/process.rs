//! One member: the production [`Node`], its own clock, its watches, and an engine that keeps every
//! shard busy.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use leasehold_sharding::api::MemberContainer;
use leasehold_sharding::death::Ended;
use leasehold_sharding::node::{Input, Node};
use leasehold_sharding::record::{Kind, Observation, Write};
use leasehold_sharding::{Config, LeaseTimings, ProtocolVersions};
use model::{Epoch, Hold, MemberId, Moment, Purpose, ShardId};

use crate::canonical::ORIGIN_S;
use crate::planted::Wrapper;

/// The timings, with a second for a tick: a member may act for 4 ticks after it sent its last renewal.
/// Others may take its Lease 6 ticks after they saw that renewal, and suspect it after 2 and a half.
pub const TIMINGS: LeaseTimings = LeaseTimings {
    duration: Duration::from_secs(5),
    renew_interval: Duration::from_secs(1),
    margin: Duration::from_secs(1),
};
/// The longest pause and the longest stall of a watch, in ticks. Everything that can run out does so
/// within this time, and a member opens a watch again that is silent for longer.
pub const LONGEST: u8 = 9;
/// The watched kinds, each with a stream of its own.
pub const KINDS: [Kind; 3] = [Kind::Lease, Kind::Member, Kind::Map];
/// Two shards of one cluster: one ShardMap holds both.
const GROUPS: [&str; 2] = ["g", "h"];

/// A member.
#[derive(Clone, Debug)]
pub struct Process {
    pub node: Node,
    pub wrapper: Wrapper,
    /// How its clock stands.
    pub ticks: u64,
    /// It does nothing for at most that many ticks, while its clock runs on.
    pub pause: Option<u8>,
    /// The container that its Member names.
    pub container: MemberContainer,
    /// How many processes ran in that container before.
    pub instance: u64,
    /// Its first id. If it has another one, it fenced itself.
    pub born: MemberId,
    /// Whether it has the cluster configured.
    pub is_configured: bool,
    /// Whether it wants to read home again.
    pub reads_again: bool,
    /// The shards that its engine runs, with their epochs.
    pub running: BTreeMap<ShardId, Epoch>,
    pub watches: BTreeMap<Kind, Watch>,
    /// The events that arrived while it was paused.
    pub missed: BTreeMap<Kind, VecDeque<Observation>>,
    /// Which containers ended meanwhile.
    pub missed_ended: Vec<Ended>,
}

/// A stream of events.
#[derive(Clone, Debug, Hash)]
pub enum Watch {
    /// It delivers each event at once.
    Live,
    /// Events wait. It delivers them in order, at any time within that many ticks.
    Stalled(u8, VecDeque<Observation>),
}

impl Process {
    /// The member with that number, when its process starts: the first in its container, or a later one.
    pub fn start(
        number: usize,
        instance: u64,
        ticks: u64,
        speaks: ProtocolVersions,
        wrapper: Wrapper,
    ) -> Self {
        let groups = GROUPS.iter().map(|group| group.parse().expect("a name")).collect();
        let container = wrapper.container(number, instance);
        let seed = number as u64 + 10 * instance;
        let config = Config {
            container: Some(container.clone()),
            lease: wrapper.timings(),
            speaks,
            drain_timeout: Duration::from_secs(2),
            ..Config::new(&format!("m{number}"), groups, seed)
        };
        config.validate().expect("the model's settings are valid ones");
        let mut node = Node::new(config, moment(ticks));
        node.handle(clusters(true), moment(ticks));
        Self {
            born: node.id().clone(),
            container,
            instance,
            node,
            wrapper,
            ticks,
            pause: None,
            running: BTreeMap::new(),
            is_configured: true,
            reads_again: false,
            watches: KINDS.map(|kind| (kind, Watch::Live)).into(),
            missed: BTreeMap::new(),
            missed_ended: Vec::new(),
        }
    }

    /// Now, by its clock.
    pub fn now(&self) -> Moment {
        moment(self.ticks)
    }

    /// Takes in inputs and draws the conclusions, including the engine's. Returns the writes to send.
    pub fn take_in(&mut self, inputs: impl IntoIterator<Item = Input>) -> Vec<Write> {
        let now = self.now();
        for input in inputs {
            let time = self.wrapper.time_of(&input, now);
            self.node.handle(input, time);
        }
        let mut writes = Vec::new();
        loop {
            let wall_s = self.wall_s();
            let output = self.node.step(now);
            self.reads_again |= output.reread;
            writes.extend(output.writes.into_iter().map(|mut write| {
                self.wrapper.send(&mut write, wall_s);
                write
            }));
            let drained = self.run_engine();
            if drained.is_empty() {
                return writes;
            }
            for (shard, epoch) in drained {
                self.node.handle(Input::Acknowledged(shard, epoch), now);
            }
        }
    }

    /// Its configuration changes: the cluster comes or goes.
    pub fn configure(&mut self) -> Input {
        self.is_configured = !self.is_configured;
        clusters(self.is_configured)
    }

    /// It begins its watches anew. What waits in them comes with the lists.
    pub fn begin_watches(&mut self) {
        self.reads_again = false;
        self.watches = KINDS.map(|kind| (kind, Watch::Live)).into();
    }

    /// Whether work of the shard may take effect now. Requests of a paused process may take effect until
    /// its validity ends: no request outlives that.
    pub fn acts_on(&self, shard: &ShardId) -> bool {
        self.running.contains_key(shard) && (self.wrapper.writes_unfenced() || self.is_valid())
    }

    /// Whether it may act at all, by its own clock.
    pub fn is_valid(&self) -> bool {
        self.now() < self.node.published().valid_until
    }

    /// The draining shards that still have runs.
    pub fn draining(&self) -> impl Iterator<Item = ShardId> {
        let owned = self.node.published().owned;
        let drains = move |shard: &ShardId| {
            let holding = owned.holdings.get(shard);
            holding.is_some_and(|held| matches!(held.hold, Hold::Draining { .. }))
        };
        self.running.keys().filter(move |&shard| drains(shard)).cloned()
    }

    /// Puts an event into a stalled watch, or returns it for a live one. A paused process reads no watch.
    pub fn queue(&mut self, kind: Kind, event: Observation) -> Option<Observation> {
        let watch = self.watches.get_mut(&kind).expect("every kind is watched");
        let queue = match watch {
            Watch::Stalled(_, queue) => queue,
            Watch::Live if self.pause.is_some() => self.missed.entry(kind).or_default(),
            Watch::Live => return Some(event),
        };
        queue.push_back(event);
        if kind != Kind::Map {
            merge(queue);
        }
        None
    }

    /// Its clock advances by a tick. Returns whether a pause ends with it, and the events of watches
    /// whose stall ends with it.
    pub fn tick(&mut self) -> (bool, Vec<(Kind, Observation)>) {
        self.ticks += 1;
        let mut overdue = Vec::new();
        for (kind, watch) in &mut self.watches {
            let Watch::Stalled(left, queue) = watch else { continue };
            *left -= 1;
            if *left == 0 {
                overdue.extend(queue.drain(..).map(|event| (*kind, event)));
                *watch = Watch::Live;
            }
        }
        self.pause = self.pause.map(|left| left - 1);
        (self.pause == Some(0), overdue)
    }

    /// The time by its wall clock, in seconds: ten behind that of the member before it.
    fn wall_s(&self) -> i64 {
        let behind = self.born.as_str()[1..2].parse::<u64>().expect("a number") * 10;
        (ORIGIN_S + self.ticks - behind).cast_signed()
    }

    /// Cancels runs that are not allowed, starts all that are, and returns the drains that are done.
    fn run_engine(&mut self) -> Vec<(ShardId, Epoch)> {
        let (published, now) = (self.node.published(), self.now());
        let owned = published.owned;
        let may = |shard: &ShardId, epoch, purpose| {
            owned.permit(shard, epoch, purpose, published.valid_until, now).is_ok()
        };
        let wrapper = self.wrapper;
        let runs_on = wrapper.writes_unfenced() || wrapper.acknowledges_early();
        self.running.retain(|shard, epoch| runs_on || may(shard, *epoch, Purpose::Write));
        let mut drained = Vec::new();
        for (shard, held) in &owned.holdings {
            if may(shard, held.epoch, Purpose::Dispatch) {
                self.running.insert(shard.clone(), held.epoch);
            }
            let drains = matches!(held.hold, Hold::Draining { .. });
            let runs = self.running.contains_key(shard) && !wrapper.acknowledges_early();
            if drains && !runs {
                drained.push((shard.clone(), held.epoch));
            }
        }
        drained
    }
}

/// The configured clusters: one or none.
fn clusters(is_configured: bool) -> Input {
    let east = "east".parse().expect("a name");
    Input::Clusters(is_configured.then_some(east).into_iter().collect(), Vec::new())
}

fn moment(ticks: u64) -> Moment {
    Moment::from_origin(Duration::from_secs(ORIGIN_S + ticks))
}

/// Keeps the last event of each object, in the order of names, as a list would show it.
fn merge(queue: &mut VecDeque<Observation>) {
    let subject = |event: &Observation| match event {
        Observation::Applied(object) | Observation::Deleted(object) => Some(object.target()),
        Observation::Listed(..) => None,
    };
    let mut events: Vec<Observation> = std::mem::take(queue).into();
    events.reverse();
    events.sort_by_key(subject);
    events.dedup_by_key(|event| subject(event));
    queue.extend(events);
}
