//! The version of a map that a draft replaces, and the one it starts from.

use std::borrow::Cow;

use model::ClusterName;

use super::View;
use super::peers::Spoken;
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
        spoken: &Spoken,
    ) -> Option<Cow<'a, MapRecord>> {
        self.map().map(Cow::Borrowed).or_else(|| restored(cluster, world, spoken))
    }
}

/// The first state of a map that is absent.
///
/// It is the deleted map, if the coordinator knows its last state for certain: it saw the deletion, or
/// no coordinator deleted the map, because its epochs would be durable then. Else it is a new map from
/// the epoch floor. `None` while the floor cannot be read.
fn restored<'a>(
    cluster: &ClusterName,
    world: &'a World,
    spoken: &Spoken,
) -> Option<Cow<'a, MapRecord>> {
    let (deleted, floor) = (world.former_map(cluster), world.floor());
    let known = deleted.filter(|deleted| {
        let is_certain =
            deleted.is_exact || floor.is_some_and(|floor| deleted.map.highest_epoch() > floor);
        is_certain && spoken.mine.speaks(deleted.map.protocol)
    });
    if let Some(known) = known {
        return Some(Cow::Borrowed(&known.map));
    }
    let epoch_floor = floor?.max(world.highest_gone());
    Some(Cow::Owned(MapRecord { epoch_floor, ..MapRecord::new(cluster.clone()) }))
}
