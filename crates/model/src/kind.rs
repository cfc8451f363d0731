//! Kinds that can be watched, and their identity without the Rust type.

use std::any::{Any, TypeId};
use std::fmt;
use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::ClusterResourceScope;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta, TypeMeta};
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

/// An object of any kind: of a Rust type, which is an [`Object`], or of a kind that is known at run
/// time only, as a `DynamicObject` or, where its metadata is enough, a `PartialObjectMeta`.
///
/// Implemented for everything that qualifies; never implement it by hand.
pub trait AnyObject:
    kube::Resource + DeserializeOwned + Serialize + Clone + Debug + Send + Sync + 'static
{
    /// Its kind, if the Rust type determines it.
    fn static_kind() -> Option<Kind>;

    /// The kind in the object itself, if the Rust type does not determine it.
    fn type_meta(&self) -> Option<&TypeMeta>;

    /// Sets the kind in the object itself, if the Rust type does not determine it.
    fn set_kind(&mut self, kind: &Kind);
}

impl<K> AnyObject for K
where
    K: kube::Resource + DeserializeOwned + Serialize + Clone + Debug + Send + Sync + 'static,
{
    fn static_kind() -> Option<Kind> {
        let nothing: &dyn Any = &();
        nothing.downcast_ref().map(Kind::at::<K>)
    }

    fn type_meta(&self) -> Option<&TypeMeta> {
        let object: &dyn Any = self;
        let types = object.downcast_ref().map(|whole: &DynamicObject| &whole.types);
        let types = types.or_else(|| Some(&object.downcast_ref::<PartialObjectMeta>()?.types));
        types?.as_ref()
    }

    fn set_kind(&mut self, kind: &Kind) {
        let object: &mut dyn Any = self;
        if let Some(DynamicObject { types, .. }) = object.downcast_mut() {
            *types = Some(kind.type_meta());
        } else if let Some(PartialObjectMeta::<DynamicObject> { types, .. }) = object.downcast_mut()
        {
            *types = Some(kind.type_meta());
        }
    }
}

/// A kind's identity. `Display` writes `Kind` for the core group, `group/Kind` otherwise.
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
    /// A kind that is known at run time: its API group, empty for the core group, version, name as
    /// in `Deployment`, name in URLs as in `deployments`, and whether its objects live in namespaces.
    ///
    /// ```
    /// let widgets = leasehold_model::Kind::new("example.com", "v1", "Widget", "widgets", true);
    /// assert_eq!(widgets.collection_path(Some("web")), "/apis/example.com/v1/namespaces/web/widgets");
    /// ```
    pub fn new(group: &str, version: &str, kind: &str, plural: &str, namespaced: bool) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
            plural: plural.into(),
            namespaced,
        }
    }

    /// The kind that a CRD defines, in its storage version if that is served, else in the first served
    /// version; `None` if none is served.
    pub fn of_crd(crd: &CustomResourceDefinition) -> Option<Self> {
        let spec = &crd.spec;
        let served = || spec.versions.iter().filter(|version| version.served);
        let version = served().find(|version| version.storage).or_else(|| served().next())?;
        let (kind, plural) = (&spec.names.kind, &spec.names.plural);
        Some(Self::new(&spec.group, &version.name, kind, plural, spec.scope == "Namespaced"))
    }

    /// The kind of a resource that kube's discovery found.
    pub fn of_resource(resource: &ApiResource, namespaced: bool) -> Self {
        let ApiResource { group, version, kind, plural, .. } = resource;
        Self::new(group, version, kind, plural, namespaced)
    }

    /// The kind for kube's functions for run-time kinds, as `DynamicObject::new` and `Api::all_with`.
    pub fn api_resource(&self) -> ApiResource {
        ApiResource {
            group: self.group.to_string(),
            version: self.version.to_string(),
            api_version: self.api_version(),
            kind: self.kind.to_string(),
            plural: self.plural.to_string(),
        }
    }

    /// Its resource as kubectl names it: `deployments.apps`, `pods`.
    pub fn resource(&self) -> String {
        match &*self.group {
            "" => self.plural.to_string(),
            group => format!("{}.{group}", self.plural),
        }
    }

    /// What its objects carry as `apiVersion` and `kind`.
    pub fn type_meta(&self) -> TypeMeta {
        TypeMeta { api_version: self.api_version(), kind: self.kind.to_string() }
    }

    /// The identity of a Rust type.
    pub fn of<K: Object>() -> Self {
        Self::at::<K>(&())
    }

    fn at<K: kube::Resource + 'static>(known: &K::DynamicType) -> Self {
        Self {
            group: K::group(known).as_ref().into(),
            version: K::version(known).as_ref().into(),
            kind: K::kind(known).as_ref().into(),
            plural: K::plural(known).as_ref().into(),
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
    fn a_definition_names_its_kind_in_a_version_that_is_served() {
        let crd = |versions: serde_json::Value| -> CustomResourceDefinition {
            serde_json::from_value(serde_json::json!({"metadata": {"name": "widgets.example.com"},
                "spec": {"group": "example.com", "scope": "Cluster", "versions": versions,
                    "names": {"kind": "Widget", "plural": "widgets"}}}))
            .unwrap()
        };
        let version = |name: &str, served: bool, storage: bool| serde_json::json!({"name": name, "served": served, "storage": storage});
        let stored =
            crd(serde_json::json!([version("v1", true, false), version("v2", true, true)]));
        let kind = Kind::of_crd(&stored).unwrap();
        assert_eq!(kind, Kind::new("example.com", "v2", "Widget", "widgets", false));
        assert_eq!(Kind::of_resource(&kind.api_resource(), false), kind);
        let old = crd(serde_json::json!([version("v1", true, false), version("v2", false, true)]));
        assert_eq!(&*Kind::of_crd(&old).unwrap().version, "v1");
        assert!(Kind::of_crd(&crd(serde_json::json!([version("v1", false, true)]))).is_none());
    }

    #[test]
    fn an_object_says_its_kind_where_its_type_does_not() {
        let kind = Kind::new("example.com", "v1", "Widget", "widgets", true);
        let mut widget = DynamicObject::new("a", &kind.api_resource());
        assert_eq!(widget.type_meta(), Some(&kind.type_meta()));
        widget.types = None;
        widget.set_kind(&kind);
        assert_eq!((DynamicObject::static_kind(), widget.types), (None, Some(kind.type_meta())));
        let partial = <PartialObjectMeta<ConfigMap> as AnyObject>::static_kind();
        assert_eq!(partial, ConfigMap::static_kind());
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
