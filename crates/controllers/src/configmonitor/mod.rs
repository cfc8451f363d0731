//! ConfigMonitor: Pods restart once for each change of a ConfigMap's content.
//!
//! In data order: [`api`] is what users write and where restarts are recorded; [`crate::restarts`] takes
//! their steps; `reconcile` records each of them, in the words of `plan`.

use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::CustomResourceExt;
use sdk::rbac::{events, rule};

pub mod api;
mod plan;
mod reconcile;

pub use api::ConfigMonitor;

use crate::Builtin;

/// The field manager of our changes of Pod templates.
const FIELD_MANAGER: &str = "configmonitor.leasehold.dev";

/// The controller's row.
pub(crate) const BUILTIN: Builtin = Builtin {
    name: "configmonitor",
    crds: &[ConfigMonitor::crd],
    keys: &[],
    check: crate::anything,
    build: |workers, _| vec![reconcile::controller(workers)],
    rbac,
    example: include_str!("../../configmonitor/example.yaml"),
};

/// The rights of the controller in a workload cluster.
fn rbac() -> Vec<PolicyRule> {
    vec![
        rule("magalix.com", &["configmonitors"], &["get", "list", "watch"]),
        rule("magalix.com", &["configmonitors/status"], &["update"]),
        rule("", &["configmaps"], &["get", "list", "watch"]),
        rule("", &["pods"], &["list", "watch"]),
        rule("", &["pods/eviction"], &["create"]),
        rule("apps", &["replicasets"], &["get"]),
        // Restarted, and read until they are.
        rule("apps", &["daemonsets", "deployments", "statefulsets"], &["get", "patch"]),
        rule("argoproj.io", &["rollouts"], &["get", "patch"]),
        events(),
    ]
}
