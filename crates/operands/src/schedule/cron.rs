//! An expression of cron in a time zone.

use cronexpr::{Crontab, MakeTimestamp, parse_crontab};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// The longest expression, in bytes.
const MAX_EXPRESSION: usize = 256;
/// Whether a schedule ever comes due is asked from here: the four years after it have a leap day.
const ORIGIN: Timestamp = Timestamp::constant(1_704_067_200, 0);
/// The resolution of cron.
const MINUTE: SignedDuration = SignedDuration::from_mins(1);
/// How far back a missed run is searched.
const BACK: SignedDuration = SignedDuration::from_hours(4 * 365 * 24);
/// Words for common expressions, as in a CronJob.
const WORDS: &[(&str, &str)] = &[
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// Why a schedule cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ScheduleError {
    /// The expression is none of cron's.
    #[error(
        "schedule {expression:?} cannot be read, {problem}: write minute, hour, day of month, month and day \
         of week, such as \"30 2 * * *\" or \"0 */6 * * 1-5\""
    )]
    Expression {
        /// What was written.
        expression: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The expression never comes due.
    #[error("schedule {expression:?} never comes due: no month has such a day")]
    Never {
        /// What was written.
        expression: String,
    },
    /// The time zone is unknown.
    #[error(
        "time zone {zone:?} is unknown: use a name of IANA's list, such as Europe/Berlin or UTC"
    )]
    Zone {
        /// What was written.
        zone: String,
    },
}

/// When something is due.
#[derive(Clone, Debug)]
pub(crate) struct Schedule(Crontab);

impl Schedule {
    /// Reads an expression with five fields, or one of `@hourly`, `@daily`, `@weekly`, `@monthly` and
    /// `@yearly`, in an IANA time zone.
    ///
    /// # Errors
    /// If one of them cannot be read, or the schedule never comes due.
    pub(crate) fn parse(expression: &str, zone: &str) -> Result<Self, ScheduleError> {
        let wrong = |problem: String| ScheduleError::Expression {
            expression: expression.chars().take(MAX_EXPRESSION).collect(),
            problem,
        };
        if expression.len() > MAX_EXPRESSION {
            return Err(wrong(format!("it is longer than {MAX_EXPRESSION} bytes")));
        }
        let is_zone = !zone.is_empty() && !zone.contains(char::is_whitespace);
        if !is_zone || zone.len() > 64 || TimeZone::get(zone).is_err() {
            return Err(ScheduleError::Zone { zone: zone.chars().take(64).collect() });
        }
        let word = WORDS.iter().find(|(word, _)| *word == expression.trim());
        let fields = word.map_or(expression.trim(), |(_, fields)| fields);
        match fields.split_whitespace().count() {
            5 => {}
            6 => {
                return Err(wrong(
                    "it has six fields; seconds and time zones are not part of it".into(),
                ));
            }
            count => return Err(wrong(format!("it has {count} fields, not five"))),
        }
        let crontab = parse_crontab(&format!("{fields} {zone}"));
        // Its message quotes the whole text over several lines: the reason is in the last.
        let crontab = crontab.map_err(|error| {
            let message = error.to_string();
            let last = message.lines().last().unwrap_or_default();
            wrong(last.trim_matches(|c: char| c == '^' || c.is_whitespace()).to_owned())
        })?;
        let schedule = Self(crontab);
        match schedule.next(ORIGIN) {
            Some(_) => Ok(schedule),
            None => Err(ScheduleError::Never { expression: expression.to_owned() }),
        }
    }

    /// The first time after `after` at which it is due.
    pub(crate) fn next(&self, after: Timestamp) -> Option<Timestamp> {
        let found = self.0.find_next(MakeTimestamp(after)).ok()?;
        Some(found.timestamp())
    }

