//! A cluster as it was found: its Pods and volumes in the cache, and what its instances say. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use operands::pod::trouble;

use crate::ailment::Ailment;
use crate::api::WhenAlone;
use crate::gtid::GtidSet;
use crate::memory::{Member, Memory};
use crate::names::{ROLE_LABEL, TEMPLATE};
use crate::planted::planted;
use crate::pods::CONTAINER;
use crate::role::Role;
use crate::server::{Look, Silence};
use crate::step::Step;

/// What is asked for, as the plan needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// How many instances: at least one.
    pub(crate) instances: usize,
    /// How many replicas acknowledge a commit: fewer than there are instances, and zero only for one.
    pub(crate) acks: u32,
    pub(crate) when_alone: WhenAlone,
    /// For how long the other of two is lost before its primary continues alone.
    pub(crate) alone_after: Duration,
    /// For how long a primary is unwell before another takes over.
    pub(crate) failover_after: Duration,
    /// The hash of the Pod template: an instance with another is outdated.
    pub(crate) template: String,
    /// The version that the template runs, if it is known: `8.4.3`.
    pub(crate) version: Option<String>,
    /// The instance that a person wants as primary.
    pub(crate) primary: Option<String>,
    /// Whether instance 0 begins with the data of a backup.
    pub(crate) is_restored: bool,
}

/// A cluster as it was found.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) wanted: Wanted,
    /// The memory, read before the first look and still the same after the last.
    pub(crate) memory: Memory,
    /// All instances that there are or should be, by ordinal.
    pub(crate) instances: Vec<InstanceSeen>,
    /// Whether this manager wrote the reign that the memory has.
    pub(crate) has_begun: bool,
    /// What was seen the round before.
    pub(crate) earlier: Option<Earlier>,
    /// The step that this manager took last.
    pub(crate) last: Option<Step>,
    pub(crate) now: Timestamp,
    /// The rule that a test breaks.
    #[cfg(test)]
    pub(crate) bug: Option<crate::planted::Bug>,
}

/// What a round leaves to the next one: the primary was looked at last in it, so its commits up to then
/// are known, and who received nothing before that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Earlier {
    /// The open primary.
    pub(crate) primary: Member,
    /// All that it could have sent: what it had executed, and what it was committing.
    pub(crate) sent: GtidSet,
    /// For how many replicas its commits waited, from then on.
    pub(crate) waits_for: u32,
    /// The members that received nothing when the primary was looked at.
    pub(crate) silent: BTreeSet<String>,
}

/// An instance: a Pod's name, with what was found under it.
#[derive(Clone, Debug)]
pub(crate) struct InstanceSeen {
    pub(crate) name: String,
    pub(crate) pod: Option<PodSeen>,
    pub(crate) volume: Option<VolumeSeen>,
    /// What it says, or why it says nothing.
    pub(crate) look: Result<Look, Silence>,
    /// What ails it, and since when.
    pub(crate) unwell: Option<(Ailment, Timestamp)>,
}

/// A Pod of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PodSeen {
    pub(crate) is_ready: bool,
    /// Its container runs.
    pub(crate) is_running: bool,
    pub(crate) is_deleting: bool,
    /// It ended and is not started again, as after an eviction.
    pub(crate) is_over: bool,
    pub(crate) role: Option<Role>,
    /// The server did not let its role label be changed a moment ago.
    pub(crate) keeps_label: bool,
    pub(crate) template: String,
    /// Why its container does not run.
    pub(crate) trouble: Option<String>,
}

/// The volume of an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VolumeSeen {
    pub(crate) is_deleting: bool,
    /// What it was bound to is gone.
    pub(crate) is_lost: bool,
}

/// Puts together what was found under each ordinal, of which there are `count`.
pub(crate) fn instances_of(
    cluster: &str,
    count: usize,
    pods: &BTreeMap<String, PodSeen>,
    volumes: &BTreeMap<String, VolumeSeen>,
    mut looks: BTreeMap<String, Result<Look, Silence>>,
) -> Vec<InstanceSeen> {
    let instance = |ordinal: usize| {
        let name = format!("{cluster}-{ordinal}");
        let (look, pod) = (looks.remove(&name), pods.get(&name));
        let silence = || match pod.and_then(|pod| pod.trouble.clone()) {
            Some(trouble) => trouble.as_str().into(),
            None => "it was not asked".into(),
        };
        InstanceSeen {
            pod: pod.cloned(),
            volume: volumes.get(&format!("data-{name}")).cloned(),
            look: look.unwrap_or_else(|| Err(silence())),
            unwell: None,
            name,
        }
    };
    (0..count).map(instance).collect()
}

