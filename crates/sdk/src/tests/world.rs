//! An engine with everything it needs, in the test's hands: clock, ownership, clusters, dispatches.

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use model::{
    Budget, Clock, Cluster, ClusterName, ClusterSet, ClusterState, Epoch, FenceError, GroupName,
    Hold, Holding, Moment, ObjectKey, OwnedShards, Ownership, Permit, Purpose, ShardId,
};
use prometheus::{Registry, TextEncoder};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::{Action, Context, Controller, ControllerSpec, ReconcileError, Reconciler};
use engine::testing::{PATIENCE, Server, Watch, config_map, server};
use engine::{Dispatch, DispatchObserver};
use engine::{Engine, EngineConfig, EngineStatus, Meter, SingleSpec};
use model::testing::PausedClock;
use upstream::UpstreamLimits;

/// The first list of ConfigMaps.
pub(super) const MAPS: &str =
    "GET /api/v1/configmaps watch=true&sendInitialEvents=true&resourceVersion=";
/// The first list of Secrets.
pub(super) const SECRETS: &str =
    "GET /api/v1/secrets watch=true&sendInitialEvents=true&resourceVersion=";

/// Ownership as the test says it is.
#[derive(Debug)]
pub(super) struct Owner {
    clock: Arc<PausedClock>,
    shards: watch::Sender<Arc<OwnedShards>>,
    valid_until: Mutex<Moment>,
    members: Mutex<NonZeroU32>,
    acknowledged: watch::Sender<Vec<String>>,
}

impl Owner {
    /// Lets the Lease run out after this long.
    pub(super) fn lease(&self, valid_for: Duration) {
        *self.valid_until.lock().unwrap() = self.clock.now() + valid_for;
    }
}

impl Ownership for Owner {
    fn watch(&self) -> watch::Receiver<Arc<OwnedShards>> {
        self.shards.subscribe()
    }

    fn permit(
        &self,
        shard: &ShardId,
        epoch: Epoch,
        purpose: Purpose,
    ) -> Result<Permit, FenceError> {
        let valid_until = *self.valid_until.lock().unwrap();
        self.shards.borrow().permit(shard, epoch, purpose, valid_until, self.clock.now())
    }

    fn members(&self) -> NonZeroU32 {
        *self.members.lock().unwrap()
    }

    fn acknowledge_drain(&self, shard: &ShardId, epoch: Epoch) {
        self.acknowledged.send_modify(|all| all.push(format!("{shard}@{epoch}")));
    }
}

/// Writes dispatches down.
#[derive(Debug, Default)]
pub(super) struct Journal(watch::Sender<Vec<String>>);

impl Journal {
    fn note(&self, what: &str, dispatch: &Dispatch) {
        let Dispatch { epoch, key, .. } = dispatch;
        self.0.send_modify(|all| all.push(format!("{what} {key}@{epoch}")));
    }
}

impl DispatchObserver for Journal {
    fn started(&self, dispatch: &Dispatch) {
        self.note("start", dispatch);
    }

    fn finished(&self, dispatch: &Dispatch, _: Moment) {
        self.note("end", dispatch);
    }
}

/// Makes spans in every test of this process. `tracing` switches a span off for good if the thread
/// that makes it first has no subscriber, and tests that read spans run beside others.
fn make_spans() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tracing::subscriber::set_global_default(tracing_subscriber::registry()).unwrap();
    });
}

pub(super) struct World {
    pub(super) owner: Arc<Owner>,
    pub(super) status: EngineStatus,
    pub(super) clock: Arc<PausedClock>,
    pub(super) meter: Meter,
    journal: Arc<Journal>,
    clusters: watch::Sender<Arc<ClusterSet>>,
    registry: Registry,
    stop: CancellationToken,
    engine: Option<tokio::task::JoinHandle<()>>,
}

impl World {
    /// Starts an engine. Controllers that name no group are in group `g`.
    pub(super) fn start(controllers: Vec<ControllerSpec>) -> Self {
        Self::start_with(UpstreamLimits::default(), controllers)
    }

    /// [`Self::start`], with other limits on what each cluster is asked.
    pub(super) fn start_with(upstream: UpstreamLimits, controllers: Vec<ControllerSpec>) -> Self {
        Self::start_all(upstream, controllers, Vec::new())
    }

    /// Starts an engine with work that is one for the fleet.
    pub(super) fn start_single(work: SingleSpec) -> Self {
        Self::start_all(UpstreamLimits::default(), Vec::new(), vec![work])
    }

