//! Restarts Pods when a ConfigMap changes that names them in an annotation:
//! `leasehold.dev/restart-pods: app=frontend`. An older form of ConfigMonitor, without a custom
//! resource; what both share is in [`crate::restarts`].
//!
//! [`annotation`] reads the request and keeps the record, in another annotation; `reconcile` compares
//! and acts.

use k8s_openapi::api::rbac::v1::PolicyRule;
use sdk::rbac::{events, rule};

pub mod annotation;
mod reconcile;

use crate::Builtin;

/// The field manager of our changes.
const FIELD_MANAGER: &str = "restart-pods.leasehold.dev";

/// The controller's row.
pub(crate) const BUILTIN: Builtin = Builtin {
    name: "restart-pods",
    crds: &[],
    keys: &[],
    check: crate::anything,
    build: |workers, _| vec![reconcile::controller(workers)],
    rbac,
    example: include_str!("../../restart-pods/example.yaml"),
};

/// The rights of the controller in a workload cluster.
fn rbac() -> Vec<PolicyRule> {
    vec![
        rule("", &["configmaps"], &["get", "list", "patch", "watch"]),
        rule("", &["pods"], &["list"]),
        rule("", &["pods/eviction"], &["create"]),
        rule("apps", &["replicasets"], &["get"]),
        rule("apps", &["daemonsets", "deployments", "statefulsets"], &["get", "patch"]),
        rule("argoproj.io", &["rollouts"], &["get", "patch"]),
        events(),
    ]
}
