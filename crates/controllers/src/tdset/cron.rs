//! Windows between two times of cron, on the clock of a time zone. Pure.
//!
//! A window lasts from a time of `start` to the first time of `end` after it. A time that both name begins a
//! window: `0 0 * * 6` to `0 0 * * *` is all of Saturday. So a window lasts where no end came since its last
//! start, however often the one or the other comes.
//!
//! All of this is decided on the clock alone, and on the latest time that it has shown: what it skips has come
//! when it is put forward, and what it shows twice comes once. So times keep their order, whatever the clock
//! does.

use cronexpr::{Crontab, MakeTimestamp, parse_crontab};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{SignedDuration, Timestamp};

use super::api::CronWindow;
use super::invalid::Invalid;

const SECOND: SignedDuration = SignedDuration::from_secs(1);
/// How far back the last start is looked for: where most are, and at last four years, as far as the library
/// looks ahead.
const LOOKBACKS: [SignedDuration; 3] = [
    SignedDuration::from_hours(24),
    SignedDuration::from_hours(35 * 24),
    SignedDuration::from_hours(1_461 * 24),
];

/// What a clock shows, as if its zone were UTC.
type Clock = Timestamp;

/// A window between two times of cron.
#[derive(Clone, Debug)]
pub(super) struct Cron {
    start: Crontab,
    end: Crontab,
    /// Replicas while it lasts.
    pub(super) replicas: i32,
}

/// How a window stands at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn {
    /// Whether it lasts.
    pub(super) lasts: bool,
    /// When it may end, or else begin.
    pub(super) next: Option<Timestamp>,
    /// The same by the clock.
    clock: Option<Clock>,
}

impl Cron {
    /// The window of a spec.
    ///
    /// # Errors
    /// If an expression is none of cron's, or both are one.
    pub(super) fn new(window: &CronWindow) -> Result<Self, Invalid> {
        let (start, end) = (parse(&window.start)?, parse(&window.end)?);
        // Many texts say the same, as 9 and 09 do. The library compares none, but shows what it has read.
        if format!("{start:?}") == format!("{end:?}") {
            let problem = "a window cannot end when it begins".to_owned();
            return Err(Invalid::Cron { expression: window.end.clone(), problem });
        }
        Ok(Self { start, end, replicas: window.replica })
    }

    /// How it stands at `moment`.
    pub(super) fn turn(&self, zone: &TimeZone, moment: Timestamp) -> Turn {
        let clock = shown(zone, moment);
        let goes_on = |start| next(&self.end, start).is_none_or(|end| end > clock);
        self.standing(zone, clock, last(&self.start, clock).is_some_and(goes_on))
    }

    /// How it stands at `moment`, which is the next of `before`.
    pub(super) fn turned(&self, zone: &TimeZone, before: Turn, moment: Timestamp) -> Turn {
        let clock = shown(zone, moment);
        let mut turn = before;
        // Several, where the clock is put forward over them.
        while let Some(at) = turn.clock.filter(|at| *at <= clock) {
            let begins = || self.start.matches(MakeTimestamp(at)).unwrap_or(false);
            turn = self.standing(zone, at, !turn.lasts || begins());
        }
        turn
    }

