//! The clock of the server.
//!
//! All other code takes `now` and a random source as arguments.
#![expect(clippy::disallowed_methods, reason = "the one file that reads the clock")]

use std::sync::Arc;

use jiff::Timestamp;

/// Tells the wall-clock time written into objects.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The machine's clock.
pub fn system() -> Clock {
    Arc::new(Timestamp::now)
}

/// A time as `metadata.creationTimestamp` has it: whole seconds, UTC.
pub fn seconds(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
