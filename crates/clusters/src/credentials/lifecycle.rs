//! When requests use a credential, and when it is renewed or fails. Pure.

use std::sync::Arc;
use std::time::Duration;

use model::{Moment, doubled};

use crate::error::Unusable;
use crate::turns::Lane;

/// How long before its end a credential is renewed; at half of its life, if that is later. Requests use it meanwhile.
const RENEW_BEFORE: Duration = Duration::from_secs(60);
/// How long a new credential counts as valid, whatever its end and whichever server refuses it: a server
/// whose own authentication fails refuses everything, and must not start a program each time.
const TRUSTED_FOR: Duration = Duration::from_secs(10);
/// The first wait after a failed renewal; doubles each time.
const RETRY_MIN: Duration = Duration::from_secs(5);
/// The longest wait after a failed renewal.
const RETRY_MAX: Duration = Duration::from_secs(60);
/// Whoever is asked more often waits among the late ones: many whose credentials end at once delay none that last.
/// Three times it may be sooner: a program may give its old one again until shortly before its end.
const SELDOM: Duration = Duration::from_secs(120);

/// One credential and its successors.
#[derive(Debug)]
pub(super) struct Lifecycle<C> {
    current: Option<Held<C>>,
    /// Counts credentials, so that a refusal counts only against the refused one.
    number: u64,
    renewing: bool,
    failure: Option<Failure>,
    /// From when on its source is asked no more often than it may be.
    seldom_from: Moment,
}

#[derive(Debug)]
struct Held<C> {
    credential: C,
    since: Moment,
    renew_at: Option<Moment>,
    ends: Option<Moment>,
    refused: bool,
}

#[derive(Debug)]
struct Failure {
    reason: Arc<Unusable>,
    times: u32,
    retry_at: Moment,
}

/// How long a credential is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Term {
    /// Until a server refuses it.
    Unknown,
    /// For that long.
    For(Duration),
    /// Until a server refuses it, with a look at its source this often.
    LookedUpEvery(Duration),
}

/// What a request should do.
#[derive(Debug)]
pub(super) struct Decision<C> {
    /// The credential to use, with its number; an error if there is none; `None` to wait for the
    /// renewal.
    pub show: Option<Result<(C, u64), Arc<Unusable>>>,
    /// Whether to begin a renewal. The caller reports its end.
    pub renew: bool,
}

impl<C: Clone> Lifecycle<C> {
    pub fn new() -> Self {
        let seldom_from = Moment::default();
        Self { current: None, number: 0, renewing: false, failure: None, seldom_from }
    }

    /// What a request should do now.
    pub fn decide(&mut self, now: Moment) -> Decision<C> {
        let held = self.current.as_ref();
        let good = held.filter(|held| held.ends.is_none_or(|ends| now < ends));
        let due = good.is_none_or(|held| held.refused || held.renew_at.is_some_and(|at| at <= now));
        let may = self.failure.as_ref().is_none_or(|failure| failure.retry_at <= now);
        let renew = due && may && !self.renewing;
        self.renewing |= renew;
        // A refused credential is used again only if there is no better one to wait for.
        let show = match good {
            Some(held) if !(held.refused && self.renewing) => {
                Some(Ok((held.credential.clone(), self.number)))
            }
            _ if self.renewing => None,
            _ => self.failure.as_ref().map(|failure| Err(Arc::clone(&failure.reason))),
        };
        Decision { show, renew }
    }

    /// Among whom its source is asked: whether it gave a credential when it was asked last, and is asked seldom.
    pub fn lane(&self, now: Moment) -> Lane {
        match (&self.current, &self.failure) {
            (Some(_), None) if self.seldom_from <= now => Lane::Proven,
            (None, None) => Lane::First,
            _ => Lane::Late,
        }
    }

    /// A renewal succeeded.
    pub fn renewed(&mut self, credential: C, term: Term, now: Moment) {
        let (renew_at, ends) = match term {
            Term::Unknown => (None, None),
            Term::For(life) => {
                // A credential that has ended by this clock is still used: the server's clock counts.
                let life = life.max(TRUSTED_FOR);
                let early = RENEW_BEFORE.min(life / 2);
                (Some(now + (life - early)), Some(now + life))
            }
            Term::LookedUpEvery(period) => (Some(now + period), None),
        };
        self.number += 1;
        self.renewing = false;
        self.failure = None;
        self.seldom_from = self.seldom_from.max(now - 3 * SELDOM) + SELDOM;
        self.current = Some(Held { credential, since: now, renew_at, ends, refused: false });
    }

    /// A renewal failed. Returns whether there was a credential before.
    pub fn failed(&mut self, reason: Arc<Unusable>, now: Moment) -> bool {
        let times = self.failure.take().map_or(0, |failure| failure.times.saturating_add(1));
        let wait = doubled(RETRY_MIN, times, RETRY_MAX);
        self.renewing = false;
        self.failure = Some(Failure { reason, times, retry_at: now + wait });
        self.current.is_some()
    }

