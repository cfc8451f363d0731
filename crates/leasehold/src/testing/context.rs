//! A [`Context`] outside of a reconcile, for tests that call a reconciler themselves.

use std::ops::Deref;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use model::{AnyObject, ObjectKey};
use sdk::{Action, Context, Controller, ReconcileError, Reconciler};
use tokio::sync::oneshot;

use super::TestEnv;
use super::env::Running;

/// How long a test may hold a context, in tokio's time.
const HELD: Duration = Duration::from_secs(24 * 3_600);

/// The context of one reconcile, which goes on until this is dropped. It reads the caches of its
/// controller, and writes to the environment's cluster through the fence.
#[derive(Debug)]
pub struct TestContext {
    context: Context,
    _release: oneshot::Sender<()>,
    _engine: Running,
}

impl Deref for TestContext {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.context
    }
}

impl TestEnv {
    /// A context for the key of an object that exists, as a reconciler of `controller` would get it.
    ///
    /// ```
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use leasehold::prelude::*;
    /// # use leasehold::testing::TestEnv;
    /// struct Doubled;
    ///
    /// impl Reconciler for Doubled {
    ///     type Kind = ConfigMap;
    ///
    ///     async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
    ///         let map = ctx.get::<ConfigMap>(key.namespace.as_deref(), &key.name)?;
    ///         let number = map.and_then(|map| map.data.as_ref()?.get("number")?.parse::<u64>().ok());
    ///         let Some(number) = number else {
    ///             return Err(ReconcileError::terminal("no number"));
    ///         };
    ///         Ok(Action::RequeueAfter(std::time::Duration::from_secs(2 * number)))
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() {
    /// let mut env = TestEnv::builder().namespace("web").start().await;
    /// env.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: web}}").await;
    /// let key = ObjectKey::new(env.cluster("east").name().clone(), Some("web"), "a");
    /// let ctx = env.context(Controller::for_kind::<ConfigMap>("doubled"), &key).await;
    /// let failed = Doubled.reconcile(&ctx, &key).await.unwrap_err();
    /// assert_eq!(failed.class(), RetryClass::Terminal);
    /// # }
    /// ```
    ///
    /// # Panics
    /// If the object does not appear in the controller's cache within the environment's deadline, or two
    /// engines run.
    pub async fn context<K: AnyObject>(
        &mut self,
        controller: Controller<K>,
        key: &ObjectKey,
    ) -> TestContext {
        let (sender, receiver) = oneshot::channel();
        let lender =
            Lender { key: key.clone(), lend: Mutex::new(Some(sender)), kind: Default::default() };
        let engine = self.alone([controller.timeout(HELD).reconciler(lender)]);
        let (context, release) = match tokio::time::timeout(self.deadline(), receiver).await {
            Ok(Ok(lent)) => lent,
            _ => panic!("gave up waiting for {key} in the cache: does the controller watch it?"),
        };
        TestContext { context, _release: release, _engine: engine }
    }
}

/// What a test borrows, and what it gives back.
type Lent = (Context, oneshot::Sender<()>);

/// Lends its context for a key, once, and waits until it is given back.
struct Lender<K> {
    key: ObjectKey,
    lend: Mutex<Option<oneshot::Sender<Lent>>>,
    kind: std::marker::PhantomData<fn() -> K>,
}

impl<K: AnyObject> Reconciler for Lender<K> {
    type Kind = K;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        if *key != self.key {
            return Ok(Action::Done);
        }
        let lend = self.lend.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(lend) = lend {
            let (release, released) = oneshot::channel();
            if lend.send((ctx.in_cluster(ctx.cluster())?, release)).is_ok() {
                let _ = released.await;
            }
        }
        Ok(Action::Done)
    }
}
