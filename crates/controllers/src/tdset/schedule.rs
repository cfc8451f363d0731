//! The schedule: what decides at a moment, and when something else will. Pure.
//!
//! ```text
//!   exceptions (days) ─▶ windows (times of days) ─▶ windows of cron ─▶ default
//!   the first that holds the moment decides
//! ```
//!
//! Windows and days are read on the clock of a time zone, so what they say depends on the local date and
//! minute alone. These pass a boundary where the clock shows one, at midnight and, where the zone's offset
//! steps, at that step. Everything about daylight saving follows from that:
//!
//! ```text
//! spring, Berlin   01:59 +01 ─▶ 03:00 +02   a window 2-3 does not happen that day
//! autumn, Berlin   02:59 +02 ─▶ 02:00 +01   a window 2-3 lasts two hours that day
//! ```
//!
//! Zones come from the database compiled into the binary, never from the machine: every replica
//! must give the same answer, and an image from scratch holds no database.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use jiff::civil::{Date, DateTime};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp, ToSpan};

use super::api::{Day, Exception, TDSetSpec, Window};
use super::cron::{Cron, Turn};
use super::dates::Dates;
use super::invalid::Invalid;

pub(super) const MINUTES_PER_HOUR: i32 = 60;
/// Minutes of a local day.
pub(super) const MINUTES_PER_DAY: i32 = 24 * MINUTES_PER_HOUR;
const SECONDS_PER_DAY: i64 = 86_400;

/// How far ahead the next change is looked for: longer than any month.
pub(super) const HORIZON: SignedDuration = SignedDuration::from_hours(35 * 24);
/// The most moments that are looked at for it, however many a schedule has. Then the search goes on when the
/// last of them comes.
const MAX_STEPS: usize = 4_000;

static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// What decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// The exception at this position.
    Exception(usize),
    /// The window at this position.
    Window(usize),
    /// The window of cron at this position.
    Cron(usize),
    /// None of them.
    Default,
}

/// What the schedule says at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub rule: Rule,
    pub replicas: i32,
}

/// What comes after a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Another answer, from then on.
    Change(Timestamp, Answer),
    /// No other answer before that moment.
    NotBefore(Timestamp),
    /// The same answer for ever.
    Never,
}

impl Next {
    /// When to ask again.
    pub(super) fn moment(self) -> Option<Timestamp> {
        match self {
            Self::Change(at, _) | Self::NotBefore(at) => Some(at),
            Self::Never => None,
        }
    }
}

/// A schedule that can be used.
#[derive(Clone, Debug)]
pub(super) struct Schedule {
    zone: TimeZone,
    exceptions: Vec<(Dates, i32)>,
    windows: Vec<Span>,
    cron: Vec<Cron>,
    default: i32,
    /// Minutes of the day at which the answer can change.
    marks: BTreeSet<i32>,
}

/// A window, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    start: i32,
    end: i32,
    days: Vec<Day>,
    dates: Dates,
    replicas: i32,
}

/// The time zone of that name.
///
/// # Errors
/// [`Invalid::Zone`] if there is none.
pub(super) fn zone(name: &str) -> Result<TimeZone, Invalid> {
    let found = ZONES.get(name).ok().filter(|zone| !zone.is_unknown());
    found.ok_or_else(|| Invalid::Zone { name: name.to_owned() })
}

// === impl Schedule ===

impl Schedule {
    /// The schedule of a TDSet.
    ///
    /// # Errors
    /// If a time zone, a date or an expression of cron is none.
    pub(super) fn new(spec: &TDSetSpec) -> Result<Self, Invalid> {
        let exception = |exception: &Exception| {
            let to = exception.to.as_ref().unwrap_or(&exception.from);
            let dates = Dates::parse(Some(&exception.from), Some(to))?;
            Ok((dates, exception.replica.unwrap_or(spec.default_replica)))
        };
        let windows: Vec<_> =
            spec.scheduling_config.iter().map(Span::new).collect::<Result<_, _>>()?;
        Ok(Self {
            zone: zone(&spec.time_zone)?,
            exceptions: spec.exceptions.iter().map(exception).collect::<Result<_, Invalid>>()?,
            marks: windows.iter().flat_map(|span| [0, span.start, span.end]).chain([0]).collect(),
            windows,
            cron: spec.cron.iter().map(Cron::new).collect::<Result<_, _>>()?,
            default: spec.default_replica,
        })
    }

    /// The days of its exceptions, and their replicas.
    pub(super) fn exceptions(&self) -> &[(Dates, i32)] {
        &self.exceptions
    }

    /// Its windows.
    pub(super) fn windows(&self) -> &[Span] {
        &self.windows
    }

    /// Its windows of cron.
    pub(super) fn cron(&self) -> &[Cron] {
        &self.cron
    }

    /// The Monday of the week of `now`, on its clock.
    pub(super) fn monday(&self, now: Timestamp) -> Date {
        let day = self.zone.to_datetime(now).date();
        day.saturating_sub(day.weekday().to_monday_zero_offset().days())
    }

    /// The minutes of the day at which a window begins or ends, midnight among them.
    pub(super) fn marks(&self) -> &BTreeSet<i32> {
        &self.marks
    }

    /// The answer at `now`.
    pub(super) fn at(&self, now: Timestamp) -> Answer {
        let now = floor(now);
        self.answer(now, &self.turns(now))
    }

