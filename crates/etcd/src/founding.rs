//! The beginning of a cluster: its first member, or the members that a lost status does not name. Pure.

use crate::api::{MemberPhase, MemberStatus};
use crate::calls::Listed;
use crate::change::Change;
use crate::members::Members;
use crate::names;
use crate::objects::Start;
use crate::observed::Observed;
use crate::step::{Step, Waiting, Why};

impl Members<'_> {
    /// A cluster without members takes its first number, unless there are members that a lost status
    /// does not name any more.
    pub(crate) fn begin(&self) -> Option<Step> {
        if !self.status.members.is_empty() {
            return None;
        }
        let Observed { pods, volumes, etcd, cluster, .. } = self.observed;
        if pods.is_empty() && volumes.is_empty() && self.status.cluster_id.is_none() {
            return Some(Step::Record(Change::Take));
        }
        if let Some(roster) = &etcd.roster {
            let known = |listed: &Listed| {
                let name =
                    listed.peer_urls.iter().find_map(|url| names::member_at(cluster, url))?;
                let volume = volumes.get(&name)?;
                Some(MemberStatus {
                    id: Some(format!("{:x}", listed.id)),
                    phase: if listed.is_learner {
                        MemberPhase::Joining
                    } else {
                        MemberPhase::Running
                    },
                    volume_uid: Some(volume.uid.clone()),
                    is_learner: listed.is_learner,
                    name,
                    ..MemberStatus::default()
                })
            };
            let found: Option<Vec<_>> = roster.members.iter().map(known).collect();
            if let Some(members) = found.filter(|members| !members.is_empty()) {
                let everything = pods.keys().chain(volumes.keys());
                let last = everything.filter_map(|name| names::number(cluster, name)).max();
                let next = last.map_or(0, |last| last + 1);
                return Some(Step::Record(Change::Adopt {
                    id: roster.cluster_id(),
                    members,
                    next,
                }));
            }
        }
        Some(Waiting::stuck(
            "StatusLost",
            format!(
                "the status names no member, but {} Pods and {} volumes of this EtcdCluster exist: start \
                 their Pods, and the controller takes the members over; or delete them, and it begins anew",
                pods.len(),
                volumes.len()
            ),
        ))
    }

    /// Founds the cluster with its first member.
    pub(crate) fn found(&self) -> Option<Step> {
        if self.status.cluster_id.is_some() {
            return None;
        }
        let member = self.all().next()?;
        let (name, observed) = (&member.name, self.observed);
        let volume = observed.volumes.get(name);
        let Some(uid) = &member.volume_uid else {
            return Some(match volume {
                Some(volume) if volume.is_deleting => {
                    Waiting::step("Starting", "a volume is deleted")
                }
                Some(volume) => Step::Record(Change::Volume(name.clone(), volume.uid.clone())),
                None => Step::CreateVolume(name.clone()),
            });
        };
        if volume.is_none_or(|volume| volume.uid != *uid || volume.is_lost || volume.is_deleting) {
            // Nothing was acknowledged yet: the next number founds the cluster.
            return Some(match (self.pod(name), volume) {
                (Some(pod), _) if !pod.is_deleting => {
                    Step::DeletePod { member: name.clone(), why: Why::Left }
                }
                (None, Some(volume)) if !volume.is_deleting => Step::DeleteVolume(name.clone()),
                (None, None) => Step::Record(Change::Forget(name.clone())),
                _ => Waiting::step("Starting", format!("{name} lost its volume, and is deleted")),
            });
        }
        if !observed.restored {
            let says = self.status.restoring.clone().unwrap_or_else(|| {
                let job = names::restore(observed.cluster);
                format!("Job {job} brings the snapshot onto volume {name}")
            });
            return Some(Waiting::step("Restoring", says));
        }
        let version = self.version();
        let Some(pod) = self.pod(name) else {
            return Some(Step::CreatePod { member: name.clone(), version, start: Start::Found });
        };
        if self.is_spent(pod) || (!pod.is_ready && !pod.is_deleting && self.is_outdated(name)) {
            return Some(Step::DeletePod { member: name.clone(), why: Why::Outdated });
        }
        if let Some(roster) = &observed.etcd.roster
            && let Some(listed) = observed.listed(name)
        {
            let id = format!("{:x}", listed.id);
            let (cluster, member, version) =
                (roster.cluster_id(), name.clone(), version.to_string());
            return Some(Step::Record(Change::Found { cluster, member, id, version }));
        }
        let why = pod.trouble.clone().unwrap_or_else(|| "its Pod is starting".to_owned());
        Some(Waiting::step("Starting", format!("{name}: {why}")))
    }
}
