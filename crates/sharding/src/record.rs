//! The objects of the home cluster as this crate uses them, and the writes to them.
//!
//! Every write is bound to a version: a create to the absence of the object, a replace and a delete
//! to the exact version from which the decision was made. No write ignores what it replaces (S4).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use model::{ClusterName, ClusterUid, Epoch, MemberId};

use crate::api::{
    HomeHistory, Member, MemberSpec, Moves, ObjectVersion, ShardEntry, ShardMap, ShardMapSpec,
    ShardPath, Summary,
};
use crate::handover::Entry;
use crate::lease::LeaseRecord;
use crate::map_annotations;
use crate::versions;

/// The parts of a Member that this crate uses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MemberRecord {
    /// The member; also the object's name.
    pub id: MemberId,
    /// The version read.
    pub version: ObjectVersion,
    /// Its spec.
    pub spec: MemberSpec,
}

/// The parts of a ShardMap that this crate uses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MapRecord {
    /// The workload cluster; also the object's name.
    pub cluster: ClusterName,
    /// The version read.
    pub version: ObjectVersion,
    /// The highest epoch of any shard that was removed from the map. New shards start from it, so that
    /// a shard which returns never repeats an epoch.
    pub epoch_floor: Epoch,
    /// The version of the protocol in which it is written.
    pub protocol: u32,
    /// For which cluster it stands, if that is known: see [`crate::identity`].
    pub cluster_uid: Option<ClusterUid>,
    /// Which clusters had which names by which people may have paused shards of them: its own cluster, and one for
    /// which it stood before. That stays true, whatever becomes of the map.
    pub former: BTreeSet<(ClusterUid, ClusterName)>,
    /// The shards. Shared: plans and watches hand on maps that they do not change.
    pub entries: Arc<BTreeMap<ShardPath, Entry>>,
    /// Why and when they came to where they are. A move without a time is as old as the map's next version.
    pub moves: Moves,
}

/// An object of one of the three kinds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[expect(clippy::large_enum_variant, reason = "a list is taken apart as soon as it is read")]
pub enum Object {
    /// A Lease.
    Lease(LeaseRecord),
    /// A Member.
    Member(MemberRecord),
    /// A ShardMap.
    Map(MapRecord),
}

/// The kinds of the home cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `leases.coordination.k8s.io`
    Lease,
    /// `members.leasehold.dev`
    Member,
    /// `shardmaps.leasehold.dev`
    Map,
}

/// Names one object of the home cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
}

/// A write to the home cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Write {
    /// Create an object that must not exist.
    Create(Object),
    /// Replace exactly the version that the object carries.
    Replace(Object),
    /// Delete exactly that version.
    Delete(Target, ObjectVersion),
}

/// How a write ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum WriteOutcome {
    /// Written. Carries the object as it is now, or nothing after a delete.
    Done(Option<Object>),
    /// Refused because the object has another version. Carries the object as it was read after that,
    /// or nothing if there is none.
    Conflict(Option<Object>),
    /// Not known to be done: refused for another reason, or not answered in time.
    Failed,
}

/// What a watch of the home cluster shows.
#[derive(Clone, Debug, Hash)]
pub enum Observation {
    /// A complete, consistent list of one kind, with the list's resourceVersion.
    Listed(Kind, String, Vec<Object>),
    /// An object was added or changed.
    Applied(Object),
    /// An object was deleted. Carries its last state.
    Deleted(Object),
}

// === impl Observation ===

impl Observation {
    /// What it is about.
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Listed(kind, ..) => *kind,
            Self::Applied(object) | Self::Deleted(object) => object.target().kind,
        }
    }
}

// === impl MapRecord ===

impl MapRecord {
    /// A map without shards that is not created yet.
    pub fn new(cluster: ClusterName) -> Self {
        Self {
            cluster,
            version: ObjectVersion::default(),
            epoch_floor: Epoch::default(),
            protocol: versions::FIRST,
            cluster_uid: None,
            former: BTreeSet::new(),
            entries: Arc::default(),
            moves: Moves::default(),
        }
    }

    /// The names by which people may have paused shards of its cluster: the one that it has, and those that it had.
    pub fn names(&self) -> impl Iterator<Item = &ClusterName> {
        let is_own = |uid: &ClusterUid| self.cluster_uid.as_ref().is_none_or(|own| own == uid);
        let former = self.former.iter().filter(move |(uid, _)| is_own(uid)).map(|(_, name)| name);
        std::iter::once(&self.cluster).chain(former.filter(|name| **name != self.cluster))
    }

