//! Takes one step: a write to the API server, or a request to etcd.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Secret};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Resource, ResourceExt};
use operands::children::is_current;
use sdk::refusal::refusal;
use sdk::{Context, ReconcileError};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::api::{EtcdCluster, EtcdClusterStatus};
use crate::asking::address;
use crate::calls::{self, EtcdError, Gateway, Session, Trust};
use crate::change::{Change, change};
use crate::members::version;
use crate::names;
use crate::objects::{self, Start};
use crate::observed::{PodSeen, pods_of, volumes_of};
use crate::step::{Step, Waiting, Why};
use crate::wanted::Wanted;

/// What became of a step.
pub(crate) enum StepOutcome {
    /// It was taken, or there was nothing to do.
    Taken,
    /// It is this status, which must be written.
    Recorded(Box<EtcdClusterStatus>),
    /// Something is in the way.
    Blocked(Waiting),
    /// The decision was made from an old object.
    Outdated,
}

/// Takes steps of one cluster.
pub(crate) struct Taker<'a> {
    pub(crate) ctx: &'a Context,
    pub(crate) gateway: &'a dyn Gateway,
    pub(crate) trust: Option<&'a Trust>,
    pub(crate) cluster: &'a EtcdCluster,
    pub(crate) wanted: &'a Wanted,
}

