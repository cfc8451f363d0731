//! What follows from all maps together, kept up to date with each that changes: a fleet has thousands of
//! maps, and a member asks this at every step.

use std::collections::{BTreeMap, BTreeSet};

use model::{ClusterName, MemberId, single};

use crate::handover::Entry;
use crate::record::MapRecord;
use crate::tally::Tally;
use crate::versions;

/// The index of the observed maps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    /// How many shards each owner has.
    owned: BTreeMap<MemberId, usize>,
    /// The clusters with shards that have no owner.
    unowned: BTreeSet<ClusterName>,
    /// The clusters that have a map.
    mapped: Tally,
    /// How many maps are in each version of the protocol.
    protocols: BTreeMap<u32, usize>,
}

impl Index {
    /// Takes in that a map came, changed or went.
    pub(super) fn replace(&mut self, before: Option<&MapRecord>, after: Option<&MapRecord>) {
        // In this order: what is removed is removed by the cluster's name.
        before.into_iter().for_each(|map| self.remove(map));
        after.into_iter().for_each(|map| self.add(map));
    }

    fn add(&mut self, map: &MapRecord) {
        for owner in map.entries.values().filter_map(Entry::owner) {
            *self.owned.entry(owner.clone()).or_default() += 1;
        }
        if map.entries.values().any(|entry| entry.owner().is_none()) {
            self.unowned.insert(map.cluster.clone());
        }
        if map.cluster.as_str() != single::FLEET {
            self.mapped = self.mapped.plus(&map.cluster);
        }
        *self.protocols.entry(map.protocol).or_default() += 1;
    }

    fn remove(&mut self, map: &MapRecord) {
        for owner in map.entries.values().filter_map(Entry::owner) {
            count_down(&mut self.owned, owner);
        }
        self.unowned.remove(&map.cluster);
        if map.cluster.as_str() != single::FLEET {
            self.mapped = self.mapped.minus(&map.cluster);
        }
        count_down(&mut self.protocols, &map.protocol);
    }

    pub(super) fn owners(&self) -> &BTreeMap<MemberId, usize> {
        &self.owned
    }

    pub(super) fn unowned(&self) -> &BTreeSet<ClusterName> {
        &self.unowned
    }

    pub(super) fn mapped(&self) -> Tally {
        self.mapped
    }

    pub(super) fn protocols(&self) -> impl Iterator<Item = u32> {
        self.protocols.keys().copied().filter(|version| *version != versions::UNREADABLE)
    }
}

fn count_down<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use model::{Epoch, Moment};
    use proptest::prelude::*;

    use super::*;
    use crate::api::ObjectVersion;
    use crate::record::Object;
    use crate::world::World;

    fn map(cluster: u8, owners: &[Option<u8>]) -> MapRecord {
        let mut map = MapRecord::new(format!("c{cluster}").parse().unwrap());
        for (n, owner) in owners.iter().enumerate() {
            let epoch = Epoch(1);
            let entry = match owner {
                Some(owner) => Entry::Owned { owner: format!("m-{owner}").parse().unwrap(), epoch },
                None => Entry::Unowned { epoch },
            };
            map.entries_mut().insert(format!("g{n}/0/1").parse().unwrap(), entry);
        }
        map
    }

    proptest! {
        /// Whatever came and went, the index is that of the maps which are there.
        #[test]
        fn it_is_as_if_built_anew(
            changes in prop::collection::vec(
                (0u8..4, prop::option::of(prop::collection::vec(prop::option::of(0u8..3), 0..4))),
                0..20,
            )
        ) {
            let mut world = World::default();
            for (step, (cluster, next)) in changes.into_iter().enumerate() {
                match next.map(|owners| map(cluster, &owners)) {
                    Some(mut next) => {
                        next.version = ObjectVersion { uid: "u".into(), resource: step.to_string() };
                        world.apply(Object::Map(next), Moment::default());
                    }
                    None => world.remove(&Object::Map(map(cluster, &[])).target(), None),
                }
                let mut anew = Index::default();
                world.maps().values().for_each(|map| anew.add(map));
                prop_assert_eq!(&world.index, &anew);
            }
        }
    }
}
