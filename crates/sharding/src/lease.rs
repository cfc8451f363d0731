//! Leases: who holds one, and for how long it has been silent.
//!
//! Owns the meaning of the fields of `coordination.k8s.io/v1` Leases (client-go's leader election uses
//! the same) and the judgement of an observer. It writes nothing and reads no wall clock: the times
//! inside a Lease come from another machine's clock and are for people. An observer measures silence
//! on its own clock, from the moment it last saw the Lease change.
//!
//! A member holds its own Lease, `leasehold-member-<id>`, as long as `holderIdentity` is its id.
//! Any other holder is final, because no id is used twice:
//!
//! ```text
//!   Fresh ⇄ Suspect ──▶ Expired ──taken by compare-and-swap──▶ Taken
//!     └───┬────── holder changed by anybody else ──▶ Lost ──▶ Over ──same──▶ Taken
//! ```
//!
//! `edits` judges the state, and says what edits by hand cannot do.

mod edits;

use std::hash::{Hash, Hasher};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use model::{MemberId, Moment};

use crate::api::{MANAGED_BY, ObjectVersion};
use crate::config::LeaseTimings;
use crate::floor::Floor;
use crate::installation;

pub use edits::Past;
use edits::whole;
pub(crate) use edits::{is_held, is_usual};

/// The name of the coordinator's Lease.
pub const COORDINATOR: &str = "leasehold-coordinator";
/// The prefix of the names of members' Leases.
const MEMBER_PREFIX: &str = "leasehold-member-";
/// The annotation of the coordinator's Lease while maps stay because they went with a mass of others.
pub(crate) const MASS: &str = "leasehold.dev/mass-removal";

/// The parts of a Lease that this crate uses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseRecord {
    /// The object's name.
    pub name: String,
    /// The version read; empty for a Lease that is not created yet.
    pub version: ObjectVersion,
    /// `holderIdentity`; an empty one counts as none, as in client-go.
    pub holder: Option<String>,
    /// How long it lasts without renewal.
    pub duration: Duration,
    /// How often its holder changed.
    pub transitions: i32,
    /// The epoch floor that it carries, if it is the coordinator's.
    pub floor: Floor,
    /// The installation to which the namespace belongs, if it is the coordinator's and says it.
    pub installation: Option<String>,
    /// Whether maps stay because they went with a mass of others, if it is the coordinator's.
    pub mass: bool,
    /// When the holder acquired it, by the holder's wall clock. Kept for people, never compared.
    pub acquired: Option<Timestamp>,
}

/// The state of a Lease as an observer sees it. A better state is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum LeaseState {
    /// This observer took it after it ran out: its member is fenced for good.
    Taken,
    /// It has another holder, or its member gave it back, and it has run out since. Its member does not
    /// act, unless somebody made it the holder again unseen.
    Over,
    /// It has another holder or none, for whatever reason, and has not run out yet: its member may act
    /// until it notices.
    Lost,
    /// Silent for its whole duration and the margin: others may take it.
    Expired,
    /// Silent for longer than a healthy member ever is.
    Suspect,
    /// Renewed recently.
    Fresh,
}

/// A Lease and when the observer saw it change, on the observer's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedLease {
    /// What was read last.
    pub record: LeaseRecord,
    /// When this version was first seen. That is later than it was written, which is the safe side. If
    /// its member lost it: when the first such version was.
    pub changed: Moment,
    /// When the observer last saw a renewal; a change of the holder does not count. For metrics only, not
    /// part of the hash.
    pub alive: Moment,
    /// What earlier versions said.
    pub past: Past,
}

/// The name of a member's Lease.
pub fn member_lease_name(member: &MemberId) -> String {
    format!("{MEMBER_PREFIX}{member}")
}

/// The member whose Lease has that name.
pub fn subject(name: &str) -> Option<MemberId> {
    name.strip_prefix(MEMBER_PREFIX)?.parse().ok()
}

/// The label selector for the Leases of this fleet.
pub fn selector() -> String {
    format!("{}={}", MANAGED_BY.0, MANAGED_BY.1)
}

// === impl LeaseState ===

impl LeaseState {
    /// Whether its member does not count any more.
    pub(crate) fn is_gone(self) -> bool {
        self <= Self::Over
    }

    /// The state of the same Lease if its member has ended for certain: there is nothing to wait for.
    pub(crate) fn of_the_dead(self) -> Self {
        match self {
            Self::Fresh | Self::Suspect | Self::Expired => Self::Expired,
            Self::Lost | Self::Over => Self::Over,
            Self::Taken => Self::Taken,
        }
    }

