//! Etcd with real etcd in real Pods, under a workload that checks every answer: a cluster grows from one
//! member to five and shrinks to three, loses a process, a volume and for a while its leader, is upgraded,
//! and is restored into another. Replicas that own it are killed in the midst of steps. What was
//! acknowledged is never lost, and one order of all operations explains what everybody saw.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::stage::{DEADLINE, Stage, claim, set};
use crate::harness::faults::{address, container_id};
use crate::harness::kubectl::{self, holds};
use crate::harness::servers::ETCD;
use crate::harness::wait::Stopwatch;
use crate::harness::workload::Workload;
use crate::harness::{Scene, image::Image};

const CLUSTERS: &str = "/apis/data.leasehold.dev/v1alpha1/namespaces/default/etcdclusters";
const SNAPSHOTS: &str = "/apis/data.leasehold.dev/v1alpha1/namespaces/default/etcdsnapshots";
const NAME: &str = "db";
const COPY: &str = "copy";
const CONTAINER: &str = "etcd";
const CLIENT_PORT: u16 = 2379;

/// How long a member may be lost before another takes over from it: the shortest time allowed.
const REPLACE_AFTER: &str = "1m";
/// Longer than an election takes, shorter than [`REPLACE_AFTER`] and the probes.
const PAUSE: Duration = Duration::from_secs(4);
/// The longest time without an acknowledged write. A member is lost, paused or restarted at any time; the
/// others elect a leader within a few seconds, and clients notice that theirs is gone.
const LONGEST_GAP_MS: u64 = 15_000;
/// So many writes are acknowledged after a step before the next begins.
const WRITES: u64 = 60;

/// Runs the check.
pub async fn run(scene: &Scene) -> Result<()> {
    let watch = Stopwatch::start();
    let images: [Image; 2] = scene.tools().etcd_images();
    let mut stage = Stage::start(scene, "etcd", &images, 3).await?;
    stage.apply(&[cluster(NAME, 1, &json!({}))]).await?;
    let first = settled(&mut stage, NAME, 1, ETCD[0]).await?;
    stage.unreachable(&member_pod(&stage, &member_names(&first)[0]).await?, CLIENT_PORT).await?;
    let arguments = client(scene, &stage).await?;
    let mut register = Workload::start(scene, &stage.node, "register", "register", &arguments)?;
    register.writes(WRITES, DEADLINE).await?;
    println!("one member serves after {watch}");

    resize(&mut stage, &mut register, 3, false).await?;
    resize(&mut stage, &mut register, 5, true).await?;
    println!("five members serve, and a replica was killed meanwhile, after {watch}");

    killed(&mut stage, &mut register).await?;
    println!("a killed member came back after {watch}");
    // Of five members three still serve while this one is lost and another one stops.
    let lost = lose_volume(&mut stage).await?;
    paused_leader(&mut stage, &mut register).await?;
    println!("a leader that stopped was followed by another after {watch}");
    cut_member(&mut stage, &mut register).await?;
    println!("a member that was cut off came back after {watch}");
    replaced(&mut stage, &mut register, &lost).await?;
    println!("a member that lost its volume was replaced after {watch}");
    resize(&mut stage, &mut register, 3, true).await?;
    println!("three members are left after {watch}");

    upgrade(&mut stage, &mut register).await?;
    println!("all members run {} after {watch}", ETCD[1]);
    let report = register.finish("linearizable").await?;
    ensure!(
        report.longest_gap_ms <= LONGEST_GAP_MS,
        "no write was acknowledged for {} ms",
        report.longest_gap_ms
    );
    restored(&mut stage).await?;
    println!("a snapshot was restored into another cluster after {watch}");
    deleted(&mut stage).await?;
    println!("everything is gone with the objects after {watch}");
    stage.leave().await
}

/// A small cluster.
fn cluster(name: &str, size: i32, more: &Value) -> Value {
    let mut spec = json!({
        "size": size, "version": ETCD[0].trim_start_matches('v'), "storage": {"size": "256Mi"},
        "replaceAfter": REPLACE_AFTER,
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
    });
    set(&mut spec, more);
    json!({
        "apiVersion": "data.leasehold.dev/v1alpha1", "kind": "EtcdCluster",
        "metadata": {"name": name, "namespace": "default"}, "spec": spec,
    })
}

fn path(cluster: &str) -> String {
    format!("{CLUSTERS}/{cluster}")
}

/// Waits until a cluster has `size` members that all serve a version, and nothing is left to do.
async fn settled(stage: &mut Stage<'_>, name: &str, size: usize, version: &str) -> Result<Value> {
    let what = format!("{size} members of {name} to serve {version}");
    let (ready, version) = (format!("{size}/{size}"), version.trim_start_matches('v').to_owned());
    let path = path(name);
    let object = stage.until(&path, &what, |object| {
        let status = &object["status"];
        holds(object, "Available")
            && !holds(object, "Progressing")
            && !holds(object, "Degraded")
            && status["observedGeneration"] == object["metadata"]["generation"]
            && status["ready"] == *ready
            && status["version"] == *version
            && member_names(object).len() == size
    });
    object.await
}

