//! Plans as snapshots: which children are made, corrected, left alone, removed.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::*;
use crate::tdset::status::{Obstacle, status};
use crate::tdset::target::kinds;

const NOW: &str = "2026-11-21T10:30:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

/// The example as it stands, as a server returns it.
fn example() -> TDSet {
    let mut set: TDSet = serde_saphyr::from_str(crate::tdset::BUILTIN.example).unwrap();
    set.metadata.uid = Some("set-uid".to_owned());
    set.metadata.generation = Some(1);
    set
}

fn observed<'a>(
    set: &'a TDSet,
    deployment: Option<&'a Deployment>,
    service: Option<&'a Service>,
) -> Observed<'a> {
    Observed { set, deployment, service, scale: None, autoscaler: None, rollout: None }
}

fn target(set: &TDSet) -> Target {
    Target::of(set, &kinds(&Value::Null).unwrap()).unwrap()
}

fn planned(observed: Observed<'_>) -> Plan {
    plan(observed, &target(observed.set), now()).unwrap()
}

/// `set` after a reconcile that met no obstacle.
fn reconciled(mut set: TDSet) -> (TDSet, Deployment) {
    let plan = planned(observed(&set, None, None));
    let Step::Create(mut deployment) = plan.deployment.clone() else { panic!("{plan:?}") };
    deployment.metadata.uid = Some("deployment-uid".to_owned());
    deployment.metadata.generation = Some(1);
    let seen = observed(&set, Some(&deployment), None);
    set.status = Some(status(seen, &target(&set), &plan, None, now()));
    (set, *deployment)
}

fn served(set: &TDSet) -> Service {
    let mut with_port = set.clone();
    with_port.spec.service = Some(super::super::api::ServiceSpec { port: Some(80) });
    let made = children::deployment(set, None, 1).unwrap();
    let mut service = children::service(&with_port, &made).unwrap();
    service.metadata.uid = Some("service-uid".to_owned());
    service
}

/// The steps of a plan, as words.
fn check(set: &TDSet, deployment: Option<&Deployment>, service: Option<&Service>, expect: &str) {
    fn word<K>(step: &Step<K>) -> &'static str {
        match step {
            Step::Keep => "keep",
            Step::Create(_) => "create",
            Step::Correct(_) => "correct",
            Step::Remove { .. } => "remove",
            Step::Release { .. } => "release",
            Step::Await => "await",
            Step::Foreign => "foreign",
        }
    }
    let plan = planned(observed(set, deployment, service));
    let scaling = plan.scaling.map_or(String::new(), |scaling| {
        let cause = if scaling.foreign { " again" } else { "" };
        format!(" scale {:?}->{}{cause}", scaling.from, scaling.to)
    });
    let found = format!("{} {}{scaling}", word(&plan.deployment), word(&plan.service));
    assert_eq!(found, expect);
}

#[test]
fn the_example_makes_a_deployment() {
    let set = example();
    let plan = planned(observed(&set, None, None));
    let Step::Create(deployment) = &plan.deployment else { panic!("{plan:?}") };
    insta::assert_yaml_snapshot!(deployment);
    assert_eq!(plan.wake(&set, now()), Some(Duration::from_secs(6 * 3_600 + 1_800)));
    assert_eq!(plan.service, Step::Keep);
}

#[test]
fn a_service_port_makes_a_service() {
    insta::assert_yaml_snapshot!(served(&example()));
}

#[test]
fn what_is_as_it_should_be_is_left_alone() {
    let (set, mut deployment) = reconciled(example());
    check(&set, Some(&deployment), None, "keep keep");
    // Defaults of the server and fields of others are not ours.
    let spec = &mut deployment.spec;
    spec.paused = Some(true);
    let template = spec.template.metadata.as_mut().unwrap();
    template.annotations = Some([("restarted".to_owned(), "once".to_owned())].into());
    let pod = spec.template.spec.as_mut().unwrap();
    pod.containers[0].image_pull_policy = Some("Always".to_owned());
    let sidecar = json!({"name": "sidecar"});
    pod.containers.push(serde_json::from_value(sidecar).unwrap());
    check(&set, Some(&deployment), None, "keep keep");
}

