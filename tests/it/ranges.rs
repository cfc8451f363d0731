//! Engines that each hold a range of one cluster, over an embedded API server: only its owner
//! reconciles and caches an object, even while ranges move.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apiserver::Server;
use engine::ShardMode;
use engine::{Engine, EngineConfig, EngineStatus, Meter, Unobserved};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{Api, Patch, PatchParams, PostParams};
use leasehold::testing::{Sole, TokioClock};
use model::{
    Clock, Cluster, ClusterSet, ClusterState, Epoch, Hold, Holding, ObjectKey, Range, ShardId,
    uid_hash,
};
use prometheus::Registry;
use sdk::{Action, Context, Controller, ReconcileError, Reconciler, Selector};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const NAMESPACE: &str = "maps";
const GROUP: &str = "maps";
const FIRST: Epoch = Epoch(1);

/// Who reconciled each object last, at which version, and what was cached.
#[derive(Debug, Default)]
struct Notes {
    last: BTreeMap<String, (usize, String)>,
    cached: BTreeMap<usize, BTreeSet<String>>,
    children: BTreeMap<String, Vec<String>>,
}

/// Records what it finds.
struct Note {
    member: usize,
    notes: Arc<Mutex<Notes>>,
}

impl Reconciler for Note {
    type Kind = ConfigMap;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(map) = ctx.get::<ConfigMap>(key.namespace.as_deref(), &key.name)? else {
            return Ok(Action::Done);
        };
        let uid = map.metadata.uid.as_deref().unwrap_or_default();
        assert!(ctx.shard().range.contains(uid_hash(uid)), "{} is not of {}", key, ctx.shard());
        let children = ctx.owned_by::<Secret>(uid)?;
        let children = children.iter().filter_map(|child| child.metadata.name.clone()).collect();
        let version = map.metadata.resource_version.clone().unwrap_or_default();
        let mut notes = self.notes.lock().unwrap();
        notes.last.insert(key.name.to_string(), (self.member, version));
        notes.children.insert(key.name.to_string(), children);
        if key.name.starts_with("look") {
            let all = ctx.list::<ConfigMap>(None, &Selector::all())?;
            let names = all.iter().filter_map(|map| map.metadata.name.clone()).collect();
            notes.cached.insert(self.member, names);
        }
        Ok(Action::Done)
    }
}

/// One engine.
struct Member {
    ownership: Arc<Sole>,
    status: EngineStatus,
    shutdown: CancellationToken,
    task: JoinHandle<()>,
}

/// A cluster and the engines that work on it.
struct Fleet {
    server: Server,
    notes: Arc<Mutex<Notes>>,
    members: Vec<Member>,
}

fn shard(range: &str) -> ShardId {
    format!("east/{GROUP}/{range}").parse().unwrap()
}

impl Fleet {
    /// A cluster whose server divides lists and watches itself, or does not.
    async fn new(divides: bool) -> Self {
        let server = Server::builder().name("east").sharded_lists(divides).start().await.unwrap();
        tests::install::namespace(&server.client(), NAMESPACE).await;
        Self { server, notes: Arc::default(), members: Vec::new() }
    }

    /// Adds a member that holds these ranges.
    fn join(&mut self, ranges: &[&str]) {
        let number = self.members.len();
        let clock: Arc<dyn Clock> = Arc::new(TokioClock::starting_at(Timestamp::UNIX_EPOCH));
        let member = format!("member-{number}").parse().unwrap();
        let ownership = Arc::new(Sole::of(member, ranges.iter().map(|range| shard(range)), FIRST));
        let cluster = Cluster::new("east".parse().unwrap(), self.server.client(), 1);
        let clusters = BTreeMap::from([(cluster.name.clone(), ClusterState::Engaged(cluster))]);
        let reconciler = Note { member: number, notes: Arc::clone(&self.notes) };
        let spec = Controller::for_kind::<ConfigMap>("maps")
            .owns::<Secret>()
            .group(GROUP)
            .workers(8)
            .reconciler(reconciler);
        let config = EngineConfig {
            meter: Meter::new(Arc::clone(&clock)),
            clock,
            ownership: ownership.clone(),
            clusters: watch::Sender::new(Arc::new(ClusterSet {
                clusters,
                ..ClusterSet::default()
            }))
            .subscribe(),
            groups: BTreeMap::from([(spec.name().clone(), GROUP.parse().unwrap())]),
            registry: &Registry::new(),
            observer: Arc::new(Unobserved),
            seed: 1,
            cluster_labels: Arc::default(),
            allocated: None,
            upstream: upstream::UpstreamLimits::default(),
            budgets: model::Budgets::default(),
            stamps: false,
        };
        let engine = Engine::new(config, vec![spec]).unwrap();
        let (status, shutdown) = (engine.status(), CancellationToken::new());
        let task = tokio::spawn(engine.run(shutdown.clone()));
        self.members.push(Member { ownership, status, shutdown, task });
    }

    fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.server.client(), NAMESPACE)
    }

    async fn create(&self, name: &str, text: &str) -> String {
        let map = json!({"metadata": {"name": name}, "data": {"text": text}});
        let map = serde_json::from_value(map).unwrap();
        self.maps().create(&PostParams::default(), &map).await.unwrap().metadata.uid.unwrap()
    }

    async fn adopt(&self, name: &str, owner: &str, uid: &str) {
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid,
            "controller": true});
        let child = json!({"metadata": {"name": name, "ownerReferences": [owner]}});
        let child = serde_json::from_value(child).unwrap();
        let secrets: Api<Secret> = Api::namespaced(self.server.client(), NAMESPACE);
        secrets.create(&PostParams::default(), &child).await.unwrap();
    }

    /// Changes an object; gives its version.
    async fn change(&self, name: &str, text: &str) -> String {
        let patch = Patch::Merge(json!({ "data": { "text": text } }));
        let map = self.maps().patch(name, &PatchParams::default(), &patch).await.unwrap();
        map.metadata.resource_version.unwrap()
    }

    /// Objects and bytes of each member's caches, by kind.
    fn caches(&self) -> Vec<BTreeMap<String, (usize, usize)>> {
        let of = |member: &Member| {
            let informers = member.status.informers().into_iter();
            informers.map(|informer| (informer.kind, (informer.objects, informer.bytes))).collect()
        };
        self.members.iter().map(of).collect()
    }

    async fn stop(self) {
        for member in self.members {
            member.shutdown.cancel();
            member.task.await.unwrap();
        }
    }
}

/// Lets paused time pass, until nothing is left to do.
async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

