//! The beginning of a cluster with a backup: it is brought onto the volume of the first instance, before
//! any Pod exists.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use kube::api::{Api, PostParams};
use operands::archive::Settings;
use operands::archive::jobs::Origin;
use operands::archive::restore::{
    Restore, Restored, end_restore, origin_of, restore, restoring_job,
};
use operands::children::is_of;
use sdk::refusal::refusal;
use sdk::{Context, ReconcileError};

use super::api::MySQLBackup;
use super::jobs;
use crate::api::MySQLCluster;
use crate::names::{self, UID_LABEL};
use crate::objects;
use crate::wanted::is_founded;

/// Sees to it that the first instance's volume holds the backup that the spec names, and says how far that
/// is. Nothing of the cluster may start before it says yes. What the Job mounts must exist: ConfigMap,
/// accounts and certificate. A cluster that was founded once is never asked about again.
///
/// # Errors
/// What the server says.
pub(crate) async fn begin(
    ctx: &Context,
    settings: &Settings,
    cluster: &MySQLCluster,
) -> Result<Restored, ReconcileError> {
    if !is_due(cluster) {
        return Ok(Restored::Yes);
    }
    let name = names::restore(cluster);
    let job = restoring_job(ctx, cluster, &name).await?;
    let volume = volume(ctx, cluster).await?;
    let done = volume
        .as_ref()
        .and_then(ResourceExt::uid)
        .is_some_and(|uid| job.as_ref().is_some_and(|job| job.is_done_for(&uid)));
    if done {
        // The backup may be gone meanwhile.
        return Ok(Restored::Yes);
    }
    let namespace = cluster.namespace().unwrap_or_default();
    let backup = match &cluster.spec.from_backup {
        Some(name) => {
            Api::<MySQLBackup>::namespaced(ctx.client(), &namespace).get_opt(name).await?
        }
        None => None,
    };
    let origin = match origin(cluster, backup.as_ref()) {
        Ok(origin) => origin,
        Err(verdict) => return Ok(verdict),
    };
    let Some(volume) = volume else {
        let volumes = Api::namespaced(ctx.client(), &namespace);
        let first = objects::first_volume(cluster);
        return match volumes.create(&PostParams::default(), &first).await {
            Ok(_) => Ok(Restored::waits("the volume of the first instance was created")),
            Err(error) => match refusal(&error) {
                Some(words) => {
                    let volume = format!("PersistentVolumeClaim {}", first.name_any());
                    Ok(Restored::refused(&volume, &words))
                }
                None => Err(error.into()),
            },
        };
    };
    if let Some(verdict) = in_the_way(cluster, &volume) {
        return Ok(verdict);
    }
    if volume.metadata.deletion_timestamp.is_some() {
        let message = format!("volume {} is being deleted", volume.name_any());
        return Ok(Restored::waits(message));
    }
    let (uid, image) = (volume.uid().unwrap_or_default(), settings.image.as_deref());
    let wanted = Restore { job: &name, volume_uid: &uid, origin: &origin, image };
    let make = |image: &str| jobs::restore(cluster, &uid, &origin, image);
    restore(ctx, cluster, wanted, job.as_ref(), make).await
}

/// Ends the Job of a cluster that was founded: its Pod, which has ended, keeps the volume in use, so that a
/// volume that is deleted never goes.
///
/// # Errors
/// What the server says.
pub(crate) async fn end(ctx: &Context, cluster: &MySQLCluster) -> Result<(), ReconcileError> {
    let names_one = cluster.spec.from_backup.is_some() || cluster.spec.from_stored.is_some();
    if !names_one || !is_founded(cluster) {
        return Ok(());
    }
    match restoring_job(ctx, cluster, &names::restore(cluster)).await? {
        Some(job) => end_restore(ctx, cluster, &job).await,
        None => Ok(()),
    }
}

/// Why the backup is not brought onto a volume that is there: it may have the data of another cluster, which
/// would be taken for that of the backup.
fn in_the_way(cluster: &MySQLCluster, volume: &PersistentVolumeClaim) -> Option<Restored> {
    let label = volume.labels().get(UID_LABEL);
    let is_ours = label.is_some_and(|uid| Some(uid) == cluster.uid().as_ref());
    if is_ours || is_of(cluster, volume) {
        return None;
    }
    let name = volume.name_any();
    let message = format!(
        "PersistentVolumeClaim {name} exists and was not made for this MySQLCluster, so no backup is brought \
         onto it: delete it if nobody needs what is on it, or create a MySQLCluster with another name"
    );
    Some(Restored::stuck("VolumeInTheWay", message))
}

async fn volume(
    ctx: &Context,
    cluster: &MySQLCluster,
) -> Result<Option<PersistentVolumeClaim>, ReconcileError> {
    let namespace = cluster.namespace().unwrap_or_default();
    Ok(Api::namespaced(ctx.client(), &namespace).get_opt(&names::volume(cluster, 0)).await?)
}

/// Whether the spec names a backup, and the cluster was not founded yet.
fn is_due(cluster: &MySQLCluster) -> bool {
    let spec = &cluster.spec;
    let replication = cluster.status.as_ref().map(|status| &status.replication);
    let is_new = replication.is_none_or(|memory| memory.term == 0 && memory.primary.is_none());
    is_new && (spec.from_backup.is_some() || spec.from_stored.is_some())
}