/// How many Pods the StatefulSet has to have: a member keeps its own until it is none any more.
pub(crate) fn replicas(cluster: &str, memory: &Memory, wanted: usize) -> usize {
    let ordinal = |name: &String| {
        let number = name.strip_prefix(cluster)?.strip_prefix('-')?;
        number.parse::<usize>().ok()
    };
    let members = memory.members.iter().map(|member| &member.name);
    let needed = members.chain(&memory.primary).chain(&memory.former);
    wanted.max(needed.filter_map(ordinal).max().map_or(0, |last| last + 1))
}

impl PodSeen {
    /// What the plan needs of a Pod.
    pub(crate) fn of(pod: &Pod) -> Self {
        let status = pod.status.as_ref();
        let phase = status.and_then(|status| status.phase.as_deref());
        let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or(&[]);
        let containers =
            status.and_then(|status| status.container_statuses.as_deref()).unwrap_or(&[]);
        let server = containers.iter().find(|container| container.name == CONTAINER);
        let state = server.and_then(|container| container.state.as_ref());
        Self {
            is_ready: conditions
                .iter()
                .any(|found| found.type_ == "Ready" && found.status == "True"),
            is_running: state.is_some_and(|state| state.running.is_some()),
            is_deleting: pod.metadata.deletion_timestamp.is_some(),
            is_over: phase == Some("Failed") || phase == Some("Succeeded"),
            role: pod.labels().get(ROLE_LABEL).and_then(|role| Role::parse(role)),
            keeps_label: false,
            template: pod.annotations().get(TEMPLATE).cloned().unwrap_or_default(),
            trouble: trouble(pod, CONTAINER),
        }
    }
}

impl VolumeSeen {
    /// What the plan needs of a volume.
    pub(crate) fn of(volume: &PersistentVolumeClaim) -> Self {
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        Self {
            is_deleting: volume.metadata.deletion_timestamp.is_some(),
            is_lost: phase == Some("Lost"),
        }
    }
}

impl InstanceSeen {
    /// What it says, if it answers.
    pub(crate) fn answer(&self) -> Option<&Look> {
        self.look.as_ref().ok()
    }

    /// Whether it takes the data of another instance.
    pub(crate) fn is_cloning(&self) -> bool {
        self.look.as_ref().is_err_and(|silence| silence.is_cloning)
    }

    /// Whether it certainly receives nothing for this member: it says so, it has other data than the
    /// member had, or there is nothing left of it.
    pub(crate) fn is_silent(&self, member: &Member) -> bool {
        match &self.look {
            Ok(look) => look.uuid != member.uuid || !look.receives(),
            Err(_) => self.pod.is_none() && self.volume.is_none(),
        }
    }

    /// Whether its Pod is there to stay.
    pub(crate) fn stays(&self) -> bool {
        self.pod.as_ref().is_some_and(|pod| !pod.is_deleting && !pod.is_over)
    }
}

impl Observed {
    pub(crate) fn seen(&self, name: &str) -> Option<&InstanceSeen> {
        self.instances.iter().find(|seen| seen.name == name)
    }

    pub(crate) fn member(&self, name: &str) -> Option<&Member> {
        self.memory.members.iter().find(|member| member.name == name)
    }

    /// What a member says, if it answers and has the data that it is remembered with.
    pub(crate) fn own(&self, member: &Member) -> Option<&Look> {
        let look = self.seen(&member.name)?.answer()?;
        (look.uuid == member.uuid || planted!(self, LostVolumeCounts)).then_some(look)
    }

    /// The same by name.
    pub(crate) fn own_look(&self, name: &str) -> Option<&Look> {
        self.own(self.member(name)?)
    }

    /// The members that acknowledge what this one commits.
    pub(crate) fn others<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Member> {
        self.memory.members.iter().filter(move |member| member.name != name)
    }

    /// Whether an instance is one too many.
    pub(crate) fn is_leaving(&self, name: &str) -> bool {
        let ordinal = self.instances.iter().position(|seen| seen.name == name);
        ordinal.is_none_or(|ordinal| ordinal >= self.wanted.instances)
    }

    /// What ails an instance, and for how long.
    pub(crate) fn unwell(&self, name: &str) -> Option<(Ailment, Duration)> {
        let (ailment, since) = self.seen(name)?.unwell?;
        let lasts = self.now.duration_since(since);
        Some((ailment, Duration::try_from(lasts).unwrap_or_default()))
    }
}

#[cfg(test)]
#[path = "observed_tests.rs"]
mod tests;
