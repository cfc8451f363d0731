//! Sleeps that count suspended time: one timer of the kernel and one thread for all sleepers of the
//! process. Shell: waits on `CLOCK_BOOTTIME`.
//!
//! ```text
//!   Sleeper ── registers (moment, waker) ──▶ Alarms ── arms for the earliest ──▶ timer
//!      ▲                                       ▲                                   │
//!      └────────────── wakes those due ── thread ◀──────── readable ───────────────┘
//! ```
//!
//! Most sleeps are deadlines that are never reached. Beginning or dropping one costs no system call
//! unless it is the earliest.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use model::Moment;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

use super::boottime;

/// All sleepers; an error if the kernel has no timer for us.
static ALARMS: LazyLock<io::Result<Alarms>> = LazyLock::new(Alarms::start);

struct Alarms {
    timer: OwnedFd,
    sleepers: Mutex<Sleepers>,
}

#[derive(Default)]
struct Sleepers {
    by_moment: BTreeMap<(Moment, u64), Waker>,
    /// Counts sleepers.
    count: u64,
    /// What the timer is armed for.
    armed: Option<Moment>,
}

/// Ends when a moment of `CLOCK_BOOTTIME` has come.
pub(super) struct Sleeper {
    alarms: &'static Alarms,
    moment: Moment,
    /// Its number, once it is registered.
    number: Option<u64>,
}

impl Sleeper {
    /// Ends at `moment`.
    ///
    /// # Errors
    /// If the kernel has given this process no timer.
    pub(super) fn until(moment: Moment) -> Result<Self, &'static io::Error> {
        let alarms = ALARMS.as_ref()?;
        Ok(Self { alarms, moment, number: None })
    }
}

impl Future for Sleeper {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if boottime() >= self.moment {
            return Poll::Ready(());
        }
        let mut sleepers = self.alarms.lock();
        let number = self.number.unwrap_or_else(|| {
            sleepers.count += 1;
            sleepers.count
        });
        let waker = sleepers.by_moment.entry((self.moment, number));
        waker
            .and_modify(|waker| waker.clone_from(cx.waker()))
            .or_insert_with(|| cx.waker().clone());
        self.alarms.arm(&mut sleepers);
        drop(sleepers);
        self.number = Some(number);
        Poll::Pending
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            // The timer stays armed, and may find no sleeper.
            self.alarms.lock().by_moment.remove(&(self.moment, number));
        }
    }
}

impl Alarms {
    fn start() -> io::Result<Self> {
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?;
        std::thread::Builder::new().name("alarms".into()).spawn(|| {
            if let Ok(alarms) = LazyLock::force(&ALARMS) {
                alarms.run();
            }
        })?;
        Ok(Self { timer, sleepers: Mutex::default() })
    }

    fn run(&self) {
        let mut expirations = [0; 8];
        loop {
            // Interrupted or not: the sleepers that are due are found below.
            let _ = rustix::io::read(&self.timer, &mut expirations);
            let mut sleepers = self.lock();
            sleepers.armed = None;
            let later = sleepers.by_moment.split_off(&(boottime() + Duration::from_nanos(1), 0));
            let due = std::mem::replace(&mut sleepers.by_moment, later);
            self.arm(&mut sleepers);
            drop(sleepers);
            due.into_values().for_each(Waker::wake);
        }
    }

    /// Arms the timer for the earliest sleeper, unless it is armed for that moment or an earlier one.
    fn arm(&self, sleepers: &mut Sleepers) {
        let Some(&(earliest, _)) = sleepers.by_moment.keys().next() else { return };
        if sleepers.armed.is_some_and(|armed| armed <= earliest) {
            return;
        }
        // Zero would disarm it.
        let at = earliest.since_origin().max(Duration::from_nanos(1));
        let it_value = Timespec::try_from(at).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 });
        let value = Itimerspec { it_interval: Timespec::default(), it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &value)
            .expect("a timer of ours takes every moment");
        sleepers.armed = Some(earliest);
    }

    fn lock(&self) -> MutexGuard<'_, Sleepers> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;

    use super::*;

    fn in_millis(millis: u64) -> Moment {
        boottime() + Duration::from_millis(millis)
    }

    fn sleepers() -> usize {
        ALARMS.as_ref().unwrap().lock().by_moment.len()
    }

    #[tokio::test]
    async fn each_wakes_at_its_moment_and_in_order_whoever_came_first() {
        let order = Mutex::new(Vec::new());
        let sleep = async |millis| {
            let moment = in_millis(millis);
            Sleeper::until(moment).unwrap().await;
            assert!(boottime() >= moment);
            order.lock().unwrap().push(millis);
        };
        join_all([60, 20, 0, 40, 20].map(sleep)).await;
        assert_eq!(order.into_inner().unwrap(), [0, 20, 20, 40, 60]);
    }

    #[tokio::test]
    async fn one_that_is_given_up_leaves_nothing_and_the_next_still_wakes() {
        let early = Sleeper::until(in_millis(30)).unwrap();
        let late = Sleeper::until(in_millis(60)).unwrap();
        let far = (0..100).map(|_| Sleeper::until(in_millis(3_600_000)).unwrap());
        let mut given_up: Vec<_> = far.chain([early]).map(Box::pin).collect();
        let before = sleepers();
        for sleeper in &mut given_up {
            assert!(futures::poll!(sleeper).is_pending());
        }
        assert!(sleepers() >= before + 100);
        drop(given_up);
        late.await;
        let alarms = ALARMS.as_ref().unwrap().lock();
        assert!(alarms.by_moment.keys().all(|(at, _)| *at < in_millis(3_000_000)));
    }
}
