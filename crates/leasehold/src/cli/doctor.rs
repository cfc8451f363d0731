//! `leasehold doctor`: what is wrong, and what to do.
//!
//! With a manager's configuration file it looks at everything as a replica would, with its files, its credentials
//! and from where it is: run it in a replica's Pod. Without, it looks at the fleet through its home cluster, and asks
//! the replicas what they see.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ::doctor::{
    Finding, Level, Place, Report, Right, Wanted, ask_server, count_objects, look_for_kinds,
    of_clusters as of_view, of_home_credential, of_home_latency, of_memory, of_queues,
    of_readiness, of_shards, of_size, of_status, review_rights, spelled_out,
};
use anyhow::Context as _;
use clusters::State;
use fleet::{Fleet, Problem};
use futures::{StreamExt, stream};
use jiff::Timestamp;
use kube::Client;
use model::{Clock, Cluster, ClusterName, Kind};
use ops::{AskArgs, HomeArgs, HomeCluster, Output, Replica, Replicas, in_time, quoted, within};
use sdk::ControllerSpec;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::home::connect;
use crate::assemble;
use crate::builtin;
use crate::clock::SystemClock;
use crate::config::Config;

/// The exit code when something does not work.
const FAILED: u8 = 3;
/// How many clusters are looked at at once, and how long one may take.
const AT_ONCE: usize = 16;
const CLUSTER_WITHIN: Duration = Duration::from_secs(120);
/// How long the clusters may take until each has a client or a reason why not.
const ENGAGED_WITHIN: Duration = Duration::from_secs(30);
/// How long home may take until all there was looked at.
const HOME_WITHIN: Duration = Duration::from_secs(60);
/// How it is run in a replica's Pod, after the Pod's name.
const INSIDE: &str = "-- /leasehold doctor --config /etc/leasehold/config/config.yaml";

/// The variable with the path of a manager's configuration file.
const VARIABLE: &str = "LEASEHOLD_CONFIG";

/// What a replica is asked for, and what of it is read as what.
const CLUSTERS: &str = "/debug/clusters";
const SHARDS: &str = "/debug/shards";
const READY: &str = "/readyz?verbose";
const QUEUES: &str = "/debug/queues";
const SEEN: [&str; 5] = [CLUSTERS, SHARDS, READY, QUEUES, "/metrics"];

/// Arguments of `leasehold doctor`.
#[derive(Debug, clap::Args)]
pub(super) struct DoctorArgs {
    /// Look at each cluster as a replica with this configuration file does: reachability, version, clock, kinds,
    /// rights. Default: that of $LEASEHOLD_CONFIG, unless a home cluster or its namespace is named.
    #[arg(long, short, value_name = "FILE", conflicts_with_all = ["kubeconfig", "context", "namespace"])]
    config: Option<PathBuf>,
    /// The home cluster's kubeconfig. Default: the files of $KUBECONFIG, merged, else ~/.kube/config.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The home cluster's context. Default: the kubeconfig's current one.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// The namespace of Leases, Members and ShardMaps.
    #[arg(long, short, value_name = "NAME")]
    namespace: Option<String>,
    /// Only this cluster, of those that the configuration names.
    #[arg(long, value_name = "NAME")]
    cluster: Vec<ClusterName>,
    /// The form of the answer.
    #[arg(long, short, value_enum, default_value_t = Output::Table)]
    output: Output,
    /// How the replicas are asked.
    #[command(flatten)]
    ask: AskArgs,
}

/// Looks, and prints what was found. The exit code is 3 if something does not work.
///
/// # Errors
/// When the configuration file is wrong, or no home cluster is named.
pub(super) fn run(args: &DoctorArgs) -> anyhow::Result<ExitCode> {
    let home = args.home(std::env::var_os(VARIABLE))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let report = runtime.block_on(look(args, &home));
    // A credential plugin that hangs holds a thread for good.
    runtime.shutdown_background();
    let report = report?;
    args.output.print(&report, || report.text())?;
    Ok(match report.count(Level::Failure) {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(FAILED),
    })
}

