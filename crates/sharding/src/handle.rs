//! The public handle of a member: starts it, implements the fence, makes it leave, and tells whether its
//! loop still turns.
//!
//! A loop that ended, or hangs, harms nobody: it renews nothing, so nothing is permitted once the Lease is
//! over. But the process is of no use then. [`Sharding::ended`] tells of the one, [`Sharding::turns`] of
//! the other.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::sync::Arc;

use kube::Client;
use model::{
    Clock, ClusterSet, Epoch, FenceError, Hold, Holding, Moment, OwnedShards, Ownership, Permit,
    Purpose, ShardId, TaskEnd, VitalTask, Workload,
};
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::config::{Config, ConfigError};
use crate::member::Departure;
use crate::metrics::Metrics;
use crate::node::Node;
use crate::problem::OpenProblems;
use crate::pulse::{Pulse, Stalled};
use crate::shell::run::{Acknowledged, Loop, Reading, Snapshot};
use crate::shell::write::Writer;
use crate::status::{HeldShard, Status};

/// A running member. Cheap to clone. If the last clone is dropped without [`leave`](Self::leave), the
/// member stops at once, as in a crash.
#[derive(Clone, Debug)]
pub struct Sharding {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    clock: Arc<dyn Clock>,
    owned: watch::Receiver<Arc<OwnedShards>>,
    snapshot: watch::Receiver<Arc<Snapshot>>,
    departed: watch::Receiver<Option<Departure>>,
    leave: watch::Sender<bool>,
    acknowledged: Arc<Acknowledged>,
    pulse: Pulse,
    task: VitalTask,
    _stop: DropGuard,
}

