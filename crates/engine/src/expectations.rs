//! Read your writes: a key runs again only when the cache shows what its last run wrote.
//!
//! A reconcile reads the cache, which lags behind the server. If a key ran again before the watch
//! events of its own writes arrived, it would decide from an outdated state, and for example create a
//! child a second time. So each write leaves an [`Expectation`], as in the expectations of Kubernetes'
//! own controllers, and the next run of the key waits for those that are not met, up to
//! [`crate::written::PATIENCE`]: caches catch up within milliseconds, and a broken watch must not
//! stop the work for good.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use model::{Moment, ObjectKey};

use crate::informer::{Informer, InformerState};
use crate::written::Written;

/// After this many added keys, keys that wait for nothing any more are removed.
const SWEEP: usize = 1024;

/// A write that the cache of an informer does not show yet.
#[derive(Clone, Debug)]
pub(crate) struct Expectation {
    written: Arc<Written>,
    informer: Arc<InformerState>,
    until: Moment,
}

impl Expectation {
    /// What the caches of these informers do not show yet of a write.
    pub(crate) fn of(written: Written, informers: &[Arc<Informer>], now: Moment) -> Vec<Self> {
        let until = now + written.patience();
        let written = Arc::new(written);
        let concerned = informers.iter().map(|informer| informer.state());
        let concerned = concerned
            .filter(|informer| written.concerns(&informer.target.kind, &informer.target.scope));
        let expectation = |informer: &Arc<InformerState>| Self {
            written: Arc::clone(&written),
            informer: Arc::clone(informer),
            until,
        };
        concerned.map(expectation).filter(|expectation| !expectation.is_met()).collect()
    }

    fn is_met(&self) -> bool {
        let Written { namespace, name, .. } = &*self.written;
        let namespace = namespace.as_deref().filter(|_| self.informer.target.kind.namespaced);
        let found = self.informer.store.get(namespace, name);
        let seen = self.informer.seen();
        let found = found.as_ref().map(|entry| &entry.header);
        self.written.is_shown(&self.informer.target.scope.labels, found, seen.as_ref())
    }

    /// Waits until the cache shows the write, or time is up. Returns whether it does.
    pub(crate) async fn met(&self, now: Moment) -> bool {
        let mut seen = self.informer.follow();
        let wait = async {
            while !self.is_met() {
                if seen.changed().await.is_err() {
                    return false;
                }
            }
            true
        };
        tokio::time::timeout(now.until(self.until), wait).await.unwrap_or(false)
    }
}

/// What the keys of one controller wait for.
#[derive(Debug, Default)]
pub(crate) struct Expectations {
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    keys: HashMap<ObjectKey, Vec<Expectation>>,
    swept: usize,
}

impl Expectations {
    /// Keeps what a run of `key` expects.
    pub(crate) fn expect(&self, key: &ObjectKey, expected: Vec<Expectation>, now: Moment) {
        if expected.is_empty() {
            return;
        }
        let mut waiting = self.waiting.lock().expect("no holder of this lock panics");
        waiting.keys.insert(key.clone(), expected);
        if waiting.keys.len() >= waiting.swept + SWEEP {
            waiting.keys.retain(|_, expected| {
                expected.retain(|expectation| expectation.until > now && !expectation.is_met());
                !expected.is_empty()
            });
            waiting.swept = waiting.keys.len();
        }
    }

    /// Takes what the last run of `key` expects.
    pub(crate) fn take(&self, key: &ObjectKey) -> Vec<Expectation> {
        let mut waiting = self.waiting.lock().expect("no holder of this lock panics");
        waiting.keys.remove(key).unwrap_or_default()
    }
}
