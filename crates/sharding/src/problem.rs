//! Texts about what is wrong with the home cluster: operation, object, cause and fix.

mod open;

use std::collections::BTreeSet;
use std::time::Duration;

use kube::Error;
use model::error::foreign;
use model::{ClusterName, GroupName, MemberId};

use crate::api::MAX_NAMED;
use crate::floor::{ANNOTATION, Floor, MAX_FLOOR};
use crate::lease::COORDINATOR;
use crate::read::Unreadable;
use crate::record::MapRecord;
use crate::versions::UNREADABLE;
use crate::world::World;

pub(crate) use open::{Change, OpenProblems};

/// One operation on one resource of the home cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Operation {
    /// The verb, as RBAC names it.
    pub(crate) verb: &'static str,
    /// The resource with its API group.
    pub(crate) resource: &'static str,
    pub(crate) namespace: String,
}

/// Why the operation fails, and what to do about it.
pub(crate) fn explain(operation: &Operation, error: &Error) -> String {
    let Operation { verb, resource, namespace } = operation;
    let what = format!("{verb} {resource} in namespace {namespace} of the home cluster");
    let cause = model::error::chain(error);
    let Error::Api(status) = error else {
        return format!("{what}: {cause}; fix: check that the home cluster can be reached");
    };
    let cause = foreign(&status.message);
    match status.code {
        401 => format!("{what}: {cause}; fix: renew the credentials of the home kubeconfig"),
        403 => format!(
            "{what}: {cause}; fix: grant this identity the verbs get, list, watch, create, update and delete on {resource} in namespace {namespace}"
        ),
        404 if cause.contains("namespaces") => {
            format!("{what}: {cause}; fix: create it: kubectl create namespace {namespace}")
        }
        404 => format!("{what}: the resource is unknown there; fix: install the CRDs of Leasehold"),
        422 => {
            format!("{what}: {cause}; the CRDs may be older than this program; fix: apply its own")
        }
        code => format!("{what}: {cause} (HTTP {code})"),
    }
}

/// The text for an operation that got no answer in time.
pub(crate) fn timed_out(operation: &Operation, after: Duration) -> String {
    let Operation { verb, resource, namespace } = operation;
    format!(
        "{verb} {resource} in namespace {namespace} of the home cluster: no answer within {after:?}; fix: check that the home cluster can be reached"
    )
}

/// The text for an object that cannot be read.
pub(crate) fn unreadable(operation: &Operation, error: &Unreadable) -> String {
    let Operation { verb, resource, namespace } = operation;
    let cause = model::error::chain(error);
    format!("{verb} {resource} in namespace {namespace} of the home cluster: {cause}")
}

/// Why a replica of installation `mine` cannot take part where another is, and what to do about it.
pub(crate) fn of_another_installation(other: &str, mine: &str, namespace: &str) -> String {
    let other = foreign(other);
    format!(
        "namespace {namespace} of the home cluster belongs to the installation {other:?}, and this replica is of {mine:?}, so it takes no part; fix: set `installation: {other}` if it has the same configuration as those replicas, else give it a namespace of its own; if that installation is gone for good: kubectl delete --namespace {namespace} lease {COORDINATOR}"
    )
}

/// By which name a renamed cluster is paused: its old one.
pub(crate) fn paused_by_its_old_name(old: &ClusterName, new: &ClusterName, policy: &str) -> String {
    let policy = foreign(policy);
    format!(
        "cluster {new} is the cluster {old} under a new name, and what the FleetPolicy {policy} pauses of {old} stays paused; pins, avoidances and weights of {old} do not hold for {new}; fix: say {new} in that policy: kubectl edit fleetpolicy {policy}, or take the pause back: leasehold lift {policy}"
    )
}

