//! The Jobs: one saves and stores a snapshot, one restores. Pure.
//!
//! etcd's image has no shell, so each container runs one program.

use k8s_openapi::api::batch::v1::Job;
use kube::ResourceExt;
use operands::archive::Dress;
use operands::archive::jobs::{
    self, Origin, WORK, Work, container, fetching, job, our_container, ours, placed, restoring,
    storing, tool_resources,
};
use operands::backup::destination::DestinationError;
use serde_json::json;

use super::api::EtcdSnapshot;
use crate::api::EtcdCluster;
use crate::names;
use crate::objects::USER;
use crate::version::Version;
use crate::wanted::read;

/// What the Jobs look like.
pub(super) const DRESS: Dress =
    Dress { app: "etcd-snapshot", role: "data.leasehold.dev/etcd-job", user: USER };
/// What our program checks of a snapshot.
const CHECK: &str = "etcd-snapshot";
/// Where certificates of clients are mounted.
const TLS: &str = "/etc/etcd/tls";
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
    let mut save = container("save", &etcd, Some(&["/usr/local/bin/etcdctl"]), arguments, mounts);
    let (wanted, _) = read(cluster);
    save["resources"] = tool_resources(wanted.resources.as_ref());
    let store = storing(snapshot, (key, version), (&file, CHECK), image, &access);
    let name = jobs::store_name(snapshot);
    let work = Work { name: &name, namespace: &namespace, role: "store", judge: "store" };
    let job = job(&DRESS, work, (vec![save], store), volumes, &access);
    Ok(placed(job, &cluster.spec.pod, &wanted.pod))
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
    let data = || json!({"name": "data", "mountPath": VOLUME});
    let fetch = fetching(origin, (&file, CHECK), STAGE, data(), image, &access);
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
    let (wanted, _) = read(cluster);
    let mut unpack =
        container("restore", &etcd, Some(&["/usr/local/bin/etcdutl"]), arguments, vec![data()]);
    unpack["resources"] = json!(wanted.resources.unwrap_or_default());
    let arguments = ours(
        "move",
        [format!("--from={staged}"), format!("--to={DATA}"), format!("--clear={STAGE}")],
    );
    let finish = our_container("move", image, arguments, vec![data()]);
    let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": member}});
    let (name, namespace) = (names::restore(cluster), cluster.namespace().unwrap_or_default());
    let work = Work { name: &name, namespace: &namespace, role: "restore", judge: "fetch" };
    let job = job(&DRESS, work, (vec![fetch, unpack], finish), vec![volume], &access);
    // Its volume is bound where it runs, and the first member has to run there later.
    Ok(placed(restoring(job, volume_uid), &cluster.spec.pod, &wanted.pod))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::cluster;

    #[test]
    fn the_job_saves_with_the_clients_certificate_and_stores_what_it_saved() {
        let snapshot: EtcdSnapshot = serde_json::from_value(json!({
            "apiVersion": "data.leasehold.dev/v1alpha1", "kind": "EtcdSnapshot",
            "metadata": {"name": "db-1", "namespace": "web", "uid": "s1"},
            "spec": {"cluster": "db", "destination": {"volume": {"claimName": "backups"}}},
        }))
        .unwrap();
        let limits = json!({"limits": {"cpu": "2", "memory": "1Gi"}});
        let pod =
            json!({"nodeSelector": {"disk": "fast"}, "tolerations": [{"operator": "Exists"}]});
        let cluster = cluster(json!({"version": "3.6.5", "resources": limits, "pod": pod}));
        let job = store(&snapshot, &cluster, "3.6.4", "web/db/db-1", "leasehold:1").unwrap();
        let pod = job.spec.unwrap().template.spec.unwrap();
        let save = &pod.init_containers.as_ref().unwrap()[0];
        assert_eq!(save.image.as_deref(), Some("gcr.io/etcd-development/etcd:v3.6.4"));
        let (saved, stored) = (save.args.clone().unwrap(), pod.containers[0].args.clone().unwrap());
        for (arguments, wanted) in [
            (&saved, "--endpoints=https://db.web.svc:2379"),
            (&saved, "--cert=/etc/etcd/tls/tls.crt"),
            (&stored, "--name=web/db/db-1"),
            (&stored, "--owner=s1"),
            (&stored, "--folder=/backups"),
            (&stored, "--check=etcd-snapshot"),
        ] {
            assert!(arguments.iter().any(|found| found == wanted), "{wanted}: {arguments:?}");
        }
        // A quota asks for all of them, and a node of its own for the rest.
        for container in [save, &pod.containers[0]] {
            let resources = container.resources.clone().unwrap();
            for part in [resources.requests.unwrap(), resources.limits.unwrap()] {
                assert!(part.contains_key("cpu") && part.contains_key("memory"), "{part:?}");
            }
        }
        assert_eq!(pod.node_selector.unwrap()["disk"], "fast");
        assert_eq!(pod.tolerations.unwrap().len(), 1);
    }
}
