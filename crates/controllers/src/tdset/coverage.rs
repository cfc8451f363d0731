//! What windows leave open, and where several hold. Pure.
//!
//! Both are allowed: `defaultReplica` is for what is left open, and of several windows the first decides. But
//! people seldom mean it, so it is told.
//!
//! Windows of the week are the same each week. Dates and cron have a calendar, so five weeks of it are counted, from
//! the Monday of this week: what is told changes with the week at most.

use std::collections::BTreeSet;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

use super::cron::Cron;
use super::dates::MONDAY;
use super::schedule::{MINUTES_PER_DAY, MINUTES_PER_HOUR, Schedule};

/// How many times a message names.
const MAX_NAMED: usize = 3;
/// How many days are counted where there are dates or cron: five weeks, longer than any month.
const CALENDAR_DAYS: i32 = 35;
/// The most beginnings and ends of cron that are counted: a start and an end each hour of these days.
const MAX_TURNS: usize = 2_000;
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// What windows leave open, and where several hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Coverage {
    /// Times that no window holds, as text.
    pub gaps: Vec<String>,
    /// Times that several windows hold, as text.
    pub overlaps: Vec<String>,
    /// Exceptions of which the first takes days from the other, as text.
    pub exceptions: Vec<String>,
}

/// A part of a day or of several, in minutes from the beginning.
type Part = (i32, i32);

impl Coverage {
    /// What the windows leave open, and where they overlap; `None` where cron comes too often to be counted.
    ///
    /// What is above another overlaps on purpose and does not count: exceptions above windows, windows of some dates, and
    /// windows above cron. Windows of dates count where nothing else is there. Exceptions count among themselves.
    pub(super) fn of(schedule: &Schedule, now: Timestamp) -> Option<Self> {
        let (weekly, dated): (Vec<_>, Vec<_>) =
            schedule.windows().iter().partition(|window| window.is_weekly());
        let has_cron = !schedule.cron().is_empty();
        let is_dated = weekly.is_empty() && !has_cron;
        let windows = if is_dated { dated } else { weekly };
        let exceptions = hidden(schedule);
        if windows.is_empty() && !has_cron {
            return Some(Self { exceptions, ..Self::default() });
        }
        let (first, count) = match is_dated || has_cron {
            true => (schedule.monday(now), CALENDAR_DAYS),
            false => (MONDAY, 7),
        };
        let mut turns = MAX_TURNS;
        let cron = schedule.cron().iter().map(|cron| lasting(cron, first, count, &mut turns));
        let cron: Vec<_> = cron.collect::<Option<Vec<_>>>()?.concat();
        let held = |day: i32, minute: i32| {
            let date = first.saturating_add(day.days());
            let now = day * MINUTES_PER_DAY + minute;
            match windows.iter().filter(|window| window.holds(date, minute)).count() {
                0 => cron.iter().filter(|(start, end)| (*start..*end).contains(&now)).count(),
                count => count,
            }
        };
        let days = (0..count).map(|day| {
            let parts = parts(schedule, &cron, day).into_iter();
            parts.map(|part| (part, held(day, part.0))).collect::<Vec<_>>()
        });
        let days: Vec<_> = days.collect();
        let times = |told: fn(usize) -> bool| {
            let told = |day: &Vec<(Part, usize)>| {
                joined(day.iter().filter(|(_, count)| told(*count)).map(|(part, _)| *part))
            };
            named(first, &days.iter().map(told).collect::<Vec<_>>())
        };
        Some(Self {
            gaps: times(|count| count == 0),
            overlaps: times(|count| count > 1),
            exceptions,
        })
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
        let exceptions = (!self.exceptions.is_empty()).then(|| {
            let pairs = said(&self.exceptions);
            format!("exceptions have days in common, and the first of two decides: {pairs}")
        });
        gaps.into_iter().chain(overlaps).chain(exceptions).collect::<Vec<_>>().join("; ")
    }
}

/// The exceptions that have days of others below them, which say another number, and hardly on purpose.
fn hidden(schedule: &Schedule) -> Vec<String> {
    let all = schedule.exceptions();
    let pairs = all
        .iter()
        .enumerate()
        .flat_map(|(index, above)| all[index + 1..].iter().map(move |below| (above, below)));
    let hidden =
        pairs.filter(|((days, replicas), (other, others))| replicas != others && days.hides(other));
    hidden.map(|((days, _), (other, _))| format!("{days} and {other}")).collect()
}

