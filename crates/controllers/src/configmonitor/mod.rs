//! ConfigMonitor: Pods restart once for each change of a ConfigMap's or Secret's content.
//!
//! In data order: [`api`] is what users write and where restarts are recorded; [`crate::restarts`] takes
//! their steps; `reconcile` records each of them, in the words of `plan`.

use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::CustomResourceExt;
use sdk::rbac::rule;

pub mod api;
#[cfg(test)]
mod fuzz;
mod plan;
mod reconcile;

pub use api::ConfigMonitor;

use crate::Builtin;
use crate::restarts::settings;

/// The field manager of our changes of Pod templates.
const FIELD_MANAGER: &str = "configmonitor.leasehold.dev";

/// The controller's row.
pub(crate) const BUILTIN: Builtin = Builtin {
    name: "configmonitor",
    crds: &[ConfigMonitor::crd],
    keys: settings::KEYS,
    check: settings::check,
    build: |workers, own| vec![reconcile::controller(workers, settings::watches_secrets(own))],
    rbac,
    more_rbac: &[(settings::WATCH_SECRETS, secrets)],
    target_rbac: None,
    example: include_str!("../../configmonitor/example.yaml"),
};

/// The rights of the controller in a workload cluster.
fn rbac() -> Vec<PolicyRule> {
    let own = [
        rule("magalix.com", &["configmonitors"], &["get", "list", "watch"]),
        rule("magalix.com", &["configmonitors/status"], &["update"]),
        rule("", &["configmaps"], &["get", "list", "watch"]),
        rule("", &["pods"], &["list", "watch"]),
    ];
    own.into_iter().chain(settings::restarting(&["get", "list", "patch"])).collect()
}

/// Its rights where it watches Secrets.
fn secrets() -> Vec<PolicyRule> {
    vec![rule("", &["secrets"], &["get", "list", "watch"])]
}
