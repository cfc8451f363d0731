//! What people see of a fleet, and what they do to its home cluster by hand.

use leasehold_sharding::record::{Kind, MapRecord, Object, Target, Write, WriteOutcome};

use super::Fleet;

impl Fleet {
    /// The problems that a replica reports.
    pub fn problem(&self, replica: usize) -> Option<&String> {
        self.replicas[replica].node.problems().first()
    }

    /// Whether a replica believes that it coordinates.
    pub fn coordinates(&self, replica: usize) -> bool {
        let replica = &self.replicas[replica];
        replica.node.is_coordinator(replica.clock.read(self.now_us))
    }

    /// How many shards have an owner that runs no more.
    pub fn owned_by_the_dead(&self) -> usize {
        let live = self.replicas.iter().filter(|replica| !replica.gone);
        let live: Vec<_> = live.map(|replica| replica.node.id()).collect();
        self.server.owners().filter(|owner| !live.contains(owner)).count()
    }

    /// Somebody changes the protocol version of a map, and nothing else.
    pub fn rewrite_map(&mut self, cluster: &str, protocol: u32) {
        let Some(Object::Map(map)) = self.server.get(Kind::Map, cluster) else {
            panic!("{cluster} has no map");
        };
        let map = MapRecord { protocol, ..map.clone() };
        let (outcome, _) = self.server.write(Write::Replace(Object::Map(map)));
        assert!(matches!(outcome, WriteOutcome::Done(_)), "{outcome:?}");
        self.tell_watches();
    }

    /// Somebody deletes a Lease.
    pub fn delete_lease(&mut self, name: &str) {
        let target = Target { kind: Kind::Lease, name: name.to_owned() };
        let version = self.server.get(Kind::Lease, name).expect("it is there").version().clone();
        self.server.write(Write::Delete(target, version));
        self.tell_watches();
    }
}
