//! How much a member keeps of one cluster.

use std::ops::RangeInclusive;

/// The bounds of [`Budget::max_objects`] where people write it. Less than the least would keep out ordinary clusters.
pub const OBJECTS: RangeInclusive<u64> = 100..=10_000_000;
/// The bounds of a budget's bytes where people write them.
pub const BYTES: RangeInclusive<u64> = (1 << 20)..=(1 << 40);

/// What a member keeps of one cluster at most, over all kinds that it watches there (B1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Objects in caches.
    pub max_objects: usize,
    /// Bytes of caches: packed objects, what finds and labels them, their keys in queues, and what waits of them for
    /// controllers.
    pub max_cache_bytes: usize,
    /// Bytes of the cached objects' JSON, unpacked.
    pub max_json_bytes: usize,
}

/// What a member keeps of the clusters of one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceBudget {
    /// Of each cluster, unless it has a budget of its own.
    pub each: Budget,
    /// The most that the author of a cluster may ask for it.
    pub most: Budget,
}

/// What a member keeps of its clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budgets {
    /// Of each cluster, unless its source has a budget of its own.
    pub each: Budget,
    /// Bytes of the caches of all clusters together.
    pub max_total_cache_bytes: usize,
}

/// Authors of the source's clusters may ask for less, and for no more.
impl From<Budget> for SourceBudget {
    fn from(each: Budget) -> Self {
        Self { each, most: each }
    }
}

impl Default for Budgets {
    /// 512 MiB in all: half of the memory that the chart gives a replica, which is 1 GiB.
    fn default() -> Self {
        Self { each: Budget::default(), max_total_cache_bytes: 512 << 20 }
    }
}

impl Default for Budget {
    /// 200,000 objects; 64 MiB of caches, which hold 100,000 small objects or 45,000 Pods; 1 GiB of JSON.
    fn default() -> Self {
        Self { max_objects: 200_000, max_cache_bytes: 64 << 20, max_json_bytes: 1 << 30 }
    }
}

/// The units of bytes, the largest first.
const BYTE_UNITS: [(&str, u64); 4] =
    [("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];

/// A number of bytes as people write it: `64Mi`, `1Gi`, `1000`.
pub fn parse_bytes(text: &str) -> Option<u64> {
    let unit = BYTE_UNITS.iter().find_map(|(unit, size)| Some((text.strip_suffix(unit)?, *size)));
    let (number, size) = unit.unwrap_or((text, 1));
    number.parse::<u64>().ok()?.checked_mul(size)
}

/// A number of bytes as people write it.
pub fn show_bytes(bytes: u64) -> String {
    let unit = BYTE_UNITS.iter().find(|(_, size)| bytes >= *size && bytes.is_multiple_of(*size));
    unit.map_or_else(|| bytes.to_string(), |(unit, size)| format!("{}{unit}", bytes / size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_counts() {
        for (text, expect) in [
            ("1000", Some("1000")),
            ("64Mi", Some("64Mi")),
            ("65536Ki", Some("64Mi")),
            ("1Gi", Some("1Gi")),
            ("1.5Gi", None),
            ("64M", None),
            ("-1", None),
            ("", None),
            ("99999999999Ti", None),
        ] {
            assert_eq!(parse_bytes(text).map(show_bytes).as_deref(), expect, "{text}");
        }
    }
}
