//! Per-key exponential backoff, with the figures of client-go's default rate limiter.

use std::time::Duration;

/// The wait after the first failure.
pub const FIRST_DELAY: Duration = Duration::from_millis(5);
/// The longest wait.
pub const MAX_DELAY: Duration = Duration::from_secs(1000);

/// The wait after `failures` failures in a row.
pub fn delay(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(31);
    FIRST_DELAY.saturating_mul(1 << doublings).min(MAX_DELAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_doubles_up_to_its_limit() {
        for (failures, millis) in [(0, 5), (1, 5), (2, 10), (3, 20), (8, 640), (18, 655_360)] {
            assert_eq!(delay(failures), Duration::from_millis(millis), "{failures}");
        }
        assert_eq!(delay(19), MAX_DELAY);
        assert_eq!(delay(u32::MAX), MAX_DELAY);
    }
}
