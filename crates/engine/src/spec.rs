//! A controller as the engine runs it: what it watches and what it runs, with all types erased.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use cache::StoreOptions;
use listwatch::Form;
use model::group::GroupInput;
use model::{ControllerName, GroupName, GroupScope, Kind};
use prometheus::core::Collector;
use queue::{Priority, RateLimiter};

use crate::reconcile::Reconcile;
use crate::source::Source;
use crate::trigger::{Trigger, TriggerSources};

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
    /// What it watches. Sources of the role [`Primary`](crate::Role::Primary) come first; there is at
    /// least one.
    pub sources: Vec<Source>,
    /// What the caches of its kinds keep, if not everything that is watched.
    pub options: BTreeMap<(Kind, Form), StoreOptions>,
    /// What it runs.
    pub reconcile: Arc<dyn Reconcile>,
    /// Its triggers from outside of Kubernetes.
    pub triggers: Vec<Trigger>,
    /// The futures that drive triggers while it runs.
    pub trigger_sources: TriggerSources,
    /// Its own series, beside those that every controller has.
    pub collectors: Vec<Arc<dyn Collector>>,
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

    /// Restricts what it watches to these namespaces, each watched by itself; to none if there are none.
    /// Kinds without namespaces are watched as before, and a source whose scope names a namespace stays in
    /// it.
    #[must_use]
    pub fn with_namespaces(mut self, namespaces: &BTreeSet<String>) -> Self {
        let within = |source| in_namespaces(source, namespaces);
        self.sources = self.sources.into_iter().flat_map(within).collect();
        self
    }

    /// Sets how many objects of one cluster are reconciled at once, as configuration may.
    #[must_use]
    pub fn with_workers(mut self, workers: usize) -> Self {
        self.workers = workers.clamp(1, MAX_WORKERS);
        self
    }
}

/// A source, once for each namespace that it is restricted to.
fn in_namespaces(source: Source, namespaces: &BTreeSet<String>) -> Vec<Source> {
    let named = source.scope.namespace.is_some();
    if namespaces.is_empty() || named || !source.kind.namespaced {
        return vec![source];
    }
    let within = |namespace: &String| {
        let mut source = source.clone();
        source.scope.namespace = Some(namespace.clone());
        source
    };
    namespaces.iter().map(within).collect()
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
