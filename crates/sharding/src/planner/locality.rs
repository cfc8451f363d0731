//! Which members already have what a shard needs: connections to its cluster, and caches of it.
//!
//! A cache holds one kind of one cluster in one range. Only kinds that several groups watch matter.
//! Groups are built so that there are none, unless a controller names its own group. What all groups share in a
//! cluster are its connections and its series of metrics. A fleet with one group has nothing to share, and all of
//! this is empty and costs nothing.

use std::collections::BTreeMap;

use model::{ClusterName, GroupName, GroupTraits, Range, ShardId};

/// The most kinds that count as shared. The planner ignores that further kinds are cached twice.
pub(super) const MAX_SHARED_KINDS: usize = 63;

/// What a group shares with others: kinds, one bit each, and [`CONNECTIONS`].
pub(super) type Kinds = u64;

/// The connections to the cluster, which count as one more kind.
const CONNECTIONS: Kinds = 1 << MAX_SHARED_KINDS;

/// Which units need the same caches.
#[derive(Debug, Default)]
pub(super) struct Locality {
    kinds: Vec<Kinds>,
    /// Per unit: its cluster and range as a number, if it shares any kind.
    areas: Vec<Option<usize>>,
    /// Per cluster and range: the units in it.
    units: Vec<Vec<usize>>,
}

impl Locality {
    /// The locality of units, each given by its shard and the kinds it shares. Those that share kinds are in the order
    /// of their clusters.
    pub(super) fn of<'a>(units: impl Iterator<Item = (&'a ShardId, Kinds)> + Clone) -> Self {
        if units.clone().all(|(_, kinds)| kinds == 0) {
            return Self::default();
        }
        let mut locality = Self::default();
        let mut here: Option<&ClusterName> = None;
        let mut areas: BTreeMap<Range, usize> = BTreeMap::new();
        for (unit, (shard, kinds)) in units.enumerate() {
            let area = (kinds != 0).then(|| {
                if here.replace(&shard.cluster) != Some(&shard.cluster) {
                    areas.clear();
                }
                let area = *areas.entry(shard.range).or_insert_with(|| {
                    locality.units.push(Vec::new());
                    locality.units.len() - 1
                });
                locality.units[area].push(unit);
                area
            });
            locality.kinds.push(kinds);
            locality.areas.push(area);
        }
        locality
    }

    /// The members that have something that a unit needs.
    pub(super) fn members(&self, unit: usize, at: impl Fn(usize) -> Option<usize>) -> Vec<usize> {
        let near = self.near(unit).filter(|&other| self.kinds[other] & self.kinds[unit] != 0);
        let mut members: Vec<usize> = near.filter_map(at).collect();
        members.sort_unstable();
        members.dedup();
        members
    }

    /// How much of what a unit needs a member already has for other units.
    pub(super) fn shared(
        &self,
        unit: usize,
        member: usize,
        at: impl Fn(usize) -> Option<usize>,
    ) -> u32 {
        let here = self.near(unit).filter(|&other| at(other) == Some(member));
        let there = here.fold(0, |kinds, other| kinds | self.kinds[other]);
        self.kinds.get(unit).map_or(0, |kinds| (kinds & there).count_ones())
    }

    fn near(&self, unit: usize) -> impl Iterator<Item = usize> + '_ {
        let area = self.areas.get(unit).copied().flatten();
        let others = area.map_or(&[][..], |area| &self.units[area]);
        others.iter().copied().filter(move |&other| other != unit)
    }
}

/// The kinds of each group that some other group watches too, and the connections, if there is another group.
pub(super) fn shared_kinds(
    groups: &BTreeMap<GroupName, GroupTraits>,
) -> BTreeMap<&GroupName, Kinds> {
    if groups.len() < 2 {
        return BTreeMap::new();
    }
    let mut watchers: BTreeMap<&str, Vec<&GroupName>> = BTreeMap::new();
    for (group, traits) in groups {
        for kind in &traits.kinds {
            watchers.entry(kind).or_default().push(group);
        }
    }
    let mut shared: BTreeMap<&GroupName, Kinds> =
        groups.keys().map(|group| (group, CONNECTIONS)).collect();
    let by_several = watchers.into_values().filter(|groups| groups.len() > 1);
    for (bit, groups) in by_several.take(MAX_SHARED_KINDS).enumerate() {
        for group in groups {
            *shared.entry(group).or_default() |= 1 << bit;
        }
    }
    shared
}
