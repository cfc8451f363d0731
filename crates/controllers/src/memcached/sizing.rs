//! How much memory a node needs for how many items, and the reverse. Pure.
//!
//! memcached's `-m` bounds the memory of items and nothing else
//! (<https://github.com/memcached/memcached/wiki/ConfiguringServer>). What comes on top, as its sources say
//! (1.6.45):
//!
//! - each class of item sizes gets its first page of 1 MiB even beyond the limit (`do_slabs_newslab` in
//!   `slabs.c`), and there are at most 63 classes: with the program itself, [`BASE_MIB`];
//! - a hash table of 8 bytes a bucket, which doubles when there are one and a half items to a bucket, with
//!   the old one beside it meanwhile (`assoc.c`): 16 bytes an item at worst. Items of 128 bytes make that
//!   an eighth of `-m`;
//! - a connection with requests under way has a buffer to read and one to answer of 16 KiB each
//!   (`READ_BUFFER_SIZE` in `memcached.h`), and these are kept for the next.

use sdk::quantity::millis;

use super::api::{Amount, MemcachedSpec};
use super::invalid::Invalid;

/// The program, and a page for each class of item sizes.
const BASE_MIB: u64 = 64;
/// The hash table is at most this part of the items.
const ITEMS_PER_HASH: u64 = 8;
/// Buffers of one connection.
const CONNECTION_KIB: u64 = 32;
/// Items without anything that says otherwise: memcached's own default.
const DEFAULT_MIB: u64 = 64;
/// Bounds of the memory for items: less than one item of the largest size twice is refused by memcached.
const LEAST_MIB: u64 = 8;
const MOST_MIB: u64 = 4 * 1_024 * 1_024;

/// The memory of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizing {
    /// For items: `-m`.
    pub items_mib: u64,
    /// For items and all that comes on top.
    pub all_mib: u64,
}

impl Sizing {
    /// The memory that a spec asks for.
    ///
    /// # Errors
    /// If a quantity is none, is out of bounds, or does not fit below the limit.
    pub(super) fn of(spec: &MemcachedSpec) -> Result<Self, Invalid> {
        let limit = spec.resources.limits.get("memory");
        let limit = limit.map(|limit| bytes("resources.limits.memory", limit)).transpose()?;
        let connections = connections_mib(spec.connections);
        let limit_mib = limit.map(|limit| limit >> 20);
        let items_mib = match (&spec.memory, limit_mib) {
            (Some(memory), _) => bytes("memory", memory)? >> 20,
            (None, None) => DEFAULT_MIB,
            (None, Some(limit)) => {
                let left = limit.saturating_sub(BASE_MIB + connections);
                let items = left * ITEMS_PER_HASH / (ITEMS_PER_HASH + 1);
                if items < LEAST_MIB {
                    let least_mib = all(LEAST_MIB, connections);
                    return Err(Invalid::LimitTooLow { limit_mib: limit, least_mib });
                }
                items.min(MOST_MIB)
            }
        };
        if !(LEAST_MIB..=MOST_MIB).contains(&items_mib) {
            return Err(Invalid::MemoryBounds { least_mib: LEAST_MIB, most_mib: MOST_MIB });
        }
        let all_mib = all(items_mib, connections);
        match limit_mib {
            Some(limit_mib) if limit_mib < all_mib => {
                Err(Invalid::MemoryDoesNotFit { items_mib, all_mib, limit_mib })
            }
            _ => Ok(Self { items_mib, all_mib }),
        }
    }
}

/// Mebibytes as a quantity in the form in which a server writes it.
pub(super) fn quantity(mib: u64) -> String {
    match mib {
        mib if mib > 0 && mib.is_multiple_of(1 << 20) => format!("{}Ti", mib >> 20),
        mib if mib > 0 && mib.is_multiple_of(1 << 10) => format!("{}Gi", mib >> 10),
        mib => format!("{mib}Mi"),
    }
}

fn connections_mib(connections: i32) -> u64 {
    (u64::try_from(connections).unwrap_or(0) * CONNECTION_KIB).div_ceil(1_024)
}

