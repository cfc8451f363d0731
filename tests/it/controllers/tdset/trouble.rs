//! Seeds of trouble: what goes wrong in the first week with workloads of others, autoscalers and schedules.
//! Each row is a story of its own in a world of its own.

use std::time::Duration;

use apiserver::faults::{Fault, Request};
use controllers::TDSet;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::api::{Api, DeleteParams, PostParams};
use leasehold::testing::{ApiError, Reason, TestEnv};
use serde_json::{Value, json};

use super::super::crash::at_every_write;
use super::super::{Story, merge, quiet, reasons, tell};
use super::{
    NAME, NAMESPACE, condition, deployments, example, listed, replicas, sets, start, takeover,
    world,
};

const STORIES: &[Story] = &[
    ("a StatefulSet exists already", || Box::pin(target())),
    ("nothing runs outside of the hours", || Box::pin(outside())),
    ("a target comes late", || Box::pin(late_target())),
    ("a kind is listed, another is not", || Box::pin(listed::listed_kind())),
    ("a target has no number of replicas yet", || Box::pin(listed::unnumbered())),
    ("a Rollout runs the template of the Deployment", || Box::pin(listed::run_by_a_rollout())),
    ("an autoscaler scales the Deployment too", || Box::pin(autoscaler())),
    ("an autoscaler is at 0", || Box::pin(at_zero())),
    ("an autoscaler belongs to another object", || Box::pin(managed())),
    ("the manager has the rights of an earlier version", || Box::pin(fewer_rights())),
    ("two TDSets name one workload", || Box::pin(rivals())),
    ("the users' example leaves an hour open", || Box::pin(gap())),
    ("people take over for a while", || Box::pin(suspended())),
    ("an earlier operator made the Deployment", || Box::pin(takeover::earlier_operator())),
    ("an earlier operator left the Deployment alone", || Box::pin(takeover::left_alone())),
    ("an earlier operator named the container otherwise", || Box::pin(takeover::other_container())),
    ("the set names another workload than the one that it made", || Box::pin(takeover::renamed())),
    ("the set names the workload that it made, and goes", || Box::pin(takeover::released())),
    ("a holiday comes", || Box::pin(holiday())),
    ("a spec cannot be used", || Box::pin(invalid())),
    ("a template has what tools and people write", || Box::pin(written())),
    ("the server refuses a removal for a while", || Box::pin(removal())),
    ("a window of cron ends each day and begins on weekdays", || Box::pin(weekdays())),
    ("lists are too long", || Box::pin(too_long())),
];

pub(super) const MORNING: &str = "2026-11-21T10:00:00Z";
const LATE: &str = "2026-11-21T16:59:00Z";

#[tokio::test(start_paused = true)]
async fn seeds_of_trouble() {
    tell(STORIES).await;
}

