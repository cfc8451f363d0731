//! The file's sections, one function each, and the rules that span several values. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use clusters::{DEFAULT_QUOTA, Plugin, Plugins, Risk};
use model::labels::{DEFAULT_CLUSTER_LABELS, MAX_CLUSTER_LABELS};
use model::{Budget, ControllerName, Prefix};
use serde_json::{Map, Value};
use sharding::{LeaseTimings, MAX_LEASE};
use telemetry::{LogConfig, OtlpConfig};
use upstream::UpstreamLimits;

use super::budget::{budgets, of_authors, of_source};
use super::problem::Problem;
use super::reader::{Notes, Section, unknown};
use super::{
    AdminServer, AdminSettings, AdminTls, Authorization, ClusterSources, Config,
    ControllerSettings, DirectorySource, Environment, Home, KubeconfigSource, OwnerObject,
    SecretSource, values,
};
use crate::builtin;

/// The longest identity: the id of a member adds a suffix to it, and is at most 63.
pub const MAX_IDENTITY_CHARS: usize = 57;
/// The most clusters of one folder.
const MAX_QUOTA: u64 = 16_384;
/// The most reconciles at once of one controller.
const MAX_WORKERS: u64 = 256;
/// The most namespaces of one controller: each is watched by itself, in every cluster.
const MAX_NAMESPACES: usize = 100;
/// Shorter Leases would fail on an ordinary hiccup of an API server.
const MIN_LEASE: Duration = Duration::from_secs(3);
const MIN_RENEW: Duration = Duration::from_secs(1);
const MAX_WAIT: Duration = Duration::from_secs(3600);
/// The most requests a second and at once, to one cluster.
const MAX_REQUESTS: u64 = 100_000;
/// The bounds of the pause after failures of a cluster.
const MIN_PAUSE: Duration = Duration::from_millis(100);
const MAX_PAUSE: Duration = Duration::from_secs(600);
/// What an exit takes beyond its drain and a Lease: to release the Lease and stop servers.
const EXIT_MARGIN: Duration = Duration::from_secs(5);

/// A configuration from the text of its file, which may name the controllers in `known`.
///
/// # Errors
/// Every problem found; at least one.
pub fn parse(text: &str, env: &Environment, known: &[&str]) -> Result<Config, Vec<Problem>> {
    read(text, env, known, &[])
}

/// As [`parse`]; what the file says of the controllers in `skipped` that are not `known` is skipped.
pub(super) fn read(
    text: &str,
    env: &Environment,
    known: &[&str],
    skipped: &[&str],
) -> Result<Config, Vec<Problem>> {
    let options = serde_saphyr::options! { with_snippet: false };
    let value: Value = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        // The library's other words tell programmers which of its options to set.
        let why = error.render_with_formatter(&serde_saphyr::UserMessageFormatter);
        vec![Problem::new("", format!("is not YAML: {why}"))]
    })?;
    let notes = Notes::default();
    let config = file(Section::root(&value, &notes), env, known, skipped);
    let problems = notes.into_problems();
    match config {
        Some(config) if problems.is_empty() => Ok(config),
        _ => Err(problems),
    }
}