#[test]
fn what_differs_is_put_right() {
    let (set, deployment) = reconciled(example());
    let mut scaled = deployment.clone();
    scaled.spec.replicas = Some(9);
    check(&set, Some(&scaled), None, "correct keep scale Some(9)->5 again");

    let mut relabelled = deployment.clone();
    relabelled.metadata.labels = None;
    check(&set, Some(&relabelled), None, "correct keep");

    let mut renewed = set.clone();
    renewed.metadata.generation = Some(2);
    check(&renewed, Some(&deployment), None, "correct keep");

    let later = "2026-11-21T17:00:00Z".parse().unwrap();
    let later = plan(observed(&set, Some(&deployment), None), &target(&set), later);
    let scaling = later.unwrap().scaling;
    assert_eq!(scaling, Some(Scaling { from: Some(5), to: 3, foreign: false }));
}

#[test]
fn a_correction_is_pinned_to_the_object_seen() {
    let (set, mut deployment) = reconciled(example());
    deployment.spec.replicas = Some(1);
    let plan = planned(observed(&set, Some(&deployment), None));
    let Step::Correct(correction) = plan.deployment else { panic!("{plan:?}") };
    assert_eq!(correction.metadata.uid.as_deref(), Some("deployment-uid"));
}

#[test]
fn a_child_of_others_is_never_touched() {
    let (set, deployment) = reconciled(example());
    let mut foreign = deployment.clone();
    foreign.metadata.owner_references = None;
    check(&set, Some(&foreign), None, "foreign keep");
    // Nor is its autoscaler.
    let scaler = scaler(Some(1), 20);
    let seen = Observed { autoscaler: Some(&scaler), ..observed(&set, Some(&foreign), None) };
    let plan = planned(seen);
    assert_eq!((&plan.floor, plan.scale), (&None, None));
    assert_eq!(status(seen, &target(&set), &plan, None, now()).autoscaler, None);
    // The same name, an earlier TDSet: uids tell them apart.
    let mut namesake = set.clone();
    namesake.metadata.uid = Some("another-uid".to_owned());
    check(&namesake, Some(&deployment), None, "foreign keep");
    // A Service of others matters only to those who want one.
    let mut service = served(&set);
    service.metadata.owner_references = None;
    check(&set, Some(&deployment), Some(&service), "keep keep");
    let mut wanting = set.clone();
    wanting.spec.service = Some(super::super::api::ServiceSpec { port: Some(80) });
    check(&wanting, Some(&deployment), Some(&service), "keep foreign");
}

#[test]
fn the_service_comes_and_goes_with_its_port() {
    let (set, deployment) = reconciled(example());
    let service = served(&set);
    check(&set, Some(&deployment), Some(&service), "keep remove");
    let mut wanting = set.clone();
    wanting.spec.service = Some(super::super::api::ServiceSpec { port: Some(80) });
    check(&wanting, Some(&deployment), None, "keep create");
    check(&wanting, Some(&deployment), Some(&service), "keep keep");
    wanting.spec.service = Some(super::super::api::ServiceSpec { port: Some(81) });
    check(&wanting, Some(&deployment), Some(&service), "keep correct");
}

#[test]
fn a_deployment_being_deleted_is_awaited() {
    let (set, mut deployment) = reconciled(example());
    deployment.metadata.deletion_timestamp = Some(Time(now()));
    check(&set, Some(&deployment), None, "await keep");
}

#[test]
fn the_interval_bounds_the_wait() {
    let (mut set, deployment) = reconciled(example());
    for (interval, expect) in [(Some(30), 1_800), (Some(1_440), 23_400), (None, 23_400)] {
        set.spec.interval_mint = interval;
        let wake = planned(observed(&set, Some(&deployment), None)).wake(&set, now());
        assert_eq!(wake, Some(Duration::from_secs(expect)));
    }
}

