//! The circuit breaker of one cluster: after enough failures in a row it stops requests to the cluster,
//! and then tries again with one request at a time.
//!
//! ```text
//!            FAILURES rounds in a row          the pause is over: one probe
//!   closed ───────────────────────────▶ open ─────────────────────────────▶ half-open
//!     ▲                                  ▲ ▲ the probe fails: a longer pause    │ │
//!     │                                  │ └────────────────────────────────────┘ │
//!     │                                  └── the probe is dropped: due at once ───┤
//!     └───────────────────────────────────────── the probe is answered ───────────┘
//! ```
//!
//! # Invariants
//! - While it is not closed, at most one request is under way that was admitted since it opened.
//! - Failures of requests sent before the last counted failure count as one with it: a connection
//!   that breaks with a hundred requests on it is one failure.
//! - Only a probe closes it. Each pause is between half and all of twice the one before, up to the
//!   longest.

use std::sync::Arc;
use std::time::Duration;

use model::Moment;
use serde::Serialize;

/// The breaker opens after this many rounds of failures in a row.
pub(crate) const FAILURES: u32 = 5;

/// A circuit breaker.
#[derive(Debug)]
pub(crate) struct Breaker {
    state: State,
    first_pause: Duration,
    max_pause: Duration,
    cause: Arc<str>,
    rng: fastrand::Rng,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed { failures: u32, counted: Moment },
    Open { until: Moment, pause: Duration },
    HalfOpen { pause: Duration },
}

/// Where a breaker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum BreakerPhase {
    /// Requests pass.
    Closed,
    /// One request is under way to see whether the cluster answers.
    HalfOpen,
    /// None passes until a pause is over.
    Open,
}

/// Whether a request may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Pass.
    Closed,
    /// Pass, as the probe.
    Due,
    /// A probe is under way.
    Probing,
    /// Not before then.
    Until(Moment),
}

impl BreakerPhase {
    /// Its number in metrics: 0 closed, 1 half-open, 2 open.
    pub fn number(self) -> i64 {
        self as i64
    }
}

impl Breaker {
    /// A closed breaker. Its first pause takes `first_pause`, none takes longer than `max_pause`.
    pub(crate) fn new(first_pause: Duration, max_pause: Duration, rng: fastrand::Rng) -> Self {
        let state = State::CLOSED;
        Self { state, first_pause, max_pause, cause: Arc::from("nothing has failed"), rng }
    }

    pub(crate) fn phase(&self) -> BreakerPhase {
        match self.state {
            State::Closed { .. } => BreakerPhase::Closed,
            State::HalfOpen { .. } => BreakerPhase::HalfOpen,
            State::Open { .. } => BreakerPhase::Open,
        }
    }

    /// The last failure.
    pub(crate) fn cause(&self) -> Arc<str> {
        Arc::clone(&self.cause)
    }

    pub(crate) fn standing(&self, now: Moment) -> Standing {
        match self.state {
            State::Closed { .. } => Standing::Closed,
            State::HalfOpen { .. } => Standing::Probing,
            State::Open { until, .. } if until > now => Standing::Until(until),
            State::Open { .. } => Standing::Due,
        }
    }

    /// A probe is sent; [`Self::standing`] has said that it is due.
    pub(crate) fn begin_probe(&mut self) {
        if let State::Open { pause, .. } = self.state {
            self.state = State::HalfOpen { pause };
        }
    }

    /// A request was answered.
    pub(crate) fn answered(&mut self, probe: bool) {
        match self.state {
            State::Closed { .. } => self.state = State::CLOSED,
            State::HalfOpen { .. } if probe => self.state = State::CLOSED,
            State::HalfOpen { .. } | State::Open { .. } => {}
        }
    }

    /// A request that was sent at `sent` failed. Returns whether that opened the closed breaker.
    pub(crate) fn failed(&mut self, sent: Moment, probe: bool, cause: &str, now: Moment) -> bool {
        match self.state {
            State::Closed { failures, counted } if sent >= counted => {
                self.cause = Arc::from(cause);
                let failures = failures + 1;
                if failures < FAILURES {
                    self.state = State::Closed { failures, counted: now };
                    return false;
                }
                self.open(self.first_pause, now);
                true
            }
            State::HalfOpen { pause } if probe => {
                self.cause = Arc::from(cause);
                self.open(pause.saturating_mul(2).min(self.max_pause), now);
                false
            }
            _ => false,
        }
    }

