//! The schedule: cases as tables, and what holds for all schedules.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn spec(zone: &str, windows: &[(i32, i32, i32)]) -> TDSetSpec {
    let window = |&(start_time, end_time, replica): &(i32, i32, i32)| Window {
        start_time,
        end_time,
        replica,
        ..Window::default()
    };
    let mut spec = written(json!({"timeZone": zone}));
    spec.scheduling_config = windows.iter().map(window).collect();
    spec
}

/// A schedule as in a manifest; 100 replicas by default.
fn written(mut schedule: Value) -> TDSetSpec {
    schedule["defaultReplica"] = 100.into();
    serde_json::from_value(schedule).unwrap()
}

fn next_change(schedule: &Schedule, moment: Timestamp) -> Option<Timestamp> {
    match schedule.next(moment) {
        Next::Change(at, _) => Some(at),
        Next::NotBefore(_) | Next::Never => None,
    }
}

/// Replicas at a moment and the next change, as text.
fn check(zone: &str, windows: &[(i32, i32, i32)], cases: &[(&str, i32, &str)]) {
    check_spec(&spec(zone, windows), cases);
}

fn check_spec(spec: &TDSetSpec, cases: &[(&str, i32, &str)]) {
    let schedule = Schedule::new(spec).unwrap();
    for &(now, replicas, next) in cases {
        let moment: Timestamp = now.parse().unwrap();
        let found = next_change(&schedule, moment).map_or("never".into(), |at| at.to_string());
        assert_eq!((schedule.at(moment).replicas, found.as_str()), (replicas, next), "{now}");
    }
}

#[test]
fn the_example_as_it_stands() {
    check(
        "UTC",
        &[(9, 17, 5), (17, 19, 3), (19, 0, 2), (1, 7, 2), (7, 9, 3)],
        &[
            ("2026-11-21T00:00:00Z", 100, "2026-11-21T01:00:00Z"),
            ("2026-11-21T01:00:00Z", 2, "2026-11-21T07:00:00Z"),
            ("2026-11-21T06:59:59.999Z", 2, "2026-11-21T07:00:00Z"),
            ("2026-11-21T09:00:00Z", 5, "2026-11-21T17:00:00Z"),
            ("2026-11-21T16:59:59Z", 5, "2026-11-21T17:00:00Z"),
            ("2026-11-21T23:30:00Z", 2, "2026-11-22T00:00:00Z"),
        ],
    );
}

#[test]
fn midnight_is_crossed_or_is_the_end() {
    check(
        "UTC",
        &[(22, 6, 1)],
        &[
            ("2026-01-01T21:59:59Z", 100, "2026-01-01T22:00:00Z"),
            ("2026-01-01T22:00:00Z", 1, "2026-01-02T06:00:00Z"),
            ("2026-01-02T00:00:00Z", 1, "2026-01-02T06:00:00Z"),
            ("2026-01-02T06:00:00Z", 100, "2026-01-02T22:00:00Z"),
        ],
    );
    check(
        "UTC",
        &[(0, 6, 1), (23, 0, 2)],
        &[
            ("2026-01-01T00:00:00Z", 1, "2026-01-01T06:00:00Z"),
            ("2026-01-01T23:00:00Z", 2, "2026-01-02T00:00:00Z"),
        ],
    );
}

#[test]
fn equal_times_are_the_whole_day_and_never_change() {
    check("UTC", &[(0, 0, 4)], &[("2026-01-01T00:00:00Z", 4, "never")]);
    check("Europe/Berlin", &[(7, 7, 4)], &[("2026-03-29T00:30:00Z", 4, "never")]);
    check("UTC", &[], &[("2026-01-01T12:00:00Z", 100, "never")]);
}

#[test]
fn of_overlapping_windows_the_first_decides() {
    check(
        "UTC",
        &[(10, 12, 1), (9, 17, 2), (11, 11, 3)],
        &[
            ("2026-01-01T08:00:00Z", 3, "2026-01-01T09:00:00Z"),
            ("2026-01-01T09:00:00Z", 2, "2026-01-01T10:00:00Z"),
            ("2026-01-01T11:00:00Z", 1, "2026-01-01T12:00:00Z"),
            ("2026-01-01T12:00:00Z", 2, "2026-01-01T17:00:00Z"),
        ],
    );
}