#[test]
fn statuses() {
    let (set, mut deployment) = reconciled(example());
    let plan = planned(observed(&set, Some(&deployment), None));
    insta::assert_yaml_snapshot!("rolling_out", set.status);

    deployment.status = serde_json::from_value(json!({
        "observedGeneration": 1, "replicas": 5, "updatedReplicas": 5,
        "readyReplicas": 5, "availableReplicas": 5,
    }))
    .unwrap();
    let later = "2026-11-21T10:31:00.5Z".parse().unwrap();
    let status = |set: &TDSet, plan: &Plan, refused, at| {
        status(observed(set, Some(&deployment), None), &target(set), plan, refused, at)
    };
    let settled = status(&set, &plan, None, later);
    insta::assert_yaml_snapshot!("settled", settled);
    // Nothing new is nothing to write.
    let mut seen = set.clone();
    seen.status = Some(settled.clone());
    let again = status(&seen, &plan, None, later + Duration::from_secs(60));
    assert_eq!(again, settled);

    let refused = Obstacle::Rejected { what: "Service web".to_owned(), message: "no".to_owned() };
    seen.metadata.generation = Some(2);
    let rejected = status(&seen, &plan, Some(refused.clone()), later);
    assert_eq!((rejected.observed_generation, rejected.applied_generation), (Some(2), Some(1)));
    // What was refused is applied again: a comparison does not show what it no longer asks for.
    let again = TDSet { status: Some(rejected), ..seen.clone() };
    check(&again, Some(&deployment), None, "correct keep");
    seen.metadata.generation = Some(1);
    let rejected = status(&seen, &plan, Some(refused), later);
    insta::assert_yaml_snapshot!("rejected", rejected.conditions);

    let taken = Plan { deployment: Step::Foreign, ..plan };
    let conflict = status(&seen, &taken, None, later);
    insta::assert_yaml_snapshot!("conflict", conflict);
}

fn scaler(floor: Option<i32>, most: i32) -> HorizontalPodAutoscaler {
    serde_json::from_value(json!({"spec": {
        "minReplicas": floor, "maxReplicas": most,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db"},
    }}))
    .unwrap()
}

/// A target of this many replicas, and what becomes of it and of its autoscaler's floor.
#[test]
fn beside_an_autoscaler_the_schedule_is_its_floor() {
    for (scheduled, suspend, present, autoscaler, replicas, floor, expected) in [
        // Alone, the schedule has its way.
        (5, false, 5, None, None, None, 5),
        (5, false, 9, None, Some(5), None, 5),
        (0, false, 9, None, Some(0), None, 0),
        (5, true, 9, None, None, None, 9),
        // Beside an autoscaler it says how many there are at least.
        (5, false, 9, Some(scaler(Some(2), 20)), None, Some(5), 9),
        (5, false, 9, Some(scaler(Some(5), 20)), None, None, 9),
        (5, false, 3, Some(scaler(Some(5), 20)), None, None, 5),
        (1, false, 3, Some(scaler(None, 20)), None, None, 3),
        (2, false, 3, Some(scaler(None, 20)), None, Some(2), 3),
        (5, true, 9, Some(scaler(Some(2), 20)), None, None, 9),
        // Never above what the autoscaler allows.
        (30, false, 9, Some(scaler(Some(2), 20)), None, Some(20), 20),
        // It does not work at 0, so the schedule goes there and back.
        (0, false, 9, Some(scaler(Some(2), 20)), Some(0), None, 0),
        (5, false, 0, Some(scaler(Some(2), 20)), Some(5), Some(5), 5),
        // One that may go to 0 itself would work there.
        (0, false, 9, Some(scaler(Some(0), 20)), Some(0), Some(1), 0),
        (0, false, 0, Some(scaler(Some(1), 20)), None, None, 0),
        (30, false, 0, Some(scaler(Some(20), 20)), Some(20), None, 20),
    ] {
        let spec = json!({
            "targetRef": {"kind": "StatefulSet", "name": "db"}, "suspend": suspend,
            "schedulingConfig": [{"startTime": 0, "endTime": 0, "replica": scheduled}],
        });
        let set = TDSet::new("db", serde_json::from_value(spec).unwrap());
        let scale = serde_json::from_value(json!({"spec": {"replicas": present}})).unwrap();
        let autoscaler = autoscaler.as_ref();
        let observed = Observed { scale: Some(&scale), autoscaler, ..observed(&set, None, None) };
        let plan = planned(observed);
        let found = (plan.scale, plan.floor, plan.expected);
        assert_eq!(found, (replicas, floor, expected), "{scheduled} at {present}: {autoscaler:?}");
        assert_eq!((plan.deployment, plan.service), (Step::Keep, Step::Keep));
    }
}

