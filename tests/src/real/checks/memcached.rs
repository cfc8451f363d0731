//! Memcached with real memcached in real Pods: nodes are added at the end of the list, restart one at a
//! time, and keep their keys through everything that is not about them. A replica is killed in the midst
//! of an update.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::stage::{DEADLINE, Stage, set};
use crate::harness::faults::container_id;
use crate::harness::kubectl::holds;
use crate::harness::servers::{MEMCACHED, memcached_image};
use crate::harness::wait::{self, Stopwatch};
use crate::harness::{Scene, kubectl};

const OBJECT: &str = "/apis/data.leasehold.dev/v1alpha1/namespaces/default/memcacheds/cache";
const SET: &str = "/apis/apps/v1/namespaces/default/statefulsets/cache";
const LABEL: &str = "data.leasehold.dev/memcached=cache";
const CONTAINER: &str = "memcached";
const PORT: u16 = 11_211;
/// How long a node serves before the next is restarted.
const MIN_READY_SECONDS: u64 = 1;

/// Runs the check.
pub async fn run(scene: &Scene) -> Result<()> {
    let watch = Stopwatch::start();
    let mut stage = Stage::start(scene, "memcached", &scene.tools().memcached_images(), 3).await?;
    let mut objects = stage.example()?;
    let spec = json!({
        "image": memcached_image(MEMCACHED[0]), "memory": "32Mi", "minReadySeconds": MIN_READY_SECONDS,
    });
    let object = objects.first_mut().context("the example is empty")?;
    set(&mut object["spec"], &spec);
    stage.apply(&objects).await?;
    let nodes = nodes(&settled(&mut stage, 3, MEMCACHED[0]).await?);
    let pods = stage.pods(LABEL).await?;
    stage.unreachable(pods.first().context("there is no Pod")?, PORT).await?;
    for node in &nodes {
        store(&stage, node, node).await?;
    }
    println!("three nodes serve under their names after {watch}");

    stage.merge(OBJECT, &json!({"spec": {"size": 4}})).await?;
    let grown = self::nodes(&settled(&mut stage, 4, MEMCACHED[0]).await?);
    ensure!(grown[..3] == nodes, "the list did not grow at its end: {nodes:?}, then {grown:?}");
    kept(&stage, &nodes).await?;
    println!("a fourth node is at the end of the list, the others kept their keys, after {watch}");

    killed(&mut stage, &nodes).await?;
    println!("a killed node came back, the others kept their keys, after {watch}");
    updated(&mut stage).await?;
    println!("all nodes run {} after {watch}", MEMCACHED[1]);

    kubectl::get(&stage.node.control.client, SET).await?.context("there is no StatefulSet")?;
    let kubectl = &stage.node.control.kubectl;
    kubectl.run(&["scale", "memcached/cache", "--replicas=2"]).await?;
    let shrunk = self::nodes(&settled(&mut stage, 2, MEMCACHED[1]).await?);
    ensure!(shrunk == nodes[..2], "the list did not shrink at its end: {shrunk:?}");
    deleted(&mut stage).await?;
    println!("kubectl scale and delete took effect after {watch}");
    stage.leave().await
}

/// Waits until `size` nodes of a version are ready.
async fn settled(stage: &mut Stage<'_>, size: usize, version: &str) -> Result<Value> {
    let what = format!("{size} nodes of {version} to be ready");
    let object = stage.until(OBJECT, &what, |object| {
        let status = &object["status"];
        holds(object, "Ready")
            && status["observedGeneration"] == object["metadata"]["generation"]
            && status["ready"] == size
            && status["version"] == version
            && nodes(object).len() == size
    });
    object.await
}

/// The servers that clients should use.
fn nodes(object: &Value) -> Vec<String> {
    let all = object["status"]["nodes"].as_array().into_iter().flatten();
    all.filter_map(|node| Some(node.as_str()?.to_owned())).collect()
}

