//! The shell of TDSet: cache in, plan, fenced client out.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use kube::core::DynamicObject;
use sdk::{
    Action, Context, Controller, ControllerSpec, Event, Kind, Lookup, ObjectKey, ReconcileError,
    Reconciler, Transform, Watch, controlled_by,
};
use serde_json::Value;

use super::FIELD_MANAGER;
use super::api::{TDSet, TDSetStatus};
use super::children::{self, check_shared, unnamed};
use super::invalid::Invalid;
use super::plan::{Observed, Plan, Scaling, is_renewed, plan};
use super::scaling::{raise_floor, read_scale, write_scale};
use super::status::{Obstacle, status, status_of};
use super::target::{
    TARGETS, Target, deployment, is_rollout, kinds, rival, value, values, values_of, values_run,
};
use crate::ASK_AGAIN;
use crate::children::{Failure, take};
use sdk::mapping::Name;
use sdk::refusal::refusal;

/// Reconciles TDSets.
#[derive(Clone, Debug)]
pub(super) struct TDSetReconciler {
    /// The kinds that a `targetRef` may name.
    allowed: Vec<Kind>,
}

/// The controller, with this many workers.
///
/// # Panics
/// If the settings were not checked.
pub(super) fn controller(workers: usize, settings: &Value) -> ControllerSpec {
    let allowed = kinds(settings).expect("the configuration was checked");
    let [deployments, stateful_sets, listed @ ..] = &allowed[..] else {
        unreachable!("there are built-in kinds")
    };
    // No predicate drops changes of the status. A reconcile on a cache that lagged behind our own
    // status write may have found nothing to write; the event of that write makes it look again.
    let mut controller = Controller::for_kind::<TDSet>(super::BUILTIN.name)
        .index::<TDSet>(TARGETS, values)
        .owns::<Deployment>()
        .owns::<Service>()
        // Those that name one workload: when one goes, another scales it.
        .watches::<TDSet>(|set, lookup| {
            values(set).iter().flat_map(|value| scalers(lookup, value)).collect()
        })
        // Not only children. An object of others that has the name of a child must be noticed when it goes.
        .watches_names(Watch::<Deployment>::all(), scaled(deployments))
        .watches_names(Watch::<Service>::all(), |name, _| vec![name])
        .watches_names(
            Watch::<StatefulSet>::all().metadata_only().optional(),
            scaled(stateful_sets),
        )
        .watches_with(
            Watch::<HorizontalPodAutoscaler>::all().index(TARGETS, values_of).optional(),
            |found, lookup| {
                values_of(found).iter().flat_map(|value| scalers(lookup, value)).collect()
            },
        );
    for kind in listed {
        let watch = Watch::dynamic(kind.clone());
        controller = match is_rollout(kind) {
            true => controller.watches_with(rollouts(watch).optional(), run(kind)),
            false => controller.watches_names(watch.metadata_only().optional(), scaled(kind)),
        };
    }
    controller.field_manager(FIELD_MANAGER).workers(workers).reconciler(TDSetReconciler { allowed })
}

