//! The admission policy of the chart: the API server refuses a write that arrives after its epoch
//! has passed, and no other write.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::harness::control_plane::{ControlPlane, Spec};
use crate::harness::helm::{Helm, template};
use crate::harness::kubectl::Kubectl;
use crate::harness::manager::{self, Manager};
use crate::harness::wait::{self, Stopwatch};
use crate::harness::{Scene, home, kubectl};

const DEADLINE: Duration = Duration::from_secs(90);
/// A user and its token.
const HUMAN: &str = "human";
/// One for each controller.
const SHARDS: usize = 2;
const STAMP: &str = "epoch.leasehold.dev/tdset";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/temp/deployments/tdset-hello-world";
const NAME: &str = "tdset-hello-world";

/// Runs the check.
pub async fn run(scene: &Scene) -> Result<()> {
    let plane = start(scene).await?;
    let human =
        Kubectl::new(&scene.tools().kube(), &plane.write_kubeconfig(HUMAN, HUMAN)?, plane.name());
    let stamps = json!({"fence": {"stampEpochs": true}});
    let mut first = vec![Manager::start(scene, "replica-0", &plane, &[&plane], &stamps)?];
    manager::settled(&plane.client, SHARDS, &mut first).await?;
    plane.kubectl.apply_path(&xtask::root().join("examples/tdset.yaml")).await?;
    let early = stamped_above(&plane, 0).await?;
    println!("the first replica's write carries epoch {early}");

    // Anybody may write at the present epoch.
    run_kubectl(&plane.kubectl, &merge(early)).await?;

    let watch = Stopwatch::start();
    let mut second = vec![Manager::start(scene, "replica-1", &plane, &[&plane], &stamps)?];
    first[0].leave().await?;
    manager::settled(&plane.client, SHARDS, &mut second).await?;
    let change = json!({"spec": {"container": {"image": "crccheck/hello-world:2", "port": 8000}}});
    run_kubectl(&plane.kubectl, &patch("tdset", &change)).await?;
    let late = stamped_above(&plane, early).await?;
    println!("the second replica's write carries epoch {late}, {watch} after it was started");

    let apply = ["apply", "--server-side", "--force-conflicts", "--field-manager=late", "-f", "-"];
    refused(&plane.kubectl.refused(&apply, &late_apply(early)).await?)?;
    let late = merge(early);
    let late: Vec<&str> = late.iter().map(String::as_str).collect();
    refused(&plane.kubectl.refused(&late, "").await?)?;
    println!("late writes at epoch {early} were refused, an apply and a merge patch");
    run_kubectl(&human, &merge(early))
        .await
        .context("a person may write what a replica may not")?;
    ensure!(epoch(&plane).await? == Some(early), "the person's write took no effect");
    Ok(())
}

async fn run_kubectl(kubectl: &Kubectl, arguments: &[String]) -> Result<String> {
    kubectl.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()).await
}

fn refused(said: &str) -> Result<()> {
    ensure!(said.contains("an epoch that has passed"), "refused, but with: {said}");
    Ok(())
}

/// A late write of the Deployment as an apply, without uid and resourceVersion.
fn late_apply(epoch: u64) -> String {
    let metadata = json!({"name": NAME, "namespace": "temp", "annotations": stamp(epoch)});
    let spec = json!({"replicas": 1});
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
        .to_string()
}

/// The arguments of a merge patch of the Deployment at that epoch.
fn merge(epoch: u64) -> Vec<String> {
    patch("deployment", &json!({"metadata": {"annotations": stamp(epoch)}}))
}

fn patch(kind: &str, patch: &Value) -> Vec<String> {
    let patch = patch.to_string();
    let words = ["patch", kind, NAME, "--namespace", "temp", "--type=merge", "--patch", &patch];
    words.map(str::to_owned).to_vec()
}

fn stamp(epoch: u64) -> Value {
    json!({STAMP: epoch.to_string()})
}

/// A cluster that is its own home. The policy is for its administrator, as whom the replicas write.
async fn start(scene: &Scene) -> Result<ControlPlane> {
    let tokens = &[format!("{HUMAN},{HUMAN},{HUMAN},system:masters")];
    let spec = Spec { tokens, ..Spec::local("home") };
    let plane = ControlPlane::start(scene, &spec).await?;
    home::install(&plane.kubectl).await?;
    plane.kubectl.run(&["create", "namespace", "temp"]).await?;
    let template = template(&[
        "--show-only",
        "templates/admission-policy.yaml",
        "--set",
        "admissionPolicy.enabled=true,admissionPolicy.users={admin}",
    ]);
    let policy = Helm::new(scene, &plane).run(&template).await?;
    plane.kubectl.apply(&policy).await?;
    in_force(&plane).await?;
    Ok(plane)
}

/// Waits until the API server enforces the policy, which takes a moment.
async fn in_force(plane: &ControlPlane) -> Result<()> {
    let map = |epoch: u64| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
            "name": "probe", "namespace": "temp", "annotations": stamp(epoch)}})
        .to_string()
    };
    wait::until(DEADLINE, "the policy to be in force", async || {
        plane.kubectl.apply(&map(2)).await?;
        Ok(plane.kubectl.apply(&map(1)).await.is_err().then_some(()))
    })
    .await
}

/// The epoch at which the Deployment of the example was last written.
async fn epoch(plane: &ControlPlane) -> Result<Option<u64>> {
    let deployment = kubectl::get(&plane.client, DEPLOYMENT).await?.unwrap_or_default();
    Ok(deployment["metadata"]["annotations"][STAMP].as_str().and_then(|text| text.parse().ok()))
}

async fn stamped_above(plane: &ControlPlane, epoch_before: u64) -> Result<u64> {
    wait::until(DEADLINE, &format!("a write above epoch {epoch_before}"), async || {
        Ok(epoch(plane).await?.filter(|&epoch| epoch > epoch_before))
    })
    .await
}
