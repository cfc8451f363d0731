//! The children of an object: what to do with each, and doing it.
//!
//! # Invariants
//! - A child that the object does not control is never written. A child seen is pinned by its uid; a
//!   child not seen is created without force, so that one that others created meanwhile is a conflict
//!   and not a takeover.
//! - A child is written only if it lacks something that is desired, or if the spec is new: a comparison
//!   does not show what a spec no longer asks for.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, Preconditions};
use kube::{Resource, ResourceExt};
use sdk::quantity::millis;
use sdk::refusal::{is_gone, met_a_namesake};
use sdk::{Context, ReconcileError, controlled_by};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// What to do with one child.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step<K> {
    /// Nothing: it is as desired, or rightly absent.
    Keep,
    /// It is absent: apply this without force.
    Create(Box<K>),
    /// It is ours and differs: apply this with force, pinned to its uid.
    Correct(Box<K>),
    /// It is ours and no longer wanted: delete it if it still has this uid.
    Remove { uid: String },
    /// It is ours and stays without us: take the ownerReference to `owner` off, if it still has this uid.
    Release { uid: String, owner: String },
    /// It is ours and being deleted: wait until it is gone.
    Await,
    /// It is not ours: leave it alone and say so.
    Foreign,
}

/// A step for a child that failed.
#[derive(Debug, thiserror::Error)]
#[error("write {kind}")]
pub(crate) struct Failure {
    pub(crate) kind: &'static str,
    pub(crate) source: kube::Error,
}

impl From<Failure> for ReconcileError {
    fn from(failure: Failure) -> Self {
        if met_a_namesake(&failure.source) {
            return Self::conflict(failure);
        }
        failure.source.into()
    }
}

/// The step that brings a child of `owner` to what is desired.
pub(crate) fn step<O, K>(
    owner: &O,
    observed: Option<&K>,
    desired: Option<K>,
    renewed: bool,
) -> Step<K>
where
    O: Resource<DynamicType = ()>,
    K: Resource<DynamicType = ()> + Serialize + Clone,
{
    let Some(observed) = observed else {
        return desired.map_or(Step::Keep, |desired| Step::Create(Box::new(desired)));
    };
    if !controlled_by(observed, owner) {
        // One that is not ours matters only if we want one of that name.
        return if desired.is_some() { Step::Foreign } else { Step::Keep };
    }
    let uid = observed.meta().uid.clone();
    match (desired, uid) {
        _ if observed.meta().deletion_timestamp.is_some() => Step::Await,
        (None, Some(uid)) => Step::Remove { uid },
        (Some(mut desired), uid) if renewed || !holds(observed, &desired) => {
            desired.meta_mut().uid = uid;
            Step::Correct(Box::new(desired))
        }
        _ => Step::Keep,
    }
}

/// The step that leaves a child of `owner` to itself: whoever deletes the owner then keeps it.
pub(crate) fn release<O, K>(owner: &O, observed: Option<&K>) -> Step<K>
where
    O: Resource<DynamicType = ()>,
    K: Resource<DynamicType = ()>,
{
    let ours = observed.filter(|found| controlled_by(*found, owner));
    match (ours.and_then(|found| found.meta().uid.clone()), owner.meta().uid.clone()) {
        (Some(uid), Some(owner)) => Step::Release { uid, owner },
        _ => Step::Keep,
    }
}

/// Who controls an object.
pub(crate) fn controller<K: Resource>(object: &K) -> Option<&OwnerReference> {
    object.owner_references().iter().find(|owner| owner.controller == Some(true))
}

/// What makes a child `owner`'s: deleting the owner deletes it, and waits for it if that is done in the
/// foreground.
pub(crate) fn ownership<O>(owner: &O) -> Option<Vec<OwnerReference>>
where
    O: Resource<DynamicType = ()>,
{
    let owner = owner.controller_owner_ref(&())?;
    Some(vec![OwnerReference { block_owner_deletion: Some(true), ..owner }])
}

/// Whether `observed` has everything that `desired` says. Lists of objects are read as keyed lists, as
/// containers, ports and owners: each element desired is found in some element seen. Lists of single
/// values are equal or not.
pub(crate) fn holds<K: Serialize>(observed: &K, desired: &K) -> bool {
    let json = |object: &K| {
        serde_json::to_value(object).expect("a Kubernetes object is representable as JSON")
    };
    has(&json(observed), &json(desired), false)
}