#[test]
fn spring_in_berlin_skips_two_o_clock() {
    // 2026-03-29: 02:00 +01 becomes 03:00 +02 at 01:00 UTC.
    check(
        "Europe/Berlin",
        &[(2, 3, 1), (3, 4, 2)],
        &[
            ("2026-03-28T00:30:00Z", 100, "2026-03-28T01:00:00Z"),
            ("2026-03-28T01:30:00Z", 1, "2026-03-28T02:00:00Z"),
            ("2026-03-29T00:59:59Z", 100, "2026-03-29T01:00:00Z"),
            ("2026-03-29T01:00:00Z", 2, "2026-03-29T02:00:00Z"),
            ("2026-03-29T02:00:00Z", 100, "2026-03-30T00:00:00Z"),
        ],
    );
}

#[test]
fn autumn_in_berlin_has_two_o_clock_twice() {
    // 2026-10-25: 03:00 +02 becomes 02:00 +01 at 01:00 UTC.
    check(
        "Europe/Berlin",
        &[(2, 3, 1), (3, 4, 2)],
        &[
            ("2026-10-24T23:59:59Z", 100, "2026-10-25T00:00:00Z"),
            ("2026-10-25T00:00:00Z", 1, "2026-10-25T02:00:00Z"),
            ("2026-10-25T01:00:00Z", 1, "2026-10-25T02:00:00Z"),
            ("2026-10-25T02:00:00Z", 2, "2026-10-25T03:00:00Z"),
        ],
    );
}

#[test]
fn new_york_steps_in_both_directions() {
    // 2026-03-08: 02:00 -05 becomes 03:00 -04 at 07:00 UTC.
    check(
        "America/New_York",
        &[(1, 3, 1)],
        &[
            ("2026-03-08T05:59:59Z", 100, "2026-03-08T06:00:00Z"),
            ("2026-03-08T06:00:00Z", 1, "2026-03-08T07:00:00Z"),
            ("2026-03-08T07:00:00Z", 100, "2026-03-09T05:00:00Z"),
        ],
    );
    // 2026-11-01: 02:00 -04 becomes 01:00 -05 at 06:00 UTC, so that one o'clock comes twice
    // and a window that began at two has not begun.
    check(
        "America/New_York",
        &[(1, 2, 1), (2, 3, 2)],
        &[
            ("2026-11-01T05:00:00Z", 1, "2026-11-01T07:00:00Z"),
            ("2026-11-01T06:30:00Z", 1, "2026-11-01T07:00:00Z"),
            ("2026-11-01T07:00:00Z", 2, "2026-11-01T08:00:00Z"),
        ],
    );
}

#[test]
fn offsets_need_not_be_whole_hours() {
    check(
        "Asia/Kathmandu", // +05:45
        &[(9, 17, 1)],
        &[
            ("2026-01-01T03:14:59Z", 100, "2026-01-01T03:15:00Z"),
            ("2026-01-01T03:15:00Z", 1, "2026-01-01T11:15:00Z"),
        ],
    );
    // Lord Howe steps by half an hour: 2026-04-05 02:00 +11 becomes 01:30 +10:30.
    check(
        "Australia/Lord_Howe",
        &[(1, 2, 1)],
        &[("2026-04-04T14:10:00Z", 1, "2026-04-04T15:30:00Z")],
    );
}

#[test]
fn an_unknown_zone_is_named() {
    // The second is a word for no zone at all, which would count as UTC.
    for name in ["Mars/Olympus", "Etc/Unknown", "Local", " UTC", "+02:00"] {
        let error = Schedule::new(&spec(name, &[])).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("{name:?} is not an IANA time zone: write it like Europe/Berlin, or UTC")
        );
    }
}

#[test]
fn weekdays_minutes_and_dates_count_where_a_window_begins() {
    let spec = written(json!({"timeZone": "Europe/Berlin", "schedulingConfig": [
        {"startTime": 22, "startMinute": 30, "endTime": 6, "endMinute": 15, "replica": 1, "days": ["Fri"]},
        {"startTime": 9, "endTime": 17, "replica": 2, "from": "12-01", "to": "12-24"},
    ]}));
    check_spec(
        &spec,
        &[
            // 2026-11-20 is a Friday; Berlin is an hour ahead.
            ("2026-11-19T22:00:00Z", 100, "2026-11-20T21:30:00Z"),
            ("2026-11-20T21:30:00Z", 1, "2026-11-21T05:15:00Z"),
            ("2026-11-21T05:14:59Z", 1, "2026-11-21T05:15:00Z"),
            ("2026-11-21T21:30:00Z", 100, "2026-11-27T21:30:00Z"),
            ("2026-12-01T08:00:00Z", 2, "2026-12-01T16:00:00Z"),
            ("2026-12-24T16:00:00Z", 100, "2026-12-25T21:30:00Z"),
        ],
    );
}

