//! The objects of a cluster: Services, a PodDisruptionBudget, and for each member a volume and a Pod.
//! Pure.
//!
//! etcd's image has no shell, so a Pod says everything in etcd's own arguments, and its probes ask over
//! HTTP a port of their own that speaks no TLS.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::{Resource, ResourceExt};
use operands::pod::{apart, confined, fingerprint, merge, typed, user, without_nulls};
use serde_json::{Value, json};

use crate::api::{EtcdCluster, Reclaim};
use crate::names::{
    self, CLIENT_PORT, INITIAL, METRICS_PORT, PEER_PORT, TEMPLATE, UID_LABEL, labels,
    member_labels, selector,
};
use crate::version::Version;
use crate::wanted::Wanted;

/// Where a member's volume is mounted.
const VOLUME: &str = "/var/lib/etcd";
/// Where its data is on the volume: a folder of its own, because some volumes have a `lost+found`.
const DATA: &str = "/var/lib/etcd/data";
/// Where its certificates are mounted.
const TLS: &str = "/etc/etcd/tls";
/// The container of a member.
pub(crate) const CONTAINER: &str = "etcd";
/// The user and the group of etcd.
pub(crate) const USER: i64 = 65_532;
/// The common name of members' certificates. Members accept no other certificate from each other, so a
/// client's certificate opens no connection between members.
pub(crate) const MEMBER_NAME: &str = "etcd-member";
/// The common name of the clients' certificate.
pub(crate) const CLIENT_NAME: &str = "etcd-client";

/// How a member starts if its volume is empty. A member whose volume has data ignores this.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// It founds the cluster.
    Found,
    /// It joins these members, as etcd's `--initial-cluster` has them.
    Join(String),
    /// Not at all: it has joined before. An empty volume then means that it lost its data, and a member
    /// that forgot what it acknowledged must not vote again under the same id. etcd refuses to start
    /// with itself as the only member of an existing cluster.
    Resume,
}

impl Start {
    /// As the Pod's annotation has it.
    pub(crate) fn mark(&self) -> String {
        match self {
            Self::Found => "found".to_owned(),
            Self::Join(members) => members.clone(),
            Self::Resume => String::new(),
        }
    }
}

fn metadata(cluster: &EtcdCluster, name: &str, labels: &impl serde::Serialize) -> Value {
    json!({
        "name": name,
        "namespace": cluster.namespace(),
        "labels": labels,
        "ownerReferences": [owner(cluster)],
    })
}

fn owner(cluster: &EtcdCluster) -> Value {
    let owner = cluster.controller_owner_ref(&()).map(|mut owner| {
        // Deletion in the foreground waits for what the cluster owns.
        owner.block_owner_deletion = Some(true);
        owner
    });
    json!(owner)
}

/// The Services: one through which members find each other before they are ready, one for clients.
pub(crate) fn services(cluster: &EtcdCluster) -> [Service; 2] {
    let port = |name: &str, port: u16| json!({"name": name, "port": port, "targetPort": port});
    let peers = json!({
        "metadata": metadata(cluster, &names::peers(cluster), &labels(cluster)),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": true,
            "selector": selector(cluster),
            "ports": [port("peer", PEER_PORT), port("client", CLIENT_PORT)],
        },
    });
    let clients = json!({
        "metadata": metadata(cluster, &cluster.name_any(), &labels(cluster)),
        "spec": {"selector": selector(cluster), "ports": [port("client", CLIENT_PORT)]},
    });
    [typed(peers), typed(clients)]
}

/// Lets evictions take one member at a time. It counts Pods, because their owner has no scale.
pub(crate) fn budget(cluster: &EtcdCluster, wanted: &Wanted) -> PodDisruptionBudget {
    typed(json!({
        "metadata": metadata(cluster, &cluster.name_any(), &labels(cluster)),
        "spec": {
            "minAvailable": wanted.size - 1,
            "selector": {"matchLabels": selector(cluster)},
        },
    }))
}

/// The volume of a member.
pub(crate) fn volume(cluster: &EtcdCluster, member: &str) -> PersistentVolumeClaim {
    let mut labels = member_labels(cluster, member);
    labels.insert(UID_LABEL.to_owned(), cluster.uid().unwrap_or_default());
    let mut metadata = metadata(cluster, member, &labels);
    if cluster.spec.storage.reclaim == Reclaim::Retain {
        metadata["ownerReferences"] = json!([]);
    }
    typed(json!({
        "metadata": metadata,
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": cluster.spec.storage.class_name,
            "resources": {"requests": {"storage": cluster.spec.storage.size}},
        },
    }))
}

