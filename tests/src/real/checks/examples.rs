//! The smallest controllers on a real control plane, with their examples unchanged: a post is
//! published, an annotated ConfigMap restarts the Pods it names, once for each change, and a cache gets its
//! Pods, which no node runs here.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::harness::control_plane::{ControlPlane, Spec};
use crate::harness::manager::{self, Manager};
use crate::harness::{Scene, audit, home, kubectl, wait};

const CONTROLLERS: [&str; 3] = ["blogpost", "memcached", "restart-pods"];
/// The replica's user in the cluster it works on.
const USER: &str = "leasehold-examples";
const DEADLINE: Duration = Duration::from_secs(60);
const POST: &str = "/apis/iximiuz.com/v1alpha1/namespaces/default/blogposts/blog-post-1";
const CACHE: &str = "/apis/data.leasehold.dev/v1alpha1/namespaces/default/memcacheds/cache";
const CACHE_SET: &str = "/apis/apps/v1/namespaces/default/statefulsets/cache";
const CONFIG_MAP: &str = "/api/v1/namespaces/default/configmaps/greeting";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/default/deployments/greeter";
const RECORD: &str = "/metadata/annotations/leasehold.dev~1restart-pods-record";

/// Runs the check.
pub async fn run(scene: &Scene) -> Result<()> {
    let tokens = &[format!("{USER},{USER},{USER},")];
    let spec = Spec { tokens, ..Spec::local("examples") };
    let mut plane = ControlPlane::start(scene, &spec).await?;
    plane.add_controllers()?;
    home::install(&plane.kubectl).await?;
    for controller in CONTROLLERS {
        manager::grant(&plane.kubectl, controller, USER).await?;
    }
    let path = plane.write_kubeconfig("manager", USER)?;
    let more = json!({
        "controllers": CONTROLLERS.map(|name| (name, json!({}))).into_iter().collect::<BTreeMap<_, _>>(),
        "clusters": {"kubeconfigs": [{"path": path, "allow": ["loopback"]}]},
    });
    let mut managers = vec![Manager::start(scene, "replica-0", &plane, &[&plane], &more)?];
    manager::settled(&plane.client, CONTROLLERS.len(), &mut managers).await?;
    for controller in CONTROLLERS {
        let example = xtask::root().join("examples").join(format!("{controller}.yaml"));
        plane.kubectl.apply_path(&example).await?;
    }
    published(&plane).await?;
    restarted(&plane).await?;
    cached(&plane).await?;
    managers[0].check_alive()?;
    managers[0].leave().await?;
    let events = audit::read(&plane.audit_log())?;
    let denied = audit::denied(&events, USER);
    ensure!(denied.is_empty(), "the controllers lack rights: {}", denied.join("\n  "));
    println!(
        "{} requests with the rights of the chart, none denied",
        audit::answered(&events, USER)
    );
    Ok(())
}

/// A post is published once, and kubectl shows it.
async fn published(plane: &ControlPlane) -> Result<()> {
    let published =
        async || Ok(get(plane, POST).await?["status"]["publishedAt"].as_str().map(str::to_owned));
    let at = wait::until(DEADLINE, "the post to be published", published).await?;
    let patch = json!({"spec": {"title": "Another"}}).to_string();
    plane.kubectl.run(&["patch", "blogpost", "blog-post-1", "--type=merge", "-p", &patch]).await?;
    let observed = async || {
        let post = get(plane, POST).await?;
        Ok((post["status"]["observedGeneration"] == 2).then_some(post))
    };
    let post = wait::until(DEADLINE, "the post to be looked at again", observed).await?;
    ensure!(post["status"]["publishedAt"] == at, "published twice: {at} and {post}");
    let table = plane.kubectl.run(&["get", "blogposts"]).await?;
    ensure!(table.contains("Another") && table.contains("PUBLISHED"), "{table}");
    println!("a post is published once: {at}");
    Ok(())
}

/// When the controller first sees the ConfigMap it restarts nothing; each of two changes restarts
/// the Pods once, and is done when the new Pods are ready.
async fn restarted(plane: &ControlPlane) -> Result<()> {
    recorded(plane, 0).await?;
    pods(plane).await?;
    let generation = generation(plane).await?;
    ensure!(generation == 1, "the Deployment changed before its ConfigMap did: {generation}");
    for (change, value) in [(1, "Hello"), (2, "Good evening")] {
        let patch = json!({"data": {"greeting": value}}).to_string();
        plane.kubectl.run(&["patch", "configmap", "greeting", "-p", &patch]).await?;
        begun(plane, change - 1).await?;
        ready(plane).await?;
        recorded(plane, change).await?;
        let found = self::generation(plane).await?;
        ensure!(found == 1 + change, "after change {change} the Deployment is at {found}");
    }
    let events = plane.kubectl.run(&["get", "events", "--field-selector=reason=Restarted"]).await?;
    ensure!(events.contains("restarted Deployment greeter"), "there is no Event:\n{events}");
    println!("two changes of an annotated ConfigMap rolled its Deployment out twice");
    Ok(())
}

