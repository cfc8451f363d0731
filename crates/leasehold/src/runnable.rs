//! Runnables: work of a program that is not a controller. The manager runs it beside the controllers.
//!
//! | | on which replicas | when |
//! |---|---|---|
//! | [`Runnable::new`] | on each | from its start to its shutdown |
//! | [`Runnable::single`] | on one of the fleet at a time | while that one holds the work's shard |
//! | [`Runnable::every`] | as above | again and again, with a pause between two runs |
//!
//! # Single work
//! It is held like a shard: the coordinator gives it to one replica, weighs it with the shards of
//! clusters, drains it and hands it over. The parts:
//! - [`model::single`]: its group and its one shard, which is in no cluster. The ShardMap
//!   `fleet.leasehold.dev` in the home cluster shows who has it.
//! - `sharding`, the coordinator: creates that map as soon as a replica can run such work.
//! - `engine`, `single`: begins the work when the shard is open, tells it to stop when the shard drains,
//!   and acknowledges the drain when the work and all of its writes have ended. When the shard is lost,
//!   or the Lease ends, the work is dropped at its next `await`.
//!
//! So the promise is that of controllers: no two replicas run it at once, as long as the rates of their
//! clocks differ by less than the margin allows. A request that was sent in time may still take effect
//! late.
//!
//! # Failures
//! A runnable that returns an error, or panics, runs again after a pause: a second, doubling up to a
//! minute. It ends neither the manager nor other runnables.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use engine::{SingleRun, SingleSpec};
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::Client;
use model::{Clock, ClusterName, ClusterSet, ControllerName};
use sdk::{RateLimiter, Token};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, error, info, info_span, warn};

use crate::clock;

/// How long after its first failure a runnable runs again.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// How long after many failures. A runnable that ran for longer than this starts again with the first
/// pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The jitter of pauses, in percent: replicas that start together drift apart.
const JITTER_PERCENT: u32 = 10;

/// What a runnable may return as its error.
type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Run = dyn Fn(RunnableContext) -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync;

/// Work of a program that is not a controller.
///
/// ```
/// use std::time::Duration;
/// use leasehold::Runnable;
///
/// // On every replica: listens until the replica stops.
/// let listen = Runnable::new("listen", |ctx| async move {
///     let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
///     tokio::select! {
///         () = ctx.stopping().cancelled() => Ok(()),
///         accepted = socket.accept() => accepted.map(drop),
///     }
/// });
///
/// // On one replica of the fleet, about every five minutes: counts the clusters.
/// let count = Runnable::new("count", |ctx| async move {
///     println!("{} clusters at {}", ctx.clusters().len(), ctx.now());
///     Ok::<_, std::io::Error>(())
/// })
/// .single()
/// .every(Duration::from_secs(300));
/// # let _ = (listen, count);
/// ```
#[derive(Clone)]
#[must_use = "nothing runs until a manager is given it"]
pub struct Runnable {
    name: ControllerName,
    single: bool,
    every: Option<Duration>,
    run: Arc<Run>,
}

/// What a runnable may use.
#[derive(Clone)]
pub struct RunnableContext(Means);

#[derive(Clone)]
enum Means {
    Replica {
        stopping: CancellationToken,
        clusters: watch::Receiver<Arc<ClusterSet>>,
        clock: Arc<dyn Clock>,
    },
    Single(SingleRun),
}

