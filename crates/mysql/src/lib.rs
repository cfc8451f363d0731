//! MySQL: runs MySQL with replicas that take over.
//!
//! ```text
//!   MySQLCluster ─▶ wanted ─▶ prepare ─────┐    what instances need before they are asked
//!   Pods, volumes ─▶ observed ─────────────┼─▶ plan ─▶ one step ─▶ steps ─▶ API server, MySQL
//!   MySQL ─▶ calls ─▶ asking ──────────────┘             └─▶ report, events ─▶ status, Events
//! ```
//!
//! In data order: [`api`] is the MySQLCluster, `status` what is recorded of it, `memory` the part that the
//! plan relies on; `names` says what belongs together; `wanted` reads the spec and `version` versions.
//! `prepare` sees to what instances need: `objects` and `pods` make their objects, `config` their files,
//! `accounts` and `certificates` what they prove themselves with, `storage` lets volumes grow. `calls` is
//! what MySQL is asked, `server` in which terms; `session`, `looking` and `orders` ask a real one, over
//! `connection` and `wire`; `asking` decides whom. `observed` is all that together, with what `kept` has
//! from before. `plan` decides the next step and argues why none loses data; `steps` takes it, and
//! `report` and `events` say what it was. `keyring` has the passwords of our accounts, `rotation` decides
//! how they change, and `rotator` does it. [`backup`] makes backups and begins clusters with them.

#![deny(unreachable_pub)]

use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use sdk::ControllerSpec;

mod accounts;
mod ailment;
pub mod api;
mod asking;
pub mod backup;
mod calls;
mod certificates;
mod config;
mod connection;
mod diagnosis;
mod events;
#[cfg(test)]
mod fuzz;
mod gtid;
mod kept;
mod keyring;
mod looking;
mod memory;
mod names;
mod objects;
mod observed;
mod orders;
mod plan;
mod planted;
mod pods;
mod prepare;
mod random;
mod reconcile;
mod remembered;
mod report;
mod rights;
mod role;
mod rotation;
#[cfg(test)]
mod rotation_model;
mod rotator;
mod server;
mod session;
mod status;
mod step;
mod steps;
mod storage;
#[cfg(test)]
mod testkit;
mod version;
mod wanted;
mod wire;

pub use api::MySQLCluster;
pub use backup::{BackupPhase, MySQLBackup, MySQLBackupSchedule, Settings};
pub use memory::{Member, Memory};
pub use rights::rbac;
pub use status::{InstanceRole, InstanceStatus, MySQLClusterStatus};

/// Its name in the configuration, in metrics and in shards.
pub const NAME: &str = "mysql";

/// The CRDs of its kinds.
pub const CRDS: &[fn() -> CustomResourceDefinition] = &[
    <MySQLCluster as kube::CustomResourceExt>::crd,
    <MySQLBackup as kube::CustomResourceExt>::crd,
    <MySQLBackupSchedule as kube::CustomResourceExt>::crd,
];

/// A manifest that shows it at work.
pub const EXAMPLE: &str = include_str!("../example.yaml");

/// The field manager of our fields.
const FIELD_MANAGER: &str = "mysql.leasehold.dev";

/// The parts of the controller.
pub fn controllers(workers: usize, settings: &Settings) -> Vec<ControllerSpec> {
    let gateway = Arc::new(connection::PodGateway);
    let own = reconcile::controller(workers, gateway, settings.clone(), random::password);
    let mut parts = vec![own];
    parts.extend(backup::controllers(workers, settings));
    parts
}
