//! Proof that a member's process has ended, so that its shards need not wait for the silence of its Lease.
//!
//! # Why it is proof (S5, second form)
//! A Member names the container of its process by Pod, name and a token for this very instance
//! (`src/container.rs`). Two things prove that such a process has ended:
//! 1. *Home says so.* `containerStatuses` of the Pod of that uid shows the container of that name as
//!    terminated, now (`state`) or before its present run (`lastState`), with exactly that token as its
//!    message. Only the kubelet of the Pod's node puts it there: it reads the file of an instance when its
//!    runtime says that this instance has exited, and of no other (`convertToKubeContainerStatus` in
//!    Kubernetes's `pkg/kubelet/kuberuntime/kuberuntime_container.go`). The token is of one instance, as a
//!    containerID is, but a process knows its own token and cannot know its containerID for certain.
//! 2. *Its successor says so*, in its Member. A Member may name a file of its Pod on which its process
//!    holds the kernel's lock from before the Member was written until the process ends. A process that
//!    holds this lock itself, on the same file of a machine with the same start, knows that the other has
//!    ended: the kernel gives the lock to one process at a time, and the number of a file that is open is given to no
//!    other file. This needs no right to read Pods and no trust in whoever starts containers: where a
//!    node's runtime is exchanged under running containers, the kubelet may start a second instance beside
//!    the first (it sees only what its runtime shows it), and that one does not get the lock.
//!
//! Everything else proves nothing:
//! - a Pod that is deleted or not found: after a deletion by force its containers may run on;
//! - a node that is not ready, or a Pod with phase `Failed`: the node controller and the collector of Pods
//!   write both for nodes that they cannot reach, and with a phase comes no token;
//! - `ContainerStatusUnknown` and `Unknown`: nobody knows;
//! - a higher `restartCount` or another containerID alone: which instance ran the process, nothing says;
//! - another Pod, even of the same name; another container, a sidecar, an init or ephemeral one: its name, or
//!   the list that shows it, is another;
//! - a Member that names no container.
//!
//! The assumption: nobody else writes `pods/status` or Members of the fleet with a lie, and the runtime tells
//! the truth. SECURITY.md says so to users.
//!
//! Both proofs are final: an instance that has ended never runs again, whatever the age of what is read.
//! So a stale answer and a home restored from a backup can only show less. No clock takes part.
//!
//! An ended process starts nothing and sends nothing: the kernel gives the lock up, and reports the end to the
//! runtime, only after the last thread is gone. What the process had sent is another matter. After a silence
//! the deadline of every request has passed, because none outlives its Lease. After a proof, a request on its
//! way may take effect until that deadline, when another member owns the shard already. It seldom does: the
//! kernel closes the connections of an ended process, and a server drops the requests of a closed
//! connection. This is the request delayed in the network of which the crate's documentation speaks, and
//! the same things reject it: its resourceVersion, its name, the admission policy.
//!
//! The proof shortens the silence and nothing else: the Lease is still taken by compare-and-swap and read
//! back before a shard moves. Without proof (no container named, a lost node, no right to read Pods) the
//! Lease decides as ever.
//!
//! Attacked by `a_proof_is_of_this_very_container` here, by
//! `only_who_holds_the_lock_of_another_knows_of_its_end`, by the model's restarts with and without the
//! kubelet's word, and by the bugs `WrongContainer`,
//! `StaleToken` and `SharedLock`.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::api::{MAX_SUCCEEDED, MemberContainer, MemberSpec};
use crate::container;

/// The most ended containers that are remembered. Those that no Member names are forgotten first; beyond
/// it, silence decides.
pub(crate) const MAX_ENDED: usize = 4096;
/// The most containers of a Pod that are looked at.
const MAX_CONTAINERS: usize = 64;
/// Why a container is shown as terminated although nobody knows whether it is: the kubelet's word, and that
/// of its runtime.
const UNKNOWN: [&str; 2] = ["ContainerStatusUnknown", "Unknown"];

/// An instance of a container that has ended, as home says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ended {
    /// The uid of its Pod.
    pub pod_uid: String,
    /// Its name in the Pod.
    pub name: String,
    /// The token in the message of its termination.
    pub token: String,
}

/// What is known of ended processes.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Deaths {
    own: Option<MemberContainer>,
    ended: BTreeSet<Ended>,
}

impl Deaths {
    /// What a process in this container knows from the start.
    pub(crate) fn known_to(own: Option<MemberContainer>) -> Self {
        Self { own, ended: BTreeSet::new() }
    }

