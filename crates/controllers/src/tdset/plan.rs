//! From what is observed to the next steps: for the children, or for the workload of others. Pure.
//!
//! # Two hands on one number
//! Where a HorizontalPodAutoscaler scales the workload too, the schedule sets its `minReplicas` and leaves the
//! number of replicas to it. Two controllers that both set that number would undo each other for ever; as a
//! floor, the schedule says how many there are at least, and the load how many more. KEDA reaches the same by
//! making the autoscaler itself, kube-downscaler by writing `minReplicas`. An autoscaler does not work at 0
//! replicas, so the schedule scales to 0 and back itself.
//!
//! An autoscaler that another object controls, as one of KEDA, has two hands on it already: whoever makes it puts
//! its `minReplicas` back, and the replicas at 0 too. Then the schedule writes neither, and says whose they are.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Service;
use kube::ResourceExt;
use sdk::controlled_by;

use super::api::TDSet;
use super::children::{self, may_adopt};
use super::coverage::Coverage;
use super::invalid::Invalid;
use super::schedule::{Answer, Next, Schedule};
use super::target::Target;
use crate::children::{Step, controller, release, step};

/// A TDSet, its children and its workload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observed<'a> {
    pub set: &'a TDSet,
    /// The Deployment of its name, even if somebody else created it.
    pub deployment: Option<&'a Deployment>,
    /// The Service of its name, even if somebody else created it.
    pub service: Option<&'a Service>,
    /// The scale of its target, if that is not a Deployment of its own.
    pub scale: Option<&'a Scale>,
    /// The autoscaler of its workload.
    pub autoscaler: Option<&'a HorizontalPodAutoscaler>,
    /// The name of a Rollout of Argo that runs the template of its workload.
    pub rollout: Option<&'a str>,
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    /// What the schedule says now.
    pub answer: Answer,
    /// What it says next.
    pub next: Next,
    /// What the schedule leaves open, as far as that can be counted.
    pub coverage: Option<Coverage>,
    /// How many replicas there should be.
    pub expected: i32,
    pub deployment: Step<Deployment>,
    pub service: Step<Service>,
    /// The replicas that the target gets.
    pub scale: Option<i32>,
    /// The `minReplicas` that the autoscaler gets.
    pub floor: Option<i32>,
    /// The change of replicas in the step for the Deployment or the target.
    pub scaling: Option<Scaling>,
}

/// A change of the number of replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scaling {
    /// Replicas before; `None` when the Deployment is new.
    pub from: Option<i32>,
    pub to: i32,
    /// Whether somebody else had changed what was already set.
    pub foreign: bool,
}

/// What a workload and its autoscaler should have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    replicas: i32,
    floor: Option<i32>,
    /// Whether the replicas are those that were seen, because others decide them.
    as_seen: bool,
}

/// The plan for `observed` at `now`.
///
/// # Errors
/// Nothing can be done until the spec changes.
pub(super) fn plan(
    observed: Observed<'_>,
    target: &Target,
    now: Timestamp,
) -> Result<Plan, Invalid> {
    let set = observed.set;
    let schedule = Schedule::new(&set.spec)?;
    let answer = schedule.at(now);
    // A new spec is always applied: a comparison does not show what it no longer asks for.
    let renewed = is_renewed(set);
    let present = present(observed, target);
    let wanted = wanted(set, answer.replicas, present, observed.autoscaler);
    let (deployment, service) =
        if target.own { own(observed, wanted, renewed)? } else { former(observed, target) };
    // Whose workload it is not, its autoscaler is not either.
    let is_theirs = target.own && matches!(deployment, Step::Foreign | Step::Await);
    let differs = !wanted.as_seen && present != Some(wanted.replicas);
    let scale = observed.scale.filter(|_| differs).map(|_| wanted.replicas);
    let scales = scale.is_some() || matches!(deployment, Step::Create(_) | Step::Correct(_));
    let set_before = set.status.as_ref().and_then(|status| status.desired_replicas);
    Ok(Plan {
        answer,
        next: if set.spec.suspend { Next::Never } else { schedule.next(now) },
        coverage: Coverage::of(&schedule, now),
        expected: wanted.floor.filter(|_| wanted.replicas > 0).unwrap_or(0).max(wanted.replicas),
        deployment,
        service,
        scale,
        floor: wanted.floor.filter(|_| !is_theirs).filter(|floor| {
            let found = observed.autoscaler.and_then(|found| found.spec.min_replicas);
            found.unwrap_or(DEFAULT_FLOOR) != *floor
        }),
        scaling: (scales && present != Some(wanted.replicas)).then_some(Scaling {
            from: present,
            to: wanted.replicas,
            foreign: present.is_some() && !renewed && set_before == Some(wanted.replicas),
        }),
    })
}

