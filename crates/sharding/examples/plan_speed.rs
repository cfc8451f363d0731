//! Measures how long a plan takes: the planner alone, and the coordinator's whole step.
//!
//! `cargo run --release -p sharding --example plan_speed`
//!
//! 50 members run 10 groups in 1,000, 2,000 and 4,000 clusters. Each figure is the fastest of
//! several runs; the ratio is that of the last column to the first, which have a ratio of 4 in
//! shards.
#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::collections::{BTreeMap, BTreeSet};
use std::hint::black_box;
use std::time::{Duration, Instant};

use model::{ClusterName, Epoch, GroupName, MemberId, Moment, ShardId};
use sharding::LeaseTimings;
use sharding::api::{MemberSpec, ShardPath};
use sharding::coordinator::{Coordinator, View};
use sharding::handover::Entry;
use sharding::lease::{LeaseRecord, member_lease_name};
use sharding::planner::{Limits, Place, PlanMember, Proposal, Role, Unit, plan};
use sharding::record::{MapRecord, MemberRecord, Object, Version};
use sharding::world::World;

const MEMBERS: usize = 50;
const GROUPS: usize = 10;
const CLUSTERS: [usize; 3] = [1_000, 2_000, 4_000];
const RUNS: usize = 7;
const NOW: Moment = Moment::from_origin(Duration::from_secs(100));

fn main() {
    println!("{:<34}{:>10}{:>10}{:>10}{:>8}", "shards", "10,000", "20,000", "40,000", "ratio");
    let row = |what: &str, measure: fn(usize) -> Duration| {
        let times = CLUSTERS.map(measure);
        let ratio = times[2].as_secs_f64() / times[0].as_secs_f64();
        let [a, b, c] = times.map(|time| format!("{:.1} ms", time.as_secs_f64() * 1e3));
        println!("{what:<34}{a:>10}{b:>10}{c:>10}{ratio:>8.1}");
    };
    row("plan, nobody owns anything", |n| plan_in(&unowned(n), Role::Open));
    row("plan, nothing to do", |n| plan_in(&settled(n), Role::Open));
    row("plan, a member leaves", |n| plan_in(&settled(n), Role::Leaving));
    row("plan, a member is emptied", |n| plan_in(&settled(n), Role::Emptying));
    row("step, nobody owns anything", |n| step(&unowned(n)));
    row("step, nothing to do", |n| step(&settled(n)));
}

fn member(n: usize) -> MemberId {
    format!("replica-{n}").parse().expect("a name")
}

fn groups() -> BTreeSet<GroupName> {
    (0..GROUPS).map(|n| format!("group-{n}").parse().expect("a name")).collect()
}

fn unowned(clusters: usize) -> Vec<Unit> {
    let clusters: BTreeSet<ClusterName> =
        (0..clusters).map(|n| format!("cluster-{n}").parse().expect("a name")).collect();
    let groups = groups();
    let shards = clusters.iter().flat_map(|cluster| {
        groups.iter().map(|group| ShardPath::whole(group.clone()).in_cluster(cluster))
    });
    // Loads of all sizes, a few of them large.
    let weigh = |(n, shard): (usize, ShardId)| {
        let weight = 100 + 2_000 / (n as u32 % 97 + 1);
        Unit { shard, weight, place: Place::Unowned }
    };
    shards.enumerate().map(weigh).collect()
}

fn members(first: Role) -> BTreeMap<MemberId, PlanMember> {
    let member_of = |n| PlanMember {
        role: if n == 0 { first } else { Role::Open },
        capacity: 100,
        groups: groups(),
    };
    (0..MEMBERS).map(|n| (member(n), member_of(n))).collect()
}

fn proposal(units: &[Unit], first: Role) -> Proposal {
    plan(&members(first), &BTreeMap::new(), units, &Limits::default())
}

fn settled(clusters: usize) -> Vec<Unit> {
    let mut units = unowned(clusters);
    let moves = proposal(&units, Role::Open).moves;
    let targets: BTreeMap<ShardId, Option<MemberId>> =
        moves.into_iter().map(|step| (step.shard, step.to)).collect();
    for unit in &mut units {
        unit.place = targets[&unit.shard].clone().map_or(Place::Unowned, Place::Settled);
    }
    units
}

fn fastest(mut run: impl FnMut() -> Duration) -> Duration {
    (0..RUNS).map(|_| run()).min().unwrap_or_default()
}

fn plan_in(units: &[Unit], first: Role) -> Duration {
    let (members, groups, limits) = (members(first), BTreeMap::new(), Limits::default());
    fastest(|| {
        let begun = Instant::now();
        black_box(plan(&members, &groups, units, &limits));
        begun.elapsed()
    })
}

/// A step of a coordinator that has stepped before.
fn step(units: &[Unit]) -> Duration {
    let world = world(units);
    let clusters: BTreeSet<ClusterName> =
        units.iter().map(|unit| unit.shard.cluster.clone()).collect();
    let me = member(0);
    let view = View {
        me: &me,
        world: &world,
        pending: BTreeMap::new(),
        clusters: &clusters,
        timings: LeaseTimings::default(),
        since: Moment::from_origin(Duration::ZERO),
    };
    let mut coordinator = Coordinator::default();
    black_box(coordinator.step(&view, NOW));
    fastest(|| {
        let begun = Instant::now();
        black_box(coordinator.step(&view, NOW));
        begun.elapsed()
    })
}

fn world(units: &[Unit]) -> World {
    let mut world = World::default();
    let mut revision = 0;
    let mut apply = |mut object: Object| {
        revision += 1;
        object.set_version(Version { uid: "u".to_owned(), resource: revision.to_string() });
        world.apply(object, NOW);
    };
    for id in (0..MEMBERS).map(member) {
        let lease = LeaseTimings::default().duration;
        apply(Object::Lease(LeaseRecord::new(member_lease_name(&id), &id, lease)));
        let spec = MemberSpec::new(id.as_str(), groups().into_iter().collect());
        apply(Object::Member(MemberRecord { id, version: Version::default(), spec }));
    }
    let mut maps: BTreeMap<ClusterName, MapRecord> = BTreeMap::new();
    for unit in units {
        let cluster = &unit.shard.cluster;
        let map = maps.entry(cluster.clone()).or_insert_with(|| MapRecord::new(cluster.clone()));
        let epoch = Epoch(1);
        let entry = match &unit.place {
            Place::Settled(owner) => Entry::Owned { owner: owner.clone(), epoch },
            _ => Entry::Unowned { epoch },
        };
        map.entries.insert(ShardPath::from(&unit.shard), entry);
    }
    maps.into_values().for_each(|map| apply(Object::Map(map)));
    world
}
