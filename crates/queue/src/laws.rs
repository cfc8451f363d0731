//! The queue's laws: tables for single rules, and random histories checked against a model.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::{ClusterName, Epoch, Moment, ObjectKey, Range, ShardId};
use proptest::prelude::*;
use tracing::Span;

use super::core::{Added, Limits, Queue};
use super::item::{Outcome, Popped};
use super::priority::Priority;
use super::rate_limiter::RateLimiter;
use super::status::{HeldShard, KeyStatus, RunningKey};

const LIMITS: Limits = Limits { per_cluster: 2, total: 3 };

/// A queue in which an assignment is a shard and an epoch.
type Keys = Queue<(ShardId, Epoch)>;

/// An empty queue, without jitter.
fn keys(limits: Limits) -> Keys {
    Queue::new(limits, RateLimiter::default().with_jitter(0.0), fastrand::Rng::with_seed(1))
}

fn warm(queue: &mut Keys, shard: &ShardId, epoch: Epoch) {
    queue.warm(shard, epoch, (shard.clone(), epoch));
}

fn at(millis: u64) -> Moment {
    Moment::from_origin(Duration::from_millis(millis))
}

fn key(cluster: &str, name: &str) -> ObjectKey {
    ObjectKey::new(cluster.parse().unwrap(), Some("ns"), name)
}

fn shard(cluster: &str) -> ShardId {
    ShardId { cluster: cluster.parse().unwrap(), group: "g".parse().unwrap(), range: Range::WHOLE }
}

fn half(index: u32) -> ShardId {
    ShardId { range: Range::new(index, 1).unwrap(), ..shard("east") }
}

fn opened(limits: Limits, clusters: &[&str]) -> Keys {
    let mut queue = keys(limits);
    for cluster in clusters {
        warm(&mut queue, &shard(cluster), Epoch(1));
        queue.open(&shard(cluster), Epoch(1), at(0));
    }
    queue
}

fn add(queue: &mut Keys, key: &ObjectKey, priority: Priority, now: u64) -> Added {
    queue.add(key, None, priority, &Span::none(), at(now))
}

fn requeue(millis: u64) -> Outcome {
    Outcome::Requeue { after: Duration::from_millis(millis), priority: Priority::Resync }
}

fn pop(queue: &mut Keys, now: u64) -> Option<String> {
    queue.pop(at(now)).map(|popped| popped.key.name.to_string())
}

/// Pops and finishes until nothing is ready.
fn drain(queue: &mut Keys, now: u64) -> String {
    let mut names = Vec::new();
    while let Some(Popped { key, .. }) = queue.pop(at(now)) {
        names.push(key.name.to_string());
        queue.finish(&key, Outcome::Done, at(now));
    }
    names.join(" ")
}

#[test]
fn urgent_keys_come_first_and_equals_in_order() {
    let mut queue = opened(LIMITS, &["east"]);
    for (name, priority) in [
        ("i1", Priority::Initial),
        ("c1", Priority::Change),
        ("s1", Priority::Resync),
        ("i2", Priority::Initial),
        ("r1", Priority::Retry),
        ("c2", Priority::Change),
        // Rises, and does not come twice.
        ("i2", Priority::Change),
        // Does not fall.
        ("c1", Priority::Initial),
    ] {
        assert_eq!(add(&mut queue, &key("east", name), priority, 1), Added::Queued);
    }
    assert_eq!(queue.depth(), [3, 1, 1, 1]);
    assert_eq!(drain(&mut queue, 2), "c1 c2 i2 r1 s1 i1");
    assert_eq!(queue.depth(), [0; 4]);
}