fn all(items_mib: u64, connections_mib: u64) -> u64 {
    BASE_MIB + items_mib + items_mib.div_ceil(ITEMS_PER_HASH) + connections_mib
}

/// An amount of memory in bytes.
pub(super) fn bytes(field: &'static str, amount: &Amount) -> Result<u64, Invalid> {
    let text = amount.text();
    let bytes = millis(&text).and_then(|millis| u64::try_from(millis / 1_000).ok());
    bytes.ok_or_else(|| Invalid::Quantity { field, value: sdk::error::foreign(&text) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The sizing of a spec, as `items/all`, or why there is none.
    fn sized(spec: serde_json::Value) -> String {
        match Sizing::of(&serde_json::from_value(spec).unwrap()) {
            Ok(Sizing { items_mib, all_mib }) => format!("{items_mib}/{all_mib}"),
            Err(invalid) => invalid.to_string(),
        }
    }

    #[test]
    fn memory_for_items_and_what_comes_on_top() {
        for (spec, expect) in [
            (json!({}), "64/168"),
            (json!({"memory": "1Gi"}), "1024/1248"),
            (json!({"memory": 1_073_741_824}), "1024/1248"),
            (json!({"memory": "1Gi", "connections": 16}), "1024/1217"),
            (json!({"memory": "1G"}), "953/1169"),
            (json!({"memory": "4Ti"}), "4194304/4718688"),
            (json!({"resources": {"limits": {"memory": "1Gi"}}}), "824/1023"),
            (json!({"resources": {"limits": {"memory": "168Mi"}}}), "64/168"),
            (json!({"memory": "64Mi", "resources": {"limits": {"memory": "168Mi"}}}), "64/168"),
        ] {
            assert_eq!(sized(spec.clone()), expect, "{spec}");
        }
    }

    #[test]
    fn what_cannot_be_says_why_and_what_to_write() {
        for spec in [
            json!({"memory": "much"}),
            json!({"memory": "-1"}),
            json!({"memory": "1Mi"}),
            json!({"memory": "5Ti"}),
            json!({"resources": {"limits": {"memory": "100Mi"}}}),
            json!({"resources": {"limits": {"memory": "1 Gi"}}}),
            json!({"memory": "1Gi", "resources": {"limits": {"memory": "1Gi"}}}),
        ] {
            let refused = sized(spec.clone());
            assert!(refused.starts_with("spec."), "{spec}: {refused}");
        }
        insta::assert_snapshot!(
            sized(json!({"memory": "1Gi", "resources": {"limits": {"memory": "1Gi"}}})),
            @"spec.memory of 1024Mi needs 1248Mi with its hash table and connections, and spec.resources.limits.memory is 1024Mi: raise the limit, lower spec.memory or spec.connections, or leave spec.memory out, which makes it fit"
        );
    }

    /// What is computed from a limit fits below it, and nothing more would.
    #[test]
    fn a_limit_is_used_up_and_never_passed() {
        for limit in (105..5_000).step_by(7) {
            let of = |items: Option<u64>| {
                let mut spec = json!({"resources": {"limits": {"memory": format!("{limit}Mi")}}});
                if let Some(items) = items {
                    spec["memory"] = format!("{items}Mi").into();
                }
                Sizing::of(&serde_json::from_value(spec).unwrap())
            };
            let sizing = of(None).unwrap();
            assert!(sizing.all_mib <= limit, "{limit}: {sizing:?}");
            assert_eq!(of(Some(sizing.items_mib)).unwrap(), sizing);
            assert!(of(Some(sizing.items_mib + 2)).is_err(), "{limit}: {sizing:?}");
        }
    }

    #[test]
    fn quantities_are_written_as_a_server_writes_them() {
        for (mib, expect) in [(168, "168Mi"), (1_024, "1Gi"), (1_248, "1248Mi"), (1 << 21, "2Ti")] {
            assert_eq!(quantity(mib), expect);
        }
    }
}
