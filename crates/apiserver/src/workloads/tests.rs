//! Runs the plans in a world that sees its own writes at once, so that a rollout can be followed
//! step by step without a server.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::action::{Action, Kind, ObjectRef};
use super::world::{News, World};
use crate::follow::FollowEvent;
use crate::program::Processes;

/// A cluster in miniature.
struct Sim {
    world: World,
    objects: BTreeMap<ObjectRef, Value>,
    dirty: BTreeSet<ObjectRef>,
    version: u64,
    /// Kinds whose plans are not carried out; for Pods that stops a rollout where it is.
    held: Option<Kind>,
    processes: Processes,
}

impl Sim {
    fn new() -> Self {
        let mut sim = Self {
            world: World::default(),
            objects: BTreeMap::new(),
            dirty: BTreeSet::new(),
            version: 1,
            held: None,
            processes: Processes::default(),
        };
        sim.nodes(&[]);
        for kind in Kind::ALL {
            assert!(!sim.world.is_complete());
            sim.world.enter(News::Object(kind, FollowEvent::Reset(vec![], 1)), &mut sim.dirty);
        }
        assert!(sim.world.is_complete());
        sim
    }

    fn nodes(&mut self, names: &[&str]) {
        let nodes = names
            .iter()
            .map(|n| serde_json::from_value(json!({"metadata": {"name": n}})).unwrap())
            .collect();
        self.world.enter(News::Node(FollowEvent::Reset(nodes, 1)), &mut self.dirty);
    }

    fn put(&mut self, key: ObjectRef, mut body: Value) {
        self.version += 1;
        let before = self.objects.get(&key);
        if before.is_none() {
            body["metadata"]["uid"] = json!(format!("uid-{}", self.version));
            body["metadata"]["creationTimestamp"] =
                json!(Timestamp::from_second(self.version as i64).unwrap().to_string());
        }
        let generation = before.map_or(0, |b| b["metadata"]["generation"].as_i64().unwrap());
        let changed = before.is_none_or(|b| b["spec"] != body["spec"]);
        body["metadata"]["generation"] = json!(generation + i64::from(changed));
        body["metadata"]["namespace"] = json!("n");
        body["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.news(&key, &body, false);
        self.objects.insert(key, body);
    }

    fn news(&mut self, key: &ObjectRef, body: &Value, gone: bool) {
        let object = serde_json::from_value(body.clone()).unwrap();
        let change = if gone { FollowEvent::Deleted(object) } else { FollowEvent::Applied(object) };
        self.world.enter(News::Object(key.kind, change), &mut self.dirty);
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Create { kind, mut body, .. } => {
                if body["metadata"].get("name").is_none() {
                    let prefix = body["metadata"]["generateName"].as_str().unwrap();
                    body["metadata"]["name"] = json!(format!("{prefix}{}", self.version));
                }
                let key = key(kind, body["metadata"]["name"].as_str().unwrap());
                assert!(!self.objects.contains_key(&key), "{key:?} is created twice");
                self.put(key, body);
            }
            Action::Patch { key, body } | Action::PatchStatus { key, body } => {
                let mut object = self.objects[&key].clone();
                json_patch::merge(&mut object, &body);
                assert_ne!(object, self.objects[&key], "a write that changes nothing: {body}");
                self.put(key, object);
            }
            Action::Start { uid, start, .. } => drop(self.processes.start(&uid, &start)),
            Action::Delete { key, uid } => {
                let body = self.objects.remove(&key).unwrap();
                assert_eq!(body["metadata"]["uid"], uid.as_str());
                self.version += 1;
                self.news(&key, &body, true);
            }
        }
    }

    /// Plans one object, if any is dirty; returns whether there was one.
    fn step(&mut self) -> bool {
        let Some(key) = self.dirty.pop_first() else { return false };
        if self.held != Some(key.kind) {
            let now = Timestamp::from_second(1_700_000_000 + self.version as i64).unwrap();
            for action in self.world.plan(&key, &self.processes, now) {
                self.carry_out(action);
            }
        }
        true
    }