/// Why the ShardMap of a paused cluster stays although no live member has the cluster configured.
pub(crate) fn paused_and_gone(cluster: &ClusterName, policy: &str) -> String {
    let policy = foreign(policy);
    format!(
        "shardmaps.leasehold.dev {cluster} of the home cluster: no live member has this cluster configured, and the FleetPolicy {policy} pauses it: the map stays for ten minutes, or for as long as a cluster may have got its name that does not tell its identity (the right to get Namespace kube-system), so that the cluster stays paused if it comes back under another name; fix: if it was removed for good, take the pause back: leasehold lift {policy}"
    )
}

/// What is wrong with the epoch floor in the coordinator's Lease, and how to repair it.
pub(crate) fn unreadable_floor(world: &World, namespace: &str) -> Option<String> {
    let Floor::Unreadable(text) = &world.leases().get(COORDINATOR)?.record.floor else {
        return None;
    };
    let maps = world.maps().values().map(MapRecord::highest_epoch);
    let least = maps.max().unwrap_or_default().max(world.highest_floor()).min(MAX_FLOOR);
    Some(format!(
        "leases.coordination.k8s.io {COORDINATOR} in namespace {namespace} of the home cluster: the annotation {ANNOTATION} is {text:?} and no epoch, so no ShardMap is deleted, and none is created for a cluster without one; fix: set it to {least}, or to the highest epoch that a cluster removed long ago may have reached, if that was higher: kubectl annotate --overwrite --namespace {namespace} lease {COORDINATOR} {ANNOTATION}={least}"
    ))
}

/// What is wrong with ShardMaps that cannot be read.
pub(crate) fn unreadable_maps(world: &World, namespace: &str) -> Option<String> {
    let mut maps = world.maps().values().filter(|map| map.protocol == UNREADABLE);
    let cluster = &maps.next()?.cluster;
    let more = more(maps.count());
    Some(format!(
        "shardmaps.leasehold.dev {cluster} in namespace {namespace} of the home cluster{more} cannot be read, so nobody acts on its shards; the log says what is wrong; fix: correct it: kubectl edit --namespace {namespace} shardmap {cluster}; or let it be made anew: kubectl delete --namespace {namespace} shardmap {cluster}"
    ))
}

/// Why shards of these groups of scope `Fleet` get no next owner: writes of the ShardMaps of these clusters fail.
pub(crate) fn unwritten(clusters: &[&ClusterName], groups: &BTreeSet<GroupName>) -> Option<String> {
    let (cluster, group) = (clusters.first()?, groups.first()?);
    let (maps, groups) = (more(clusters.len() - 1), more(groups.len() - 1));
    Some(format!(
        "shardmaps.leasehold.dev {cluster}{maps} of the home cluster: a write failed or got no answer, and may still arrive, so shards of group {group}{groups} get no next owner: they must all have the same; fix: see in the log of the coordinator why its writes of shardmaps fail"
    ))
}

/// Why the ShardMaps of these clusters stay although nobody says that the clusters are configured.
pub(crate) fn perhaps_unclaimed(first: &ClusterName, others: usize, member: &MemberId) -> String {
    let more = more(others);
    format!(
        "shardmaps.leasehold.dev {first}{more} of the home cluster: no live member says that it has this cluster configured, but {member} cannot read one of its sources of clusters and may have it, so nobody serves it and the map stays; fix: see the log of that member and correct the source"
    )
}

/// ` (and 2 more)`
fn more(count: usize) -> String {
    if count == 0 { String::new() } else { format!(" (and {count} more)") }
}

/// Why the ShardMaps of these clusters stay although no live member has the clusters configured.
pub(crate) fn unclaimed(
    clusters: &[&ClusterName],
    after: Duration,
    is_mass: bool,
) -> Option<String> {
    let first = clusters.first()?;
    let more = more(clusters.len() - 1);
    let minutes = after.as_secs() / 60;
    let why = if is_mass {
        "so many at once are rarely meant, and a Secret, a folder or a kubeconfig may have been emptied; fix: put the clusters back and their owners go on"
    } else {
        "the members that had it died or left, so its shards are not served; fix: start a replica that has it configured"
    };
    Some(format!(
        "shardmaps.leasehold.dev {first}{more} of the home cluster: no live member has this cluster configured: {why}; if it was meant, nothing need be done: the map goes after {minutes} minutes"
    ))
}

