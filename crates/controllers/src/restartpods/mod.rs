//! Restarts of Pods for a ConfigMap that says itself whom to restart, by an annotation:
//! `leasehold.dev/restart-pods: app=frontend`. ConfigMonitor's older form, without a custom resource,
//! and the same restarts: see [`crate::configmonitor`].
//!
//! [`annotation`] reads what is asked for and keeps the record, on the ConfigMap too; [`reconcile`]
//! compares and acts.

use k8s_openapi::api::rbac::v1::PolicyRule;

pub mod annotation;
mod reconcile;

use crate::Builtin;
use crate::rights::{events, rule};

/// The name under which our changes are recorded.
pub const FIELD_MANAGER: &str = "restart-pods.leasehold.dev";

/// The controller's row.
pub(crate) const BUILTIN: Builtin = Builtin {
    name: "restart-pods",
    by_default: false,
    crd: None,
    build: |workers| vec![reconcile::controller(workers)],
    rbac,
    example: include_str!("../../../../examples/restart-pods.yaml"),
};

/// The rights of the controller in a workload cluster.
fn rbac() -> Vec<PolicyRule> {
    vec![
        rule("", &["configmaps"], &["get", "list", "patch", "watch"]),
        rule("", &["pods"], &["delete", "list"]),
        rule("apps", &["replicasets"], &["get"]),
        rule("apps", &["daemonsets", "deployments", "statefulsets"], &["patch"]),
        events(),
    ]
}
