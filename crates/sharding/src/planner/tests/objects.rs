//! Loads that are of objects, of which no split divides any: the plan comes to rest.

use std::cell::RefCell;

use model::Range;
use proptest::collection::vec;
use proptest::prelude::*;

use super::pipeline::{Changes, Fleet, SETTLED};
use super::*;
use crate::api::ShardLoad;

/// After so many rounds an owner has measured a shard.
const MEASURED: usize = 4;
/// What is not reported, in milliseconds per second.
const UNREPORTED: u32 = 10;

/// The objects of each cluster: the hash of the uid, and milliseconds of work per second.
type Objects = Vec<Vec<(u64, u32)>>;

/// Members that measure the loads of objects.
struct Measuring<'a> {
    objects: &'a Objects,
    /// Whether the heaviest object is reported.
    tells_heaviest: bool,
    /// Over how many rounds the error of a third repeats.
    noise: usize,
    /// Who has each shard, and since which round.
    since: RefCell<BTreeMap<ShardId, (MemberId, usize)>>,
}

impl<'a> Measuring<'a> {
    fn new(objects: &'a Objects) -> Self {
        Self { objects, tells_heaviest: true, noise: 0, since: RefCell::default() }
    }

    fn report(&self, round: usize, member: &MemberId, shard: &ShardId) -> Option<ShardLoad> {
        let mut all = self.since.borrow_mut();
        let since = all.entry(shard.clone()).or_insert_with(|| (member.clone(), round));
        if since.0 != *member {
            *since = (member.clone(), round);
        }
        let cluster: usize = shard.cluster.as_str()[1..].parse().unwrap();
        let its = self.objects[cluster].iter().filter(|(hash, _)| shard.range.contains(*hash));
        let loads: Vec<u32> = its.map(|(_, load)| *load).collect();
        let noisy = |load: u32| match self.noise {
            0 => load,
            period => {
                let draw = mix(uid_hash(&shard.to_string()) ^ (round % period) as u64);
                load - load / 3_000 * (draw % 1_001) as u32
            }
        };
        let (busy, heaviest) = (loads.iter().sum(), loads.iter().copied().max().unwrap_or(0));
        (round >= since.1 + MEASURED && busy > UNREPORTED).then(|| ShardLoad {
            shard: shard.clone(),
            busy: noisy(busy),
            heaviest: self.tells_heaviest.then(|| noisy(heaviest)),
            events: 0,
            cached: 0,
            waiting: 0,
        })
    }

    /// Runs a fleet until it has settled, and for as long again. Returns the changes of both times.
    fn run(&self, fleet: &mut Fleet) -> [Changes; 2] {
        let (settling, after) = (12 * SETTLED, 6 * SETTLED);
        let first = fleet.run(settling, |n, member, shard| self.report(n, member, shard));
        let rest = fleet.run(after, |n, member, shard| self.report(n + settling, member, shard));
        [first, rest]
    }
}

#[test]
fn one_busy_object_stays_where_it_is() {
    for members in 1..5 {
        for busy in [120, 400, 900, 3_000, 30_000] {
            let objects = vec![vec![(0x0123_4567_89ab_cdef, busy)]];
            let measuring = Measuring::new(&objects);
            let [first, rest] = measuring.run(&mut Fleet::new(members, 1));
            let expect = Changes { moves: 1, ..Changes::default() };
            assert_eq!((first, rest), (expect, Changes::default()), "{members} {busy}");
        }
    }
}

/// A member of the last release does not tell what can be divided.
#[test]
fn what_may_be_one_object_is_not_split() {
    let objects = vec![vec![(1, 900), (u64::MAX, 900)]];
    let mut measuring = Measuring::new(&objects);
    measuring.tells_heaviest = false;
    let [first, rest] = measuring.run(&mut Fleet::new(3, 1));
    assert_eq!((first.splits, rest), (0, Changes::default()));
    let [first, _] = Measuring::new(&objects).run(&mut Fleet::new(3, 1));
    assert_eq!(first.splits, 1);
}

/// Two busy objects whose hashes have their first three bits in common.
#[test]
fn busy_objects_side_by_side_are_told_apart_one_level_at_a_time() {
    let objects = vec![vec![(0x0fff << 48, 900), (0x1fff << 48, 700)], vec![(0, 900)]];
    let mut fleet = Fleet::new(3, 2);
    let [first, rest] = Measuring::new(&objects).run(&mut fleet);
    assert_eq!((first.splits, rest), (4, Changes::default()));
    let owner = |hash: u64| {
        let first = |shard: &ShardId| shard.cluster.as_str() == "c0";
        let mut shards = fleet.shards.iter().filter(|(shard, _)| first(shard));
        let held = shards.find(|(shard, _)| shard.range.contains(hash));
        held.unwrap().1.clone()
    };
    assert_ne!(owner(0x0fff << 48), owner(0x1fff << 48));
}

/// A load ends just when its shard was split: the halves are idle, and the whole was busy a moment ago.
#[test]
fn a_load_that_ended_splits_nothing_again() {
    let mut fleet = Fleet::new(3, 1);
    let even = |shard: &ShardId, busy: u32| ShardLoad {
        shard: shard.clone(),
        busy: busy >> shard.range.bits(),
        heaviest: Some(0),
        events: 0,
        cached: 0,
        waiting: 0,
    };
    let busy = fleet.run(2, |_, _, shard| even(shard, 900));
    assert!(busy.splits > 0, "{busy:?}");
    // Enough for a report, and too little for a half.
    let ended = fleet.run(SETTLED, |_, _, shard| ShardLoad { busy: 6, ..even(shard, 0) });
    assert_eq!((ended.splits, ended.merges), (0, busy.splits), "{ended:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// However the load is spread over objects, also if it is measured late and with an error of a third.
    #[test]
    fn constant_loads_come_to_rest(
        members in 1..6usize,
        objects in vec(vec((any::<u64>(), 0..2_500u32), 0..12), 1..6),
        noise in prop_oneof![Just(0), 2..40usize],
    ) {
        let mut fleet = Fleet::new(members, objects.len());
        let measuring = Measuring { noise, ..Measuring::new(&objects) };
        let [first, rest] = measuring.run(&mut fleet);
        let Changes { moves, splits, merges } = first;
        let count = objects.iter().map(Vec::len).sum::<usize>() + objects.len();
        prop_assert!(splits <= 6 * count, "{first:?} of {count}");
        prop_assert!(merges <= splits && moves <= 12 * count, "{first:?} of {count}");
        prop_assert_eq!(rest, Changes::default());
        let one = |shard: &ShardId| {
            let cluster: usize = shard.cluster.as_str()[1..].parse().unwrap();
            objects[cluster].len() <= 1
        };
        let whole = |shard: &ShardId| shard.range == Range::WHOLE;
        prop_assert!(fleet.shards.keys().all(|shard| !one(shard) || whole(shard)));
    }
}
