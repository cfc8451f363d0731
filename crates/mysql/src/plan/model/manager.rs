//! A manager of the model: the reconcile loop in small steps, between any two of which it can die.

use std::collections::BTreeMap;

use super::server::Server;
use super::world::{Sent, World};
use crate::kept::Kept;
use crate::memory::Memory;
use crate::observed::{InstanceSeen, Observed, PodSeen, VolumeSeen, instances_of};
use crate::plan::decide;
use crate::planted::Bug;
use crate::server::{Look, Silence};
use crate::step::{Change, Step};

/// Where a manager is in its round.
enum Phase {
    Begin,
    Look { version: usize, memory: Memory, left: Vec<usize>, looks: BTreeMap<String, Answer> },
    Take { version: usize, step: Step },
}

type Answer = Result<Look, Silence>;

/// A manager.
pub(super) struct Manager {
    number: u64,
    kept: Kept,
    phase: Phase,
    /// The runs of the servers that it has sessions with.
    sessions: BTreeMap<usize, u32>,
    rounds: u64,
    /// The last step that it decided on.
    pub(super) last: Option<Step>,
}

impl Manager {
    pub(super) fn new(number: u64) -> Self {
        Self {
            number,
            kept: Kept::default(),
            phase: Phase::Begin,
            sessions: BTreeMap::new(),
            rounds: 0,
            last: None,
        }
    }

    /// Does a little. Says whether a round ended.
    pub(super) fn advance(&mut self, world: &mut World) -> bool {
        match std::mem::replace(&mut self.phase, Phase::Begin) {
            Phase::Begin => {
                self.phase = self.begin(world);
                false
            }
            Phase::Look { version, memory, mut left, mut looks } => match left.pop() {
                Some(server) => {
                    let answer = self.look(world, server);
                    looks.insert(world.names[server].clone(), answer);
                    self.phase = Phase::Look { version, memory, left, looks };
                    false
                }
                None => self.decide(world, version, memory, looks),
            },
            Phase::Take { version, step } => {
                self.take(world, version, &step);
                true
            }
        }
    }

    pub(super) fn is_taking(&self) -> bool {
        matches!(&self.phase, Phase::Take { step, .. } if step.is_deed())
    }

    /// Ends this manager. What it was about to send may arrive later.
    pub(super) fn die(self, world: &mut World) -> Self {
        if let Phase::Take { version, step } = &self.phase {
            self.delay(world, *version, step);
        }
        Self::new(self.number + 1)
    }

    /// Sends what arrives later, if at all. Says whether the step is of that kind.
    fn delay(&self, world: &mut World, version: usize, step: &Step) -> bool {
        let sent = match step {
            Step::Remember { memory, .. } => Sent::Memory { version, memory: *memory.clone() },
            Step::Tell { instance, order } => {
                let server = world.place(instance);
                let session = session(self.number, self.rounds);
                let run = self.sessions.get(&server).copied().unwrap_or_default();
                Sent::Order { server, run, session, order: order.clone() }
            }
            _ => return false,
        };
        world.tell(|| format!("delayed: {sent:?}"));
        world.sent.push(sent);
        true
    }

    /// Reads the memory: what a cache has, which may lag behind.
    fn begin(&mut self, world: &mut World) -> Phase {
        self.rounds += 1;
        self.sessions.clear();
        let lags = usize::from(world.rng.u8(..8) == 0);
        let version = world.memories.len().saturating_sub(1 + lags);
        let memory = world.memories[version].clone();
        let last = memory.primary.as_ref().or(memory.former.as_ref());
        let last = last.map(|name| world.place(name));
        let mut left: Vec<_> = (0..world.count.max(world.wanted.instances)).collect();
        world.rng.shuffle(&mut left);
        // Taken from the end.
        left.sort_by_key(|server| Some(*server) != last);
        Phase::Look { version, memory, left, looks: BTreeMap::new() }
    }