fn quarters() -> Vec<String> {
    (0..4).map(|index| Range::new(index, 2).unwrap().to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn four_members_cache_a_quarter_each_and_every_object_has_one_owner() {
    const OBJECTS: usize = 4_000;
    let mut fleet = Fleet::new(false).await;
    // Text that compresses about as well as the content of ConfigMaps. Each cache has its own
    // dictionary, so very small objects would not shrink to a quarter.
    let mut rng = fastrand::Rng::with_seed(1);
    let mut uids = BTreeMap::new();
    for index in 0..OBJECTS {
        let name = format!("{}-{index}", if index % 100 == 0 { "look" } else { "map" });
        let text: String = (0..2_000).map(|_| rng.char('a'..='h')).collect();
        let uid = fleet.create(&name, &text).await;
        if index % 20 == 0 {
            fleet.adopt(&format!("child-{index}"), &name, &uid).await;
        }
        uids.insert(name, uid);
    }
    let quarters = quarters();
    for quarter in &quarters {
        fleet.join(&[quarter]);
    }
    pass(60).await;
    {
        let notes = fleet.notes.lock().unwrap();
        assert_eq!(notes.last.len(), OBJECTS, "every object was reconciled");
        let holder = |uid: &str| {
            let holds =
                |quarter: &String| quarter.parse::<Range>().unwrap().contains(uid_hash(uid));
            quarters.iter().position(holds).unwrap()
        };
        for (name, uid) in &uids {
            let owner = holder(uid);
            assert_eq!(notes.last[name].0, owner, "{name} by its owner");
            assert!(notes.cached.iter().all(|(m, names)| *m == owner || !names.contains(name)));
        }
        let children: usize = notes.children.values().map(Vec::len).sum();
        assert_eq!(children, OBJECTS / 20, "every child was found beside its owner");
    }
    let parts = fleet.caches();
    for (kind, count) in [("ConfigMap", OBJECTS), ("Secret", OBJECTS / 20)] {
        let held: usize = parts.iter().map(|caches| caches[kind].0).sum();
        assert_eq!(held, count, "each {kind} once");
    }
    fleet.join(&["0/1"]);
    pass(60).await;
    let whole = fleet.caches().pop().unwrap()["ConfigMap"].1;
    for (quarter, caches) in quarters.iter().zip(&parts) {
        let (objects, bytes) = caches["ConfigMap"];
        let ratio = bytes as f64 / whole as f64;
        println!("{quarter}: {objects} objects, {bytes} B, {ratio:.3} of {whole} B");
        assert!((0.2..0.32).contains(&ratio), "about a quarter");
    }
    fleet.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_range_moves_under_changes_and_nothing_is_lost() {
    hand_over(false).await;
}

#[tokio::test(start_paused = true)]
async fn a_range_moves_where_the_server_divides() {
    hand_over(true).await;
}

async fn hand_over(divides: bool) {
    let mut fleet = Fleet::new(divides).await;
    let mut expected = BTreeMap::new();
    for index in 0..200 {
        fleet.create(&format!("map-{index}"), "first").await;
    }
    fleet.join(&["0/2"]);
    fleet.join(&["2/4", "3/4"]);
    pass(10).await;
    let moved = shard("2/4");
    let next = Holding { epoch: FIRST.next(), hold: Hold::Warming };
    for round in 0..12 {
        for index in (round..200).step_by(3) {
            let name = format!("map-{index}");
            let version = fleet.change(&name, &format!("round {round}")).await;
            expected.insert(name, version);
        }
        let [first, second] = &fleet.members[..] else { panic!("two members") };
        match round {
            2 => first.ownership.hold(&moved, Some(next)),
            4 => {
                let deadline = TokioClock::starting_at(Timestamp::UNIX_EPOCH).now();
                let deadline = deadline + Duration::from_secs(60);
                let draining = Holding { epoch: FIRST, hold: Hold::Draining { deadline } };
                second.ownership.hold(&moved, Some(draining));
                second.ownership.drained(&moved, FIRST).await;
            }
            5 => {
                second.ownership.hold(&moved, None);
                first.ownership.hold(&moved, Some(Holding { hold: Hold::Active, ..next }));
            }
            7 => fleet.server.close_watches(),
            9 => {
                fleet.server.close_watches();
                fleet.server.compact();
            }
            _ => {}
        }
        tokio::time::sleep(Duration::from_millis(700)).await;
    }
    pass(120).await;
    let maps = fleet.maps().list(&Default::default()).await.unwrap().items;
    let mut counts = [0, 0];
    {
        let notes = fleet.notes.lock().unwrap();
        for map in maps {
            let name = map.metadata.name.unwrap();
            let hash = uid_hash(&map.metadata.uid.unwrap());
            let second = "3/4".parse::<Range>().unwrap().contains(hash);
            counts[usize::from(second)] += 1;
            assert_eq!(notes.last[&name], (usize::from(second), expected[&name].clone()), "{name}");
        }
    }
    let held = fleet.caches().iter().map(|caches| caches["ConfigMap"].0).collect::<Vec<_>>();
    assert_eq!(held, counts);
    let expect = if divides { ShardMode::Server } else { ShardMode::Client };
    for member in &fleet.members {
        let informers = member.status.informers();
        let modes: BTreeMap<_, _> = informers.iter().map(|i| (i.kind.as_str(), i.mode)).collect();
        // The server cannot tell which owners children have.
        assert_eq!(modes, BTreeMap::from([("ConfigMap", expect), ("Secret", ShardMode::Client)]));
    }
    fleet.stop().await;
}
