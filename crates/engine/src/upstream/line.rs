//! Who waits for a turn, and whose turn it is: two lines, each first come first served, which take
//! turns. So neither can thousands of writes keep a list waiting, nor a restart of all watches the
//! writes.

use std::collections::BTreeMap;

/// Requests that may wait in one line of one cluster. Beyond it they are refused.
pub const MAX_WAITING: usize = 16_384;

/// Who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// Informers. They wait for as long as it takes, an open breaker included.
    Follow,
    /// Reconciles: all else. They do not wait where it would take long.
    Call,
}

/// A place in a line; the smaller, the earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(u64);

/// Both lines. `W` is how to tell a waiter.
#[derive(Debug)]
pub(crate) struct Lines<W> {
    follows: BTreeMap<Place, W>,
    calls: BTreeMap<Place, W>,
    /// Whose turn it is where both wait.
    turn: Line,
    next: u64,
}

impl<W> Lines<W> {
    pub(crate) fn new() -> Self {
        Self { follows: BTreeMap::new(), calls: BTreeMap::new(), turn: Line::Follow, next: 0 }
    }

    /// Joins a line at its end; `None` if it is full.
    pub(crate) fn join(&mut self, line: Line, waiter: W) -> Option<Place> {
        let place = Place(self.next);
        let members = self.line(line);
        if members.len() >= MAX_WAITING {
            return None;
        }
        members.insert(place, waiter);
        self.next += 1;
        Some(place)
    }

    /// Whose turn it is.
    pub(crate) fn first(&self) -> Option<(Place, &W)> {
        let follow = self.follows.first_key_value();
        let call = self.calls.first_key_value();
        let first = match self.turn {
            Line::Follow => follow.or(call),
            Line::Call => call.or(follow),
        };
        first.map(|(place, waiter)| (*place, waiter))
    }

    /// The one at this place has had its turn.
    pub(crate) fn passed(&mut self, line: Line, place: Place) {
        self.leave(line, place);
        self.turn = match line {
            Line::Follow => Line::Call,
            Line::Call => Line::Follow,
        };
    }

    /// The one at this place waits no more.
    pub(crate) fn leave(&mut self, line: Line, place: Place) {
        self.line(line).remove(&place);
    }

    /// Those who wait in the line of calls.
    pub(crate) fn calls(&self) -> impl Iterator<Item = &W> {
        self.calls.values()
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.follows.len() + self.calls.len()
    }

    fn line(&mut self, line: Line) -> &mut BTreeMap<Place, W> {
        match line {
            Line::Follow => &mut self.follows,
            Line::Call => &mut self.calls,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_line_has_an_end() {
        let mut lines = Lines::new();
        assert!((0..MAX_WAITING).all(|_| lines.join(Line::Call, ()).is_some()));
        assert_eq!(lines.join(Line::Call, ()), None);
        assert!(lines.join(Line::Follow, ()).is_some(), "the other one's is its own");
    }

    proptest! {
        #[test]
        fn each_line_is_in_order_and_waits_for_one_of_the_other_at_most(
            steps in prop::collection::vec((0..4_u8, any::<prop::sample::Index>()), 1..200),
        ) {
            let mut lines = Lines::new();
            let mut waiting: Vec<(Line, Place)> = Vec::new();
            let mut last = None;
            for (what, index) in steps {
                match what {
                    0 | 1 => {
                        let line = if what == 0 { Line::Follow } else { Line::Call };
                        waiting.push((line, lines.join(line, line).unwrap()));
                    }
                    2 if !waiting.is_empty() => {
                        let (line, place) = waiting.remove(index.index(waiting.len()));
                        lines.leave(line, place);
                    }
                    _ => {
                        let Some((place, &line)) = lines.first() else {
                            prop_assert!(waiting.is_empty());
                            continue;
                        };
                        let oldest = waiting.iter().position(|(other, _)| *other == line).unwrap();
                        prop_assert_eq!(waiting[oldest].1, place, "first come, first served");
                        let other_waits = waiting.iter().any(|(other, _)| *other != line);
                        prop_assert!(!(other_waits && last == Some(line)), "they take turns");
                        waiting.remove(oldest);
                        lines.passed(line, place);
                        last = Some(line);
                    }
                }
                prop_assert_eq!(lines.len(), waiting.len());
            }
        }
    }
}
