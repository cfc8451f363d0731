//! Which Leases the watches of a replica show.

use leasehold_sharding::node::Input;
use leasehold_sharding::record::{Kind, Object, Observation};
use leasehold_sharding::world::LeasesSeen;

use super::{Bug, Fleet, Happening};

/// Whether a watch of these Leases shows an event.
pub(super) fn shows(leases: LeasesSeen, event: &Observation) -> bool {
    let (Observation::Applied(object) | Observation::Deleted(object)) = event else { return true };
    leases.shows(&object.target())
}

impl Fleet {
    /// The Leases that a replica watches.
    pub fn leases_seen(&self, replica: usize) -> LeasesSeen {
        self.replicas[replica].leases
    }

    /// A list of a kind, as the watch of a replica begins with it.
    pub(super) fn list(&mut self, replica: usize, kind: Kind) {
        let leases = self.replicas[replica].leases;
        let mut list = self.server.list(kind);
        if let Observation::Listed(_, _, objects) = &mut list {
            objects.retain(|object| leases.shows(&object.target()));
        }
        let now = self.replicas[replica].clock.read(self.now_us);
        for event in self.made_of(replica, list) {
            let event = self.seen(Input::Observed(event));
            self.replicas[replica].node.handle(event, now);
        }
    }

    /// What a replica makes of a list.
    fn made_of(&self, replica: usize, list: Observation) -> Vec<Observation> {
        let held = self.replicas[replica].node.world().maps();
        match list {
            Observation::Listed(Kind::Map, _, objects)
                if self.bug == Bug::BelievesGaps && !held.is_empty() =>
            {
                let listed: Vec<String> =
                    objects.iter().map(|object| object.target().name).collect();
                let gone = held.values().filter(|map| !listed.contains(&map.cluster.to_string()));
                let gone = gone.map(|map| Observation::Deleted(Object::Map(map.clone())));
                gone.chain(objects.into_iter().map(Observation::Applied)).collect()
            }
            list => vec![list],
        }
    }

    /// The node says which Leases to watch.
    pub(super) fn look_at_leases(&mut self, replica: usize, leases: LeasesSeen) {
        if self.replicas[replica].leases != leases {
            self.replicas[replica].leases = leases;
            let delay = self.delay();
            self.schedule(delay, replica, Happening::Leases);
        }
    }

    /// The watch of Leases begins anew.
    pub(super) fn relist_leases(&mut self, replica: usize) {
        let watcher = &self.replicas[replica];
        let silent_until = watcher.cut_off_until.max(watcher.frozen_until);
        let silent_until = silent_until.max(self.home_away_until);
        if silent_until > self.now_us {
            self.schedule(silent_until - self.now_us + 1, replica, Happening::Leases);
            return;
        }
        self.list(replica, Kind::Lease);
    }
}
