//! The only place where clusters, sharding and engine meet.
//!
//! ```text
//!  Config ─▶ clusters ── ClusterSet ─┬─▶ sharding ── Ownership ─▶ engine ── observer ─▶ journal
//!            home client ────────────┘ └───────── Workload ◀─ meter ◀─┘
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use clusters::{
    ClusterProvider, Clusters, Directory, Followed, HomeSeries, InCluster, KubeconfigFile, Plugins,
    Probing, Registry, Secrets, Terms, Trust, Unusable, budgeted,
};
use engine::{
    DispatchObserver, Engine, EngineConfig, EngineStatus, Meter, Role, SingleSpec, Source,
    Unobserved,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use marks::{Claim, Marker, fleet_id};
use model::{
    Budgets, Clock, ClusterLabels, ClusterName, ClusterSet, ClusterState, ControllerName,
    DisputedNames, GroupName, GroupScope, GroupTraits, Living, single,
};
use sdk::ControllerSpec;
use sharding::Sharding;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::clock;
use crate::config::{
    ClusterSources, Config, ControllerSettings, DirectorySource, Home, KubeconfigSource,
    OwnerObject, SecretSource,
};
use crate::error::Error;
use crate::journal::Journal;
use crate::liveness::Liveness;
use crate::workload::ProcessWorkload;

/// The registry of clusters, as errors name it.
pub(crate) const REGISTRY: &str = "the registry of clusters";
/// How long the home cluster may take to answer for the owner.
const OWNER_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause before it is asked again.
const OWNER_RETRY: Duration = Duration::from_secs(2);

/// An assembled manager. All of it runs but the engine.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) clusters: Clusters,
    pub(crate) sharding: Sharding,
    pub(crate) engine: Engine,
    pub(crate) status: EngineStatus,
    /// Runs sharding: goes last.
    pub(crate) liveness: Liveness,
}

/// Assembles a manager. What it starts ends with `stop`.
pub(crate) async fn assemble(
    config: &Config,
    specs: Vec<ControllerSpec>,
    singles: Vec<SingleSpec>,
    metrics: &prometheus::Registry,
    clock: Arc<dyn Clock>,
    stop: &CancellationToken,
) -> Result<Parts, Error> {
    let specs = chosen(specs, config)?;
    let is_idle = config.controllers.as_ref().is_some_and(BTreeMap::is_empty);
    if specs.is_empty() && singles.is_empty() && !is_idle {
        return Err(Error::NoControllers);
    }
    check(&specs, &singles)?;
    let observer = observer(config, &clock)?;
    let liveness = Liveness::start().map_err(Error::Runtime)?;
    let home = home(config, &liveness, metrics, &clock).await?;
    let labels = Arc::new(ClusterLabels::new(config.cluster_labels));
    // Sharding knows by the ShardMaps which cluster has a name.
    let disputed = watch::Sender::<Arc<DisputedNames>>::default();
    let living = watch::Sender::<Arc<Living>>::default();
    let mut clusters = Registry::spawn(
        providers(config, &home),
        Probing::On,
        marker(config, &specs, &home, living.subscribe(), stop).await,
        disputed.subscribe(),
        stop.clone(),
        (metrics, Arc::clone(&labels)),
        Arc::clone(&clock),
    )
    .map_err(|source| Error::Metrics("clusters", source))?;
    let groups = groups(&specs);
    let owner = tokio::select! {
        owner = owner(&home, config) => owner?,
        end = clusters.ended() => return Err(Error::ended(REGISTRY, end)),
    };
    // Complete before sharding sees it: a coordinator must not mistake clusters that have not been
    // read yet for removed ones.
    clusters.ready().await.map_err(|end| Error::ended(REGISTRY, end))?;
    announce(&clusters.watch().borrow(), &specs);
    if let Some(problem) = unused(&config.budgets, &clusters.watch().borrow()) {
        warn!("{problem}");
    }
    // The engine counts in it and sharding reads it.
    let meter = Meter::new(Arc::clone(&clock));
    let sharding = {
        let _here = liveness.enter();
        let mut settings = sharding_config(config, traits(&specs, &singles), owner);
        settings.cluster_labels = Arc::clone(&labels);
        (settings.disputed, settings.living) = (disputed, living);
        let workload = ProcessWorkload::new(meter.clone(), clusters.clone(), Arc::clone(&clock));
        let workload = Arc::new(workload);
        Sharding::spawn(home, settings, clusters.watch(), workload, Arc::clone(&clock), metrics)
            .map_err(Error::Sharding)?
    };
    let engine = Engine::new(
        EngineConfig {
            clock,
            ownership: Arc::new(sharding.clone()),
            clusters: clusters.watch(),
            meter,
            groups,
            registry: metrics,
            observer,
            seed: clock::seed(),
            upstream: config.upstream,
            budgets: config.budgets.clone(),
            stamps: config.stamp_epochs,
            cluster_labels: labels,
            allocated: telemetry::allocated(),
        },
        specs,
    )
    .map_err(Error::Engine)?;
    let engine = singles.into_iter().fold(engine, Engine::single);
    let status = engine.status();
    Ok(Parts { clusters, sharding, engine, status, liveness })
}