    /// Plans until nothing is left to do; `check` runs after every step.
    fn settle(&mut self, check: impl Fn(&Sim)) {
        let mut steps = 0;
        while self.step() {
            check(self);
            steps += 1;
            assert!(steps < 10_000, "never settles");
        }
    }

    fn all(&self, kind: Kind) -> impl Iterator<Item = &Value> {
        self.objects.iter().filter(move |(key, _)| key.kind == kind).map(|(_, object)| object)
    }

    fn ready_pods(&self) -> usize {
        self.all(Kind::Pod).filter(|pod| pod["status"]["phase"] == "Running").count()
    }

    fn names(&self, kind: Kind) -> Vec<String> {
        let name = |o: &Value| o["metadata"]["name"].as_str().unwrap().to_owned();
        self.all(kind).map(name).collect()
    }

    fn change(&mut self, key: &ObjectRef, change: impl FnOnce(&mut Value)) {
        let mut object = self.objects[key].clone();
        change(&mut object);
        self.put(key.clone(), object);
    }
}

fn key(kind: Kind, name: &str) -> ObjectRef {
    ObjectRef { kind, namespace: "n".into(), name: name.into() }
}

fn template(image: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": image}]},
    })
}

fn workload(kind: Kind, spec: Value) -> (ObjectRef, Value) {
    let mut spec = spec;
    let defaults = json!({"selector": {"matchLabels": {"app": "a"}}, "template": template("i:1")});
    for (name, value) in defaults.as_object().unwrap() {
        spec.as_object_mut().unwrap().entry(name.clone()).or_insert_with(|| value.clone());
    }
    if kind == Kind::StatefulSet {
        spec["serviceName"] = json!("s");
    }
    let body = json!({
        "apiVersion": "apps/v1", "kind": kind.as_str(), "metadata": {"name": "w"}, "spec": spec,
    });
    (key(kind, "w"), body)
}

fn running(kind: Kind, spec: Value) -> (Sim, ObjectRef) {
    let mut sim = Sim::new();
    let (key, body) = workload(kind, spec);
    sim.put(key.clone(), body);
    sim.settle(|_| {});
    (sim, key)
}

fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array().unwrap();
    conditions.iter().find(|c| c["type"] == kind).unwrap()
}

#[test]
fn a_deployment_becomes_available() {
    let (sim, key) = running(Kind::Deployment, json!({"replicas": 3}));
    let deployment = &sim.objects[&key];
    let mut status = deployment["status"].clone();
    status.as_object_mut().unwrap().remove("conditions");
    assert_eq!(
        status,
        json!({
            "observedGeneration": 1, "replicas": 3, "updatedReplicas": 3, "readyReplicas": 3,
            "availableReplicas": 3,
        })
    );
    assert_eq!(condition(deployment, "Available")["reason"], "MinimumReplicasAvailable");
    assert_eq!(condition(deployment, "Progressing")["reason"], "NewReplicaSetAvailable");
    assert_eq!(deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "1");
    let pod = sim.all(Kind::Pod).next().unwrap();
    assert_eq!(pod["metadata"]["ownerReferences"][0]["kind"], "ReplicaSet");
    assert_eq!(pod["metadata"]["labels"]["app"], "a");
    assert_eq!(pod["status"]["containerStatuses"][0]["ready"], true);
}

#[test]
fn a_rollout_keeps_within_surge_and_unavailability() {
    for (surge, unavailable) in
        [(json!(1), json!(0)), (json!(0), json!(1)), (json!("50%"), json!("25%"))]
    {
        let rolling = json!({"maxSurge": surge, "maxUnavailable": unavailable});
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": rolling});
        let (mut sim, key) =
            running(Kind::Deployment, json!({"replicas": 4, "strategy": strategy}));
        let (least, most) = if surge == json!("50%") {
            (3, 6)
        } else if surge == json!(1) {
            (4, 5)
        } else {
            (3, 4)
        };
        sim.change(&key, |d| d["spec"]["template"] = template("i:2"));
        sim.settle(|sim| {
            assert!(sim.ready_pods() >= least, "only {} Pods ready", sim.ready_pods());
            assert!(sim.all(Kind::Pod).count() <= most, "{} Pods", sim.all(Kind::Pod).count());
        });
        let images: BTreeSet<&str> = sim
            .all(Kind::Pod)
            .map(|pod| pod["spec"]["containers"][0]["image"].as_str().unwrap())
            .collect();
        assert_eq!((sim.ready_pods(), images), (4, ["i:2"].into()));
        assert_eq!(sim.objects[&key]["status"]["updatedReplicas"], 4);
        assert_eq!(
            sim.objects[&key]["metadata"]["annotations"]["deployment.kubernetes.io/revision"],
            "2"
        );
        let old = sim.all(Kind::ReplicaSet).filter(|rs| rs["spec"]["replicas"] == 0).count();
        assert_eq!(old, 1, "the old ReplicaSet stays for its history");
    }
}

