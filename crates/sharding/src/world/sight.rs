//! Which Leases the world shows: all, or only the coordinator's and this member's own.

use model::MemberId;

use super::World;
use crate::lease::{self, COORDINATOR};
use crate::record::{Kind, Target};

/// Which Leases of home a member watches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LeasesSeen {
    /// All of them.
    #[default]
    All,
    /// The coordinator's.
    Coordinator,
}

impl LeasesSeen {
    /// Whether watches show that object, if these Leases are watched.
    pub fn shows(self, target: &Target) -> bool {
        self == Self::All || target.kind != Kind::Lease || target.name == COORDINATOR
    }
}

impl World {
    /// Which Leases the watch must show.
    pub(crate) fn leases_seen(&self) -> LeasesSeen {
        self.leases_seen
    }

    /// Whether all Leases are known: a list has shown them.
    pub(crate) fn knows_all_leases(&self) -> bool {
        self.leases_seen == LeasesSeen::All && self.lists_all
    }

    /// From now on the watch shows all Leases, from a list on.
    pub(crate) fn see_all_leases(&mut self) {
        (self.leases_seen, self.lists_all) = (LeasesSeen::All, false);
    }

    /// From now on the watch shows the coordinator's Lease only. Of the others, only its own is known to `me`:
    /// from the answers to its renewals.
    pub(crate) fn see_coordinators_lease(&mut self, me: &MemberId) {
        (self.leases_seen, self.lists_all) = (LeasesSeen::Coordinator, false);
        let own = lease::member_lease_name(me);
        self.leases.retain(|name, _| *name == own || name == COORDINATOR);
        self.revision += 1;
    }

    /// A list of that kind came.
    pub(super) fn listed(&mut self, kind: Kind) {
        let all = kind == Kind::Lease && self.leases_seen == LeasesSeen::All;
        let is_news = self.listed.insert(kind) || (all && !self.lists_all);
        self.lists_all |= all;
        self.revision += u64::from(is_news);
    }
}
