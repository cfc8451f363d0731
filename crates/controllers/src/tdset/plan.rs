//! From what is observed to the next steps for the children. Pure.
//!
//! # Invariants
//! - Only fields named in `desired_deployment` and `desired_service` are ever applied: every
//!   other field belongs to others.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{
    Container as PodContainer, ContainerPort, PodSpec, PodTemplateSpec, Service, ServicePort,
    ServiceSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use sdk::label_value;

use super::api::TDSet;
use super::schedule::{Answer, Schedule, UnknownZone};
use crate::children::{Step, ownership, step};

/// The label by which a Deployment and a Service find the Pods of a TDSet.
pub(super) const SET_LABEL: &str = "schedule.rs/tdset";

/// The name of the one container.
const CONTAINER: &str = "app";

/// A TDSet and its children as the cache shows them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Observed<'a> {
    /// The TDSet.
    pub set: &'a TDSet,
    /// The Deployment of its name, even if somebody else created it.
    pub deployment: Option<&'a Deployment>,
    /// The Service of its name, even if somebody else created it.
    pub service: Option<&'a Service>,
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    /// What the schedule says now.
    pub answer: Answer,
    /// When the answer changes.
    pub next_change: Option<Timestamp>,
    /// The step for the Deployment.
    pub deployment: Step<Deployment>,
    /// The step for the Service.
    pub service: Step<Service>,
    /// The change of replicas in the Deployment's step.
    pub scaling: Option<Scaling>,
}

/// A change of the number of replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scaling {
    /// Replicas before; `None` when the Deployment is new.
    pub from: Option<i32>,
    /// Replicas after.
    pub to: i32,
    /// Whether somebody else had changed what was already set.
    pub foreign: bool,
}

/// The plan for `observed` at `now`.
///
/// # Errors
/// [`UnknownZone`]: nothing can be done until the spec changes.
pub(super) fn plan(observed: Observed<'_>, now: Timestamp) -> Result<Plan, UnknownZone> {
    let set = observed.set;
    let schedule = Schedule::new(&set.spec)?;
    let answer = schedule.at(now);
    // A new spec is always applied: a comparison does not show what it no longer asks for.
    let renewed = set.status.as_ref().and_then(|status| status.observed_generation)
        != set.metadata.generation;
    let deployment =
        step(set, observed.deployment, Some(desired_deployment(set, answer.replicas)), renewed);
    let service = step(set, observed.service, desired_service(set), renewed);
    let scaling = scaling(observed, &deployment, answer.replicas, renewed);
    Ok(Plan { answer, next_change: schedule.next_change(now), deployment, service, scaling })
}

impl Plan {
    /// How long to sleep: until the next change, at most `intervalMint`. `None` is until an event.
    pub(super) fn wake(&self, set: &TDSet, now: Timestamp) -> Option<Duration> {
        let change = self.next_change.map(|next| next.duration_since(now).unsigned_abs());
        let interval = set
            .spec
            .interval_mint
            .and_then(|minutes| u64::try_from(minutes).ok())
            .map(|minutes| Duration::from_secs(minutes * 60));
        change.into_iter().chain(interval).min()
    }
}

fn scaling(
    observed: Observed<'_>,
    step: &Step<Deployment>,
    to: i32,
    renewed: bool,
) -> Option<Scaling> {
    match step {
        Step::Create(_) => Some(Scaling { from: None, to, foreign: false }),
        Step::Correct(_) => {
            let from = observed.deployment.and_then(|found| found.spec.replicas);
            let set_before =
                observed.set.status.as_ref().and_then(|status| status.desired_replicas);
            let foreign = !renewed && set_before == Some(to);
            (from != Some(to)).then_some(Scaling { from, to, foreign })
        }
        _ => None,
    }
}

/// Our fields of the Deployment.
fn desired_deployment(set: &TDSet, replicas: i32) -> Deployment {
    let port = ContainerPort {
        container_port: set.spec.container.port,
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    };
    let container = PodContainer {
        name: CONTAINER.to_owned(),
        image: Some(set.spec.container.image.clone()),
        ports: Some(vec![port]),
        ..PodContainer::default()
    };
    Deployment {
        metadata: child_metadata(set),
        spec: DeploymentSpec {
            replicas: Some(replicas),
            selector: LabelSelector {
                match_labels: Some(selector(set)),
                ..LabelSelector::default()
            },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta { labels: Some(labels(set)), ..ObjectMeta::default() }),
                spec: Some(PodSpec { containers: vec![container], ..PodSpec::default() }),
            },
            ..DeploymentSpec::default()
        },
        status: None,
    }
}

/// Our fields of the Service, if the spec asks for one.
fn desired_service(set: &TDSet) -> Option<Service> {
    let port = set.spec.service.as_ref()?.port?;
    let port = ServicePort {
        port,
        protocol: Some("TCP".to_owned()),
        target_port: Some(IntOrString::Int(set.spec.container.port)),
        ..ServicePort::default()
    };
    Some(Service {
        metadata: child_metadata(set),
        spec: Some(ServiceSpec {
            selector: Some(selector(set)),
            ports: Some(vec![port]),
            ..ServiceSpec::default()
        }),
        status: None,
    })
}

fn child_metadata(set: &TDSet) -> ObjectMeta {
    ObjectMeta {
        name: set.metadata.name.clone(),
        namespace: set.metadata.namespace.clone(),
        labels: Some(labels(set)),
        owner_references: ownership(set),
        ..ObjectMeta::default()
    }
}

fn selector(set: &TDSet) -> BTreeMap<String, String> {
    BTreeMap::from([(SET_LABEL.to_owned(), label_value(&set.name_any()))])
}

fn labels(set: &TDSet) -> BTreeMap<String, String> {
    let mut labels = selector(set);
    labels.insert("app.kubernetes.io/name".to_owned(), label_value(&set.name_any()));
    labels.insert("app.kubernetes.io/managed-by".to_owned(), "leasehold".to_owned());
    labels
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
