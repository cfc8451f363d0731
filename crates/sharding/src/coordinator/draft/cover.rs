//! A draft's shards cover each uid of each group once, whatever somebody wrote into the map.

use std::collections::BTreeSet;

use model::{Range, single};

use super::Draft;
use crate::api::{MAX_SHARDS, ShardPath};
use crate::coordinator::peers::Peers;
use crate::cover;
use crate::handover::Entry;

impl Draft<'_> {
    /// Drains the shards that share uids with others of their group. Once none of these has an owner, the widest stay.
    pub(super) fn keep_the_widest(&mut self) {
        let doubled: BTreeSet<ShardPath> =
            cover::doubled(self.desired.entries.keys()).into_iter().cloned().collect();
        if doubled.is_empty() {
            return;
        }
        self.change_all(|path, entry| doubled.contains(path).then(|| entry.drain(None)));
        for path in &doubled {
            let of_group = || doubled.iter().filter(|other| other.group == path.group);
            if of_group().any(|other| self.owner(other).is_some()) {
                continue;
            }
            // The first of a group that is not covered is the widest, and stays for all of them.
            let is_wider = |other: &&ShardPath| *other != path && other.range.covers(path.range);
            if let Some(wider) = of_group().find(is_wider).cloned()
                && let Some(gone) = self.desired.to_mut().entries_mut().remove(path)
            {
                let epoch = gone.epoch();
                self.change(&wider, |entry| Entry::Unowned { epoch: entry.epoch().max(epoch) });
            }
        }
        self.doubled = cover::doubled(self.desired.entries.keys()).into_iter().cloned().collect();
    }

    /// Adds what lacks of the groups that have a place here.
    pub(super) fn add_missing(&mut self, peers: &Peers<'_>) {
        let mut missing: Vec<(ShardPath, Entry)> = Vec::new();
        // Both are in the order of the groups.
        let mut known = self.desired.entries.iter().peekable();
        let (cluster, mut ranges) = (&self.desired.cluster, Vec::new());
        for group in peers.groups.keys().filter(|group| single::lies_in(group, cluster)) {
            while known.next_if(|(path, _)| path.group < *group).is_some() {}
            let mut epoch = self.desired.epoch_floor;
            ranges.clear();
            while let Some((path, entry)) = known.next_if(|(path, _)| path.group == *group) {
                ranges.push(path.range);
                epoch = epoch.max(entry.epoch());
            }
            let gaps = cover::gaps(Range::WHOLE, &ranges).into_iter();
            missing.extend(gaps.map(|range| {
                (ShardPath { group: group.clone(), range }, Entry::Unowned { epoch })
            }));
        }
        let room = MAX_SHARDS.saturating_sub(self.desired.entries.len());
        if !missing.is_empty() {
            self.desired.to_mut().entries_mut().extend(missing.into_iter().take(room));
        }
    }
}
