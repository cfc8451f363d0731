//! The coordinator's log of handovers, for metrics: how many there were, why, and how long each shard
//! had no member that dispatches. It decides nothing. A new coordinator starts with an empty log.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use model::{ClusterName, MemberId, Moment, ShardId};

use crate::api::{MemberState, MoveCause, ShardPath};
use crate::handover::Entry;
use crate::record::{MapRecord, MemberRecord};
use crate::world::World;

/// A shard got a next owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handover {
    /// The shard.
    pub shard: ShardId,
    /// How.
    pub reason: HandoverCause,
    /// Why, as the map says.
    pub why: Option<MoveCause>,
    /// Who has it now.
    pub to: Option<MemberId>,
    /// From the beginning of the drain, or from the dead owner's last sign of life.
    pub took: Duration,
}

/// How a shard changed owners.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HandoverCause {
    /// A live handover: to balance, or from a cordoned member.
    Live,
    /// The owner's Lease ran out.
    Crash,
    /// The owner left.
    Leave,
    /// A live handover that ended when a part of a split or merged shard had its next owner.
    Split,
}

/// Handovers under way.
#[derive(Clone, Debug, Default)]
pub(super) struct HandoverLog {
    open: BTreeMap<ShardId, (Moment, HandoverCause)>,
    written: BTreeMap<ClusterName, Vec<Change>>,
}

#[derive(Clone, Debug)]
enum Change {
    Begun(ShardId, Moment, HandoverCause),
    Ended(ShardId, Option<MemberId>, Option<MoveCause>),
    /// It drained for nobody.
    Abandoned(ShardId),
}

impl fmt::Display for Handover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shard, why, to, took, .. } = self;
        match to {
            Some(to) => write!(f, "{shard} moved to {to} in {took:.1?}")?,
            None => write!(f, "{shard} was split or merged in {took:.1?}")?,
        }
        why.map_or(Ok(()), |why| write!(f, ": {why}"))
    }
}

impl HandoverLog {
    /// A map is about to be written: `before` becomes `after`.
    pub(super) fn sent(
        &mut self,
        before: Option<&MapRecord>,
        after: &MapRecord,
        world: &World,
        now: Moment,
    ) {
        let mut changes = Vec::new();
        for (path, entry) in after.entries.iter() {
            let Some(old) = before.and_then(|map| map.entries.get(path)) else { continue };
            let shard = path.in_cluster(&after.cluster);
            let lost = entry.owner() != old.owner() || entry.epoch() != old.epoch();
            let drains = matches!((old, entry), (Entry::Owned { .. }, Entry::Draining { .. }));
            if let Some(owner) = old.owner().filter(|_| lost || drains) {
                let (since, cause) = begin(owner, world, now);
                changes.push(Change::Begun(shard.clone(), since, cause));
            }
            let for_nobody = matches!(old, Entry::Draining { target: None, .. });
            if for_nobody && matches!(entry, Entry::Unowned { .. }) {
                changes.push(Change::Abandoned(shard.clone()));
            }
            if lost && matches!(entry, Entry::Owned { .. }) {
                let why = after.moves.why(path);
                changes.push(Change::Ended(shard, entry.owner().cloned(), why));
            }
        }
        // A shard that was split or merged has its next owner when a part of its uids has one.
        for path in before.into_iter().flat_map(|map| map.entries.keys()) {
            let follows = |(next, entry): (&ShardPath, &Entry)| {
                next.group == path.group
                    && next.range.overlaps(path.range)
                    && matches!(entry, Entry::Owned { .. })
            };
            if !after.entries.contains_key(path)
                && let Some((next, _)) = after.entries.iter().find(|entry| follows(*entry))
            {
                let (shard, why) = (path.in_cluster(&after.cluster), after.moves.why(next));
                changes.push(Change::Ended(shard, None, why));
            }
        }
        self.written.insert(after.cluster.clone(), changes);
    }

    /// The write of a map ended. Returns the handovers that it completed.
    pub(super) fn completed(
        &mut self,
        cluster: &ClusterName,
        done: bool,
        now: Moment,
    ) -> Vec<Handover> {
        let changes = self.written.remove(cluster).unwrap_or_default();
        let mut handovers = Vec::new();
        for change in changes.into_iter().filter(|_| done) {
            match change {
                Change::Begun(shard, since, HandoverCause::Crash) => {
                    // A crash during a drain counts as a crash.
                    self.open.insert(shard, (since, HandoverCause::Crash));
                }
                Change::Begun(shard, since, cause) => {
                    self.open.entry(shard).or_insert((since, cause));
                }
                Change::Abandoned(shard) => {
                    self.open.remove(&shard);
                }
                Change::Ended(shard, to, why) => {
                    if let Some((since, begun)) = self.open.remove(&shard) {
                        let is_split = to.is_none() && begun == HandoverCause::Live;
                        let reason = if is_split { HandoverCause::Split } else { begun };
                        handovers.push(Handover { shard, reason, why, to, took: now.since(since) });
                    }
                }
            }
        }
        handovers
    }
}

