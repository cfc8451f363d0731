//! A server of the model: what of mysqld matters for what is lost and what is not.

use std::collections::BTreeMap;

use crate::gtid::GtidSet;
use crate::server::{Following, Look, Order, Receives};

/// A transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) uuid: u128,
    pub(super) number: u64,
    /// What it is, whatever number it was given.
    pub(super) id: u32,
}

/// Whom a server follows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    pub(super) server: usize,
    pub(super) receives: bool,
    pub(super) applies: bool,
    /// It misses transactions that the source has purged.
    pub(super) is_broken: bool,
    /// The run of the source that it is connected to, and whether it acknowledges there.
    pub(super) link: Option<(u32, bool)>,
}

/// A server. What is durable stays when it restarts.
#[derive(Clone, Debug, Default)]
pub(super) struct Server {
    pub(super) name: String,
    pub(super) uuid: u128,
    numbered: u64,
    /// The binary log. What is beyond `committed` waits for acknowledgements.
    pub(super) log: Vec<Entry>,
    pub(super) committed: usize,
    /// How much of the log is there only as data.
    purged: usize,
    /// Received and not applied.
    pub(super) relay: Vec<Entry>,
    pub(super) waits_for: u32,
    pub(super) acknowledges: bool,
    pub(super) source: Option<Source>,
    pub(super) is_open: bool,
    /// Up to where in the log others have acknowledged.
    acks: BTreeMap<usize, usize>,
    pub(super) is_up: bool,
    /// Which run of the process this is.
    pub(super) run: u32,
    /// The session that has the lock.
    pub(super) lock: Option<u64>,
}

impl Server {
    pub(super) fn new(name: String, uuid: u128) -> Self {
        Self { name, uuid, waits_for: 1, ..Self::default() }
    }

    pub(super) fn waiting(&self) -> usize {
        self.log.len() - self.committed
    }

    pub(super) fn has(&self, id: u32) -> bool {
        self.log.iter().any(|entry| entry.id == id)
    }

    fn knows(&self, entry: &Entry) -> bool {
        let same = |known: &Entry| known.uuid == entry.uuid && known.number == entry.number;
        self.log.iter().any(same) || self.relay.iter().any(same)
    }

    /// A client commits. Says which transactions are acknowledged to clients by that.
    pub(super) fn commit(&mut self, id: u32) -> Vec<u32> {
        self.numbered += 1;
        self.log.push(Entry { uuid: self.uuid, number: self.numbered, id });
        self.release()
    }

    /// Commits what enough have acknowledged.
    fn release(&mut self) -> Vec<u32> {
        let mut released = Vec::new();
        while self.committed < self.log.len() {
            let given = self.acks.values().filter(|upto| **upto > self.committed).count();
            if given < self.waits_for as usize {
                break;
            }
            released.push(self.log[self.committed].id);
            self.committed += 1;
        }
        released
    }

    /// A replica has all of the log up to here.
    pub(super) fn acknowledge(&mut self, replica: usize, upto: usize) -> Vec<u32> {
        let known = self.acks.entry(replica).or_default();
        *known = upto.max(*known);
        self.release()
    }

    /// The first transaction that the follower lacks: where it is in the log, or that it was purged.
    pub(super) fn next_for(&self, follower: &Self) -> Option<Result<(usize, Entry), ()>> {
        let (place, entry) =
            self.log.iter().enumerate().find(|(_, entry)| !follower.knows(entry))?;
        Some(if place < self.purged { Err(()) } else { Ok((place, *entry)) })
    }

    /// Applies one transaction, unless its commit would wait for replicas.
    pub(super) fn apply(&mut self) {
        let applies = self.is_up && self.source.is_some_and(|source| source.applies);
        if applies && self.waits_for == 0 && !self.relay.is_empty() {
            self.log.push(self.relay.remove(0));
            self.committed = self.log.len();
        }
    }

    /// The process ends by SIGKILL.
    pub(super) fn end(&mut self) {
        self.is_up = false;
        self.is_open = false;
        self.lock = None;
        self.acks.clear();
        // What is in the log is committed by recovery.
        self.committed = self.log.len();
        if let Some(source) = &mut self.source {
            *source = Source { receives: false, applies: false, link: None, ..*source };
        }
    }

    pub(super) fn start(&mut self) {
        self.is_up = true;
        self.run += 1;
    }

    /// All data is gone: an empty server starts next.
    pub(super) fn lose(&mut self, uuid: u128) {
        *self = Self { run: self.run, ..Self::new(self.name.clone(), uuid) };
    }

    /// Takes another's data.
    pub(super) fn clone_from_donor(&mut self, donor: &Self, uuid: u128) {
        let (acknowledges, numbered) = (self.acknowledges, self.numbered);
        let kept_number = if uuid == self.uuid { numbered } else { 0 };
        self.lose(uuid);
        self.log = donor.log[..donor.committed].to_vec();
        self.committed = self.log.len();
        self.purged = self.log.len();
        self.acknowledges = acknowledges;
        let own = self.log.iter().filter(|entry| entry.uuid == uuid);
        self.numbered = own.map(|entry| entry.number).max().unwrap_or(0).min(kept_number);
        self.start();
    }

    /// Does what it is told, but for cloning. Says which transactions are acknowledged by that.
    pub(super) fn obey(&mut self, order: &Order, server_of: impl Fn(&str) -> usize) -> Vec<u32> {
        match order {
            Order::Close if self.waiting() == 0 => self.is_open = false,
            Order::Close | Order::CloneFrom(_) => {}
            Order::Open => self.is_open = true,
            Order::WaitFor(count) => {
                self.waits_for = *count;
                return self.release();
            }
            Order::Acknowledge(acks) => self.acknowledges = *acks,
            Order::Follow(name) => {
                let server = server_of(name);
                if self.source.is_none_or(|source| source.server != server) {
                    self.relay.clear();
                }
                let (receives, applies) = (true, true);
                self.source =
                    Some(Source { server, receives, applies, is_broken: false, link: None });
            }
            Order::StopReceiving => {
                if let Some(source) = &mut self.source {
                    *source = Source { receives: false, applies: true, link: None, ..*source };
                }
            }
            Order::FollowNobody => {
                self.relay.clear();
                self.source = None;
            }
        }
        Vec::new()
    }

    /// What it says of itself.
    pub(super) fn look(&self, followers: u32, names: &[String]) -> Look {
        let set =
            |entries: &[Entry]| GtidSet::of(entries.iter().map(|entry| (entry.uuid, entry.number)));
        let executed = set(&self.log[..self.committed]);
        let received = executed.union(&set(&self.relay));
        let following = self.source.map(|source| Following {
            source: names[source.server].clone(),
            receives: match (source.receives, source.link) {
                (false, _) => Receives::Stopped,
                (true, None) => Receives::Connecting,
                (true, Some(_)) => Receives::Connected,
            },
            applies: source.applies,
            trouble: source.is_broken.then(|| "purged".to_owned()),
        });
        Look {
            uuid: text(self.uuid),
            version: "8.4.3".to_owned(),
            executed,
            received,
            pending: set(&self.log[self.committed..]),
            is_writable: self.is_open,
            waits_for: self.waits_for,
            followers,
            waiting: u32::try_from(self.waiting()).unwrap(),
            acknowledges: self.acknowledges,
            following,
        }
    }
}

/// A uuid as MySQL prints it.
pub(super) fn text(uuid: u128) -> String {
    format!("00000000-0000-0000-0000-{uuid:012x}")
}
