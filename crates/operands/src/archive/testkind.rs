//! Kinds for tests: a database that is a ConfigMap, its backups and their schedule.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::api::{BackupStatus, DeletionPolicy, ScheduleStatus, Scheduling};
use super::jobs::{self, Work, container, job, storing};
use super::kind::{Archived, Asked, Dress, Terms};
use super::schedule::Scheduled;
use crate::backup::destination::{Destination, DestinationError};

#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(group = "test", version = "v1", kind = "Dump", namespaced, status = "BackupStatus")]
#[kube(derive = "PartialEq")]
#[serde(rename_all = "camelCase")]
pub(super) struct DumpSpec {
    pub(super) database: String,
    pub(super) destination: Destination,
    #[serde(default)]
    pub(super) deletion_policy: DeletionPolicy,
}

#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(group = "test", version = "v1", kind = "Plan", namespaced, status = "ScheduleStatus")]
pub(super) struct PlanSpec {
    #[serde(flatten)]
    pub(super) scheduling: Option<Scheduling>,
}

impl Archived for Dump {
    type Database = ConfigMap;

    const TERMS: Terms = Terms {
        noun: "dump",
        controller: "test",
        whole: "test",
        finalizer: "test/stored",
        annotation: "test/dump",
        unready: "does not serve yet",
        unusable: "DumpUnusable",
        dress: Dress { app: "test", role: "test/job", user: 7 },
    };

    fn asked(&self) -> Asked<'_> {
        let DumpSpec { database, destination, deletion_policy } = &self.spec;
        Asked { database, destination, deletion_policy: *deletion_policy }
    }

    fn serving(database: &ConfigMap) -> Option<String> {
        database.data.as_ref()?.get("version").cloned()
    }

    fn store(
        &self,
        _: &ConfigMap,
        version: &str,
        key: &str,
        image: &str,
    ) -> Result<Job, DestinationError> {
        let access = self.spec.destination.access(false)?;
        let save = container("save", &format!("db:{version}"), None, Vec::new(), Vec::new());
        let store = storing(self, (key, version), ("/work/f", "mysql-dump"), image, &access);
        let name = jobs::store_name(self);
        let work = Work { name: &name, namespace: "web", role: "store", judge: "store" };
        Ok(job(&Self::TERMS.dress, work, (vec![save], store), Vec::new(), &access))
    }
}

impl Scheduled for Plan {
    type Backup = Dump;

    const CONTROLLER: &'static str = "test-schedule";
    const SCHEDULED_BY: &'static str = "test/by";
    const FIELD: &'static str = "spec";

    fn scheduling(&self) -> Option<&Scheduling> {
        self.spec.scheduling.as_ref()
    }

    fn recorded(&self) -> Option<&ScheduleStatus> {
        self.status.as_ref()
    }

    fn recording(status: Value) -> Value {
        status
    }

    fn database(&self) -> &str {
        "db"
    }

    fn backup(&self, scheduling: &Scheduling, metadata: ObjectMeta) -> Dump {
        let (database, destination) = ("db".to_owned(), scheduling.destination.clone());
        let spec = DumpSpec { database, destination, deletion_policy: DeletionPolicy::Delete };
        Dump { metadata, spec, status: None }
    }
}

/// The Dump `web/db-1` of the database `db`, changed.
pub(super) fn dump(change: Value) -> Dump {
    let mut object = json!({
        "apiVersion": "test/v1", "kind": "Dump",
        "metadata": {"name": "db-1", "namespace": "web", "uid": "s1", "generation": 1,
            "creationTimestamp": "2026-03-01T11:59:00Z"},
        "spec": {"database": "db", "destination": {"volume": {"claimName": "backups"}}},
    });
    merge(&mut object, change);
    serde_json::from_value(object).unwrap()
}

/// Puts the fields of one object into those of another, at every depth.
pub(super) fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}
