//! What people see of a fleet, and what they do to its home cluster by hand.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_sharding::api::ShardPath;
use leasehold_sharding::lease::{COORDINATOR, LeaseRecord, member_lease_name};
use leasehold_sharding::record::{Kind, MapRecord, Object, Target, Write, WriteOutcome};
use model::MemberId;

use super::Fleet;

/// The version of a map that cannot be read.
const UNREADABLE: u32 = 0;

/// What somebody writes into the Lease of a member, or into the coordinator's.
#[derive(Clone, Copy, Debug)]
pub enum Edit {
    /// Another duration, in seconds.
    Duration(u64),
    /// Another holder, or none.
    Holder(Option<&'static str>),
    /// Nothing: somebody deletes it.
    Delete,
    /// The member as holder.
    Restore,
    /// Another installation, into the coordinator's.
    Installation(&'static str),
}

impl Fleet {
    /// The problems that a replica reports.
    pub fn problem(&self, replica: usize) -> Option<&String> {
        self.replicas[replica].node.problems().first()
    }

    /// Why a replica cannot do its part.
    pub fn hindrance(&self, replica: usize) -> Option<&String> {
        self.replicas[replica].node.hindrance()
    }

    /// Whether a replica believes that it coordinates.
    pub fn coordinates(&self, replica: usize) -> bool {
        let replica = &self.replicas[replica];
        replica.node.is_coordinator(replica.clock.read(self.now_us))
    }

    /// To which installation the coordinator's Lease says that the namespace belongs.
    pub fn named_installation(&self) -> Option<&str> {
        self.lease(COORDINATOR)?.installation.as_deref()
    }

    /// How many shards have an owner that runs no more.
    pub fn owned_by_the_dead(&self) -> usize {
        let live = self.replicas.iter().filter(|replica| !replica.gone);
        let live: Vec<_> = live.map(|replica| replica.node.id()).collect();
        self.server.owners().filter(|owner| !live.contains(owner)).count()
    }

    /// The present ids of the replicas.
    pub fn ids(&self) -> Vec<MemberId> {
        self.replicas.iter().map(|replica| replica.node.id().clone()).collect()
    }

    /// Which replica has each shard.
    pub fn placement(&self) -> BTreeMap<String, Option<usize>> {
        let ids = self.ids();
        let of = |owner: Option<&MemberId>| ids.iter().position(|id| Some(id) == owner);
        let maps = self.server.all_maps();
        maps.flat_map(|map| {
            let shard = |path: &ShardPath| format!("{}/{path}", map.cluster);
            map.entries
                .iter()
                .map(|(path, entry)| (shard(path), of(entry.owner())))
                .collect::<Vec<_>>()
        })
        .collect()
    }

    /// Whether every owner is a member that runs.
    pub fn owners_live(&self) -> bool {
        let lives = |owner| self.replicas.iter().any(|r| !r.gone && r.node.id() == owner);
        let mut entries = self.server.all_maps().flat_map(|map| map.entries.values());
        entries.all(|entry| entry.owner().is_some_and(lives))
    }

    /// Somebody changes the protocol version of a map, and nothing else. If nobody speaks it, members read no more.
    pub fn rewrite_map(&mut self, cluster: &str, protocol: u32) {
        self.edit_map(cluster, |map| {
            map.protocol = protocol;
            if protocol == UNREADABLE {
                map.entries_mut().clear();
            }
        });
    }

    /// The ShardMap of a cluster.
    pub fn map(&self, cluster: &str) -> &MapRecord {
        match self.server.get(Kind::Map, cluster) {
            Some(Object::Map(map)) => map,
            _ => panic!("{cluster} has no map"),
        }
    }

    /// Somebody edits a ShardMap.
    pub fn edit_map(&mut self, cluster: &str, edit: impl FnOnce(&mut MapRecord)) {
        let mut map = self.map(cluster).clone();
        edit(&mut map);
        let (outcome, _) = self.server.write(Write::Replace(Object::Map(map)));
        assert!(matches!(outcome, WriteOutcome::Done(_)), "{outcome:?}");
        self.tell_watches();
    }

    /// Somebody edits the Lease of a replica, if it has one.
    pub fn edit_lease(&mut self, replica: usize, edit: Edit) {
        let member = self.replicas[replica].node.id().clone();
        let name = match edit {
            Edit::Installation(_) => COORDINATOR.to_owned(),
            _ => member_lease_name(&member),
        };
        let Some(mut lease) = self.lease(&name).cloned() else { return };
        match edit {
            Edit::Delete => return self.delete_lease(&name),
            Edit::Duration(seconds) => lease.duration = Duration::from_secs(seconds),
            Edit::Holder(holder) => lease.holder = holder.map(str::to_owned),
            Edit::Restore => lease.holder = Some(member.as_str().to_owned()),
            Edit::Installation(name) => lease.installation = Some(name.to_owned()),
        }
        let (outcome, _) = self.server.write(Write::Replace(Object::Lease(lease)));
        assert!(matches!(outcome, WriteOutcome::Done(_)), "{outcome:?}");
        self.tell_watches();
    }

    /// The duration in the Lease of a replica.
    pub fn lease_seconds(&self, replica: usize) -> Option<u64> {
        let name = member_lease_name(self.replicas[replica].node.id());
        Some(self.lease(&name)?.duration.as_secs())
    }

    fn lease(&self, name: &str) -> Option<&LeaseRecord> {
        match self.server.get(Kind::Lease, name)? {
            Object::Lease(lease) => Some(lease),
            _ => None,
        }
    }

    /// Somebody deletes a Lease.
    pub fn delete_lease(&mut self, name: &str) {
        self.delete(Kind::Lease, name);
    }

    /// Somebody deletes a ShardMap, if it is there.
    pub fn delete_map(&mut self, cluster: &str) {
        if self.server.get(Kind::Map, cluster).is_some() {
            self.delete(Kind::Map, cluster);
        }
    }

    fn delete(&mut self, kind: Kind, name: &str) {
        let target = Target { kind, name: name.to_owned() };
        let version = self.server.get(kind, name).expect("it is there").version().clone();
        self.server.write(Write::Delete(target, version));
        self.tell_watches();
    }
}
