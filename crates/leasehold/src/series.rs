//! The series of the manager as a whole: which build it is, whether it is ready, and how busy its threads are.

use std::sync::{OnceLock, Weak};
use std::time::Duration;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Counter, IntGauge, IntGaugeVec, Opts, Registry};
use sharding::ProtocolVersions;
use tokio::runtime::Handle;

use crate::inside::{Handles, Inside};

/// Registers them. Readiness is that of `inside`.
///
/// # Errors
/// If the registry has series of these names.
pub(crate) fn register(registry: &Registry, inside: &Inside) -> Result<(), prometheus::Error> {
    let build = Opts::new("leasehold_build_info", "1, with the version of this build as labels.");
    let build = IntGaugeVec::new(build, &["version", "protocol"])?;
    let protocol = ProtocolVersions::SPOKEN.newest.to_string();
    build.with_label_values(&[env!("CARGO_PKG_VERSION"), &protocol]).set(1);
    registry.register(Box::new(build))?;
    if let Ok(runtime) = Handle::try_current() {
        registry.register(Box::new(Threads::new(runtime)?))?;
    }
    registry.register(Box::new(Ready::new(inside)?))
}

/// How busy the threads of the runtime are that reconciles run on.
struct Threads {
    runtime: Handle,
    workers: IntGauge,
    busy: Counter,
    tasks: IntGauge,
    waiting: IntGauge,
}

impl Threads {
    fn new(runtime: Handle) -> Result<Self, prometheus::Error> {
        Ok(Self {
            runtime,
            workers: IntGauge::new("leasehold_runtime_workers", "Threads that run tasks.")?,
            busy: Counter::new(
                "leasehold_runtime_busy_seconds_total",
                "Time that the threads have spent running tasks, summed.",
            )?,
            tasks: IntGauge::new("leasehold_runtime_tasks", "Tasks that have not ended.")?,
            waiting: IntGauge::new(
                "leasehold_runtime_waiting_tasks",
                "Tasks that could run and wait for any thread.",
            )?,
        })
    }

    fn series(&self) -> [&dyn Collector; 4] {
        [&self.workers, &self.busy, &self.tasks, &self.waiting]
    }
}

impl Collector for Threads {
    fn desc(&self) -> Vec<&Desc> {
        self.series().into_iter().flat_map(Collector::desc).collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let (metrics, whole) = (self.runtime.metrics(), |n| i64::try_from(n).unwrap_or(i64::MAX));
        let workers = metrics.num_workers();
        let busy: Duration =
            (0..workers).map(|worker| metrics.worker_total_busy_duration(worker)).sum();
        self.workers.set(whole(workers));
        // Two scrapes at once may have read in one order and count in the other.
        self.busy.inc_by((busy.as_secs_f64() - self.busy.get()).max(0.0));
        self.tasks.set(whole(metrics.num_alive_tasks()));
        self.waiting.set(whole(metrics.global_queue_depth()));
        self.series().into_iter().flat_map(Collector::collect).collect()
    }
}

/// `leasehold_ready`, which is asked at each scrape.
struct Ready {
    /// Whoever keeps the registry does not keep the manager.
    inside: Weak<OnceLock<Handles>>,
    gauge: IntGauge,
}

impl Ready {
    fn new(inside: &Inside) -> Result<Self, prometheus::Error> {
        let what = "1 if this replica is ready, as /readyz says without the program's own checks.";
        Ok(Self { inside: inside.downgrade(), gauge: IntGauge::new("leasehold_ready", what)? })
    }
}

impl Collector for Ready {
    fn desc(&self) -> Vec<&Desc> {
        self.gauge.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let ready =
            Inside::upgrade(&self.inside).is_some_and(|inside| inside.readiness().is_ready());
        self.gauge.set(ready.into());
        self.gauge.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_that_is_not_assembled_says_which_build_it_is_and_that_it_is_not_ready() {
        let (registry, inside) = (Registry::new(), Inside::default());
        register(&registry, &inside).unwrap();
        let text = telemetry::encode(&registry, telemetry::Format::Prometheus);
        assert!(text.lines().any(|line| line == "leasehold_ready 0"), "{text}");
        let version = format!("version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"));
        assert!(text.contains("leasehold_build_info{") && text.contains(&version), "{text}");
        assert!(register(&registry, &inside).is_err(), "names are registered once");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn work_on_the_threads_counts() {
        let threads = Threads::new(Handle::current()).unwrap();
        threads.collect();
        let before = threads.busy.get();
        let work = tokio::spawn(async { std::thread::sleep(Duration::from_millis(20)) });
        work.await.unwrap();
        let waits = tokio::spawn(std::future::pending::<()>());
        // A thread counts a turn when it ends.
        while threads.busy.get() < before + 0.02 {
            tokio::task::yield_now().await;
            threads.collect();
        }
        assert_eq!((threads.workers.get(), threads.tasks.get()), (2, 1));
        waits.abort();
    }
}
