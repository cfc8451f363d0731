//! What each shard costs this process, and which clusters fail it: the counters behind
//! [`model::Workload`].
//!
//! A [`Meter`] is created before the engine and given both to the engine, which counts, and to the
//! sharding, which reads: neither imports the other.
//!
//! # What is counted
//! - Busy time is the integral of the number of running reconciles over time, so a reconcile of an
//!   hour counts while it runs, not when it ends. Waiting for a server counts: it occupies a worker.
//! - Which part of the busy time one object took is estimated too ([`model::heaviest`]), since a shard
//!   cannot be divided further than into its objects.
//! - An event counts once for each controller that follows its kind, for the shard of the primary
//!   object that it concerns. An event that concerns no single object is handled once, however many
//!   ranges of the group are held here: it counts for one of them, in turns.
//! - The caches of a group in a cluster are divided among the ranges held here by their width, since
//!   uids hash evenly. If this member holds only one range, all that it caches there counts for it.
//! - How many keys of the initial list of a shard wait is read from the queues.
//!
//! # Invariants
//! - Counting holds an uncontended lock for a few instructions, never over an await.
//! - A shard is measured from its start to its stop. Counting keeps nothing alive: no informer runs and
//!   no object stays cached because it is counted.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use model::heaviest::Heaviest;
use model::range::MAX_BITS;
use model::{
    Clock, ClusterName, GroupName, Moment, ObjectKey, Range, ShardId, Work, Workload, uid_hash,
};

use crate::presence::Presences;
use cache::Store;
use extent::Quarantines;
use informer::Target;
use queue::{InitialKeys, containing};
use upstream::Gates;

/// The counters of one engine. Clones share them.
#[derive(Clone, Debug)]
pub struct Meter(Arc<Counters>);

#[derive(Debug)]
struct Counters {
    clock: Arc<dyn Clock>,
    slices: RwLock<BTreeMap<(ClusterName, GroupName), Arc<Slices>>>,
    gates: Gates,
    presences: Presences,
    quarantines: Quarantines,
    /// Those of the controllers, once the engine is assembled.
    queues: OnceLock<Vec<Arc<dyn InitialKeys>>>,
}

/// The shards of one group in one cluster that are held here. They share handlers and caches.
#[derive(Debug, Default)]
pub(crate) struct Slices(RwLock<Held>);

#[derive(Debug, Default)]
struct Held {
    shards: BTreeMap<Range, Arc<ShardMeter>>,
    /// The range that counted the last event that concerned no single object.
    turn: Mutex<Option<Range>>,
    stores: BTreeMap<Target, Store>,
}

/// What one shard has cost since it was started.
#[derive(Debug)]
pub(crate) struct ShardMeter {
    shard: ShardId,
    busy: Mutex<Integral>,
    events: AtomicU64,
}

/// The number of running reconciles, integrated over time.
#[derive(Debug)]
struct Integral {
    total: Duration,
    /// What runs: the hash of its object's name, and up to when its time is counted.
    running: Vec<(u64, Moment)>,
    heaviest: Heaviest,
}

/// A reconcile that runs, until it is dropped.
#[derive(Debug)]
pub(crate) struct Busy<'a> {
    shard_meter: &'a ShardMeter,
    object: u64,
    clock: &'a dyn Clock,
}

// === impl Meter ===

impl Meter {
    /// Counters at zero.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        let (slices, gates) = (RwLock::default(), Gates::default());
        let (presences, quarantines) = (Presences::default(), Quarantines::default());
        let queues = OnceLock::new();
        Self(Arc::new(Counters { clock, slices, gates, presences, quarantines, queues }))
    }

    /// Counts what waits in these queues, from now on.
    pub(crate) fn read_queues(&self, queues: Vec<Arc<dyn InitialKeys>>) {
        // A meter is of one engine.
        let _ = self.0.queues.set(queues);
    }

    /// The gates before the clusters, which know the clusters that fail.
    pub(crate) fn gates(&self) -> &Gates {
        &self.0.gates
    }

    /// What the controllers watch, where it is seen what clusters lack.
    pub(crate) fn presences(&self) -> &Presences {
        &self.0.presences
    }

    /// The clusters that exceeded their budget.
    pub(crate) fn quarantines(&self) -> &Quarantines {
        &self.0.quarantines
    }

    /// Begins to count for a shard. What is counted for its group in its cluster is shared with the
    /// other ranges held here.
    pub(crate) fn open(&self, shard: &ShardId) -> (Arc<Slices>, Arc<ShardMeter>) {
        let key = (shard.cluster.clone(), shard.group.clone());
        let mut all = self.0.slices.write().expect("no holder of this lock panics");
        let slices = Arc::clone(all.entry(key).or_default());
        drop(all);
        let shard_meter = Arc::new(ShardMeter {
            shard: shard.clone(),
            busy: Mutex::new(Integral::new(self.0.clock.now())),
            events: AtomicU64::new(0),
        });
        slices.write(|held| held.shards.insert(shard.range, Arc::clone(&shard_meter)));
        (slices, shard_meter)
    }

    /// Stops counting for a shard.
    pub(crate) fn close(&self, shard: &ShardId) {
        let key = (shard.cluster.clone(), shard.group.clone());
        let mut all = self.0.slices.write().expect("no holder of this lock panics");
        let Some(slices) = all.get(&key).map(Arc::clone) else { return };
        let empty = slices.write(|held| {
            held.shards.remove(&shard.range);
            held.shards.is_empty()
        });
        if empty {
            all.remove(&key);
        }
    }
}

