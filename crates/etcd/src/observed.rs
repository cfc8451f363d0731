//! A cluster as it was found: its objects in the cache, and what etcd says. Pure.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use operands::pod::trouble;
use sdk::condition::whole_seconds;

use crate::api::{EtcdCluster, EtcdClusterStatus, MemberPhase, MemberStatus};
use crate::calls::{Alarm, Listed, Look, Roster};
use crate::names::{self, INITIAL, TEMPLATE, UID_LABEL};
use crate::objects;
use crate::version::Version;
use crate::wanted::{Invalid, Wanted};

/// A cluster as it was found.
#[derive(Clone, Debug)]
pub(crate) struct Observed<'a> {
    pub(crate) cluster: &'a EtcdCluster,
    pub(crate) wanted: &'a Wanted,
    /// The mistake in the spec, if there is one: then nothing changes that it asks for.
    pub(crate) invalid: Option<&'a Invalid>,
    /// Its Pods by name.
    pub(crate) pods: BTreeMap<String, PodSeen>,
    /// Its volumes by name.
    pub(crate) volumes: BTreeMap<String, VolumeSeen>,
    /// Whether the first member's volume holds the snapshot that the spec names, or none is named.
    pub(crate) restored: bool,
    /// What etcd says.
    pub(crate) etcd: Seen,
    pub(crate) now: Timestamp,
}

/// What etcd says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The members, if a majority of them agreed.
    pub(crate) roster: Option<Roster>,
    /// What members say of themselves, by name.
    pub(crate) looks: BTreeMap<String, Look>,
    pub(crate) alarms: Vec<Alarm>,
    /// Whether every member with a Pod was asked.
    pub(crate) is_thorough: bool,
    /// The last error.
    pub(crate) trouble: Option<String>,
    /// Whether etcd asked for a user.
    pub(crate) wants_user: bool,
}

/// A Pod of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodSeen {
    pub(crate) is_ready: bool,
    /// Its container runs, or did and is started again.
    pub(crate) is_running: bool,
    pub(crate) is_deleting: bool,
    /// It ended and is not started again, as after an eviction.
    pub(crate) is_over: bool,
    /// When it was made.
    pub(crate) created: Option<Timestamp>,
    pub(crate) template: String,
    pub(crate) initial: String,
    /// Why it does not run.
    pub(crate) trouble: Option<String>,
}

/// A volume of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VolumeSeen {
    pub(crate) uid: String,
    pub(crate) is_deleting: bool,
    /// What it was bound to is gone.
    pub(crate) is_lost: bool,
}

/// The cluster's Pods among these.
pub(crate) fn pods_of<'a>(
    cluster: &EtcdCluster,
    pods: impl IntoIterator<Item = &'a Pod>,
) -> BTreeMap<String, PodSeen> {
    let uid = cluster.uid();
    let is_ours = |pod: &&Pod| {
        let owners = pod.owner_references().iter();
        owners
            .filter(|owner| owner.controller == Some(true))
            .any(|owner| Some(&owner.uid) == uid.as_ref())
    };
    pods.into_iter().filter(is_ours).map(|pod| (pod.name_any(), PodSeen::of(pod))).collect()
}

/// The cluster's volumes among these.
pub(crate) fn volumes_of<'a>(
    cluster: &EtcdCluster,
    volumes: impl IntoIterator<Item = &'a PersistentVolumeClaim>,
) -> BTreeMap<String, VolumeSeen> {
    let uid = cluster.uid();
    let is_ours = |volume: &&PersistentVolumeClaim| volume.labels().get(UID_LABEL) == uid.as_ref();
    let volumes = volumes.into_iter().filter(is_ours);
    volumes.map(|volume| (volume.name_any(), VolumeSeen::of(volume))).collect()
}

impl PodSeen {
    fn of(pod: &Pod) -> Self {
        let status = pod.status.clone().unwrap_or_default();
        let conditions = status.conditions.unwrap_or_default();
        let holds = |type_: &str| {
            conditions.iter().any(|found| found.type_ == type_ && found.status == "True")
        };
        let state = status.container_statuses.unwrap_or_default().into_iter().next();
        let state = state.and_then(|container| container.state).unwrap_or_default();
        let phase = status.phase.unwrap_or_default();
        let annotation = |key: &str| pod.annotations().get(key).cloned().unwrap_or_default();
        Self {
            is_ready: holds("Ready"),
            is_running: state.running.is_some() || holds("Ready"),
            is_deleting: pod.metadata.deletion_timestamp.is_some(),
            is_over: phase == "Failed" || phase == "Succeeded",
            created: pod.metadata.creation_timestamp.as_ref().map(|time| time.0),
            template: annotation(TEMPLATE),
            initial: annotation(INITIAL),
            trouble: trouble(pod, objects::CONTAINER),
        }
    }

