//! The tracker: measures from outside, with its own watches, how long changes take to converge.
//!
//! A change is *written* when its request is sent, and *converged* when a watch shows that the
//! status of the object has observed its generation and is Ready. [`Tracker`] is pure;
//! [`watch_cluster`] does the IO.

use std::collections::HashMap;
use std::time::Duration;

use futures::TryStreamExt;
use hdrhistogram::Histogram;
use kube::Api;
use kube::api::{DynamicObject, ListParams, WatchEvent, WatchParams};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::tdset::{self, Key};

/// The longest latency that is recorded as such, in milliseconds: ten minutes.
const MAX_LATENCY_MS: u64 = 600_000;
/// The pause before a broken watch is opened again.
const REWATCH_PAUSE: Duration = Duration::from_millis(200);
/// How many objects are named if some did not converge.
const EXAMPLES: usize = 5;

/// What happened to an object. Times are since the start of the run.
#[derive(Debug)]
pub enum Fact {
    /// A create or update was sent at `at` and accepted with this generation.
    Written {
        /// Which object.
        key: Key,
        /// The generation in the server's answer.
        generation: i64,
        /// When the request was sent.
        at: Duration,
    },
    /// A deletion was accepted.
    Deleted {
        /// Which object.
        key: Key,
    },
    /// A watch showed that the object is Ready at `generation`.
    Ready {
        /// Which object.
        key: Key,
        /// The generation that is Ready.
        generation: i64,
        /// When the event was read.
        at: Duration,
    },
}

/// A message to the tracker's task.
#[derive(Debug)]
pub enum Message {
    /// Something happened.
    Fact(Fact),
    /// A request for what was measured since the last such request.
    Measure(oneshot::Sender<Measured>),
}

/// What was measured up to a moment.
#[derive(Debug)]
pub struct Measured {
    /// Changes that were written and have not converged.
    pub pending: usize,
    /// Some of their objects.
    pub examples: Vec<Key>,
    /// Milliseconds from change to convergence, since the last measurement.
    pub latencies_ms: Histogram<u64>,
}

impl Measured {
    /// Adds a later measurement to this one.
    ///
    /// # Errors
    /// Only if the histograms have different bounds.
    pub fn absorb(&mut self, later: Measured) -> Result<(), hdrhistogram::AdditionError> {
        self.pending = later.pending;
        self.examples = later.examples;
        self.latencies_ms.add(later.latencies_ms)
    }
}

/// What is known of one object.
#[derive(Debug, Default)]
struct Entry {
    /// Changes that have not converged: the generation, and when it was written.
    pending: Vec<(i64, Duration)>,
    /// The highest generation that was Ready, and when that was first seen.
    ready: Option<(i64, Duration)>,
}

/// Latencies, and the changes that have not converged.
#[derive(Debug)]
pub struct Tracker {
    objects: HashMap<Key, Entry>,
    pending: usize,
    latencies_ms: Histogram<u64>,
}

impl Default for Tracker {
    fn default() -> Self {
        let latencies_ms = Histogram::new_with_bounds(1, MAX_LATENCY_MS, 3)
            .expect("the bounds are constants that hdrhistogram accepts");
        Self { objects: HashMap::new(), pending: 0, latencies_ms }
    }
}

impl Tracker {
    /// Records a fact. Facts come in any order: a watch may be faster than the answer to the write.
    pub fn apply(&mut self, fact: Fact) {
        let entry = match fact {
            Fact::Deleted { key } => {
                if let Some(entry) = self.objects.remove(&key) {
                    self.pending -= entry.pending.len();
                }
                return;
            }
            Fact::Written { key, generation, at } => {
                self.pending += 1;
                let entry = self.objects.entry(key).or_default();
                entry.pending.push((generation, at));
                entry
            }
            Fact::Ready { key, generation, at } => {
                let entry = self.objects.entry(key).or_default();
                if entry.ready.is_none_or(|(seen, _)| generation > seen) {
                    entry.ready = Some((generation, at));
                }
                entry
            }
        };
        let Some((ready, seen_at)) = entry.ready else { return };
        let latencies = &mut self.latencies_ms;
        let before = entry.pending.len();
        entry.pending.retain(|&(generation, written_at)| {
            let converged = generation <= ready;
            if converged {
                let ms = seen_at.saturating_sub(written_at).as_millis();
                latencies.saturating_record(u64::try_from(ms).unwrap_or(MAX_LATENCY_MS).max(1));
            }
            !converged
        });
        self.pending -= before - entry.pending.len();
    }