/// A steady stream of changes, more than can be done, starves nothing: what is less urgent gets every fourth turn
/// once it has waited for five seconds, the eldest first.
#[test]
fn a_stream_of_changes_starves_no_retry() {
    let mut queue = opened(LIMITS, &["east"]);
    for (name, priority) in
        [("resync", Priority::Resync), ("retry", Priority::Retry), ("initial", Priority::Initial)]
    {
        add(&mut queue, &key("east", name), priority, 0);
    }
    let mut served = Vec::new();
    for turn in 0..40_u64 {
        let now = turn * 500;
        for copy in ["a", "b"] {
            add(&mut queue, &key("east", &format!("{turn}{copy}")), Priority::Change, now);
        }
        let popped = queue.pop(at(now)).unwrap();
        queue.finish(&popped.key, Outcome::Done, at(now));
        if !popped.key.name.ends_with(['a', 'b']) {
            served.push((popped.key.name.to_string(), now));
        }
    }
    let names: Vec<&str> = served.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["resync", "retry", "initial"], "{served:?}");
    let times: Vec<u64> = served.iter().map(|(_, now)| *now).collect();
    assert_eq!(times, [5_000, 7_000, 9_000], "then every fourth turn");
}

/// Nobody is impatient while the queue keeps up: order is by urgency alone.
#[test]
fn urgency_decides_while_nothing_waits_for_long() {
    let mut queue = opened(LIMITS, &["east"]);
    add(&mut queue, &key("east", "initial"), Priority::Initial, 0);
    for turn in 0..9 {
        add(&mut queue, &key("east", &format!("c{turn}")), Priority::Change, 4_000);
    }
    assert_eq!(drain(&mut queue, 4_999), "c0 c1 c2 c3 c4 c5 c6 c7 c8 initial");
}

#[test]
fn clusters_take_turns_and_a_stuck_one_delays_nobody() {
    let mut queue = opened(LIMITS, &["east", "west"]);
    for name in ["e1", "e2", "e3", "e4"] {
        add(&mut queue, &key("east", name), Priority::Change, 0);
    }
    add(&mut queue, &key("west", "w1"), Priority::Initial, 0);
    let order: Vec<_> = (0..3).map(|_| pop(&mut queue, 1).unwrap()).collect();
    assert_eq!(order, ["e1", "w1", "e2"]);
    assert_eq!(pop(&mut queue, 1), None, "three run, which is the limit in all");
    queue.finish(&key("west", "w1"), Outcome::Done, at(2));
    assert_eq!(pop(&mut queue, 2), None, "two of east run, which is its limit");
    add(&mut queue, &key("west", "w2"), Priority::Initial, 2);
    assert_eq!(pop(&mut queue, 2).as_deref(), Some("w2"), "west goes on");
    queue.finish(&key("east", "e1"), Outcome::Done, at(3));
    assert_eq!(pop(&mut queue, 3).as_deref(), Some("e3"));
}

#[test]
fn a_change_during_a_run_runs_again_after_it() {
    let mut queue = opened(LIMITS, &["east"]);
    let a = key("east", "a");
    add(&mut queue, &a, Priority::Initial, 0);
    assert!(pop(&mut queue, 0).is_some());
    add(&mut queue, &a, Priority::Change, 1);
    add(&mut queue, &a, Priority::Change, 1);
    assert_eq!(pop(&mut queue, 1), None);
    queue.finish(&a, Outcome::Done, at(2));
    assert_eq!(drain(&mut queue, 2), "a");
    assert!(queue.finish(&a, Outcome::Done, at(2)).is_none(), "it does not run");
}

