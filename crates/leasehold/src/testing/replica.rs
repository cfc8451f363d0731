//! Replicas that divide the shards among them by Lease, as in production.

use std::collections::BTreeSet;
use std::sync::Arc;

use engine::Meter;
use model::{Hold, MemberId, Ownership, ShardId};
use prometheus::Registry;
use sdk::ControllerSpec;
use sharding::{Departure, Sharding};

use super::TestEnv;
use super::env::{Programs, Running, TestCluster, fail};
use crate::assemble::traits;
use crate::crds::home_crds;

/// The name of the home cluster. It is no workload cluster.
const HOME: &str = "home";

/// One replica of a fleet: a member with a Lease, and an engine for the shards that it is given.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use leasehold::testing::TestEnv;
/// # use leasehold::prelude::*;
/// # struct Nothing;
/// # impl Reconciler for Nothing {
/// #     type Kind = ConfigMap;
/// #     async fn reconcile(&self, _: &Context, _: &ObjectKey) -> Result<Action, ReconcileError> {
/// #         Ok(Action::Done)
/// #     }
/// # }
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
/// let mut env = TestEnv::builder().clusters(["east", "west"]).start().await;
/// let controller = || [Controller::for_kind::<ConfigMap>("nothing").reconciler(Nothing)];
/// let first = env.join(controller()).await;
/// env.until("the first has both clusters", async || (first.active().len() == 2).then_some(())).await;
/// let second = env.join(controller()).await;
/// env.until("each has one", async || (second.active().len() == 1).then_some(())).await;
/// // A crash: nobody is told. The other takes over when the Lease has expired.
/// first.kill();
/// env.until("the second has both", async || (second.active().len() == 2).then_some(())).await;
/// # }
/// ```
#[derive(Debug)]
pub struct TestReplica {
    sharding: Sharding,
    engine: Running,
}

impl TestEnv {
    /// Starts a replica with these controllers. It divides the shards of all clusters with the other
    /// replicas that joined, through Leases in a home cluster of its own: see [`Self::home`].
    ///
    /// An environment has either one engine that holds everything ([`Self::run`]), or replicas.
    ///
    /// # Panics
    /// If an engine runs that holds everything, or two controllers have the same name.
    pub async fn join(
        &mut self,
        controllers: impl IntoIterator<Item = ControllerSpec>,
    ) -> TestReplica {
        assert!(self.engine.is_none(), "an engine holds all shards; stop it first");
        let controllers: Vec<_> = controllers.into_iter().collect();
        let traits = traits(&controllers, &[]);
        self.epoch = self.epoch.next();
        let (identity, groups) = (format!("replica-{}", self.epoch), traits.keys().cloned());
        let config = sharding::Config::new(&identity, groups.collect(), self.epoch.0);
        let config = sharding::Config { traits, ..config };
        let home = match self.home.take() {
            Some(home) => home,
            None => {
                let namespaces = std::slice::from_ref(&config.namespace);
                let programs = Programs::default();
                TestCluster::start(HOME, &home_crds(), namespaces, &programs, None).await
            }
        };
        let client = self.home.insert(home).client();
        let meter = Meter::new(self.clock());
        let (workload, clusters) = (Arc::new(meter.clone()), self.clusters.subscribe());
        let sharding =
            Sharding::spawn(client, config, clusters, workload, self.clock(), &Registry::new())
                .unwrap_or_else(|error| fail(&error));
        let engine = self.engine(controllers, Arc::new(sharding.clone()), meter);
        TestReplica { sharding, engine }
    }

    /// The cluster in which replicas keep Leases, Members and ShardMaps. Its faults hit their
    /// renewals.
    ///
    /// # Panics
    /// Before the first replica joined.
    pub fn home(&self) -> &TestCluster {
        self.home.as_ref().expect("a replica joined, which starts the home cluster")
    }
}

impl TestReplica {
    /// The member that it is now. After it lost its Lease it is another one.
    pub fn member(&self) -> MemberId {
        self.sharding.watch().borrow().member.clone()
    }

    /// The shards whose keys it may dispatch.
    pub fn active(&self) -> BTreeSet<ShardId> {
        let owned = self.sharding.watch();
        let owned = owned.borrow();
        let active = owned.holdings.iter().filter(|(_, holding)| holding.hold == Hold::Active);
        active.map(|(shard, _)| shard.clone()).collect()
    }

    /// Leaves the fleet as on SIGTERM: drains its shards, hands each over, and stops.
    ///
    /// # Panics
    /// If its engine panicked.
    pub async fn leave(self) -> Departure {
        let departure = self.sharding.leave().await;
        self.engine.stop().await;
        departure
    }

    /// Ends at once, as on SIGKILL. Others take over when its Lease has expired.
    pub fn kill(self) {
        drop(self);
    }
}
