//! The outside services that a process asks, by name. The shell around `pace` and the gate.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use model::{Clock, ControllerName, Moment, ObjectKey};

use super::error::{Upstream, UpstreamError};
use super::gate::{Gate, Ticket};
use super::limits::{ExternalLimits, UpstreamLimits};
use super::outcome::Outcome;
use super::pace::Pace;
use super::service_metrics::ServiceMetrics;

/// A service that was not asked for this long is forgotten.
const IDLE: Duration = Duration::from_secs(3600);
/// The pace bounds the rate, so the gate does not.
const UNBOUNDED: u32 = 1_000_000;

/// One service outside of Kubernetes: what all reconciles that name it alike share.
#[derive(Debug)]
pub struct Service {
    gate: Arc<Gate>,
    clock: Arc<dyn Clock>,
    service: &'static str,
    pace: Mutex<Pace>,
    asked: Mutex<Moment>,
    metrics: ServiceMetrics,
}

/// Every service that was named lately.
pub struct Services {
    clock: Arc<dyn Clock>,
    metrics: ServiceMetrics,
    inner: Mutex<Inner>,
}

struct Inner {
    known: HashMap<Arc<str>, Arc<Service>>,
    rng: fastrand::Rng,
    swept: Moment,
}

// === impl Services ===

impl Services {
    /// Knows none yet.
    pub fn new(clock: Arc<dyn Clock>, rng: fastrand::Rng, metrics: ServiceMetrics) -> Arc<Self> {
        let inner = Inner { known: HashMap::new(), rng, swept: clock.now() };
        Arc::new(Self { clock, metrics, inner: Mutex::new(inner) })
    }

    /// The upstream of that name, made if it is new.
    pub fn get(&self, service: &'static str, name: &str, limits: &ExternalLimits) -> Arc<Service> {
        let now = self.clock.now();
        let mut inner = self.inner.lock().expect("no holder of this lock panics");
        if now.since(inner.swept) >= IDLE {
            inner.swept = now;
            inner.known.retain(|_, service| !service.is_idle(now));
        }
        if let Some(service) = inner.known.get(name) {
            return Arc::clone(service);
        }
        self.metrics.begin(service);
        let name: Arc<str> = Arc::from(name);
        let gate_limits = UpstreamLimits {
            requests_per_second: UNBOUNDED,
            burst: UNBOUNDED,
            max_concurrency: limits.max_concurrency,
            first_pause: limits.first_pause,
            max_pause: limits.max_pause,
        };
        let upstream = Upstream::External(Arc::clone(&name));
        let service = Arc::new(Service {
            gate: Gate::new(upstream, &gate_limits, Arc::clone(&self.clock), inner.rng.fork()),
            clock: Arc::clone(&self.clock),
            service,
            pace: Mutex::new(Pace::new(*limits)),
            asked: Mutex::new(now),
            metrics: self.metrics.clone(),
        });
        inner.known.insert(name, Arc::clone(&service));
        service
    }
}

impl fmt::Debug for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Services").finish_non_exhaustive()
    }
}

// === impl Service ===

impl Service {
    /// The gate before it.
    pub fn gate(&self) -> &Arc<Gate> {
        &self.gate
    }

    /// Takes the turn of a controller's key.
    ///
    /// # Errors
    /// If the turn has not come: when it comes.
    pub fn turn(
        &self,
        asker: &(ControllerName, ObjectKey),
        requests: u32,
        members: NonZeroU32,
    ) -> Result<(), UpstreamError> {
        let now = self.clock.now();
        *self.asked.lock().expect("no holder of this lock panics") = now;
        let mut pace = self.pace.lock().expect("no holder of this lock panics");
        let turn = pace.turn(asker, requests, members, now);
        drop(pace);
        turn.map_err(|at| {
            self.metrics.held(self.service);
            UpstreamError::NotYet {
                upstream: self.gate.upstream().clone(),
                again_in: now.until(at),
            }
        })
    }

    /// Takes one more token for a reconcile that has begun.
    pub fn spend(&self, members: NonZeroU32) {
        let now = self.clock.now();
        self.pace.lock().expect("no holder of this lock panics").spend(1, members, now);
    }

    /// Returns back what a reconcile did not use of its turn.
    pub fn give_back(&self, requests: u32, members: NonZeroU32) {
        self.pace.lock().expect("no holder of this lock panics").give_back(requests, members);
    }

    /// Counts a call by how it ended.
    pub fn count(&self, outcome: &Outcome, ticket: &Ticket) {
        self.metrics.observe(self.service, outcome, ticket.age());
    }

    fn is_idle(&self, now: Moment) -> bool {
        now.since(*self.asked.lock().expect("no holder of this lock panics")) >= IDLE
    }
}