    /// The shards, to change them.
    pub fn entries_mut(&mut self) -> &mut BTreeMap<ShardPath, Entry> {
        Arc::make_mut(&mut self.entries)
    }

    /// The highest epoch that any owner of its shards ever had.
    pub(crate) fn highest_epoch(&self) -> Epoch {
        let epochs = self.entries.values().map(Entry::epoch);
        epochs.max().unwrap_or_default().max(self.epoch_floor)
    }

    /// The lowest epoch of the shards that share uids with this one of their group; `None` if there are none.
    pub(crate) fn lowest_over(&self, path: &ShardPath) -> Option<Epoch> {
        if let Some(entry) = self.entries.get(path) {
            return Some(entry.epoch());
        }
        let overlaps =
            |other: &ShardPath| other.group == path.group && other.range.overlaps(path.range);
        let over = self.entries.iter().filter(|(other, _)| overlaps(other));
        over.map(|(_, entry)| entry.epoch()).min()
    }

    /// Whether each shard that an earlier state of the map had is at its epoch or a higher one, or begins above it
    /// when it returns. So it is with all that coordinators write.
    pub(crate) fn goes_on_from(&self, before: &Self) -> bool {
        let next = |path| self.lowest_over(path).unwrap_or(self.epoch_floor);
        before.entries.iter().all(|(path, old)| next(path) >= old.epoch())
    }

    /// Whether none of its shards has an owner.
    pub(crate) fn is_unowned(&self) -> bool {
        self.entries.values().all(|entry| entry.owner().is_none())
    }

    /// Reads a ShardMap; `None` if its name is no cluster name.
    pub fn read(map: &ShardMap) -> Option<Self> {
        Some(Self {
            cluster: map.metadata.name.as_ref()?.parse().ok()?,
            version: ObjectVersion::read(&map.metadata),
            epoch_floor: map.spec.epoch_floor,
            protocol: map.spec.protocol_version,
            cluster_uid: map_annotations::uid(map.metadata.annotations.as_ref()),
            former: map_annotations::former(map.metadata.annotations.as_ref()),
            entries: map
                .spec
                .shards
                .iter()
                .map(|entry| (entry.shard.clone(), Entry::read(entry)))
                .collect::<BTreeMap<_, _>>()
                .into(),
            moves: Moves::read(&map.spec.shards),
        })
    }

    /// The object's spec, if it is written at that time of day.
    pub(crate) fn spec(&self, wall: Timestamp) -> ShardMapSpec {
        let entry = |(path, entry): (&ShardPath, &Entry)| ShardEntry {
            moved: self.moves.written(path, wall),
            ..entry.write(path)
        };
        ShardMapSpec {
            shards: self.entries.iter().map(entry).collect(),
            epoch_floor: self.epoch_floor,
            protocol_version: self.protocol,
            summary: self.summary(),
        }
    }

    fn summary(&self) -> Summary {
        let mut summary = Summary {
            shards: self.entries.len().try_into().unwrap_or(u32::MAX),
            ..Summary::default()
        };
        let mut owners: BTreeMap<&MemberId, u32> = BTreeMap::new();
        for entry in self.entries.values() {
            match entry {
                Entry::Unowned { .. } => summary.unowned += 1,
                Entry::Owned { .. } => summary.owned += 1,
                Entry::Draining { .. } => summary.draining += 1,
            }
            if let Some(owner) = entry.owner() {
                *owners.entry(owner).or_default() += 1;
            }
        }
        let mut owners: Vec<_> = owners.into_iter().collect();
        owners.sort_by_key(|&(owner, shards)| (std::cmp::Reverse(shards), owner));
        let texts: Vec<_> =
            owners.iter().map(|(owner, shards)| format!("{owner}={shards}")).collect();
        summary.owners = texts.join(",");
        summary
    }
}

// === impl MemberRecord ===

impl MemberRecord {
    /// Reads a Member; `None` if its name is no member id.
    pub fn read(member: &Member) -> Option<Self> {
        Some(Self {
            id: member.metadata.name.as_ref()?.parse().ok()?,
            version: ObjectVersion::read(&member.metadata),
            spec: MemberSpec {
                history: member.spec.history.filter(HomeHistory::is_credible),
                ..member.spec.clone()
            },
        })
    }
}

