//! One shard's part of a queue: the keys that wait under it, ready or delayed.
//!
//! A key that waits has a *place*, an index into a slab, from when it begins to wait until it is
//! given out or its shard is closed. It is hashed once, when it comes in: the lines of ready keys and
//! the delayed ones of all shards name places.

use std::collections::VecDeque;

use hashbrown::HashTable;
use model::{Epoch, Moment, ObjectKey, Range, ShardId};
use slab::Slab;
use tracing::Span;

use super::priority::Priority;

/// Room for so many keys is kept when none waits.
const KEPT: usize = 4096;

/// Tells routes apart over time: a shard that is lost and regained gets a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RouteId(pub(super) u64);

/// Where a key waits in its route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u32);

/// A key and its hash: that of its namespace and name, for all keys of a lane are of one cluster.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hashed<'a> {
    pub(super) key: &'a ObjectKey,
    pub(super) hash: u64,
}

/// One shard held at one epoch.
#[derive(Debug)]
pub(super) struct Route<T> {
    pub(super) id: RouteId,
    pub(super) shard: ShardId,
    pub(super) epoch: Epoch,
    pub(super) tenure: T,
    /// Since when keys are given out.
    opened: Option<Moment>,
    waiting: Slab<Waiting>,
    places: HashTable<Place>,
    /// Ready keys by priority. A key that rose leaves its place behind; the token tells.
    lines: [VecDeque<(u64, Place)>; 4],
    ready: [usize; 4],
}

/// A reason to run a key.
#[derive(Debug)]
pub(super) struct Nudge {
    pub(super) priority: Priority,
    /// Whether a retry came due.
    pub(super) retry: bool,
    /// The span of the cause.
    pub(super) span: Span,
}

/// A key's wake-up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wake {
    pub(super) at: Moment,
    pub(super) token: u64,
    pub(super) priority: Priority,
}

/// A key that waits, or did until now.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) key: ObjectKey,
    pub(super) hash: u64,
    pub(super) ready: Option<Ready>,
    pub(super) wake: Option<Wake>,
    pub(super) failures: u32,
}

/// Since when a key is ready, and why.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) priority: Priority,
    token: u64,
    pub(super) since: Moment,
    pub(super) span: Span,
    pub(super) retry: bool,
}

impl<T> Route<T> {
    pub(super) fn new(id: RouteId, shard: ShardId, epoch: Epoch, tenure: T) -> Self {
        Self {
            id,
            shard,
            epoch,
            tenure,
            opened: None,
            waiting: Slab::new(),
            places: HashTable::new(),
            lines: Default::default(),
            ready: [0; 4],
        }
    }

    /// Begins to give keys out. Gives how many became ready by that.
    pub(super) fn open(&mut self, now: Moment) -> u64 {
        if self.opened.is_some() {
            return 0;
        }
        self.opened = Some(now);
        self.ready.iter().sum::<usize>() as u64
    }

    /// Whether it takes a key: by its hash, or, for want of one, if it is the whole cluster's.
    pub(super) fn takes(&self, hash: Option<u64>) -> bool {
        match hash {
            Some(hash) => self.shard.range.contains(hash),
            None => self.shard.range == Range::WHOLE,
        }
    }

    /// Since when keys are given out.
    pub(super) fn opened(&self) -> Option<Moment> {
        self.opened
    }

    /// Ready keys by priority.
    pub(super) fn ready(&self) -> [usize; 4] {
        self.ready
    }

    pub(super) fn wakes(&self) -> impl Iterator<Item = Wake> {
        self.waiting.iter().filter_map(|(_, waiting)| waiting.wake)
    }

    pub(super) fn has_ready(&self) -> bool {
        self.opened.is_some() && self.ready.iter().any(|ready| *ready > 0)
    }

    /// Since when the key is ready that is ready longest.
    pub(super) fn oldest(&self) -> Option<Moment> {
        let opened = self.opened?;
        let first = |line: &VecDeque<(u64, Place)>| {
            line.iter().find_map(|(token, place)| self.is_ready(*place, *token)).map(|r| r.since)
        };
        self.lines.iter().filter_map(first).min().map(|since| since.max(opened))
    }

    /// Where a key waits.
    pub(super) fn place(&self, key: Hashed<'_>) -> Option<Place> {
        self.places.find(key.hash, |place| self.is_at(*place, key)).copied()
    }

