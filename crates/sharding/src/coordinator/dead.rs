//! Removes the objects of dead members.

use model::Moment;

use super::peers::Peers;
use super::{DEAD_KEPT, Plan, View};
use crate::handover::Entry;
use crate::record::{Kind, Target, Write};

/// Deletes the Members, and then the Leases, of members that have been gone for a while and that no map
/// names.
pub(super) fn collect(view: &View<'_>, peers: &Peers<'_>, now: Moment, plan: &mut Plan) {
    let targets = || {
        let entries = view.world.maps().values().flat_map(|map| map.entries.values());
        entries.filter_map(Entry::target)
    };
    for (member, state) in &peers.states {
        let Some(observed) = view.world.lease_of(member).filter(|_| state.is_gone()) else {
            continue;
        };
        let due = observed.changed + DEAD_KEPT;
        if now < due {
            plan.wake_at(due);
            continue;
        }
        let is_named =
            view.world.owners().contains_key(member) || targets().any(|target| target == member);
        // The Lease proves that it does not act, whatever a map says that nobody can read.
        if is_named || view.world.former_owners().any(|owner| owner == member) {
            continue;
        }
        plan.writes.push(match view.world.members().get(member) {
            Some(record) => {
                let target = Target { kind: Kind::Member, name: member.as_str().to_owned() };
                Write::Delete(target, record.version.clone())
            }
            None => {
                let target = Target { kind: Kind::Lease, name: observed.record.name.clone() };
                Write::Delete(target, observed.record.version.clone())
            }
        });
    }
}
