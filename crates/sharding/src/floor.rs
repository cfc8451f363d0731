//! The epoch floor: no owner is named at it or below it any more.
//!
//! An annotation of the coordinator's Lease holds it, because every coordinator reads that object and
//! writes it by compare-and-swap before it coordinates. A coordinator deletes a map only when the
//! Lease, as read back, carries the map's highest epoch. A new map begins from the floor. So a cluster
//! that returns goes on from its epochs, even if no member is left that saw it before.
//!
//! Home itself may be restored or emptied, and the floor with it, while no member is left. Therefore whoever
//! takes the Lease raises the floor to the time of day, in seconds since 1970; who waits because of a change of home's
//! history does so at the end (`src/history.rs`). A shard would need a new owner
//! each second, on average over a coordinator's whole time, to overtake it. Nothing else here is decided by a
//! wall clock: if it goes back between two coordinators, and home forgets the first, epochs may return. Where
//! anybody remembers, a wrong clock changes nothing: the floor never falls.
//!
//! # Invariants
//! - **S3** The floor never falls. A member that takes, renews or gives back the Lease keeps it
//!   ([`LeaseRecord`](crate::lease::LeaseRecord)); a member that creates the Lease begins from the
//!   highest floor it has seen (`World::highest_floor`), as soon as it need not wait.
//! - A floor that cannot be read counts as higher than any epoch. Until somebody repairs it, no map is
//!   deleted, and none is created for a cluster whose epochs nobody knows.
//! - No floor is above [`MAX_FLOOR`]: as many owners can follow as lie between that and [`MAX_READ`], more than
//!   there will ever be. One that is was written by hand, and cannot be read. The same holds of a ShardMap with an
//!   epoch above [`MAX_READ`]. That is below [`Epoch::MAX`], so that who writes the highest epoch that home takes
//!   leaves no map to which no owner can follow.

use std::collections::BTreeMap;

use model::Epoch;

/// The annotation.
pub const ANNOTATION: &str = "leasehold.dev/epoch-floor";
/// The latest time of day that is believed, in seconds since 1970: some 8,700 years.
pub(crate) const MAX_WALL: u64 = 1 << 38;
/// The highest floor that is believed.
pub(crate) const MAX_FLOOR: Epoch = Epoch(Epoch::MAX.0 / 2);
/// The highest epoch in a ShardMap that is believed.
pub(crate) const MAX_READ: Epoch = Epoch(MAX_FLOOR.0 + (1 << 40));

/// The floor as a Lease carries it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Floor {
    /// That epoch; the lowest one if there is no floor yet.
    Known(Epoch),
    /// A text that is no epoch. It stays as it is.
    Unreadable(String),
}

impl Default for Floor {
    fn default() -> Self {
        Self::Known(Epoch::default())
    }
}

impl Floor {
    /// Reads it from an object's annotations.
    pub(crate) fn read(annotations: Option<&BTreeMap<String, String>>) -> Self {
        let text = annotations.and_then(|annotations| annotations.get(ANNOTATION));
        text.map_or_else(Self::default, |text| match text.parse().map(Epoch) {
            Ok(epoch) if epoch <= MAX_FLOOR => Self::Known(epoch),
            _ => Self::Unreadable(text.clone()),
        })
    }

    /// The annotations that carry it.
    pub(crate) fn annotations(&self) -> Option<BTreeMap<String, String>> {
        let text = match self {
            Self::Known(epoch) if *epoch == Epoch::default() => return None,
            Self::Known(epoch) => epoch.to_string(),
            Self::Unreadable(text) => text.clone(),
        };
        Some(BTreeMap::from([(ANNOTATION.to_owned(), text)]))
    }

    /// The epoch, if it can be read.
    pub fn known(&self) -> Option<Epoch> {
        match self {
            Self::Known(epoch) => Some(*epoch),
            Self::Unreadable(_) => None,
        }
    }

    /// At least that epoch. A floor that cannot be read stays as it is.
    #[must_use]
    pub(crate) fn raised(&self, to: Epoch) -> Self {
        match self {
            Self::Known(epoch) => Self::Known(to.min(MAX_FLOOR).max(*epoch)),
            Self::Unreadable(_) => self.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::lease::{COORDINATOR, LeaseRecord};

    fn read(text: &str) -> Floor {
        Floor::read(Some(&BTreeMap::from([(ANNOTATION.to_owned(), text.to_owned())])))
    }

    #[test]
    fn it_reads_back_as_written_and_is_absent_before_the_first_deletion() {
        for floor in [Floor::default(), Floor::Known(Epoch(7)), Floor::Unreadable("7½".into())] {
            assert_eq!(Floor::read(floor.annotations().as_ref()), floor);
        }
        assert_eq!(Floor::default().annotations(), None);
    }

    #[test]
    fn it_never_falls() {
        assert_eq!(read("7").raised(Epoch(3)), Floor::Known(Epoch(7)));
        assert_eq!(read("7").raised(Epoch(9)), Floor::Known(Epoch(9)));
        assert_eq!(read("7").raised(Epoch::MAX).known(), Some(MAX_FLOOR));
        for unreadable in ["", "-1", "seven", "7.0", "99999999999999999999", "18446744073709551615"]
        {
            assert_eq!(read(unreadable).known(), None, "{unreadable:?}");
            assert_eq!(read(unreadable).raised(Epoch(9)), read(unreadable));
        }
    }

    #[test]
    fn the_next_holder_of_the_lease_keeps_it() {
        let me = "m-1".parse().unwrap();
        let mut lease = LeaseRecord::new(COORDINATOR.into(), &me, Duration::from_secs(8));
        lease.floor = read("7");
        assert_eq!(lease.taken_by(&me, Duration::from_secs(8)).floor, read("7"));
        assert_eq!(lease.released().floor, read("7"));
        lease.installation = Some("prod".to_owned());
        let taken = lease.taken_by(&me, Duration::from_secs(8));
        assert_eq!(
            (taken.installation, lease.released().installation),
            (lease.installation.clone(), lease.installation)
        );
    }
}