    /// Where a key waits, from now on if it did not. `None` if it would be one more than `limit`.
    pub(super) fn place_or_new(&mut self, key: Hashed<'_>, limit: usize) -> Option<Place> {
        if let Some(place) = self.place(key) {
            return Some(place);
        }
        if self.waiting.len() >= limit {
            return None;
        }
        let Hashed { key, hash } = key;
        let waiting = Waiting { key: key.clone(), hash, ready: None, wake: None, failures: 0 };
        let place = u32::try_from(self.waiting.insert(waiting));
        let place = Place(place.expect("fewer keys wait than there are addresses of their places"));
        let rehash = |place: &Place| self.waiting[place.0 as usize].hash;
        self.places.insert_unique(hash, place, rehash);
        Some(place)
    }

    /// Makes a key ready, or more urgent if it is. Gives whether it became ready to be given out.
    pub(super) fn make_ready(
        &mut self,
        place: Place,
        nudge: Nudge,
        token: u64,
        now: Moment,
    ) -> bool {
        let Nudge { priority, retry, span } = nudge;
        let Waiting { key, ready, .. } = &mut self.waiting[place.0 as usize];
        match ready {
            Some(ready) => {
                ready.retry |= retry;
                link(&mut ready.span, &span, key);
                if priority >= ready.priority {
                    return false;
                }
                self.ready[ready.priority as usize] -= 1;
                ready.priority = priority;
                ready.token = token;
            }
            None => {
                let span = queue_span(&span, key);
                *ready = Some(Ready { priority, token, since: now, span, retry });
            }
        }
        self.ready[priority as usize] += 1;
        self.lines[priority as usize].push_back((token, place));
        self.opened.is_some()
    }

    /// Lets a key wait for a wake-up. Gives the one it replaces.
    pub(super) fn delay(&mut self, place: Place, failures: u32, wake: Wake) -> Option<Wake> {
        let waiting = &mut self.waiting[place.0 as usize];
        waiting.failures = failures;
        waiting.wake.replace(wake)
    }

    /// Takes the wake-up with this token of what waits at a place.
    pub(super) fn take_wake(&mut self, place: Place, token: u64) -> Option<Wake> {
        self.waiting.get_mut(place.0 as usize)?.wake.take_if(|wake| wake.token == token)
    }

    /// Where the next ready key stands, after places left behind are cleared away.
    pub(super) fn front(&mut self) -> Option<(Priority, u64)> {
        self.opened?;
        for priority in Priority::ALL {
            while let Some((token, place)) = self.lines[priority as usize].front().copied() {
                if self.is_ready(place, token).is_some() {
                    return Some((priority, token));
                }
                self.lines[priority as usize].pop_front();
            }
        }
        None
    }

    /// Takes the key that [`Self::front`] found.
    pub(super) fn take_front(&mut self) -> Option<Waiting> {
        let (priority, _) = self.front()?;
        let (_, place) = self.lines[priority as usize].pop_front()?;
        self.ready[priority as usize] -= 1;
        let waiting = self.waiting.remove(place.0 as usize);
        let found = self.places.find_entry(waiting.hash, |found| *found == place);
        found.expect("a key that waits has its place in the table").remove();
        self.give_back();
        Some(waiting)
    }

    /// Gives back the memory of a crowd that is gone.
    fn give_back(&mut self) {
        if self.waiting.is_empty() && self.waiting.capacity() > KEPT {
            self.waiting = Slab::new();
            self.places = HashTable::new();
            // What is left in them are places left behind.
            self.lines = Default::default();
        }
    }

    /// What is ready at a place, if it became so by this token.
    fn is_ready(&self, place: Place, token: u64) -> Option<&Ready> {
        let ready = self.waiting.get(place.0 as usize)?.ready.as_ref()?;
        (ready.token == token).then_some(ready)
    }

    fn is_at(&self, place: Place, Hashed { key, hash }: Hashed<'_>) -> bool {
        let waiting = &self.waiting[place.0 as usize];
        waiting.hash == hash && same(&waiting.key, key)
    }
}

/// Whether two keys of one cluster are the same.
pub(super) fn same(one: &ObjectKey, other: &ObjectKey) -> bool {
    one.name == other.name && one.namespace == other.namespace
}

/// The span of a key's wait. Without a cause there is none: the first look at everything makes no
/// trace.
fn queue_span(cause: &Span, key: &ObjectKey) -> Span {
    if cause.is_disabled() {
        return Span::none();
    }
    tracing::info_span!(
        parent: cause,
        "queue",
        cluster = %key.cluster,
        key = %key,
        otel.kind = "internal",
    )
}

/// A second cause joins the first: the trace of the first goes on and refers to the second.
///
/// Only the span of a key's wait ever refers to others, and only to causes, which refer to none:
/// the exporter locks both ends of a reference, so a span that refers to itself, or two that refer
/// to each other, would stop the thread for good.
fn link(waiting: &mut Span, cause: &Span, key: &ObjectKey) {
    if waiting.is_disabled() {
        *waiting = queue_span(cause, key);
    } else {
        waiting.follows_from(cause.id());
    }
}
