//! The real kubectl with the embedded API server.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::harness::embedded::Embedded;
use crate::harness::kubectl::Kubectl;
use crate::harness::{Scene, home};

const EVENT_DEADLINE: Duration = Duration::from_secs(20);

const WEB: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: \"example.test/web:1\"}]}
";

const TDSET: &str = "
apiVersion: schedule.rs/v1
kind: TDSet
metadata: {name: day}
spec: {container: {image: \"example.test/web:1\", port: 8000}, defaultReplica: 2}
";

/// A command, its standard input, and words that its output must contain.
struct Line {
    typed: &'static str,
    input: &'static str,
    says: &'static [&'static str],
}

const fn line(typed: &'static str, says: &'static [&'static str]) -> Line {
    Line { typed, input: "", says }
}

const fn given(typed: &'static str, input: &'static str, says: &'static [&'static str]) -> Line {
    Line { typed, input, says }
}

/// Commands that must succeed, in this order.
const SESSION: &[Line] = &[
    line("version", &["Server Version: v1."]),
    line("api-resources", &["tdsets", "deployments", "configmaps"]),
    line("get namespaces", &["default", "Active"]),
    line("create configmap settings --from-literal=a=1", &["configmap/settings created"]),
    line("get configmap settings", &["NAME", "DATA", "settings   1"]),
    line("get configmap settings -o jsonpath={.data.a}", &["1"]),
    line("label configmap settings tier=front", &["settings labeled"]),
    line("get configmap -l tier=front -o name", &["configmap/settings"]),
    line("annotate configmap settings note=x", &["settings annotated"]),
    line("patch configmap settings -p {\"data\":{\"b\":\"2\"}}", &["settings patched"]),
    line("patch configmap settings --type=merge -p {\"data\":{\"a\":null}}", &["settings patched"]),
    line(
        "patch configmap settings --type=json -p [{\"op\":\"add\",\"path\":\"/data/c\",\"value\":\"3\"}]",
        &["settings patched"],
    ),
    line("get configmap settings -o jsonpath={.data}", &["{\"b\":\"2\",\"c\":\"3\"}"]),
    given("apply -f -", WEB, &["deployment.apps/web created"]),
    given("apply -f -", WEB, &["deployment.apps/web unchanged"]),
    line("rollout status deployment/web --timeout=30s", &["successfully rolled out"]),
    line("scale deployment web --replicas=3", &["deployment.apps/web scaled"]),
    line(
        "wait --for=jsonpath={.status.readyReplicas}=3 deployment/web --timeout=30s",
        &["condition met"],
    ),
    line("get deployment web", &["READY", "3/3"]),
    line("get pods -l app=web", &["Running"]),
    line("set image deployment/web web=example.test/web:2", &["image updated"]),
    line("rollout status deployment/web --timeout=30s", &["successfully rolled out"]),
    line("describe deployment web", &["example.test/web:2"]),
    given("apply -f -", TDSET, &["tdset.schedule.rs/day created"]),
    given("apply -f -", TDSET, &["tdset.schedule.rs/day unchanged"]),
    given(
        "apply --server-side --force-conflicts -f -",
        TDSET,
        &["tdset.schedule.rs/day serverside-applied"],
    ),
    line("get tdsets", &["DESIRED", "WINDOW", "day"]),
    line("get tds day -o jsonpath={.spec.timeZone}", &["UTC"]),
    line("patch tdset day --type=merge -p {\"spec\":{\"defaultReplica\":4}}", &["day patched"]),
    line("get tds day -o yaml", &["defaultReplica: 4", "generation: 2"]),
    line("explain tdset.spec.defaultReplica", &["defaultReplica", "integer"]),
    line("delete tdset day", &["\"day\" deleted"]),
    line("delete deployment web", &["\"web\" deleted"]),
    line("wait --for=delete pod -l app=web --timeout=30s", &[]),
    line("delete configmap --all", &["\"settings\" deleted"]),
    line("create namespace other", &["namespace/other created"]),
    line("delete namespace other", &["\"other\" deleted"]),
];

/// Commands that must be refused, with words of the reason.
const REFUSED: &[Line] = &[
    line("get configmap absent", &["configmaps \"absent\" not found"]),
    line("get gadgets", &["doesn't have a resource type \"gadgets\""]),
    line("create configmap Not_A_Name", &["Invalid value", "RFC 1123"]),
    given(
        "create -f -",
        "{apiVersion: schedule.rs/v1, kind: TDSet, metadata: {name: x}}",
        &["spec"],
    ),
    given(
        "create -f -",
        "{apiVersion: schedule.rs/v1, kind: TDSet, metadata: {name: x}, spec: {container: {image: a, port: 1}, defaultReplica: -1}}",
        &["spec.defaultReplica", "greater than or equal to 0"],
    ),
    given(
        "create -f -",
        "{apiVersion: schedule.rs/v1, kind: TDSet, metadata: {name: x}, spec: {container: {image: a, port: 1}, defaultReplicas: 1}}",
        &["unknown field \"spec.defaultReplicas\""],
    ),
];

/// Runs the check.
pub async fn run(scene: &Scene) -> Result<()> {
    let server = Embedded::start(scene, "embedded", true).await?;
    let kubectl = &server.kubectl;
    home::install_crds(kubectl).await?;
    for line in SESSION {
        line.expect(&kubectl.run_with_input(&line.words(), line.input).await?)?;
    }
    for line in REFUSED {
        line.expect(&kubectl.refused(&line.words(), line.input).await?)?;
    }
    watch(kubectl).await?;
    println!("{} commands and {} refusals as expected, and a watch", SESSION.len(), REFUSED.len());
    Ok(())
}

impl Line {
    fn words(&self) -> Vec<&str> {
        self.typed.split(' ').collect()
    }

    fn expect(&self, said: &str) -> Result<()> {
        let missing = self.says.iter().find(|word| !said.contains(**word));
        let Some(missing) = missing else { return Ok(()) };
        bail!("kubectl {} did not say {missing:?} but\n{said}", self.typed)
    }
}

/// `kubectl get --watch` shows each change at once.
async fn watch(kubectl: &Kubectl) -> Result<()> {
    let mut child = kubectl
        .command()
        .args(["get", "configmaps", "--watch", "--output-watch-events", "--no-headers"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let output = child.stdout.take().context("it was piped")?;
    let mut lines = BufReader::new(output).lines();
    kubectl.run(&["create", "configmap", "seen"]).await?;
    for (event, change) in [
        ("ADDED", vec!["patch", "configmap", "seen", "-p", "{\"data\":{\"a\":\"1\"}}"]),
        ("MODIFIED", vec!["delete", "configmap", "seen"]),
        ("DELETED", vec!["version"]),
    ] {
        let next = async {
            while let Some(line) = lines.next_line().await? {
                let words: Vec<&str> = line.split_whitespace().collect();
                if words.starts_with(&[event, "seen"]) {
                    return Ok(true);
                }
            }
            anyhow::Ok(false)
        };
        let shown = tokio::time::timeout(EVENT_DEADLINE, next).await;
        let shown = shown.with_context(|| format!("the watch did not show {event}"))??;
        ensure!(shown, "the watch ended before it showed {event}");
        kubectl.run(&change).await?;
    }
    child.kill().await?;
    Ok(())
}
