//! All members, the store and the network between them, as one state, and what may happen to it.
//!
//! Normally a write reaches the store at once, its answer and its event arrive at once, and each member
//! draws its conclusions at once: the cascade ends before the next action. A disturbance diverts a
//! write, an answer or a watch, which may then arrive at any later time. So the model reaches every
//! order in which messages can overtake each other, at the cost of one disturbance for each diverted
//! message.

mod others;

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use leasehold_sharding::ProtocolVersions;
use leasehold_sharding::api::MemberContainer;
use leasehold_sharding::death::Ended;
use leasehold_sharding::node::Input;
use leasehold_sharding::record::{Kind, Object, Observation, Target, Write, WriteOutcome};
use model::{MemberId, ShardId};

use crate::canonical::{Canonical, ORIGIN_S};
use crate::oracle::{self, Milestone, Rule};
use crate::planted::Wrapper;
use crate::process::{KINDS, LONGEST, Process, Watch};
use crate::store::{self, Commit, Store};

/// Ticks after which a fleet at rest does not change any more.
const SETTLED: usize = 30;
/// Members.
pub const MEMBERS: usize = 3;

/// One state.
#[derive(Clone, Debug)]
pub struct State {
    pub store: Arc<Store>,
    pub wrapper: Wrapper,
    pub beginning: Beginning,
    pub slots: [Slot; MEMBERS],
    /// Members whose clocks have not reached the next tick yet, in their order.
    pub round: VecDeque<usize>,
    /// Messages under way, in the order in which they arrive unless one is diverted.
    pub prompt: VecDeque<Message>,
    /// Writes that may reach the store at any time.
    pub delayed: Vec<Delayed>,
    /// Answers that may arrive at any time before their member's next tick.
    pub answers: Vec<(usize, Target, WriteOutcome)>,
    /// Disturbances that may still happen.
    pub disturbances: u8,
    /// Whether a process was killed since the last tick.
    pub killed: bool,
    pub broken: Option<Rule>,
    /// The milestone of the last transition.
    pub reached: Option<Milestone>,
}

/// The state of the fleet when the model begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// Three members start at once, from nothing.
    Cold,
    /// Three members share two shards and are settled.
    Shared,
    /// One member holds both shards.
    Alone,
    /// Three members share two shards. The last speaks the first version of the protocol only, the others the
    /// next one too.
    Mixed,
}

/// The slot of a member.
#[derive(Clone, Debug)]
pub enum Slot {
    Empty,
    Taken(Arc<Process>),
    /// Crashed or departed.
    Gone,
}

/// A message that arrives promptly.
#[derive(Clone, Debug, Hash)]
pub enum Message {
    Request(usize, Write),
    Answer(usize, Target, WriteOutcome),
    Observation(usize, Kind, Observation),
    Ended(usize, Ended),
}

/// A write in the network.
#[derive(Clone, Debug, Hash)]
pub struct Delayed {
    pub from: usize,
    pub write: Write,
    /// Whether the member still waits for its answer.
    pub is_awaited: bool,
}

/// What may happen next.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// The next member starts.
    Start,
    /// A tick passes: the members' clocks advance one after the other, beginning with the first.
    Tick,
    /// The same, beginning with the last.
    TickBackwards,
    /// The clock of the next member advances.
    Proceed,
    /// The next request reaches the store, and its answer the member.
    Pass,
    /// It is delayed instead.
    Delay,
    /// It reaches the store, but its answer is delayed.
    LoseAnswer,
    /// A delayed write reaches the store.
    Land(usize),
    /// A delayed answer arrives. It resumes a paused member.
    Answer(usize),
    /// A watch stalls.
    Stall(usize, Kind),
    /// A stalled watch delivers the next event of a map, or the present state of all Leases or Members,
    /// as after a new list.
    Deliver(usize, Kind),
    /// All runs of a draining shard have ended.
    Finish(usize, ShardId),
    /// A member ends at once, and nobody says so.
    Crash(usize),
    /// A member's container ends at once, and home says so.
    Kill(usize),
    /// The same, and another process starts in it. Home says so first, or not at all.
    Restart(usize, bool),
    /// A member pauses, while its clock runs on.
    Pause(usize),
    /// It resumes.
    Resume(usize),
    /// A member is asked to leave.
    Leave(usize),
    /// A member pauses, and meanwhile somebody edits its Lease.
    Edit(usize, Edit),
    /// A watch of a member ends, and its next list comes from a cache that has not seen the last change yet.
    ListLate(usize, Kind),
    /// The cluster comes into a member's configuration, or goes.
    Configure(usize),
    /// A member tells that one of its shards keeps a worker busy.
    Load(usize),
}

