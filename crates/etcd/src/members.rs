//! The members of a cluster, and what every decision asks about them. Pure.

use std::time::Duration;

use jiff::SignedDuration;

use crate::api::{EtcdClusterStatus, MemberPhase, MemberStatus};
use crate::names;
use crate::objects::{self, Start};
use crate::observed::{Observed, PodSeen};
use crate::step::{Step, Waiting};
use crate::version::Version;
use crate::wanted::Wanted;

/// The time between two Pods of a member, if the first ended at once.
const RETRY: SignedDuration = SignedDuration::from_secs(10);
/// How many times as long as a lost member a learner may take that runs.
const LEARNING: u32 = 6;

/// The members, as the steps look at them.
#[derive(Clone, Copy)]
pub(crate) struct Members<'a> {
    pub(crate) observed: &'a Observed<'a>,
    pub(crate) status: &'a EtcdClusterStatus,
}

/// The version that Pods get: the one that the status has as accepted.
pub(crate) fn version(status: &EtcdClusterStatus, wanted: &Wanted) -> Version {
    let accepted = status.target_version.as_deref().and_then(|text| text.parse().ok());
    accepted.unwrap_or(wanted.version)
}

impl<'a> Members<'a> {
    pub(crate) fn all(&self) -> impl Iterator<Item = &'a MemberStatus> {
        self.status.members.iter()
    }

    pub(crate) fn of(&self, phase: MemberPhase) -> impl Iterator<Item = &'a MemberStatus> {
        self.all().filter(move |member| member.phase == phase)
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = &'a MemberStatus> {
        self.of(MemberPhase::Running)
    }

    pub(crate) fn pod(&self, member: &str) -> Option<&'a PodSeen> {
        self.observed.pods.get(member)
    }

    /// The version that Pods get.
    pub(crate) fn version(&self) -> Version {
        version(self.status, self.observed.wanted)
    }

    /// Whether a Pod has ended and may be made anew: not more often than once in [`RETRY`].
    pub(crate) fn is_spent(&self, pod: &PodSeen) -> bool {
        let age = pod.created.map(|created| self.observed.now.duration_since(created));
        pod.is_over && age.is_none_or(|age| age >= RETRY)
    }

    /// Whether a Pod is not what the spec asks for. With a mistake in the spec nobody knows what that is.
    pub(crate) fn is_outdated(&self, member: &str) -> bool {
        let Observed { cluster, wanted, invalid, .. } = self.observed;
        if invalid.is_some() {
            return false;
        }
        let desired = objects::pod(cluster, wanted, self.version(), member, &Start::Resume);
        let desired = desired.metadata.annotations.unwrap_or_default();
        self.pod(member).is_some_and(|pod| desired.get(names::TEMPLATE) != Some(&pod.template))
    }

    /// A healthy voter that can be asked, the leader if it can be; not this one.
    pub(crate) fn via(&self, except: &str) -> Option<String> {
        let fit = |member: &&MemberStatus| {
            member.name != except && !member.is_learner && self.observed.is_healthy(member)
        };
        let leader = self.running().filter(fit).find(|member| member.is_leader);
        leader.or_else(|| self.running().find(fit)).map(|member| member.name.clone())
    }

    /// Whether the voters without this one have a majority that is healthy, now and after it left.
    pub(crate) fn spares(&self, member: &str) -> bool {
        let Some(roster) = &self.observed.etcd.roster else { return false };
        let voters: Vec<_> = roster.members.iter().filter(|listed| !listed.is_learner).collect();
        let url = names::peer_url(self.observed.cluster, member);
        let is_voter = voters.iter().any(|listed| listed.peer_urls.contains(&url));
        let others = self.all().filter(|other| other.name != member);
        let healthy = others.filter(|other| {
            let votes = self.observed.listed(&other.name).is_some_and(|listed| !listed.is_learner);
            votes && self.observed.is_healthy(other)
        });
        let after = voters.len() - usize::from(is_voter);
        healthy.count() > after / 2
    }

    pub(crate) fn how(&self, member: &MemberStatus) -> Option<Start> {
        if member.phase != MemberPhase::Joining {
            return Some(Start::Resume);
        }
        let listed = self.observed.listed(&member.name)?;
        // A learner that has started has data. One that has not has no vote, and may start on nothing.
        let has_started = !listed.name.is_empty() || !listed.is_learner;
        Some(if has_started { Start::Resume } else { Start::Join(self.initial()?) })
    }

    /// All members as etcd lists them, with the names that we gave them.
    fn initial(&self) -> Option<String> {
        let cluster = self.observed.cluster;
        let listed = &self.observed.etcd.roster.as_ref()?.members;
        let named = listed.iter().map(|listed| {
            let url = listed.peer_urls.first()?;
            Some(format!("{}={url}", names::member_at(cluster, url)?))
        });
        let mut named: Vec<String> = named.collect::<Option<_>>()?;
        named.sort();
        Some(named.join(","))
    }

    /// Whether a member is lost for longer than the spec allows. One that learns gets more time, because
    /// it copies the whole database.
    pub(crate) fn is_overdue(&self, member: &MemberStatus) -> bool {
        let learns = member.phase == MemberPhase::Joining
            && self.pod(&member.name).is_some_and(|pod| pod.is_running && !pod.is_deleting);
        let allowed = self.observed.wanted.replace_after * if learns { LEARNING } else { 1 };
        self.lost_for(member).is_some_and(|lost| lost >= allowed)
    }

    pub(crate) fn lost_for(&self, member: &MemberStatus) -> Option<Duration> {
        let since = member.lost_since.as_ref()?;
        Some(Duration::try_from(self.observed.now.duration_since(since.0)).unwrap_or_default())
    }

    /// What is awaited while a member is not healthy.
    pub(crate) fn unhealthy(&self) -> Option<Step> {
        let member = self.running().find(|member| !self.observed.is_healthy(member))?;
        let name = &member.name;
        let why = if !self.observed.has_volume(member) {
            "its volume is gone".to_owned()
        } else {
            let trouble = self.pod(name).and_then(|pod| pod.trouble.clone());
            trouble.unwrap_or_else(|| "its Pod is not ready".to_owned())
        };
        Some(Waiting::step("MemberUnhealthy", format!("{name} is not healthy: {why}")))
    }
}
