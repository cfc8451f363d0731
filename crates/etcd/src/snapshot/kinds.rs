//! What is particular to EtcdSnapshots, and to the schedule of an EtcdCluster.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use operands::archive::{
    Archived, Asked, DeletionPolicy, ScheduleStatus, Scheduled, Scheduling, Terms,
};
use operands::backup::destination::DestinationError;
use serde_json::{Value, json};

use super::api::{EtcdSnapshot, EtcdSnapshotSpec};
use super::jobs;
use crate::api::EtcdCluster;
use crate::names;

impl Archived for EtcdSnapshot {
    type Database = EtcdCluster;

    const TERMS: Terms = Terms {
        noun: "snapshot",
        controller: "etcd-snapshot",
        whole: super::WHOLE,
        finalizer: "data.leasehold.dev/stored-snapshot",
        annotation: "data.leasehold.dev/etcd-snapshot",
        unready: "has no healthy member yet",
        unusable: "SnapshotUnusable",
        dress: jobs::DRESS,
    };

    fn asked(&self) -> Asked<'_> {
        let spec = &self.spec;
        Asked {
            database: &spec.cluster,
            destination: &spec.destination,
            deletion_policy: spec.deletion_policy,
        }
    }

    fn serving(cluster: &EtcdCluster) -> Option<String> {
        let status = cluster.status.as_ref()?;
        let serves = status.ready.as_deref().is_some_and(|ready| !ready.starts_with("0/"));
        status.version.clone().filter(|_| status.cluster_id.is_some() && serves)
    }

    fn store(
        &self,
        cluster: &EtcdCluster,
        version: &str,
        key: &str,
        image: &str,
    ) -> Result<Job, DestinationError> {
        jobs::store(self, cluster, version, key, image)
    }
}

impl Scheduled for EtcdCluster {
    type Backup = EtcdSnapshot;

    const CONTROLLER: &'static str = "etcd-schedule";
    const SCHEDULED_BY: &'static str = "data.leasehold.dev/scheduled-by";
    const FIELD: &'static str = "spec.snapshots";

    fn scheduling(&self) -> Option<&Scheduling> {
        self.spec.snapshots.as_ref()
    }

    fn recorded(&self) -> Option<&ScheduleStatus> {
        self.status.as_ref()?.snapshots.as_ref()
    }

    fn recording(status: Value) -> Value {
        json!({"snapshots": status})
    }

    fn database(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    fn backup(&self, scheduling: &Scheduling, mut metadata: ObjectMeta) -> EtcdSnapshot {
        metadata.labels = Some(names::labels(self));
        let spec = EtcdSnapshotSpec {
            cluster: self.metadata.name.clone().unwrap_or_default(),
            destination: scheduling.destination.clone(),
            deletion_policy: DeletionPolicy::Delete,
        };
        EtcdSnapshot { metadata, spec, status: None }
    }
}
