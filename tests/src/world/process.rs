//! One replica of the manager: sharding and engine together, on a machine of its own.
//!
//! Dropping the machine is a kill: no task of it runs any further. Not letting it run is a stop. Its
//! timers follow its own clock.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::DEFAULT_CLUSTER_LABELS;
use engine::{Engine, EngineConfig, Meter};
use model::{Cluster, ClusterName, ClusterSet, ClusterState, ControllerName, GroupName};
use sdk::ControllerSpec;
use sharding::{ProtocolVersions, Sharding};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::history::{History, Observer};
use super::link::{Link, Post};
use super::machine::Machine;
use super::mirror;
use super::plan::Setup;
use super::timeline::{Pace, Timeline};

/// How long a reconcile may go on in a shard that is to be handed over.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(4);

/// What a process is started with.
#[derive(Debug)]
pub struct Birth<'a> {
    /// Its number.
    pub number: usize,
    /// The replica it is a process of.
    pub replica: usize,
    /// When it begins, in the world's microseconds.
    pub at_us: u64,
    /// How its clock goes.
    pub pace: Pace,
    /// Draws whatever it draws.
    pub seed: u64,
    /// How large the world is.
    pub setup: &'a Setup,
    /// The clusters it is configured with.
    pub configured: &'a Configured,
    /// Where its requests go.
    pub post: &'a Post,
    /// Where its dispatches are recorded.
    pub history: &'a History,
}

impl Birth<'_> {
    /// The versions of the protocol that its release speaks.
    fn speaks(&self) -> ProtocolVersions {
        let present = ProtocolVersions::SPOKEN;
        let is_next = self.setup.update_us.is_some_and(|update_us| self.at_us >= update_us);
        ProtocolVersions { newest: present.newest + u32::from(is_next), ..present }
    }
}

/// Clusters by number: the incarnation of their kubeconfig, or none if that is unusable.
pub type Configured = BTreeMap<usize, Option<u64>>;

/// A replica at work.
pub struct Process {
    number: usize,
    timeline: Arc<Timeline>,
    post: Post,
    sharding: Sharding,
    /// One sender each for sharding and engine: with two receivers on one channel, tokio draws who
    /// is woken first.
    clusters: [Clusters; 2],
    engine: JoinHandle<()>,
    engine_stop: CancellationToken,
    left: Arc<AtomicBool>,
    /// Last: what is above may want to be dropped while it is there.
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
    /// Starts one.
    pub fn start(birth: &Birth<'_>) -> Self {
        let machine = Machine::default();
        let inside = machine.enter();
        let &Birth { number, post, .. } = birth;
        let timeline = Timeline::begin(birth.pace, birth.at_us);
        let set = clusters(number, birth.configured, &timeline, post);
        let clusters = [watch::Sender::new(Arc::clone(&set)), watch::Sender::new(set)];
        let parts = Parts::new(birth, &timeline);
        let sharding = parts.sharding(birth, &timeline, &clusters[0]);
        let engine = parts.engine(birth, &timeline, &clusters[1], &sharding);
        let engine_stop = CancellationToken::new();
        let engine = tokio::spawn(engine.run(engine_stop.clone()));
        drop(inside);
        let (post, left) = (post.clone(), Arc::default());
        Self { number, timeline, post, sharding, clusters, engine, engine_stop, left, machine }
    }

    /// Lets it run through a slice of the world's time.
    pub fn run(&self, from_us: u64, until_us: u64) {
        let end = self.timeline.enter(from_us, until_us);
        self.machine.run_until(end);
    }

    /// It goes on after it stood still; its machine slept, or just the process.
    pub fn go_on(&self, now_us: u64, slept_us: Option<u64>) {
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
        let set = clusters(self.number, configured, &self.timeline, &self.post);
        drop(inside);
        for sender in &self.clusters {
            sender.send_replace(Arc::clone(&set));
        }
    }

    /// Asks it to leave in good order, as SIGTERM does.
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

    /// Whether its engine ended without being told to: it panicked.
    pub fn has_panicked(&self) -> bool {
        !self.engine_stop.is_cancelled() && self.engine.is_finished()
    }
}

/// What sharding and engine share, apart from what they are to each other.
struct Parts {
    specs: Vec<ControllerSpec>,
    groups: BTreeMap<ControllerName, GroupName>,
    registry: prometheus::Registry,
    meter: Meter,
}

/// Where a part hears of its clusters.
type Clusters = watch::Sender<Arc<ClusterSet>>;

impl Parts {
    fn new(birth: &Birth<'_>, timeline: &Arc<Timeline>) -> Self {
        let mut specs = vec![mirror::controller(birth.seed.wrapping_add(2))];
        if birth.setup.sets > 0 {
            specs.extend(controllers::build("tdset", 2));
        }
        let inputs: Vec<_> = specs.iter().map(ControllerSpec::group_input).collect();
        Self {
            groups: model::group::groups(&inputs),
            registry: prometheus::Registry::new(),
            meter: Meter::new(timeline.clone()),
            specs,
        }
    }

    fn sharding(
        &self,
        birth: &Birth<'_>,
        timeline: &Arc<Timeline>,
        clusters: &Clusters,
    ) -> Sharding {
        let identity = identity(birth.replica);
        let groups = self.groups.values().cloned().collect();
        let config = sharding::Config {
            lease: birth.setup.lease,
            drain_timeout: DRAIN_TIMEOUT,
            speaks: birth.speaks(),
            ..sharding::Config::new(&identity, groups, birth.seed)
        };
        let home = Link::client(birth.number, 0, timeline, birth.post);
        let workload = Arc::new(self.meter.clone());
        let (clusters, clock) = (clusters.subscribe(), timeline.clone());
        Sharding::spawn(home, config, clusters, workload, clock, &self.registry)
            .expect("the settings are valid")
    }

    fn engine(
        self,
        birth: &Birth<'_>,
        timeline: &Arc<Timeline>,
        clusters: &Clusters,
        sharding: &Sharding,
    ) -> Engine {
        let observer = Observer {
            process: birth.number,
            timeline: Arc::clone(timeline),
            history: birth.history.clone(),
        };
        let config = EngineConfig {
            clock: timeline.clone(),
            ownership: Arc::new(sharding.clone()),
            clusters: clusters.subscribe(),
            groups: self.groups,
            registry: &self.registry,
            meter: self.meter,
            observer: Arc::new(observer),
            seed: birth.seed.wrapping_add(1),
            upstream: upstream::UpstreamLimits::default(),
            stamps: false,
            cluster_labels: DEFAULT_CLUSTER_LABELS,
        };
        Engine::new(config, self.specs).expect("the controllers fit together")
    }
}

fn clusters(
    process: usize,
    configured: &Configured,
    timeline: &Arc<Timeline>,
    post: &Post,
) -> Arc<ClusterSet> {
    let state = |(&number, &incarnation): (&usize, &Option<u64>)| {
        let name = cluster_name(number);
        let state = match incarnation {
            Some(incarnation) => {
                let client = Link::client(process, number, timeline, post);
                ClusterState::Engaged(Cluster::new(name.clone(), client, incarnation))
            }
            None => ClusterState::Down("the simulation took its kubeconfig".into()),
        };
        (name, state)
    };
    Arc::new(ClusterSet { clusters: configured.iter().map(state).collect() })
}
