//! What a controller runs, with its types erased.

use std::time::Duration;

use futures::future::BoxFuture;

use crate::error::ReconcileError;
use crate::run::Run;

/// What happens after a reconcile that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing until something changes. An earlier wake-up is dropped.
    Done,
    /// Again after this long, a millisecond at least, or earlier if something changes. Replaces an earlier wake-up.
    RequeueAfter(Duration),
}

/// What a controller runs for each key.
pub trait Reconcile: Send + Sync + 'static {
    /// Reconciles the object of `run`'s key. The future may be dropped at any await.
    fn reconcile(&self, run: Run) -> BoxFuture<'_, Result<Action, ReconcileError>>;
}
