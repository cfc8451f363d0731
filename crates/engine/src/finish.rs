//! Work that runs to its end even if the future that began it is dropped.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::runtime::Handle;

/// A future that goes on in a task of its own when it is dropped before its end.
///
/// As long as it is awaited it costs no task: the one that awaits it does the work.
pub(crate) struct ToItsEnd<T: Send + 'static> {
    /// Nothing once it has ended, or has panicked.
    rest: Option<BoxFuture<'static, T>>,
    runtime: Handle,
}

/// The same for `work`. To be called inside a runtime.
pub(crate) fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> ToItsEnd<T> {
    ToItsEnd { rest: Some(work.boxed()), runtime: Handle::current() }
}

impl<T: Send + 'static> Future for ToItsEnd<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let mut rest = self.rest.take().expect("a future is not polled after its end");
        let polled = rest.as_mut().poll(cx);
        if polled.is_pending() {
            self.rest = Some(rest);
        }
        polled
    }
}

impl<T: Send + 'static> Drop for ToItsEnd<T> {
    fn drop(&mut self) {
        if let Some(rest) = self.rest.take() {
            self.runtime.spawn(rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn what_is_dropped_goes_on() {
        let (begin, begun) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let mut work = Box::pin(to_its_end(async {
            let value = begun.await.unwrap();
            end.send(value).unwrap();
        }));
        assert!(futures::poll!(&mut work).is_pending());
        drop(work);
        begin.send(7).unwrap();
        assert_eq!(ended.await.unwrap(), 7);
    }

    #[tokio::test]
    async fn what_was_never_awaited_is_done_too() {
        let (end, ended) = oneshot::channel();
        drop(to_its_end(async { end.send(7).unwrap() }));
        assert_eq!(ended.await.unwrap(), 7);
    }

    #[tokio::test]
    async fn what_is_awaited_is_done_once_and_a_panic_goes_to_whoever_awaits() {
        assert_eq!(to_its_end(async { 7 }).await, 7);
        let panicking = to_its_end(async { panic!("on purpose") });
        let caught = std::panic::AssertUnwindSafe(panicking).catch_unwind().await;
        caught.unwrap_err();
    }
}
