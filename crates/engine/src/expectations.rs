//! Read your writes: a key runs again only when the cache shows what its last run wrote.
//!
//! A reconcile reads the cache, which lags behind the server. If a key ran again before the watch
//! events of its own writes arrived, it would decide from an outdated state, and for example create a
//! child a second time. So each write leaves an [`Expectation`], as in the expectations of Kubernetes'
//! own controllers, and the next run of the key waits for those that are not met, up to
//! [`Written::patience`]: caches catch up within milliseconds, and a broken watch must not
//! stop the work for good.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use model::{Moment, ObjectKey};

use informer::{Informer, InformerState};
use writes::Written;

/// After this many added keys, keys that wait for nothing any more are removed.
const SWEEP: usize = 1024;

/// A write that the cache of an informer does not show yet. It keeps no cache: when the informer is gone, there is
/// nothing to wait for, because the next run of the key reads what another one has listed since.
#[derive(Clone, Debug)]
pub(crate) struct Expectation {
    written: Arc<Written>,
    informer: Weak<InformerState>,
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
            informer: Arc::downgrade(informer),
            until,
        };
        concerned.map(expectation).filter(|expectation| !expectation.is_met()).collect()
    }

    fn is_met(&self) -> bool {
        let Some(informer) = self.informer.upgrade() else { return true };
        let Written { namespace, name, .. } = &*self.written;
        let namespace = namespace.as_deref().filter(|_| informer.target.kind.namespaced);
        let found = informer.store.get(namespace, name);
        let seen = informer.seen();
        let found = found.as_ref().map(|entry| &entry.header);
        self.written.is_shown(&informer.target.scope.labels, found, seen.as_ref())
    }

    /// Waits until the cache shows the write or is gone, or time is up. Returns whether there is nothing to wait
    /// for any more.
    pub(crate) async fn met(&self, now: Moment) -> bool {
        let Some(mut seen) = self.informer.upgrade().map(|informer| informer.follow()) else {
            return true;
        };
        let wait = async {
            while !self.is_met() {
                if seen.changed().await.is_err() {
                    return;
                }
            }
        };
        tokio::time::timeout(now.until(self.until), wait).await.is_ok()
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::Method;
    use model::Clock;
    use model::testing::PausedClock;

    use super::*;
    use informer::testing::config_map;
    use informer::testing::informer;

    #[tokio::test(start_paused = true)]
    async fn what_a_key_waits_for_keeps_no_cache_and_ends_with_it() {
        let (informer, _server) = informer();
        let answer = config_map("a", 9).to_string();
        let path = "/api/v1/namespaces/ns/configmaps/a";
        let written = Written::read(&Method::PUT, path, "", answer.as_bytes()).unwrap();
        let clock = PausedClock::new();
        let expected = Expectation::of(written, &[Arc::clone(&informer)], clock.now());
        let expectations = Expectations::default();
        let key = ObjectKey::new("east".parse().unwrap(), Some("ns"), "a");
        expectations.expect(&key, expected, clock.now());
        let state = Arc::downgrade(informer.state());
        drop(informer);
        // Whatever can run does so.
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(state.strong_count(), 0, "what the informer cached is gone");
        let [expected] = &expectations.take(&key)[..] else { panic!("one expectation") };
        let began = clock.now();
        assert!(expected.met(began).await, "there is nothing to wait for");
        assert_eq!(clock.now().since(began), Duration::ZERO);
    }
}