#[test]
fn failures_back_off_and_changes_in_between_do_not_escalate() {
    let mut queue = opened(LIMITS, &["east"]);
    let a = key("east", "a");
    let fail = |queue: &mut Keys, now: u64| {
        assert_eq!(pop(queue, now).as_deref(), Some("a"), "at {now}");
        queue.finish(&a, Outcome::Failed, at(now));
        queue.next_due().unwrap().since(at(now)).as_millis()
    };
    add(&mut queue, &a, Priority::Change, 0);
    assert_eq!(fail(&mut queue, 0), 5);
    assert_eq!(pop(&mut queue, 4), None);
    assert_eq!(fail(&mut queue, 5), 10);
    assert_eq!(fail(&mut queue, 15), 20);
    // Changes while it waits: it runs at once, fails again, and the wait stays as long.
    for now in [16, 17, 18] {
        add(&mut queue, &a, Priority::Change, now);
        assert_eq!(fail(&mut queue, now), 20);
    }
    assert_eq!(fail(&mut queue, 38), 40, "a retry that fails escalates");
    assert_eq!(queue.delayed(), 1);
    // Success forgets the failures.
    pop(&mut queue, 78).unwrap();
    queue.finish(&a, Outcome::Done, at(78));
    add(&mut queue, &a, Priority::Change, 79);
    assert_eq!(fail(&mut queue, 79), 5);
}

#[test]
fn the_latest_run_decides_when_to_run_again() {
    let mut queue = opened(LIMITS, &["east"]);
    let a = key("east", "a");
    add(&mut queue, &a, Priority::Change, 0);
    pop(&mut queue, 0).unwrap();
    queue.finish(&a, requeue(9_000), at(0));
    add(&mut queue, &a, Priority::Change, 1);
    pop(&mut queue, 1).unwrap();
    queue.finish(&a, requeue(5_000), at(1));
    assert_eq!((queue.delayed(), queue.next_due()), (1, Some(at(5001))));
    pop(&mut queue, 5001).unwrap();
    queue.finish(&a, Outcome::Done, at(5001));
    assert_eq!((queue.delayed(), queue.next_due()), (0, None));
}

#[test]
fn keys_are_held_until_their_shard_is_open_and_wait_from_then() {
    let mut queue = keys(LIMITS);
    assert_eq!(add(&mut queue, &key("east", "a"), Priority::Change, 0), Added::NotHeld);
    warm(&mut queue, &shard("east"), Epoch(7));
    add(&mut queue, &key("east", "a"), Priority::Initial, 0);
    assert_eq!((pop(&mut queue, 1), queue.oldest(), queue.take_counts()), (None, None, (0, 0)));
    queue.open(&shard("east"), Epoch(6), at(10));
    assert_eq!(pop(&mut queue, 10), None, "another epoch");
    queue.open(&shard("east"), Epoch(7), at(10));
    assert_eq!((queue.oldest(), queue.take_counts()), (Some(at(10)), (1, 0)));
    let popped = queue.pop(at(12)).unwrap();
    assert_eq!((popped.waited.as_millis(), popped.assignment.1), (2, Epoch(7)));
}

#[test]
fn a_closed_shard_leaves_nothing_and_what_runs_is_counted() {
    let mut queue = opened(LIMITS, &["east", "west"]);
    for name in ["a", "b", "c"] {
        add(&mut queue, &key("east", name), Priority::Change, 0);
    }
    add(&mut queue, &key("west", "w"), Priority::Change, 0);
    let first = queue.pop(at(0)).unwrap().key;
    queue.pop(at(0)).unwrap();
    let second = queue.pop(at(0)).unwrap().key;
    queue.finish(&second, Outcome::Failed, at(0));
    add(&mut queue, &first, Priority::Change, 0);
    queue.close(&shard("east"));
    assert_eq!((queue.delayed(), queue.running_of(&shard("east"))), (0, 1));
    assert_eq!(pop(&mut queue, 1000), None);
    queue.finish(&first, Outcome::Failed, at(1000));
    assert_eq!((queue.delayed(), queue.running_of(&shard("east"))), (0, 0));
    assert_eq!(pop(&mut queue, 9999), None, "neither the retry nor the change survives");
}

