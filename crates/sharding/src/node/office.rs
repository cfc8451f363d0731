//! To whom the coordinator's Lease says that the namespace belongs, and whether that is an edit.
//!
//! Only a coordinator writes its installation there, when it takes the Lease and whenever it renews it. Who takes it
//! becomes its holder and counts that. So if the Lease said our name, and says another under the same holder, or under
//! one who did not count, somebody edited it. If that counted, one command would stop the fleet: the holder, too, would
//! leave the Lease alone.
//!
//! A Lease that is gone says nothing. Members of the installation that had the namespace write it anew at once; those of
//! another wait for one silence, in which any of the first that lives does so.

use model::{MemberId, Moment};

use super::Node;
use crate::lease::COORDINATOR;

/// One holder's time in office.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Office {
    /// The uid of the Lease.
    uid: String,
    /// Who holds it, if that is a member.
    holder: Option<MemberId>,
    /// How often its holder changed.
    transitions: i32,
}

impl Office {
    /// Whether nobody took the Lease since it was the other.
    fn goes_on_from(&self, other: &Self) -> bool {
        let is_held_on = self.holder.is_some() && self.holder == other.holder;
        self.uid == other.uid && (is_held_on || self.transitions == other.transitions)
    }
}

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
        let present = self.present_office();
        let is_edited = present
            .zip(self.office.as_ref())
            .is_some_and(|(present, before)| present.goes_on_from(before));
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
            self.look_for_problems();
        }
    }

    /// The installation to which the namespace belongs, if it is another one.
    pub(super) fn foreign(&self) -> Option<&str> {
        self.elsewhere.as_ref().map(|elsewhere| elsewhere.its.as_str())
    }

    fn present_office(&self) -> Option<Office> {
        let record = &self.world.leases().get(COORDINATOR)?.record;
        let (uid, holder) = (record.version.uid.clone(), self.world.coordinator());
        Some(Office { uid, holder, transitions: record.transitions })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::api::ObjectVersion;
    use crate::config::{Config, LeaseTimings};
    use crate::lease::LeaseRecord;
    use crate::node::Input;
    use crate::record::{Object, Observation};

    /// The coordinator's Lease.
    fn lease(
        (uid, resource): (&str, u64),
        holder: Option<&str>,
        transitions: i32,
        installation: &str,
    ) -> Observation {
        let somebody = "m-1".parse().unwrap();
        let duration = LeaseTimings::default().duration;
        let record = LeaseRecord::new(COORDINATOR.to_owned(), &somebody, duration);
        Observation::Applied(Object::Lease(LeaseRecord {
            version: ObjectVersion { uid: uid.to_owned(), resource: resource.to_string() },
            holder: holder.map(str::to_owned),
            transitions,
            installation: Some(installation.to_owned()),
            ..record
        }))
    }

    /// Whoever edits the Lease, its holder too, does not stop the fleet; whoever takes it has the namespace.
    #[test]
    fn only_who_takes_the_lease_has_the_namespace() {
        for (uid, holder, transitions, is_elsewhere) in [
            ("u1", Some("m-1"), 3, false),
            ("u1", Some("m-1"), 9, false),
            ("u1", Some("somebody"), 3, false),
            ("u1", Some("NO MEMBER"), 3, false),
            ("u1", None, 3, false),
            ("u1", Some("x-1"), 4, true),
            ("u1", None, 4, true),
            ("u2", Some("m-1"), 3, true),
        ] {
            let now = Moment::default();
            let mut node = Node::new(Config::new("replica-0", BTreeSet::new(), 1), now);
            let ours = node.config.installation.clone();
            for event in [
                lease(("u1", 5), Some("m-1"), 3, &ours),
                lease((uid, 6), holder, transitions, "other"),
            ] {
                node.handle(Input::Observed(event), now);
                node.follow_office(now);
            }
            let expect = is_elsewhere.then_some("other");
            assert_eq!(node.foreign(), expect, "{uid} {holder:?} {transitions}");
        }
    }
}
