//! [`Controller::triggered_by`]: keys from outside of Kubernetes.

use engine::Trigger;
use futures::Stream;
use model::{AnyObject, ObjectKey};

use crate::controller::Controller;

/// Keys of a stream that may be outstanding before the next is asked for.
const STREAMED: usize = 64;

impl<K: AnyObject> Controller<K> {
    /// Also reconciles the keys that `trigger` sends. A trigger may be cloned, may trigger other
    /// controllers too, and exists before and after the manager runs.
    ///
    /// Each replica reconciles the keys whose shards it holds and drops the others. So every replica must
    /// receive every key, as from a broadcast. A key is looked up in the cache: if its object is not
    /// there, the key is dropped as well, and reconciled when the object appears.
    ///
    /// ```
    /// # use leasehold_sdk::{Action, Context, Controller, ObjectKey, ReconcileError, Reconciler, Trigger};
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # struct Hello;
    /// # impl Reconciler for Hello {
    /// #     type Kind = ConfigMap;
    /// #     async fn reconcile(&self, _: &Context, _: &ObjectKey) -> Result<Action, ReconcileError> {
    /// #         Ok(Action::Done)
    /// #     }
    /// # }
    /// let trigger = Trigger::new(64);
    /// let spec = Controller::for_kind::<ConfigMap>("hello").triggered_by(&trigger).reconciler(Hello);
    /// # async fn somewhere_else(trigger: Trigger) -> Result<(), Box<dyn std::error::Error>> {
    /// trigger.reconcile(ObjectKey::new("east".parse()?, Some("web"), "a")).await;
    /// trigger.reconcile_all().await;
    /// # Ok(()) }
    /// ```
    pub fn triggered_by(mut self, trigger: &Trigger) -> Self {
        self.triggers.push(trigger.clone());
        self
    }

    /// [`Self::triggered_by`] with the keys of a stream, which is read as fast as keys can be queued. The
    /// first manager that runs the controller reads it, until either ends.
    pub fn reconcile_on(self, keys: impl Stream<Item = ObjectKey> + Send + 'static) -> Self {
        let trigger = Trigger::new(STREAMED);
        let follow = trigger.clone();
        self.trigger_sources.push(async move { follow.follow(keys).await });
        self.triggered_by(&trigger)
    }

    /// Reconciles everything that is held, at a lower priority than changes, each time the stream yields
    /// an item. The stream is read as in [`Self::reconcile_on`].
    pub fn reconcile_all_on(self, signals: impl Stream<Item = ()> + Send + 'static) -> Self {
        let trigger = Trigger::new(1);
        let follow = trigger.clone();
        self.trigger_sources.push(async move { follow.follow_all(signals).await });
        self.triggered_by(&trigger)
    }
}
