//! Parts of the Jobs that save, store, delete and restore. Pure.
//!
//! Our own container exits with 3 if it fails until somebody changes something: then the Job fails at
//! once. Everything else is tried again, a few times.

use data_encoding::HEXLOWER;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Affinity, ResourceRequirements};
use kube::ResourceExt;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use super::kind::{Archived, Dress};
use crate::backup::destination::{Access, Destination, DestinationError};
use crate::backup::report::GIVEN_UP;
use crate::pod::{Extras, PodExtras};

/// The annotation of a Job that restores: the uid of the volume onto which it brings the backup.
pub(super) const RESTORED_VOLUME: &str = "data.leasehold.dev/volume-uid";
/// Where a backup is saved before it is stored, in a volume of that Job alone.
pub const WORK: &str = "/work";

/// How often a Job's Pod is replaced.
const RETRIES: i32 = 4;
/// How long a Job that stores may take, in seconds: a day. Then the schedule's next run is not skipped for it
/// any more.
const DEADLINE: i64 = 24 * 3600;
/// How long a Job that deletes may take, in seconds.
const DELETE_DEADLINE: i64 = 300;
/// How long a finished Job stays for people to look at, in seconds.
const KEEP: i32 = 3600;

/// What a Job is and does.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    /// The Job's name.
    pub name: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// What it does, in a word.
    pub role: &'a str,
    /// The container whose exit code says that trying again is in vain.
    pub judge: &'a str,
}

/// Where a backup is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Its destination.
    pub destination: Destination,
    /// Its name there.
    pub key: String,
    /// The SHA-256 of its content, if an object says it.
    pub sha256: Option<String>,
}

/// The name of a Job of a backup. Names of Jobs are shorter than those of other objects.
fn name_of(backup: &impl ResourceExt, what: &str) -> String {
    let own = backup.name_any();
    let short: String = own.chars().take(40).collect();
    let short = short.trim_end_matches(['-', '.']).replace('.', "-");
    format!("{short}-{}-{what}", short_uid(backup))
}

/// Eight hexadecimal digits of the hash of its uid.
fn short_uid(backup: &impl ResourceExt) -> String {
    digits(&backup.uid().unwrap_or_default())
}

/// Eight hexadecimal digits of the hash of a text.
pub(super) fn digits(text: &str) -> String {
    HEXLOWER.encode(&digest(&SHA256, text.as_bytes()).as_ref()[..4])
}

/// The name of a backup where it is stored. The uid is in it: a namesake in another cluster, or one that comes after
/// this object, has another.
pub(super) fn key(backup: &impl ResourceExt, database: &str) -> String {
    let (namespace, name) = (backup.namespace().unwrap_or_default(), backup.name_any());
    format!("{namespace}/{database}/{name}-{}", short_uid(backup))
}

/// The name of the Job that stores a backup.
pub fn store_name(backup: &impl ResourceExt) -> String {
    name_of(backup, "store")
}

/// The name of the Job that deletes what is stored.
pub(super) fn delete_name(backup: &impl ResourceExt) -> String {
    name_of(backup, "delete")
}

/// The Job that deletes what is stored. It has no owner: a deletion in the foreground would take it away
/// before it has done its work.
pub(super) fn delete<K: Archived>(
    backup: &K,
    key: &str,
    image: &str,
) -> Result<Job, DestinationError> {
    let access = backup.asked().destination.access(false)?;
    let arguments = ours(
        "delete",
        [format!("--name={key}"), format!("--owner={}", backup.uid().unwrap_or_default())],
    );
    let container = our_container("delete", image, arguments, Vec::new());
    let dress = &K::TERMS.dress;
    let containers = (Vec::new(), with_access(container, &access));
    let (name, namespace) = (delete_name(backup), backup.namespace().unwrap_or_default());
    let work = Work { name: &name, namespace: &namespace, role: "delete", judge: "delete" };
    let mut job = job(dress, work, containers, Vec::new(), &access);
    if let Some(spec) = &mut job.spec {
        spec.active_deadline_seconds = Some(DELETE_DEADLINE);
    }
    Ok(job)
}

/// Arguments of `leasehold backup`.
pub fn ours(command: &str, arguments: impl IntoIterator<Item = String>) -> Vec<String> {
    ["backup", command].map(str::to_owned).into_iter().chain(arguments).collect()
}

/// The container that stores a file from [`WORK`], with the name `store`.
pub fn storing<K: Archived>(
    backup: &K,
    (key, version): (&str, &str),
    (file, check): (&str, &str),
    image: &str,
    access: &Access,
) -> Value {
    let arguments = ours(
        "store",
        [
            format!("--check={check}"),
            format!("--kind={check}"),
            format!("--file={file}"),
            format!("--name={key}"),
            format!("--owner={}", backup.uid().unwrap_or_default()),
            format!("--database-version={version}"),
        ],
    );
    let mounts = vec![json!({"name": "work", "mountPath": WORK})];
    with_access(our_container("store", image, arguments, mounts), access)
}

