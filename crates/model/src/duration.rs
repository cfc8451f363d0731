//! Durations as people write them.

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
