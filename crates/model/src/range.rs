//! Ranges: slices `i/2^k` of the 64-bit hash space of object uids.
//!
//! The hash is FNV-1a-64 over the uid's bytes, bit-compatible with Kubernetes' `shardSelector`
//! (KEP-5866), so that servers and clients that filter by range agree.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The deepest split: 2^16 ranges of one (cluster, group).
pub const MAX_BITS: u8 = 16;

/// FNV-1a, 64 bits, of a uid.
///
/// Offset basis and prime are those of the FNV specification (draft-eastlake-fnv).
pub fn uid_hash(uid: &str) -> u64 {
    uid.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Half-open pieces of the hash space as a `shardSelector` of Kubernetes (KEP-5866). A server that
/// supports it returns it in `metadata.shardInfo`. Without any piece, the server returns an error.
pub fn shard_selector(pieces: impl IntoIterator<Item = (u128, u128)>) -> String {
    let words = |(from, to): (u128, u128)| {
        format!("shardRange(object.metadata.uid, '0x{from:016x}', '0x{to:016x}')")
    };
    pieces.into_iter().map(words).collect::<Vec<_>>().join(" || ")
}

/// The slice `index / 2^bits` of the hash space. `0/1` is the whole of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Range {
    bits: u8,
    index: u32,
}

/// A text that is not a range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a range: write it i/n with n a power of two up to 65536 and i below n")]
pub struct InvalidRange(String);

impl Range {
    /// The whole hash space, `0/1`.
    pub const WHOLE: Range = Range { bits: 0, index: 0 };

    /// The slice `index / 2^bits`, if there is one.
    pub fn new(index: u32, bits: u8) -> Option<Range> {
        (bits <= MAX_BITS && u64::from(index) < 1 << bits).then_some(Range { bits, index })
    }

    /// How often the space was halved: `k` of `i/2^k`.
    pub fn bits(self) -> u8 {
        self.bits
    }

    /// Its first hash, and the one after its last. That is 2^64 for the last slice.
    pub fn bounds(self) -> (u128, u128) {
        let width = 1 << (64 - self.bits);
        let first = u128::from(self.index) * width;
        (first, first + width)
    }

    /// Its two halves, unless it is too small to be split.
    pub fn halves(self) -> Option<[Range; 2]> {
        let half = |side| Range::new(self.index * 2 + side, self.bits + 1);
        Some([half(0)?, half(1)?])
    }

    /// The range of which it is a half; `None` for the whole.
    pub fn parent(self) -> Option<Range> {
        let bits = self.bits.checked_sub(1)?;
        Some(Range { bits, index: self.index >> 1 })
    }

    /// Whether every hash of `other` falls into this slice.
    pub fn covers(self, other: Range) -> bool {
        other.bits >= self.bits && other.index >> (other.bits - self.bits) == self.index
    }

    /// Whether some hash falls into both.
    pub fn overlaps(self, other: Range) -> bool {
        self.covers(other) || other.covers(self)
    }

    /// Whether a uid's hash falls into this slice.
    pub fn contains(self, hash: u64) -> bool {
        self.bits == 0 || hash >> (64 - self.bits) == u64::from(self.index)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, 1u32 << self.bits)
    }
}

impl FromStr for Range {
    type Err = InvalidRange;
    fn from_str(text: &str) -> Result<Self, InvalidRange> {
        let parse = || {
            let (index, count) = text.split_once('/')?;
            let count: u32 = count.parse().ok()?;
            if !count.is_power_of_two() {
                return None;
            }
            Range::new(index.parse().ok()?, u8::try_from(count.trailing_zeros()).ok()?)
        };
        parse().ok_or_else(|| InvalidRange(text.to_owned()))
    }
}

impl TryFrom<String> for Range {
    type Error = InvalidRange;
    fn try_from(text: String) -> Result<Self, InvalidRange> {
        text.parse()
    }
}

impl From<Range> for String {
    fn from(range: Range) -> String {
        range.to_string()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Vectors of the FNV specification's test suite.
    #[test]
    fn hash_matches_the_specification() {
        assert_eq!(uid_hash(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(uid_hash("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(uid_hash("foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn only_true_slices_parse() {
        for bad in ["", "1", "1/1", "0/3", "0/0", "a/2", "0/131072", "2/2"] {
            assert!(bad.parse::<Range>().is_err(), "{bad}");
        }
        assert_eq!("3/4".parse::<Range>().unwrap().to_string(), "3/4");
    }

    #[test]
    fn the_deepest_range_has_no_halves_and_the_whole_no_parent() {
        assert_eq!(Range::new(0, MAX_BITS).unwrap().halves(), None);
        assert_eq!(Range::WHOLE.parent(), None);
    }

    proptest! {
        #[test]
        fn halves_partition_their_parent(
            hash in any::<u64>(), bits in 0..MAX_BITS, index in any::<u32>(),
        ) {
            let range = Range::new(index & ((1 << bits) - 1), bits).unwrap();
            let [low, high] = range.halves().unwrap();
            prop_assert_eq!([low.parent(), high.parent()], [Some(range); 2]);
            prop_assert!(!low.overlaps(high));
            for half in [low, high] {
                prop_assert!(range.covers(half) && !half.covers(range) && half.overlaps(range));
            }
            let (from, to) = range.bounds();
            prop_assert_eq!((from..to).contains(&u128::from(hash)), range.contains(hash));
            let holders = usize::from(low.contains(hash)) + usize::from(high.contains(hash));
            prop_assert_eq!(holders, usize::from(range.contains(hash)));
        }

        #[test]
        fn the_slices_of_one_depth_partition_the_space(hash in any::<u64>(), bits in 0..=8u8) {
            let holders = (0..1u32 << bits)
                .filter(|&index| Range::new(index, bits).unwrap().contains(hash))
                .count();
            prop_assert_eq!(holders, 1);
        }
    }
}