    fn start_all(
        upstream: UpstreamLimits,
        controllers: Vec<ControllerSpec>,
        singles: Vec<SingleSpec>,
    ) -> Self {
        make_spans();
        let clock = PausedClock::new();
        let owner = Arc::new(Owner {
            clock: Arc::clone(&clock),
            shards: watch::Sender::new(Arc::new(OwnedShards::none("m-1".parse().unwrap()))),
            valid_until: Mutex::new(Moment::from_origin(Duration::from_secs(1_000_000))),
            members: Mutex::new(NonZeroU32::MIN),
            acknowledged: watch::Sender::default(),
        });
        let journal = Arc::new(Journal::default());
        let meter = Meter::new(Arc::clone(&clock) as Arc<dyn Clock>);
        let (clusters, watched) = watch::channel(Arc::default());
        let registry = Registry::new();
        let groups: BTreeMap<_, _> =
            controllers.iter().map(|c| (c.name().clone(), group(c))).collect();
        let engine = Engine::new(
            EngineConfig {
                clock: Arc::clone(&clock) as Arc<dyn Clock>,
                ownership: Arc::clone(&owner) as Arc<dyn Ownership>,
                meter: meter.clone(),
                clusters: watched,
                groups,
                registry: &registry,
                observer: Arc::clone(&journal) as Arc<dyn DispatchObserver>,
                seed: 7,
                upstream,
                budgets: model::Budgets::default(),
                stamps: false,
                cluster_labels: Arc::default(),
                allocated: None,
            },
            controllers,
        )
        .unwrap();
        let engine = singles.into_iter().fold(engine, Engine::single);
        let status = engine.status();
        let stop = CancellationToken::new();
        let engine = Some(tokio::spawn(engine.run(stop.clone())));
        Self { owner, status, clock, meter, journal, clusters, registry, stop, engine }
    }

    /// Engages a cluster; again, if it is engaged already.
    pub(super) fn engage(&self, name: &str, incarnation: u64) -> Server {
        let (client, server) = server();
        self.engage_client(name, incarnation, client);
        server
    }

    /// Engages a cluster that this client talks to.
    pub(super) fn engage_client(&self, name: &str, incarnation: u64, client: kube::Client) {
        self.engage_with(name, incarnation, client, None);
    }

    /// The same, with this budget.
    pub(super) fn engage_with(
        &self,
        name: &str,
        incarnation: u64,
        client: kube::Client,
        budget: Option<Budget>,
    ) {
        let cluster = Cluster::new(name.parse().unwrap(), client, incarnation);
        self.engage_as(Cluster { budget, ..cluster });
    }

    /// Engages this cluster.
    pub(super) fn engage_as(&self, cluster: Cluster) {
        self.configure(cluster.name.clone(), ClusterState::Engaged(cluster));
    }

    /// A cluster has no client for a while.
    pub(super) fn go_down(&self, name: &str) {
        self.configure(name.parse().unwrap(), ClusterState::Down("not reached".into()));
    }

    fn configure(&self, name: ClusterName, state: ClusterState) {
        self.clusters.send_modify(|set| {
            Arc::make_mut(set).clusters.insert(name, state);
        });
    }

    pub(super) fn disengage(&self, name: &str) {
        let name: model::ClusterName = name.parse().unwrap();
        self.clusters.send_modify(|set| {
            Arc::make_mut(set).clusters.remove(&name);
        });
    }

    /// Its Lease is lost: it joins again as another member, which holds nothing.
    pub(super) fn rejoin(&self, member: &str) {
        let none = OwnedShards::none(member.parse().unwrap());
        self.owner.shards.send_replace(Arc::new(none));
    }

    /// Holds the shard of a cluster, or no more.
    pub(super) fn hold(&self, cluster: &str, holding: Option<(u64, Hold)>) {
        self.hold_shards(&[(&format!("{cluster}/g/0/1"), holding)]);
    }

    /// Holds several shards, or no more, from one moment on.
    pub(super) fn hold_shards(&self, shards: &[(&str, Option<(u64, Hold)>)]) {
        self.owner.shards.send_modify(|owned| {
            let holdings = &mut Arc::make_mut(owned).holdings;
            for (shard, holding) in shards {
                let shard: ShardId = shard.parse().unwrap();
                match *holding {
                    Some((epoch, hold)) => {
                        holdings.insert(shard, Holding { epoch: Epoch(epoch), hold });
                    }
                    None => {
                        holdings.remove(&shard);
                    }
                }
            }
        });
    }

    /// Drains a shard, with more patience than any test has. Returns how it is held then.
    pub(super) fn drain_shard(&self, shard: &str, epoch: u64) -> Hold {
        let hold = Hold::Draining { deadline: self.clock.now() + PATIENCE };
        self.hold_shards(&[(shard, Some((epoch, hold)))]);
        hold
    }

    pub(super) fn hold_active(&self, cluster: &str, epoch: u64) {
        self.hold(cluster, Some((epoch, Hold::Active)));
    }

    pub(super) fn drain(&self, cluster: &str, epoch: u64, patience: Duration) {
        let deadline = self.clock.now() + patience;
        self.hold(cluster, Some((epoch, Hold::Draining { deadline })));
    }

    /// Lets the Lease run out after this long.
    pub(super) fn lease(&self, valid_for: Duration) {
        self.owner.lease(valid_for);
    }

    /// Makes it one of this many members.
    pub(super) fn of_members(&self, count: u32) {
        *self.owner.members.lock().unwrap() = NonZeroU32::new(count).unwrap();
    }

