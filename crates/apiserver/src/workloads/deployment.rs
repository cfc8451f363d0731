//! Deployment -> ReplicaSets: one per template, rolled over within surge and unavailability.
//!
//! A ReplicaSet belongs to a template by its hash label. One step per plan: grow the new one, else
//! shrink the old ones; the next observation brings the next step.

use std::sync::Arc;

use jiff::Timestamp;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

use super::action::{Action, Kind, ObjectRef};
use super::object::{Object, count};
use super::status::{self, Condition};
use super::template::{self, HASH_LABEL};

/// Annotation that counts the templates of a Deployment.
const REVISION: &str = "deployment.kubernetes.io/revision";
/// The annotation of kubectl, which ReplicaSets do not inherit.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// How many old ReplicaSets are kept by default.
const DEFAULT_HISTORY: i32 = 10;

/// The next writes for a Deployment, given its ReplicaSets.
pub(crate) fn plan(deployment: &Object, sets: &[Arc<Object>], now: Timestamp) -> Vec<Action> {
    let spec = &deployment.spec;
    if deployment.meta().deletion_timestamp.is_some() {
        return Vec::new();
    }
    let rollout = Rollout::new(deployment, spec, sets);
    let mut actions = Vec::new();
    if spec["paused"] != true {
        rollout.roll(&mut actions);
        rollout.clean_up(&mut actions);
    } else if let Some(new) = rollout.new.filter(|new| replicas(new) != rollout.desired) {
        actions.push(scale(new, rollout.desired));
    }
    rollout.mark_revision(&mut actions);
    actions.extend(rollout.status(now));
    actions
}

/// A Deployment with its ReplicaSets sorted into the one of the present template and the others.
struct Rollout<'a> {
    deployment: &'a Object,
    spec: &'a Value,
    hash: String,
    desired: i32,
    new: Option<&'a Object>,
    /// Oldest first.
    old: Vec<&'a Object>,
}

impl<'a> Rollout<'a> {
    fn new(deployment: &'a Object, spec: &'a Value, sets: &'a [Arc<Object>]) -> Self {
        let hash = template::hash(&spec["template"]);
        let is_new = |set: &&Object| set.labels().get(HASH_LABEL) == Some(&hash);
        let new = sets.iter().map(|set| &**set).find(is_new);
        let mut old: Vec<&Object> =
            sets.iter().map(|set| &**set).filter(|set| !is_new(set)).collect();
        old.sort_by_key(|set| (revision(*set), set.name_any()));
        Self { deployment, spec, hash, desired: count(&spec["replicas"]).unwrap_or(1), new, old }
    }

    fn name(&self) -> String {
        format!("{}-{}", self.deployment.name_any(), self.hash)
    }

