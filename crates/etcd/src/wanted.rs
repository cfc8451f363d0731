//! The spec, read: every value parsed and bounded, or the reason why it cannot be. Pure.

use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ResourceRequirements;
use kube::ResourceExt;
use operands::pod::Extras;
pub(crate) use operands::spec::Invalid;
use operands::spec::{duration, part, size as size_of};

use crate::api::{Defragment, EtcdCluster, Tls, default_replace_after};
use crate::names::MAX_NAME;
use crate::version::{OLDEST, Version};

/// The shortest `replaceAfter`: a restart of a member must not look like a loss.
const SHORTEST_REPLACE_AFTER: SignedDuration = SignedDuration::from_mins(1);
/// The shortest renewal of certificates.
const SHORTEST_RENEWAL: SignedDuration = SignedDuration::from_hours(1);
/// The shortest time between two defragmentations: each stops a member for a while.
const SHORTEST_INTERVAL: SignedDuration = SignedDuration::from_mins(1);

/// Arguments of etcd that the controller sets, or whose change would break what it relies on.
const OURS: &str = "name data-dir wal-dir listen-peer-urls listen-client-urls \
                    listen-client-http-urls listen-metrics-urls initial-advertise-peer-urls \
                    advertise-client-urls initial-cluster initial-cluster-state \
                    initial-cluster-token strict-reconfig-check enable-grpc-gateway \
                    quota-backend-bytes cert-file key-file client-cert-file client-key-file \
                    client-cert-auth trusted-ca-file auto-tls peer-cert-file peer-key-file \
                    peer-client-cert-file peer-client-key-file peer-client-cert-auth \
                    peer-trusted-ca-file peer-auto-tls peer-cert-allowed-cn \
                    peer-cert-allowed-hostname config-file discovery discovery-srv \
                    force-new-cluster unsafe-no-fsync max-learners logger log-outputs";
/// What the names of such arguments begin with.
const OUR_FAMILIES: &[&str] = &["discovery-", "proxy", "experimental-max-learners"];

/// A spec that can be carried out.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wanted {
    pub(crate) size: usize,
    pub(crate) version: Version,
    pub(crate) replace_after: Duration,
    /// How long certificates are valid: they are renewed after two thirds of it.
    pub(crate) valid: SignedDuration,
    pub(crate) defragment_interval: Duration,
    pub(crate) resources: Option<ResourceRequirements>,
    pub(crate) pod: Extras,
    /// More arguments of etcd.
    pub(crate) extra_args: Vec<String>,
}

/// Reads a spec as far as it can be carried out, with the first mistake in it. In the place of what cannot be
/// carried out comes what the cluster has, or the default: so a cluster that was founded is looked after
/// while its spec has a mistake.
pub(crate) fn read(cluster: &EtcdCluster) -> (Wanted, Option<Invalid>) {
    let (spec, mut first) = (&cluster.spec, None);
    let mut note = |invalid: Invalid| {
        first.get_or_insert(invalid);
    };
    if let Err(invalid) = check_name(&cluster.name_any()) {
        note(invalid);
    }
    let size = size(spec.size).unwrap_or_else(|invalid| {
        note(invalid);
        1
    });
    let (extra_args, refused): (Vec<_>, Vec<_>) =
        spec.extra_args.iter().cloned().partition(|argument| check_argument(argument).is_ok());
    if let Some(invalid) = refused.iter().find_map(|argument| check_argument(argument).err()) {
        note(invalid);
    }
    if let Err(invalid) = size_of("storage.size", &spec.storage.size) {
        note(invalid);
    }
    let (tls, defragment) = (Tls::default(), Defragment::default());
    let mut time = |field: &str, text: &str, usual: &str, shortest| {
        duration(field, text, shortest).unwrap_or_else(|invalid| {
            note(invalid);
            usual.parse().unwrap_or(shortest)
        })
    };
    let renewal = time("tls.renewal", &spec.tls.renewal, &tls.renewal, SHORTEST_RENEWAL);
    let (after, usual) = (&spec.replace_after, default_replace_after());
    let replace_after = time("replaceAfter", after, &usual, SHORTEST_REPLACE_AFTER);
    let (interval, usual) = (&spec.defragment.interval, &defragment.interval);
    let interval = time("defragment.interval", interval, usual, SHORTEST_INTERVAL);
    let version = version(&spec.version).unwrap_or_else(|invalid| {
        note(invalid);
        running_version(cluster).unwrap_or(OLDEST)
    });
    let resources = part("resources", spec.resources.as_ref()).unwrap_or_else(|invalid| {
        note(invalid);
        None
    });
    let pod = spec.pod.read().unwrap_or_else(|all| {
        all.into_iter().for_each(note);
        Extras::default()
    });
    // Nothing grows or shrinks by a spec with a mistake.
    let last = last_size(cluster).filter(|_| first.is_some());
    let wanted = Wanted {
        size: last.unwrap_or(size),
        version,
        replace_after: replace_after.unsigned_abs(),
        valid: renewal + renewal / 2,
        defragment_interval: interval.unsigned_abs(),
        resources,
        pod,
        extra_args,
    };
    (wanted, first)
}

/// Reads a spec.
///
/// # Errors
/// The first thing in it that cannot be carried out.
#[cfg(test)]
pub(crate) fn wanted(cluster: &EtcdCluster) -> Result<Wanted, Invalid> {
    match read(cluster) {
        (wanted, None) => Ok(wanted),
        (_, Some(invalid)) => Err(invalid),
    }
}

fn size(asked: i32) -> Result<usize, Invalid> {
    let size = usize::try_from(asked).ok().filter(|size| (1..=9).contains(size));
    size.filter(|size| size % 2 == 1).ok_or_else(|| {
        let message = format!(
            "spec.size is {asked}: set 1, 3, 5, 7 or 9; an even number of members survives no more losses \
             than one member less"
        );
        Invalid { reason: "InvalidSize", message }
    })
}

