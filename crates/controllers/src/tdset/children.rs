//! The Deployment and the Service that a TDSet makes. Pure.
//!
//! # Invariants
//! - Only fields named here are ever applied: every other field belongs to others.
//! - The selector of a Deployment that exists stays, because it cannot change.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{
    Container as PodContainer, ContainerPort, PodSpec, PodTemplateSpec, Service, ServicePort,
    ServiceSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{
    LabelSelector, ManagedFieldsEntry, ObjectMeta,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use sdk::label_value;
use serde_json::json;

use super::api::{Container, TDSet};
use super::invalid::Invalid;
use super::template;
use crate::children::{controller, ownership};

/// The label by which a Deployment and a Service find the Pods of a TDSet.
pub(super) const SET_LABEL: &str = "schedule.rs/tdset";

/// The name of the one container, if the spec gives none.
const CONTAINER: &str = "app";

/// Our fields of the Deployment. `found` is the one that exists, if the TDSet has it or takes it over.
///
/// # Errors
/// If the template of the spec is none.
pub(super) fn deployment(
    set: &TDSet,
    found: Option<&Deployment>,
    replicas: i32,
) -> Result<Deployment, Invalid> {
    let mut template = match (&set.spec.container, &set.spec.template) {
        (Some(container), _) => of_container(container, found),
        (None, Some(given)) => template::read(given)?,
        (None, None) => PodTemplateSpec::default(),
    };
    let selector = match found {
        Some(found) => found.spec.selector.clone(),
        None => LabelSelector { match_labels: Some(selector(set)), ..LabelSelector::default() },
    };
    let given = &mut template.metadata.get_or_insert_default().labels;
    // What a template says stays, but for what the selector asks for.
    let own = labels(set).into_iter().chain(given.take().unwrap_or_default());
    *given = Some(own.chain(selector.match_labels.clone().unwrap_or_default()).collect());
    Ok(Deployment {
        metadata: child_metadata(set),
        spec: DeploymentSpec {
            replicas: Some(replicas),
            selector,
            template,
            ..DeploymentSpec::default()
        },
        status: None,
    })
}

/// Whether a TDSet may take over a Deployment: it says so, and nobody controls that.
pub(super) fn may_adopt(set: &TDSet, found: &Deployment) -> bool {
    let is_free = found.metadata.deletion_timestamp.is_none() && controller(found).is_none();
    set.spec.adopt && is_free
}

/// The containers of a Deployment that the spec does not name any more, of which we own fields beside somebody else: an
/// apply would give them up, and they would stay, beside those of the spec. `found` comes with its `managedFields`.
///
/// # Errors
/// If there are any, or the template of the spec is none.
pub(super) fn check_shared(set: &TDSet, found: &Deployment, manager: &str) -> Result<(), Invalid> {
    let is_shared = |name: &&str| {
        let fields = found.metadata.managed_fields.iter().flatten();
        let owns = |entry: &&ManagedFieldsEntry| {
            let item = format!("k:{}", json!({"name": name}));
            let pod =
                entry.fields_v1.as_ref().map(|fields| &fields.0["f:spec"]["f:template"]["f:spec"]);
            let lists = ["f:containers", "f:initContainers"];
            pod.is_some_and(|pod| lists.iter().any(|list| pod[list].get(&item).is_some()))
        };
        let is_ours = |entry: &ManagedFieldsEntry| entry.manager.as_deref() == Some(manager);
        let (ours, theirs): (Vec<_>, Vec<_>) =
            fields.filter(owns).partition(|entry| is_ours(entry));
        !ours.is_empty() && !theirs.is_empty()
    };
    let desired = deployment(set, Some(found), 0)?;
    let shared: Vec<_> = unnamed(found, &desired).into_iter().filter(is_shared).collect();
    all_named(found, shared)
}

/// The containers of a Deployment that are not desired.
pub(super) fn unnamed<'a>(found: &'a Deployment, desired: &Deployment) -> Vec<&'a str> {
    let named = names(desired);
    names(found).into_iter().filter(|name| !named.contains(name)).collect()
}

fn all_named(found: &Deployment, others: Vec<&str>) -> Result<(), Invalid> {
    match others.is_empty() {
        true => Ok(()),
        false => {
            Err(Invalid::Containers { deployment: found.name_any(), names: others.join(", ") })
        }
    }
}

