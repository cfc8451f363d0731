//! Which Events are repeats of which, and how many are written. Pure.

use std::time::Duration;

use jiff::Timestamp;
use model::{Bucket, Moment, Rate};
use quick_cache::unsync::Cache;

/// A repeat within this long extends the series; later, a new Event begins.
pub(super) const SERIES_WINDOW: Duration = Duration::from_secs(6 * 60);
/// A series is written at most this often.
pub(super) const SERIES_INTERVAL: Duration = Duration::from_secs(10);
/// How many series, and how many budgets of sources and objects, are remembered. Beyond it the least
/// recently used are forgotten.
pub(super) const MAX_SERIES: usize = 4096;
/// What one source may write about one object, first and repeated Events alike: `burst` after a rest,
/// and one more each `interval`. The figures are those of client-go's
/// `EventSourceObjectSpamFilter` (`defaultSpamBurst` and `defaultSpamQPS` in
/// <https://github.com/kubernetes/client-go/blob/master/tools/record/events_cache.go>).
pub(super) const SPAM: Rate = Rate { interval: Duration::from_secs(5 * 60), burst: 25 };
/// How many bytes of the object's name the Event's name keeps, so that the name and a suffix fit into
/// 253.
const MAX_NAME_BYTES: usize = 230;

/// One occurrence of an Event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Occurrence<'a> {
    /// Equal for repeats.
    pub(super) identity: u64,
    /// Equal for all Events of one source about one object.
    pub(super) subject: u64,
    /// The object's name.
    pub(super) object: &'a str,
    /// When, on the wall clock and on one that never steps.
    pub(super) at: (Timestamp, Moment),
}

/// What to write for an occurrence.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// An Event of this name.
    Create {
        /// Its name.
        name: String,
    },
    /// A new count of occurrences, on the Event of this name.
    Extend {
        /// Its name.
        name: String,
        /// Occurrences so far.
        count: i32,
    },
    /// Nothing: the series was written a moment ago, and a later repeat writes it again.
    Later,
    /// Nothing: too much was written about the object.
    Spam,
}

/// The recent Events.
#[derive(Debug)]
pub(super) struct Series {
    seen: Cache<u64, Seen>,
    /// By subject.
    budgets: Cache<u64, Bucket>,
}

#[derive(Clone, Debug)]
struct Seen {
    name: String,
    count: i32,
    last: Timestamp,
    written: Timestamp,
}

impl Default for Series {
    fn default() -> Self {
        Self { seen: Cache::new(MAX_SERIES), budgets: Cache::new(MAX_SERIES) }
    }
}

impl Series {
    pub(super) fn observe(&mut self, occurrence: Occurrence<'_>) -> Plan {
        let Occurrence { identity, subject, object, at: (now, _) } = occurrence;
        let age = |since: Timestamp| now.duration_since(since).unsigned_abs();
        let seen = self.seen.get(&identity).filter(|seen| age(seen.last) < SERIES_WINDOW);
        let Some(mut seen) = seen.cloned() else {
            if !self.may_write(subject, occurrence.at.1) {
                return Plan::Spam;
            }
            let unique = identity ^ now.as_microsecond().cast_unsigned();
            let name = format!("{}.{unique:016x}", shortened(object, MAX_NAME_BYTES));
            let seen = Seen { name: name.clone(), count: 1, last: now, written: now };
            self.seen.insert(identity, seen);
            return Plan::Create { name };
        };
        (seen.count, seen.last) = (seen.count + 1, now);
        let plan = if age(seen.written) < SERIES_INTERVAL && seen.count > 2 {
            Plan::Later
        } else if !self.may_write(subject, occurrence.at.1) {
            Plan::Spam
        } else {
            seen.written = now;
            Plan::Extend { name: seen.name.clone(), count: seen.count }
        };
        self.seen.insert(identity, seen);
        plan
    }