/// What somebody writes into a Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// No holder, as if its member had given it back.
    Holder,
    /// The shortest duration.
    Duration,
}

impl Beginning {
    /// The versions of the protocol that a member speaks. The next version exists only as a number here.
    fn speaks(self, member: usize) -> ProtocolVersions {
        let newest = if self == Self::Mixed && member + 1 < MEMBERS { 2 } else { 1 };
        ProtocolVersions { oldest: 1, newest }
    }
}

impl State {
    /// The state at a beginning, with that many disturbances to come.
    pub fn new(beginning: Beginning, disturbances: u8, wrapper: Wrapper) -> Self {
        let mut state = Self {
            store: Arc::default(),
            wrapper,
            beginning,
            slots: [Slot::Empty, Slot::Empty, Slot::Empty],
            round: VecDeque::new(),
            prompt: VecDeque::new(),
            delayed: Vec::new(),
            answers: Vec::new(),
            disturbances: 0,
            killed: false,
            broken: None,
            reached: None,
        };
        let members = if beginning == Beginning::Alone { 1 } else { MEMBERS };
        for _ in 0..members {
            state.start();
            state.settle();
        }
        if beginning != Beginning::Cold {
            state.rest();
        }
        Self { disturbances, ..state }
    }

    /// Lets time pass without disturbances, until all drains have ended.
    fn rest(&mut self) {
        for _ in 0..SETTLED {
            self.apply(Action::Tick);
            for member in 0..MEMBERS {
                let drains = self.slots[member].process().map(|process| process.draining());
                for shard in drains.into_iter().flatten().collect::<Vec<_>>() {
                    self.apply(Action::Finish(member, shard));
                }
            }
        }
    }

    /// The members that run or are paused.
    pub fn processes(&self) -> impl Iterator<Item = &Process> + Clone {
        self.slots.iter().filter_map(Slot::process)
    }

    /// Carries out an action.
    pub fn apply(&mut self, action: Action) {
        self.reached = None;
        match action {
            Action::Start => {
                self.disturbances -= 1;
                self.start();
            }
            Action::Proceed => self.next_tick(),
            Action::Tick => self.begin_round((0..MEMBERS).collect()),
            Action::TickBackwards => self.begin_round((0..MEMBERS).rev().collect()),
            Action::Pass => self.next_message(),
            Action::Delay => self.delay(),
            Action::LoseAnswer => self.lose_answer(),
            Action::Land(index) => self.land(index),
            Action::Answer(index) => {
                let (to, target, outcome) = self.answers.remove(index);
                self.resume(to, Some(Input::Completed(target, outcome)));
            }
            Action::Stall(member, kind) => {
                self.disturbances -= 1;
                let process = self.process_mut(member);
                process.watches.insert(kind, Watch::Stalled(LONGEST, VecDeque::new()));
            }
            Action::Deliver(member, kind) => self.deliver(member, kind),
            Action::Finish(member, shard) => {
                self.process_mut(member).running.remove(&shard);
                self.tell(member, []);
            }
            Action::Crash(member) => {
                self.disturbances -= 1;
                self.end(member);
            }
            Action::Kill(member) => {
                self.disturbances -= 1;
                self.kill(member, true);
            }
            Action::Restart(member, told) => {
                self.disturbances -= 1;
                let before = self.kill(member, told);
                self.start_in(member, before + 1);
            }
            Action::Pause(member) => {
                self.disturbances -= 1;
                self.process_mut(member).pause = Some(LONGEST);
            }
            Action::Edit(member, edit) => {
                self.disturbances -= 1;
                self.process_mut(member).pause = Some(LONGEST);
                self.edit(member, edit);
            }
            Action::ListLate(member, kind) => {
                self.disturbances -= 1;
                self.list_late(member, kind);
            }
            Action::Configure(member) => {
                self.disturbances -= 1;
                let input = self.process_mut(member).configure();
                self.tell(member, [input]);
            }
            Action::Load(member) => {
                self.disturbances -= 1;
                self.load(member);
            }
            Action::Resume(member) => self.resume(member, None),
            Action::Leave(member) => {
                self.disturbances -= 1;
                self.tell(member, [Input::Leave]);
            }
        }
        self.settle();
    }

