//! Clocks that drift, and the work of clusters.

use std::time::Duration;

use model::Moment;

/// A clock with an origin and a rate of its own.
#[derive(Clone, Copy)]
pub(super) struct DriftingClock {
    pub(super) origin_us: u64,
    pub(super) rate_ppm: i64,
}

impl DriftingClock {
    pub(super) fn read(self, real_us: u64) -> Moment {
        let elapsed = (real_us as i64 * (1_000_000 + self.rate_ppm) / 1_000_000) as u64;
        Moment::from_origin(Duration::from_micros(self.origin_us + elapsed))
    }

    /// The first real microsecond at which the clock shows `local` or more.
    pub(super) fn real(self, local: Moment) -> u64 {
        let elapsed = (local.since_origin().as_micros() as u64).saturating_sub(self.origin_us);
        (elapsed * 1_000_000).div_ceil((1_000_000 + self.rate_ppm) as u64)
    }
}

/// How much work a cluster needs, spread evenly over its uids.
#[derive(Clone, Copy, Default)]
pub(super) struct Heat {
    /// Milliseconds of work in each second.
    pub(super) rate: u64,
    pub(super) since_us: u64,
    /// All that it needed until then.
    pub(super) before_us: u64,
}

impl Heat {
    pub(super) fn worked_us(self, now_us: u64) -> u64 {
        self.before_us + (now_us - self.since_us) * self.rate / 1_000
    }
}
