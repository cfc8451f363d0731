//! The engine's assembly, and the one task that owns its state.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;

use model::{Clock, ClusterSet, ControllerName, GroupName, Ownership};
use prometheus::Registry;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::controller::ControllerSpec;
use crate::dispatch::DispatchObserver;
use crate::metrics::Metrics;
use crate::status::{InformerStatus, QueueStatus, Readiness};

/// What the engine is given.
pub struct EngineConfig<'a> {
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// What this member holds, and the fence.
    pub ownership: Arc<dyn Ownership>,
    /// The clusters, now and at each change.
    pub clusters: watch::Receiver<Arc<ClusterSet>>,
    /// The group of every controller, from [`model::group::groups`].
    pub groups: BTreeMap<ControllerName, GroupName>,
    /// Where metrics are registered.
    pub registry: &'a Registry,
    /// Told of every dispatch.
    pub observer: Arc<dyn DispatchObserver>,
    /// Seeds the jitter of retries.
    pub seed: u64,
    /// How many clusters get metric labels of their own; see
    /// [`crate::metrics::DEFAULT_CLUSTER_LABELS`].
    pub cluster_labels: usize,
}

/// An engine that cannot be assembled.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Two controllers have the same name.
    #[error("there are two controllers named {0}")]
    Duplicate(ControllerName),
    /// A controller is in no group.
    #[error("controller {0} is in no group")]
    NoGroup(ControllerName),
    /// The metrics cannot be registered.
    #[error("register the engine's metrics")]
    Metrics(#[from] prometheus::Error),
}

/// Watches clusters and runs controllers for the shards this member holds.
#[derive(Debug)]
pub struct Engine {}

/// A handle that tells how the engine is doing, while it runs and before.
#[derive(Clone, Debug)]
pub struct EngineStatus {}

impl Engine {
    /// Assembles an engine.
    ///
    /// # Errors
    /// If controllers and groups do not fit together, or metrics of the same names are registered.
    pub fn new(
        config: EngineConfig<'_>,
        _controllers: Vec<ControllerSpec>,
    ) -> Result<Self, EngineError> {
        Metrics::new(config.registry, config.cluster_labels)?;
        Ok(Self {})
    }

    /// A handle on its status.
    pub fn status(&self) -> EngineStatus {
        EngineStatus {}
    }

    /// Runs until `shutdown`, then cancels what still runs and waits for it.
    pub fn run(self, shutdown: CancellationToken) -> impl Future<Output = ()> + Send {
        async move { shutdown.cancelled().await }
    }
}

impl EngineStatus {
    /// Whether the engine does its work.
    pub fn readiness(&self) -> Readiness {
        Readiness { ready: false, waiting: Vec::new(), failing: Vec::new() }
    }

    /// Every controller's queue.
    pub fn queues(&self) -> Vec<QueueStatus> {
        Vec::new()
    }

    /// Every running informer.
    pub fn informers(&self) -> Vec<InformerStatus> {
        Vec::new()
    }
}