    /// Lets messages arrive and clocks advance until the round is over, or a message could be diverted,
    /// or a diverted one could arrive between the ticks of two members.
    fn settle(&mut self) {
        while self.broken.is_none() {
            match self.prompt.front() {
                Some(Message::Request(..)) if self.disturbances > 0 => break,
                Some(_) => self.next_message(),
                None if self.round.is_empty() || self.is_anything_held() => break,
                None => self.next_tick(),
            }
        }
        // Versions never return: a write that cannot succeed now never will.
        let store = &self.store;
        self.delayed.retain(|write| write.is_awaited || store.may_accept(&write.write));
    }

    fn begin_round(&mut self, round: VecDeque<usize>) {
        self.round = round;
        self.killed = false;
    }

    fn start(&mut self) {
        let number = self.slots.iter().take_while(|slot| !matches!(slot, Slot::Empty)).count();
        self.start_in(number, 0);
    }

    fn start_in(&mut self, number: usize, instance: u64) {
        let ticks = self.processes().map(|process| process.ticks).min().unwrap_or_default();
        let speaks = self.beginning.speaks(number);
        let process = Process::start(number, instance, ticks, speaks, self.wrapper);
        self.slots[number] = Slot::Taken(Arc::new(process));
        let lists = KINDS.map(|kind| Input::Observed(self.store.list(kind)));
        self.tell(number, lists);
    }

    /// Whether something waits that may happen at any time.
    fn is_anything_held(&self) -> bool {
        let waits = |process: &Process| {
            let stalled = |watch: &Watch| matches!(watch, Watch::Stalled(_, q) if !q.is_empty());
            process.pause.is_none()
                && (process.watches.values().any(stalled) || process.draining().next().is_some())
        };
        !self.delayed.is_empty() || !self.answers.is_empty() || self.processes().any(waits)
    }

    fn next_tick(&mut self) {
        if let Some(member) = self.round.pop_front() {
            self.tick(member);
        }
    }

    fn tick(&mut self, member: usize) {
        let Some(process) = self.slots[member].process() else { return };
        if process.pause.is_none() {
            self.time_out(member);
        }
        let process = self.process_mut(member);
        let (pause_ends, overdue) = process.tick();
        let overdue =
            overdue.into_iter().map(|(kind, event)| Message::Observation(member, kind, event));
        self.prompt.extend(overdue);
        if pause_ends {
            self.resume(member, None);
        } else if self.process_mut(member).pause.is_none() {
            self.tell(member, []);
        }
        self.check_overlap();
    }

    /// A request that is not answered within a tick has failed, as far as its member knows.
    fn time_out(&mut self, member: usize) {
        let mut failed = Vec::new();
        for write in self.delayed.iter_mut().filter(|write| write.from == member) {
            if std::mem::take(&mut write.is_awaited) {
                failed.push(write.write.target());
            }
        }
        let late = self.answers.extract_if(.., |(to, ..)| *to == member);
        failed.extend(late.map(|(_, target, _)| target));
        let process = self.process_mut(member);
        let now = process.now();
        for target in failed {
            process.node.handle(Input::Completed(target, WriteOutcome::Failed), now);
        }
    }

