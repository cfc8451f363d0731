//! What this member holds, derived from the ShardMaps it sees.
//!
//! A member holds a shard if an entry names exactly this member: as owner (active or draining) or as
//! target (warming). Whether it may *act* on the shard is a question for the fence, which also checks
//! that the Lease is valid.
//!
//! # Invariants
//! - **S1** After a member acknowledged the drain of a shard at an epoch, it never holds the shard at
//!   that epoch again, whatever it sees later (`an_acknowledged_epoch_never_returns`).
//!   [`crate::handover`] names the next owner only after the acknowledgement or after the member is
//!   gone. So no two members dispatch for a shard at once.
//! - **S2** An acknowledgement counts only for a shard that is draining at exactly that epoch. The
//!   engine gives it when no work of the shard is queued, delayed or in flight.
//! - **S8** A shard of a refused name is held only as draining, although its map has not asked for that; so is
//!   one that shares uids with another of its group ([`crate::cover`]).
//!   The acknowledgement is as good as any other: the member does not hold the shard at that epoch again.
//! - An entry with an epoch below one that was seen is ignored (within one ShardMap object).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use model::{ClusterName, Epoch, Hold, Holding, MemberId, Moment, OwnedShards, ShardId};

use crate::api::{AcknowledgedDrain, ShardPath};
use crate::cover;
use crate::handover::Entry;
use crate::record::MapRecord;

/// The most acknowledged drains that a Member reports: their names are as long as names can be, and it keeps below the
/// 1.5 MiB that etcd takes. What is reported is settled, and makes room for the next.
const MAX_ACKNOWLEDGED: usize = 4_096;

/// Follows the ShardMaps on behalf of one member.
#[derive(Clone, Debug, Hash)]
pub(crate) struct Tracker {
    drain_timeout: Duration,
    owned: Arc<OwnedShards>,
    memory: BTreeMap<ClusterName, Memory>,
    /// The clusters with acknowledged drains that their maps may not reflect yet.
    reported: BTreeSet<ClusterName>,
    /// The names under which this member may not act.
    refused: BTreeSet<ClusterName>,
}

/// What was seen of one ShardMap object.
#[derive(Clone, Debug, Default, Hash)]
struct Memory {
    uid: String,
    /// Whether shards were held when the map changed to a version that this member does not speak.
    withheld: bool,
    shards: BTreeMap<ShardPath, Seen>,
}

/// What was seen of one shard at the highest epoch seen.
#[derive(Clone, Copy, Debug, Default, Hash)]
struct Seen {
    epoch: Epoch,
    drain: DrainProgress,
}

/// How far this member's drain of a shard is, at the epoch seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum DrainProgress {
    #[default]
    NotAsked,
    Asked {
        deadline: Moment,
    },
    /// Final for this epoch.
    Acknowledged {
        /// Whether the map still waits for it.
        pending: bool,
    },
}

impl Tracker {
    /// A tracker for `member`, which holds nothing yet.
    pub(crate) fn new(member: MemberId, drain_timeout: Duration) -> Self {
        Self {
            drain_timeout,
            owned: Arc::new(OwnedShards::none(member)),
            memory: BTreeMap::new(),
            reported: BTreeSet::new(),
            refused: BTreeSet::new(),
        }
    }

    pub(crate) fn owned(&self) -> &Arc<OwnedShards> {
        &self.owned
    }

    /// Starts over under another id and holds nothing. The caller shows it every map again.
    pub(crate) fn restart(&mut self, member: MemberId) {
        let refused = std::mem::take(&mut self.refused);
        *self = Self { refused, ..Self::new(member, self.drain_timeout) };
    }

    /// This member may act under a name no longer, or again. The caller shows it the map again.
    pub(crate) fn refuse(&mut self, cluster: &ClusterName, refused: bool) {
        match refused {
            true => drop(self.refused.insert(cluster.clone())),
            false => drop(self.refused.remove(cluster)),
        }
    }

