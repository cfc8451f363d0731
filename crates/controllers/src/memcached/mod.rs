//! Memcached: a cache of several nodes with stable names, over which clients spread their keys.
//!
//! In data order: [`api`] is what users write; `sizing` and `arguments` say what memcached is started with,
//! and `invalid` what is wrong with a spec; `desired` makes the children of it; `plan` compares them with
//! those that exist, or names the `obstacle`; `reconcile` carries the plan out; `nodes` reads the Pods, and
//! `status` describes the outcome.

use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::CustomResourceExt;
use sdk::rbac::{events, rule};

pub mod api;
mod arguments;
mod desired;
#[cfg(test)]
mod fuzz;
mod invalid;
mod nodes;
mod obstacle;
mod plan;
mod reconcile;
mod sizing;
mod status;

pub use api::Memcached;

use crate::Builtin;

/// The name under which server-side apply records our fields.
const FIELD_MANAGER: &str = "memcached.leasehold.dev";

/// The controller's row.
pub(crate) const BUILTIN: Builtin = Builtin {
    name: "memcached",
    crds: &[Memcached::crd],
    keys: &[],
    check: crate::anything,
    build: |workers, _| vec![reconcile::controller(workers)],
    rbac,
    more_rbac: &[],
    target_rbac: None,
    example: include_str!("../../memcached/example.yaml"),
};

/// The rights of the controller in a workload cluster.
fn rbac() -> Vec<PolicyRule> {
    const GROUP: &str = "data.leasehold.dev";
    vec![
        rule(GROUP, &["memcacheds"], &["list", "watch"]),
        rule(GROUP, &["memcacheds/status"], &["update"]),
        // An ownerReference that blocks deletion asks for this where
        // OwnerReferencesPermissionEnforcement is on.
        rule(GROUP, &["memcacheds/finalizers"], &["update"]),
        rule("apps", &["statefulsets"], &["create", "list", "patch", "watch"]),
        rule("", &["services"], &["create", "list", "patch", "watch"]),
        rule("policy", &["poddisruptionbudgets"], &["create", "delete", "list", "patch", "watch"]),
        rule("", &["pods"], &["list", "watch"]),
        events(),
    ]
}
