//! This member's life: its id, its Lease, until when it may act, and how it departs.
//!
//! ```text
//!             created            renewed: valid_until moves on
//!   Joining ───────────▶ Holding ──────────────┐
//!      ▲                   │  ▲────────────────┘
//!      │   new id          │ valid_until passed, Lease taken or deleted
//!      └───────────────────┤
//!                          │ given back
//!                          ▼
//!                        Gone
//! ```
//!
//! # Invariants
//! - **S5** `valid_until` = *send* time of the last renewal known to have succeeded + duration −
//!   margin. Observers wait for duration + margin after they *saw* that renewal, which is later than
//!   its sending. At least two margins lie between the two, so clocks may differ in rate by
//!   `2 × margin / duration` before a takeover could overtake a self-fence
//!   (`the_fence_precedes_every_takeover`, and the simulation).
//! - An id is used for one Lease only, and never again after a fence: what others decided about the
//!   old id stays true.
//! - The Lease of an incarnation that fenced itself runs out, although its shards would be free sooner
//!   if the member gave it back. The engine reports when a *drain* has ended, but nobody reports when
//!   the last reconcile that a fence cancelled has stopped. The time until others may take the Lease
//!   covers that.
//! - A renewal whose answer was lost does not count here, although it may count for observers.

use std::time::Duration;

use model::{MemberId, Moment};

use crate::config::LeaseTimings;

/// Random characters at the end of a member id.
const SUFFIX_CHARS: usize = 5;
/// The longest identity that leaves room for the suffix in a name of 63 bytes.
const MAX_IDENTITY_BYTES: usize = 63 - 1 - SUFFIX_CHARS;
/// The shortest time between two attempts to renew.
const MIN_RETRY: Duration = Duration::from_millis(50);

/// Whether a member has its Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// The Lease is not created yet.
    Joining,
    /// The member has the Lease and may act until `valid_until`.
    Holding {
        /// When the last successful renewal was sent.
        renewed: Moment,
        /// The end of its validity.
        valid_until: Moment,
    },
    /// The member gave the Lease back, or gave up.
    Gone,
}

/// How a member departed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Departure {
    /// It handed over all shards and gave its Lease back.
    HandedOver,
    /// Something still ran or the home cluster did not answer. The member fenced itself, and its Lease
    /// runs out.
    Abandoned,
}

/// This member.
#[derive(Clone, Debug)]
pub(crate) struct Membership {
    id: MemberId,
    identity: String,
    timings: LeaseTimings,
    standing: Standing,
    renew_at: Moment,
    /// Separate from `jitter`, so that later ids do not depend on the number of renewals.
    names: fastrand::Rng,
    jitter: fastrand::Rng,
}

impl Membership {
    /// A member that joins at `now`.
    pub(crate) fn new(
        identity: &str,
        timings: LeaseTimings,
        mut rng: fastrand::Rng,
        now: Moment,
    ) -> Self {
        let mut names = rng.fork();
        let id = new_id(identity, &mut names);
        Self {
            id,
            identity: identity.to_owned(),
            timings,
            standing: Standing::Joining,
            renew_at: now,
            names,
            jitter: rng,
        }
    }

    pub(crate) fn id(&self) -> &MemberId {
        &self.id
    }

    /// Whether it has its Lease.
    pub(crate) fn standing(&self) -> Standing {
        self.standing
    }

    /// Until when it may act; the origin of time if it may not act at all.
    pub(crate) fn valid_until(&self) -> Moment {
        match self.standing {
            Standing::Holding { valid_until, .. } => valid_until,
            Standing::Joining | Standing::Gone => Moment::default(),
        }
    }

    pub(crate) fn is_valid(&self, now: Moment) -> bool {
        now < self.valid_until()
    }

    /// When the member next creates or renews its Lease.
    pub(crate) fn renew_at(&self) -> Moment {
        self.renew_at
    }

    /// A create or renewal sent at `sent` succeeded.
    pub(crate) fn renewed(&mut self, sent: Moment) {
        if self.standing == Standing::Gone {
            return;
        }
        let valid_until = sent + self.timings.validity();
        self.standing = Standing::Holding { renewed: sent, valid_until };
        // Jitter of a tenth: members that start together do not renew together.
        let interval = self.timings.renew_interval;
        self.renew_at = sent + interval.mul_f64(1.0 - 0.1 * self.jitter.f64());
    }

    /// A create or renewal failed. The next attempt is soon: there is time for several.
    pub(crate) fn renewal_failed(&mut self, now: Moment) {
        let pause = (self.timings.renew_interval / 4).max(MIN_RETRY);
        self.renew_at = now + pause.mul_f64(0.5 + 0.5 * self.jitter.f64());
    }

    /// A renewal met another version of the Lease that this member still holds, because the answer to
    /// an earlier renewal was lost. Renews again at once.
    pub(crate) fn renew_now(&mut self, now: Moment) {
        self.renew_at = now;
    }

    /// Fences itself if its validity has ended, and joins again under another id. Returns whether it
    /// did.
    pub(crate) fn fence_if_expired(&mut self, now: Moment) -> bool {
        let expired = matches!(self.standing, Standing::Holding { .. }) && !self.is_valid(now);
        if expired {
            self.rejoin(now);
        }
        expired
    }

    /// Joins again under another id: the Lease was taken or deleted, or its name was in use.
    pub(crate) fn rejoin(&mut self, now: Moment) {
        self.id = new_id(&self.identity, &mut self.names);
        self.standing = Standing::Joining;
        self.renew_at = now;
    }

    /// Ends this member for good: it may not act any more and does not rejoin.
    pub(crate) fn end(&mut self) {
        self.standing = Standing::Gone;
    }
}

