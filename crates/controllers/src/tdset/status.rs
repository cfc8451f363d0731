//! The status of a TDSet after a reconcile, as numbers and conditions. Pure.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt;
use sdk::condition::{Finding, conditions, whole_seconds};

use super::api::{TDSet, TDSetStatus};
use super::plan::Plan;
use super::schedule::UnknownZone;
use crate::children::Step;

/// What blocks a TDSet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// Its `timeZone` does not exist.
    UnknownZone(UnknownZone),
    /// A child's name is taken by an object that it does not control.
    Conflict {
        /// The kind of that object.
        kind: &'static str,
    },
    /// The API server refuses a child as the spec asks for it.
    Rejected {
        /// The kind of the child.
        kind: &'static str,
        /// The server's words.
        message: String,
    },
    /// The Deployment is being deleted and must be gone first.
    Terminating,
}

/// The status for a TDSet whose `timeZone` does not exist: nothing was changed.
pub(super) fn status_of_unknown_zone(
    set: &TDSet,
    zone: UnknownZone,
    now: Timestamp,
) -> TDSetStatus {
    let before = set.status.clone().unwrap_or_default();
    let (ready, progressing) = obstructed(&Obstacle::UnknownZone(zone), set);
    TDSetStatus {
        observed_generation: set.metadata.generation,
        desired_replicas: None,
        active_window: None,
        next_change: None,
        conditions: conditions(
            vec![ready, progressing],
            &before.conditions,
            set.metadata.generation,
            now,
        ),
        ..before
    }
}

/// The status for a TDSet whose plan was carried out, with the present Deployment.
pub(super) fn status(
    set: &TDSet,
    plan: &Plan,
    deployment: Option<&Deployment>,
    rejected: Option<Obstacle>,
    now: Timestamp,
) -> TDSetStatus {
    let before = set.status.as_ref().map_or(&[][..], |status| &status.conditions);
    // A Deployment that is not ours says nothing about us.
    let ours = deployment.filter(|_| plan.deployment != Step::Foreign);
    let found = ours.and_then(|deployment| deployment.status.clone()).unwrap_or_default();
    let (ready, progressing) = match rejected.or_else(|| obstacle(plan)) {
        Some(obstacle) => obstructed(&obstacle, set),
        None => (ready(ours, plan.answer.replicas), progressing(ours, plan.answer.replicas)),
    };
    let window = plan.answer.window.and_then(|index| set.spec.scheduling_config.get(index));
    TDSetStatus {
        observed_generation: set.metadata.generation,
        desired_replicas: Some(plan.answer.replicas),
        current_replicas: found.replicas.unwrap_or(0),
        ready_replicas: found.ready_replicas.unwrap_or(0),
        active_window: Some(window.map_or_else(|| "default".to_owned(), |window| window.label())),
        next_change: plan.next_change.map(whole_seconds),
        conditions: conditions(vec![ready, progressing], before, set.metadata.generation, now),
    }
}

fn obstacle(plan: &Plan) -> Option<Obstacle> {
    match (&plan.deployment, &plan.service) {
        (Step::Foreign, _) => Some(Obstacle::Conflict { kind: "Deployment" }),
        (Step::Await, _) => Some(Obstacle::Terminating),
        (_, Step::Foreign) => Some(Obstacle::Conflict { kind: "Service" }),
        _ => None,
    }
}

fn obstructed(obstacle: &Obstacle, set: &TDSet) -> (Finding, Finding) {
    let name = set.name_any();
    let (reason, message) = match obstacle {
        Obstacle::UnknownZone(zone) => ("InvalidTimeZone", zone.to_string()),
        Obstacle::Conflict { kind } => (
            "Conflict",
            format!(
                "{kind} {name} exists and is not controlled by this TDSet: \
                 rename the TDSet or delete the {kind}"
            ),
        ),
        Obstacle::Rejected { kind, message } => {
            ("Rejected", format!("the server refused {kind} {name}: {message}"))
        }
        Obstacle::Terminating => {
            ("Terminating", format!("waiting until Deployment {name} is deleted"))
        }
    };
    let waits = *obstacle == Obstacle::Terminating;
    (
        Finding { type_: "Ready", holds: false, reason, message: message.clone() },
        Finding { type_: "Progressing", holds: waits, reason, message },
    )
}

fn ready(deployment: Option<&Deployment>, desired: i32) -> Finding {
    let available = deployment.map_or(0, |deployment| {
        deployment.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0)
    });
    let holds = settled(deployment, desired);
    Finding {
        type_: "Ready",
        holds,
        reason: if holds { "ReplicasAvailable" } else { "ReplicasUnavailable" },
        message: format!("{available} of {desired} replicas available"),
    }
}

fn progressing(deployment: Option<&Deployment>, desired: i32) -> Finding {
    let finding = |holds, reason, message: &str| Finding {
        type_: "Progressing",
        holds,
        reason,
        message: message.to_owned(),
    };
    let stuck = deployment
        .and_then(|deployment| deployment.status.as_ref()?.conditions.as_ref())
        .into_iter()
        .flatten()
        .any(|condition| {
            condition.type_.as_deref() == Some("Progressing")
                && condition.status.as_deref() == Some("False")
        });
    if settled(deployment, desired) {
        finding(false, "RolloutComplete", "every replica runs the present spec")
    } else if stuck {
        finding(false, "DeadlineExceeded", "the Deployment has stopped making progress")
    } else {
        finding(true, "RollingOut", "the Deployment is being rolled out")
    }
}

/// Whether the Deployment's controller has seen the present spec and carried it out.
fn settled(deployment: Option<&Deployment>, desired: i32) -> bool {
    let Some(deployment) = deployment else { return false };
    let status = deployment.status.clone().unwrap_or_default();
    let seen = status.observed_generation.unwrap_or(0);
    seen >= deployment.metadata.generation.unwrap_or(0)
        && status.replicas.unwrap_or(0) == desired
        && status.updated_replicas.unwrap_or(0) == desired
        && status.available_replicas.unwrap_or(0) == desired
}
