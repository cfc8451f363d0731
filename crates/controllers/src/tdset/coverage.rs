//! What windows leave open in a week, and where several hold. Pure.
//!
//! Both are allowed: `defaultReplica` is for what is left open, and of several windows the first decides. But
//! people seldom mean it, so it is told.

use jiff::ToSpan;

use super::dates::MONDAY;
use super::schedule::{MINUTES_PER_DAY, MINUTES_PER_HOUR, Schedule};

/// How many times a message names.
const MAX_NAMED: usize = 3;
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// What the windows of a week leave open, and where several hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Coverage {
    /// Times that no window holds, as text.
    pub gaps: Vec<String>,
    /// Times that several windows hold, as text.
    pub overlaps: Vec<String>,
}

/// A part of a day or a week, in minutes from its beginning.
type Part = (i32, i32);

impl Coverage {
    /// What the windows leave open, and where they overlap. Windows of some dates are exceptions to the others
    /// and overlap on purpose, so they do not count; where there is cron, it may fill what is open.
    pub(super) fn of(schedule: &Schedule, has_cron: bool) -> Self {
        let windows: Vec<_> =
            schedule.windows().iter().filter(|window| window.is_weekly()).collect();
        if windows.is_empty() {
            return Self::default();
        }
        let held =
            |date, minute| windows.iter().filter(|window| window.holds(date, minute)).count();
        let times = |told: &dyn Fn(usize) -> bool| {
            let days = (0..7).map(|day| MONDAY.saturating_add(day.days()));
            let days: Vec<_> =
                days.map(|date| day(schedule, |minute| told(held(date, minute)))).collect();
            named(&days)
        };
        Self {
            gaps: if has_cron { Vec::new() } else { times(&|count| count == 0) },
            overlaps: times(&|count| count > 1),
        }
    }

    /// The words for a message; empty if there is nothing to tell.
    pub(super) fn message(&self, default: i32) -> String {
        let said = |times: &[String]| {
            let more = times.len().saturating_sub(MAX_NAMED);
            let named = times[..times.len() - more].join(", ");
            if more == 0 { named } else { format!("{named} and {more} more") }
        };
        let gaps = (!self.gaps.is_empty()).then(|| {
            format!("no window holds {}: defaultReplica, {default}, is for it", said(&self.gaps))
        });
        let overlaps = (!self.overlaps.is_empty())
            .then(|| format!("several windows hold {}: the first decides", said(&self.overlaps)));
        gaps.into_iter().chain(overlaps).collect::<Vec<_>>().join("; ")
    }
}

/// The parts of a day that are told, between the marks of the schedule.
fn day(schedule: &Schedule, told: impl Fn(i32) -> bool) -> Vec<Part> {
    let ends = schedule.marks().iter().skip(1).chain([&MINUTES_PER_DAY]);
    let parts = schedule.marks().iter().zip(ends).filter(|(start, _)| told(**start));
    joined(parts.map(|(start, end)| (*start, *end)))
}

/// The parts, where those that follow one another are one.
fn joined(parts: impl Iterator<Item = Part>) -> Vec<Part> {
    let mut joined: Vec<Part> = Vec::new();
    for (start, end) in parts {
        match joined.last_mut() {
            Some(last) if last.1 == start => last.1 = end,
            _ => joined.push((start, end)),
        }
    }
    joined
}

/// The parts of seven days as text: without a day if all are alike.
fn named(days: &[Vec<Part>]) -> Vec<String> {
    let clock = |minute: i32| {
        let minute = minute.rem_euclid(MINUTES_PER_DAY);
        format!("{:02}:{:02}", minute / MINUTES_PER_HOUR, minute % MINUTES_PER_HOUR)
    };
    if let Some(first) = days.first().filter(|first| days.iter().all(|day| day == *first)) {
        return first
            .iter()
            .map(|(start, end)| format!("{}-{}", clock(*start), clock(*end)))
            .collect();
    }
    let weekday = |minute: i32| DAYS[(minute / MINUTES_PER_DAY).rem_euclid(7) as usize];
    let midnights = (0..).step_by(MINUTES_PER_DAY as usize);
    let parts = days.iter().zip(midnights).flat_map(|(day, midnight): (_, i32)| {
        day.iter().map(move |(start, end)| (midnight + start, midnight + end))
    });
    let text = |(start, end): &Part| {
        let last = if weekday(end - 1) == weekday(*start) && end - start <= MINUTES_PER_DAY {
            clock(*end)
        } else {
            format!("{} {}", weekday(*end), clock(*end))
        };
        format!("{} {}-{last}", weekday(*start), clock(*start))
    };
    joined(parts).iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The coverage of windows that are written as in a manifest.
    fn check(windows: Value, gaps: &[&str], overlaps: &[&str]) {
        let spec = json!({"schedulingConfig": windows});
        let schedule = Schedule::new(&serde_json::from_value(spec).unwrap()).unwrap();
        let found = Coverage::of(&schedule, false);
        assert_eq!(
            found,
            Coverage {
                gaps: gaps.iter().map(|gap| (*gap).to_owned()).collect(),
                overlaps: overlaps.iter().map(|overlap| (*overlap).to_owned()).collect(),
            },
            "{windows}"
        );
    }

    #[test]
    fn what_is_open_and_what_is_held_twice_is_told() {
        let window = |start: i32, end: i32, more: Value| {
            let mut window = json!({"startTime": start, "endTime": end, "replica": 1});
            window.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            window
        };
        let whole = |start, end| window(start, end, json!({}));
        let work = json!({"days": ["Mon", "Tue", "Wed", "Thu", "Fri"]});
        let weekend = json!({"days": ["Sat", "Sun"]});
        // The users' own example.
        let example = [(9, 17), (17, 19), (19, 0), (1, 7), (7, 9)].map(|(s, e)| whole(s, e));
        check(json!(example), &["00:00-01:00"], &[]);
        check(json!([]), &[], &[]);
        check(json!([whole(0, 0)]), &[], &[]);
        check(json!([whole(22, 6), whole(6, 22)]), &[], &[]);
        check(json!([whole(22, 7), whole(6, 22)]), &[], &["06:00-07:00"]);
        check(
            json!([window(9, 17, json!({"startMinute": 30})), whole(17, 9)]),
            &["09:00-09:30"],
            &[],
        );
        check(json!([window(0, 0, work.clone())]), &["Sat 00:00-Mon 00:00"], &[]);
        check(json!([window(0, 0, work.clone()), window(0, 0, weekend.clone())]), &[], &[]);
        check(
            json!([window(0, 0, work), whole(0, 12), window(12, 0, weekend)]),
            &[],
            &[
                "Mon 00:00-12:00",
                "Tue 00:00-12:00",
                "Wed 00:00-12:00",
                "Thu 00:00-12:00",
                "Fri 00:00-12:00",
            ],
        );
        // Windows of some dates are above the others on purpose.
        check(
            json!([window(9, 10, json!({"from": "12-01", "to": "12-24"})), whole(0, 0)]),
            &[],
            &[],
        );
    }

    #[test]
    fn a_message_names_a_few() {
        let times = |count: usize| (0..count).map(|number| format!("t{number}")).collect();
        let some = Coverage { gaps: times(MAX_NAMED), overlaps: times(MAX_NAMED + 2) };
        assert_eq!(
            some.message(4),
            "no window holds t0, t1, t2: defaultReplica, 4, is for it; \
             several windows hold t0, t1, t2 and 2 more: the first decides"
        );
        assert_eq!(Coverage::default().message(1), "");
    }
}
