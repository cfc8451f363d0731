//! Sets of transactions as MySQL names them: read from its text, compared, written again. Pure.
//!
//! A transaction is `uuid:number`, or `uuid:tag:number` since 8.3. A set lists intervals of numbers:
//! `3e11fa47-71ca-11e1-9e33-c80aa9429562:1-3:5:tag:1-2`, with commas between the uuids. Each set here
//! is kept in one form (intervals sorted, joined where they touch, none of them empty), so that equal
//! sets are equal values.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// The longest text that is read, in bytes. A healthy set has a line for each source it ever had.
const MAX_TEXT: usize = 256 * 1024;
/// The most intervals in a text that is read.
const MAX_INTERVALS: usize = 10_000;
/// The longest tag, in bytes.
const MAX_TAG: usize = 32;
/// The highest number of a transaction that MySQL gives.
const MAX_NUMBER: u64 = i64::MAX as u64 - 1;
/// How much of a text that is no set an error repeats, in characters.
const MAX_QUOTE: usize = 80;

/// A set of transactions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GtidSet {
    intervals: BTreeMap<Origin, Vec<Interval>>,
}

/// Who numbered transactions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Origin {
    uuid: u128,
    /// Empty without a tag, which sorts first as in MySQL's text.
    tag: String,
}

/// The numbers from the first to the second, both included.
type Interval = (u64, u64);

/// A text is no set of transactions.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum GtidError {
    #[error("the set of transactions has {0} bytes, and {MAX_TEXT} are read")]
    TooLong(usize),
    #[error("the set of transactions has more than {MAX_INTERVALS} intervals")]
    TooMany,
    #[error("`{0}` is no uuid with intervals")]
    Malformed(String),
}

impl GtidSet {
    /// What `gtid_owned` lists: transactions with the threads that commit them, `uuid:4#12:5#13#14`.
    pub(crate) fn owned(text: &str) -> Result<Self, GtidError> {
        if text.len() > MAX_TEXT {
            return Err(GtidError::TooLong(text.len()));
        }
        let mut is_thread = false;
        let is_kept = |sign: &char| {
            is_thread = *sign == '#' || (is_thread && sign.is_ascii_digit());
            !is_thread
        };
        text.chars().filter(is_kept).collect::<String>().parse()
    }

    /// Whether it has no transaction.
    pub(crate) fn is_empty(&self) -> bool {
        self.intervals.is_empty()
    }

    /// Whether it has each transaction of the other.
    pub(crate) fn contains(&self, other: &Self) -> bool {
        other.intervals.iter().all(|(origin, wanted)| {
            let have = self.intervals.get(origin).map_or(&[][..], Vec::as_slice);
            // Intervals that touch are joined, so one has to hold the whole.
            wanted.iter().all(|(from, to)| {
                let next = have.partition_point(|(_, end)| end < from);
                have.get(next).is_some_and(|(start, end)| start <= from && to <= end)
            })
        })
    }

    /// The transactions of either.
    pub(crate) fn union(&self, other: &Self) -> Self {
        let mut both = self.clone();
        for (origin, intervals) in &other.intervals {
            let known = both.intervals.entry(origin.clone()).or_default();
            known.extend(intervals);
            *known = joined(std::mem::take(known));
        }
        both
    }

    /// The transactions that the other does not have.
    pub(crate) fn difference(&self, other: &Self) -> Self {
        let mut rest = Self::default();
        for (origin, intervals) in &self.intervals {
            let without = other.intervals.get(origin).map_or(&[][..], Vec::as_slice);
            let left: Vec<_> = intervals.iter().flat_map(|held| cut(*held, without)).collect();
            if !left.is_empty() {
                rest.intervals.insert(origin.clone(), left);
            }
        }
        rest
    }

    /// The transactions that other servers than this one numbered. All, if the text is no uuid.
    pub(crate) fn without(&self, uuid: &str) -> Self {
        let Some(uuid) = uuid_of(uuid) else { return self.clone() };
        let others = self.intervals.iter().filter(|(origin, _)| origin.uuid != uuid);
        Self {
            intervals: others
                .map(|(origin, intervals)| (origin.clone(), intervals.clone()))
                .collect(),
        }
    }
}

#[cfg(test)]
impl GtidSet {
    /// The set of these transactions.
    pub(crate) fn of(all: impl Iterator<Item = (u128, u64)>) -> Self {
        let mut set = Self::default();
        for (uuid, number) in all {
            let origin = Origin { uuid, tag: String::new() };
            set.intervals.entry(origin).or_default().push((number, number));
        }
        set.intervals.values_mut().for_each(|all| *all = joined(std::mem::take(all)));
        set
    }
}

