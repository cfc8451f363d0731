//! Finalizers: an object stays until its controller has cleaned up what belongs to it.

use std::borrow::Cow;

use engine::{Action, ReconcileError};
use kube::ResourceExt;
use kube::api::Patch;
use model::AnyObject;
use serde_json::json;

use crate::context::Context;
use crate::owner::named;
use crate::writes::{Unwritable, name, requests, unless_gone};

/// The stage in the life of an object with our finalizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lifecycle<'a, K: Clone> {
    /// It is not being deleted, and has the finalizer: as it was read, or as the write that added the
    /// finalizer returned it.
    Live(Cow<'a, K>),
    /// It is being deleted and waits for us: clean up, then
    /// [`Context::remove_finalizer`].
    Ending,
    /// It is being deleted, and we are done with it; or it is gone.
    Over,
}

impl Context {
    /// Reconciles an object that must not disappear before something is cleaned up: runs `cleanup` when
    /// it is being deleted, and `apply` before.
    ///
    /// - The finalizer is on the object before `apply` runs for the first time, so that `cleanup` runs
    ///   for everything that `apply` creates. `apply` gets the object with the finalizer.
    /// - The finalizer is removed when `cleanup` returns [`Action::Done`]. [`Action::RequeueAfter`] means
    ///   that the cleanup is not finished: `cleanup` runs again after that time, and after an error with
    ///   backoff.
    /// - After a crash or a handover at any point, `apply` and `cleanup` run again: both must be
    ///   idempotent, and `cleanup` must handle what `apply` left unfinished.
    ///
    /// Returns the result of the closure that ran.
    ///
    /// ```no_run
    /// # use leasehold_sdk::{Action, AnyObject, Context, ReconcileError};
    /// # async fn release_what_it_holds() -> Result<(), ReconcileError> { Ok(()) }
    /// # async fn keep_up<K>(ctx: &Context, object: &K) -> Result<(), ReconcileError> { Ok(()) }
    /// # async fn reconcile<K: AnyObject>(ctx: &Context, object: &K) -> Result<Action, ReconcileError> {
    /// ctx.finalize(
    ///     object,
    ///     "example.com/release",
    ///     async |object| {
    ///         keep_up(ctx, &*object).await?;
    ///         Ok(Action::Done)
    ///     },
    ///     async |_| {
    ///         release_what_it_holds().await?;
    ///         Ok(Action::Done)
    ///     },
    /// )
    /// .await
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of `apply` and `cleanup`; what the server says about the finalizer; a conflict if the
    /// object changed since it was read.
    pub async fn finalize<'a, K, A, C>(
        &self,
        object: &'a K,
        finalizer: &str,
        apply: impl FnOnce(Cow<'a, K>) -> A,
        cleanup: impl FnOnce(&'a K) -> C,
    ) -> Result<Action, ReconcileError>
    where
        K: AnyObject,
        A: Future<Output = Result<Action, ReconcileError>>,
        C: Future<Output = Result<Action, ReconcileError>>,
    {
        match self.finalizer(object, finalizer).await? {
            Lifecycle::Live(object) => apply(object).await,
            Lifecycle::Ending => match cleanup(object).await? {
                Action::Done => {
                    self.remove_finalizer(object, finalizer).await?;
                    Ok(Action::Done)
                }
                unfinished @ Action::RequeueAfter(_) => Ok(unfinished),
            },
            Lifecycle::Over => Ok(Action::Done),
        }
    }

    /// Adds `finalizer` to `object`, unless it is being deleted, and returns its stage. If both cases fit
    /// into closures, [`Self::finalize`] is simpler.
    ///
    /// ```no_run
    /// # use leasehold_sdk::{Action, AnyObject, Context, Lifecycle, ReconcileError};
    /// # async fn release_what_it_holds() {}
    /// # async fn keep_up<K>(ctx: &Context, object: &K) -> Result<(), ReconcileError> { Ok(()) }
    /// # async fn reconcile<K: AnyObject>(ctx: &Context, object: &K) -> Result<Action, ReconcileError> {
    /// match ctx.finalizer(object, "example.com/release").await? {
    ///     Lifecycle::Live(object) => keep_up(ctx, &object).await?,
    ///     Lifecycle::Ending => {
    ///         release_what_it_holds().await;
    ///         ctx.remove_finalizer(object, "example.com/release").await?;
    ///         return Ok(Action::Done);
    ///     }
    ///     Lifecycle::Over => return Ok(Action::Done),
    /// }
    /// # Ok(Action::Done) }
    /// ```
    ///
    /// # Errors
    /// What the server says; a conflict if the object changed since it was read.
    pub async fn finalizer<'a, K: AnyObject>(
        &self,
        object: &'a K,
        finalizer: &str,
    ) -> Result<Lifecycle<'a, K>, ReconcileError> {
        let has = object.finalizers().iter().any(|found| found == finalizer);
        match (object.meta().deletion_timestamp.is_some(), has) {
            (true, true) => Ok(Lifecycle::Ending),
            (true, false) => Ok(Lifecycle::Over),
            (false, true) => Ok(Lifecycle::Live(Cow::Borrowed(object))),
            (false, false) => {
                let mut finalizers = object.finalizers().to_vec();
                finalizers.push(finalizer.to_owned());
                let found = self.set_finalizers(object, &finalizers).await?;
                Ok(found.map_or(Lifecycle::Over, |object| Lifecycle::Live(Cow::Owned(object))))
            }
        }
    }

    /// Removes `finalizer` from `object`, which is then deleted if that was the last one. Call it when
    /// [`Self::finalizer`] returned [`Lifecycle::Ending`] and everything is cleaned up.
    ///
    /// # Errors
    /// What the server says; a conflict if the object changed since it was read.
    pub async fn remove_finalizer<K: AnyObject>(
        &self,
        object: &K,
        finalizer: &str,
    ) -> Result<(), ReconcileError> {
        let mut finalizers = object.finalizers().to_vec();
        finalizers.retain(|found| found != finalizer);
        if finalizers.len() < object.finalizers().len() {
            self.set_finalizers(object, &finalizers).await?;
        }
        Ok(())
    }

    /// Replaces the whole list, so the patch carries the resourceVersion at which it was read.
    async fn set_finalizers<K: AnyObject>(
        &self,
        object: &K,
        finalizers: &[String],
    ) -> Result<Option<K>, ReconcileError> {
        let kind = self.kind_of(object)?;
        let Some(version) = object.resource_version() else {
            return Err(Unwritable::Unread(named(&kind, object)).into());
        };
        let patch = json!({"metadata": {"resourceVersion": version, "finalizers": finalizers}});
        let (name, params) = (name(&kind, object)?, self.merging());
        let request = requests(&kind, object).patch(&name, &params, &Patch::Merge(patch));
        unless_gone(self.send(request).await)
    }
}