/// Checks that a Deployment which others wrote has no containers but those desired. Containers are merged by name,
/// so the others would stay beside them. In one that we have applied before, they were added on purpose, but for those that
/// [`check_shared`] finds.
///
/// # Errors
/// If it has.
pub(super) fn check_containers(found: &Deployment, desired: &Deployment) -> Result<(), Invalid> {
    if found.labels().contains_key(SET_LABEL) {
        return Ok(());
    }
    all_named(found, unnamed(found, desired))
}

/// The names of all containers of its Pods.
fn names(deployment: &Deployment) -> Vec<&str> {
    let pod = deployment.spec.template.spec.as_ref();
    let all = pod.map(|pod| pod.containers.iter().chain(pod.init_containers.iter().flatten()));
    all.into_iter().flatten().map(|container| container.name.as_str()).collect()
}

/// A template of one container.
fn of_container(container: &Container, found: Option<&Deployment>) -> PodTemplateSpec {
    let pod = found.and_then(|found| found.spec.template.spec.as_ref());
    let there = pod.map(|pod| pod.containers.iter().map(|there| there.name.as_str()).collect());
    let there: Vec<_> = there.unwrap_or_default();
    let name = match &container.name {
        Some(name) => name,
        None if there.contains(&CONTAINER) => CONTAINER,
        // One that an earlier operator made: another name would be a second container.
        None => there.first().copied().unwrap_or(CONTAINER),
    };
    let port = ContainerPort {
        container_port: container.port,
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    };
    let container = PodContainer {
        name: name.to_owned(),
        image: Some(container.image.clone()),
        ports: Some(vec![port]),
        ..PodContainer::default()
    };
    let spec = PodSpec { containers: vec![container], ..PodSpec::default() };
    PodTemplateSpec { metadata: None, spec: Some(spec) }
}

/// Our fields of the Service, if the spec asks for one. Its Pods are those of the Deployment. A Service knows no
/// expressions: where that selects by these alone, as one that was taken over may, our own label does.
pub(super) fn service(set: &TDSet, deployment: &Deployment) -> Option<Service> {
    let port = set.spec.service.as_ref()?.port?;
    let pod = deployment.spec.template.spec.as_ref();
    let mut ports =
        pod.into_iter().flat_map(|pod| &pod.containers).flat_map(|one| one.ports.iter().flatten());
    let target = ports.next().map_or(port, |first| first.container_port);
    let port = ServicePort {
        port,
        protocol: Some("TCP".to_owned()),
        target_port: Some(IntOrString::Int(target)),
        ..ServicePort::default()
    };
    let labels = deployment.spec.selector.match_labels.clone().filter(|labels| !labels.is_empty());
    Some(Service {
        metadata: child_metadata(set),
        spec: Some(ServiceSpec {
            selector: labels.or_else(|| Some(selector(set))),
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
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn a_container_that_others_own_too_would_stay() {
        let set = TDSet::new(
            "web",
            serde_json::from_value(json!({"container": {"name": "api", "image": "i", "port": 1}}))
                .unwrap(),
        );
        let check = |owners: &[(&str, &[&str])]| {
            let owns = |names: &[&str]| -> Value {
                let items =
                    names.iter().map(|name| (format!("k:{{\"name\":\"{name}\"}}"), json!({})));
                let items: Value = items.collect::<serde_json::Map<_, _>>().into();
                json!({"f:spec": {"f:template": {"f:spec": {"f:containers": items}}}})
            };
            let fields: Vec<_> = owners
                .iter()
                .map(|(manager, names)| json!({"manager": manager, "fieldsV1": owns(names)}))
                .collect();
            let found = json!({
                "metadata": {"name": "web", "managedFields": fields},
                "spec": {
                    "selector": {},
                    "template": {"spec": {"containers": [{"name": "web"}, {"name": "side"}]}},
                },
            });
            let found: Deployment = serde_json::from_value(found).unwrap();
            check_shared(&set, &found, "us").map_err(|error| error.to_string())
        };
        let told = check(&[("us", &["web"]), ("kubectl", &["web", "side"])]).unwrap_err();
        assert!(told.contains("has the containers web,"), "{told}");
        assert_eq!(check(&[("us", &["web"]), ("kubectl", &["side"])]), Ok(()), "it goes");
        assert_eq!(check(&[("us", &["api"]), ("kubectl", &["web", "side"])]), Ok(()), "added");
    }
}
