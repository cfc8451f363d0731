//! Which snapshot a cluster begins with. Pure.

use operands::archive::jobs::Origin;
use operands::archive::restore::{Restored, origin_of};

use super::api::EtcdSnapshot;
use crate::api::EtcdCluster;
use crate::version::Version;

/// The first member and its volume.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seed<'a> {
    pub(super) member: &'a str,
    pub(super) volume_uid: &'a str,
    pub(super) version: Version,
}

/// What the spec names.
pub(super) fn origin(
    cluster: &EtcdCluster,
    snapshot: Option<&EtcdSnapshot>,
    version: Version,
) -> Result<Option<Origin>, Restored> {
    let Some(from) = &cluster.spec.restore_from else { return Ok(None) };
    let bad = |message: &str| {
        let message = format!("spec.restoreFrom {message}; create another EtcdCluster");
        Restored::stuck("InvalidRestoreFrom", message)
    };
    let origin = match (&from.snapshot, &from.destination, &from.key) {
        (Some(name), None, None) => named(name, snapshot, version)?,
        (None, Some(destination), Some(key)) => {
            Origin { destination: destination.clone(), key: key.clone(), sha256: None }
        }
        _ => return Err(bad("must name either a snapshot, or destination and key")),
    };
    match origin.destination.check() {
        Ok(()) => Ok(Some(origin)),
        Err(error) => Err(bad(&format!("cannot be used: {error}"))),
    }
}

fn named(
    name: &str,
    snapshot: Option<&EtcdSnapshot>,
    version: Version,
) -> Result<Origin, Restored> {
    let absent = format!(
        "EtcdSnapshot {name} does not exist in this namespace: create it, or restore from destination and key"
    );
    let origin = origin_of(name, snapshot, Restored::stuck("SnapshotMissing", absent))?;
    let made = snapshot.and_then(|snapshot| snapshot.status.as_ref()?.version.clone());
    let made = made.and_then(|text| text.parse::<Version>().ok());
    match made.filter(|made| (made.major, made.minor) > (version.major, version.minor)) {
        None => Ok(origin),
        Some(made) => Err(Restored::stuck(
            "SnapshotTooNew",
            format!(
                "EtcdSnapshot {name} is of etcd {made}, which {version} cannot read: create an EtcdCluster \
                 with version {made}"
            ),
        )),
    }
}

#[cfg(test)]
#[path = "restore_tests.rs"]
mod tests;
