//! Measures how long a plan takes: the planner alone, and the coordinator's whole step.
//!
//! `cargo run --release -p leasehold-sharding --example plan_speed`
//!
//! 50 members run 10 groups in 1,000, 2,000 and 4,000 clusters. Each figure is the elapsed time, the
//! least of several runs, and then the processor time, their mean, which is steadier on a busy machine
//! (missing where the system does not report it). The ratio compares the processor time of the last
//! column with the first, where shards have a ratio of 4.
#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::time::{Duration, Instant};

use leasehold_sharding::LeaseTimings;
use leasehold_sharding::api::ObjectVersion;
use leasehold_sharding::api::{MemberSpec, ShardLoad, ShardPath};
use leasehold_sharding::coordinator::{Coordinator, View};
use leasehold_sharding::handover::Entry;
use leasehold_sharding::lease::{LeaseRecord, member_lease_name};
use leasehold_sharding::planner::{
    Limits, Placement, PlanMember, PlanShard, Proposal, Reach, Role, plan,
};
use leasehold_sharding::policy::Policies;
use leasehold_sharding::record::{MapRecord, MemberRecord, Object};
use leasehold_sharding::world::World;
use model::{ClusterName, Epoch, GroupName, MemberId, Moment, ShardId};

const MEMBERS: usize = 50;
const GROUPS: usize = 10;
const CLUSTERS: [usize; 3] = [1_000, 2_000, 4_000];
const RUNS: u32 = 25;
const NOW: Moment = Moment::from_origin(Duration::from_secs(100));

fn main() {
    println!("{:<30}{:>16}{:>16}{:>16}{:>8}", "shards", "10,000", "20,000", "40,000", "ratio");
    let row = |what: &str, measure: fn(usize) -> Taken| {
        let times = CLUSTERS.map(measure);
        let ratio = times[2].on_processor.as_secs_f64() / times[0].on_processor.as_secs_f64();
        let [a, b, c] = times.map(|Taken { passed, on_processor }| {
            let [passed, on_processor] = [passed, on_processor].map(|t| t.as_secs_f64() * 1e3);
            format!("{passed:.1} / {on_processor:.1} ms")
        });
        println!("{what:<30}{a:>16}{b:>16}{c:>16}{ratio:>8.1}");
    };
    row("plan, nobody owns anything", |n| plan_in(&unowned(n), Role::Open));
    row("plan, nothing to do", |n| plan_in(&settled(n), Role::Open));
    row("plan, a member leaves", |n| plan_in(&settled(n), Role::Leaving));
    row("plan, a member is emptied", |n| plan_in(&settled(n), Role::Cordoned));
    row("plan, a member joins", |n| plan_in(&without_first(settled(n)), Role::Open));
    row("plan, a member is overloaded", |n| plan_in(&overloaded(settled(n)), Role::Open));
    row("step, nobody owns anything", |n| step(&unowned(n), false, false));
    row("step, nothing to do", |n| step(&settled(n), false, false));
    row("the same, from scratch", |n| step(&settled(n), false, true));
    row("step, every load told", |n| step(&settled(n), true, false));
}

/// How long something took.
#[derive(Clone, Copy)]
struct Taken {
    passed: Duration,
    on_processor: Duration,
}

impl Taken {
    /// Over several runs, because processor time is counted in steps longer than one run.
    fn by_one_of_many(mut run: impl FnMut()) -> Self {
        let before = on_processor();
        let passed = (0..RUNS).map(|_| {
            let begun = Instant::now();
            run();
            begun.elapsed()
        });
        let passed = passed.min().unwrap_or_default();
        Self { passed, on_processor: on_processor().saturating_sub(before) / RUNS }
    }
}

/// The time that this thread, the only one, has spent on a processor.
fn on_processor() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split_whitespace().next().and_then(|first| first.parse().ok());
    Duration::from_nanos(nanos.unwrap_or(0))
}

fn member(n: usize) -> MemberId {
    format!("replica-{n}").parse().expect("a name")
}

fn groups() -> BTreeSet<GroupName> {
    (0..GROUPS).map(|n| format!("group-{n}").parse().expect("a name")).collect()
}

fn unowned(clusters: usize) -> Vec<PlanShard> {
    let clusters: BTreeSet<ClusterName> =
        (0..clusters).map(|n| format!("cluster-{n}").parse().expect("a name")).collect();
    let groups = groups();
    let shards = clusters.iter().flat_map(|cluster| {
        groups.iter().map(|group| ShardPath::whole(group.clone()).in_cluster(cluster))
    });
    // Loads of all sizes, a few of them large.
    let weigh = |(n, shard): (usize, ShardId)| {
        let weight = 100 + 2_000 / (n as u32 % 97 + 1);
        PlanShard {
            id: shard,
            weight,
            divisible: weight - 100,
            placement: Placement::Unowned,
            rests: false,
            before: None,
            preferences: None,
        }
    };
    shards.enumerate().map(weigh).collect()
}