/// The fields of Pods that are quantities, or hold them.
const QUANTITIES: [&str; 5] = ["limits", "requests", "overhead", "sizeLimit", "divisor"];

fn has(observed: &Value, desired: &Value, quantities: bool) -> bool {
    match (observed, desired) {
        (Value::Object(observed), Value::Object(desired)) => desired.iter().all(|(key, value)| {
            let quantities = quantities || QUANTITIES.contains(&key.as_str());
            // A server leaves an empty list out.
            let is_nothing = value.as_array().is_some_and(Vec::is_empty);
            observed.get(key).map_or(is_nothing, |found| has(found, value, quantities))
        }),
        (Value::Array(observed), Value::Array(desired)) if desired.iter().all(Value::is_object) => {
            desired.iter().all(|value| observed.iter().any(|found| has(found, value, false)))
        }
        // A server writes a quantity in another form.
        (Value::String(observed), Value::String(desired)) if quantities => {
            observed == desired || millis(desired).is_some_and(|own| millis(observed) == Some(own))
        }
        _ => observed == desired,
    }
}

/// Takes one step for a child that has its owner's name. Returns the object as the server returned it,
/// if it was applied.
pub(crate) async fn take<O, K>(
    ctx: &Context,
    owner: &O,
    step: &Step<K>,
) -> Result<Option<K>, Failure>
where
    O: Resource<DynamicType = ()>,
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + k8s_openapi::Resource
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned,
{
    let (namespace, name) = (owner.namespace().unwrap_or_default(), owner.name_any());
    // Only for who writes: a client has a task.
    let children = || Api::<K>::namespaced(ctx.client(), &namespace);
    let apply = PatchParams::apply(ctx.field_manager());
    let taken = match step {
        Step::Create(child) => {
            children().patch(&name, &apply, &Patch::Apply(child)).await.map(Some)
        }
        Step::Correct(child) => {
            children().patch(&name, &apply.force(), &Patch::Apply(child)).await.map(Some)
        }
        // The answer is read as a dynamic object: of its kind it would have to be decoded twice, as itself or as a status.
        Step::Remove { uid } => {
            let pinned = Preconditions { uid: Some(uid.clone()), resource_version: None };
            let params = DeleteParams::background().preconditions(pinned);
            let kind = ApiResource::erase::<K>(&());
            let children = Api::<DynamicObject>::namespaced_with(ctx.client(), &namespace, &kind);
            match children.delete(&name, &params).await {
                // It is gone or replaced.
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(None),
                answer => answer.map(|_| None),
            }
        }
        // This one reference and no other: whoever else changes the object meanwhile loses nothing.
        Step::Release { uid, owner } => {
            let patch = json!({"metadata": {
                "uid": uid, "ownerReferences": [{"$patch": "delete", "uid": owner}],
            }});
            match children().patch_metadata(&name, &apply, &Patch::Strategic(patch)).await {
                Err(error) if is_gone(&error) => Ok(None),
                answer => answer.map(|_| None),
            }
        }
        Step::Keep | Step::Await | Step::Foreign => Ok(None),
    };
    taken.map_err(|source| Failure { kind: <K as k8s_openapi::Resource>::KIND, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_desired_is_found_among_what_others_add() {
        let desired = json!({
            "args": ["-m", "64"],
            "containers": [{"name": "a", "resources": {"limits": {"cpu": "0.5"}}}],
            "empty": [],
            "emptyDir": {"sizeLimit": "0.5Gi"},
        });
        let with = |path: &str, value: Value| {
            let mut found = desired.clone();
            *found.pointer_mut(path).unwrap() = value;
            holds(&found, &desired)
        };
        assert!(holds(&desired, &desired));
        assert!(with(
            "/containers",
            json!([
                {"name": "sidecar"},
                {"name": "a", "image": "i", "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}}},
            ])
        ));
        assert!(with("/empty", json!([{"by": "others"}])));
        assert!(with("/emptyDir/sizeLimit", json!("512Mi")));
        assert!(!with("/containers/0/resources/limits/cpu", json!("501m")));
        assert!(!with("/containers", json!([])));
        assert!(holds(&json!({}), &json!({"empty": []})));
        assert!(!holds(&json!({}), &json!({"empty": {}})));
        for args in [json!(["64", "-m"]), json!(["-m", "64", "-v"]), json!(["-m"])] {
            assert!(!with("/args", args.clone()), "{args}");
        }
    }
}
