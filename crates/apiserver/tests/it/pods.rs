//! Pods that nobody owns, the volumes they wait for, and Jobs.

use std::sync::{Arc, Mutex};

use leasehold_apiserver::{Exit, Matcher, Process, Program, Server, Start, State};
use serde_json::{Value, json};
use tokio::io::DuplexStream;
use tokio::sync::watch;

use crate::world::{PODS, World, is_ready};

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const VOLUMES: &str = "/api/v1/persistentvolumes";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";

/// Does its work at once, and ends as its arguments say: with a code, and a message.
#[derive(Default)]
struct Worker(Mutex<Vec<Start>>);

struct Done(watch::Receiver<State>);

impl Program for Worker {
    fn start(&self, start: &Start) -> Arc<dyn Process> {
        self.0.lock().unwrap().push(start.clone());
        let args = &start.spec()["args"];
        let code = args[0].as_str().map_or(0, |code| code.parse().unwrap());
        let message = args[1].as_str().unwrap_or_default().to_owned();
        Arc::new(Done(watch::channel(State::Exited(Exit { code, message })).1))
    }
}

impl Process for Done {
    fn connect(&self, _: u16) -> Option<DuplexStream> {
        None
    }

    fn state(&self) -> Option<watch::Receiver<State>> {
        Some(self.0.clone())
    }
}

async fn world(worker: &Arc<Worker>) -> World {
    let builder = Server::builder().workloads(true).garbage_collector(true);
    World::with(builder.program(Matcher::Image("worker".into()), worker.clone())).await
}

fn claim(name: &str, size: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}},
        },
    })
}

fn with_claim(name: &str, claim: &str) -> Value {
    let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": claim}});
    json!({
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "i:1"}], "volumes": [volume]},
    })
}

fn job(name: &str, args: Value, spec: Value) -> Value {
    let mut job = json!({
        "metadata": {"name": name},
        "spec": {"template": {"spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "work", "image": "worker:1", "args": args}],
        }}},
    });
    for (field, value) in spec.as_object().unwrap() {
        job["spec"][field] = value.clone();
    }
    job
}