/// Whether a cluster should begin with this backup, and has not been founded yet.
pub(crate) fn begins_with(cluster: &MySQLCluster, backup: &str) -> bool {
    is_due(cluster) && cluster.spec.from_backup.as_deref() == Some(backup)
}

/// Where the backup is that the spec names.
fn origin(cluster: &MySQLCluster, backup: Option<&MySQLBackup>) -> Result<Origin, Restored> {
    let spec = &cluster.spec;
    let origin = match (&spec.from_backup, &spec.from_stored) {
        (Some(name), _) => {
            let absent = format!(
                "MySQLBackup {name} does not exist in this namespace: create it, or create a MySQLCluster \
                 without fromBackup; nothing starts before"
            );
            origin_of(name, backup, Restored::stuck("BackupNotFound", absent))?
        }
        (None, Some(stored)) => Origin {
            destination: stored.destination.clone(),
            key: stored.key.clone(),
            sha256: None,
        },
        (None, None) => return Err(Restored::Yes),
    };
    match origin.destination.check() {
        Ok(()) => Ok(origin),
        Err(error) => {
            let message =
                format!("spec.fromStored cannot be used: {error}; create another MySQLCluster");
            Err(Restored::stuck("InvalidRestore", message))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testkit::{cluster, users};

    fn backup(status: Value) -> MySQLBackup {
        serde_json::from_value(json!({
            "apiVersion": "cr.mysqloperator.grtl.github.com/v1", "kind": "MySQLBackup",
            "metadata": {"name": "old", "namespace": "web"},
            "spec": {"cluster": "db", "destination": {"volume": {"claimName": "backups"}}},
            "status": status,
        }))
        .unwrap()
    }

    fn reason(verdict: Restored) -> &'static str {
        let Restored::No { reason, .. } = verdict else { panic!("{verdict:?}") };
        reason
    }

    #[test]
    fn an_absent_backup_is_said() {
        let Restored::No { reason, message, is_stuck } = origin(&users(), None).unwrap_err() else {
            panic!()
        };
        assert_eq!((reason, is_stuck), ("BackupNotFound", true));
        assert!(message.contains("MySQLBackup my-backup-2017-12-14-01-22"), "{message}");
    }

    #[test]
    fn what_the_spec_names_is_found_or_said() {
        let named = cluster(json!({"fromBackup": "old"}));
        let complete = backup(json!({"phase": "Complete", "key": "web/db/old"}));
        assert_eq!(origin(&named, Some(&complete)).unwrap().key, "web/db/old");
        for (status, expected) in [
            (json!({"phase": "Pending"}), "Restoring"),
            (json!({"phase": "Running", "key": "k"}), "Restoring"),
            (json!({"phase": "Failed", "key": "k"}), "BackupUnusable"),
        ] {
            assert_eq!(reason(origin(&named, Some(&backup(status))).unwrap_err()), expected);
        }
        let volume = json!({"volume": {"claimName": "backups"}});
        let stored = |destination: Value| {
            origin(&cluster(json!({"fromStored": {"destination": destination, "key": "a"}})), None)
        };
        assert_eq!(stored(volume).unwrap().key, "a");
        assert_eq!(reason(stored(json!({})).unwrap_err()), "InvalidRestore");
    }

    #[test]
    fn a_volume_that_another_cluster_left_behind_is_no_place_for_a_backup() {
        let cluster = cluster(json!({"fromBackup": "old"}));
        let own = objects::first_volume(&cluster);
        assert_eq!(in_the_way(&cluster, &own), None);
        let mut kept = own.clone();
        kept.metadata.owner_references = None;
        assert_eq!(in_the_way(&cluster, &kept), None, "it is known by its label");
        let mut earlier = own;
        earlier.labels_mut().remove(UID_LABEL);
        assert_eq!(in_the_way(&cluster, &earlier), None, "or by its owner");
        kept.labels_mut().insert(UID_LABEL.to_owned(), "u0".to_owned());
        for other in [kept, PersistentVolumeClaim::default()] {
            assert_eq!(reason(in_the_way(&cluster, &other).unwrap()), "VolumeInTheWay");
        }
    }

    #[test]
    fn a_cluster_is_restored_before_it_is_founded_and_never_after() {
        let due = |spec: Value, replication: Value| {
            let mut cluster = cluster(spec);
            cluster.status = serde_json::from_value(json!({"replication": replication})).unwrap();
            is_due(&cluster)
        };
        let from = || json!({"fromBackup": "old"});
        assert!(is_due(&cluster(from())) && due(from(), json!({})));
        assert!(!due(from(), json!({"term": 1})));
        assert!(!due(from(), json!({"primary": "db-0"})));
        assert!(!is_due(&cluster(json!({}))));
        let mut new = cluster(from());
        assert!(begins_with(&new, "old") && !begins_with(&new, "other"));
        new.status = serde_json::from_value(json!({"replication": {"term": 1}})).unwrap();
        assert!(!begins_with(&new, "old"));
    }
}
