//! Which version of the sharding protocol a fleet uses.
//!
//! Each Member reports which versions its process speaks; each ShardMap says in which one it is
//! written. The version in use follows from these alone: see [`in_use`].
//!
//! # Invariants
//! - A member that does not speak a map's version acts on none of its shards
//!   (`Tracker::withhold`), acknowledges no drain of them,
//!   replaces and deletes nothing, and leaves coordinating to others. If no other can, it coordinates the
//!   other maps: one map must not stop the fleet.
//! - A coordinator puts a map into another version only when every owner in it that may still act
//!   speaks that version (`a_map_changes_its_version_when_all_owners_speak_the_next`).
//! - Every member that owns shards speaks the version in use
//!   (`the_version_in_use_is_spoken_by_the_coordinator_and_by_owners`). A stray replica of a much
//!   older or newer release gets nothing and takes nothing away.
//!
//! Attacked by `releases_mix_under_faults`, and by the bugs `BelievesAllSpeak` and `ReadsAllVersions`.
//!
//! # Why each map says its version, and not one object for all
//! Whoever acts on an entry must know how to read it. A map and its version are one object: who sees the one sees the
//! other, and one compare-and-swap changes both (S4). Another object would come by another watch, earlier or later
//! than the maps. So a member of the old release could read a map of the next version by the rules of the present one.
//! To exclude that, each member would have to acknowledge the next version before the first map is written in it, and
//! one that hangs would hold up all of them; here only the owners in a map count. And a map from a backup, which may be
//! older than such an object, still says how to read it.
//!
//! # Making the next version
//! A change needs a new version if a member of the present one could act wrongly on what it reads.
//! Then
//! 1. raise the newest version in [`ProtocolVersions::SPOKEN`] and keep the oldest. This release
//!    must read, write and follow both, each map by the version it carries, until no member of the
//!    old release is left. Only the release after that may drop the old version;
//! 2. only add fields to Member, and make them optional: others read it before versions are agreed
//!    on. What gets a new meaning gets a new name;
//! 3. install the definitions (CRDs) before the first replica: an API server drops fields that they
//!    do not name, the version among them;
//! 4. say in the release notes that the old release must not replace all replicas at once: some
//!    replica that speaks both versions must live until the maps are back in the old one.

use model::MemberId;

use crate::record::MapRecord;
use crate::versions::{ProtocolVersions, UNREADABLE};
use crate::world::World;

/// The version in use when `coordinator`, which speaks `its` versions, coordinates. It is always one
/// of these: the newest that every live member speaks which has a version in common with the
/// coordinator, but none so old that a member which owns shards does not speak it.
pub fn in_use(world: &World, coordinator: &MemberId, its: ProtocolVersions) -> u32 {
    let others = world.members().iter().filter(|(id, member)| {
        *id != coordinator && may_live(world, id) && member.spec.versions().overlaps(its)
    });
    let mut common = its;
    for (id, member) in others {
        let theirs = member.spec.versions();
        if theirs == its {
            continue;
        }
        common.newest = common.newest.min(theirs.newest);
        if world.owners().contains_key(id) {
            common.oldest = common.oldest.max(theirs.oldest);
        }
    }
    common.newest.max(common.oldest)
}

/// Why a member that speaks `mine` cannot take part, and what to do about it; `None` if it can.
pub fn refusal(
    world: &World,
    me: &MemberId,
    mine: ProtocolVersions,
    namespace: &str,
) -> Option<String> {
    if !world.protocols().all(|version| mine.speaks(version)) {
        return unread(world, mine, namespace);
    }
    let coordinator = world.coordinator().filter(|coordinator| coordinator != me)?;
    let its = world.members().get(&coordinator)?.spec.versions();
    let version = in_use(world, &coordinator, its);
    (!mine.speaks(version)).then(|| {
        let fix = mine.fix(version);
        format!(
            "the fleet in namespace {namespace} of the home cluster, coordinated by {coordinator}, uses protocol version {version} and this member speaks {mine}: it gets no shards; fix: {fix}"
        )
    })
}

fn unread(world: &World, mine: ProtocolVersions, namespace: &str) -> Option<String> {
    let is_unread = |map: &&MapRecord| !mine.speaks(map.protocol) && map.protocol != UNREADABLE;
    let mut unread = world.maps().values().filter(is_unread);
    let first = unread.next()?;
    let more = match unread.count() {
        0 => String::new(),
        count => format!(" (and {count} more)"),
    };
    let (cluster, version, fix) = (&first.cluster, first.protocol, mine.fix(first.protocol));
    Some(format!(
        "shardmaps.leasehold.dev {cluster} in namespace {namespace} of the home cluster{more} is written in protocol version {version} and this member speaks {mine}: it acts on none of its shards, and coordinates the others only while no other member can; fix: {fix}"
    ))
}

/// Whether a member may still act, by its Lease: nobody took it and the member did not give it back.
fn may_live(world: &World, member: &MemberId) -> bool {
    let holds = |holder: &Option<String>| holder.as_deref() == Some(member.as_str());
    world.lease_of(member).is_none_or(|lease| holds(&lease.record.holder))
}

#[cfg(test)]
#[path = "protocol_tests.rs"]
mod tests;
