//! Single work: what runs on one member of the fleet at a time, the one that holds its shard.
//!
//! Its shard belongs to no cluster ([`model::single`]); otherwise it is a shard like any other and goes
//! through the supervisor's steps:
//!
//! ```text
//!   start          open                 drain                      stop
//!   (warming) ───▶ begins, when the ──▶ told to stop; past the ──▶ cancelled at once, if it
//!                  fence allows it      deadline cancelled         is still there
//! ```
//!
//! # Invariants
//! - S1: it begins only after the fence allowed it, and only when an earlier run of it here has ended.
//!   The fence is asked each time before its future is polled, so that no line of it runs once the
//!   Lease has ended by this member's clock. If a late answer then renews the Lease after all, the shard stays, and
//!   the work begins anew.
//! - S2: a drain is acknowledged only when its future is gone and no write of it is under way.
//! - Its clients are fenced by its shard, as those of a reconcile are.
//! - A panic ends the run and nothing else.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use model::{
    Clock, ClusterName, ControllerName, Epoch, FenceError, GroupName, InvalidName, MemberId,
    ObjectKey, Ownership, Permit, Purpose, ShardId, single,
};
use prometheus::IntCounter;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::dispatch::{Dispatch, DispatchObserver};
use crate::fence::Fence;
use crate::request::{ClusterClient, FencedClient};

/// How long after a refusal the fence is asked again.
const REFUSED_DELAY: Duration = Duration::from_secs(1);

/// Single work, with its types erased.
#[derive(Clone)]
pub struct SingleSpec {
    name: ControllerName,
    group: GroupName,
    run: Arc<dyn Fn(SingleRun) -> BoxFuture<'static, ()> + Send + Sync>,
}

/// What one run of single work receives.
#[derive(Clone)]
pub struct SingleRun {
    dispatch: Dispatch,
    fence: Fence,
    stopping: CancellationToken,
    shared: Arc<Shared>,
}

/// What all runs share.
struct Shared {
    ownership: Arc<dyn Ownership>,
    observer: Arc<dyn DispatchObserver>,
    clock: Arc<dyn Clock>,
    fence_rejected: IntCounter,
    clusters: RwLock<BTreeMap<ClusterName, ClusterClient>>,
}

/// All single work of an engine. The supervisor owns it.
pub(crate) struct Singles {
    work: BTreeMap<GroupName, Work>,
    held: BTreeMap<ShardId, Held>,
    shared: Arc<Shared>,
    tasks: TaskTracker,
}

struct Work {
    spec: SingleSpec,
    /// Taken by the only run that may exist.
    turn: Arc<Semaphore>,
}

struct Held {
    epoch: Epoch,
    member: MemberId,
    ending: Ending,
}

/// How a run is ended, and when it has. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Ending {
    stopping: CancellationToken,
    cancel: CancellationToken,
    runs: TaskTracker,
}

// === impl SingleSpec ===

impl SingleSpec {
    /// Work of that name. `run` is called each time this member gains the work's shard, or may act for it again, and
    /// its future is dropped when the shard is lost. A future that ends by itself does not run again until the
    /// shard is gained again.
    ///
    /// # Errors
    /// If the name is invalid.
    pub fn new(
        name: &str,
        run: impl Fn(SingleRun) -> BoxFuture<'static, ()> + Send + Sync + 'static,
    ) -> Result<Self, InvalidName> {
        Ok(Self { name: name.parse()?, group: single::group(name)?, run: Arc::new(run) })
    }

    /// Its name.
    pub fn name(&self) -> &ControllerName {
        &self.name
    }

    /// The group under which its shard is held.
    pub fn group(&self) -> &GroupName {
        &self.group
    }
}

// === impl SingleRun ===

impl SingleRun {
    /// Who runs what, under which shard and epoch.
    pub fn dispatch(&self) -> &Dispatch {
        &self.dispatch
    }

