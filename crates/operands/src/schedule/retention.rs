//! Which backups are kept. Pure.

use jiff::{SignedDuration, Timestamp};

/// How many backups that failed stay, for people to read why.
const FAILED: usize = 3;

/// What is kept: a backup that one of the rules keeps. Without a rule, everything is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// The last so many good ones.
    pub last: Option<usize>,
    /// All that are not older than this.
    pub within: Option<SignedDuration>,
}

/// A finished backup, as far as retention goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Backup {
    /// Its name.
    pub(crate) name: String,
    /// When it was made.
    pub(crate) at: Timestamp,
    /// Whether it can be restored.
    pub(crate) good: bool,
}

impl Retention {
    /// The names of those that should be deleted, oldest first.
    ///
    /// The last good one stays whatever the rules say. Failed ones do not count as backups; the last
    /// three of them stay.
    pub(crate) fn expired<'a>(&self, backups: &'a [Backup], now: Timestamp) -> Vec<&'a str> {
        let mut sorted: Vec<_> = backups.iter().collect();
        sorted.sort_by(|a, b| (b.at, &b.name).cmp(&(a.at, &a.name)));
        let (good, failed): (Vec<_>, Vec<_>) = sorted.into_iter().partition(|backup| backup.good);
        let mut expired: Vec<_> = failed.into_iter().skip(FAILED).collect();
        if self.last.is_some() || self.within.is_some() {
            let last = self.last.unwrap_or_default().max(1);
            let is_young =
                |at: Timestamp| self.within.is_some_and(|within| now.duration_since(at) <= within);
            expired.extend(good.into_iter().skip(last).filter(|backup| !is_young(backup.at)));
        }
        expired.sort_by_key(|backup| (backup.at, &backup.name));
        expired.into_iter().map(|backup| backup.name.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: SignedDuration = SignedDuration::from_hours(24);

    /// Backups by their age in days; `!` marks failed ones.
    fn backups(ages: &[&str]) -> Vec<Backup> {
        let backup = |age: &&str| Backup {
            name: (*age).to_owned(),
            at: now() - DAY * age.trim_start_matches('!').parse().unwrap(),
            good: !age.starts_with('!'),
        };
        ages.iter().map(backup).collect()
    }

    fn now() -> Timestamp {
        "2026-03-01T12:00:00Z".parse().unwrap()
    }

    #[test]
    fn a_backup_stays_if_one_rule_keeps_it_and_the_last_good_one_always_stays() {
        let days = |days: i32| Some(DAY * days);
        type Case<'a> = (Option<usize>, Option<SignedDuration>, &'a [&'a str], &'a [&'a str]);
        let cases: &[Case<'_>] = &[
            (None, None, &["1", "900"], &[]),
            (Some(2), None, &["1", "2", "3", "4"], &["4", "3"]),
            (Some(2), days(3), &["1", "2", "3", "4"], &["4"]),
            (None, days(3), &["1", "2", "3", "4"], &["4"]),
            (None, days(3), &["8", "9"], &["9"]),
            (Some(0), None, &["8", "9"], &["9"]),
            (Some(2), None, &["!1", "!2", "3", "4", "5"], &["5"]),
            (Some(1), None, &["!1", "!2", "!3", "9"], &[]),
            (Some(1), None, &["!1", "!2", "!3", "!4", "9", "10"], &["10", "!4"]),
            (None, None, &["!1", "!2", "!3", "!4"], &["!4"]),
        ];
        for (last, within, ages, expected) in cases {
            let retention = Retention { last: *last, within: *within };
            let mut given = backups(ages);
            assert_eq!(retention.expired(&given, now()), *expected, "{retention:?} {ages:?}");
            given.reverse();
            assert_eq!(retention.expired(&given, now()), *expected, "{retention:?} {ages:?}");
        }
    }
}
