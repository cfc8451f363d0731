//! Three replicas over two real clusters and a third as home. Under a steady stream of changes, one
//! is killed, one leaves and another joins. No change is lost, and only owners write.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use crate::harness::control_plane::ControlPlane;
use crate::harness::home::Owners;
use crate::harness::kubectl::{self, holds};
use crate::harness::load::{self, Load, LoadTarget};
use crate::harness::manager::{self, Manager};
use crate::harness::wait::{self, Stopwatch};
use crate::harness::{Scene, audit, home, ownership};

const CONVERGE_DEADLINE: Duration = Duration::from_secs(90);

/// Two controller groups in each of two clusters.
const SHARDS: usize = 4;

/// How many TDSets are in the cluster whose Pods become ready, and in the other.
const SETS: [usize; 2] = [15, 60];
/// The time between two changes in a cluster.
const PAUSE: Duration = Duration::from_millis(50);

/// The time between two disturbances.
const BETWEEN: Duration = Duration::from_secs(3);

/// Runs the check.
pub async fn run(scene: &Scene) -> Result<()> {
    let watch = Stopwatch::start();
    let (home, mut east, west) = tokio::try_join!(
        ControlPlane::local(scene, "home"),
        ControlPlane::local(scene, "east"),
        ControlPlane::local(scene, "west"),
    )?;
    east.add_controllers()?;
    east.add_hollow_node("hollow-0").await?;
    println!("three control planes and a hollow node are up after {watch}");

    prepare(&home, &[&east, &west]).await?;
    let mut managers = Vec::new();
    for identity in ["replica-0", "replica-1", "replica-2"] {
        managers.push(Manager::start(scene, identity, &home, &[&east, &west], &json!({}))?);
    }
    let shared = manager::settled(&home.client, SHARDS, &mut managers).await?;
    println!("three replicas share {} shards after {watch}", shared.settled.len());

    let [alive, bare] = SETS;
    let load = Load::start(
        vec![LoadTarget::new(&east, alive, true), LoadTarget::new(&west, bare, false)],
        PAUSE,
    );
    apply_examples(&east).await?;
    first_restart(&east).await?;
    disturb(scene, &home, &[&east, &west], &mut managers).await?;
    let expected = load.settle(CONVERGE_DEADLINE).await?;
    println!("all {} changes have taken effect after {watch}", expected.changes);
    examples_hold(&east).await?;

    for manager in &mut managers {
        manager.leave().await?;
    }
    let left = Owners::read(&home.client).await?;
    ensure!(left.settled.is_empty(), "all replicas left, but some shards are owned: {left:?}");
    drop(managers);
    verify(&home, &east, &west)
}

/// Installs the CRDs everywhere, the namespaces and the TDSets.
async fn prepare(home: &ControlPlane, clusters: &[&ControlPlane]) -> Result<()> {
    home::install(&home.kubectl).await?;
    // How busy the shards are depends on this machine: for this check none is busy enough to be split.
    let policy = json!({
        "apiVersion": "leasehold.dev/v1alpha1", "kind": "FleetPolicy",
        "metadata": {"name": "even", "namespace": home::NAMESPACE},
        "spec": {"shards": {"groups": ["configmonitor", "tdset"]}, "busy": 0},
    });
    home.kubectl.apply(&policy.to_string()).await?;
    for (plane, sets) in clusters.iter().zip(SETS) {
        home::install_crds(&plane.kubectl).await?;
        plane.kubectl.apply(&load::manifests(sets, "example.test/web:1")).await?;
    }
    Ok(())
}

/// Applies the examples unchanged; the second goes to the default namespace.
async fn apply_examples(east: &ControlPlane) -> Result<()> {
    east.kubectl.run(&["create", "namespace", "temp"]).await?;
    for example in ["tdset.yaml", "configmonitor.yaml"] {
        east.kubectl.apply_path(&xtask::root().join("examples").join(example)).await?;
    }
    wait::until(CONVERGE_DEADLINE, "the TDSet of the example to be ready", async || {
        let set = example_tdset(east).await?;
        Ok(holds(&set, "Ready").then_some(()))
    })
    .await
}

async fn example_tdset(east: &ControlPlane) -> Result<Value> {
    let path = "/apis/schedule.rs/v1/namespaces/temp/tdsets/tdset-hello-world";
    kubectl::get(&east.client, path).await?.context("the example's TDSet is gone")
}

async fn frontend_generation(east: &ControlPlane) -> Result<u64> {
    let path = "/apis/apps/v1/namespaces/default/deployments/frontend";
    let frontend = kubectl::get(&east.client, path).await?.context("frontend is gone")?;
    frontend["metadata"]["generation"].as_u64().context("it has a generation")
}

