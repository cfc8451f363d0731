//! The safety rules S1 to S5, judged from outside: by what the store accepts and what the engines run.
//! Of what a member says about itself, only its validity counts.

use std::collections::BTreeMap;
use std::fmt;

use leasehold_sharding::api::ShardPath;
use leasehold_sharding::handover::Entry;
use leasehold_sharding::lease::{self, LeaseRecord};
use leasehold_sharding::record::{MapRecord, MemberRecord, Object};
use model::{Epoch, MemberId, ShardId};

use crate::process::Process;
use crate::store::{Commit, Store};

/// A rule that can be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    S1,
    S2,
    S3,
    S4,
    S5,
}

/// An event that must happen, because rules could hold only because nothing happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Milestone {
    /// A shard went from one live member to another.
    Handover,
    /// A shard went to another member after its owner's Lease was taken.
    Takeover,
    /// The same, before that Lease could run out: the owner's death was proved.
    Proof,
    /// Two members coordinated at one time.
    Overlap,
    /// A shard was split.
    Split,
    /// A map went into the next version of the protocol.
    NextVersion,
    /// A map was removed, because nobody has its cluster configured.
    Removal,
    /// A member read home again, because a list had shown an older state.
    ReadAgain,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// S1: whether two members act on one uid: on shards that share a part of a group's uids.
pub fn overlap<'a>(processes: impl Iterator<Item = &'a Process> + Clone) -> bool {
    let shares = |a: &ShardId, b: &ShardId| a.group == b.group && a.range.overlaps(b.range);
    let acts = |process: &Process, shard| {
        process.running.keys().any(|one| shares(one, shard) && process.acts_on(one))
    };
    let acting = |shard| processes.clone().filter(|process| acts(process, shard)).count();
    processes.clone().flat_map(|process| process.running.keys()).any(|shard| acting(shard) > 1)
}

/// The rule that a commit breaks, if any. `member` finds a live member by its id.
pub fn judge<'a>(
    commit: &Commit,
    epochs: &BTreeMap<ShardPath, Epoch>,
    member: impl Fn(&MemberId) -> Option<&'a Process>,
) -> Option<Rule> {
    match (&commit.before, &commit.after) {
        (_, Some(Object::Member(record))) => {
            member(&record.id).filter(|process| lies(record, process)).map(|_| Rule::S2)
        }
        (Some(Object::Map(_)), _) if !is_bound(commit) => Some(Rule::S4),
        (Some(Object::Map(before)), Some(Object::Map(after))) => {
            goes_back(before, after).then_some(Rule::S3)
        }
        (None, Some(Object::Map(map))) => repeats(map, epochs).then_some(Rule::S3),
        (_, Some(Object::Lease(record))) => {
            let loser = loser(record).and_then(|id| member(&id));
            loser.filter(|process| process.is_valid()).map(|_| Rule::S5)
        }
        _ => None,
    }
}

/// The milestone that a commit reaches.
pub fn milestone<'a>(
    commit: &Commit,
    store: &Store,
    member: impl Fn(&MemberId) -> Option<&'a Process>,
) -> Option<Milestone> {
    let (before, after) = match (&commit.before, &commit.after) {
        (Some(Object::Map(before)), Some(Object::Map(after))) => (before, after),
        (Some(Object::Map(_)), None) => return Some(Milestone::Removal),
        _ => return None,
    };
    if after.protocol > before.protocol {
        return Some(Milestone::NextVersion);
    }
    if after.entries.len() > before.entries.len() {
        return Some(Milestone::Split);
    }
    after.entries.iter().find_map(|(path, entry)| {
        let Entry::Owned { owner, .. } = entry else { return None };
        let from = before.entries.get(path)?.owner().filter(|from| *from != owner)?;
        let drained = matches!(before.entries[path], Entry::Draining { .. });
        match store.lease_of(from) {
            Some(lease) if loser(lease).is_some() => {
                lease.holder.is_some().then_some(Milestone::Takeover)
            }
            _ => (drained && member(from).is_some()).then_some(Milestone::Handover),
        }
    })
}

/// S2: whether a Member acknowledges the drain of a shard that its engine still runs.
fn lies(record: &MemberRecord, process: &Process) -> bool {
    let mut drains = record.spec.acknowledged_drains.iter();
    drains.any(|drain| process.running.get(&drain.shard) == Some(&drain.epoch))
}

/// S4: whether the write named the version that it replaced.
fn is_bound(commit: &Commit) -> bool {
    commit.expected.as_ref() == commit.before.as_ref().map(Object::version)
}

/// S3: whether a uid gets an owner without a higher epoch, or its epoch falls, through splits and merges too.
fn goes_back(before: &MapRecord, after: &MapRecord) -> bool {
    before.entries.iter().any(|(path, old)| {
        let mut heirs = after.entries.iter().filter(|(heir, _)| shares(heir, path)).peekable();
        let falls = |(heir, new): (&ShardPath, &Entry)| match new {
            _ if heir == path && new == old => false,
            Entry::Owned { .. } => new.epoch() <= old.epoch(),
            _ => new.epoch() < old.epoch(),
        };
        heirs.peek().is_none() || heirs.any(falls)
    })
}

/// S3: whether a map that is made anew names an owner at an epoch that there was before.
fn repeats(map: &MapRecord, epochs: &BTreeMap<ShardPath, Epoch>) -> bool {
    let known = |path: &ShardPath| {
        let sharing = epochs.iter().filter(|(known, _)| shares(known, path));
        sharing.map(|(_, epoch)| *epoch).max()
    };
    let mut owned = map.entries.iter().filter(|(_, entry)| entry.owner().is_some());
    owned.any(|(path, entry)| known(path).is_some_and(|known| entry.epoch() <= known))
}

fn shares(a: &ShardPath, b: &ShardPath) -> bool {
    a.group == b.group && a.range.overlaps(b.range)
}

/// The member whose own Lease this is, if another holds it.
fn loser(record: &LeaseRecord) -> Option<MemberId> {
    let subject = lease::subject(&record.name)?;
    (record.holder.as_deref() != Some(subject.as_str())).then_some(subject)
}