    fn standing(&self, zone: &TimeZone, clock: Clock, lasts: bool) -> Turn {
        let clock = next(if lasts { &self.end } else { &self.start }, clock);
        Turn { lasts, next: clock.and_then(|clock| reached(zone, clock)), clock }
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

/// The first time after `clock`.
fn next(crontab: &Crontab, clock: Clock) -> Option<Clock> {
    crontab.find_next(MakeTimestamp(clock)).ok().map(|found| found.timestamp())
}

/// The last time that is not after `clock`. Each step leaves half of the time to search, or less.
fn last(crontab: &Crontab, clock: Clock) -> Option<Clock> {
    let after = |from| next(crontab, from).filter(|time| *time <= clock);
    let mut last = LOOKBACKS.iter().find_map(|back| after(clock.checked_sub(*back).ok()?))?;
    let mut none_after = clock;
    while let Some(later) = after(last) {
        last = later;
        let middle = last + none_after.duration_since(last) / 2;
        match after(middle) {
            Some(later) => last = later,
            None => none_after = middle,
        }
    }
    Some(last)
}

/// The latest time that the clock of a zone has shown at `moment`.
fn shown(zone: &TimeZone, moment: Timestamp) -> Clock {
    let shown = |moment| TimeZone::UTC.to_timestamp(zone.to_datetime(moment)).unwrap_or(moment);
    let step = zone.preceding(moment + SECOND).next();
    let before = step.map(|step| shown(step.timestamp() - SECOND));
    before.map_or(shown(moment), |before| before.max(shown(moment)))
}

/// When the clock of a zone first shows a time, or is put forward over it.
fn reached(zone: &TimeZone, clock: Clock) -> Option<Timestamp> {
    let shown = zone.to_ambiguous_timestamp(TimeZone::UTC.to_datetime(clock));
    let gap = matches!(shown.offset(), AmbiguousOffset::Gap { .. });
    let at = shown.compatible().ok()?;
    // What precedes is strictly before, and the first time after a gap is the step itself.
    let step = || zone.preceding(at + SECOND).next().map(|step| step.timestamp());
    if gap { step() } else { Some(at) }
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
            // What ends more often than it begins.
            (
                "0 9 * * 1-5",
                "0 17 * * *",
                "UTC",
                "2026-11-20T17:55:00Z",
                false,
                "2026-11-23T09:00:00Z",
            ),
            (
                "0 9 * * 1-5",
                "0 17 * * *",
                "UTC",
                "2026-11-21T12:00:00Z",
                false,
                "2026-11-23T09:00:00Z",
            ),
            (
                "0 9 * * 4",
                "0 17 * * *",
                "UTC",
                "2026-11-19T16:59:59Z",
                true,
                "2026-11-19T17:00:00Z",
            ),
            // What begins more often than it ends.
            (
                "0 * * * *",
                "30 17 * * 5",
                "UTC",
                "2026-11-18T12:00:00Z",
                true,
                "2026-11-20T17:30:00Z",
            ),
            (
                "0 * * * *",
                "30 17 * * 5",
                "UTC",
                "2026-11-20T17:30:00Z",
                false,
                "2026-11-20T18:00:00Z",
            ),
            // A time that both name begins a window, and does not end it.
            ("0 0 * * 6", "0 0 * * *", "UTC", "2026-11-21T00:00:00Z", true, "2026-11-22T00:00:00Z"),
            // Leap years, of which the last day of February is long ago.
            (
                "0 0 29 2 *",
                "0 0 1 1 *",
                "UTC",
                "2026-11-21T00:00:00Z",
                false,
                "2028-02-29T00:00:00Z",
            ),
            (
                "0 0 29 2 *",
                "1 0 29 2 *",
                "UTC",
                "2028-02-29T00:00:30Z",
                true,
                "2028-02-29T00:01:00Z",
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
            // A window that is skipped as a whole is not.
            (
                "30 2 * * *",
                "45 2 * * *",
                berlin,
                "2026-03-29T01:00:00Z",
                false,
                "2026-03-30T00:30:00Z",
            ),
            (
                "30 2 * * *",
                "15 2 * * *",
                berlin,
                "2026-03-29T01:00:00Z",
                true,
                "2026-03-30T00:15:00Z",
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
            let turn = cron.turn(&zone(name).unwrap(), moment.parse().unwrap());
            let next = Some(next.parse::<Timestamp>().unwrap());
            assert_eq!((turn.lasts, turn.next), (lasts, next), "{start} - {end} {moment}");
        }
    }

    /// Minute by minute, a start begins it and an end that is no start ends it.
    #[test]
    fn a_window_lasts_as_whoever_looks_each_minute_says() {
        const DAYS: i64 = 21;
        let first: Timestamp = "2026-02-20T00:00:00Z".parse().unwrap();
        let expressions = ["0 9 * * 1-5", "30 17 * * *", "0 */7 * * *", "0 0 1 * *", "0 9 * * 4"];
        for (start, end) in expressions.iter().flat_map(|start| expressions.map(|end| (start, end)))
        {
            let Ok(cron) = Cron::new(&window(start, end)) else { continue };
            let mut turn = cron.turn(&TimeZone::UTC, first);
            let mut lasts = turn.lasts;
            for minute in 1..DAYS * 24 * 60 {
                let moment = first + SignedDuration::from_mins(minute);
                let names = |crontab: &Crontab| crontab.matches(MakeTimestamp(moment)).unwrap();
                lasts = names(&cron.start) || lasts && !names(&cron.end);
                if turn.next == Some(moment) {
                    turn = cron.turned(&TimeZone::UTC, turn, moment);
                }
                assert_eq!(turn.lasts, lasts, "{start} - {end} {moment}");
                if minute % 407 == 0 {
                    assert_eq!(cron.turn(&TimeZone::UTC, moment), turn, "{start} - {end} {moment}");
                }
            }
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
            ("0 9 * * *", "00 09 * * *", "\"00 09 * * *\" cannot be used, a window cannot"),
            ("0 9 * * 0", " 0  9 * * 7", "cannot end when it begins"),
            ("0 9-11 * * 1-5", "0 9,10,11 * * 5,1-4", "cannot end when it begins"),
        ] {
            let problem = Cron::new(&window(start, end)).unwrap_err().to_string();
            assert!(problem.contains(words), "{problem}");
        }
    }
}
