//! The next step of a cluster, decided from what was found. Pure: one step at a time, each recognised
//! again when it was taken halfway.
//!
//! # Why no step loses what etcd acknowledged
//!
//! etcd acknowledges a write when a majority of its voters have it on disk. It is lost only if voters
//! that are counted as a majority do not have it. So:
//!
//! 1. **A voter never forgets.** A member runs on the one volume whose uid the status has, written
//!    before its first Pod. If that volume is gone, the member leaves; its name and its address are
//!    never given to another. A Pod that founds or joins starts once, and no later Pod of the
//!    member can start on an empty volume ([`crate::objects::Start::Resume`]). So a volume that was emptied
//!    does not bring back a voter without memory.
//! 2. **A cluster is founded once.** [`crate::objects::Start::Found`] is for a Pod whose status has no cluster id yet.
//!    Until the id is written there is no Service for clients, so nothing was acknowledged to anybody.
//! 3. **Members change one at a time, by etcd's own consensus**, with `strict-reconfig-check`: two
//!    majorities that follow each other overlap. A new member is a learner until the leader itself finds
//!    it in sync. Nothing is forced: no `force-new-cluster`, no second founding, and without a majority
//!    this plan changes no member.
//! 4. **Membership is read linearizably.** A roster is an answer that a majority agreed on after the
//!    question, so it is no stale member's view. It decides; the status says what was intended.
//! 5. **A member leaves only if the rest has a majority without it** ([`Members::spares`]).
//! 6. **Intent is written before the effect**, with the version of the object that was read: who acts on
//!    an old status fails before it acts. Each effect is idempotent: a member is found by its address, a
//!    removal by its id.
//!
//! # Half-done steps
//!
//! | crash after | found | next |
//! |---|---|---|
//! | number taken | Joining, no id, not listed | add the learner |
//! | learner added | Joining, no id, listed | record the id |
//! | volume created | Joining, no volume uid, volume there | record the uid |
//! | promoted | Joining, listed as voter | record that it joined |
//! | leaving recorded | Leaving, listed | move leadership, remove |
//! | removed | Leaving, not listed | delete Pod, then volume, then forget |
//! | Pod deleted to be rolled | Running, no Pod | create it |

use std::time::Duration;

use crate::api::{EtcdClusterStatus, MemberPhase};
use crate::members::Members;
use crate::names;
use crate::objects::Start;
use crate::observed::Observed;
use crate::step::{Step, Waiting, Why};
use crate::upkeep;

/// How long a Pod that does not serve keeps an old template: it may be starting.
const PATIENCE: Duration = Duration::from_secs(60);

/// The next step. `status` is the refreshed one.
pub(crate) fn plan(observed: &Observed<'_>, status: &EtcdClusterStatus) -> Step {
    let members = Members { observed, status };
    let step = members.begin().or_else(|| members.found());
    let step = step.or_else(|| upkeep::accept(&members, false));
    let step = step.or_else(|| members.tidy()).or_else(|| members.revive());
    // From here on a majority has spoken.
    let step = step.or_else(|| members.agree()).or_else(|| members.leave());
    let step = step.or_else(|| members.join()).or_else(|| members.replace());
    // From here on all members are healthy.
    let step = step.or_else(|| members.resize()).or_else(|| upkeep::roll(&members));
    step.or_else(|| upkeep::space(&members)).unwrap_or(Step::Rest)
}

