//! A run on a fleet that runs: its clusters are contexts of a kubeconfig, its replicas are Pods.
//!
//! # Invariants
//! - Only TDSets that it made, which their label says, are deleted. Namespaces that have others are refused.
//! - What it measured is written before anything is deleted.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use anyhow::{Context, anyhow, bail, ensure};
use futures::future::join_all;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, ListParams};
use kube::config::KubeConfigOptions;
use kube::{Api, Client, Config};
use loadtest::scrape;
use loadtest::signals::unless_ended;

use crate::faults::{Fault, Kind};
use crate::fleet::namespaces;
use crate::machine::Machine;
use crate::pods::{Pod, Pods, Target};
use crate::process::Cpu;
use crate::replicas::Replicas;
use crate::report::Report;
use crate::results;
use crate::run::{self, Run};
use crate::scenario::Scenario;
use crate::tdset;

#[derive(clap::Args)]
pub struct Args {
    /// The scenario file. Its number of clusters does not count.
    scenario: PathBuf,
    /// A cluster's name in the fleet, and the context that reaches it.
    #[arg(long = "cluster", value_name = "NAME=CONTEXT", required = true)]
    clusters: Vec<Cluster>,
    /// The context of the home cluster [default: the current one]
    #[arg(long, value_name = "CONTEXT")]
    home_context: Option<String>,
    /// The namespace of the replicas.
    #[arg(long, default_value = "leasehold-system")]
    namespace: String,
    /// The labels of the replicas' Pods.
    #[arg(long, default_value = "app.kubernetes.io/name=leasehold")]
    selector: String,
    /// The replicas' container in these Pods.
    #[arg(long, value_name = "NAME", default_value = "leasehold")]
    container: String,
    /// The port of the admin server in the replicas' Pods.
    #[arg(long, value_name = "PORT", default_value_t = 8443)]
    admin_port: u16,
    /// A file with a token that outlives the run and whose user may read /metrics: `kubectl create token NAME`.
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
    /// The program that kills a replica's process, given the Pod's namespace and name: for `kill` in a scenario.
    #[arg(long, value_name = "PROGRAM")]
    kill: Option<PathBuf>,
    /// TDSets that exist when the load begins, instead of the scenario's.
    #[arg(long, value_name = "NUMBER")]
    objects: Option<u32>,
    /// Where reports go.
    #[arg(long, default_value = "target/loadtest")]
    out: PathBuf,
    /// Seed of the generator, which decides which objects are changed when.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// A cluster on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Cluster {
    name: String,
    context: String,
}

impl FromStr for Cluster {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, context)) if !name.is_empty() && !context.is_empty() => {
                Ok(Self { name: name.to_owned(), context: context.to_owned() })
            }
            _ => Err(format!("found {text:?}, expected NAME=CONTEXT")),
        }
    }
}

/// Runs the scenario, writes its report, removes the objects that it made, and says where the report is. A signal
/// ends the run early, and a second one the removal.
///
/// # Errors
/// If the fleet is not as the scenario wants it, something of the run fails, or objects are left.
pub async fn run(args: Args) -> anyhow::Result<(Report, PathBuf)> {
    let scenario = Scenario::load(&args.scenario)?;
    let misfit = |problems: Vec<String>| {
        let problems = problems.join("\n  ");
        anyhow!("{} does not fit this fleet:\n  {problems}", args.scenario.display())
    };
    let problems = problems(&args.clusters, args.kill.as_deref(), &scenario.faults);
    if !problems.is_empty() {
        return Err(misfit(problems));
    }
    let scenario = scenario.attached(args.clusters.len(), args.objects).map_err(misfit)?;
    let out = std::path::absolute(&args.out)?.join(&scenario.name);
    let _held = results::begin(&out)?;
    let mut clusters = Vec::new();
    for Cluster { name, context } in &args.clusters {
        clusters.push((name.clone(), client(Some(context)).await?));
    }
    for (name, cluster) in &clusters {
        is_free(&scenario, cluster).await.with_context(|| format!("look at {name}"))?;
    }
    let target = target(&args).await?;
    let home = target.home.clone();
    let mut pods = Pods::find(target).await?;
    let machine = machine(&home, &pods.all(scenario.fleet.replicas)?).await?;
    let mut replicas = Replicas::pods(pods, &clusters, run::now());
    let mut run = Run::new(&scenario, &clusters, None, args.seed, &mut replicas);
    let name = run::name();
    run.generator.run = Some(Arc::clone(&name));
    let measured = unless_ended(run.measure()).await;
    run.stop().await;
    let reported = measured.and_then(|measured| {
        let report = Report::of(scenario.clone(), args.seed, machine, measured);
        run::write(&report, &out)?;
        Ok(report)
    });
    let cleared = unless_ended(clear(&scenario, &clusters, &name)).await;
    let cleared =
        cleared.with_context(|| format!("TDSets with the label {}={name} are left", tdset::RUN));
    match (reported, cleared) {
        (Err(failed), Err(left)) => Err(failed.context(format!("{left:#}"))),
        (reported, cleared) => cleared.and(reported).map(|report| (report, out)),
    }
}