#[test]
fn recreate_never_runs_two_templates_together() {
    let strategy = json!({"type": "Recreate"});
    let (mut sim, key) = running(Kind::Deployment, json!({"replicas": 2, "strategy": strategy}));
    sim.change(&key, |d| d["spec"]["template"] = template("i:2"));
    sim.settle(|sim| {
        let images: BTreeSet<_> =
            sim.all(Kind::Pod).map(|p| p["spec"]["containers"][0]["image"].to_string()).collect();
        assert!(images.len() <= 1, "{images:?}");
    });
    assert_eq!(sim.ready_pods(), 2);
}

#[test]
fn a_rollback_reuses_the_old_set_and_history_is_bounded() {
    let (mut sim, key) =
        running(Kind::Deployment, json!({"replicas": 1, "revisionHistoryLimit": 1}));
    let first = sim.names(Kind::ReplicaSet);
    for image in ["i:2", "i:1"] {
        sim.change(&key, |d| d["spec"]["template"] = template(image));
        sim.settle(|_| {});
    }
    let live: Vec<_> = sim.all(Kind::ReplicaSet).filter(|rs| rs["spec"]["replicas"] == 1).collect();
    assert_eq!(live[0]["metadata"]["name"], first[0].as_str());
    assert_eq!(live[0]["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "3");
    for image in ["i:3", "i:4"] {
        sim.change(&key, |d| d["spec"]["template"] = template(image));
        sim.settle(|_| {});
    }
    assert_eq!(sim.names(Kind::ReplicaSet).len(), 2);
    assert!(!sim.names(Kind::ReplicaSet).contains(&first[0]), "the oldest goes first");
}

#[test]
fn scaling_and_pausing() {
    let (mut sim, key) = running(Kind::Deployment, json!({"replicas": 1}));
    for replicas in [5, 2, 0] {
        sim.change(&key, |d| d["spec"]["replicas"] = json!(replicas));
        sim.settle(|_| {});
        assert_eq!(sim.ready_pods(), replicas);
        assert_eq!(
            condition(&sim.objects[&key], "Progressing")["reason"],
            "NewReplicaSetAvailable"
        );
    }
    sim.change(&key, |d| {
        d["spec"]["paused"] = json!(true);
        d["spec"]["replicas"] = json!(2);
        d["spec"]["template"] = template("i:2");
    });
    sim.settle(|_| {});
    assert_eq!(sim.names(Kind::ReplicaSet).len(), 1, "no rollout while paused");
}

#[test]
fn a_stuck_rollout_says_so() {
    let (mut sim, key) = running(Kind::Deployment, json!({"replicas": 4}));
    sim.held = Some(Kind::Pod);
    sim.change(&key, |d| d["spec"]["template"] = template("i:2"));
    sim.settle(|_| {});
    let deployment = &sim.objects[&key];
    assert_eq!(sim.ready_pods(), 3, "a quarter may be missing");
    assert_eq!(condition(deployment, "Progressing")["reason"], "ReplicaSetUpdated");
    assert_eq!(deployment["status"]["observedGeneration"], 2);
    assert_eq!(deployment["status"]["unavailableReplicas"], 2);
    assert_eq!(condition(deployment, "Available")["status"], "True");
}

#[test]
fn condition_times_move_only_with_what_they_time() {
    let (mut sim, key) = running(Kind::Deployment, json!({"replicas": 2}));
    let before = condition(&sim.objects[&key], "Available").clone();
    sim.change(&key, |d| d["spec"]["replicas"] = json!(1));
    sim.settle(|_| {});
    assert_eq!(condition(&sim.objects[&key], "Available"), &before);
    assert_eq!(sim.objects[&key]["status"]["replicas"], 1);
}

#[test]
fn a_deleted_pod_is_replaced_and_a_surplus_one_removed() {
    let (mut sim, _) = running(Kind::ReplicaSet, json!({"replicas": 2}));
    let victim = key(Kind::Pod, &sim.names(Kind::Pod)[0]);
    let uid = sim.objects[&victim]["metadata"]["uid"].as_str().unwrap().to_owned();
    sim.carry_out(Action::Delete { key: victim, uid });
    sim.settle(|_| {});
    assert_eq!(sim.ready_pods(), 2);
    let mut extra = sim.all(Kind::Pod).next().unwrap().clone();
    extra["metadata"]["name"] = json!("extra");
    extra["status"] = json!({"phase": "Pending"});
    sim.put(key(Kind::Pod, "extra"), extra);
    sim.held = Some(Kind::Pod);
    sim.settle(|_| {});
    assert!(!sim.names(Kind::Pod).contains(&"extra".into()), "an idle Pod goes first");
    assert_eq!(sim.ready_pods(), 2);
}

#[test]
fn a_finished_pod_does_not_count() {
    let (mut sim, set) = running(Kind::ReplicaSet, json!({"replicas": 1}));
    let pod = key(Kind::Pod, &sim.names(Kind::Pod)[0]);
    sim.change(&pod, |pod| pod["status"]["phase"] = json!("Failed"));
    sim.settle(|_| {});
    assert_eq!(sim.names(Kind::Pod).len(), 2);
    assert_eq!(sim.objects[&set]["status"]["replicas"], 1);
}

#[test]
fn a_pod_on_its_way_out_is_confirmed_gone_unless_held() {
    let mut sim = Sim::new();
    let deleted = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {
        "name": "p", "deletionTimestamp": "2024-01-01T00:00:00Z", "finalizers": ["x/y"],
    }, "spec": {"containers": []}});
    sim.put(key(Kind::Pod, "p"), deleted);
    sim.settle(|_| {});
    assert_eq!(sim.names(Kind::Pod), ["p"]);
    sim.change(&key(Kind::Pod, "p"), |p| p["metadata"]["finalizers"] = json!([]));
    sim.settle(|_| {});
    assert_eq!(sim.names(Kind::Pod), Vec::<String>::new());
}