impl DoctorArgs {
    /// The home cluster that is looked at. What a variable names counts only if nothing else names one: it may be set
    /// for the managers of this machine.
    ///
    /// # Errors
    /// If one cluster of a configuration is asked for, and there is none.
    fn home(&self, variable: Option<OsString>) -> anyhow::Result<HomeArgs> {
        let Self { config, kubeconfig, context, namespace, .. } = self;
        let home = HomeArgs {
            config: config.clone(),
            kubeconfig: kubeconfig.clone(),
            context: context.clone(),
            namespace: namespace.clone(),
        };
        let variable = variable.filter(|path| home.flags().is_empty() && !path.is_empty());
        let home = HomeArgs { config: home.config.or(variable.map(Into::into)), ..home };
        anyhow::ensure!(
            self.cluster.is_empty() || home.config.is_some(),
            "--cluster is one of those that a configuration names: give that with --config <FILE>, or in ${VARIABLE}"
        );
        Ok(home)
    }
}

async fn look(args: &DoctorArgs, home: &HomeArgs) -> anyhow::Result<Report> {
    let path = home.config.as_ref();
    let home = match connect(home).await {
        Ok(home) => home,
        // A configuration file that is wrong is no finding.
        Err(error) if error.is::<crate::config::Problems>() => return Err(error),
        Err(error) => {
            return Ok(Report::of([Finding::of_reason("home", &model::error::chain(&*error))]));
        }
    };
    let pods = args.ask.pods(&home, |args| Box::pin(connect(args))).await?;
    let mut found = Vec::new();
    let config = path.map(|path| Config::load(path, &builtin::names()));
    let config = config.transpose()?;
    let fleet = of_home(&home, config.as_ref(), &mut found).await;
    match (&config, &fleet) {
        (Some(config), _) => of_clusters(config, &home.client, &args.cluster, &mut found).await?,
        (None, Some(fleet)) => {
            let inside = inside(&pods.namespace, fleet);
            let what = format!("rights and kinds are seen only from a replica's place: {inside}");
            found.push(Finding::ok("clusters", what));
        }
        (None, None) => {}
    }
    // Those at addresses need no home to say what they see.
    let fleet = fleet.or_else(|| args.ask.has_addresses().then(Fleet::default));
    // Whoever runs in a replica's Pod has neither a token nor the right to dial others.
    if let Some(fleet) = fleet.filter(|_| config.is_none() || args.ask.is_given()) {
        of_replicas(&pods, args, &fleet, &mut found).await?;
    }
    Ok(Report::of(found))
}

/// The home cluster, and the fleet if it can be read there.
async fn of_home(
    home: &HomeCluster,
    config: Option<&Config>,
    found: &mut Vec<Finding>,
) -> Option<Fleet> {
    let about = "home";
    let asking = ask_server(&home.client, about, || SystemClock.wall());
    let asked = in_time(&format!("ask {}", home.shown), asking).await;
    let asked = asked.unwrap_or_else(|late| vec![Finding::of_reason(about, &late.to_string())]);
    let answers = !asked.iter().any(|finding| finding.level == Level::Failure);
    found.extend(asked);
    if !answers {
        return None;
    }
    let looking = of_server(home, config);
    let looked = within(HOME_WITHIN, &format!("look at {}", home.shown), looking).await;
    found.extend(looked.unwrap_or_else(|late| vec![Finding::of_reason(about, &late.to_string())]));
    match home.fleet().await {
        Ok(fleet) => {
            found.extend(of_fleet(&fleet));
            Some(fleet)
        }
        Err(error) => {
            found.push(Finding::of_reason(about, &model::error::chain(&*error)));
            None
        }
    }
}

/// What installs the definitions of the built-in controllers.
const INSTALL: &str =
    "leasehold crds --for workload | kubectl apply --server-side --force-conflicts -f -";