    fn next_message(&mut self) {
        match self.prompt.pop_front() {
            Some(Message::Request(from, write)) => {
                let target = write.target();
                let outcome = self.write(write);
                self.prompt.push_front(Message::Answer(from, target, outcome));
            }
            Some(Message::Answer(to, target, outcome)) => {
                self.tell(to, [Input::Completed(target, outcome)]);
            }
            Some(Message::Observation(to, kind, event)) => self.tell_event(to, kind, event),
            Some(Message::Ended(to, ended)) => self.tell_ended(to, ended),
            None => {}
        }
    }

    fn delay(&mut self) {
        if let Some(Message::Request(from, write)) = self.prompt.pop_front() {
            self.disturbances -= 1;
            let is_awaited = self.slots[from].process().is_some();
            self.delayed.push(Delayed { from, write, is_awaited });
        }
    }

    fn lose_answer(&mut self) {
        if let Some(Message::Request(from, write)) = self.prompt.pop_front() {
            self.disturbances -= 1;
            let target = write.target();
            let outcome = self.write(write);
            if self.slots[from].process().is_some() {
                self.answers.push((from, target, outcome));
            }
        }
    }

    fn land(&mut self, index: usize) {
        let Delayed { from, write, is_awaited } = self.delayed.remove(index);
        let target = write.target();
        let outcome = self.write(write);
        if is_awaited {
            self.answers.push((from, target, outcome));
        }
    }

    /// After a pause, a member first notices a waiting answer, or that time has passed. Then all missed
    /// events arrive.
    fn resume(&mut self, member: usize, first: Option<Input>) {
        let process = self.process_mut(member);
        process.pause = None;
        let missed = std::mem::take(&mut process.missed);
        let ended = std::mem::take(&mut process.missed_ended);
        let ended = Some(Input::Ended(ended))
            .filter(|input| !matches!(input, Input::Ended(e) if e.is_empty()));
        self.tell(member, first.into_iter().chain(ended));
        for (kind, events) in missed {
            self.prompt
                .extend(events.into_iter().map(|event| Message::Observation(member, kind, event)));
        }
    }

    fn deliver(&mut self, member: usize, kind: Kind) {
        let watch = self.process_mut(member).watches.get_mut(&kind);
        let Some(watch @ Watch::Stalled(..)) = watch else { return };
        let Watch::Stalled(_, queue) = watch else { return };
        let told = if kind == Kind::Map { 1 } else { queue.len() };
        let events: Vec<Observation> = queue.drain(..told).collect();
        if queue.is_empty() {
            *watch = Watch::Live;
        }
        self.tell(member, events.into_iter().map(Input::Observed));
    }

    /// The store carries out a write, the oracles judge it, the watches deliver it.
    fn write(&mut self, write: Write) -> WriteOutcome {
        let (outcome, commit) = self.wrapper.write(Arc::make_mut(&mut self.store), write);
        if let Some(commit) = commit {
            self.judge(&commit);
            Arc::make_mut(&mut self.store).remember(&commit);
            let kind = commit.before.as_ref().or(commit.after.as_ref()).map(Object::target);
            for to in 0..MEMBERS {
                if let (Some(target), Some(event)) = (&kind, store::event(&commit)) {
                    self.prompt.push_back(Message::Observation(to, target.kind, event));
                }
            }
        }
        outcome
    }

    fn judge(&mut self, commit: &Commit) {
        let member = |id: &MemberId| self.processes().find(|process| process.node.id() == id);
        let broken = oracle::judge(commit, &self.store.epochs, member);
        let reached = oracle::milestone(commit, &self.store, member);
        self.broken = self.broken.or(broken);
        let reached = match reached {
            Some(Milestone::Takeover) if self.killed => Some(Milestone::Proof),
            reached => reached,
        };
        self.reached = self.reached.or(reached);
    }

    fn tell_event(&mut self, to: usize, kind: Kind, event: Observation) {
        if self.slots[to].process().is_some()
            && let Some(event) = self.process_mut(to).queue(kind, event)
        {
            self.tell(to, [Input::Observed(event)]);
        }
    }

