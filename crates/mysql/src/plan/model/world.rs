//! The world of the model: servers, who can reach whom, clients, Pods, the status in the API server, and
//! what was sent and has not arrived.

use std::collections::BTreeSet;
use std::time::Duration;

use fastrand::Rng;
use jiff::Timestamp;

use super::server::{Server, text};
use crate::api::WhenAlone;
use crate::memory::Memory;
use crate::observed::Wanted;
use crate::planted::Bug;
use crate::role::Role;
use crate::server::Order;
use crate::step::Why;

/// The most instances.
pub(super) const MOST: usize = 5;

/// A Pod of the model.
#[derive(Clone, Debug)]
pub(super) struct Pod {
    pub(super) template: String,
    pub(super) role: Option<Role>,
}

/// A message of a manager that died.
#[derive(Clone, Debug)]
pub(super) enum Sent {
    Order { server: usize, run: u32, session: u64, order: Order },
    Memory { version: usize, memory: Memory },
}

/// The world.
pub(super) struct World {
    pub(super) rng: Rng,
    pub(super) bug: Option<Bug>,
    pub(super) now: Timestamp,
    pub(super) servers: Vec<Server>,
    pub(super) names: Vec<String>,
    /// The Pods. Without one, the server is down.
    pub(super) pods: Vec<Option<Pod>>,
    /// Pairs of servers that cannot reach each other.
    pub(super) cuts: BTreeSet<(usize, usize)>,
    /// Servers that no manager reaches.
    pub(super) unreached: BTreeSet<usize>,
    /// How many Pods the StatefulSet has.
    pub(super) count: usize,
    pub(super) wanted: Wanted,
    /// Each version of the memory.
    pub(super) memories: Vec<Memory>,
    pub(super) sent: Vec<Sent>,
    /// What clients were told is committed.
    pub(super) acknowledged: Vec<u32>,
    next_id: u32,
    next_uuid: u128,
    /// How often each kind of thing happens in this run.
    pub(super) rates: Vec<u32>,
    /// One in how many things that managers send is late; none if zero.
    pub(super) delays: u8,
    /// Whether to print what happens.
    is_told: bool,
}

impl World {
    pub(super) fn new(seed: u64, bug: Option<Bug>) -> Self {
        let mut rng = Rng::with_seed(seed);
        let instances = [1, 2, 2, 3, 3, 3, 4, 5][rng.usize(..8)];
        let names: Vec<_> = (0..MOST).map(|ordinal| format!("db-{ordinal}")).collect();
        let servers = names.iter().zip(1..).map(|(name, uuid)| Server::new(name.clone(), uuid));
        let mut world = Self {
            bug,
            now: Timestamp::UNIX_EPOCH,
            servers: servers.collect(),
            names,
            pods: vec![None; MOST],
            cuts: BTreeSet::new(),
            unreached: BTreeSet::new(),
            count: instances,
            wanted: Wanted::default(),
            memories: vec![Memory::default()],
            sent: Vec::new(),
            acknowledged: Vec::new(),
            next_id: 0,
            next_uuid: 100,
            rates: Vec::new(),
            delays: 0,
            is_told: std::env::var_os(super::SEED).is_some(),
            rng,
        };
        world.wanted.failover_after = Duration::from_secs(5);
        world.wanted.alone_after = Duration::from_secs(20);
        world.want(instances);
        world
    }

    /// Asks for this many instances.
    pub(super) fn want(&mut self, instances: usize) {
        let most = u32::try_from(instances).unwrap() - 1;
        self.wanted.instances = instances;
        self.wanted.acks = if most == 0 { 0 } else { self.rng.u32(1..=most.min(2)) };
        self.wanted.when_alone =
            if self.rng.u8(..4) == 0 { WhenAlone::Continue } else { WhenAlone::Block };
        self.wanted.primary = None;
        if self.rng.u8(..4) == 0 {
            self.wanted.primary = Some(self.names[self.rng.usize(..instances)].clone());
        }
    }

    /// Prints what happens, if one run is replayed.
    pub(super) fn tell(&self, what: impl FnOnce() -> String) {
        if self.is_told {
            println!("{}", what());
        }
    }