/// The controllers that the configuration selects, with its settings.
fn chosen(specs: Vec<ControllerSpec>, config: &Config) -> Result<Vec<ControllerSpec>, Error> {
    let mut by_name = BTreeMap::new();
    for spec in specs {
        let name = spec.name().clone();
        if by_name.insert(name.clone(), spec).is_some() {
            return Err(Error::DuplicateController(name));
        }
    }
    let Some(settings) = &config.controllers else {
        let all: Vec<_> = by_name.into_values().collect();
        return Ok(all);
    };
    let mut chosen = Vec::new();
    for (name, settings) in settings {
        let (parts, others) = by_name.into_iter().partition(|(_, spec)| spec.whole() == name);
        let parts: BTreeMap<_, _> = parts;
        by_name = others;
        if parts.is_empty() {
            return Err(Error::UnknownController(name.clone()));
        }
        chosen.extend(parts.into_values().map(|spec| set(spec, settings)));
    }
    Ok(chosen)
}

/// `spec`, with what the configuration says of it.
fn set(mut spec: ControllerSpec, settings: &ControllerSettings) -> ControllerSpec {
    if let Some(workers) = settings.workers {
        spec = spec.with_workers(workers);
    }
    match &settings.namespaces {
        Some(namespaces) => spec.with_namespaces(namespaces),
        None => spec,
    }
}

/// Whether nothing runs twice or under a name that is not its own.
fn check(specs: &[ControllerSpec], singles: &[SingleSpec]) -> Result<(), Error> {
    let mut groups = BTreeSet::new();
    if let Some(twice) = singles.iter().find(|single| !groups.insert(single.group())) {
        return Err(Error::DuplicateRunnable(twice.name().as_str().to_owned()));
    }
    let inputs: Vec<_> = specs.iter().map(ControllerSpec::group_input).collect();
    let named = model::group::groups(&inputs);
    if let Some((controller, group)) = named.into_iter().find(|(_, group)| single::is_single(group))
    {
        return Err(Error::ReservedGroup { controller, group });
    }
    Ok(())
}

pub(crate) fn groups(specs: &[ControllerSpec]) -> BTreeMap<ControllerName, GroupName> {
    let inputs: Vec<_> = specs.iter().map(ControllerSpec::group_input).collect();
    model::group::groups(&inputs)
}

pub(crate) fn traits(
    specs: &[ControllerSpec],
    singles: &[SingleSpec],
) -> BTreeMap<GroupName, GroupTraits> {
    let inputs: Vec<_> = specs.iter().map(ControllerSpec::group_input).collect();
    let mut traits = model::group::traits(&inputs);
    let whole = || GroupTraits { scope: GroupScope::Fleet, ..GroupTraits::default() };
    traits.extend(singles.iter().map(|single| (single.group().clone(), whole())));
    traits
}

fn observer(config: &Config, clock: &Arc<dyn Clock>) -> Result<Arc<dyn DispatchObserver>, Error> {
    Ok(match &config.journal {
        Some(path) => Arc::new(Journal::open(path, Arc::clone(clock))?),
        None => Arc::new(Unobserved),
    })
}