impl Members<'_> {
    /// Deletes Pods that ended, and Pods of no member.
    fn tidy(&self) -> Option<Step> {
        let alive = self.observed.pods.iter().filter(|(_, pod)| !pod.is_deleting);
        for (name, pod) in alive {
            let member = self.all().find(|member| member.name == *name);
            let why = match member {
                None if self.observed.etcd.roster.is_some()
                    && self.observed.listed(name).is_none() =>
                {
                    Why::Orphan
                }
                Some(_) if self.is_spent(pod) => Why::Over,
                _ => continue,
            };
            return Some(Step::DeletePod { member: name.clone(), why });
        }
        None
    }

    /// Brings back Pods of members whose volume is there: that is safe at any time, and how a majority
    /// comes back. A Pod that does not serve and is outdated is made anew, because what is wrong with it
    /// may be what the spec now corrects.
    fn revive(&self) -> Option<Step> {
        for member in self.all().filter(|member| member.phase != MemberPhase::Leaving) {
            if !self.observed.has_volume(member) {
                continue;
            }
            match (self.pod(&member.name), self.how(member)) {
                (None, Some(start)) => {
                    let (member, version) = (member.name.clone(), self.version());
                    return Some(Step::CreatePod { member, version, start });
                }
                (Some(pod), how) if !pod.is_deleting && !pod.serves() => {
                    // It was made to join members that are no longer these.
                    let strayed =
                        matches!(&how, Some(start @ Start::Join(_)) if pod.initial != start.mark());
                    let waited = self.lost_for(member).is_some_and(|lost| lost >= PATIENCE);
                    let others_are_up = self.observed.pods.values().all(|pod| !pod.is_deleting);
                    if strayed || (waited && others_are_up && self.is_outdated(&member.name)) {
                        let (member, why) = (member.name.clone(), Why::Outdated);
                        return Some(Step::DeletePod { member, why });
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// Nothing more without the word of a majority, or with members that nobody here added.
    fn agree(&self) -> Option<Step> {
        let Observed { etcd, cluster, .. } = self.observed;
        let Some(roster) = &etcd.roster else { return Some(self.speechless()) };
        if self.status.cluster_id.as_ref() != Some(&roster.cluster_id()) {
            return Some(Waiting::stuck(
                "OtherCluster",
                format!(
                    "the members say that they are cluster {}, and the status says {}: the controller \
                     changes nothing; restore the volumes that belong to this EtcdCluster",
                    roster.cluster_id(),
                    self.status.cluster_id.as_deref().unwrap_or_default()
                ),
            ));
        }
        if let Some(alarm) = etcd.alarms.iter().find(|alarm| alarm.alarm == "CORRUPT") {
            return Some(Waiting::stuck(
                "DataCorrupt",
                format!(
                    "member {:x} raised the alarm CORRUPT: the controller changes no member; compare them \
                     with etcdctl endpoint hashkv, and restore the last good snapshot into another \
                     EtcdCluster",
                    alarm.member
                ),
            ));
        }
        for listed in &roster.members {
            let name = listed.peer_urls.iter().find_map(|url| names::member_at(cluster, url));
            let known =
                name.as_ref().is_some_and(|name| self.all().any(|member| member.name == *name));
            if known {
                continue;
            }
            // A learner of ours that never started is a step that was lost with an older status.
            let lost = name.filter(|name| {
                listed.is_learner
                    && listed.name.is_empty()
                    && !self.observed.pods.contains_key(name)
            });
            return Some(match (lost, self.via("")) {
                (Some(member), Some(via)) => Step::Remove { via, member, id: listed.id },
                _ => Waiting::stuck(
                    "UnknownMember",
                    format!(
                        "etcd has member {:x} at {}, which this controller did not add: remove it with \
                         etcdctl member remove {:x}",
                        listed.id,
                        listed.peer_urls.first().map_or("no address", String::as_str),
                        listed.id
                    ),
                ),
            });
        }
        None
    }

    /// What is said when no majority answers.
    fn speechless(&self) -> Step {
        let (serving, all) = (
            self.running().filter(|member| self.observed.serves(member)).count(),
            self.running().count(),
        );
        if self.observed.etcd.wants_user {
            return Waiting::stuck(
                "AuthenticationEnabled",
                "etcd asks for a user and a password, which the controller has none of: disable etcd's \
                 authentication; certificates protect the cluster",
            );
        }
        let trouble = self.observed.etcd.trouble.as_deref().unwrap_or("no Pod serves");
        if serving > all / 2 {
            return Waiting::step(
                "Unreachable",
                format!("no member answers the controller: {trouble}"),
            );
        }
        let gone: Vec<_> =
            self.running().filter(|member| !self.observed.has_volume(member)).collect();
        let message = if gone.len() * 2 >= all && !gone.is_empty() {
            let names: Vec<_> = gone.iter().map(|member| member.name.as_str()).collect();
            format!(
                "{serving} of {all} members serve, and the volumes of {} are gone, so a majority cannot \
                 come back: create another EtcdCluster with spec.restoreFrom and the last snapshot",
                names.join(", ")
            )
        } else {
            format!(
                "{serving} of {all} members serve, and etcd needs a majority; nothing is changed until it \
                 is back: see why the other Pods do not run ({trouble}); if their volumes are lost for \
                 good, create another EtcdCluster with spec.restoreFrom and the last snapshot"
            )
        };
        Waiting::stuck("QuorumLost", message)
    }
}