impl Taker<'_> {
    /// Takes a step.
    pub(crate) async fn take(
        &self,
        step: &Step,
        status: &EtcdClusterStatus,
    ) -> Result<StepOutcome, ReconcileError> {
        let is_weighty = matches!(
            step,
            Step::CreatePod { start: Start::Found, .. }
                | Step::Add { .. }
                | Step::Promote { .. }
                | Step::Remove { .. }
                | Step::MoveLeader { .. }
        );
        // Membership is changed only on the very object that was read.
        if is_weighty && !is_current(self.ctx, self.cluster).await? {
            return Ok(StepOutcome::Outdated);
        }
        match step {
            Step::Record(intent) => {
                let mut status = status.clone();
                change(&mut status, self.cluster, intent, self.ctx.now());
                Ok(StepOutcome::Recorded(Box::new(status)))
            }
            Step::CreateVolume(member) => {
                let volume = objects::volume(self.cluster, member);
                self.create(volume, |volume| !volumes_of(self.cluster, [volume]).is_empty()).await
            }
            Step::CreatePod { member, version, start } => {
                let pod = objects::pod(self.cluster, self.wanted, *version, member, start);
                self.create(pod, |pod| !pods_of(self.cluster, [pod]).is_empty()).await
            }
            Step::DeletePod { member, why } => {
                if *why == Why::Outdated
                    && let Some(waiting) = self.refused(member, status).await?
                {
                    return Ok(StepOutcome::Blocked(waiting));
                }
                self.delete::<Pod>(member).await
            }
            Step::DeleteVolume(member) => {
                self.delete::<PersistentVolumeClaim>(member).await?;
                self.delete_secret(&names::certificate(member)).await
            }
            Step::Wait(_) | Step::Rest => Ok(StepOutcome::Taken),
            Step::Defragment(member) => self.defragment(member, status).await,
            _ => self.ask(step).await,
        }
    }

    async fn ask(&self, step: &Step) -> Result<StepOutcome, ReconcileError> {
        match self.asked(step).await {
            Ok(()) => {
                tracing::info!(?step, "etcd was changed");
                Ok(StepOutcome::Taken)
            }
            Err(error) if error.lags() => Ok(StepOutcome::Blocked(Waiting {
                reason: "Growing",
                message: "the leader finds that the learner is not in sync yet".to_owned(),
                is_stuck: false,
            })),
            // The next look shows whether it was done.
            Err(error) => {
                let message = sdk::error::chain(&error);
                tracing::warn!(?step, error = message, "etcd was not changed");
                Ok(StepOutcome::Blocked(Waiting {
                    reason: "EtcdRefused",
                    message,
                    is_stuck: false,
                }))
            }
        }
    }

    async fn asked(&self, step: &Step) -> Result<(), EtcdError> {
        match step {
            Step::Add { via, member } => {
                let url = names::peer_url(self.cluster, member);
                calls::add_learner(&mut *self.open(via).await?, &url).await
            }
            Step::Promote { via, id, .. } => calls::promote(&mut *self.open(via).await?, *id).await,
            Step::Remove { via, id, .. } => calls::remove(&mut *self.open(via).await?, *id).await,
            Step::MoveLeader { from, id, .. } => {
                calls::move_leader(&mut *self.open(from).await?, *id).await
            }
            Step::Disarm { via, id } => calls::disarm(&mut *self.open(via).await?, *id).await,
            Step::Defragment(member) => calls::defragment(&mut *self.open(member).await?).await,
            _ => Ok(()),
        }
    }

    async fn open(&self, member: &str) -> Result<Box<dyn Session>, EtcdError> {
        let to = address(self.cluster, self.trust, member);
        self.gateway.open(self.ctx, &to).await
    }

    /// Records the time first, so that no crash leads to one defragmentation after the other.
    async fn defragment(
        &self,
        member: &str,
        status: &EtcdClusterStatus,
    ) -> Result<StepOutcome, ReconcileError> {
        let mut status = status.clone();
        change(&mut status, self.cluster, &Change::Defragment, self.ctx.now());
        let marked = EtcdCluster { status: Some(status), ..self.cluster.clone() };
        if self.ctx.update_status(&marked).await?.is_some() {
            self.ask(&Step::Defragment(member.to_owned())).await?;
        }
        // The status was written: the next round reads it.
        Ok(StepOutcome::Outdated)
    }

    fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.ctx.client(), &self.cluster.namespace().unwrap_or_default())
    }

    /// Creates an object, and never takes over one that is there.
    async fn create<K>(
        &self,
        object: K,
        is_ours: impl Fn(&K) -> bool,
    ) -> Result<StepOutcome, ReconcileError>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>
            + Clone
            + std::fmt::Debug
            + Serialize
            + DeserializeOwned,
    {
        let (api, name, kind) = (self.api::<K>(), object.name_any(), K::kind(&()));
        let blocked =
            |reason, message| Ok(StepOutcome::Blocked(Waiting { reason, message, is_stuck: true }));
        match api.create(&PostParams::default(), &object).await {
            Ok(_) => Ok(StepOutcome::Taken),
            Err(kube::Error::Api(status)) if status.code == 409 => {
                // The cache may not show ours yet.
                match api.get_opt(&name).await? {
                    Some(found) if !is_ours(&found) => blocked(
                        "NameTaken",
                        format!(
                            "{kind} {name} exists and is not of this EtcdCluster: delete it, or create an \
                         EtcdCluster with another name"
                        ),
                    ),
                    _ => Ok(StepOutcome::Outdated),
                }
            }
            Err(error) => match refusal(&error) {
                Some(words) => {
                    blocked("Rejected", format!("the server refuses {kind} {name}: {words}"))
                }
                None => Err(error.into()),
            },
        }
    }

    /// Why the server would refuse the Pod that follows a member's outdated one, if that serves: a member
    /// that works is not given up for one that never comes. A server looks at what is asked for before it
    /// finds the name taken.
    async fn refused(
        &self,
        member: &str,
        status: &EtcdClusterStatus,
    ) -> Result<Option<Waiting>, ReconcileError> {
        let found = self.ctx.get::<Pod>(self.cluster.namespace().as_deref(), member)?;
        if !pods_of(self.cluster, found.as_deref()).values().any(PodSeen::serves) {
            return Ok(None);
        }
        let version = version(status, self.wanted);
        let next = objects::pod(self.cluster, self.wanted, version, member, &Start::Resume);
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        match self.api::<Pod>().create(&dry, &next).await {
            Ok(_) => Ok(None),
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
            Err(error) => {
                let Some(words) = refusal(&error) else { return Err(error.into()) };
                let message = format!(
                    "the server would refuse Pod {member} as the spec asks for it, so none is restarted: \
                     {words}; correct the spec or what refuses it. A quota counts the present Pod too, \
                     and needs room for one more"
                );
                Ok(Some(Waiting { reason: "Rejected", message, is_stuck: true }))
            }
        }
    }

    /// Deletes exactly the object that the cache has.
    async fn delete<K: sdk::Object>(&self, name: &str) -> Result<StepOutcome, ReconcileError> {
        if let Some(found) = self.ctx.get::<K>(self.cluster.namespace().as_deref(), name)? {
            self.ctx.delete(&*found).await?;
        }
        Ok(StepOutcome::Taken)
    }

    async fn delete_secret(&self, name: &str) -> Result<StepOutcome, ReconcileError> {
        match self.api::<Secret>().delete(name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(StepOutcome::Taken),
            answer => Ok(answer.map(|_| StepOutcome::Taken)?),
        }
    }
}
