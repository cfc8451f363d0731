//! To whom the coordinator's Lease says that the namespace belongs, and whether that is an edit.
//!
//! Only a coordinator writes its installation there, when it takes the Lease and whenever it renews it. So if the
//! Lease said our name under a holder, and says another under the same one, somebody edited it. If that counted, one
//! command would stop the fleet: the holder, too, would leave the Lease alone.

use model::MemberId;

use super::Node;
use crate::lease::COORDINATOR;

/// One holder's time in office: the uid of the Lease, and who holds it.
pub(super) type Office = (String, MemberId);

impl Node {
    /// Notes who was in office when the Lease said last that the namespace is ours.
    pub(super) fn follow_office(&mut self) {
        if self.world.installation() == Some(self.config.installation.as_str()) {
            self.office = self.present_office();
        }
    }

    /// Whether the namespace belongs to another installation.
    pub(super) fn is_foreign(&self) -> bool {
        let its = self.world.installation();
        let is_edited = || self.office.is_some() && self.office == self.present_office();
        its.is_some_and(|its| its != self.config.installation) && !is_edited()
    }

    fn present_office(&self) -> Option<Office> {
        let record = &self.world.leases().get(COORDINATOR)?.record;
        Some((record.version.uid.clone(), self.world.coordinator()?))
    }
}
