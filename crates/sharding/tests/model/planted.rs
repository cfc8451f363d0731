//! Bugs planted on purpose around the members, to show that the oracles see what they should.
//!
//! The members run production code, which has no switch for any of these. A bug sits in a [`Wrapper`]
//! around a member: around its inputs, its writes, its engine, its settings, or the store.

use std::time::Duration;

use leasehold_sharding::LeaseTimings;
use leasehold_sharding::api::{MemberContainer, ObjectVersion, ShardPath};
use leasehold_sharding::death::Ended;
use leasehold_sharding::handover::Entry;
use leasehold_sharding::lease::{self, LeaseRecord};
use leasehold_sharding::node::Input;
use leasehold_sharding::record::{MapRecord, Object, Observation, Write, WriteOutcome};
use model::{Epoch, Moment};
use stateright::{Checker, HasDiscoveries, Model};

use crate::explore::Fleet;
use crate::oracle::Rule;
use crate::process::TIMINGS;
use crate::store::{Commit, Store};
use crate::system::{Beginning, MEMBERS};

/// States after which the checker must have found a bug, over all beginnings.
const MOST_STATES: usize = 80_000;

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// The engine acknowledges a drain at once and runs on.
    AcknowledgeEarly,
    /// A takeover of a silent Lease names no version.
    TakeWithoutVersion,
    /// A takeover counts as done before the store has it.
    SkipTakeover,
    /// Members leave no margin for clocks that drift.
    NoMargin,
    /// Silence counts from the time written inside the Lease.
    TrustWallClock,
    /// A shard goes from one owner to the next without a drain.
    SkipDrain,
    /// The next owner gets the epoch of the last.
    KeepEpoch,
    /// A replacement of a ShardMap names no version.
    OverwriteMap,
    /// The engine asks the fence when a reconcile starts and not when it writes.
    FenceAtDispatchOnly,
    /// A Lease that somebody else emptied counts as over at once.
    BelieveHolder,
    /// A Lease lasts as long as it says, however short that is.
    BelieveDuration,
    /// The word that a container has ended is believed of another container.
    WrongContainer,
    /// A process takes the token of its container's instance from a status that still shows the one before.
    StaleToken,
    /// Processes that run at the same time name the same lock.
    SharedLock,
    /// A shard that drains to be split is split at once.
    SplitAtOnce,
    /// A map that is made anew begins at the first epoch.
    ForgetFloor,
}

/// What stands between a member and everything else: nothing, or one bug.
#[derive(Clone, Copy, Debug)]
pub struct Wrapper(pub Option<Bug>);

impl Wrapper {
    fn has(self, bug: Bug) -> bool {
        self.0 == Some(bug)
    }

    /// The settings of a member.
    pub fn timings(self) -> LeaseTimings {
        let margin = if self.has(Bug::NoMargin) { Duration::ZERO } else { TIMINGS.margin };
        LeaseTimings { margin, ..TIMINGS }
    }

    /// The time that the member takes for that of an input.
    pub fn time_of(self, input: &Input, now: Moment) -> Moment {
        match input {
            Input::Observed(Observation::Applied(Object::Lease(lease)))
                if self.has(Bug::TrustWallClock) =>
            {
                written(lease).unwrap_or(now)
            }
            Input::Observed(Observation::Applied(Object::Lease(lease)))
                if self.has(Bug::BelieveHolder) && lease.holder.is_none() =>
            {
                now - TIMINGS.silence()
            }
            Input::Observed(Observation::Applied(Object::Lease(lease)))
                if self.has(Bug::BelieveDuration) =>
            {
                now - TIMINGS.duration.saturating_sub(lease.duration)
            }
            _ => now,
        }
    }