    /// Cancelled when the work should end in an orderly way: its shard is handed over, or the process
    /// exits. After the drain timeout, or when the shard is lost, its future is dropped.
    pub fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }

    /// Whether the shard is still held, and until when the Lease is valid by this member's clock.
    ///
    /// # Errors
    /// Why this member may not act.
    pub fn permit(&self) -> Result<Permit, FenceError> {
        let Dispatch { shard, epoch, .. } = &self.dispatch;
        self.shared.ownership.permit(shard, *epoch, Purpose::Run)
    }

    /// The engaged clusters, in order of their names.
    pub fn clusters(&self) -> Vec<ClusterName> {
        let clusters = self.shared.clusters.read().expect("no holder of this lock panics");
        clusters.keys().cloned().collect()
    }

    /// The client of a cluster, fenced by the work's shard; `None` if the cluster is not engaged.
    pub fn fenced(&self, cluster: &ClusterName) -> Option<FencedClient> {
        let clusters = self.shared.clusters.read().expect("no holder of this lock panics");
        let client = clusters.get(cluster)?.clone();
        Some(FencedClient::new(client, self.fence.clone(), self.dispatch.clone()))
    }

    /// Time.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.shared.clock
    }

    /// Runs when its turn has come and the fence allows it, until it ends or is cancelled. It runs again from its
    /// beginning if the fence stopped it for a moment only.
    async fn run(mut self, spec: SingleSpec, turn: Arc<Semaphore>, cancel: CancellationToken) {
        let begun = async { turn.acquire().await.expect("the semaphore is never closed") };
        let Some(_turn) = cancel.run_until_cancelled(begun).await else { return };
        while let Some(true) = cancel.run_until_cancelled(self.may_begin()).await {
            if self.run_once(&spec, &cancel).await.is_some() {
                return;
            }
            self.fence = self.shared.fence();
        }
    }

    /// One run; `None` if the fence stopped it.
    async fn run_once(&self, spec: &SingleSpec, cancel: &CancellationToken) -> Option<()> {
        let Self { dispatch, fence, shared, .. } = self;
        let (name, shard, epoch) = (&spec.name, &dispatch.shard, dispatch.epoch);
        tracing::info!(runnable = %name, %shard, %epoch, "single work begins");
        let work = async {
            shared.observer.started(dispatch);
            (spec.run)(self.clone()).await;
        };
        let mut ran = None;
        let run = fence.run(dispatch, &mut ran, work);
        // What panics when it is dropped is caught, too: its writes are waited for whichever way it ends.
        let ended = AssertUnwindSafe(cancel.run_until_cancelled(run)).catch_unwind().await;
        match &ended {
            Ok(Some(Some(()))) => tracing::info!(runnable = %name, "single work has ended"),
            Err(_) => tracing::error!(runnable = %name, "single work panicked"),
            Ok(Some(None)) => {
                tracing::warn!(runnable = %name, "single work stopped: the fence refuses it")
            }
            Ok(None) => {
                tracing::warn!(runnable = %name, "single work cancelled, its shard is no longer ours");
            }
        }
        fence.settle().await;
        if let Some(ran) = ran {
            shared.observer.finished(dispatch, ran);
        }
        match ended {
            Ok(Some(None)) => None,
            _ => Some(()),
        }
    }

    /// Waits until the fence allows a run; `false` if the work is told to stop before.
    async fn may_begin(&self) -> bool {
        let Dispatch { shard, epoch, .. } = &self.dispatch;
        while !self.stopping.is_cancelled() {
            match self.shared.ownership.permit(shard, *epoch, Purpose::Dispatch) {
                Ok(_) => return true,
                Err(refusal) => {
                    tracing::debug!(%shard, error = %refusal, "single work not begun");
                    tokio::time::sleep(REFUSED_DELAY).await;
                }
            }
        }
        false
    }
}

impl Shared {
    /// The fence of one run.
    fn fence(&self) -> Fence {
        let Self { ownership, clock, fence_rejected, .. } = self;
        Fence::new(Arc::clone(ownership), Arc::clone(clock), fence_rejected.clone(), Arc::default())
    }
}

// === impl Singles ===

impl Singles {
    pub(crate) fn new(
        ownership: Arc<dyn Ownership>,
        observer: Arc<dyn DispatchObserver>,
        clock: Arc<dyn Clock>,
        fence_rejected: IntCounter,
    ) -> Self {
        let clusters = RwLock::default();
        let shared = Arc::new(Shared { ownership, observer, clock, fence_rejected, clusters });
        Self { work: BTreeMap::new(), held: BTreeMap::new(), shared, tasks: TaskTracker::new() }
    }

    /// Adds work.
    pub(crate) fn add(&mut self, spec: SingleSpec) {
        let turn = Arc::new(Semaphore::new(1));
        self.work.insert(spec.group.clone(), Work { spec, turn });
    }

    pub(crate) fn groups(&self) -> impl Iterator<Item = &GroupName> {
        self.work.keys()
    }

    /// Replaces the engaged clusters.
    pub(crate) fn engage(&self, clusters: impl Iterator<Item = (ClusterName, ClusterClient)>) {
        if !self.work.is_empty() {
            let clusters = clusters.collect();
            *self.shared.clusters.write().expect("no holder of this lock panics") = clusters;
        }
    }

    /// Takes a shard that this member will hold; `false` if it is not one of single work.
    pub(crate) fn start(&mut self, shard: &ShardId, epoch: Epoch, member: &MemberId) -> bool {
        let is_ours = self.work.contains_key(&shard.group);
        // An older release may have put its group into clusters: nothing runs under such a shard.
        if is_ours && *shard == single::shard(&shard.group) {
            let (member, ending) = (member.clone(), Ending::default());
            self.held.insert(shard.clone(), Held { epoch, member, ending });
        }
        is_ours
    }

