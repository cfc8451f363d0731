//! Time for decisions: a [`Moment`] on a clock that never steps, and the wall clock.
//!
//! Decisions take `now` as an argument; only shells ask a [`Clock`]. The real implementation reads
//! `CLOCK_BOOTTIME`, which counts while a machine sleeps, so that Leases run out during a suspend too.

use std::fmt::Debug;
use std::future::Future;
use std::ops::{Add, Sub};
use std::pin::Pin;
use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;

/// A point on the local monotonic clock, as the time since that clock's origin.
///
/// Two moments of one process, or of one machine, can be compared. Moments of different machines cannot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// The moment `since_origin` after the clock's origin.
    pub const fn from_origin(since_origin: Duration) -> Self {
        Self(since_origin)
    }

    /// Time since the clock's origin.
    pub const fn since_origin(self) -> Duration {
        self.0
    }

    /// Time from `earlier` to `self`; zero if `earlier` is later.
    pub fn since(self, earlier: Moment) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// Time from `self` to `later`; zero if `later` is past.
    pub fn until(self, later: Moment) -> Duration {
        later.since(self)
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;
    fn add(self, rhs: Duration) -> Moment {
        Moment(self.0.saturating_add(rhs))
    }
}

impl Sub<Duration> for Moment {
    type Output = Moment;
    fn sub(self, rhs: Duration) -> Moment {
        Moment(self.0.saturating_sub(rhs))
    }
}

/// A future that ends at a [`Moment`].
pub type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A source of time. Shells implement it: the system's clock, a simulated one, [`ManualClock`].
pub trait Clock: Debug + Send + Sync + 'static {
    /// Now, on a monotonic clock that counts time spent suspended.
    fn now(&self) -> Moment;
    /// Now, on the wall clock. For people, for schedules and for the floor of epochs, never for the age of a
    /// Lease.
    fn wall(&self) -> Timestamp;

    /// Ends when this clock has reached that moment. Call and await it inside a runtime.
    ///
    /// The default uses tokio's clock, which stops while the machine sleeps. A clock that counts meanwhile
    /// needs an implementation of its own: a member that wakes long after its Lease ran out must notice
    /// that on waking, not when the rest of a timer has passed.
    fn sleep_until(&self, moment: Moment) -> Sleep {
        Box::pin(tokio::time::sleep(self.now().until(moment)))
    }
}

/// A clock that moves only by [`advance`](Self::advance), for tests.
#[derive(Debug)]
pub struct ManualClock(Mutex<(Moment, Timestamp)>);

impl ManualClock {
    /// A clock at the origin, with the wall clock at `wall`.
    pub fn new(wall: Timestamp) -> Self {
        Self(Mutex::new((Moment::default(), wall)))
    }

    /// Moves both clocks forward by `step`.
    pub fn advance(&self, step: Duration) {
        let mut state = self.0.lock().expect("no holder of this lock panics");
        state.0 = state.0 + step;
        state.1 = state.1.saturating_add(step).expect("a duration is never calendar-relative");
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Moment {
        self.0.lock().expect("no holder of this lock panics").0
    }

    fn wall(&self) -> Timestamp {
        self.0.lock().expect("no holder of this lock panics").1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_past_deadline_leaves_nothing() {
        let early = Moment::from_origin(Duration::from_secs(1));
        let late = early + Duration::from_secs(2);
        assert_eq!(early.until(late), Duration::from_secs(2));
        assert_eq!(late.until(early), Duration::ZERO);
        assert_eq!(late - Duration::from_secs(9), Moment::default());
    }

    #[test]
    fn a_manual_clock_moves_both_hands() {
        let clock = ManualClock::new(Timestamp::UNIX_EPOCH);
        clock.advance(Duration::from_millis(1500));
        assert_eq!(clock.now().since_origin(), Duration::from_millis(1500));
        assert_eq!(clock.wall().as_millisecond(), 1500);
    }
}
