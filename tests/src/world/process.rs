//! One replica of the manager: sharding and engine together, on their own machine.
//!
//! Dropping the machine is a kill: none of its tasks runs any further. Not running it is a stop.
//! Its timers follow its own clock.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::{Engine, EngineConfig, Meter};
use model::{Cluster, ClusterName, ClusterSet, ClusterState, ControllerName, GroupName};
use sdk::ControllerSpec;
use sharding::{ProtocolVersions, Sharding};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::history::{History, Observer};
use super::link::{Link, Outbox};
use super::machine::Machine;
use super::mirror;
use super::plan::Setup;
use super::planted::{Planted, Planter};
use super::stumble::stumbling;
use super::timeline::{Pace, Timeline};

/// How long a reconcile may continue in a shard that is handed over.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(4);

/// What a process starts with.
#[derive(Debug)]
pub struct StartConfig<'a> {
    /// Its number.
    pub number: usize,
    /// The number of its replica.
    pub replica: usize,
    /// When it starts, in the world's microseconds.
    pub at_us: u64,
    /// How its clock runs.
    pub pace: Pace,
    /// The seed of its random choices.
    pub seed: u64,
    /// How large the world is.
    pub setup: &'a Setup,
    /// Its configured clusters.
    pub configured: &'a Configured,
    /// Where its requests go.
    pub outbox: &'a Outbox,
    /// Where its dispatches are recorded.
    pub history: &'a History,
    /// The bug it has.
    pub bug: Option<Planted>,
}

impl StartConfig<'_> {
    /// The protocol versions that its release speaks.
    fn speaks(&self) -> ProtocolVersions {
        let present = ProtocolVersions::SPOKEN;
        let is_next = self.setup.update_us.is_some_and(|update_us| self.at_us >= update_us);
        ProtocolVersions { newest: present.newest + u32::from(is_next), ..present }
    }
}

/// Clusters by number: the incarnation of the kubeconfig, or none if it is unusable.
pub type Configured = BTreeMap<usize, Option<u64>>;

/// A running replica.
pub struct Process {
    number: usize,
    timeline: Arc<Timeline>,
    outbox: Outbox,
    sharding: Sharding,
    /// One sender each for sharding and engine: with two receivers on one channel, tokio chooses at
    /// random which wakes first.
    clusters: [Clusters; 2],
    engine: JoinHandle<()>,
    engine_stop: CancellationToken,
    left: Arc<AtomicBool>,
    planter: Planter,
    /// Last, because dropping the fields above may need it.
    machine: Machine,
}

impl fmt::Debug for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process").field("number", &self.number).finish_non_exhaustive()
    }
}

/// A cluster's name.
pub fn cluster_name(number: usize) -> ClusterName {
    format!("c{number}").parse().expect("c and a number are a name")
}

/// The identity of a replica's members.
pub fn identity(replica: usize) -> String {
    format!("replica-{replica}")
}

impl Process {
    /// Starts a process.
    pub fn start(start: &StartConfig<'_>) -> Self {
        let machine = Machine::default();
        let inside = machine.enter();
        let &StartConfig { number, outbox, .. } = start;
        let timeline = Timeline::begin(start.pace, start.at_us);
        let planter = Planter::new(start.bug);
        let set = clusters(number, start.configured, &timeline, outbox, &planter);
        let clusters = [watch::Sender::new(Arc::clone(&set)), watch::Sender::new(set)];
        let parts = Parts::new(start, &timeline, &planter);
        let sharding = parts.sharding(start, &timeline, &clusters[0], &planter);
        let engine = parts.engine(start, &timeline, &clusters[1], &sharding, &planter);
        let engine_stop = CancellationToken::new();
        let engine = tokio::spawn(engine.run(engine_stop.clone()));
        drop(inside);
        let (outbox, left) = (outbox.clone(), Arc::default());
        Self {
            number,
            timeline,
            outbox,
            sharding,
            clusters,
            engine,
            engine_stop,
            left,
            planter,
            machine,
        }
    }

    /// Runs it through a slice of the world's time.
    pub fn run(&self, from_us: u64, until_us: u64) {
        let end = self.timeline.enter(from_us, until_us);
        self.machine.run_until(end);
    }

    /// Resumes it after a stop. `slept_us` is how long its machine slept, if it did.
    pub fn resume_at(&self, now_us: u64, slept_us: Option<u64>) {
        if let Some(slept_us) = slept_us {
            self.timeline.suspend(slept_us);
        }
        self.machine.jump_to(self.timeline.enter(now_us, now_us));
    }