fn members(first: Role) -> BTreeMap<MemberId, PlanMember> {
    let member_of = |n| PlanMember {
        role: if n == 0 { first } else { Role::Open },
        capacity: 100,
        groups: groups(),
        reach: Reach::default(),
        max_shards: None,
    };
    (0..MEMBERS).map(|n| (member(n), member_of(n))).collect()
}

fn proposal(shards: &[PlanShard], first: Role) -> Proposal {
    plan(&members(first), &BTreeMap::new(), shards, &Limits::default())
}

fn settled(clusters: usize) -> Vec<PlanShard> {
    let mut shards = unowned(clusters);
    let moves = proposal(&shards, Role::Open).moves;
    let targets: BTreeMap<ShardId, Option<MemberId>> =
        moves.into_iter().map(|step| (step.shard, step.to)).collect();
    for shard in &mut shards {
        shard.placement = targets[&shard.id].clone().map_or(Placement::Unowned, Placement::Settled);
    }
    shards
}

/// The first member has just joined: the others have its shards.
fn without_first(mut shards: Vec<PlanShard>) -> Vec<PlanShard> {
    for (n, shard) in shards.iter_mut().enumerate() {
        if shard.placement == Placement::Settled(member(0)) {
            shard.placement = Placement::Settled(member(1 + n % (MEMBERS - 1)));
        }
    }
    shards
}

/// The shards of the first member weigh twice as much.
fn overloaded(mut shards: Vec<PlanShard>) -> Vec<PlanShard> {
    for shard in shards.iter_mut().filter(|shard| shard.placement == Placement::Settled(member(0)))
    {
        shard.weight *= 2;
    }
    shards
}

fn plan_in(shards: &[PlanShard], first: Role) -> Taken {
    let (members, groups, limits) = (members(first), BTreeMap::new(), Limits::default());
    Taken::by_one_of_many(|| {
        black_box(plan(&members, &groups, shards, &limits));
    })
}

/// A step of a coordinator that has run a step before, or of one that remembers nothing.
fn step(shards: &[PlanShard], reported: bool, afresh: bool) -> Taken {
    let world = world(shards, reported);
    let clusters: BTreeSet<ClusterName> =
        shards.iter().map(|shard| shard.id.cluster.clone()).collect();
    let me = member(0);
    let view = View {
        me: &me,
        world: &world,
        pending: BTreeMap::new(),
        clusters: &clusters,
        identities: &BTreeMap::new(),
        policies: &Policies::default(),
        timings: LeaseTimings::default(),
        since: Moment::from_origin(Duration::ZERO),
    };
    let mut coordinator = Coordinator::default();
    black_box(coordinator.step(&view, NOW));
    Taken::by_one_of_many(|| {
        if afresh {
            coordinator = Coordinator::default();
        }
        black_box(coordinator.step(&view, NOW));
    })
}

fn world(shards: &[PlanShard], reported: bool) -> World {
    let mut world = World::default();
    let mut revision = 0;
    let mut apply = |mut object: Object| {
        revision += 1;
        object.set_version(ObjectVersion { uid: "u".to_owned(), resource: revision.to_string() });
        world.apply(object, NOW);
    };
    for id in (0..MEMBERS).map(member) {
        let lease = LeaseTimings::default().duration;
        apply(Object::Lease(LeaseRecord::new(member_lease_name(&id), &id, lease)));
        let mut spec = MemberSpec::new(id.as_str(), groups().into_iter().collect());
        let its = shards.iter().filter(|shard| reported && shard.placement.owner() == Some(&id));
        let load = |shard: &PlanShard| ShardLoad {
            shard: shard.id.clone(),
            busy: shard.weight / 10,
            heaviest: Some(0),
            events: 0,
            cached: 0,
            waiting: 0,
        };
        spec.loads = its.map(load).collect();
        apply(Object::Member(MemberRecord { id, version: ObjectVersion::default(), spec }));
    }
    let mut maps: BTreeMap<ClusterName, MapRecord> = BTreeMap::new();
    for shard in shards {
        let cluster = &shard.id.cluster;
        let map = maps.entry(cluster.clone()).or_insert_with(|| MapRecord::new(cluster.clone()));
        let epoch = Epoch(1);
        let entry = match &shard.placement {
            Placement::Settled(owner) => Entry::Owned { owner: owner.clone(), epoch },
            _ => Entry::Unowned { epoch },
        };
        map.entries_mut().insert(ShardPath::from(&shard.id), entry);
    }
    maps.into_values().for_each(|map| apply(Object::Map(map)));
    world
}
