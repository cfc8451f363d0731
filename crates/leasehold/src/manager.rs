//! The manager as a library: give it a [`Config`] and controllers, and run it.

use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use admin::{Admin, Bound, CHECK_TIMEOUT, Probe};
use clusters::Clusters;
use futures::FutureExt;
use futures::future::BoxFuture;
use model::{Clock, ClusterSet, TaskEnd, VitalTask};
use sdk::ControllerSpec;
use sharding::{Departure, Sharding};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{error, info, warn};

use crate::assemble::{Parts, REGISTRY, assemble};
use crate::builtin;
use crate::clock::SystemClock;
use crate::config::Config;
use crate::error::Error;
use crate::inside::{Checks, Handles, Inside};
use crate::liveness::Liveness;
use crate::review;
use crate::runnable::Runnable;
use crate::series;

/// One replica of the manager.
///
/// ```no_run
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use leasehold::prelude::*;
///
/// struct Hello;
///
/// impl Reconciler for Hello {
///     type Kind = ConfigMap;
///     async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
///         if let Some(map) = ctx.get::<ConfigMap>(key.namespace.as_deref(), &key.name)? {
///             println!("{key} has {} keys", map.data.as_ref().map_or(0, |data| data.len()));
///         }
///         Ok(Action::Done)
///     }
/// }
///
/// # async fn start() -> Result<(), leasehold::Error> {
/// let home = Home::InCluster;
/// let clusters = ClusterSources {
///     directories: vec![DirectorySource::new("clusters")],
///     ..Default::default()
/// };
/// Manager::new(Config::new(home, "replica-0", clusters))
///     .controller(Controller::for_kind::<ConfigMap>("hello").reconciler(Hello))
///     .run(CancellationToken::new())
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a manager does nothing until it is run"]
pub struct Manager {
    config: Config,
    controllers: Vec<ControllerSpec>,
    runnables: Vec<Runnable>,
    checks: Checks,
    metrics: prometheus::Registry,
    clock: Arc<dyn Clock>,
}