/// The container that fetches and verifies a backup into a file, below a folder that is removed first; with the name
/// `fetch`.
pub fn fetching(
    origin: &Origin,
    (file, check): (&str, &str),
    folder: &str,
    mount: Value,
    image: &str,
    access: &Access,
) -> Value {
    let mut arguments = vec![
        format!("--check={check}"),
        format!("--name={}", origin.key),
        format!("--file={file}"),
        format!("--clear={folder}"),
    ];
    arguments.extend(origin.sha256.iter().map(|sha256| format!("--sha256={sha256}")));
    let arguments = ours("fetch", arguments);
    with_access(our_container("fetch", image, arguments, vec![mount]), access)
}

/// What our own containers may use. They copy a file piece by piece, whatever its size. Where a quota asks for
/// requests and limits, no Pod is made without them.
fn our_resources() -> Value {
    json!({
        "requests": {"cpu": "50m", "memory": "128Mi"},
        "limits": {"cpu": "1", "memory": "512Mi"},
    })
}

/// What a container with a tool of the database may use that only reads from a server: as much as a server's
/// own container, of which little is reserved.
pub fn tool_resources(servers: Option<&ResourceRequirements>) -> Value {
    let limits = servers.and_then(|servers| servers.limits.clone());
    json!({"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": limits.unwrap_or_default()})
}

/// The Job with Pods that run where those of the database may run.
#[must_use]
pub fn placed(mut job: Job, pod: &PodExtras, extras: &Extras) -> Job {
    if let Some(spec) = job.spec.as_mut().and_then(|spec| spec.template.spec.as_mut()) {
        let selector = pod.node_selector.clone();
        spec.node_selector = (!selector.is_empty()).then_some(selector);
        spec.tolerations.clone_from(&extras.tolerations);
        spec.affinity = extras.affinity.clone().map(|affinity| Affinity {
            // What keeps servers apart from each other is no matter of a Job.
            pod_anti_affinity: None,
            ..affinity
        });
        spec.priority_class_name.clone_from(&pod.priority_class_name);
    }
    job
}

/// A container that runs one program.
pub fn container(
    name: &str,
    image: &str,
    command: Option<&[&str]>,
    arguments: Vec<String>,
    mounts: Vec<Value>,
) -> Value {
    let mut container = json!({
        "name": name,
        "image": image,
        // As in the database's own Pods: what a node has is not asked for again, whatever its tag.
        "imagePullPolicy": "IfNotPresent",
        "args": arguments,
        "volumeMounts": mounts,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": crate::pod::confined(),
    });
    if let Some(command) = command {
        container["command"] = json!(command);
    }
    container
}

/// A container that runs `leasehold backup`.
pub fn our_container(name: &str, image: &str, arguments: Vec<String>, mounts: Vec<Value>) -> Value {
    let mut container = container(name, image, None, arguments, mounts);
    container["resources"] = our_resources();
    container
}

/// The container with what it needs to reach a destination.
fn with_access(mut container: Value, access: &Access) -> Value {
    let append = |list: &mut Value, more: Vec<Value>| {
        if let Some(list) = list.as_array_mut() {
            list.extend(more);
        }
    };
    append(&mut container["args"], access.arguments.iter().map(|text| json!(text)).collect());
    append(
        &mut container["volumeMounts"],
        access.mounts.iter().map(|mount| json!(mount)).collect(),
    );
    container
}

/// A Job whose containers run one after the other: `first`, then `main`.
pub fn job(
    dress: &Dress,
    work: Work<'_>,
    (first, main): (Vec<Value>, Value),
    mut volumes: Vec<Value>,
    access: &Access,
) -> Job {
    volumes.extend(access.volumes.iter().map(|volume| json!(volume)));
    let labels = json!({
        "app.kubernetes.io/name": dress.app,
        "app.kubernetes.io/managed-by": "leasehold",
        dress.role: work.role,
    });
    let codes = json!({"containerName": work.judge, "operator": "In", "values": [2, GIVEN_UP]});
    let pod = json!({
        "restartPolicy": "Never",
        "initContainers": first,
        "containers": [main],
        "volumes": volumes,
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "securityContext": crate::pod::user(dress.user),
    });
    crate::pod::typed(json!({
        "metadata": {"name": work.name, "namespace": work.namespace, "labels": labels},
        "spec": {
            "backoffLimit": RETRIES,
            "activeDeadlineSeconds": DEADLINE,
            "ttlSecondsAfterFinished": KEEP,
            "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": codes}]},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }))
}

/// The Job that restores onto a volume. It may take as long as it takes, because nothing is served before it
/// is done and the next attempt would take as long. It stays until its owner does not need its word any more.
pub fn restoring(mut job: Job, volume_uid: &str) -> Job {
    let annotations = job.metadata.annotations.get_or_insert_default();
    annotations.insert(RESTORED_VOLUME.to_owned(), volume_uid.to_owned());
    if let Some(spec) = &mut job.spec {
        spec.ttl_seconds_after_finished = None;
        spec.active_deadline_seconds = None;
    }
    job
}
