//! A clock that follows tokio's time: in a paused test both stand still while there is work, and jump
//! together when there is no more.
#![expect(clippy::disallowed_methods, reason = "a clock for tests, made of tokio's")]

use jiff::Timestamp;
use model::{Clock, Moment};
use tokio::time::Instant;

/// Tokio's time, beginning at a chosen wall-clock time.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    origin: Instant,
    wall: Timestamp,
}

impl TokioClock {
    /// A clock on which it is `wall` now.
    pub fn starting_at(wall: Timestamp) -> Self {
        Self { origin: Instant::now(), wall }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Moment {
        Moment::from_origin(self.origin.elapsed())
    }

    fn wall(&self) -> Timestamp {
        self.wall
            .saturating_add(self.origin.elapsed())
            .expect("a duration is not calendar-relative")
    }
}
