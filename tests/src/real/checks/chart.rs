//! The chart alone: each set of values renders to objects that a real API server accepts, wrong
//! values are refused with a reason, and rights follow the enabled controllers.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::harness::Scene;
use crate::harness::control_plane::ControlPlane;
use crate::harness::helm::{Helm, IMAGE, chart, template};
use crate::harness::home::NAMESPACE;
use crate::harness::process::run as run_command;

/// Values that must be refused, each with a word of the reason.
const REFUSED: [(&str, &str); 11] = [
    ("replicas=-1", "replicas"),
    ("replica=3", "replica"),
    ("controllers.tdst.enabled=true", "tdst"),
    ("controllers.tdset.workers=0", "workers"),
    ("image.digest=sha256:12", "digest"),
    ("drainTimeoutSeconds=56", "shutdownGracePeriodSeconds"),
    ("lease.renewIntervalSeconds=4", "lease.durationSeconds"),
    ("clusters.kubeconfigSecrets={a.b,a-b}", "have the prefix a-b"),
    ("clusters.kubeconfigSecrets[0].name=a,clusters.kubeconfigSecrets[0].allow={all}", "allow"),
    ("clusters.kubeconfigSecrets[0].name=a,clusters.kubeconfigSecrets[0].prefix=a.b", "prefix"),
    ("image.repository=", "image.repository: missing; build the image with deploy/Dockerfile"),
];

/// As much of the Prometheus operator's kind as a dry run needs.
const SERVICE_MONITORS: &str = r"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: servicemonitors.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {kind: ServiceMonitor, plural: servicemonitors}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

/// Runs the check.
pub async fn run(scene: &Scene) -> Result<()> {
    let plane = ControlPlane::local(scene, "local").await?;
    let helm = Helm::new(scene, &plane);
    let kubectl = &plane.kubectl;
    kubectl.apply(SERVICE_MONITORS).await?;
    kubectl.established().await?;
    kubectl.run(&["create", "namespace", NAMESPACE]).await?;
    kubectl.run(&["create", "namespace", "elsewhere"]).await?;

    for values in value_files()? {
        let values = values.to_str().context("a path that is not UTF-8")?;
        let lint = ["lint", "--strict", "--values", values, "--set", IMAGE, &chart_path()];
        helm.run(&lint).await?;
        let rendered = helm.run(&template(&["--values", values])).await?;
        let arguments = ["apply", "--dry-run=server", "--filename", "-"];
        let accepted = kubectl.run_with_input(&arguments, &rendered).await?;
        check_config(scene, &rendered)?;
        println!("{}: {} objects accepted", file_name(values), accepted.lines().count());
    }
    for (values, reason) in REFUSED {
        let said = helm.refused(&template(&["--set", values])).await?;
        ensure!(said.contains(reason), "{values} was refused, but not for {reason}: {said}");
    }
    println!("{} wrong sets of values refused with their reason", REFUSED.len());
    rights_follow_controllers(&helm).await
}

/// The binary accepts the rendered configuration.
fn check_config(scene: &Scene, rendered: &str) -> Result<()> {
    let documents = rendered.split("\n---\n");
    let map = documents.filter(|text| text.contains("kind: ConfigMap")).collect::<String>();
    let map: Value = serde_saphyr::from_str(&map).context("the ConfigMap")?;
    let config = map["data"]["config.yaml"].as_str().context("no config.yaml in the ConfigMap")?;
    let file = scene.dir().join("config.yaml");
    fs::write(&file, config)?;
    let mut command = Command::new(scene.tools().leasehold());
    run_command(command.args(["run", "--check", "--config"]).arg(&file)).map(drop)
}

/// A controller that is not enabled gets no rights at all.
async fn rights_follow_controllers(helm: &Helm) -> Result<()> {
    for (on, its, other) in
        [("tdset", "schedule.rs", "magalix.com"), ("configmonitor", "magalix.com", "schedule.rs")]
    {
        let values = format!("clusters.inCluster=local,controllers.{on}.enabled=true");
        let rendered = helm.run(&template(&["--set", &values])).await?;
        ensure!(rendered.contains(its), "with {on}, {its} should be there");
        ensure!(!rendered.contains(other), "with {on} alone, {other} should not be mentioned");
    }
    let all = "controllers.tdset.enabled=true,controllers.configmonitor.enabled=true";
    for nothing in ["replicas=3", "clusters.inCluster=local", all] {
        let rendered = helm.run(&template(&["--set", nothing])).await?;
        ensure!(!rendered.contains("ClusterRole"), "{nothing} gives rights in the whole cluster");
    }
    let rendered =
        helm.run(&template(&["--set", &format!("clusters.inCluster=local,{all}")])).await?;
    ensure!(!rendered.contains("\"*\"") && !rendered.contains("'*'"), "a rule with a wildcard");
    Ok(())
}

fn chart_path() -> String {
    chart().display().to_string()
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The chart's defaults and every file of `ci/`.
fn value_files() -> Result<Vec<PathBuf>> {
    let mut files = vec![chart().join("values.yaml")];
    for entry in fs::read_dir(chart().join("ci"))? {
        files.push(entry?.path());
    }
    files.sort();
    Ok(files)
}