impl Runnable {
    /// Work that each replica runs, from when it has joined the fleet until it stops. `run` is called
    /// each time the work begins; the module says what happens after an error.
    ///
    /// # Panics
    /// If `name` is not a valid name: at most 56 of a-z, 0-9, `-` and `.`.
    pub fn new<F, E>(name: &str, run: impl Fn(RunnableContext) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<BoxError>,
    {
        // Its name as single work is longer, and must fit as well.
        model::single::group(name).unwrap_or_else(|error| panic!("{error}"));
        let name = name.parse().unwrap_or_else(|error| panic!("{error}"));
        let run = Arc::new(move |ctx| {
            let run = run(ctx);
            async move { run.await.map_err(Into::into) }.boxed()
        });
        Self { name, single: false, every: None, run }
    }

    /// Runs it on one replica of the fleet at a time.
    pub fn single(mut self) -> Self {
        self.single = true;
        self
    }

    /// Runs it again and again: at once, then each time this long after its last run has ended, give or
    /// take a tenth. After a failure it runs again sooner, if the pause after a failure is shorter. A single
    /// one also runs at once when it moves to another replica.
    pub fn every(mut self, pause: Duration) -> Self {
        self.every = Some(pause);
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.name.as_str()
    }

    pub(crate) fn is_single(&self) -> bool {
        self.single
    }

    /// The same as the engine runs it.
    pub(crate) fn into_single(self) -> SingleSpec {
        let name = self.name.clone();
        let run = move |run| {
            let runnable = self.clone();
            async move { runnable.drive(RunnableContext(Means::Single(run))).await }.boxed()
        };
        SingleSpec::new(name.as_str(), run).expect("the name was tried when the runnable was made")
    }

    /// Runs it on this replica until it has ended.
    pub(crate) async fn on_replica(
        self,
        stopping: CancellationToken,
        clusters: watch::Receiver<Arc<ClusterSet>>,
        clock: Arc<dyn Clock>,
    ) {
        let span = info_span!("runnable", name = %self.name);
        let ctx = RunnableContext(Means::Replica { stopping, clusters, clock });
        self.drive(ctx).instrument(span).await;
    }

    /// Runs it once or repeatedly, as configured.
    async fn drive(&self, ctx: RunnableContext) {
        let clock = Arc::clone(ctx.clock());
        let mut rng = fastrand::Rng::with_seed(clock::seed());
        // All pauses get the same jitter below.
        let backoff = RateLimiter::exponential(FIRST_PAUSE, LONGEST_PAUSE).with_jitter(0.0);
        let mut failures = 0;
        loop {
            let started = clock.now();
            let ended = self.once(&ctx).await;
            if clock.now().since(started) > LONGEST_PAUSE {
                failures = 0;
            }
            let pause = match (ended, self.every) {
                (true, None) => return,
                (true, Some(pause)) => {
                    failures = 0;
                    pause
                }
                (false, every) => {
                    failures += 1;
                    backoff.delay(failures, &mut rng).min(every.unwrap_or(LONGEST_PAUSE))
                }
            };
            let pause = jittered(pause, &mut rng);
            tokio::select! {
                biased;
                () = ctx.stopping().cancelled() => return,
                () = clock.sleep_until(clock.now() + pause) => {}
            }
        }
    }

    /// One run. Returns whether it went well.
    async fn once(&self, ctx: &RunnableContext) -> bool {
        // The call is inside too, because it may panic itself.
        let run = AssertUnwindSafe(async { (self.run)(ctx.clone()).await }).catch_unwind();
        match run.await {
            Ok(Ok(())) => {
                if self.every.is_none() && !ctx.stopping().is_cancelled() {
                    info!(runnable = %self.name, "the runnable has ended");
                }
                true
            }
            Ok(Err(failed)) => {
                let failed = model::error::chain(&*failed);
                warn!(runnable = %self.name, error = failed, "the runnable failed, it will run again");
                false
            }
            Err(_) => {
                error!(runnable = %self.name, "the runnable panicked, it will run again");
                false
            }
        }
    }
}

impl RunnableContext {
    /// Cancelled when the work should end: the replica stops, or single work moves to another. Work that
    /// goes on is dropped after the drain timeout, or after the grace period of the shutdown.
    pub fn stopping(&self) -> &CancellationToken {
        match &self.0 {
            Means::Replica { stopping, .. } => stopping,
            Means::Single(run) => run.stopping(),
        }
    }

    /// Whether the work may act now. Single work may as long as this replica holds its shard and its
    /// Lease is valid; other work always may. Ask it before every step that is not a request of a
    /// [`Self::client`].
    pub fn may_act(&self) -> bool {
        match &self.0 {
            Means::Replica { .. } => true,
            Means::Single(run) => run.permit().is_ok(),
        }
    }

    /// A token with which systems outside of Kubernetes can refuse a late writer: it rises with each
    /// replica that runs the work. `None` unless the work is single.
    pub fn token(&self) -> Option<Token> {
        match &self.0 {
            Means::Replica { .. } => None,
            Means::Single(run) => {
                let dispatch = run.dispatch();
                Some(Token { shard: dispatch.shard.clone(), epoch: dispatch.epoch })
            }
        }
    }

    /// The clusters with a client, in order of their names.
    pub fn clusters(&self) -> Vec<ClusterName> {
        match &self.0 {
            Means::Replica { clusters, .. } => {
                clusters.borrow().engaged().map(|cluster| cluster.name.clone()).collect()
            }
            Means::Single(run) => run.clusters(),
        }
    }