/// The home cluster's client, measured. Its connections run on the runtime of liveness.
async fn home(
    config: &Config,
    liveness: &Liveness,
    metrics: &prometheus::Registry,
    clock: &Arc<dyn Clock>,
) -> Result<Client, Error> {
    let series = HomeSeries::register(metrics);
    let series = series.map_err(|source| Error::Metrics("the home cluster's client", source))?;
    let plugins = config.clusters.credential_plugins.clone();
    let (client, clock) = (home_followed(config, plugins, Arc::clone(clock)), Arc::clone(clock));
    let making = liveness.handle().spawn(async move { Ok(series.measure(client.await?, clock)) });
    let made = making.await.map_err(|_| Error::Ended("the creation of the home client"))?;
    made.map_err(|source| Error::Home { source })
}

/// A client for the home cluster, whose connections run on the runtime that polls this. Its kubeconfig may run
/// these programs.
pub(crate) fn home_client(
    config: &Config,
    plugins: Plugins,
    clock: Arc<dyn Clock>,
) -> impl Future<Output = Result<Client, Arc<Unusable>>> + Send + use<> {
    let followed = home_followed(config, plugins, clock);
    async move { Ok(followed.await?.client) }
}

fn home_followed(
    config: &Config,
    plugins: Plugins,
    clock: Arc<dyn Clock>,
) -> impl Future<Output = Result<Followed, Arc<Unusable>>> + Send + use<> {
    let home = config.home.clone();
    async move {
        match home {
            Home::InCluster => clusters::client_in_cluster(clock).await,
            Home::Kubeconfig { path, context, allow } => {
                let trust = Trust { plugins, allowed: allow, contained: false };
                clusters::client_from_kubeconfig(&path, context.as_deref(), trust, clock).await
            }
        }
    }
}

fn providers(config: &Config, home: &Client) -> Vec<Box<dyn ClusterProvider>> {
    let ClusterSources { in_cluster, kubeconfigs, directories, secrets, credential_plugins } =
        config.clusters.clone();
    // Those whose authors are the configuration's come first: nobody else takes a name from them.
    let in_cluster = in_cluster.into_iter().map(|name| InCluster::new(name).provider());
    let files = kubeconfigs.into_iter().map(|source| {
        let KubeconfigSource { path, contexts, allow, budget } = source;
        let plugins = credential_plugins.clone();
        let trust = Trust { plugins, allowed: allow, contained: false };
        budgeted(KubeconfigFile::new(path, contexts).trusted(trust).provider(), budget)
    });
    let folders = directories.into_iter().map(|source| {
        let DirectorySource { path, prefix, max_clusters, allow, budget } = source;
        let terms = Terms { prefix, quota: max_clusters, allow };
        budgeted(Directory::new(path).terms(terms).provider(), budget)
    });
    let secrets = secrets.into_iter().map(|source| {
        let SecretSource { selector, namespace, prefix, max_clusters, allow, budget } = source;
        let namespace = namespace.unwrap_or_else(|| config.namespace.clone());
        let secrets = Secrets::new(home.clone(), &namespace, &selector);
        let terms = Terms { prefix, quota: max_clusters, allow };
        budgeted(secrets.terms(terms).provider(), budget)
    });
    in_cluster.chain(files).chain(folders).chain(secrets).collect()
}

/// The clusters of a configuration, for whoever only looks: without marks and metrics.
///
/// # Errors
/// Of the metrics library, which gets a registry of its own here.
#[cfg(feature = "cli")]
pub(crate) fn registry(
    config: &Config,
    home: &Client,
    stop: &CancellationToken,
) -> Result<Clusters, prometheus::Error> {
    let labels = Arc::new(ClusterLabels::new(config.cluster_labels));
    let metrics = (&prometheus::Registry::new(), labels);
    let clock = Arc::new(clock::SystemClock);
    let (providers, undisputed) = (providers(config, home), watch::channel(Arc::default()).1);
    Registry::spawn(providers, Probing::On, None, undisputed, stop.clone(), metrics, clock)
}

