//! The eviction subresource of Pods: deletes a Pod if its disruption budget allows it.

use std::sync::{Arc, PoisonError};

use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::answer::{self, Body};
use super::options::{FieldValidation, WriteOptions};
use super::route::Verb;
use super::write::{Outcome, Proposal, Writer, Written};
use super::{Call, admit, delete, question, read, scale};
use crate::api::{Api, key_of};
use crate::clock;
use crate::kinds;
use crate::objects::deletion::{Options, Preconditions, check_preconditions};
use crate::objects::disruption::{self, Health};
use crate::objects::meta;
use crate::resource::Resource;
use crate::status::{ApiError, Reason};
use crate::store::Key;

/// How often a Pod that changes meanwhile is looked at again.
const MAX_ATTEMPTS: usize = 20;

/// Who changes the status of budgets.
const MANAGER: &str = "kube-apiserver";

const MANY_BUDGETS: &str = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";

/// Answers a request on `/eviction`, of which only creates are allowed.
pub(super) fn answer(api: &Api, call: &Call, verb: Verb) -> Result<Response<Body>, ApiError> {
    if verb != Verb::Create {
        return Err(ApiError::method_not_allowed());
    }
    read::encoder(call)?;
    let options = WriteOptions::parse(&call.query, "CreateOptions")?;
    let kind = Resource::builtin(kinds::eviction());
    let (eviction, warnings) = question::read(call, &kind, &options)?;
    admit::namespace(api, &call.resource.info, &call.key())?;
    if meta(&eviction, "name") != call.key().name {
        let why = "name in URL does not match name in Eviction object";
        return Err(ApiError::bad_request(why));
    }
    let options = delete_options(&eviction, options.dry_run)?;
    evict(api, call, &options)?;
    let done = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201,
    });
    let mut response = answer::value(StatusCode::CREATED, &done);
    answer::warn(&mut response, &warnings);
    Ok(response)
}

/// The options of the delete, with the dry run of the request.
fn delete_options(eviction: &Value, dry_run: bool) -> Result<Options, ApiError> {
    let mut options = match &eviction["deleteOptions"] {
        Value::Null => Options::default(),
        given => delete::read_options(given.clone())?,
    };
    delete::check_options(&options)?;
    if dry_run {
        options.dry_run = vec!["All".into()];
    }
    Ok(options)
}

/// Evicts the Pod of a call.
fn evict(api: &Api, call: &Call, options: &Options) -> Result<(), ApiError> {
    let _one_at_a_time = api.evictions.lock().unwrap_or_else(PoisonError::into_inner);
    let versioned = version(options).is_some();
    let mut last = None;
    for _ in 0..MAX_ATTEMPTS {
        let pod = read::find(api, call)?.to_value();
        if !disruption::is_free(&pod) {
            return evict_running(api, call, options, &pod);
        }
        let guarded = if disruption::may_run(&pod) && !versioned {
            of_version(options, &pod)
        } else {
            options.clone()
        };
        match remove(api, call, &guarded) {
            Err(error) if error.reason == Reason::Conflict && !versioned => last = Some(error),
            outcome => return outcome,
        }
    }
    Err(last.unwrap_or_else(|| ApiError::conflict(&call.resource.info, &call.key().name)))
}

/// Evicts a Pod that counts for a budget.
fn evict_running(api: &Api, call: &Call, options: &Options, pod: &Value) -> Result<(), ApiError> {
    let namespace = meta(pod, "namespace");
    let budgets = objects(api, ("policy", "v1", "poddisruptionbudgets"), namespace);
    let mut budgets = budgets.into_iter().filter(|budget| disruption::selects(budget, pod));
    let Some(budget) = budgets.next() else { return remove(api, call, options) };
    if budgets.next().is_some() {
        return Err(ApiError::unknown(MANY_BUDGETS));
    }
    let health = health(api, &budget, namespace);
    if disruption::is_ready(pod) || !disruption::spares_unready(&budget, &health) {
        disruption::check(&budget, &health)?;
        if options.dry_run.is_empty() && disruption::is_controlled(&budget) {
            count(api, call, &budget, meta(pod, "name"))?;
        }
        return remove(api, call, options);
    }
    // It must not have become Ready meanwhile.
    let versioned = version(options).is_some();
    let guarded = of_version(options, pod);
    remove(api, call, &guarded).map_err(|error| match error.reason {
        Reason::Conflict if !versioned => disruption::unobserved(meta(&budget, "name")),
        _ => error,
    })
}

fn health(api: &Api, budget: &Value, namespace: &str) -> Health {
    if disruption::is_controlled(budget) {
        return disruption::written(budget);
    }
    let mut pods = objects(api, ("", "v1", "pods"), namespace);
    pods.retain(|pod| disruption::selects(budget, pod));
    disruption::counted(budget, &pods, |pod| scale_of(api, pod))
}

