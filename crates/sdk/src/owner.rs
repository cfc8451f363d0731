//! Owner references: which object controls which.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt};
use model::{AnyObject, Kind, Object};

/// An object that cannot be another's controlling owner.
#[derive(Debug, thiserror::Error)]
pub enum OwnerError {
    /// It was not read from a server.
    #[error("{owner} has no uid: only an object that a server holds can own another")]
    NoUid {
        /// The owner.
        owner: String,
    },
    /// A server's garbage collector would delete such a child at once.
    #[error("{owner} cannot own {child}: an owner lives in its child's namespace or in none")]
    Elsewhere {
        /// The owner.
        owner: String,
        /// The child.
        child: String,
    },
    /// Another object controls the child.
    #[error("{child} is controlled by {by} already")]
    Taken {
        /// The child.
        child: String,
        /// Who controls it.
        by: String,
    },
}

/// Makes `owner` the controlling owner of `child`, so that the child is deleted with it. A child of a
/// namespaced kind without a namespace gets that of its owner.
///
/// # Errors
/// If the owner cannot be one, or the child has another.
pub fn set_controller<O: Object, C: Object>(owner: &O, child: &mut C) -> Result<(), OwnerError> {
    control((owner, &Kind::of::<O>()), (child, &Kind::of::<C>()))
}

/// [`set_controller`] for objects of these kinds.
pub(crate) fn control<O: AnyObject, C: AnyObject>(
    (owner, owner_kind): (&O, &Kind),
    (child, child_kind): (&mut C, &Kind),
) -> Result<(), OwnerError> {
    if child_kind.namespaced && child.meta().namespace.is_none() {
        child.meta_mut().namespace = owner.namespace();
    }
    let Some(uid) = owner.uid().filter(|uid| !uid.is_empty()) else {
        return Err(OwnerError::NoUid { owner: named(owner_kind, owner) });
    };
    let child_named = || named(child_kind, child);
    if owner.namespace().is_some() && owner.namespace() != child.namespace() {
        let owner = named(owner_kind, owner);
        return Err(OwnerError::Elsewhere { owner, child: child_named() });
    }
    let controls = |found: &&OwnerReference| found.controller == Some(true);
    let mut controllers = child.owner_references().iter().filter(controls);
    if let Some(other) = controllers.find(|found| found.uid != uid) {
        let by = format!("{} {}", other.kind, other.name);
        return Err(OwnerError::Taken { child: child_named(), by });
    }
    let references = child.owner_references_mut();
    references.retain(|found| found.uid != uid);
    references.push(OwnerReference {
        api_version: owner_kind.api_version(),
        kind: owner_kind.kind.to_string(),
        name: owner.name_any(),
        uid,
        controller: Some(true),
        block_owner_deletion: None,
    });
    Ok(())
}

/// Whether `owner` is the controlling owner of `child`. Names are reused, uids are not.
pub fn controlled_by<C: Resource, O: Resource>(child: &C, owner: &O) -> bool {
    let uid = owner.meta().uid.as_deref();
    let mut controllers =
        child.owner_references().iter().filter(|found| found.controller == Some(true));
    controllers.any(|found| Some(found.uid.as_str()) == uid)
}

/// The name of an object in errors: `apps/Deployment web/cache`.
pub(crate) fn named<K: AnyObject>(kind: &Kind, object: &K) -> String {
    match object.namespace() {
        Some(namespace) => format!("{kind} {namespace}/{}", object.name_any()),
        None => format!("{kind} {}", object.name_any()),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;

    fn object<K: DeserializeOwned>(metadata: Value) -> K {
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    }

    fn owned(mut child: Pod) -> Result<Pod, String> {
        let owner: ConfigMap = object(json!({"name": "map", "namespace": "web", "uid": "u-1"}));
        set_controller(&owner, &mut child).map(|()| child).map_err(|error| error.to_string())
    }

    #[test]
    fn a_child_gets_its_owners_namespace_and_a_controlling_reference_once() {
        let child = owned(owned(object(json!({"name": "pod"}))).unwrap()).unwrap();
        assert_eq!(child.namespace().as_deref(), Some("web"));
        let [reference] = child.owner_references() else { panic!("{child:?}") };
        assert_eq!((reference.kind.as_str(), reference.controller), ("ConfigMap", Some(true)));
    }

    #[test]
    fn what_cannot_own_says_why() {
        let elsewhere = owned(object(json!({"name": "pod", "namespace": "other"})));
        let expect = "ConfigMap web/map cannot own Pod other/pod: an owner lives in its child's namespace or in none";
        assert_eq!(elsewhere.unwrap_err(), expect);
        let taken = owned(object(json!({"name": "pod", "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "set", "uid": "u-2", "controller": true},
        ]})));
        assert_eq!(taken.unwrap_err(), "Pod web/pod is controlled by ReplicaSet set already");
        let unread: ConfigMap = object(json!({"name": "map", "namespace": "web"}));
        let error = set_controller(&unread, &mut object::<Pod>(json!({"name": "pod"})));
        assert!(error.unwrap_err().to_string().starts_with("ConfigMap web/map has no uid"));
    }

    #[test]
    fn an_owner_without_a_namespace_owns_everywhere() {
        let owner: Namespace = object(json!({"name": "n", "uid": "u-1"}));
        let mut child: Pod = object(json!({"name": "pod", "namespace": "web"}));
        set_controller(&owner, &mut child).unwrap();
    }
}