    /// Whether its member may act by it. Who has lost it may not have noticed.
    pub(crate) fn may_act(self) -> bool {
        matches!(self, Self::Lost | Self::Suspect | Self::Fresh)
    }

    /// Whether its member may still act, as far as an observer can know.
    pub(crate) fn is_alive(self) -> bool {
        self >= Self::Suspect
    }
}

// === impl LeaseRecord ===

impl LeaseRecord {
    /// A Lease that `holder` will create. It lasts `duration`, which the field holds in whole seconds:
    /// rounded up, so that observers rather wait too long than too short.
    pub fn new(name: String, holder: &MemberId, duration: Duration) -> Self {
        Self {
            name,
            version: ObjectVersion::default(),
            holder: Some(holder.as_str().to_owned()),
            duration: whole(duration),
            transitions: 0,
            floor: Floor::default(),
            installation: None,
            mass: false,
            acquired: None,
        }
    }

    /// This Lease, held by `holder`. It keeps the version that was read, to which its write is bound.
    #[must_use]
    pub(crate) fn taken_by(&self, holder: &MemberId, duration: Duration) -> Self {
        Self {
            version: self.version.clone(),
            transitions: self.transitions.saturating_add(1),
            floor: self.floor.clone(),
            installation: self.installation.clone(),
            mass: self.mass,
            ..Self::new(self.name.clone(), holder, duration)
        }
    }

    /// This Lease, renewed by its holder, with the duration by which the holder acts: what the Lease
    /// says may be an edit.
    #[must_use]
    pub(crate) fn renewed(&self, duration: Duration) -> Self {
        Self { duration: whole(duration), ..self.clone() }
    }

    /// This Lease, given back.
    #[must_use]
    pub(crate) fn released(&self) -> Self {
        Self { holder: None, ..self.clone() }
    }

    /// Reads a Lease; `None` if it has no name.
    pub fn read(lease: &Lease) -> Option<Self> {
        let spec = lease.spec.clone().unwrap_or_default();
        Some(Self {
            name: lease.metadata.name.clone()?,
            version: ObjectVersion::read(&lease.metadata),
            holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
            duration: Duration::from_secs(
                spec.lease_duration_seconds.and_then(|s| u64::try_from(s).ok()).unwrap_or_default(),
            ),
            transitions: spec.lease_transitions.unwrap_or_default(),
            floor: Floor::read(lease.metadata.annotations.as_ref()),
            installation: installation::read(lease.metadata.annotations.as_ref()),
            mass: lease.metadata.annotations.as_ref().is_some_and(|said| said.contains_key(MASS)),
            acquired: spec.acquire_time.map(|time| time.0),
        })
    }
}

// === impl ObservedLease ===

impl Hash for ObservedLease {
    /// What decisions depend on. In place of the last change, this hashes when the Lease has run out
    /// whatever the margin is, because the margin is shorter than the duration. Two states that are
    /// compared at different times can then treat all moments in the past alike.
    fn hash<H: Hasher>(&self, state: &mut H) {
        let Self { record, changed: _, alive: _, past } = self;
        (record, past, self.settles()).hash(state);
    }
}