/// The TDSets that scale an object of this kind.
fn scaled(kind: &Kind) -> impl Fn(Name, &Lookup<'_>) -> Vec<Name> + Send + Sync + 'static {
    let (group, kind) = (kind.group.clone(), kind.kind.clone());
    move |(namespace, name), lookup| {
        scalers(lookup, &value(&group, &kind, namespace.as_deref().unwrap_or_default(), &name))
    }
}

/// Of Rollouts, also whose template they run.
fn rollouts(watch: Watch<DynamicObject>) -> Watch<DynamicObject> {
    let is_kept = |part: &String| ["name", "namespace", "workloadRef"].contains(&part.as_str());
    let drops = move |path: &[String]| path.get(1).is_some_and(|part| !is_kept(part));
    watch.transform(Transform::new(drops)).index(TARGETS, values_run)
}

/// The TDSets that scale a Rollout, or the workload whose template it runs.
fn run(kind: &Kind) -> impl Fn(&DynamicObject, &Lookup<'_>) -> Vec<Name> + Send + Sync + 'static {
    let own = scaled(kind);
    move |rollout, lookup| {
        let others = values_run(rollout).into_iter().flat_map(|value| scalers(lookup, &value));
        own((rollout.namespace(), rollout.name_any()), lookup).into_iter().chain(others).collect()
    }
}

fn scalers(lookup: &Lookup<'_>, value: &str) -> Vec<Name> {
    lookup.indexed_names::<TDSet>(TARGETS, value)
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
        let target = match Target::of(&set, &self.allowed) {
            Ok(target) => target,
            Err(invalid) => return stop(ctx, &set, Obstacle::Invalid(invalid)).await,
        };
        let value = target.value(namespace.unwrap_or_default());
        let others = ctx.indexed::<TDSet>(TARGETS, &value)?;
        let same_name = ctx.get::<Deployment>(namespace, &target.name)?;
        let found = same_name.as_deref().filter(|_| target.kind == deployment());
        if let Some(name) = rival(&set, others.iter().map(|set| &**set), found) {
            return stop(ctx, &set, Obstacle::Rival { target: target.label(), name }).await;
        }
        let scale = match self.scale(ctx, &set, &target).await? {
            Ok(scale) => scale,
            Err(obstacle) => return stop(ctx, &set, obstacle).await,
        };
        let deployment = ctx.get::<Deployment>(namespace, &key.name)?;
        let service = ctx.get::<Service>(namespace, &key.name)?;
        let autoscalers = ctx.indexed::<HorizontalPodAutoscaler>(TARGETS, &value)?;
        let living = autoscalers.iter().filter(|found| found.metadata.deletion_timestamp.is_none());
        let kind = self.allowed.iter().find(|kind| is_rollout(kind));
        let rollouts = kind.map(|kind| ctx.indexed_dynamic::<DynamicObject>(kind, TARGETS, &value));
        let rollouts = rollouts.transpose()?.unwrap_or_default();
        let rollout = rollouts.first().map(ResourceExt::name_any);
        let observed = Observed {
            set: &set,
            deployment: deployment.as_deref(),
            service: service.as_deref(),
            scale: scale.as_ref(),
            autoscaler: living.min_by_key(|found| found.name_any()).map(|found| &**found),
            rollout: rollout.as_deref(),
        };
        if let Some(invalid) = shared(ctx, observed, &target).await? {
            return stop(ctx, &set, Obstacle::Invalid(invalid)).await;
        }
        self.act(ctx, observed, &target).await
    }
}

/// What is wrong with the containers of a TDSet's own Deployment, where a new spec leaves some out. Who owns these is not
/// cached.
async fn shared(
    ctx: &Context,
    observed: Observed<'_>,
    target: &Target,
) -> Result<Option<Invalid>, ReconcileError> {
    let set = observed.set;
    let own = observed.deployment.filter(|found| target.own && controlled_by(*found, set));
    let Some(found) = own.filter(|_| is_renewed(set)) else { return Ok(None) };
    let left = |desired: Deployment| !unnamed(found, &desired).is_empty();
    if !children::deployment(set, Some(found), 0).is_ok_and(left) {
        return Ok(None);
    }
    let deployments =
        Api::<Deployment>::namespaced(ctx.client(), &set.namespace().unwrap_or_default());
    let params = ListParams::default().fields(&format!("metadata.name={}", set.name_any()));
    let found = deployments.list(&params).await?.items;
    Ok(found.iter().find_map(|found| check_shared(set, found, FIELD_MANAGER).err()))
}

impl TDSetReconciler {
    /// The scale of a target that is not the TDSet's own.
    async fn scale(
        &self,
        ctx: &Context,
        set: &TDSet,
        target: &Target,
    ) -> Result<Result<Option<Scale>, Obstacle>, ReconcileError> {
        if target.own {
            return Ok(Ok(None));
        }
        match read_scale(ctx, set, target).await {
            Ok(Some(scale)) => Ok(Ok(Some(scale))),
            Ok(None) => Ok(Err(Obstacle::Missing { target: target.label() })),
            Err(error) => match refusal(&error) {
                Some(message) => Ok(Err(Obstacle::Rejected { what: target.label(), message })),
                None => Err(error.into()),
            },
        }
    }

    /// Plans, carries it out and says so.
    async fn act(
        &self,
        ctx: &Context,
        observed: Observed<'_>,
        target: &Target,
    ) -> Result<Action, ReconcileError> {
        let (set, now) = (observed.set, ctx.now());
        let plan = match plan(observed, target, now) {
            Ok(plan) => plan,
            Err(invalid) => return stop(ctx, set, Obstacle::Invalid(invalid)).await,
        };
        let (written, failure) = carry_out(ctx, observed, target, &plan).await;
        let then = Observed {
            deployment: written.deployment.as_ref().or(observed.deployment),
            scale: written.scale.as_ref().or(observed.scale),
            ..observed
        };
        let obstacle = failure.as_ref().and_then(|failure| obstacle(failure, set, target));
        if failure.is_none() || obstacle.is_some() {
            record(ctx, set, status(then, target, &plan, obstacle, now)).await?;
        }
        let again = match failure {
            Some(failure) => Some(raise(failure, ctx, set).await?),
            None => None,
        };
        let wake = plan.wake(set, now).into_iter().chain(again).min();
        Ok(wake.map_or(Action::Done, Action::RequeueAfter))
    }
}

/// Says why nothing is done. What is missing may come without a word, where its kind cannot be watched.
async fn stop(ctx: &Context, set: &TDSet, obstacle: Obstacle) -> Result<Action, ReconcileError> {
    let again = match &obstacle {
        Obstacle::Missing { .. } | Obstacle::Rejected { .. } => Action::RequeueAfter(ASK_AGAIN),
        _ => Action::Done,
    };
    record(ctx, set, status_of(set, &obstacle, ctx.now())).await?;
    Ok(again)
}

/// What the server refuses, if it refuses.
fn obstacle(failure: &Failure, set: &TDSet, target: &Target) -> Option<Obstacle> {
    let what = match failure.kind {
        SCALE => target.label(),
        AUTOSCALER => format!("{AUTOSCALER} of {}", target.label()),
        kind => format!("{kind} {}", set.name_any()),
    };
    refusal(&failure.source).map(|message| Obstacle::Rejected { what, message })
}

/// Fails the reconcile. But where the server refuses what the spec asks for, an Event says so, and the
/// write is tried again after the time that this gives: with backoff, the next hour would come late.
async fn raise(failure: Failure, ctx: &Context, set: &TDSet) -> Result<Duration, ReconcileError> {
    let Some(message) = refusal(&failure.source) else { return Err(failure.into()) };
    let note = format!("{failure}: {message}");
    ctx.publish(Event::warning(set, "Rejected", "Apply", note)).await;
    Ok(ASK_AGAIN)
}

/// The kind of a failure to scale.
const SCALE: &str = "Scale";
const AUTOSCALER: &str = "HorizontalPodAutoscaler";

/// What was written, as the server returned it.
#[derive(Default)]
struct Written {
    deployment: Option<Deployment>,
    scale: Option<Scale>,
}

/// Takes the plan's steps. Returns what was written, and the first failure.
async fn carry_out(
    ctx: &Context,
    observed: Observed<'_>,
    target: &Target,
    plan: &Plan,
) -> (Written, Option<Failure>) {
    let set = observed.set;
    let mut written = Written::default();
    if let (Some(scale), Some(replicas)) = (observed.scale, plan.scale) {
        match write_scale(ctx, set, target, scale, replicas).await {
            Ok(scale) => written.scale = Some(scale),
            Err(source) => return (written, Some(Failure { kind: SCALE, source })),
        }
    }
    match take(ctx, set, &plan.deployment).await {
        Ok(deployment) => written.deployment = deployment,
        Err(failure) => return (written, Some(failure)),
    }
    if let (Some(scaling), true) =
        (plan.scaling, written.deployment.is_some() || written.scale.is_some())
    {
        announce(ctx, set, target, scaling).await;
    }
    if let (Some(autoscaler), Some(floor)) = (observed.autoscaler, plan.floor) {
        if let Err(source) = raise_floor(ctx, autoscaler, floor).await {
            return (written, Some(Failure { kind: AUTOSCALER, source }));
        }
        let name = autoscaler.name_any();
        let note = format!("minReplicas of {AUTOSCALER} {name} is {floor}, as the schedule says");
        ctx.publish(Event::normal(set, "FloorSet", "Scale", note)).await;
    }
    let failure = take(ctx, set, &plan.service).await.err();
    (written, failure)
}

/// Publishes an Event for a change of replicas.
async fn announce(ctx: &Context, set: &TDSet, target: &Target, scaling: Scaling) {
    let Scaling { from, to, foreign } = scaling;
    let of = if target.own { String::new() } else { format!(" of {}", target.label()) };
    let (reason, note) = match from {
        None if target.own => {
            ("Created", format!("created Deployment {} with {to} replicas", set.name_any()))
        }
        None => ("Scaled", format!("scaled to {to} replicas{of}")),
        Some(from) if foreign => {
            ("ScaleRestored", format!("put {from} replicas{of}, set by others, back to {to}"))
        }
        Some(from) => ("Scaled", format!("scaled from {from} to {to} replicas{of}")),
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
