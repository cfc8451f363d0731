//! Checks that a program brings along: each is asked when a probe comes, and bounded.
//!
//! # Invariants
//! - An answer takes no longer than the slowest check's bound, however many checks there are: they run
//!   side by side.
//! - Of each check one run is under way at most, so that one which hangs costs one task, however many
//!   probes come. Probes that come meanwhile wait for that run, each up to the bound.
//! - A check that is past its bound is dropped. One that blocks its thread cannot be; it fails every
//!   probe until it ends.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::readiness::Check;

/// How long a check may take unless it says otherwise. The kubelet waits a second for an answer unless
/// told otherwise.
pub const CHECK_TIMEOUT: Duration = Duration::from_millis(750);

/// What a check says: `Err` says what is wrong, for the operator.
type Outcome = Result<(), String>;
type Run = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// A check that a program brings along. Clones are the same check.
#[derive(Clone)]
pub struct Probe(Arc<Inner>);

struct Inner {
    name: String,
    timeout: Duration,
    run: Box<dyn Fn() -> Run + Send + Sync>,
    /// The outcome of the last run, or of the one under way when it comes.
    last: Mutex<watch::Receiver<Option<Outcome>>>,
}

impl Probe {
    /// A check of that name, to be answered within `timeout`.
    pub fn new<F>(
        name: impl Into<String>,
        timeout: Duration,
        run: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<(), String>> + Send + 'static,
    {
        // Without a sender it counts as ended.
        let (_, none) = watch::channel(None);
        let run = Box::new(move || Box::pin(run()) as Run);
        Self(Arc::new(Inner { name: name.into(), timeout, run, last: Mutex::new(none) }))
    }

    /// Asks it.
    async fn check(self) -> Check {
        let Inner { name, timeout, .. } = &*self.0;
        let mut outcome = self.begin();
        let answer = tokio::time::timeout(*timeout, outcome.wait_for(Option::is_some)).await;
        let outcome = match answer {
            Ok(Ok(outcome)) => outcome.clone().unwrap_or(Ok(())),
            Ok(Err(_)) => Err("the check panicked".to_owned()),
            // Its run should have ended, but blocks its thread.
            Err(_) => late(*timeout),
        };
        Check::new(name, outcome)
    }

    /// The run under way, or a new one.
    fn begin(&self) -> watch::Receiver<Option<Outcome>> {
        let mut last = self.0.last.lock().expect("no holder of this lock panics");
        let is_under_way = last.borrow().is_none() && last.has_changed().is_ok();
        if !is_under_way {
            let (sender, outcome) = watch::channel(None);
            let probe = Arc::clone(&self.0);
            tokio::spawn(async move {
                // The future is made here, so that neither a panic nor a wait of it harms the server.
                let run = async { (probe.run)().await };
                let outcome = tokio::time::timeout(probe.timeout, run).await;
                sender.send_replace(Some(outcome.unwrap_or_else(|_| late(probe.timeout))));
            });
            *last = outcome;
        }
        last.clone()
    }
}

fn late(timeout: Duration) -> Outcome {
    Err(format!("no answer within {}ms", timeout.as_millis()))
}

/// Asks all of them, side by side. The answers are in their order.
pub(crate) async fn check_all(probes: &[Probe]) -> Vec<Check> {
    let mut asked = JoinSet::new();
    for (index, probe) in probes.iter().cloned().enumerate() {
        asked.spawn(async move { (index, probe.check().await) });
    }
    let mut checks = asked.join_all().await;
    checks.sort_by_key(|(index, _)| *index);
    checks.into_iter().map(|(_, check)| check).collect()
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Probe").field(&self.0.name).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn show(checks: &[Check]) -> Vec<String> {
        let text = |Check { name, outcome }: &Check| match outcome {
            Ok(()) => name.clone(),
            Err(reason) => format!("{name}: {reason}"),
        };
        checks.iter().map(text).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn checks_run_side_by_side_and_each_is_bounded() {
        let after = |name: &str, wait: Duration, outcome: Outcome| {
            Probe::new(name, SECOND, move || {
                let outcome = outcome.clone();
                async move {
                    tokio::time::sleep(wait).await;
                    outcome
                }
            })
        };
        let probes = [
            after("slow", SECOND * 9, Ok(())),
            after("disk", SECOND / 2, Err("full".to_owned())),
            after("queue", SECOND / 2, Ok(())),
        ];
        let answer = tokio::time::timeout(SECOND * 3 / 2, check_all(&probes)).await;
        let checks = answer.expect("the bound of the slowest bounds all");
        assert_eq!(show(&checks), ["slow: no answer within 1000ms", "disk: full", "queue"]);
        assert_eq!(show(&check_all(&[]).await), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn one_run_is_under_way_and_probes_share_it() {
        let runs = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&runs);
        let probe = Probe::new("db", SECOND, move || {
            counted.fetch_add(1, Ordering::Relaxed);
            async {
                tokio::time::sleep(SECOND / 2).await;
                Ok(())
            }
        });
        let both = tokio::join!(probe.clone().check(), probe.clone().check());
        assert_eq!(show(&[both.0, both.1]), ["db", "db"]);
        assert_eq!(runs.load(Ordering::Relaxed), 1);
        assert_eq!(show(&[probe.check().await]), ["db"]);
        assert_eq!(runs.load(Ordering::Relaxed), 2, "the next probe asks anew");
    }

    #[tokio::test]
    async fn a_check_that_panics_fails_and_is_asked_again() {
        let runs = Arc::new(AtomicU32::new(0));
        let probe = Probe::new("db", SECOND, move || {
            let first = runs.fetch_add(1, Ordering::Relaxed) == 0;
            assert!(!first, "the test wants it");
            async { Ok(()) }
        });
        assert_eq!(show(&[probe.clone().check().await]), ["db: the check panicked"]);
        assert_eq!(show(&[probe.check().await]), ["db"]);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_check_that_blocks_holds_one_thread_and_no_probe() {
        let (unblock, blocked) = std::sync::mpsc::channel::<()>();
        let blocked = Mutex::new(blocked);
        let runs = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&runs);
        let probe = Probe::new("db", Duration::from_millis(20), move || {
            counted.fetch_add(1, Ordering::Relaxed);
            // Blocks before there is a future to drop.
            let _ = blocked.lock().expect("no holder of this lock panics").recv();
            async { Ok(()) }
        });
        for _ in 0..3 {
            assert_eq!(show(&[probe.clone().check().await]), ["db: no answer within 20ms"]);
        }
        assert_eq!(runs.load(Ordering::Relaxed), 1);
        drop(unblock);
    }
}
