//! A controller of scope Fleet on two replicas and two clusters: it copies objects from one cluster to
//! the other, and writes back to the first which it has copied. One replica holds all shards; when it
//! loses its Lease, what it still has under way is refused by the fence, and the other goes on.

use std::sync::Arc;

use apiserver::faults::{Fault, Request};
use kube::ResourceExt;
use kube::api::ObjectMeta;
use model::MemberId;
use sdk::{
    Action, ClusterName, Context, FencedError, GroupScope, ObjectKey, ReconcileError, Reconciler,
    mapping,
};
use sharding::api::Phase;
use tokio::sync::{Notify, mpsc};

use super::*;
use tests::copy::wanted;

/// Copies ConfigMaps of the hub into the other clusters, and notes each copy at the hub's object.
#[derive(Clone)]
struct Copies {
    /// Where a run of this replica leaves a client of the hub, to be used when the shard is lost.
    kept: mpsc::UnboundedSender<Client>,
}

fn hub() -> ClusterName {
    "hub".parse().unwrap()
}

impl Reconciler for Copies {
    type Kind = ConfigMap;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        if *ctx.cluster() == hub() {
            return Ok(Action::Done);
        }
        let namespace = key.namespace.as_deref();
        let hub = ctx.in_cluster(&hub())?;
        let original = hub.get::<ConfigMap>(namespace, &key.name)?;
        let Some(original) = original.filter(|map| wanted(map).is_some()) else {
            let copy = ctx.get::<ConfigMap>(namespace, &key.name)?;
            if let Some(copy) = copy.filter(|copy| copy.labels().contains_key("copy")) {
                ctx.delete(&*copy).await?;
            }
            return Ok(Action::Done);
        };
        let metadata = ObjectMeta {
            name: Some(key.name.to_string()),
            namespace: namespace.map(str::to_owned),
            labels: Some([("copy".to_owned(), "yes".to_owned())].into()),
            ..Default::default()
        };
        let copy = ConfigMap { metadata, data: original.data.clone(), ..Default::default() };
        ctx.apply(&copy).await?;
        if seen(&original) != wanted(&original) {
            let api: Api<ConfigMap> = Api::namespaced(hub.client(), "default");
            let patch = json!({"metadata": {"annotations": {"seen": wanted(&original)}}});
            api.patch(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        }
        // The receiver goes when the test has what it wants.
        let _ = self.kept.send(hub.client());
        Ok(Action::Done)
    }
}

/// The values that the copies of a cluster have.
async fn copied(client: &Client) -> Vec<String> {
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let maps = api.list(&Default::default()).await.unwrap();
    let copies = maps.items.iter().filter(|map| map.labels().contains_key("copy"));
    copies.filter_map(|copy| wanted(copy).map(str::to_owned)).collect()
}

/// The member that owns the shards of all clusters, if one does.
async fn holder(home: &Client) -> Option<MemberId> {
    let mut shards = fleet(home).await.shards.into_iter().map(|shard| shard.owner);
    let first = shards.next()??;
    shards.all(|owner| owner.as_ref() == Some(&first)).then_some(first)
}

fn replica(
    identity: &str,
    home: &Home,
    clusters: &ClusterSources,
) -> (Replica, mpsc::UnboundedReceiver<Client>) {
    let (kept, clients) = mpsc::unbounded_channel();
    let replica = Replica::start_with(identity, home, clusters, |manager| {
        manager.controller(
            Controller::for_kind::<ConfigMap>("copies")
                .group_scope(GroupScope::Fleet)
                .watches_across::<ConfigMap>(mapping::namesakes_elsewhere(hub()))
                .reconciler(Copies { kept }),
        )
    });
    (replica, clients)
}