/// Whether home has the kinds of a fleet, and gives the rights that a replica with this configuration needs.
async fn of_server(home: &HomeCluster, config: Option<&Config>) -> Vec<Finding> {
    let about = "home";
    let wanted = sharding::api::crds().into_iter().filter_map(|definition| {
        Some(Wanted {
            kind: Kind::of_crd(&definition)?,
            by: "sharding".to_owned(),
            optional: false,
            own: Some((definition, fleet::NO_HOME.to_owned())),
        })
    });
    let mut found = look_for_kinds(&home.client, about, &wanted.collect::<Vec<_>>()).await;
    if let Some(config) = config {
        let mut wanted =
            spelled_out(&sharding::rights(), std::slice::from_ref(&home.namespace), &[]);
        let secrets = sdk::rbac::rule("", &["secrets"], &["get", "list", "watch"]);
        for source in &config.clusters.secrets {
            let namespace = source.namespace.clone().unwrap_or_else(|| home.namespace.clone());
            wanted.extend(spelled_out(std::slice::from_ref(&secrets), &[namespace], &[]));
        }
        found.extend(review_rights(&home.client, about, "home", &wanted).await);
    }
    found
}

/// How somebody looks from the place of a replica: of one that lives, if one does.
fn inside(namespace: &str, fleet: &Fleet) -> String {
    let pod = fleet.alive().next().map_or("POD", |member| &member.identity);
    format!("kubectl --namespace {namespace} exec {} {INSIDE}", quoted(pod))
}

fn of_fleet(fleet: &Fleet) -> Vec<Finding> {
    let problems = fleet.problems(SystemClock.wall());
    if problems.is_empty() {
        let (members, shards) = (fleet.members.len(), fleet.shards.len());
        return vec![Finding::ok("fleet", format!("{members} members serve {shards} shards"))];
    }
    let finding = |problem: Problem| Finding::failure("fleet", problem.what, problem.fix);
    problems.into_iter().map(finding).collect()
}

/// What the replicas say.
async fn of_replicas(
    pods: &HomeCluster,
    args: &DoctorArgs,
    fleet: &Fleet,
    found: &mut Vec<Finding>,
) -> anyhow::Result<()> {
    let replicas = Replicas::of(pods, &args.ask)?;
    let now = SystemClock.wall();
    // What hinders one view hinders the others mostly.
    let mut unseen: BTreeMap<(String, String), Vec<&str>> = BTreeMap::new();
    for path in SEEN {
        for (Replica { identity, .. }, answer) in replicas.get_all(fleet.alive(), path).await {
            match of_answer(path, &identity, answer, now) {
                Ok(told) => {
                    // What home shows by itself is known.
                    let is_known = |new: &Finding| {
                        found.iter().any(|f| (&f.about, &f.what) == (&new.about, &new.what))
                    };
                    let told: Vec<_> = told.into_iter().filter(|new| !is_known(new)).collect();
                    found.extend(told);
                }
                Err(why) => unseen.entry((identity, why)).or_default().push(path),
            }
        }
    }
    found.extend(unseen.into_iter().map(|((identity, why), paths)| {
        let fix = "see its Pod and its log; who may ask it: `leasehold rbac`";
        let what = format!("does not show {}: {why}", paths.join(", "));
        Finding::warning(format!("member {identity}"), what, fix)
    }));
    Ok(())
}

/// What a member answers at a path, or why nobody knows.
fn of_answer(
    path: &str,
    member: &str,
    answer: anyhow::Result<Vec<u8>>,
    now: Timestamp,
) -> Result<Vec<Finding>, String> {
    let answer = answer.map_err(|why| format!("{why:#}"));
    Ok(match path {
        // Whoever is not ready says so by a refusal.
        READY => match answer {
            Ok(_) => Vec::new(),
            Err(refusal) => vec![of_readiness(member, &refusal).ok_or(refusal)?],
        },
        CLUSTERS => of_view(member, &answer?, now),
        SHARDS => of_shards(member, &answer?),
        QUEUES => of_queues(member, &answer?),
        _ => {
            let answer = answer?;
            let text = String::from_utf8_lossy(&answer);
            let found = [
                of_memory(member, &text),
                of_home_latency(member, &text),
                of_home_credential(&text, now),
            ];
            found.into_iter().flatten().collect()
        }
    })
}

/// What a controller needs in each cluster.
struct Needs {
    controller: String,
    kinds: Vec<Wanted>,
    rights: BTreeSet<Right>,
    /// What it watches.
    places: BTreeSet<Place>,
}

