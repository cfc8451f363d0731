//! What happened in a world: evidence for oracles, and a text that must be the same for two runs of
//! one seed.
//!
//! The world, the network and the observers of dispatches write it, never the members.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::{Dispatch, DispatchObserver};
use model::Moment;
use serde_json::Value;

use super::timeline::Timeline;

/// One thing that happened.
#[derive(Clone, Debug)]
pub struct Record {
    /// When it happened, in the world's microseconds.
    pub at_us: u64,
    /// What happened.
    pub event: Event,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A process of this replica began.
    Began(ProcessId, usize),
    /// A process ended: it was killed, left or panicked.
    Ended(ProcessId, &'static str),
    /// A process stopped running.
    Stopped(ProcessId),
    /// A stopped process runs again.
    Resumed(ProcessId),
    /// A reconcile is about to begin.
    Started(ProcessId, Dispatch),
    /// A reconcile ended. Its code was last let run at that time, in the world's microseconds.
    Finished(ProcessId, Dispatch, u64),
    /// A process sent a request.
    Sent(ProcessId, Request),
    /// A server carried out a write.
    Applied(Box<Applied>),
    /// A process got the answer to a request: the status, or 0 for a connection that broke.
    Answered(ProcessId, u64, u16),
    /// A user changed an object of a cluster.
    Edited(Edit),
    /// The configured clusters of a process changed.
    Configured(ProcessId, String),
    /// A fault began or ended.
    Fault(String),
    /// All faults have ended.
    Healed,
}

/// The number of a process, in the order in which they began.
pub type ProcessId = usize;

/// A request as it was sent.
#[derive(Clone, Debug)]
pub struct Request {
    /// Its number, in the order in which requests were sent.
    pub id: u64,
    /// The cluster, by number.
    pub cluster: usize,
    /// The method.
    pub method: http::Method,
    /// Path and query.
    pub path: String,
    /// On whose behalf it was sent.
    pub agent: Agent,
}

/// On whose behalf a request was sent, as its `User-Agent` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agent {
    /// The member; empty unless a reconcile sent it.
    pub member: String,
    /// Its shard.
    pub shard: String,
    /// Its epoch.
    pub epoch: u64,
}

/// A write that a server carried out.
#[derive(Clone, Debug)]
pub struct Applied {
    /// The process that sent it.
    pub process: ProcessId,
    /// The request.
    pub request: Request,
    /// When it was sent.
    pub sent_us: u64,
    /// Its body.
    pub body: Value,
    /// The server's answer, usually the object as it is stored now.
    pub answer: Value,
}

/// A change by a user.
#[derive(Clone, Debug)]
pub struct Edit {
    /// The cluster, by number.
    pub cluster: usize,
    /// `create`, `update` or `delete`.
    pub verb: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// The object's name.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

/// The history while it is written. All that write to it share it and run on one thread.
#[derive(Clone, Debug, Default)]
pub struct History(Arc<Mutex<Vec<Record>>>);

/// Records the dispatches of one process.
#[derive(Debug)]
pub struct Observer {
    /// The process.
    pub process: ProcessId,
    /// Its time.
    pub timeline: Arc<Timeline>,
    /// Where it records them.
    pub history: History,
}

impl History {
    /// Adds an event.
    pub fn add(&self, at_us: u64, event: Event) {
        self.lock().push(Record { at_us, event });
    }

    /// Adds the end of a process. What it would have done after a sleep does not happen.
    pub fn end(&self, process: ProcessId, at_us: u64, how: &'static str) {
        let mut records = self.lock();
        records.retain(|record| record.at_us <= at_us || !record.event.is_of(process));
        records.push(Record { at_us, event: Event::Ended(process, how) });
    }

    /// Everything that happened, in the order of the world's time.
    pub fn take(&self) -> Vec<Record> {
        let mut records = std::mem::take(&mut *self.lock());
        records.sort_by_key(|record| record.at_us);
        records
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Record>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Event {
    /// Whether a process does this, or it happens to it.
    fn is_of(&self, process: ProcessId) -> bool {
        matches!(self, Self::Started(of, _) | Self::Finished(of, ..) | Self::Resumed(of)
            if *of == process)
    }
}

impl DispatchObserver for Observer {
    fn started(&self, dispatch: &Dispatch) {
        let event = Event::Started(self.process, dispatch.clone());
        self.history.add(self.timeline.world_us(), event);
    }

    fn finished(&self, dispatch: &Dispatch, ran: Moment) {
        let ran_us = self.timeline.world_us_of(ran);
        let event = Event::Finished(self.process, dispatch.clone(), ran_us);
        self.history.add(self.timeline.world_us(), event);
    }
}

impl Agent {
    /// Reads `leasehold/<version> (member=...; shard=...; epoch=...; key=...)`.
    pub fn read(text: &str) -> Self {
        let inner = text.split_once('(').map_or("", |(_, rest)| rest.trim_end_matches(')'));
        let mut agent = Self::default();
        for (name, value) in inner.split("; ").filter_map(|pair| pair.split_once('=')) {
            match name {
                "member" => value.clone_into(&mut agent.member),
                "shard" => value.clone_into(&mut agent.shard),
                "epoch" => agent.epoch = value.parse().unwrap_or_default(),
                _ => {}
            }
        }
        agent
    }
}

impl Applied {
    /// The resource's plural, and the object's name if the path has one. Both are empty for objects
    /// without a namespace, which no manager writes.
    pub fn place(&self) -> (&str, &str) {
        let path = self.request.path.split('?').next().unwrap_or_default();
        let (_, inside) = path.split_once("/namespaces/").unwrap_or_default();
        let mut parts = inside.split('/').skip(1);
        (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
    }

    /// The name of the object, which only the answer has for a new one.
    pub fn name(&self) -> &str {
        match self.place().1 {
            "" => self.answer["metadata"]["name"].as_str().unwrap_or_default(),
            named => named,
        }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (s, us) = (self.at_us / 1_000_000, self.at_us % 1_000_000);
        write!(f, "{s:>3}.{us:06} ")?;
        match &self.event {
            Event::Began(p, replica) => write!(f, "p{p} begins as replica-{replica}"),
            Event::Ended(p, how) => write!(f, "p{p} ended: {how}"),
            Event::Stopped(p) => write!(f, "p{p} stopped"),
            Event::Resumed(p) => write!(f, "p{p} resumed"),
            Event::Started(p, run) => {
                let Dispatch { member, shard, epoch, key, .. } = run;
                write!(f, "p{p} run {key} as {member} for {shard} at {epoch}")
            }
            Event::Finished(p, run, _) => write!(f, "p{p} end {} at {}", run.key, run.epoch),
            Event::Sent(p, Request { id, cluster, method, path, .. }) => {
                write!(f, "p{p} #{id} to c{cluster}: {method} {path}")
            }
            Event::Applied(applied) => {
                let Request { id, cluster, method, .. } = &applied.request;
                let version = &applied.answer["metadata"]["resourceVersion"];
                let (plural, name) = applied.place();
                write!(f, "c{cluster} #{id} applied: {method} {plural} {name} {version}")
            }
            Event::Answered(p, id, status) => write!(f, "p{p} #{id} answered: {status}"),
            Event::Edited(Edit { cluster, verb, kind, name, .. }) => {
                write!(f, "c{cluster} user: {verb} {kind} {name}")
            }
            Event::Configured(p, clusters) => write!(f, "p{p} configured: {clusters}"),
            Event::Fault(text) => write!(f, "-- {text}"),
            Event::Healed => f.write_str("-- healed"),
        }
    }
}
