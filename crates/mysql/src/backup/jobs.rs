//! The Jobs: one dumps a cluster and stores the dump, one restores. Pure.

use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use operands::archive::Dress;
use operands::archive::jobs::{
    self, Origin, WORK, Work, container, fetching, job, placed, restoring, storing, tool_resources,
};
use operands::backup::destination::DestinationError;
use serde_json::json;

use super::api::MySQLBackup;
use crate::api::MySQLCluster;
use crate::names::{self, FILES, PASSWORDS, TLS, VOLUME};
use crate::pods::{self, USER};
use crate::wanted::read as read_spec;

/// What the Jobs look like.
pub(super) const DRESS: Dress =
    Dress { app: "mysql-backup", role: "mysql.leasehold.dev/job", user: USER };
/// What our program checks of a dump.
const CHECK: &str = "mysql-dump";
/// Dumps a cluster; it runs in the image of the cluster.
const DUMP: &str = include_str!("dump.sh");
/// Makes the first instance's data with the dump, then removes the dump. Whoever made that data before is
/// left alone.
const LOAD: &str = "sh \"$0/init.sh\" \"$1\" && rm -rf \"$2\"";
/// Where a dump is fetched to.
const STAGE: &str = "/var/lib/mysql/restore";

/// The Job that dumps and stores. It asks a replica, so that the primary has no work with it; a single
/// instance has nobody else to ask.
pub(super) fn store(
    backup: &MySQLBackup,
    cluster: &MySQLCluster,
    version: &str,
    key: &str,
    image: &str,
) -> Result<Job, DestinationError> {
    let access = backup.spec.destination.access(false)?;
    let file = format!("{WORK}/dump.sql.gz");
    let service = match cluster.spec.replicas {
        1 => cluster.name_any(),
        _ => names::replicas(cluster),
    };
    let host = names::service_host(cluster, &service);
    let arguments = vec!["dump".to_owned(), host, cluster.spec.port.to_string(), file.clone()];
    let read = |name: &str, path: &str| json!({"name": name, "mountPath": path, "readOnly": true});
    let mounts = vec![
        json!({"name": "work", "mountPath": WORK}),
        read("accounts", PASSWORDS),
        read("tls", TLS),
    ];
    let volumes = vec![
        json!({"name": "work", "emptyDir": {}}),
        pods::keys("accounts", names::accounts(cluster), &["backup"]),
        pods::keys("tls", names::certificate(cluster), &["ca.crt"]),
    ];
    let shell = Some(&["/bin/sh", "-c", DUMP][..]);
    let mut dump = container("dump", &cluster.spec.image, shell, arguments, mounts);
    let (accepted, _) = read_spec(cluster);
    dump["resources"] = tool_resources(accepted.resources.as_ref());
    let store = storing(backup, (key, version), (&file, CHECK), image, &access);
    let (name, namespace) = (jobs::store_name(backup), cluster.namespace().unwrap_or_default());
    let work = Work { name: &name, namespace: &namespace, role: "store", judge: "store" };
    let job = job(&DRESS, work, (vec![dump], store), volumes, &access);
    Ok(with_pull_secrets(placed(job, &cluster.spec.pod, &accepted.pod), cluster))
}

/// The Job that restores a backup onto the volume of the first instance. It may run again at any time: it
/// begins with an empty folder for the dump, and data that is there already stays.
pub(super) fn restore(
    cluster: &MySQLCluster,
    volume_uid: &str,
    origin: &Origin,
    image: &str,
) -> Result<Job, DestinationError> {
    let access = origin.destination.access(true)?;
    let file = format!("{STAGE}/dump.sql.gz");
    let mount = json!({"name": "data", "mountPath": VOLUME});
    let fetch = fetching(origin, (&file, CHECK), STAGE, mount, image, &access);
    let arguments = vec![FILES.to_owned(), file, STAGE.to_owned()];
    let shell = Some(&["/bin/sh", "-c", LOAD][..]);
    let mut load = container("load", &cluster.spec.image, shell, arguments, pods::mounts());
    load["resources"] = cluster.spec.resources.clone().unwrap_or_else(|| json!({}));
    let mut volumes = pods::volumes(cluster);
    let claim = json!({"claimName": names::volume(cluster, 0)});
    volumes.push(json!({"name": "data", "persistentVolumeClaim": claim}));
    let (name, namespace) = (names::restore(cluster), cluster.namespace().unwrap_or_default());
    let work = Work { name: &name, namespace: &namespace, role: "restore", judge: "fetch" };
    let job = job(&DRESS, work, (vec![fetch], load), volumes, &access);
    let (accepted, _) = read_spec(cluster);
    // Its volume is bound where it runs, and the first instance has to run there later.
    let job = placed(restoring(job, volume_uid), &cluster.spec.pod, &accepted.pod);
    Ok(with_pull_secrets(job, cluster))
}

/// The Job with the Secrets by which it may pull the cluster's image.
fn with_pull_secrets(mut job: Job, cluster: &MySQLCluster) -> Job {
    let secrets: Vec<_> =
        cluster.spec.image_pull_secrets.iter().map(|name| json!({"name": name})).collect();
    if let Some(pod) = job.spec.as_mut().and_then(|spec| spec.template.spec.as_mut())
        && !secrets.is_empty()
    {
        pod.image_pull_secrets = Some(operands::pod::typed(secrets.into()));
    }
    job
}

#[cfg(test)]
#[path = "jobs_tests.rs"]
mod tests;
