//! Which objects of a kind are cached, by ranges of the hash space: ranges for the objects' own uids,
//! and ranges for the uids of their owners.
//!
//! An object that is reconciled is selected by its own uid. A child is selected by the uid of the owner
//! that controls it, so that it is cached where its owner is reconciled. A child without a
//! controlling owner is cached only by a member that caches all ranges. Kinds that are looked up or
//! mapped are cached whole.

use std::collections::BTreeSet;
use std::fmt;

use model::Range;
use model::range::{MAX_BITS, shard_selector};

use cache::Header;

/// What one reader needs of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeScope {
    /// Every object.
    Whole,
    /// The objects whose uid falls into a range.
    Own(Range),
    /// The objects whose controlling owner's uid does.
    Owner(Range),
}

/// A set of ranges without overlap, as few as possible.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RangeSet(BTreeSet<Range>);

/// What several readers together need: objects that fall into either.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeFilter {
    own: RangeSet,
    owner: RangeSet,
}

// === impl RangeSet ===

impl RangeSet {
    fn whole() -> Self {
        Self(BTreeSet::from([Range::WHOLE]))
    }

    fn is_whole(&self) -> bool {
        self.0.contains(&Range::WHOLE)
    }

    /// Adds a range. Two halves become what they are halves of.
    fn insert(&mut self, mut range: Range) {
        if self.covers(range) {
            return;
        }
        self.remove_covered(range);
        while let Some(parent) = range.parent()
            && let Some(sibling) = parent.halves().into_iter().flatten().find(|half| *half != range)
            && self.0.remove(&sibling)
        {
            range = parent;
        }
        self.0.insert(range);
    }

    /// Removes the ranges within a range. Of each depth they are neighbours.
    fn remove_covered(&mut self, range: Range) {
        let mut ends = Some((range, range));
        while let Some((first, last)) = ends {
            let covered: Vec<_> = self.0.range(first..=last).copied().collect();
            covered.iter().for_each(|covered| {
                self.0.remove(covered);
            });
            let deeper = |of: Range, side: usize| of.halves().map(|halves| halves[side]);
            ends = deeper(first, 0).zip(deeper(last, 1));
        }
    }

    /// Looks for each range that covers this one: one of each depth.
    fn covers(&self, range: Range) -> bool {
        let mut wider = std::iter::successors(Some(range), |range| range.parent());
        wider.any(|range| self.0.contains(&range))
    }

    fn includes(&self, other: &Self) -> bool {
        other.0.iter().all(|range| self.covers(*range))
    }

    fn contains(&self, hash: u64) -> bool {
        // No range is deeper than that.
        let index = u32::try_from(hash >> (u64::BITS - u32::from(MAX_BITS)));
        let deepest = index.ok().and_then(|index| Range::new(index, MAX_BITS));
        deepest.is_some_and(|deepest| self.covers(deepest))
    }

    /// What is in both.
    fn meet(&self, other: &Self) -> Self {
        let mut both = Self::default();
        // Of two that overlap, one covers the other.
        self.0.iter().filter(|range| other.covers(**range)).for_each(|range| both.insert(*range));
        other.0.iter().filter(|range| self.covers(**range)).for_each(|range| both.insert(*range));
        both
    }

    /// Half-open pieces of the hash space, in order, as few as can be.
    fn pieces(&self) -> Vec<(u128, u128)> {
        let mut pieces: Vec<_> = self.0.iter().map(|range| range.bounds()).collect();
        pieces.sort_unstable();
        pieces.dedup_by(|next, piece| {
            let joins = next.0 == piece.1;
            if joins {
                piece.1 = next.1;
            }
            joins
        });
        pieces
    }
}

impl fmt::Display for RangeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, range) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            write!(f, "{comma}{range}")?;
        }
        Ok(())
    }
}

// === impl RangeFilter ===

impl RangeFilter {
    /// Every object.
    pub fn whole() -> Self {
        Self { own: RangeSet::whole(), owner: RangeSet::whole() }
    }

    /// Adds what a reader needs.
    pub fn insert(&mut self, scope: RangeScope) {
        match scope {
            RangeScope::Whole => *self = Self::whole(),
            RangeScope::Own(range) => self.own.insert(range),
            RangeScope::Owner(range) => self.owner.insert(range),
        }
        if self.own.is_whole() || self.owner.is_whole() {
            *self = Self::whole();
        }
    }

    /// Whether every object is in it.
    pub fn is_whole(&self) -> bool {
        self.own.is_whole()
    }

    /// Whether no object is in it.
    pub fn is_empty(&self) -> bool {
        self.own.0.is_empty() && self.owner.0.is_empty()
    }

    /// Whether an object may be in it because of its owner.
    pub fn looks_at_owners(&self) -> bool {
        !self.owner.0.is_empty()
    }

    /// Whether it includes all of `other`.
    pub fn includes(&self, other: &Self) -> bool {
        self.own.includes(&other.own) && self.owner.includes(&other.owner)
    }

    /// Whether an object is in it, by the hashes of its uid and its controlling owner's. Asked only
    /// for those that matter.
    pub fn contains(&self, own: impl FnOnce() -> u64, owner: impl FnOnce() -> Option<u64>) -> bool {
        self.is_whole()
            || !self.own.0.is_empty() && self.own.contains(own())
            || self.looks_at_owners() && owner().is_some_and(|owner| self.owner.contains(owner))
    }

    /// Whether a cached object is in it.
    pub fn holds(&self, header: &Header) -> bool {
        let owner = || header.owner.as_deref().map(|owner| owner.uid.hash());
        self.contains(|| header.hash(), owner)
    }

