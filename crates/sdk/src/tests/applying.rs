//! Applies against a server that adds to what it receives: an object is sent once, and again when
//! somebody changes it.

use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::world::{World, holding, run};
use crate::{
    Action, ApplyConflict, ApplyOptions, Context, Controller, ReconcileError, RetryClass, mapping,
};
use engine::testing::{Asked, Server, Watch, config_map};
use model::Clock;

const QUIET: Duration = Duration::from_secs(1);

fn wanted() -> Pod {
    let spec = json!({"containers": [{"name": "app", "image": "app"}]});
    serde_json::from_value(json!({"metadata": {"name": "a", "namespace": "ns"}, "spec": spec}))
        .unwrap()
}

/// The server's result for what it was sent: it fills in a default and injects a container.
fn made(sent: &Value, version: u64, sidecar: &str) -> Value {
    let mut pod = sent.clone();
    pod["metadata"]["uid"] = "uid-pod".into();
    pod["metadata"]["resourceVersion"] = version.to_string().into();
    pod["spec"]["containers"][0]["imagePullPolicy"] = "Always".into();
    let containers = pod["spec"]["containers"].as_array_mut().unwrap();
    containers.push(json!({"name": "sidecar", "image": sidecar}));
    pod
}

/// A world in which each change of a ConfigMap or a Pod makes the controller write one wanted Pod.
struct Stage {
    world: World,
    server: Server,
    maps: Watch,
    pods: Watch,
    told: watch::Receiver<Vec<String>>,
    version: u64,
}

impl Stage {
    async fn start(part: &'static str, options: ApplyOptions) -> Self {
        let (tell, told) = watch::channel(Vec::new());
        let spec = Controller::for_kind::<ConfigMap>("pods")
            .watches::<Pod>(mapping::namesake())
            .reconciler(run(move |ctx, _| {
                let tell = tell.clone();
                async move {
                    let written = write(ctx, part, options).await;
                    tell.send_modify(|all| all.push(outcome(&written)));
                    Ok(Action::Done)
                }
                .boxed()
            }));
        let (world, mut server) = holding(vec![spec], 3);
        let (mut maps, mut pods) = (None, None);
        for _ in 0..2 {
            let asked = server.asked().await;
            if asked.line.contains("configmaps") {
                maps = Some(asked.list(5, &[config_map("a", 1)]));
            } else {
                pods = Some(asked.list(5, &[]));
            }
        }
        Self { world, server, maps: maps.unwrap(), pods: pods.unwrap(), told, version: 5 }
    }

    /// Makes the key run again.
    fn touch(&mut self) {
        self.version += 1;
        self.maps.event("MODIFIED", &config_map("a", self.version));
    }

    /// The next apply.
    async fn asked(&mut self) -> Asked {
        let asked = self.server.asked().await;
        assert!(asked.line.starts_with("PATCH /api/v1/namespaces/ns/pods/a"), "{}", asked.line);
        asked
    }

    /// Whether the key runs again and nothing is sent.
    async fn rests(&mut self) {
        let runs = self.told.borrow().len();
        self.touch();
        self.told.wait_for(|all| all.len() > runs).await.unwrap();
        self.server.quiet(QUIET).await;
    }

    /// What the last of this many runs reported.
    async fn told(&mut self, runs: usize) -> String {
        let all = self.told.wait_for(|all| all.len() >= runs).await.unwrap();
        all[runs - 1].clone()
    }

    /// Answers the next apply with the result of `make`, which the watch then shows.
    async fn applied(&mut self, make: impl FnOnce(&Value, u64) -> Value) -> Value {
        let asked = self.asked().await;
        self.version += 1;
        let made = make(&asked.body, self.version);
        asked.answer(200, &made);
        self.pods.event("MODIFIED", &made);
        made
    }
}

