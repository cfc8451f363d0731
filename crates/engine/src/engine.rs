//! The engine's assembly: makes the queues and runners, and starts the one task that owns the
//! state (`supervisor`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use futures::FutureExt;
use futures::future::{self, BoxFuture};
use listwatch::Form;
use model::{Budgets, Clock, ClusterLabels, ClusterSet, ControllerName, GroupName, Ownership};
use prometheus::Registry;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::assigned::Assigned;
use crate::assignment::AssignmentQueue;
use crate::dispatch::DispatchObserver;
use crate::engagements::{self, Engagements};
use crate::expectations::Expectations;
use crate::gauges::Gauges;
use crate::informers::Informers;
use crate::meter::Meter;
use crate::runner::{MAX_RUNNING, Runner};
use crate::single::{SingleSpec, Singles};
use crate::spec::ControllerSpec;
use crate::status::{Board, EngineStatus};
use crate::supervisor::{Parts, Supervised, Supervisor};
use crate::triggered::Triggered;
use cache::{AGE_EVERY, Allocated, DECODED_BYTES, DecodedCache, OptionsByKind};
use metrics::Metrics;
use queue::{Limits, WorkQueue};
use upstream::{ServiceMetrics, Services, UpstreamLimits};

/// What the engine works with.
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
    /// Counts what each shard costs.
    pub meter: Meter,
    /// Observes every dispatch.
    pub observer: Arc<dyn DispatchObserver>,
    /// Seeds the jitter of retries.
    pub seed: u64,
    /// What may be asked of each cluster.
    pub upstream: UpstreamLimits,
    /// How much is kept of each cluster.
    pub budgets: Budgets,
    /// Whether every write carries the epoch at which it is made, for clusters whose admission policy
    /// checks it: see [`writes::stamp`].
    pub stamps: bool,
    /// Which clusters have metric label values of their own.
    pub cluster_labels: Arc<ClusterLabels>,
    /// Asks the allocator, if it counts for each thread: decoded values are then weighed, not estimated.
    pub allocated: Option<Allocated>,
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
pub struct Engine {
    runners: Vec<Runner>,
    supervisor: Supervisor,
    board: Arc<Board>,
    decoded: Arc<DecodedCache>,
}

impl Engine {
    /// Assembles an engine. Nothing runs yet.
    ///
    /// # Errors
    /// If controllers and groups do not fit together, or metrics of the same names are registered.
    pub fn new(
        config: EngineConfig<'_>,
        controllers: Vec<ControllerSpec>,
    ) -> Result<Self, EngineError> {
        check(&controllers, &config.groups)?;
        let metrics = Metrics::new(config.registry, config.cluster_labels)?;
        for collector in controllers.iter().flat_map(|spec| &spec.collectors) {
            config.registry.register(Box::new(Shared(Arc::clone(collector))))?;
        }
        let mut rng = fastrand::Rng::with_seed(config.seed);
        let asked = ServiceMetrics::register(config.registry)?;
        let services = Services::new(Arc::clone(&config.clock), rng.fork(), asked);
        let reconcile_ids = Arc::new(AtomicU64::new(1));
        let runners: Vec<_> = controllers
            .into_iter()
            .map(|spec| Runner {
                queue: queue(&spec, rng.fork(), &config.clock, &metrics),
                metrics: metrics.controller(&spec.name),
                spec,
                ownership: Arc::clone(&config.ownership),
                observer: Arc::clone(&config.observer),
                clock: Arc::clone(&config.clock),
                services: Arc::clone(&services),
                fence_rejected: metrics.fence_rejected.clone(),
                reconcile_ids: Arc::clone(&reconcile_ids),
                expectations: Expectations::default(),
                assigned: Arc::new(Assigned::default()),
            })
            .collect();
        let controllers =
            runners.iter().map(|runner| (Arc::clone(&runner.queue), runner.spec.sources.clone()));
        let queues = runners.iter().map(|runner| Arc::clone(&runner.queue) as _);
        config.meter.read_queues(queues.collect());
        let (clock, ownership) = (Arc::clone(&config.clock), Arc::clone(&config.ownership));
        let board = Arc::new(Board::new(clock, ownership, controllers, &config.meter));
        let decoded = Arc::new(DecodedCache::weighing(DECODED_BYTES, config.allocated));
        let (clusters, cache) = (metrics.clusters.clone(), Arc::clone(&decoded));
        let gauges = Gauges::new(Arc::clone(&board), clusters, cache)?;
        config.registry.register(Box::new(gauges))?;
        let informers = Informers::new(
            Arc::clone(&config.clock),
            metrics.clone(),
            Arc::clone(&board),
            rng.fork(),
            options(&runners),
            Arc::clone(&decoded),
        );
        let singles = Singles::new(
            Arc::clone(&config.ownership),
            Arc::clone(&config.observer),
            Arc::clone(&config.clock),
            metrics.fence_rejected.clone(),
        );
        let controllers = runners.iter().map(|runner| {
            let group = config.groups[&runner.spec.name].clone();
            let (spec, metrics) = (runner.spec.clone(), runner.metrics.clone());
            (group, Supervised::new(spec, &runner.queue, metrics, &runner.assigned))
        });
        let engagements = Engagements::new(engagements::EngagementParts {
            clock: Arc::clone(&config.clock),
            metrics: metrics.clone(),
            board: Arc::clone(&board),
            quarantines: config.meter.quarantines().clone(),
            upstream: config.upstream,
            budgets: config.budgets,
            rng: rng.fork(),
            stamps: config.stamps,
        });
        let supervisor = Supervisor::new(
            controllers,
            Parts {
                ownership: config.ownership,
                clusters: config.clusters,
                clock: config.clock,
                informers,
                meter: config.meter,
                metrics,
                board: Arc::clone(&board),
                engagements,
                rng,
                singles,
            },
        );
        Ok(Self { runners, supervisor, board, decoded })
    }

