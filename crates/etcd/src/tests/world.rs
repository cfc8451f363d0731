//! A small world: Kubernetes' objects, kubelets, and etcd. It takes steps as the shell does, and checks
//! after each that nothing wrong happened.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use serde::Deserialize;
use serde_json::{Value, json};

use super::cluster;
use super::standin::Standin;
use crate::api::{EtcdCluster, EtcdClusterStatus};
use crate::calls::{Look, Roster};
use crate::change::{Change, change};
use crate::names;
use crate::objects;
use crate::observed::{Observed, Seen, pods_of, volumes_of};
use crate::plan::plan;
use crate::report::report;
use crate::step::{POLL, Step};
use crate::wanted::read;

/// More steps than any life here needs.
const MOST: usize = 3_000;

pub(crate) struct World {
    pub(crate) cluster: EtcdCluster,
    pub(crate) pods: BTreeMap<String, Pod>,
    pub(crate) volumes: BTreeMap<String, PersistentVolumeClaim>,
    /// Pods whose node does not run anything.
    pub(crate) dead: BTreeSet<String>,
    /// Pods to which there is no connection.
    pub(crate) unreachable: BTreeSet<String>,
    /// Versions whose image does not start.
    pub(crate) broken: BTreeSet<String>,
    pub(crate) etcd: Standin,
    pub(crate) now: Timestamp,
    /// Steps that were taken.
    pub(crate) steps: Vec<Step>,
    /// After so many effects a crash: the step is taken, and what follows it in the same round is not.
    pub(crate) crash: Option<(usize, bool)>,
    uids: u32,
    effects: usize,
}

impl World {
    pub(crate) fn new(spec: Value) -> Self {
        Self {
            cluster: cluster(spec),
            pods: BTreeMap::new(),
            volumes: BTreeMap::new(),
            dead: BTreeSet::new(),
            unreachable: BTreeSet::new(),
            broken: BTreeSet::new(),
            etcd: Standin { lag: 1, quota: 1 << 30, ..Standin::default() },
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
            steps: Vec::new(),
            crash: None,
            uids: 0,
            effects: 0,
        }
    }

    /// A settled cluster.
    pub(crate) fn settled(spec: Value) -> Self {
        let mut world = Self::new(spec);
        world.settle();
        world.steps.clear();
        world.etcd.log.clear();
        world
    }

    pub(crate) fn set(&mut self, field: &str, value: Value) {
        let mut spec = serde_json::to_value(&self.cluster.spec).unwrap();
        spec[field] = value;
        self.cluster.spec = serde_json::from_value(spec).unwrap();
    }

    pub(crate) fn status(&self) -> EtcdClusterStatus {
        self.cluster.status.clone().unwrap_or_default()
    }

    pub(crate) fn condition(&self, type_: &str) -> (String, String, String) {
        let conditions = self.status().conditions;
        let found = conditions.into_iter().find(|found| found.type_ == type_).unwrap();
        (found.status, found.reason, found.message)
    }

    /// Runs until there is nothing to do.
    pub(crate) fn settle(&mut self) {
        self.run(|step| *step == Step::Rest);
    }

    /// Runs until the plan is stuck for this reason.
    pub(crate) fn sticks(&mut self, reason: &str) {
        self.run(|step| matches!(step, Step::Wait(waiting) if waiting.is_stuck && waiting.reason == reason));
    }

    pub(crate) fn run(&mut self, until: impl Fn(&Step) -> bool) {
        for _ in 0..MOST {
            let step = self.round();
            if until(&step) {
                return;
            }
        }
        let last = &self.steps[self.steps.len().saturating_sub(12)..];
        panic!("no end after {MOST} rounds: {last:#?}\n{:#?}", self.status());
    }

