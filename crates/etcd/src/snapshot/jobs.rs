//! The Jobs: one stores a snapshot, one deletes what is stored, one restores. Pure.
//!
//! etcd's image has no shell, so each container runs one program. Ours exits with 3 if it fails until
//! somebody changes something: then the Job fails at once. Everything else is tried again, a few times.

use data_encoding::HEXLOWER;
use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use operands::backup::destination::{Access, Destination, DestinationError};
use operands::backup::report::GIVEN_UP;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::api::EtcdSnapshot;
use crate::api::EtcdCluster;
use crate::names;
use crate::version::Version;

/// The label of a Job and its Pods. They must not have that of the cluster, which its Services select.
const ROLE: &str = "data.leasehold.dev/etcd-job";
/// How often a Job's Pod is replaced.
const RETRIES: i32 = 4;
/// How long a Job may take, in seconds: six hours.
const DEADLINE: i64 = 6 * 3600;
/// How long a Job that deletes may take, in seconds.
const DELETE_DEADLINE: i64 = 300;
/// How long a finished Job stays for people to look at, in seconds.
const KEEP: i32 = 3600;
/// The user of all containers, who is that of etcd's Pods too.
const USER: i64 = 65_532;
/// Where certificates of clients are mounted.
const TLS: &str = "/etc/etcd/tls";
/// Where a snapshot is saved before it is stored.
const WORK: &str = "/work";
/// Where the volume of a member is mounted, as in its Pod.
const VOLUME: &str = "/var/lib/etcd";
/// The member's data, as in its Pod.
const DATA: &str = "/var/lib/etcd/data";
/// Where a snapshot is restored before its data has its name.
const STAGE: &str = "/var/lib/etcd/restore";
/// How far the revision is raised: further than a cluster can have come since the snapshot. Clients that
/// watched the lost cluster then never meet a revision that they have seen with other content.
const BUMP: u64 = 1_000_000_000;
/// The first version that can raise it.
const BUMPS: Version = Version { major: 3, minor: 6, patch: 0 };

/// Where a snapshot is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) destination: Destination,
    /// Its name there.
    pub(super) key: String,
}

/// The name of a snapshot's Job. Names of Jobs are shorter than those of EtcdSnapshots.
fn name(snapshot: &EtcdSnapshot, what: &str) -> String {
    let own = snapshot.name_any();
    let digest = Sha256::digest(snapshot.uid().unwrap_or_default());
    let short: String = own.chars().take(40).collect();
    let short = short.trim_end_matches(['-', '.']).replace('.', "-");
    format!("{short}-{}-{what}", HEXLOWER.encode(&digest[..4]))
}

/// The name of the Job that stores a snapshot.
pub(super) fn store_name(snapshot: &EtcdSnapshot) -> String {
    name(snapshot, "store")
}

/// The name of the Job that deletes what is stored.
pub(super) fn delete_name(snapshot: &EtcdSnapshot) -> String {
    name(snapshot, "delete")
}

/// The Job that saves and stores a snapshot.
pub(super) fn store(
    snapshot: &EtcdSnapshot,
    cluster: &EtcdCluster,
    version: &str,
    key: &str,
    image: &str,
) -> Result<Job, DestinationError> {
    let access = snapshot.spec.destination.access(false)?;
    let file = format!("{WORK}/snapshot.db");
    let namespace = cluster.namespace().unwrap_or_default();
    let scheme = if cluster.spec.tls.enabled { "https" } else { "http" };
    let host = format!("{}.{namespace}.svc", cluster.name_any());
    let mut arguments = vec![
        "snapshot".to_owned(),
        "save".to_owned(),
        file.clone(),
        format!("--endpoints={scheme}://{host}:{}", names::CLIENT_PORT),
        "--dial-timeout=20s".to_owned(),
    ];
    let mut mounts = vec![json!({"name": "work", "mountPath": WORK})];
    let mut volumes = vec![json!({"name": "work", "emptyDir": {}})];
    if cluster.spec.tls.enabled {
        let files = [("cacert", "ca.crt"), ("cert", "tls.crt"), ("key", "tls.key")];
        arguments.extend(files.map(|(option, file)| format!("--{option}={TLS}/{file}")));
        mounts.push(json!({"name": "tls", "mountPath": TLS, "readOnly": true}));
        let secret = json!({"secretName": names::client(cluster), "defaultMode": 0o440});
        volumes.push(json!({"name": "tls", "secret": secret}));
    }
    let etcd = format!("{}:v{version}", cluster.spec.image);
    let save = container("save", &etcd, Some("/usr/local/bin/etcdctl"), arguments, mounts);
    let ours = vec![
        "backup".to_owned(),
        "store".to_owned(),
        "--check=etcd-snapshot".to_owned(),
        "--kind=etcd-snapshot".to_owned(),
        format!("--file={file}"),
        format!("--name={key}"),
        format!("--owner={}", snapshot.uid().unwrap_or_default()),
        format!("--database-version={version}"),
    ];
    let mounts = vec![json!({"name": "work", "mountPath": WORK})];
    let store = with_access(container("store", image, None, ours, mounts), &access);
    let pod = pod(vec![save], store, volumes, &access);
    Ok(job(&store_name(snapshot), &namespace, ("store", "store"), pod, DEADLINE))
}