    /// Takes in the present state of a cluster's map, or its absence.
    pub(crate) fn observe(&mut self, cluster: &ClusterName, map: Option<&MapRecord>, now: Moment) {
        let me = self.owned.member.clone();
        let before = self.held_in(cluster);
        let mut held: BTreeMap<ShardId, Holding> = BTreeMap::new();
        match map {
            None => drop(self.memory.remove(cluster)),
            Some(map) => {
                let memory = self.memory.entry(cluster.clone()).or_default();
                if memory.uid != map.version.uid {
                    *memory = Memory { uid: map.version.uid.clone(), ..Memory::default() };
                }
                memory.withheld = false;
                let refused = self.refused.contains(cluster);
                let doubled = cover::doubled(map.entries.keys());
                // An entry that is gone was settled before: the map waits for no acknowledgement of it.
                let gone = memory.shards.iter_mut().filter(|(p, _)| !map.entries.contains_key(p));
                gone.for_each(|(_, seen)| seen.drain.settle());
                for (path, entry) in map.entries.iter() {
                    let seen = memory.shards.entry(path.clone()).or_default();
                    let refused = refused || doubled.contains(path);
                    if let Some(holding) =
                        seen.observe(&me, entry, now + self.drain_timeout, refused)
                    {
                        held.insert(path.in_cluster(cluster), holding);
                    }
                }
            }
        }
        let memory = self.memory.get(cluster);
        if !memory.is_some_and(|m| m.shards.values().any(|seen| seen.drain.is_reported())) {
            self.reported.remove(cluster);
        }
        self.publish(&before, held);
    }

    /// The cluster's map is of a version of the protocol that this member does not speak: it holds no
    /// shard of it any more and acknowledges no drain of it. Earlier acknowledgements stay true.
    pub(crate) fn withhold(&mut self, cluster: &ClusterName) {
        let before = self.held_in(cluster);
        if before.values().any(|held| held.hold != Hold::Warming) {
            self.memory.entry(cluster.clone()).or_default().withheld = true;
        }
        self.publish(&before, BTreeMap::new());
    }

    /// Whether this member may still own withheld shards: their reconciles were cancelled, but nobody
    /// confirmed that they ended.
    pub(crate) fn withholds_any(&self) -> bool {
        self.memory.values().any(|memory| memory.withheld)
    }

    /// The engine says that the shard has no running work any more. Returns whether a drain asked for
    /// that.
    pub(crate) fn acknowledge(&mut self, shard: &ShardId, epoch: Epoch) -> bool {
        let holding = self.owned.holdings.get(shard);
        if !holding.is_some_and(|h| h.epoch == epoch && matches!(h.hold, Hold::Draining { .. })) {
            return false;
        }
        let seen = self
            .memory
            .get_mut(&shard.cluster)
            .and_then(|memory| memory.shards.get_mut(&ShardPath::from(shard)));
        if let Some(seen) = seen {
            seen.drain = DrainProgress::Acknowledged { pending: true };
            self.reported.insert(shard.cluster.clone());
        }
        Arc::make_mut(&mut self.owned).holdings.remove(shard);
        true
    }

    /// The acknowledged drains that the maps do not reflect yet, as many as a Member has room for.
    pub(crate) fn acknowledged(&self) -> Vec<AcknowledgedDrain> {
        let acknowledged = |(path, seen): (&ShardPath, &Seen), cluster: &ClusterName| {
            seen.drain
                .is_reported()
                .then(|| AcknowledgedDrain { shard: path.in_cluster(cluster), epoch: seen.epoch })
        };
        let memories = self.reported.iter().filter_map(|name| self.memory.get_key_value(name));
        memories
            .flat_map(|(cluster, memory)| {
                memory.shards.iter().filter_map(move |seen| acknowledged(seen, cluster))
            })
            .take(MAX_ACKNOWLEDGED)
            .collect()
    }

    /// What is held of one cluster: nothing that its map did not show.
    fn held_in(&self, cluster: &ClusterName) -> BTreeMap<ShardId, Holding> {
        let shown = self.memory.get(cluster).into_iter().flat_map(|memory| memory.shards.keys());
        let held = shown.filter_map(|path| {
            let shard = path.in_cluster(cluster);
            let held = *self.owned.holdings.get(&shard)?;
            Some((shard, held))
        });
        held.collect()
    }