    /// Whether its member takes part, as the kubelet's probe of `/readyz` says: that reads through a
    /// majority.
    pub(crate) fn serves(&self) -> bool {
        self.is_ready && !self.is_deleting && !self.is_over
    }
}

impl VolumeSeen {
    fn of(volume: &PersistentVolumeClaim) -> Self {
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        Self {
            uid: volume.uid().unwrap_or_default(),
            is_deleting: volume.metadata.deletion_timestamp.is_some(),
            is_lost: phase == Some("Lost"),
        }
    }
}

impl Observed<'_> {
    pub(crate) fn status(&self) -> EtcdClusterStatus {
        self.cluster.status.clone().unwrap_or_default()
    }

    /// The member as etcd lists it: by its address, which is never given to another.
    pub(crate) fn listed(&self, member: &str) -> Option<&Listed> {
        let url = names::peer_url(self.cluster, member);
        self.etcd.roster.as_ref()?.members.iter().find(|listed| listed.peer_urls.contains(&url))
    }

    /// Whether the volume with the member's data is there: that very one.
    pub(crate) fn has_volume(&self, member: &MemberStatus) -> bool {
        let volume = self.volumes.get(&member.name);
        volume.is_some_and(|volume| {
            Some(&volume.uid) == member.volume_uid.as_ref()
                && !volume.is_deleting
                && !volume.is_lost
        })
    }

    /// Whether a member serves by what Kubernetes knows.
    pub(crate) fn serves(&self, member: &MemberStatus) -> bool {
        self.has_volume(member) && self.pods.get(&member.name).is_some_and(PodSeen::serves)
    }

    /// Whether a member serves, and says so itself if it was asked.
    pub(crate) fn is_healthy(&self, member: &MemberStatus) -> bool {
        let look = self.etcd.looks.get(&member.name);
        self.serves(member) && look.map_or(!self.etcd.is_thorough, |look| look.leader != 0)
    }

    /// The name of the member that leads, by what members say.
    pub(crate) fn leader(&self) -> Option<String> {
        let leader =
            self.etcd.looks.values().map(|look| look.leader).find(|leader| *leader != 0)?;
        let members = &self.etcd.roster.as_ref()?.members;
        let listed = members.iter().find(|listed| listed.id == leader)?;
        listed.peer_urls.iter().find_map(|url| names::member_at(self.cluster, url))
    }

    /// The lowest and the highest version that members run, as far as is known.
    pub(crate) fn versions(status: &EtcdClusterStatus) -> Option<(Version, Version)> {
        let known =
            status.members.iter().filter_map(|member| member.version.as_deref()?.parse().ok());
        let known: Vec<Version> = known.collect();
        Some((*known.iter().min()?, *known.iter().max()?))
    }

    /// The status with what was found: who is lost since when, versions, sizes, who leads.
    pub(crate) fn refreshed(&self) -> EtcdClusterStatus {
        let mut status = self.status();
        let leader = self.leader();
        for member in &mut status.members {
            self.refresh(member);
            member.is_leader =
                leader.as_ref().map_or(member.is_leader, |leader| *leader == member.name);
        }
        let running = status.members.iter().filter(|member| member.phase == MemberPhase::Running);
        let healthy = running.filter(|member| self.is_healthy(member)).count();
        status.ready = Some(format!("{healthy}/{}", self.wanted.size));
        status.leader = leader.or(status.leader);
        status.version = Self::versions(&status).map(|(lowest, _)| lowest.to_string());
        status
    }

    fn refresh(&self, member: &mut MemberStatus) {
        if self.serves(member) {
            member.lost_since = None;
        } else if member.lost_since.is_none() {
            member.lost_since = Some(whole_seconds(self.now));
        }
        let listed = self.listed(&member.name);
        member.is_learner = listed.map_or(member.is_learner, |listed| listed.is_learner);
        if let Some(look) = self.etcd.looks.get(&member.name) {
            // What is no version is not repeated.
            member.version =
                look.version.parse::<Version>().ok().map(|version| version.to_string());
            // A size that moves a little is not worth a write.
            let known = member.db_size.unwrap_or_default();
            if (look.db_size - known).abs() > known / 10 {
                member.db_size = Some(look.db_size);
            }
        }
    }
}
