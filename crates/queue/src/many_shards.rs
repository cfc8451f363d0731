//! Laws of a queue with many shards of one cluster: a key goes to the shard that contains its hash, and thousands of
//! shards can be gained, worked on and lost in one test.

use std::collections::BTreeMap;
use std::time::Duration;

use model::range::MAX_BITS;
use model::{Epoch, Moment, ObjectKey, Range, ShardId};
use proptest::prelude::*;
use tracing::Span;

use super::core::{Added, Limits, Queue};
use super::item::Outcome;
use super::priority::Priority;
use super::rate_limiter::RateLimiter;

/// As many ranges as a member may lose with its Lease.
const MANY: u32 = 10_000;
/// The depth at which a cluster has that many.
const BITS: u8 = 14;

/// A queue in which an assignment is a range.
fn queue(limits: Limits) -> Queue<Range> {
    Queue::new(limits, RateLimiter::default(), fastrand::Rng::with_seed(1))
}

fn shard(range: Range) -> ShardId {
    ShardId { cluster: "east".parse().unwrap(), group: "g".parse().unwrap(), range }
}

fn key(name: usize) -> ObjectKey {
    ObjectKey::new("east".parse().unwrap(), Some("ns"), &name.to_string())
}

fn at(seconds: u64) -> Moment {
    Moment::from_origin(Duration::from_secs(seconds))
}

#[test]
fn ten_thousand_ranges_of_a_cluster_are_gained_and_lost() {
    let limits = Limits { per_cluster: 100, total: 100 };
    let mut queue = queue(limits);
    let ranges: Vec<_> = (0..MANY).map(|index| Range::new(index, BITS).unwrap()).collect();
    let add = |queue: &mut Queue<Range>, name: usize, range: Range| {
        let hash = u64::try_from(range.bounds().0).unwrap();
        queue.add(&key(name), Some(hash), Priority::Change, &Span::none(), at(0))
    };
    for (name, range) in ranges.iter().enumerate() {
        queue.warm(&shard(*range), Epoch(1), *range);
        assert_eq!(add(&mut queue, name, *range), Added::Queued);
    }
    assert_eq!((queue.waiting(&shard(Range::WHOLE).cluster), queue.depth()), (10_000, [0; 4]));
    for range in &ranges {
        assert!(queue.open(&shard(*range), Epoch(1), at(0)));
    }
    assert_eq!(queue.depth(), [10_000, 0, 0, 0]);
    // Each is given out once, in the order in which they came, under the shard that its hash is in.
    for (name, range) in ranges.iter().enumerate() {
        let popped = queue.pop(at(0)).unwrap();
        assert_eq!((&popped.key, popped.assignment), (&key(name), *range));
        let outcome = if name % 2 == 0 { Outcome::Done } else { Outcome::Failed };
        queue.finish(&popped.key, outcome, at(0));
    }
    for (name, range) in ranges.iter().enumerate() {
        add(&mut queue, name, *range);
    }
    let running: Vec<_> = std::iter::from_fn(|| queue.pop(at(0))).collect();
    assert_eq!((running.len(), queue.delayed()), (100, 4_950), "the delay ends with the next run");
    for range in &ranges {
        queue.close(&shard(*range));
        assert!(!queue.is_open(&shard(*range), Epoch(1)));
    }
    let cluster = shard(Range::WHOLE).cluster;
    assert_eq!((queue.depth(), queue.delayed(), queue.waiting(&cluster)), ([0; 4], 0, 0));
    let of_ranges: usize = ranges.iter().map(|range| queue.running_of(&shard(*range))).sum();
    assert_eq!(of_ranges, 100, "what runs goes on");
    for popped in running {
        assert_eq!(queue.running_of(&shard(popped.assignment)), 1);
        queue.finish(&popped.key, Outcome::Failed, at(1));
        assert_eq!(queue.running_of(&shard(popped.assignment)), 0);
    }
    assert_eq!((queue.running(), queue.delayed(), queue.holds(&cluster)), (0, 0, false));
}

#[derive(Clone, Debug)]
enum Op {
    Warm(Range),
    Open(usize),
    Close(usize),
    Add(Option<u64>),
    Pop,
    Finish(usize),
}