/// The Pod of a member.
pub(crate) fn pod(
    cluster: &EtcdCluster,
    wanted: &Wanted,
    version: Version,
    member: &str,
    start: &Start,
) -> Pod {
    let spec = pod_spec(cluster, wanted, version, member);
    let mut labels = json!(cluster.spec.pod.labels);
    let mut annotations = json!(cluster.spec.pod.annotations);
    merge(&mut labels, json!(member_labels(cluster, member)));
    // What a running member cannot follow is in the digest; how it started is not.
    let digest = fingerprint(&json!([labels, annotations, spec]));
    merge(&mut annotations, json!({TEMPLATE: digest, INITIAL: start.mark()}));
    let mut metadata = metadata(cluster, member, &labels);
    metadata["annotations"] = annotations;
    let mut pod = json!({"metadata": metadata, "spec": spec});
    let arguments = &mut pod["spec"]["containers"][0]["args"];
    if let Some(arguments) = arguments.as_array_mut() {
        arguments.extend(starting(cluster, member, start).map(Value::from));
    }
    if *start != Start::Resume {
        // Its arguments are good for one start. Were the kubelet to start it again, it would found or join
        // once more on a volume that was emptied meanwhile, and vote without memory.
        pod["spec"]["restartPolicy"] = "Never".into();
    }
    typed(pod)
}

fn starting(cluster: &EtcdCluster, member: &str, start: &Start) -> [String; 3] {
    let alone = || format!("{member}={}", names::peer_url(cluster, member));
    let (state, members) = match start {
        Start::Found => ("new", alone()),
        Start::Join(members) => ("existing", members.clone()),
        Start::Resume => ("existing", alone()),
    };
    [
        format!("--initial-cluster-state={state}"),
        format!("--initial-cluster={members}"),
        format!("--initial-cluster-token={}", cluster.uid().unwrap_or_default()),
    ]
}

fn arguments(cluster: &EtcdCluster, wanted: &Wanted, member: &str) -> Vec<String> {
    let mut arguments = vec![
        format!("--name={member}"),
        format!("--data-dir={DATA}"),
        format!("--listen-peer-urls={}", names::listen_url(cluster, PEER_PORT)),
        format!("--listen-client-urls={}", names::listen_url(cluster, CLIENT_PORT)),
        format!("--listen-metrics-urls=http://0.0.0.0:{METRICS_PORT}"),
        format!("--initial-advertise-peer-urls={}", names::peer_url(cluster, member)),
        format!("--advertise-client-urls={}", names::client_url(cluster, member)),
    ];
    if cluster.spec.tls.enabled {
        for family in ["", "peer-"] {
            arguments.push(format!("--{family}cert-file={TLS}/tls.crt"));
            arguments.push(format!("--{family}key-file={TLS}/tls.key"));
            arguments.push(format!("--{family}trusted-ca-file={TLS}/ca.crt"));
            arguments.push(format!("--{family}client-cert-auth=true"));
        }
        arguments.push(format!("--peer-cert-allowed-cn={MEMBER_NAME}"));
    }
    if let Some(bytes) = cluster.spec.quota_backend_bytes {
        arguments.push(format!("--quota-backend-bytes={bytes}"));
    }
    arguments.extend(wanted.extra_args.iter().cloned());
    arguments
}

fn pod_spec(cluster: &EtcdCluster, wanted: &Wanted, version: Version, member: &str) -> Value {
    let mut mounts = vec![json!({"name": "data", "mountPath": VOLUME})];
    let mut volumes = vec![json!({"name": "data", "persistentVolumeClaim": {"claimName": member}})];
    if cluster.spec.tls.enabled {
        // The folder, not files of it: only then a renewed certificate appears in a running Pod.
        mounts.push(json!({"name": "tls", "mountPath": TLS, "readOnly": true}));
        let secret = json!({"secretName": names::certificate(member), "defaultMode": 0o440});
        volumes.push(json!({"name": "tls", "secret": secret}));
    }
    let probe = |path: &str, period: i32, failures: i32| {
        json!({
            "httpGet": {"path": path, "port": METRICS_PORT},
            "periodSeconds": period, "timeoutSeconds": 5, "failureThreshold": failures,
        })
    };
    let port = |name: &str, port: u16| json!({"name": name, "containerPort": port});
    let container = json!({
        "name": CONTAINER,
        "image": format!("{}:v{version}", cluster.spec.image),
        "command": ["/usr/local/bin/etcd"],
        "args": arguments(cluster, wanted, member),
        "ports": [port("client", CLIENT_PORT), port("peer", PEER_PORT), port("metrics", METRICS_PORT)],
        "resources": wanted.resources,
        // A member that recovers a large database, or waits for the others, takes its time.
        "startupProbe": probe("/livez", 5, 120),
        // A defragmentation stops reads until it has written the whole database.
        "livenessProbe": probe("/livez", 10, 30),
        "readinessProbe": probe("/readyz", 5, 3),
        "securityContext": confined(),
        "volumeMounts": mounts,
    });
    let pod = &cluster.spec.pod;
    let affinity = wanted.pod.affinity.as_ref();
    let affinity = affinity.map_or_else(|| apart(&selector(cluster)), |affinity| json!(affinity));
    let spec = json!({
        "hostname": member,
        "subdomain": names::peers(cluster),
        "containers": [container],
        "volumes": volumes,
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": 30,
        "securityContext": user(USER),
        "nodeSelector": pod.node_selector,
        "tolerations": wanted.pod.tolerations,
        "affinity": affinity,
        "priorityClassName": pod.priority_class_name,
        "topologySpreadConstraints": wanted.pod.spread,
    });
    without_nulls(spec)
}

#[cfg(test)]
#[path = "objects_tests.rs"]
mod tests;
