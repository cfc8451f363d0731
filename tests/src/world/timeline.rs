//! The time of one process and its clock, in relation to the time of the world.
//!
//! Every process runs on its own paused tokio runtime, so its timers stand still until the world
//! runs it, and are as fast or slow as the world decides. The world's time is in microseconds since
//! it began; the process's milliseconds in a slice are spread evenly over it.
#![expect(
    clippy::disallowed_methods,
    reason = "a clock for simulation, made from tokio's paused one"
)]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use model::{Clock, Moment, Purpose, Sleep};
use tokio::sync::Notify;
use tokio::time::Instant;

/// What the world's wall clock shows when it begins, in seconds since 1970.
pub(super) const WALL: u32 = 1_800_000_000;
const BEGINNING: Timestamp = Timestamp::constant(WALL as i64, 0);

/// How the clock of a process runs.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// What its monotonic clock showed when it began.
    pub boot: Duration,
    /// How much faster than the world it runs, in parts per million.
    pub drift_ppm: i64,
}

/// The time of one process.
#[derive(Debug)]
pub struct Timeline {
    pace: Pace,
    /// The world's time when the process began.
    born_us: u64,
    origin: Instant,
    state: Mutex<State>,
    woken: Arc<Notify>,
}

#[derive(Debug, Default)]
struct State {
    /// How long the machine was suspended, which its timers did not count.
    suspended: Duration,
    /// By how much its wall clock was stepped, in seconds.
    wall_step_s: i64,
    slice: Slice,
    /// When the machine falls asleep, if it is to.
    armed: Option<Stumble>,
    /// When it stopped so in this slice, and for how long.
    stood: Option<(u64, u64)>,
}

/// A machine falls asleep between a check and the act that it allows.
#[derive(Clone, Copy, Debug)]
pub struct Stumble {
    /// What the check is for.
    pub after: Purpose,
    /// How many such checks pass before: a write is checked twice, before and after its turn.
    pub skip: u8,
    /// Until when it sleeps, in the world's microseconds.
    pub until_us: u64,
}

/// A slice of the world's time, and the tokio time of the process in it.
#[derive(Clone, Copy, Debug, Default)]
struct Slice {
    from_us: u64,
    until_us: u64,
    from: Duration,
    until: Duration,
}

impl Timeline {
    /// The time of a process that begins now. Call it inside the process's runtime.
    pub fn begin(pace: Pace, born_us: u64) -> Arc<Self> {
        let slice = Slice { from_us: born_us, until_us: born_us, ..Slice::default() };
        let state = Mutex::new(State { slice, ..State::default() });
        let woken = Arc::default();
        Arc::new(Self { pace, born_us, origin: Instant::now(), state, woken })
    }

    /// The world's time at this moment of the process. Call it inside its runtime.
    pub fn world_us(&self) -> u64 {
        let Slice { from_us, until_us, from, until } = self.state().slice;
        let passed = self.origin.elapsed().saturating_sub(from).as_micros();
        let whole = until.saturating_sub(from).as_micros();
        let part = (u128::from(until_us - from_us) * passed).checked_div(whole).unwrap_or_default();
        let slept_us = self.stood().map_or(0, |(_, slept_us)| slept_us);
        until_us.min(from_us + u64::try_from(part).unwrap_or(u64::MAX)) + slept_us
    }

    /// The world's time at a moment of the process's clock that has passed, to about a millisecond.
    pub fn world_us_of(&self, moment: Moment) -> u64 {
        let passed = moment.since(Moment::from_origin(self.pace.boot)).as_millis();
        let rate = u128::from(1_000_000_u64.saturating_add_signed(self.pace.drift_ppm));
        self.born_us + u64::try_from(passed * 1_000_000_000 / rate).unwrap_or(u64::MAX)
    }

    /// Enters the next slice, and gives the instant at which it ends.
    pub fn enter(&self, from_us: u64, until_us: u64) -> Instant {
        let (from, until) = (self.local(from_us), self.local(until_us));
        let mut state = self.state();
        state.slice = Slice { from_us, until_us, from, until };
        state.stood = None;
        self.origin + until
    }

    /// Lets the machine fall asleep once; no more, if there is none.
    pub fn arm(&self, stumble: Option<Stumble>) {
        self.state().armed = stumble;
    }

    /// A check has been passed: the machine sleeps here, if it is to. What it does in the rest of the
    /// slice it does after that. Call it inside its runtime.
    pub fn pass(&self, purpose: Purpose) {
        let due = self.state().armed.take_if(|stumble| {
            let due = stumble.after == purpose && stumble.skip == 0;
            stumble.skip -= u8::from(stumble.after == purpose && !due);
            due
        });
        let Some(Stumble { until_us, .. }) = due else { return };
        let at_us = self.world_us();
        let slept_us = until_us.saturating_sub(at_us);
        self.state().stood = Some((at_us, slept_us));
        self.suspend(slept_us);
    }

    /// When it stopped in this slice between a check and an act, and for how long, if it did.
    pub fn stood(&self) -> Option<(u64, u64)> {
        self.state().stood
    }

    /// The machine slept for that much of the world's time: its clocks ran, tokio's timers did not.
    pub fn suspend(&self, slept_us: u64) {
        let slept = Duration::from_millis(self.scaled_ms(slept_us));
        self.state().suspended += slept;
        self.woken.notify_waiters();
    }

    /// Steps the wall clock.
    pub fn step_wall(&self, seconds: i64) {
        self.state().wall_step_s += seconds;
    }

    /// The tokio time of the process at a time of the world, in whole milliseconds.
    fn local(&self, world_us: u64) -> Duration {
        let passed = Duration::from_millis(self.scaled_ms(world_us - self.born_us));
        passed.saturating_sub(self.state().suspended)
    }

    fn scaled_ms(&self, us: u64) -> u64 {
        let rate = u128::from(1_000_000_u64.saturating_add_signed(self.pace.drift_ppm));
        u64::try_from(u128::from(us) * rate / 1_000_000_000).unwrap_or(u64::MAX)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for Timeline {
    fn now(&self) -> Moment {
        let slept = self.state().suspended;
        Moment::from_origin(self.pace.boot + slept + self.origin.elapsed())
    }

    fn wall(&self) -> Timestamp {
        let born = Duration::from_micros(self.born_us);
        let (slept, step) = {
            let state = self.state();
            (state.suspended, jiff::SignedDuration::from_secs(state.wall_step_s))
        };
        let passed = born + slept + self.origin.elapsed();
        BEGINNING
            .saturating_add(passed)
            .and_then(|time| time.saturating_add(step))
            .expect("a duration is not calendar-relative")
    }

    fn sleep_until(&self, moment: Moment) -> Sleep {
        let (now, woken) = (self.now(), Arc::clone(&self.woken).notified_owned());
        Box::pin(async move {
            tokio::select! {
                biased;
                () = tokio::time::sleep(now.until(moment)) => {}
                // Sometimes too early, but whoever sleeps checks the clock again.
                () = woken => {}
            }
        })
    }
}