/// When a window of cron lasts in days from the `first`; `None` if that takes more than so many turns. By the clock
/// alone, as if it were UTC's.
fn lasting(cron: &Cron, first: Date, days: i32, turns: &mut usize) -> Option<Vec<Part>> {
    let midnight = TimeZone::UTC.to_timestamp(first.at(0, 0, 0, 0)).ok()?;
    let last = days * MINUTES_PER_DAY;
    let minute = |at: Timestamp| {
        i32::try_from(at.duration_since(midnight).as_mins()).unwrap_or(last).min(last)
    };
    let (mut turn, mut from, mut parts) = (cron.turn(&TimeZone::UTC, midnight), 0, Vec::new());
    loop {
        *turns = turns.checked_sub(1)?;
        let until = turn.next.map_or(last, minute);
        if turn.lasts {
            parts.push((from, until));
        }
        let Some(next) = turn.next.filter(|_| until < last) else { return Some(parts) };
        (turn, from) = (cron.turned(&TimeZone::UTC, turn, next), until);
    }
}

/// The parts of a day between the minutes at which something begins or ends.
fn parts(schedule: &Schedule, cron: &[Part], day: i32) -> Vec<Part> {
    let ends = cron.iter().flat_map(|(start, end)| [*start, *end]);
    let ends = ends.map(|minute| minute - day * MINUTES_PER_DAY);
    let ends = ends.filter(|minute| (0..MINUTES_PER_DAY).contains(minute));
    let marks: BTreeSet<_> = schedule.marks().iter().copied().chain(ends).collect();
    let ends = marks.iter().copied().skip(1).chain([MINUTES_PER_DAY]);
    marks.iter().copied().zip(ends).filter(|(start, end)| start < end).collect()
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

/// The parts of days from the `first` as text: without a day if all days are alike, by the day of the week if all
/// weeks are, else by dates.
fn named(first: Date, days: &[Vec<Part>]) -> Vec<String> {
    let clock = |minute: i32| {
        let minute = minute.rem_euclid(MINUTES_PER_DAY);
        format!("{:02}:{:02}", minute / MINUTES_PER_HOUR, minute % MINUTES_PER_HOUR)
    };
    if let Some(first) = days.first().filter(|first| days.iter().all(|day| day == *first)) {
        let text = |part: &Part| match *part {
            (0, MINUTES_PER_DAY) => "00:00-24:00".to_owned(),
            (start, end) => format!("{}-{}", clock(start), clock(end)),
        };
        return first.iter().map(text).collect();
    }
    let week = &days[..DAYS.len()];
    let is_weekly = days.chunks(DAYS.len()).all(|other| other == week);
    let name = |minute: i32| {
        let day = minute / MINUTES_PER_DAY;
        match is_weekly {
            true => DAYS[day.rem_euclid(7) as usize].to_owned(),
            false => first.saturating_add(day.days()).to_string(),
        }
    };
    let days = if is_weekly { week } else { days };
    let midnights = (0..).step_by(MINUTES_PER_DAY as usize);
    let parts = days.iter().zip(midnights).flat_map(|(day, midnight): (_, i32)| {
        day.iter().map(move |(start, end)| (midnight + start, midnight + end))
    });
    let text = |(start, end): &Part| {
        let last = if name(end - 1) == name(*start) && end - start <= MINUTES_PER_DAY {
            clock(*end)
        } else {
            format!("{} {}", name(*end), clock(*end))
        };
        format!("{} {}-{last}", name(*start), clock(*start))
    };
    joined(parts).iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// The coverage of a schedule that is written as in a manifest, on a Saturday.
    fn of(spec: &Value) -> Option<Coverage> {
        let schedule = Schedule::new(&serde_json::from_value(spec.clone()).unwrap()).unwrap();
        Coverage::of(&schedule, "2026-11-21T10:30:00Z".parse().unwrap())
    }

    fn check_spec(spec: &Value, gaps: &[&str], overlaps: &[&str]) {
        let [gaps, overlaps] =
            [gaps, overlaps].map(|times| times.iter().map(|time| (*time).to_owned()).collect());
        let exceptions = Vec::new();
        assert_eq!(of(spec), Some(Coverage { gaps, overlaps, exceptions }), "{spec}");
    }

    fn check(windows: Value, gaps: &[&str], overlaps: &[&str]) {
        check_spec(&json!({"schedulingConfig": windows}), gaps, overlaps);
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
        // Objects of an older definition may end at 24.
        check(json!([whole(0, 24)]), &[], &[]);
        check(json!([whole(0, 9), whole(9, 24)]), &[], &[]);
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
    fn dates_and_cron_are_counted_by_the_calendar() {
        let cron = |start: &str, end: &str| json!({"start": start, "end": end, "replica": 1});
        let window = |from: &str, to: &str| json!({"startTime": 0, "endTime": 0, "replica": 1, "from": from, "to": to});
        let by_cron = |windows: &[Value]| json!({"cron": windows, "timeZone": "Europe/Berlin"});
        let office = cron("0 9 * * *", "30 17 * * *");
        check_spec(&by_cron(std::slice::from_ref(&office)), &["00:00-09:00", "17:30-00:00"], &[]);
        check_spec(
            &by_cron(&[office.clone(), cron("0 17 * * *", "0 10 * * *")]),
            &[],
            &["09:00-10:00", "17:00-17:30"],
        );
        let weekend = &["Mon 00:00-Sat 00:00"];
        check_spec(&by_cron(&[cron("0 0 * * 6", "0 0 * * 1")]), weekend, &[]);
        let monthly = ["2026-11-16 00:00-2026-12-01 02:00", "2026-12-01 05:00-2026-12-21 00:00"];
        check_spec(&by_cron(&[cron("0 2 1 * *", "0 5 1 * *")]), &monthly, &[]);
        // What windows hold above it does not count.
        let mut both = by_cron(&[office.clone(), office.clone()]);
        both["schedulingConfig"] = json!([{"startTime": 9, "endTime": 18, "replica": 2}]);
        check_spec(&both, &["00:00-09:00", "18:00-00:00"], &[]);
        // Windows of dates alone, also where none of them comes.
        check(json!([window("06-01", "06-02")]), &["00:00-24:00"], &[]);
        check(json!([window("12-01", "12-24")]), &["2026-11-16 00:00-2026-12-01 00:00"], &[]);
        check(
            json!([window("2026-11-01", "2026-12-04"), window("12-01", "12-31")]),
            &[],
            &["2026-12-01 00:00-2026-12-05 00:00"],
        );
        assert_eq!(of(&by_cron(&[cron("*/2 * * * *", "1-59/2 * * * *")])), None);
    }

    #[test]
    fn exceptions_that_take_days_from_one_another_are_told() {
        let exceptions = |all: Value| {
            let windows = json!([{"startTime": 0, "endTime": 0, "replica": 1}]);
            let spec = json!({"exceptions": all, "schedulingConfig": windows});
            let alone = json!({"exceptions": all});
            let found = of(&spec).unwrap();
            assert_eq!(found, of(&alone).unwrap());
            found.exceptions
        };
        let (feast, day) =
            (json!({"from": "12-24", "to": "12-26", "replica": 0}), json!({"from": "12-25"}));
        assert_eq!(exceptions(json!([feast, day])), ["12-24/12-26 and 12-25"]);
        assert!(exceptions(json!([day, feast])).is_empty(), "on purpose");
        let same = json!({"from": "12-25", "replica": 0});
        assert!(exceptions(json!([feast, same])).is_empty(), "they say the same");
    }

    #[test]
    fn a_message_names_a_few() {
        let times = |count: usize| (0..count).map(|number| format!("t{number}")).collect();
        let some = Coverage {
            gaps: times(MAX_NAMED),
            overlaps: times(MAX_NAMED + 2),
            exceptions: times(1),
        };
        assert_eq!(
            some.message(4),
            "no window holds t0, t1, t2: defaultReplica, 4, is for it; \
             several windows hold t0, t1, t2 and 2 more: the first decides; \
             exceptions have days in common, and the first of two decides: t0"
        );
        assert_eq!(Coverage::default().message(1), "");
    }
}