// === impl Object ===

impl Object {
    /// The object's kind and name.
    pub fn target(&self) -> Target {
        match self {
            Self::Lease(lease) => Target { kind: Kind::Lease, name: lease.name.clone() },
            Self::Member(member) => {
                Target { kind: Kind::Member, name: member.id.as_str().to_owned() }
            }
            Self::Map(map) => Target { kind: Kind::Map, name: map.cluster.as_str().to_owned() },
        }
    }

    /// The version it carries.
    pub fn version(&self) -> &ObjectVersion {
        match self {
            Self::Lease(lease) => &lease.version,
            Self::Member(member) => &member.version,
            Self::Map(map) => &map.version,
        }
    }

    /// Sets its version, for stores that keep records.
    pub fn set_version(&mut self, version: ObjectVersion) {
        match self {
            Self::Lease(lease) => lease.version = version,
            Self::Member(member) => member.version = version,
            Self::Map(map) => map.version = version,
        }
    }
}

// === impl Write ===

impl Write {
    /// The object that it writes to.
    pub fn target(&self) -> Target {
        match self {
            Self::Create(object) | Self::Replace(object) => object.target(),
            Self::Delete(target, _) => target.clone(),
        }
    }

    /// The verb, as RBAC names it.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Create(_) => "create",
            Self::Replace(_) => "update",
            Self::Delete(..) => "delete",
        }
    }
}

// === impl Kind and Target ===

impl Kind {
    /// The resource with its API group, as RBAC and kubectl name it.
    pub fn resource(self) -> &'static str {
        match self {
            Self::Lease => "leases.coordination.k8s.io",
            Self::Member => "members.leasehold.dev",
            Self::Map => "shardmaps.leasehold.dev",
        }
    }

    /// Objects in one page of a list: so many of the largest fit into the answer that is read.
    pub fn page(self) -> u32 {
        match self {
            Self::Lease => 500,
            // With what the server notes of who wrote which field, below 300 KiB each.
            Self::Map => 100,
            // Up to the 1.5 MiB that etcd takes.
            Self::Member => 20,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.resource(), self.name)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::api::{MoveCause, Moved};

    #[test]
    fn a_map_reads_back_as_written_and_sums_up_its_owners() {
        let owned = |member: &str, epoch| Entry::Owned {
            owner: member.parse().unwrap(),
            epoch: Epoch(epoch),
        };
        let mut record = MapRecord::new("east".parse().unwrap());
        record.epoch_floor = Epoch(2);
        record.protocol = 7;
        for (path, entry) in [
            ("a/0/1", owned("m-1", 3)),
            ("b/0/2", owned("m-2", 4)),
            ("b/1/2", owned("m-2", 4)),
            ("c/0/1", Entry::Unowned { epoch: Epoch(9) }),
            (
                "d/0/1",
                Entry::Draining {
                    owner: "m-1".parse().unwrap(),
                    epoch: Epoch(1),
                    target: Some("m-2".parse().unwrap()),
                },
            ),
        ] {
            record.entries_mut().insert(path.parse().unwrap(), entry);
        }
        let why = MoveCause::Balance;
        let moves = [("a/0/1".parse().unwrap(), Moved { why, at: None })];
        record.moves = Moves(Arc::new(moves.into()));
        let wall: Timestamp = "2026-11-26T04:00:00Z".parse().unwrap();
        let spec = record.spec(wall);
        assert_eq!(
            spec.summary,
            Summary { shards: 5, owned: 3, draining: 1, unowned: 1, owners: "m-1=2,m-2=2".into() }
        );
        let read = MapRecord::read(&ShardMap::new("east", spec)).unwrap();
        // What was written keeps its time.
        let moved = Moved { why, at: Some(Time(wall)) };
        assert_eq!(read.moves.0.values().collect::<Vec<_>>(), [&moved]);
        assert_eq!(read.spec(Timestamp::UNIX_EPOCH).shards, read.spec(wall).shards);
        assert_eq!(
            MapRecord { moves: Moves::default(), ..read },
            MapRecord { moves: Moves::default(), ..record }
        );
    }
}
