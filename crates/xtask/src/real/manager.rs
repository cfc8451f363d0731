//! Replicas of the product as processes of this machine: `leasehold run`, the release binary.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Result, bail};
use kube::Client;
use model::{Range, ShardId};
use serde_json::{Value, json};

use super::control_plane::{ControlPlane, free_port};
use super::kubectl::Kubectl;
use super::process::Process;
use super::{Scene, kubectl, wait};

/// The namespace of the home cluster in which the replicas meet.
pub const NAMESPACE: &str = "leasehold-system";

/// An orderly exit: a drain, a handover, and the rest.
const EXIT_DEADLINE: Duration = Duration::from_secs(70);
const SETTLE_DEADLINE: Duration = Duration::from_secs(90);

/// One replica.
#[derive(Debug)]
pub struct Manager {
    identity: String,
    process: Process,
}

/// Who holds the shards, as told by the home cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shards {
    /// The owner of each shard that is owned and not on its way to another.
    pub owners: Vec<(String, String)>,
    /// Shards that nobody owns or that are being handed over.
    pub unsettled: usize,
}

impl Manager {
    /// Starts a replica that finds its home and the workload clusters through their administrators'
    /// kubeconfigs. `more` is merged into its configuration.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(
        scene: &Scene,
        identity: &str,
        home: &ControlPlane,
        clusters: &[&ControlPlane],
        more: &Value,
    ) -> Result<Self> {
        Self::start_with(scene, identity, home, clusters, more, &[])
    }

    /// [`Self::start`] with more in its environment.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start_with(
        scene: &Scene,
        identity: &str,
        home: &ControlPlane,
        clusters: &[&ControlPlane],
        more: &Value,
        environment: &[(&str, &Path)],
    ) -> Result<Self> {
        let kubeconfigs: Vec<Value> =
            clusters.iter().map(|cluster| json!({"path": cluster.kubeconfig})).collect();
        let mut config = json!({
            "home": {"kubeconfig": home.kubeconfig, "context": home.name()},
            "namespace": NAMESPACE,
            "identity": identity,
            "clusters": {"kubeconfigs": kubeconfigs},
            "controllers": {"tdset": {"workers": 4}, "configmonitor": {"workers": 2}},
            "admin": {"bind": format!("127.0.0.1:{}", free_port()?)},
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            config[key] = value.clone();
        }
        let mut command = Command::new(scene.tools().leasehold());
        command.arg("run").envs(environment.iter().copied());
        Self::spawn(scene, identity, command, &config)
    }

    /// Starts `command` as a replica, with a file of `config` in a folder named after it.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn spawn(
        scene: &Scene,
        identity: &str,
        mut command: Command,
        config: &Value,
    ) -> Result<Self> {
        let dir = scene.dir().join(identity);
        fs::create_dir_all(&dir)?;
        let file = dir.join("config.yaml");
        fs::write(&file, serde_json::to_string_pretty(config)?)?;
        command.args([Path::new("--config"), &file]).current_dir(&dir);
        let process = Process::spawn(identity, &command, &scene.logs())?;
        Ok(Self { identity: identity.to_owned(), process })
    }

    /// What it is called; the names of its members begin with it.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Whether `member` is one of its incarnations.
    pub fn is(&self, member: &str) -> bool {
        member.strip_prefix(&self.identity).is_some_and(|suffix| suffix.starts_with('-'))
    }

    /// The process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Asks it to leave and waits until it has.
    ///
    /// # Errors
    /// If it does not leave in time.
    pub async fn leave(&mut self) -> Result<ExitStatus> {
        self.process.terminate(EXIT_DEADLINE).await
    }

    /// Fails if it has ended.
    ///
    /// # Errors
    /// If it has ended.
    pub fn check_alive(&mut self) -> Result<()> {
        self.process.check_alive()
    }
}

/// Gives `user` the rights of a built-in controller, as the chart does.
///
/// # Errors
/// If the cluster refuses.
pub async fn grant(kubectl: &Kubectl, controller: &str, user: &str) -> Result<()> {
    let rules = format!("deploy/charts/leasehold/files/rbac/{controller}.yaml");
    let rules = fs::read_to_string(xtask::root().join(rules))?;
    let role = format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\n\
         metadata: {{name: {controller}}}\nrules:\n{rules}"
    );
    kubectl.apply(&role).await?;
    let (role, user) = (format!("--clusterrole={controller}"), format!("--user={user}"));
    kubectl.run(&["create", "clusterrolebinding", controller, &role, &user]).await?;
    Ok(())
}

/// Reads the ShardMaps of the home cluster.
///
/// # Errors
/// If they cannot be read.
pub async fn shards(home: &Client) -> Result<Shards> {
    let path = format!("/apis/leasehold.dev/v1alpha1/namespaces/{NAMESPACE}/shardmaps");
    let mut shards = Shards::default();
    for map in kubectl::list(home, &path).await? {
        let cluster = map["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        for entry in map["spec"]["shards"].as_array().into_iter().flatten() {
            match (entry["owner"].as_str(), entry["phase"].as_str()) {
                (Some(owner), Some("Owned")) => {
                    let shard = format!("{cluster}/{}", entry["shard"].as_str().unwrap_or("?"));
                    shards.owners.push((shard, owner.to_owned()));
                }
                _ => shards.unsettled += 1,
            }
        }
    }
    Ok(shards)
}

impl Shards {
    /// How many controller groups of a cluster have an owner for each of their objects, by one shard or
    /// by several that divide them.
    ///
    /// # Errors
    /// If a shard has no name of a shard.
    pub fn whole(&self) -> Result<usize> {
        let mut widths = BTreeMap::<_, u128>::new();
        for (shard, _) in &self.owners {
            let ShardId { cluster, group, range } = shard.parse()?;
            let (first, end) = range.bounds();
            *widths.entry((cluster, group)).or_default() += end - first;
        }
        let (first, end) = Range::WHOLE.bounds();
        Ok(widths.into_values().filter(|width| *width == end - first).count())
    }
}

/// Waits until exactly `count` shards are owned and settled, by living replicas of `managers`
/// only, each of which has at least one if there are enough.
///
/// # Errors
/// If that does not come about, or a replica ends.
pub async fn settled(home: &Client, count: usize, managers: &mut [Manager]) -> Result<Shards> {
    let mut last = Shards::default();
    let what = format!("{count} shards to be shared by {} replicas", managers.len());
    let outcome = wait::until(SETTLE_DEADLINE, &what, async || {
        managers.iter_mut().try_for_each(Manager::check_alive)?;
        last = match shards(home).await {
            Err(error) if is_warming_up(&error) => return Ok(None),
            answer => answer?,
        };
        let known = |owner: &str| managers.iter().any(|manager| manager.is(owner));
        let busy = managers.iter().filter(|m| last.owners.iter().any(|(_, owner)| m.is(owner)));
        let complete = last.unsettled == 0
            && last.owners.len() == count
            && last.owners.iter().all(|(_, owner)| known(owner))
            && busy.count() >= managers.len().min(count);
        Ok(complete.then(|| last.clone()))
    })
    .await;
    outcome.or_else(|error| bail!("{error:#}; at last: {last:?}"))
}

/// Whether a server refused because its cache of a kind that was just defined is not filled yet.
fn is_warming_up(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(kube::Error::Api(status)) if status.code == 429)
}
