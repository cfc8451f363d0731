//! Backups of clusters: made once or by a schedule, kept at a destination, and restored from.
//!
//! ```text
//!   MySQLBackupSchedule ──▶ MySQLBackup ──▶ Job: mysqldump asks a replica, we store
//!   MySQLCluster.spec.fromBackup ─────────▶ Job on the first instance's volume: we fetch, mysqld makes its
//!                                           data with it
//! ```
//!
//! [`api`] is the MySQLBackup and the MySQLBackupSchedule. `jobs` makes the Jobs. `kinds` tells
//! `operands::archive`, which does what is the same for all databases, about both. `restore` sees to it
//! that a cluster begins with its backup.

pub mod api;
mod jobs;
mod kinds;
mod restore;

pub use api::{MySQLBackup, MySQLBackupSchedule};
pub use operands::archive::{BackupPhase, Settings};
pub(crate) use restore::{begin, begins_with, end};

use k8s_openapi::api::rbac::v1::PolicyRule;
use operands::archive;
use sdk::ControllerSpec;
use sdk::rbac::rule;

/// The name of the controller that these are parts of.
const WHOLE: &str = "mysql";
/// The group of the kinds.
const GROUP: &str = "cr.mysqloperator.grtl.github.com";

/// The parts of the controller that deal with backups.
pub(crate) fn controllers(workers: usize, settings: &Settings) -> Vec<ControllerSpec> {
    vec![
        archive::controller::<MySQLBackup>(workers, settings.clone()),
        archive::scheduler::<MySQLBackupSchedule>(workers),
    ]
}

/// The rights that they need in a workload cluster.
pub(crate) fn rbac() -> Vec<PolicyRule> {
    let watch = ["get", "list", "watch"];
    vec![
        rule(GROUP, &["mysqlbackups"], &["create", "delete", "get", "list", "patch", "watch"]),
        rule(GROUP, &["mysqlbackups/status"], &["update"]),
        rule(GROUP, &["mysqlbackupschedules"], &watch),
        rule(GROUP, &["mysqlbackupschedules/status"], &["patch"]),
        // An ownerReference that blocks deletion asks for this where
        // OwnerReferencesPermissionEnforcement is on.
        rule(GROUP, &["mysqlbackups/finalizers"], &["update"]),
        rule("batch", &["jobs"], &["create", "delete", "get", "list", "watch"]),
        rule("", &["pods"], &["list"]),
        rule("", &["secrets"], &["get"]),
        rule("", &["persistentvolumeclaims"], &["create", "get"]),
    ]
}
