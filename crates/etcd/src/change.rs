//! What the status is made to say before or after a step. Pure.

use jiff::Timestamp;
use sdk::condition::whole_seconds;

use crate::api::{EtcdCluster, EtcdClusterStatus, MemberPhase, MemberStatus};
use crate::names;

/// A change of the status.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change {
    /// A new member takes the next number.
    Take,
    /// The members of a cluster whose status was lost.
    Adopt { id: String, members: Vec<MemberStatus>, next: i64 },
    /// The volume of a member has this uid.
    Volume(String, String),
    /// The first member runs: the cluster is founded.
    Found { cluster: String, member: String, id: String, version: String },
    /// etcd gave a member this id.
    Known(String, String),
    /// A member votes.
    Joined(String, String),
    /// A member should leave.
    Leave(String),
    /// A member has left.
    Forget(String),
    /// Members are brought to this version.
    Target(String),
    /// A member is being defragmented.
    Defragment,
}

/// Changes a status.
pub(crate) fn change(
    status: &mut EtcdClusterStatus,
    cluster: &EtcdCluster,
    change: &Change,
    now: Timestamp,
) {
    let member = |status: &mut EtcdClusterStatus, name: &str, to: &dyn Fn(&mut MemberStatus)| {
        status.members.iter_mut().filter(|member| member.name == name).for_each(to);
    };
    match change {
        Change::Take => {
            let number = status.next_member.max(0);
            let name = names::member(cluster, number);
            status.next_member = number + 1;
            let lost_since = Some(whole_seconds(now));
            status.members.push(MemberStatus { name, lost_since, ..MemberStatus::default() });
        }
        Change::Adopt { id, members, next } => {
            status.cluster_id = Some(id.clone());
            status.members.clone_from(members);
            status.next_member = *next;
        }
        Change::Volume(name, uid) => {
            member(status, name, &|member| member.volume_uid = Some(uid.clone()));
        }
        Change::Found { cluster, member: name, id, version } => {
            status.cluster_id = Some(cluster.clone());
            status.target_version = Some(version.clone());
            member(status, name, &|member| {
                member.id = Some(id.clone());
                member.phase = MemberPhase::Running;
                member.lost_since = None;
            });
        }
        Change::Known(name, id) => member(status, name, &|member| member.id = Some(id.clone())),
        Change::Joined(name, id) => member(status, name, &|member| {
            member.id = Some(id.clone());
            member.phase = MemberPhase::Running;
            member.is_learner = false;
            member.lost_since = None;
        }),
        Change::Leave(name) => {
            member(status, name, &|member| member.phase = MemberPhase::Leaving);
        }
        Change::Forget(name) => status.members.retain(|member| member.name != *name),
        Change::Target(version) => status.target_version = Some(version.clone()),
        Change::Defragment => status.defragmented_at = Some(whole_seconds(now)),
    }
}