/// What the clusters are marked with; nothing if there is nothing to do in them, or nobody wants it.
async fn marker(
    config: &Config,
    specs: &[ControllerSpec],
    home: &Client,
    living: watch::Receiver<Arc<Living>>,
    stop: &CancellationToken,
) -> Option<Marker> {
    let claim = claim(specs);
    if !config.mark_clusters || claim.is_empty() {
        return None;
    }
    let namespace = config.namespace.clone();
    Some(Marker {
        fleet: fleet_id::follow(home.clone(), namespace.clone(), stop.clone()).await,
        installation: config.installation.clone(),
        namespace,
        by: config.identity.clone(),
        claim,
        living,
    })
}

/// What these controllers do in each cluster. What a controller selects objects by follows its name.
fn claim(specs: &[ControllerSpec]) -> Claim {
    let of = |spec: &ControllerSpec| {
        let primary = || spec.sources.iter().filter(|source| matches!(source.role, Role::Primary));
        let namespaces: Option<_> =
            primary().map(|source| source.scope.namespace.clone()).collect();
        let selects = |source: &Source| {
            let engine::Scope { labels, fields, .. } = &source.scope;
            let all = [labels.to_string(), fields.clone()];
            all.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(";")
        };
        let selected = primary().map(selects).next().unwrap_or_default();
        let name = match selected.is_empty() {
            true => spec.name().to_string(),
            false => format!("{}[{selected}]", spec.name()),
        };
        (name, namespaces.unwrap_or_default())
    };
    specs.iter().map(of).collect()
}

fn sharding_config(
    config: &Config,
    traits: BTreeMap<GroupName, GroupTraits>,
    owner: Option<OwnerReference>,
) -> sharding::Config {
    let groups = traits.keys().cloned().collect();
    sharding::Config {
        container: sharding::own_container(clock::seed()),
        namespace: config.namespace.clone(),
        installation: config.installation.clone(),
        lease: config.lease,
        drain_timeout: config.drain_timeout,
        capacity: config.capacity,
        zone: config.zone.clone(),
        traits,
        owner,
        ..sharding::Config::new(&config.identity, groups, clock::seed())
    }
}

/// The reference to the configured owner. A home cluster that does not answer, or has too much to do, is
/// asked again; that there is no such owner, or that it may not be read, is an error.
async fn owner(home: &Client, config: &Config) -> Result<Option<OwnerReference>, Error> {
    let Some(OwnerObject { api_version, kind, name }) = &config.owner else { return Ok(None) };
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api: Api<DynamicObject> = Api::namespaced_with(home.clone(), &config.namespace, &resource);
    loop {
        let reason = match tokio::time::timeout(OWNER_TIMEOUT, api.get(name)).await {
            Ok(Ok(object)) => {
                return Ok(Some(OwnerReference {
                    api_version: api_version.clone(),
                    kind: kind.clone(),
                    name: name.clone(),
                    uid: object.metadata.uid.unwrap_or_default(),
                    ..OwnerReference::default()
                }));
            }
            Ok(Err(source @ kube::Error::Api(_))) if is_final(&source) => {
                return Err(Error::Owner {
                    kind: kind.clone(),
                    name: name.clone(),
                    namespace: config.namespace.clone(),
                    source: Box::new(source),
                });
            }
            Ok(Err(error)) => model::error::chain(&error),
            Err(_) => format!("no answer within {}s", OWNER_TIMEOUT.as_secs()),
        };
        warn!("the start waits for the home cluster, which gives no answer: {reason}");
        tokio::time::sleep(OWNER_RETRY).await;
    }
}

/// Whether asking again would bring the same answer.
fn is_final(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 403 | 404))
}

/// Logs one line for the clusters and one for each controller group, with what joins it.
fn announce(set: &ClusterSet, specs: &[ControllerSpec]) {
    let down = set.clusters.values().filter(|s| matches!(s, ClusterState::Down(_))).count();
    info!(engaged = set.clusters.len() - down, down, "clusters read");
    for (group, [controllers, joined_by]) in described(specs) {
        info!(%group, controllers, joined_by, "controller group");
    }
}

