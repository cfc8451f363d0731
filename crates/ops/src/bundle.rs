//! `leasehold support-bundle`: what those need who help, in one file, without secrets.
//!
//! Secrets are never read. What is read goes through `redact`, because people put secrets where none should be. A
//! part that cannot be read is named in `problems.txt`, and the rest is written.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use flate2::Compression;
use flate2::write::GzEncoder;
use fleet::{CUT, Fleet, FleetMember};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, DynamicObject, ListParams, LogParams};
use kube::{Resource, ResourceExt};
use model::Clock;
use serde_json::{Value, json};
use sharding::record::Kind;

use crate::home::{HomeArgs, HomeCluster, TIMEOUT};
use crate::output::{print, warn};
use crate::program::Program;
use crate::redact;
use crate::replicas::{AskArgs, Replicas};
use clock::SystemClock;

/// The labels of the objects of a release of the chart, whatever it is called, and of those of 0.1.
const OF_THE_CHART: [&str; 2] =
    ["app.kubernetes.io/part-of=leasehold", "app.kubernetes.io/name=leasehold"];
/// Objects of one page, the most of a kind, and the most Pods and replicas whose logs and views are read.
const PAGE: u32 = 500;
const MAX_OBJECTS: usize = 20_000;
const MAX_REPLICAS: usize = 50;
/// How much of each container's log.
const LOG_LINES: i64 = 5_000;
const LOG_BYTES: i64 = 4 << 20;
/// How long one request may take: logs are longer than what else is read.
const READ_WITHIN: Duration = TIMEOUT.saturating_mul(3);
/// Where a replica serves its metrics.
const METRICS: &str = "/metrics";
/// What is asked of each replica.
const VIEWS: [(&str, &str); 5] = [
    ("/readyz?verbose", "readyz.txt"),
    ("/debug/shards", "shards.json"),
    ("/debug/queues", "queues.json"),
    ("/debug/clusters", "clusters.json"),
    (METRICS, "metrics.txt"),
];

/// Arguments of `leasehold support-bundle`.
#[derive(Debug, clap::Args)]
pub(crate) struct BundleArgs {
    /// Where it is written. Default: leasehold-bundle-TIME.tar.gz here.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Leave the logs out.
    #[arg(long)]
    no_logs: bool,
    /// How the replicas are asked.
    #[command(flatten)]
    ask: AskArgs,
    /// Which fleet.
    #[command(flatten)]
    home: HomeArgs,
}

/// Writes the bundle.
///
/// # Errors
/// When the home cluster cannot be named or reached, or the file cannot be written.
pub(crate) async fn run(args: &BundleArgs, program: &Program) -> anyhow::Result<ExitCode> {
    let now = SystemClock.wall();
    let home = program.home(&args.home).await?;
    let name = format!("leasehold-bundle-{}", now.strftime("%Y%m%dT%H%M%SZ"));
    let path = args.out.clone().unwrap_or_else(|| format!("{name}.tar.gz").into());
    let pods = args.ask.pods(&home, program.connect).await?;
    // Whatever is wrong with what was given is said before there is a file.
    let replicas = Replicas::of(&pods, &args.ask)?;
    let mut bundle = Bundle::create(&path, name, now)?;
    bundle.json("version.json", program.version.clone())?;
    gather(&home, &pods, &replicas, args, &mut bundle).await?;
    let problems = bundle.finish()?;
    print(&format!(
        "{}: written, without what looks like a secret; look at it before you send it\n",
        path.display()
    ))?;
    for problem in &problems {
        warn(format_args!("left out: {problem}"));
    }
    Ok(ExitCode::SUCCESS)
}

async fn gather(
    home: &HomeCluster,
    pods: &HomeCluster,
    replicas: &Replicas<'_>,
    args: &BundleArgs,
    bundle: &mut Bundle,
) -> anyhow::Result<()> {
    let now = bundle.at;
    let fleet = home.fleet().await;
    if let Ok(fleet) = &fleet {
        let problems = fleet.problems(now);
        bundle.json("fleet.json", json!({"fleet": fleet, "problems": problems}))?;
    }
    objects(home, bundle).await?;
    match home.events().await {
        Ok(events) => {
            bundle.json("home/events.json", json!(events.all))?;
            if events.is_cut {
                bundle.problems.push(format!("home/events.json: {CUT}"));
            }
        }
        Err(error) => bundle.problem("home/events.json", &error),
    }
    of_the_chart(pods, args, bundle).await?;
    // Those at addresses are asked without a fleet too.
    let fleet = fleet.unwrap_or_else(|error| {
        bundle.problem("fleet.json", &error);
        Fleet::default()
    });
    let alive: Vec<_> = fleet.alive().collect();
    views(replicas, bundle.first("members", alive), bundle).await
}

