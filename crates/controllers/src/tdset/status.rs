//! The status of a TDSet after a reconcile, as numbers and conditions. Pure.

use jiff::Timestamp;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::ResourceExt;
use sdk::condition::{Finding, conditions, whole_seconds};

use super::api::{TDSet, TDSetStatus};
use super::invalid::Invalid;
use super::plan::{Observed, Plan};
use super::schedule::{Next, Rule};
use super::target::Target;
use crate::children::{Step, controller};

/// What blocks a TDSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// Its spec cannot be acted on.
    Invalid(Invalid),
    /// Another TDSet scales its workload.
    Rival { target: String, name: String },
    /// Its target does not exist, or has no scale.
    Missing { target: String },
    /// A child's name is taken by an object that it does not control.
    Conflict { kind: &'static str },
    /// The API server refuses what the spec asks for.
    Rejected { what: String, message: String },
    /// The Deployment is being deleted and must be gone first.
    Terminating,
    /// Another object makes the autoscaler of its workload.
    Managed { autoscaler: String, manager: String },
}

/// The status of a TDSet for which nothing was done.
pub(super) fn status_of(set: &TDSet, obstacle: &Obstacle, now: Timestamp) -> TDSetStatus {
    let before = set.status.clone().unwrap_or_default();
    let (ready, progressing) = obstructed(obstacle, set);
    let findings = vec![ready, progressing];
    TDSetStatus {
        observed_generation: set.metadata.generation,
        desired_replicas: None,
        autoscaler: None,
        active_window: None,
        next_change: None,
        next_replicas: None,
        conditions: conditions(findings, &before.conditions, set.metadata.generation, now),
        ..before
    }
}

/// The status of a TDSet whose plan was carried out. `observed` is what is there then.
pub(super) fn status(
    observed: Observed<'_>,
    target: &Target,
    plan: &Plan,
    rejected: Option<Obstacle>,
    now: Timestamp,
) -> TDSetStatus {
    let (set, generation) = (observed.set, observed.set.metadata.generation);
    let before = set.status.clone().unwrap_or_default();
    let seen = seen(observed, target, plan);
    // Of what was refused, a comparison does not show what the spec no longer asks for.
    let applied_generation =
        if rejected.is_none() { generation } else { before.applied_generation };
    let (ready, progressing) = match rejected.or_else(|| obstacle(observed, plan)) {
        Some(obstacle) => obstructed(&obstacle, set),
        None => {
            let mut ready = ready(&seen, plan.expected);
            let notes = capped(observed, plan).into_iter().chain(beside(observed, plan));
            ready.message.extend(notes);
            (ready, progressing(&seen, plan.expected))
        }
    };
    let is_theirs = target.own && matches!(plan.deployment, Step::Foreign | Step::Await);
    let findings = vec![ready, progressing, complete(set, plan)];
    let next = match plan.next {
        Next::Change(at, answer) => Some((at, answer.replicas)),
        Next::NotBefore(_) | Next::Never => None,
    };
    TDSetStatus {
        observed_generation: generation,
        applied_generation,
        desired_replicas: Some(plan.answer.replicas),
        target: Some(target.label()),
        autoscaler: observed.autoscaler.filter(|_| !is_theirs).map(ResourceExt::name_any),
        current_replicas: seen.exist,
        ready_replicas: seen.ready,
        active_window: Some(label(set, plan.answer.rule)),
        next_change: next.map(|(at, _)| whole_seconds(at)),
        next_replicas: next.map(|(_, replicas)| replicas),
        conditions: conditions(findings, &before.conditions, generation, now),
    }
}

/// What decides, as people write it.
fn label(set: &TDSet, rule: Rule) -> String {
    let spec = &set.spec;
    let found = match rule {
        _ if spec.suspend => Some("suspended".to_owned()),
        Rule::Exception(index) => spec.exceptions.get(index).map(|found| match &found.to {
            Some(to) if *to != found.from => format!("exception {}/{to}", found.from),
            _ => format!("exception {}", found.from),
        }),
        Rule::Window(index) => spec.scheduling_config.get(index).map(super::api::Window::label),
        Rule::Cron(index) => {
            spec.cron.get(index).map(|found| format!("cron {} - {}", found.start, found.end))
        }
        Rule::Default => None,
    };
    found.unwrap_or_else(|| "default".to_owned())
}

/// What a workload shows.
#[derive(Clone, Debug, Default)]
struct Seen {
    exist: i32,
    ready: i32,
    available: i32,
    /// Whether its controller has carried out what it is asked for, apart from the number of replicas.
    settled: bool,
    stuck: bool,
}

fn seen(observed: Observed<'_>, target: &Target, plan: &Plan) -> Seen {
    if !target.own {
        let scale = observed.scale;
        let asked = scale.and_then(|scale| scale.spec.as_ref()?.replicas).unwrap_or(0);
        let exist = scale.and_then(|scale| scale.status.as_ref()).map_or(0, |found| found.replicas);
        return Seen { exist, available: exist, settled: asked == exist, ..Seen::default() };
    }
    // A Deployment that is not ours says nothing about us.
    let ours = observed.deployment.filter(|_| plan.deployment != Step::Foreign);
    let Some(deployment) = ours else { return Seen::default() };
    let found = deployment.status.clone().unwrap_or_default();
    let exist = found.replicas.unwrap_or(0);
    let mut conditions = found.conditions.iter().flatten();
    Seen {
        exist,
        ready: found.ready_replicas.unwrap_or(0),
        available: found.available_replicas.unwrap_or(0),
        settled: found.observed_generation.unwrap_or(0)
            >= deployment.metadata.generation.unwrap_or(0)
            && found.updated_replicas.unwrap_or(0) == exist,
        stuck: conditions.any(|condition| {
            condition.type_.as_deref() == Some("Progressing")
                && condition.status.as_deref() == Some("False")
        }),
    }
}