/// The epochs of writes to a cluster on behalf of its shard, in the order in which they came.
fn epochs(server: &Server) -> Vec<u64> {
    let shard = format!("shard={}/copies/0/1; epoch=", server.name());
    let epoch = |agent: &str| {
        let (_, rest) = agent.split_once(&shard)?;
        rest.split(';').next()?.parse().ok()
    };
    server.history().iter().filter_map(|write| epoch(&write.user_agent)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_replica_works_across_clusters_and_writes_nothing_once_it_has_lost_them() {
    let dir = tempfile::tempdir().unwrap();
    let (home_server, home) = home(dir.path()).await;
    let (hub_server, east) = (server("hub").await, server("east").await);
    let clusters = sources(dir.path(), &[&hub_server, &east]);
    let (home_client, hub_client) = (home_server.client(), hub_server.client());

    // What is there before anybody runs is copied, too.
    want(&hub_client, "one").await;
    let (first, mut clients) = replica("first", &home, &clusters);
    until("the first value is copied and noted", async || {
        copied(&east.client()).await == vec!["one"; OBJECTS] && converged(&hub_client, "one").await
    })
    .await;
    let (second, _others) = replica("second", &home, &clusters);
    until("there are two members", async || owners(&home_client).await.len() == 2).await;
    let holder = async || holder(&home_client).await;
    let first_member = holder().await.expect("one holds the shards of both clusters");

    // It cannot renew its Lease any more, so it fences itself.
    let lease = format!("leasehold-member-{first_member}");
    let silence = move |request: &Request| match request.verb {
        "update" if request.name == lease => Fault::Drop,
        _ => Fault::None,
    };
    home_server.set_faults(Some(Arc::new(silence)));
    until("it has joined again, as another member", async || {
        fleet(&home_client).await.members.len() == 3
    })
    .await;
    home_server.set_faults(None);
    until("another member holds the shards", async || {
        holder().await.is_some_and(|holder| holder != first_member)
    })
    .await;
    want(&hub_client, "two").await;
    // A write that the first had in mind, with the client of a run of its own.
    let kept = clients.recv().await.expect("a run has left its client");
    let api: Api<ConfigMap> = Api::namespaced(kept, "default");
    let patch = Patch::Merge(json!({"data": {"wanted": "by the first"}}));
    let refused = api.patch("map-0", &PatchParams::default(), &patch).await.unwrap_err();
    let kube::Error::Service(source) = &refused else { panic!("{refused:?}") };
    assert!(source.downcast_ref::<FencedError>().is_some(), "{refused:?}");

    until("the second value is copied and noted", async || {
        copied(&east.client()).await == vec!["two"; OBJECTS] && converged(&hub_client, "two").await
    })
    .await;
    for server in [&hub_server, &east] {
        let epochs = epochs(server);
        assert!(epochs.is_sorted(), "no write of the past comes late: {epochs:?}");
        assert!(epochs.first() < epochs.last(), "both have written: {epochs:?}");
    }
    // What is gone at the hub goes elsewhere.
    let api: Api<ConfigMap> = Api::namespaced(hub_client, "default");
    api.delete("map-0", &Default::default()).await.unwrap();
    until("its copy goes", async || copied(&east.client()).await.len() == OBJECTS - 1).await;

    assert_eq!(first.leave().await, Departure::HandedOver);
    assert_eq!(second.leave().await, Departure::HandedOver);
}

/// Waits in a reconcile of the east's key until it is told to write into the hub.
struct Slow {
    begun: mpsc::UnboundedSender<()>,
    go: Arc<Notify>,
}

impl Reconciler for Slow {
    type Kind = ConfigMap;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        if *ctx.cluster() == hub() {
            return Ok(Action::Done);
        }
        let hub = ctx.in_cluster(&hub())?;
        let _ = self.begun.send(());
        self.go.notified().await;
        let api: Api<ConfigMap> = Api::namespaced(hub.client(), "default");
        let patch = Patch::Merge(json!({"metadata": {"annotations": {"seen": "in time"}}}));
        api.patch(&key.name, &PatchParams::default(), &patch).await?;
        Ok(Action::Done)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_leaves_hands_over_when_its_work_in_other_clusters_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    let (home_server, home) = home(dir.path()).await;
    let (hub_server, east) = (server("hub").await, server("east").await);
    let clusters = sources(dir.path(), &[&hub_server, &east]);
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    for server in [&hub_server, &east] {
        let api: Api<ConfigMap> = Api::namespaced(server.client(), "default");
        let apply = PatchParams::apply("test");
        api.patch("a", &apply, &Patch::Apply(&object)).await.unwrap();
    }
    let (begun, mut begins) = mpsc::unbounded_channel();
    let go = Arc::new(Notify::new());
    let slow = Slow { begun, go: Arc::clone(&go) };
    let replica = Replica::start_with("only", &home, &clusters, |manager| {
        let spec = Controller::for_kind::<ConfigMap>("copies").group_scope(GroupScope::Fleet);
        manager.controller(spec.reconciler(slow))
    });
    begins.recv().await.expect("the reconcile begins");
    let leaving = tokio::spawn(replica.leave());
    let home_client = home_server.client();
    until("its shards drain", async || {
        let shards = fleet(&home_client).await.shards;
        !shards.is_empty() && shards.iter().all(|shard| shard.phase == Phase::Draining)
    })
    .await;
    go.notify_one();
    assert_eq!(leaving.await.unwrap(), Departure::HandedOver);
    let api: Api<ConfigMap> = Api::namespaced(hub_server.client(), "default");
    let map = api.get("a").await.unwrap();
    assert_eq!(seen(&map), Some("in time"), "a drain lets it finish");
}