/// When the controller first sees a ConfigMap it restarts nothing; a change restarts what uses it.
async fn first_restart(east: &ControlPlane) -> Result<()> {
    let path = "/apis/magalix.com/v1/namespaces/default/configmonitors/flakapp-config-monitor";
    wait::until(CONVERGE_DEADLINE, "the ConfigMonitor to have seen its ConfigMap", async || {
        let monitor = kubectl::get(&east.client, path).await?.unwrap_or_default();
        let seen = monitor["status"]["observedGeneration"].is_u64();
        Ok(seen.then_some(()))
    })
    .await?;
    let generation = frontend_generation(east).await?;
    ensure!(generation == 1, "frontend changed before its ConfigMap did: {generation}");
    change_config(east, "first").await?;
    restarted(east, 2).await
}

async fn change_config(east: &ControlPlane, content: &str) -> Result<()> {
    let patch = json!({"data": {"config.cfg": content}}).to_string();
    east.kubectl.run(&["patch", "configmap", "flaskapp-config", "--patch", &patch]).await.map(drop)
}

async fn restarted(east: &ControlPlane, generation: u64) -> Result<()> {
    wait::until(CONVERGE_DEADLINE, "frontend to be restarted", async || {
        Ok((frontend_generation(east).await? >= generation).then_some(()))
    })
    .await
}

/// One replica is killed, a new one joins, one leaves; the ConfigMap changes while shards move.
async fn disturb(
    scene: &Scene,
    home: &ControlPlane,
    clusters: &[&ControlPlane],
    managers: &mut Vec<Manager>,
) -> Result<()> {
    let [east, _] = clusters else { bail!("two clusters") };
    tokio::time::sleep(BETWEEN).await;
    let mut victim = managers.remove(owner_of(home, managers, "east/configmonitor/0/1").await?);
    let watch = Stopwatch::start();
    victim.kill();
    change_config(east, "second").await?;
    manager::settled(&home.client, SHARDS, managers).await?;
    println!("{} was killed; its shards had new owners after {watch}", victim.identity());
    restarted(east, 3).await?;

    managers.push(Manager::start(scene, "replica-3", home, clusters, &json!({}))?);
    let watch = Stopwatch::start();
    manager::settled(&home.client, SHARDS, managers).await?;
    println!("replica-3 joined and had its share after {watch}");
    tokio::time::sleep(BETWEEN).await;

    let mut leaver = managers.remove(owner_of(home, managers, "east/tdset/0/1").await?);
    let watch = Stopwatch::start();
    leaver.leave().await?;
    manager::settled(&home.client, SHARDS, managers).await?;
    println!("{} left; its shards had new owners after {watch}", leaver.identity());
    tokio::time::sleep(BETWEEN).await;
    Ok(())
}

/// Which of `managers` owns `shard`.
async fn owner_of(home: &ControlPlane, managers: &[Manager], shard: &str) -> Result<usize> {
    let owners = Owners::read(&home.client).await?;
    let owner = owners.settled.iter().find(|(name, _)| name == shard);
    let (_, owner) = owner.with_context(|| format!("nobody owns {shard}: {owners:?}"))?;
    manager::position(managers, owner)
}

/// At the end the examples are as they should be.
async fn examples_hold(east: &ControlPlane) -> Result<()> {
    let set = example_tdset(east).await?;
    ensure!(holds(&set, "Ready"), "the TDSet of the example is not ready: {}", set["status"]);
    let generation = frontend_generation(east).await?;
    ensure!(generation == 3, "two changes of the ConfigMap made {} restarts", generation - 1);
    let events = east.kubectl.run(&["get", "events", "-n", "temp"]).await?;
    ensure!(events.contains("tdset"), "there is no Event about the TDSet:\n{events}");
    Ok(())
}

/// By the audit logs, the owner of a shard at that time made every write for it.
fn verify(home: &ControlPlane, east: &ControlPlane, west: &ControlPlane) -> Result<()> {
    let home = audit::read(&home.audit_log())?;
    let (east, west) = (audit::read(&east.audit_log())?, audit::read(&west.audit_log())?);
    let report = ownership::verify(&home, &[("east", &east), ("west", &west)]);
    let ours = ["deployments", "services", "tdsets", "configmonitors", "pods"];
    let anonymous: Vec<String> =
        [&east, &west].iter().flat_map(|events| audit::unattributed(events, &ours)).collect();
    println!(
        "{} writes by {} members in {} assignments: {} break a rule, {} name no shard",
        report.writes,
        report.members.len(),
        report.assignments,
        report.violations.len(),
        anonymous.len()
    );
    let wrong = [report.violations, anonymous].concat();
    ensure!(wrong.is_empty(), "{}", wrong.join("\n  "));
    // There were three replicas and one that joined; fewer writers would prove nothing.
    ensure!(report.members.len() >= 3, "only {:?} wrote", report.members);
    ensure!(report.assignments > SHARDS, "no shard ever changed owners");
    Ok(())
}