    /// What leaves the member in place of a write. `wall_s` is its wall clock, in seconds.
    pub fn send(self, write: &mut Write, wall_s: i64) {
        let (Write::Create(object) | Write::Replace(object)) = write else { return };
        match (self.0, object) {
            (Some(Bug::TrustWallClock), Object::Lease(lease)) => {
                lease.acquired = jiff::Timestamp::from_second(wall_s).ok();
            }
            (Some(Bug::TakeWithoutVersion), Object::Lease(lease)) if is_takeover(lease) => {
                lease.version = ObjectVersion::default();
            }
            (Some(Bug::OverwriteMap), Object::Map(map)) => map.version = ObjectVersion::default(),
            (Some(Bug::SkipDrain), Object::Map(map)) => skip_drains(map),
            (Some(Bug::SplitAtOnce), Object::Map(map)) => split_at_once(map),
            (Some(Bug::ForgetFloor), Object::Map(map)) if is_new(map) => begin_again(map),
            _ => {}
        }
    }

    /// The container that a process names, with its instance.
    pub fn container(self, number: usize, instance: u64) -> MemberContainer {
        let pod = if self.has(Bug::SharedLock) { 0 } else { number };
        let shown = if self.has(Bug::StaleToken) { 0 } else { instance };
        MemberContainer {
            pod_uid: format!("pod-{pod}"),
            name: "leasehold".to_owned(),
            boot_id: "boot".to_owned(),
            token: format!("t{number}{shown}"),
            lock_id: Some(format!("lock-{pod}")),
        }
    }

    /// What the members make of the word that a container has ended.
    pub fn ended(self, container: &MemberContainer) -> Ended {
        let number: usize = container.pod_uid.trim_start_matches("pod-").parse().expect("a number");
        let of = match self.has(Bug::WrongContainer) {
            true => self.container((number + 1) % MEMBERS, 0),
            false => container.clone(),
        };
        Ended { pod_uid: of.pod_uid, name: of.name, token: of.token }
    }

    /// What the store makes of a write.
    pub fn write(self, store: &mut Store, mut write: Write) -> (WriteOutcome, Option<Commit>) {
        let before = store.objects.get(&write.target());
        match (&mut write, before) {
            (Write::Replace(Object::Lease(lease)), Some(held))
                if self.has(Bug::SkipTakeover) && is_takeover(lease) =>
            {
                lease.version = after(held.version());
                return (WriteOutcome::Done(Some(Object::Lease(lease.clone()))), None);
            }
            (Write::Replace(Object::Map(map)), Some(Object::Map(held)))
                if self.has(Bug::KeepEpoch) =>
            {
                keep_epochs(map, held);
            }
            _ => {}
        }
        store.write(write)
    }

    /// Whether the engine writes without asking the fence.
    pub fn writes_unfenced(self) -> bool {
        self.has(Bug::FenceAtDispatchOnly)
    }

    /// Whether the engine acknowledges drains of what it still runs.
    pub fn acknowledges_early(self) -> bool {
        self.has(Bug::AcknowledgeEarly)
    }
}

/// Whether the Lease is a member's and in the hands of another.
fn is_takeover(lease: &LeaseRecord) -> bool {
    let member = lease::subject(&lease.name);
    let holder = lease.holder.as_deref();
    member.zip(holder).is_some_and(|(member, holder)| member.as_str() != holder)
}

/// The version that follows.
fn after(version: &ObjectVersion) -> ObjectVersion {
    let resource = version.resource.parse::<u64>().expect("the store counts versions") + 1;
    ObjectVersion { uid: version.uid.clone(), resource: resource.to_string() }
}

/// When a Lease says that it was written, as if that were a time on the reader's clock.
fn written(lease: &LeaseRecord) -> Option<Moment> {
    let seconds = u64::try_from(lease.acquired?.as_second()).ok()?;
    Some(Moment::from_origin(Duration::from_secs(seconds)))
}

/// Gives shards that should drain to their next owners at once.
fn skip_drains(map: &mut MapRecord) {
    for entry in map.entries_mut().values_mut() {
        if let Entry::Draining { owner, epoch, target: Some(target) } = entry
            && owner != target
        {
            *entry = Entry::Owned { owner: target.clone(), epoch: epoch.next() };
        }
    }
}

