//! The shell of TDSet: cache in, plan, fenced client out.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::{Resource, ResourceExt};
use sdk::ObjectKey;
use sdk::{
    Action, Context, Controller, ControllerSpec, Event, ReconcileError, Reconciler, mapping,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::FIELD_MANAGER;
use super::api::{TDSet, TDSetStatus};
use super::plan::{Observed, Plan, Scaling, Step, plan};
use super::status::{Obstacle, status, status_of_unknown_zone};
use crate::delete::delete;
use crate::refusal::{ASK_AGAIN, is_invalid, met_a_namesake, refusal};

/// Reconciles TDSets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TDSetReconciler;

/// The controller, with this many workers.
pub(super) fn controller(workers: usize) -> ControllerSpec {
    // No predicate drops changes of the status. A reconcile that ran on a cache that lagged behind
    // our own status write may have found that nothing is to be written; seeing that write makes it
    // look again.
    Controller::for_kind::<TDSet>(super::BUILTIN.name)
        .owns::<Deployment>()
        .owns::<Service>()
        // Children have their TDSet's name. One of others that stands in the way is nobody's child
        // until it goes: its TDSet must hear of that too.
        .watches::<Deployment>(mapping::namesake())
        .watches::<Service>(mapping::namesake())
        .field_manager(FIELD_MANAGER)
        .workers(workers)
        .reconciler(TDSetReconciler)
}

impl Reconciler for TDSetReconciler {
    type Kind = TDSet;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let namespace = key.namespace.as_deref();
        let Some(set) = ctx.get::<TDSet>(namespace, &key.name)? else { return Ok(Action::Done) };
        if set.metadata.deletion_timestamp.is_some() {
            // The garbage collector has the children; making them anew would never end.
            return Ok(Action::Done);
        }
        let deployment = ctx.get::<Deployment>(namespace, &key.name)?;
        let service = ctx.get::<Service>(namespace, &key.name)?;
        let observed =
            Observed { set: &set, deployment: deployment.as_deref(), service: service.as_deref() };
        let now = ctx.now();
        let plan = match plan(observed, now) {
            Ok(plan) => plan,
            Err(zone) => {
                record(ctx, &set, status_of_unknown_zone(&set, zone, now)).await?;
                return Ok(Action::Done);
            }
        };
        let (applied, failure) = carry_out(ctx, &set, &plan).await;
        let deployment = applied.as_ref().or(deployment.as_deref());
        let obstacle = failure.as_ref().and_then(Failure::obstacle);
        if failure.is_none() || obstacle.is_some() {
            record(ctx, &set, status(&set, &plan, deployment, obstacle, now)).await?;
        }
        let again = match failure {
            Some(failure) => Some(failure.raise(ctx, &set).await?),
            None => None,
        };
        let wake = plan.wake(&set, now).into_iter().chain(again).min();
        Ok(wake.map_or(Action::Done, Action::RequeueAfter))
    }
}

/// A write of a child that failed.
#[derive(Debug, thiserror::Error)]
#[error("write {kind}")]
struct Failure {
    kind: &'static str,
    source: kube::Error,
}

impl Failure {
    fn obstacle(&self) -> Option<Obstacle> {
        refusal(&self.source).map(|message| Obstacle::Rejected { kind: self.kind, message })
    }

    /// Fails the reconcile. But where the server finds invalid what the spec asks for, an Event says
    /// so, and the write is tried again after the time that this gives: with backoff, the next hour
    /// would come late.
    async fn raise(self, ctx: &Context, set: &TDSet) -> Result<Duration, ReconcileError> {
        let message = refusal(&self.source).filter(|_| is_invalid(&self.source));
        let Some(message) = message else { return Err(self.into()) };
        let note = format!("{self}: {message}");
        ctx.publish(Event::warning(set, "Rejected", "Apply", note)).await;
        Ok(ASK_AGAIN)
    }
}

impl From<Failure> for ReconcileError {
    fn from(failure: Failure) -> Self {
        if met_a_namesake(&failure.source) {
            return Self::conflict(failure);
        }
        failure.source.into()
    }
}

/// Takes the plan's steps. The Deployment as the server returned it, if it was written, and what
/// went wrong first.
async fn carry_out(
    ctx: &Context,
    set: &TDSet,
    plan: &Plan,
) -> (Option<Deployment>, Option<Failure>) {
    let applied = match take(ctx, set, &plan.deployment).await {
        Ok(applied) => applied,
        Err(source) => return (None, Some(Failure { kind: "Deployment", source })),
    };
    if let (Some(scaling), true) = (plan.scaling, applied.is_some()) {
        announce(ctx, set, scaling).await;
    }
    let failure = take(ctx, set, &plan.service).await.err();
    (applied, failure.map(|source| Failure { kind: "Service", source }))
}

/// Takes one step. The object as the server returned it, if it was applied.
async fn take<K>(ctx: &Context, set: &TDSet, step: &Step<K>) -> Result<Option<K>, kube::Error>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned,
{
    let children = Api::<K>::namespaced(ctx.client(), &set.namespace().unwrap_or_default());
    let name = set.name_any();
    let apply = PatchParams::apply(FIELD_MANAGER);
    match step {
        Step::Create(child) => children.patch(&name, &apply, &Patch::Apply(child)).await.map(Some),
        Step::Correct(child) => {
            children.patch(&name, &apply.force(), &Patch::Apply(child)).await.map(Some)
        }
        Step::Remove { uid } => {
            let params = DeleteParams::background();
            let namespace = set.namespace().unwrap_or_default();
            delete::<K>(ctx.client(), &namespace, (&name, uid), params).await.map(|()| None)
        }
        Step::Keep | Step::Await | Step::Foreign => Ok(None),
    }
}

/// Tells of a change of replicas.
async fn announce(ctx: &Context, set: &TDSet, scaling: Scaling) {
    let Scaling { from, to, foreign } = scaling;
    let (reason, note) = match from {
        None => ("Created", format!("created Deployment {} with {to} replicas", set.name_any())),
        Some(from) if foreign => {
            ("ScaleRestored", format!("put {from} replicas, set by others, back to {to}"))
        }
        Some(from) => ("Scaled", format!("scaled from {from} to {to} replicas")),
    };
    ctx.publish(Event::normal(set, reason, "Scale", note)).await;
}

/// Writes the status if it says something new.
async fn record(ctx: &Context, set: &TDSet, status: TDSetStatus) -> Result<(), ReconcileError> {
    if set.status.as_ref() == Some(&status) {
        return Ok(());
    }
    ctx.update_status(&TDSet { status: Some(status), ..set.clone() }).await?;
    Ok(())
}