/// `None` only with a problem noted.
fn file(root: Section<'_>, env: &Environment, known: &[&str], skipped: &[&str]) -> Option<Config> {
    let home = home(&root, env);
    let namespace = root.value("namespace", values::namespace);
    let installation: Option<model::MemberId> = root.value("installation", values::name);
    let identity = identity(&root, env);
    let capacity = root.value("capacity", values::whole(1..=1000));
    let zone: Option<model::GroupName> = root.value("zone", values::name);
    let zone = zone.or_else(|| env.zone.as_ref()?.parse().ok()).map(|zone| zone.to_string());
    let owner = owner(&root);
    let budgets = budgets(&root);
    let (clusters, mark_clusters) = clusters(&root, env, budgets.each);
    let controllers = controllers(&root, known, skipped);
    let lease = lease(&root);
    let upstream = upstream(&root);
    let stamp_epochs = fence(&root);
    let waits = waits(&root, lease);
    let admin = admin(&root, env);
    let telemetry = telemetry_section(&root, identity.as_deref().unwrap_or_default());
    let journal = root.value("journal", values::text).map(|path| env.dir.join(path));
    root.finish();
    let defaults = Config::new(home?, identity?, clusters);
    Some(Config {
        namespace: namespace.unwrap_or(defaults.namespace),
        installation: installation.map_or(defaults.installation, |name| name.to_string()),
        capacity: capacity.map_or(defaults.capacity, |capacity| capacity as u32),
        zone,
        owner,
        controllers,
        lease,
        upstream,
        budgets,
        stamp_epochs,
        mark_clusters,
        drain_timeout: waits.0,
        shutdown_grace_period: waits.1,
        admin: Some(admin),
        log: telemetry.log,
        otlp: telemetry.otlp,
        cluster_labels: telemetry.cluster_labels,
        journal,
        ..defaults
    })
}

fn home(root: &Section<'_>, env: &Environment) -> Option<Home> {
    if !root.has("home") {
        root.problem(
            "home",
            "missing; allowed: {kubeconfig: FILE, context: NAME, allow: [...]} or {inCluster: true}",
        );
        return None;
    }
    let section = root.section("home");
    let in_cluster = section.value("inCluster", values::flag).unwrap_or(false);
    let kubeconfig = section.value("kubeconfig", values::text);
    let context = section.value("context", values::text);
    let allow = allow(&section);
    let home = match (in_cluster, kubeconfig) {
        (true, None) if context.is_none() => Some(Home::InCluster),
        (false, Some(path)) => Some(Home::Kubeconfig { path: env.dir.join(path), context, allow }),
        (true, _) => {
            root.problem("home", "inCluster and a kubeconfig are given; allowed: one of them");
            None
        }
        // A value that was not allowed has been noted already.
        (false, None) => {
            if !section.has("kubeconfig") {
                root.problem("home", "names no cluster; allowed: a kubeconfig, or inCluster: true");
            }
            None
        }
    };
    section.finish();
    home
}

fn identity(root: &Section<'_>, env: &Environment) -> Option<String> {
    let allowed = format!(
        "1 to {MAX_IDENTITY_CHARS} of a-z, 0-9, '-' and '.', each part between dots beginning and ending with a letter or digit"
    );
    let good =
        |text: &str| text.len() <= MAX_IDENTITY_CHARS && text.parse::<model::MemberId>().is_ok();
    if root.has("identity") {
        return root.value("identity", |value| {
            let text = value.as_str().filter(|text| good(text));
            text.map(str::to_owned).ok_or_else(|| allowed.clone())
        });
    }
    let host = || env.hostname.as_deref().map(str::to_lowercase);
    let found = env.pod_name.clone().or_else(host).unwrap_or_default();
    if !good(&found) {
        let source = if env.pod_name.is_some() { "$POD_NAME" } else { "the host's name" };
        root.problem(
            "identity",
            format!("missing, and {source} {found:?} will not do; allowed: {allowed}"),
        );
        return None;
    }
    Some(found)
}

fn owner(root: &Section<'_>) -> Option<OwnerObject> {
    if !root.has("owner") {
        return None;
    }
    let section = root.section("owner");
    let need = |key: &'static str| required(&section, key, "a text");
    let (api_version, kind, name) = (need("apiVersion"), need("kind"), need("name"));
    section.finish();
    Some(OwnerObject { api_version: api_version?, kind: kind?, name: name? })
}