#[test]
fn an_autoscaler_that_allows_fewer_replicas_than_the_schedule_is_named() {
    for (most, suspend, expect) in [(4, false, true), (5, false, false), (4, true, false)] {
        let spec = json!({
            "targetRef": {"kind": "StatefulSet", "name": "db"}, "suspend": suspend,
            "schedulingConfig": [{"startTime": 0, "endTime": 0, "replica": 5}],
        });
        let set = TDSet::new("db", serde_json::from_value(spec).unwrap());
        let numbers = json!({"spec": {"replicas": 4}, "status": {"replicas": 4}});
        let scale = serde_json::from_value(numbers).unwrap();
        let mut scaler = scaler(Some(4), most);
        scaler.metadata.name = Some("by-load".to_owned());
        let autoscaler = Some(&scaler);
        let seen = Observed { scale: Some(&scale), autoscaler, ..observed(&set, None, None) };
        let told = status(seen, &target(&set), &planned(seen), None, now()).conditions;
        let ready = told.iter().find(|found| found.type_ == "Ready").unwrap();
        let says = "asks for 5, and HorizontalPodAutoscaler by-load allows 4 at most";
        assert_eq!(ready.message.contains(says), expect, "{most}: {}", ready.message);
    }
}

#[test]
fn a_rollout_that_runs_the_template_of_the_deployment_is_named() {
    for (scheduled, suspend, rollout, expect) in [
        (5, false, Some("canary"), true),
        (5, false, None, false),
        (5, true, Some("canary"), false),
        (0, false, Some("canary"), false),
    ] {
        let spec = json!({
            "targetRef": {"kind": "Deployment", "name": "db"}, "suspend": suspend,
            "schedulingConfig": [{"startTime": 0, "endTime": 0, "replica": scheduled}],
        });
        let set = TDSet::new("hours", serde_json::from_value(spec).unwrap());
        let numbers = json!({"replicas": scheduled});
        let scale = serde_json::from_value(json!({"spec": numbers, "status": numbers})).unwrap();
        let seen = Observed { scale: Some(&scale), rollout, ..observed(&set, None, None) };
        let told = status(seen, &target(&set), &planned(seen), None, now()).conditions;
        let ready = told.iter().find(|found| found.type_ == "Ready").unwrap();
        let says = "; Rollout canary runs the template of the Deployment";
        assert_eq!(ready.message.contains(says), expect, "{scheduled}: {}", ready.message);
    }
}

/// As an autoscaler of KEDA's, whose ScaledObject would put back whatever is set.
#[test]
fn beside_an_autoscaler_of_another_object_nothing_is_scaled() {
    let scaler: HorizontalPodAutoscaler = serde_json::from_value(json!({
        "metadata": {"name": "keda-hpa-web", "ownerReferences": [{
            "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "web", "uid": "u",
            "controller": true,
        }]},
        "spec": {
            "minReplicas": 1, "maxReplicas": 20,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db"},
        },
    }))
    .unwrap();
    for (scheduled, present) in [(5, 9), (5, 0), (0, 9), (30, 9)] {
        let spec = json!({
            "targetRef": {"kind": "StatefulSet", "name": "db"},
            "schedulingConfig": [{"startTime": 0, "endTime": 0, "replica": scheduled}],
        });
        let mut set = TDSet::new("db", serde_json::from_value(spec).unwrap());
        let replicas = json!({"replicas": present});
        let scale = serde_json::from_value(json!({"spec": replicas, "status": replicas})).unwrap();
        for (suspend, expect) in [(false, "AutoscalerManaged"), (true, "ReplicasAvailable")] {
            set.spec.suspend = suspend;
            let autoscaler = Some(&scaler);
            let seen = Observed { scale: Some(&scale), autoscaler, ..observed(&set, None, None) };
            let plan = planned(seen);
            assert_eq!((plan.scale, plan.floor), (None, None), "{scheduled} at {present}");
            let conditions = status(seen, &target(&set), &plan, None, now()).conditions;
            let ready = conditions.iter().find(|found| found.type_ == "Ready").unwrap();
            assert_eq!(ready.reason, expect, "{scheduled} at {present}");
        }
    }
}

