//! Bugs planted on purpose, which show that the oracles can fail.
//!
//! The product has no switch for them. A bug is a wrapper around something that a simulated process
//! gives to its engine or its sharding, and that something breaks its promise:
//!
//! - `ownership`: what the member holds, and the fence
//! - `reconciler`: what a controller runs
//! - `wire`: what a cluster's server says
//! - `workload`: what shards cost

mod ownership;
mod reconciler;
mod wire;
mod workload;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::{Dispatch, DispatchObserver};
use model::{Cluster, Moment, ObjectKey, Ownership, Purpose, Workload};
use sdk::ControllerSpec;

use self::ownership::{First, Leniency, Lenient, Relay};
use self::reconciler::{Forgetful, Forgets};

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// A member that gains a shard believes that the former owner left nothing undone: it skips the
    /// first reconcile of each key, and with it whatever waited for a retry there.
    ForgetDelayed,
    /// Of the keys gathered for a shard, the first that is given out is lost.
    PurgeLosesKey,
    /// An object that is missing from a new list stays in the cache, and its deletion is not noticed.
    RelistDropsDeletes,
    /// The fence refuses dispatches, but no writes.
    FenceAtDispatchOnly,
    /// What the fence permits may be done at any later time.
    ForgetDeadline,
    /// A drain is acknowledged while reconciles still run.
    AcknowledgeEarly,
    /// What runs for a shard that is lost runs on for a while.
    RunOnWithoutShard,
    /// A change of an object that is being reconciled does not make it run again.
    ForgetChangeOfRunning,
    /// The load of one object is taken for one that can be divided.
    DivideObjects,
}

impl Planted {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::ForgetDelayed,
        Self::PurgeLosesKey,
        Self::RelistDropsDeletes,
        Self::FenceAtDispatchOnly,
        Self::ForgetDeadline,
        Self::AcknowledgeEarly,
        Self::RunOnWithoutShard,
        Self::ForgetChangeOfRunning,
        Self::DivideObjects,
    ];
}

/// Plants a bug, or none, in one process.
#[derive(Clone, Debug, Default)]
pub struct Planter {
    bug: Option<Planted>,
    running: Running,
}

/// The keys that a process reconciles now.
#[derive(Clone, Debug, Default)]
struct Running(Arc<Mutex<BTreeSet<ObjectKey>>>);

impl Planter {
    /// A planter of this bug.
    pub fn new(bug: Option<Planted>) -> Self {
        Self { bug, running: Running::default() }
    }

    /// What the engine takes for its ownership. Call it inside the process's runtime.
    pub fn ownership(&self, ownership: Arc<dyn Ownership>) -> Arc<dyn Ownership> {
        match self.bug {
            Some(Planted::FenceAtDispatchOnly) => {
                Arc::new(Lenient(ownership, Leniency::Always(&[Purpose::Run, Purpose::Write])))
            }
            Some(Planted::ForgetDeadline) => Arc::new(Lenient(ownership, Leniency::Forever)),
            Some(Planted::AcknowledgeEarly) => {
                Arc::new(Relay::start(ownership, First::Acknowledge))
            }
            Some(Planted::RunOnWithoutShard) => {
                let lenient = Lenient(ownership, Leniency::Always(&[Purpose::Run]));
                Arc::new(Relay::start(Arc::new(lenient), First::Wait))
            }
            _ => ownership,
        }
    }

    /// What the sharding takes for the work of its shards.
    pub fn workload(&self, workload: Arc<dyn Workload>) -> Arc<dyn Workload> {
        match self.bug {
            Some(Planted::DivideObjects) => Arc::new(workload::Divided(workload)),
            _ => workload,
        }
    }

    /// What the engine takes for a controller.
    pub fn controller(&self, mut spec: ControllerSpec) -> ControllerSpec {
        let forgets = match self.bug {
            Some(Planted::ForgetDelayed) => Forgets::FirstLooks,
            Some(Planted::PurgeLosesKey) => Forgets::OneKey,
            _ => return spec,
        };
        spec.reconcile = Arc::new(Forgetful::new(spec.reconcile, forgets));
        spec
    }

    /// What the engine takes for a cluster.
    pub fn cluster(&self, mut cluster: Cluster) -> Cluster {
        match self.bug {
            Some(Planted::RelistDropsDeletes) => cluster.wire = wire::that_keeps_all(cluster.wire),
            Some(Planted::ForgetChangeOfRunning) => {
                let (running, name) = (self.running.clone(), cluster.name.clone());
                let runs = move |namespace: Option<&str>, object: &str| {
                    running.lock().contains(&ObjectKey::new(name.clone(), namespace, object))
                };
                cluster.wire = wire::that_hides_changes(cluster.wire, runs);
            }
            _ => {}
        }
        cluster
    }

    /// What the engine takes for an observer of its dispatches.
    pub fn observer(&self, observer: impl DispatchObserver) -> Arc<dyn DispatchObserver> {
        match self.bug {
            Some(Planted::ForgetChangeOfRunning) => {
                Arc::new(Noting { observer, running: self.running.clone() })
            }
            _ => Arc::new(observer),
        }
    }
}

impl Running {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<ObjectKey>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Notes which keys run.
#[derive(Debug)]
struct Noting<O> {
    observer: O,
    running: Running,
}

impl<O: DispatchObserver> DispatchObserver for Noting<O> {
    fn started(&self, dispatch: &Dispatch) {
        self.running.lock().insert(dispatch.key.clone());
        self.observer.started(dispatch);
    }

    fn finished(&self, dispatch: &Dispatch, ran: Moment) {
        self.running.lock().remove(&dispatch.key);
        self.observer.finished(dispatch, ran);
    }
}