/// Whether the spec is one that was not applied yet.
pub(super) fn is_renewed(set: &TDSet) -> bool {
    set.status.as_ref().and_then(|status| status.applied_generation) != set.metadata.generation
}

/// The `minReplicas` of an autoscaler that says nothing.
const DEFAULT_FLOOR: i32 = 1;

impl Plan {
    /// How long to sleep: until the next change, at most `intervalMint`. `None` is until an event.
    pub(super) fn wake(&self, set: &TDSet, now: Timestamp) -> Option<Duration> {
        let change = self.next.moment().map(|next| next.duration_since(now).unsigned_abs());
        let interval = set.spec.interval_mint.and_then(|minutes| u64::try_from(minutes).ok());
        let interval = interval.map(|minutes| Duration::from_secs(minutes * 60));
        change.into_iter().chain(interval).min()
    }
}

/// How many replicas the workload is asked to have now; `None` if there is none, or nobody has said.
fn present(observed: Observed<'_>, target: &Target) -> Option<i32> {
    if target.own {
        return observed.deployment.map(|found| found.spec.replicas.unwrap_or(1));
    }
    observed.scale?.spec.as_ref().map(|spec| spec.replicas.unwrap_or(0))
}

/// What the schedule's number means beside what others want.
fn wanted(
    set: &TDSet,
    scheduled: i32,
    present: Option<i32>,
    autoscaler: Option<&HorizontalPodAutoscaler>,
) -> Wanted {
    let left = set.spec.suspend || autoscaler.and_then(controller).is_some();
    let ours = |replicas| Wanted { replicas, floor: None, as_seen: false };
    match (present, autoscaler) {
        _ if left => Wanted { as_seen: true, ..ours(present.unwrap_or(scheduled)) },
        (_, None) | (None, _) => ours(scheduled),
        // One that may go to 0 itself works there, and would come back.
        (_, Some(autoscaler)) if scheduled == 0 => {
            let works = autoscaler.spec.min_replicas == Some(0);
            Wanted { floor: works.then_some(DEFAULT_FLOOR), ..ours(0) }
        }
        (Some(present), Some(autoscaler)) => {
            let floor = scheduled.min(autoscaler.spec.max_replicas).max(DEFAULT_FLOOR);
            // At 0 an autoscaler does nothing.
            let replicas = if present == 0 { floor } else { present };
            Wanted { floor: Some(floor), as_seen: present != 0, ..ours(replicas) }
        }
    }
}

/// The steps for the children.
fn own(
    observed: Observed<'_>,
    Wanted { replicas, as_seen, .. }: Wanted,
    renewed: bool,
) -> Result<(Step<Deployment>, Step<Service>), Invalid> {
    let set = observed.set;
    let free = observed.deployment.filter(|found| may_adopt(set, found));
    let ours = observed.deployment.filter(|found| controlled_by(*found, set));
    let mut desired = children::deployment(set, ours.or(free), replicas)?;
    if let Some(found) = ours.or(free) {
        children::check_containers(found, &desired)?;
    }
    let service = step(set, observed.service, children::service(set, &desired), renewed);
    let mut deployment = match free {
        Some(found) => {
            desired.metadata.uid = found.uid();
            Step::Correct(Box::new(desired))
        }
        None => step(set, observed.deployment, Some(desired), renewed),
    };
    if let (Step::Correct(desired), Some(found), true) =
        (&mut deployment, observed.deployment, as_seen)
    {
        // Whoever decides the replicas may have changed them since.
        desired.metadata.resource_version.clone_from(&found.metadata.resource_version);
    }
    Ok((deployment, service))
}

/// The steps for what the TDSet made before it got a `targetRef`: nobody would scale that any more. What the
/// `targetRef` names stays, also when the TDSet goes.
fn former(observed: Observed<'_>, target: &Target) -> (Step<Deployment>, Step<Service>) {
    let set = observed.set;
    let is_target = target.kind == super::target::deployment() && target.name == set.name_any();
    let deployment = match is_target {
        true => release(set, observed.deployment),
        false => step(set, observed.deployment, None, false),
    };
    (deployment, step(set, observed.service, None, false))
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
