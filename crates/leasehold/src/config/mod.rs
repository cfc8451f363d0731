//! The configuration of a manager: from the text of one YAML file to a validated [`Config`].
//!
//! Parsing reports every problem at once, each with its path, what was found and what is allowed.
//! Relative paths in the file are relative to the file's own folder. What the file leaves out comes
//! from the defaults here or from the [`Environment`]. `deploy/leasehold.example.yaml` shows every
//! key.

mod budget;
mod parse;
mod problem;
mod reader;
mod values;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use admin::{Settings as AdminSettings, Tls as AdminTls};
pub use clusters::{Plugin, Plugins, Risk};
pub use model::Prefix;
use model::labels::DEFAULT_CLUSTER_LABELS;
use model::{Budget, Budgets, ClusterName, ControllerName, SourceBudget};
use sharding::LeaseTimings;
use telemetry::{LogConfig, OtlpConfig};
use upstream::UpstreamLimits;

pub use parse::{MAX_IDENTITY_CHARS, parse};
pub use problem::{Problem, Problems};

/// The largest configuration file.
pub const MAX_CONFIG_BYTES: usize = 1 << 20;

/// The configuration of a manager.
#[derive(Clone, Debug)]
pub struct Config {
    /// The cluster that holds Leases, Members and ShardMaps.
    pub home: Home,
    /// The namespace that holds them.
    pub namespace: String,
    /// The installation: replicas with one configuration. Those of another take no part in its namespace.
    pub installation: String,
    /// The name of the process, the same after a restart: that of the Pod or the host.
    pub identity: String,
    /// How much load this replica takes, relative to the others.
    pub capacity: u32,
    /// The zone in which this process runs; FleetPolicies select replicas by it.
    pub zone: Option<String>,
    /// The owner of Members and their Leases in the home cluster: they are deleted with it.
    pub owner: Option<OwnerObject>,
    /// Where the workload clusters come from.
    pub clusters: ClusterSources,
    /// Whether clusters get this fleet's mark, and those with the mark of another fleet that runs the same
    /// controllers are refused.
    pub mark_clusters: bool,
    /// The controllers to run, by name; `None` for all with their defaults.
    pub controllers: Option<BTreeMap<ControllerName, ControllerSettings>>,
    /// The timings of Leases.
    pub lease: LeaseTimings,
    /// What this replica may ask of each workload cluster.
    pub upstream: UpstreamLimits,
    /// How much this replica keeps of its workload clusters.
    pub budgets: Budgets,
    /// Whether every write carries its epoch, for clusters with the admission policy.
    pub stamp_epochs: bool,
    /// How long reconciles may go on in a shard that is being handed over.
    pub drain_timeout: Duration,
    /// How long an orderly exit may take.
    pub shutdown_grace_period: Duration,
    /// Where probes and metrics are served; `None` for nowhere.
    pub admin: Option<AdminServer>,
    /// How log lines look.
    pub log: LogConfig,
    /// Where traces go.
    pub otlp: Option<OtlpConfig>,
    /// How many clusters have metric label values of their own; all others share one.
    pub cluster_labels: usize,
    /// A file that records every dispatch.
    pub journal: Option<PathBuf>,
}

/// How to reach the home cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Home {
    /// With a kubeconfig.
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// The context; `None` for the file's current one.
        context: Option<String>,
        /// The risks that are taken for it.
        allow: BTreeSet<Risk>,
    },
    /// As the Pod's ServiceAccount.
    InCluster,
}

/// Where the workload clusters come from. Of two clusters with one name, that of the first source counts,
/// in the order of these fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterSources {
    /// The name of the cluster we run in, if it is one of them.
    pub in_cluster: Option<ClusterName>,
    /// Kubeconfig files.
    pub kubeconfigs: Vec<KubeconfigSource>,
    /// Watched folders of kubeconfigs.
    pub directories: Vec<DirectorySource>,
    /// Watched Secrets of the home cluster.
    pub secrets: Vec<SecretSource>,
    /// The programs that kubeconfigs named by file, the home cluster's included, may run to get
    /// credentials, such as `aws`. Kubeconfigs of a folder may run none.
    pub credential_plugins: Plugins,
}

/// One kubeconfig file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeconfigSource {
    /// The file.
    pub path: PathBuf,
    /// The contexts; `None` for every one.
    pub contexts: Option<Vec<String>>,
    /// The risks that are taken for it.
    pub allow: BTreeSet<Risk>,
    /// How much is kept of each of its clusters; `None` for as much as of any other.
    pub budget: Option<Budget>,
}

/// One folder of kubeconfigs. They may run no credential programs, and the files that they name must lie
/// in the folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectorySource {
    /// The folder.
    pub path: PathBuf,
    /// What its clusters' names begin with.
    pub prefix: Option<Prefix>,
    /// The most clusters of it.
    pub max_clusters: usize,
    /// The risks that are taken for them.
    pub allow: BTreeSet<Risk>,
    /// How much is kept of each of its clusters; `None` for as much as of any other.
    pub budget: Option<Budget>,
}

impl DirectorySource {
    /// The folder at `path`, with no prefix and no risk taken.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        let (path, allow) = (path.into(), BTreeSet::new());
        Self { path, prefix: None, max_clusters: clusters::DEFAULT_QUOTA, allow, budget: None }
    }
}

