//! The outside services that a process asks, by name. The shell around `pace` and the gate.
//!
//! Names may be made of what objects say, so each cluster has room for some only. A service counts for one of
//! the clusters that ask it: the first, until one asks that has fewer. So a cluster that invents names takes
//! no service from another.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use model::{Clock, ClusterName, ControllerName, Moment, ObjectKey};
use sha2::{Digest, Sha256};

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
/// The most services that are known for one cluster. Beyond it, those go that were asked longest ago.
const MAX_OF_A_CLUSTER: usize = 1024;
/// How many of them go at once: finding them takes a look at all of the cluster.
const LEFT_OUT_AT_ONCE: usize = MAX_OF_A_CLUSTER / 8;
/// How much of a service's name people see, in characters.
const SHOWN_CHARS: usize = 128;

/// Stands for a name, which may be of any length. Nobody finds another name with the same.
type NameId = [u8; 16];

/// One service outside of Kubernetes: what all reconciles that name it alike share.
#[derive(Debug)]
pub struct Service {
    id: NameId,
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
    /// Each with the cluster that it counts for.
    known: HashMap<NameId, (ClusterName, Arc<Service>)>,
    /// Those that count for each cluster.
    of: BTreeMap<ClusterName, HashSet<NameId>>,
    rng: fastrand::Rng,
    swept: Moment,
}

// === impl Services ===

impl Services {
    /// Knows none yet.
    pub fn new(clock: Arc<dyn Clock>, rng: fastrand::Rng, metrics: ServiceMetrics) -> Arc<Self> {
        let (known, of) = (HashMap::new(), BTreeMap::new());
        let inner = Inner { known, of, rng, swept: clock.now() };
        Arc::new(Self { clock, metrics, inner: Mutex::new(inner) })
    }

    /// The upstream of that name, made if it is new, for a reconcile of that cluster.
    pub fn get(
        &self,
        cluster: &ClusterName,
        service: &'static str,
        name: &str,
        limits: &ExternalLimits,
    ) -> Arc<Service> {
        let (now, id) = (self.clock.now(), name_id(name));
        let mut inner = self.inner.lock().expect("no holder of this lock panics");
        if now.since(inner.swept) >= IDLE {
            inner.swept = now;
            inner.leave_out(|_, service| service.is_idle(now));
        }
        if let Some(known) = inner.find(cluster, &id) {
            return known;
        }
        inner.make_room(cluster, now);
        self.metrics.begin(service);
        let gate_limits = UpstreamLimits {
            requests_per_second: UNBOUNDED,
            burst: UNBOUNDED,
            max_concurrency: limits.max_concurrency,
            first_pause: limits.first_pause,
            max_pause: limits.max_pause,
        };
        // It may be made of what a Secret or an object says.
        let shown = model::error::foreign_to(name, SHOWN_CHARS);
        let upstream = Upstream::External(shown.into());
        let service = Arc::new(Service {
            id,
            gate: Gate::new(upstream, &gate_limits, Arc::clone(&self.clock), inner.rng.fork()),
            clock: Arc::clone(&self.clock),
            service,
            pace: Mutex::new(Pace::new(*limits)),
            asked: Mutex::new(now),
            metrics: self.metrics.clone(),
        });
        inner.known.insert(id, (cluster.clone(), Arc::clone(&service)));
        inner.of.entry(cluster.clone()).or_default().insert(id);
        service
    }
}

impl fmt::Debug for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Services").finish_non_exhaustive()
    }
}

// === impl Inner ===

impl Inner {
    fn find(&mut self, cluster: &ClusterName, id: &NameId) -> Option<Arc<Service>> {
        let (of, service) = self.known.get_mut(id)?;
        let count = |of: &ClusterName| self.of.get(of).map_or(0, HashSet::len);
        if count(cluster) < count(of) {
            if let Some(all) = self.of.get_mut(of) {
                all.remove(id);
            }
            self.of.entry(cluster.clone()).or_default().insert(*id);
            of.clone_from(cluster);
        }
        Some(Arc::clone(service))
    }

    /// Leaves out some services of a cluster that has as many as it may: first those that nobody holds and
    /// that have promised nothing, of these those asked longest ago.
    fn make_room(&mut self, cluster: &ClusterName, now: Moment) {
        let Some(all) = self.of.get(cluster).filter(|all| all.len() >= MAX_OF_A_CLUSTER) else {
            return;
        };
        let known = all.iter().filter_map(|id| Some((self.known.get(id)?, *id)));
        let mut order: Vec<_> = known
            .map(|((_, service), id)| {
                let is_held = Arc::strong_count(service) > 1;
                (is_held, service.is_promised(now), service.asked(), id)
            })
            .collect();
        order.sort_unstable();
        let first: HashSet<_> = order.iter().take(LEFT_OUT_AT_ONCE).map(|one| one.3).collect();
        self.leave_out(|id, _| first.contains(id));
    }

