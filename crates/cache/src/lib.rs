//! The cache of one informer, shared by all who read: every object compressed, beside a small
//! header. Pure: no network, no task, no clock.
//!
//! ```text
//!  raw JSON ─▶ scan ─▶ header ──────────────────┐                      ┌─▶ get, list, owned_by
//!               │  (managedFields cut out)      ├─▶ Entry ─▶ sorted ───┤
//!               └─▶ transform ─▶ index ─▶ codec ┘            tables    └─▶ decode ◀─▶ decoded values
//!                                          ▲
//!                samples ─▶ training ─▶ dictionary, then old entries are packed again
//! ```
//!
//! | file | owns |
//! |---|---|
//! | `scan` | one pass over the text: header fields, and what is cut out |
//! | `pass` | stepping through the text, from member to member |
//! | `brackets` | stepping over an object or array, 64 bytes at a time |
//! | `partial` | the beginning of such a pass, to see whether an object is wanted at all |
//! | `header`, `intern` | what stays uncompressed, and the sharing of equal parts |
//! | `weight` | what an object may take once it is decoded |
//! | `json` | the JSON of an object, read as a type |
//! | `owners` | every owner that an object names, read from its JSON |
//! | `options` | what a kind's store keeps: transform and indexes, declared before it starts |
//! | `codec` | packing and unpacking with a dictionary; one generation each |
//! | `plan`, `training` | when to train, how large, whether to accept; the work itself |
//! | `table` | sorted, copy-on-write tables of pointers |
//! | `store`, `writer` | the read handle; the one handle that changes a store |
//! | `decoded` | decoded values, shared by all stores: capped in bytes, in all and for a cluster, and gone when they are not used |
//!
//! # Invariants
//! - An object is stored and returned byte for byte as it came, without `managedFields` and what the
//!   transform drops; or refused with a [`HeaderError`].
//! - A reader sees every object either before or after a change, never half of it: entries are
//!   replaced whole, and a list reads one snapshot of all tables.
//! - The lock inside is held for one look-up by key, one swap of a pointer, or one change of a few
//!   chunks of at most `table::CHUNK` pointers; never over a scan, a decode or an await. A list goes
//!   through a snapshot without it; a change that meets a snapshot copies what it changes first.
//! - An entry holds the dictionary it was packed with; a dictionary goes with its last entry.
//! - [`Store::bytes`] is what the allocator was asked for, within 5 %: `tests/cache_bytes.rs`. Left
//!   out are the contexts for packing, one per thread that packs or unpacks, about 200 KB each.
//!
//! # Figures
//! `cargo run --release -p leasehold-cache --example measure` prints bytes and CPU time per object. For 5,000
//! synthetic objects of each kind, heap with everything in, dictionaries included:
//!
//! | object | JSON without `managedFields` | packed | heap |
//! |---|---|---|---|
//! | Pod, 14.9 KB on the wire | 8,055 B | 903 B | 1,183 B |
//! | custom resource | 2,226 B | 259 B | 494 B |

mod brackets;
mod codec;
mod decoded;
mod entry;
mod header;
mod intern;
mod json;
mod options;
mod owners;
mod partial;
mod pass;
mod plan;
mod scan;
mod store;
mod table;
mod training;
mod weight;
mod writer;

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod laws;
#[cfg(test)]
mod tests;

pub use decoded::{AGE_EVERY, Allocated, DECODED_BYTES, DecodedCache, DecodedPart};
pub use entry::{DecodeError, Entry};
pub use header::{
    Header, HeaderError, Labels, LocalKey, MAX_NAME_BYTES, Owner, ResourceVersion, Uid, is_name,
};
pub use options::{Index, OWNERS, OptionsByKind, StoreOptions, Transform, Unindexed};
pub use partial::{PartialFields, PartialMetadata, partial_metadata};
pub use store::{CacheBytes, NoIndex, Store, StoreSize};
pub use training::{Trained, Training};
pub use weight::{MOST_FOR_EACH_BYTE, TooHeavy, Weigher};
pub use writer::StoreWriter;