    /// How many changes have not converged.
    pub fn pending(&self) -> usize {
        self.pending
    }

    /// Handles a message.
    pub fn handle(&mut self, message: Message) {
        match message {
            Message::Fact(fact) => self.apply(fact),
            // The receiver may have been dropped.
            Message::Measure(reply) => drop(reply.send(self.measure())),
        }
    }

    /// What was measured since the last call.
    pub fn measure(&mut self) -> Measured {
        let empty = Histogram::new_from(&self.latencies_ms);
        let waiting = self.objects.iter().filter(|(_, entry)| !entry.pending.is_empty());
        Measured {
            pending: self.pending,
            examples: waiting.map(|(key, _)| key.clone()).take(EXAMPLES).collect(),
            latencies_ms: std::mem::replace(&mut self.latencies_ms, empty),
        }
    }
}

/// Watches the TDSets of one cluster, and reports those that are Ready until the receiver closes.
pub async fn watch_cluster(
    cluster: String,
    api: Api<DynamicObject>,
    started: Instant,
    messages: mpsc::Sender<Message>,
) {
    let mut version: Option<String> = None;
    while !messages.is_closed() {
        if let Err(error) = watch_once(&cluster, &api, &mut version, started, &messages).await {
            tracing::debug!(cluster, error = %error, "watch of TDSets broke; opening it again");
            version = None;
            tokio::time::sleep(REWATCH_PAUSE).await;
        }
    }
}

async fn watch_once(
    cluster: &str,
    api: &Api<DynamicObject>,
    version: &mut Option<String>,
    started: Instant,
    messages: &mpsc::Sender<Message>,
) -> Result<(), kube::Error> {
    let from = match version.take() {
        Some(version) => version,
        None => {
            let list = api.list(&ListParams::default()).await?;
            for object in &list.items {
                report(cluster, object, started, messages).await;
            }
            list.metadata.resource_version.unwrap_or_default()
        }
    };
    let mut last = from.clone();
    let events = api.watch(&WatchParams::default(), &from).await?;
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.try_next().await? {
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                report(cluster, &object, started, messages).await;
                last = object.metadata.resource_version.unwrap_or(last);
            }
            WatchEvent::Deleted(object) => {
                last = object.metadata.resource_version.unwrap_or(last);
            }
            WatchEvent::Bookmark(bookmark) => last = bookmark.metadata.resource_version,
            WatchEvent::Error(status) => return Err(kube::Error::Api(status)),
        }
    }
    *version = Some(last);
    Ok(())
}

async fn report(
    cluster: &str,
    object: &DynamicObject,
    started: Instant,
    messages: &mpsc::Sender<Message>,
) {
    if let Some(generation) = tdset::ready_generation(object) {
        let key = tdset::key(cluster, object);
        // A closed receiver means that the run is over.
        let fact = Fact::Ready { key, generation, at: started.elapsed() };
        let _ = messages.send(Message::Fact(fact)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn written(generation: i64, at: u64) -> Fact {
        Fact::Written { key: "k".into(), generation, at: ms(at) }
    }

    fn ready(generation: i64, at: u64) -> Fact {
        Fact::Ready { key: "k".into(), generation, at: ms(at) }
    }

    fn check(facts: Vec<Fact>, pending: usize, latencies: &[u64]) {
        let mut tracker = Tracker::default();
        facts.into_iter().for_each(|fact| tracker.apply(fact));
        let recorded: Vec<u64> =
            tracker.measure().latencies_ms.iter_recorded().map(|v| v.value_iterated_to()).collect();
        assert_eq!((tracker.pending(), recorded.as_slice()), (pending, latencies));
    }

    #[test]
    fn a_change_converges_when_its_generation_is_ready() {
        check(vec![written(1, 10), ready(1, 40)], 0, &[30]);
        check(vec![written(2, 10), ready(1, 40)], 1, &[]);
    }

    #[test]
    fn a_change_that_a_watch_showed_before_its_answer_converged_then() {
        check(vec![ready(1, 40), written(1, 10)], 0, &[30]);
    }

    #[test]
    fn one_event_shows_that_every_older_change_converged() {
        check(vec![written(1, 0), written(2, 20), ready(2, 50)], 0, &[30, 50]);
    }

    #[test]
    fn repeated_events_count_once() {
        check(vec![written(1, 0), ready(1, 50), ready(1, 90)], 0, &[50]);
    }

    #[test]
    fn changes_of_a_deleted_object_are_not_pending() {
        check(vec![written(1, 0), Fact::Deleted { key: "k".into() }], 0, &[]);
    }
}