/// Where clusters come from, and whether they are marked.
fn clusters(root: &Section<'_>, env: &Environment, each: Budget) -> (ClusterSources, bool) {
    let section = root.section("clusters");
    let mut seen = BTreeSet::new();
    let kubeconfigs = section
        .sections("kubeconfigs")
        .into_iter()
        .filter_map(|entry| {
            let source = kubeconfig(&entry, env, each);
            if let Some(source) = &source
                && !seen.insert(source.path.clone())
            {
                entry.problem(
                    "path",
                    "the same file twice; allowed: one entry with all its contexts",
                );
            }
            entry.finish();
            source
        })
        .collect();
    let mut prefixes = BTreeSet::new();
    let directories = directories(&section, env, each, &mut prefixes);
    let secrets = secrets(&section, each, &mut prefixes);
    let in_cluster = section.value("inCluster", values::name);
    let known = ["inCluster", "kubeconfigs", "directories", "directory", "secrets"];
    if !known.into_iter().any(|key| section.has(key)) {
        root.problem(
            "clusters",
            "names no cluster; allowed: at least one of inCluster, kubeconfigs, directories, directory, secrets",
        );
    }
    let plugins = section.sections("credentialPlugins").into_iter().filter_map(plugin).collect();
    let credential_plugins = Plugins::Listed(plugins);
    let mark = section.value("mark", values::flag).unwrap_or(true);
    section.finish();
    let sources =
        ClusterSources { in_cluster, kubeconfigs, directories, secrets, credential_plugins };
    (sources, mark)
}

/// `directory: PATH` is one without anything else.
fn directories(
    section: &Section<'_>,
    env: &Environment,
    each: Budget,
    prefixes: &mut BTreeSet<Prefix>,
) -> Vec<DirectorySource> {
    let listed = section.sections("directories").into_iter().filter_map(|entry| {
        let path = required(&entry, "path", "the path of a folder of kubeconfigs");
        let (prefix, max_clusters) = strangers(&entry, prefixes);
        let (allow, budget) = (allow(&entry), of_source(&entry, each));
        entry.finish();
        Some(DirectorySource { path: env.dir.join(path?), prefix, max_clusters, allow, budget })
    });
    let listed: Vec<_> = listed.collect();
    let single = section.value("directory", values::text);
    let single = single.map(|path| DirectorySource::new(env.dir.join(path)));
    single.into_iter().chain(listed).collect()
}

fn secrets(
    section: &Section<'_>,
    each: Budget,
    prefixes: &mut BTreeSet<Prefix>,
) -> Vec<SecretSource> {
    let listed = section.sections("secrets").into_iter().filter_map(|entry| {
        let selector =
            required(&entry, "selector", "a label selector, as in leasehold.dev/cluster");
        let namespace = entry.value("namespace", values::namespace);
        let (prefix, max_clusters) = strangers(&entry, prefixes);
        let (allow, budget) = (allow(&entry), Some(of_authors(&entry, each)));
        entry.finish();
        let selector = selector?;
        Some(SecretSource { selector, namespace, prefix, max_clusters, allow, budget })
    });
    listed.collect()
}

/// The prefix and quota of a source whose authors are not those of this file.
fn strangers(entry: &Section<'_>, prefixes: &mut BTreeSet<Prefix>) -> (Option<Prefix>, usize) {
    let prefix = entry.value("prefix", values::prefix);
    if let Some(prefix) = &prefix
        && !prefixes.insert(prefix.clone())
    {
        entry.problem("prefix", "the same prefix twice; allowed: one of its own for each source");
    }
    let quota = entry.value("maxClusters", values::whole(1..=MAX_QUOTA));
    (prefix, quota.map_or(DEFAULT_QUOTA, |quota| quota as usize))
}

/// A text that must be there.
fn required(section: &Section<'_>, key: &'static str, what: &str) -> Option<String> {
    let found = section.value(key, values::text);
    if !section.has(key) {
        section.problem(key, format!("missing; allowed: {what}"));
    }
    found
}