#[test]
fn a_deployment_of_an_earlier_operator_keeps_its_selector_and_its_container() {
    let mut set = example();
    set.spec.service = Some(super::super::api::ServiceSpec { port: Some(80) });
    let old: Deployment = serde_json::from_value(json!({
        "metadata": {"name": "tdset-hello-world", "uid": "old"},
        "spec": {
            "replicas": 9, "selector": {"matchLabels": {"app": "hello"}},
            "template": {
                "metadata": {"labels": {"app": "hello"}},
                "spec": {"containers": [{"name": "hello-world", "image": "old"}]},
            },
        },
    }))
    .unwrap();
    check(&set, Some(&old), None, "foreign create");
    set.spec.adopt = true;
    let mut owned = old.clone();
    owned.metadata.owner_references = crate::children::ownership(&set);
    for found in [&old, &owned] {
        check(&set, Some(found), None, "correct create scale Some(9)->5");
        let Step::Correct(taken) = planned(observed(&set, Some(found), None)).deployment else {
            panic!("it is corrected")
        };
        assert_eq!(taken.spec.selector, old.spec.selector);
        assert_eq!(taken.metadata.uid.as_deref(), Some("old"));
        let labels = taken.spec.template.metadata.unwrap().labels.unwrap();
        assert!(labels["app"] == "hello" && labels.contains_key(children::SET_LABEL));
        let containers = &taken.spec.template.spec.unwrap().containers;
        assert_eq!((containers.len(), containers[0].name.as_str()), (1, "hello-world"));
        let Step::Create(service) = planned(observed(&set, Some(found), None)).service else {
            panic!("it is made")
        };
        assert_eq!(service.spec.unwrap().selector, old.spec.selector.match_labels);
    }
    // A Service knows no expressions.
    let mut by_expression = old.clone();
    by_expression.spec.selector = serde_json::from_value(json!({
        "matchExpressions": [{"key": "app", "operator": "Exists"}],
    }))
    .unwrap();
    let Step::Create(service) = planned(observed(&set, Some(&by_expression), None)).service else {
        panic!("it is made")
    };
    let selector = service.spec.unwrap().selector.unwrap();
    assert_eq!(selector.keys().collect::<Vec<_>>(), [children::SET_LABEL]);
    // What another controls is not taken over, nor what is going.
    let mut theirs = owned.clone();
    theirs.metadata.owner_references.as_mut().unwrap()[0].uid = "another".to_owned();
    check(&set, Some(&theirs), None, "foreign create");
    let mut going = old.clone();
    going.metadata.deletion_timestamp = Some(Time(now()));
    check(&set, Some(&going), None, "foreign create");
}

#[test]
fn a_whole_template_is_taken_as_it_is_and_a_misspelt_one_refused() {
    let with = |template: Value| {
        let mut set = example();
        (set.spec.container, set.spec.template) = (None, Some(template));
        set
    };
    let template = json!({
        "metadata": {"labels": {"team": "shop"}, "annotations": {"a": "b"}},
        "spec": {
            "serviceAccountName": "web",
            "containers": [
                {"name": "web", "image": "web", "ports": [{"containerPort": 8080}],
                 "resources": {"limits": {"memory": "1Gi"}}},
                {"name": "log", "image": "log"},
            ],
        },
    });
    let mut set = with(template);
    set.spec.service = Some(super::super::api::ServiceSpec { port: Some(80) });
    let plan = planned(observed(&set, None, None));
    let (Step::Create(made), Step::Create(service)) = (plan.deployment, plan.service) else {
        panic!("both are made")
    };
    insta::assert_yaml_snapshot!("template", made.spec.template);
    let ports = service.spec.unwrap().ports.unwrap();
    assert_eq!(serde_json::to_value(&ports[0].target_port).unwrap(), 8080);
    let labels = json!({"app.kubernetes.io/name": "shop", children::SET_LABEL: "shop"});
    let set = with(json!({"metadata": {"labels": labels}, "spec": {"containers": []}}));
    let made = children::deployment(&set, None, 1).unwrap().spec.template.metadata.unwrap();
    let labels = made.labels.unwrap();
    assert_eq!(labels["app.kubernetes.io/name"], "shop");
    assert_eq!(labels[children::SET_LABEL], "tdset-hello-world", "what the selector asks for");
    let set = with(json!({"spec": {"contaniers": [{"name": "web"}]}}));
    let problem = super::plan(observed(&set, None, None), &target(&set), now()).unwrap_err();
    assert_eq!(problem.reason(), "Invalid");
}