    /// Replaces what was held of one cluster. Keeps the snapshot if nothing changed.
    fn publish(&mut self, before: &BTreeMap<ShardId, Holding>, held: BTreeMap<ShardId, Holding>) {
        if *before == held {
            return;
        }
        let owned = Arc::make_mut(&mut self.owned);
        for shard in before.keys() {
            owned.holdings.remove(shard);
        }
        owned.holdings.extend(held);
    }
}

impl DrainProgress {
    /// The map reflects the acknowledgement, if there was one.
    fn settle(&mut self) {
        if let Self::Acknowledged { pending } = self {
            *pending = false;
        }
    }

    /// Whether the Member must report that the drain ended.
    fn is_reported(self) -> bool {
        self == Self::Acknowledged { pending: true }
    }
}

impl Seen {
    /// Takes in an entry. Returns the holding that follows from it for `me`, which may act under the name
    /// of the cluster unless it is `refused`.
    fn observe(
        &mut self,
        me: &MemberId,
        entry: &Entry,
        deadline: Moment,
        refused: bool,
    ) -> Option<Holding> {
        if entry.epoch() < self.epoch {
            return None;
        }
        if entry.epoch() > self.epoch {
            *self = Self { epoch: entry.epoch(), drain: DrainProgress::NotAsked };
        } else if entry.owner() != Some(me) {
            self.drain.settle();
        }
        let epoch = entry.epoch();
        match entry {
            Entry::Owned { owner, .. }
                if owner == me && !refused && self.drain == DrainProgress::NotAsked =>
            {
                Some(Holding { epoch, hold: Hold::Active })
            }
            // A drain that the member began by itself goes on when it may act again.
            Entry::Owned { owner, .. } | Entry::Draining { owner, .. } if owner == me => {
                self.drain(deadline)
            }
            Entry::Draining { target: Some(target), .. } if target == me && !refused => {
                Some(Holding { epoch: epoch.next(), hold: Hold::Warming })
            }
            _ => None,
        }
    }