#[test]
fn a_whole_day_of_the_week_ends_when_it_began() {
    let window = json!({"startTime": 7, "endTime": 7, "replica": 1, "days": ["Sat", "Sun"]});
    check_spec(
        &written(json!({"schedulingConfig": [window]})),
        &[
            ("2026-11-21T06:59:00Z", 100, "2026-11-21T07:00:00Z"),
            ("2026-11-21T07:00:00Z", 1, "2026-11-23T07:00:00Z"),
        ],
    );
}

#[test]
fn exceptions_are_above_windows_and_windows_above_cron() {
    let spec = written(json!({
        "exceptions": [
            {"from": "2026-12-25", "replica": 0},
            {"from": "12-24", "to": "12-26"},
        ],
        "schedulingConfig": [{"startTime": 9, "endTime": 17, "replica": 5}],
        "cron": [{"start": "0 8 * * *", "end": "0 18 * * *", "replica": 3}],
    }));
    check_spec(
        &spec,
        &[
            ("2026-12-23T07:30:00Z", 100, "2026-12-23T08:00:00Z"),
            ("2026-12-23T08:30:00Z", 3, "2026-12-23T09:00:00Z"),
            ("2026-12-23T09:00:00Z", 5, "2026-12-23T17:00:00Z"),
            ("2026-12-23T17:00:00Z", 3, "2026-12-23T18:00:00Z"),
            ("2026-12-23T18:00:00Z", 100, "2026-12-24T00:00:00Z"),
            ("2026-12-24T12:00:00Z", 100, "2026-12-25T00:00:00Z"),
            ("2026-12-25T12:00:00Z", 0, "2026-12-26T00:00:00Z"),
            ("2026-12-26T12:00:00Z", 100, "2026-12-27T00:00:00Z"),
        ],
    );
}

#[test]
fn beyond_the_horizon_and_the_steps_it_is_asked_again() {
    let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
    let far = written(json!({"exceptions": [{"from": "2026-12-24"}]}));
    let next = Schedule::new(&far).unwrap().next(now);
    assert_eq!(next, Next::NotBefore(now + HORIZON));
    // Each minute something begins or ends that does not decide.
    let busy = written(json!({
        "schedulingConfig": [
            {"startTime": 0, "endTime": 0, "replica": 1, "from": "2026-01-01", "to": "2026-12-31"},
        ],
        "cron": [{"start": "*/2 * * * *", "end": "1-59/2 * * * *", "replica": 2}],
    }));
    let next = Schedule::new(&busy).unwrap().next(now);
    assert_eq!(next, Next::NotBefore(now + SignedDuration::from_mins(MAX_STEPS as i64)));
}

#[test]
fn what_is_no_schedule_is_named() {
    for (schedule, words) in [
        (json!({"exceptions": [{"from": "2026-02-30"}]}), "2026-02-30"),
        (json!({"cron": [{"start": "0 9 * *", "end": "0 17 * * *", "replica": 1}]}), "4 fields"),
        (
            json!({"schedulingConfig": [{"startTime": 1, "endTime": 2, "replica": 1, "from": "x"}]}),
            "the date \"x\"",
        ),
    ] {
        let problem = Schedule::new(&written(schedule)).unwrap_err();
        assert_eq!(problem.reason(), "InvalidSchedule");
        assert!(problem.to_string().contains(words), "{problem}");
    }
}