/// Splits a shard that should drain first, and gives a half to another member.
fn split_at_once(map: &mut MapRecord) {
    let draining = map.entries.iter().find_map(|(path, entry)| match entry {
        Entry::Draining { owner, epoch, target: Some(target) } if owner == target => {
            Some((path.clone(), owner.clone(), epoch.next()))
        }
        _ => None,
    });
    let Some((path, owner, epoch)) = draining else { return };
    let mut owners = map.entries.values().filter_map(Entry::owner);
    let Some(other) = owners.find(|one| **one != owner).cloned() else { return };
    let Some(halves) = path.range.halves() else { return };
    map.entries_mut().remove(&path);
    for (range, owner) in halves.into_iter().zip([owner, other]) {
        let half = ShardPath { range, ..path.clone() };
        map.entries_mut().insert(half, Entry::Owned { owner, epoch });
    }
}

/// Whether a map is about to be made.
fn is_new(map: &MapRecord) -> bool {
    map.version == ObjectVersion::default()
}

/// Gives all owners the first epoch.
fn begin_again(map: &mut MapRecord) {
    for entry in map.entries_mut().values_mut() {
        if let Entry::Owned { epoch, .. } = entry {
            *epoch = Epoch(1);
        }
    }
}

/// Gives next owners the epochs of the last.
fn keep_epochs(map: &mut MapRecord, held: &MapRecord) {
    for (path, entry) in map.entries_mut() {
        let last = held.entries.get(path).map_or(Epoch::default(), Entry::epoch);
        if let Entry::Owned { epoch, .. } = entry {
            *epoch = last.min(*epoch);
        }
    }
}

/// The rule that the bug breaks first.
fn breaks(bug: Bug) -> Rule {
    match bug {
        Bug::SkipDrain | Bug::SkipTakeover | Bug::FenceAtDispatchOnly => Rule::S1,
        Bug::SplitAtOnce => Rule::S1,
        Bug::AcknowledgeEarly => Rule::S2,
        Bug::KeepEpoch | Bug::ForgetFloor => Rule::S3,
        Bug::OverwriteMap => Rule::S4,
        Bug::TakeWithoutVersion | Bug::NoMargin | Bug::TrustWallClock => Rule::S5,
        Bug::BelieveHolder | Bug::BelieveDuration => Rule::S5,
        Bug::WrongContainer | Bug::StaleToken | Bug::SharedLock => Rule::S5,
    }
}

#[test]
fn each_planted_bug_is_caught() {
    println!("{:<20} {:<8} {:>7} {:>6}  found from", "bug", "oracle", "states", "steps");
    for bug in [
        Bug::AcknowledgeEarly,
        Bug::TakeWithoutVersion,
        Bug::SkipTakeover,
        Bug::NoMargin,
        Bug::TrustWallClock,
        Bug::SkipDrain,
        Bug::KeepEpoch,
        Bug::OverwriteMap,
        Bug::FenceAtDispatchOnly,
        Bug::BelieveHolder,
        Bug::BelieveDuration,
        Bug::WrongContainer,
        Bug::StaleToken,
        Bug::SharedLock,
        Bug::SplitAtOnce,
        Bug::ForgetFloor,
    ] {
        let (rule, states, steps, beginning) = hunt(bug);
        println!("{:<20} {rule:<8} {states:>7} {steps:>6}  {beginning:?}", format!("{bug:?}"));
        assert_eq!(rule, breaks(bug).to_string(), "{bug:?}");
        assert!(states <= MOST_STATES, "{bug:?} took {states} states");
    }
}

/// Explores until a rule is broken: which, after how many states, in how many steps, from where.
fn hunt(bug: Bug) -> (&'static str, usize, usize, Beginning) {
    let mut before = 0;
    let fleets = [(Beginning::Alone, 1), (Beginning::Shared, 1), (Beginning::Alone, 2)];
    for (beginning, disturbances) in fleets {
        let fleet = Fleet { bug: Some(bug), ..Fleet::new(beginning, disturbances) };
        let checker = fleet.checker().finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
        let states = before + checker.unique_state_count();
        let broken = checker.discoveries().into_iter().find(|(name, _)| name.starts_with('S'));
        if let Some((rule, path)) = broken {
            return (rule, states, path.into_actions().len(), beginning);
        }
        before = states;
    }
    panic!("{bug:?} is not caught within {before} states");
}