fn member_names(object: &Value) -> Vec<String> {
    let members = object["status"]["members"].as_array().into_iter().flatten();
    members.filter_map(|member| Some(member["name"].as_str()?.to_owned())).collect()
}

async fn member_pod(stage: &Stage<'_>, member: &str) -> Result<Value> {
    let pod = stage.get(&format!("/api/v1/namespaces/default/pods/{member}")).await?;
    ensure!(!pod.is_null(), "there is no Pod {member}");
    Ok(pod)
}

/// The arguments of a client: the Service's name, and the files of the Secret that the controller made.
async fn client(scene: &Scene, stage: &Stage<'_>) -> Result<Vec<String>> {
    let folder = scene.dir().join("client");
    write_secret(stage, &format!("{NAME}-client"), &folder).await?;
    let file = |name: &str| folder.join(name).display().to_string();
    Ok(vec![
        format!("--endpoints=https://{NAME}.default.svc:{CLIENT_PORT}"),
        format!("--cacert={}", file("ca.crt")),
        format!("--cert={}", file("tls.crt")),
        format!("--key={}", file("tls.key")),
    ])
}

async fn write_secret(stage: &Stage<'_>, name: &str, folder: &Path) -> Result<()> {
    let secret = stage.get(&format!("/api/v1/namespaces/default/secrets/{name}")).await?;
    let data = secret["data"].as_object().with_context(|| format!("there is no Secret {name}"))?;
    fs::create_dir_all(folder)?;
    for (file, content) in data {
        let content = BASE64.decode(content.as_str().unwrap_or_default())?;
        fs::write(folder.join(file), content)?;
    }
    Ok(())
}

/// Changes the number of members under the workload. The replica that owns the cluster may be killed
/// after the first step.
async fn resize(
    stage: &mut Stage<'_>,
    register: &mut Workload,
    size: usize,
    is_killed: bool,
) -> Result<()> {
    let before = member_names(&stage.get(&path(NAME)).await?);
    stage.merge(&path(NAME), &json!({"spec": {"size": size}})).await?;
    if is_killed {
        let what = "the first step of the change";
        stage
            .until(&path(NAME), what, |object| member_names(object) != before || steps(object))
            .await?;
        stage.kill_owner(&path(NAME)).await?;
    }
    settled(stage, NAME, size, ETCD[0]).await?;
    register.writes(WRITES, DEADLINE).await
}

/// Whether a member joins or leaves.
fn steps(object: &Value) -> bool {
    let members = object["status"]["members"].as_array().into_iter().flatten();
    members.into_iter().any(|member| member["phase"] != "Running")
}

/// A member that leads, and one that does not.
async fn leader_and_other(stage: &Stage<'_>) -> Result<(String, String)> {
    let object = stage.get(&path(NAME)).await?;
    let leader = object["status"]["leader"].as_str().context("nobody leads")?.to_owned();
    let other = member_names(&object).into_iter().find(|name| *name != leader);
    Ok((leader, other.context("there is no other member")?))
}

/// A member's process dies; it starts again with its data.
async fn killed(stage: &mut Stage<'_>, register: &mut Workload) -> Result<()> {
    let before = member_names(&stage.get(&path(NAME)).await?);
    let (leader, _) = leader_and_other(stage).await?;
    let container = container_id(&member_pod(stage, &leader).await?, CONTAINER)?;
    stage.node.kill_container(&container)?;
    register.writes(WRITES, DEADLINE).await?;
    let object = settled(stage, NAME, before.len(), ETCD[0]).await?;
    ensure!(member_names(&object) == before, "a member that only restarted was replaced");
    Ok(())
}

/// The leader stops and continues: it may still think that it leads, and must not answer so.
async fn paused_leader(stage: &mut Stage<'_>, register: &mut Workload) -> Result<()> {
    let (leader, _) = leader_and_other(stage).await?;
    let container = container_id(&member_pod(stage, &leader).await?, CONTAINER)?;
    stage.node.pause_container(&container)?;
    tokio::time::sleep(PAUSE).await;
    let written = register.writes(WRITES, DEADLINE).await;
    stage.node.resume_container(&container)?;
    written?;
    register.writes(WRITES, DEADLINE).await
}

/// A member is cut off from the others and from clients.
async fn cut_member(stage: &mut Stage<'_>, register: &mut Workload) -> Result<()> {
    let (leader, _) = leader_and_other(stage).await?;
    let victim = address(&member_pod(stage, &leader).await?)?;
    stage.node.cut(victim)?;
    tokio::time::sleep(PAUSE).await;
    let written = register.writes(WRITES, DEADLINE).await;
    stage.node.mend(victim)?;
    written?;
    register.writes(WRITES, DEADLINE).await
}

