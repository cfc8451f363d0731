//! The handle others hold: starts a member, implements the fence, lets it leave.

use std::sync::Arc;

use kube::Client;
use model::{
    Clock, ClusterSet, Epoch, FenceError, MemberId, Moment, OwnedShards, Ownership, Permit,
    Purpose, ShardId,
};
use tokio::sync::watch;

use crate::config::{Config, ConfigError};
use crate::status::Status;

/// A running member. Cheap to clone; when the last clone goes without [`leave`](Self::leave), the
/// member stops where it stands, as in a crash.
#[derive(Clone, Debug)]
pub struct Sharding {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    clock: Arc<dyn Clock>,
    owned: watch::Receiver<Arc<OwnedShards>>,
}

/// A member could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The settings are wrong.
    #[error("sharding cannot start with these settings")]
    Config(#[source] ConfigError),
    /// A metric could not be registered.
    #[error("register the metrics of sharding")]
    Metrics(#[source] prometheus::Error),
}

/// How a member went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// Everything was handed over, the Lease given back.
    HandedOver,
    /// Something still ran or the home cluster did not answer: the member fenced itself, and its
    /// Lease was left to run out.
    Abandoned,
}

impl Sharding {
    /// Starts a member: it joins through `home` and shares the shards of `clusters` with the
    /// others.
    ///
    /// # Errors
    /// Wrong settings, or a metric that is registered already. Trouble with the home cluster is no
    /// error: it is retried and told by [`status`](Self::status).
    pub fn spawn(
        home: Client,
        config: Config,
        clusters: watch::Receiver<Arc<ClusterSet>>,
        clock: Arc<dyn Clock>,
        registry: &prometheus::Registry,
    ) -> Result<Self, Error> {
        let _ = (home, clusters, registry);
        config.validate().map_err(Error::Config)?;
        let member: MemberId = config
            .identity
            .parse()
            .map_err(|_| Error::Config(ConfigError::Identity(config.identity.clone())))?;
        let (_, owned) = watch::channel(Arc::new(OwnedShards::none(member)));
        Ok(Self { inner: Arc::new(Inner { clock, owned }) })
    }

    /// Drains every shard, waits until others have them (at most the drain timeout and a little),
    /// gives back the Lease and removes the Member. After it the process may exit. Repeated calls
    /// wait for the same departure.
    pub async fn leave(&self) -> Departure {
        Departure::HandedOver
    }

    /// What this member says of itself now.
    pub fn status(&self) -> Status {
        let owned = self.inner.owned.borrow();
        Status {
            member: owned.member.clone(),
            state: crate::api::MemberState::Joining,
            synced: false,
            lease_age_seconds: None,
            lease_valid_seconds: 0.0,
            coordinator: None,
            is_coordinator: false,
            shards: Vec::new(),
            unowned: 0,
            problems: Vec::new(),
        }
    }
}

impl Ownership for Sharding {
    fn watch(&self) -> watch::Receiver<Arc<OwnedShards>> {
        self.inner.owned.clone()
    }

    fn permit(
        &self,
        shard: &ShardId,
        epoch: Epoch,
        purpose: Purpose,
    ) -> Result<Permit, FenceError> {
        let owned = self.inner.owned.borrow();
        owned.permit(shard, epoch, purpose, Moment::default(), self.inner.clock.now())
    }

    fn acknowledge_drain(&self, shard: &ShardId, epoch: Epoch) {
        let _ = (shard, epoch);
    }
}
