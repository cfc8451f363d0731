//! The version of a map that a draft replaces, and the one it starts from.

use std::borrow::Cow;

use model::ClusterName;

use super::View;
use super::peers::Peers;
use crate::record::MapRecord;
use crate::world::World;

/// The version of a map that a draft replaces.
pub(super) enum Base<'a> {
    /// The map as the home cluster has it. A write replaces exactly this version.
    Observed(&'a MapRecord),
    /// The map as a write under way will leave it. Planning goes on from there, but the next write
    /// waits until that one has ended.
    Pending(&'a MapRecord),
    /// The home cluster has no map. A write creates one.
    Absent,
}

impl<'a> Base<'a> {
    /// The base of a cluster's map now.
    pub(super) fn of(cluster: &ClusterName, view: &View<'a>) -> Self {
        match (view.pending.get(cluster), view.world.maps().get(cluster)) {
            (Some(pending), _) => Self::Pending(pending),
            (None, Some(observed)) => Self::Observed(observed),
            (None, None) => Self::Absent,
        }
    }

    /// The map, if there is one.
    pub(super) fn map(&self) -> Option<&'a MapRecord> {
        match self {
            Self::Observed(map) | Self::Pending(map) => Some(map),
            Self::Absent => None,
        }
    }

    /// The map that a draft starts from: the base, or in place of an absent map the one that
    /// [`restored`] gives.
    pub(super) fn start(
        &self,
        cluster: &ClusterName,
        world: &'a World,
        peers: &Peers<'_>,
    ) -> Option<Cow<'a, MapRecord>> {
        self.map().map(Cow::Borrowed).or_else(|| restored(cluster, world, peers))
    }
}

/// The first state of a map that is absent.
///
/// It is the deleted map as it was, if the coordinator saw its deletion. Else it is a new map from the epoch floor, after
/// one silence (`unseen`). Perhaps a coordinator had drained the map before, perhaps somebody deleted it while its
/// owners were at work, and these may not know it yet. So whoever had a shard last, as far as this coordinator knows,
/// has it again, at the next epoch, until its Lease is taken: a member does not overlap with itself. `None` while the
/// floor cannot be read.
fn restored<'a>(
    cluster: &ClusterName,
    world: &'a World,
    peers: &Peers<'_>,
) -> Option<Cow<'a, MapRecord>> {
    let former = world.former_map(cluster);
    if let Some(known) = former.filter(|former| peers.knows_exactly(former)) {
        return Some(Cow::Borrowed(&known.map));
    }
    let epoch_floor = world.floor()?.max(world.highest_gone());
    let mut map = MapRecord { epoch_floor, ..MapRecord::new(cluster.clone()) };
    let entries = former.into_iter().flat_map(|former| former.map.entries.iter());
    let kept = entries.filter_map(|(path, entry)| {
        let kept = entry.kept_above(epoch_floor)?;
        (!kept.owner().is_some_and(|owner| peers.is_over(owner))).then(|| (path.clone(), kept))
    });
    *map.entries_mut() = kept.collect();
    Some(Cow::Owned(map))
}