impl Manager {
    /// A manager without controllers, with a metrics registry of its own.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            controllers: Vec::new(),
            runnables: Vec::new(),
            checks: Checks::default(),
            metrics: telemetry::registry(),
            clock: Arc::new(SystemClock),
        }
    }

    /// Adds a controller. Where the configuration lists controllers, only those of the list run.
    pub fn controller(mut self, spec: ControllerSpec) -> Self {
        self.controllers.push(spec);
        self
    }

    /// Adds the built-in controllers that the configuration lists.
    pub fn builtin_controllers(mut self) -> Self {
        if let Some(listed) = &self.config.controllers {
            let own = |name: &str| {
                let mut listed = listed.iter().filter(|(listed, _)| listed.as_str() == name);
                listed.next().map(|(_, settings)| settings.own.clone()).unwrap_or_default()
            };
            self.controllers.extend(builtin::specs(own));
        }
        self
    }

    /// Adds work that is not a controller: on every replica, or on one of the fleet at a time.
    pub fn runnable(mut self, runnable: Runnable) -> Self {
        self.runnables.push(runnable);
        self
    }

    /// Adds a check of readiness. `/readyz?verbose` lists it with the manager's own checks; while it fails,
    /// the probe fails with its error.
    ///
    /// It is called for each probe, one call at a time. A check without an answer within
    /// [`admin::CHECK_TIMEOUT`] fails the probe and is dropped; it delays no other check.
    ///
    /// ```
    /// # use leasehold::{Manager, prelude::{Config, Home}};
    /// # async fn ping() -> std::io::Result<()> { Ok(()) }
    /// # let config = Config::new(Home::InCluster, "replica-0", Default::default());
    /// let manager = Manager::new(config)
    ///     .readiness_check("database", || async { ping().await })
    ///     .liveness_check("queue", || async { Ok::<_, &str>(()) });
    /// ```
    pub fn readiness_check<F, E>(
        mut self,
        name: &str,
        check: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Display,
    {
        self.checks.readiness.push(probe(name, check));
        self
    }

    /// Adds a check of liveness, shown by `/livez?verbose` and `/healthz?verbose`: while it fails, so does
    /// the probe, and Kubernetes restarts the Pod. So it must not depend on anything that a restart does
    /// not repair, such as a cluster that does not answer. Otherwise as [`Self::readiness_check`].
    pub fn liveness_check<F, E>(
        mut self,
        name: &str,
        check: impl Fn() -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Display,
    {
        self.checks.liveness.push(probe(name, check));
        self
    }

    /// The registry of this manager's series. Register those of your controllers here too.
    pub fn metrics(&self) -> prometheus::Registry {
        self.metrics.clone()
    }

    /// Runs until `shutdown`, then drains, hands over and gives back the Lease. Raises the number of files that the
    /// process may have open first, because there is a connection to each cluster.
    ///
    /// Returns how that went: after [`Departure::Abandoned`] other members get the shards only when the
    /// Lease has expired.
    ///
    /// # Errors
    /// When the manager cannot start, or a part of it ends unexpectedly.
    /// Unreachable clusters, home included, are not an error: they are retried.
    ///
    /// It is in a box so that all of it is compiled here, and not in each program that awaits it.
    pub fn run(self, shutdown: CancellationToken) -> BoxFuture<'static, Result<Departure, Error>> {
        self.until(shutdown).boxed()
    }

    async fn until(self, shutdown: CancellationToken) -> Result<Departure, Error> {
        // A connection to each cluster, at least.
        telemetry::raise_open_files();
        // The port first: a second instance on one host fails before it joins the fleet.
        let server = match &self.config.admin {
            Some(server) => Some(admin::bind(&server.settings).await?),
            None => None,
        };
        let guard = review::guard(&self.config, &self.clock).await?;
        let stop = CancellationToken::new();
        let _stop_on_return = stop.clone().drop_guard();
        let inside = Inside::default();
        series::register(&self.metrics, &inside)
            .map_err(|source| Error::Metrics("the manager", source))?;
        #[cfg(feature = "console")]
        let pages =
            Some(crate::pages::pages(&self.config, inside.clone(), Arc::clone(&self.clock)));
        #[cfg(not(feature = "console"))]
        let pages = None;
        let admin = inside.admin(self.metrics.clone(), self.checks, pages, guard);
        let admin = tokio::spawn(serve(server, admin, stop.clone()));
        let grace = self.config.shutdown_grace_period;
        let (singles, others): (Vec<_>, Vec<_>) =
            self.runnables.into_iter().partition(Runnable::is_single);
        let singles = singles.into_iter().map(Runnable::into_single).collect();
        let clock = Arc::clone(&self.clock);
        let assembled =
            assemble(&self.config, self.controllers, singles, &self.metrics, clock, &stop);
        let parts = tokio::select! {
            parts = assembled => parts?,
            // It has not joined, so there is nothing to hand over.
            () = shutdown.cancelled() => return Ok(Departure::HandedOver),
        };
        let stopping = shutdown.child_token();
        let beside = tokio::spawn(beside(
            others,
            parts.clusters.watch(),
            self.clock,
            stopping.clone(),
            grace,
        ));
        let running = Running::start(parts, &inside, admin, stop);
        let departure = running.until(&stopping, grace).await;
        // Unless they have been told: the engine has ended.
        stopping.cancel();
        if beside.await.is_err() {
            warn!("a runnable did not stop in order");
        }
        departure
    }
}