async fn write(
    ctx: &Context,
    part: &str,
    options: ApplyOptions,
) -> Result<Option<Pod>, ReconcileError> {
    match part {
        "status" => {
            let status = json!({"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}]});
            let pod = Pod { status: serde_json::from_value(status).unwrap(), ..wanted() };
            ctx.apply_status_with(&pod, options).await
        }
        _ => ctx.apply_with(&wanted(), options).await.map(Some),
    }
}

fn outcome(written: &Result<Option<Pod>, ReconcileError>) -> String {
    match written {
        Ok(Some(pod)) => format!("ok {}", pod.metadata.resource_version.as_deref().unwrap_or("-")),
        Ok(None) => "gone".to_owned(),
        Err(error) => match ApplyConflict::among(error) {
            Some(conflict) => {
                assert_eq!(error.class(), RetryClass::Conflict);
                conflict.to_string()
            }
            None => format!("{error:?}"),
        },
    }
}

#[tokio::test(start_paused = true)]
async fn what_the_server_adds_is_no_reason_to_apply_again_and_what_others_change_is() {
    let mut stage = Stage::start("object", ApplyOptions::default()).await;
    let mut pod = stage.applied(|sent, version| made(sent, version, "v1")).await;
    stage.rests().await;
    stage.rests().await;
    // A status comes; nothing of ours.
    stage.version += 1;
    pod["metadata"]["resourceVersion"] = stage.version.to_string().into();
    pod["status"] = json!({"phase": "Running"});
    stage.pods.event("MODIFIED", &pod);
    stage.server.quiet(QUIET).await;
    // Somebody adds a container, and the server keeps it: it is left alone from then on.
    stage.version += 1;
    pod["metadata"]["resourceVersion"] = stage.version.to_string().into();
    pod["spec"]["containers"].as_array_mut().unwrap().push(json!({"name": "theirs"}));
    stage.pods.event("MODIFIED", &pod);
    let kept = pod.clone();
    stage.applied(|_, _| kept).await;
    stage.rests().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_otherwise_each_time_is_asked_once() {
    let mut stage = Stage::start("object", ApplyOptions::default()).await;
    stage.applied(|sent, version| made(sent, version, &format!("v{version}"))).await;
    stage.rests().await;
    stage.rests().await;
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_applied_is_sent_until_it_stands() {
    let mut stage = Stage::start("status", ApplyOptions::default()).await;
    let answer = |sent: &Value, version: u64| {
        let mut pod = made(&serde_json::to_value(wanted()).unwrap(), version, "v1");
        pod["status"] = sent["status"].clone();
        pod["status"]["theirs"] = 1.into();
        pod
    };
    let asked = stage.asked().await;
    assert!(asked.line.starts_with("PATCH /api/v1/namespaces/ns/pods/a/status"), "{}", asked.line);
    assert!(asked.line.contains("force=true&fieldManager=pods"), "{}", asked.line);
    let expect = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "ns"},
        "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}]},
    });
    assert_eq!(asked.body, expect);
    // Nobody is there yet, or any more.
    asked.refuse(404, "NotFound");
    assert_eq!(stage.told(1).await, "gone");
    stage.touch();
    let pod = stage.applied(answer).await;
    stage.rests().await;
    let mut emptied = pod.clone();
    emptied["status"]["podIPs"] = json!([]);
    stage.version += 1;
    emptied["metadata"]["resourceVersion"] = stage.version.to_string().into();
    stage.pods.event("MODIFIED", &emptied);
    stage.applied(answer).await;
    stage.rests().await;
}

#[tokio::test(start_paused = true)]
async fn without_force_a_conflict_names_who_and_what() {
    let mut stage = Stage::start("object", ApplyOptions::default().force(false)).await;
    let asked = stage.asked().await;
    assert!(!asked.line.contains("force"), "{}", asked.line);
    asked.answer(
        409,
        &json!({"kind": "Status", "status": "Failure", "code": 409, "reason": "Conflict",
        "message": "Apply failed with 1 conflict", "details": {"causes": [{
            "reason": "FieldManagerConflict", "field": ".spec.priority",
            "message": "conflict with \"kubectl-edit\" using v1",
        }]}}),
    );
    let expect = "apply Pod ns/a without force: kubectl-edit owns .spec.priority";
    assert_eq!(stage.told(1).await, expect);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_is_always_sent_and_nothing_is_expected_of_it() {
    let mut stage = Stage::start("object", ApplyOptions::default().dry_run()).await;
    for run in 1..=2 {
        let asked = stage.asked().await;
        assert!(asked.line.contains("dryRun=All&force=true"), "{}", asked.line);
        let would_be = made(&asked.body, 99, "v1");
        asked.answer(200, &would_be);
        assert_eq!(stage.told(run).await, "ok 99");
        // Version 99 never comes: the next run does not wait for it.
        stage.touch();
    }
    let before = stage.world.clock.now();
    stage.asked().await;
    assert!(stage.world.clock.now().since(before) < QUIET);
}