    pub(super) fn planted(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    pub(super) fn memory(&self) -> &Memory {
        self.memories.last().unwrap()
    }

    pub(super) fn place(&self, name: &str) -> usize {
        self.names.iter().position(|known| known == name).unwrap()
    }

    pub(super) fn reaches(&self, a: usize, b: usize) -> bool {
        !self.cuts.contains(&(a.min(b), a.max(b)))
    }

    /// A client writes to this server, if it can.
    pub(super) fn write(&mut self, server: usize) {
        let target = &mut self.servers[server];
        if target.is_open && target.is_up && target.waiting() < 8 {
            self.next_id += 1;
            let told = target.commit(self.next_id);
            self.tell(|| format!("db-{server} writes {}, acknowledged: {told:?}", self.next_id));
            self.acknowledged.extend(told);
        }
    }

    /// A replica connects, or receives one transaction and acknowledges it.
    pub(super) fn receive(&mut self, replica: usize) {
        let Some(source) = self.servers[replica].source else { return };
        let from = source.server;
        if !self.servers[replica].is_up || !source.receives {
            return;
        }
        let is_alive = self.servers[from].is_up && self.reaches(replica, from) && from != replica;
        let run = self.servers[from].run;
        let acknowledges = self.servers[replica].acknowledges;
        let state = self.servers[replica].source.as_mut().unwrap();
        match source.link {
            Some((known, _)) if !is_alive || known != run => state.link = None,
            None if is_alive => {
                state.link = Some((run, acknowledges));
                self.greet(replica, from, acknowledges);
            }
            None => {}
            Some((_, acks)) => match self.servers[from].next_for(&self.servers[replica]) {
                None => {}
                Some(Err(())) => {
                    let state = self.servers[replica].source.as_mut().unwrap();
                    (state.receives, state.is_broken, state.link) = (false, true, None);
                }
                Some(Ok((place, entry))) => {
                    self.servers[replica].relay.push(entry);
                    if acks {
                        let told = self.servers[from].acknowledge(replica, place + 1);
                        self.acknowledged.extend(told);
                    }
                }
            },
        }
    }

    /// A replica that connects acknowledges what it has.
    fn greet(&mut self, replica: usize, from: usize, acknowledges: bool) {
        let upto = match self.servers[from].next_for(&self.servers[replica]) {
            None => self.servers[from].log.len(),
            Some(Ok((place, _))) => place,
            Some(Err(())) => 0,
        };
        if acknowledges {
            let told = self.servers[from].acknowledge(replica, upto);
            self.acknowledged.extend(told);
        }
    }

    pub(super) fn crash(&mut self, server: usize) {
        if self.servers[server].is_up {
            self.tell(|| format!("db-{server} ends"));
            self.servers[server].end();
            if self.planted(Bug::RelayLogForgotten) {
                self.servers[server].relay.clear();
            }
        }
    }

    /// The Pod goes, and its server with it.
    pub(super) fn delete_pod(&mut self, server: usize, why: Option<Why>) {
        if self.planted(Bug::EndReleases) && why == Some(Why::Deposed) {
            let target = &self.servers[server];
            let told = target.log[target.committed..].iter().map(|entry| entry.id);
            self.acknowledged.extend(told);
        }
        self.crash(server);
        self.pods[server] = None;
    }

    /// Kubernetes brings a server back, or takes one away that is too many.
    pub(super) fn boot(&mut self, server: usize) {
        if server >= self.count {
            self.delete_pod(server, None);
            let uuid = self.uuid();
            self.servers[server].lose(uuid);
        } else if !self.servers[server].is_up {
            let template = self.wanted.template.clone();
            self.pods[server].get_or_insert(Pod { template, role: None });
            self.servers[server].start();
        }
    }

    pub(super) fn lose_volume(&mut self, server: usize) {
        self.tell(|| format!("db-{server} loses its volume"));
        self.delete_pod(server, None);
        let uuid = self.uuid();
        self.servers[server].lose(uuid);
    }

    pub(super) fn uuid(&mut self) -> u128 {
        self.next_uuid += 1;
        self.next_uuid
    }

    /// How many members of the memory have lost their data.
    pub(super) fn lost(&self) -> usize {
        let members = self.memory().members.iter();
        members.filter(|member| !self.is_alive(&member.name, &member.uuid)).count()
    }

    /// Whether the data of a member still exists.
    pub(super) fn is_alive(&self, name: &str, uuid: &str) -> bool {
        text(self.servers[self.place(name)].uuid) == uuid
    }
}