    /// A server refused the credential with that number.
    pub fn refused(&mut self, number: u64, now: Moment) {
        if let Some(held) = &mut self.current
            && number == self.number
            && held.since + TRUSTED_FOR <= now
        {
            held.refused = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::from_origin(Duration::from_secs(seconds))
    }

    fn life(seconds: u64) -> Term {
        Term::For(Duration::from_secs(seconds))
    }

    fn broken() -> Arc<Unusable> {
        Arc::new(Unusable::PluginTimeout { origin: "x".into(), limit: Duration::ZERO })
    }

    /// `a` is used, `a+` is used and renewed, `+` begins a renewal and waits, `.` waits, `!` fails.
    #[track_caller]
    fn check(lifecycle: &mut Lifecycle<&'static str>, seconds: u64, expect: &str) {
        let Decision { show, renew } = lifecycle.decide(at(seconds));
        let shown = match show {
            Some(Ok((credential, _))) => credential,
            Some(Err(_)) => "!",
            None if renew => "",
            None => ".",
        };
        assert_eq!(format!("{shown}{}", if renew { "+" } else { "" }), expect, "at {seconds}");
    }

    #[test]
    fn a_credential_is_renewed_before_its_end_while_requests_go_on_with_it() {
        let mut a = Lifecycle::new();
        check(&mut a, 0, "+");
        check(&mut a, 0, ".");
        a.renewed("a", life(600), at(1));
        check(&mut a, 540, "a");
        check(&mut a, 541, "a+");
        check(&mut a, 542, "a");
        a.renewed("b", life(600), at(543));
        check(&mut a, 1082, "b");
    }

    #[test]
    fn one_of_short_life_is_renewed_at_half_of_it() {
        let mut a = Lifecycle::new();
        check(&mut a, 0, "+");
        a.renewed("a", life(20), at(0));
        check(&mut a, 9, "a");
        check(&mut a, 10, "a+");
    }

    #[test]
    fn one_that_is_old_when_it_comes_is_used_and_not_renewed_at_once() {
        let mut a = Lifecycle::new();
        check(&mut a, 0, "+");
        a.renewed("a", life(0), at(0));
        check(&mut a, 0, "a");
        check(&mut a, 4, "a");
        check(&mut a, 5, "a+");
    }

    #[test]
    fn one_of_short_life_is_renewed_after_those_that_last() {
        let mut a = Lifecycle::new();
        assert_eq!(a.lane(at(0)), Lane::First);
        a.renewed("a", life(3_600), at(0));
        // The program gives the same until it has but ten seconds.
        for (asked, left) in [(3_540, 60), (3_570, 30), (3_585, 15), (3_592, 3_600)] {
            assert_eq!(a.lane(at(asked)), Lane::Proven, "at {asked}");
            a.renewed("a", life(left), at(asked));
        }
        assert_eq!(a.lane(at(7_132)), Lane::Proven);
        for asked in 0..5 {
            a.renewed("b", life(10), at(7_132 + 5 * asked));
        }
        assert_eq!(a.lane(at(7_157)), Lane::Late);
        a.renewed("c", life(600), at(7_157));
        assert_eq!(a.lane(at(7_697)), Lane::Proven);
        a.failed(broken(), at(7_697));
        assert_eq!(a.lane(at(7_702)), Lane::Late);
    }

    #[test]
    fn after_its_end_requests_wait_for_the_next_and_fail_while_there_is_none() {
        let mut a = Lifecycle::new();
        check(&mut a, 0, "+");
        a.renewed("a", life(100), at(0));
        check(&mut a, 60, "a+");
        a.failed(broken(), at(61));
        check(&mut a, 65, "a");
        check(&mut a, 66, "a+");
        a.failed(broken(), at(67));
        check(&mut a, 76, "a");
        check(&mut a, 100, "+");
        check(&mut a, 101, ".");
        a.failed(broken(), at(102));
        check(&mut a, 103, "!");
        check(&mut a, 122, "+");
        a.renewed("b", life(100), at(123));
        check(&mut a, 124, "b");
    }

    #[test]
    fn what_a_server_refuses_is_renewed_and_a_late_refusal_of_its_predecessor_is_ignored() {
        let mut a = Lifecycle::new();
        check(&mut a, 0, "+");
        a.renewed("a", Term::Unknown, at(0));
        a.refused(1, at(9));
        check(&mut a, 9, "a");
        a.refused(1, at(1000));
        check(&mut a, 1000, "+");
        check(&mut a, 1001, ".");
        a.renewed("b", Term::Unknown, at(1002));
        a.refused(1, at(1020));
        check(&mut a, 1020, "b");
    }

    #[test]
    fn what_was_refused_is_used_again_while_there_is_no_better() {
        let mut a = Lifecycle::new();
        check(&mut a, 0, "+");
        a.renewed("a", Term::Unknown, at(0));
        a.refused(1, at(20));
        check(&mut a, 20, "+");
        a.failed(broken(), at(21));
        check(&mut a, 22, "a");
        check(&mut a, 26, "+");
    }

    #[test]
    fn a_file_is_read_again_now_and_then_and_its_last_token_stays_valid() {
        let mut a = Lifecycle::new();
        check(&mut a, 0, "+");
        a.renewed("a", Term::LookedUpEvery(Duration::from_secs(60)), at(0));
        check(&mut a, 59, "a");
        check(&mut a, 60, "a+");
        a.failed(broken(), at(60));
        check(&mut a, 64, "a");
        check(&mut a, 65, "a+");
    }

    #[test]
    fn waits_after_failures_double_up_to_their_bound() {
        let mut a = Lifecycle::<&str>::new();
        let mut now = 0;
        for wait in [5, 10, 20, 40, 60, 60] {
            check(&mut a, now, "+");
            a.failed(broken(), at(now));
            check(&mut a, now + wait - 1, "!");
            now += wait;
        }
    }
}