/// Why a member could not start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The settings are wrong.
    #[error("sharding cannot start with these settings")]
    Config(#[source] ConfigError),
    /// A metric could not be registered.
    #[error("register the metrics of sharding")]
    Metrics(#[source] prometheus::Error),
}

impl Sharding {
    /// Starts a member. It joins through the cluster `home`, shares the shards of `clusters` with other
    /// members, and reports the load of its shards from `workload`. Needs a tokio runtime.
    ///
    /// # Errors
    /// Wrong settings, or a metric that is already registered. Trouble with the home cluster is no
    /// error: the member retries, and [`status`](Self::status) shows the problem.
    pub fn spawn(
        home: Client,
        config: Config,
        clusters: watch::Receiver<Arc<ClusterSet>>,
        workload: Arc<dyn Workload>,
        clock: Arc<dyn Clock>,
        registry: &prometheus::Registry,
    ) -> Result<Self, Error> {
        config.validate().map_err(Error::Config)?;
        let labels = Arc::clone(&config.cluster_labels);
        let metrics = Metrics::register(registry, labels).map_err(Error::Metrics)?;
        let (lease, seed) = (config.lease, config.seed);
        let (disputed, living) = (config.disputed.clone(), config.living.clone());
        metrics.set_lease_duration(lease.duration);
        let writer = Writer {
            client: home,
            namespace: config.namespace.clone(),
            owner: config.owner.clone(),
        };
        let started = clock.now();
        let node = Node::new(config, started);
        let first = Snapshot::of(&node, Arc::default(), 0, Arc::default(), started);
        let (owned_sender, owned) = watch::channel(Arc::clone(&first.published.owned));
        let (snapshot_sender, snapshot) = watch::channel(Arc::new(first));
        let (departed_sender, departed) = watch::channel(None);
        let (leave, leave_receiver) = watch::channel(false);
        let acknowledged = Arc::new(Acknowledged::default());
        let (turned, pulse) = Pulse::new(lease.duration, clock.now());
        let stop = CancellationToken::new();
        let run = Loop {
            node,
            clock: Arc::clone(&clock),
            writer,
            lease,
            metrics,
            clusters,
            workload,
            measure_at: Moment::default(),
            acknowledged: Arc::clone(&acknowledged),
            leave: leave_receiver,
            owned: owned_sender,
            snapshot: snapshot_sender,
            departed: departed_sender,
            disputed,
            living: (living, started),
            turned,
            rng: fastrand::Rng::with_seed(seed.wrapping_add(1)),
            problems: OpenProblems::default(),
            unowned: (0, 0),
            renewed: started,
            unserved: Arc::default(),
            policies: None,
            events: None,
            reading: Reading::default(),
        };
        let task = VitalTask::spawn(run.run(stop.clone()));
        let inner = Inner {
            clock,
            owned,
            snapshot,
            departed,
            leave,
            acknowledged,
            pulse,
            task,
            _stop: stop.drop_guard(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Drains every shard, waits until others have them (at most the drain timeout and a Lease's
    /// duration), gives back the Lease and removes the Member. After that the process may exit.
    /// Repeated calls wait for the same departure.
    pub async fn leave(&self) -> Departure {
        self.inner.leave.send_replace(true);
        let mut departed = self.inner.departed.clone();
        match departed.wait_for(Option::is_some).await {
            Ok(departure) => departure.unwrap_or(Departure::Abandoned),
            // The loop ended without a departure: it handed nothing over.
            Err(_) => Departure::Abandoned,
        }
    }

    /// Waits until the member's loop has ended: it returns after a departure, else that is a defect.
    pub async fn ended(&self) -> TaskEnd {
        self.inner.task.ended().await
    }

    /// How the member's loop has ended, if it has.
    pub fn end(&self) -> Option<TaskEnd> {
        self.inner.task.end()
    }

    /// Whether the member's loop turns, or has ended in order. What the home cluster does plays no part.
    /// Takes half a second at most.
    ///
    /// # Errors
    /// If it has not turned for a Lease's duration. Only a new process helps then.
    pub async fn turns(&self) -> Result<(), Stalled> {
        let departed = || self.inner.departed.borrow().is_some();
        match self.inner.pulse.check(&*self.inner.clock).await {
            Err(_) if departed() => Ok(()),
            outcome => outcome,
        }
    }

    /// The present status of this member.
    pub fn status(&self) -> Status {
        let snapshot = Arc::clone(&self.inner.snapshot.borrow());
        let now = self.inner.clock.now();
        let owned = &snapshot.published.owned;
        Status {
            member: owned.member.clone(),
            state: snapshot.state,
            synced: snapshot.synced,
            lease_age_seconds: snapshot.renewed.map(|at| now.since(at).as_secs_f64()),
            lease_valid_seconds: now.until(snapshot.published.valid_until).as_secs_f64(),
            coordinator: snapshot.coordinator.clone(),
            is_coordinator: snapshot.is_coordinator,
            shards: owned.holdings.iter().map(|held| shown(held, &snapshot.unserved)).collect(),
            unowned: snapshot.unowned,
            refused_clusters: snapshot.refused.clone(),
            hindrance: snapshot.hindrance.as_ref().or(snapshot.problems.values().next()).cloned(),
            problems: snapshot.found.iter().chain(snapshot.problems.values()).cloned().collect(),
        }
    }
}

fn shown((shard, holding): (&ShardId, &Holding), unserved: &BTreeSet<ShardId>) -> HeldShard {
    let hold = match holding.hold {
        Hold::Warming => "warming",
        Hold::Active => "active",
        Hold::Draining { .. } => "draining",
    };
    let unserved = unserved.contains(shard);
    HeldShard { shard: shard.clone(), epoch: holding.epoch, hold, unserved }
}

impl Ownership for Sharding {
    fn watch(&self) -> watch::Receiver<Arc<OwnedShards>> {
        self.inner.owned.clone()
    }

    fn permit(
        &self,
        shard: &ShardId,
        epoch: Epoch,
        purpose: Purpose,
    ) -> Result<Permit, FenceError> {
        let snapshot = Arc::clone(&self.inner.snapshot.borrow());
        let published = &snapshot.published;
        // Reads the clock after the snapshot, so that a pause between the two fences.
        let now = self.inner.clock.now();
        published.owned.permit(shard, epoch, purpose, published.valid_until, now)
    }

    fn members(&self) -> NonZeroU32 {
        self.inner.snapshot.borrow().published.members
    }

    fn acknowledge_drain(&self, shard: &ShardId, epoch: Epoch) {
        self.inner.acknowledged.add(shard, epoch);
    }
}
