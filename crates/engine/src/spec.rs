//! A controller as the engine runs it: what it watches, what the events of each source mean, and
//! what it runs, with all types erased.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cache::{Entry, StoreOptions};
use model::group::GroupInput;
use model::{ControllerName, GroupName, GroupScope, Kind, ObjectKey, Range};
use queue::{Priority, RateLimiter};

use crate::range_filter::RangeScope;
use crate::reconcile::Reconcile;
use crate::scope::{Form, Scope};
use crate::trigger::{Trigger, TriggerSources};
use crate::view::{CacheView, FleetView};

/// Says whether a change from one state of an object to another counts.
pub type Predicate = Arc<dyn Fn(Option<&Entry>, Option<&Entry>) -> bool + Send + Sync>;
/// Names the primary objects that an object of another kind concerns, by namespace and name.
pub type Mapping = Arc<dyn Fn(&Entry, &CacheView) -> Vec<(Option<String>, String)> + Send + Sync>;
/// Names the objects of the primary kind, in any cluster, that an object concerns. They need not exist.
pub type FleetMapping = Arc<dyn Fn(&Entry, &FleetView<'_>) -> Vec<ObjectKey> + Send + Sync>;

/// A complete controller with its types erased.
#[derive(Clone)]
pub struct ControllerSpec {
    /// Its name, unique in the manager.
    pub name: ControllerName,
    /// The controller of which it is a part.
    pub part_of: Option<ControllerName>,
    /// The group it names for itself.
    pub group: Option<GroupName>,
    /// How far its work may be divided.
    pub group_scope: GroupScope,
    /// Objects of one cluster that are reconciled at once. At least 1.
    pub workers: usize,
    /// How long one reconcile may take.
    pub timeout: Duration,
    /// How long a key that failed waits for its retry.
    pub rate_limiter: RateLimiter,
    /// The priority of keys that a reconcile asked to requeue.
    pub requeue_priority: Priority,
    /// Reconciles every object again about this often, if set.
    pub resync_every: Option<Duration>,
    /// What it watches. Sources of the role [`Role::Primary`] come first; there is at least one.
    pub sources: Vec<Source>,
    /// What the caches of its kinds keep, if not everything that is watched.
    pub options: BTreeMap<(Kind, Form), StoreOptions>,
    /// What it runs.
    pub reconcile: Arc<dyn Reconcile>,
    /// Its triggers from outside of Kubernetes.
    pub triggers: Vec<Trigger>,
    /// The futures that drive triggers while it runs.
    pub trigger_sources: TriggerSources,
}

/// One watched kind of a controller and what its events mean.
#[derive(Clone)]
pub struct Source {
    /// The kind.
    pub kind: Kind,
    /// How much of its objects.
    pub form: Form,
    /// Which of its objects.
    pub scope: Scope,
    /// How its events become keys.
    pub role: Role,
    /// Which changes count: those for which all hold.
    pub predicates: Vec<Predicate>,
    /// The priority of the keys that its changes add.
    pub priority: Priority,
    /// Whether the controller does without the kind in a cluster that does not have it, or does not
    /// let it be watched.
    pub optional: bool,
}

/// How events of a source become keys of the primary kind.
#[derive(Clone)]
pub enum Role {
    /// The object is the key.
    Primary,
    /// The controlling owner is the key, if it is of this kind.
    Owned {
        /// The primary kind.
        owner: Kind,
    },
    /// Every owner of this kind is a key, whether it controls the object or not.
    Dependent {
        /// The primary kind.
        owner: Kind,
    },
    /// A function names the keys.
    Mapped(Mapping),
    /// A function names the keys, in any cluster. Only for controllers of scope [`GroupScope::Fleet`].
    Across(FleetMapping),
}

impl Role {
    /// Which objects of its kind a member needs that holds a range. A mapping may lead from any object
    /// to any key, and reconciles look other objects up, so it needs all. So do objects with several
    /// owners, which may be in different ranges: before an object is decoded, only its controlling owner
    /// is known.
    pub(crate) fn range_scope(&self, range: Range) -> RangeScope {
        match self {
            Self::Primary => RangeScope::Own(range),
            Self::Owned { .. } => RangeScope::Owner(range),
            Self::Dependent { .. } | Self::Mapped(_) | Self::Across(_) => RangeScope::Whole,
        }
    }
}

impl ControllerSpec {
    /// The controller's name.
    pub fn name(&self) -> &ControllerName {
        &self.name
    }

    /// Its name in the configuration: that of the controller of which it is a part, or its own.
    pub fn whole(&self) -> &ControllerName {
        self.part_of.as_ref().unwrap_or(&self.name)
    }

    /// The group it names for itself, if any.
    pub fn group(&self) -> Option<&GroupName> {
        self.group.as_ref()
    }

    /// The kinds it watches.
    pub fn kinds(&self) -> BTreeSet<Kind> {
        self.sources.iter().map(|source| source.kind.clone()).collect()
    }

    /// What [`model::group::groups`] needs to know about it.
    pub fn group_input(&self) -> GroupInput {
        GroupInput {
            controller: self.name.clone(),
            named: self.group.clone(),
            kinds: self.kinds().iter().map(Kind::to_string).collect(),
            scope: self.group_scope,
        }
    }

    /// Sets how many objects of one cluster are reconciled at once, as configuration may.
    #[must_use]
    pub fn with_workers(mut self, workers: usize) -> Self {
        self.workers = workers.clamp(1, MAX_WORKERS);
        self
    }
}

/// The most objects of one cluster that a controller reconciles at once.
pub const MAX_WORKERS: usize = 256;

impl fmt::Debug for ControllerSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerSpec")
            .field("name", &self.name)
            .field("kinds", &self.kinds())
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}
