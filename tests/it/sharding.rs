//! Members of `sharding` over an embedded home cluster, in one process and in paused time: time
//! passes only when nothing is left to do, so durations are exact.
#![expect(clippy::disallowed_methods, reason = "the clock of these tests is tokio's paused one")]

mod large;
mod owner;
mod policies;
mod proof;
mod watchdog;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apiserver::Server;
use apiserver::faults::{Fault, Request};
use fleet::{self, LeaseStanding};
use futures::future::select_all;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
};
use model::{
    Clock, ClusterSet, ClusterState, Hold, MemberId, Moment, Ownership, Purpose, ShardId,
    Unmeasured,
};
use serde_json::json;
use sharding::api::{MemberContainer, ShardMap, crds};
use sharding::{Config, Departure, LeaseTimings, Sharding};
use tests::install;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

const NAMESPACE: &str = "leasehold-system";
const PATIENCE: Duration = Duration::from_secs(60);

/// Tokio's clock, a minute after its origin.
#[derive(Debug)]
struct PausedClock(Instant);

impl Clock for PausedClock {
    fn now(&self) -> Moment {
        Moment::from_origin(self.0.elapsed() + Duration::from_secs(60))
    }

    fn wall(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH + self.0.elapsed()
    }
}

/// A home cluster, and what all members share.
struct Home {
    server: Server,
    clock: Arc<PausedClock>,
    clusters: watch::Sender<Arc<ClusterSet>>,
    /// Who may dispatch for a shard now. Each change is checked against S1.
    active: Arc<Mutex<BTreeMap<ShardId, MemberId>>>,
}

/// One member, with a minimal engine that acknowledges each drain at once.
struct Replica {
    sharding: Sharding,
    engine: JoinHandle<()>,
}

impl Home {
    async fn start(clusters: &[&str]) -> Self {
        let home = Self::bare(clusters).await;
        install::namespace(&home.server.client(), NAMESPACE).await;
        install::crds(&home.server.client(), crds()).await;
        home
    }

    /// Without our definitions and namespace.
    async fn bare(clusters: &[&str]) -> Self {
        let server = Server::builder().name("home").seed(1).start().await.unwrap();
        let home = Self {
            server,
            clock: Arc::new(PausedClock(Instant::now())),
            clusters: watch::channel(Arc::new(ClusterSet::default())).0,
            active: Arc::default(),
        };
        home.configure(clusters);
        home
    }

    /// Removes the schema of a kind, as a later definition may.
    async fn loosen(&self, name: &str) {
        let definitions = Api::<CustomResourceDefinition>::all(self.server.client());
        let mut crd = serde_json::to_value(definitions.get(name).await.unwrap()).unwrap();
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] =
            json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        let crd = serde_json::from_value(crd).unwrap();
        definitions.replace(name, &PostParams::default(), &crd).await.unwrap();
    }

    fn configure(&self, clusters: &[&str]) {
        let down = |name: &&str| (name.parse().unwrap(), ClusterState::Down("not needed".into()));
        let clusters = clusters.iter().map(down).collect();
        self.clusters.send_replace(Arc::new(ClusterSet { clusters, ..ClusterSet::default() }));
    }

    fn replica(&self, number: u64) -> Replica {
        self.replica_in(&format!("replica-{number}"), number, None)
    }

    fn replica_in(&self, identity: &str, seed: u64, container: Option<MemberContainer>) -> Replica {
        let groups = BTreeSet::from(["tdset".parse().unwrap()]);
        let config = Config { container, ..Config::new(identity, groups, seed) };
        let registry = prometheus::Registry::new();
        let sharding = Sharding::spawn(
            self.server.client(),
            config,
            self.clusters.subscribe(),
            Arc::new(Unmeasured),
            self.clock.clone(),
            &registry,
        )
        .unwrap();
        let engine = tokio::spawn(engine(sharding.clone(), Arc::clone(&self.active)));
        Replica { sharding, engine }
    }

    fn now(&self) -> Duration {
        self.clock.now().since_origin()
    }

    fn coordinator(&self) -> (Api<Lease>, &'static str) {
        (Api::namespaced(self.server.client(), NAMESPACE), sharding::lease::COORDINATOR)
    }

    /// The epoch floor as it is stored.
    async fn floor(&self) -> Option<String> {
        let (leases, name) = self.coordinator();
        let annotations = leases.get(name).await.unwrap().metadata.annotations;
        annotations.and_then(|mut annotations| annotations.remove(sharding::floor::ANNOTATION))
    }

    /// Writes another epoch floor.
    async fn set_floor(&self, text: &str) {
        let (leases, name) = self.coordinator();
        let annotations = json!({ sharding::floor::ANNOTATION: text });
        let patch = Patch::Merge(json!({ "metadata": { "annotations": annotations } }));
        leases.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    /// Waits until there are that many ShardMaps.
    async fn until_maps(&self, count: usize) {
        poll_until(async || self.maps().await.len() == count).await;
    }

    /// All ShardMaps.
    async fn maps(&self) -> Vec<ShardMap> {
        let maps = Api::<ShardMap>::namespaced(self.server.client(), NAMESPACE);
        maps.list(&ListParams::default()).await.unwrap().items
    }
}