    pub(super) fn acknowledged(&self) -> Vec<String> {
        self.owner.acknowledged.borrow().clone()
    }

    pub(super) async fn wait_acknowledged(&self, expect: &str) {
        wait(&self.owner.acknowledged, |all| all.iter().any(|one| one == expect)).await;
    }

    pub(super) fn journal(&self) -> Vec<String> {
        self.journal.0.borrow().clone()
    }

    /// Waits until something is in the journal.
    pub(super) async fn wait_journal(&self, expect: &str) {
        wait(&self.journal.0, |all| all.iter().any(|one| one == expect)).await;
    }

    /// Waits until the journal has this many entries.
    pub(super) async fn wait_entries(&self, count: usize) {
        wait(&self.journal.0, |all| all.len() >= count).await;
    }

    /// One series of what is scraped, as text.
    pub(super) fn metric(&self, series: &str) -> String {
        let text = TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap();
        let line =
            text.lines().find(|line| line.strip_prefix(series).is_some_and(|l| l.starts_with(' ')));
        line.map_or_else(|| "absent".to_owned(), |line| line[series.len() + 1..].to_owned())
    }

    /// Stops the engine and waits until nothing runs.
    pub(super) async fn stop(mut self) {
        self.stop.cancel();
        let engine = self.engine.take().unwrap();
        tokio::time::timeout(PATIENCE, engine).await.expect("the engine ends").unwrap();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A world that holds the shard of `east` at this epoch.
pub(super) fn holding(controllers: Vec<ControllerSpec>, epoch: u64) -> (World, Server) {
    holding_shard(controllers, "east/g/0/1", epoch)
}

/// A world that holds this shard of `east` at this epoch.
pub(super) fn holding_shard(
    controllers: Vec<ControllerSpec>,
    shard: &str,
    epoch: u64,
) -> (World, Server) {
    let world = World::start(controllers);
    let server = world.engage("east", 1);
    world.hold_shards(&[(shard, Some((epoch, Hold::Active)))]);
    (world, server)
}

/// [`holding`], where the ConfigMaps with these names are listed first.
pub(super) async fn listed(
    controllers: Vec<ControllerSpec>,
    epoch: u64,
    names: &[&str],
) -> (World, Server, Watch) {
    let (world, mut server) = holding(controllers, epoch);
    let maps: Vec<_> = names.iter().map(|name| config_map(name, 1)).collect();
    let list = server.expect(MAPS).await.list(5, &maps);
    (world, server, list)
}

async fn wait(state: &watch::Sender<Vec<String>>, until: impl FnMut(&Vec<String>) -> bool) {
    let mut receiver = state.subscribe();
    let found = tokio::time::timeout(PATIENCE, receiver.wait_for(until)).await;
    let outcome = found.map(|_| ());
    assert!(outcome.is_ok(), "never came: {:?}", state.borrow());
}

fn group(controller: &ControllerSpec) -> GroupName {
    controller.group().cloned().unwrap_or_else(|| "g".parse().unwrap())
}

/// Lets everything that can run do so.
pub(super) async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// A reconciler made of a function.
pub(super) struct Run<F, K> {
    run: F,
    kind: PhantomData<fn() -> K>,
}

impl<F, K: crate::AnyObject> Reconciler for Run<F, K>
where
    F: for<'a> Fn(&'a Context, &'a ObjectKey) -> BoxFuture<'a, Result<Action, ReconcileError>>
        + Send
        + Sync
        + 'static,
{
    type Kind = K;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        (self.run)(ctx, key).await
    }
}

/// A reconciler made of a function. Says what kind of function, which inference needs.
pub(super) fn run<F, K>(run: F) -> Run<F, K>
where
    F: for<'a> Fn(&'a Context, &'a ObjectKey) -> BoxFuture<'a, Result<Action, ReconcileError>>
        + Send
        + Sync
        + 'static,
{
    Run { run, kind: PhantomData }
}

/// A controller of ConfigMaps called `maps`.
pub(super) fn maps<F>(run: F) -> ControllerSpec
where
    F: for<'a> Fn(&'a Context, &'a ObjectKey) -> BoxFuture<'a, Result<Action, ReconcileError>>
        + Send
        + Sync
        + 'static,
{
    Controller::for_kind::<ConfigMap>("maps").reconciler(self::run(run))
}

/// Does nothing, successfully.
pub(super) fn idle<'a>(
    _: &'a Context,
    _: &'a ObjectKey,
) -> BoxFuture<'a, Result<Action, ReconcileError>> {
    std::future::ready(Ok(Action::Done)).boxed()
}

/// A reconciler of any kind that does nothing.
#[derive(Default)]
pub(super) struct Idle<K>(PhantomData<fn() -> K>);

impl<K: crate::Object> Reconciler for Idle<K> {
    type Kind = K;

    async fn reconcile(&self, _: &Context, _: &ObjectKey) -> Result<Action, ReconcileError> {
        Ok(Action::Done)
    }
}
