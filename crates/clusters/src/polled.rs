//! Providers that read files on a blocking thread, at a fixed interval.
//!
//! Polling instead of waiting for notifications costs a few looks per file and second. It works the same
//! way on local disks, network mounts and the symlinks of a mounted Secret.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use model::Prefix;

use crate::provider::{ClusterProvider, Snapshot};

/// How often files are read. A change counts when two reads agree on it, so it is known after at most
/// twice this time.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Something that can be read, with blocking calls.
pub(crate) trait Look: Send + 'static {
    /// Its name, for logs.
    fn label(&self) -> String;
    /// Its present clusters.
    fn look(&mut self) -> Snapshot;
    /// What their names begin with; `None` if they may be any.
    fn prefix(&self) -> Option<Prefix> {
        None
    }
}

/// Makes a [`ClusterProvider`] of something that can be read.
pub(crate) struct Polled<L> {
    // Locked only by the blocking read, one at a time, never across an await.
    inner: Arc<Mutex<L>>,
    label: String,
    prefix: Option<Prefix>,
    last: Option<Snapshot>,
}

/// Accepts a change only when it is seen twice in a row, because a file may be half written.
#[derive(Debug)]
pub(crate) struct Settled<T> {
    pub(crate) accepted: Option<T>,
    /// What was seen once.
    pub(crate) pending: Option<T>,
}

impl<L: Look> Polled<L> {
    /// Polls `inner`.
    pub(crate) fn new(inner: L) -> Self {
        let (label, prefix) = (inner.label(), inner.prefix());
        Self { label, prefix, inner: Arc::new(Mutex::new(inner)), last: None }
    }

    async fn changed(&mut self) -> Snapshot {
        loop {
            if self.last.is_some() {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            let inner = Arc::clone(&self.inner);
            let look = move || inner.lock().expect("after a panic there is no further read").look();
            let seen = match tokio::task::spawn_blocking(look).await {
                Ok(seen) => seen,
                // Only a runtime that shuts down refuses or cancels blocking work.
                Err(error) if error.is_cancelled() => return futures::future::pending().await,
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            };
            if self.last.as_ref() != Some(&seen) {
                self.last = Some(seen.clone());
                return seen;
            }
        }
    }
}

impl<L: Look> ClusterProvider for Polled<L> {
    fn label(&self) -> String {
        self.label.clone()
    }

    fn next(&mut self) -> BoxFuture<'_, Snapshot> {
        self.changed().boxed()
    }

    fn prefix(&self) -> Option<Prefix> {
        self.prefix.clone()
    }
}

impl<T: PartialEq> Settled<T> {
    /// Knows nothing yet and accepts the first value at once.
    pub(crate) fn trusting() -> Self {
        Self { accepted: None, pending: None }
    }

    /// Starts with `accepted`. Any other value must be seen twice.
    pub(crate) fn at(accepted: T) -> Self {
        Self { accepted: Some(accepted), pending: None }
    }

    /// Takes the value seen now. Returns whether it is accepted by this call.
    pub(crate) fn observe(&mut self, seen: T) -> bool {
        if self.accepted.as_ref() == Some(&seen) {
            self.pending = None;
            return false;
        }
        if self.accepted.is_none() || self.pending.as_ref() == Some(&seen) {
            self.pending = None;
            self.accepted = Some(seen);
            return true;
        }
        self.pending = Some(seen);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_counts_when_seen_twice() {
        let run = |mut settled: Settled<u8>, seen: &[u8]| -> String {
            seen.iter().map(|s| if settled.observe(*s) { '!' } else { '.' }).collect()
        };
        assert_eq!(run(Settled::trusting(), &[1, 1, 2, 2, 2]), "!..!.");
        assert_eq!(run(Settled::at(1), &[2, 1, 2, 3, 3]), "....!");
        assert_eq!(run(Settled::at(0), &[1, 1]), ".!");
    }
}