/// The example's windows for another workload.
pub(super) fn spec(more: Value) -> Value {
    let example: TDSet = serde_saphyr::from_str(example()).unwrap();
    let mut spec = json!({
        "schedulingConfig": example.spec.scheduling_config, "defaultReplica": 3,
    });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

pub(super) async fn make(env: &TestEnv, name: &str, spec: Value) -> TDSet {
    let set = TDSet::new(name, serde_json::from_value(spec).unwrap());
    sets(env).create(&PostParams::default(), &set).await.unwrap()
}

pub(super) fn to(kind: &str, name: &str) -> Value {
    json!({"targetRef": {"apiVersion": "apps/v1", "kind": kind, "name": name}})
}

/// Waits until a condition of a TDSet has this status and reason, and returns its message.
pub(super) async fn says(
    env: &TestEnv,
    name: &str,
    type_: &str,
    status: &str,
    reason: &str,
) -> String {
    let of = |set: &TDSet| {
        let mut conditions = set.status.iter().flat_map(|status| status.conditions.clone());
        conditions.find(|found| {
            (&*found.type_, &*found.status, &*found.reason) == (type_, status, reason)
        })
    };
    let set = env.until_object(&sets(env), name, |set| of(set).is_some()).await;
    of(&set).unwrap().message
}

pub(super) async fn stateful_set(env: &TestEnv) -> Api<StatefulSet> {
    let api: Api<StatefulSet> = env.api(NAMESPACE);
    let object = serde_json::from_value(json!({
        "metadata": {"name": "db"},
        "spec": {
            "replicas": 1, "serviceName": "db", "selector": {"matchLabels": {"app": "db"}},
            "template": {
                "metadata": {"labels": {"app": "db"}},
                "spec": {"containers": [{"name": "db", "image": "db"}]},
            },
        },
    }))
    .unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
    api
}

pub(super) async fn has(env: &TestEnv, api: &Api<StatefulSet>, expect: i32) {
    env.until_object(api, "db", |found| found.spec.replicas == Some(expect)).await;
}

async fn scaler(env: &TestEnv, kind: &str, name: &str) -> Api<HorizontalPodAutoscaler> {
    let api: Api<HorizontalPodAutoscaler> = env.api(NAMESPACE);
    let object = serde_json::from_value(json!({
        "metadata": {"name": "by-load"},
        "spec": {
            "minReplicas": 1, "maxReplicas": 8,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": kind, "name": name},
        },
    }))
    .unwrap();
    api.create(&PostParams::default(), &object).await.unwrap();
    api
}

async fn floor(env: &TestEnv, api: &Api<HorizontalPodAutoscaler>, expect: i32) {
    env.until_object(api, "by-load", |found| found.spec.min_replicas == Some(expect)).await;
}

async fn target() {
    let env = world(LATE).await;
    let api = stateful_set(&env).await;
    make(&env, "hours", spec(to("StatefulSet", "db"))).await;
    has(&env, &api, 5).await;
    says(&env, "hours", "Ready", "True", "ReplicasAvailable").await;
    let status = sets(&env).get("hours").await.unwrap().status.unwrap();
    assert_eq!(status.target.as_deref(), Some("StatefulSet/db"));
    assert_eq!((status.current_replicas, status.next_replicas), (5, Some(3)));
    merge(&api, "db", json!({"spec": {"replicas": 9}})).await;
    has(&env, &api, 5).await;
    has(&env, &api, 3).await;
    assert_eq!(env.now().to_string()[..16], *"2026-11-21T17:00");
    assert_eq!(reasons(&env, NAMESPACE).await, ["ScaleRestored", "Scaled", "Scaled"]);
    says(&env, "hours", "Ready", "True", "ReplicasAvailable").await;
    quiet(&env, Duration::from_secs(600)).await;
    // It stays, as it is, and nothing else was made.
    sets(&env).delete("hours", &DeleteParams::default()).await.unwrap();
    env.until_gone(&sets(&env), "hours").await;
    env.pass(Duration::from_secs(60)).await;
    has(&env, &api, 3).await;
    assert!(deployments(&env).list(&Default::default()).await.unwrap().items.is_empty());
}

async fn outside() {
    let env = world(LATE).await;
    let api = stateful_set(&env).await;
    let mut office = to("StatefulSet", "db");
    office["schedulingConfig"] = json!([{"startTime": 9, "endTime": 17, "replica": 2}]);
    office["defaultReplica"] = 0.into();
    make(&env, "hours", office).await;
    has(&env, &api, 2).await;
    has(&env, &api, 0).await;
    assert_eq!(env.now().to_string()[..16], *"2026-11-21T17:00");
    says(&env, "hours", "Ready", "True", "ReplicasAvailable").await;
}

async fn late_target() {
    let env = world(MORNING).await;
    make(&env, "hours", spec(to("StatefulSet", "db"))).await;
    let told = says(&env, "hours", "Ready", "False", "TargetMissing").await;
    assert!(told.contains("StatefulSet/db of spec.targetRef does not exist"), "{told}");
    let since = env.now();
    let api = stateful_set(&env).await;
    has(&env, &api, 5).await;
    assert!(env.now().duration_since(since).as_secs() < 10, "nothing polls");
}

async fn autoscaler() {
    let env = world(LATE).await;
    env.apply(example()).await;
    replicas(&env, 5).await;
    let api = scaler(&env, "Deployment", NAME).await;
    floor(&env, &api, 5).await;
    condition(&env, "True", "ReplicasAvailable").await;
    let status = sets(&env).get(NAME).await.unwrap().status.unwrap();
    assert_eq!(status.autoscaler.as_deref(), Some("by-load"));
    // The load asks for more, and the schedule leaves it.
    merge(&deployments(&env), NAME, json!({"spec": {"replicas": 8}})).await;
    floor(&env, &api, 3).await;
    env.pass(Duration::from_secs(600)).await;
    replicas(&env, 8).await;
    condition(&env, "True", "ReplicasAvailable").await;
    quiet(&env, Duration::from_secs(600)).await;
    // Without it the schedule has its way again.
    api.delete("by-load", &DeleteParams::default()).await.unwrap();
    replicas(&env, 3).await;
    assert_eq!(
        reasons(&env, NAMESPACE).await,
        ["Created", "FloorSet", "FloorSet", "ScaleRestored"]
    );
}

async fn at_zero() {
    let env = world("2026-11-21T10:59:00Z").await;
    let api = stateful_set(&env).await;
    let floors = scaler(&env, "StatefulSet", "db").await;
    let mut night = spec(to("StatefulSet", "db"));
    night["schedulingConfig"] = json!([{"startTime": 9, "endTime": 11, "replica": 0}]);
    make(&env, "hours", night).await;
    has(&env, &api, 0).await;
    // More than the autoscaler allows is as much as it allows.
    merge(&sets(&env), "hours", json!({"spec": {"defaultReplica": 12}})).await;
    has(&env, &api, 8).await;
    floor(&env, &floors, 8).await;
    assert_eq!(env.now().to_string()[..16], *"2026-11-21T11:00");
}

/// As KEDA does it for a ScaledObject.
async fn managed() {
    let env = world("2026-11-21T16:58:00Z").await;
    env.apply(example()).await;
    replicas(&env, 5).await;
    let api = stateful_set(&env).await;
    merge(&api, "db", json!({"spec": {"replicas": 0}})).await;
    let owner = |name: &str| {
        json!({"metadata": {"ownerReferences": [{
            "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": name, "uid": name,
            "controller": true, "blockOwnerDeletion": true,
        }]}})
    };
    let floors = scaler(&env, "StatefulSet", "db").await;
    merge(&floors, "by-load", owner("web")).await;
    make(&env, "hours", spec(to("StatefulSet", "db"))).await;
    let told = says(&env, "hours", "Ready", "False", "AutoscalerManaged").await;
    assert!(told.contains("by-load belongs to ScaledObject web"), "{told}");
    let before = floors.get("by-load").await.unwrap().metadata.resource_version;
    // Beside the Deployment of a TDSet too, over a change of the hours.
    let to_own = json!({"metadata": {"name": "keda-hpa"}, "spec": {
        "minReplicas": 1, "maxReplicas": 8,
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": NAME},
    }});
    let mut to_own: HorizontalPodAutoscaler = serde_json::from_value(to_own).unwrap();
    to_own.metadata.owner_references =
        serde_json::from_value(owner("own")["metadata"]["ownerReferences"].clone()).unwrap();
    floors.create(&PostParams::default(), &to_own).await.unwrap();
    condition(&env, "False", "AutoscalerManaged").await;
    env.pass(Duration::from_secs(180)).await;
    quiet(&env, Duration::from_secs(600)).await;
    has(&env, &api, 0).await;
    replicas(&env, 5).await;
    let after = floors.get("by-load").await.unwrap();
    assert_eq!((after.metadata.resource_version, after.spec.min_replicas), (before, Some(1)));
    // Whoever is suspended has no complaint, and without the autoscaler the schedule has its way.
    merge(&sets(&env), "hours", json!({"spec": {"suspend": true}})).await;
    says(&env, "hours", "Ready", "True", "ReplicasAvailable").await;
    floors.delete("keda-hpa", &DeleteParams::default()).await.unwrap();
    replicas(&env, 3).await;
}

async fn fewer_rights() {
    let env = TestEnv::builder().at(MORNING).crds(controllers::crds()).namespace(NAMESPACE);
    let mut env = env.start().await;
    env.set_faults(|request: &Request| match &*request.resource {
        "horizontalpodautoscalers" | "statefulsets" => {
            Fault::Error(ApiError::new(Reason::Forbidden, "not yours"))
        }
        _ => Fault::None,
    });
    start(&mut env);
    env.apply(example()).await;
    condition(&env, "True", "ReplicasAvailable").await;
    make(&env, "hours", spec(to("StatefulSet", "db"))).await;
    let told = says(&env, "hours", "Ready", "False", "Rejected").await;
    assert!(told.contains("the server refused StatefulSet/db: not yours"), "{told}");
}

async fn rivals() {
    let env = world(MORNING).await;
    let api = stateful_set(&env).await;
    make(&env, "first", spec(to("StatefulSet", "db"))).await;
    has(&env, &api, 5).await;
    let mut other = spec(to("StatefulSet", "db"));
    other["schedulingConfig"] = json!([]);
    env.pass(Duration::from_secs(2)).await;
    make(&env, "second", other).await;
    let told = says(&env, "second", "Ready", "False", "Conflict").await;
    assert!(told.contains("TDSet first scales StatefulSet/db already"), "{told}");
    quiet(&env, Duration::from_secs(600)).await;
    // One that is suspended leaves the workload to the other until it is no more.
    merge(&sets(&env), "first", json!({"spec": {"suspend": true}})).await;
    has(&env, &api, 3).await;
    says(&env, "second", "Ready", "True", "ReplicasAvailable").await;
    quiet(&env, Duration::from_secs(600)).await;
    merge(&sets(&env), "first", json!({"spec": {"suspend": false}})).await;
    says(&env, "second", "Ready", "False", "Conflict").await;
    has(&env, &api, 5).await;
    sets(&env).delete("first", &DeleteParams::default()).await.unwrap();
    has(&env, &api, 3).await;
    // Whoever makes a workload scales it.
    env.apply(example()).await;
    condition(&env, "True", "ReplicasAvailable").await;
    make(&env, "guest", spec(to("Deployment", NAME))).await;
    says(&env, "guest", "Ready", "False", "Conflict").await;
}

async fn gap() {
    let env = world(MORNING).await;
    env.apply(example()).await;
    let told = says(&env, NAME, "ScheduleComplete", "False", "Gaps").await;
    assert_eq!(told, "no window holds 00:00-01:00: defaultReplica, 3, is for it");
    condition(&env, "True", "ReplicasAvailable").await;
    let set = sets(&env).get(NAME).await.unwrap();
    let mut windows = set.spec.scheduling_config.clone();
    windows[2].end_time = 2;
    merge(&sets(&env), NAME, json!({"spec": {"schedulingConfig": windows}})).await;
    let told = says(&env, NAME, "ScheduleComplete", "False", "Overlaps").await;
    assert_eq!(told, "several windows hold 01:00-02:00: the first decides");
    windows[2].end_time = 1;
    merge(&sets(&env), NAME, json!({"spec": {"schedulingConfig": windows}})).await;
    says(&env, NAME, "ScheduleComplete", "True", "Complete").await;
    let cron = json!([{"start": "0 9 * * 1-5", "end": "0 17 * * 1-5", "replica": 2}]);
    merge(&sets(&env), NAME, json!({"spec": {"schedulingConfig": [], "cron": cron}})).await;
    let told = says(&env, NAME, "ScheduleComplete", "False", "Gaps").await;
    assert!(told.starts_with("no window holds Mon 00:00-09:00, Mon 17:00-Tue 09:00"), "{told}");
}

async fn suspended() {
    let env = world(LATE).await;
    env.apply(example()).await;
    condition(&env, "True", "ReplicasAvailable").await;
    merge(&sets(&env), NAME, json!({"spec": {"suspend": true}})).await;
    env.until_object(&sets(&env), NAME, |set| {
        let status = set.status.as_ref();
        status.and_then(|status| status.active_window.as_deref()) == Some("suspended")
    })
    .await;
    merge(&deployments(&env), NAME, json!({"spec": {"replicas": 9}})).await;
    env.pass(Duration::from_secs(600)).await;
    replicas(&env, 9).await;
    condition(&env, "True", "ReplicasAvailable").await;
    merge(&sets(&env), NAME, json!({"spec": {"suspend": false}})).await;
    replicas(&env, 3).await;
}

async fn holiday() {
    let env = world("2026-12-23T23:59:00Z").await;
    env.apply(example()).await;
    merge(&sets(&env), NAME, json!({"spec": {"exceptions": [{"from": "12-24", "replica": 0}]}}))
        .await;
    let set = env
        .until_object(&sets(&env), NAME, |set| {
            set.status.as_ref().is_some_and(|status| status.next_replicas == Some(0))
        })
        .await;
    let next = set.status.unwrap().next_change().unwrap();
    assert_eq!(next.to_string(), "2026-12-24T00:00:00Z");
    replicas(&env, 0).await;
    env.pass(Duration::from_secs(12 * 3_600)).await;
    let status = sets(&env).get(NAME).await.unwrap().status.unwrap();
    assert_eq!(status.active_window.as_deref(), Some("exception 12-24"));
    replicas(&env, 0).await;
}

/// The embedded server has no CEL, so the plan refuses what a real server would refuse.
async fn invalid() {
    let env = world(MORNING).await;
    let both = json!({"container": {"image": "i", "port": 80}, "targetRef": {"kind": "StatefulSet", "name": "db"}});
    for (name, more, reason, words) in [
        ("none", json!({}), "Invalid", "spec has 0 of container, template and targetRef"),
        ("both", both, "Invalid", "spec has 2 of"),
        (
            "template",
            json!({"template": {"spec": {"containres": [{"name": "web"}]}}}),
            "Invalid",
            "none has the field spec.template.spec.containres",
        ),
        (
            "cron",
            json!({"container": {"image": "i", "port": 80},
                "cron": [{"start": "0 25 * * *", "end": "0 9 * * *", "replica": 1}]}),
            "InvalidSchedule",
            "0 25 * * *",
        ),
    ] {
        make(&env, name, spec(more)).await;
        let told = says(&env, name, "Ready", "False", reason).await;
        assert!(told.contains(words), "{told}");
    }
    quiet(&env, Duration::from_secs(600)).await;
    assert!(deployments(&env).list(&Default::default()).await.unwrap().items.is_empty());
}

async fn written() {
    let env = world(MORNING).await;
    let template = json!({
        "metadata": {"creationTimestamp": null, "labels": {"team": "shop"}},
        "spec": {"nodeSelector": null, "containers": [{
            "name": "app", "image": "app", "ports": [{"containerPort": 80}],
            "resources": {"requests": {"cpu": 0.5}, "limits": {"cpu": 1}},
        }]},
    });
    make(&env, NAME, spec(json!({"template": template}))).await;
    condition(&env, "True", "ReplicasAvailable").await;
    let found = replicas(&env, 5).await.spec.template.spec.unwrap().containers.remove(0);
    let limits = found.resources.unwrap().limits.unwrap();
    assert_eq!(limits["cpu"].0, "1");
    quiet(&env, Duration::from_secs(600)).await;
}

/// What a spec no longer asks for is no difference to what it asks for.
async fn removal() {
    let env = world(MORNING).await;
    let template = |environment: Value| {
        json!({"template": {"spec": {"containers": [{
            "name": "app", "image": "app", "env": environment, "ports": [{"containerPort": 80}],
        }]}}})
    };
    let [one, other] = ["A", "B"].map(|name| json!({"name": name, "value": "1"}));
    let mut both = template(json!([one, other]));
    both["service"] = json!({"port": 80});
    make(&env, NAME, spec(both)).await;
    condition(&env, "True", "ReplicasAvailable").await;
    let services: Api<k8s_openapi::api::core::v1::Service> = env.api(NAMESPACE);
    env.set_faults(|request: &Request| match (request.verb, &*request.resource) {
        ("patch", "deployments") | ("delete", "services") => {
            Fault::Error(ApiError::new(Reason::Invalid, "not on a Friday"))
        }
        _ => Fault::None,
    });
    let mut less = template(json!([one]));
    less["service"] = Value::Null;
    merge(&sets(&env), NAME, json!({"spec": less})).await;
    let set = condition(&env, "False", "Rejected").await;
    let status = set.status.unwrap();
    assert_eq!(status.observed_generation, set.metadata.generation);
    env.pass(Duration::from_secs(60)).await;
    condition(&env, "False", "Rejected").await;
    env.end_faults();
    env.pass(Duration::from_secs(6 * 60)).await;
    let found = replicas(&env, 5).await.spec.template.spec.unwrap().containers.remove(0);
    let names: Vec<_> = found.env.unwrap().into_iter().map(|variable| variable.name).collect();
    assert_eq!(names, ["A"]);
    assert!(services.get_opt(NAME).await.unwrap().is_none());
    condition(&env, "True", "ReplicasAvailable").await;
    quiet(&env, Duration::from_secs(600)).await;
}

async fn weekdays() {
    // A Friday.
    let env = world("2026-11-20T16:59:00Z").await;
    let api = stateful_set(&env).await;
    let mut hours = to("StatefulSet", "db");
    hours["cron"] = json!([{"start": "0 9 * * 1-5", "end": "0 17 * * *", "replica": 4}]);
    make(&env, "hours", hours).await;
    has(&env, &api, 4).await;
    has(&env, &api, 1).await;
    assert_eq!(env.now().to_string()[..16], *"2026-11-20T17:00");
    let status = sets(&env).get("hours").await.unwrap().status.unwrap();
    assert_eq!(status.next_change().unwrap().to_string(), "2026-11-23T09:00:00Z");
    quiet(&env, Duration::from_secs(600)).await;
    has(&env, &api, 1).await;
}

async fn too_long() {
    let env = world(MORNING).await;
    let cron = json!({"start": "0 8 * * *", "end": "0 9 * * *", "replica": 1});
    for (list, item, most) in [
        ("cron", cron, 16),
        ("exceptions", json!({"from": "12-24"}), 200),
        ("schedulingConfig", json!({"startTime": 1, "endTime": 2, "replica": 1}), 96),
    ] {
        for (length, accepted) in [(most, true), (most + 1, false)] {
            let mut spec = json!({"container": {"image": "i", "port": 80}});
            spec[list] = vec![item.clone(); length].into();
            let name = format!("{}-{length}", list.to_lowercase());
            let set = TDSet::new(&name, serde_json::from_value(spec).unwrap());
            let made = sets(&env).create(&PostParams::default(), &set).await;
            assert_eq!(made.is_ok(), accepted, "{length} of {list}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_write_to_a_workload_of_others_ends_alike() {
    let writes = at_every_write(async |crash| {
        let builder = TestEnv::builder().at(MORNING).crds(controllers::crds());
        let mut env = builder.namespace(NAMESPACE).start().await;
        let api = stateful_set(&env).await;
        merge(&api, "db", json!({"spec": {"replicas": 0}})).await;
        let floors = scaler(&env, "StatefulSet", "db").await;
        make(&env, "hours", spec(to("StatefulSet", "db"))).await;
        crash.watch(&env);
        let controllers = || controllers::build("tdset", 2);
        crash
            .survived(&mut env, controllers, async |env| {
                says(env, "hours", "Ready", "True", "ReplicasAvailable").await;
            })
            .await;
        has(&env, &api, 5).await;
        floor(&env, &floors, 5).await;
    })
    .await;
    assert!(writes >= 4, "the scale, the floor, an Event, the status: {writes}");
}