#[test]
fn a_shard_regained_during_a_run_waits_for_that_run() {
    let mut queue = opened(LIMITS, &["east"]);
    let a = key("east", "a");
    add(&mut queue, &a, Priority::Change, 0);
    pop(&mut queue, 0).unwrap();
    queue.close(&shard("east"));
    warm(&mut queue, &shard("east"), Epoch(3));
    queue.open(&shard("east"), Epoch(3), at(1));
    add(&mut queue, &a, Priority::Initial, 1);
    assert_eq!(pop(&mut queue, 1), None, "the old run has not ended");
    queue.finish(&a, Outcome::Failed, at(2));
    assert_eq!(queue.delayed(), 0, "the retry belonged to the old epoch");
    assert_eq!(queue.pop(at(2)).unwrap().assignment.1, Epoch(3));
}

#[test]
fn ranges_take_their_own_hashes() {
    let mut queue = keys(LIMITS);
    for index in [0, 1] {
        warm(&mut queue, &half(index), Epoch(1));
        queue.open(&half(index), Epoch(1), at(0));
    }
    let a = key("east", "a");
    let add = |queue: &mut Keys, hash| queue.add(&a, hash, Priority::Change, &Span::none(), at(0));
    assert_eq!(add(&mut queue, None), Added::NotHeld, "nobody can say whose it is");
    add(&mut queue, Some(u64::MAX));
    // Deleted and created again, with a uid that falls into the other half: never both at once.
    add(&mut queue, Some(0));
    let popped = queue.pop(at(0)).unwrap();
    assert!(queue.pop(at(0)).is_none());
    queue.finish(&popped.key, Outcome::Done, at(1));
    let second = queue.pop(at(1)).unwrap();
    assert_ne!(popped.assignment.0, second.assignment.0);
    queue.finish(&second.key, Outcome::Done, at(1));
    assert!(queue.pop(at(1)).is_none());
}

#[test]
fn a_shard_that_is_not_open_gathers_keys() {
    let mut queue = keys(LIMITS);
    warm(&mut queue, &shard("east"), Epoch(1));
    for name in ["a", "b", "c"] {
        assert_eq!(add(&mut queue, &key("east", name), Priority::Initial, 0), Added::Queued);
    }
    queue.open(&shard("east"), Epoch(1), at(0));
    assert_eq!(add(&mut queue, &key("east", "d"), Priority::Change, 0), Added::Queued);
    assert_eq!(drain(&mut queue, 0), "d a b c");
}

#[test]
fn a_refused_key_comes_back_if_the_shard_stays() {
    let mut queue = opened(LIMITS, &["east"]);
    let a = key("east", "a");
    add(&mut queue, &a, Priority::Change, 0);
    pop(&mut queue, 0).unwrap();
    queue.finish(&a, Outcome::Refused, at(0));
    assert_eq!(pop(&mut queue, 999), None);
    assert_eq!(pop(&mut queue, 1000).as_deref(), Some("a"));
}

#[test]
fn a_key_that_is_held_back_comes_back_then_and_loses_no_step_of_its_backoff() {
    let mut queue = opened(LIMITS, &["east"]);
    let a = key("east", "a");
    add(&mut queue, &a, Priority::Change, 0);
    pop(&mut queue, 0).unwrap();
    queue.finish(&a, Outcome::Failed, at(0));
    for now in [5, 3005, 6005] {
        assert_eq!(pop(&mut queue, now - 1), None);
        assert_eq!(pop(&mut queue, now).as_deref(), Some("a"));
        queue.finish(&a, Outcome::Held(Duration::from_secs(3)), at(now));
    }
    assert_eq!(pop(&mut queue, 9005).as_deref(), Some("a"));
    queue.finish(&a, Outcome::Failed, at(9005));
    assert_eq!(pop(&mut queue, 9014), None);
    assert_eq!(pop(&mut queue, 9015).as_deref(), Some("a"), "the second failure, not the fifth");
}

