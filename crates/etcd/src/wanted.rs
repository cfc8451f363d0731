//! The spec, read: every value parsed and bounded, or the reason why it cannot be. Pure.

use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::ResourceRequirements;
use kube::ResourceExt;
use operands::pod::Extras;
pub(crate) use operands::spec::Invalid;
use operands::spec::{duration, part, size as size_of};

use crate::api::EtcdCluster;
use crate::names::MAX_NAME;
use crate::version::{OLDEST, Version};

/// The shortest `replaceAfter`: a restart of a member must not look like a loss.
const SHORTEST_REPLACE_AFTER: SignedDuration = SignedDuration::from_mins(1);
/// The shortest renewal of certificates.
const SHORTEST_RENEWAL: SignedDuration = SignedDuration::from_hours(1);
/// The shortest time between two defragmentations: each stops a member for a while.
const SHORTEST_INTERVAL: SignedDuration = SignedDuration::from_mins(1);

/// Arguments of etcd that the controller sets, or whose change would break what it relies on.
const OURS: &[&str] = &[
    "name",
    "data-dir",
    "wal-dir",
    "listen-peer-urls",
    "listen-client-urls",
    "listen-client-http-urls",
    "listen-metrics-urls",
    "initial-advertise-peer-urls",
    "advertise-client-urls",
    "initial-cluster",
    "initial-cluster-state",
    "initial-cluster-token",
    "strict-reconfig-check",
    "enable-grpc-gateway",
    "quota-backend-bytes",
    "cert-file",
    "key-file",
    "client-cert-file",
    "client-key-file",
    "client-cert-auth",
    "trusted-ca-file",
    "auto-tls",
    "peer-cert-file",
    "peer-key-file",
    "peer-client-cert-file",
    "peer-client-key-file",
    "peer-client-cert-auth",
    "peer-trusted-ca-file",
    "peer-auto-tls",
    "peer-cert-allowed-cn",
    "peer-cert-allowed-hostname",
    "config-file",
    "discovery",
    "discovery-srv",
    "force-new-cluster",
    "unsafe-no-fsync",
    "max-learners",
    "logger",
    "log-outputs",
];
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
}

/// Reads a spec.
///
/// # Errors
/// The first thing in it that cannot be carried out.
pub(crate) fn wanted(cluster: &EtcdCluster) -> Result<Wanted, Invalid> {
    let spec = &cluster.spec;
    check_name(&cluster.name_any())?;
    let size = usize::try_from(spec.size).ok().filter(|size| (1..=9).contains(size));
    let size = size.filter(|size| size % 2 == 1).ok_or_else(|| Invalid {
        reason: "InvalidSize",
        message: format!(
            "spec.size is {}: set 1, 3, 5, 7 or 9; an even number of members survives no more losses \
             than one member less",
            spec.size
        ),
    })?;
    check_arguments(&spec.extra_args)?;
    size_of("storage.size", &spec.storage.size)?;
    let renewal = duration("tls.renewal", &spec.tls.renewal, SHORTEST_RENEWAL)?;
    let pod = spec.pod.read().map_err(|mut all| all.swap_remove(0))?;
    Ok(Wanted {
        size,
        version: version(&spec.version)?,
        replace_after: duration("replaceAfter", &spec.replace_after, SHORTEST_REPLACE_AFTER)?
            .unsigned_abs(),
        valid: renewal + renewal / 2,
        defragment_interval: duration(
            "defragment.interval",
            &spec.defragment.interval,
            SHORTEST_INTERVAL,
        )?
        .unsigned_abs(),
        resources: part("resources", spec.resources.as_ref())?,
        pod,
    })
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

fn check_arguments(arguments: &[String]) -> Result<(), Invalid> {
    for argument in arguments {
        let name = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'));
        let Some(name) = name.map(|name| name.split('=').next().unwrap_or_default()) else {
            let message = format!(
                "spec.extraArgs has {argument:?}: write each as one word, such as \
                 --auto-compaction-retention=1h"
            );
            return Err(Invalid { reason: "InvalidArguments", message });
        };
        let is_ours =
            OURS.contains(&name) || OUR_FAMILIES.iter().any(|start| name.starts_with(start));
        if is_ours || name.is_empty() {
            let message =
                format!("spec.extraArgs has --{name}, which the controller sets itself: remove it");
            return Err(Invalid { reason: "InvalidArguments", message });
        }
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
