//! Triggers: keys to reconcile that come from outside of Kubernetes, as from a message queue or a
//! webhook.
//!
//! ```text
//!  author ─ reconcile(key) ─▶ bounded channel ─▶ its hash, from the cache ─▶ queue ─▶ runner
//!           waits while it is full     one for each engine that runs a controller of it
//! ```
//!
//! # What happens to a key
//! - It is queued where its shard is held. A replica drops keys of shards that it does not hold, so
//!   every replica must receive every key, or at least all that may be its own.
//! - The cache says into which range a key falls. A key whose object is not cached here is dropped: the
//!   object is in another replica's range, or does not exist, or is reconciled when it appears.
//! - Before a controller runs and after it has ended, keys are dropped. Nothing is lost by that: gaining
//!   a shard queues every object of it.

use std::fmt;
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt};
use model::ObjectKey;
use tokio::sync::mpsc;
use tracing::Span;

/// Makes controllers reconcile keys that come from outside of Kubernetes. Clones are the same trigger;
/// it may trigger several controllers.
#[derive(Clone)]
pub struct Trigger(Arc<Inner>);

struct Inner {
    capacity: usize,
    engines: Mutex<Vec<mpsc::Sender<Ask>>>,
}

/// What a trigger asks for.
pub(crate) enum Ask {
    /// One key, and the span of the cause.
    One(ObjectKey, Span),
    /// Everything that is held.
    All,
}

/// The futures that drive triggers while a controller runs, by reading streams. The first engine that
/// runs the controller takes them.
#[derive(Clone, Default)]
pub struct TriggerSources(Arc<Mutex<Vec<BoxFuture<'static, ()>>>>);

impl Trigger {
    /// A trigger for which up to `capacity` keys, and at least 1, may be outstanding before
    /// [`reconcile`](Self::reconcile) waits.
    pub fn new(capacity: usize) -> Self {
        Self(Arc::new(Inner { capacity: capacity.max(1), engines: Mutex::default() }))
    }

    /// Queues `key`, if its shard is held here. Waits while too much is outstanding.
    pub async fn reconcile(&self, key: ObjectKey) {
        // A root, so that the span of a wait never refers to one that refers back to it.
        let span = tracing::info_span!(parent: None, "trigger", %key, otel.kind = "consumer");
        self.ask(|| Ask::One(key.clone(), span.clone())).await;
    }

    /// Queues every key that is held here, at a lower priority than changes. Waits while too much is
    /// outstanding.
    pub async fn reconcile_all(&self) {
        self.ask(|| Ask::All).await;
    }

    /// Queues every key that a stream yields, until it ends.
    pub async fn follow(&self, keys: impl Stream<Item = ObjectKey>) {
        let mut keys = std::pin::pin!(keys);
        while let Some(key) = keys.next().await {
            self.reconcile(key).await;
        }
    }

    /// Queues everything each time a stream yields an item, until it ends.
    pub async fn follow_all(&self, signals: impl Stream<Item = ()>) {
        let mut signals = std::pin::pin!(signals);
        while let Some(()) = signals.next().await {
            self.reconcile_all().await;
        }
    }

    async fn ask(&self, ask: impl Fn() -> Ask) {
        let engines: Vec<_> = {
            let mut engines = self.0.engines.lock().expect("no holder of this lock panics");
            engines.retain(|engine| !engine.is_closed());
            engines.clone()
        };
        for engine in engines {
            // Fails only if that engine has ended meanwhile.
            let _ = engine.send(ask()).await;
        }
    }

    /// Connects this trigger to an engine, until the receiver is dropped.
    pub(crate) fn attach(&self) -> mpsc::Receiver<Ask> {
        let (sender, asks) = mpsc::channel(self.0.capacity);
        self.0.engines.lock().expect("no holder of this lock panics").push(sender);
        asks
    }
}

impl TriggerSources {
    /// Adds a future, which is driven until it or the engine ends.
    pub fn push(&self, source: impl Future<Output = ()> + Send + 'static) {
        self.0.lock().expect("no holder of this lock panics").push(source.boxed());
    }

    /// Takes the futures: each is driven once.
    pub(crate) fn take(&self) -> Vec<BoxFuture<'static, ()>> {
        std::mem::take(&mut self.0.lock().expect("no holder of this lock panics"))
    }
}

impl fmt::Debug for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trigger").field("capacity", &self.0.capacity).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, stream};

    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("east".parse().unwrap(), None, name)
    }

    fn asked(asks: &mut mpsc::Receiver<Ask>) -> String {
        match asks.try_recv() {
            Ok(Ask::One(key, _)) => key.name.to_string(),
            Ok(Ask::All) => "all".to_owned(),
            Err(_) => "nothing".to_owned(),
        }
    }

    #[test]
    fn no_more_than_the_capacity_is_outstanding() {
        let trigger = Trigger::new(2);
        let mut asks = trigger.attach();
        assert!(trigger.reconcile(key("a")).now_or_never().is_some());
        assert!(trigger.reconcile_all().now_or_never().is_some());
        let mut third = std::pin::pin!(trigger.reconcile(key("b")));
        assert!(third.as_mut().now_or_never().is_none(), "there is no room");
        assert_eq!([asked(&mut asks), asked(&mut asks)], ["a", "all"]);
        assert!(third.now_or_never().is_some());
        assert_eq!([asked(&mut asks), asked(&mut asks)], ["b", "nothing"]);
    }

    #[test]
    fn everyone_who_runs_is_told_and_nobody_who_has_ended() {
        let trigger = Trigger::new(1);
        let (mut one, two) = (trigger.attach(), trigger.attach());
        assert!(trigger.reconcile(key("a")).now_or_never().is_some());
        assert_eq!(asked(&mut one), "a");
        assert!(trigger.reconcile(key("b")).now_or_never().is_none(), "the other is full");
        drop(two);
        assert_eq!(asked(&mut one), "b");
        assert!(trigger.reconcile(key("c")).now_or_never().is_some());
        assert_eq!(asked(&mut one), "c");
        drop(one);
        assert!(trigger.follow(stream::iter(["d", "e", "f"].map(key))).now_or_never().is_some());
    }
}