    /// Pods above the desired count, and below it, that a rollout may have.
    fn slack(&self) -> (i32, i32) {
        let rolling = &self.spec["strategy"]["rollingUpdate"];
        let surge = resolve(&rolling["maxSurge"], self.desired, true);
        let unavailable = resolve(&rolling["maxUnavailable"], self.desired, false);
        if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) }
    }

    fn recreates(&self) -> bool {
        self.spec["strategy"]["type"] == "Recreate"
    }

    fn roll(&self, actions: &mut Vec<Action>) {
        if self.recreates() {
            let running: Vec<_> =
                self.old.iter().filter(|s| replicas(s) > 0 || observed(s).0 > 0).collect();
            if !running.is_empty() {
                let busy = running.iter().filter(|s| replicas(s) > 0);
                actions.extend(busy.map(|set| scale(set, 0)));
                return;
            }
        }
        let target = self.new_target();
        match self.new {
            None => actions.push(self.create(target)),
            Some(new) if replicas(new) != target => actions.push(scale(new, target)),
            Some(new) => self.shrink_old(new, actions),
        }
    }

    fn new_target(&self) -> i32 {
        let current = self.new.map_or(0, replicas);
        if current >= self.desired || self.recreates() {
            return self.desired;
        }
        let total = current + self.old.iter().map(|set| replicas(set)).sum::<i32>();
        let room = self.desired + self.slack().0 - total;
        current + room.clamp(0, self.desired - current)
    }

    fn shrink_old(&self, new: &Object, actions: &mut Vec<Action>) {
        let total: i32 = replicas(new) + self.old.iter().map(|set| replicas(set)).sum::<i32>();
        let available: i32 =
            observed(new).2 + self.old.iter().map(|set| observed(set).2).sum::<i32>();
        let needed = self.desired - self.slack().1;
        let coming = replicas(new) - observed(new).2;
        // Pods that are not ready are deleted first, as far as the total allows; then ready ones,
        // as long as enough of them remain.
        let mut spare = (total - needed - coming).max(0);
        let mut spare_available = (available - needed).max(0);
        for set in self.old.iter().filter(|set| replicas(set) > 0) {
            let idle = (replicas(set) - observed(set).2).clamp(0, spare);
            spare -= idle;
            let serving = (replicas(set) - idle).min(spare_available).min(spare);
            spare -= serving;
            spare_available -= serving;
            if idle + serving > 0 {
                actions.push(scale(set, replicas(set) - idle - serving));
            }
        }
    }

    /// Deletes the oldest idle ReplicaSets beyond the history limit, once the rollout is complete.
    fn clean_up(&self, actions: &mut Vec<Action>) {
        if self.new.is_none() {
            return;
        }
        let limit = count(&self.spec["revisionHistoryLimit"]).unwrap_or(DEFAULT_HISTORY);
        let limit = limit.max(0) as usize;
        let idle: Vec<_> = self
            .old
            .iter()
            .filter(|s| replicas(s) == 0 && observed(s).0 == 0)
            .filter(|s| s.meta().deletion_timestamp.is_none())
            .collect();
        for set in idle.iter().take(idle.len().saturating_sub(limit)) {
            let key = ObjectRef::new(Kind::ReplicaSet, **set);
            actions.push(Action::Delete { key, uid: set.uid().unwrap_or_default() });
        }
    }

    /// The number of the present template: higher than all others, so that a rollback counts too.
    fn revision(&self) -> i64 {
        let highest_old = self.old.iter().map(|set| revision(*set)).max().unwrap_or(0);
        self.new.map_or(0, revision).max(highest_old + 1)
    }

    fn mark_revision(&self, actions: &mut Vec<Action>) {
        let number = self.revision();
        let annotate = |key: ObjectRef| Action::Patch {
            key,
            body: json!({"metadata": {"annotations": {REVISION: number.to_string()}}}),
        };
        let Some(new) = self.new else { return };
        if revision(new) != number {
            actions.push(annotate(ObjectRef::new(Kind::ReplicaSet, new)));
        }
        if revision(self.deployment) != number {
            actions.push(annotate(ObjectRef::new(Kind::Deployment, self.deployment)));
        }
    }

    fn create(&self, replicas: i32) -> Action {
        let mut annotations = self.deployment.annotations().clone();
        annotations.remove(LAST_APPLIED);
        annotations.insert(REVISION.into(), self.revision().to_string());
        let mut template = self.spec["template"].clone();
        let labels = &mut template["metadata"]["labels"];
        labels[HASH_LABEL] = json!(self.hash);
        let labels = labels.clone();
        let mut selector = self.spec["selector"].clone();
        selector["matchLabels"][HASH_LABEL] = json!(self.hash);
        let namespace = self.deployment.namespace().unwrap_or_default();
        let body = json!({
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": self.name(),
                "namespace": namespace,
                "labels": labels,
                "annotations": annotations,
                "ownerReferences": [template::owner_reference(Kind::Deployment, self.deployment)],
            },
            "spec": {"replicas": replicas, "selector": selector, "template": template},
        });
        Action::Create { kind: Kind::ReplicaSet, namespace, body }
    }

    fn status(&self, now: Timestamp) -> Option<Action> {
        let sets = || self.old.iter().copied().chain(self.new);
        let sum = |count: fn(&Object) -> i32| sets().map(count).sum::<i32>();
        let total = sum(|set| observed(set).0);
        let available = sum(|set| observed(set).2);
        let updated = self.new.map_or(0, |new| observed(new).0);
        let mut desired = json!({
            "observedGeneration": self.deployment.meta().generation.unwrap_or(0),
            "replicas": total,
            "updatedReplicas": updated,
            "readyReplicas": sum(|set| observed(set).1),
            "availableReplicas": available,
            "unavailableReplicas": (sum(replicas) - available).max(0),
            "conditions": self.conditions(total, updated, available, now),
        });
        let zeroes = [
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
        ];
        status::omit_zero(&mut desired, &zeroes);
        let key = ObjectRef::new(Kind::Deployment, self.deployment);
        status::patch(key, &self.deployment.status, desired)
    }

    fn conditions(&self, total: i32, updated: i32, available: i32, now: Timestamp) -> Vec<Value> {
        let current = |kind: &str| {
            let conditions = self.deployment.status["conditions"].as_array()?;
            conditions.iter().find(|c| c["type"] == kind)
        };
        let enough = available >= self.desired - self.slack().1;
        let availability = Condition {
            kind: "Available",
            status: enough,
            reason: if enough { "MinimumReplicasAvailable" } else { "MinimumReplicasUnavailable" },
            message: if enough {
                "Deployment has minimum availability.".into()
            } else {
                "Deployment does not have minimum availability.".into()
            },
        };
        let before = current("Progressing");
        let was_complete = before.is_some_and(|c| c["reason"] == "NewReplicaSetAvailable");
        let complete =
            updated == self.desired && total == self.desired && available == self.desired;
        let name = self.name();
        let (reason, message) = if complete
            || (was_complete && self.new.is_some() && total == updated)
        {
            ("NewReplicaSetAvailable", format!("ReplicaSet {name:?} has successfully progressed."))
        } else if self.new.is_none() {
            ("NewReplicaSetCreated", format!("Created new replica set {name:?}"))
        } else {
            ("ReplicaSetUpdated", format!("ReplicaSet {name:?} is progressing."))
        };
        let progress = Condition { kind: "Progressing", status: true, reason, message };
        vec![
            status::condition(current("Available"), &availability, now),
            status::condition(before, &progress, now),
        ]
    }
}

