//! To whom the coordinator's Lease says that the namespace belongs, and whether that is an edit.
//!
//! Only a coordinator writes its installation there, when it takes the Lease and whenever it renews it. So if the
//! Lease said our name under a holder, and says another under the same one, somebody edited it. If that counted, one
//! command would stop the fleet: the holder, too, would leave the Lease alone.

//!
//! A Lease that is gone says nothing. Members of the installation that had the namespace write it anew at once; those of
//! another wait for one silence, in which any of the first that lives does so.

use model::{MemberId, Moment};

use super::Node;
use crate::lease::COORDINATOR;

/// One holder's time in office: the uid of the Lease, and who holds it.
pub(super) type Office = (String, MemberId);

/// Another installation, to which the namespace belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Elsewhere {
    /// Its name.
    its: String,
    /// Until when that counts, since the Lease does not say it any more.
    until: Option<Moment>,
}

impl Node {
    /// Notes who was in office when the Lease said last that the namespace is ours, and to whom else it belongs.
    pub(super) fn follow_office(&mut self, now: Moment) {
        let its = self.world.installation();
        if its == Some(self.config.installation.as_str()) {
            self.office = self.present_office();
        }
        let is_edited = self.office.is_some() && self.office == self.present_office();
        let before = self.elsewhere.as_ref();
        let after = match (its, before) {
            (Some(its), _) if its != self.config.installation && !is_edited => {
                Some(Elsewhere { its: its.to_owned(), until: None })
            }
            // What home shows is not known.
            (None, known) if !self.world.is_synced() => known.cloned(),
            (None, Some(Elsewhere { its, until })) => {
                let until = until.unwrap_or(now + self.config.lease.silence());
                (now < until).then(|| Elsewhere { its: its.clone(), until: Some(until) })
            }
            _ => None,
        };
        if after.as_ref() != before {
            self.elsewhere = after;
            // Another text than that of this revision.
            self.problems.0 = u64::MAX;
        }
    }

    /// The installation to which the namespace belongs, if it is another one.
    pub(super) fn foreign(&self) -> Option<&str> {
        self.elsewhere.as_ref().map(|elsewhere| elsewhere.its.as_str())
    }

    fn present_office(&self) -> Option<Office> {
        let record = &self.world.leases().get(COORDINATOR)?.record;
        Some((record.version.uid.clone(), self.world.coordinator()?))
    }
}
