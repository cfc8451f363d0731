//! The only file here that reads clocks.
#![expect(clippy::disallowed_methods, reason = "what is measured is how long things take")]

use std::time::{Duration, Instant};

use jiff::Timestamp;

/// When something began.
#[derive(Clone, Copy, Debug)]
pub struct Begin(Instant);

impl Begin {
    /// Now.
    pub fn now() -> Self {
        Self(Instant::now())
    }

    /// How long ago that is.
    pub fn elapsed(self) -> Duration {
        self.0.elapsed()
    }
}

/// The wall clock, in nanoseconds since 1970: the harness on the same machine reads the same.
pub fn unix_nanos() -> i64 {
    i64::try_from(Timestamp::now().as_nanosecond()).expect("they fit until the year 2262")
}
