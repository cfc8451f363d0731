//! Plans as words, and statuses as snapshots: which children are made, corrected, left alone, removed.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use serde_json::{Value, json};

use super::*;
use crate::memcached::obstacle::explained;
use crate::memcached::status::status;

fn now() -> Timestamp {
    "2026-11-21T10:30:00Z".parse().unwrap()
}

/// A Memcached and its children, as a server returns them.
#[derive(Clone)]
struct World {
    memcached: Memcached,
    set: Option<StatefulSet>,
    service: Option<Service>,
    budget: Option<PodDisruptionBudget>,
    pods: Vec<Pod>,
}

/// The example as it stands, and nothing else yet.
fn example() -> World {
    let mut memcached: Memcached =
        serde_saphyr::from_str(crate::memcached::BUILTIN.example).unwrap();
    memcached.metadata.namespace = Some("web".to_owned());
    memcached.metadata.uid = Some("cache-uid".to_owned());
    memcached.metadata.generation = Some(1);
    World { memcached, set: None, service: None, budget: None, pods: Vec::new() }
}

/// The example after everything was created and every node became ready.
fn settled() -> World {
    let mut world = example();
    world.apply();
    world.run(3, 3);
    world.record(None);
    world
}

impl World {
    fn plan(&self) -> Result<Plan, Obstacle> {
        let pods: Vec<_> = self.pods.iter().collect();
        plan(self.observed(&pods))
    }

    fn observed<'a>(&'a self, pods: &'a [&'a Pod]) -> Observed<'a> {
        Observed {
            memcached: &self.memcached,
            stateful_set: self.set.as_ref(),
            service: self.service.as_ref(),
            budget: self.budget.as_ref(),
            pods,
        }
    }

    /// Carries the plan out, as a server does.
    fn apply(&mut self) {
        fn given<K: Resource>(step: Step<K>, found: &mut Option<K>) {
            let generation = found.as_ref().and_then(|found| found.meta().generation).unwrap_or(0);
            match step {
                Step::Create(mut child) | Step::Correct(mut child) => {
                    child.meta_mut().uid = Some("child-uid".to_owned());
                    child.meta_mut().generation = Some(generation + 1);
                    *found = Some(*child);
                }
                Step::Remove { .. } => *found = None,
                _ => {}
            }
        }
        let Plan { service, stateful_set, budget, .. } = self.plan().unwrap();
        given(service, &mut self.service);
        given(stateful_set, &mut self.set);
        given(budget, &mut self.budget);
    }

    /// The StatefulSet's controller has seen its spec: so many nodes are ready, and so many run it.
    fn run(&mut self, ready: i32, updated: i32) {
        let set = self.set.as_mut().unwrap();
        set.status = serde_json::from_value(json!({
            "observedGeneration": set.metadata.generation, "replicas": set.spec.replicas,
            "readyReplicas": ready, "availableReplicas": ready, "updatedReplicas": updated,
        }))
        .unwrap();
        let image = image(set);
        let size = set.spec.replicas.unwrap();
        self.pods = (0..size).map(|at| pod(at, at < ready, &image)).collect();
    }

    fn status(&self, obstacle: Option<&Obstacle>) -> crate::memcached::api::MemcachedStatus {
        let pods: Vec<_> = self.pods.iter().collect();
        status(self.observed(&pods), obstacle, now())
    }

    fn record(&mut self, obstacle: Option<&Obstacle>) {
        self.memcached.status = Some(self.status(obstacle));
    }

    fn edit(&mut self, change: impl FnOnce(&mut crate::memcached::api::MemcachedSpec)) {
        change(&mut self.memcached.spec);
        *self.memcached.metadata.generation.as_mut().unwrap() += 1;
    }

    /// The steps of the plan and what it reports, as words.
    fn check(&self, expect: &str) {
        fn word<K>(step: &Step<K>) -> &'static str {
            match step {
                Step::Keep => "keep",
                Step::Create(_) => "create",
                Step::Correct(_) => "correct",
                Step::Remove { .. } => "remove",
                Step::Release { .. } | Step::Await | Step::Foreign => "blocked",
            }
        }
        let found = match self.plan() {
            Ok(plan) => {
                let steps = [word(&plan.service), word(&plan.stateful_set), word(&plan.budget)];
                let reports = plan.notices.iter().map(|notice| notice.reason);
                steps.into_iter().chain(reports).collect::<Vec<_>>().join(" ")
            }
            Err(obstacle) => explained(&obstacle, &self.memcached).0.to_owned(),
        };
        assert_eq!(found, expect);
    }

    /// What the status says: nodes that exist, that are ready, that are listed, and why.
    fn says(&self, expect: &str) {
        let status = self.status(None);
        let of = |type_: &str| {
            let found = status.conditions.iter().find(|found| found.type_ == type_).unwrap();
            if found.status == "True" { type_.to_owned() } else { format!("not{type_}") }
        };
        let ready = status.conditions.iter().find(|found| found.type_ == "Ready").unwrap();
        let found = format!(
            "{}/{}/{} {} {} {} {}",
            status.size,
            status.ready,
            status.nodes.len(),
            of("Ready"),
            of("Available"),
            of("Progressing"),
            ready.reason
        );
        assert_eq!(found, expect, "{}", ready.message);
    }
}