    /// Takes in what home says. If there are too many, keeps those that are `named` by a Member.
    pub(crate) fn learn(&mut self, ended: Vec<Ended>, named: impl Fn(&Ended) -> bool) {
        let new: BTreeSet<Ended> =
            ended.into_iter().filter(|one| !self.ended.contains(one)).collect();
        if self.ended.len() + new.len() > MAX_ENDED {
            self.ended.retain(&named);
        }
        let (known, unknown) = new.into_iter().partition::<Vec<_>, _>(&named);
        let room = MAX_ENDED.saturating_sub(self.ended.len());
        self.ended.extend(known.into_iter().chain(unknown).take(room));
    }

    /// Whether the process in this container has ended for certain.
    pub(crate) fn cover(&self, container: &MemberContainer) -> bool {
        let is_own = self.own.as_ref() == Some(container);
        let is_told = || !self.ended.is_empty() && self.ended.contains(&Ended::of(container));
        !is_own && (self.succeed(container) || is_told())
    }

    /// Whether this very process runs in a later instance of that container.
    pub(crate) fn succeed(&self, container: &MemberContainer) -> bool {
        let Some(own) = &self.own else { return false };
        let MemberContainer { pod_uid, name, boot_id, token, lock_id } = container;
        let is_same = (&own.pod_uid, &own.name, &own.boot_id) == (pod_uid, name, boot_id);
        is_same && own.lock_id.is_some() && own.lock_id == *lock_id && own.token != *token
    }
}

impl Ended {
    pub(crate) fn of(container: &MemberContainer) -> Self {
        let MemberContainer { pod_uid, name, token, boot_id: _, lock_id: _ } = container;
        Self { pod_uid: pod_uid.clone(), name: name.clone(), token: token.clone() }
    }

    /// The instances that a member succeeds in its container.
    pub(crate) fn said_by(member: &MemberSpec) -> Vec<Self> {
        let Some(container) = &member.container else { return Vec::new() };
        let tokens = member.succeeds.iter().filter(|token| **token != container.token);
        let ended = |token: &String| Self { token: token.clone(), ..Self::of(container) };
        tokens.take(MAX_SUCCEEDED).map(ended).collect()
    }

    /// The ended instances of its containers that a Pod shows: the present one if it has ended, and the one
    /// before.
    pub(crate) fn shown_by(uid: &str, status: &Value) -> Vec<Self> {
        let containers = status["containerStatuses"].as_array().into_iter().flatten();
        let mut found = Vec::new();
        for container in containers.take(MAX_CONTAINERS) {
            let Some(name) = container["name"].as_str() else { continue };
            let states = [&container["state"]["terminated"], &container["lastState"]["terminated"]];
            let tokens = states.into_iter().filter_map(token);
            found.extend(tokens.map(|token| Self {
                pod_uid: uid.to_owned(),
                name: name.to_owned(),
                token: token.to_owned(),
            }));
        }
        found
    }
}