/// Why a command line with these clusters does not do.
fn problems(clusters: &[Cluster], kill: Option<&Path>, faults: &[Fault]) -> Vec<String> {
    let mut problems = Vec::new();
    for (n, one) in clusters.iter().enumerate() {
        let same = |other: &&Cluster| other.name == one.name || other.context == one.context;
        if let Some(other) = clusters[..n].iter().find(same) {
            problems.push(format!(
                "--cluster {}={}: {}={} is given too, and each cluster needs its own name and context",
                one.name, one.context, other.name, other.context
            ));
        }
    }
    match kill {
        // A name by itself is looked for in PATH.
        Some(program) if program.components().count() > 1 && !program.is_file() => {
            problems.push(format!("--kill {}: no such file", program.display()));
        }
        None if faults.iter().any(|fault| fault.kind == Kind::Kill) => {
            problems.push("faults: nothing kills a Pod's process: give --kill PROGRAM".to_owned());
        }
        _ => {}
    }
    problems
}

async fn client(context: Option<&str>) -> anyhow::Result<Client> {
    let options =
        KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let shown = context.unwrap_or("the current one");
    let config = Config::from_kubeconfig(&options).await;
    let config = config.with_context(|| format!("read the kubeconfig's context {shown}"))?;
    Client::try_from(config).with_context(|| format!("make a client of context {shown}"))
}

async fn target(args: &Args) -> anyhow::Result<Target> {
    let Args { home_context, namespace, selector, container, .. } = args;
    let Args { admin_port, token_file, kill, .. } = args;
    let token = std::fs::read_to_string(token_file)
        .with_context(|| format!("read the token in {}", token_file.display()))?;
    Ok(Target {
        home: client(home_context.as_deref()).await?,
        namespace: namespace.clone(),
        selector: selector.clone(),
        container: container.clone(),
        admin_port: *admin_port,
        token: Arc::from(token.trim()),
        kill: kill.clone(),
    })
}

/// This machine, with the releases of the replicas and of their API server.
async fn machine(home: &Client, replicas: &[Pod]) -> anyhow::Result<Machine> {
    let metrics = replicas.first().context("no replica runs")?.probe.metrics().await?;
    let versions = scrape::sums_by(&metrics, "leasehold_build_info", "version");
    let version = versions.into_keys().next().unwrap_or_default();
    let servers = home.apiserver_version().await.context("ask home for its version")?;
    let servers_built = format!("of Kubernetes {}", servers.git_version);
    let here = Machine::here(format!("leasehold {version}"), Cpu::default())?;
    Ok(Machine { servers_built, replicas_cores: "of their nodes".to_owned(), ..here })
}

/// Fails if a namespace of the scenario is missing or has TDSets.
async fn is_free(scenario: &Scenario, cluster: &Client) -> anyhow::Result<()> {
    let all: Api<Namespace> = Api::all(cluster.clone());
    for namespace in namespaces(scenario) {
        if all.get_opt(&namespace).await?.is_none() {
            bail!("there is no namespace {namespace}: create it");
        }
        let tdsets = tdset::namespaced(cluster.clone(), &namespace);
        let some = tdsets.list(&ListParams::default().limit(1)).await;
        let some = some.with_context(|| format!("list TDSets of namespace {namespace}"))?;
        ensure!(some.items.is_empty(), "namespace {namespace} has TDSets: delete them");
    }
    Ok(())
}