/// The risks that are taken for a source of kubeconfigs.
fn allow(section: &Section<'_>) -> BTreeSet<Risk> {
    section.list("allow", values::risk).unwrap_or_default().into_iter().collect()
}

fn plugin(entry: Section<'_>) -> Option<Plugin> {
    let command = required(&entry, "command", "the program, as the kubeconfig names it");
    let args = entry.list("args", values::string).unwrap_or_default();
    let env = entry.values("env", values::string);
    let pass_env = entry.list("passEnv", values::text).unwrap_or_default().into_iter().collect();
    entry.finish();
    Some(Plugin { command: command?, args, env, pass_env })
}

fn kubeconfig(entry: &Section<'_>, env: &Environment, each: Budget) -> Option<KubeconfigSource> {
    let path = required(entry, "path", "the path of a kubeconfig").map(|path| env.dir.join(path));
    let contexts = entry.list("contexts", values::text);
    if contexts.as_ref().is_some_and(Vec::is_empty) && entry.has("contexts") {
        entry.problem(
            "contexts",
            "an empty list; allowed: names of contexts, or no list for every context",
        );
    }
    let (allow, budget) = (allow(entry), of_source(entry, each));
    Some(KubeconfigSource { path: path?, contexts, allow, budget })
}

fn controllers(
    root: &Section<'_>,
    known: &[&str],
    skipped: &[&str],
) -> Option<BTreeMap<ControllerName, ControllerSettings>> {
    if !root.has("controllers") {
        return None;
    }
    let section = root.section("controllers");
    let mut settings = BTreeMap::new();
    for (name, entry) in section.named() {
        if !known.contains(&name) {
            if !skipped.contains(&name) {
                section.problem(name, absent(name, known));
            }
            continue;
        }
        let workers = entry.value("workers", values::whole(1..=MAX_WORKERS));
        let namespaces = namespaces(&entry);
        let own = builtin::keys(name).iter();
        let own = own.filter_map(|&key| Some((key.to_owned(), entry.value(key, any)?)));
        let own: Map<_, _> = own.collect();
        let own = if own.is_empty() { Value::Null } else { Value::Object(own) };
        if let Err(problem) = builtin::check(name, &own) {
            section.problem(name, problem);
        }
        entry.finish();
        if let Ok(name) = name.parse() {
            let workers = workers.map(|n| n as usize);
            settings.insert(name, ControllerSettings { namespaces, workers, own });
        }
    }
    Some(settings)
}

/// Why a controller does not run here.
fn absent(name: &str, known: &[&str]) -> String {
    match builtin::ALL.contains(&name) {
        true => format!(
            "this program was built without it; build it with the feature {name}, or with controllers for \
             all of them, or take it out here"
        ),
        false => unknown(name, known).replace("unknown key", "unknown controller"),
    }
}

/// A value that somebody else checks.
fn any(value: &Value) -> Result<Value, String> {
    Ok(value.clone())
}

/// The namespaces of a controller.
fn namespaces(entry: &Section<'_>) -> Option<BTreeSet<String>> {
    let namespaces = entry.list("namespaces", values::namespace)?;
    if !(1..=MAX_NAMESPACES).contains(&namespaces.len()) {
        let allowed = format!(
            "found {} names; allowed: 1 to {MAX_NAMESPACES}, or no such key for all namespaces",
            namespaces.len()
        );
        entry.problem("namespaces", allowed);
    }
    Some(namespaces.into_iter().collect())
}

