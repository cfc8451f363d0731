//! The only file here that reads clocks.
#![expect(clippy::disallowed_methods, reason = "what is measured is how long things take")]

use std::time::{Duration, Instant};

use jiff::Timestamp;

/// The time at which something began.
#[derive(Clone, Copy, Debug)]
pub struct Begin(Instant);

impl Begin {
    /// Now.
    pub fn now() -> Self {
        Self(Instant::now())
    }

    /// The time since then.
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// The wall clock in nanoseconds since 1970, which the harness on the same machine reads too.
pub fn unix_nanos() -> i64 {
    i64::try_from(Timestamp::now().as_nanosecond()).expect("it fits until the year 2262")
}