fn ended(job: &Value, how: &str) -> bool {
    let mut conditions = job["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|c| c["type"] == how && c["status"] == "True")
}

async fn pods_of(world: &World, job: &str) -> Vec<Value> {
    let path = format!("{PODS}?labelSelector=batch.kubernetes.io/job-name={job}");
    world.get(&path).await.expect(200)["items"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_pod_that_nobody_owns_lives_and_is_deleted_in_stages() {
    let world = world(&Arc::default()).await;
    let bare = json!({"metadata": {"name": "bare"}, "spec": {"containers": [
        {"name": "c", "image": "i:1"},
    ]}});
    world.post(PODS, bare.clone()).await.expect(201);
    let ready = world.until(PODS, "bare", "it is Ready", is_ready).await;
    assert_eq!(ready["spec"]["nodeName"], "embedded");
    assert_eq!(ready["status"]["phase"], "Running");
    let marked = world.delete(&format!("{PODS}/bare"), json!({})).await.expect(200);
    assert_eq!(marked["metadata"]["deletionGracePeriodSeconds"], 30);
    world.gone(PODS, "bare").await;

    world.post("/api/v1/nodes", json!({"metadata": {"name": "n1"}})).await.expect(201);
    world.post(PODS, bare).await.expect(201);
    let ready = world.until(PODS, "bare", "it is Ready", is_ready).await;
    assert_eq!(ready["spec"]["nodeName"], "n1");
}

#[tokio::test]
async fn a_claim_is_bound_to_a_volume_that_grows_and_goes_with_it() {
    let world = world(&Arc::default()).await;
    world.post(CLAIMS, claim("data", "1Gi")).await.expect(201);
    let is_bound = |claim: &Value| claim["status"]["phase"] == "Bound";
    let bound = world.until(CLAIMS, "data", "it is bound", is_bound).await;
    let name = bound["spec"]["volumeName"].as_str().unwrap().to_owned();
    assert_eq!(name, format!("pvc-{}", bound["metadata"]["uid"].as_str().unwrap()));
    assert_eq!(bound["status"]["capacity"]["storage"], "1Gi");
    let volume = world.until(VOLUMES, &name, "so is the volume", is_bound).await;
    assert_eq!(volume["spec"]["claimRef"]["name"], "data");

    let larger = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    world.merge(&format!("{CLAIMS}/data"), larger).await.expect(200);
    world
        .until(CLAIMS, "data", "it has grown", |c| c["status"]["capacity"]["storage"] == "2Gi")
        .await;
    world.delete(&format!("{CLAIMS}/data"), json!({})).await.expect(200);
    world.gone(VOLUMES, &name).await;
}

#[tokio::test]
async fn a_pod_waits_for_its_claim() {
    let worker: Arc<Worker> = Arc::default();
    let world = world(&worker).await;
    world.post(PODS, with_claim("p", "data")).await.expect(201);
    let waits = world
        .until(PODS, "p", "it says what is missing", |p| !p["status"]["conditions"].is_null())
        .await;
    let condition = &waits["status"]["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["status"]),
        (&json!("PodScheduled"), &json!("False"))
    );
    assert_eq!(condition["message"], "persistentvolumeclaim \"data\" not found");
    assert_eq!(
        (&waits["status"]["phase"], &waits["spec"]["nodeName"]),
        (&json!("Pending"), &json!(null))
    );
    world.post(CLAIMS, claim("data", "1Gi")).await.expect(201);
    world.until(PODS, "p", "it is Ready", is_ready).await;
}

#[tokio::test]
async fn a_job_runs_until_enough_pods_have_succeeded() {
    let worker: Arc<Worker> = Arc::default();
    let world = world(&worker).await;
    world.post(CLAIMS, claim("data", "1Gi")).await.expect(201);
    let mut work = job("work", json!(["0", "it went well"]), json!({"completions": 2}));
    work["spec"]["template"]["spec"]["volumes"] =
        with_claim("p", "data")["spec"]["volumes"].clone();
    world.post(JOBS, work).await.expect(201);
    let done = world.until(JOBS, "work", "it is complete", |job| ended(job, "Complete")).await;
    assert_eq!(done["status"]["succeeded"], 2);
    assert!(done["status"]["completionTime"].is_string() && done["status"]["active"].is_null());
    let pods = pods_of(&world, "work").await;
    assert_eq!(pods.len(), 2);
    for pod in &pods {
        let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
        assert_eq!((&ended["exitCode"], &ended["message"]), (&json!(0), &json!("it went well")));
        assert_eq!(pod["status"]["phase"], "Succeeded");
    }
    let claim = world.get(&format!("{CLAIMS}/data")).await.expect(200);
    {
        let starts = worker.0.lock().unwrap();
        assert_eq!(claim["metadata"]["uid"], starts[0].claims["data"].as_str());
        assert_eq!(starts.len(), 2);
    }

    let quiet = json!({"template": {"spec": {
        "restartPolicy": "Never", "containers": [{"name": "c", "image": "unknown:1"}],
    }}});
    world.post(JOBS, job("quiet", json!([]), quiet)).await.expect(201);
    world.until(JOBS, "quiet", "what nobody knows succeeds", |job| ended(job, "Complete")).await;
    world.delete(&format!("{JOBS}/work?propagationPolicy=Background"), json!({})).await.expect(200);
    for pod in pods {
        world.gone(PODS, pod["metadata"]["name"].as_str().unwrap()).await;
    }
}

#[tokio::test]
async fn a_job_fails_after_too_many_pods_or_restarts() {
    let worker: Arc<Worker> = Arc::default();
    let world = world(&worker).await;
    let spec = json!({"backoffLimit": 1});
    world.post(JOBS, job("pods", json!(["7", "no"]), spec.clone())).await.expect(201);
    let failed = world.until(JOBS, "pods", "it has failed", |job| ended(job, "Failed")).await;
    assert_eq!(failed["status"]["failed"], 2);
    assert_eq!(failed["status"]["conditions"][0]["reason"], "BackoffLimitExceeded");

    let mut restarts = job("restarts", json!(["7", "no"]), spec);
    restarts["spec"]["template"]["spec"]["restartPolicy"] = json!("OnFailure");
    world.post(JOBS, restarts).await.expect(201);
    world.until(JOBS, "restarts", "it has failed", |job| ended(job, "Failed")).await;
    for pod in pods_of(&world, "restarts").await {
        world.gone(PODS, pod["metadata"]["name"].as_str().unwrap()).await;
    }
}

#[tokio::test]
async fn a_program_starts_with_the_files_that_are_mounted() {
    let worker: Arc<Worker> = Arc::default();
    let world = world(&worker).await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {
        "restartPolicy": "Never",
        "containers": [{"name": "c", "image": "worker:1", "volumeMounts": [
            {"name": "keys", "mountPath": "/keys"}, {"name": "perhaps", "mountPath": "/perhaps"},
        ]}],
        "volumes": [
            {"name": "keys", "secret": {"secretName": "keys"}},
            {"name": "perhaps", "configMap": {"name": "perhaps", "optional": true}},
        ],
    }});
    world.post(PODS, pod).await.expect(201);
    world.until(PODS, "p", "it has a Node", |pod| pod["spec"]["nodeName"].is_string()).await;
    assert!(worker.0.lock().unwrap().is_empty(), "it waits for its Secret");
    let keys = json!({"metadata": {"name": "keys"}, "stringData": {"tls.key": "secret"}});
    world.post("/api/v1/namespaces/default/secrets", keys).await.expect(201);
    world.until(PODS, "p", "it has run", |pod| pod["status"]["phase"] == "Succeeded").await;
    let starts = worker.0.lock().unwrap();
    assert_eq!(starts[0].files, [("/keys/tls.key".to_owned(), b"secret".to_vec())].into());
}