    /// The holding while the shard drains, which begins now unless it has begun.
    fn drain(&mut self, deadline: Moment) -> Option<Holding> {
        let deadline = match self.drain {
            DrainProgress::Acknowledged { .. } => return None,
            DrainProgress::Asked { deadline } => deadline,
            DrainProgress::NotAsked => deadline,
        };
        self.drain = DrainProgress::Asked { deadline };
        Some(Holding { epoch: self.epoch, hold: Hold::Draining { deadline } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EAST: &str = "east";

    fn at(ms: u64) -> Moment {
        Moment::from_origin(Duration::from_millis(ms))
    }

    fn tracker() -> Tracker {
        Tracker::new("a".parse().unwrap(), Duration::from_secs(30))
    }

    fn map(entry: Entry) -> MapRecord {
        let mut map = MapRecord::new(EAST.parse().unwrap());
        map.version.uid = "uid-1".into();
        map.entries_mut().insert("tdset/0/1".parse().unwrap(), entry);
        map
    }

    fn owned(owner: &str, epoch: u64) -> Entry {
        Entry::Owned { owner: owner.parse().unwrap(), epoch: Epoch(epoch) }
    }

    fn draining(owner: &str, target: &str, epoch: u64) -> Entry {
        let (owner, target) = (owner.parse().unwrap(), target.parse().ok());
        Entry::Draining { owner, epoch: Epoch(epoch), target }
    }

    fn see(tracker: &mut Tracker, entry: Entry, ms: u64) -> String {
        tracker.observe(&EAST.parse().unwrap(), Some(&map(entry)), at(ms));
        shown(tracker)
    }

    fn shown(tracker: &Tracker) -> String {
        let text = |(_, held): (&ShardId, &Holding)| match held.hold {
            Hold::Active => format!("active@{}", held.epoch),
            Hold::Warming => format!("warming@{}", held.epoch),
            Hold::Draining { deadline } => {
                format!("draining@{} until {}", held.epoch, deadline.since_origin().as_millis())
            }
        };
        tracker.owned().holdings.iter().map(text).collect()
    }

    #[test]
    fn more_drains_than_a_member_has_room_for_are_reported_one_part_after_the_other() {
        let mut tracker = tracker();
        let map = |n: usize, entry: &Entry| {
            let mut map = MapRecord::new(format!("c{n:02}").parse().unwrap());
            let paths = (0..384).map(|g| (format!("g{g}/0/1").parse().unwrap(), entry.clone()));
            map.entries_mut().extend(paths);
            map
        };
        let mut maps: Vec<_> = (0..22).map(|n| map(n, &draining("a", "b", 4))).collect();
        for map in &maps {
            tracker.observe(&map.cluster, Some(map), at(1));
        }
        for shard in tracker.owned().holdings.clone().into_keys() {
            assert!(tracker.acknowledge(&shard, Epoch(4)));
        }
        let mut parts = Vec::new();
        while let Some(drains) = Some(tracker.acknowledged()).filter(|drains| !drains.is_empty()) {
            parts.push(drains.len());
            for map in &mut maps {
                let cluster = map.cluster.clone();
                let settled = drains.iter().filter(|drain| drain.shard.cluster == cluster);
                let next = settled.map(|drain| (ShardPath::from(&drain.shard), owned("b", 5)));
                map.entries_mut().extend(next);
                tracker.observe(&map.cluster, Some(map), at(2));
            }
        }
        assert_eq!(parts, [4_096, 4_096, 256]);
    }

    #[test]
    fn holdings_follow_the_entry() {
        for (entry, expect) in [
            (owned("a", 4), "active@4"),
            (owned("b", 4), ""),
            (draining("a", "b", 4), "draining@4 until 30001"),
            (draining("a", "", 4), "draining@4 until 30001"),
            (draining("a", "a", 4), "draining@4 until 30001"),
            (draining("b", "a", 4), "warming@5"),
            (draining("b", "c", 4), ""),
            (Entry::Unowned { epoch: Epoch(4) }, ""),
        ] {
            assert_eq!(see(&mut tracker(), entry.clone(), 1), expect, "{entry:?}");
        }
    }

    #[test]
    fn a_drain_keeps_its_first_deadline() {
        let mut tracker = tracker();
        see(&mut tracker, draining("a", "b", 4), 1);
        assert_eq!(see(&mut tracker, draining("a", "c", 4), 900), "draining@4 until 30001");
    }

    #[test]
    fn an_acknowledged_epoch_never_returns() {
        let mut tracker = tracker();
        let shard: ShardId = "east/tdset/0/1".parse().unwrap();
        see(&mut tracker, owned("a", 4), 1);
        assert!(!tracker.acknowledge(&shard, Epoch(4)), "it is not draining");
        see(&mut tracker, draining("a", "b", 4), 2);
        assert!(!tracker.acknowledge(&shard, Epoch(3)), "another epoch");
        assert!(tracker.acknowledge(&shard, Epoch(4)));
        assert!(!tracker.acknowledge(&shard, Epoch(4)), "once is enough");
        assert_eq!(shown(&tracker), "");
        for stale in [draining("a", "b", 4), owned("a", 4), draining("a", "c", 4), owned("a", 3)] {
            assert_eq!(see(&mut tracker, stale.clone(), 3), "", "{stale:?}");
        }
        assert_eq!(tracker.acknowledged().len(), 1);
        assert_eq!(see(&mut tracker, Entry::Unowned { epoch: Epoch(4) }, 4), "");
        assert!(tracker.acknowledged().is_empty(), "the map reflects it");
        assert_eq!(see(&mut tracker, owned("a", 4), 4), "", "it is final even so");
        assert_eq!(see(&mut tracker, owned("b", 5), 4), "");
        assert!(tracker.acknowledged().is_empty());
        assert_eq!(see(&mut tracker, owned("a", 6), 5), "active@6");
    }

    #[test]
    fn after_a_split_the_halves_are_held_and_the_whole_is_not_acknowledged() {
        let mut tracker = tracker();
        see(&mut tracker, draining("a", "a", 4), 1);
        assert!(tracker.acknowledge(&"east/tdset/0/1".parse().unwrap(), Epoch(4)));
        let mut split = MapRecord::new(EAST.parse().unwrap());
        split.version.uid = "uid-1".into();
        for half in ["tdset/0/2", "tdset/1/2"] {
            split.entries_mut().insert(half.parse().unwrap(), owned("a", 5));
        }
        tracker.observe(&EAST.parse().unwrap(), Some(&split), at(2));
        assert_eq!(shown(&tracker), "active@5active@5");
        assert!(tracker.acknowledged().is_empty());
        // Should the whole be seen once more, from before the split, it stays given up.
        assert_eq!(see(&mut tracker, owned("a", 4), 3), "");
    }

    #[test]
    fn what_an_edited_map_names_twice_is_held_by_nobody() {
        let mut tracker = tracker();
        see(&mut tracker, owned("a", 4), 1);
        let mut doubled = map(owned("a", 4));
        doubled.entries_mut().insert("tdset/0/2".parse().unwrap(), owned("a", 9));
        tracker.observe(&EAST.parse().unwrap(), Some(&doubled), at(2));
        assert_eq!(shown(&tracker), "draining@4 until 30002draining@9 until 30002");
        assert!(tracker.acknowledge(&"east/tdset/0/1".parse().unwrap(), Epoch(4)));
        assert!(tracker.acknowledge(&"east/tdset/0/2".parse().unwrap(), Epoch(9)));
        assert_eq!(tracker.acknowledged().len(), 2);
    }

    #[test]
    fn an_older_epoch_is_not_believed() {
        let mut tracker = tracker();
        see(&mut tracker, owned("b", 5), 1);
        assert_eq!(see(&mut tracker, owned("a", 4), 2), "");
    }

    #[test]
    fn a_map_that_vanishes_takes_its_shards_along() {
        let mut tracker = tracker();
        see(&mut tracker, owned("a", 5), 1);
        tracker.observe(&EAST.parse().unwrap(), None, at(2));
        assert_eq!(shown(&tracker), "");
    }

    #[test]
    fn a_map_of_another_version_is_not_acted_on_and_its_drains_are_not_acknowledged() {
        let mut tracker = tracker();
        let (east, shard) = (EAST.parse().unwrap(), "east/tdset/0/1".parse().unwrap());
        see(&mut tracker, owned("a", 5), 1);
        tracker.withhold(&east);
        assert_eq!(shown(&tracker), "");
        assert!(tracker.withholds_any());
        assert!(!tracker.acknowledge(&shard, Epoch(5)));
        assert!(tracker.acknowledged().is_empty());
        // Back in a version that it speaks, it is the owner's still.
        assert_eq!(see(&mut tracker, owned("a", 5), 2), "active@5");
        assert!(!tracker.withholds_any());
    }

    #[test]
    fn what_was_acknowledged_stays_so_whatever_version_comes_between() {
        let mut tracker = tracker();
        see(&mut tracker, draining("a", "b", 5), 1);
        assert!(tracker.acknowledge(&"east/tdset/0/1".parse().unwrap(), Epoch(5)));
        tracker.withhold(&EAST.parse().unwrap());
        assert_eq!(tracker.acknowledged().len(), 1);
        assert!(!tracker.withholds_any());
        assert_eq!(see(&mut tracker, draining("a", "c", 5), 2), "");
    }

    #[test]
    fn an_unchanged_map_makes_no_new_snapshot() {
        let mut tracker = tracker();
        see(&mut tracker, owned("a", 5), 1);
        let before = Arc::clone(tracker.owned());
        see(&mut tracker, owned("a", 5), 2);
        assert!(Arc::ptr_eq(&before, tracker.owned()));
    }
}
