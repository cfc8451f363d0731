//! Restarts Pods when a ConfigMap or Secret changes that names them in an annotation:
//! `leasehold.dev/restart-pods: app=frontend`. An older form of ConfigMonitor, without a custom
//! resource; what both share is in [`crate::restarts`].
//!
//! [`annotation`] reads the request and keeps the record, in another annotation; `reconcile` compares
//! and acts: one controller for ConfigMaps, and one for Secrets where the administrator wants that.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::rbac::v1::PolicyRule;
use sdk::ControllerSpec;
use sdk::rbac::rule;
use serde_json::Value;

pub mod annotation;
mod reconcile;

use crate::Builtin;
use crate::restarts::settings;

/// The field manager of our changes.
const FIELD_MANAGER: &str = "restart-pods.leasehold.dev";
/// The part that reconciles Secrets.
const SECRETS: &str = "restart-pods-secrets";

/// The controller's row.
pub(crate) const BUILTIN: Builtin = Builtin {
    name: "restart-pods",
    crds: &[],
    keys: settings::KEYS,
    check: settings::check,
    build,
    rbac,
    more_rbac: &[(settings::WATCH_SECRETS, secrets)],
    target_rbac: None,
    example: include_str!("../../restart-pods/example.yaml"),
};

fn build(workers: usize, own: &Value) -> Vec<ControllerSpec> {
    let config_maps = reconcile::controller::<ConfigMap>(BUILTIN.name, workers);
    let secrets = || reconcile::controller::<Secret>(SECRETS, workers);
    std::iter::once(config_maps).chain(settings::watches_secrets(own).then(secrets)).collect()
}

/// The rights of the controller in a workload cluster.
fn rbac() -> Vec<PolicyRule> {
    let own = [
        // The patch is of the record.
        rule("", &["configmaps"], &["get", "list", "patch", "watch"]),
        rule("", &["pods"], &["list"]),
    ];
    own.into_iter().chain(settings::restarting(&["get", "list", "patch", "watch"])).collect()
}

/// Its rights where it watches Secrets.
fn secrets() -> Vec<PolicyRule> {
    vec![rule("", &["secrets"], &["get", "list", "patch", "watch"])]
}
