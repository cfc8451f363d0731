//! Takes one step: a write to the API server, or an order to an instance.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use operands::children::{answer, is_current};
use operands::spec::Invalid;
use sdk::condition::rest;
use sdk::refusal::refusal;
use sdk::{Context, ReconcileError};
use serde_json::json;

use crate::api::MySQLCluster;
use crate::asking::Asked;
use crate::calls::{Account, Gateway, MySqlError, Password};
use crate::names::ROLE_LABEL;
use crate::observed::Observed;
use crate::prepare::Prepared;
use crate::remembered::{Past, Refused};
use crate::role::Role;
use crate::server::Order;
use crate::step::{RETRY, Step, Waiting};

/// How often instances read their certificates anew, which the kubelet brings up to date by itself.
const RELOAD: Duration = Duration::from_secs(3_600);

/// What became of a step.
pub(crate) enum StepOutcome {
    /// It was taken, or there was nothing to do. The memory is written with the status.
    Taken,
    /// An instance refused.
    Refused(Waiting),
    /// The decision was made from an old object.
    Outdated,
}

/// Takes steps of one cluster.
pub(crate) struct Taker<'a> {
    pub(crate) ctx: &'a Context,
    pub(crate) gateway: &'a dyn Gateway,
    pub(crate) cluster: &'a MySQLCluster,
    pub(crate) prepared: &'a Prepared,
}

impl Taker<'_> {
    /// Takes a step.
    pub(crate) async fn take(
        &self,
        step: &Step,
        asked: &mut Asked,
        past: &mut Past,
    ) -> Result<StepOutcome, ReconcileError> {
        let writes =
            matches!(step, Step::Tell { .. } | Step::Label { .. } | Step::DeletePod { .. });
        // The object has to be that which was read before the instances were looked at.
        if writes && !is_current(self.ctx, self.cluster).await? {
            return Ok(StepOutcome::Outdated);
        }
        match step {
            Step::Tell { instance, order } => self.tell(instance, order, asked).await,
            Step::Label { instance, role } => self.label(instance, *role, past).await,
            Step::DeletePod { instance, .. } => {
                let namespace = self.cluster.namespace();
                if let Some(pod) = self.ctx.get::<Pod>(namespace.as_deref(), instance)? {
                    self.ctx.delete(&*pod).await?;
                }
                Ok(StepOutcome::Taken)
            }
            Step::Wait(_) | Step::Rest | Step::Remember { .. } => Ok(StepOutcome::Taken),
        }
    }

    async fn tell(
        &self,
        instance: &str,
        order: &Order,
        asked: &mut Asked,
    ) -> Result<StepOutcome, ReconcileError> {
        let Some(session) = asked.sessions.get_mut(instance) else {
            return Ok(StepOutcome::Outdated);
        };
        match session.tell(order).await {
            Ok(()) => {
                tracing::info!(instance, ?order, "an instance was told");
                Ok(StepOutcome::Taken)
            }
            // The next look shows whether it was followed.
            Err(error) => {
                let message = sdk::error::chain(&error);
                tracing::warn!(instance, ?order, error = message, "an order failed");
                Ok(StepOutcome::Refused(Waiting {
                    reason: if error.is_held_up() { "CommitsUnderWay" } else { "OrderFailed" },
                    message: message.chars().take(500).collect(),
                    is_stuck: false,
                    pause: RETRY,
                }))
            }
        }
    }

    /// Sets the label by which Services choose the Pod: of the very Pod that was seen. If the server does not
    /// take that, it is noted, and what matters more goes on.
    async fn label(
        &self,
        instance: &str,
        role: Option<Role>,
        past: &mut Past,
    ) -> Result<StepOutcome, ReconcileError> {
        let namespace = self.cluster.namespace();
        let Some(pod) = self.ctx.get::<Pod>(namespace.as_deref(), instance)? else {
            return Ok(StepOutcome::Outdated);
        };
        let patch = json!({"metadata": {
            "uid": pod.uid(),
            "labels": {ROLE_LABEL: role.map(Role::as_str)},
        }});
        let pods = Api::<Pod>::namespaced(self.ctx.client(), &namespace.unwrap_or_default());
        match pods.patch(instance, &PatchParams::default(), &Patch::Merge(&patch)).await {
            Ok(_) => Ok(StepOutcome::Taken),
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
                Ok(StepOutcome::Outdated)
            }
            Err(error) => {
                let Some(words) = answer(&error) else { return Err(error.into()) };
                let message = format!(
                    "the server does not let the label {ROLE_LABEL} of Pod {instance} be changed, so Services \
                     choose it as before: {words}"
                );
                let invalid = Invalid { reason: "Rejected", message };
                let is_refused = refusal(&error).is_some();
                let noted = if is_refused { Refused::new } else { Refused::failed };
                let refused = noted(self.cluster, invalid, self.ctx.now());
                past.unlabelled.insert(pod.uid().unwrap_or_default(), refused);
                Ok(StepOutcome::Taken)
            }
        }
    }

    /// What is due now and then at a cluster that needs nothing else. What fails is tried again in the
    /// next round.
    pub(crate) async fn upkeep(&self, observed: &Observed, asked: &mut Asked, past: &mut Past) {
        let now = observed.now;
        if past.reloaded.and_then(|last| rest(last, RELOAD, now)).is_none() {
            // Without a session none has read them.
            let mut all = !asked.sessions.is_empty();
            for (instance, session) in &mut asked.sessions {
                all &= self.done(instance, session.reload_tls().await);
            }
            past.reloaded = all.then_some(now);
        }
        let Some(primary) = &observed.memory.primary else { return };
        let Some(look) = observed.own_look(primary).filter(|look| look.is_writable) else { return };
        let is_served = observed.is_acknowledged(primary, look);
        if is_served && past.kept.is_stalled(now) {
            self.done(primary, self.commit_nothing(primary).await);
        }
        if is_served && !past.passwords_kept {
            // A cluster of an earlier version has accounts that may expire.
            past.passwords_kept = self.done(primary, self.keep_passwords(primary).await);
        }
        if is_served
            && let Some(root) = &self.prepared.passwords.root
            && past.root.as_ref() != Some(root)
            && self.done(primary, self.set_root(primary, root).await)
        {
            past.root = Some(root.clone());
        }
    }

    async fn commit_nothing(&self, primary: &str) -> Result<(), MySqlError> {
        let to = self.prepared.address(self.cluster, primary);
        self.gateway.write(self.ctx, &to).await?.commit_nothing().await
    }

    async fn keep_passwords(&self, primary: &str) -> Result<(), MySqlError> {
        let to = self.prepared.address(self.cluster, primary);
        self.gateway.write(self.ctx, &to).await?.keep_passwords().await
    }

    /// Sees to it that root has the password of the users' Secret.
    async fn set_root(&self, primary: &str, root: &Password) -> Result<(), MySqlError> {
        let to = self.prepared.address(self.cluster, primary);
        if self.gateway.proves(self.ctx, &to, Account::Root, root).await? {
            return Ok(());
        }
        tracing::info!(primary, "root gets the password of the Secret");
        let mut writer = self.gateway.write(self.ctx, &to).await?;
        writer.set_password(Account::Root, root).await
    }

    fn done(&self, instance: &str, outcome: Result<(), MySqlError>) -> bool {
        if let Err(error) = &outcome {
            tracing::warn!(instance, error = sdk::error::chain(error), "upkeep failed");
        }
        outcome.is_ok()
    }
}
