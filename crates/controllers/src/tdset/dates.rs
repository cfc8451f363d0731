//! Ranges of days: of one year, or of each. Pure.

use std::fmt;

use jiff::civil::{Date, date};

use super::invalid::Invalid;

/// Days, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dates {
    /// All days.
    Every,
    /// Those from one to another.
    Once(Date, Date),
    /// Those from one month and day to another, each year. An end before the start is in the next year.
    Yearly((i8, i8), (i8, i8)),
}

/// One end: with a year, or without.
#[derive(Clone, Copy)]
enum End {
    Once(Date),
    Yearly(i8, i8),
}

/// A leap year: it has every month and day.
const LEAP_YEAR: i16 = 2024;
const DAYS_OF_LEAP_YEAR: i16 = 366;
/// In so many years each month and day comes, also where a leap year is left out.
const YEARS: usize = 9;

impl Dates {
    /// The days from `from` to `to`, as `2026-12-24` or `12-24`. Without one of them, the other bounds a range
    /// that is open; without both, every day.
    ///
    /// # Errors
    /// If one is no date, or they are in no order.
    pub(super) fn parse(from: Option<&str>, to: Option<&str>) -> Result<Self, Invalid> {
        let wrong = |text: &str, why| Invalid::Date { text: text.to_owned(), why };
        let ends = [from, to].map(|text| text.map(|text| (text, end(text))));
        for (text, end) in ends.iter().flatten() {
            end.ok_or_else(|| {
                wrong(text, "it is no date: write 2026-12-24, or 12-24 for each year")
            })?;
        }
        let [from, to] = ends.map(|end| end.and_then(|(text, end)| Some((text, end?))));
        match (from, to) {
            (None, None) => Ok(Self::Every),
            (Some((_, End::Once(from))), None) => Ok(Self::Once(from, Date::MAX)),
            (None, Some((_, End::Once(to)))) => Ok(Self::Once(Date::MIN, to)),
            (Some((_, End::Yearly(m, d))), None) => Ok(Self::Yearly((m, d), (12, 31))),
            (None, Some((_, End::Yearly(m, d)))) => Ok(Self::Yearly((1, 1), (m, d))),
            (Some((text, End::Once(from))), Some((_, End::Once(to)))) if to < from => {
                Err(wrong(text, "it is after the end of its range: exchange them"))
            }
            (Some((_, End::Once(from))), Some((_, End::Once(to)))) => Ok(Self::Once(from, to)),
            (Some((_, End::Yearly(m, d))), Some((_, End::Yearly(n, e)))) => {
                Ok(Self::Yearly((m, d), (n, e)))
            }
            (Some((text, _)), Some(_)) => {
                Err(wrong(text, "one end of its range has a year and the other has none"))
            }
        }
    }

    /// Whether it takes days from `other`, below it, that people hardly mean: it has some of them, and is not a part of
    /// `other` that is above on purpose, as one year's Christmas is above that of each year.
    pub(super) fn hides(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Once(from, to), Self::Once(start, end)) => {
                let is_part = start <= from && to <= end && (from, to) != (start, end);
                from <= end && start <= to && !is_part
            }
            (Self::Yearly(from, to), Self::Yearly(start, end)) => {
                let after = |day| (ordinal(day) - ordinal(*start)).rem_euclid(DAYS_OF_LEAP_YEAR);
                let is_part = after(*from) <= after(*to)
                    && after(*to) <= after(*end)
                    && (from, to) != (start, end);
                // Of two that meet, one holds the beginning of the other.
                (after(*from) <= after(*end) || self.has(*start)) && !is_part
            }
            (Self::Yearly((month, day), _), Self::Once(start, end)) => {
                let begins = |year| Date::new(year, *month, *day).ok();
                let mut begins = (start.year()..=end.year()).take(YEARS).filter_map(begins);
                self.holds(*start) || begins.any(|day| (*start..=*end).contains(&day))
            }
            (Self::Once(..), Self::Yearly(..)) | (Self::Every, _) | (_, Self::Every) => false,
        }
    }

    /// Whether it has this day.
    pub(super) fn holds(&self, day: Date) -> bool {
        match self {
            Self::Every => true,
            Self::Once(from, to) => (*from..=*to).contains(&day),
            Self::Yearly(..) => self.has((day.month(), day.day())),
        }
    }

    /// Whether it has this month and day, each year.
    fn has(&self, within: (i8, i8)) -> bool {
        match self {
            Self::Every => true,
            Self::Once(..) => false,
            Self::Yearly(from, to) if from <= to => (*from..=*to).contains(&within),
            Self::Yearly(from, to) => within >= *from || within <= *to,
        }
    }
}

impl fmt::Display for Dates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every => f.write_str("every day"),
            Self::Once(from, to) if from == to => write!(f, "{from}"),
            Self::Once(from, to) => write!(f, "{from}/{to}"),
            Self::Yearly((m, d), to) if (*m, *d) == *to => write!(f, "{m:02}-{d:02}"),
            Self::Yearly((m, d), (n, e)) => write!(f, "{m:02}-{d:02}/{n:02}-{e:02}"),
        }
    }
}