/// The token of a terminated instance.
fn token(terminated: &Value) -> Option<&str> {
    let reason = terminated["reason"].as_str().unwrap_or_default();
    let is_certain = terminated["exitCode"].is_i64() && !UNKNOWN.contains(&reason);
    container::token(terminated["message"].as_str()?).filter(|_| is_certain)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn container(pod_uid: &str, name: &str, boot_id: &str, token: &str) -> MemberContainer {
        let [pod_uid, name, boot_id, token] = [pod_uid, name, boot_id, token].map(str::to_owned);
        MemberContainer { pod_uid, name, boot_id, token, lock_id: Some("9:1".into()) }
    }

    fn terminated(reason: &str, message: &str) -> Value {
        json!({"terminated": {"exitCode": 137, "reason": reason, "message": message}})
    }

    /// The tokens that a Pod shows as ended.
    fn shown(state: &Value, last: &Value) -> Vec<String> {
        let status = json!({"phase": "Running", "containerStatuses": [
            {"name": "sidecar", "state": {"running": {}}},
            {"name": "leasehold", "state": state, "lastState": last},
        ]});
        let ended = Ended::shown_by("pod-1", &status);
        assert!(ended.iter().all(|ended| ended.pod_uid == "pod-1" && ended.name == "leasehold"));
        ended.into_iter().map(|ended| ended.token).collect()
    }

    #[test]
    fn a_pod_shows_which_instances_of_its_containers_ended() {
        let (running, none) = (json!({"running": {}}), json!({}));
        let waiting = json!({"waiting": {"reason": "CrashLoopBackOff"}});
        let a1 = container::message("a1");
        let b2 = container::message("b2");
        assert_eq!(shown(&terminated("Error", &a1), &none), ["a1"]);
        assert_eq!(shown(&running, &terminated("OOMKilled", &a1)), ["a1"]);
        assert_eq!(shown(&waiting, &terminated("Error", &a1)), ["a1"]);
        assert_eq!(shown(&terminated("Error", &b2), &terminated("Error", &a1)), ["b2", "a1"]);
        assert!(shown(&running, &none).is_empty());
    }

    #[test]
    fn what_is_not_the_word_of_a_kubelet_that_knows_shows_nothing() {
        let a1 = container::message("a1");
        let none = json!({});
        for state in [
            terminated("ContainerStatusUnknown", &a1),
            terminated("Unknown", &a1),
            terminated("Error", "The container could not be located when the pod was terminated"),
            terminated("Error", &format!("took the Lease of\n{a1}")),
            json!({"terminated": {"reason": "Error", "message": a1}}),
            json!({"terminated": null}),
            json!({"running": {"message": a1}}),
        ] {
            assert!(shown(&state, &none).is_empty(), "{state}");
        }
        for status in [
            json!(null),
            json!({"phase": "Failed", "reason": "NodeLost"}),
            json!({"conditions": [{"type": "DisruptionTarget", "status": "True"}]}),
            json!({"phase": "Failed", "reason": "Evicted", "message": a1}),
            json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}),
            json!({"containerStatuses": [{"name": "leasehold", "restartCount": 3,
                "containerID": "containerd://2", "state": {"running": {}}}]}),
            json!({"initContainerStatuses": [{"name": "leasehold", "state": terminated("Error", &a1)}]}),
            json!({"ephemeralContainerStatuses":
                [{"name": "leasehold", "state": terminated("Error", &a1)}]}),
            json!({"containerStatuses": {"name": "leasehold"}}),
            json!({"containerStatuses": [{"state": terminated("Error", &a1)}]}),
        ] {
            assert_eq!(Ended::shown_by("pod-1", &status), [], "{status}");
        }
    }

    #[test]
    fn a_proof_is_of_this_very_container() {
        let own = container("pod-1", "leasehold", "boot-1", "b2");
        let mut deaths = Deaths::known_to(Some(own.clone()));
        let [pod_uid, name, token] = ["pod-2", "leasehold", "c1"].map(str::to_owned);
        // Home is wrong about the process that reads it.
        deaths.learn(vec![Ended { pod_uid, name, token }, Ended::of(&own)], |_| true);
        for (of, is_dead) in [
            (own, false),
            (container("pod-1", "leasehold", "boot-1", "a1"), true),
            (container("pod-1", "leasehold", "boot-2", "a1"), false),
            (container("pod-1", "sidecar", "boot-1", "a1"), false),
            (container("pod-3", "leasehold", "boot-1", "a1"), false),
            (container("pod-2", "leasehold", "boot-9", "c1"), true),
            (container("pod-2", "leasehold", "boot-1", "c2"), false),
            (container("pod-2", "sidecar", "boot-1", "c1"), false),
            (container("pod-4", "leasehold", "boot-1", "c1"), false),
        ] {
            assert_eq!(deaths.cover(&of), is_dead, "{of:?}");
        }
        let before = container("pod-1", "leasehold", "boot-1", "a1");
        assert!(!Deaths::default().cover(&before));
    }

    #[test]
    fn only_who_holds_the_lock_of_another_knows_of_its_end() {
        let lock = |token: &str, lock: Option<&str>| MemberContainer {
            lock_id: lock.map(str::to_owned),
            ..container("pod-1", "leasehold", "boot-1", token)
        };
        for (own, other, is_dead) in [
            (Some("9:1"), Some("9:1"), true),
            (Some("9:1"), Some("9:2"), false),
            (Some("9:1"), None, false),
            (None, Some("9:1"), false),
            (None, None, false),
        ] {
            let deaths = Deaths::known_to(Some(lock("b2", own)));
            assert_eq!(deaths.cover(&lock("a1", other)), is_dead, "{own:?} {other:?}");
        }
    }

    #[test]
    fn what_members_name_is_remembered() {
        let ended = |n: usize| Ended {
            pod_uid: "pod-1".into(),
            name: "leasehold".into(),
            token: format!("t{n}"),
        };
        let mut deaths = Deaths::default();
        let named = |one: &Ended| one.token == "t7";
        for numbers in [0..MAX_ENDED, 0..MAX_ENDED + 5, 0..2 * MAX_ENDED] {
            deaths.learn(numbers.map(ended).collect(), named);
            assert!(deaths.cover(&container("pod-1", "leasehold", "", "t7")));
            assert!(deaths.ended.len() <= MAX_ENDED);
        }
    }
}