/// Deletes the TDSets that the run of this name made, wherever it can.
async fn clear(
    scenario: &Scenario,
    clusters: &[(String, Client)],
    run: &str,
) -> anyhow::Result<()> {
    let made = ListParams::default().labels(&format!("{}={run}", tdset::RUN));
    let places =
        clusters.iter().flat_map(|cluster| namespaces(scenario).map(move |ns| (cluster, ns)));
    let cleared = places.map(async |((name, cluster), namespace)| {
        let tdsets = tdset::namespaced(cluster.clone(), &namespace);
        let deleted = tdsets.delete_collection(&DeleteParams::background(), &made).await;
        deleted.with_context(|| format!("delete them in namespace {namespace} of {name}"))
    });
    let failed = join_all(cleared).await.into_iter().filter_map(Result::err);
    let failed: Vec<String> = failed.map(|error| format!("{error:#}")).collect();
    ensure!(failed.is_empty(), "{}", failed.join("; "));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::generate::tests::slow;
    use apiserver::faults::{Fault, Request};

    #[tokio::test]
    async fn what_it_made_is_deleted_where_that_is_possible_and_nothing_else() {
        let mut servers = Vec::new();
        for _ in 0..2 {
            // Two objects of others, and two of the run.
            let (scenario, server, mut generator, received) = slow(2, Duration::ZERO).await;
            generator.run = Some("a".into());
            generator.populate(&scenario).await.unwrap();
            servers.push((scenario, server, received));
        }
        let [(scenario, refuses, _), (_, answers, _)] = &servers[..] else { unreachable!() };
        refuses.set_faults(Some(Arc::new(|request: &Request| match request.verb {
            "deletecollection" => Fault::Drop,
            _ => Fault::None,
        })));
        let clusters = [
            ("cluster-1".to_owned(), refuses.client()),
            ("cluster-2".to_owned(), answers.client()),
        ];
        let error = clear(scenario, &clusters, "a").await.unwrap_err().to_string();
        assert!(error.starts_with("delete them in namespace load-000 of cluster-1: "), "{error}");
        assert!(!error.contains("cluster-2"), "{error}");
        for (server, left) in [(refuses, 4), (answers, 2)] {
            let all = tdset::all(server.client()).list(&ListParams::default()).await.unwrap();
            assert_eq!(all.items.len(), left);
        }
    }

    #[test]
    fn clusters_have_a_name_and_a_context() {
        let cluster = Cluster { name: "east".into(), context: "kind-leasehold-1".into() };
        assert_eq!("east=kind-leasehold-1".parse(), Ok(cluster));
        for wrong in ["kind-leasehold-1", "=kind-east", "east="] {
            let error = wrong.parse::<Cluster>().unwrap_err();
            assert_eq!(error, format!("found {wrong:?}, expected NAME=CONTEXT"));
        }
    }

    #[test]
    fn what_would_fail_in_the_middle_is_refused_at_the_start() {
        let cluster = |text: &str| text.parse::<Cluster>().unwrap();
        let clusters = ["cluster-1=a", "cluster-2=b", "cluster-1=c", "cluster-3=b"].map(cluster);
        let kill = "at = \"1s\"\nkind = \"kill\"\nreplica = 0";
        let faults = [toml::from_str::<crate::faults::Fault>(kill).unwrap()];
        for (kill, expect) in [
            ("pkill", None),
            ("/bin/sh", None),
            ("./no-kill.sh", Some("--kill ./no-kill.sh: no such file".to_owned())),
        ] {
            let found = problems(&clusters[..2], Some(Path::new(kill)), &faults);
            assert_eq!(found.first(), expect.as_ref());
        }
        assert!(problems(&clusters[..2], None, &[]).is_empty());
        let expect = [
            "--cluster cluster-1=c: cluster-1=a is given too, and each cluster needs its own name and context",
            "--cluster cluster-3=b: cluster-2=b is given too, and each cluster needs its own name and context",
            "faults: nothing kills a Pod's process: give --kill PROGRAM",
        ];
        assert_eq!(problems(&clusters, None, &faults), expect);
    }

    #[test]
    fn a_scenario_fits_a_fleet_that_runs_or_says_why_not() {
        let load = |name: &str| {
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios");
            Scenario::load(&PathBuf::from(format!("{folder}/{name}.toml"))).unwrap()
        };
        let fits = load("kind").attached(2, Some(81)).unwrap();
        assert_eq!((fits.fleet.clusters, fits.objects.count), (2, 81));
        let problems = load("kind").attached(2, Some(80)).unwrap_err();
        let [few] = &problems[..] else { panic!("{problems:?}") };
        assert!(few.starts_with("objects.count: found 80, and from 81 on "), "{few}");
        let problems = load("faults").attached(5, None).unwrap_err();
        assert_eq!(problems.len(), 4, "{problems:?}");
        assert!(problems[0].starts_with("faults[0]: only `kill`"), "{problems:?}");
        let problems = load("kinds").attached(3, None).unwrap_err();
        assert!(problems[2].starts_with("fleet.beside: the managers run already"), "{problems:?}");
        let problems = load("fairness").attached(0, None).unwrap_err();
        let [clusters, troubles] = &problems[..] else { panic!("{problems:?}") };
        assert!(clusters.starts_with("fleet.clusters: found 0"), "{clusters}");
        assert!(troubles.starts_with("troubles: no clusters"), "{troubles}");
    }
}
