//! A tokio runtime as a machine: it stands still until it is told to run, and then runs until a
//! given time, and until nothing is left to do at that time. Otherwise it could stop between a
//! check and the act that the check allows.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use futures::task::AtomicWaker;
use tokio::runtime::{Builder, EnterGuard, Handle, Runtime};
use tokio::time::Instant;

/// A machine that runs only when told to.
#[derive(Debug)]
pub struct Machine {
    runtime: Runtime,
    quiet: Arc<Quiet>,
}

/// Whether the runtime has nothing left to do, and whom to wake then.
#[derive(Debug, Default)]
struct Quiet {
    reached: AtomicBool,
    waker: AtomicWaker,
}

impl Default for Machine {
    /// A machine with a paused clock and without any IO.
    fn default() -> Self {
        let quiet = Arc::<Quiet>::default();
        let parks = Arc::clone(&quiet);
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .on_thread_park(move || {
                parks.reached.store(true, Ordering::Relaxed);
                parks.waker.wake();
            })
            .build()
            .expect("a runtime without IO can be made");
        Self { runtime, quiet }
    }
}

impl Machine {
    /// Runs it until `end`.
    pub fn run_until(&self, end: Instant) {
        self.runtime.block_on(async {
            tokio::time::sleep_until(end).await;
            self.quiet.reached.store(false, Ordering::Relaxed);
            poll_fn(|cx| {
                self.quiet.waker.register(cx.waker());
                let reached = self.quiet.reached.load(Ordering::Relaxed);
                if reached { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            self.quiet.waker.take();
        });
    }

    /// Advances its clock without running it meanwhile: all timers up to `now` are due at once.
    pub fn jump_to(&self, now: Instant) {
        self.runtime.block_on(async {
            let missed = now.saturating_duration_since(self.now());
            tokio::time::advance(missed).await;
        });
    }

    /// The time of its clock.
    #[expect(clippy::disallowed_methods, reason = "the paused clock of the machine")]
    fn now(&self) -> Instant {
        let _inside = self.enter();
        Instant::now()
    }

    /// Timers and tasks that are created while the guard lives belong to this machine.
    pub fn enter(&self) -> EnterGuard<'_> {
        self.runtime.enter()
    }

    /// Runs something on it that takes no time.
    pub fn block_on<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// A handle to spawn tasks on it.
    pub fn handle(&self) -> &Handle {
        self.runtime.handle()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn it_runs_until_nothing_is_left_to_do_at_that_time() {
        let machine = Machine::default();
        let begin = machine.now();
        let (hops, mut ends) = tokio::sync::mpsc::unbounded_channel();
        machine.handle().spawn(async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            for hop in 0..3 {
                tokio::task::yield_now().await;
                hops.send(hop).unwrap();
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
            hops.send(9).unwrap();
        });
        machine.run_until(begin + Duration::from_millis(5));
        let seen: Vec<_> = std::iter::from_fn(|| ends.try_recv().ok()).collect();
        assert_eq!(seen, [0, 1, 2]);
        machine.run_until(begin + Duration::from_millis(6));
        assert_eq!(ends.try_recv(), Ok(9));
    }
}