#[test]
fn a_retry_after_takes_the_place_of_the_backoff_and_counts_as_a_failure() {
    let mut queue = opened(LIMITS, &["east"]);
    let a = key("east", "a");
    add(&mut queue, &a, Priority::Change, 0);
    pop(&mut queue, 0).unwrap();
    queue.finish(&a, Outcome::RetryAfter(Duration::from_secs(3)), at(0));
    assert_eq!(pop(&mut queue, 2999), None);
    assert_eq!(queue.delayed(), 1);
    assert_eq!(pop(&mut queue, 3000).as_deref(), Some("a"));
    queue.finish(&a, Outcome::Failed, at(3000));
    assert_eq!(queue.next_due(), Some(at(3010)), "the second failure in a row");
}

#[test]
fn a_delay_is_a_millisecond_at_least_and_at_most_all_the_time_there_is() {
    for after in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
        let requeue = Outcome::Requeue { after, priority: Priority::Resync };
        for outcome in [requeue, Outcome::RetryAfter(after), Outcome::Held(after)] {
            let mut queue = opened(LIMITS, &["east"]);
            let a = key("east", "a");
            add(&mut queue, &a, Priority::Change, 0);
            pop(&mut queue, 0).unwrap();
            queue.finish(&a, outcome, at(0));
            assert_eq!(pop(&mut queue, 0), None, "{outcome:?}");
            let expect = if after < Duration::MAX { Some("a") } else { None };
            assert_eq!(pop(&mut queue, 1).as_deref(), expect, "{outcome:?}");
        }
    }
}

#[test]
fn a_cluster_that_went_and_came_back_has_one_turn() {
    let limits = Limits { per_cluster: 9, total: 9 };
    let mut queue = opened(limits, &["east", "west"]);
    for epoch in 2..5 {
        add(&mut queue, &key("east", "gone"), Priority::Change, 0);
        queue.close(&shard("east"));
        warm(&mut queue, &shard("east"), Epoch(epoch));
        queue.open(&shard("east"), Epoch(epoch), at(0));
    }
    for (cluster, name) in [("east", "a"), ("east", "b"), ("west", "c"), ("west", "d")] {
        add(&mut queue, &key(cluster, name), Priority::Change, 0);
    }
    assert_eq!(drain(&mut queue, 1), "a c b d");
    assert!(!queue.has_turn());
}

#[test]
fn a_requeued_key_has_the_priority_that_was_asked_for() {
    for priority in Priority::ALL {
        let mut queue = opened(LIMITS, &["east"]);
        let a = key("east", "a");
        add(&mut queue, &a, Priority::Change, 0);
        pop(&mut queue, 0).unwrap();
        queue.finish(&a, Outcome::Requeue { after: Duration::from_secs(1), priority }, at(0));
        for name in ["b", "c"] {
            add(&mut queue, &key("east", name), Priority::Change, 0);
            pop(&mut queue, 0).unwrap();
        }
        assert_eq!((pop(&mut queue, 999), queue.depth()), (None, [0; 4]));
        assert_eq!(pop(&mut queue, 1000), None, "it is due, and two run");
        let mut expected = [0; 4];
        expected[priority as usize] = 1;
        assert_eq!(queue.depth(), expected);
    }
}

#[test]
fn keys_that_fail_together_do_not_come_back_together() {
    let limits = Limits { per_cluster: 100, total: 100 };
    let mut queue: Keys = Queue::new(limits, RateLimiter::default(), fastrand::Rng::with_seed(1));
    warm(&mut queue, &shard("east"), Epoch(1));
    queue.open(&shard("east"), Epoch(1), at(0));
    for number in 0..100 {
        add(&mut queue, &key("east", &number.to_string()), Priority::Change, 0);
    }
    // Each time all that fail wait for the slowest, so that they fail together again.
    let mut now = 0;
    for _ in 0..8 {
        while let Some(popped) = queue.pop(at(now)) {
            queue.finish(&popped.key, Outcome::Failed, at(now));
        }
        now += 1000;
    }
    let first = queue.next_due().unwrap();
    let mut spread = BTreeSet::new();
    while let Some(due) = queue.next_due() {
        spread.insert(due.since(first).as_millis() / 32);
        while let Some(popped) = queue.pop(due) {
            queue.finish(&popped.key, Outcome::Done, due);
        }
    }
    assert_eq!(spread.len(), 10, "over 320 ms, half of the delay after eight failures");
}

