//! Looks up what is kept by range: the ranges that contain a hash.

use std::collections::BTreeMap;
use std::iter;

use model::Range;

/// What is kept for the ranges that contain a hash, the widest range first. Ranges of one group in a cluster seldom
/// overlap: while a split or a merge is under way.
///
/// Ranges are ordered by depth, and one of each depth contains a hash. So it looks for each depth that has ranges
/// once, however many ranges there are.
pub fn containing<V>(by_range: &BTreeMap<Range, V>, hash: u64) -> impl Iterator<Item = &V> {
    let mut bits = 0;
    iter::from_fn(move || {
        loop {
            let sought = around(hash, bits)?;
            let (found, value) = by_range.range(sought..).next()?;
            // No range lies between the two: depths without ranges are passed over.
            bits = found.bits().max(bits + 1);
            if *found == sought {
                return Some(value);
            }
        }
    })
}

/// The range of a depth that contains a hash, unless that is too deep.
fn around(hash: u64, bits: u8) -> Option<Range> {
    let index = hash.checked_shr(u64::BITS - u32::from(bits)).unwrap_or_default();
    Range::new(u32::try_from(index).ok()?, bits)
}

#[cfg(test)]
mod tests {
    use model::range::MAX_BITS;
    use proptest::prelude::*;

    use super::*;

    fn range() -> impl Strategy<Value = Range> {
        (0..=MAX_BITS, any::<u32>()).prop_map(|(bits, index)| {
            Range::new(index & ((1 << bits) - 1), bits).expect("the index is below 2^bits")
        })
    }

    proptest! {
        #[test]
        fn what_is_found_is_what_contains_the_hash(
            ranges in prop::collection::vec(range(), 0..64), hash in any::<u64>(), inside in any::<usize>(),
        ) {
            let by_range: BTreeMap<_, _> = ranges.iter().map(|range| (*range, *range)).collect();
            // One hash of its own choice, and one that some range contains.
            let first = ranges.get(inside % ranges.len().max(1)).map_or(0, |range| range.bounds().0);
            for hash in [hash, u64::try_from(first).expect("it is a hash"), 0, u64::MAX] {
                let expect: Vec<_> =
                    by_range.values().filter(|range| range.contains(hash)).copied().collect();
                let found: Vec<_> = containing(&by_range, hash).copied().collect();
                prop_assert_eq!(found, expect, "{:#x}", hash);
            }
        }
    }
}