/// Schedules of all forms, as in manifests.
fn schedules() -> impl Strategy<Value = Value> {
    let clock = || (0..24i32, prop_oneof![Just(0), 0..60i32]);
    let days = prop::collection::vec(
        prop::sample::select(vec!["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"]),
        0..4,
    );
    let dates = prop_oneof![
        3 => Just(json!({})),
        1 => Just(json!({"from": "11-15", "to": "02-03"})),
        1 => Just(json!({"from": "2026-03-20"})),
    ];
    let window = (clock(), clock(), days, dates, 0..9i32).prop_map(
        |((start, start_minute), (end, end_minute), days, dates, replica)| {
            let mut window = json!({
                "startTime": start, "startMinute": start_minute, "endTime": end,
                "endMinute": end_minute, "days": days, "replica": replica,
            });
            window.as_object_mut().unwrap().extend(dates.as_object().unwrap().clone());
            window
        },
    );
    let of_week = || prop::sample::select(vec!["*", "1-5", "6,0"]);
    let hours =
        prop_oneof![4 => (0..24i32).prop_map(|hour| hour.to_string()), 1 => Just("*".to_owned())];
    let cron = (clock(), of_week(), hours, 0..60i32, of_week()).prop_filter_map(
        "a window cannot end when it begins",
        |((hour, minute), days, until, last, last_days)| {
            let start = format!("{minute} {hour} * * {days}");
            let end = format!("{last} {until} * * {last_days}");
            (start != end).then(|| json!({"start": start, "end": end, "replica": 7}))
        },
    );
    let exception = prop_oneof![
        Just(json!({"from": "12-24", "to": "01-02", "replica": 0})),
        Just(json!({"from": "2026-03-29"})),
    ];
    let lists = (
        prop::collection::vec(window, 0..5),
        prop::collection::vec(cron, 0..3),
        prop::collection::vec(exception, 0..2),
        zones(),
    );
    lists.prop_map(|(windows, cron, exceptions, zone)| {
        json!({"schedulingConfig": windows, "cron": cron, "exceptions": exceptions, "timeZone": zone})
    })
}

fn zones() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "UTC",
        "Europe/Berlin",
        "America/New_York",
        "Asia/Kathmandu",
        "Australia/Lord_Howe",
        "America/Sao_Paulo",
        "Pacific/Apia",
        "Africa/Casablanca",
    ])
}

/// Moments near which something is special, and others.
fn moments() -> impl Strategy<Value = i64> {
    let near = |text: &str| {
        let moment = text.parse::<Timestamp>().unwrap().as_second();
        moment - 90_000..moment + 90_000
    };
    prop_oneof![
        946_684_800i64..2_000_000_000,
        near("2026-03-29T01:00:00Z"),
        near("2026-10-25T01:00:00Z"),
        near("2026-04-04T15:00:00Z"),
        near("2011-12-30T10:00:00Z"),
        near("2026-12-24T00:00:00Z"),
    ]
}

proptest! {
    /// The next change is the first moment with another answer: probed at every quarter of an hour and some
    /// odd minutes before it, the second before it, and at it.
    #[test]
    fn the_next_change_is_where_the_answer_changes(spec in schedules(), second in moments()) {
        let schedule = Schedule::new(&written(spec)).unwrap();
        let now = Timestamp::from_second(second).unwrap();
        let present = schedule.at(now);
        let next = schedule.next(now);
        let horizon = next.moment().map_or(second + 20 * 86_400, |next| next.as_second());
        prop_assert!(horizon > second);
        let last = horizon.min(second + 20 * 86_400);
        let probes = (second..last).step_by(900).chain((second..last).step_by(25_379));
        for probe in probes.chain([horizon - 1]) {
            prop_assert_eq!(schedule.at(Timestamp::from_second(probe).unwrap()), present);
        }
        if let Next::Change(at, answer) = next {
            prop_assert_ne!(answer, present);
            prop_assert_eq!(schedule.at(at), answer);
        }
    }

    /// A window and its reverse partition the day.
    #[test]
    fn a_window_and_its_reverse_partition_the_day(start in 0..24i32, end in 0..24i32) {
        prop_assume!(start != end);
        let spec = spec("UTC", &[(start, end, 0), (end, start, 0)]);
        for minute in 0..MINUTES_PER_DAY {
            prop_assert_eq!(holding(&spec, minute), 1);
        }
    }

    /// Windows that follow one another around the clock hold each minute exactly once.
    #[test]
    fn windows_end_to_end_partition_the_day(cuts in prop::collection::btree_set(0..24i32, 2..8)) {
        let cuts: Vec<_> = cuts.into_iter().collect();
        let ring: Vec<_> =
            (0..cuts.len()).map(|i| (cuts[i], cuts[(i + 1) % cuts.len()], 0)).collect();
        let spec = spec("UTC", &ring);
        for minute in 0..MINUTES_PER_DAY {
            prop_assert_eq!(holding(&spec, minute), 1);
        }
    }
}

/// How many windows hold a minute of a day.
fn holding(spec: &TDSetSpec, minute: i32) -> usize {
    let schedule = Schedule::new(spec).unwrap();
    let day = super::super::dates::MONDAY;
    schedule.windows().iter().filter(|span| span.holds(day, minute)).count()
}