fn pod(ordinal: i32, ready: bool, image: &str) -> Pod {
    let ready = if ready { "True" } else { "False" };
    serde_json::from_value(json!({
        "metadata": {"name": format!("cache-{ordinal}"), "ownerReferences": [{
            "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "cache", "uid": "child-uid",
            "controller": true,
        }]},
        "spec": {"containers": [{"name": "memcached", "image": image}]},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }))
    .unwrap()
}

fn orphaned(meta: &mut ObjectMeta) {
    meta.owner_references = None;
}

#[test]
fn a_new_one_gets_its_children_and_a_settled_one_nothing() {
    example().check("create create create Created");
    let mut one = example();
    one.edit(|spec| spec.size = 1);
    one.check("create create keep Created");
    settled().check("keep keep keep");
}

#[test]
fn what_others_add_is_theirs() {
    let mut world = settled();
    let set = world.set.as_mut().unwrap();
    set.metadata.annotations = Some([("team".to_owned(), "web".to_owned())].into());
    set.spec.revision_history_limit = Some(10);
    let template = set.spec.template.metadata.as_mut().unwrap();
    template.annotations = Some([("restarted".to_owned(), "once".to_owned())].into());
    let pod = set.spec.template.spec.as_mut().unwrap();
    pod.dns_policy = Some("ClusterFirst".to_owned());
    pod.containers[0].image_pull_policy = Some("IfNotPresent".to_owned());
    world.service.as_mut().unwrap().spec.as_mut().unwrap().type_ = Some("ClusterIP".to_owned());
    world.check("keep keep keep");
}

#[test]
fn what_others_change_is_put_right() {
    let mut world = settled();
    world.set.as_mut().unwrap().spec.replicas = Some(9);
    world.check("keep correct keep ScaleRestored");

    let mut world = settled();
    world.set.as_mut().unwrap().spec.min_ready_seconds = Some(0);
    world.check("keep correct keep Corrected");

    let mut world = settled();
    let pod = world.set.as_mut().unwrap().spec.template.spec.as_mut().unwrap();
    pod.containers[0].args.as_mut().unwrap().push("-vv".to_owned());
    world.check("keep correct keep Updating");

    let mut world = settled();
    world.service.as_mut().unwrap().spec.as_mut().unwrap().publish_not_ready_addresses = None;
    world.check("correct keep keep Corrected");

    let mut world = settled();
    world.budget = None;
    world.check("keep keep create");
    world.set = None;
    world.check("keep create create Created");
}

/// As a server has it.
#[test]
fn a_zero_that_a_server_leaves_out_is_no_difference() {
    let mut world = settled();
    world.edit(|spec| spec.min_ready_seconds = 0);
    world.apply();
    let size = world.set.as_ref().unwrap().spec.replicas.unwrap();
    world.run(size, size);
    world.record(None);
    world.set.as_mut().unwrap().spec.min_ready_seconds = None;
    world.check("keep keep keep");
}

#[test]
fn a_new_spec_is_applied_once() {
    let mut world = settled();
    world.edit(|spec| spec.size = 5);
    world.check("correct correct correct Scaled");
    world.edit(|spec| spec.image = "memcached:1.6.46".to_owned());
    world.check("correct correct correct Scaled Updating");
    world.edit(|spec| spec.size = 1);
    world.check("correct correct remove Scaled Updating");
    world.apply();
    world.run(1, 1);
    world.record(None);
    world.check("keep keep keep");
    // What is no longer asked for cannot be seen in the children.
    world.edit(|spec| spec.min_ready_seconds = 0);
    world.check("correct correct keep");
}

/// A change of the Service, the budget or the number of nodes leaves the template as it is.
#[test]
fn only_what_concerns_the_pods_restarts_them() {
    let template = |world: &World| {
        let mut world = world.clone();
        world.apply();
        world.set.unwrap().spec.template
    };
    let (world, mut more) = (settled(), settled());
    more.edit(|spec| spec.size = 7);
    more.edit(|spec| spec.min_ready_seconds = 60);
    assert_eq!(template(&world), template(&more));
    more.edit(|spec| spec.connections = 2_048);
    assert_ne!(template(&world), template(&more));
}