impl FromStr for GtidSet {
    type Err = GtidError;

    fn from_str(text: &str) -> Result<Self, GtidError> {
        if text.len() > MAX_TEXT {
            return Err(GtidError::TooLong(text.len()));
        }
        let mut set = Self::default();
        let mut count = 0;
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            count += set.read(part).ok_or_else(|| {
                GtidError::Malformed(part.chars().take(MAX_QUOTE).collect::<String>())
            })?;
            if count > MAX_INTERVALS {
                return Err(GtidError::TooMany);
            }
        }
        for intervals in set.intervals.values_mut() {
            *intervals = joined(std::mem::take(intervals));
        }
        Ok(set)
    }
}

impl GtidSet {
    /// Adds what one uuid is listed with, and says how many intervals that were.
    fn read(&mut self, part: &str) -> Option<usize> {
        let mut items = part.split(':').map(str::trim);
        let uuid = uuid_of(items.next()?)?;
        let (mut tag, mut count, mut is_open) = (String::new(), 0, true);
        for item in items {
            if item.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_') {
                if is_open && !tag.is_empty() {
                    return None;
                }
                tag = tag_of(item)?;
                is_open = true;
                continue;
            }
            let interval = interval_of(item)?;
            let origin = Origin { uuid, tag: tag.clone() };
            self.intervals.entry(origin).or_default().push(interval);
            count += 1;
            is_open = false;
        }
        (!is_open).then_some(count)
    }
}

impl fmt::Display for GtidSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut last = None;
        for (origin, intervals) in &self.intervals {
            if last != Some(origin.uuid) {
                let comma = if last.is_some() { "," } else { "" };
                write!(f, "{comma}{}", hyphenated(origin.uuid))?;
                last = Some(origin.uuid);
            }
            if !origin.tag.is_empty() {
                write!(f, ":{}", origin.tag)?;
            }
            for (from, to) in intervals {
                match from == to {
                    true => write!(f, ":{from}")?,
                    false => write!(f, ":{from}-{to}")?,
                }
            }
        }
        Ok(())
    }
}

/// Intervals in order, joined where they touch.
fn joined(mut intervals: Vec<Interval>) -> Vec<Interval> {
    intervals.sort_unstable();
    let mut kept: Vec<Interval> = Vec::with_capacity(intervals.len());
    for (from, to) in intervals {
        match kept.last_mut() {
            Some((_, end)) if from <= end.saturating_add(1) => *end = (*end).max(to),
            _ => kept.push((from, to)),
        }
    }
    kept
}

/// What is left of an interval without these.
fn cut((mut from, to): Interval, without: &[Interval]) -> Vec<Interval> {
    let mut left = Vec::new();
    let first = without.partition_point(|(_, end)| *end < from);
    for (start, end) in without.iter().skip(first).take_while(|(start, _)| *start <= to) {
        if from < *start {
            left.push((from, start - 1));
        }
        from = end + 1;
    }
    if from <= to {
        left.push((from, to));
    }
    left
}

/// A uuid with hyphens, as MySQL prints it in any case.
fn uuid_of(text: &str) -> Option<u128> {
    let bytes = text.as_bytes();
    let is_hyphen = |place: usize| matches!(place, 8 | 13 | 18 | 23);
    let is_shaped = bytes.len() == 36
        && (0..36).all(|place| match is_hyphen(place) {
            true => bytes[place] == b'-',
            false => bytes[place].is_ascii_hexdigit(),
        });
    let digits: String = text.chars().filter(|digit| *digit != '-').collect();
    is_shaped.then(|| u128::from_str_radix(&digits, 16).ok()).flatten()
}

fn hyphenated(uuid: u128) -> String {
    let digits = format!("{uuid:032x}");
    let places = [0..8, 8..12, 12..16, 16..20, 20..32];
    places.map(|place| &digits[place]).join("-")
}

fn tag_of(text: &str) -> Option<String> {
    let is_shaped = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    (is_shaped && text.len() <= MAX_TAG).then(|| text.to_ascii_lowercase())
}

fn interval_of(text: &str) -> Option<Interval> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let (from, to) = (number_of(from)?, number_of(to)?);
    (1 <= from && from <= to && to <= MAX_NUMBER).then_some((from, to))
}

fn number_of(text: &str) -> Option<u64> {
    let text = text.trim();
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
#[path = "gtid_tests.rs"]
mod tests;
