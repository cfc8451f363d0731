//! What a search of a namespace finds, workload by workload: who restarts for what changed, and what annotations
//! say that cannot be read. Pure.
//!
//! A Rollout may run the template of a Deployment. It restarts by its own field for what that template uses: a change of
//! the template would be a new revision to it, which goes through all its steps. So a Deployment without replicas is left to
//! the Rollout that runs its template. One with replicas restarts too.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use kube::core::DynamicObject;

use super::discovery::{Asking, Discovery, Verdict, referred};
use super::pending::{Workload, WorkloadKind};

/// What was found so far.
#[derive(Debug, Default)]
pub(super) struct Search {
    restarting: Vec<Workload>,
    unread: Vec<String>,
    /// Deployments that ask for something, or use what changed.
    deployments: BTreeMap<String, Asking>,
    /// Those without replicas.
    idle: BTreeSet<String>,
    /// Deployments whose template a Rollout runs.
    referred: BTreeSet<String>,
}

impl Search {
    /// Nothing, but what the object itself says.
    pub(super) fn of(changed: &Discovery) -> Self {
        let unread = changed.unread().map(str::to_owned).into_iter().collect();
        Self { unread, ..Self::default() }
    }

    /// Looks at a workload. Deployments come before Rollouts.
    pub(super) fn look(&mut self, changed: &Discovery, kind: WorkloadKind, object: &DynamicObject) {
        let workload = Workload::new(kind, object.name_any());
        let own = Asking::of(object);
        let is_silent = own.is_silent();
        let asking = match referred(object).filter(|_| kind == WorkloadKind::Rollout) {
            Some(name) => {
                self.referred.insert(name.to_owned());
                own.running(self.deployments.get(name))
            }
            None => own,
        };
        let unread = asking.unread(changed.content());
        let unread = unread.filter(|_| !is_silent && !changed.is_ignored());
        self.unread.extend(unread.map(|words| format!("{}: {words}", workload.label())));
        let (restarts, why) = match asking.verdict(changed) {
            Verdict::Restart(why) => (object.metadata.deletion_timestamp.is_none(), why),
            Verdict::Leave(why) => (false, why),
        };
        tracing::debug!(workload = workload.label(), restarts, why, "a workload was searched");
        let counts = !is_silent || asking.is_user_of(changed.content());
        if kind == WorkloadKind::Deployment && counts {
            if object.data["spec"]["replicas"] == 0 {
                self.idle.insert(workload.name.clone());
            }
            self.deployments.insert(workload.name.clone(), asking);
        }
        if restarts {
            self.restarting.push(workload);
        }
    }

    /// How many workloads restart.
    pub(super) fn count(&self) -> usize {
        self.restarting.iter().filter(|one| !self.is_left(one)).count()
    }

    /// The workloads that restart, and what annotations say that cannot be read.
    pub(super) fn found(self) -> (Vec<Workload>, Vec<String>) {
        let restarting = self.restarting.iter().filter(|one| !self.is_left(one));
        (restarting.cloned().collect(), self.unread)
    }

    /// Whether a workload is left to a Rollout.
    fn is_left(&self, workload: &Workload) -> bool {
        let Workload { kind, name, .. } = workload;
        let is_left = self.idle.contains(name) && self.referred.contains(name);
        *kind == WorkloadKind::Deployment && is_left
    }
}

#[cfg(test)]
mod tests {
    use kube::core::ObjectMeta;
    use serde_json::{Value, json};

    use super::super::content::ContentRef;
    use super::super::discovery::{Asker, RESTART, RESTART_FOR, RESTART_IGNORE};
    use super::*;

    /// A Deployment that uses ConfigMap `c`.
    fn deployment(says: &Value, replicas: i64) -> Value {
        let pod = json!({"containers": [{"envFrom": [{"configMapRef": {"name": "c"}}]}]});
        json!({
            "metadata": {"name": "d", "annotations": says},
            "spec": {"replicas": replicas, "template": {"spec": pod}},
        })
    }

    /// A Rollout that runs the template of Deployment `d`.
    fn rollout(says: &Value) -> Value {
        let reference = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
        json!({
            "metadata": {"name": "r", "annotations": says}, "spec": {"workloadRef": reference},
        })
    }

