//! From what is observed to the next steps for the children. Pure.
//!
//! # Invariants
//! - All or nothing: while a spec cannot be carried out, or one name is another's, no child is written.
//! - Nodes are numbered from 0. More of them are added at the end, fewer are taken from the end, and an
//!   update restarts them from the end, one at a time: the StatefulSet's own order.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;

use super::api::Memcached;
use super::desired::{CONTAINER, Desired, desired};
use super::obstacle::Obstacle;
use crate::children::{Step, holds, step};

/// A Memcached and its children as the cache shows them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observed<'a> {
    pub memcached: &'a Memcached,
    /// The StatefulSet of its name, even if somebody else created it.
    pub stateful_set: Option<&'a StatefulSet>,
    /// The Service of its name, even if somebody else created it.
    pub service: Option<&'a Service>,
    /// The budget of its name, even if somebody else created it.
    pub budget: Option<&'a PodDisruptionBudget>,
    /// The Pods with its label, whoever created them.
    pub pods: &'a [&'a Pod],
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    /// The step for the Service, which is taken first.
    pub service: Step<Service>,
    pub stateful_set: Step<StatefulSet>,
    pub budget: Step<PodDisruptionBudget>,
    /// What to report once these steps are taken.
    pub notices: Vec<Notice>,
}

/// Something to report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Notice {
    /// One word in CamelCase.
    pub reason: &'static str,
    /// A sentence.
    pub note: String,
}

/// The plan for `observed`.
///
/// # Errors
/// The [`Obstacle`] that keeps anything from being done.
pub(super) fn plan(observed: Observed<'_>) -> Result<Plan, Obstacle> {
    let memcached = observed.memcached;
    let Desired { service, stateful_set, budget } =
        desired(memcached).map_err(Obstacle::Invalid)?;
    // A new spec is always applied: a comparison does not show what it no longer asks for.
    let renewed = memcached.status.as_ref().and_then(|status| status.applied_generation)
        != memcached.metadata.generation;
    let service = step(memcached, observed.service, Some(service), renewed);
    let stateful_set = step(memcached, observed.stateful_set, Some(stateful_set), renewed);
    let budget = step(memcached, observed.budget, budget, renewed);
    blocked(&service, "Service")?;
    blocked(&stateful_set, "StatefulSet")?;
    blocked(&budget, "PodDisruptionBudget")?;
    let mut notices = notices(observed, &stateful_set, renewed);
    if !renewed {
        let service = matches!(service, Step::Correct(_)).then_some("Service");
        let budget = matches!(budget, Step::Correct(_)).then_some("PodDisruptionBudget");
        notices.extend(service.into_iter().chain(budget).map(|kind| corrected(memcached, kind)));
    }
    Ok(Plan { service, stateful_set, budget, notices })
}

fn blocked<K>(step: &Step<K>, kind: &'static str) -> Result<(), Obstacle> {
    match step {
        Step::Foreign => Err(Obstacle::Conflict { kind }),
        Step::Await => Err(Obstacle::Terminating { kind }),
        _ => Ok(()),
    }
}

/// What the step for the StatefulSet changes, for people.
fn notices(observed: Observed<'_>, step: &Step<StatefulSet>, renewed: bool) -> Vec<Notice> {
    let (memcached, size) = (observed.memcached, observed.memcached.spec.size);
    let name = memcached.name_any();
    let (desired, found) = match (step, observed.stateful_set) {
        (Step::Create(_), _) => {
            let note = format!("created StatefulSet {name} with {size} nodes");
            return vec![Notice { reason: "Created", note }];
        }
        (Step::Correct(desired), Some(found)) => (desired, found),
        _ => return Vec::new(),
    };
    let mut notices = Vec::new();
    let before = found.spec.replicas.unwrap_or(1);
    if before != size && renewed {
        let note = format!("scaled from {before} to {size} nodes");
        notices.push(Notice { reason: "Scaled", note });
    } else if before != size {
        let note = format!("put {before} nodes, set by others, back to {size}");
        notices.push(Notice { reason: "ScaleRestored", note });
    }
    if !holds(&found.spec.template, &desired.spec.template) {
        let (old, new) = (image(found), image(desired));
        let why = match old == new {
            true => "for another template".to_owned(),
            false => format!("from {old} to {new}"),
        };
        let note = format!("nodes restart one at a time, the last one first, {why}");
        notices.push(Notice { reason: "Updating", note });
    }
    if notices.is_empty() && !renewed {
        notices.push(corrected(memcached, "StatefulSet"));
    }
    notices
}

fn corrected(memcached: &Memcached, kind: &str) -> Notice {
    let note = format!("{kind} {} was changed by others: put right", memcached.name_any());
    Notice { reason: "Corrected", note }
}

/// The image that a StatefulSet's nodes run.
fn image(set: &StatefulSet) -> String {
    let containers = set.spec.template.spec.iter().flat_map(|pod| &pod.containers);
    let container = containers.into_iter().find(|container| container.name == CONTAINER);
    let image = container.and_then(|container| container.image.clone()).unwrap_or_default();
    sdk::error::foreign(&image)
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
