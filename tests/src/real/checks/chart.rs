//! The chart alone: each set of values renders to objects that a real API server accepts, each pair of
//! sets to objects that fit that server's schemas or to a reason why not, wrong values are refused with
//! a reason, and rights follow the enabled controllers.

mod matrix;
mod schemas;

use std::collections::{BTreeMap, BTreeSet};
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
const REFUSED: [(&str, &str); 30] = [
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
    ("podLabels.app\\.kubernetes\\.io/name=x", "the Deployment finds its Pods"),
    ("podAnnotations.leasehold\\.dev/config=x", "replicas find their configuration"),
    ("metrics.podMonitor.enabled=true", "metrics.podMonitor.authorization"),
    ("admin.tls.enabled=false", "needs admin.tls.enabled"),
    ("probes.port=8443", "must differ"),
    ("log.filter=bogus=x=y", "filter"),
    ("budget.maxCacheBytes=1Ki", "maxCacheBytes"),
    ("upstream.maxPause=1ms", "maxPause"),
    ("upstream.firstPause=60s,upstream.maxPause=10s", "at least upstream.firstPause, 60s"),
    ("upstream.maxPause=500ms", "at least upstream.firstPause, 1s"),
    ("clusters.inCluster=prod..eu", "inCluster"),
    (
        "clusters.kubeconfigSecrets={fleet},clusters.secrets[0].selector=a,clusters.secrets[0].prefix=fleet",
        "have the prefix fleet",
    ),
    (
        "clusters.secrets[0].selector=a,clusters.secrets[0].prefix=x,clusters.secrets[1].selector=b,clusters.secrets[1].prefix=x",
        "have the prefix x",
    ),
    ("clusters.kubeconfigs[0].path=/a/b,clusters.kubeconfigs[1].path=/a/b", "/a/b is there twice"),
    (
        "controllers.sqs.access[0].namespaces={a},controllers.sqs.access[0].roles[0].arn=arn:a,controllers.sqs.access[0].roles[0].externalId=x,controllers.sqs.access[0].roles[0].tokenFile=/t",
        "roles",
    ),
    ("clusters.kubeconfigSecrets={Fleet}", "kubeconfigSecrets"),
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
        test_reaches_home(&rendered).with_context(|| file_name(values).to_owned())?;
        println!("{}: {} objects accepted", file_name(values), accepted.lines().count());
    }
    matrix::check(scene, &helm, kubectl, &files).await?;
    for (values, reason) in REFUSED {
        let said = helm.refused(&template(&["--set", values])).await?;
        ensure!(said.contains(reason), "{values} was refused, but not for {reason}: {said}");
    }
    println!("{} wrong sets of values refused with their reason", REFUSED.len());
    rights_follow_controllers(&helm).await?;
    rights_elsewhere(&helm).await?;
    an_exit_has_its_time(&helm).await?;
    revisions(scene, &helm).await?;
    bundles(scene, kubectl).await
}

/// The objects of what helm renders.
fn objects(rendered: &str) -> Result<Vec<Value>> {
    let documents = serde_saphyr::from_multiple::<Value>(rendered).context("what helm renders")?;
    Ok(documents.into_iter().filter(Value::is_object).collect())
}

/// The Pod template of the Deployment.
fn template_of(objects: &[Value]) -> Result<&Value> {
    let found = objects.iter().find(|object| object["kind"] == "Deployment");
    Ok(&found.context("no Deployment")?["spec"]["template"])
}

fn list<'v>(value: &'v Value, key: &str) -> impl Iterator<Item = &'v Value> {
    value[key].as_array().into_iter().flatten()
}

/// The Pod of `helm test` has what the replicas have to reach home by.
fn test_reaches_home(rendered: &str) -> Result<()> {
    let objects = objects(rendered)?;
    let mounts = |spec: &Value| {
        let mounts = list(&spec["containers"][0], "volumeMounts");
        let names = mounts.filter_map(|mount| mount["name"].as_str());
        names.map(str::to_owned).collect::<BTreeSet<_>>()
    };
    let replicas = &template_of(&objects)?["spec"];
    let test = objects.iter().find(|object| object["kind"] == "Pod").context("no Pod")?;
    let mut missing = mounts(replicas);
    missing.retain(|name| !name.starts_with("clusters-") && name != "admin-tls");
    missing.retain(|name| !mounts(&test["spec"]).contains(name));
    ensure!(missing.is_empty(), "helm test lacks {missing:?}");
    ensure!(replicas["initContainers"] == test["spec"]["initContainers"], "init containers differ");
    Ok(())
}