/// Each cluster of the configuration, as a replica sees it.
async fn of_clusters(
    config: &Config,
    home: &Client,
    only: &[ClusterName],
    found: &mut Vec<Finding>,
) -> anyhow::Result<()> {
    let needs: Arc<Vec<Needs>> = Arc::new(needs(config)?);
    let stop = CancellationToken::new();
    let _stop = stop.clone().drop_guard();
    let mut clusters = assemble::registry(config, home, &stop).context("look for the clusters")?;
    if let Ok(settled) = tokio::time::timeout(ENGAGED_WITHIN, clusters.settled()).await {
        settled.map_err(|end| anyhow::anyhow!("look for the clusters: {end}"))?;
    }
    let set = clusters.watch().borrow().clone();
    let status = clusters.status();
    found.extend(status.problems.iter().map(|problem| Finding::of_reason("clusters", problem)));
    let wanted = |name: &ClusterName| only.is_empty() || only.contains(name);
    for cluster in status.clusters.iter().filter(|cluster| wanted(&cluster.name)) {
        found.extend(of_status(cluster, SystemClock.wall()));
        if cluster.reason.is_none() && cluster.state != State::Engaged {
            let what = format!("has no client yet after {} s", ENGAGED_WITHIN.as_secs());
            let fix = "see whether its server and its credential program answer";
            found.push(Finding::failure(format!("cluster {}", cluster.name), what, fix));
        }
    }
    for name in only.iter().filter(|name| !status.clusters.iter().any(|c| c.name == **name)) {
        let what = "the configuration names no such cluster";
        let fix = "see `clusters` in the configuration";
        found.push(Finding::failure(format!("cluster {name}"), what, fix));
    }
    let engaged: Vec<Cluster> =
        set.engaged().filter(|cluster| wanted(&cluster.name)).cloned().collect();
    let look = |cluster: Cluster| {
        let needs = Arc::clone(&needs);
        async move {
            let (about, client) = (format!("cluster {}", cluster.name), cluster.wire.client());
            let looking = of_cluster(&client, &about, &needs);
            let looked = tokio::time::timeout(CLUSTER_WITHIN, looking).await;
            looked.unwrap_or_else(|_| {
                let what = format!(
                    "answers too slowly: not all was seen after {} s",
                    CLUSTER_WITHIN.as_secs()
                );
                (vec![Finding::failure(about, what, "see what its API server does")], None)
            })
        }
    };
    let looked: Vec<(Vec<Finding>, Option<u64>)> =
        stream::iter(engaged).map(look).buffered(AT_ONCE).collect().await;
    let counts: Vec<u64> = looked.iter().filter_map(|(_, count)| *count).collect();
    found.extend(looked.into_iter().flat_map(|(findings, _)| findings));
    if only.is_empty() && !counts.is_empty() {
        found.push(of_size(&counts, telemetry::memory_limit()));
    }
    Ok(())
}

/// What is found in a cluster, and how many objects it has that are watched.
async fn of_cluster(client: &Client, about: &str, needs: &[Needs]) -> (Vec<Finding>, Option<u64>) {
    let mut found = ask_server(client, about, || SystemClock.wall()).await;
    if found.iter().any(|finding| finding.level == Level::Failure) {
        return (found, None);
    }
    let mut places = BTreeSet::new();
    for Needs { controller, kinds, rights, places: watched } in needs {
        found.extend(look_for_kinds(client, about, kinds).await);
        found.extend(review_rights(client, about, controller, rights).await);
        places.extend(watched.iter().cloned());
    }
    match count_objects(client, &places).await {
        Ok(count) => (found, Some(count)),
        Err(why) => {
            let fix = "see the server's log; without an answer nobody knows what a replica needs";
            found.push(Finding::warning(about, format!("its objects are not counted: {why}"), fix));
            (found, None)
        }
    }
}