    /// The sender dropped a request before its outcome was known.
    pub(crate) fn dropped(&mut self, probe: bool, now: Moment) {
        if let State::HalfOpen { pause } = self.state
            && probe
        {
            self.state = State::Open { until: now, pause };
        }
    }

    fn open(&mut self, pause: Duration, now: Moment) {
        let until = now + pause.mul_f64(0.5 + self.rng.f64() / 2.0);
        self.state = State::Open { until, pause };
    }
}

impl State {
    const CLOSED: Self = Self::Closed { failures: 0, counted: Moment::from_origin(Duration::ZERO) };
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FIRST: Duration = Duration::from_secs(1);
    const MAX: Duration = Duration::from_secs(30);

    fn at(millis: u64) -> Moment {
        Moment::from_origin(Duration::from_millis(millis))
    }

    fn breaker(seed: u64) -> Breaker {
        Breaker::new(FIRST, MAX, fastrand::Rng::with_seed(seed))
    }

    /// Fails requests that are sent and fail at the same time, until it opens.
    fn opened(seed: u64, now: Moment) -> Breaker {
        let mut breaker = breaker(seed);
        for round in 1..=FAILURES {
            assert_eq!(breaker.failed(now, false, "refused", now), round == FAILURES);
        }
        breaker
    }

    fn until(breaker: &Breaker, now: Moment) -> Moment {
        let Standing::Until(until) = breaker.standing(now) else { panic!("{breaker:?}") };
        until
    }

    #[test]
    fn failures_of_one_round_count_once_and_an_answer_forgets_them() {
        for (script, expect) in [
            // (sent, ended, failed)
            (&[(0, 1, true), (1, 2, true), (2, 3, true), (3, 4, true), (4, 5, true)][..], true),
            (&[(0, 9, true), (1, 9, true), (2, 9, true), (3, 9, true), (4, 9, true)], false),
            (
                &[
                    (0, 1, true),
                    (1, 2, true),
                    (2, 3, true),
                    (3, 4, true),
                    (0, 4, false),
                    (4, 5, true),
                ],
                false,
            ),
        ] {
            let mut breaker = breaker(1);
            for (sent, ended, failed) in script {
                if *failed {
                    breaker.failed(at(*sent), false, "refused", at(*ended));
                } else {
                    breaker.answered(false);
                }
            }
            assert_eq!(breaker.phase() == BreakerPhase::Open, expect, "{script:?}");
        }
    }

    #[test]
    fn a_probe_that_is_answered_closes_it_and_nothing_else_does() {
        let mut breaker = opened(1, at(0));
        breaker.answered(false);
        let due = until(&breaker, at(0));
        assert_eq!(breaker.standing(due), Standing::Due);
        breaker.begin_probe();
        assert_eq!(breaker.standing(due + MAX), Standing::Probing);
        breaker.answered(false);
        assert!(!breaker.failed(due, false, "old", due));
        breaker.dropped(false, due);
        assert_eq!(breaker.phase(), BreakerPhase::HalfOpen);
        breaker.dropped(true, due);
        assert_eq!(breaker.standing(due), Standing::Due, "a dropped probe has told nothing");
        breaker.begin_probe();
        breaker.answered(true);
        assert_eq!(breaker.standing(due), Standing::Closed);
    }

    proptest! {
        #[test]
        fn pauses_double_with_jitter_up_to_the_longest(seed: u64, probes in 1..20_u32) {
            let mut now = at(0);
            let mut breaker = opened(seed, now);
            for probe in 0..probes {
                let full = FIRST.saturating_mul(1 << probe.min(10)).min(MAX);
                let next = until(&breaker, now);
                let pause = next.since(now);
                prop_assert!(pause >= full / 2 && pause <= full, "{} {:?}", probe, pause);
                breaker.begin_probe();
                now = next;
                breaker.failed(now, true, "still", now);
                prop_assert_eq!(&*breaker.cause(), "still");
            }
        }
    }
}
