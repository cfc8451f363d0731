//! Plans as snapshots: which children are made, corrected, left alone, removed.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::*;
use crate::tdset::status::{Obstacle, status};

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

/// `set` after a reconcile that met no obstacle.
fn reconciled(mut set: TDSet) -> (TDSet, Deployment) {
    let plan = plan(Observed { set: &set, deployment: None, service: None }, now()).unwrap();
    let Step::Create(mut deployment) = plan.deployment.clone() else { panic!("{plan:?}") };
    deployment.metadata.uid = Some("deployment-uid".to_owned());
    deployment.metadata.generation = Some(1);
    set.status = Some(status(&set, &plan, Some(&deployment), None, now()));
    (set, *deployment)
}

fn served(set: &TDSet) -> Service {
    let mut with_port = set.clone();
    with_port.spec.service = Some(super::super::api::ServiceSpec { port: Some(80) });
    let mut service = desired_service(&with_port).unwrap();
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
            Step::Await => "await",
            Step::Foreign => "foreign",
        }
    }
    let plan = plan(Observed { set, deployment, service }, now()).unwrap();
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
    let plan = plan(Observed { set: &set, deployment: None, service: None }, now()).unwrap();
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
    pod.containers.push(PodContainer { name: "sidecar".to_owned(), ..PodContainer::default() });
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

    let later = plan(
        Observed { set: &set, deployment: Some(&deployment), service: None },
        "2026-11-21T17:00:00Z".parse().unwrap(),
    );
    let scaling = later.unwrap().scaling;
    assert_eq!(scaling, Some(Scaling { from: Some(5), to: 3, foreign: false }));
}

#[test]
fn a_correction_is_pinned_to_the_object_seen() {
    let (set, mut deployment) = reconciled(example());
    deployment.spec.replicas = Some(1);
    let plan =
        plan(Observed { set: &set, deployment: Some(&deployment), service: None }, now()).unwrap();
    let Step::Correct(correction) = plan.deployment else { panic!("{plan:?}") };
    assert_eq!(correction.metadata.uid.as_deref(), Some("deployment-uid"));
}

#[test]
fn a_child_of_others_is_never_touched() {
    let (set, deployment) = reconciled(example());
    let mut foreign = deployment.clone();
    foreign.metadata.owner_references = None;
    check(&set, Some(&foreign), None, "foreign keep");
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
        let observed = Observed { set: &set, deployment: Some(&deployment), service: None };
        let wake = plan(observed, now()).unwrap().wake(&set, now());
        assert_eq!(wake, Some(Duration::from_secs(expect)));
    }
}

#[test]
fn statuses() {
    let (set, mut deployment) = reconciled(example());
    let observed = Observed { set: &set, deployment: Some(&deployment), service: None };
    let plan = plan(observed, now()).unwrap();
    insta::assert_yaml_snapshot!("rolling_out", set.status);

    deployment.status = serde_json::from_value(json!({
        "observedGeneration": 1, "replicas": 5, "updatedReplicas": 5,
        "readyReplicas": 5, "availableReplicas": 5,
    }))
    .unwrap();
    let later = "2026-11-21T10:31:00.5Z".parse().unwrap();
    let settled = status(&set, &plan, Some(&deployment), None, later);
    insta::assert_yaml_snapshot!("settled", settled);
    // Nothing new is nothing to write.
    let mut seen = set.clone();
    seen.status = Some(settled.clone());
    let again = status(&seen, &plan, Some(&deployment), None, later + Duration::from_secs(60));
    assert_eq!(again, settled);

    let refused = Obstacle::Rejected { kind: "Service", message: "no".to_owned() };
    let rejected = status(&seen, &plan, Some(&deployment), Some(refused), later);
    insta::assert_yaml_snapshot!("rejected", rejected.conditions);

    let taken = Plan { deployment: Step::Foreign, ..plan };
    let conflict = status(&seen, &taken, Some(&deployment), None, later);
    insta::assert_yaml_snapshot!("conflict", conflict);
}
