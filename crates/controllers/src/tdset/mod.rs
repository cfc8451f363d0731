//! TDSet: replicas that follow the clock, of a Deployment that it makes or of a workload that exists.
//!
//! In data order: [`api`] is what users write; `target` says which workload, of those that the administrator
//! allows; `schedule` says how many replicas now and until when, with days by `dates` and windows by `cron`,
//! and `coverage` what it leaves open; `plan` compares that with what is there, `children` being what it makes
//! itself, with the Pods of a `template`; `reconcile` carries the plan out, through `scaling` where a workload is
//! not its own; `status` describes the outcome. `invalid` is what can be wrong with a spec.

use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::CustomResourceExt;
use sdk::rbac::{events, rule};

pub mod api;
mod children;
mod coverage;
mod cron;
mod dates;
#[cfg(test)]
mod fuzz;
mod invalid;
mod plan;
mod reconcile;
mod scaling;
mod schedule;
mod status;
mod target;
mod template;

pub use api::TDSet;

use crate::Builtin;

/// The name under which server-side apply records our fields.
const FIELD_MANAGER: &str = "tdset.leasehold.dev";

/// The controller's row.
pub(crate) const BUILTIN: Builtin = Builtin {
    name: "tdset",
    crds: &[TDSet::crd],
    keys: target::KEYS,
    check: target::check,
    build: |workers, settings| vec![reconcile::controller(workers, settings)],
    rbac,
    more_rbac: &[],
    target_rbac: Some(target_rbac),
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
        rule("apps", &["deployments"], &["create", "delete", "list", "patch", "watch"]),
        // Of those that a targetRef names.
        rule("apps", &["statefulsets"], &["list", "watch"]),
        rule("apps", &["deployments/scale", "statefulsets/scale"], &["get", "patch"]),
        // Their minReplicas.
        rule("autoscaling", &["horizontalpodautoscalers"], &["list", "patch", "watch"]),
        rule("", &["services"], &["create", "delete", "list", "patch", "watch"]),
        events(),
    ]
}

/// The rights for a kind of `controllers.tdset.targets`. The chart gives the same.
fn target_rbac(group: &str, plural: &str) -> Vec<PolicyRule> {
    vec![
        rule(group, &[plural], &["list", "watch"]),
        rule(group, &[&format!("{plural}/scale")], &["get", "patch"]),
    ]
}