/// What to say of budgets for clusters that are not there.
fn unused(budgets: &Budgets, set: &ClusterSet) -> Option<String> {
    let names = budgets.named.keys().filter(|name| !set.clusters.contains_key(*name));
    let names: Vec<_> = names.map(ClusterName::as_str).collect();
    (!names.is_empty()).then(|| {
        format!(
            "budget.clusters of the configuration has {}, and no cluster is called so now; fix: correct the name, \
             unless its cluster comes later",
            names.join(", ")
        )
    })
}

/// The controllers of every group, and the kinds that join them with who watches each.
fn described(specs: &[ControllerSpec]) -> BTreeMap<GroupName, [String; 2]> {
    let inputs: Vec<_> = specs.iter().map(ControllerSpec::group_input).collect();
    let mut result: BTreeMap<GroupName, [String; 2]> = BTreeMap::new();
    for (controller, group) in model::group::groups(&inputs) {
        let [controllers, _] = result.entry(group).or_default();
        let comma = if controllers.is_empty() { "" } else { ", " };
        *controllers += &format!("{comma}{controller}");
    }
    for (group, kinds) in model::group::joined(&inputs) {
        let kind = |(kind, names): (String, Vec<ControllerName>)| {
            let names: Vec<_> = names.iter().map(ControllerName::as_str).collect();
            format!("{kind} ({})", names.join(", "))
        };
        let kinds: Vec<_> = kinds.into_iter().map(kind).collect();
        if let Some([_, joined_by]) = result.get_mut(&group) {
            *joined_by = kinds.join(", ");
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_claim_says_what_controllers_select() {
        use k8s_openapi::api::core::v1::ConfigMap;
        use sdk::{Action, Context, Controller, ReconcileError, Reconciler};
        struct Idle;
        impl Reconciler for Idle {
            type Kind = ConfigMap;
            async fn reconcile(
                &self,
                _: &Context,
                _: &model::ObjectKey,
            ) -> Result<Action, ReconcileError> {
                Ok(Action::Done)
            }
        }
        let named = Controller::for_kind::<ConfigMap>;
        let specs = [
            named("all").reconciler(Idle),
            named("some").namespaces(["a", "b"]).reconciler(Idle),
            named("labelled").selector("x=y".parse().unwrap()).reconciler(Idle),
            named("fielded").fields("metadata.name=a").namespace("c").reconciler(Idle),
        ];
        let of = |namespaces: &[&str]| namespaces.iter().map(|&name| name.to_owned()).collect();
        let expected = [
            ("all".to_owned(), of(&[])),
            ("some".to_owned(), of(&["a", "b"])),
            ("labelled[x=y]".to_owned(), of(&[])),
            ("fielded[metadata.name=a]".to_owned(), of(&["c"])),
        ];
        assert_eq!(claim(&specs), expected.into_iter().collect());
    }

    /// Each row is a choice of controllers. A new watch that joins two groups takes shards from fleets that had
    /// both, and weighs all of their controllers as one: it is a decision, and this table says so.
    #[cfg(feature = "controllers")]
    #[test]
    fn the_groups_of_the_built_in_controllers() {
        for (names, expect) in [
            ("configmonitor tdset", &["configmonitor: configmonitor; ", "tdset: tdset; "][..]),
            (
                "configmonitor restart-pods",
                &["configmonitor: configmonitor; ", "restart-pods: restart-pods; "],
            ),
            (
                "blogpost memcached restart-pods",
                &["blogpost: blogpost; ", "memcached: memcached; ", "restart-pods: restart-pods; "],
            ),
            (
                "configmonitor memcached",
                &["configmonitor: configmonitor; ", "memcached: memcached; "],
            ),
            (
                "restart-pods sqs tdset tunnel",
                &[
                    "restart-pods: restart-pods; ",
                    "sqs: sqs; ",
                    "tdset: tdset; ",
                    "tunnel: tunnel, tunnel-service, tunnel-sweep; \
                     ConfigMap (tunnel, tunnel-service, tunnel-sweep), \
                     inlets.inlets.dev/Tunnel (tunnel, tunnel-service)",
                ],
            ),
            (
                "configmonitor etcd memcached mysql",
                &[
                    "configmonitor: configmonitor; ",
                    "etcd: etcd, etcd-restore, etcd-schedule, etcd-snapshot, memcached, mysql, mysql-backup, \
                   mysql-schedule; \
                   PersistentVolumeClaim (etcd, mysql), \
                   Pod (etcd, memcached, mysql), Service (etcd, memcached, mysql), \
                   apps/StatefulSet (memcached, mysql), batch/Job (etcd-snapshot, etcd-restore, mysql-backup), \
                   cr.mysqloperator.grtl.github.com/MySQLBackup (mysql, mysql-backup, mysql-schedule), \
                   cr.mysqloperator.grtl.github.com/MySQLCluster (mysql, mysql-backup), \
                   data.leasehold.dev/EtcdCluster (etcd, etcd-snapshot, etcd-schedule, etcd-restore), \
                   data.leasehold.dev/EtcdSnapshot (etcd-snapshot, etcd-schedule), \
                   policy/PodDisruptionBudget (etcd, memcached, mysql)",
                ],
            ),
        ] {
            let specs: Vec<_> =
                names.split(' ').flat_map(|name| controllers::build(name, 1)).collect();
            let row = |(group, [controllers, joined_by]): (GroupName, [String; 2])| {
                format!("{group}: {controllers}; {joined_by}")
            };
            let found: Vec<_> = described(&specs).into_iter().map(row).collect();
            assert_eq!(found, expect);
        }
    }

    /// `leasehold run` takes a configuration that names no controllers as one that names none.
    #[cfg(feature = "controllers")]
    #[test]
    fn of_the_built_in_controllers_only_those_run_that_are_named() {
        let all = || controllers::all().flat_map(|name| controllers::build(name, 1)).collect();
        let mut config = Config::new(Home::InCluster, "a", ClusterSources::default());
        config.controllers.get_or_insert_default();
        assert!(chosen(all(), &config).unwrap().is_empty());
        let named = "configmonitor".parse().unwrap();
        config.controllers = Some([(named, ControllerSettings::default())].into());
        let names: Vec<_> =
            chosen(all(), &config).unwrap().into_iter().map(|spec| spec.name).collect();
        assert_eq!(names, ["configmonitor".parse().unwrap()]);
    }

    /// Who watches Secrets joins nobody: these groups are named.
    #[cfg(feature = "controllers")]
    #[test]
    fn watching_secrets_joins_no_groups() {
        let own = serde_json::json!({"watchSecrets": true});
        let restarting = ["configmonitor", "restart-pods"].into_iter().flat_map(|name| {
            controllers::get(name).map(|builtin| (builtin.build)(1, &own)).into_iter().flatten()
        });
        let others = controllers::BUILTINS.iter().filter(|builtin| builtin.name != "configmonitor");
        let others = others.filter(|builtin| builtin.name != "restart-pods");
        let others = others.flat_map(|builtin| controllers::build(builtin.name, 1));
        let specs: Vec<_> = restarting.chain(others).collect();
        let described = described(&specs);
        let of = |group: &str| described[&group.parse::<GroupName>().unwrap()][0].clone();
        assert_eq!(of("configmonitor"), "configmonitor");
        assert_eq!(of("restart-pods"), "restart-pods, restart-pods-secrets");
    }

    #[test]
    fn a_budget_for_no_cluster_is_told() {
        let budget = |name: &str| (name.parse().unwrap(), model::Budget::default());
        let named = ["east", "wset", "west"].map(budget).into();
        let budgets = Budgets { named, ..Budgets::default() };
        let down = |name: &str| (name.parse().unwrap(), ClusterState::Down("why".into()));
        let clusters = ["east", "west"].map(down).into();
        let told = unused(&budgets, &ClusterSet { clusters, ..ClusterSet::default() }).unwrap();
        assert!(told.starts_with("budget.clusters of the configuration has wset, and"), "{told}");
        assert_eq!(unused(&Budgets::default(), &ClusterSet::default()), None);
    }

    #[test]
    fn only_a_missing_owner_or_right_ends_the_start() {
        for (code, expect) in
            [(403, true), (404, true), (401, false), (429, false), (500, false), (503, false)]
        {
            let error = kube::Error::Api(Status::failure("why", "x").with_code(code).boxed());
            assert_eq!(is_final(&error), expect, "{code}");
        }
    }
}
