//! Mappings for [`crate::Controller::watches`]: which primary objects a change of another kind
//! concerns.
//!
//! ```
//! # use leasehold_sdk::{Action, Context, Controller, ReconcileError, Reconciler, mapping};
//! # use k8s_openapi::api::{apps::v1::Deployment, core::v1::{ConfigMap, Secret}};
//! # struct Roll;
//! # impl Reconciler for Roll {
//! #     type Kind = Deployment;
//! #     async fn reconcile(&self, _: &Context, _: &leasehold_sdk::ObjectKey) -> Result<Action, ReconcileError> {
//! #         Ok(Action::Done)
//! #     }
//! # }
//! let spec = Controller::for_kind::<Deployment>("roll")
//!     .watches::<ConfigMap>(mapping::named_by_label("example.com/deployment"))
//!     .watches::<Secret>(mapping::namesake())
//!     .reconciler(Roll);
//! ```

use kube::ResourceExt;

use crate::across::FleetLookup;
use crate::lookup::Lookup;
pub use crate::lookup::Name;
use model::{AnyObject, ClusterName, Object, ObjectKey, Selector};

/// The primary object of the same namespace and name.
pub fn namesake<C: AnyObject>() -> impl Fn(&C, &Lookup<'_>) -> Vec<Name> + Send + Sync + 'static {
    |object, _| vec![(object.namespace(), object.name_any())]
}

/// The primary object of the same namespace that a label names.
pub fn named_by_label<C: AnyObject>(
    key: &str,
) -> impl Fn(&C, &Lookup<'_>) -> Vec<Name> + Send + Sync + 'static {
    let key = key.to_owned();
    move |object, _| named(object, object.labels().get(&key))
}

/// The primary object of the same namespace that an annotation names.
pub fn named_by_annotation<C: AnyObject>(
    key: &str,
) -> impl Fn(&C, &Lookup<'_>) -> Vec<Name> + Send + Sync + 'static {
    let key = key.to_owned();
    move |object, _| named(object, object.annotations().get(&key))
}

/// Every primary object of kind `K` in the same namespace; all of the cluster, if the changed object
/// has no namespace. None of them is decoded.
pub fn all_in_namespace<C: AnyObject, K: Object>()
-> impl Fn(&C, &Lookup<'_>) -> Vec<Name> + Send + Sync + 'static {
    |object, lookup| lookup.names::<K>(object.namespace().as_deref(), &Selector::all())
}

/// For [`crate::Controller::watches_across`]: maps an object of cluster `from` to the primary objects of
/// the same namespace and name in every other cluster. Objects of other clusters map to nothing.
pub fn namesakes_elsewhere<C: AnyObject>(
    from: ClusterName,
) -> impl Fn(&C, &FleetLookup<'_>) -> Vec<ObjectKey> + Send + Sync + 'static {
    move |object, lookup| {
        if *lookup.cluster() != from {
            return Vec::new();
        }
        let elsewhere = lookup.clusters().into_iter().filter(|cluster| *cluster != from);
        let (namespace, name) = (object.namespace(), object.name_any());
        elsewhere.map(|cluster| ObjectKey::new(cluster, namespace.as_deref(), &name)).collect()
    }
}

/// For [`crate::Controller::watches_across`]: maps an object of any other cluster to the primary object
/// of the same namespace and name in cluster `to`.
pub fn namesake_in<C: AnyObject>(
    to: ClusterName,
) -> impl Fn(&C, &FleetLookup<'_>) -> Vec<ObjectKey> + Send + Sync + 'static {
    move |object, lookup| {
        if *lookup.cluster() == to {
            return Vec::new();
        }
        vec![ObjectKey::new(to.clone(), object.namespace().as_deref(), &object.name_any())]
    }
}

fn named<C: AnyObject>(object: &C, name: Option<&String>) -> Vec<Name> {
    name.map(|name| (object.namespace(), name.clone())).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;
    use cache::StoreWriter;
    use engine::CacheView;
    use model::Kind;

    #[test]
    fn what_is_named_is_found_in_the_namespace_of_who_names_it() {
        let map: ConfigMap = serde_json::from_value(json!({"metadata": {
            "name": "m", "namespace": "web", "labels": {"for": "a"}, "annotations": {"for": "b"},
        }}))
        .unwrap();
        let view = CacheView::default();
        let lookup = Lookup::new(&view);
        let name = |name: &str| vec![(Some("web".to_owned()), name.to_owned())];
        assert_eq!(namesake()(&map, &lookup), name("m"));
        assert_eq!(named_by_label("for")(&map, &lookup), name("a"));
        assert_eq!(named_by_annotation("for")(&map, &lookup), name("b"));
        assert_eq!(named_by_label("other")(&map, &lookup), []);
    }

    #[test]
    fn those_of_a_namespace_are_named_though_nobody_can_decode_them() {
        let mut writer = StoreWriter::default();
        for (namespace, name, data) in [
            ("web", "a", json!({"key": "text"})),
            ("web", "b", json!({"key": ["no text"]})),
            ("other", "c", json!({})),
        ] {
            let metadata =
                json!({"namespace": namespace, "name": name, "uid": name, "resourceVersion": "1"});
            let object = json!({"metadata": metadata, "data": data});
            let entry = writer.parse(&object.to_string()).unwrap();
            writer.upsert(&entry);
        }
        let view = CacheView::new(vec![(Kind::of::<ConfigMap>(), writer.store())]);
        let lookup = Lookup::new(&view);
        let mut changed = ConfigMap::default();
        changed.metadata.namespace = Some("web".to_owned());
        let names = |map: &ConfigMap| {
            let found = all_in_namespace::<ConfigMap, ConfigMap>()(map, &lookup);
            found.into_iter().map(|(_, name)| name).collect::<Vec<_>>()
        };
        assert_eq!(names(&changed), ["a", "b"]);
        assert_eq!(names(&ConfigMap::default()), ["c", "a", "b"]);
    }
}