/// The objects by which the fleet agrees.
async fn objects(home: &HomeCluster, bundle: &mut Bundle) -> anyhow::Result<()> {
    let kinds = [(Kind::Lease, "leases"), (Kind::Member, "members"), (Kind::Map, "shardmaps")];
    let apis = kinds.map(|(kind, name)| {
        (sharding::read::api(&home.client, &home.namespace, kind), kind.page(), name)
    });
    let policies = sharding::read::policies(&home.client, &home.namespace);
    for (api, page, kind) in apis.into_iter().chain([(policies, PAGE, "fleetpolicies")]) {
        let name = format!("home/{kind}.json");
        let mut all: Vec<DynamicObject> = Vec::new();
        let (params, most) = (ListParams::default().limit(page), MAX_OBJECTS / page as usize);
        let keep = |object| all.push(object);
        let read = fleet::pages(&api, params, (kind, &home.namespace), most, keep).await;
        // What was read before a failure is worth something.
        if read.is_ok() || !all.is_empty() {
            bundle.json(&name, json!(all))?;
        }
        match read {
            Ok(true) => {}
            Ok(false) => bundle.problem(&name, &anyhow!("there are more than {MAX_OBJECTS}")),
            Err(error) => bundle.problem(&name, &error.into()),
        }
    }
    Ok(())
}

/// The Deployment, its configuration, its Pods and their logs, where the chart has installed them.
async fn of_the_chart(
    at: &HomeCluster,
    args: &BundleArgs,
    bundle: &mut Bundle,
) -> anyhow::Result<()> {
    let deployments = labelled::<Deployment>(at, &[]).await;
    // By what they select, Pods are found that have not the labels of this release.
    let selected: Vec<String> = deployments.iter().flatten().filter_map(selector).collect();
    bundle.read("chart/deployments.json", deployments.map(|list| json!(list)))?;
    let listed = labelled::<ConfigMap>(at, &[]).await;
    bundle.read("chart/configmaps.json", listed.map(|list| json!(list)))?;
    let pods = labelled::<Pod>(at, &selected).await;
    let named: Vec<(String, Vec<String>)> = pods.iter().flatten().map(containers).collect();
    bundle.read("chart/pods.json", pods.map(|list| json!(list)))?;
    if args.no_logs {
        return Ok(());
    }
    let named = bundle.first("logs", named);
    let api: Api<Pod> = Api::namespaced(at.client.clone(), &at.namespace);
    for (pod, container, previous) in named.iter().flat_map(|(pod, containers)| {
        let each = containers.iter();
        each.flat_map(move |container| [false, true].map(|previous| (pod, container, previous)))
    }) {
        let params = LogParams {
            container: Some(container.clone()),
            previous,
            timestamps: true,
            tail_lines: Some(LOG_LINES),
            limit_bytes: Some(LOG_BYTES),
            ..LogParams::default()
        };
        let before = if previous { ".previous" } else { "" };
        let name = format!("logs/{pod}.{container}{before}.log");
        match read(api.logs(pod, &params)).await {
            Ok(log) => bundle.add(&name, redact::log(&log).as_bytes())?,
            // Most containers have not been restarted.
            Err(_) if previous => {}
            Err(error) => bundle.problem(&name, &error),
        }
    }
    Ok(())
}

/// A Pod and its containers that have logs, those first that run first.
fn containers(pod: &Pod) -> (String, Vec<String>) {
    let spec = pod.spec.iter();
    let all = spec.flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
    (pod.name_any(), all.map(|container| container.name.clone()).collect())
}

/// The labels that a Deployment's Pods have and nothing else.
fn selector(deployment: &Deployment) -> Option<String> {
    let labels = deployment.spec.selector.match_labels.as_ref()?;
    let pairs: Vec<_> = labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
    (!pairs.is_empty()).then(|| pairs.join(","))
}

