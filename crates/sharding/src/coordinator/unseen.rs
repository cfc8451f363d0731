//! Absent maps of which this coordinator does not know for certain how they were.
//!
//! Somebody may have deleted such a map before this coordinator saw it, or after it changed unseen. Whoever was named as
//! owner in it may not have noticed yet and go on, while its Lease is valid as ever. So no map takes its place before
//! one silence has passed: since the first list of all maps, if that lacked it, else since this coordinator misses it.
//! Not even the owners of which the coordinator knows get their shards back before: after what it saw last, others may
//! have got them. In that time the watch of a member shows it what has become of the map.
//!
//! Nobody waits if it is certain that no such owner is there: if no other member may act, or if the fleet began with this
//! coordinator. Nor does a cluster that comes when the first list is older than that.

use std::collections::BTreeMap;

use model::{ClusterName, Moment};

use super::draft::{Draft, Drafts};
use super::peers::Peers;
use super::{Plan, View};

/// The clusters whose shards wait for owners that this coordinator does not know, and until when. The next coordinator
/// begins anew.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Unseen(BTreeMap<ClusterName, Moment>);

impl Unseen {
    /// Makes shards without an owner wait where another member may act for them.
    pub(super) fn follow(
        &mut self,
        view: &View<'_>,
        peers: &Peers<'_>,
        drafts: &mut Drafts<'_>,
        now: Moment,
        plan: &mut Plan,
    ) {
        if is_alone(view, peers) {
            self.0.clear();
            return;
        }
        let is_absent = |name: &ClusterName| drafts.get(name).is_some_and(Draft::is_absent);
        self.0.retain(|name, until| now < *until || is_absent(name));
        let began = view.world.began_with(view.me);
        let unseen_until = view.world.unseen_until(view.timings, now).filter(|_| !began);
        for (name, draft) in drafts {
            if draft.is_absent() && !self.0.contains_key(*name) {
                let until = match view.world.former_map(name) {
                    Some(former) if peers.knows_exactly(former) => None,
                    None if !view.world.has_forgotten_maps() => unseen_until,
                    _ => Some(now + view.world.silence(view.timings, now)),
                };
                self.0.extend(until.map(|until| ((*name).clone(), until)));
            }
            if let Some(until) = self.0.get(*name).filter(|until| now < **until) {
                draft.await_owners();
                plan.wake_at(*until);
            }
        }
    }
}

/// Whether no other member than the coordinator may act.
fn is_alone(view: &View<'_>, peers: &Peers<'_>) -> bool {
    let mut others = peers.states.iter().filter(|(id, _)| *id != view.me);
    peers.missing.is_empty() && !others.any(|(_, state)| state.may_act())
}