fn replicas(set: &Object) -> i32 {
    count(&set.spec["replicas"]).unwrap_or(1)
}

/// Pods observed: all, ready, available.
fn observed(set: &Object) -> (i32, i32, i32) {
    let pods = |which: &str| count(&set.status[which]).unwrap_or(0);
    (pods("replicas"), pods("readyReplicas"), pods("availableReplicas"))
}

fn revision(object: &impl ResourceExt) -> i64 {
    object.annotations().get(REVISION).and_then(|r| r.parse().ok()).unwrap_or(0)
}

fn scale(set: &Object, replicas: i32) -> Action {
    Action::Patch {
        key: ObjectRef::new(Kind::ReplicaSet, set),
        body: json!({"spec": {"replicas": replicas}}),
    }
}

/// A count or a percentage of `desired`; a quarter by default.
fn resolve(value: &Value, desired: i32, round_up: bool) -> i32 {
    let percent = match value {
        Value::Number(_) => return count(value).unwrap_or(0).max(0),
        Value::String(text) => {
            text.strip_suffix('%').and_then(|p| p.parse::<i64>().ok()).unwrap_or(0)
        }
        _ => 25,
    };
    let scaled = i64::from(desired) * percent.max(0);
    let whole = if round_up { (scaled + 99) / 100 } else { scaled / 100 };
    i32::try_from(whole).unwrap_or(i32::MAX)
}