    /// The last time after `after`, and not after `now`, at which it was due: the run that should be made
    /// now if none was made since. Earlier ones that were missed are not made up for.
    pub(crate) fn due(&self, after: Timestamp, now: Timestamp) -> Option<Timestamp> {
        // The runs after `low` include one that is due; those after `high` do not. `after` may be of any year: a server
        // says when an object was made.
        let mut low = after.max(now.checked_sub(BACK).unwrap_or(after)).min(now);
        let mut high = now;
        let is_due = |from: Timestamp| self.next(from).filter(|run| *run <= now);
        let mut found = is_due(low)?;
        while high.duration_since(low) > MINUTE {
            let half = SignedDuration::from_secs(high.duration_since(low).as_secs() / 2);
            let middle = low.checked_add(half).unwrap_or(high);
            match is_due(middle) {
                Some(run) => (low, found) = (middle, run),
                None => high = middle,
            }
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn runs(expression: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
        let schedule = Schedule::parse(expression, zone).unwrap();
        let next = |run: &Timestamp| schedule.next(*run);
        let first = schedule.next(at(after));
        std::iter::successors(first, next).take(count).map(|run| run.to_string()).collect()
    }

    #[test]
    fn runs_in_a_time_zone() {
        assert_eq!(
            runs("30 2 * * *", "Europe/Berlin", "2026-01-05T00:00:00Z", 2),
            ["2026-01-05T01:30:00Z", "2026-01-06T01:30:00Z"]
        );
        assert_eq!(runs("@hourly", "UTC", "2026-01-05T10:00:00Z", 1), ["2026-01-05T11:00:00Z"]);
        assert_eq!(runs("0 0 29 2 *", "UTC", "2026-01-05T10:00:00Z", 1), ["2028-02-29T00:00:00Z"]);
    }

    /// Berlin goes from 02:00 to 03:00 on 29 March 2026, and back from 03:00 to 02:00 on 25 October.
    #[test]
    fn a_time_that_a_day_lacks_is_left_out_and_one_that_comes_twice_runs_twice() {
        assert_eq!(
            runs("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00Z", 2),
            ["2026-03-28T01:30:00Z", "2026-03-30T00:30:00Z"]
        );
        assert_eq!(
            runs("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 3),
            ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"]
        );
        assert_eq!(
            runs("0 * * * *", "Europe/Berlin", "2026-03-29T00:30:00Z", 2),
            ["2026-03-29T01:00:00Z", "2026-03-29T02:00:00Z"]
        );
    }

    #[test]
    fn of_the_runs_that_were_missed_the_last_is_due() {
        let cases = [
            ("0 2 * * *", "2026-01-01T03:00:00Z", "2026-01-01T12:00:00Z", None),
            (
                "0 2 * * *",
                "2026-01-01T03:00:00Z",
                "2026-01-02T02:00:00Z",
                Some("2026-01-02T02:00:00Z"),
            ),
            (
                "0 2 * * *",
                "2026-01-01T03:00:00Z",
                "2026-01-09T01:59:59Z",
                Some("2026-01-08T02:00:00Z"),
            ),
            (
                "* * * * *",
                "2020-01-01T00:00:00Z",
                "2026-01-09T01:59:59Z",
                Some("2026-01-09T01:59:00Z"),
            ),
            (
                "*/7 * 1-15 * *",
                "2026-01-01T00:00:00Z",
                "2026-01-20T00:00:00Z",
                Some("2026-01-15T23:56:00Z"),
            ),
            ("0 2 * * *", "2026-01-05T00:00:00Z", "2026-01-01T00:00:00Z", None),
        ];
        for (expression, after, now, expected) in cases {
            let schedule = Schedule::parse(expression, "UTC").unwrap();
            assert_eq!(schedule.due(at(after), at(now)), expected.map(at), "{expression} at {now}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_answered_by_a_clear_error() {
        let long = "1,".repeat(200);
        let cases = [
            ("", "UTC", "it has 0 fields"),
            ("* * * *", "UTC", "it has 4 fields"),
            ("0 0 * * * UTC", "UTC", "six fields"),
            ("61 * * * *", "UTC", "value must be in range"),
            ("a b c d e", "UTC", "schedule \"a b c d e\" cannot be read"),
            ("0 0 30 2 *", "UTC", "never comes due"),
            ("0 0 * * *", "Europe/Atlantis", "time zone \"Europe/Atlantis\" is unknown"),
            ("0 0 * * *", "", "is unknown"),
            (&long, "UTC", "longer than 256 bytes"),
        ];
        for (expression, zone, expected) in cases {
            let message = Schedule::parse(expression, zone).unwrap_err().to_string();
            assert!(message.contains(expected), "{message}");
            assert!(!message.contains('\n'), "{message}");
        }
    }
}