fn lease(root: &Section<'_>) -> LeaseTimings {
    let section = root.section("lease");
    let defaults = LeaseTimings::default();
    let whole_seconds = |value: &Value| {
        let duration = values::duration(MIN_LEASE..=MAX_LEASE)(value)?;
        // A Lease says its duration in seconds.
        let whole = duration.subsec_nanos() == 0;
        if whole { Ok(duration) } else { Err("a whole number of seconds, as in 8s".to_owned()) }
    };
    let duration = section.value_or("duration", whole_seconds, defaults.duration);
    let renew = values::duration(MIN_RENEW..=MAX_LEASE);
    let renew_interval = section.value_or("renewInterval", renew, defaults.renew_interval);
    let margin = defaults.margin;
    let timings = duration.zip(renew_interval).map(|(duration, renew_interval)| LeaseTimings {
        duration,
        renew_interval,
        margin,
    });
    if let Some(misfit) = timings.and_then(misfit) {
        section.problem("renewInterval", misfit);
    }
    section.finish();
    timings.unwrap_or(defaults)
}

/// Why the timings contradict each other, if they do.
fn misfit(timings: LeaseTimings) -> Option<String> {
    let LeaseTimings { duration, renew_interval, margin } = timings;
    (duration <= renew_interval * 2 + margin).then(|| {
        format!(
            "found {} with a duration of {}; allowed: less than {}, so that one renewal may fail \
             (twice the interval and a margin of {} must fit into the duration)",
            values::show(renew_interval),
            values::show(duration),
            values::show(duration.saturating_sub(margin) / 2),
            values::show(margin),
        )
    })
}

fn upstream(root: &Section<'_>) -> UpstreamLimits {
    let section = root.section("upstream");
    let defaults = UpstreamLimits::default();
    let count = |key: &'static str, default: u32| {
        let found = section.value(key, values::whole(1..=MAX_REQUESTS));
        found.and_then(|count| u32::try_from(count).ok()).unwrap_or(default)
    };
    let requests_per_second = count("requestsPerSecond", defaults.requests_per_second);
    let burst = count("burst", defaults.burst);
    let max_concurrency = count("maxConcurrency", defaults.max_concurrency);
    let pause =
        |key, default| section.value_or(key, values::duration(MIN_PAUSE..=MAX_PAUSE), default);
    let first = pause("firstPause", defaults.first_pause);
    let longest = pause("maxPause", defaults.max_pause.max(first.unwrap_or_default()));
    if let (Some(first), Some(longest)) = (first, longest)
        && longest < first
    {
        section.problem(
            "maxPause",
            format!(
                "found {} with a firstPause of {}; allowed: at least as much",
                values::show(longest),
                values::show(first),
            ),
        );
    }
    section.finish();
    let first_pause = first.unwrap_or(defaults.first_pause);
    let max_pause = longest.unwrap_or(defaults.max_pause);
    UpstreamLimits { requests_per_second, burst, max_concurrency, first_pause, max_pause }
}

fn fence(root: &Section<'_>) -> bool {
    let section = root.section("fence");
    let stamp_epochs = section.value("stampEpochs", values::flag).unwrap_or(false);
    section.finish();
    stamp_epochs
}

/// The drain timeout and the grace period. An exit drains, and then waits until its shards have been handed
/// over: if the coordinator dies meanwhile, until its Lease has run out and another has taken its place.
fn waits(root: &Section<'_>, lease: LeaseTimings) -> (Duration, Duration) {
    let bounds = || values::duration(Duration::from_secs(1)..=MAX_WAIT);
    let drain = root.value_or("drainTimeout", bounds(), Duration::from_secs(30));
    let least = drain.map_or(Duration::ZERO, |drain| drain + lease.duration + EXIT_MARGIN);
    let grace = root.value_or("shutdownGracePeriod", bounds(), least.max(Duration::from_secs(60)));
    if let (Some(drain), Some(grace)) = (drain, grace)
        && grace < least
    {
        root.problem(
            "shutdownGracePeriod",
            format!(
                "found {} with a drainTimeout of {} and a Lease of {}; allowed: at least {}, so that a drain \
                 may end and its shards be handed over",
                values::show(grace),
                values::show(drain),
                values::show(lease.duration),
                values::show(least),
            ),
        );
    }
    (drain.unwrap_or_default(), grace.unwrap_or_default())
}