#[test]
fn what_a_set_made_goes_when_it_names_another_workload() {
    let (set, deployment) = reconciled(example());
    let service = served(&set);
    let naming = |kind: &str, name: &str| {
        let mut set = set.clone();
        set.metadata.generation = Some(2);
        (set.spec.container, set.spec.service) = (None, None);
        let target = json!({"apiVersion": "apps/v1", "kind": kind, "name": name});
        set.spec.target_ref = Some(serde_json::from_value(target).unwrap());
        set
    };
    let own_name = set.name_any();
    let other = naming("Deployment", "other");
    check(&other, Some(&deployment), Some(&service), "remove remove");
    check(&other, None, None, "keep keep");
    check(&naming("StatefulSet", &own_name), Some(&deployment), None, "remove keep");
    // Else the garbage collector would delete it with the TDSet.
    let itself = naming("Deployment", &own_name);
    check(&itself, Some(&deployment), Some(&service), "release remove");
    let mut theirs = deployment.clone();
    theirs.metadata.owner_references = None;
    check(&other, Some(&theirs), None, "keep keep");
    check(&itself, Some(&theirs), None, "keep keep");
}

/// An apply would put back the number that was seen, over what others have set since.
#[test]
fn replicas_that_others_decide_are_written_only_over_what_was_seen() {
    let (mut set, mut deployment) = reconciled(example());
    deployment.metadata.resource_version = Some("7".to_owned());
    deployment.spec.replicas = Some(9);
    set.metadata.generation = Some(2);
    let scaler = scaler(Some(1), 20);
    for (suspend, autoscaler, expect) in [
        (false, None, (5, None)),
        (false, Some(&scaler), (9, Some("7"))),
        (true, None, (9, Some("7"))),
    ] {
        set.spec.suspend = suspend;
        let seen = Observed { autoscaler, ..observed(&set, Some(&deployment), None) };
        let Step::Correct(found) = planned(seen).deployment else { panic!("{suspend}") };
        let found = (found.spec.replicas.unwrap(), found.metadata.resource_version.as_deref());
        assert_eq!(found, expect, "{suspend} {autoscaler:?}");
    }
}

/// Containers are merged by name: one that others wrote and the spec does not name would run beside the others.
#[test]
fn a_deployment_with_containers_that_the_spec_does_not_name_is_not_taken_over() {
    let mut set = example();
    set.spec.adopt = true;
    let old = |name: &str| -> Deployment {
        serde_json::from_value(json!({
            "metadata": {"name": "tdset-hello-world", "uid": "old"},
            "spec": {"selector": {}, "template": {"spec": {
                "containers": [{"name": "web", "image": "w"}],
                "initContainers": [{"name": name, "image": "i"}],
            }}},
        }))
        .unwrap()
    };
    let template = json!({"spec": {
        "containers": [{"name": "web", "image": "w"}],
        "initContainers": [{"name": "setup", "image": "i"}],
    }});
    (set.spec.container, set.spec.template) = (None, Some(template));
    check(&set, Some(&old("setup")), None, "correct keep scale Some(1)->5");
    let refuses = |found: &Deployment| {
        let problem = plan(observed(&set, Some(found), None), &target(&set), now()).unwrap_err();
        assert_eq!(problem.reason(), "ContainersLeft");
        assert!(problem.to_string().contains("has the containers earlier,"), "{problem}");
    };
    refuses(&old("earlier"));
    // One that an earlier operator made.
    let mut owned = old("earlier");
    owned.metadata.owner_references = crate::children::ownership(&set);
    refuses(&owned);
    // In one of ours they were added since.
    owned.metadata.labels = Some([(children::SET_LABEL.to_owned(), String::new())].into());
    check(&set, Some(&owned), None, "correct keep scale Some(1)->5");
}