/// A cache gets its Pods, follows `kubectl scale`, and is put right; what the server adds to its children is
/// left alone.
async fn cached(plane: &ControlPlane) -> Result<()> {
    let pods = async |wanted: u64| {
        wait::until(DEADLINE, &format!("{wanted} Pods of the cache"), async || {
            let cache = get(plane, CACHE).await?;
            let is_so = cache["status"]["size"] == wanted
                && cache["status"]["observedGeneration"] == cache["metadata"]["generation"];
            Ok(is_so.then_some(cache))
        })
        .await
    };
    let cache = pods(3).await?;
    ensure!(cache["status"]["nodes"].is_null(), "nodes that are not ready are listed: {cache}");
    plane.kubectl.run(&["scale", "memcached", "cache", "--replicas=2"]).await?;
    pods(2).await?;
    let set = async || get(plane, CACHE_SET).await;
    let generation = set().await?["metadata"]["generation"].as_u64();
    ensure!(generation == Some(2), "made once and scaled once, but at {generation:?}");
    plane.kubectl.run(&["scale", "statefulset", "cache", "--replicas=4"]).await?;
    wait::until(DEADLINE, "the StatefulSet to be put right", async || {
        let found = set().await?;
        let is_so = found["spec"]["replicas"] == 2 && found["metadata"]["generation"] == 4;
        Ok(is_so.then_some(()))
    })
    .await?;
    let table = plane.kubectl.run(&["get", "memcacheds"]).await?;
    ensure!(table.contains("SIZE") && table.contains("1.6.45"), "{table}");
    println!("a cache has its Pods, and follows kubectl scale");
    Ok(())
}

/// Waits until so many restarts are recorded, and none is pending.
async fn recorded(plane: &ControlPlane, restarts: u64) -> Result<()> {
    wait::until(DEADLINE, &format!("{restarts} recorded restarts"), async || {
        let record = record(plane).await?;
        let is_so = record["hash"].is_string()
            && record["pending"].is_null()
            && record["restarts"] == restarts;
        Ok(is_so.then_some(()))
    })
    .await
}

/// Waits until a restart has begun. It is not counted, because no node runs the new Pod.
async fn begun(plane: &ControlPlane, restarts: u64) -> Result<()> {
    wait::until(DEADLINE, "a restart to begin", async || {
        let record = record(plane).await?;
        Ok((record["pending"]["started"] == true && record["restarts"] == restarts).then_some(()))
    })
    .await
}

async fn record(plane: &ControlPlane) -> Result<Value> {
    let map = get(plane, CONFIG_MAP).await?;
    let record = map.pointer(RECORD).and_then(Value::as_str).unwrap_or("{}");
    Ok(serde_json::from_str(record)?)
}

/// Says what a node would: that the Pods of the Deployment are ready, until the new one has replaced the old.
async fn ready(plane: &ControlPlane) -> Result<()> {
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    wait::until(DEADLINE, "the rollout of the Deployment", async || {
        for pod in greeters(plane).await? {
            let path = format!("/api/v1/namespaces/default/pods/{pod}/status");
            // One that was replaced meanwhile is gone.
            kubectl::merge(&plane.client, &path, &status).await.ok();
        }
        let set = get(plane, DEPLOYMENT).await?;
        let is_so = set["status"]["observedGeneration"] == set["metadata"]["generation"]
            && ["replicas", "updatedReplicas", "availableReplicas"]
                .iter()
                .all(|&count| set["status"][count] == 1);
        Ok(is_so.then_some(()))
    })
    .await
}

/// The names of the Pods of the Deployment that are not ending.
async fn greeters(plane: &ControlPlane) -> Result<Vec<String>> {
    let pods = kubectl::list(&plane.client, "/api/v1/namespaces/default/pods").await?;
    let lasts = |pod: &&Value| pod["metadata"]["deletionTimestamp"].is_null();
    let names = pods.iter().filter(lasts).map(|pod| kubectl::name(pod).to_owned());
    Ok(names.filter(|name| name.starts_with("greeter-")).collect())
}

/// Waits until the Deployment has its Pod, so that there is something to restart.
async fn pods(plane: &ControlPlane) -> Result<()> {
    wait::until(DEADLINE, "the Pod of the Deployment", async || {
        Ok((!greeters(plane).await?.is_empty()).then_some(()))
    })
    .await
}

async fn generation(plane: &ControlPlane) -> Result<u64> {
    get(plane, DEPLOYMENT).await?["metadata"]["generation"].as_u64().context("it has a generation")
}

async fn get(plane: &ControlPlane, path: &str) -> Result<Value> {
    kubectl::get(&plane.client, path).await?.with_context(|| format!("{path} is gone"))
}