/// Secrets of a namespace of the home cluster, each with a kubeconfig or of a form of Cluster API's or Argo
/// CD's. They may run no credential programs and name no files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretSource {
    /// Which Secrets, as in `kubectl get --selector`.
    pub selector: String,
    /// Their namespace; `None` for that of Leases and ShardMaps.
    pub namespace: Option<String>,
    /// What their clusters' names begin with.
    pub prefix: Option<Prefix>,
    /// The most clusters of them.
    pub max_clusters: usize,
    /// The risks that are taken for them.
    pub allow: BTreeSet<Risk>,
    /// How much is kept of each of them, and how much their authors may ask for; `None` for as much as of any other,
    /// and nothing else.
    pub budget: Option<SourceBudget>,
}

impl SecretSource {
    /// The Secrets that `selector` selects in the namespace of Leases and ShardMaps, with no prefix and no
    /// risk taken.
    pub fn new(selector: impl Into<String>) -> Self {
        let (selector, allow) = (selector.into(), BTreeSet::new());
        let max_clusters = clusters::DEFAULT_QUOTA;
        Self { selector, namespace: None, prefix: None, max_clusters, allow, budget: None }
    }
}

/// The settings of one controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControllerSettings {
    /// The namespaces it works in, in every cluster; `None` for all, or for those that the program names.
    pub namespaces: Option<BTreeSet<String>>,
    /// How many reconciles at once; `None` for the controller's own default.
    pub workers: Option<usize>,
    /// What a built-in controller alone understands, as the example of a configuration shows; null for
    /// nothing.
    pub own: serde_json::Value,
}

/// Where probes, metrics and debug views are served, and to whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminServer {
    /// The addresses and the certificate.
    pub settings: AdminSettings,
    /// Which cluster says who may read metrics and debug views.
    pub authorization: Authorization,
}

/// The cluster that reviews the tokens and rights of whoever asks for metrics and debug views.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Authorization {
    /// None: whoever reaches the port may read them.
    #[default]
    Nobody,
    /// The home cluster.
    Home,
    /// The cluster that this process runs in.
    InCluster,
}

impl From<SocketAddr> for AdminServer {
    /// Everything on this address, over plain HTTP, for whoever reaches it.
    fn from(bind: SocketAddr) -> Self {
        Self { settings: bind.into(), authorization: Authorization::Nobody }
    }
}

/// An object in our namespace of the home cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerObject {
    /// As in manifests: `v1`, `apps/v1`.
    pub api_version: String,
    /// As in manifests: `ServiceAccount`.
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// What a configuration takes from the process and its host.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    /// The folder that relative paths are relative to.
    pub dir: PathBuf,
    /// `$POD_NAME`.
    pub pod_name: Option<String>,
    /// `$LEASEHOLD_ZONE`.
    pub zone: Option<String>,
    /// The host's name.
    pub hostname: Option<String>,
}

impl Config {
    /// A configuration with every default, for a program that embeds the manager.
    pub fn new(home: Home, identity: impl Into<String>, clusters: ClusterSources) -> Self {
        Self {
            home,
            namespace: "leasehold-system".to_owned(),
            installation: sharding::DEFAULT_INSTALLATION.to_owned(),
            identity: identity.into(),
            capacity: 100,
            zone: None,
            owner: None,
            clusters,
            mark_clusters: true,
            controllers: None,
            lease: LeaseTimings::default(),
            upstream: UpstreamLimits::default(),
            budgets: Budgets::default(),
            stamp_epochs: false,
            drain_timeout: Duration::from_secs(30),
            shutdown_grace_period: Duration::from_secs(60),
            admin: None,
            log: LogConfig::default(),
            otlp: None,
            cluster_labels: DEFAULT_CLUSTER_LABELS,
            journal: None,
        }
    }

    /// Reads the file at `path`, which may name the controllers in `known`.
    ///
    /// # Errors
    /// Every problem of the file.
    pub fn load(path: &Path, known: &[&str]) -> Result<Self, Problems> {
        Self::load_with(path, known, &[])
    }

    /// As [`Self::load`], for a program that only looks for the home cluster: it does not need the controllers that
    /// replicas run, and may have been built without some of them.
    ///
    /// # Errors
    /// As [`Self::load`].
    #[cfg(feature = "cli")]
    pub(crate) fn load_for_home(path: &Path) -> Result<Self, Problems> {
        Self::load_with(path, &crate::builtin::names(), &crate::builtin::ALL)
    }

    fn load_with(path: &Path, known: &[&str], skipped: &[&str]) -> Result<Self, Problems> {
        let file = path.display().to_string();
        let text = read(path).map_err(|message| Problems {
            file: file.clone(),
            problems: vec![Problem::new("", message)],
        })?;
        parse::read(&text, &Environment::of_process(path), known, skipped)
            .map_err(|problems| Problems { file, problems })
    }
}

impl Environment {
    /// The environment of this process, for the configuration file at `path`.
    pub fn of_process(path: &Path) -> Self {
        let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let uname = rustix::system::uname();
        Self {
            dir: absolute.parent().unwrap_or(Path::new("/")).to_owned(),
            zone: std::env::var("LEASEHOLD_ZONE").ok(),
            pod_name: std::env::var("POD_NAME").ok().filter(|name| !name.is_empty()),
            hostname: uname.nodename().to_str().ok().map(str::to_owned),
        }
    }
}

fn read(path: &Path) -> Result<String, String> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| format!("cannot be read: {e}; give an existing file with --config"))?;
    if text.len() > MAX_CONFIG_BYTES {
        return Err(format!("is larger than {MAX_CONFIG_BYTES} bytes"));
    }
    Ok(text)
}
