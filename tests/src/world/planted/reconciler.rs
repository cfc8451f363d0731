//! A reconciler that skips work after its shard was gained.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use engine::{Action, Dispatch, Reconcile, ReconcileError, Run};
use futures::FutureExt;
use futures::future::BoxFuture;
use model::Epoch;

use crate::world::timeline::WALL;

/// Owners up to this epoch are the first of their shards, or nearly so: a coordinator begins at the time of
/// day, and the first one takes office when the world is a second or two old.
const FIRST: Epoch = Epoch(WALL as u64 + 3);

/// Says that all is done, without doing it, for some dispatches.
pub(super) struct Forgetful {
    reconcile: Arc<dyn Reconcile>,
    forgets: Forgets,
    /// Shards, epochs and keys for which it has forgotten something.
    forgotten: Mutex<BTreeSet<String>>,
}

/// What it forgets.
#[derive(Clone, Copy, Debug)]
pub(super) enum Forgets {
    /// The first reconcile of each key of a shard that had another owner before.
    FirstLooks,
    /// One key of each shard.
    OneKey,
}

impl Forgetful {
    pub(super) fn new(reconcile: Arc<dyn Reconcile>, forgets: Forgets) -> Self {
        Self { reconcile, forgets, forgotten: Mutex::default() }
    }

    /// Whether to forget this time.
    fn forgets(&self, dispatch: &Dispatch) -> bool {
        let Dispatch { shard, epoch, key, .. } = dispatch;
        let what = match self.forgets {
            Forgets::FirstLooks if *epoch <= FIRST => return false,
            Forgets::FirstLooks => format!("{shard} {epoch} {key}"),
            Forgets::OneKey => format!("{shard} {epoch}"),
        };
        self.forgotten.lock().unwrap_or_else(PoisonError::into_inner).insert(what)
    }
}

impl Reconcile for Forgetful {
    fn reconcile(&self, run: Run) -> BoxFuture<'_, Result<Action, ReconcileError>> {
        if self.forgets(run.dispatch()) {
            std::future::ready(Ok(Action::Done)).boxed()
        } else {
            self.reconcile.reconcile(run)
        }
    }
}
