//! The schedule: which window decides at a moment, and when another one will. Pure.
//!
//! Windows are hours on the clock of a time zone, so an answer depends on the local hour alone.
//! The local hour changes at the top of each local hour and, where the zone's offset steps, at
//! that step. Everything about daylight saving follows from that:
//!
//! ```text
//! spring, Berlin   01:59 +01 ─▶ 03:00 +02   a window 2-3 does not happen that day
//! autumn, Berlin   02:59 +02 ─▶ 02:00 +01   a window 2-3 lasts two hours that day
//! ```
//!
//! Zones come from the database compiled into the binary, never from the machine: every replica
//! must give the same answer, and an image from scratch holds no database.

use std::sync::LazyLock;

use jiff::Timestamp;
use jiff::tz::{TimeZone, TimeZoneDatabase};

use super::api::{TDSetSpec, Window};

/// Hours of a local day.
const HOURS: usize = 24;
const SECONDS_PER_HOUR: i64 = 3_600;

/// Bound on the search for the next change: four days of hours. A change that exists is found
/// within a day, or two where the zone's offset steps over it.
const MAX_STEPS: usize = 4 * HOURS;

static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// What the schedule says at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The position of the window that decides; `None` when none does.
    pub window: Option<usize>,
    /// The replicas to run.
    pub replicas: i32,
}

/// Windows resolved to one answer for each hour of the local day.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    hours: [Answer; HOURS],
    zone: TimeZone,
}

/// A time zone that the database does not know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not an IANA time zone: write it like Europe/Berlin, or UTC")]
pub(super) struct UnknownZone {
    /// The name given.
    pub name: String,
}

impl Schedule {
    /// The schedule of a TDSet.
    ///
    /// # Errors
    /// [`UnknownZone`] when `timeZone` does not exist.
    pub(super) fn new(spec: &TDSetSpec) -> Result<Self, UnknownZone> {
        let zone =
            ZONES.get(&spec.time_zone).map_err(|_| UnknownZone { name: spec.time_zone.clone() })?;
        let hours = std::array::from_fn(|hour| {
            let found = spec
                .scheduling_config
                .iter()
                .enumerate()
                .find(|(_, window)| window.holds(hour as i32));
            match found {
                Some((index, window)) => Answer { window: Some(index), replicas: window.replica },
                None => Answer { window: None, replicas: spec.default_replica },
            }
        });
        Ok(Self { hours, zone })
    }

    /// The answer at `now`.
    pub(super) fn at(&self, now: Timestamp) -> Answer {
        let hour = self.local_second(now).div_euclid(SECONDS_PER_HOUR).rem_euclid(HOURS as i64);
        self.hours[hour as usize]
    }

    /// The first moment after `now` with another answer than at `now`, if there is one.
    pub(super) fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        let present = self.at(now);
        if self.hours.iter().all(|answer| *answer == present) {
            return None;
        }
        let mut cursor = now;
        for _ in 0..MAX_STEPS {
            cursor = self.next_step(cursor)?;
            if self.at(cursor) != present {
                break;
            }
        }
        // A search that ran out returns where it stopped: looking again there is always right.
        Some(cursor)
    }

    /// The next moment at which the local hour can change: the top of the hour or an offset step.
    fn next_step(&self, from: Timestamp) -> Option<Timestamp> {
        let left = SECONDS_PER_HOUR - self.local_second(from).rem_euclid(SECONDS_PER_HOUR);
        let top_of_hour = Timestamp::from_second(floor_second(from) + left).ok()?;
        let step = self.zone.following(from).next().map(|transition| transition.timestamp());
        Some(step.map_or(top_of_hour, |step| step.min(top_of_hour)))
    }

    /// Seconds since the epoch as the zone's clock counts them.
    fn local_second(&self, moment: Timestamp) -> i64 {
        floor_second(moment) + i64::from(self.zone.to_offset(moment).seconds())
    }
}

