//! A tenure: one shard, held by this member at one epoch, as one controller sees it.

use std::sync::Arc;

use model::{Epoch, MemberId, Range, ShardId};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::cache::Store;
use crate::controller::Source;
use crate::informer::{Claimed, Informer};
use crate::lookup::CacheView;
use crate::meter::Account;
use crate::transport::Transport;

/// A controller's presence in one cluster: its caches and its way there. Shared by the tenures of
/// every shard the controller has in that cluster.
#[derive(Debug)]
pub(crate) struct Site {
    /// The caches of every kind it watches there.
    pub(crate) view: Arc<CacheView>,
    /// The informers behind them, held as long as somebody reads; the primary kind's first.
    pub(crate) informers: Vec<Arc<Informer>>,
    /// The way to the cluster, without fence.
    pub(crate) transport: Transport,
    /// Stops the feeds.
    stop: CancellationToken,
    _stop: DropGuard,
}

impl Site {
    pub(crate) fn new(
        view: CacheView,
        informers: Vec<Arc<Informer>>,
        transport: Transport,
    ) -> Self {
        let stop = CancellationToken::new();
        let guard = stop.clone().drop_guard();
        let view = Arc::new(view);
        Self { view, informers, transport, stop, _stop: guard }
    }

    /// Has the objects of a range be cached, of every source.
    pub(crate) fn claim(&self, sources: &[Source], range: Range) -> Arc<[Claimed]> {
        let sources = sources.iter().zip(&self.informers);
        sources.map(|(source, informer)| informer.claim(source.role.claim(range))).collect()
    }

    /// The cache of the kind that is reconciled.
    pub(crate) fn primary(&self) -> &Store {
        self.informers[0].store()
    }

    /// Cancelled when the controller leaves the cluster.
    pub(crate) fn stop(&self) -> &CancellationToken {
        &self.stop
    }
}

/// One shard held at one epoch. Handed out with every key of the shard.
#[derive(Clone, Debug)]
pub(crate) struct Tenure {
    /// Who holds it.
    pub(crate) member: MemberId,
    /// The shard.
    pub(crate) shard: ShardId,
    /// The epoch.
    pub(crate) epoch: Epoch,
    /// Where its keys are reconciled.
    pub(crate) site: Arc<Site>,
    /// What keeps its objects cached, one for each source of the controller: from before its keys are
    /// gathered until its last run has ended.
    pub(crate) claims: Arc<[Claimed]>,
    /// Where its cost is counted.
    pub(crate) account: Arc<Account>,
    /// Cancels what runs under it.
    pub(crate) cancel: CancellationToken,
}