/// Those with labels of the chart, or with these: while a release takes the place of another, objects of both are there.
async fn labelled<K>(at: &HomeCluster, or: &[String]) -> anyhow::Result<Vec<K>>
where
    K: Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(at.client.clone(), &at.namespace);
    let mut found = BTreeMap::new();
    for labels in OF_THE_CHART.into_iter().chain(or.iter().map(String::as_str)) {
        let params = ListParams::default().labels(labels).limit(PAGE);
        let listed = read(api.list(&params)).await?.items;
        found.extend(listed.into_iter().map(|object| (object.name_any(), object)));
    }
    if !found.is_empty() {
        return Ok(found.into_values().collect());
    }
    let (HomeCluster { namespace, shown, .. }, plural) = (at, K::plural(&()));
    anyhow::bail!(
        "no {plural} with the label {} in namespace {namespace} of {shown}; fix: if the chart's release is elsewhere, \
         give --pod-namespace, --pod-kubeconfig or --pod-context",
        OF_THE_CHART[0]
    )
}

/// What the replicas show of themselves.
async fn views(
    replicas: &Replicas<'_>,
    members: Vec<&FleetMember>,
    bundle: &mut Bundle,
) -> anyhow::Result<()> {
    let mut silent: BTreeMap<(String, String), Vec<&str>> = BTreeMap::new();
    for (path, file) in VIEWS {
        for (replica, answer) in replicas.get_all(members.iter().copied(), path).await {
            let name = format!("members/{}/{file}", replica.member);
            match answer {
                Ok(answer) if file.ends_with(".json") => {
                    let value = serde_json::from_slice(&answer);
                    bundle.read(&name, value.context("it is no JSON"))?;
                }
                Ok(answer) => {
                    let answer = String::from_utf8_lossy(&answer);
                    let clean = if path == METRICS { redact::metrics } else { redact::text };
                    bundle.add(&name, clean(&answer).as_bytes())?;
                }
                Err(why) => {
                    silent.entry((replica.member, format!("{why:#}"))).or_default().push(file)
                }
            }
        }
    }
    // What hinders one view hinders the others mostly.
    for ((member, why), files) in silent {
        let name = format!("members/{member}/{}", files.join(","));
        bundle.problem(&name, &anyhow::anyhow!(why));
    }
    Ok(())
}

/// An answer of the home cluster, if it comes in time.
async fn read<T>(asked: impl Future<Output = kube::Result<T>>) -> anyhow::Result<T> {
    match tokio::time::timeout(READ_WITHIN, asked).await {
        Ok(answer) => answer.map_err(|error| anyhow::anyhow!("{}", model::error::chain(&error))),
        Err(_) => anyhow::bail!("no answer within {}s", READ_WITHIN.as_secs()),
    }
}

/// A tar file in the making.
struct Bundle {
    tar: tar::Builder<GzEncoder<File>>,
    /// The folder in it.
    folder: String,
    at: Timestamp,
    problems: Vec<String>,
}