/// The identity of the process that had that id; perhaps only its beginning, if it is long.
pub(crate) fn identity_of(id: &MemberId) -> &str {
    id.as_str().rsplit_once('-').map_or("", |(identity, _)| identity)
}

fn new_id(identity: &str, rng: &mut fastrand::Rng) -> MemberId {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let suffix: String =
        (0..SUFFIX_CHARS).map(|_| char::from(ALPHABET[rng.usize(..ALPHABET.len())])).collect();
    let kept = &identity[..identity.len().min(MAX_IDENTITY_BYTES)];
    format!("{kept}-{suffix}").parse().expect("a checked identity and letters make a name")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::lease::{LeaseRecord, LeaseState, ObservedLease, member_lease_name};

    fn at(ms: u64) -> Moment {
        Moment::from_origin(Duration::from_millis(ms))
    }

    fn member() -> Membership {
        let rng = fastrand::Rng::with_seed(7);
        Membership::new("replica-0", LeaseTimings::default(), rng, at(0))
    }

    #[test]
    fn validity_counts_from_the_sending() {
        let mut member = member();
        assert!(!member.is_valid(at(0)));
        member.renewed(at(1_000));
        assert!(member.is_valid(at(8_499)));
        assert!(!member.is_valid(at(8_500)));
        let first = member.id().clone();
        assert!(!member.fence_if_expired(at(8_499)));
        assert!(member.fence_if_expired(at(8_500)));
        assert_ne!(member.id(), &first);
        assert_eq!(member.standing(), Standing::Joining);
    }

    #[test]
    fn renewals_come_before_their_interval_ends_and_sooner_after_a_failure() {
        let mut member = member();
        member.renewed(at(1_000));
        assert!(member.renew_at() > at(2_800) && member.renew_at() <= at(3_000));
        member.renewal_failed(at(3_000));
        assert!(member.renew_at() >= at(3_250) && member.renew_at() <= at(3_500));
    }

    #[test]
    fn a_member_that_has_gone_stays_gone() {
        let mut member = member();
        member.renewed(at(0));
        member.end();
        member.renewed(at(1));
        assert_eq!(member.valid_until(), Moment::default());
    }

    #[test]
    fn the_longest_identity_still_makes_a_name() {
        let identity = "a".repeat(63);
        let rng = fastrand::Rng::with_seed(7);
        let member = Membership::new(&identity, LeaseTimings::default(), rng, at(0));
        assert_eq!(member.id().as_str().len(), 63);
    }

    /// The worst state of a member's Lease that an observer sees from one renewal to the next.
    fn worst_seen(timings: LeaseTimings, seed: u64, lost: u64, jitter_ms: &[u64]) -> LeaseState {
        let rng = fastrand::Rng::with_seed(seed);
        let mut member = Membership::new("replica-0", timings, rng, at(0));
        let id = member.id().clone();
        let record = LeaseRecord::new(member_lease_name(&id), &id, timings.duration);
        let mut lease: Option<ObservedLease> = None;
        let mut worst = LeaseState::Fresh;
        for (number, &jitter_ms) in (0..).zip(jitter_ms) {
            let mut sent = member.renew_at();
            if number == lost {
                // The member gives it up at its deadline and repeats it.
                member.renewal_failed(sent + timings.renewal_deadline());
                sent = member.renew_at();
            }
            let seen = sent + Duration::from_millis(jitter_ms);
            assert!(!member.fence_if_expired(sent), "it fences itself");
            if let Some(lease) = lease.replace(ObservedLease::seen(record.clone(), None, seen)) {
                worst = worst.min(lease.state(&id, timings, seen));
            }
            // The answer takes as long as the event.
            member.renewed(sent);
        }
        worst
    }

    proptest! {
        /// With the shortest allowed timings, one lost renewal and 400 ms of jitter change nothing: the
        /// member never becomes suspect.
        #[test]
        fn a_lost_renewal_and_jitter_make_no_member_suspect(
            seed in any::<u64>(),
            lost in 1..6u64,
            jitter_ms in prop::collection::vec(0..400u64, 8),
        ) {
            let shortest = LeaseTimings {
                duration: Duration::from_secs(3),
                renew_interval: Duration::from_secs(1),
                margin: Duration::from_millis(500),
            };
            for timings in [shortest, LeaseTimings::default()] {
                prop_assert_eq!(worst_seen(timings, seed, lost, &jitter_ms), LeaseState::Fresh);
            }
        }

        /// S5: whatever the delay of the renewal's event, and for any clock rates within the
        /// margin, the member has stopped when an observer finds its Lease expired.
        #[test]
        fn the_fence_precedes_every_takeover(
            sent in 0..10_000u64,
            delay in 0..5_000u64,
            drift_ppm in -50_000..50_000i64,
            origin in 0..1_000_000u64,
        ) {
            let timings = LeaseTimings::default();
            let mut member = member();
            member.renewed(at(sent));
            // The observer's clock has another origin and runs at another rate: at most 5 %,
            // within 2 × 500 ms / 8 s.
            let theirs = |ms: u64| at(origin + (ms as i64 * (1_000_000 + drift_ppm) / 1_000_000) as u64);
            let id = member.id().clone();
            let record = LeaseRecord::new(member_lease_name(&id), &id, timings.duration);
            let lease = ObservedLease::seen(record, None, theirs(sent + delay));
            let takeover = (sent..sent + 60_000)
                .find(|&ms| lease.state(&id, timings, theirs(ms)) == LeaseState::Expired)
                .expect("it expires");
            prop_assert!(!member.is_valid(at(takeover)));
        }
    }
}
