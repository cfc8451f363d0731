//! Snapshots of clusters: made once or by a schedule, kept at a destination, and restored from.
//!
//! ```text
//!   EtcdCluster.spec.snapshots ──▶ schedule ──▶ EtcdSnapshot ──▶ plan ──▶ Job: etcdctl saves, we store
//!   EtcdCluster.spec.restoreFrom ─▶ restore ──▶ Job on the first member's volume: we fetch, etcdutl
//!                                                restores, we give the data its name
//! ```
//!
//! [`api`] is the EtcdSnapshot. `jobs` makes the Jobs. `kinds` tells `operands::archive`, which does what is
//! the same for all databases, about EtcdSnapshots and about the schedule of an EtcdCluster. `restore` says
//! which snapshot a cluster begins with, and `restore_reconcile` sees to it.

pub mod api;
mod jobs;
mod kinds;
mod restore;
mod restore_reconcile;

pub use api::EtcdSnapshot;
pub use operands::archive::Settings;

use k8s_openapi::api::rbac::v1::PolicyRule;
use operands::archive;
use sdk::ControllerSpec;
use sdk::rbac::{events, rule};

use crate::api::EtcdCluster;

/// The name of the controller that these are parts of.
const WHOLE: &str = "etcd";

/// The parts of the controller that deal with snapshots.
pub(crate) fn controllers(workers: usize, settings: &Settings) -> Vec<ControllerSpec> {
    vec![
        archive::controller::<EtcdSnapshot>(workers, settings.clone()),
        archive::scheduler::<EtcdCluster>(workers),
        restore_reconcile::controller(workers, settings.clone()),
    ]
}

/// The rights that they need in a workload cluster.
pub(crate) fn rbac() -> Vec<PolicyRule> {
    const GROUP: &str = "data.leasehold.dev";
    vec![
        rule(GROUP, &["etcdsnapshots"], &["create", "delete", "get", "list", "patch", "watch"]),
        rule(GROUP, &["etcdsnapshots/status"], &["update"]),
        rule(GROUP, &["etcdsnapshots/finalizers"], &["update"]),
        rule(GROUP, &["etcdclusters"], &["list", "watch"]),
        rule(GROUP, &["etcdclusters/status"], &["patch"]),
        rule("batch", &["jobs"], &["create", "delete", "get", "list", "watch"]),
        rule("", &["pods"], &["list"]),
        rule("", &["secrets", "persistentvolumeclaims"], &["get"]),
        events(),
    ]
}
