//! What one reconcile works with: its key and shard, the caches, and the fenced clients of its cluster
//! and of services outside.

use std::fmt;
use std::sync::{Arc, Mutex};

use model::{Clock, ClusterName, ClusterUid, Validity};
use upstream::{ExternalLimits, Services};

use crate::assignment::ClusterContext;
use crate::dispatch::Dispatch;
use crate::external::{External, Turn};
use crate::fence::Fence;
use crate::request::FencedClient;
use crate::view::CacheView;
use crate::visit::{InClusterError, Visits};

/// What one reconcile works with; each has its own.
pub struct Run {
    dispatch: Dispatch,
    context: Arc<ClusterContext>,
    clock: Arc<dyn Clock>,
    fence: Fence,
    services: Arc<Services>,
    /// The turns that it has at services outside.
    turns: Mutex<Vec<Arc<Turn>>>,
    /// The other clusters it works in, if the controller may.
    visits: Option<Arc<Visits>>,
}

impl Run {
    pub(crate) fn new(
        dispatch: Dispatch,
        context: &Arc<ClusterContext>,
        clock: Arc<dyn Clock>,
        fence: Fence,
        services: Arc<Services>,
        visits: Option<Arc<Visits>>,
    ) -> Self {
        let (context, turns) = (Arc::clone(context), Mutex::default());
        Self { dispatch, context, clock, fence, services, turns, visits }
    }

    /// The same reconcile in another cluster: with the controller's caches there, and a client that is
    /// fenced by the shards of both clusters.
    ///
    /// # Errors
    /// If the controller is not of scope `Fleet`, or the cluster's shard is not open here.
    pub fn in_cluster(&self, cluster: &ClusterName) -> Result<Run, InClusterError> {
        let (dispatch, context, fence) = match &self.visits {
            Some(visits) => visits.begin(cluster)?,
            None if *cluster == self.dispatch.shard.cluster => {
                (self.dispatch.clone(), Arc::clone(&self.context), self.fence.clone())
            }
            None => return Err(InClusterError::NotFleet { cluster: cluster.clone() }),
        };
        let (clock, services) = (Arc::clone(&self.clock), Arc::clone(&self.services));
        Ok(Self::new(dispatch, &context, clock, fence, services, self.visits.clone()))
    }

    /// The clusters for which [`Self::in_cluster`] may succeed, in order of their names: those whose
    /// shards are held here, or only the key's if the controller is not of scope `Fleet`.
    pub fn clusters(&self) -> Vec<ClusterName> {
        match &self.visits {
            Some(visits) => visits.clusters(),
            None => vec![self.dispatch.shard.cluster.clone()],
        }
    }

    /// Who runs what, under which shard and epoch.
    pub fn dispatch(&self) -> &Dispatch {
        &self.dispatch
    }

    /// The caches of the kinds that the controller watches, in the key's cluster.
    pub fn caches(&self) -> &CacheView {
        &self.context.view
    }

    /// Which cluster this is, whatever it is called; `None` while its server has not told.
    pub fn cluster_uid(&self) -> Option<&ClusterUid> {
        self.context.uid.get()
    }

    /// How long this member holds the key's shard.
    pub fn validity(&self) -> Validity {
        let label = self.context.series.label().to_owned();
        self.fence.validity(&self.dispatch, label)
    }

    /// Time.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// The fenced client of the key's cluster.
    pub fn fenced(&self) -> FencedClient {
        FencedClient::new(self.context.client.clone(), self.fence.clone(), self.dispatch.clone())
    }

    /// The fenced connection to a service outside of Kubernetes: see [`External`].
    pub fn external(&self, service: &'static str, name: &str, limits: &ExternalLimits) -> External {
        let turn = self.turn_at(name, || {
            let cluster = &self.dispatch.key.cluster;
            Turn::new(self.services.get(cluster, service, name, limits), self.fence.members())
        });
        External::new(self.fence.clone(), self.dispatch.clone(), turn)
    }

    /// The turn at the service of that name, created at the first call.
    fn turn_at(&self, name: &str, make: impl FnOnce() -> Turn) -> Arc<Turn> {
        let mut turns = self.turns.lock().expect("no holder of this lock panics");
        if let Some(turn) = turns.iter().find(|turn| turn.is_at(name)) {
            return Arc::clone(turn);
        }
        let turn = Arc::new(make());
        turns.push(Arc::clone(&turn));
        turn
    }
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("dispatch", &self.dispatch).finish_non_exhaustive()
    }
}
