//! The tracker: measures from outside, with its own watches, how long changes take to converge.
//!
//! A change counts from when it was *due*, and has *converged* when a watch shows that the status of the
//! object has observed its generation and is Ready. [`Tracker`] is pure; [`watch_cluster`] does the IO.

use std::collections::HashMap;
use std::time::Duration;

use futures::TryStreamExt;
use kube::Api;
use kube::api::{DynamicObject, ListParams, WatchEvent, WatchParams};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::latencies::Seconds;
use crate::tdset::{self, Key};

/// The pause before a broken watch is opened again.
const REWATCH_PAUSE: Duration = Duration::from_millis(200);
/// How many objects are named if some did not converge.
const EXAMPLES: usize = 5;

/// What happened to an object. Times are since the start of the run.
#[derive(Debug)]
pub enum Fact {
    /// A create or update was accepted with this generation.
    Written {
        /// Which object.
        key: Key,
        /// The generation in the server's answer.
        generation: i64,
        /// When it was due.
        due: Duration,
    },
    /// A deletion was accepted.
    Deleted {
        /// Which object.
        key: Key,
        /// When it was due.
        due: Duration,
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
    /// The watch of a cluster broke.
    Broke {
        /// Which cluster's.
        cluster: String,
        /// Why.
        why: String,
    },
    /// A request for what was measured so far.
    Measure(oneshot::Sender<Measured>),
}

/// What was measured up to a moment.
#[derive(Debug)]
pub struct Measured {
    /// Changes that were made and have not converged.
    pub pending: usize,
    /// Some of their objects.
    pub examples: Vec<Key>,
    /// Of the watch that broke last: which cluster's, and why. What it would have shown is not seen before it is back.
    pub broke: Option<String>,
    /// Each second since the start of the run.
    pub seconds: Seconds,
}

/// What is known of one object.
#[derive(Debug, Default)]
struct Entry {
    /// Changes that have not converged: the generation, and when it was due.
    pending: Vec<(i64, Duration)>,
    /// The highest generation that was Ready, and when that was first seen.
    ready: Option<(i64, Duration)>,
}

/// Latencies, and the changes that have not converged.
#[derive(Debug, Default)]
pub struct Tracker {
    objects: HashMap<Key, Entry>,
    pending: usize,
    broke: Option<String>,
    seconds: Seconds,
}

impl Tracker {
    /// Records a fact. Facts come in any order: a watch may be faster than the answer to the write.
    pub fn apply(&mut self, fact: Fact) {
        let entry = match fact {
            Fact::Deleted { key, due } => {
                self.seconds.made(due);
                if let Some(entry) = self.objects.remove(&key) {
                    self.pending -= entry.pending.len();
                    entry.pending.iter().for_each(|(_, due)| self.seconds.lost(*due));
                }
                return;
            }
            Fact::Written { key, generation, due } => {
                self.seconds.made(due);
                self.pending += 1;
                let entry = self.objects.entry(key).or_default();
                entry.pending.push((generation, due));
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
        let Some((ready, seen)) = entry.ready else { return };
        let seconds = &mut self.seconds;
        let before = entry.pending.len();
        entry.pending.retain(|&(generation, due)| {
            let converged = generation <= ready;
            if converged {
                seconds.converged(due, seen);
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
            Message::Broke { cluster, why } => self.broke = Some(format!("{cluster}: {why}")),
            // The receiver may have been dropped.
            Message::Measure(reply) => drop(reply.send(self.measured())),
        }
    }

    /// What was measured so far.
    pub fn measured(&self) -> Measured {
        let waiting = self.objects.iter().filter(|(_, entry)| !entry.pending.is_empty());
        Measured {
            pending: self.pending,
            examples: waiting.map(|(key, _)| key.clone()).take(EXAMPLES).collect(),
            broke: self.broke.clone(),
            seconds: self.seconds.clone(),
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
            let (cluster, why) = (cluster.clone(), error.to_string());
            let _ = messages.send(Message::Broke { cluster, why }).await;
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
    use crate::generate::tests::slow;
    use apiserver::faults::{Fault, Request};
    use std::sync::Arc;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    fn written(generation: i64, due: u64) -> Fact {
        Fact::Written { key: "k".into(), generation, due: ms(due) }
    }

    fn ready(generation: i64, at: u64) -> Fact {
        Fact::Ready { key: "k".into(), generation, at: ms(at) }
    }

    fn check(facts: Vec<Fact>, pending: usize, latencies: &[u32]) {
        let mut tracker = Tracker::default();
        facts.into_iter().for_each(|fact| tracker.apply(fact));
        let seconds = tracker.measured().seconds;
        let recorded: Vec<u32> = seconds.iter().flat_map(|s| s.latencies_ms.clone()).collect();
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
        check(vec![written(1, 0), written(2, 20), ready(2, 50)], 0, &[50, 30]);
    }

    #[test]
    fn repeated_events_count_once() {
        check(vec![written(1, 0), ready(1, 50), ready(1, 90)], 0, &[50]);
    }

    #[test]
    fn changes_of_a_deleted_object_are_not_pending_and_are_counted() {
        let deleted = |due| Fact::Deleted { key: "k".into(), due: ms(due) };
        check(vec![written(1, 0), deleted(9)], 0, &[]);
        let mut tracker = Tracker::default();
        for fact in [written(1, 0), ready(1, 40), written(2, 50), written(3, 60), deleted(1_100)] {
            tracker.apply(fact);
        }
        let seconds = tracker.measured().seconds;
        assert_eq!(seconds.deleted(|second| second == 0), 2);
        assert_eq!(seconds.deleted(|second| second > 0), 0);
    }

    #[tokio::test]
    async fn a_watch_that_breaks_says_why() {
        let (_, server, _, _) = slow(0, Duration::ZERO).await;
        server.set_faults(Some(Arc::new(|request: &Request| match request.verb {
            "watch" => Fault::Drop,
            _ => Fault::None,
        })));
        let (messages, mut received) = mpsc::channel(8);
        let api = tdset::all(server.client());
        let watching = watch_cluster("cluster-001".into(), api, crate::run::now(), messages);
        let watching = tokio::spawn(watching);
        let mut tracker = Tracker::default();
        tracker.handle(received.recv().await.unwrap());
        let broke = tracker.measured().broke;
        assert!(broke.as_ref().is_some_and(|why| why.starts_with("cluster-001: ")), "{broke:?}");
        drop(received);
        watching.await.unwrap();
    }
}