// === Random histories ===

#[derive(Clone, Debug)]
enum Op {
    Add(usize, usize, Priority),
    Pop,
    Finish(usize, Outcome),
    Close(usize),
    Reopen(usize),
    Pass(u64),
}

fn op() -> impl Strategy<Value = Op> {
    let priority = prop::sample::select(Priority::ALL.to_vec());
    let outcome = prop_oneof![
        Just(Outcome::Done),
        Just(Outcome::Failed),
        Just(Outcome::Refused),
        (0..50_u64).prop_map(|millis| Outcome::Held(Duration::from_millis(millis))),
        (0..50_u64).prop_map(|millis| Outcome::RetryAfter(Duration::from_millis(millis))),
        (0..50_u64).prop_map(requeue),
    ];
    prop_oneof![
        6 => (0..2_usize, 0..5_usize, priority).prop_map(|(c, k, p)| Op::Add(c, k, p)),
        6 => Just(Op::Pop),
        5 => (0..3_usize, outcome).prop_map(|(index, outcome)| Op::Finish(index, outcome)),
        1 => (0..2_usize).prop_map(Op::Close),
        1 => (0..2_usize).prop_map(Op::Reopen),
        2 => (0..40_u64).prop_map(Op::Pass),
    ]
}

const CLUSTERS: [&str; 2] = ["east", "west"];

/// What must be true of every history, kept beside the queue.
#[derive(Default)]
struct History {
    now: u64,
    epoch: u64,
    held: BTreeMap<ClusterName, Epoch>,
    running: BTreeSet<ObjectKey>,
    /// Keys that must still come out: changed, or asked to come again, and not dropped since.
    owed: BTreeSet<ObjectKey>,
    began: BTreeMap<ObjectKey, Epoch>,
}

impl History {
    fn reopen(&mut self, queue: &mut Keys, cluster: &str) {
        self.epoch += 1;
        let name: ClusterName = cluster.parse().unwrap();
        self.owed.retain(|key| key.cluster != name);
        self.held.insert(name, Epoch(self.epoch));
        warm(queue, &shard(cluster), Epoch(self.epoch));
        queue.open(&shard(cluster), Epoch(self.epoch), at(self.now));
    }

    fn popped(&mut self, popped: &Popped<(ShardId, Epoch)>) -> Result<(), TestCaseError> {
        let Popped { key, assignment: (_, epoch), .. } = popped;
        prop_assert!(self.running.insert(key.clone()), "S6: {key} runs twice");
        prop_assert_eq!(self.held.get(&key.cluster), Some(epoch), "given out unheld: {}", key);
        prop_assert!(self.owed.remove(key), "{} came out without cause", key);
        let of_cluster = self.running.iter().filter(|k| k.cluster == key.cluster).count();
        prop_assert!(of_cluster <= LIMITS.per_cluster && self.running.len() <= LIMITS.total);
        self.began.insert(key.clone(), *epoch);
        Ok(())
    }