    fn tell_ended(&mut self, to: usize, ended: Ended) {
        let Some(process) = self.slots[to].process() else { return };
        if process.pause.is_some() {
            self.process_mut(to).missed_ended.push(ended);
        } else {
            self.tell(to, [Input::Ended(vec![ended])]);
        }
    }

    /// A process ends, and home may say so. Returns how many ran in its container before.
    fn kill(&mut self, member: usize, told: bool) -> u64 {
        let process = self.process_mut(member);
        let (container, instance): (MemberContainer, u64) =
            (process.container.clone(), process.instance);
        self.end(member);
        self.killed = true;
        if told {
            let ended = self.wrapper.ended(&container);
            self.prompt.extend((0..MEMBERS).map(|to| Message::Ended(to, ended.clone())));
        }
        instance
    }

    /// A member takes in inputs. Its writes are under way then.
    fn tell(&mut self, to: usize, inputs: impl IntoIterator<Item = Input>) {
        let Slot::Taken(process) = &mut self.slots[to] else { return };
        let process = Arc::make_mut(process);
        let writes = process.take_in(inputs);
        let departed = process.node.departed().is_some();
        let reads_again = std::mem::take(&mut process.reads_again);
        self.prompt.extend(writes.into_iter().map(|write| Message::Request(to, write)));
        if departed {
            self.end(to);
        } else if reads_again {
            self.reached = Some(Milestone::ReadAgain);
            self.process_mut(to).begin_watches();
            let lists = KINDS.map(|kind| Input::Observed(self.store.list(kind)));
            return self.tell(to, lists);
        }
        self.check_overlap();
    }

    /// A process ends. Its requests stay under way.
    fn end(&mut self, member: usize) {
        self.slots[member] = Slot::Gone;
        self.answers.retain(|(to, ..)| *to != member);
        for write in self.delayed.iter_mut().filter(|write| write.from == member) {
            write.is_awaited = false;
        }
    }

    /// Runs whenever a member has acted or a clock has advanced.
    fn check_overlap(&mut self) {
        if self.broken.is_none() && oracle::overlap(self.processes()) {
            self.broken = Some(Rule::S1);
        }
        let leads = |process: &&Process| process.node.is_coordinator(process.now());
        if self.processes().filter(leads).count() > 1 {
            self.reached = Some(Milestone::Overlap);
        }
    }

    fn process_mut(&mut self, member: usize) -> &mut Process {
        match &mut self.slots[member] {
            Slot::Taken(process) => Arc::make_mut(process),
            Slot::Empty | Slot::Gone => panic!("member {member} does not run"),
        }
    }

    /// What distinguishes this state from others.
    pub fn canonical(&self) -> Vec<u64> {
        let Self { store, slots, round, prompt, delayed, answers, disturbances, .. } = self;
        let Self { wrapper: _, beginning: _, killed, broken, reached, .. } = self;
        let mut form = Canonical::default();
        let slowest = self.processes().map(|process| process.ticks).min().unwrap_or_default();
        for slot in slots {
            std::mem::discriminant(slot).hash(&mut form);
            if let Some(process) = slot.process() {
                let Process { node, ticks, pause, born, running, watches, missed, .. } = process;
                let Process { container: _, instance, missed_ended, wrapper: _, .. } = process;
                let Process { is_configured, reads_again: _, .. } = process;
                form.set_now(ORIGIN_S + ticks);
                (node, ticks - slowest, pause, born, running, watches, missed).hash(&mut form);
                (instance, missed_ended, is_configured).hash(&mut form);
            }
        }
        (&store.objects, &store.epochs).hash(&mut form);
        if *disturbances > 0 {
            store.last.hash(&mut form);
        }
        (round, prompt, delayed, answers, disturbances, killed, broken, reached).hash(&mut form);
        form.into_words()
    }
}

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.canonical().hash(state);
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.canonical() == other.canonical()
    }
}

impl Slot {
    /// The member in it.
    pub fn process(&self) -> Option<&Process> {
        match self {
            Self::Taken(process) => Some(process),
            Self::Empty | Self::Gone => None,
        }
    }
}
