//! Which versions of the protocol members speak, and which one a fleet uses.
//!
//! Each member tells in its Member which versions it speaks; each ShardMap tells in which one it is
//! written. The version in use follows from these alone: see [`in_use`].
//!
//! # Invariants
//! - Who does not speak a map's version acts on none of its shards
//!   ([`Tracker::withhold`](crate::ownership::Tracker::withhold)), acknowledges no drain of them,
//!   replaces and deletes nothing, and leaves coordinating to others.
//! - A coordinator puts a map into another version only when every owner in it that may still act
//!   speaks that one (`a_map_changes_its_version_when_all_owners_speak_the_next`).
//! - The version in use never shuts out a member that owns shards
//!   (`the_version_in_use_is_spoken_by_the_coordinator_and_by_owners`): a stray replica of a much
//!   older or newer release gets nothing and takes nothing away.
//!
//! # Making the next version
//! A change is a new version if a member of the present one could act wrongly on what it reads. Then
//! 1. raise [`Versions::SPOKEN`]'s newest version and keep the oldest: this release must read, write
//!    and follow both, each map by the version that it carries, until no member of the old release
//!    is left; only the release after that may drop the old version;
//! 2. only ever add fields, all optional, to Member: it is read before versions are agreed on, and
//!    what others must take in a new sense they must find under a new name;
//! 3. install the definitions (CRDs) before the first replica: an API server drops what they do not
//!    name, the version among it;
//! 4. say in the release's notes that all replicas must not be replaced at once by the old release:
//!    some replica that speaks both must live until the maps are back in the old version.

use std::collections::BTreeSet;
use std::fmt;

use model::MemberId;

use crate::handover::Entry;
use crate::world::World;

/// The version of a ShardMap that names none.
pub const FIRST: u32 = 1;

/// The versions of the protocol that a member speaks, both ends among them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Versions {
    /// The oldest.
    pub oldest: u32,
    /// The newest.
    pub newest: u32,
}

// === impl Versions ===

impl Versions {
    /// What this code speaks.
    pub const SPOKEN: Self = Self { oldest: FIRST, newest: FIRST };

    /// Whether a version is among them.
    pub fn speaks(self, version: u32) -> bool {
        (self.oldest..=self.newest).contains(&version)
    }

    /// Whether a version is among these and those.
    pub fn meets(self, other: Self) -> bool {
        self.oldest.max(other.oldest) <= self.newest.min(other.newest)
    }

    /// What a Member tells of the oldest, beside the newest.
    pub fn told_oldest(self) -> Option<u32> {
        (self.oldest < self.newest).then_some(self.oldest)
    }

    /// What to do about a fleet that uses a version which is not among these.
    pub fn cure(self, version: u32) -> &'static str {
        if version > self.newest {
            "upgrade this replica to the release of the others, or roll the others back"
        } else {
            "roll this replica back to the release of the others, or upgrade all by way of a \
             release that speaks both versions"
        }
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.oldest == self.newest {
            write!(f, "protocol version {}", self.newest)
        } else {
            write!(f, "protocol versions {} to {}", self.oldest, self.newest)
        }
    }
}

/// The version in use when `coordinator`, which speaks `its` versions, coordinates: the newest that
/// all live members speak with whom it has one in common, but none so old that a member which owns
/// shards does not speak it. It is always one of the coordinator's.
pub fn in_use(world: &World, coordinator: &MemberId, its: Versions) -> u32 {
    let others = world.members().iter().filter(|(id, member)| {
        *id != coordinator && may_live(world, id) && member.spec.versions().meets(its)
    });
    let mut owners = None;
    let mut common = its;
    for (id, member) in others {
        let theirs = member.spec.versions();
        if theirs == its {
            continue;
        }
        common.newest = common.newest.min(theirs.newest);
        if owners.get_or_insert_with(|| owners_in(world)).contains(id) {
            common.oldest = common.oldest.max(theirs.oldest);
        }
    }
    common.newest.max(common.oldest)
}

/// What a member that speaks `mine` cannot take part in, and what to do about it: one text, or none.
pub fn refusal(world: &World, me: &MemberId, mine: Versions, namespace: &str) -> Option<String> {
    let mut unread = world.maps().values().filter(|map| !mine.speaks(map.protocol));
    if let Some(first) = unread.next() {
        let more = match unread.count() {
            0 => String::new(),
            count => format!(" (and {count} more)"),
        };
        let (cluster, version, cure) = (&first.cluster, first.protocol, mine.cure(first.protocol));
        return Some(format!(
            "shardmaps.leasehold.dev {cluster} in namespace {namespace} of the home cluster{more} is written in protocol version {version} and this member speaks {mine}: it acts on none of its shards and does not coordinate; {cure}"
        ));
    }
    let coordinator = world.coordinator().filter(|coordinator| coordinator != me)?;
    let its = world.members().get(&coordinator)?.spec.versions();
    let version = in_use(world, &coordinator, its);
    (!mine.speaks(version)).then(|| {
        let cure = mine.cure(version);
        format!(
            "the fleet in namespace {namespace} of the home cluster, coordinated by {coordinator}, uses protocol version {version} and this member speaks {mine}: it gets no shards; {cure}"
        )
    })
}

/// Whether a member may still act, by its Lease: nobody has taken it, and it was not given back.
fn may_live(world: &World, member: &MemberId) -> bool {
    let holds = |holder: &Option<String>| holder.as_deref() == Some(member.as_str());
    world.lease_of(member).is_none_or(|lease| holds(&lease.record.holder))
}

fn owners_in(world: &World) -> BTreeSet<&MemberId> {
    world.maps().values().flat_map(|map| map.entries.values()).filter_map(Entry::owner).collect()
}

#[cfg(test)]
#[path = "protocol_tests.rs"]
mod tests;