/// Since when, and how, the owner's shards change hands.
fn begin(owner: &MemberId, world: &World, now: Moment) -> (Moment, HandoverCause) {
    let cause = HandoverCause::of(owner, world);
    let alive = world.lease_of(owner).filter(|_| cause == HandoverCause::Crash);
    (alive.map_or(now, |lease| lease.alive), cause)
}

impl HandoverCause {
    pub(crate) const ALL: [Self; 4] = [Self::Live, Self::Crash, Self::Leave, Self::Split];

    /// How a shard leaves this owner.
    pub(crate) fn of(owner: &MemberId, world: &World) -> Self {
        let leaves = |m: &MemberRecord| m.spec.state == MemberState::Leaving;
        match world.lease_of(owner).map(|lease| lease.record.holder.as_deref()) {
            Some(Some(holder)) if holder != owner.as_str() => Self::Crash,
            Some(None) => Self::Leave,
            _ if world.members().get(owner).is_some_and(leaves) => Self::Leave,
            _ => Self::Live,
        }
    }

    /// The value of the metric's label.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Live => "drain",
            Self::Crash => "crash",
            Self::Leave => "leave",
            Self::Split => "split",
        }
    }
}

#[cfg(test)]
mod tests {
    use model::Epoch;

    use super::*;
    use crate::api::ObjectVersion;
    use crate::lease::{LeaseRecord, member_lease_name};
    use crate::record::Object;

    fn at(ms: u64) -> Moment {
        Moment::from_origin(Duration::from_millis(ms))
    }

    fn map(entry: Entry) -> MapRecord {
        let mut map = MapRecord::new("east".parse().unwrap());
        map.entries_mut().insert("tdset/0/1".parse().unwrap(), entry);
        map
    }

    fn owned(owner: &str, epoch: u64) -> MapRecord {
        map(Entry::Owned { owner: owner.parse().unwrap(), epoch: Epoch(epoch) })
    }

    fn draining(owner: &str, epoch: u64) -> MapRecord {
        let (owner, target) = (owner.parse().unwrap(), "b".parse().ok());
        map(Entry::Draining { owner, epoch: Epoch(epoch), target })
    }

    fn lease(holder: &str, resource: u64) -> Object {
        let a: MemberId = "a".parse().unwrap();
        let mut record = LeaseRecord::new(
            member_lease_name(&a),
            &holder.parse().unwrap(),
            Duration::from_secs(8),
        );
        record.version = ObjectVersion::numbered(resource);
        Object::Lease(record)
    }

    fn write(
        log: &mut HandoverLog,
        world: &World,
        step: [&MapRecord; 2],
        ms: u64,
    ) -> Vec<Handover> {
        log.sent(Some(step[0]), step[1], world, at(ms));
        log.completed(&step[1].cluster, true, at(ms + 5))
    }

    #[test]
    fn a_drain_is_timed_from_its_beginning() {
        let (mut log, mut world) = (HandoverLog::default(), World::default());
        world.apply(lease("a", 1), at(0));
        let (owned_a, draining_a, owned_b) = (owned("a", 4), draining("a", 4), owned("b", 5));
        assert_eq!(write(&mut log, &world, [&owned_a, &draining_a], 100), []);
        let done = write(&mut log, &world, [&draining_a, &owned_b], 900);
        assert_eq!(
            (done[0].reason, done[0].took),
            (HandoverCause::Live, Duration::from_millis(805))
        );
    }

    #[test]
    fn a_crash_is_timed_from_the_last_sign_of_life() {
        let (mut log, mut world) = (HandoverLog::default(), World::default());
        world.apply(lease("a", 1), at(1_000));
        world.apply(lease("c", 2), at(9_500));
        let done = write(&mut log, &world, [&owned("a", 4), &owned("b", 5)], 9_600);
        assert_eq!(
            (done[0].reason, done[0].took),
            (HandoverCause::Crash, Duration::from_millis(8_605))
        );
    }

    #[test]
    fn a_split_ends_when_its_halves_have_an_owner() {
        let (mut log, mut world) = (HandoverLog::default(), World::default());
        world.apply(lease("a", 1), at(0));
        let (owned_a, draining_a) = (owned("a", 4), draining("a", 4));
        write(&mut log, &world, [&owned_a, &draining_a], 100);
        let mut halves = MapRecord::new("east".parse().unwrap());
        for path in ["tdset/0/2", "tdset/1/2"] {
            let entry = Entry::Owned { owner: "a".parse().unwrap(), epoch: Epoch(5) };
            halves.entries_mut().insert(path.parse().unwrap(), entry);
        }
        let done = write(&mut log, &world, [&draining_a, &halves], 900);
        assert_eq!((done.len(), done[0].took), (1, Duration::from_millis(805)));
    }

    #[test]
    fn a_refused_write_ends_nothing() {
        let (mut log, world) = (HandoverLog::default(), World::default());
        log.sent(Some(&owned("a", 4)), &owned("b", 5), &world, at(1));
        assert_eq!(log.completed(&"east".parse().unwrap(), false, at(2)), []);
    }
}
