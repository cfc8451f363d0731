//! Windows between two times of cron, on the clock of a time zone. Pure.
//!
//! A time that the clock skips counts at the moment at which it is put forward; one that it shows twice
//! counts the first time. So the times of an expression keep their order, whatever the clock does.

use cronexpr::{Crontab, MakeTimestamp, parse_crontab};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp};

use super::api::CronWindow;
use super::invalid::Invalid;

/// Minutes that a clock shows twice, at most: a day, where a zone moved over the date line.
const MAX_REPEATED: usize = 24 * 60 + 1;
const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// A window between two times of cron.
#[derive(Clone, Debug)]
pub(super) struct Cron {
    start: Crontab,
    end: Crontab,
    /// Replicas while it lasts.
    pub(super) replicas: i32,
}

/// The next times of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turns {
    start: Option<Timestamp>,
    end: Option<Timestamp>,
}

impl Turns {
    /// Whether the window lasts now: it ends before it begins again.
    pub(super) fn lasts(self) -> bool {
        self.end.is_some_and(|end| self.start.is_none_or(|start| end < start))
    }

    /// The next of them.
    pub(super) fn next(self) -> Option<Timestamp> {
        self.start.into_iter().chain(self.end).min()
    }
}

impl Cron {
    /// The window of a spec.
    ///
    /// # Errors
    /// If an expression is none of cron's, or both are one.
    pub(super) fn new(window: &CronWindow) -> Result<Self, Invalid> {
        if window.start.trim() == window.end.trim() {
            let problem = "a window cannot end when it begins".to_owned();
            return Err(Invalid::Cron { expression: window.start.clone(), problem });
        }
        let (start, end) = (parse(&window.start)?, parse(&window.end)?);
        Ok(Self { start, end, replicas: window.replica })
    }

    /// Its times after `moment`.
    pub(super) fn turns(&self, zone: &TimeZone, moment: Timestamp) -> Turns {
        let next = |crontab| next(crontab, zone, moment);
        Turns { start: next(&self.start), end: next(&self.end) }
    }
}

fn parse(expression: &str) -> Result<Crontab, Invalid> {
    let wrong = |problem: String| Invalid::Cron { expression: expression.to_owned(), problem };
    let fields = expression.split_whitespace().count();
    if fields != 5 {
        return Err(wrong(format!("it has {fields} fields and not five")));
    }
    // In the clock's own time: the zone is that of the TDSet.
    let crontab = parse_crontab(&format!("{expression} UTC")).map_err(|error| {
        // Its message quotes the whole text over several lines: the reason is in the last.
        let message = error.to_string();
        let last = message.lines().last().unwrap_or_default();
        wrong(last.trim_matches(|c: char| c == '^' || c.is_whitespace()).to_owned())
    })?;
    match crontab.find_next(MakeTimestamp(Timestamp::UNIX_EPOCH)) {
        Ok(_) => Ok(crontab),
        Err(_) => Err(wrong("no month has such a day".to_owned())),
    }
}

/// The first time after `moment`.
fn next(crontab: &Crontab, zone: &TimeZone, moment: Timestamp) -> Option<Timestamp> {
    let mut clock = zone.to_datetime(moment);
    for _ in 0..MAX_REPEATED {
        let from = TimeZone::UTC.to_timestamp(clock).ok()?;
        clock = crontab.find_next(MakeTimestamp(from)).ok()?.datetime();
        let shown = zone.to_ambiguous_timestamp(clock);
        let gap = matches!(shown.offset(), AmbiguousOffset::Gap { .. });
        let at = shown.compatible().ok()?;
        // What precedes is strictly before, and the first time of a gap is the step itself.
        let step = || zone.preceding(at + SECOND).next().map(|step| step.timestamp());
        let at = if gap { step()? } else { at };
        if at > moment {
            return Some(at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tdset::schedule::zone;

    fn window(start: &str, end: &str) -> CronWindow {
        CronWindow { start: start.to_owned(), end: end.to_owned(), replica: 1 }
    }

    #[test]
    fn a_window_lasts_from_a_start_to_the_next_end() {
        let berlin = "Europe/Berlin";
        for (start, end, name, moment, lasts, next) in [
            (
                "0 9 * * 1-5",
                "30 17 * * 1-5",
                "UTC",
                "2026-11-20T08:59:59Z",
                false,
                "2026-11-20T09:00:00Z",
            ),
            (
                "0 9 * * 1-5",
                "30 17 * * 1-5",
                "UTC",
                "2026-11-20T09:00:00Z",
                true,
                "2026-11-20T17:30:00Z",
            ),
            (
                "0 9 * * 1-5",
                "30 17 * * 1-5",
                "UTC",
                "2026-11-20T17:30:00Z",
                false,
                "2026-11-23T09:00:00Z",
            ),
            // Over the weekend.
            (
                "0 18 * * 5",
                "0 6 * * 1",
                berlin,
                "2026-11-21T12:00:00Z",
                true,
                "2026-11-23T05:00:00Z",
            ),
            // 2026-03-29: from 02:00 to 03:00 at 01:00 UTC. What is skipped counts then.
            (
                "30 2 * * *",
                "0 5 * * *",
                berlin,
                "2026-03-29T00:30:00Z",
                false,
                "2026-03-29T01:00:00Z",
            ),
            (
                "30 2 * * *",
                "0 5 * * *",
                berlin,
                "2026-03-29T01:00:00Z",
                true,
                "2026-03-29T03:00:00Z",
            ),
            // 2026-10-25: from 03:00 to 02:00 at 01:00 UTC. What comes twice counts once.
            (
                "15 2 * * *",
                "45 2 * * *",
                berlin,
                "2026-10-25T00:15:00Z",
                true,
                "2026-10-25T00:45:00Z",
            ),
            (
                "15 2 * * *",
                "45 2 * * *",
                berlin,
                "2026-10-25T00:45:00Z",
                false,
                "2026-10-26T01:15:00Z",
            ),
            (
                "15 2 * * *",
                "45 2 * * *",
                berlin,
                "2026-10-25T01:20:00Z",
                false,
                "2026-10-26T01:15:00Z",
            ),
        ] {
            let cron = Cron::new(&window(start, end)).unwrap();
            let turns = cron.turns(&zone(name).unwrap(), moment.parse().unwrap());
            let next: Timestamp = next.parse().unwrap();
            assert_eq!((turns.lasts(), turns.next()), (lasts, Some(next)), "{start} {moment}");
        }
    }

    #[test]
    fn what_is_no_expression_is_named() {
        for (start, end, words) in [
            ("0 9 * *", "0 17 * * *", "it has 4 fields and not five"),
            ("0 9 * * * Europe/Berlin", "0 17 * * *", "it has 6 fields"),
            ("0 25 * * *", "0 17 * * *", "\"0 25 * * *\" cannot be used"),
            ("0 9 30 2 *", "0 17 * * *", "no month has such a day"),
            ("0 9 * * *", "0 9 * * *", "cannot end when it begins"),
        ] {
            let problem = Cron::new(&window(start, end)).unwrap_err().to_string();
            assert!(problem.contains(words), "{problem}");
        }
    }
}
