//! An assignment: one shard, held by this member at one epoch, as one controller sees it.

use std::sync::{Arc, OnceLock};

use model::{Clock, ClusterName, ClusterUid, Epoch, MemberId, ObjectKey, Range, ShardId};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::meter::ShardMeter;
use crate::request::ClusterClient;
use crate::source::{Role, Source};
use crate::view::CacheView;
use cache::{Entry, LocalKey, Store};
use informer::{Informer, ScopeGuard};
use metrics::ClusterSeries;
use queue::{HashedKey, WorkQueue};

use crate::visitors::Visitors;

/// A controller's presence in one cluster: its caches and its client. Shared by the assignments of
/// every shard the controller has in that cluster.
#[derive(Debug)]
pub(crate) struct ClusterContext {
    /// The caches of every kind it watches there.
    pub(crate) view: Arc<CacheView>,
    /// The informers behind them, one for each source, held as long as somebody reads.
    pub(crate) informers: Vec<Arc<Informer>>,
    /// The client of the cluster, without the fence.
    pub(crate) client: ClusterClient,
    /// What is measured of the cluster.
    pub(crate) series: Arc<ClusterSeries>,
    /// Which cluster it is, once its server has told.
    pub(crate) uid: Arc<OnceLock<ClusterUid>>,
    /// The caches of the kind that is reconciled.
    primary: Arc<[Store]>,
    /// Stops the handlers.
    stop: CancellationToken,
    _stop: DropGuard,
}

impl ClusterContext {
    /// The presence of a controller that has these sources, with an informer for each.
    pub(crate) fn new(
        sources: &[Source],
        informers: Vec<Arc<Informer>>,
        client: ClusterClient,
        series: Arc<ClusterSeries>,
        uid: Arc<OnceLock<ClusterUid>>,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let states = || sources.iter().zip(informers.iter().map(|informer| informer.state()));
        let view = states().map(|(source, state)| (state, source.optional));
        let view = CacheView::of_informers(view, clock);
        let primary = states().filter(|(source, _)| matches!(source.role, Role::Primary));
        let primary = primary.map(|(_, state)| state.store.clone()).collect();
        let stop = CancellationToken::new();
        let guard = stop.clone().drop_guard();
        let view = Arc::new(view);
        Self { view, informers, client, series, uid, primary, stop, _stop: guard }
    }

    /// Keeps the objects of a range cached, of every source, until the guards are dropped.
    pub(crate) fn require(&self, sources: &[Source], range: Range) -> Arc<[ScopeGuard]> {
        let sources = sources.iter().zip(&self.informers);
        sources.map(|(source, informer)| informer.require(source.role.range_scope(range))).collect()
    }

    /// The caches of the kind that is reconciled; several, if several namespaces are watched.
    pub(crate) fn primary(&self) -> &[Store] {
        &self.primary
    }

    /// Cancelled when the controller leaves the cluster.
    pub(crate) fn stop(&self) -> &CancellationToken {
        &self.stop
    }
}

/// One shard held at one epoch. Handed out with every key of the shard.
#[derive(Clone, Debug)]
pub(crate) struct Assignment {
    /// Who holds it.
    pub(crate) member: MemberId,
    /// The shard.
    pub(crate) shard: ShardId,
    /// The epoch.
    pub(crate) epoch: Epoch,
    /// Where its keys are reconciled.
    pub(crate) context: Arc<ClusterContext>,
    /// What keeps its objects cached, one for each source of the controller: from before its keys are
    /// gathered until its last run has ended.
    pub(crate) scopes: Arc<[ScopeGuard]>,
    /// Where its cost is counted.
    pub(crate) meter: Arc<ShardMeter>,
    /// Cancels what runs under it.
    pub(crate) cancel: CancellationToken,
    /// Reconciles of other clusters' keys that work in this one.
    pub(crate) visitors: Visitors,
}

impl Assignment {
    /// Cancels what runs under it, and lets its visitors write no more.
    pub(crate) fn cancel(&self) {
        self.cancel.cancel();
        self.visitors.stop();
    }
}

/// The keys of those objects of a cluster that are wanted, by their hashes.
pub(crate) fn keys(
    cluster: &ClusterName,
    entries: &[Arc<Entry>],
    is_wanted: impl Fn(u64) -> bool,
) -> Vec<HashedKey> {
    let hashed = entries.iter().map(|entry| (entry, entry.header.hash()));
    let wanted = hashed.filter(|(_, hash)| is_wanted(*hash));
    let key = |(entry, hash): (&Arc<Entry>, u64)| {
        let LocalKey { namespace, name } = &entry.header.key;
        (ObjectKey::new(cluster.clone(), namespace.as_deref(), name), Some(hash))
    };
    wanted.map(key).collect()
}

/// A controller's queue: each key is handed out with its assignment.
pub(crate) type AssignmentQueue = WorkQueue<Arc<Assignment>>;
