//! The shell of Memcached: cache in, plan, fenced client out.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use sdk::{
    Action, Context, Controller, ControllerSpec, Event, ObjectKey, ReconcileError, Reconciler,
    Selector, Watch, mapping,
};

use super::FIELD_MANAGER;
use super::api::{Memcached, MemcachedStatus};
use super::desired::LABEL;
use super::obstacle::{Obstacle, explained};
use super::plan::{Observed, Plan, plan};
use super::status::status;
use crate::ASK_AGAIN;
use crate::children::{Failure, take};
use sdk::refusal::{is_invalid, refusal};

/// Reconciles Memcacheds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MemcachedReconciler;

/// The controller, with this many workers.
pub(super) fn controller(workers: usize) -> ControllerSpec {
    let ours: Selector = LABEL.parse().expect("the key of a label is a selector");
    // No predicate drops changes of the status: a reconcile on a cache that lagged behind our own status
    // write may have found nothing to write, and the event of that write makes it look again.
    Controller::for_kind::<Memcached>(super::BUILTIN.name)
        .owns::<StatefulSet>()
        .owns::<Service>()
        .owns::<PodDisruptionBudget>()
        // Children have their Memcached's name. It must be reconciled too when an object of others that
        // has this name goes.
        .watches_names(Watch::<StatefulSet>::all(), |name, _| vec![name])
        .watches_names(Watch::<Service>::all(), |name, _| vec![name])
        .watches_names(Watch::<PodDisruptionBudget>::all(), |name, _| vec![name])
        .watches_with(Watch::<Pod>::all().labels(ours), mapping::named_by_label(LABEL))
        .field_manager(FIELD_MANAGER)
        .workers(workers)
        .reconciler(MemcachedReconciler)
}

impl Reconciler for MemcachedReconciler {
    type Kind = Memcached;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let namespace = key.namespace.as_deref();
        let Some(memcached) = ctx.get::<Memcached>(namespace, &key.name)? else {
            return Ok(Action::Done);
        };
        if memcached.metadata.deletion_timestamp.is_some() {
            // The garbage collector deletes the children; creating them again would never end.
            return Ok(Action::Done);
        }
        let stateful_set = ctx.get::<StatefulSet>(namespace, &key.name)?;
        let service = ctx.get::<Service>(namespace, &key.name)?;
        let budget = ctx.get::<PodDisruptionBudget>(namespace, &key.name)?;
        let pods = pods(ctx, key)?;
        let pods: Vec<&Pod> = pods.iter().map(|pod| &**pod).collect();
        let observed = Observed {
            memcached: &memcached,
            stateful_set: stateful_set.as_deref(),
            service: service.as_deref(),
            budget: budget.as_deref(),
            pods: &pods,
        };
        let (applied, failure) = match plan(observed) {
            Ok(plan) => carry_out(ctx, &memcached, &plan).await,
            Err(obstacle) => {
                record(ctx, observed, Some(&obstacle)).await?;
                return Ok(Action::Done);
            }
        };
        let observed =
            Observed { stateful_set: applied.as_ref().or(observed.stateful_set), ..observed };
        let Some(failure) = failure else {
            record(ctx, observed, None).await?;
            return Ok(Action::Done);
        };
        if let Some(obstacle) = obstacle(&failure) {
            record(ctx, observed, Some(&obstacle)).await?;
            if is_invalid(&failure.source) {
                // What refuses may change without a word.
                return Ok(Action::RequeueAfter(ASK_AGAIN));
            }
        }
        Err(failure.into())
    }
}

/// The Pods with the label of this Memcached. A name that no label can have has none.
fn pods(ctx: &Context, key: &ObjectKey) -> Result<Vec<std::sync::Arc<Pod>>, ReconcileError> {
    match format!("{LABEL}={}", key.name).parse::<Selector>() {
        Ok(selector) => ctx.list::<Pod>(key.namespace.as_deref(), &selector),
        Err(_) => Ok(Vec::new()),
    }
}

/// What the server refuses to a child, if it refuses.
fn obstacle(failure: &Failure) -> Option<Obstacle> {
    refusal(&failure.source).map(|message| Obstacle::Rejected { kind: failure.kind, message })
}

/// Takes the plan's steps, and reports them if all succeed. Returns the StatefulSet as the server
/// returned it, if it was written, and the first failure.
async fn carry_out(
    ctx: &Context,
    memcached: &Memcached,
    plan: &Plan,
) -> (Option<StatefulSet>, Option<Failure>) {
    // The Service first: without it the Pods' names mean nothing.
    if let Err(failure) = take(ctx, memcached, &plan.service).await {
        return (None, Some(failure));
    }
    let applied = match take(ctx, memcached, &plan.stateful_set).await {
        Ok(applied) => applied,
        Err(failure) => return (None, Some(failure)),
    };
    let budget = take(ctx, memcached, &plan.budget).await;
    for notice in &plan.notices {
        ctx.publish(Event::normal(memcached, notice.reason, "Apply", notice.note.as_str())).await;
    }
    (applied, budget.err())
}

/// Writes the status if it says something new, and reports an obstacle that was not there before.
async fn record(
    ctx: &Context,
    observed: Observed<'_>,
    obstacle: Option<&Obstacle>,
) -> Result<(), ReconcileError> {
    let memcached = observed.memcached;
    let status = status(observed, obstacle, ctx.now());
    if memcached.status.as_ref() == Some(&status) {
        return Ok(());
    }
    let report = obstacle.map(|obstacle| explained(obstacle, memcached));
    let report = report.filter(|(reason, message)| !said(memcached, reason, message));
    ctx.update_status(&Memcached { status: Some(status), ..memcached.clone() }).await?;
    if let Some((reason, message)) = report {
        ctx.publish(Event::warning(memcached, reason, "Apply", message)).await;
    }
    Ok(())
}

/// Whether the status says this already.
fn said(memcached: &Memcached, reason: &str, message: &str) -> bool {
    let MemcachedStatus { conditions, .. } = memcached.status.clone().unwrap_or_default();
    conditions
        .iter()
        .any(|found| found.type_ == "Ready" && found.reason == reason && found.message == message)
}
