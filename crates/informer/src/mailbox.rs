//! What waits for one subscriber. What waits of one object is one event, so that a subscriber that is slow
//! holds up neither the informer nor the other subscribers.
//!
//! # Invariants
//! - Of one object there waits at most one upsert, from what the subscriber knows to the newest state, with a
//!   delete before or after it. So nothing is lost that a subscriber must act on: what an object was in
//!   between, it never was for this subscriber (L2).
//! - An object that came anew is told as new, after the delete of what the subscriber knows of it: it may belong
//!   to a range that was gained again, whose objects are all queued whatever changed.
//! - Markers stay behind the events that came before them.
//! - An informer waits for a subscriber for [`PATIENCE`] at most, and not again before the subscriber has caught
//!   up, while fewer objects wait than [`SUBSCRIBER_BUFFER`] and those of its store. Beyond that, as when
//!   objects come and go for ever, it waits: this bounds how many wait for one subscriber.
//! - States of objects that only a mailbox keeps, because the store has newer ones or none, count against the budget
//!   of the cluster, for each mailbox. Places count with the store's objects, as those in queues do (B1).

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cache::{LocalKey, StoreSize, Uid};
use extent::Part;
use tokio::sync::Notify;

use crate::{Change, Event, InformerState};

/// Events that wait for a subscriber before it counts as slow.
pub(crate) const SUBSCRIBER_BUFFER: usize = 256;
/// How long the informer waits for one with so many.
const PATIENCE: Duration = Duration::from_millis(100);

/// What waits may take so many bytes more or less than are charged: all clusters share one ledger.
const UNCHARGED_BYTES: usize = 64 << 10;

/// The informer's end: it ends the subscription when it is dropped.
#[derive(Debug)]
pub(crate) struct Sender(Arc<Mailbox>);

/// The subscriber's end.
#[derive(Debug)]
pub struct Subscription(Arc<Mailbox>);

#[derive(Debug)]
struct Mailbox {
    state: Arc<InformerState>,
    waiting: Mutex<Waiting>,
    arrived: Notify,
    room: Notify,
}

#[derive(Debug)]
struct Waiting {
    order: VecDeque<Slot>,
    objects: HashMap<Object, OfObject>,
    /// Bytes of what only this keeps.
    bytes: usize,
    charge: Charge,
    /// Whether the informer waits for it no more until it has caught up.
    is_slow: bool,
    is_ended: bool,
    is_closed: bool,
}

/// What an object is known by here. A server may give two objects one uid.
type Object = (Uid, LocalKey);

#[derive(Debug)]
enum Slot {
    Object(Object),
    /// One that is of no object.
    Marker(Event),
}

/// What waits of one object: an upsert, a delete, or both in either order.
#[derive(Debug)]
struct OfObject {
    first: Event,
    then: Option<Event>,
}

/// What the cluster is charged for a mailbox.
#[derive(Debug)]
struct Charge {
    bytes: usize,
    part: Part,
}

/// The informer has stopped.
struct Ended;

/// A mailbox for events of an informer, with a part of its cluster's account.
pub(crate) fn mailbox(state: &Arc<InformerState>, part: Part) -> (Sender, Subscription) {
    let mailbox = Arc::new(Mailbox {
        state: Arc::clone(state),
        waiting: Mutex::new(Waiting::new(part)),
        arrived: Notify::new(),
        room: Notify::new(),
    });
    (Sender(Arc::clone(&mailbox)), Subscription(mailbox))
}

impl Sender {
    /// Sends an event. Returns whether the subscriber is still there.
    pub(crate) async fn send(&self, event: Event) -> bool {
        // There may be room for all objects of a large store: the other tasks of this thread get their turns.
        tokio::task::consume_budget().await;
        let unmerged = self.0.lock().merge(event);
        let Some(event) = unmerged else { return true };
        if !self.0.is_below(SUBSCRIBER_BUFFER) {
            // In a box, because it is rare and every informer has room for it otherwise.
            Box::pin(self.0.make_room()).await;
        }
        self.0.push(event)
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.0.lock().is_ended = true;
        self.0.arrived.notify_one();
    }
}

impl Subscription {
    /// The next event; `None` once the informer has stopped.
    pub async fn next(&mut self) -> Option<Event> {
        tokio::task::consume_budget().await;
        loop {
            match self.0.take() {
                Some(Ok(event)) => return Some(event),
                Some(Err(Ended)) => return None,
                None => self.0.arrived.notified().await,
            }
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut waiting = self.0.lock();
        waiting.is_closed = true;
        self.0.state.queued.fetch_sub(waiting.order.len(), Ordering::Relaxed);
        (waiting.order, waiting.objects, waiting.bytes) = Default::default();
        waiting.settle();
        drop(waiting);
        self.0.room.notify_one();
    }
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next event, if one waits, or that there will be none.
    fn take(&self) -> Option<Result<Event, Ended>> {
        let mut waiting = self.lock();
        let before = waiting.order.len();
        let Some(event) = waiting.pop() else { return waiting.is_ended.then_some(Err(Ended)) };
        let taken = before - waiting.order.len();
        self.state.queued.fetch_sub(taken, Ordering::Relaxed);
        self.room.notify_one();
        Some(Ok(event))
    }

    /// Puts an event behind those that wait. Returns whether the subscriber is still there.
    fn push(&self, event: Event) -> bool {
        let mut waiting = self.lock();
        if waiting.is_closed {
            return false;
        }
        waiting.push(event);
        self.state.queued.fetch_add(1, Ordering::Relaxed);
        self.arrived.notify_one();
        true
    }

    /// Whether fewer events wait, or the subscriber is gone.
    fn is_below(&self, most: usize) -> bool {
        let waiting = self.lock();
        waiting.is_closed || waiting.order.len() < most
    }

    /// Waits until one more event may wait, where [`SUBSCRIBER_BUFFER`] do already.
    async fn make_room(&self) {
        let is_slow = self.lock().is_slow;
        if !is_slow {
            let caught_up = tokio::time::timeout(PATIENCE, self.below(SUBSCRIBER_BUFFER)).await;
            self.lock().is_slow = caught_up.is_err();
        }
        self.below(SUBSCRIBER_BUFFER + self.state.store.len()).await;
    }

    /// Waits until fewer events wait, or the subscriber is gone.
    async fn below(&self, most: usize) {
        while !self.is_below(most) {
            // Only the informer waits for it, so no notification is lost.
            self.room.notified().await;
        }
    }
}

impl Waiting {
    fn new(part: Part) -> Self {
        let (order, objects) = (VecDeque::new(), HashMap::new());
        let charge = Charge { bytes: 0, part };
        Self { order, objects, bytes: 0, charge, is_slow: false, is_ended: false, is_closed: false }
    }

