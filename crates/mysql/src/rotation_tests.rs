use super::*;

const HOUR: SignedDuration = SignedDuration::from_hours(1);

fn at(minute: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minute)
}

/// A keyring in this phase since minute 0.
fn keyring(phase: Phase) -> Keyring {
    let settled = Keyring::new(Phase::Settled, at(0), || "a".to_owned());
    let next = settled.begun(None, at(0), || "b".to_owned());
    match phase {
        Phase::Settled => settled,
        Phase::Next => next,
        Phase::Lost => settled.lost(at(0)),
        Phase::Changed => next.changed(at(0)),
    }
}

/// Instances db-0, db-1 and so on, of which the first is primary.
fn learners(all: &[(Option<Knowledge>, Option<bool>)]) -> Vec<Learner> {
    let learner = |(place, (knows, receives)): (usize, &(Option<Knowledge>, Option<bool>))| {
        let name = format!("db-{place}");
        Learner { name, knows: *knows, receives_with_it: *receives }
    };
    all.iter().enumerate().map(learner).collect()
}

const NEWEST: (Option<Knowledge>, Option<bool>) = (Some(Knowledge::Newest), None);
const EARLIER: (Option<Knowledge>, Option<bool>) = (Some(Knowledge::Earlier), None);
const FOREIGN: (Option<Knowledge>, Option<bool>) = (Some(Knowledge::None), None);
const SILENT: (Option<Knowledge>, Option<bool>) = (None, None);
const STALE: (Option<Knowledge>, Option<bool>) = (Some(Knowledge::Newest), Some(false));
const FRESH: (Option<Knowledge>, Option<bool>) = (Some(Knowledge::Newest), Some(true));

fn next(phase: Phase, all: &[(Option<Knowledge>, Option<bool>)], minute: i64) -> Move {
    let (keyring, learners) = (keyring(phase), learners(all));
    Situation {
        keyring: &keyring,
        every: Some(HOUR),
        request: None,
        primary: Some("db-0"),
        is_acknowledged: true,
        learners: &learners,
        now: at(minute),
    }
    .next()
}

fn says(done: &Move) -> (bool, &str) {
    let Move::Wait(waiting) = done else { panic!("{done:?}") };
    (waiting.is_stuck, &waiting.message)
}

#[test]
fn it_begins_when_it_is_due_and_everybody_answers() {
    assert_eq!(next(Phase::Settled, &[NEWEST, NEWEST], 59), Move::Rest);
    assert_eq!(next(Phase::Settled, &[NEWEST, NEWEST], 60), Move::Begin);
    assert!(says(&next(Phase::Settled, &[NEWEST, SILENT], 60)).1.contains("db-1 does not answer"));
}

#[test]
fn it_begins_once_for_each_request() {
    let all = learners(&[NEWEST]);
    let settled = keyring(Phase::Settled);
    let next = |keyring: &Keyring, request: Option<&str>| {
        let primary = Some("db-0");
        let (now, is_acknowledged) = (at(1), true);
        let learners = &all[..];
        Situation { keyring, every: None, request, primary, is_acknowledged, learners, now }.next()
    };
    assert_eq!(next(&settled, None), Move::Rest);
    assert_eq!(next(&settled, Some("1")), Move::Begin);
    let done = settled.begun(Some("1"), at(1), || "b".to_owned()).changed(at(2)).settled(at(3));
    assert_eq!(next(&done, Some("1")), Move::Rest);
    assert_eq!(next(&done, Some("2")), Move::Begin);
    // Taken away, it asks for nothing.
    assert_eq!(next(&done, None), Move::Rest);
}

#[test]
fn the_primary_learns_first_and_everybody_before_they_are_in_use() {
    for phase in [Phase::Next, Phase::Lost] {
        for primary in [EARLIER, FOREIGN] {
            assert_eq!(next(phase, &[primary, NEWEST], 1), Move::Teach);
        }
        assert_eq!(next(phase, &[NEWEST, NEWEST], 1), Move::Change);
        assert!(says(&next(phase, &[NEWEST, EARLIER], 1)).1.contains("db-1 has not learned"));
        assert!(!says(&next(phase, &[NEWEST, SILENT], 15)).0);
        assert!(says(&next(phase, &[NEWEST, SILENT], 16)).0);
    }
}

#[test]
fn the_former_ones_work_until_replicas_receive_with_the_new_ones_and_files_follow() {
    let is_early = |all: &[_]| !says(&next(Phase::Changed, all, 9)).0;
    assert!(is_early(&[NEWEST, FRESH, FRESH]));
    let refollow = || Move::Refollow("db-2".to_owned());
    assert_eq!(next(Phase::Changed, &[NEWEST, FRESH, STALE], 1), refollow());
    assert_eq!(next(Phase::Changed, &[NEWEST, FRESH, STALE], 99), refollow());
    assert_eq!(next(Phase::Changed, &[NEWEST, FRESH, FRESH], 10), Move::Discard);
    // One that was made with the former ones, and has not joined yet.
    assert!(says(&next(Phase::Changed, &[NEWEST, FRESH, EARLIER], 26)).0);
    // Refused by the primary, no replica may be there that acknowledges.
    assert_eq!(next(Phase::Lost, &[NEWEST, SILENT, STALE], 1), refollow());
    // A primary that does not know what is in use: told again.
    assert_eq!(next(Phase::Changed, &[EARLIER, FRESH], 1), Move::Teach);
}

#[test]
fn nothing_happens_without_an_open_primary() {
    for (phase, expect) in [(Phase::Settled, None), (Phase::Next, Some("no primary"))] {
        let (keyring, learners) = (keyring(phase), learners(&[FOREIGN, NEWEST]));
        let (keyring, learners) = (&keyring, &learners[..]);
        let situation = Situation {
            keyring,
            every: Some(HOUR),
            request: Some("x"),
            primary: None,
            is_acknowledged: false,
            learners,
            now: at(99),
        };
        match expect {
            None => assert_eq!(situation.next(), Move::Rest),
            Some(text) => assert!(says(&situation.next()).1.contains(text)),
        }
    }
}

#[test]
fn a_primary_that_knows_none_of_them_is_taught() {
    assert_eq!(next(Phase::Settled, &[FOREIGN, FOREIGN], 1), Move::Doubt);
    assert_eq!(next(Phase::Lost, &[FOREIGN, FOREIGN], 1), Move::Teach);
}
