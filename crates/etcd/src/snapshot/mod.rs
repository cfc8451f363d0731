//! Snapshots of clusters: made once or by a schedule, kept at a destination, and restored from.
//!
//! ```text
//!   EtcdCluster.spec.snapshots ──▶ schedule ──▶ EtcdSnapshot ──▶ plan ──▶ Job: etcdctl saves, we store
//!   EtcdCluster.spec.restoreFrom ─▶ restore ──▶ Job on the first member's volume: we fetch, etcdutl
//!                                                restores, we give the data its name
//! ```
//!
//! [`api`] is the EtcdSnapshot. `jobs` makes the Jobs and `seen` reads what became of them. `plan`
//! decides the next step of an EtcdSnapshot, `reconcile` takes it; `schedule` does both for the
//! schedule of a cluster. `restore` decides for a cluster that begins with a snapshot, and
//! `restore_reconcile` takes that step.
//!
//! Each step can be taken twice. A name at a destination belongs to the uid of one EtcdSnapshot, so a
//! Job that runs again finds what the first one stored. A volume gets its data by one rename, which
//! never replaces data.

pub mod api;
mod jobs;
mod plan;
mod reconcile;
mod restore;
mod restore_reconcile;
mod schedule;
mod seen;
mod settings;

pub use api::EtcdSnapshot;
pub(crate) use seen::JobSeen;
pub use settings::Settings;

use k8s_openapi::api::rbac::v1::PolicyRule;
use sdk::ControllerSpec;
use sdk::rbac::{events, rule};

/// The name of the controller that these are parts of.
const WHOLE: &str = "etcd";

/// The parts of the controller that deal with snapshots.
pub(crate) fn controllers(workers: usize, settings: &Settings) -> Vec<ControllerSpec> {
    vec![
        reconcile::controller(workers, settings.clone()),
        schedule::controller(workers),
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
