//! The epoch floor: the highest epoch of any ShardMap that was deleted.
//!
//! It is kept in an annotation of the coordinator's Lease, the one object that every coordinator
//! reads and writes by compare-and-swap before it coordinates. A map is deleted only once the Lease
//! as read back carries its highest epoch, and a map made anew begins from there: so a cluster that
//! returns goes on from its epochs, whoever is left of those that saw it go.
//!
//! # Invariants
//! - **S3** The floor never falls: whoever takes, renews or gives back the Lease carries it on
//!   ([`LeaseRecord`](crate::lease::LeaseRecord)), whoever makes the Lease anew begins from the
//!   highest that it has seen ([`World::highest_floor`]).
//! - One that cannot be read counts as higher than any: nothing is deleted, and nothing made for a
//!   cluster whose epochs nobody knows, until somebody repairs it.

use std::collections::BTreeMap;

use model::Epoch;

use crate::lease::COORDINATOR;
use crate::record::MapRecord;
use crate::world::World;

/// The annotation.
pub const ANNOTATION: &str = "leasehold.dev/epoch-floor";

/// What a Lease carries of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Floor {
    /// The highest epoch of any map that was deleted; the lowest epoch where none was.
    Known(Epoch),
    /// Something else, carried along as it is.
    Unreadable(String),
}

impl Default for Floor {
    fn default() -> Self {
        Self::Known(Epoch::default())
    }
}

impl Floor {
    /// Reads it from an object's annotations.
    pub fn read(annotations: Option<&BTreeMap<String, String>>) -> Self {
        let text = annotations.and_then(|annotations| annotations.get(ANNOTATION));
        text.map_or_else(Self::default, |text| match text.parse() {
            Ok(epoch) => Self::Known(Epoch(epoch)),
            Err(_) => Self::Unreadable(text.clone()),
        })
    }

    /// The annotations that carry it.
    pub fn annotations(&self) -> Option<BTreeMap<String, String>> {
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

    /// Not lower than that. One that cannot be read stays.
    #[must_use]
    pub fn raised(&self, to: Epoch) -> Self {
        match self {
            Self::Known(epoch) => Self::Known(to.max(*epoch)),
            Self::Unreadable(_) => self.clone(),
        }
    }
}

/// What is wrong with the floor that the coordinator's Lease carries, and how to repair it.
pub fn problem(world: &World, namespace: &str) -> Option<String> {
    let Floor::Unreadable(text) = &world.leases().get(COORDINATOR)?.record.floor else {
        return None;
    };
    let maps = world.maps().values().map(MapRecord::highest_epoch);
    let least = maps.max().unwrap_or_default().max(world.highest_floor());
    Some(format!(
        "leases.coordination.k8s.io {COORDINATOR} in namespace {namespace} of the home cluster: the annotation {ANNOTATION} is {text:?} and no epoch, so no ShardMap is deleted, nor made for a cluster that has none; set it to {least}, or to the highest epoch that a cluster removed long ago may have reached, if that was higher: kubectl annotate --overwrite --namespace {namespace} lease {COORDINATOR} {ANNOTATION}={least}"
    ))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use model::Moment;

    use super::*;
    use crate::lease::LeaseRecord;
    use crate::record::Object;

    fn read(text: &str) -> Floor {
        Floor::read(Some(&BTreeMap::from([(ANNOTATION.to_owned(), text.to_owned())])))
    }

    #[test]
    fn it_reads_back_as_written_and_is_not_there_before_the_first_deletion() {
        for floor in [Floor::default(), Floor::Known(Epoch(7)), Floor::Unreadable("7½".into())] {
            assert_eq!(Floor::read(floor.annotations().as_ref()), floor);
        }
        assert_eq!(Floor::default().annotations(), None);
    }

    #[test]
    fn it_never_falls() {
        assert_eq!(read("7").raised(Epoch(3)), Floor::Known(Epoch(7)));
        assert_eq!(read("7").raised(Epoch(9)), Floor::Known(Epoch(9)));
        for unreadable in ["", "-1", "seven", "7.0", "99999999999999999999"] {
            assert_eq!(read(unreadable).known(), None, "{unreadable:?}");
            assert_eq!(read(unreadable).raised(Epoch(9)), read(unreadable));
        }
    }

    #[test]
    fn whoever_has_the_lease_next_carries_it_on() {
        let me = "m-1".parse().unwrap();
        let mut lease = LeaseRecord::new(COORDINATOR.into(), &me, Duration::from_secs(8));
        lease.floor = read("7");
        assert_eq!(lease.taken_by(&me, Duration::from_secs(8)).floor, read("7"));
        assert_eq!(lease.released().floor, read("7"));
    }

    #[test]
    fn one_that_cannot_be_read_is_told_with_its_fix() {
        let mut world = World::default();
        let mut apply = |version: u64, floor: &str| {
            let me = "m-1".parse().unwrap();
            let mut lease = LeaseRecord::new(COORDINATOR.into(), &me, Duration::from_secs(8));
            lease.version.resource = version.to_string();
            lease.floor = read(floor);
            world.apply(Object::Lease(lease), Moment::default());
            problem(&world, "ns")
        };
        assert_eq!(apply(1, "7"), None);
        let told = apply(2, "seven").unwrap();
        assert!(told.contains("leasehold.dev/epoch-floor is \"seven\" and no epoch"), "{told}");
        assert!(
            told.ends_with("lease leasehold-coordinator leasehold.dev/epoch-floor=7"),
            "{told}"
        );
    }
}