/// The uid of a Pod's controller, and how many Pods that should have. A Deployment counts for its
/// ReplicaSets.
fn scale_of(api: &Api, pod: &Value) -> Option<(String, i64)> {
    let namespace = meta(pod, "namespace");
    let (mut resource, mut owner) = owner_of(api, pod, namespace)?;
    if resource.info.is("apps", "replicasets")
        && let Some((above, deployment)) = owner_of(api, &owner, namespace)
    {
        (resource, owner) = (above, deployment);
    }
    let replicas = scale::get(&owner, &resource.info.scale.as_ref()?.spec_replicas);
    Some((meta(&owner, "uid").into(), replicas.as_i64().unwrap_or(0)))
}

fn owner_of(api: &Api, object: &Value, namespace: &str) -> Option<(Arc<Resource>, Value)> {
    let reference = disruption::controller_of(object)?;
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
    let catalog = api.catalog();
    let kinds = catalog.version(group, version)?;
    let resource = kinds.iter().find(|r| r.info.kind == text("kind"))?.clone();
    let key = Key { namespace: namespace.into(), name: text("name").into() };
    let owner = api.store.get(&resource.table, &key).filter(|o| o.uid() == text("uid"))?;
    let owner = resource.served(owner.to_value());
    Some((resource, owner))
}

/// Counts one more disruption in the budget's status.
fn count(api: &Api, call: &Call, budget: &Value, pod: &str) -> Result<(), ApiError> {
    let catalog = api.catalog();
    let resource = catalog.find("policy", "v1", "poddisruptionbudgets");
    let resource = resource.ok_or_else(ApiError::no_such_resource)?;
    let own = writer(api, call);
    let options = WriteOptions { field_manager: Some(MANAGER.into()), ..own.options };
    let subresource = Some("status");
    let writer = Writer { resource, key: key_of(budget), subresource, options, ..own };
    let now = clock::seconds(api.now());
    writer
        .write(false, |current| {
            let current = current.ok_or_else(ApiError::no_such_resource)?;
            disruption::check(current, &disruption::written(current))?;
            Ok(Proposal { object: disruption::disrupted(current, pod, &now), applied: false })
        })
        .map(drop)
}

/// Deletes the Pod, which says why first.
fn remove(api: &Api, call: &Call, options: &Options) -> Result<(), ApiError> {
    let mut options = options.clone();
    if options.dry_run.is_empty() {
        let outcome = mark(api, call, &options)?;
        if let (Some(preconditions), Written::Stored(pod)) =
            (&mut options.preconditions, &outcome.written)
            && preconditions.resource_version.is_some()
        {
            preconditions.resource_version = Some(pod.revision().to_string());
        }
    }
    let writer = delete::writer(api, call, &options, call.key());
    delete::remove(&writer, &options).map(drop)
}

fn mark(api: &Api, call: &Call, options: &Options) -> Result<Outcome, ApiError> {
    let writer = Writer { subresource: Some("status"), ..writer(api, call) };
    let now = clock::seconds(api.now());
    writer.write(false, |current| {
        let current = current.ok_or_else(ApiError::no_such_resource)?;
        check_preconditions(&call.resource.info, current, options.preconditions.as_ref())?;
        Ok(Proposal { object: disruption::marked(current, &now), applied: true })
    })
}

/// A writer in the server's own name.
fn writer<'a>(api: &'a Api, call: &'a Call) -> Writer<'a> {
    let options = WriteOptions {
        dry_run: false,
        field_manager: None,
        field_validation: FieldValidation::Ignore,
        force: false,
    };
    Writer::of(api, call, "update", options)
}

fn version(options: &Options) -> Option<&str> {
    options.preconditions.as_ref()?.resource_version.as_deref()
}

/// The options, for this version of the Pod only.
fn of_version(options: &Options, pod: &Value) -> Options {
    let mut options = options.clone();
    let preconditions = options.preconditions.get_or_insert_with(Preconditions::default);
    preconditions.resource_version = Some(meta(pod, "resourceVersion").into());
    options
}

fn objects(api: &Api, (group, version, plural): (&str, &str, &str), namespace: &str) -> Vec<Value> {
    let catalog = api.catalog();
    let Some(resource) = catalog.find(group, version, plural) else { return Vec::new() };
    let listed = api.store.list(&resource.table, Some(namespace), None, None);
    let items = listed.map(|snapshot| snapshot.items).unwrap_or_default();
    items.iter().map(|object| resource.served(object.to_value())).collect()
}
