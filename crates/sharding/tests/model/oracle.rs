//! The safety rules S1 to S5, judged from outside: by what the store accepts and what the engines run.
//! Of what a member says about itself, only its validity counts.

use std::fmt;

use leasehold_sharding::handover::Entry;
use leasehold_sharding::lease::{self, LeaseRecord};
use leasehold_sharding::record::{MapRecord, MemberRecord, Object};
use model::MemberId;

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
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// S1: whether two members act on one shard.
pub fn overlap<'a>(processes: impl Iterator<Item = &'a Process> + Clone) -> bool {
    let acting = |shard| processes.clone().filter(|process| process.acts_on(shard)).count();
    processes.clone().flat_map(|process| process.running.keys()).any(|shard| acting(shard) > 1)
}

/// The rule that a commit breaks, if any. `member` finds a live member by its id.
pub fn judge<'a>(
    commit: &Commit,
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
    let (Some(Object::Map(before)), Some(Object::Map(after))) = (&commit.before, &commit.after)
    else {
        return None;
    };
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

/// S3: whether a shard gets an owner without a higher epoch, or its epoch falls.
fn goes_back(before: &MapRecord, after: &MapRecord) -> bool {
    before.entries.iter().any(|(path, old)| match after.entries.get(path) {
        Some(new @ Entry::Owned { .. }) if new != old => new.epoch() <= old.epoch(),
        Some(new) => new.epoch() < old.epoch(),
        None => true,
    })
}

/// The member whose own Lease this is, if another holds it.
fn loser(record: &LeaseRecord) -> Option<MemberId> {
    let subject = lease::subject(&record.name)?;
    (record.holder.as_deref() != Some(subject.as_str())).then_some(subject)
}