impl Workload for Meter {
    fn measure(&self) -> BTreeMap<ShardId, Work> {
        let now = self.0.clock.now();
        let all = self.0.slices.read().expect("no holder of this lock panics");
        let all: Vec<Arc<Slices>> = all.values().map(Arc::clone).collect();
        let mut initial: BTreeMap<ShardId, u64> = BTreeMap::new();
        let queues = self.0.queues.get().into_iter().flatten();
        for (shard, keys) in queues.flat_map(|queue| queue.initial()) {
            *initial.entry(shard).or_default() += keys;
        }
        all.iter().flat_map(|slices| slices.measure(&initial, now)).collect()
    }

    fn failing(&self) -> BTreeMap<ClusterName, Arc<str>> {
        let now = self.0.clock.now();
        let mut failing = self.0.presences.unlisted(now);
        failing.extend(self.0.presences.lacking());
        // A cluster that does not answer does not say which kinds it has.
        failing.extend(self.0.gates.left_alone(now));
        failing.extend(self.0.quarantines.failing(now));
        failing
    }
}

// === impl Slices ===

impl Slices {
    fn write<T>(&self, change: impl FnOnce(&mut Held) -> T) -> T {
        change(&mut self.0.write().expect("no holder of this lock panics"))
    }

    /// The group reads these caches; one it reads already counts once, and those of an earlier engagement of the
    /// cluster count no more.
    pub(crate) fn read_from(&self, stores: impl Iterator<Item = (Target, Store)>) {
        self.write(|held| {
            held.stores.extend(stores);
            let newest = held.stores.keys().map(|target| target.engagement).max();
            held.stores.retain(|target, _| Some(target.engagement) == newest);
        });
    }