    fn search(asker: Asker, of_object: &[(&str, &str)], all: &[Value]) -> (String, Vec<String>) {
        let said = of_object.iter().map(|(key, word)| ((*key).to_owned(), (*word).to_owned()));
        let metadata = ObjectMeta { annotations: Some(said.collect()), ..ObjectMeta::default() };
        let changed = Discovery::new(ContentRef::config_map("c"), &metadata, asker);
        let mut search = Search::of(&changed);
        for value in all {
            let object: DynamicObject = serde_json::from_value(value.clone()).unwrap();
            let kind = match object.name_any().as_str() {
                "r" => WorkloadKind::Rollout,
                _ => WorkloadKind::Deployment,
            };
            search.look(&changed, kind, &object);
        }
        let (found, unread) = search.found();
        (found.iter().map(Workload::label).collect::<Vec<_>>().join(", "), unread)
    }

    #[test]
    fn a_rollout_that_runs_the_template_of_a_deployment_restarts_in_its_place() {
        let (nothing, auto, off) = (json!({}), json!({RESTART: "auto"}), json!({RESTART: "off"}));
        let both = "Deployment d, Rollout r";
        for (asker, of_deployment, replicas, of_rollout, expect) in [
            (Asker::Monitor, &nothing, 0, &nothing, "Rollout r"),
            (Asker::Monitor, &nothing, 2, &nothing, both),
            (Asker::Monitor, &nothing, 0, &off, ""),
            (Asker::Monitor, &nothing, 2, &off, "Deployment d"),
            (Asker::Monitor, &off, 0, &nothing, ""),
            (Asker::Workload, &nothing, 0, &nothing, ""),
            (Asker::Workload, &auto, 0, &nothing, "Rollout r"),
            (Asker::Workload, &nothing, 0, &auto, "Rollout r"),
            (Asker::Workload, &nothing, 2, &auto, "Rollout r"),
            (Asker::Workload, &auto, 2, &nothing, both),
            (Asker::Workload, &auto, 0, &off, ""),
        ] {
            let all = [deployment(of_deployment, replicas), rollout(of_rollout)];
            let (found, unread) = search(asker, &[], &all);
            assert_eq!((&*found, unread.len()), (expect, 0), "{asker:?} {all:?}");
        }
        let (found, _) = search(Asker::Monitor, &[], &[deployment(&nothing, 0)]);
        assert_eq!(found, "Deployment d", "nobody else runs its template");
    }

    #[test]
    fn what_cannot_be_read_is_told_of_whom_it_concerns() {
        let misspelt = json!({RESTART: "True"});
        let mut other = deployment(&misspelt, 1);
        other["spec"]["template"] = json!({});
        let all = [deployment(&misspelt, 1), other, rollout(&json!({}))];
        let told =
            "Deployment d: annotation leasehold.dev/restart is \"True\": write auto, search or off";
        for asker in [Asker::Monitor, Asker::Workload] {
            assert_eq!(search(asker, &[], &all), (String::new(), vec![told.to_owned()]));
        }
        // What its Pods use is not known.
        let mut blind = rollout(&json!({}));
        blind["spec"]["workloadRef"]["kind"] = "ReplicaSet".into();
        for (says, count) in [
            (json!({RESTART: "auto"}), 1),
            (json!({RESTART: " search"}), 1),
            (json!({RESTART: "off"}), 0),
            (json!({RESTART: "auto", RESTART_FOR: "configmap/other"}), 0),
            (json!({}), 0),
        ] {
            blind["metadata"]["annotations"] = says;
            let (found, unread) = search(Asker::Workload, &[], std::slice::from_ref(&blind));
            assert_eq!((&*found, unread.len()), ("", count), "{blind}");
            assert!(unread.iter().all(|words| words.contains("only where workloadRef names a")));
        }
        let ignored = "annotation leasehold.dev/restart-ignore is \"yes\": write true or false";
        let found = search(Asker::Monitor, &[(RESTART_IGNORE, "yes")], &all);
        assert_eq!(found, (String::new(), vec![ignored.to_owned()]));
    }
}