#[test]
fn a_stateful_set_goes_up_in_order_and_down_in_reverse() {
    let mut sim = Sim::new();
    let (key, body) = workload(Kind::StatefulSet, json!({"replicas": 3}));
    sim.put(key.clone(), body);
    sim.settle(|sim| {
        let waiting = sim.all(Kind::Pod).count() - sim.ready_pods();
        assert!(waiting <= 1, "one Pod at a time");
    });
    assert_eq!(sim.names(Kind::Pod), ["w-0", "w-1", "w-2"]);
    let status = &sim.objects[&key]["status"];
    assert_eq!((&status["readyReplicas"], &status["updatedReplicas"]), (&json!(3), &json!(3)));
    assert_eq!(status["currentRevision"], status["updateRevision"]);

    let uids = |sim: &Sim| -> Vec<Value> {
        sim.all(Kind::Pod).map(|pod| pod["metadata"]["uid"].clone()).collect()
    };
    let before = uids(&sim);
    sim.change(&key, |s| {
        s["spec"]["template"] = template("i:2");
        s["spec"]["updateStrategy"] =
            json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 1}});
    });
    sim.settle(|sim| assert!(sim.ready_pods() >= 2));
    let after = uids(&sim);
    assert_eq!(before[0], after[0], "below the partition nothing changes");
    assert!(before[1] != after[1] && before[2] != after[2]);
    assert_eq!(sim.objects[&key]["status"]["updatedReplicas"], 2);
    assert_ne!(
        sim.objects[&key]["status"]["currentRevision"],
        sim.objects[&key]["status"]["updateRevision"]
    );

    sim.change(&key, |s| s["spec"]["replicas"] = json!(1));
    sim.settle(|sim| {
        let names = sim.names(Kind::Pod);
        assert!(names.contains(&"w-1".into()) || !names.contains(&"w-2".into()));
    });
    assert_eq!(sim.names(Kind::Pod), ["w-0"]);
}