/// Follows the shards of a member: acknowledges drains, and checks that nobody else is active.
async fn engine(sharding: Sharding, active: Arc<Mutex<BTreeMap<ShardId, MemberId>>>) {
    let mut owned = sharding.watch();
    let mut was = owned.borrow().member.clone();
    loop {
        let snapshot = Arc::clone(&owned.borrow_and_update());
        let me = &snapshot.member;
        let mut draining = Vec::new();
        {
            let mut active = active.lock().unwrap();
            let still = |shard: &ShardId| {
                snapshot.holdings.get(shard).is_some_and(|h| h.hold == Hold::Active)
            };
            active.retain(|shard, member| *member != was || (was == *me && still(shard)));
            was.clone_from(me);
            for (shard, held) in &snapshot.holdings {
                if sharding.permit(shard, held.epoch, Purpose::Dispatch).is_ok() {
                    let other = active.insert(shard.clone(), me.clone());
                    assert!(other.is_none_or(|other| other == *me), "S1: {shard}");
                }
                if matches!(held.hold, Hold::Draining { .. }) {
                    draining.push((shard.clone(), held.epoch));
                }
            }
        }
        for (shard, epoch) in draining {
            sharding.acknowledge_drain(&shard, epoch);
        }
        if owned.changed().await.is_err() {
            return;
        }
    }
}

impl Replica {
    fn active(&self) -> usize {
        let active = |shard: &&sharding::HeldShard| shard.hold == "active";
        self.sharding.status().shards.iter().filter(active).count()
    }

    /// Stops at once.
    async fn crash(self, active: &Mutex<BTreeMap<ShardId, MemberId>>) {
        let member = self.sharding.status().member;
        self.engine.abort();
        // The engine holds a handle; the member stops when both are gone.
        let _ = self.engine.await;
        drop(self.sharding);
        active.lock().unwrap().retain(|_, owner| *owner != member);
    }
}

/// Waits until `reached` is true, and checks it at each change of a member's shards.
async fn until(replicas: &[&Replica], what: &str, reached: impl Fn() -> bool) {
    let mut watches: Vec<_> = replicas.iter().map(|r| r.sharding.watch()).collect();
    let wait = async {
        while !reached() {
            select_all(watches.iter_mut().map(|watch| Box::pin(watch.changed()))).await.0.unwrap();
        }
    };
    if tokio::time::timeout(PATIENCE, wait).await.is_err() {
        let statuses: Vec<_> = replicas.iter().map(|r| r.sharding.status()).collect();
        panic!("not {what} within {PATIENCE:?}: {statuses:#?}");
    }
}

