//! What a member keeps of a cluster: which objects of a kind, and how much of all of them. Pure, but for locks
//! and one signal.
//!
//! | file | decides |
//! |---|---|
//! | `range_filter` | which objects readers need: those in ranges of uids, or of their owners' uids |
//! | `held` | what an informer holds, what it should hold, and when to list again |
//! | `sharded_list` | whether the server sends only what is wanted |
//! | `census` | whether a list mentions an object twice, and how many it mentions |
//! | `ledger` | what each cluster's caches take, against its budget and that of all |
//! | `quarantine` | how long a cluster is left alone that exceeds its budget |
//!
//! # What is not here
//! Caches (`cache`), the protocol of lists and watches (`listwatch`), and the tasks that ask these rules and
//! carry out what they say (`engine`).

mod census;
mod held;
mod ledger;
mod quarantine;
mod range_filter;
mod sharded_list;

pub use census::{Census, Twice};
pub use held::{Held, Shift};
pub use ledger::{Account, Ledger, MENTIONED_FOR_EACH, Overrun, Part};
pub use quarantine::{QuarantineStatus, Quarantines};
pub use range_filter::{RangeFilter, RangeScope};
pub use sharded_list::{ShardMode, ShardedList};