    /// Opens a session, which ends those of others, and looks.
    fn look(&mut self, world: &mut World, place: usize) -> Answer {
        let is_reached = !world.unreached.contains(&place);
        let followers = world.servers.iter().filter(|other| {
            let source = other.source.filter(|source| source.server == place && other.is_up);
            source.is_some_and(|source| {
                source.link.is_some_and(|(run, acks)| acks && run == world.servers[place].run)
            })
        });
        let followers = u32::try_from(followers.count()).unwrap();
        let server: &mut Server = &mut world.servers[place];
        if !server.is_up || !is_reached {
            return Err("no answer".into());
        }
        server.lock = Some(session(self.number, self.rounds));
        self.sessions.insert(place, server.run);
        Ok(server.look(followers, &world.names))
    }

    fn decide(
        &mut self,
        world: &mut World,
        version: usize,
        memory: Memory,
        looks: BTreeMap<String, Answer>,
    ) -> bool {
        let is_current = version + 1 == world.memories.len();
        if !is_current && !world.planted(Bug::StaleMemory) {
            return true;
        }
        let mut observed = Observed {
            wanted: world.wanted.clone(),
            memory,
            instances: seen(world, looks),
            has_begun: false,
            earlier: None,
            last: None,
            now: world.now,
            bug: world.bug,
        };
        self.kept.round(&mut observed);
        world.count = crate::observed::replicas("db", &observed.memory, observed.wanted.instances);
        let step = decide(&observed);
        if !matches!(step, Step::Rest) && self.last.as_ref() != Some(&step) {
            world.tell(|| format!("{}: {step:?}", world.now));
        }
        self.last = Some(step.clone());
        self.phase = Phase::Take { version, step };
        false
    }

    fn take(&mut self, world: &mut World, version: usize, step: &Step) {
        self.kept.pause(step, world.wanted.failover_after);
        if world.delays > 0 && world.rng.u8(..world.delays) == 0 && self.delay(world, version, step)
        {
            // No answer came in time.
            if matches!(step, Step::Remember { .. }) {
                self.kept.doubt();
            }
            return;
        }
        match step {
            Step::Remember { memory, change } => {
                if world.write_memory(version, memory) && *change == Change::Begin {
                    self.kept.begin(memory.reign);
                }
            }
            Step::Tell { instance, order } => {
                let server = world.place(instance);
                let run = self.sessions.get(&server).copied().unwrap_or_default();
                if !world.unreached.contains(&server) {
                    world.order(server, run, session(self.number, self.rounds), order);
                }
            }
            Step::Label { instance, role } => {
                let server = world.place(instance);
                if let Some(pod) = &mut world.pods[server] {
                    pod.role = *role;
                }
            }
            Step::DeletePod { instance, why } => {
                world.delete_pod(world.place(instance), Some(*why));
            }
            Step::Wait(_) | Step::Rest => {}
        }
    }
}

/// The session of a manager's round.
fn session(manager: u64, round: u64) -> u64 {
    manager * 1_000_000 + round
}

fn seen(world: &World, looks: BTreeMap<String, Answer>) -> Vec<InstanceSeen> {
    let here = world.names.iter().zip(&world.pods).zip(&world.servers);
    let pods = here.clone().filter_map(|((name, pod), server)| {
        let pod = pod.as_ref()?;
        let (role, template) = (pod.role, pod.template.clone());
        let (is_ready, is_running) = (server.is_up, server.is_up);
        let seen = PodSeen { is_ready, is_running, role, template, ..PodSeen::default() };
        Some((name.clone(), seen))
    });
    let volumes = here.filter(|((_, pod), _)| pod.is_some());
    let volumes =
        volumes.map(|((name, _), _)| (format!("data-{name}"), VolumeSeen::default())).collect();
    let known = world.memory().members.iter().map(|member| world.place(&member.name) + 1);
    let count = known.chain([world.wanted.instances, world.count]).max().unwrap_or_default();
    instances_of("db", count, &pods.collect(), &volumes, looks)
}
