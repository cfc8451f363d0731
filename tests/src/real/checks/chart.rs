//! The chart alone: each set of values renders to objects that a real API server accepts, each pair of
//! sets to objects that fit that server's schemas or to a reason why not, wrong values are refused with
//! a reason, and rights follow the enabled controllers.

mod matrix;
mod schemas;

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::harness::Scene;
use crate::harness::control_plane::{ControlPlane, Spec};
use crate::harness::helm::{Helm, IMAGE, chart, template};
use crate::harness::home::NAMESPACE;
use crate::harness::kubectl::Kubectl;
use crate::harness::process::run as run_command;

/// Values that must be refused, each with a word of the reason.
const REFUSED: [(&str, &str); 20] = [
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
    ("clusters.inCluster=x,controllers.tdset.enabled=true", "name the namespaces it works in"),
    ("controllers.tdset.secrets={a}", "secrets"),
    ("metrics.podMonitor.enabled=true", "metrics.podMonitor.authorization"),
    ("admin.tls.enabled=false", "needs admin.tls.enabled"),
    ("probes.port=8443", "must differ"),
    ("log.filter=bogus=x=y", "filter"),
    ("budget.maxCacheBytes=1Ki", "maxCacheBytes"),
    ("upstream.maxPause=1ms", "maxPause"),
    ("otlp.endpoint=http://", "endpoint"),
    ("image.repository=", "image.repository: missing; build the image with deploy/Dockerfile"),
];

/// Runs the check.
pub async fn run(scene: &Scene) -> Result<()> {
    let spec = Spec {
        // The Pod of `helm test` names a ServiceAccount that a dry run does not make.
        flags: &["--disable-admission-plugins=ServiceAccount"],
        // For Services of two families.
        service_cidr: "10.0.0.0/24,fd00:10::/112",
        ..Spec::local("local")
    };
    let plane = ControlPlane::start(scene, &spec).await?;
    let helm = Helm::new(scene, &plane);
    let kubectl = &plane.kubectl;
    let definitions = scene.tools().chart_definitions();
    let definitions = definitions.to_str().context("a path that is not UTF-8")?;
    kubectl.run(&["apply", "--server-side", "--filename", definitions]).await?;
    kubectl.established().await?;
    kubectl.run(&["create", "namespace", NAMESPACE]).await?;
    kubectl.run(&["create", "namespace", "elsewhere"]).await?;

    let files = value_files()?;
    for values in files.iter().chain([&format!("{}/values.yaml", chart_path())]) {
        let lint = ["lint", "--strict", "--values", values, "--set", IMAGE, &chart_path()];
        helm.run(&lint).await?;
        let rendered = helm.run(&template(&["--values", values])).await?;
        let arguments = ["apply", "--dry-run=server", "--filename", "-"];
        let accepted = kubectl.run_with_input(&arguments, &rendered).await?;
        check_config(scene, &rendered)?;
        println!("{}: {} objects accepted", file_name(values), accepted.lines().count());
    }
    matrix::check(scene, &helm, kubectl, &files).await?;
    for (values, reason) in REFUSED {
        let said = helm.refused(&template(&["--set", values])).await?;
        ensure!(said.contains(reason), "{values} was refused, but not for {reason}: {said}");
    }
    println!("{} wrong sets of values refused with their reason", REFUSED.len());
    rights_follow_controllers(&helm).await?;
    bundles(scene, kubectl).await
}

/// What a release has for each controller, one file to apply, is accepted as a whole.
async fn bundles(scene: &Scene, kubectl: &Kubectl) -> Result<()> {
    let helm = scene.tools().helm();
    let folder = helm.parent().context("helm lies nowhere")?.display().to_string();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap_or_default());
    let out = scene.dir().join("release");
    fs::create_dir_all(&out)?;
    let image = format!("registry.test/leasehold@sha256:{}", "0".repeat(64));
    let mut release = Command::new("bash");
    release.arg(xtask::root().join(".ci/release")).arg("chart").arg(&out).arg(&image);
    run_command(release.env("PATH", path))?;
    let mut made = 0;
    for entry in fs::read_dir(&out)? {
        let file = entry?.path();
        if file.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let text = fs::read_to_string(&file)?;
        ensure!(text.contains(&image), "{} does not run the image", file.display());
        let file = file.to_str().context("a path that is not UTF-8")?;
        kubectl.run(&["apply", "--server-side", "--dry-run=server", "--filename", file]).await?;
        made += 1;
    }
    let controllers = 9;
    ensure!(made == controllers, "{made} bundles for {controllers} controllers");
    println!("a bundle for each of {made} controllers accepted");
    Ok(())
}

/// The binary accepts the rendered configuration.
fn check_config(scene: &Scene, rendered: &str) -> Result<()> {
    let documents = rendered.split("\n---\n");
    let source = "# Source: leasehold/templates/configmap.yaml";
    let map = documents.filter(|text| text.contains(source)).collect::<String>();
    let map: Value = serde_saphyr::from_str(&map).context("the ConfigMap")?;
    let config = map["data"]["config.yaml"].as_str().context("no config.yaml in the ConfigMap")?;
    let file = scene.dir().join("config.yaml");
    fs::write(&file, config)?;
    let mut command = Command::new(scene.tools().leasehold());
    run_command(command.args(["run", "--check", "--config"]).arg(&file)).map(drop)
}

/// A controller that is not enabled gets no rights at all, and one that is gets them where it works.
async fn rights_follow_controllers(helm: &Helm) -> Result<()> {
    let on = |name: &str, namespaces: &str| {
        format!("controllers.{name}.enabled=true,controllers.{name}.namespaces={{{namespaces}}}")
    };
    for (name, its, other) in
        [("tdset", "schedule.rs", "magalix.com"), ("configmonitor", "magalix.com", "schedule.rs")]
    {
        let values = format!("clusters.inCluster=local,{}", on(name, "*"));
        let rendered = helm.run(&template(&["--set", &values])).await?;
        ensure!(rendered.contains(its), "with {name}, {its} should be there");
        ensure!(!rendered.contains(other), "with {name} alone, {other} should not be mentioned");
    }
    let all = format!("{},{}", on("tdset", "*"), on("configmonitor", "*"));
    let quiet = "admin.authorization=false,rbac.aggregate=false";
    let here = format!("clusters.inCluster=local,{quiet}");
    let nothing = ["replicas=3", "clusters.inCluster=local", &all];
    let namespaced = format!("{here},{},{}", on("tdset", "a"), on("configmonitor", "a,b"));
    for values in nothing.map(|values| format!("{quiet},{values}")).into_iter().chain([namespaced])
    {
        let rendered = helm.run(&template(&["--set", &values])).await?;
        ensure!(!rendered.contains("ClusterRole"), "{values} gives rights in the whole cluster");
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

/// Every file of `ci/`.
fn value_files() -> Result<Vec<String>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(chart().join("ci"))? {
        files.push(entry?.path().to_str().context("a path that is not UTF-8")?.to_owned());
    }
    files.sort();
    let load = xtask::root().join("loadtest/kind/values.yaml");
    files.push(load.to_str().context("a path that is not UTF-8")?.to_owned());
    Ok(files)
}
