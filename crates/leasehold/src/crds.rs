//! The CustomResourceDefinitions that a fleet needs.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

/// Every definition: those of the home cluster and those of the built-in controllers.
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut all = home_crds();
    all.extend(workload_crds());
    all
}

/// The definitions of the home cluster: ShardMap, Member and FleetPolicy.
pub fn home_crds() -> Vec<CustomResourceDefinition> {
    sharding::api::crds()
}

/// The definitions of every workload cluster: the kinds of the built-in controllers.
#[cfg(feature = "builtin")]
pub fn workload_crds() -> Vec<CustomResourceDefinition> {
    controllers::crds()
}

/// The definitions of every workload cluster: none, as this build has no built-in controllers.
#[cfg(not(feature = "builtin"))]
pub fn workload_crds() -> Vec<CustomResourceDefinition> {
    Vec::new()
}

/// The rights that replicas need in their namespace of the home cluster.
pub fn home_rights() -> Vec<k8s_openapi::api::rbac::v1::PolicyRule> {
    sharding::rights()
}