    /// Forgets a series: the next repeat begins a new one.
    pub(super) fn forget(&mut self, identity: u64) {
        self.seen.remove(&identity);
    }

    fn may_write(&mut self, subject: u64, now: Moment) -> bool {
        let mut budget = self.budgets.get(&subject).copied().unwrap_or_else(|| Bucket::new(SPAM));
        let may = budget.ready_at(now) <= now;
        if may {
            budget.take(1, now);
            self.budgets.insert(subject, budget);
        }
        may
    }
}

/// The beginning of a text, at most this many bytes of it and whole characters.
pub(super) fn shortened(text: &str, max_bytes: usize) -> &str {
    let mut end = max_bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> (Timestamp, Moment) {
        let moment = Moment::from_origin(Duration::from_secs(seconds));
        (Timestamp::from_second(seconds.try_into().unwrap()).unwrap(), moment)
    }

    fn occurrence(identity: u64, seconds: u64) -> Occurrence<'static> {
        Occurrence { identity, subject: 1, object: "a", at: at(seconds) }
    }

    #[test]
    fn repeats_become_a_series_written_now_and_then() {
        let mut series = Series::default();
        let Plan::Create { name } = series.observe(occurrence(7, 0)) else { panic!() };
        assert!(name.starts_with("a."), "{name}");
        let extend = |count| Plan::Extend { name: name.clone(), count };
        assert_eq!(series.observe(occurrence(7, 1)), extend(2));
        assert_eq!(series.observe(occurrence(7, 2)), Plan::Later);
        assert_eq!(series.observe(occurrence(7, 12)), extend(4));
        let Plan::Create { name: later } = series.observe(occurrence(7, 12 + 400)) else {
            panic!("a repeat after the window begins a new series")
        };
        assert_ne!(name, later);
    }

    #[test]
    fn a_source_that_writes_too_much_about_an_object_is_held_back() {
        let mut series = Series::default();
        let burst = u64::from(SPAM.burst);
        for identity in 0..burst {
            let plan = series.observe(occurrence(identity, 0));
            assert!(matches!(plan, Plan::Create { .. }), "{identity}: {plan:?}");
        }
        assert_eq!(series.observe(occurrence(burst, 0)), Plan::Spam);
        assert_eq!(series.observe(occurrence(burst, 299)), Plan::Spam);
        let other = Occurrence { subject: 2, ..occurrence(burst, 299) };
        assert!(matches!(series.observe(other), Plan::Create { .. }), "others are not held back");
        // One each five minutes; of a series it is a repeat, with all that went by.
        assert_eq!(series.observe(occurrence(0, 300)), extend(&series, 0, 2));
        assert_eq!(series.observe(occurrence(0, 320)), Plan::Spam);
        assert_eq!(series.observe(occurrence(0, 600)), extend(&series, 0, 4));
    }

    fn extend(series: &Series, identity: u64, count: i32) -> Plan {
        Plan::Extend { name: series.seen.peek(&identity).unwrap().name.clone(), count }
    }

    #[test]
    fn a_clock_that_is_set_back_silences_nobody() {
        let mut series = Series::default();
        series.observe(occurrence(7, 1_000_000));
        let (then, _) = at(0);
        let back = Occurrence { at: (then, at(1_000_001).1), ..occurrence(7, 0) };
        assert!(matches!(series.observe(back), Plan::Create { .. }));
    }

    #[test]
    fn texts_are_cut_between_characters() {
        for (text, max, expect) in
            [("abc", 9, "abc"), ("abc", 2, "ab"), ("aäb", 2, "a"), ("", 0, "")]
        {
            assert_eq!(shortened(text, max), expect, "{text} {max}");
        }
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut series = Series::default();
        for id in 0..2 * MAX_SERIES as u64 {
            series.observe(Occurrence { subject: id, ..occurrence(id, id) });
        }
        assert!(series.seen.len() <= MAX_SERIES && series.budgets.len() <= MAX_SERIES);
    }
}
