//! How much of a kind an informer holds, and how much it should: pure.
//!
//! ```text
//!   scopes ─▶ wanted ── more than is settled ──▶ list again ── complete ──▶ settled
//!                └───── less ──▶ settled shrinks, the store is swept
//! ```
//!
//! A missing range is not listed alone beside the running watch: list and watch would be at
//! different versions, and versions cannot be compared.
//!
//! # Invariants
//! - A list that is under way covers all that is wanted: if more is wanted while it is being read, it
//!   starts over. So everything that is wanted when a list is complete is in the store, and stays there.
//! - What is settled is part of what is wanted, and all of it is in the store: a list covered it
//!   completely, and changes have been followed since (L2).
//! - A scope is met only when all that is wanted is settled: no shard opens on part of its objects.

use crate::range_filter::RangeFilter;
use cache::Header;

/// What an informer holds, and what it should hold.
#[derive(Debug, Default)]
pub struct Held {
    wanted: RangeFilter,
    /// The number of the last scope in it.
    latest: u64,
    /// Nothing before the first list is complete.
    settled: Option<RangeFilter>,
    listing: Option<Listing>,
}

/// A list under way.
#[derive(Clone, Copy, Debug)]
struct Listing {
    /// Its first objects have arrived.
    answered: bool,
    /// The server was asked only for what was wanted when the list began.
    selected: bool,
}

/// What a change of scopes requires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shift {
    /// List again: something is wanted that is not settled and does not come with the list under way.
    pub relist: bool,
    /// The store may hold objects that are no longer wanted.
    pub sweep: bool,
}

impl Held {
    /// What is wanted.
    pub fn wanted(&self) -> &RangeFilter {
        &self.wanted
    }

    /// The number of the last scope that is wanted.
    pub fn latest(&self) -> u64 {
        self.latest
    }

    /// Sets what is wanted from now on.
    pub fn want(&mut self, filter: RangeFilter, latest: u64) -> Shift {
        let before = std::mem::replace(&mut self.wanted, filter);
        self.latest = latest;
        self.settled = self.settled.take().map(|settled| settled.meet(&self.wanted));
        let grown = !before.includes(&self.wanted);
        let relist = match self.listing {
            Some(Listing { answered, selected }) => grown && (answered || selected),
            None => self.met().is_none(),
        };
        Shift { relist, sweep: !self.wanted.includes(&before) }
    }

    /// A list begins; `selected` if the server is asked only for the wanted part.
    pub fn list_begins(&mut self, selected: bool) {
        self.listing = Some(Listing { answered: false, selected });
    }

    /// The server answers.
    pub fn answered(&mut self) {
        if let Some(listing) = &mut self.listing {
            listing.answered = true;
        }
    }

    /// The list is complete.
    pub fn list_ends(&mut self) {
        self.listing = None;
        self.settled = Some(self.wanted.clone());
    }

    /// The number up to which scopes are met, if all are.
    pub fn met(&self) -> Option<u64> {
        let settled = self.settled.as_ref();
        settled.is_some_and(|settled| settled.includes(&self.wanted)).then_some(self.latest)
    }

    /// Whether changes of an object are live, and not part of a first list.
    pub fn is_settled(&self, header: &Header) -> bool {
        self.settled.as_ref().is_some_and(|settled| settled.holds(header))
    }
}

#[cfg(test)]
mod tests {
    use model::Range;
    use proptest::prelude::*;

    use super::*;
    use crate::range_filter::RangeScope;

    fn filter(ranges: &str) -> RangeFilter {
        let mut filter = RangeFilter::default();
        for range in ranges.split_whitespace() {
            filter.insert(RangeScope::Own(range.parse().unwrap()));
        }
        filter
    }

    /// Plays steps and writes down what follows: `want RANGES`, `begin`, `begin selected`,
    /// `answer`, `end`.
    fn play(script: &str) -> String {
        let (mut held, mut latest) = (Held::default(), 0);
        let mut log = Vec::new();
        for step in script.split(", ") {
            let (word, rest) = step.split_once(' ').unwrap_or((step, ""));
            match word {
                "want" => {
                    latest += 1;
                    let shift = held.want(filter(rest), latest);
                    log.extend(shift.relist.then_some("relist".to_owned()));
                    log.extend(shift.sweep.then_some("sweep".to_owned()));
                }
                "begin" => held.list_begins(rest == "selected"),
                "answer" => held.answered(),
                _ => held.list_ends(),
            }
            log.extend(held.met().map(|number| format!("met {number}")));
        }
        log.join(" ")
    }