    /// Begins the work of a shard.
    pub(crate) fn open(&self, shard: &ShardId) {
        let (Some(held), Some(work)) = (self.held.get(shard), self.work.get(&shard.group)) else {
            return;
        };
        let Held { epoch, member, ending } = held;
        let Work { spec, turn } = work;
        let dispatch = Dispatch {
            member: member.clone(),
            shard: shard.clone(),
            epoch: *epoch,
            controller: spec.name.clone(),
            key: ObjectKey::new(shard.cluster.clone(), None, spec.name.as_str()),
        };
        let fence = self.shared.fence();
        let (stopping, shared) = (ending.stopping.clone(), Arc::clone(&self.shared));
        let span = tracing::info_span!("single", runnable = %spec.name, %shard, epoch = epoch.0);
        let run = SingleRun { dispatch, fence, stopping, shared };
        let run = run.run(spec.clone(), Arc::clone(turn), ending.cancel.clone());
        let run = ending.runs.track_future(run.instrument(span));
        self.tasks.spawn(run);
    }

    /// Tells the work of a shard to stop; the returned [`Ending`] says when it has.
    pub(crate) fn drain(&self, shard: &ShardId) -> Option<Ending> {
        let ending = self.held.get(shard)?.ending.clone();
        ending.stopping.cancel();
        Some(ending)
    }

    /// Cancels the work of a shard.
    pub(crate) fn stop(&mut self, shard: &ShardId) {
        if let Some(held) = self.held.remove(shard) {
            held.ending.cancel();
        }
    }

    /// Cancels all work, and waits until nothing runs.
    pub(crate) async fn shut_down(&mut self) {
        for held in std::mem::take(&mut self.held).into_values() {
            held.ending.cancel();
        }
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Ending {
    /// Drops the work at once.
    pub(crate) fn cancel(&self) {
        self.stopping.cancel();
        self.cancel.cancel();
    }

    /// Waits until the work has ended, its writes included.
    pub(crate) async fn over(&self) {
        self.runs.close();
        self.runs.wait().await;
    }
}

impl fmt::Debug for SingleSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SingleSpec").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for SingleRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SingleRun").field("dispatch", &self.dispatch).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use model::testing::PausedClock;
    use model::{Moment, OwnedShards};
    use tokio::sync::watch;

    use super::*;
    use crate::dispatch::Unobserved;

    /// A member that holds every shard, and may not act for a moment.
    #[derive(Debug, Default)]
    struct Stopped(AtomicBool);

    impl Ownership for Stopped {
        fn watch(&self) -> watch::Receiver<Arc<OwnedShards>> {
            watch::channel(Arc::new(OwnedShards::none("m-1".parse().unwrap()))).1
        }

        fn permit(&self, shard: &ShardId, _: Epoch, _: Purpose) -> Result<Permit, FenceError> {
            let (shard, member) = (shard.clone(), "m-1".parse().unwrap());
            match self.0.load(Ordering::SeqCst) {
                true => Err(FenceError::LeaseExpired { shard, member }),
                false => Ok(Permit { valid_until: Moment::from_origin(Duration::MAX / 2) }),
            }
        }

        fn members(&self) -> NonZeroU32 {
            NonZeroU32::MIN
        }

        fn acknowledge_drain(&self, _: &ShardId, _: Epoch) {}
    }

    /// The late answer to a renewal makes the Lease valid again, and the shard stays all the while.
    #[tokio::test(start_paused = true)]
    async fn work_that_the_fence_stopped_for_a_moment_begins_anew() {
        let ownership = Arc::new(Stopped::default());
        let rejected = IntCounter::new("rejected", "writes").unwrap();
        let (clock, observer) = (PausedClock::new(), Arc::new(Unobserved));
        let mut singles = Singles::new(Arc::clone(&ownership) as _, observer, clock, rejected);
        let begun = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&begun);
        let spec = SingleSpec::new("report", move |run| {
            let count = Arc::clone(&count);
            async move {
                count.fetch_add(1, Ordering::SeqCst);
                loop {
                    tokio::select! {
                        () = tokio::time::sleep(Duration::from_secs(1)) => {}
                        () = run.stopping().cancelled() => return,
                    }
                }
            }
            .boxed()
        });
        let spec = spec.unwrap();
        let shard = single::shard(spec.group());
        singles.add(spec);
        singles.start(&shard, Epoch(3), &"m-1".parse().unwrap());
        singles.open(&shard);
        let pause = || tokio::time::sleep(Duration::from_secs(3));
        pause().await;
        assert_eq!(begun.load(Ordering::SeqCst), 1);
        ownership.0.store(true, Ordering::SeqCst);
        pause().await;
        assert_eq!(begun.load(Ordering::SeqCst), 1, "not while it may not act");
        ownership.0.store(false, Ordering::SeqCst);
        pause().await;
        assert_eq!(begun.load(Ordering::SeqCst), 2);
        singles.drain(&shard).unwrap().over().await;
        pause().await;
        assert_eq!(begun.load(Ordering::SeqCst), 2, "it has ended by itself");
        singles.shut_down().await;
    }
}