    /// Adds work that runs once in the fleet. Its group must be among those that this member announces
    /// to the fleet.
    #[must_use]
    pub fn single(mut self, spec: SingleSpec) -> Self {
        self.supervisor.add_single(spec);
        self
    }

    /// A handle on its status.
    pub fn status(&self) -> EngineStatus {
        EngineStatus(Arc::clone(&self.board))
    }

    /// Runs until `shutdown`, then cancels what still runs and waits until nothing does.
    ///
    /// To leave in an orderly way, drain the shards first: the implementation of [`Ownership`] does
    /// that.
    ///
    /// It is in a box so that the engine is compiled here, and not in the crate that awaits it.
    pub fn run(self, shutdown: CancellationToken) -> BoxFuture<'static, ()> {
        let Self { runners, supervisor, decoded, board } = self;
        let triggered: Vec<_> = runners.iter().flat_map(triggered).collect();
        async move {
            // Ends with this future.
            let mut triggers = JoinSet::new();
            for triggered in triggered {
                triggers.spawn(triggered.run());
            }
            for source in runners.iter().flat_map(|runner| runner.spec.trigger_sources.take()) {
                triggers.spawn(source);
            }
            let runs = runners.into_iter().map(|runner| runner.run(shutdown.clone()));
            let all = future::join(supervisor.run(shutdown.clone()), future::join_all(runs));
            let ages = async {
                loop {
                    decoded.follow(board.informers().iter().map(|state| state.store.bytes()).sum());
                    tokio::time::sleep(AGE_EVERY).await;
                    decoded.age();
                }
            };
            future::select(pin!(all), pin!(ages)).await;
        }
        .boxed()
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let controllers: Vec<_> = self.runners.iter().map(|runner| &runner.spec).collect();
        f.debug_struct("Engine").field("controllers", &controllers).finish_non_exhaustive()
    }
}

/// The ends of a controller's triggers.
fn triggered(runner: &Runner) -> impl Iterator<Item = Triggered> {
    let Runner { spec, assigned, queue, .. } = runner;
    spec.triggers.iter().map(|trigger| Triggered::of(trigger, assigned, queue))
}

fn check(
    controllers: &[ControllerSpec],
    groups: &BTreeMap<ControllerName, GroupName>,
) -> Result<(), EngineError> {
    let mut names = BTreeSet::new();
    for ControllerSpec { name, .. } in controllers {
        if !names.insert(name) {
            return Err(EngineError::Duplicate(name.clone()));
        }
        if !groups.contains_key(name) {
            return Err(EngineError::NoGroup(name.clone()));
        }
    }
    Ok(())
}

/// What the cache of each kind keeps, of whole objects and of their metadata: what any of its
/// controllers needs.
fn options(runners: &[Runner]) -> BTreeMap<Form, OptionsByKind> {
    let mut options: BTreeMap<_, OptionsByKind> = BTreeMap::new();
    for spec in runners.iter().map(|runner| &runner.spec) {
        let watched = spec.sources.iter().map(|source| (source.kind.clone(), source.form));
        for (kind, form) in watched.collect::<BTreeSet<_>>() {
            let declared = spec.options.get(&(kind.clone(), form)).cloned().unwrap_or_default();
            options.entry(form).or_default().declare(&kind, declared);
        }
    }
    options
}

fn queue(
    spec: &ControllerSpec,
    rng: fastrand::Rng,
    clock: &Arc<dyn Clock>,
    metrics: &Metrics,
) -> Arc<AssignmentQueue> {
    let limits = Limits { per_cluster: spec.workers, total: MAX_RUNNING };
    let metrics = metrics.queue(&spec.name);
    let retries = (spec.rate_limiter, rng);
    Arc::new(WorkQueue::new(spec.name.clone(), limits, retries, Arc::clone(clock), metrics))
}

/// The series of a controller, as a registry takes them.
struct Shared(Arc<dyn Collector>);

impl Collector for Shared {
    fn desc(&self) -> Vec<&Desc> {
        self.0.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        self.0.collect()
    }
}