#[test]
fn a_parallel_stateful_set_does_not_wait() {
    let mut sim = Sim::new();
    sim.held = Some(Kind::Pod);
    let (key, body) =
        workload(Kind::StatefulSet, json!({"replicas": 3, "podManagementPolicy": "Parallel"}));
    sim.put(key, body);
    sim.settle(|_| {});
    assert_eq!(sim.names(Kind::Pod).len(), 3);
}

#[test]
fn a_stateful_set_makes_claims_and_finds_its_pods_again() {
    let policy = json!({"whenScaled": "Delete", "whenDeleted": "Delete"});
    let claims = json!([{"metadata": {"name": "data", "labels": {"app": "a"}}, "spec": {}}]);
    let mut sim = Sim::new();
    let (key, body) = workload(
        Kind::StatefulSet,
        json!({
            "replicas": 2, "podManagementPolicy": "Parallel", "volumeClaimTemplates": claims,
            "persistentVolumeClaimRetentionPolicy": policy,
        }),
    );
    sim.put(key.clone(), body.clone());
    // Its claims are bound as soon as somebody makes them so.
    let bind = |sim: &mut Sim| {
        for name in sim.names(Kind::Claim) {
            sim.change(&self::key(Kind::Claim, &name), |claim| {
                claim["status"] = json!({"phase": "Bound"});
            });
        }
        sim.held = Some(Kind::Claim);
        sim.settle(|_| {});
    };
    sim.held = Some(Kind::Claim);
    sim.settle(|_| {});
    assert_eq!(sim.names(Kind::Claim), ["data-w-0", "data-w-1"]);
    bind(&mut sim);
    assert_eq!(sim.ready_pods(), 2);
    let volume = &sim.objects[&self::key(Kind::Pod, "w-1")]["spec"]["volumes"][0];
    let expected = json!({"name": "data", "persistentVolumeClaim": {"claimName": "data-w-1"}});
    assert_eq!(*volume, expected);

    // Made anew without its Pods, as `kubectl delete --cascade=orphan` leaves them.
    let gone = sim.objects.remove(&key).unwrap();
    sim.news(&key, &gone, true);
    for kind in [Kind::Pod, Kind::Claim] {
        for name in sim.names(kind) {
            sim.change(&self::key(kind, &name), |o| o["metadata"]["ownerReferences"] = json!([]));
        }
    }
    sim.put(key.clone(), body);
    sim.settle(|_| {});
    let owner = sim.objects[&key]["metadata"]["uid"].clone();
    for kind in [Kind::Pod, Kind::Claim] {
        for object in sim.all(kind) {
            assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], owner, "{object}");
        }
    }
    sim.change(&key, |set| set["spec"]["replicas"] = json!(1));
    sim.settle(|_| {});
    assert_eq!(
        (sim.names(Kind::Pod), sim.names(Kind::Claim)),
        (vec!["w-0".to_owned()], vec!["data-w-0".to_owned()],)
    );
}

#[test]
fn a_daemon_set_follows_the_nodes() {
    let (mut sim, key) = running(Kind::DaemonSet, json!({}));
    let nodes = |sim: &Sim| -> BTreeSet<String> {
        sim.all(Kind::Pod).map(|p| p["spec"]["nodeName"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(nodes(&sim), ["embedded".to_owned()].into());
    assert_eq!(sim.objects[&key]["status"]["numberReady"], 1);
    sim.nodes(&["a", "b", "c"]);
    sim.settle(|_| {});
    assert_eq!(nodes(&sim), ["a", "b", "c"].map(String::from).into());
    sim.change(&key, |d| d["spec"]["template"] = template("i:2"));
    sim.settle(|sim| assert!(sim.ready_pods() >= 2, "one at a time"));
    assert_eq!(sim.objects[&key]["status"]["updatedNumberScheduled"], 3);
    assert_eq!(sim.objects[&key]["status"].get("numberUnavailable"), None);
}