fn range() -> impl Strategy<Value = Range> {
    let bits = prop_oneof![4 => 0..4_u8, 1 => 0..=MAX_BITS];
    (bits, any::<u32>())
        .prop_map(|(bits, index)| Range::new(index & ((1 << bits) - 1), bits).unwrap())
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => range().prop_map(Op::Warm),
        3 => any::<usize>().prop_map(Op::Open),
        1 => any::<usize>().prop_map(Op::Close),
        6 => prop::option::weighted(0.9, any::<u64>()).prop_map(Op::Add),
        4 => Just(Op::Pop),
        4 => any::<usize>().prop_map(Op::Finish),
    ]
}

/// What waits, kept beside the queue: of each range that is held, whether it is open, and its keys with their hashes.
type Held = BTreeMap<Range, (bool, BTreeMap<ObjectKey, Option<u64>>)>;

/// The range at a place, counted around.
fn nth(held: &Held, at: usize) -> Option<Range> {
    held.keys().nth(at % held.len().max(1)).copied()
}

proptest! {
    /// A list of the shards, of which the first that contains the hash is taken, would answer the same.
    #[test]
    fn keys_go_to_a_shard_that_contains_them(ops in prop::collection::vec(op(), 1..200)) {
        let mut queue = queue(Limits { per_cluster: 9, total: 9 });
        let mut held = Held::new();
        let mut running: Vec<(ObjectKey, Range)> = Vec::new();
        let cluster = shard(Range::WHOLE).cluster;
        for (name, op) in ops.into_iter().enumerate() {
            match op {
                Op::Warm(range) => {
                    queue.warm(&shard(range), Epoch(1), range);
                    held.insert(range, (false, BTreeMap::new()));
                }
                Op::Open(place) => {
                    let Some(range) = nth(&held, place) else { continue };
                    let (is_open, _) = held.get_mut(&range).expect("it is held");
                    let opened = queue.open(&shard(range), Epoch(1), at(0));
                    prop_assert_eq!(opened, !std::mem::replace(is_open, true));
                }
                Op::Close(place) => {
                    let Some(range) = nth(&held, place) else { continue };
                    queue.close(&shard(range));
                    held.remove(&range);
                    prop_assert!(!queue.is_open(&shard(range), Epoch(1)));
                }
                Op::Add(hash) => {
                    let contains = |range: &Range| match hash {
                        Some(hash) => range.contains(hash),
                        None => *range == Range::WHOLE,
                    };
                    let added = queue.add(&key(name), hash, Priority::Change, &Span::none(), at(0));
                    // Of those that contain it the widest, should they overlap.
                    match held.iter_mut().find(|(range, _)| contains(range)) {
                        Some((_, (_, keys))) => {
                            prop_assert_eq!(added, Added::Queued);
                            keys.insert(key(name), hash);
                        }
                        None => prop_assert_eq!(added, Added::NotHeld),
                    }
                }
                Op::Pop => {
                    let ready: usize =
                        held.values().filter(|(open, _)| *open).map(|(_, keys)| keys.len()).sum();
                    prop_assert_eq!(queue.depth(), [ready, 0, 0, 0]);
                    let popped = queue.pop(at(0));
                    prop_assert_eq!(popped.is_some(), ready > 0 && running.len() < 9);
                    let Some(popped) = popped else { continue };
                    let (is_open, keys) = held.get_mut(&popped.assignment).expect("it is held");
                    prop_assert!(*is_open && keys.remove(&popped.key).is_some());
                    running.push((popped.key, popped.assignment));
                }
                Op::Finish(place) => {
                    if running.is_empty() {
                        continue;
                    }
                    let (key, _) = running.swap_remove(place % running.len());
                    queue.finish(&key, Outcome::Done, at(0));
                }
            }
            let waiting: usize = held.values().map(|(_, keys)| keys.len()).sum();
            prop_assert_eq!((queue.waiting(&cluster), queue.holds(&cluster)), (waiting, !held.is_empty()));
            for range in held.keys().chain(running.iter().map(|(_, range)| range)) {
                let of_range = running.iter().filter(|(_, of)| of == range).count();
                prop_assert_eq!(queue.running_of(&shard(*range)), of_range);
            }
        }
    }
}
