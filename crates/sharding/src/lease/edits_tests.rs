use proptest::prelude::*;

use super::*;
use crate::lease::member_lease_name;

const MAX_S: u64 = MAX_LEASE.as_secs();

fn at(ms: u64) -> Moment {
    Moment::from_origin(Duration::from_millis(ms))
}

fn me() -> MemberId {
    "a-1".parse().unwrap()
}

/// A Lease of `a-1` with that holder and duration.
fn record(holder: Option<&str>, duration_s: u64) -> LeaseRecord {
    let mut record = LeaseRecord::new(member_lease_name(&me()), &me(), Duration::from_secs(1));
    record.holder = holder.map(str::to_owned);
    record.duration = Duration::from_secs(duration_s);
    record
}

/// What an observer with the default timings has of versions seen at these milliseconds.
fn seen(versions: &[(u64, Option<&str>, u64)]) -> ObservedLease {
    let mut lease = None;
    for &(ms, holder, duration_s) in versions {
        lease = Some(ObservedLease::seen(record(holder, duration_s), lease.as_ref(), at(ms)));
    }
    lease.expect("some version")
}

fn state(lease: &ObservedLease, ms: u64) -> LeaseState {
    lease.state(&me(), LeaseTimings::default(), at(ms))
}

#[test]
fn an_edited_duration_neither_hastens_a_takeover_nor_prevents_it() {
    let own = Some("a-1");
    for (versions, expires_s) in [
        (vec![8], 8),
        (vec![8, 1], 8),
        (vec![8, 0], 8),
        (vec![1], 8),
        // Another member's setting, while it is rolled out.
        (vec![60], 60),
        (vec![60, 1], 60),
        (vec![8, i32::MAX as u64], MAX_S),
        (vec![u64::MAX], MAX_S),
    ] {
        let text = format!("{versions:?}");
        let versions: Vec<_> = versions.into_iter().map(|s| (0, own, s)).collect();
        let lease = seen(&versions);
        let expires_ms = expires_s * 1_000 + 500;
        assert!(state(&lease, expires_ms - 1).is_alive(), "{text}");
        assert_eq!(state(&lease, expires_ms), LeaseState::Expired, "{text}");
    }
}

#[test]
fn another_holder_counts_when_the_lease_is_over_unless_it_was_taken_here() {
    let lost = |holder| vec![(0, Some("a-1"), 8), (1_000, holder, 8)];
    for holder in [Some("b-1"), Some("somebody"), None] {
        let mut lease = seen(&lost(holder));
        assert_eq!(state(&lease, 9_499), LeaseState::Lost, "{holder:?}");
        assert_eq!(state(&lease, 9_500), LeaseState::Over, "{holder:?}");
        lease.take();
        assert_eq!(state(&lease, 1_000), LeaseState::Taken, "{holder:?}");
    }
}

#[test]
fn touching_a_lost_lease_prolongs_nothing_and_giving_it_back_does() {
    let mut versions = vec![(0, Some("a-1"), 8), (1_000, None, 8)];
    versions.extend([(5_000, Some("x"), 8), (9_000, None, 8), (9_400, Some("y"), 8)]);
    assert_eq!(state(&seen(&versions), 9_500), LeaseState::Over);
    versions.push((9_600, Some("a-1"), 8));
    assert_eq!(state(&seen(&versions), 9_600), LeaseState::Fresh);
    versions.push((9_700, Some("x"), 8));
    assert_eq!(state(&seen(&versions), 18_199), LeaseState::Lost);
}

#[test]
fn a_member_whose_lease_was_taken_here_never_returns() {
    let mut lease = seen(&[(0, Some("a-1"), 8), (9_000, Some("b-1"), 8)]);
    lease.take();
    let back = ObservedLease::seen(record(Some("a-1"), 8), Some(&lease), at(10_000));
    assert_eq!(state(&back, 10_000), LeaseState::Taken);
}

/// What happens to a Lease.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// Its member renews it, if that succeeds.
    Renew,
    /// Somebody writes another duration.
    Duration(u64),
    /// Somebody writes another holder, or the member's.
    Holder(Option<&'static str>),
}

fn events() -> impl Strategy<Value = Vec<(u64, Event, bool)>> {
    let event = prop_oneof![
        4 => Just(Event::Renew),
        1 => prop_oneof![Just(0), Just(1), 0..700u64, Just(u64::MAX)].prop_map(Event::Duration),
        1 => prop_oneof![Just(None), Just(Some("x")), Just(Some("a-1"))].prop_map(Event::Holder),
    ];
    prop::collection::vec((1..4_000u64, event, any::<bool>()), 1..40)
}

proptest! {
    /// S5: whatever people write into a Lease, and whichever versions the observer misses, it never finds
    /// that the member is gone, or may be taken, while the member may act.
    #[test]
    fn no_edit_lets_a_takeover_precede_the_fence(
        configured_s in 3..60u64,
        events in events(),
        asked_ms in prop::collection::vec(1..4_000u64, 40),
    ) {
        let theirs = LeaseTimings { duration: Duration::from_secs(configured_s), ..LeaseTimings::default() };
        let mut stored = record(Some("a-1"), configured_s);
        let mut now_ms = 0;
        let mut valid_until = at(0) + theirs.validity();
        let mut lease = ObservedLease::seen(stored.clone(), None, at(0));
        for ((wait_ms, event, is_seen), ask_ms) in events.into_iter().zip(asked_ms) {
            now_ms += wait_ms;
            match event {
                Event::Renew if at(now_ms) >= valid_until => {}
                Event::Renew if stored.holder.as_deref() != Some("a-1") => valid_until = at(now_ms),
                Event::Renew => {
                    stored = stored.renewed(theirs.duration);
                    valid_until = at(now_ms) + theirs.validity();
                }
                Event::Duration(seconds) => stored.duration = Duration::from_secs(seconds),
                Event::Holder(holder) => stored.holder = holder.map(str::to_owned),
            }
            if is_seen {
                lease = ObservedLease::seen(stored.clone(), Some(&lease), at(now_ms));
            }
            let asked = now_ms + ask_ms;
            if at(asked) < valid_until && is_seen {
                let found = lease.state(&me(), LeaseTimings::default(), at(asked));
                prop_assert!(found > LeaseState::Expired || found == LeaseState::Lost, "{found:?}");
            }
        }
    }
}