    fn leave_out(&mut self, goes: impl Fn(&NameId, &Service) -> bool) {
        let Self { known, of, .. } = self;
        known.retain(|id, (cluster, service)| {
            let goes = goes(id, service);
            if goes && let Some(all) = of.get_mut(cluster) {
                all.remove(id);
            }
            !goes
        });
        of.retain(|_, all| !all.is_empty());
    }
}

// === impl Service ===

impl Service {
    /// Whether this is its name.
    pub fn is_named(&self, name: &str) -> bool {
        self.id == name_id(name)
    }

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
        now.since(self.asked()) >= IDLE
    }

    fn asked(&self) -> Moment {
        *self.asked.lock().expect("no holder of this lock panics")
    }

    fn is_promised(&self, now: Moment) -> bool {
        self.pace.lock().expect("no holder of this lock panics").is_promised(now)
    }
}

fn name_id(name: &str) -> NameId {
    let digest = Sha256::digest(name);
    std::array::from_fn(|at| digest[at])
}

#[cfg(test)]
mod tests {
    use model::testing::PausedClock;

    use super::*;

    const ALONE: NonZeroU32 = NonZeroU32::MIN;

    fn services() -> Arc<Services> {
        let metrics = ServiceMetrics::register(&prometheus::Registry::new()).unwrap();
        Services::new(PausedClock::new(), fastrand::Rng::with_seed(1), metrics)
    }

    fn get(services: &Services, cluster: &str, name: &str) -> Arc<Service> {
        let limits = ExternalLimits { requests: 1, burst: 1, ..ExternalLimits::default() };
        services.get(&cluster.parse().unwrap(), "sqs", name, &limits)
    }

    fn asker(number: usize) -> (ControllerName, ObjectKey) {
        let key = ObjectKey::new("east".parse().unwrap(), Some("ns"), &format!("queue-{number}"));
        ("sqs".parse().unwrap(), key)
    }

    fn known(services: &Services) -> (usize, usize) {
        let inner = services.inner.lock().unwrap();
        (inner.known.len(), inner.of.values().map(HashSet::len).sum())
    }

    #[tokio::test(start_paused = true)]
    async fn names_that_a_cluster_invents_take_little_and_nothing_from_others() {
        let services = services();
        let theirs = get(&services, "west", "sqs account");
        let both = get(&services, "east", "sqs shared");
        let held = get(&services, "east", "sqs held");
        let promised = get(&services, "east", "sqs promised");
        promised.turn(&asker(0), 1, ALONE).unwrap();
        promised.turn(&asker(1), 1, ALONE).unwrap_err();
        // Of two that ask it, it counts for the one that has fewer.
        assert!(Arc::ptr_eq(&both, &get(&services, "west", "sqs shared")));
        let (theirs, both) = (Arc::downgrade(&theirs), Arc::downgrade(&both));
        let promised = Arc::downgrade(&promised);
        let filler = "\n".repeat(9) + &"x".repeat(1000);
        for number in 0..10_000 {
            let service = get(&services, "east", &format!("{number} {filler}"));
            let Upstream::External(shown) = service.gate().upstream() else { panic!("a service") };
            assert!(shown.chars().count() == SHOWN_CHARS + 1 && !shown.contains('\n'), "{shown:?}");
        }
        let (all, counted) = known(&services);
        assert!((MAX_OF_A_CLUSTER / 2..=MAX_OF_A_CLUSTER + 2).contains(&all), "{all}");
        assert_eq!(all, counted);
        assert!(Arc::ptr_eq(&held, &get(&services, "east", "sqs held")));
        for (kept, name) in [(theirs, "account"), (both, "shared"), (promised, "promised")] {
            assert!(kept.upgrade().is_some(), "{name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn names_that_begin_alike_are_different_services() {
        let services = services();
        let long = "x".repeat(SHOWN_CHARS);
        let (one, other) =
            (get(&services, "east", &long), get(&services, "east", &format!("{long}y")));
        assert!(!Arc::ptr_eq(&one, &other));
        assert!(one.is_named(&long) && !other.is_named(&long));
    }
}
