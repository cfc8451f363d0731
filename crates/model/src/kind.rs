//! Kinds that can be watched, and their identity without the Rust type.

use std::any::TypeId;
use std::fmt;
use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::ClusterResourceScope;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A kind that can be watched: any `k8s-openapi` type and any `#[derive(CustomResource)]` type.
///
/// Implemented for everything that qualifies; never implement it by hand.
pub trait Object:
    kube::Resource<DynamicType = ()>
    + DeserializeOwned
    + Serialize
    + Clone
    + Debug
    + Send
    + Sync
    + 'static
{
}

impl<K> Object for K where
    K: kube::Resource<DynamicType = ()>
        + DeserializeOwned
        + Serialize
        + Clone
        + Debug
        + Send
        + Sync
        + 'static
{
}

/// A kind's identity. `Display` gives `Kind` for the core group, `group/Kind` otherwise.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind {
    /// API group, empty for the core group.
    pub group: Arc<str>,
    /// API version within the group.
    pub version: Arc<str>,
    /// The kind's name, as in `Deployment`.
    pub kind: Arc<str>,
    /// The resource's name in URLs, as in `deployments`.
    pub plural: Arc<str>,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
}

impl Kind {
    /// The identity of a Rust type.
    pub fn of<K: Object>() -> Self {
        Self {
            group: K::group(&()).as_ref().into(),
            version: K::version(&()).as_ref().into(),
            kind: K::kind(&()).as_ref().into(),
            plural: K::plural(&()).as_ref().into(),
            namespaced: TypeId::of::<K::Scope>() != TypeId::of::<ClusterResourceScope>(),
        }
    }

    /// `group/version`, or only the version for the core group: what objects carry as `apiVersion`.
    pub fn api_version(&self) -> String {
        match &*self.group {
            "" => self.version.to_string(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// The URL path of the collection, in one namespace or in all.
    pub fn collection_path(&self, namespace: Option<&str>) -> String {
        let root = if self.group.is_empty() { "api" } else { "apis" };
        let api_version = self.api_version();
        match namespace {
            Some(namespace) if self.namespaced => {
                format!("/{root}/{api_version}/namespaces/{namespace}/{}", self.plural)
            }
            _ => format!("/{root}/{api_version}/{}", self.plural),
        }
    }

    /// Whether an ownerReference names this kind. Versions may differ: an owner reference keeps the
    /// version it was written with.
    pub fn is_owner(&self, api_version: &str, kind: &str) -> bool {
        let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
        *self.group == *group && *self.kind == *kind
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.group {
            "" => f.write_str(&self.kind),
            group => write!(f, "{group}/{}", self.kind),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::Deployment;
    use k8s_openapi::api::core::v1::{ConfigMap, Node};

    use super::*;

    #[test]
    fn kinds_name_themselves_and_their_collections() {
        let deployment = Kind::of::<Deployment>();
        assert_eq!(deployment.to_string(), "apps/Deployment");
        assert_eq!(
            deployment.collection_path(Some("web")),
            "/apis/apps/v1/namespaces/web/deployments"
        );
        assert_eq!(Kind::of::<ConfigMap>().collection_path(None), "/api/v1/configmaps");
        let node = Kind::of::<Node>();
        assert_eq!((node.to_string().as_str(), node.namespaced), ("Node", false));
        assert_eq!(node.collection_path(Some("ignored")), "/api/v1/nodes");
    }

    #[test]
    fn an_owner_matches_by_group_and_kind_whatever_its_version() {
        let deployment = Kind::of::<Deployment>();
        assert!(deployment.is_owner("apps/v1beta1", "Deployment"));
        assert!(!deployment.is_owner("v1", "Deployment"));
        assert!(!deployment.is_owner("apps/v1", "ReplicaSet"));
        assert!(Kind::of::<ConfigMap>().is_owner("v1", "ConfigMap"));
    }
}