    /// Kubelets start and stop what they should, and a client writes.
    fn kubelets(&mut self) {
        let ending = self.pods.values().filter(|pod| pod.metadata.deletion_timestamp.is_some());
        let ending = ending.map(ResourceExt::name_any).filter(|name| !self.dead.contains(name));
        let gone: Vec<String> = ending.collect();
        for name in gone {
            self.etcd.stop(&name);
            self.pods.remove(&name);
        }
        // A volume in use stays until its Pod is gone.
        let pods = &self.pods;
        self.volumes.retain(|name, volume| {
            volume.metadata.deletion_timestamp.is_none() || pods.contains_key(name)
        });
        for (name, pod) in &self.pods {
            if self.dead.contains(name) {
                self.etcd.stop(name);
            } else if !self.etcd.processes.contains_key(name)
                && let Some(volume) = self.volumes.get(name)
            {
                let container = &pod.spec.as_ref().unwrap().containers[0];
                let image = container.image.clone().unwrap();
                let version = image.split(":v").nth(1).unwrap();
                if !self.broken.contains(version) {
                    let arguments = container.args.clone().unwrap();
                    self.etcd.start(name, &arguments, &volume.uid().unwrap(), version);
                }
            }
        }
        self.etcd.write();
        for (name, pod) in &mut self.pods {
            let is_ready = self.etcd.is_ready(name);
            let state = if self.etcd.processes.contains_key(name) {
                json!({"running": {}})
            } else {
                json!({"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}})
            };
            let container = json!({
                "name": "etcd", "image": "", "imageID": "", "restartCount": 0, "ready": is_ready, "state": state,
            });
            let ready = if is_ready { "True" } else { "False" };
            let status = json!({
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": ready}],
                "containerStatuses": [container],
            });
            pod.status = serde_json::from_value(status).unwrap();
        }
    }

    fn seen(&mut self) -> Seen {
        let mut seen = Seen { is_thorough: true, ..Seen::default() };
        for name in self.pods.keys().cloned().collect::<Vec<_>>() {
            if self.unreachable.contains(&name) {
                continue;
            }
            let Some(Ok(look)) = self.etcd.post(&name, "/v3/maintenance/status", &json!({})) else {
                continue;
            };
            let look = Look::deserialize(look).unwrap();
            if !look.is_learner && look.leader != 0 {
                let list = self.etcd.post(
                    &name,
                    "/v3/cluster/member/list",
                    &json!({"linearizable": true}),
                );
                if let Some(Ok(list)) = list {
                    seen.roster = Some(Roster::deserialize(list).unwrap());
                }
                let alarms =
                    self.etcd.post(&name, "/v3/maintenance/alarm", &json!({"action": "GET"}));
                if let Some(Ok(alarms)) = alarms {
                    seen.alarms = Vec::deserialize(&alarms["alarms"]).unwrap();
                }
            }
            seen.looks.insert(name, look);
        }
        seen
    }

    /// One round: look, plan, take the step, write the status. Time passes.
    pub(crate) fn round(&mut self) -> Step {
        self.now += POLL;
        self.kubelets();
        let (cluster, seen) = (self.cluster.clone(), self.seen());
        let (wanted, invalid) = read(&cluster);
        let observed = Observed {
            cluster: &cluster,
            wanted: &wanted,
            invalid: invalid.as_ref(),
            pods: pods_of(&cluster, self.pods.values()),
            volumes: volumes_of(&cluster, self.volumes.values()),
            restored: true,
            etcd: seen,
            now: self.now,
        };
        let mut status = observed.refreshed();
        let step = plan(&observed, &status);
        self.steps.push(step.clone());
        if let Step::Record(intent) = &step {
            change(&mut status, &cluster, intent, self.now);
        }
        if matches!(step, Step::Defragment(_)) {
            change(&mut status, &cluster, &Change::Defragment, self.now);
        }
        let is_effect = !matches!(step, Step::Wait(_) | Step::Rest);
        let number = self.effects;
        self.effects += usize::from(is_effect);
        if let Some((after, is_taken)) = self.crash
            && is_effect
            && number == after
        {
            // The manager is gone: at most this one write was done.
            if is_taken {
                self.take(&step, &cluster, &status);
            }
            return step;
        }
        self.take(&step, &cluster, &status);
        if !matches!(step, Step::Record(_)) {
            report(&observed, &mut status, &step);
            self.cluster.status = Some(status);
        }
        assert!(self.etcd.wrong.is_empty(), "{:?} after {:#?}", self.etcd.wrong, self.steps.last());
        step
    }

    /// How many effects there were.
    pub(crate) fn effects(&self) -> usize {
        self.effects
    }

    fn take(&mut self, step: &Step, cluster: &EtcdCluster, status: &EtcdClusterStatus) {
        let (wanted, _) = read(cluster);
        self.uids += 1;
        let uid = Some(format!("uid-{}", self.uids));
        let deleted = serde_json::from_value(json!(self.now)).unwrap();
        match step {
            Step::Record(_) => self.cluster.status = Some(status.clone()),
            Step::CreateVolume(member) => {
                let mut volume = objects::volume(cluster, member);
                volume.metadata.uid = uid;
                assert!(self.volumes.insert(member.clone(), volume).is_none());
            }
            Step::CreatePod { member, version, start } => {
                let mut pod = objects::pod(cluster, &wanted, *version, member, start);
                pod.metadata.uid = uid;
                assert!(self.pods.insert(member.clone(), pod).is_none());
            }
            Step::DeleteVolume(member) => {
                self.volumes.get_mut(member).unwrap().metadata.deletion_timestamp = deleted;
            }
            Step::DeletePod { member, .. } => {
                self.pods.get_mut(member).unwrap().metadata.deletion_timestamp = deleted;
            }
            Step::Add { via, member } => {
                let body =
                    json!({"peerURLs": [names::peer_url(cluster, member)], "isLearner": true});
                self.post(via, "/v3/cluster/member/add", body);
            }
            Step::Promote { via, id, .. } => {
                self.post(via, "/v3/cluster/member/promote", json!({"ID": id.to_string()}));
            }
            Step::Remove { via, id, .. } => {
                self.post(via, "/v3/cluster/member/remove", json!({"ID": id.to_string()}));
            }
            Step::MoveLeader { from, id, .. } => {
                let body = json!({"targetID": id.to_string()});
                self.post(from, "/v3/maintenance/transfer-leadership", body);
            }
            Step::Defragment(member) => self.post(member, "/v3/maintenance/defragment", json!({})),
            Step::Disarm { via, id } => {
                let body =
                    json!({"action": "DEACTIVATE", "memberID": id.to_string(), "alarm": "NOSPACE"});
                self.post(via, "/v3/maintenance/alarm", body);
            }
            Step::Wait(_) | Step::Rest => {}
        }
    }

    fn post(&mut self, pod: &str, path: &str, body: Value) {
        let answer = self.etcd.post(pod, path, &body);
        assert!(answer.is_some(), "{pod} was asked, which does not run");
    }

    pub(crate) fn lose_pod(&mut self, name: &str) {
        self.etcd.stop(name);
        self.pods.remove(name);
    }

    pub(crate) fn lose_volume(&mut self, name: &str) {
        self.lose_pod(name);
        self.volumes.remove(name);
    }

    pub(crate) fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    /// The names of the members.
    pub(crate) fn names(&self) -> Vec<String> {
        self.status().members.into_iter().map(|member| member.name).collect()
    }
}