/// What is wrong with a fleet whose controllers have no cluster.
pub(crate) const NO_CLUSTER: &str = "no live member has a cluster configured, so the controllers of this fleet have nothing to do; fix: add one (`leasehold clusters add`, and clusters.secrets with the selector leasehold.dev/cluster in their configuration), or see whether a Secret, a folder or a kubeconfig was emptied";

/// What is wrong with a coordinator whose plan does not end.
pub(crate) fn endless_plan(limit: Duration) -> String {
    format!(
        "a plan for the shards of the fleet has not ended after {}s, so this replica leaves coordinating to others: a defect of the manager; fix: take back what was changed last, restart this replica, and no other before it coordinates, and report it with the output of leasehold support-bundle",
        limit.as_secs()
    )
}

/// What is wrong with a member whose clusters differ too much from the fleet's.
pub(crate) fn too_different(member: &MemberId) -> String {
    format!(
        "member {member} has configured more than {MAX_NAMED} clusters and lacks more than {MAX_NAMED} that others have: that is more than a Member can say, so it gets no shards but of clusters that it names; fix: give all replicas the same clusters, or put them into namespaces of their own"
    )
}

#[cfg(test)]
mod tests {
    use kube::core::Status;
    use model::Moment;

    use super::*;
    use crate::lease::LeaseRecord;
    use crate::record::Object;

    fn check(code: u16, message: &str, expect: &str) {
        let operation = Operation {
            verb: "list",
            resource: "shardmaps.leasehold.dev",
            namespace: "leasehold-system".into(),
        };
        let status = Status::failure(message, "").with_code(code);
        let text = explain(&operation, &Error::Api(status.boxed()));
        let what = "list shardmaps.leasehold.dev in namespace leasehold-system of the home cluster";
        assert_eq!(text, format!("{what}: {expect}"));
    }

    #[test]
    fn each_cause_has_its_fix() {
        check(
            404,
            "404 page not found",
            "the resource is unknown there; fix: install the CRDs of Leasehold",
        );
        check(
            404,
            "namespaces \"leasehold-system\" not found",
            "namespaces \"leasehold-system\" not found; fix: create it: kubectl create namespace leasehold-system",
        );
        check(
            403,
            "user \"x\" cannot list",
            "user \"x\" cannot list; fix: grant this identity the verbs get, list, watch, create, update and delete on shardmaps.leasehold.dev in namespace leasehold-system",
        );
        check(500, "etcd is down", "etcd is down (HTTP 500)");
    }

    #[test]
    fn a_namespace_is_of_one_installation_and_says_of_which() {
        let text = of_another_installation("\u{1b}[2Jb", "a", "ns");
        assert!(
            text.starts_with(
                "namespace ns of the home cluster belongs to the installation \" [2Jb\", and this replica is of \"a\""
            ),
            "{text}"
        );
        assert!(text.ends_with("delete --namespace ns lease leasehold-coordinator"), "{text}");
    }

    #[test]
    fn a_floor_that_cannot_be_read_is_reported_with_its_fix() {
        let mut world = World::default();
        let mut apply = |version: u64, floor: &str| {
            let me = "m-1".parse().unwrap();
            let mut lease = LeaseRecord::new(COORDINATOR.into(), &me, Duration::from_secs(8));
            lease.version.resource = version.to_string();
            lease.floor = Floor::read(Some(&[(ANNOTATION.to_owned(), floor.to_owned())].into()));
            world.apply(Object::Lease(lease), Moment::default());
            unreadable_floor(&world, "ns")
        };
        assert_eq!(apply(1, "7"), None);
        let text = apply(2, "seven").unwrap();
        assert!(text.contains("leasehold.dev/epoch-floor is \"seven\" and no epoch"), "{text}");
        assert!(
            text.ends_with("lease leasehold-coordinator leasehold.dev/epoch-floor=7"),
            "{text}"
        );
    }
}
