//! A clock for tests: tokio's, paused.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;

use crate::{Clock, Moment, Sleep};

/// The time of tokio's paused clock.
#[derive(Debug)]
pub struct PausedClock {
    origin: tokio::time::Instant,
    /// How long the machine has slept, which tokio's clock does not count.
    slept: watch::Sender<Duration>,
}

#[expect(clippy::disallowed_methods, reason = "this is the clock, and its time is paused")]
fn tokio_now() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

impl PausedClock {
    /// A clock that starts at zero.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { origin: tokio_now(), slept: watch::Sender::default() })
    }

    /// The machine sleeps for this long: no timer moves.
    pub fn suspend(&self, time: Duration) {
        self.slept.send_modify(|slept| *slept += time);
    }
}

impl Clock for PausedClock {
    fn now(&self) -> Moment {
        Moment::from_origin(tokio_now() - self.origin + *self.slept.borrow())
    }

    fn wall(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH + self.now().since_origin()
    }

    fn sleep_until(&self, moment: Moment) -> Sleep {
        let (origin, mut slept) = (self.origin, self.slept.subscribe());
        Box::pin(async move {
            loop {
                let now = Moment::from_origin(tokio_now() - origin + *slept.borrow_and_update());
                if now >= moment {
                    return;
                }
                tokio::select! {
                    () = tokio::time::sleep(now.until(moment)) => {}
                    Ok(()) = slept.changed() => {}
                }
            }
        })
    }
}
