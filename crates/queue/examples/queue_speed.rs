//! Measures the work queue: how fast keys pass through it, what a waiting key takes, and that
//! neither gets worse with the number of keys.
//!
//! `cargo run --release -p leasehold-queue --example queue_speed`, or with `--only pass` the line of JSON that
//! `cargo xtask bench` holds beside those of controller-runtime and client-go. One thread adds a
//! million keys, no two alike, another finishes one and takes the next, as event handlers and the runner do:
//! the queue is behind a lock, and whoever finds it empty waits to be notified. Bytes are what Rust's
//! allocator was asked for; CPU time is the thread's, from `/proc/thread-self/schedstat`.
#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::alloc::System;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use cap::Cap;
use leasehold_queue::core::Queue;
use leasehold_queue::{Limits, Outcome, Priority, RateLimiter};
use model::{Epoch, Moment, ObjectKey, Range, ShardId};
use tracing::Span;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

const KEYS: usize = 1_000_000;
const IN_BACKOFF: usize = 100_000;
/// Numbers of keys that wait while CPU time is measured.
const WAITING: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];
/// Keys that pass through a queue in which others wait: as many each time, so that only what waits
/// differs.
const PASSING: usize = 200_000;

fn main() {
    if env::args().skip(1).eq(["--only".to_owned(), "pass".to_owned()]) {
        println!(r#"{{"event":"queue","keys":{KEYS},"per_second":{:.0}}}"#, pass(&keys(KEYS)));
        return;
    }
    let keys = keys(KEYS);
    println!("add, get, done: {:.0} keys/s, {KEYS} keys, two threads", pass(&keys));
    println!("waiting:        {} B a key, {KEYS} keys", waiting(&keys));
    let (in_queue, in_backoff) = backoff(&keys[..IN_BACKOFF]);
    println!("in backoff:     {in_backoff} B a key, {IN_BACKOFF} keys, {in_queue} B while ready");
    for waiting in WAITING {
        let (each, delayed) = (steady(&keys, waiting), steady_backoff(&keys, waiting));
        println!("CPU with {waiting:>9} ready:   {each:>6.0} ns to get, finish and add one");
        println!("CPU with {waiting:>9} delayed: {delayed:>6.0} ns to get, fail and add one");
    }
}

fn keys(count: usize) -> Vec<ObjectKey> {
    let cluster: model::ClusterName = "east".parse().expect("a name");
    let key = |index| ObjectKey::new(cluster.clone(), Some("ns"), &format!("object-{index}"));
    (0..count).map(key).collect()
}

/// A queue with one shard, open.
fn queue() -> Queue<()> {
    let shard = ShardId {
        cluster: "east".parse().expect("a name"),
        group: "g".parse().expect("a name"),
        range: Range::WHOLE,
    };
    let limits = Limits { per_cluster: 64, total: 64 };
    let mut queue = Queue::new(limits, RateLimiter::default(), fastrand::Rng::with_seed(1));
    queue.warm(&shard, Epoch(1), ());
    queue.open(&shard, Epoch(1), Moment::default());
    queue
}

fn add(queue: &mut Queue<()>, key: &ObjectKey, now: Moment) {
    queue.add(key, None, Priority::Change, &Span::none(), now);
}

/// CPU time of this thread so far.
fn cpu() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split_whitespace().next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or_default())
}

/// Keys a second through a queue between two threads.
fn pass(keys: &[ObjectKey]) -> f64 {
    let (shared, ready, now) = (Mutex::new(queue()), Condvar::new(), Moment::default());
    let lock = || shared.lock().expect("no holder of this lock panics");
    let began = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            for key in keys {
                add(&mut lock(), key, now);
                ready.notify_one();
            }
        });
        let mut ended: Option<ObjectKey> = None;
        for _ in keys {
            let mut queue = lock();
            if let Some(key) = ended.take() {
                queue.finish(&key, Outcome::Done, now);
            }
            let popped = loop {
                if let Some(popped) = queue.pop(now) {
                    break popped;
                }
                queue = ready.wait(queue).expect("no holder of this lock panics");
            };
            ended = Some(popped.key);
        }
        lock().finish(&ended.expect("there are keys"), Outcome::Done, now);
    });
    keys.len() as f64 / began.elapsed().as_secs_f64()
}

/// Bytes of a waiting key.
fn waiting(keys: &[ObjectKey]) -> usize {
    let (before, mut queue) = (ALLOCATOR.allocated(), queue());
    keys.iter().for_each(|key| add(&mut queue, key, Moment::default()));
    (ALLOCATOR.allocated() - before) / keys.len()
}

/// Bytes of a key that is ready, and of one that failed and waits for its next try.
fn backoff(keys: &[ObjectKey]) -> (usize, usize) {
    let (before, now) = (ALLOCATOR.allocated(), Moment::default());
    let mut queue = queue();
    keys.iter().for_each(|key| add(&mut queue, key, now));
    let ready = ALLOCATOR.allocated() - before;
    fail_all(&mut queue, now);
    (ready / keys.len(), (ALLOCATOR.allocated() - before) / keys.len())
}

fn fail_all(queue: &mut Queue<()>, now: Moment) {
    while let Some(popped) = queue.pop(now) {
        queue.finish(&popped.key, Outcome::Failed, now);
    }
}

/// Nanoseconds to take, finish and add a key while this many are ready.
fn steady(keys: &[ObjectKey], ready: usize) -> f64 {
    let (mut queue, now) = (queue(), Moment::default());
    keys[..ready].iter().for_each(|key| add(&mut queue, key, now));
    let began = cpu();
    for _ in 0..PASSING {
        let popped = queue.pop(now).expect("keys are ready");
        queue.finish(&popped.key, Outcome::Done, now);
        add(&mut queue, &popped.key, now);
    }
    each(began)
}

/// The same with keys that fail while this many wait for their next try: a key is added, runs, fails,
/// and is added again before its retry is due.
fn steady_backoff(keys: &[ObjectKey], delayed: usize) -> f64 {
    let (mut queue, now) = (queue(), Moment::default());
    keys[..delayed].iter().for_each(|key| add(&mut queue, key, now));
    fail_all(&mut queue, now);
    let began = cpu();
    for index in 0..PASSING {
        add(&mut queue, &keys[index % delayed], now);
        let popped = queue.pop(now).expect("a key is ready");
        queue.finish(&popped.key, Outcome::Failed, now);
    }
    each(began)
}

fn each(began: Duration) -> f64 {
    cpu().saturating_sub(began).as_nanos() as f64 / PASSING as f64
}