/// What a hook sleeps before a replica is told to end is not taken from its orderly exit.
async fn an_exit_has_its_time(helm: &Helm) -> Result<()> {
    for (values, seconds) in [("lifecycle.preStop.sleep.seconds=20", 90), ("replicas=2", 70)] {
        let rendered = helm.run(&template(&["--set", values])).await?;
        let objects = objects(&rendered)?;
        let grace = &template_of(&objects)?["spec"]["terminationGracePeriodSeconds"];
        ensure!(*grace == seconds, "with {values}, Kubernetes waits {grace} s");
    }
    Ok(())
}

/// A revision keeps the configuration that it began with, and commands find its objects whatever they are called.
async fn revisions(scene: &Scene, helm: &Helm) -> Result<()> {
    for filter in ["info", "debug"] {
        let values = format!("nameOverride=fleet,log.filter={filter}");
        let rendered = helm.run(&template(&["--set", &values])).await?;
        check_config(scene, &rendered)?;
        let objects = objects(&rendered)?;
        let template = template_of(&objects)?;
        let volume = list(&template["spec"], "volumes").find(|volume| volume["name"] == "config");
        let field =
            &volume.context("no volume")?["downwardAPI"]["items"][0]["fieldRef"]["fieldPath"];
        ensure!(field == "metadata.annotations['leasehold.dev/config']", "{field}");
        let config = &template["metadata"]["annotations"]["leasehold.dev/config"];
        let config = config.as_str().context("no configuration")?;
        let filter = format!("filter: \"{filter}\"");
        ensure!(config.contains(&filter), "no {filter} in {config}");
        let map = objects.iter().find(|object| object["kind"] == "ConfigMap");
        ensure!(
            map.context("no ConfigMap")?["data"]["config.yaml"] == config,
            "two configurations"
        );
        for object in objects
            .iter()
            .filter(|o| o["kind"] == "Deployment")
            .chain([template, map.unwrap_or(template)])
        {
            let label = &object["metadata"]["labels"]["app.kubernetes.io/part-of"];
            ensure!(label == "leasehold", "{} of a release with another name", object["kind"]);
        }
    }
    Ok(())
}

/// README's way to the rights in another cluster works with each controller alone.
async fn rights_elsewhere(helm: &Helm) -> Result<()> {
    let page = fs::read_to_string(chart().join("README.md"))?;
    let shown = page.split("--show-only '").nth(1).and_then(|rest| rest.split('\'').next());
    let shown = shown.context("the page shows no templates")?;
    let values = fs::read_to_string(chart().join("values.yaml"))?;
    let values: Value = serde_saphyr::from_str(&values)?;
    let controllers = values["controllers"].as_object().context("no controllers")?;
    let subject = r#"rbac.subjects=[{"kind": "User", "name": "leasehold-in-east"}]"#;
    for name in controllers.keys() {
        let on = format!("controllers.{name}.enabled=true,controllers.{name}.namespaces={{a}}");
        for more in ["", ",crds.enabled=false,rbac.aggregate=false,rbac.identity=false"] {
            let set = format!("{on}{more}");
            let given = ["--set-json", subject, "--set", &set, "--show-only", shown];
            let rendered = helm.run(&template(&given)).await.with_context(|| set.clone())?;
            ensure!(rendered.contains("kind: RoleBinding"), "{set} gives no rights");
        }
    }
    println!("rights in another cluster rendered for each of {} controllers", controllers.len());
    Ok(())
}

/// What a release has for each controller, a file of definitions and one of the rest, is accepted as a whole, and none
/// takes from another what is its own.
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
    let mut owners = BTreeMap::new();
    let mut made = 0;
    for entry in fs::read_dir(&out)? {
        let file = entry?.path();
        if file.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let text = fs::read_to_string(&file)?;
        let file = file.to_str().context("a path that is not UTF-8")?.to_owned();
        let is_definitions = file.ends_with("-definitions.yaml");
        for object in objects(&text)? {
            let defines = ["CustomResourceDefinition", "Namespace"]
                .iter()
                .any(|kind| object["kind"] == *kind);
            let metadata = &object["metadata"];
            let key = format!("{} {}/{}", object["kind"], metadata["namespace"], metadata["name"]);
            ensure!(defines == is_definitions, "{file} has {key}");
            let before = (!defines).then(|| owners.insert(key.clone(), file.clone())).flatten();
            ensure!(before.is_none(), "{key} is in {file} and in {before:?}");
        }
        if is_definitions {
            kubectl.run(&["apply", "--server-side", "--filename", &file]).await?;
        } else {
            ensure!(text.contains(&image), "{file} does not run the image");
            made += 1;
        }
    }
    for file in owners.into_values().collect::<BTreeSet<_>>() {
        kubectl.run(&["apply", "--server-side", "--dry-run=server", "--filename", &file]).await?;
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
