//! The shell of TDSet: cache in, plan, fenced client out.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use sdk::ObjectKey;
use sdk::{
    Action, Context, Controller, ControllerSpec, Event, ReconcileError, Reconciler, mapping,
};

use super::FIELD_MANAGER;
use super::api::{TDSet, TDSetStatus};
use super::plan::{Observed, Plan, Scaling, plan};
use super::status::{Obstacle, status, status_of_unknown_zone};
use crate::ASK_AGAIN;
use crate::children::{Failure, take};
use sdk::refusal::{is_invalid, refusal};

/// Reconciles TDSets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TDSetReconciler;

/// The controller, with this many workers.
pub(super) fn controller(workers: usize) -> ControllerSpec {
    // No predicate drops changes of the status. A reconcile on a cache that lagged behind our own
    // status write may have found nothing to write; the event of that write makes it look again.
    Controller::for_kind::<TDSet>(super::BUILTIN.name)
        .owns::<Deployment>()
        .owns::<Service>()
        // Children have their TDSet's name. An object of others that has this name is not a child of
        // the TDSet, which must still be reconciled when that object goes.
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
            // The garbage collector deletes the children; creating them again would never end.
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
        let obstacle = failure.as_ref().and_then(self::obstacle);
        if failure.is_none() || obstacle.is_some() {
            record(ctx, &set, status(&set, &plan, deployment, obstacle, now)).await?;
        }
        let again = match failure {
            Some(failure) => Some(raise(failure, ctx, &set).await?),
            None => None,
        };
        let wake = plan.wake(&set, now).into_iter().chain(again).min();
        Ok(wake.map_or(Action::Done, Action::RequeueAfter))
    }
}

/// What the server refuses to a child, if it refuses.
fn obstacle(failure: &Failure) -> Option<Obstacle> {
    refusal(&failure.source).map(|message| Obstacle::Rejected { kind: failure.kind, message })
}

/// Fails the reconcile. But where the server finds invalid what the spec asks for, an Event says
/// so, and the write is tried again after the time that this gives: with backoff, the next hour
/// would come late.
async fn raise(failure: Failure, ctx: &Context, set: &TDSet) -> Result<Duration, ReconcileError> {
    let message = refusal(&failure.source).filter(|_| is_invalid(&failure.source));
    let Some(message) = message else { return Err(failure.into()) };
    let note = format!("{failure}: {message}");
    ctx.publish(Event::warning(set, "Rejected", "Apply", note)).await;
    Ok(ASK_AGAIN)
}

/// Takes the plan's steps. Returns the Deployment as the server returned it, if it was written, and
/// the first failure.
async fn carry_out(
    ctx: &Context,
    set: &TDSet,
    plan: &Plan,
) -> (Option<Deployment>, Option<Failure>) {
    let applied = match take(ctx, set, &plan.deployment).await {
        Ok(applied) => applied,
        Err(failure) => return (None, Some(failure)),
    };
    if let (Some(scaling), true) = (plan.scaling, applied.is_some()) {
        announce(ctx, set, scaling).await;
    }
    (applied, take(ctx, set, &plan.service).await.err())
}

/// Publishes an Event for a change of replicas.
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