/// The admin server. What others can reach says who may read it, and no token travels in the clear.
fn admin(root: &Section<'_>, env: &Environment) -> AdminServer {
    let section = root.section("admin");
    let bind = section.value_or("bind", values::address, ([127, 0, 0, 1], 8080).into());
    let bind = bind.unwrap_or_else(|| ([127, 0, 0, 1], 0).into());
    let tls = section.has("tls").then(|| tls(&section.section("tls"), env)).flatten();
    let authorization = section.value("authorization", values::authorization);
    let reachable = !bind.ip().is_loopback();
    if reachable && !section.has("authorization") {
        section.problem(
            "authorization",
            format!(
                "missing, and others can reach {bind}; allowed: home or inCluster, the cluster that says \
                 who may read metrics and debug views, or none for whoever reaches them"
            ),
        );
    }
    let authorization = authorization.unwrap_or_default();
    if reachable && authorization != Authorization::Nobody && !section.has("tls") {
        section.problem(
            "tls",
            format!(
                "missing, and others can read the tokens sent to {bind}; allowed: {TLS_ALLOWED}"
            ),
        );
    }
    section.finish();
    let section = root.section("probes");
    let probes = section.value("bind", values::address);
    if probes.is_some_and(|probes| probes == bind && probes.port() != 0) {
        section.problem("bind", "the address of admin.bind; allowed: one of its own");
    }
    section.finish();
    AdminServer { settings: AdminSettings { bind, probes, tls }, authorization }
}

const TLS_ALLOWED: &str = "{certificate: FILE, key: FILE} or {selfSigned: true}";

/// `None` only with a problem noted.
fn tls(section: &Section<'_>, env: &Environment) -> Option<AdminTls> {
    let file = |key| section.value(key, values::text).map(|path| env.dir.join(path));
    let self_signed = section.value("selfSigned", values::flag).unwrap_or(false);
    let tls = match (self_signed, file("certificate"), file("key")) {
        (true, None, None) => Some(AdminTls::SelfSigned),
        (false, Some(certificate), Some(key)) => Some(AdminTls::Files { certificate, key }),
        _ => None,
    };
    if tls.is_none() {
        section.problem("certificate", format!("not complete; allowed: {TLS_ALLOWED}"));
    }
    tls
}

struct Telemetry {
    log: LogConfig,
    otlp: Option<OtlpConfig>,
    cluster_labels: usize,
}

fn telemetry_section(root: &Section<'_>, instance: &str) -> Telemetry {
    let section = root.section("telemetry");
    let log_section = section.section("log");
    let defaults = LogConfig::default();
    let log = LogConfig {
        format: log_section.value("format", values::log_format).unwrap_or(defaults.format),
        filter: log_section.value("filter", values::log_filter).unwrap_or(defaults.filter),
    };
    log_section.finish();
    let otlp = section.has("otlp").then(|| otlp(&section.section("otlp"), instance)).flatten();
    let metrics = section.section("metrics");
    let cluster_labels = metrics.value("maxClusters", values::whole(0..=MAX_CLUSTER_LABELS as u64));
    metrics.finish();
    section.finish();
    let cluster_labels = cluster_labels.and_then(|most| usize::try_from(most).ok());
    let cluster_labels = cluster_labels.unwrap_or(DEFAULT_CLUSTER_LABELS);
    Telemetry { log, otlp, cluster_labels }
}

fn otlp(section: &Section<'_>, instance: &str) -> Option<OtlpConfig> {
    let endpoint = section.value("endpoint", values::endpoint);
    if !section.has("endpoint") {
        section.problem("endpoint", "missing; allowed: a URL, as in http://127.0.0.1:4317");
    }
    let sample_ratio = section.value("sampleRatio", values::share).unwrap_or(1.0);
    Some(OtlpConfig { endpoint: endpoint?, sample_ratio, instance: instance.to_owned() })
}
