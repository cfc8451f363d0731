//! [`Controller::watches_across`]: a change in one cluster that concerns objects of others.

use std::fmt;
use std::sync::Arc;

use engine::{CacheView, FleetMapping, FleetView, Role};
use model::{AnyObject, ClusterName, GroupScope, Object, ObjectKey};

use crate::controller::Controller;
use crate::dynamic::mapped;
use crate::lookup::Lookup;
use crate::watch::Watch;

/// What a mapping across clusters may read: the cached objects of every kind that its controller
/// watches, in every cluster whose shard this replica holds. One replica holds the shards of all.
#[derive(Clone, Copy, Debug)]
pub struct FleetLookup<'a> {
    view: &'a FleetView<'a>,
}

/// The caches of one cluster, as a mapping across clusters reads them.
pub struct ClusterLookup(Arc<CacheView>);

impl<'a> FleetLookup<'a> {
    pub(crate) fn new(view: &'a FleetView<'a>) -> Self {
        Self { view }
    }

    /// The cluster of the mapped object.
    pub fn cluster(&self) -> &'a ClusterName {
        self.view.cluster()
    }

    /// All clusters, in order of their names, that of the mapped object included.
    pub fn clusters(&self) -> Vec<ClusterName> {
        self.view.clusters()
    }

    /// The caches of a cluster; `None` if its shard is not held. They may not be complete yet.
    pub fn in_cluster(&self, cluster: &ClusterName) -> Option<ClusterLookup> {
        self.view.caches(cluster).map(ClusterLookup)
    }
}

impl ClusterLookup {
    /// Reads the caches of this cluster.
    pub fn lookup(&self) -> Lookup<'_> {
        Lookup::new(&self.0)
    }
}

impl fmt::Debug for ClusterLookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClusterLookup").finish_non_exhaustive()
    }
}

impl<K: AnyObject> Controller<K> {
    /// Watches `C` in every cluster and reconciles the objects of kind `K` that `map` names, in any
    /// cluster. They need not exist: a key without an object is reconciled too, so that a reconciler may
    /// create the object. Names that no object can have are ignored. [`crate::mapping`] has the usual
    /// mappings.
    ///
    /// Gives the controller the scope [`GroupScope::Fleet`]. As with [`Self::watches`], `map` runs for
    /// an object as it was before a change and as it is after. It also runs for every cached object when
    /// its cluster has been listed, and again for each cluster that joins later. Keys of clusters whose
    /// shard is not held are dropped; they are queued when it is gained.
    ///
    /// ```
    /// # use leasehold_sdk::{Action, Context, Controller, ReconcileError, Reconciler, mapping};
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # struct Copies;
    /// # impl Reconciler for Copies {
    /// #     type Kind = ConfigMap;
    /// #     async fn reconcile(&self, _: &Context, _: &leasehold_sdk::ObjectKey) -> Result<Action, ReconcileError> {
    /// #         Ok(Action::Done)
    /// #     }
    /// # }
    /// // A ConfigMap of the hub changes: its namesakes in all other clusters are reconciled.
    /// let hub = "hub".parse().expect("a cluster's name");
    /// let spec = Controller::for_kind::<ConfigMap>("copies")
    ///     .watches_across::<ConfigMap>(mapping::namesakes_elsewhere(hub))
    ///     .reconciler(Copies);
    /// ```
    pub fn watches_across<C: Object>(
        self,
        map: impl Fn(&C, &FleetLookup<'_>) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        self.watches_across_with(Watch::<C>::all(), map)
    }

    /// [`Self::watches_across`] with settings for how `C` is watched: a [`Watch`], or the
    /// [`Scope`](crate::Scope) that restricts it.
    ///
    /// # Panics
    /// If the watch follows every owner, which is a mistake in the program.
    pub fn watches_across_with<C: AnyObject>(
        mut self,
        watch: impl Into<Watch<C>>,
        map: impl Fn(&C, &FleetLookup<'_>) -> Vec<ObjectKey> + Send + Sync + 'static,
    ) -> Self {
        let watch = self.declared(watch.into());
        let (kind, _) = watch.key();
        let erased: FleetMapping = Arc::new(move |entry, view| {
            let log_line = |text| view.caches(view.cluster())?.log_line(text);
            mapped(&kind, entry, log_line, |object: &C| map(object, &FleetLookup::new(view)))
        });
        self.others.push(watch.source(Role::Across(erased)));
        self.group_scope = GroupScope::Fleet;
        self
    }
}
