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

/// Where an object with a finalizer of ours stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lifecycle<'a, K: Clone> {
    /// It lives, and has the finalizer: as it was read, or as the write left it that gave it one.
    Live(Cow<'a, K>),
    /// It is being deleted and waits for us: clean up, then
    /// [`Context::remove_finalizer`].
    Ending,
    /// It is being deleted, and we are done with it; or it is gone.
    Over,
}

impl Context {
    /// Reconciles an object that must not go before something is cleaned up: runs `apply` while it
    /// lives and `cleanup` when it is being deleted.
    ///
    /// - The finalizer is on the object before `apply` runs the first time, so that nothing is made
    ///   that nobody would clean up. `apply` gets the object as that write left it.
    /// - It comes off when `cleanup` returns [`Action::Done`]. With [`Action::RequeueAfter`], cleaning up
    ///   is not finished: `cleanup` runs again after that time, and after an error with backoff.
    /// - After a crash or a handover at any point, `apply` and `cleanup` run again: both must be
    ///   idempotent, and `cleanup` must cope with what `apply` left half-made.
    ///
    /// Returns what the closure that ran returned.
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
    /// Those of `apply` and `cleanup`; what the server says of the finalizer; a conflict if the
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

    /// Sees that `object` has `finalizer` while it lives, and says where it stands. Where both ways
    /// fit into closures there is [`Self::finalize`].
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

    /// Takes `finalizer` off `object`, which lets it go if it was the last. To be called when
    /// [`Self::finalizer`] says [`Lifecycle::Ending`] and all is cleaned up.
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

    /// The list as a whole, so it goes with the resourceVersion it was read at.
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
