//! Deadlines, durations and the time of day: the one file of the harness that reads clocks.
#![expect(clippy::disallowed_methods, reason = "the harness drives real processes in real time")]

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};

/// How often a condition is checked.
const POLL: Duration = Duration::from_millis(200);

/// Measures how long something takes; displays as `4.2 s` or `4 min 51 s`.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch(Instant);

/// The wall clock's time, which API servers write into their audit logs.
pub fn now() -> Timestamp {
    Timestamp::now()
}

/// The wall clock's time at which this machine started. The journals of replicas count from it.
pub fn boot() -> Result<Timestamp> {
    let up = clock_gettime(ClockId::Boottime);
    let up = jiff::SignedDuration::new(up.tv_sec, i32::try_from(up.tv_nsec)?);
    Ok(Timestamp::now().checked_sub(up)?)
}

/// Checks `condition` until it gives a value.
pub async fn until<T>(
    deadline: Duration,
    what: &str,
    mut condition: impl AsyncFnMut() -> Result<Option<T>>,
) -> Result<T> {
    let end = Instant::now() + deadline;
    loop {
        if let Some(value) = condition().await? {
            return Ok(value);
        }
        if Instant::now() >= end {
            bail!("waited {} s in vain for {what}", deadline.as_secs());
        }
        tokio::time::sleep(POLL).await;
    }
}

impl Stopwatch {
    /// Starts now.
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The time since the start.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

impl fmt::Display for Stopwatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let elapsed = self.elapsed();
        match elapsed.as_secs() {
            seconds @ 120.. => write!(f, "{} min {} s", seconds / 60, seconds % 60),
            _ => write!(f, "{:.1} s", elapsed.as_secs_f64()),
        }
    }
}