impl ObservedLease {
    /// When its member becomes suspect if it stays silent: after two and a half renewal intervals. A
    /// member gives up a lost renewal after three quarters of the interval and repeats it within
    /// another quarter, so two intervals may pass between two renewals that arrive; the half is for
    /// delays. But at the latest when its member may have fenced itself: a shard that it gets after
    /// that would wait for its Lease to run out.
    pub(crate) fn suspect_at(&self, timings: LeaseTimings) -> Moment {
        let validity = self.record.duration.saturating_sub(timings.margin);
        self.changed + (timings.renew_interval * 5 / 2).min(validity)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::body::Body;
    use crate::record::Object;

    fn observed(holder: Option<&str>, changed_ms: u64) -> ObservedLease {
        let me: MemberId = "a-1".parse().unwrap();
        let mut record = LeaseRecord::new(member_lease_name(&me), &me, Duration::from_secs(8));
        record.holder = holder.map(str::to_owned);
        ObservedLease::seen(record, None, at(changed_ms))
    }

    fn at(ms: u64) -> Moment {
        Moment::from_origin(Duration::from_millis(ms))
    }

    #[test]
    fn a_lease_reads_back_as_written() {
        let body = Body { namespace: "n", owner: None, wall: Timestamp::UNIX_EPOCH };
        let me: MemberId = "a-1".parse().unwrap();
        for mass in [false, true] {
            let new = LeaseRecord::new(COORDINATOR.to_owned(), &me, Duration::from_secs(8));
            let installation = Some("i".to_owned());
            let acquired = Some(Timestamp::UNIX_EPOCH);
            let record = LeaseRecord { installation, acquired, mass, ..new };
            let written = body.of(Object::Lease(record.clone())).unwrap();
            let read = LeaseRecord::read(&serde_json::from_slice(&written).unwrap());
            assert_eq!(read, Some(record));
        }
    }

    #[test]
    fn states_follow_silence_and_holder() {
        let me: MemberId = "a-1".parse().unwrap();
        for (holder, now_ms, expect) in [
            (Some("a-1"), 1_000, LeaseState::Fresh),
            (Some("a-1"), 5_999, LeaseState::Fresh),
            (Some("a-1"), 6_000, LeaseState::Suspect),
            (Some("a-1"), 9_499, LeaseState::Suspect),
            (Some("a-1"), 9_500, LeaseState::Expired),
            (Some("b-1"), 1_000, LeaseState::Lost),
            (Some("b-1"), 9_499, LeaseState::Lost),
            (Some("b-1"), 9_500, LeaseState::Over),
            (None, 9_499, LeaseState::Lost),
            (None, 9_500, LeaseState::Over),
        ] {
            let (lease, timings) = (observed(holder, 1_000), LeaseTimings::default());
            assert_eq!(lease.state(&me, timings, at(now_ms)), expect, "{holder:?} at {now_ms} ms");
        }
    }

    #[test]
    fn a_member_is_suspect_when_it_may_have_fenced_itself() {
        let lease = observed(Some("a-1"), 1_000);
        for (renew_interval_ms, margin_ms, suspect_ms) in
            [(2_000, 500, 5_000), (1_000, 500, 2_500), (3_500, 500, 7_500), (3_500, 900, 7_100)]
        {
            let timings = LeaseTimings {
                duration: Duration::from_secs(8),
                renew_interval: Duration::from_millis(renew_interval_ms),
                margin: Duration::from_millis(margin_ms),
            };
            assert_eq!(lease.suspect_at(timings), at(1_000 + suspect_ms), "{timings:?}");
        }
    }

    #[test]
    fn a_duration_is_rounded_up_for_observers() {
        let me: MemberId = "a-1".parse().unwrap();
        let record = LeaseRecord::new("x".into(), &me, Duration::from_millis(1_200));
        assert_eq!(record.duration, Duration::from_secs(2));
    }

    #[test]
    fn an_empty_holder_is_none_as_in_client_go() {
        let lease: Lease = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "leasehold-member-a-1", "uid": "u", "resourceVersion": "7"},
            "spec": {"holderIdentity": "", "leaseDurationSeconds": 8, "leaseTransitions": 3,
                     "renewTime": "1999-01-01T00:00:00.000000Z"},
        }))
        .unwrap();
        let record = LeaseRecord::read(&lease).unwrap();
        assert_eq!((record.holder, record.transitions), (None, 3));
    }

    #[test]
    fn a_wall_clock_inside_a_lease_changes_nothing() {
        let lease = |time: &str| -> Lease {
            serde_json::from_value(serde_json::json!({
                "metadata": {"name": "leasehold-member-a-1", "uid": "u", "resourceVersion": "7"},
                "spec": {"holderIdentity": "a-1", "leaseDurationSeconds": 8, "renewTime": time},
            }))
            .unwrap()
        };
        let (past, future) = (lease("1999-01-01T00:00:00.000000Z"), lease("2999-01-01T00:00:00Z"));
        assert_eq!(LeaseRecord::read(&past), LeaseRecord::read(&future));
    }

    proptest! {
        /// Silence never improves a state; only a change does.
        #[test]
        fn silence_never_improves_a_state(changed in 0..20_000u64, a in 0..60_000u64, b in 0..60_000u64) {
            let me: MemberId = "a-1".parse().unwrap();
            let (lease, timings) = (observed(Some("a-1"), changed), LeaseTimings::default());
            let (early, later) = (a.min(b), a.max(b));
            prop_assert!(
                lease.state(&me, timings, at(later)) <= lease.state(&me, timings, at(early))
            );
        }
    }
}