fn obstacle(observed: Observed<'_>, plan: &Plan) -> Option<Obstacle> {
    match (&plan.deployment, &plan.service) {
        (Step::Foreign, _) => Some(Obstacle::Conflict { kind: "Deployment" }),
        (Step::Await, _) => Some(Obstacle::Terminating),
        (_, Step::Foreign) => Some(Obstacle::Conflict { kind: "Service" }),
        _ => observed.autoscaler.filter(|_| !observed.set.spec.suspend).and_then(managed),
    }
}

/// What to say of an autoscaler that another object makes.
fn managed(autoscaler: &HorizontalPodAutoscaler) -> Option<Obstacle> {
    let manager = controller(autoscaler)?;
    Some(Obstacle::Managed {
        autoscaler: autoscaler.name_any(),
        manager: format!("{} {}", manager.kind, manager.name),
    })
}

fn obstructed(obstacle: &Obstacle, set: &TDSet) -> (Finding, Finding) {
    let name = set.name_any();
    let (reason, message) = match obstacle {
        Obstacle::Invalid(invalid) => (invalid.reason(), invalid.to_string()),
        Obstacle::Rival { target, name: rival } => (
            "Conflict",
            format!(
                "TDSet {rival} scales {target} already: delete one of the two, or name another"
            ),
        ),
        Obstacle::Missing { target } => (
            "TargetMissing",
            format!(
                "{target} of spec.targetRef does not exist, or has no scale subresource: create it"
            ),
        ),
        Obstacle::Conflict { kind } => (
            "Conflict",
            format!(
                "{kind} {name} exists and is not controlled by this TDSet: rename the TDSet or delete the \
                 {kind}; of a Deployment, set spec.adopt to take it over, or name it in spec.targetRef"
            ),
        ),
        Obstacle::Rejected { what, message } => {
            ("Rejected", format!("the server refused {what}: {message}"))
        }
        Obstacle::Terminating => {
            ("Terminating", format!("waiting until Deployment {name} is deleted"))
        }
        Obstacle::Managed { autoscaler, manager } => (
            "AutoscalerManaged",
            format!(
                "HorizontalPodAutoscaler {autoscaler} belongs to {manager}, which would undo what the schedule \
                 sets: give {manager} the hours, a ScaledObject by its cron trigger, or delete it"
            ),
        ),
    };
    let waits = *obstacle == Obstacle::Terminating;
    (
        Finding { type_: "Ready", holds: false, reason, message: message.clone() },
        Finding { type_: "Progressing", holds: waits, reason, message },
    )
}

/// What to say of an autoscaler that allows fewer replicas than the schedule asks for.
fn capped(observed: Observed<'_>, plan: &Plan) -> Option<String> {
    let autoscaler = observed.autoscaler.filter(|_| !observed.set.spec.suspend)?;
    let (asked, most) = (plan.answer.replicas, autoscaler.spec.max_replicas);
    (asked > most).then(|| {
        let name = autoscaler.name_any();
        format!(
            "; the schedule asks for {asked}, and HorizontalPodAutoscaler {name} allows {most} at most: raise its \
             maxReplicas"
        )
    })
}

/// What to say of a Deployment whose template a Rollout runs.
fn beside(observed: Observed<'_>, plan: &Plan) -> Option<String> {
    let rollout = observed.rollout.filter(|_| plan.expected > 0 && !observed.set.spec.suspend)?;
    Some(format!(
        "; Rollout {rollout} runs the template of the Deployment, whose Pods come beside those of the Rollout: name \
         the Rollout in spec.targetRef"
    ))
}

fn ready(seen: &Seen, expected: i32) -> Finding {
    let holds = settled(seen, expected);
    Finding {
        type_: "Ready",
        holds,
        reason: if holds { "ReplicasAvailable" } else { "ReplicasUnavailable" },
        message: format!("{} of {expected} replicas available", seen.available),
    }
}

fn progressing(seen: &Seen, expected: i32) -> Finding {
    let (holds, reason, message) = if settled(seen, expected) {
        (false, "RolloutComplete", "every replica runs the present spec")
    } else if seen.stuck {
        (false, "DeadlineExceeded", "the workload has stopped making progress")
    } else {
        (true, "RollingOut", "the workload is being rolled out")
    };
    Finding { type_: "Progressing", holds, reason, message: message.to_owned() }
}

/// What the schedule leaves open, or says twice.
fn complete(set: &TDSet, plan: &Plan) -> Finding {
    let type_ = "ScheduleComplete";
    let Some(coverage) = &plan.coverage else {
        let message = "windows of cron come too often to say what they leave open".to_owned();
        return Finding { type_, holds: false, reason: "CronNotCounted", message };
    };
    let message = coverage.message(set.spec.default_replica);
    let apart = coverage.overlaps.is_empty() && coverage.exceptions.is_empty();
    let reason = match (coverage.gaps.is_empty(), apart) {
        (true, true) => "Complete",
        (false, true) => "Gaps",
        (true, false) => "Overlaps",
        (false, false) => "GapsAndOverlaps",
    };
    let holds = message.is_empty();
    let message = if holds { "one rule decides at each time".to_owned() } else { message };
    Finding { type_, holds, reason, message }
}

/// Whether the workload's controller has seen the present spec and carried it out.
fn settled(seen: &Seen, expected: i32) -> bool {
    seen.settled && seen.exist == expected && seen.available == expected
}