impl Window {
    /// Whether an hour of the day falls into this window.
    pub fn holds(&self, hour: i32) -> bool {
        let (start, end) = (self.start_time, self.end_time);
        match start.cmp(&end) {
            std::cmp::Ordering::Less => (start..end).contains(&hour),
            std::cmp::Ordering::Equal => true,
            // Crosses midnight; an end of 0 leaves only the evening.
            std::cmp::Ordering::Greater => hour >= start || hour < end,
        }
    }

    /// The window as people write it.
    pub fn label(&self) -> String {
        format!("{:02}:00-{:02}:00", self.start_time, self.end_time)
    }
}

/// The second that holds `moment`, rounded down also before 1970.
fn floor_second(moment: Timestamp) -> i64 {
    moment.as_second() - i64::from(moment.subsec_nanosecond() < 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tdset::api::Container;

    fn spec(zone: &str, windows: &[(i32, i32, i32)]) -> TDSetSpec {
        TDSetSpec {
            container: Container { image: "app".into(), port: 80 },
            scheduling_config: windows
                .iter()
                .map(|&(start_time, end_time, replica)| Window { start_time, end_time, replica })
                .collect(),
            default_replica: 100,
            time_zone: zone.to_owned(),
            interval_mint: None,
            service: None,
        }
    }

    /// Replicas at a moment and the next change, as text.
    fn check(zone: &str, windows: &[(i32, i32, i32)], cases: &[(&str, i32, &str)]) {
        let schedule = Schedule::new(&spec(zone, windows)).unwrap();
        for &(now, replicas, next) in cases {
            let moment: Timestamp = now.parse().unwrap();
            let found = schedule.next_change(moment).map_or("never".into(), |t| t.to_string());
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
        let error = Schedule::new(&spec("Mars/Olympus", &[])).unwrap_err();
        assert_eq!(
            error.to_string(),
            r#""Mars/Olympus" is not an IANA time zone: write it like Europe/Berlin, or UTC"#
        );
    }

    fn windows() -> impl Strategy<Value = Vec<(i32, i32, i32)>> {
        prop::collection::vec((0..24, 0..24, 0..9), 0..6)
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

    proptest! {
        /// The next change is the first moment with another answer: probed at every quarter of an
        /// hour before it, the second before it, and at it.
        #[test]
        fn the_next_change_is_where_the_answer_changes(
            zone in zones(),
            windows in windows(),
            second in 946_684_800i64..2_000_000_000,
        ) {
            let schedule = Schedule::new(&spec(zone, &windows)).unwrap();
            let now = Timestamp::from_second(second).unwrap();
            let present = schedule.at(now);
            let horizon = schedule.next_change(now).map_or(second + 2 * 86_400, |next| next.as_second());
            prop_assert!(horizon > second);
            for probe in (second..horizon).step_by(900).chain([horizon - 1]) {
                prop_assert_eq!(schedule.at(Timestamp::from_second(probe).unwrap()), present);
            }
            if let Some(next) = schedule.next_change(now) {
                prop_assert_ne!(schedule.at(next), present);
            }
        }

        /// A window and its reverse partition the day.
        #[test]
        fn a_window_and_its_reverse_partition_the_day(start in 0..24i32, end in 0..24i32) {
            prop_assume!(start != end);
            let there = Window { start_time: start, end_time: end, replica: 0 };
            let back = Window { start_time: end, end_time: start, replica: 0 };
            for hour in 0..24 {
                prop_assert!(there.holds(hour) != back.holds(hour));
            }
        }

        /// Windows that follow one another around the clock hold each hour exactly once.
        #[test]
        fn windows_end_to_end_partition_the_day(cuts in prop::collection::btree_set(0..24i32, 2..8)) {
            let cuts: Vec<_> = cuts.into_iter().collect();
            let ring: Vec<_> = (0..cuts.len())
                .map(|i| Window {
                    start_time: cuts[i],
                    end_time: cuts[(i + 1) % cuts.len()],
                    replica: 0,
                })
                .collect();
            for hour in 0..24 {
                prop_assert_eq!(ring.iter().filter(|window| window.holds(hour)).count(), 1);
            }
        }
    }
}