/// The number of a day within a leap year.
fn ordinal((month, day): (i8, i8)) -> i16 {
    Date::new(LEAP_YEAR, month, day).map_or(0, Date::day_of_year)
}

fn end(text: &str) -> Option<End> {
    let parts: Vec<_> = text.split('-').map(str::parse::<i16>).collect::<Result<_, _>>().ok()?;
    let small = |number: i16| i8::try_from(number).ok();
    match parts[..] {
        [year, month, day] => Date::new(year, small(month)?, small(day)?).ok().map(End::Once),
        [month, day] => {
            let (month, day) = (small(month)?, small(day)?);
            Date::new(LEAP_YEAR, month, day).ok().map(|_| End::Yearly(month, day))
        }
        _ => None,
    }
}

/// A Monday, from which weeks are counted where their date is of no account.
pub(super) const MONDAY: Date = date(2024, 1, 1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_hold_their_ends_and_cross_the_year() {
        for (from, to, inside, outside) in [
            (Some("2026-12-24"), Some("2026-12-26"), "2026-12-26", "2026-12-27"),
            (Some("2026-12-24"), None, "2031-01-01", "2026-12-23"),
            (None, Some("2026-12-24"), "2026-12-24", "2026-12-25"),
            (Some("12-24"), Some("01-02"), "2030-01-02", "2030-01-03"),
            (Some("12-24"), Some("01-02"), "2030-12-31", "2030-12-23"),
            (Some("05-01"), Some("05-01"), "2027-05-01", "2027-05-02"),
            (Some("02-29"), Some("02-29"), "2028-02-29", "2027-03-01"),
            (Some("11-01"), None, "2027-12-31", "2027-10-31"),
            (None, Some("02-01"), "2027-01-01", "2027-02-02"),
        ] {
            let dates = Dates::parse(from, to).unwrap();
            let holds = |day: &str| dates.holds(day.parse().unwrap());
            assert_eq!((holds(inside), holds(outside)), (true, false), "{from:?} {to:?}");
        }
        assert!(Dates::parse(None, None).unwrap().holds(MONDAY));
    }

    #[test]
    fn days_that_are_taken_by_mistake_are_told_from_those_that_are_on_purpose() {
        for (above, below, hides) in [
            (("2026-12-24", "2026-12-26"), ("2026-12-25", "2026-12-25"), true),
            (("2026-12-25", "2026-12-25"), ("2026-12-24", "2026-12-26"), false),
            (("2026-12-24", "2026-12-26"), ("2026-12-26", "2026-12-31"), true),
            (("2026-12-24", "2026-12-26"), ("2026-12-27", "2026-12-31"), false),
            (("2026-12-25", "2026-12-25"), ("2026-12-25", "2026-12-25"), true),
            (("12-24", "12-26"), ("12-25", "12-25"), true),
            (("12-25", "12-25"), ("12-24", "12-26"), false),
            (("12-24", "01-02"), ("01-01", "01-06"), true),
            (("12-24", "01-02"), ("01-03", "12-23"), false),
            (("01-01", "01-01"), ("12-24", "01-02"), false),
            (("12-24", "01-02"), ("01-01", "01-01"), true),
            (("02-29", "02-29"), ("02-28", "03-01"), false),
            // One year's days are above those of each year on purpose, and never the other way round.
            (("2026-12-25", "2026-12-25"), ("12-24", "12-26"), false),
            (("12-24", "12-26"), ("2026-12-25", "2026-12-25"), true),
            (("12-24", "12-26"), ("2026-12-20", "2027-01-02"), true),
            (("12-24", "12-26"), ("2026-12-27", "2027-12-23"), false),
            (("02-29", "02-29"), ("2026-01-01", "2027-12-31"), false),
            (("02-29", "02-29"), ("2026-01-01", "2030-12-31"), true),
        ] {
            let [one, other] =
                [above, below].map(|(from, to)| Dates::parse(Some(from), Some(to)).unwrap());
            assert_eq!(one.hides(&other), hides, "{above:?} above {below:?}");
        }
        for (from, to, label) in [
            ("2026-12-24", "2026-12-24", "2026-12-24"),
            ("2026-12-24", "2026-12-26", "2026-12-24/2026-12-26"),
            ("05-01", "05-01", "05-01"),
            ("12-24", "01-02", "12-24/01-02"),
        ] {
            assert_eq!(Dates::parse(Some(from), Some(to)).unwrap().to_string(), label);
        }
    }

    #[test]
    fn what_is_no_range_is_named() {
        for (from, to, words) in [
            ("2026-02-29", None, "\"2026-02-29\": it is no date"),
            ("13-01", None, "it is no date"),
            ("02-30", None, "it is no date"),
            ("24.12.", None, "it is no date"),
            ("2026-12-24", Some("2026-12-23"), "it is after the end"),
            ("2026-12-24", Some("12-26"), "has a year and the other has none"),
        ] {
            let problem = Dates::parse(Some(from), to).unwrap_err().to_string();
            assert!(problem.contains(words), "{problem}");
        }
    }
}
