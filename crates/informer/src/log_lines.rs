//! How often a log is told the same: of what happens for each change of an object, whose number a cluster
//! chooses. Pure.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::Duration;

use model::Moment;

/// A text is written so often, at most, in each stretch of [`STRETCH`].
const LINES: u32 = 10;
/// How long the count of a text lasts.
const STRETCH: Duration = Duration::from_secs(60);
/// The most texts that are counted. They are those of the program, which has a few.
const MAX_TEXTS: usize = 64;

/// Which lines are written, of one cluster and whoever has trouble with it.
#[derive(Debug, Default)]
pub struct LogLines(BTreeMap<&'static str, Lately>);

/// A line that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// How many with the same text were not, since the last that was.
    pub more: Option<NonZeroU64>,
}

/// What was written of a text lately.
#[derive(Debug)]
struct Lately {
    since: Moment,
    lines: u32,
    withheld: u64,
}

impl LogLines {
    /// The next line with this text, if people see it; else only those who look for details do.
    pub fn next(&mut self, text: &'static str, now: Moment) -> Option<LogLine> {
        if self.0.len() >= MAX_TEXTS && !self.0.contains_key(text) {
            return None;
        }
        let lately = self.0.entry(text).or_insert(Lately { since: now, lines: 0, withheld: 0 });
        if now.since(lately.since) >= STRETCH {
            (lately.since, lately.lines) = (now, 0);
        }
        if lately.lines >= LINES {
            lately.withheld += 1;
            return None;
        }
        lately.lines += 1;
        Some(LogLine { more: NonZeroU64::new(std::mem::take(&mut lately.withheld)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_lines_of_a_text_are_written_and_the_next_says_how_many_were_not() {
        let mut lines = LogLines::default();
        let at = |seconds| Moment::from_origin(Duration::from_secs(seconds));
        let mut written = |text, seconds| {
            let next = (0..1000).filter_map(|_| lines.next(text, at(seconds)));
            next.map(|line| line.more.map_or(0, NonZeroU64::get)).collect::<Vec<_>>()
        };
        assert_eq!(written("a", 0), [0; 10]);
        assert_eq!(written("b", 0), [0; 10], "each text has its own");
        assert!(written("a", 59).is_empty());
        assert_eq!(written("a", 60), [1990, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    }
}
