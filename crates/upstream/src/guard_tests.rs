//! The guard's laws: tables for single rules, and random histories.

use proptest::prelude::*;

use super::*;
use crate::breaker::FAILURES;

const LIMITS: UpstreamLimits = UpstreamLimits {
    requests_per_second: 100,
    burst: 50,
    max_concurrency: 8,
    first_pause: Duration::from_secs(1),
    max_pause: Duration::from_secs(30),
};

fn guard() -> Guard {
    Guard::new(&LIMITS, fastrand::Rng::with_seed(3))
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn at(millis: u64) -> Moment {
    Moment::from_origin(ms(millis))
}

fn failed() -> Outcome {
    Outcome::Unanswered { cause: "connection refused".into() }
}

fn overloaded(retry_after: Option<Duration>) -> Outcome {
    Outcome::Overloaded { cause: "429".into(), retry_after }
}

#[track_caller]
fn pass(guard: &mut Guard, now: Moment) -> Pass {
    match guard.admit(now) {
        Admit::Now(pass) => pass,
        other => panic!("{other:?}"),
    }
}

/// Fails until the breaker opens; returns when the probe is due.
fn open(guard: &mut Guard, now: Moment) -> Moment {
    for round in 1..=FAILURES {
        let pass = pass(guard, now);
        guard.ended(pass, failed(), Caller::Reconcile, now);
        assert_eq!(guard.reading(now).phase == BreakerPhase::Open, round == FAILURES);
    }
    guard.refusal(now).unwrap().until
}

#[test]
fn as_many_pass_as_the_limit_says() {
    let mut guard = guard();
    let mut passes: Vec<_> = (0..8).map(|_| pass(&mut guard, at(0))).collect();
    assert!(matches!(guard.admit(at(0)), Admit::Later));
    guard.ended(passes.remove(0), Outcome::Answered, Caller::Reconcile, at(1));
    assert!(matches!(guard.admit(at(1)), Admit::Now(_)));
    assert!(matches!(guard.admit(at(1)), Admit::Later));
}

#[test]
fn what_the_server_asks_for_is_honoured() {
    let unavailable = |retry_after| Outcome::Unavailable { cause: "503".into(), retry_after };
    for (outcome, waits, limit) in [
        (overloaded(Some(ms(3000))), Some(3010), 4),
        (overloaded(None), None, 4),
        (unavailable(Some(ms(2000))), Some(2010), 4),
        (unavailable(None), None, 4),
        (failed(), None, 8),
    ] {
        let mut guard = guard();
        let pass = pass(&mut guard, at(0));
        guard.ended(pass, outcome.clone(), Caller::Reconcile, at(10));
        match (guard.admit(at(20)), waits) {
            (Admit::At(moment), Some(millis)) => assert_eq!(moment, at(millis), "{outcome:?}"),
            (Admit::Now(_), None) => {}
            (other, _) => panic!("{outcome:?}: {other:?}"),
        }
        assert_eq!(guard.refusal(at(20)), None, "short enough to wait for: {outcome:?}");
        assert_eq!(guard.reading(at(20)).limit, limit, "{outcome:?}");
    }
    let mut guard = guard();
    let pass = pass(&mut guard, at(0));
    guard.ended(pass, overloaded(Some(ms(20_000))), Caller::Reconcile, at(0));
    let refusal = Refusal { cause: "429".into(), until: at(20_000) };
    assert_eq!(guard.refusal(at(1000)), Some(refusal));
    assert_eq!(guard.refusal(at(15_000)), None, "what is left is short enough");
    assert_eq!(guard.reading(at(1000)).phase, BreakerPhase::Closed, "it is there, and busy");
}

#[test]
fn a_cluster_that_is_back_is_asked_by_one_and_then_by_more() {
    let mut guard = guard();
    let stuck: Vec<_> = (0..3).map(|_| pass(&mut guard, at(0))).collect();
    let due = open(&mut guard, at(5));
    assert!(matches!(guard.admit(due - ms(1)), Admit::At(moment) if moment == due));
    let probe = pass(&mut guard, due);
    assert!(matches!(guard.admit(due), Admit::Later));
    assert_eq!(&*guard.refusal(due).unwrap().cause, "connection refused");
    guard.ended(probe, Outcome::Answered, Caller::Informer, due + ms(10));
    let one = pass(&mut guard, due + ms(10));
    let two = pass(&mut guard, due + ms(10));
    assert!(matches!(guard.admit(due + ms(10)), Admit::Later), "two, not all at once");
    // What hung all the time ends now, and counts for nothing.
    for pass in stuck {
        guard.ended(pass, failed(), Caller::Reconcile, due + ms(11));
    }
    assert_eq!(guard.reading(due).in_flight, 2);
    for pass in [one, two] {
        guard.ended(pass, Outcome::Answered, Caller::Informer, due + ms(20));
    }
    assert_eq!(guard.reading(due).phase, BreakerPhase::Closed);
}

#[test]
fn what_its_sender_gave_up_counts_only_if_nothing_else_was_heard() {
    for (took, other_answered, expect) in
        [(999, false, false), (1000, false, true), (1000, true, false), (60_000, true, false)]
    {
        let mut guard = guard();
        let mut now = at(0);
        for _ in 0..FAILURES {
            let (hung, other) = (pass(&mut guard, now), pass(&mut guard, now));
            let outcome = if other_answered { Outcome::Answered } else { Outcome::Dropped };
            guard.ended(other, outcome, Caller::Informer, now + ms(1));
            now = now + ms(took);
            guard.ended(hung, Outcome::Dropped, Caller::Informer, now);
        }
        let opened = guard.reading(now).phase == BreakerPhase::Open;
        assert_eq!(opened, expect, "{took} ms, another answered: {other_answered}");
        assert_eq!(guard.reading(now).in_flight, 0);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Ask,
    /// Ends one of those under way.
    End(usize, Outcome),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let outcome = prop_oneof![
        4 => Just(Outcome::Answered),
        4 => Just(failed()),
        1 => Just(Outcome::Dropped),
        1 => Just(overloaded(None)),
        1 => Just(Outcome::Unavailable { cause: "502".into(), retry_after: None }),
        1 => (1..9000_u64).prop_map(|millis| overloaded(Some(ms(millis)))),
    ];
    prop_oneof![
        4 => Just(Step::Ask),
        3 => (0..20_usize, outcome).prop_map(|(which, outcome)| Step::End(which, outcome)),
        2 => (0..3000_u64).prop_map(Step::Pass),
    ]
}

proptest! {
    #[test]
    fn histories_keep_the_laws(steps in prop::collection::vec(step(), 1..300), seed: u64) {
        let mut guard = Guard::new(&LIMITS, fastrand::Rng::with_seed(seed));
        let (mut now, mut paused_until) = (at(0), at(0));
        // Under way, and those of them that were sent since the breaker last opened.
        let mut under_way: Vec<Pass> = Vec::new();
        let mut recent = 0_usize;
        let mut probes = 0_usize;
        for step in steps {
            match step {
                Step::Pass(millis) => now = now + ms(millis),
                Step::Ask => {
                    let before = guard.reading(now);
                    match guard.admit(now) {
                        Admit::Now(pass) => {
                            prop_assert!(now >= paused_until, "Retry-After");
                            prop_assert!(recent < before.limit, "the limit");
                            if before.phase != BreakerPhase::Closed {
                                prop_assert!(pass.probe && probes == 0, "one probe");
                            }
                            recent += 1;
                            probes += usize::from(pass.probe);
                            under_way.push(pass);
                        }
                        Admit::At(moment) => prop_assert!(moment > now),
                        Admit::Later => prop_assert!(recent > 0, "there is something to wait for"),
                    }
                }
                Step::End(..) if under_way.is_empty() => {}
                Step::End(which, outcome) => {
                    let pass = under_way.swap_remove(which % under_way.len());
                    if let Outcome::Overloaded { retry_after: Some(after), .. } = outcome {
                        paused_until = paused_until.max(now + after);
                    }
                    probes -= usize::from(pass.probe);
                    recent -= usize::from(pass.openings == guard.openings);
                    let openings = guard.openings;
                    guard.ended(pass, outcome, Caller::Reconcile, now);
                    if guard.openings > openings {
                        recent = 0;
                    }
                }
            }
            let reading = guard.reading(now);
            prop_assert_eq!(reading.in_flight, recent);
            prop_assert!((1..=8).contains(&reading.limit));
            prop_assert_eq!(probes == 1, reading.phase == BreakerPhase::HalfOpen);
        }
        // Whatever happened: once the cluster answers, it is used to the full again.
        for pass in under_way.drain(..) {
            guard.ended(pass, Outcome::Answered, Caller::Informer, now);
        }
        for _ in 0..1000 {
            now = now + ms(100_000);
            while let Admit::Now(pass) = guard.admit(now) {
                under_way.push(pass);
            }
            for pass in under_way.drain(..) {
                guard.ended(pass, Outcome::Answered, Caller::Informer, now);
            }
        }
        let reading = guard.reading(now);
        prop_assert_eq!((reading.phase, reading.limit), (BreakerPhase::Closed, 8));
    }
}
