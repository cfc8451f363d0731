//! Which Leases the world shows: all, or only the coordinator's and this member's own. And since when it shows maps.

use model::{MemberId, Moment};

use super::World;
use super::durations::Durations;
use crate::config::LeaseTimings;
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

/// The first list of all maps.
#[derive(Clone, Copy, Debug)]
pub(super) struct FirstMaps {
    at: Moment,
    is_empty: bool,
}

impl FirstMaps {
    /// What decisions depend on.
    pub(super) fn essence(self, durations: &Durations) -> (Moment, bool) {
        (durations.after(self.at), self.is_empty)
    }
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

    /// Until when somebody may act by a map that this member never saw, because it was gone before the first list of all
    /// maps. `None` if that is over.
    pub(crate) fn unseen_until(&self, timings: LeaseTimings, now: Moment) -> Option<Moment> {
        let until = self.first_maps?.at + self.silence(timings, now);
        (now < until).then_some(until)
    }

    /// Whether nobody coordinated before `me`, as far as the coordinator's Lease tells.
    pub(crate) fn is_first_coordinator(&self, me: &MemberId) -> bool {
        let lease = self.leases.get(COORDINATOR).map(|lease| &lease.record);
        let is_first = |record: &lease::LeaseRecord| {
            record.transitions == 0 && record.holder.as_deref() == Some(me.as_str())
        };
        lease.is_none_or(is_first)
    }

    /// Whether the fleet began with the coordinator `me`: home had no map before.
    pub(crate) fn began_with(&self, me: &MemberId) -> bool {
        self.first_maps.is_none_or(|first| first.is_empty) && self.is_first_coordinator(me)
    }

    /// A list of that kind came.
    pub(super) fn listed(&mut self, kind: Kind, is_empty: bool, now: Moment) {
        if kind == Kind::Map {
            self.first_maps.get_or_insert(FirstMaps { at: now, is_empty });
        }
        let all = kind == Kind::Lease && self.leases_seen == LeasesSeen::All;
        let is_news = self.listed.insert(kind) || (all && !self.lists_all);
        self.lists_all |= all;
        self.revision += u64::from(is_news);
    }
}