    /// What is surely in both.
    pub fn meet(&self, other: &Self) -> Self {
        Self { own: self.own.meet(&other.own), owner: self.owner.meet(&other.owner) }
    }

    /// The same as a `shardSelector` (KEP-5866), where one can express it: servers hash only an object's
    /// own uid, never its owner's. `None` also for everything and for nothing.
    pub fn shard_selector(&self) -> Option<String> {
        if self.is_whole() || self.own.0.is_empty() || self.looks_at_owners() {
            return None;
        }
        Some(shard_selector(self.own.pieces()))
    }
}

/// As `0/2,5/8` for uids and `owner:0/2` for owners' uids; `0/1` for everything.
impl fmt::Display for RangeFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.own.fmt(f)?;
        if self.looks_at_owners() && !self.is_whole() {
            let space = if self.own.0.is_empty() { "" } else { " " };
            write!(f, "{space}owner:{}", self.owner)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reads `own:0/2`, `owner:1/4` and `whole`.
    fn filter(scopes: &str) -> RangeFilter {
        let mut filter = RangeFilter::default();
        for scope in scopes.split_whitespace() {
            filter.insert(match scope.split_once(':') {
                Some(("own", range)) => RangeScope::Own(range.parse().unwrap()),
                Some((_, range)) => RangeScope::Owner(range.parse().unwrap()),
                None => RangeScope::Whole,
            });
        }
        filter
    }

    #[test]
    fn claims_join() {
        for (scopes, expect) in [
            ("", ""),
            ("own:0/2", "0/2"),
            ("own:0/2 own:1/2", "0/1"),
            ("own:0/4 own:3/4 own:1/4", "0/2,3/4"),
            ("own:3/8 own:2/4 own:2/8 own:0/4 own:3/4", "0/1"),
            ("own:1/4 own:0/2", "0/2"),
            ("owner:0/2 own:1/4", "1/4 owner:0/2"),
            ("owner:0/2", "owner:0/2"),
            ("owner:0/2 owner:1/2", "0/1"),
            ("own:0/2 whole", "0/1"),
        ] {
            assert_eq!(filter(scopes).to_string(), expect, "{scopes}");
        }
    }

    #[test]
    fn a_server_is_told_of_uids_only() {
        let selector = |scopes| filter(scopes).shard_selector();
        for nothing in ["", "whole", "owner:0/2", "own:0/2 owner:1/4"] {
            assert_eq!(selector(nothing), None, "{nothing}");
        }
        let piece = |from, to| format!("shardRange(object.metadata.uid, '0x{from}', '0x{to}')");
        let half = "8000000000000000";
        assert_eq!(selector("own:0/2"), Some(piece("0000000000000000", half)));
        assert_eq!(selector("own:1/2"), Some(piece(half, "10000000000000000")));
        // Neighbours that are no halves of one range.
        let middle = piece("4000000000000000", "c000000000000000");
        assert_eq!(selector("own:1/4 own:2/4"), Some(middle));
        let ends = [
            piece("0000000000000000", "4000000000000000"),
            piece("c000000000000000", "10000000000000000"),
        ];
        assert_eq!(selector("own:0/4 own:3/4"), Some(ends.join(" || ")));
    }

    fn require() -> impl Strategy<Value = RangeScope> {
        let range = (0..4u8, any::<u32>())
            .prop_map(|(bits, index)| Range::new(index & ((1 << bits) - 1), bits).unwrap());
        prop_oneof![
            1 => Just(RangeScope::Whole),
            12 => range.clone().prop_map(RangeScope::Own),
            8 => range.prop_map(RangeScope::Owner),
        ]
    }

    fn of(scopes: &[RangeScope]) -> RangeFilter {
        let mut filter = RangeFilter::default();
        scopes.iter().for_each(|scope| filter.insert(*scope));
        filter
    }

    fn takes(scopes: &[RangeScope], own: u64, owner: Option<u64>) -> bool {
        scopes.iter().any(|scope| match scope {
            RangeScope::Whole => true,
            RangeScope::Own(range) => range.contains(own),
            RangeScope::Owner(range) => owner.is_some_and(|owner| range.contains(owner)),
        })
    }

    proptest! {
        #[test]
        fn an_object_is_in_it_if_any_claim_takes_it(
            a in prop::collection::vec(require(), 0..6),
            b in prop::collection::vec(require(), 0..6),
            own in any::<u64>(), owner in any::<Option<u64>>(),
        ) {
            let (first, second) = (of(&a), of(&b));
            let contains = |filter: &RangeFilter| filter.contains(|| own, || owner);
            // Halves on the owner's side may make a whole, which then has those without owner, too.
            if !first.is_whole() {
                prop_assert_eq!(contains(&first), takes(&a, own, owner));
            } else {
                prop_assert!(contains(&first));
            }
            let both = first.meet(&second);
            prop_assert!(first.includes(&both) && second.includes(&both));
            if contains(&both) {
                prop_assert!(contains(&first) && contains(&second));
            }
            if first.includes(&second) {
                prop_assert!(contains(&first) || !contains(&second));
                prop_assert_eq!(both, second);
            }
        }

        /// The words for the server mean the same slices.
        #[test]
        fn pieces_hold_what_the_ranges_hold(scopes in prop::collection::vec(require(), 0..6), hash in any::<u64>()) {
            let own = of(&scopes).own;
            let pieces = own.pieces();
            let held = pieces.iter().any(|(from, to)| (*from..*to).contains(&u128::from(hash)));
            prop_assert_eq!(held, own.contains(hash));
            prop_assert!(pieces.windows(2).all(|pair| pair[0].1 < pair[1].0));
        }
    }
}
