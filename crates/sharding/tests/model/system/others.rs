//! What others do to a fleet: people edit Leases, work makes a shard busy, a cache of home's API server lags.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use leasehold_sharding::api::ShardLoad;
use leasehold_sharding::node::Input;
use leasehold_sharding::record::{Kind, Object, Target, Write};

use super::{Edit, MEMBERS, Message, State};
use crate::process::{LONGEST, Watch};
use crate::store;

impl State {
    /// Somebody edits a member's Lease. No oracle judges that: what the members make of it counts.
    pub(super) fn edit(&mut self, member: usize, edit: Edit) {
        let id = self.process_mut(member).node.id().clone();
        let Some(mut lease) = self.store.lease_of(&id).cloned() else { return };
        match edit {
            Edit::Holder => lease.holder = None,
            Edit::Duration => lease.duration = Duration::from_secs(1),
        }
        let write = Write::Replace(Object::Lease(lease));
        let (_, commit) = Arc::make_mut(&mut self.store).write(write);
        let Some(event) = commit.as_ref().and_then(store::event) else { return };
        let told = |to| Message::Observation(to, Kind::Lease, event.clone());
        self.prompt.extend((0..MEMBERS).map(told));
    }

    /// A member's Member tells of a load. The member itself measures none, so it takes that back.
    pub(super) fn load(&mut self, member: usize) {
        let id = self.process_mut(member).node.id().clone();
        let target = Target { kind: Kind::Member, name: id.as_str().to_owned() };
        let Some(Object::Member(mut record)) = self.store.objects.get(&target).cloned() else {
            return;
        };
        let maps = self.store.objects.values();
        let mut entries = maps.filter_map(|object| match object {
            Object::Map(map) => map.entries.iter().find(|(_, entry)| entry.owner() == Some(&id)),
            _ => None,
        });
        let Some((path, _)) = entries.next() else { return };
        let shard = path.in_cluster(&"east".parse().expect("a name"));
        let load =
            ShardLoad { shard, busy: 900, heaviest: Some(90), events: 0, cached: 0, waiting: 0 };
        record.spec.loads = vec![load].into();
        let write = Write::Replace(Object::Member(record));
        let (_, commit) = Arc::make_mut(&mut self.store).write(write);
        let Some(event) = commit.as_ref().and_then(store::event) else { return };
        let told = |to| Message::Observation(to, Kind::Member, event.clone());
        self.prompt.extend((0..MEMBERS).map(told));
    }

    /// A list comes from a cache that lags. The watch from there delivers what it lacks when it will.
    pub(super) fn list_late(&mut self, member: usize, kind: Kind) {
        let Some((list, event)) = self.store.list_from_lagging_cache(kind) else { return };
        let watch = Watch::Stalled(LONGEST, VecDeque::from([event]));
        self.process_mut(member).watches.insert(kind, watch);
        self.tell(member, [Input::Observed(list)]);
    }
}