/// What the controllers of a configuration need.
fn needs(config: &Config) -> anyhow::Result<Vec<Needs>> {
    let mut all = Vec::new();
    for (name, settings) in config.controllers.iter().flatten() {
        let (mut rules, definitions) = super::clusters::builtin(name.as_str())?;
        let own_settings = settings.own.as_object().into_iter().flatten();
        for (setting, _) in own_settings.filter(|(_, value)| **value == true) {
            // Most settings need no rights of their own.
            rules.extend(super::clusters::more_rules(name.as_str(), setting).unwrap_or_default());
        }
        for target in settings.own.get("targets").and_then(Value::as_array).into_iter().flatten() {
            let part = |key: &str| target.get(key).and_then(Value::as_str).unwrap_or_default();
            let kind = format!("{}.{}", part("plural"), part("group"));
            rules.extend(super::clusters::more_rules(name.as_str(), &kind).unwrap_or_default());
        }
        // Where Secrets are named, the rights are for these alone.
        let secrets = settings.own.get("secrets").and_then(Value::as_array).into_iter().flatten();
        let secrets: Vec<_> = secrets.filter_map(Value::as_str).map(str::to_owned).collect();
        for rule in rules.iter_mut().filter(|_| !secrets.is_empty()) {
            if rule.resources.as_deref().is_some_and(|resources| resources == ["secrets"]) {
                rule.resource_names = Some(secrets.clone());
            }
        }
        let namespaces: Vec<String> = settings.namespaces.iter().flatten().cloned().collect();
        let specs = builtin::specs(|known| match known == name.as_str() {
            true => settings.own.clone(),
            false => Value::Null,
        });
        let specs = specs.iter().filter(|spec| spec.whole() == name);
        let kinds = specs.flat_map(|spec: &ControllerSpec| &spec.sources).map(|source| Wanted {
            by: name.to_string(),
            optional: source.optional,
            own: definitions
                .iter()
                .find(|definition| Kind::of_crd(definition).as_ref() == Some(&source.kind))
                .map(|definition| (definition.clone(), INSTALL.to_owned())),
            kind: source.kind.clone(),
        });
        let mut kinds: Vec<Wanted> = kinds.collect();
        kinds.sort_by(|a, b| a.kind.cmp(&b.kind));
        kinds.dedup_by(|a, b| a.kind == b.kind);
        let everywhere = [None];
        let named: Vec<_> = namespaces.iter().cloned().map(Some).collect();
        let within = if named.is_empty() { &everywhere[..] } else { &named };
        let place = |wanted: &Wanted| {
            let within = if wanted.kind.namespaced { within } else { &everywhere };
            within.iter().map(|n| (wanted.kind.clone(), n.clone())).collect::<Vec<_>>()
        };
        let places = kinds.iter().flat_map(place).collect();
        let rights = spelled_out(&rules, &namespaces, &["namespaces"]);
        all.push(Needs { controller: name.to_string(), kinds, rights, places });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        args: DoctorArgs,
    }

    /// The configuration file that a command line and the variable name.
    fn config(line: &str, variable: Option<&str>) -> Result<Option<PathBuf>, String> {
        use clap::Parser as _;
        let words = ["doctor"].into_iter().chain(line.split_whitespace());
        let line = Line::try_parse_from(words).map_err(|error| error.to_string())?;
        let home = line.args.home(variable.map(Into::into)).map_err(|error| error.to_string())?;
        Ok(home.config)
    }

    #[test]
    fn one_cluster_is_looked_at_only_with_the_configuration_that_names_it() {
        for line in ["--cluster east", "--cluster east --kubeconfig k"] {
            let refused = config(line, None).unwrap_err();
            assert!(refused.contains("--config <FILE>"), "{refused}");
        }
        assert!(config("--cluster east --config l.yaml", None).is_ok());
        assert!(config("--cluster east", Some("l.yaml")).is_ok());
    }

    #[test]
    fn the_variable_names_a_configuration_only_if_no_home_is_named() {
        let named = |line: &str, variable| {
            config(line, Some(variable)).unwrap().map(|path| path.display().to_string())
        };
        assert_eq!(named("", "v.yaml").as_deref(), Some("v.yaml"));
        assert_eq!(named("--config l.yaml", "v.yaml").as_deref(), Some("l.yaml"));
        for line in ["--kubeconfig k", "--context c", "--namespace n"] {
            assert_eq!(named(line, "v.yaml"), None, "{line}");
        }
        assert_eq!(named("", ""), None);
        let both = config("--config l.yaml --kubeconfig k", None).unwrap_err();
        assert!(both.contains("cannot be used with"), "{both}");
    }
}
