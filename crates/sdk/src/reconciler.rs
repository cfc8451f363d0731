//! [`Reconciler`]: what an author writes.

use std::sync::Arc;

use engine::{Action, ReconcileError, Run};
use futures::FutureExt;
use futures::future::BoxFuture;
use model::{AnyObject, ObjectKey};

use crate::context::{Context, Kept};

/// Brings one object closer to what it asks for.
///
/// Runs once per key at a time, on the one member that owns the key's shard. It must be idempotent:
/// it runs again after failures, after handovers, and for no visible reason.
pub trait Reconciler: Send + Sync + 'static {
    /// The kind whose keys are reconciled: its Rust type, `PartialObjectMeta` of that type if only the
    /// metadata is watched, or `DynamicObject` for a kind that is known at run time.
    type Kind: AnyObject;

    /// Reconciles one object. The object may be gone: then `ctx.get` returns `None`.
    ///
    /// The future may be dropped at any await when the shard is lost, so changes that belong together
    /// must go into one write.
    fn reconcile(
        &self,
        ctx: &Context,
        key: &ObjectKey,
    ) -> impl Future<Output = Result<Action, ReconcileError>> + Send;
}

/// A reconciler as the engine runs it: gives each run its context.
pub(crate) struct Erased<R> {
    pub(crate) reconciler: R,
    pub(crate) field_manager: Arc<str>,
    pub(crate) kept: Arc<Kept>,
}

impl<R: Reconciler> engine::Reconcile for Erased<R> {
    fn reconcile(&self, run: Run) -> BoxFuture<'_, Result<Action, ReconcileError>> {
        let (field_manager, kept) = (Arc::clone(&self.field_manager), Arc::clone(&self.kept));
        async move {
            let ctx = Context::new(run, field_manager, kept);
            self.reconciler.reconcile(&ctx, ctx.key()).await
        }
        .boxed()
    }
}