/// The Job that deletes what is stored. It has no owner: a deletion in the foreground would take it away
/// before it has done its work.
pub(super) fn delete(
    snapshot: &EtcdSnapshot,
    key: &str,
    image: &str,
) -> Result<Job, DestinationError> {
    let access = snapshot.spec.destination.access(false)?;
    let arguments = vec![
        "backup".to_owned(),
        "delete".to_owned(),
        format!("--name={key}"),
        format!("--owner={}", snapshot.uid().unwrap_or_default()),
    ];
    let container = with_access(container("delete", image, None, arguments, Vec::new()), &access);
    let namespace = snapshot.namespace().unwrap_or_default();
    let pod = pod(Vec::new(), container, Vec::new(), &access);
    Ok(job(&delete_name(snapshot), &namespace, ("delete", "delete"), pod, DELETE_DEADLINE))
}

/// The Job that restores a snapshot onto the volume of the first member. It may run again at any time: it
/// begins with an empty stage, and data that is there already stays.
pub(super) fn restore(
    cluster: &EtcdCluster,
    member: &str,
    version: Version,
    volume_uid: &str,
    origin: &Origin,
    image: &str,
) -> Result<Job, DestinationError> {
    let access = origin.destination.access(true)?;
    let (file, staged) = (format!("{STAGE}/snapshot.db"), format!("{STAGE}/data"));
    let ours = |arguments: &[String]| {
        let words = std::iter::once("backup".to_owned()).chain(arguments.iter().cloned());
        words.collect::<Vec<_>>()
    };
    let data = || vec![json!({"name": "data", "mountPath": VOLUME})];
    let fetch = ours(&[
        "fetch".to_owned(),
        "--check=etcd-snapshot".to_owned(),
        format!("--name={}", origin.key),
        format!("--file={file}"),
        format!("--clear={STAGE}"),
    ]);
    let fetch = with_access(container("fetch", image, None, fetch, data()), &access);
    let url = names::peer_url(cluster, member);
    let mut arguments = vec![
        "snapshot".to_owned(),
        "restore".to_owned(),
        file,
        format!("--data-dir={staged}"),
        format!("--name={member}"),
        format!("--initial-cluster={member}={url}"),
        format!("--initial-cluster-token={}", cluster.uid().unwrap_or_default()),
        format!("--initial-advertise-peer-urls={url}"),
    ];
    if version >= BUMPS {
        arguments.extend([format!("--bump-revision={BUMP}"), "--mark-compacted".to_owned()]);
    }
    let etcd = format!("{}:v{version}", cluster.spec.image);
    let unpack = container("restore", &etcd, Some("/usr/local/bin/etcdutl"), arguments, data());
    let arguments = ours(&[
        "move".to_owned(),
        format!("--from={staged}"),
        format!("--to={DATA}"),
        format!("--clear={STAGE}"),
    ]);
    let finish = container("move", image, None, arguments, data());
    let claim = json!({"name": "data", "persistentVolumeClaim": {"claimName": member}});
    let pod = pod(vec![fetch, unpack], finish, vec![claim], &access);
    let namespace = cluster.namespace().unwrap_or_default();
    let mut job = job(&names::restore(cluster), &namespace, ("restore", "fetch"), pod, DEADLINE);
    let annotations = job.metadata.annotations.get_or_insert_default();
    annotations.insert(names::RESTORED_VOLUME.to_owned(), volume_uid.to_owned());
    if let Some(spec) = &mut job.spec {
        // It says that the restore is done until the cluster exists.
        spec.ttl_seconds_after_finished = None;
    }
    Ok(job)
}

fn container(
    name: &str,
    image: &str,
    command: Option<&str>,
    arguments: Vec<String>,
    mounts: Vec<Value>,
) -> Value {
    let mut container = json!({
        "name": name,
        "image": image,
        "args": arguments,
        "volumeMounts": mounts,
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        },
    });
    if let Some(command) = command {
        container["command"] = json!([command]);
    }
    container
}

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

fn pod(first: Vec<Value>, main: Value, mut volumes: Vec<Value>, access: &Access) -> Value {
    volumes.extend(access.volumes.iter().map(|volume| json!(volume)));
    json!({
        "restartPolicy": "Never",
        "initContainers": first,
        "containers": [main],
        "volumes": volumes,
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "securityContext": {
            "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    })
}

/// `judge` is the container whose exit code says that trying again is in vain.
fn job(name: &str, namespace: &str, (role, judge): (&str, &str), pod: Value, deadline: i64) -> Job {
    let labels = json!({
        "app.kubernetes.io/name": "etcd-snapshot",
        "app.kubernetes.io/managed-by": "leasehold",
        ROLE: role,
    });
    let codes = json!({"containerName": judge, "operator": "In", "values": [2, GIVEN_UP]});
    let job = json!({
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "backoffLimit": RETRIES,
            "activeDeadlineSeconds": deadline,
            "ttlSecondsAfterFinished": KEEP,
            "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": codes}]},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    });
    serde_json::from_value(job).expect("the fields are those of the type")
}