/// Waits until `met` is true, and checks it every 10 ms.
async fn poll_until(met: impl AsyncFn() -> bool) {
    let wait = async {
        while !met().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap();
}

/// Waits until each member holds as many active shards as given.
async fn until_active(replicas: &[&Replica], expect: &[usize]) {
    let reached = || replicas.iter().map(|replica| replica.active()).eq(expect.iter().copied());
    until(replicas, &format!("active {expect:?}"), reached).await;
}

const SIX: [&str; 6] = ["c0", "c1", "c2", "c3", "c4", "c5"];

#[tokio::test(start_paused = true)]
async fn three_share_one_leaves_one_crashes() {
    let home = Home::start(&SIX).await;
    let began = home.now();
    let (a, b, c) = (home.replica(0), home.replica(1), home.replica(2));
    until_active(&[&a, &b, &c], &[2, 2, 2]).await;
    let started = home.now() - began;
    assert!(started < Duration::from_secs(1), "shared after {started:?}");

    let left = home.now();
    assert_eq!(b.sharding.leave().await, Departure::HandedOver);
    until_active(&[&a, &c], &[3, 3]).await;
    let gap = home.now() - left;
    assert!(gap < Duration::from_millis(100), "handed over after {gap:?}");
    assert_eq!(b.active(), 0);

    // Less than an interval has passed since the last renewal, so at most this much is left.
    let crashed = home.now();
    c.crash(&home.active).await;
    until_active(&[&a], &[6]).await;
    let gap = home.now() - crashed;
    let silence = LeaseTimings::default().silence();
    assert!(gap < silence + Duration::from_millis(200), "taken over after {gap:?}");
    assert!(gap > silence - LeaseTimings::default().renew_interval, "S5: after {gap:?} only");

    for map in home.maps().await {
        assert_eq!((map.spec.summary.owned, map.spec.shards.len()), (1, 1));
        assert!(map.spec.shards[0].epoch.0 >= 1);
    }
}

#[tokio::test(start_paused = true)]
async fn the_fleet_is_read_as_it_is() {
    let home = Home::start(&["east", "west"]).await;
    let (a, b) = (home.replica(0), home.replica(1));
    until_active(&[&a, &b], &[1, 1]).await;
    let dead = b.sharding.status().member;
    b.crash(&home.active).await;
    until_active(&[&a], &[2]).await;
    let fleet = fleet::read(home.server.client(), NAMESPACE).await.unwrap();
    let mine = a.sharding.status().member;
    assert_eq!(fleet.coordinator, Some(mine.clone()));
    let members: BTreeMap<_, _> =
        fleet.members.iter().map(|m| (m.member.clone(), (m.lease, m.shards))).collect();
    let expect = [(mine.clone(), (LeaseStanding::Held, 2)), (dead, (LeaseStanding::Taken, 0))];
    assert_eq!(members, BTreeMap::from(expect));
    assert!(fleet.shards.iter().all(|shard| shard.owner.as_ref() == Some(&mine)));
}

#[tokio::test(start_paused = true)]
async fn a_member_whose_renewals_go_unanswered_fences_itself_before_it_is_replaced() {
    let home = Home::start(&SIX).await;
    let (a, b) = (home.replica(0), home.replica(1));
    until_active(&[&a, &b], &[3, 3]).await;
    let was = b.sharding.status();
    let lease = format!("leasehold-member-{}", was.member);
    home.server.set_faults(Some(Arc::new(move |request: &Request| {
        let renewal = request.name == lease && request.verb == "update";
        if renewal { Fault::DropAnswer } else { Fault::None }
    })));
    let held: Vec<_> = was.shards.iter().map(|s| (s.shard.clone(), s.epoch)).collect();
    let cut = home.now();
    // It comes back as another member and gets its share again; S1 is checked throughout.
    until(&[&b], "fenced", || b.sharding.status().member != was.member).await;
    let fenced = home.now() - cut;
    let timings = LeaseTimings::default();
    assert!(fenced <= timings.validity(), "fenced after {fenced:?}");
    for (shard, epoch) in &held {
        assert!(b.sharding.permit(shard, *epoch, Purpose::Write).is_err(), "{shard}");
    }
    home.server.set_faults(None);
    until_active(&[&a, &b], &[3, 3]).await;
}

#[tokio::test(start_paused = true)]
async fn an_outage_of_the_home_cluster_stops_work_and_its_end_brings_it_back() {
    let home = Home::start(&SIX).await;
    let (a, b) = (home.replica(0), home.replica(1));
    until_active(&[&a, &b], &[3, 3]).await;
    home.server.set_faults(Some(Arc::new(|_: &Request| Fault::Drop)));
    home.server.close_watches();
    until_active(&[&a, &b], &[0, 0]).await;
    let problems = a.sharding.status().problems.join("\n");
    assert!(problems.contains("check that the home cluster can be reached"), "{problems}");
    home.server.set_faults(None);
    until_active(&[&a, &b], &[3, 3]).await;
}

#[tokio::test(start_paused = true)]
async fn missing_crds_and_older_ones_are_named_with_the_remedy() {
    let home = Home::bare(&["east"]).await;
    let client = home.server.client();
    let a = home.replica(0);
    let told = async |text: &str| {
        poll_until(async || a.sharding.status().problems.join("\n").contains(text)).await;
    };
    told("shardmaps.leasehold.dev is not there, members.leasehold.dev is not there").await;
    let mut older = json!(crds());
    let spec = older[1].pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties/spec");
    let fields = spec.unwrap()["properties"].as_object_mut().unwrap();
    fields.remove("protocolVersion").unwrap();
    let older: Vec<CustomResourceDefinition> = serde_json::from_value(older).unwrap();
    install::crds(&client, older).await;
    told("members.leasehold.dev does not keep spec.protocolVersion; fix: apply those of this release")
        .await;
    home.loosen("members.leasehold.dev").await;
    told("kubectl create namespace leasehold-system").await;
    install::namespace(&client, NAMESPACE).await;
    until_active(&[&a], &[1]).await;
    assert_eq!(a.sharding.status().problems, Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn the_map_of_a_removed_cluster_is_deleted() {
    let home = Home::start(&["east", "west"]).await;
    let a = home.replica(0);
    until_active(&[&a], &[2]).await;
    home.configure(&["east"]);
    until_active(&[&a], &[1]).await;
    home.until_maps(1).await;
    assert_eq!(home.floor().await.as_deref(), Some("1"));
    home.configure(&["east", "west"]);
    until_active(&[&a], &[2]).await;
    let west = home.maps().await.into_iter().find(|m| m.metadata.name.as_deref() == Some("west"));
    assert_eq!(west.unwrap().spec.shards[0].epoch.0, 2, "the epoch continues");
}

#[tokio::test(start_paused = true)]
async fn a_damaged_epoch_floor_is_named_and_no_map_is_deleted_until_it_is_repaired() {
    let home = Home::start(&["east", "west"]).await;
    let a = home.replica(0);
    until_active(&[&a], &[2]).await;
    home.set_floor("many").await;
    home.configure(&["east"]);
    until_active(&[&a], &[1]).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!((home.maps().await.len(), home.floor().await.as_deref()), (2, Some("many")));
    let problems = a.sharding.status().problems.join("\n");
    assert!(problems.contains("epoch-floor is \"many\" and no epoch"), "{problems}");
    assert!(problems.ends_with("leasehold.dev/epoch-floor=1"), "{problems}");
    home.set_floor("5").await;
    home.until_maps(1).await;
    assert_eq!(a.sharding.status().problems, Vec::<String>::new());
    // Nobody knows it, so it begins at the floor.
    home.configure(&["east", "north"]);
    until_active(&[&a], &[2]).await;
    let maps = home.maps().await;
    let north = maps.iter().find(|map| map.metadata.name.as_deref() == Some("north")).unwrap();
    assert_eq!((north.spec.epoch_floor.0, north.spec.shards[0].epoch.0), (5, 6));
}

#[tokio::test(start_paused = true)]
async fn a_map_deleted_by_hand_is_written_again() {
    let home = Home::start(&["east", "west"]).await;
    let (a, b) = (home.replica(0), home.replica(1));
    until_active(&[&a, &b], &[1, 1]).await;
    let maps = Api::<ShardMap>::namespaced(home.server.client(), NAMESPACE);
    let before = maps.get("east").await.unwrap().spec;
    maps.delete("east", &DeleteParams::default()).await.unwrap();
    poll_until(async || maps.get_opt("east").await.unwrap().is_some_and(|map| map.spec == before))
        .await;
    until_active(&[&a, &b], &[1, 1]).await;
}

/// A map as a future release may write it, which this code cannot even read.
#[tokio::test(start_paused = true)]
async fn a_map_of_a_future_version_is_refused_and_named_and_the_others_stay_usable() {
    let home = Home::start(&["east", "west"]).await;
    home.loosen("shardmaps.leasehold.dev").await;
    let a = home.replica(0);
    until_active(&[&a], &[2]).await;
    let resource = ApiResource::erase::<ShardMap>(&());
    let maps = Api::<DynamicObject>::namespaced_with(home.server.client(), NAMESPACE, &resource);
    let future = json!({ "spec": { "protocolVersion": 9, "shards": [{ "leasedTo": "nobody" }] } });
    let params = PatchParams::default();
    let east = maps.patch("east", &params, &Patch::Merge(future)).await.unwrap();
    until_active(&[&a], &[1]).await;
    // A member that starts now reads the other map.
    let b = home.replica(1);
    let tells = |replica: &&Replica| !replica.sharding.status().problems.is_empty();
    poll_until(async || [&a, &b].iter().all(tells)).await;
    for replica in [&a, &b] {
        let status = replica.sharding.status();
        assert_eq!(
            status.problems,
            [format!(
                "shardmaps.leasehold.dev east in namespace {NAMESPACE} of the home cluster is written in protocol version 9 and this member speaks protocol version 1: it acts on none of its shards, and coordinates the others only while no other member can; fix: upgrade this replica to the release of the others, or roll the others back"
            )]
        );
        assert!(status.synced);
    }
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert_eq!(a.sharding.status().shards.len(), 1, "it continues with the other");
    let now = maps.get("east").await.unwrap();
    assert_eq!(now.metadata.resource_version, east.metadata.resource_version, "nobody wrote it");
    let fleet = fleet::read(home.server.client(), NAMESPACE).await.unwrap();
    assert_eq!(fleet.refused.len(), 2);
    assert!(fleet.coordinator.is_some(), "the other map needs one");
}

#[tokio::test(start_paused = true)]
async fn the_last_to_leave_leaves_no_owner_behind() {
    let home = Home::start(&SIX).await;
    let (a, b) = (home.replica(0), home.replica(1));
    until_active(&[&a, &b], &[3, 3]).await;
    let (first, second) = tokio::join!(a.sharding.leave(), b.sharding.leave());
    assert_eq!([first, second], [Departure::HandedOver; 2]);
    let fleet = fleet::read(home.server.client(), NAMESPACE).await.unwrap();
    assert_eq!((fleet.members.len(), &fleet.coordinator), (0, &None));
    assert!(fleet.shards.iter().all(|shard| shard.owner.is_none()));
}
