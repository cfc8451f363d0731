//! A task without which the process is of no use: whoever depends on it hears of its end, a panic
//! included. A task that is only spawned ends unheard.

use std::any::Any;
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

use tokio::sync::watch;

/// A task whose end can be waited for, by everybody who has a clone. It goes on when all are dropped.
#[derive(Clone, Debug)]
pub struct VitalTask(watch::Receiver<Option<TaskEnd>>);

/// How a task ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskEnd {
    /// It returned.
    Returned,
    /// It panicked with that message.
    Panicked(String),
    /// Its runtime ended before it.
    Dropped,
}

impl VitalTask {
    /// Starts it on the runtime of the caller. What the task owns is dropped after its end is known.
    pub fn spawn(task: impl Future<Output = ()> + Send + 'static) -> Self {
        let (sender, end) = watch::channel(None);
        tokio::spawn(async move {
            let mut task = pin!(task);
            let end = poll_fn(|cx| {
                // After a panic the task is not polled again, so nobody sees what it left half done.
                match catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(cx))) {
                    Ok(poll) => poll.map(|()| TaskEnd::Returned),
                    Err(panic) => Poll::Ready(TaskEnd::Panicked(panic_text(&*panic))),
                }
            });
            sender.send_replace(Some(end.await));
        });
        Self(end)
    }

    /// How it has ended, if it has.
    pub fn end(&self) -> Option<TaskEnd> {
        let is_dropped = self.0.has_changed().is_err();
        self.0.borrow().clone().or(is_dropped.then_some(TaskEnd::Dropped))
    }

    /// Waits for its end.
    pub async fn ended(&self) -> TaskEnd {
        match self.0.clone().wait_for(Option::is_some).await {
            Ok(end) => end.clone().unwrap_or(TaskEnd::Dropped),
            Err(_) => TaskEnd::Dropped,
        }
    }
}

impl fmt::Display for TaskEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Returned => f.write_str("ended by itself"),
            Self::Panicked(message) => write!(f, "panicked: {message}"),
            Self::Dropped => f.write_str("ended with its runtime"),
        }
    }
}

/// The message of a panic.
pub fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_hears_how_a_task_ended() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let ended = |task: VitalTask| {
            let (early, late) = (task.clone(), task);
            let end = runtime.block_on(early.ended());
            assert_eq!(late.end(), Some(end.clone()));
            end
        };
        let _here = runtime.enter();
        assert_eq!(ended(VitalTask::spawn(async {})), TaskEnd::Returned);
        let said = ended(VitalTask::spawn(async { panic!("at {}", 7) }));
        assert_eq!(said.to_string(), "panicked: at 7");
        let plain = ended(VitalTask::spawn(async { panic!("plain") }));
        assert_eq!(plain, TaskEnd::Panicked("plain".to_owned()));
    }

    #[test]
    fn a_runtime_that_ends_takes_its_tasks_along() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let task = {
            let _here = runtime.enter();
            VitalTask::spawn(std::future::pending())
        };
        assert_eq!(task.end(), None);
        drop(runtime);
        assert_eq!(task.end(), Some(TaskEnd::Dropped));
    }
}
