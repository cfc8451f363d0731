//! All work of one connection in one task.
//!
//! The library divides a connection of HTTP/2 into futures: one takes requests from a channel, one reads and
//! writes the socket, and one for each request waits for the head of its answer. As tasks they wake each other
//! several times for each request, from thread to thread, and each request makes one more. Here they share a
//! task: what one of them wakes is polled right after it, and what several of them write leaves at once.
//!
//! ```text
//!   execute ──▶ come ───┐
//!                       ├──▶ Worker, the task: polls it ──▶ it ends, or waits
//!   a waker ──▶ woken ──┘
//! ```
//!
//! # Invariants
//! - There is one worker while there is work, and no more than one.
//! - A future that is woken is polled after that.
//! - No future is polled or dropped, and no waker is called, under the lock.
//! - Futures that wake each other without an end leave others of the thread their turns.

use std::mem;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use futures::future::BoxFuture;
use hyper::rt::Executor;
use tokio::task::coop;

/// What the library wants to run.
type Work = BoxFuture<'static, ()>;

/// How often the worker looks for what is woken before others have a turn.
const MAX_ROUNDS: usize = 32;

/// Runs all that it is given in one task. Clones share it.
#[derive(Clone, Default)]
pub(super) struct OneTask(Arc<Shared>);

#[derive(Default)]
struct Shared(Mutex<State>);

#[derive(Default)]
struct State {
    /// What has not begun.
    come: Vec<Work>,
    /// The slots of what has been woken.
    woken: Vec<usize>,
    /// Wakes the worker; none while it is polled.
    worker: Option<Waker>,
    has_worker: bool,
}

/// The task.
struct Worker {
    shared: Arc<Shared>,
    slots: Vec<Option<Slot>>,
    /// The slots without work.
    free: Vec<usize>,
    /// Empty, with the room that the slots of what is woken have taken before.
    woken: Vec<usize>,
    has_ended: bool,
}

/// Work under way.
struct Slot {
    work: Work,
    signal: Arc<Signal>,
    /// Made of the signal.
    waker: Waker,
}

/// Tells the worker to poll a slot.
struct Signal {
    slot: usize,
    is_woken: AtomicBool,
    shared: Arc<Shared>,
}

impl Executor<Work> for OneTask {
    fn execute(&self, work: Work) {
        let mut state = self.0.lock();
        state.come.push(work);
        let begins = !mem::replace(&mut state.has_worker, true);
        let worker = state.worker.take();
        drop(state);
        if begins {
            tokio::spawn(Worker::new(Arc::clone(&self.0)));
        }
        if let Some(worker) = worker {
            worker.wake();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Worker ===

impl Worker {
    fn new(shared: Arc<Shared>) -> Self {
        let (slots, free, woken) = (Vec::new(), Vec::new(), Vec::new());
        Self { shared, slots, free, woken, has_ended: false }
    }

    fn begin(&mut self, work: Work) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        let shared = Arc::clone(&self.shared);
        let signal = Arc::new(Signal { slot, is_woken: AtomicBool::new(false), shared });
        let waker = Waker::from(Arc::clone(&signal));
        self.slots[slot] = Some(Slot { work, signal, waker });
        self.poll_slot(slot);
    }

    /// Polls what is in a slot, if it has not ended. What was in it before may have woken it: that does no harm.
    fn poll_slot(&mut self, slot: usize) {
        let Some(Some(Slot { work, signal, waker })) = self.slots.get_mut(slot) else { return };
        // Whoever wakes it from here on makes the worker poll it once more.
        signal.is_woken.swap(false, Ordering::AcqRel);
        if work.as_mut().poll(&mut Context::from_waker(waker)).is_ready() {
            let ended = self.slots[slot].take();
            self.free.push(slot);
            drop(ended);
        }
    }
}

impl Future for Worker {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        for _ in 0..MAX_ROUNDS {
            let mut state = this.shared.lock();
            state.worker = None;
            if state.come.is_empty() && state.woken.is_empty() {
                if this.free.len() < this.slots.len() {
                    state.worker = Some(cx.waker().clone());
                    return Poll::Pending;
                }
                state.has_worker = false;
                this.has_ended = true;
                return Poll::Ready(());
            }
            let come = mem::take(&mut state.come);
            let mut woken = mem::replace(&mut state.woken, mem::take(&mut this.woken));
            drop(state);
            come.into_iter().for_each(|work| this.begin(work));
            woken.drain(..).for_each(|slot| this.poll_slot(slot));
            this.woken = woken;
            if !coop::has_budget_remaining() {
                break;
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if self.has_ended {
            return;
        }
        // Something panicked, or the runtime ends. The requests under way fail, and the next ones find no
        // connection, so they open one.
        self.slots.clear();
        let mut state = self.shared.lock();
        let left = mem::take(&mut *state);
        drop(state);
        drop(left);
    }
}

// === impl Signal ===

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_woken.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut state = self.shared.lock();
        state.woken.push(self.slot);
        let worker = state.worker.take();
        drop(state);
        if let Some(worker) = worker {
            worker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn};

    use futures::FutureExt;
    use tokio::sync::oneshot;
    use tokio::task;

    use super::*;

    /// Runs `work` there; what it returns comes here.
    fn run<T: Send + 'static>(
        executor: &OneTask,
        work: impl Future<Output = T> + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (tell, told) = oneshot::channel();
        executor.execute(work.map(|done| drop(tell.send(done))).boxed());
        told
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_wakes_each_other_is_in_one_task_which_ends_with_the_last_of_it() {
        let executor = OneTask::default();
        for _ in 0..100 {
            let (wake, woken) = oneshot::channel();
            let first = run(&executor, async { (woken.await.unwrap(), task::id()) });
            let inner = executor.clone();
            let other = run(&executor, async move { run(&inner, async { task::id() }).await });
            let other = other.await.unwrap().unwrap();
            assert!(executor.0.lock().has_worker, "one still waits");
            wake.send(7).unwrap();
            assert_eq!(first.await.unwrap(), (7, other));
            while executor.0.lock().has_worker {
                task::yield_now().await;
            }
        }
    }

    #[tokio::test]
    async fn after_a_panic_what_waited_is_gone_and_what_comes_runs() {
        let executor = OneTask::default();
        let waiting = run(&executor, pending::<()>());
        drop(run(&executor, async { panic!("on purpose") }));
        waiting.await.unwrap_err();
        assert_eq!(run(&executor, async { 7 }).await, Ok(7));
    }

    #[tokio::test]
    async fn what_always_wakes_itself_leaves_others_their_turns() {
        let executor = OneTask::default();
        let restless = run(
            &executor,
            poll_fn(|cx| {
                cx.waker().wake_by_ref();
                Poll::<()>::Pending
            }),
        );
        assert_eq!(run(&executor, async { 7 }).await, Ok(7));
        assert!(restless.now_or_never().is_none());
    }
}
