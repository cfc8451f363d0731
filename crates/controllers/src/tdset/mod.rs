//! TDSet: a Deployment whose number of replicas follows the hour of the day.
//!
//! In data order: [`api`] is what users write; `schedule` says how many replicas now and until
//! when; `plan` compares that with the children; `reconcile` carries the plan out; `status`
//! describes the outcome.

use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::CustomResourceExt;
use sdk::rbac::{events, rule};

pub mod api;
#[cfg(test)]
mod fuzz;
mod plan;
mod reconcile;
mod schedule;
mod status;

pub use api::TDSet;

use crate::Builtin;

/// The name under which server-side apply records our fields.
const FIELD_MANAGER: &str = "tdset.leasehold.dev";

/// The controller's row.
pub(crate) const BUILTIN: Builtin = Builtin {
    name: "tdset",
    crds: &[TDSet::crd],
    keys: &[],
    check: crate::anything,
    build: |workers, _| vec![reconcile::controller(workers)],
    rbac,
    example: include_str!("../../tdset/example.yaml"),
};

/// The rights of the controller in a workload cluster.
fn rbac() -> Vec<PolicyRule> {
    vec![
        rule("schedule.rs", &["tdsets"], &["list", "watch"]),
        rule("schedule.rs", &["tdsets/status"], &["update"]),
        // An ownerReference that blocks deletion asks for this where
        // OwnerReferencesPermissionEnforcement is on.
        rule("schedule.rs", &["tdsets/finalizers"], &["update"]),
        rule("apps", &["deployments"], &["create", "list", "patch", "watch"]),
        rule("", &["services"], &["create", "delete", "list", "patch", "watch"]),
        events(),
    ]
}