/// A member that does not lead loses its volume.
async fn lose_volume(stage: &mut Stage<'_>) -> Result<String> {
    let (_, victim) = leader_and_other(stage).await?;
    let container = container_id(&member_pod(stage, &victim).await?, CONTAINER)?;
    stage.node.pause_container(&container)?;
    stage.volumes.erase("default", &victim).await?;
    stage.node.kill_container(&container)?;
    Ok(victim)
}

/// A member that lost its volume must not vote again; another takes its place.
async fn replaced(stage: &mut Stage<'_>, register: &mut Workload, lost: &str) -> Result<()> {
    let what = format!("{lost} to be replaced");
    let is_replaced = |object: &Value| !member_names(object).iter().any(|name| name == lost);
    stage.until(&path(NAME), &what, is_replaced).await?;
    settled(stage, NAME, 5, ETCD[0]).await?;
    register.writes(WRITES, DEADLINE).await
}

/// A new minor version, member by member, though the replica that began it is killed.
async fn upgrade(stage: &mut Stage<'_>, register: &mut Workload) -> Result<()> {
    let version = ETCD[1].trim_start_matches('v');
    stage.merge(&path(NAME), &json!({"spec": {"version": version}})).await?;
    let begun = |object: &Value| {
        let mut members = object["status"]["members"].as_array().into_iter().flatten();
        members.any(|member| member["version"] == version)
    };
    stage.until(&path(NAME), "the first member to be upgraded", begun).await?;
    stage.kill_owner(&path(NAME)).await?;
    settled(stage, NAME, 3, ETCD[1]).await?;
    register.writes(WRITES, DEADLINE).await
}

/// A snapshot in a volume, and another cluster that begins with its content.
async fn restored(stage: &mut Stage<'_>) -> Result<()> {
    stage.apply(&[claim("snapshots"), snapshot()]).await?;
    let is_complete = |object: &Value| holds(object, "Complete");
    stage.until(&format!("{SNAPSHOTS}/before"), "the snapshot", is_complete).await?;
    let more =
        json!({"version": ETCD[1].trim_start_matches('v'), "restoreFrom": {"snapshot": "before"}});
    stage.apply(&[cluster(COPY, 1, &more)]).await?;
    settled(stage, COPY, 1, ETCD[1]).await?;
    let (original, copy) = (content(stage, NAME).await?, content(stage, COPY).await?);
    ensure!(!original.is_empty(), "the original is empty");
    ensure!(original == copy, "{} keys became {}", original.len(), copy.len());
    println!("  all {} keys are in the restored cluster", copy.len());
    Ok(())
}

fn snapshot() -> Value {
    json!({
        "apiVersion": "data.leasehold.dev/v1alpha1", "kind": "EtcdSnapshot",
        "metadata": {"name": "before", "namespace": "default"},
        "spec": {
            "cluster": NAME,
            "destination": {"volume": {"claimName": "snapshots"}},
        },
    })
}

/// Every key of a cluster and its value, as its first member's etcdctl reads them.
async fn content(stage: &Stage<'_>, name: &str) -> Result<BTreeMap<String, String>> {
    let member = member_names(&stage.get(&path(name)).await?).into_iter().next();
    let member = member.with_context(|| format!("{name} has no member"))?;
    let tls: PathBuf = "/etc/etcd/tls".into();
    let file = |name: &str| tls.join(name).display().to_string();
    let endpoint = format!("--endpoints=https://{name}.default.svc:{CLIENT_PORT}");
    let [authority, cert, key] = [("cacert", "ca.crt"), ("cert", "tls.crt"), ("key", "tls.key")]
        .map(|(flag, name)| format!("--{flag}={}", file(name)));
    let arguments = [
        "exec",
        &member,
        "-c",
        CONTAINER,
        "--",
        "etcdctl",
        &endpoint,
        &authority,
        &cert,
        &key,
        "get",
        "",
        "--prefix",
        "--write-out=json",
    ];
    let answer: Value = serde_json::from_str(&stage.node.control.kubectl.run(&arguments).await?)?;
    let pairs = answer["kvs"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Ok(pairs.map(|pair| (text(&pair["key"]), text(&pair["value"]))).collect())
}

/// All goes with the objects, volumes too.
async fn deleted(stage: &mut Stage<'_>) -> Result<()> {
    let kubectl = &stage.node.control.kubectl;
    kubectl.run(&["delete", "etcdclusters", NAME, COPY, "--timeout=60s"]).await?;
    kubectl.run(&["delete", "etcdsnapshots", "--all", "--timeout=60s"]).await?;
    // The Job that deleted the snapshot stays for people to look at, and so does the volume of snapshots.
    let is_theirs = |object: &Value| {
        object["status"]["phase"] != "Succeeded" && kubectl::name(object) != "snapshots"
    };
    stage.gone(&["pods", "persistentvolumeclaims"], is_theirs).await
}