    fn apply(&mut self, queue: &mut Keys, op: Op) -> Result<(), TestCaseError> {
        match op {
            Op::Add(cluster, name, priority) => {
                let key = key(CLUSTERS[cluster], &format!("k{name}"));
                let added = add(queue, &key, priority, self.now);
                let held = self.held.contains_key(&key.cluster);
                prop_assert_eq!(added, if held { Added::Queued } else { Added::NotHeld });
                if held {
                    self.owed.insert(key);
                }
            }
            Op::Pop => {
                if let Some(popped) = queue.pop(at(self.now)) {
                    self.popped(&popped)?;
                }
            }
            Op::Finish(index, outcome) => {
                if let Some(key) = self.running.iter().nth(index).cloned() {
                    self.running.remove(&key);
                    queue.finish(&key, outcome, at(self.now));
                    let kept = self.held.get(&key.cluster) == self.began.get(&key);
                    if outcome != Outcome::Done && kept {
                        self.owed.insert(key);
                    }
                }
            }
            Op::Close(cluster) => {
                queue.close(&shard(CLUSTERS[cluster]));
                let name: ClusterName = CLUSTERS[cluster].parse().unwrap();
                self.held.remove(&name);
                self.owed.retain(|key| key.cluster != name);
                let running = self.running.iter().filter(|key| key.cluster == name).count();
                prop_assert_eq!(queue.running_of(&shard(CLUSTERS[cluster])), running);
            }
            Op::Reopen(cluster) => self.reopen(queue, CLUSTERS[cluster]),
            Op::Pass(millis) => self.now += millis,
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn every_history_keeps_the_laws(ops in prop::collection::vec(op(), 1..200)) {
        let mut queue = keys(LIMITS);
        let mut history = History::default();
        history.reopen(&mut queue, "east");
        for op in ops {
            history.apply(&mut queue, op)?;
        }
        // L2: once things calm down, everything owed comes out, and then nothing more.
        for key in std::mem::take(&mut history.running) {
            queue.finish(&key, Outcome::Done, at(history.now));
        }
        history.now += 10_000_000;
        while let Some(popped) = queue.pop(at(history.now)) {
            history.popped(&popped)?;
            history.running.remove(&popped.key);
            queue.finish(&popped.key, Outcome::Done, at(history.now));
        }
        prop_assert!(history.owed.is_empty(), "never came out: {:?}", history.owed);
        prop_assert_eq!((queue.delayed(), queue.running(), queue.depth()), (0, 0, [0; 4]));
    }
}

#[test]
fn a_key_is_looked_up_in_each_of_its_states() {
    let mut queue = keys(LIMITS);
    let (a, east) = (key("east", "a"), shard("east"));
    assert_eq!(queue.look(&a, at(0)), KeyStatus::default());
    warm(&mut queue, &east, Epoch(3));
    add(&mut queue, &a, Priority::Change, 0);
    let held = |open| HeldShard { shard: shard("east"), epoch: Epoch(3), open };
    let found = queue.look(&a, at(500));
    assert_eq!((found.shards, found.ready_seconds), (vec![held(false)], Some(0.5)));
    queue.open(&east, Epoch(3), at(1000));
    assert_eq!(queue.look(&a, at(3000)).ready_seconds, Some(2.0), "it could not begin earlier");
    queue.pop(at(3000)).expect("it is ready");
    add(&mut queue, &a, Priority::Change, 3000);
    let found = queue.look(&a, at(4000));
    assert_eq!((found.running_seconds, found.runs_again), (Some(1.0), true));
    assert_eq!((found.ready_seconds, found.delayed_seconds), (None, None));
    let longest = queue.longest(9, at(4000));
    assert_eq!(longest, [RunningKey { key: "east/ns/a".to_owned(), seconds: 1.0 }]);
    assert_eq!(queue.longest(0, at(4000)), []);
    queue.finish(&a, Outcome::RetryAfter(Duration::from_secs(20)), at(4000));
    let found = queue.look(&a, at(5000));
    assert_eq!((found.ready_seconds, found.delayed_seconds), (Some(1.0), Some(19.0)));
    assert_eq!((found.failures, found.running_seconds), (1, None));
    assert_eq!(queue.look(&key("east", "b"), at(5000)).shards, [held(true)]);
    assert!(queue.holds(&a.cluster));
    queue.close(&east);
    assert!(!queue.holds(&a.cluster));
    assert_eq!(queue.look(&a, at(6000)), KeyStatus::default());
}
