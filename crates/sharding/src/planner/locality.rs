//! Which members have a cache already that a shard needs.
//!
//! A cache is one kind of one cluster in one range. Only kinds that more than one group watches
//! matter, and by the construction of groups there are none unless a controller names its own
//! group; then all of this is empty and costs nothing.

use std::collections::BTreeMap;

use model::{ClusterName, GroupName, GroupTraits, Range, ShardId};

/// The most kinds that count as shared; what is beyond them is cached twice without being noticed.
pub(super) const MAX_SHARED_KINDS: usize = 64;

/// The kinds a group shares with others, one bit each.
pub(super) type Kinds = u64;

/// Who needs the same caches as whom.
#[derive(Debug, Default)]
pub(super) struct Locality {
    kinds: Vec<Kinds>,
    /// Per parcel: the place it is in, if it shares any kind.
    sites: Vec<Option<usize>>,
    /// Per cluster and range: the parcels there.
    parcels: Vec<Vec<usize>>,
}

impl Locality {
    /// Of parcels given by their shards and by the kinds they share.
    pub(super) fn of<'a>(parcels: impl Iterator<Item = (&'a ShardId, Kinds)> + Clone) -> Self {
        if parcels.clone().all(|(_, kinds)| kinds == 0) {
            return Self::default();
        }
        let mut locality = Self::default();
        let mut sites: BTreeMap<(&ClusterName, Range), usize> = BTreeMap::new();
        for (parcel, (shard, kinds)) in parcels.enumerate() {
            let site = (kinds != 0).then(|| {
                let site = *sites.entry((&shard.cluster, shard.range)).or_insert_with(|| {
                    locality.parcels.push(Vec::new());
                    locality.parcels.len() - 1
                });
                locality.parcels[site].push(parcel);
                site
            });
            locality.kinds.push(kinds);
            locality.sites.push(site);
        }
        locality
    }

    /// The seats where caches are that a parcel needs, each with one of them at least.
    pub(super) fn seats(&self, parcel: usize, at: impl Fn(usize) -> Option<usize>) -> Vec<usize> {
        let near = self.near(parcel).filter(|&other| self.kinds[other] & self.kinds[parcel] != 0);
        let mut seats: Vec<usize> = near.filter_map(at).collect();
        seats.sort_unstable();
        seats.dedup();
        seats
    }

    /// How many of the caches that a parcel needs are on a seat for others already.
    pub(super) fn shared(
        &self,
        parcel: usize,
        seat: usize,
        at: impl Fn(usize) -> Option<usize>,
    ) -> u32 {
        let here = self.near(parcel).filter(|&other| at(other) == Some(seat));
        let there = here.fold(0, |kinds, other| kinds | self.kinds[other]);
        self.kinds.get(parcel).map_or(0, |kinds| (kinds & there).count_ones())
    }

    fn near(&self, parcel: usize) -> impl Iterator<Item = usize> + '_ {
        let site = self.sites.get(parcel).copied().flatten();
        let others = site.map_or(&[][..], |site| &self.parcels[site]);
        others.iter().copied().filter(move |&other| other != parcel)
    }
}

/// The kinds of each group that some other group watches too.
pub(super) fn shared_kinds(
    groups: &BTreeMap<GroupName, GroupTraits>,
) -> BTreeMap<&GroupName, Kinds> {
    let mut watchers: BTreeMap<&str, Vec<&GroupName>> = BTreeMap::new();
    for (group, traits) in groups {
        for kind in &traits.kinds {
            watchers.entry(kind).or_default().push(group);
        }
    }
    let mut shared: BTreeMap<&GroupName, Kinds> = BTreeMap::new();
    let by_several = watchers.into_values().filter(|groups| groups.len() > 1);
    for (bit, groups) in by_several.take(MAX_SHARED_KINDS).enumerate() {
        for group in groups {
            *shared.entry(group).or_default() |= 1 << bit;
        }
    }
    shared
}