    /// What comes after `now`.
    pub(super) fn next(&self, now: Timestamp) -> Next {
        let mut cursor = floor(now);
        let mut turns = self.turns(cursor);
        let present = self.answer(cursor, &turns);
        if self.is_constant() {
            return Next::Never;
        }
        let horizon = cursor.saturating_add(HORIZON).unwrap_or(Timestamp::MAX);
        for _ in 0..MAX_STEPS {
            let turned = turns.iter().filter_map(|turn| turn.next).min();
            let step = turned.into_iter().chain(self.next_mark(cursor)).min();
            let Some(step) = step.filter(|step| *step < horizon) else {
                return Next::NotBefore(horizon);
            };
            cursor = step;
            for (turn, cron) in turns.iter_mut().zip(&self.cron) {
                if turn.next == Some(cursor) {
                    *turn = cron.turned(&self.zone, *turn, cursor);
                }
            }
            let answer = self.answer(cursor, &turns);
            if answer != present {
                return Next::Change(cursor, answer);
            }
        }
        Next::NotBefore(cursor)
    }

    /// Whether the answer never changes: one window that holds every moment decides, or nothing is there.
    fn is_constant(&self) -> bool {
        let first = self.windows.first().is_none_or(Span::is_always);
        self.exceptions.is_empty() && first && (self.cron.is_empty() || !self.windows.is_empty())
    }

    fn turns(&self, moment: Timestamp) -> Vec<Turn> {
        self.cron.iter().map(|cron| cron.turn(&self.zone, moment)).collect()
    }

    fn answer(&self, moment: Timestamp, turns: &[Turn]) -> Answer {
        let clock = self.zone.to_datetime(moment);
        let (day, minute) = (clock.date(), minute_of(clock));
        let exception = self.exceptions.iter().enumerate().find(|(_, (dates, _))| dates.holds(day));
        if let Some((index, (_, replicas))) = exception {
            return Answer { rule: Rule::Exception(index), replicas: *replicas };
        }
        let window = self.windows.iter().enumerate().find(|(_, span)| span.holds(day, minute));
        if let Some((index, span)) = window {
            return Answer { rule: Rule::Window(index), replicas: span.replicas };
        }
        let cron = turns.iter().zip(&self.cron).enumerate().find(|(_, (turn, _))| turn.lasts);
        match cron {
            Some((index, (_, cron))) => Answer { rule: Rule::Cron(index), replicas: cron.replicas },
            None => Answer { rule: Rule::Default, replicas: self.default },
        }
    }

    /// The next moment at which the clock shows a mark, or steps.
    fn next_mark(&self, from: Timestamp) -> Option<Timestamp> {
        let clock = self.zone.to_datetime(from);
        let second = i64::from(minute_of(clock)) * 60 + i64::from(clock.second());
        let marks = self.marks.iter().map(|minute| i64::from(*minute) * 60);
        // Midnight is a mark, so one of the next day follows all of this day.
        let next = marks.chain([SECONDS_PER_DAY]).filter(|mark| *mark > second).min()?;
        let shown = from.checked_add(SignedDuration::from_secs(next - second)).ok()?;
        let step = self.zone.following(from).next().map(|step| step.timestamp());
        Some(step.map_or(shown, |step| step.min(shown)))
    }
}

/// Objects of an older definition may have any number: it is the nearest that a clock shows.
fn minute_of_day(hour: i32, minute: i32) -> i32 {
    hour.clamp(0, 24) * MINUTES_PER_HOUR + minute.clamp(0, MINUTES_PER_HOUR - 1)
}

// === impl Span ===

impl Span {
    fn new(window: &Window) -> Result<Self, Invalid> {
        Ok(Self {
            start: minute_of_day(window.start_time, window.start_minute),
            end: minute_of_day(window.end_time, window.end_minute),
            days: window.days.clone(),
            dates: Dates::parse(window.from.as_deref(), window.to.as_deref())?,
            replicas: window.replica,
        })
    }

    /// Whether it holds this minute of this day.
    pub(super) fn holds(&self, day: Date, minute: i32) -> bool {
        if self.start < self.end {
            return (self.start..self.end).contains(&minute) && self.begins(day);
        }
        // It crosses midnight, or lasts a whole day: what began on the day before goes on.
        let yesterday = || day.yesterday().is_ok_and(|yesterday| self.begins(yesterday));
        (minute >= self.start && self.begins(day)) || (minute < self.end && yesterday())
    }

    /// Whether it recurs each week.
    pub(super) fn is_weekly(&self) -> bool {
        self.dates == Dates::Every
    }

    fn begins(&self, day: Date) -> bool {
        // Both count from Monday.
        let weekday = day.weekday().to_monday_zero_offset();
        let is_on = self.days.is_empty() || self.days.iter().any(|day| *day as i8 == weekday);
        is_on && self.dates.holds(day)
    }

    fn is_always(&self) -> bool {
        self.start == self.end && self.days.is_empty() && self.is_weekly()
    }
}

impl Window {
    /// The window as people write it.
    pub(super) fn label(&self) -> String {
        let Self { start_time, start_minute, end_time, end_minute, .. } = self;
        format!("{start_time:02}:{start_minute:02}-{end_time:02}:{end_minute:02}")
    }
}

fn minute_of(clock: DateTime) -> i32 {
    i32::from(clock.hour()) * MINUTES_PER_HOUR + i32::from(clock.minute())
}

/// The second that holds `moment`, rounded down also before 1970.
fn floor(moment: Timestamp) -> Timestamp {
    let second = moment.as_second() - i64::from(moment.subsec_nanosecond() < 0);
    Timestamp::from_second(second).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