impl Bundle {
    /// A file that only its owner reads, and that was not there before.
    fn create(path: &Path, folder: String, at: Timestamp) -> anyhow::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.write(true).create_new(true).mode(0o600).open(path);
        let file =
            file.with_context(|| format!("create {}: give another --out", path.display()))?;
        let tar = tar::Builder::new(GzEncoder::new(file, Compression::default()));
        Ok(Self { tar, folder, at, problems: Vec::new() })
    }

    fn json(&mut self, name: &str, mut value: Value) -> anyhow::Result<()> {
        redact::json(&mut value);
        self.add(name, serde_json::to_string_pretty(&value)?.as_bytes())
    }

    /// What was read, or why not.
    fn read(&mut self, name: &str, read: anyhow::Result<Value>) -> anyhow::Result<()> {
        match read {
            Ok(value) => self.json(name, value),
            Err(error) => {
                self.problem(name, &error);
                Ok(())
            }
        }
    }

    /// The first of some; that the rest is left out is said.
    fn first<T>(&mut self, name: &str, mut of: Vec<T>) -> Vec<T> {
        let more = of.len().saturating_sub(MAX_REPLICAS);
        if more > 0 {
            self.problems.push(format!("{name}: {more} replicas besides the first {MAX_REPLICAS}"));
            of.truncate(MAX_REPLICAS);
        }
        of
    }

    fn problem(&mut self, name: &str, error: &anyhow::Error) {
        self.problems.push(redact::text(&format!("{name}: {}", model::error::chain(&**error))));
    }

    fn add(&mut self, name: &str, bytes: &[u8]) -> anyhow::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o600);
        header.set_mtime(self.at.as_second().try_into().unwrap_or_default());
        let path = format!("{}/{name}", self.folder);
        self.tar.append_data(&mut header, path, bytes).context("write the bundle")
    }

    /// Writes what is left, and gives what could not be read.
    fn finish(mut self) -> anyhow::Result<Vec<String>> {
        let problems = std::mem::take(&mut self.problems);
        self.add("problems.txt", problems.join("\n").as_bytes())?;
        let mut file = self.tar.into_inner()?.finish()?;
        file.flush()?;
        Ok(problems)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_release_that_is_not_there_is_a_problem() {
        type Answer = Result<http::Response<kube::client::Body>, http::Error>;
        let none = tower::service_fn(|_: http::Request<kube::client::Body>| async move {
            let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": []});
            let answer: Answer =
                http::Response::builder().body(list.to_string().into_bytes().into());
            answer
        });
        let client = kube::Client::new(none, "default");
        let at = HomeCluster { client, namespace: "lh".into(), shown: "https://home".into() };
        let text = labelled::<Pod>(&at, &[]).await.unwrap_err().to_string();
        let begin = "no pods with the label app.kubernetes.io/part-of=leasehold in namespace lh of https://home; fix: ";
        assert!(text.starts_with(begin), "{text}");
    }

    #[tokio::test]
    async fn replicas_of_two_releases_are_found() {
        type Answer = Result<http::Response<kube::client::Body>, http::Error>;
        let upgrade = tower::service_fn(|request: http::Request<kube::client::Body>| async move {
            let query = request.uri().query().unwrap_or_default().replace("%2F", "/");
            let has = |label: &str| query.contains(&label.replace('=', "%3D"));
            let names = [
                (OF_THE_CHART[0], &["new"][..]),
                (OF_THE_CHART[1], &["new", "old"][..]),
                ("app.kubernetes.io/name=fleet", &["renamed"][..]),
            ];
            let names = names.iter().find(|(label, _)| has(label)).map_or(&[][..], |(_, of)| *of);
            let pod = |name: &&str| json!({"metadata": {"name": name}});
            let pods: Vec<_> = names.iter().map(pod).collect();
            let list =
                json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": pods});
            let answer: Answer =
                http::Response::builder().body(list.to_string().into_bytes().into());
            answer
        });
        let client = kube::Client::new(upgrade, "default");
        let at = HomeCluster { client, namespace: "lh".into(), shown: "https://home".into() };
        let deployment = json!({"metadata": {}, "spec": {"template": {},
            "selector": {"matchLabels": {"app.kubernetes.io/name": "fleet"}}}});
        let selected = selector(&serde_json::from_value(deployment).unwrap()).unwrap();
        let pods = labelled::<Pod>(&at, &[selected]).await.unwrap();
        let names: Vec<_> = pods.iter().map(ResourceExt::name_any).collect();
        assert_eq!(names, ["new", "old", "renamed"]);
    }

    #[test]
    fn what_begins_a_pod_has_logs_too() {
        let spec =
            json!({"initContainers": [{"name": "wait"}], "containers": [{"name": "manager"}]});
        let pod = json!({"metadata": {"name": "p"}, "spec": spec});
        let named = ["wait", "manager"].map(str::to_owned).to_vec();
        assert_eq!(containers(&serde_json::from_value(pod).unwrap()), ("p".to_owned(), named));
    }

    #[test]
    fn that_replicas_are_left_out_is_said() {
        let dir = std::env::temp_dir().join(format!("leasehold-bundle-{}", std::process::id()));
        let mut bundle = Bundle::create(&dir, "b".into(), Timestamp::UNIX_EPOCH).unwrap();
        std::fs::remove_file(&dir).unwrap();
        assert_eq!(bundle.first("logs", vec![0; MAX_REPLICAS]).len(), MAX_REPLICAS);
        assert_eq!(bundle.problems, [""; 0]);
        assert_eq!(bundle.first("members", vec![0; MAX_REPLICAS + 7]).len(), MAX_REPLICAS);
        assert_eq!(bundle.problems, ["members: 7 replicas besides the first 50"]);
    }
}