/// What a node says to a request.
async fn ask(stage: &Stage<'_>, node: &str, request: &str, end: &str) -> Result<String> {
    let (host, port) = node.rsplit_once(':').context("a node without a port")?;
    let line = format!(
        "exec 3<>/dev/tcp/{host}/{port}; printf '{request}' >&3; \
         while IFS= read -r -t 5 line <&3; do echo \"$line\"; [[ $line == {end}* ]] && break; done"
    );
    stage.on_node(&line).await
}

async fn store(stage: &Stage<'_>, node: &str, value: &str) -> Result<()> {
    let request = format!("set kept 0 0 {}\\r\\n{value}\\r\\n", value.len());
    let said = ask(stage, node, &request, "STORED").await?;
    ensure!(said.starts_with("STORED"), "{node} says {said:?}");
    Ok(())
}

/// Whether a node has the key that was stored there.
async fn has(stage: &Stage<'_>, node: &str) -> Result<bool> {
    let said = ask(stage, node, "get kept\\r\\n", "END").await?;
    ensure!(said.contains("END"), "{node} says {said:?}");
    Ok(said.contains(&format!("\n{node}")))
}

/// Every node still has its key, so none of them was restarted.
async fn kept(stage: &Stage<'_>, nodes: &[String]) -> Result<()> {
    for node in nodes {
        ensure!(has(stage, node).await?, "{node} lost its key");
    }
    Ok(())
}

/// A node that dies loses its own keys, and keeps its name.
async fn killed(stage: &mut Stage<'_>, nodes: &[String]) -> Result<()> {
    let pods = stage.pods(LABEL).await?;
    let victim = pods.iter().find(|pod| kubectl::name(pod) == "cache-1").context("no cache-1")?;
    stage.node.kill_container(&container_id(victim, CONTAINER)?)?;
    let path = "/api/v1/namespaces/default/pods/cache-1";
    let restarted = |pod: &Value| {
        let restarts = pod["status"]["containerStatuses"][0]["restartCount"].as_u64();
        restarts > Some(0) && holds(pod, "Ready")
    };
    stage.until(path, "the killed node to be ready again", restarted).await?;
    ensure!(!has(stage, &nodes[1]).await?, "a memcached that was killed kept its keys");
    let object = settled(stage, 4, MEMCACHED[0]).await?;
    ensure!(self::nodes(&object).len() == 4, "the killed node left the list");
    kept(stage, &[nodes[0].clone(), nodes[2].clone()]).await
}

/// Another version: one node at a time, though the replica that began it is killed.
async fn updated(stage: &mut Stage<'_>) -> Result<()> {
    let image = json!({"spec": {"image": memcached_image(MEMCACHED[1])}});
    stage.merge(OBJECT, &image).await?;
    let (mut fewest, mut is_killed) = (usize::MAX, false);
    wait::until(DEADLINE, "every node to run the new version", async || {
        stage.check_alive()?;
        let pods = stage.pods(LABEL).await?;
        let runs = |pod: &&Value| pod["spec"]["containers"][0]["image"] == image["spec"]["image"];
        let (ready, new) = (
            pods.iter().filter(|pod| holds(pod, "Ready")).count(),
            pods.iter().filter(runs).count(),
        );
        fewest = fewest.min(ready);
        if new > 0 && !is_killed {
            stage.kill_owner(OBJECT).await?;
            is_killed = true;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        Ok((new == 4 && ready == 4).then_some(()))
    })
    .await?;
    ensure!(fewest >= 3, "only {fewest} of 4 nodes were ready during the update");
    settled(stage, 4, MEMCACHED[1]).await.map(drop)
}

/// All goes with the object.
async fn deleted(stage: &mut Stage<'_>) -> Result<()> {
    stage.node.control.kubectl.run(&["delete", "memcached", "cache", "--timeout=60s"]).await?;
    wait::until(DEADLINE, "everything of it to be gone", async || {
        stage.check_alive()?;
        let set = stage.get(SET).await?;
        Ok((set.is_null() && stage.pods(LABEL).await?.is_empty()).then_some(()))
    })
    .await
}