    /// Its time.
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// Configures it with other clusters.
    pub fn configure(&self, configured: &Configured) {
        let inside = self.machine.enter();
        let set = clusters(self.number, configured, &self.timeline, &self.outbox, &self.planter);
        drop(inside);
        for sender in &self.clusters {
            sender.send_replace(Arc::clone(&set));
        }
    }

    /// Asks it to leave, as SIGTERM does.
    pub fn leave(&self) {
        let (sharding, stop) = (self.sharding.clone(), self.engine_stop.clone());
        let left = Arc::clone(&self.left);
        self.machine.handle().spawn(async move {
            sharding.leave().await;
            stop.cancel();
            left.store(true, Ordering::Relaxed);
        });
    }

    /// Whether it has left.
    pub fn has_left(&self) -> bool {
        self.left.load(Ordering::Relaxed) && self.engine.is_finished()
    }

    /// Whether it panicked: its engine ended without being asked to.
    pub fn has_panicked(&self) -> bool {
        !self.engine_stop.is_cancelled() && self.engine.is_finished()
    }
}

/// What sharding and engine both need.
struct Parts {
    specs: Vec<ControllerSpec>,
    groups: BTreeMap<ControllerName, GroupName>,
    registry: prometheus::Registry,
    meter: Meter,
}

/// The channel through which a part gets its clusters.
type Clusters = watch::Sender<Arc<ClusterSet>>;

impl Parts {
    fn new(start: &StartConfig<'_>, timeline: &Arc<Timeline>, planter: &Planter) -> Self {
        let mut specs = vec![mirror::controller(start.seed.wrapping_add(2))];
        if start.setup.sets > 0 {
            specs.extend(controllers::build("tdset", 2));
        }
        let inputs: Vec<_> = specs.iter().map(ControllerSpec::group_input).collect();
        Self {
            groups: model::group::groups(&inputs),
            registry: prometheus::Registry::new(),
            meter: Meter::new(timeline.clone()),
            specs: specs.into_iter().map(|spec| planter.controller(spec)).collect(),
        }
    }

    fn sharding(
        &self,
        start: &StartConfig<'_>,
        timeline: &Arc<Timeline>,
        clusters: &Clusters,
        planter: &Planter,
    ) -> Sharding {
        let identity = identity(start.replica);
        let groups = self.groups.values().cloned().collect();
        let config = sharding::Config {
            lease: start.setup.lease,
            drain_timeout: DRAIN_TIMEOUT,
            speaks: start.speaks(),
            ..sharding::Config::new(&identity, groups, start.seed)
        };
        let home = Link::client(start.number, 0, timeline, start.outbox);
        let workload = planter.workload(Arc::new(self.meter.clone()));
        let (clusters, clock) = (clusters.subscribe(), timeline.clone());
        Sharding::spawn(home, config, clusters, workload, clock, &self.registry)
            .expect("the settings are valid")
    }

    fn engine(
        self,
        start: &StartConfig<'_>,
        timeline: &Arc<Timeline>,
        clusters: &Clusters,
        sharding: &Sharding,
        planter: &Planter,
    ) -> Engine {
        let observer = Observer {
            process: start.number,
            timeline: Arc::clone(timeline),
            history: start.history.clone(),
        };
        let config = EngineConfig {
            clock: timeline.clone(),
            ownership: stumbling(planter.ownership(Arc::new(sharding.clone())), timeline),
            clusters: clusters.subscribe(),
            groups: self.groups,
            registry: &self.registry,
            meter: self.meter,
            observer: planter.observer(observer),
            seed: start.seed.wrapping_add(1),
            upstream: upstream::UpstreamLimits::default(),
            budgets: model::Budgets::default(),
            stamps: false,
            cluster_labels: Arc::default(),
            allocated: None,
        };
        Engine::new(config, self.specs).expect("the controllers fit together")
    }
}

fn clusters(
    process: usize,
    configured: &Configured,
    timeline: &Arc<Timeline>,
    outbox: &Outbox,
    planter: &Planter,
) -> Arc<ClusterSet> {
    let state = |(&number, &incarnation): (&usize, &Option<u64>)| {
        let name = cluster_name(number);
        let state = match incarnation {
            Some(incarnation) => {
                let client = Link::client(process, number, timeline, outbox);
                let cluster = Cluster::new(name.clone(), client, incarnation);
                ClusterState::Engaged(planter.cluster(cluster))
            }
            None => ClusterState::Down("the simulation removed its kubeconfig".into()),
        };
        (name, state)
    };
    Arc::new(ClusterSet {
        clusters: configured.iter().map(state).collect(),
        ..ClusterSet::default()
    })
}
