//! Etcd: runs clusters of etcd, each member with a Pod and a volume of its own.
//!
//! ```text
//!   EtcdCluster ─▶ wanted ─────────────┐
//!   Pods, volumes ─▶ observed ─────────┼─▶ plan ─▶ one step ─▶ steps ─▶ API server, etcd
//!   etcd ─▶ calls ─▶ asking ───────────┘             └─▶ change, report ─▶ status, Events
//! ```
//!
//! In data order: [`api`] is the EtcdCluster; `names` says what belongs together; `wanted` reads the
//! spec and `version` its version; `objects` makes Pods, volumes and Services, `certificates` what they
//! prove themselves with. `calls` is what etcd is asked, `connection` how; `asking` decides whom.
//! `observed` is all that together. `plan` decides the next step, with `members`, `founding`, `membership`
//! and `upkeep`; `step` says what it can be, `steps` takes it, and
//! `change`, `report` and `events` say what it was. `plan` argues why no step loses data. [`snapshot`]
//! makes snapshots and begins clusters with them.

#![deny(unreachable_pub)]

use std::sync::Arc;

use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use sdk::ControllerSpec;
use sdk::rbac::{events, port_forward, rule};

pub mod api;
mod asking;
mod calls;
mod certificates;
mod change;
mod connection;
mod events;
mod founding;
#[cfg(test)]
mod fuzz;
mod members;
mod membership;
mod names;
mod objects;
mod observed;
mod plan;
mod reconcile;
mod report;
pub mod snapshot;
mod step;
mod steps;
#[cfg(test)]
mod tests;
mod upkeep;
mod version;
mod wanted;

pub use api::EtcdCluster;
pub use calls::{Address, EtcdError, Gateway, Session, Trust};
pub use connection::PodGateway;
pub use snapshot::{EtcdSnapshot, Settings};

/// Its name in the configuration, in metrics and in shards.
pub const NAME: &str = "etcd";

/// The CRDs of its kinds.
pub const CRDS: &[fn() -> CustomResourceDefinition] = &[
    <EtcdCluster as kube::CustomResourceExt>::crd,
    <EtcdSnapshot as kube::CustomResourceExt>::crd,
];

/// A manifest that shows it at work.
pub const EXAMPLE: &str = include_str!("../example.yaml");

/// The field manager of our fields.
const FIELD_MANAGER: &str = "etcd.leasehold.dev";

/// The parts of the controller. It reaches etcd through `gateway`: [`PodGateway`], or a stand-in in a
/// test.
pub fn controllers(
    workers: usize,
    gateway: Arc<dyn Gateway>,
    settings: &Settings,
) -> Vec<ControllerSpec> {
    let mut parts = vec![reconcile::controller(workers, gateway)];
    parts.extend(snapshot::controllers(workers, settings));
    parts
}

/// The rights of the controller in a workload cluster.
pub fn rbac() -> Vec<PolicyRule> {
    let mut rights = vec![
        rule("data.leasehold.dev", &["etcdclusters"], &["get", "list", "watch"]),
        rule("data.leasehold.dev", &["etcdclusters/status"], &["update"]),
        // An ownerReference that blocks deletion asks for this where
        // OwnerReferencesPermissionEnforcement is on.
        rule("data.leasehold.dev", &["etcdclusters/finalizers"], &["update"]),
        rule("", &["pods"], &["create", "delete", "get", "list", "watch"]),
        rule(
            "",
            &["persistentvolumeclaims"],
            &["create", "delete", "get", "list", "patch", "watch"],
        ),
        rule("", &["services"], &["create", "get", "list", "patch", "watch"]),
        rule("policy", &["poddisruptionbudgets"], &["create", "get", "list", "patch", "watch"]),
        rule("", &["secrets"], &["create", "delete", "get", "patch"]),
        port_forward(),
        events(),
    ];
    rights.extend(snapshot::rbac());
    rights
}