#[test]
fn nothing_is_done_while_something_blocks() {
    let mut world = settled();
    world.edit(|spec| spec.size = 5);
    let mut taken = world.clone();
    orphaned(&mut taken.service.as_mut().unwrap().metadata);
    taken.check("Conflict");
    let mut taken = world.clone();
    orphaned(&mut taken.set.as_mut().unwrap().metadata);
    taken.check("Conflict");
    let mut taken = world.clone();
    orphaned(&mut taken.budget.as_mut().unwrap().metadata);
    taken.check("Conflict");
    // One that nobody wants is nobody's business.
    taken.edit(|spec| spec.size = 1);
    taken.check("correct correct keep Scaled");
    // The same name, an earlier Memcached: uids tell them apart.
    let mut namesake = world.clone();
    namesake.memcached.metadata.uid = Some("another-uid".to_owned());
    namesake.check("Conflict");
    let mut going = world.clone();
    going.set.as_mut().unwrap().metadata.deletion_timestamp = Some(Time(now()));
    going.check("Terminating");
    world.edit(|spec| spec.extra_args = vec!["-m".to_owned(), "4096".to_owned()]);
    world.check("InvalidSpec");
}

#[test]
fn a_correction_is_pinned_to_the_object_seen() {
    let mut world = settled();
    world.set.as_mut().unwrap().spec.replicas = Some(1);
    let Step::Correct(set) = world.plan().unwrap().stateful_set else { panic!() };
    assert_eq!(set.metadata.uid.as_deref(), Some("child-uid"));
}

#[test]
fn a_life_in_statuses() {
    let mut world = example();
    world.says("0/0/0 notReady notAvailable Progressing Applied");
    world.apply();
    world.run(0, 3);
    world.says("3/0/0 notReady notAvailable Progressing NodesNotReady");
    world.run(2, 3);
    world.says("3/2/2 notReady Available Progressing NodesNotReady");
    world.run(3, 3);
    world.says("3/3/3 Ready Available notProgressing NodesReady");
    world.record(None);

    world.edit(|spec| spec.size = 5);
    world.says("3/3/3 notReady notAvailable Progressing Scaling");
    world.apply();
    world.says("3/3/3 notReady notAvailable Progressing Applied");
    world.run(4, 5);
    world.says("5/4/4 notReady Available Progressing NodesNotReady");
    world.run(5, 5);
    world.record(None);

    world.edit(|spec| spec.image = "memcached:1.6.46".to_owned());
    world.apply();
    world.says("5/5/5 notReady Available Progressing Applied");
    // The last node restarts first, and stays in the list.
    world.run(4, 1);
    world.says("5/4/5 notReady Available Progressing Updating");
    world.pods.pop();
    world.says("4/4/5 notReady Available Progressing Scaling");
    world.run(5, 5);
    world.says("5/5/5 Ready Available notProgressing NodesReady");
    world.set.as_mut().unwrap().status.as_mut().unwrap().available_replicas = Some(4);
    world.says("5/5/5 notReady Available Progressing Settling");
    world.run(5, 5);
    world.record(None);

    world.edit(|spec| spec.size = 2);
    world.apply();
    world.says("5/2/5 notReady Available Progressing Applied");
    world.run(2, 2);
    world.says("2/2/2 Ready Available notProgressing NodesReady");
    world.record(None);
    world.edit(|spec| spec.size = 0);
    world.apply();
    world.run(0, 0);
    world.says("0/0/0 Ready Available notProgressing NodesReady");
}

#[test]
fn statuses() {
    let mut world = settled();
    insta::assert_yaml_snapshot!("settled", world.memcached.status);
    // Nothing new is nothing to write.
    assert_eq!(Some(world.status(None)), world.memcached.status);

    let refused = Obstacle::Rejected { kind: "Service", message: "no".to_owned() };
    insta::assert_yaml_snapshot!("rejected", world.status(Some(&refused)).conditions);

    // An invalid spec changes neither the nodes nor what is known of them.
    world.edit(|spec| spec.size = 9);
    world.edit(|spec| spec.extra_args = vec!["-m".to_owned(), "4096".to_owned()]);
    let invalid = world.plan().unwrap_err();
    insta::assert_yaml_snapshot!("invalid", world.status(Some(&invalid)));

    orphaned(&mut world.set.as_mut().unwrap().metadata);
    let conflict = Obstacle::Conflict { kind: "StatefulSet" };
    insta::assert_yaml_snapshot!("conflict", world.status(Some(&conflict)));
}

/// Every field of the definition says what it means.
#[test]
fn the_definition_is_documented() {
    let crd = json!(<Memcached as kube::CustomResourceExt>::crd());
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let fields = crd.pointer(spec).and_then(Value::as_object).unwrap();
    assert!(fields.values().all(|field| field["description"].is_string()), "{fields:#?}");
    let scale = &crd["spec"]["versions"][0]["subresources"]["scale"];
    assert_eq!(scale["specReplicasPath"], ".spec.size");
    assert_eq!(fields["image"]["default"], "docker.io/library/memcached:1.6.45");
}