    /// Charges the cluster for what waits now, if that differs by enough.
    fn settle(&mut self) {
        let Charge { bytes, part } = &mut self.charge;
        let differs = bytes.abs_diff(self.bytes);
        if differs >= UNCHARGED_BYTES || self.bytes == 0 && differs > 0 {
            *bytes = self.bytes;
            let size = StoreSize { cache_bytes: *bytes, ..StoreSize::default() };
            // The ledger says it to the supervisor, and to the informer with the next object.
            let _ = part.takes(size);
        }
    }

    /// Makes an event and what waits of its object one. Returns the event if nothing waits.
    fn merge(&mut self, event: Event) -> Option<Event> {
        let Some(object) = object(&event.change) else { return Some(event) };
        let Some(waiting) = self.objects.get_mut(&object) else { return Some(event) };
        let before = waiting.bytes();
        waiting.merge(event);
        self.bytes = self.bytes - before + waiting.bytes();
        self.settle();
        None
    }

    /// Puts an event, of whose object nothing waits, behind the others.
    fn push(&mut self, event: Event) {
        let slot = match object(&event.change) {
            Some(object) => {
                self.insert(object.clone(), event);
                Slot::Object(object)
            }
            None => Slot::Marker(event),
        };
        self.order.push_back(slot);
        self.settle();
    }

    fn insert(&mut self, object: Object, first: Event) {
        let waiting = OfObject { first, then: None };
        self.bytes += waiting.bytes();
        self.objects.insert(object, waiting);
    }

    fn pop(&mut self) -> Option<Event> {
        let event = match self.order.pop_front()? {
            Slot::Marker(event) => event,
            Slot::Object(object) => {
                let waiting = self.objects.remove(&object)?;
                self.bytes -= waiting.bytes();
                let OfObject { first, then } = waiting;
                if let Some(then) = then {
                    self.order.push_front(Slot::Object(object.clone()));
                    self.insert(object, then);
                }
                first
            }
        };
        self.is_slow &= self.order.len() > SUBSCRIBER_BUFFER / 2;
        self.settle();
        Some(event)
    }
}

impl OfObject {
    /// Takes in what came after.
    fn merge(&mut self, mut event: Event) {
        let last = self.then.as_mut().unwrap_or(&mut self.first);
        match (&mut event.change, &last.change) {
            (Change::Upsert { old: old @ Some(_), .. }, Change::Upsert { old: known, .. }) => {
                old.clone_from(known);
                event.priority = event.priority.min(last.priority);
                event.received = event.received.min(last.received);
                if !last.span.is_disabled() {
                    event.span = last.span.clone();
                }
                *last = event;
            }
            (Change::Upsert { .. }, _) => *self = self.anew(event),
            // After a delete, the subscriber has heard nothing of what is deleted now.
            _ => self.then = matches!(self.first.change, Change::Upsert { .. }).then_some(event),
        }
    }

    /// Bytes of the states that the store has no more.
    fn bytes(&self) -> usize {
        let before = |event: &Event| match &event.change {
            Change::Upsert { old: Some(old), .. } | Change::Delete { old } => old.bytes(),
            _ => 0,
        };
        let passed = match (&self.first.change, &self.then) {
            (Change::Upsert { new, .. }, Some(_)) => new.bytes(),
            _ => 0,
        };
        before(&self.first) + passed + self.then.as_ref().map_or(0, before)
    }

    /// The object came anew: what the subscriber knows of it was deleted before.
    fn anew(&self, event: Event) -> Self {
        let (Change::Upsert { old: Some(known), .. } | Change::Delete { old: known }) =
            &self.first.change
        else {
            return Self { first: event, then: None };
        };
        let change = Change::Delete { old: Arc::clone(known) };
        Self { first: Event { change, ..self.first.clone() }, then: Some(event) }
    }
}

/// The object that a change is of.
fn object(change: &Change) -> Option<Object> {
    match change {
        Change::Upsert { new: entry, .. } | Change::Delete { old: entry } => {
            Some((entry.header.uid.clone(), entry.header.key.clone()))
        }
        Change::Synced(_) | Change::Absent(..) => None,
    }
}