    #[test]
    fn more_is_listed_and_less_is_swept() {
        for (script, expect) in [
            // The first list; then the other half, and a part of what is there.
            (
                "begin, want 0/2, answer, end, want 0/2 1/2, begin, answer, end",
                "met 1 relist met 2",
            ),
            ("want 0/2, begin, answer, end, want 0/2 0/4", "relist met 1 met 2"),
            // Less: nothing is listed, and the rest is settled still.
            ("want 0/1, begin, answer, end, want 1/2", "relist met 1 sweep met 2"),
            ("want 0/1, begin, answer, end, want 1/2, want 0/1", "relist met 1 sweep met 2 relist"),
            // More while the list is read: it starts over.
            ("want 0/2, begin, answer, want 0/1, begin, answer, end", "relist relist met 2"),
            // More before anything came: the list holds everything, unless less was asked for.
            ("want 0/2, begin, want 0/1, answer, end", "relist met 2"),
            ("want 0/2, begin selected, want 0/1, begin, answer, end", "relist relist met 2"),
            // Less, then the same again, while the list is read: the middle of it is missing.
            ("want 0/1, begin, answer, want 0/2, want 0/1", "relist sweep relist"),
            // What is settled stays so through a list after a gap.
            (
                "want 0/1, begin, answer, end, begin, answer, want 0/2, end",
                "relist met 1 met 1 met 1 sweep met 2 met 2",
            ),
        ] {
            assert_eq!(play(script), expect, "{script}");
        }
    }

    proptest! {
        /// Against a store of whole slices: it holds what is settled and what is reported as met.
        #[test]
        fn what_is_settled_has_been_listed(steps in prop::collection::vec((0..6u8, any::<u8>()), 0..60)) {
            let slices = |bits: u8| -> RangeFilter {
                let mut filter = RangeFilter::default();
                (0..8).filter(|i| bits >> i & 1 == 1).for_each(|i| filter.insert(RangeScope::Own(Range::new(i, 3).unwrap())));
                filter
            };
            // Bits of eight slices: what is wanted, in the store, and still to come with the list.
            let (mut wanted, mut stored, mut coming) = (0u8, 0u8, None::<(u8, bool)>);
            let mut held = Held::default();
            let mut latest = 0;
            for (step, bits) in steps {
                let begins = match step {
                    0 | 1 => {
                        latest += 1;
                        wanted = bits;
                        let shift = held.want(slices(bits), latest);
                        if let Some((asked, _)) = &mut coming && !shift.relist && bits & !*asked != 0 {
                            // What the server was not asked for, or has passed, does not come.
                            prop_assert!(false, "a list goes on that lacks what is wanted");
                        }
                        prop_assert!(shift.sweep || stored & !wanted == 0 || coming.is_some());
                        stored &= wanted;
                        if let Some((asked, answered)) = &mut coming && *answered {
                            // Objects that nobody wants when they come are not stored.
                            *asked &= wanted;
                        }
                        shift.relist
                    }
                    2 => coming.is_none(),
                    3 => { if let Some((_, answered)) = &mut coming { *answered = true; held.answered(); } false }
                    _ => {
                        if let Some((asked, true)) = coming {
                            coming = None;
                            stored = wanted & (asked | stored);
                            held.list_ends();
                        }
                        false
                    }
                };
                if begins {
                    let selected = bits & 1 == 1;
                    coming = Some((if selected { wanted } else { 0xff }, false));
                    held.list_begins(selected);
                }
                if held.met().is_some() {
                    prop_assert_eq!(stored & wanted, wanted);
                }
                if let Some(settled) = &held.settled {
                    prop_assert!(slices(stored).includes(settled));
                    prop_assert!(held.wanted.includes(settled));
                }
            }
        }
    }
}
