//! The changes of an entry, as cases and as laws.

use std::collections::BTreeMap;

use model::Range;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn id(name: &str) -> MemberId {
    name.parse().unwrap()
}

/// Reads `U4`, `a4` (owned) and `a>b4`, `a>4` (draining).
fn entry(text: &str) -> Entry {
    let (members, epoch) = text.split_at(text.len() - 1);
    let epoch = Epoch(epoch.parse().unwrap());
    match (members, members.split_once('>')) {
        ("U", _) => Entry::Unowned { epoch },
        (owner, None) => Entry::Owned { owner: id(owner), epoch },
        (_, Some((owner, target))) => {
            Entry::Draining { owner: id(owner), epoch, target: target.parse().ok() }
        }
    }
}

#[test]
fn settling() {
    // facts: g = owner gone, k = acknowledged, t = target eligible
    for (before, facts, after) in [
        ("U4", "gkt", "U4"),
        ("a4", "", "a4"),
        ("a4", "kt", "U4"),
        ("a4", "g", "U4"),
        ("a>b4", "", "a>b4"),
        ("a>b4", "t", "a>b4"),
        ("a>b4", "k", "U4"),
        ("a>b4", "kt", "b5"),
        ("a>b4", "gt", "b5"),
        ("a>b4", "g", "U4"),
        ("a>4", "k", "U4"),
        ("a>4", "gk", "U4"),
        ("a>a4", "kt", "a5"),
    ] {
        let known = Facts {
            owner_gone: facts.contains('g'),
            acknowledged: facts.contains('k'),
            target_eligible: facts.contains('t'),
        };
        assert_eq!(entry(before).settle(known), entry(after), "{before} with {facts:?}");
    }
}

#[test]
fn planned_changes() {
    for (before, to, after) in [
        ("U4", Some("b"), "b5"),
        ("a4", Some("b"), "a>b4"),
        ("a>b4", Some("c"), "a>c4"),
        ("a>4", Some("a"), "a>a4"),
    ] {
        let to = to.map(id).unwrap();
        assert_eq!(entry(before).assign(&to), entry(after), "{before}");
    }
    assert_eq!(entry("a4").drain(None), entry("a>4"));
    assert_eq!(entry("a>b4").drain(None), entry("a>4"));
    assert_eq!(entry("U4").drain(None), entry("U4"));
}

#[derive(Clone, Debug)]
enum Change {
    Settle(Facts),
    Assign(u8),
    Drain(Option<u8>),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        any::<(bool, bool, bool)>().prop_map(|(owner_gone, acknowledged, target_eligible)| {
            Change::Settle(Facts { owner_gone, acknowledged, target_eligible })
        }),
        (0..3u8).prop_map(Change::Assign),
        proptest::option::of(0..3u8).prop_map(Change::Drain),
    ]
}

fn apply(entry: &Entry, change: &Change) -> Entry {
    let member = |n: u8| id(["a", "b", "c"][usize::from(n)]);
    match change {
        Change::Settle(facts) => entry.settle(*facts),
        Change::Assign(to) => entry.assign(&member(*to)),
        Change::Drain(to) => entry.drain(to.map(member).as_ref()),
    }
}

proptest! {
    #[test]
    fn epochs_rise_with_each_owner(changes in proptest::collection::vec(change(), 0..40)) {
        let mut now = Entry::Unowned { epoch: Epoch(0) };
        let mut last_owned = now.epoch();
        for change in &changes {
            let next = apply(&now, change);
            prop_assert!(next.epoch() >= now.epoch());
            if let (Entry::Owned { .. }, true) = (&next, next != now) {
                prop_assert_eq!(next.epoch(), last_owned.next());
                last_owned = next.epoch();
            }
            now = next;
        }
    }

    #[test]
    fn an_owner_is_replaced_only_when_settled(
        changes in proptest::collection::vec(change(), 0..40),
    ) {
        let mut now = Entry::Unowned { epoch: Epoch(0) };
        for change in &changes {
            let next = apply(&now, change);
            if now.owner().is_some() && next.owner() != now.owner() {
                let Change::Settle(facts) = change else {
                    return Err(TestCaseError::fail(format!("{now:?} by {change:?}")));
                };
                prop_assert!(facts.owner_gone || facts.acknowledged);
            }
            now = next;
        }
    }

    #[test]
    fn an_entry_reads_back_as_written(changes in proptest::collection::vec(change(), 0..20)) {
        let path: ShardPath = "tdset/0/1".parse().unwrap();
        let entry = changes
            .iter()
            .fold(Entry::Unowned { epoch: Epoch(0) }, |entry, change| apply(&entry, change));
        prop_assert_eq!(Entry::read(&entry.write(&path)), entry);
    }
}