    /// A client of a cluster; `None` if there is none now. Ask again for each piece of work, because a
    /// kubeconfig may change.
    ///
    /// The client of single work passes the cluster's gate and refuses writes when another replica holds
    /// the shard, as in a reconcile. Other work gets a plain client: every replica may write at once, and
    /// only the cluster itself limits its requests.
    pub fn client(&self, cluster: &ClusterName) -> Option<Client> {
        match &self.0 {
            Means::Replica { clusters, .. } => Some(clusters.borrow().get(cluster)?.wire.client()),
            Means::Single(run) => Some(run.fenced(cluster)?.client()),
        }
    }

    /// The wall clock's time.
    pub fn now(&self) -> Timestamp {
        self.clock().wall()
    }

    fn clock(&self) -> &Arc<dyn Clock> {
        match &self.0 {
            Means::Replica { clock, .. } => clock,
            Means::Single(run) => run.clock(),
        }
    }
}

fn jittered(pause: Duration, rng: &mut fastrand::Rng) -> Duration {
    pause * (100 - JITTER_PERCENT + rng.u32(0..=2 * JITTER_PERCENT)) / 100
}

impl fmt::Debug for Runnable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runnable")
            .field("name", &self.name)
            .field("single", &self.single)
            .field("every", &self.every)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for RunnableContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let single = matches!(self.0, Means::Single(_));
        f.debug_struct("RunnableContext").field("single", &single).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use model::testing::PausedClock;

    use super::*;

    /// When each run began, in seconds; `run` says what each run does.
    async fn begun(
        every: Option<Duration>,
        run: impl Fn(usize) -> Result<(), &'static str> + Send + Sync + 'static,
        time: Duration,
    ) -> Vec<u64> {
        let clock = PausedClock::new();
        let begun: Arc<Mutex<Vec<u64>>> = Arc::default();
        let (noted, at) = (Arc::clone(&begun), Arc::clone(&clock));
        let mut runnable = Runnable::new("work", move |_| {
            let number = {
                let mut all = noted.lock().expect("no holder of this lock panics");
                all.push(at.now().since_origin().as_secs());
                all.len()
            };
            let outcome = run(number);
            async move { outcome }
        });
        runnable.every = every;
        let (_, clusters) = watch::channel(Arc::default());
        let stopping = CancellationToken::new();
        let work = tokio::spawn(runnable.on_replica(stopping.clone(), clusters, clock));
        tokio::time::sleep(time).await;
        stopping.cancel();
        work.await.expect("no runnable harms who runs it");
        let begun = begun.lock().expect("no holder of this lock panics");
        begun.clone()
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_ends_is_over_and_one_that_fails_is_run_again() {
        let hour = Duration::from_secs(3600);
        assert_eq!(begun(None, |_| Ok(()), hour).await, [0]);
        let runs = begun(None, |run| if run < 4 { Err("not yet") } else { Ok(()) }, hour).await;
        // After 1, 2 and 4 seconds, give or take a tenth.
        assert_eq!(runs.len(), 4);
        assert!((6..=7).contains(&runs[3]), "{runs:?}");
        let runs = begun(None, |_| Err("never"), hour).await;
        assert!((60..75).contains(&runs.len()), "once a minute in the end: {}", runs.len());
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_is_a_failure() {
        let runs = begun(
            None,
            |run| {
                assert!(run > 1, "the test wants it");
                Ok(())
            },
            Duration::from_secs(3600),
        );
        assert_eq!(runs.await.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_periodic_one_runs_about_once_in_its_period() {
        let period = Duration::from_secs(100);
        let runs = begun(Some(period), |_| Ok(()), period * 100).await;
        assert!((95..=106).contains(&runs.len()), "{}", runs.len());
        let gaps = || runs.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(gaps().all(|gap| (89..=111).contains(&gap)), "{runs:?}");
        assert!(gaps().any(|gap| gap != 100), "it drifts: {runs:?}");
        // One that fails runs again sooner.
        let fails_first = |run| if run == 1 { Err("no") } else { Ok(()) };
        let runs = begun(Some(period), fails_first, period / 2).await;
        assert_eq!(runs.len(), 2, "{runs:?}");
    }

    #[test]
    #[should_panic = "is not a controller group name"]
    fn a_name_must_leave_room_for_its_group() {
        let name = "a".repeat(60);
        let _ = Runnable::new(&name, |_| async { Ok::<_, std::io::Error>(()) });
    }
}
