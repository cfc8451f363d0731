//! Durations as people write them, and waits that double.

use std::time::Duration;

/// The duration that `text` says, as command lines take it: `40s`, `2m`, `1m30s`.
///
/// # Errors
/// What is wrong, and how it is written.
pub fn duration(text: &str) -> Result<Duration, String> {
    let parsed: jiff::SignedDuration =
        text.parse().map_err(|_| "write it like 40s, 2m or 1m30s".to_owned())?;
    Duration::try_from(parsed).map_err(|_| "it must not be negative".to_owned())
}

/// The wait `first`, doubled so many times, at most `max`.
pub fn doubled(first: Duration, times: u32, max: Duration) -> Duration {
    first.saturating_mul(1 << times.min(31)).min(max)
}