    /// Counts an event for the shard of the primary object with that hash; without one, for one of the
    /// shards.
    pub(crate) fn event(&self, hash: Option<u64>) {
        let held = self.0.read().expect("no holder of this lock panics");
        let counted = match hash {
            Some(hash) => containing(&held.shards, hash).next(),
            None => held.in_turn(),
        };
        if let Some(shard_meter) = counted {
            shard_meter.events.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn measure(&self, initial: &BTreeMap<ShardId, u64>, now: Moment) -> Vec<(ShardId, Work)> {
        let held = self.0.read().expect("no holder of this lock panics");
        let bytes: usize = held.stores.values().map(Store::bytes).sum();
        let width =
            |shard_meter: &Arc<ShardMeter>| 1 << (MAX_BITS - shard_meter.shard.range.bits());
        let whole: u128 = held.shards.values().map(width).sum();
        let work = |shard_meter: &Arc<ShardMeter>| {
            let cached = bytes as u128 * width(shard_meter) / whole;
            let (busy, heaviest_permille) = shard_meter.busy_until(now);
            let work = Work {
                busy,
                waiting: initial.get(&shard_meter.shard).copied().unwrap_or_default(),
                events: shard_meter.events.load(Ordering::Relaxed),
                cached_bytes: u64::try_from(cached).unwrap_or(u64::MAX),
                heaviest_permille,
            };
            (shard_meter.shard.clone(), work)
        };
        held.shards.values().map(work).collect()
    }
}

impl Held {
    /// The shard whose turn it is.
    fn in_turn(&self) -> Option<&Arc<ShardMeter>> {
        let mut turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let after = turn.and_then(|last| self.shards.range((Excluded(last), Unbounded)).next());
        let (range, shard_meter) = after.or_else(|| self.shards.first_key_value())?;
        *turn = Some(*range);
        Some(shard_meter)
    }
}

// === impl ShardMeter ===

impl ShardMeter {
    /// A reconcile of an object begins. Objects of one name count as one, whatever their kinds: that
    /// may take a load for less divisible than it is, never for more.
    pub(crate) fn begin<'a>(&'a self, key: &ObjectKey, clock: &'a dyn Clock) -> Busy<'a> {
        let namespace = key.namespace.as_deref().unwrap_or_default();
        let object = uid_hash(namespace).rotate_left(32) ^ uid_hash(&key.name);
        let now = clock.now();
        self.write(|busy| busy.running.push((object, now)));
        Busy { shard_meter: self, object, clock }
    }

    /// The busy time, and which part of it the heaviest object took lately, in thousandths.
    fn busy_until(&self, now: Moment) -> (Duration, u16) {
        self.write(|busy| {
            for (object, counted) in &mut busy.running {
                // Two threads may have read the clock in one order and come here in the other.
                busy.total += now.since(*counted);
                busy.heaviest.add(*object, *counted, now);
                *counted = now.max(*counted);
            }
            (busy.total, busy.heaviest.permille(now))
        })
    }

    fn write<T>(&self, change: impl FnOnce(&mut Integral) -> T) -> T {
        change(&mut self.busy.lock().expect("no holder of this lock panics"))
    }
}

impl Integral {
    fn new(opened: Moment) -> Self {
        let heaviest = Heaviest::new(opened);
        Self { total: Duration::ZERO, running: Vec::new(), heaviest }
    }
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let now = self.clock.now();
        self.shard_meter.write(|busy| {
            let own = busy.running.iter().position(|(object, _)| *object == self.object);
            if let Some((object, counted)) = own.map(|own| busy.running.swap_remove(own)) {
                busy.total += now.since(counted);
                busy.heaviest.add(object, counted, now);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use listwatch::{Form, Scope};
    use model::ManualClock;

    use super::*;
    use cache::StoreWriter;
    use model::Kind;

    fn meter() -> (Arc<ManualClock>, Meter) {
        let clock = Arc::new(ManualClock::new(Timestamp::UNIX_EPOCH));
        (Arc::clone(&clock), Meter::new(clock))
    }

    fn shard(text: &str) -> ShardId {
        text.parse().unwrap()
    }

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new("east".parse().unwrap(), None, name)
    }

    #[test]
    fn one_busy_object_is_told_from_many() {
        let (clock, meter) = meter();
        let (_, shard_meter) = meter.open(&shard("east/g/0/1"));
        let part = || meter.measure()[&shard("east/g/0/1")].heaviest_permille;
        assert_eq!(part(), 1_000, "nobody knows yet");
        clock.advance(Duration::from_secs(15));
        let hot = shard_meter.begin(&key("hot"), &*clock);
        clock.advance(Duration::from_secs(10));
        assert_eq!(part(), 1_000, "a reconcile that runs counts");
        for n in 0..30 {
            let other = shard_meter.begin(&key(&format!("other-{n}")), &*clock);
            clock.advance(Duration::from_secs(1));
            drop(other);
        }
        drop(hot);
        assert!((550..650).contains(&part()), "{}: forty seconds of seventy", part());
    }

    #[derive(Debug)]
    struct Waiting(Vec<(ShardId, u64)>);

    impl InitialKeys for Waiting {
        fn initial(&self) -> Vec<(ShardId, u64)> {
            self.0.clone()
        }
    }

    #[test]
    fn what_waits_of_the_initial_list_is_counted_over_all_queues() {
        let (_, meter) = meter();
        let (low, high) = (shard("east/g/0/2"), shard("east/g/1/2"));
        let queue = |keys| Arc::new(Waiting(vec![(high.clone(), keys)])) as Arc<_>;
        meter.read_queues(vec![queue(30), queue(10)]);
        let _opened = (meter.open(&low), meter.open(&high));
        let measured = meter.measure();
        assert_eq!((measured[&low].waiting, measured[&high].waiting), (0, 40));
    }

    #[test]
    fn busy_time_counts_while_it_passes_and_for_each_worker() {
        let (clock, meter) = meter();
        let (_, shard_meter) = meter.open(&shard("east/g/0/1"));
        let busy = || meter.measure()[&shard("east/g/0/1")].busy.as_secs();
        let first = shard_meter.begin(&key("a"), &*clock);
        clock.advance(Duration::from_secs(10));
        assert_eq!(busy(), 10, "a reconcile that runs counts");
        let second = shard_meter.begin(&key("b"), &*clock);
        clock.advance(Duration::from_secs(5));
        drop(first);
        clock.advance(Duration::from_secs(1));
        drop(second);
        clock.advance(Duration::from_secs(100));
        assert_eq!(busy(), 21);
    }

    #[test]
    fn events_go_to_the_range_of_their_object() {
        let (_, meter) = meter();
        let (slices, _low) = meter.open(&shard("east/g/0/2"));
        let (same, _high) = meter.open(&shard("east/g/1/2"));
        assert!(Arc::ptr_eq(&slices, &same));
        slices.event(Some(0));
        slices.event(Some(u64::MAX));
        slices.event(Some(u64::MAX));
        slices.event(None);
        let events: Vec<u64> = meter.measure().values().map(|work| work.events).collect();
        assert_eq!(events, [2, 2], "the last counts once");
    }

    #[test]
    fn ten_thousand_ranges_of_a_cluster_count_apart() {
        let (_, meter) = meter();
        let ranges = (0..10_000).map(|index| Range::new(index, 14).unwrap());
        let all: Vec<_> = ranges.map(|range| ShardId { range, ..shard("east/g/0/1") }).collect();
        let opened: Vec<_> = all.iter().map(|shard| meter.open(shard)).collect();
        let (slices, _) = &opened[0];
        for ShardId { range, .. } in &all {
            slices.event(u64::try_from(range.bounds().0).ok());
            slices.event(None);
        }
        // In a range that is not held.
        slices.event(Some(u64::MAX));
        let measured = meter.measure();
        assert!(measured.len() == all.len() && measured.values().all(|work| work.events == 2));
        all.iter().for_each(|shard| meter.close(shard));
        assert!(meter.measure().is_empty());
    }

    #[test]
    fn caches_are_divided_by_width_and_counted_once() {
        let (_, meter) = meter();
        let mut writer = StoreWriter::default();
        let raw = r#"{"metadata":{"namespace":"n","name":"a","uid":"u","resourceVersion":"1"}}"#;
        let entry = writer.parse(raw).unwrap();
        writer.upsert(&entry);
        let bytes = writer.store().bytes() as u64;
        let target = Target {
            cluster: "east".parse().unwrap(),
            engagement: 1,
            kind: Kind::of::<k8s_openapi::api::core::v1::ConfigMap>(),
            scope: Scope::default(),
            form: Form::Whole,
        };
        let (slices, _) = meter.open(&shard("east/g/0/4"));
        for _controller in 0..2 {
            slices.read_from([(target.clone(), writer.store())].into_iter());
        }
        let cached = || -> Vec<u64> { meter.measure().values().map(|w| w.cached_bytes).collect() };
        assert_eq!(cached(), [bytes], "a range that is alone has it all");
        meter.open(&shard("east/g/1/2"));
        assert_eq!(cached(), [bytes * 2 / 3, bytes / 3], "1/2 comes before 0/4");
    }

    #[test]
    fn a_cache_of_an_earlier_engagement_is_let_go() {
        let (_, meter) = meter();
        let mut writer = StoreWriter::default();
        let raw = r#"{"metadata":{"namespace":"n","name":"a","uid":"u","resourceVersion":"1"}}"#;
        let entry = writer.parse(raw).unwrap();
        writer.upsert(&entry);
        let target = |engagement| Target {
            cluster: "east".parse().unwrap(),
            engagement,
            kind: Kind::of::<k8s_openapi::api::core::v1::ConfigMap>(),
            scope: Scope::default(),
            form: Form::Whole,
        };
        let (slices, _) = meter.open(&shard("east/g/0/1"));
        slices.read_from([(target(1), writer.store())].into_iter());
        slices.read_from([(target(2), StoreWriter::default().store())].into_iter());
        drop(writer);
        assert_eq!(Arc::strong_count(&entry), 1, "nobody else keeps the object");
    }

    #[test]
    fn what_is_closed_is_forgotten() {
        let (_, meter) = meter();
        let (slices, shard_meter) = meter.open(&shard("east/g/0/1"));
        meter.close(&shard("east/g/0/1"));
        slices.event(None);
        assert!(meter.measure().is_empty());
        assert_eq!(shard_meter.events.load(Ordering::Relaxed), 0);
        meter.close(&shard("east/g/0/1"));
    }
}
