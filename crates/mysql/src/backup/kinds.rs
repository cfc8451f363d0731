//! What is particular to MySQLBackups and MySQLBackupSchedules.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use operands::archive::{
    Archived, Asked, DeletionPolicy, ScheduleStatus, Scheduled, Scheduling, Terms,
};
use operands::backup::destination::DestinationError;
use serde_json::Value;

use super::api::{MySQLBackup, MySQLBackupSchedule, MySQLBackupSpec};
use super::jobs;
use crate::api::MySQLCluster;

impl Archived for MySQLBackup {
    type Database = MySQLCluster;

    const TERMS: Terms = Terms {
        noun: "backup",
        controller: "mysql-backup",
        whole: super::WHOLE,
        finalizer: "mysql.leasehold.dev/stored-backup",
        annotation: "mysql.leasehold.dev/backup",
        unready: "has no instance that serves yet",
        unusable: "BackupUnusable",
        dress: jobs::DRESS,
    };

    fn asked(&self) -> Asked<'_> {
        let MySQLBackupSpec { cluster: database, destination, deletion_policy } = &self.spec;
        Asked { database, destination, deletion_policy: *deletion_policy }
    }

    fn serving(cluster: &MySQLCluster) -> Option<String> {
        let status = cluster.status.as_ref()?;
        let has_replica = || status.instances.iter().any(|one| one.is_ready && one.is_replica());
        let serves = match cluster.spec.replicas {
            1 => status.instances.iter().any(|one| one.is_ready),
            _ => has_replica(),
        };
        status.version.clone().filter(|_| serves)
    }

    fn store(
        &self,
        cluster: &MySQLCluster,
        version: &str,
        key: &str,
        image: &str,
    ) -> Result<Job, DestinationError> {
        jobs::store(self, cluster, version, key, image)
    }
}

impl Scheduled for MySQLBackupSchedule {
    type Backup = MySQLBackup;

    const CONTROLLER: &'static str = "mysql-schedule";
    const SCHEDULED_BY: &'static str = "mysql.leasehold.dev/scheduled-by";
    const FIELD: &'static str = "spec";

    fn scheduling(&self) -> Option<&Scheduling> {
        (!self.spec.suspend).then_some(&self.spec.scheduling)
    }

    fn recorded(&self) -> Option<&ScheduleStatus> {
        self.status.as_ref()
    }

    fn recording(status: Value) -> Value {
        status
    }

    fn database(&self) -> &str {
        &self.spec.cluster
    }

    fn backup(&self, scheduling: &Scheduling, metadata: ObjectMeta) -> MySQLBackup {
        let spec = MySQLBackupSpec {
            cluster: self.spec.cluster.clone(),
            destination: scheduling.destination.clone(),
            deletion_policy: DeletionPolicy::Delete,
        };
        MySQLBackup { metadata, spec, status: None }
    }
}

#[cfg(test)]
mod tests {
    use kube::CustomResourceExt;
    use serde_json::json;

    use super::*;
    use crate::testkit::cluster;

    #[test]
    fn a_backup_needs_a_replica_that_serves_or_the_only_instance() {
        let one =
            |role: &str, is_ready: bool| json!({"name": "x", "role": role, "isReady": is_ready});
        for (replicas, instances, expect) in [
            (3, json!([one("Primary", true), one("Replica", true)]), true),
            (3, json!([one("Primary", true), one("Replica", false), one("None", true)]), false),
            (1, json!([one("Primary", true)]), true),
            (1, json!([one("Primary", false)]), false),
        ] {
            let mut cluster = cluster(json!({"replicas": replicas}));
            let status = json!({"version": "9.1.0", "instances": instances});
            cluster.status = serde_json::from_value(status).unwrap();
            let expect = expect.then(|| "9.1.0".to_owned());
            assert_eq!(MySQLBackup::serving(&cluster), expect, "{replicas} {instances}");
        }
        assert_eq!(MySQLBackup::serving(&cluster(json!({}))), None);
    }

    #[test]
    fn a_schedule_says_everything_in_its_spec_and_may_be_suspended() {
        let schedule = |suspend: bool| -> MySQLBackupSchedule {
            serde_json::from_value(json!({
                "apiVersion": "cr.mysqloperator.grtl.github.com/v1", "kind": "MySQLBackupSchedule",
                "metadata": {"name": "my-backup", "namespace": "web"},
                "spec": {"cluster": "db", "schedule": "22 1 * * *", "timeZone": "Europe/Berlin",
                    "suspend": suspend, "destination": {"volume": {"claimName": "backups"}}},
            }))
            .unwrap()
        };
        assert_eq!(schedule(true).scheduling(), None);
        let scheduling = schedule(false).scheduling().unwrap().clone();
        assert_eq!((scheduling.keep, &*scheduling.time_zone), (7, "Europe/Berlin"));
        let made = schedule(false).backup(&scheduling, ObjectMeta::default());
        assert_eq!(schedule(false).database(), made.spec.cluster);
        assert_eq!(made.spec.destination, scheduling.destination);
        let crd = serde_json::to_value(MySQLBackupSchedule::crd()).unwrap();
        let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let fields = &schema["properties"]["spec"]["properties"];
        for field in ["cluster", "schedule", "timeZone", "keep", "destination", "suspend"] {
            assert!(fields.get(field).is_some(), "{field}: {fields}");
        }
    }
}
