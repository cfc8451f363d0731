//! Members that come, go and are replaced, one at a time and by etcd's own consensus. Pure.

use crate::api::{MemberPhase, MemberStatus};
use crate::change::Change;
use crate::members::Members;
use crate::names;
use crate::step::{Step, Waiting, Why};

impl Members<'_> {
    /// Finishes the departure of members.
    pub(crate) fn leave(&self) -> Option<Step> {
        for member in self.of(MemberPhase::Leaving) {
            let name = member.name.clone();
            if let Some(listed) = self.observed.listed(&name) {
                if !listed.is_learner && !self.spares(&name) {
                    return Some(Waiting::stuck(
                        "QuorumAtRisk",
                        format!("{name} leaves when a majority of the others is healthy"),
                    ));
                }
                let Some(via) = self.via(&name) else {
                    return Some(Waiting::step("Shrinking", "no member can be asked"));
                };
                if member.is_leader
                    && let Some(to) = self.observed.listed(&via).map(|listed| listed.id)
                    && self.observed.serves(member)
                {
                    return Some(Step::MoveLeader { from: name, to: via, id: to });
                }
                return Some(Step::Remove { via, member: name, id: listed.id });
            }
            // etcd has let it go, so it has no say any more; a Pod on a dead node may take its time.
            match (self.pod(&name), self.observed.volumes.get(&name)) {
                (Some(pod), _) if !pod.is_deleting => {
                    return Some(Step::DeletePod { member: name, why: Why::Left });
                }
                (None, Some(volume)) if !volume.is_deleting => {
                    return Some(Step::DeleteVolume(name));
                }
                (None, None) => return Some(Step::Record(Change::Forget(name))),
                _ => {}
            }
        }
        None
    }

    /// Finishes the arrival of a member.
    pub(crate) fn join(&self) -> Option<Step> {
        let member = self.of(MemberPhase::Joining).next()?;
        let name = member.name.clone();
        let listed = self.observed.listed(&name);
        if let Some(listed) = listed
            && !listed.is_learner
        {
            return Some(Step::Record(Change::Joined(name, format!("{:x}", listed.id))));
        }
        let gone = member.volume_uid.is_some() && !self.observed.has_volume(member);
        let is_forgotten = listed.is_none() && member.id.is_some();
        if gone || is_forgotten || self.is_overdue(member) {
            let failed = self.failed_rollout(member).filter(|_| !gone && !is_forgotten);
            return failed.or(Some(Step::Record(Change::Leave(name))));
        }
        let Some(listed) = listed else {
            if let Some(wait) = self.unhealthy() {
                return Some(wait);
            }
            return Some(match self.via("") {
                Some(via) => Step::Add { via, member: name },
                None => Waiting::step("Growing", "no member can be asked"),
            });
        };
        if member.id.is_none() {
            return Some(Step::Record(Change::Known(name, format!("{:x}", listed.id))));
        }
        if member.volume_uid.is_none() {
            return Some(match self.observed.volumes.get(&name) {
                Some(volume) => Step::Record(Change::Volume(name, volume.uid.clone())),
                None => Step::CreateVolume(name),
            });
        }
        let pod = self.pod(&name);
        if !listed.name.is_empty() && pod.is_some_and(|pod| pod.is_running && !pod.is_deleting) {
            if let Some(wait) = self.unhealthy() {
                return Some(wait);
            }
            return Some(match self.via("") {
                Some(via) => Step::Promote { via, member: name, id: listed.id },
                None => Waiting::step("Growing", "no member can be asked"),
            });
        }
        let why =
            pod.and_then(|pod| pod.trouble.clone()).unwrap_or_else(|| "its Pod is starting".into());
        Some(Waiting::step("Growing", format!("{name} learns: {why}")))
    }

    /// Lets a member go that is lost for too long, or that etcd does not have any more.
    pub(crate) fn replace(&self) -> Option<Step> {
        let gone = self.running().find(|member| self.observed.listed(&member.name).is_none());
        if let Some(member) = gone {
            return Some(Step::Record(Change::Leave(member.name.clone())));
        }
        let overdue = self.running().find(|member| self.is_overdue(member));
        let Some(member) = overdue else { return self.unhealthy() };
        if let Some(step) = self.failed_rollout(member) {
            return Some(step);
        }
        if !self.spares(&member.name) {
            return Some(Waiting::stuck(
                "QuorumAtRisk",
                format!(
                    "{} is lost, and is replaced when a majority of the others is healthy",
                    member.name
                ),
            ));
        }
        Some(Step::Record(Change::Leave(member.name.clone())))
    }

    /// What is said instead of replacing a member that does not run with the Pod that the spec asks for, while
    /// no member that serves has such a Pod: the next member would fail as this one does, and this one has
    /// its data.
    fn failed_rollout(&self, member: &MemberStatus) -> Option<Step> {
        let name = &member.name;
        let pod = self.pod(name).filter(|pod| !pod.is_deleting)?;
        let is_proven =
            self.running().any(|one| self.observed.serves(one) && !self.is_outdated(&one.name));
        if is_proven || self.is_outdated(name) || !self.observed.has_volume(member) {
            return None;
        }
        let trouble = pod.trouble.as_deref().unwrap_or("its Pod is not ready");
        Some(Waiting::stuck(
            "RolloutFailed",
            format!(
                "{name} does not start as the spec asks for ({trouble}), and no member that serves was \
                 brought to that yet, so nothing else is changed: correct spec.version, spec.image or what \
                 else was changed last. If its node or its disk is lost for good, delete \
                 PersistentVolumeClaim {name}, and another member takes its place"
            ),
        ))
    }

    /// Grows or shrinks by one. All members are healthy here.
    pub(crate) fn resize(&self) -> Option<Step> {
        let (has, wanted) = (self.running().count(), self.observed.wanted.size);
        if has < wanted {
            return Some(Step::Record(Change::Take));
        }
        if has == wanted {
            return None;
        }
        // The last one that came, but rather one that does not lead.
        let number = |member: &&MemberStatus| names::number(self.observed.cluster, &member.name);
        let leaver = self.running().filter(|member| !member.is_leader).max_by_key(number);
        Some(Step::Record(Change::Leave(leaver.or_else(|| self.running().next())?.name.clone())))
    }
}
