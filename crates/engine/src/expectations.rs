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

/// After this many added expectations, those that wait for nothing any more are removed.
const SWEEP: usize = 1024;

/// A write that the cache of an informer does not show yet. It keeps no cache: when the informer is gone, there is
/// nothing to wait for, because the next run of the key reads what another one has listed since.
#[derive(Clone, Debug)]
pub(crate) struct Expectation {
    /// Without labels: a server may answer with any number of them.
    written: Arc<Written>,
    informer: Weak<InformerState>,
    /// Whether the informer's selector selects what was written.
    is_selected: bool,
    until: Moment,
}

impl Expectation {
    /// What the caches of these informers do not show yet of a write.
    pub(crate) fn of(written: Written, informers: &[Arc<Informer>], now: Moment) -> Vec<Self> {
        let until = now + written.patience();
        let concerned = informers.iter().map(|informer| informer.state());
        let concerned = concerned
            .filter(|informer| written.concerns(&informer.target.kind, &informer.target.scope));
        let concerned: Vec<_> = concerned
            .map(|informer| (informer, written.is_selected(&informer.target.scope.labels)))
            .collect();
        let written = Arc::new(written.without_labels());
        let expectation = |(informer, is_selected)| Self {
            written: Arc::clone(&written),
            informer: Arc::downgrade(informer),
            is_selected,
            until,
        };
        let expected = concerned.into_iter().map(expectation);
        expected.filter(|expectation| !expectation.is_met()).collect()
    }

    fn is_met(&self) -> bool {
        let Some(informer) = self.informer.upgrade() else { return true };
        let Written { namespace, name, .. } = &*self.written;
        let namespace = namespace.as_deref().filter(|_| informer.target.kind.namespaced);
        let found = informer.store.get(namespace, name);
        let seen = informer.seen();
        let found = found.as_ref().map(|entry| &entry.header);
        self.written.is_shown(self.is_selected, found, seen.as_ref())
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
    /// Expectations of all keys, and how many the last sweep left.
    count: usize,
    swept: usize,
}

impl Expectations {
    /// Keeps what a run of `key` expects.
    pub(crate) fn expect(&self, key: &ObjectKey, expected: Vec<Expectation>, now: Moment) {
        if expected.is_empty() {
            return;
        }
        let mut waiting = self.waiting.lock().expect("no holder of this lock panics");
        waiting.count += expected.len();
        let before = waiting.keys.insert(key.clone(), expected);
        waiting.count -= before.map_or(0, |before| before.len());
        if waiting.count >= waiting.swept + SWEEP {
            waiting.keys.retain(|_, expected| {
                expected.retain(|expectation| expectation.until > now && !expectation.is_met());
                !expected.is_empty()
            });
            waiting.count = waiting.keys.values().map(Vec::len).sum();
            waiting.swept = waiting.count;
        }
    }

    /// Takes what the last run of `key` expects.
    pub(crate) fn take(&self, key: &ObjectKey) -> Vec<Expectation> {
        let mut waiting = self.waiting.lock().expect("no holder of this lock panics");
        let expected = waiting.keys.remove(key).unwrap_or_default();
        waiting.count -= expected.len();
        expected
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

    /// What a server answered to a write of `name`, with a thousand labels.
    fn labelled(name: &str) -> Written {
        let mut answer = config_map(name, 9);
        let labels = (0..1_000).map(|number| (number.to_string(), "x".into()));
        answer["metadata"]["labels"] = labels.collect::<serde_json::Map<_, _>>().into();
        let path = format!("/api/v1/namespaces/ns/configmaps/{name}");
        Written::read(&Method::PUT, &path, "", answer.to_string().as_bytes()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn no_labels_of_an_answer_are_kept() {
        let (informer, _server) = informer();
        let clock = PausedClock::new();
        let expected = Expectation::of(labelled("a"), std::slice::from_ref(&informer), clock.now());
        let shown = format!("{expected:?}");
        assert!(expected.len() == 1 && shown.len() < 1_000, "{} bytes", shown.len());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_over_is_swept_after_so_many_expectations_whatever_their_keys() {
        let (informer, _server) = informer();
        let clock = PausedClock::new();
        let expectations = Expectations::default();
        let expect = |key: usize, count: usize| {
            let key = ObjectKey::new("east".parse().unwrap(), Some("ns"), &key.to_string());
            let informers = std::slice::from_ref(&informer);
            let expected = (0..count).flat_map(|name| {
                Expectation::of(labelled(&name.to_string()), informers, clock.now())
            });
            expectations.expect(&key, expected.collect(), clock.now());
        };
        for key in 0..SWEEP / 64 - 1 {
            expect(key, 64);
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        expect(SWEEP, 64);
        let waiting = expectations.waiting.lock().unwrap();
        assert_eq!((waiting.keys.len(), waiting.count), (1, 64), "one key waits for something");
    }
}