/// A check by the program's author, in the form that the admin server calls.
fn probe<F, E>(name: &str, check: impl Fn() -> F + Send + Sync + 'static) -> Probe
where
    F: Future<Output = Result<(), E>> + Send + 'static,
    E: Display,
{
    Probe::new(name, CHECK_TIMEOUT, move || {
        let check = check();
        async move { check.await.map_err(|error| format!("{error:#}")) }
    })
}

/// Serves probes and metrics until `stop`, if there is a server.
async fn serve(
    server: Option<Bound>,
    admin: Admin,
    stop: CancellationToken,
) -> Result<(), admin::Error> {
    match server {
        Some(server) => server.serve(admin, stop).await,
        None => {
            stop.cancelled().await;
            Ok(())
        }
    }
}

/// The part that renews the Lease and follows the ShardMaps, as errors name it.
const SHARDING: &str = "the sharding loop";

/// A manager at work.
///
/// Each part is supervised: if one ends, the rest drains and stops too, because a process without it
/// looks alive and serves nothing. Whoever runs the process starts another. Without the engine nothing
/// can drain, and without sharding nothing can be handed over: others take over when the Lease has run
/// out, and until then nobody works on its shards, because the fence permits nothing past it.
struct Running {
    clusters: Clusters,
    sharding: Sharding,
    engine: VitalTask,
    engine_stop: DropGuard,
    admin: JoinHandle<Result<(), admin::Error>>,
    stop: CancellationToken,
    _liveness: Liveness,
}

impl Running {
    fn start(
        parts: Parts,
        inside: &Inside,
        admin: JoinHandle<Result<(), admin::Error>>,
        stop: CancellationToken,
    ) -> Self {
        let Parts { clusters, sharding, engine, status, liveness } = parts;
        info!(member = %sharding.status().member, "joining the fleet");
        let shown = (clusters.clone(), sharding.clone());
        inside.show(Handles { clusters: shown.0, sharding: shown.1, engine: status });
        let engine_stop = CancellationToken::new();
        let engine = VitalTask::spawn(engine.run(engine_stop.clone()));
        let engine_stop = engine_stop.drop_guard();
        Self { clusters, sharding, engine, engine_stop, admin, stop, _liveness: liveness }
    }

    /// Runs until `stopping`, or until a part has ended; then it cancels `stopping` itself.
    async fn until(
        mut self,
        stopping: &CancellationToken,
        grace: Duration,
    ) -> Result<Departure, Error> {
        let failed = tokio::select! {
            () = stopping.cancelled() => None,
            end = self.engine.ended() => return Err(Error::ended("the engine", end)),
            end = self.sharding.ended() => Some(Error::ended(SHARDING, end)),
            end = self.clusters.ended() => Some(Error::ended(REGISTRY, end)),
            ended = &mut self.admin => Some(match ended {
                Ok(Err(error)) => error.into(),
                _ => Error::Ended("the admin server"),
            }),
        };
        match &failed {
            Some(failed) => error!("{failed}; draining and stopping the rest"),
            None => info!("shutting down: draining and handing over"),
        }
        stopping.cancel();
        let departure = timeout(grace, self.sharding.leave()).await.unwrap_or_else(|_| {
            error!(
                grace_seconds = grace.as_secs_f64(),
                "the drain did not end within the grace period"
            );
            Departure::Abandoned
        });
        let failed = failed.or_else(|| self.failed_meanwhile());
        // Only now: until it has left, the others wait for the engine's acknowledgements.
        drop(self.engine_stop);
        match timeout(grace, self.engine.ended()).await {
            Ok(TaskEnd::Returned) => {}
            Ok(end) => warn!("the engine {end} while it stopped"),
            Err(_) => warn!("the engine did not stop within the grace period"),
        }
        // One that has ended is not asked again.
        let is_serving = !self.admin.is_finished();
        self.stop.cancel();
        if !is_serving || !matches!(self.admin.await, Ok(Ok(()))) {
            warn!("the admin server did not stop in order");
        }
        match departure {
            Departure::HandedOver => info!("left the fleet: every shard is handed over"),
            Departure::Abandoned => {
                warn!(
                    "left the fleet without handing over: others take over when the Lease has expired"
                );
            }
        }
        failed.map_or(Ok(departure), Err)
    }

    /// The part that ended while the rest drained.
    fn failed_meanwhile(&self) -> Option<Error> {
        let registry = self.clusters.end().map(|end| Error::ended(REGISTRY, end));
        // It returns when the member has left.
        let sharding = self.sharding.end().filter(|end| *end != TaskEnd::Returned);
        registry.or(sharding.map(|end| Error::ended(SHARDING, end)))
    }
}

/// Runs the runnables of this replica until they have ended, or until this long after they were told to.
async fn beside(
    runnables: Vec<Runnable>,
    clusters: watch::Receiver<Arc<ClusterSet>>,
    clock: Arc<dyn Clock>,
    stopping: CancellationToken,
    grace: Duration,
) {
    let mut work = JoinSet::new();
    for runnable in runnables {
        work.spawn(runnable.on_replica(stopping.clone(), clusters.clone(), Arc::clone(&clock)));
    }
    stopping.cancelled().await;
    let ended = async { while work.join_next().await.is_some() {} };
    if timeout(grace, ended).await.is_err() {
        warn!(left = work.len(), "runnables did not end within the grace period");
    }
}

#[cfg(test)]
#[cfg(feature = "embedded")]
mod tests;