/// All shards of one group in one cluster.
type Slices = BTreeMap<Range, Entry>;

/// A change of one of several shards, named by the hash of a uid in it.
#[derive(Clone, Debug)]
enum Observation {
    Entry(u64, Change),
    Split(u64),
    Merge(u64),
}

fn event() -> impl Strategy<Value = Observation> {
    prop_oneof![
        4 => (any::<u64>(), change()).prop_map(|(hash, change)| Observation::Entry(hash, change)),
        2 => any::<u64>().prop_map(Observation::Split),
        1 => any::<u64>().prop_map(Observation::Merge),
    ]
}

fn slice_of(slices: &Slices, hash: u64) -> (Range, Entry) {
    let mut found = slices.iter().filter(|(range, _)| range.contains(hash));
    let (range, entry) = found.next().expect("every hash is in a shard");
    assert!(found.next().is_none(), "{hash} is in two shards of {slices:?}");
    (*range, entry.clone())
}

fn happen(slices: &mut Slices, event: &Observation) {
    match event {
        Observation::Entry(hash, change) => {
            let (range, entry) = slice_of(slices, *hash);
            slices.insert(range, apply(&entry, change));
        }
        Observation::Split(hash) => {
            let (range, entry) = slice_of(slices, *hash);
            if let (Some(half), Some(halves)) = (entry.split(), range.halves()) {
                slices.remove(&range);
                slices.extend(halves.map(|range| (range, half.clone())));
            }
        }
        Observation::Merge(hash) => {
            let (range, _) = slice_of(slices, *hash);
            let Some([low, high]) = range.parent().and_then(Range::halves) else { return };
            let halves = (slices.get(&low), slices.get(&high));
            let merged = if let (Some(low), Some(high)) = halves { low.merge(high) } else { None };
            if let (Some(merged), Some(parent)) = (merged, range.parent()) {
                slices.remove(&low);
                slices.remove(&high);
                slices.insert(parent, merged);
            }
        }
    }
}

proptest! {
    /// S3 and the handover half of S1 for a key, whatever happens to its shards: it has one owner at a
    /// time, each at a higher epoch than the one before, and only settling takes it from an owner.
    #[test]
    fn a_keys_epochs_rise_with_each_owner_through_splits_and_merges(
        events in vec(event(), 0..120),
        key in any::<u64>(),
    ) {
        let mut slices = Slices::from([(Range::WHOLE, Entry::Unowned { epoch: Epoch(0) })]);
        let mut last_owned = Epoch(0);
        for event in &events {
            let (_, before) = slice_of(&slices, key);
            happen(&mut slices, event);
            let (_, now) = slice_of(&slices, key);
            prop_assert!(now.epoch() >= before.epoch());
            if let (Entry::Owned { .. }, true) = (&now, now != before) {
                prop_assert!(now.epoch() > last_owned, "{now:?} after {last_owned}");
                last_owned = now.epoch();
            }
            if before.owner().is_some() && (now.owner() != before.owner()) {
                let settled = matches!(event, Observation::Entry(_, Change::Settle(facts))
                    if facts.owner_is_done());
                prop_assert!(settled, "{before:?} by {event:?}");
            }
        }
    }

    #[test]
    fn what_somebody_holds_is_neither_split_nor_merged(
        changes in vec(change(), 0..20), others in vec(change(), 0..20),
    ) {
        let entry = |changes: &[Change]| {
            let nobody = Entry::Unowned { epoch: Epoch(0) };
            changes.iter().fold(nobody, |entry, change| apply(&entry, change))
        };
        let (one, other) = (entry(&changes), entry(&others));
        prop_assert_eq!(one.split().is_some(), one.owner().is_none());
        let free = one.owner().is_none() && other.owner().is_none();
        prop_assert_eq!(one.merge(&other).is_some(), free);
    }
}