/// How many members there should be by the last spec without a mistake, as `status.ready` has it.
fn last_size(cluster: &EtcdCluster) -> Option<usize> {
    let (_, size) = cluster.status.as_ref()?.ready.as_ref()?.split_once('/')?;
    size.parse().ok().filter(|size| (1..=9).contains(size))
}

/// Whether a cluster can be looked after with a mistake in its spec: it was founded, and it is known what its
/// members run.
pub(crate) fn is_established(cluster: &EtcdCluster) -> bool {
    let is_founded = cluster.status.as_ref().is_some_and(|status| status.cluster_id.is_some());
    is_founded && running_version(cluster).is_some()
}

/// The version that the members of a cluster have, or get.
fn running_version(cluster: &EtcdCluster) -> Option<Version> {
    let status = cluster.status.as_ref()?;
    status.target_version.as_ref().or(status.version.as_ref())?.parse().ok()
}

fn check_name(name: &str) -> Result<(), Invalid> {
    if name.len() <= MAX_NAME && !name.contains('.') {
        return Ok(());
    }
    let message = format!(
        "the name {name} must have at most {MAX_NAME} characters and no dot, because names of Pods and \
         Services are made from it: create an EtcdCluster with another name"
    );
    Err(Invalid { reason: "InvalidName", message })
}

fn version(text: &str) -> Result<Version, Invalid> {
    let found = text.parse::<Version>().ok().filter(|version| *version >= OLDEST);
    found.ok_or_else(|| Invalid {
        reason: "InvalidVersion",
        message: format!(
            "spec.version is {text:?}: set a version such as 3.6.5, {OLDEST} or later"
        ),
    })
}

fn check_argument(argument: &str) -> Result<(), Invalid> {
    let name = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'));
    let Some(name) = name.map(|name| name.split('=').next().unwrap_or_default()) else {
        let message = format!(
            "spec.extraArgs has {argument:?}: write each as one word, such as \
             --auto-compaction-retention=1h"
        );
        return Err(Invalid { reason: "InvalidArguments", message });
    };
    let is_ours = OURS.split(' ').any(|ours| ours == name)
        || OUR_FAMILIES.iter().any(|start| name.starts_with(start));
    if is_ours || name.is_empty() {
        let message =
            format!("spec.extraArgs has --{name}, which the controller sets itself: remove it");
        return Err(Invalid { reason: "InvalidArguments", message });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tests::cluster;

    #[test]
    fn the_shortest_spec_has_defaults() {
        let wanted = wanted(&cluster(json!({"version": "3.6.5"}))).unwrap();
        assert_eq!((wanted.size, wanted.version.to_string()), (3, "3.6.5".to_owned()));
        assert_eq!(wanted.replace_after, Duration::from_secs(300));
        assert_eq!(wanted.valid, SignedDuration::from_hours(2_160));
    }

    #[test]
    fn every_bad_spec_has_its_reason() {
        for (spec, reason, says) in [
            (json!({"size": 2}), "InvalidSize", "size is 2"),
            (json!({"size": 0}), "InvalidSize", "1, 3, 5, 7 or 9"),
            (json!({"size": 11}), "InvalidSize", "11"),
            (json!({"version": "3.6"}), "InvalidVersion", "3.6"),
            (json!({"version": "3.5.10"}), "InvalidVersion", "3.5.11"),
            (json!({"replaceAfter": "5"}), "InvalidDuration", "replaceAfter"),
            (json!({"replaceAfter": "1s"}), "InvalidDuration", "at least 1m"),
            (json!({"replaceAfter": "-5m"}), "InvalidDuration", "-5m"),
            (json!({"tls": {"renewal": "1m"}}), "InvalidDuration", "tls.renewal"),
            (json!({"storage": {"size": "many"}}), "InvalidStorage", "many"),
            (json!({"storage": {"size": "0"}}), "InvalidStorage", "8Gi"),
            (json!({"extraArgs": ["--name=x"]}), "InvalidArguments", "--name"),
            (json!({"extraArgs": ["-data-dir=/x"]}), "InvalidArguments", "--data-dir"),
            (
                json!({"extraArgs": ["--discovery-token=x"]}),
                "InvalidArguments",
                "--discovery-token",
            ),
            (json!({"extraArgs": ["snapshot-count"]}), "InvalidArguments", "one word"),
            (json!({"resources": {"limits": "x"}}), "InvalidPod", "spec.resources"),
            (json!({"pod": {"tolerations": [{"key": 1}]}}), "InvalidPod", "pod.tolerations"),
        ] {
            let mut all = json!({"version": "3.6.5"});
            all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
            let invalid = wanted(&cluster(all)).unwrap_err();
            assert_eq!(invalid.reason, reason, "{spec}");
            assert!(invalid.message.contains(says), "{spec}: {invalid}");
        }
        let mut long = cluster(json!({"version": "3.6.5"}));
        long.metadata.name = Some("a".repeat(53));
        assert_eq!(wanted(&long).unwrap_err().reason, "InvalidName");
    }

    #[test]
    fn parts_of_pods_are_read() {
        let spec = json!({
            "version": "3.6.5",
            "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}},
            "pod": {"tolerations": [{"operator": "Exists"}], "affinity": null},
            "extraArgs": ["--auto-compaction-retention=1h", "--snapshot-count=5000"],
        });
        let wanted = wanted(&cluster(spec)).unwrap();
        assert!(wanted.resources.is_some() && wanted.pod.affinity.is_none());
        assert_eq!(wanted.pod.tolerations.unwrap().len(), 1);
    }
}
