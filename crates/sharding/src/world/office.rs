//! What the coordinator's Lease says to all.

use model::{Epoch, MemberId};

use super::World;
use crate::lease::COORDINATOR;

impl World {
    /// The coordinator, by its Lease.
    pub fn coordinator(&self) -> Option<MemberId> {
        self.leases.get(COORDINATOR)?.record.holder.as_ref()?.parse().ok()
    }

    /// The epoch floor in the coordinator's Lease; `None` if it cannot be read or there is no Lease.
    pub(crate) fn durable_floor(&self) -> Option<Epoch> {
        self.leases.get(COORDINATOR)?.record.floor.known()
    }

    /// The installation to which the namespace belongs, if the coordinator's Lease says it.
    pub(crate) fn installation(&self) -> Option<&str> {
        self.leases.get(COORDINATOR)?.record.installation.as_deref()
    }

    /// Whether maps stay because they went with a mass of others, as the coordinator's Lease says.
    pub(crate) fn keeps_mass(&self) -> bool {
        self.leases.get(COORDINATOR).is_some_and(|lease| lease.record.mass)
    }
}
