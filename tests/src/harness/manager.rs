//! Replicas of the product as processes of this machine: `leasehold run`, the release binary.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use kube::Client;
use serde_json::{Value, json};

use super::control_plane::ControlPlane;
use super::home::{NAMESPACE, Owners};
use super::kubectl::Kubectl;
use super::process::{ChildProcess, free_port};
use super::{Scene, wait};

/// An orderly exit: a drain, a handover, and the rest.
const EXIT_DEADLINE: Duration = Duration::from_secs(70);
const SETTLE_DEADLINE: Duration = Duration::from_secs(90);

/// One replica.
#[derive(Debug)]
pub struct Manager {
    identity: String,
    process: ChildProcess,
    admin: Option<String>,
}

impl Manager {
    /// Starts a replica that reaches its home and the workload clusters with their administrators'
    /// kubeconfigs. The keys of `more` replace those of its configuration.
    pub fn start(
        scene: &Scene,
        identity: &str,
        home: &ControlPlane,
        clusters: &[&ControlPlane],
        more: &Value,
    ) -> Result<Self> {
        Self::start_with(scene, identity, home, clusters, more, &[])
    }

    /// [`Self::start`] with additional environment variables.
    pub fn start_with(
        scene: &Scene,
        identity: &str,
        home: &ControlPlane,
        clusters: &[&ControlPlane],
        more: &Value,
        environment: &[(&str, &Path)],
    ) -> Result<Self> {
        let kubeconfigs: Vec<Value> = clusters
            .iter()
            .map(|cluster| json!({"path": cluster.kubeconfig, "allow": ["loopback"]}))
            .collect();
        let mut config = json!({
            "home": {"kubeconfig": home.kubeconfig, "context": home.name(), "allow": ["loopback"]},
            "clusters": {"kubeconfigs": kubeconfigs},
            "controllers": {"tdset": {"workers": 4}, "configmonitor": {"workers": 2}},
            "admin": {"bind": format!("127.0.0.1:{}", free_port()?)},
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            config[key] = value.clone();
        }
        let mut command = Command::new(scene.tools().leasehold());
        command.arg("run").envs(environment.iter().copied());
        Self::spawn(scene, identity, command, config)
    }

    /// Starts `command` as a replica, with `config` in a folder named after it.
    pub fn spawn(
        scene: &Scene,
        identity: &str,
        mut command: Command,
        mut config: Value,
    ) -> Result<Self> {
        config["namespace"] = NAMESPACE.into();
        config["identity"] = identity.into();
        let dir = scene.dir().join(identity);
        fs::create_dir_all(&dir)?;
        let file = dir.join("config.yaml");
        fs::write(&file, serde_json::to_string_pretty(&config)?)?;
        command.args([Path::new("--config"), &file]).current_dir(&dir);
        let process = ChildProcess::spawn(identity, &command, &scene.logs())?;
        let admin = config["admin"]["bind"].as_str().map(str::to_owned);
        Ok(Self { identity: identity.to_owned(), process, admin })
    }

    /// The address of its admin server, as `host:port`, if the configuration says.
    pub fn admin(&self) -> Option<&str> {
        self.admin.as_deref()
    }

    /// Its identity, with which the names of its members begin.
    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Whether `member` is one of its incarnations.
    pub fn is(&self, member: &str) -> bool {
        is_incarnation(&self.identity, member)
    }

    /// The process.
    pub fn process(&mut self) -> &mut ChildProcess {
        &mut self.process
    }

    /// Kills it with SIGKILL.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Asks it to leave, and waits until it has handed over its shards and ended.
    pub async fn leave(&mut self) -> Result<()> {
        let status = self.process.terminate(EXIT_DEADLINE).await?;
        ensure!(status.success(), "{} left with {status}", self.identity);
        Ok(())
    }

    /// Fails if it has ended.
    pub fn check_alive(&mut self) -> Result<()> {
        self.process.check_alive()
    }
}

/// Whether `member` names an incarnation of the replica `identity`: the identity and a random
/// suffix.
pub fn is_incarnation(identity: &str, member: &str) -> bool {
    let suffix = member.strip_prefix(identity).and_then(|rest| rest.strip_prefix('-'));
    suffix.is_some_and(|suffix| !suffix.contains('-'))
}

/// Which of `managers` runs `member`.
pub fn position(managers: &[Manager], member: &str) -> Result<usize> {
    let index = managers.iter().position(|manager| manager.is(member));
    index.with_context(|| format!("{member} is not one of our replicas"))
}

/// Gives `user` the rights of a built-in controller, as the chart does.
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

/// Waits until exactly `count` shards are owned and none is moving, all owners are replicas of
/// `managers`, and each of those owns at least one if there are enough.
pub async fn settled(home: &Client, count: usize, managers: &mut [Manager]) -> Result<Owners> {
    let mut last = Owners::default();
    let what = format!("{count} shards to be shared by {} replicas", managers.len());
    let outcome = wait::until(SETTLE_DEADLINE, &what, async || {
        managers.iter_mut().try_for_each(Manager::check_alive)?;
        last = match Owners::read(home).await {
            Err(error) if is_warming_up(&error) => return Ok(None),
            answer => answer?,
        };
        let known = |owner: &str| managers.iter().any(|manager| manager.is(owner));
        let busy = managers.iter().filter(|m| last.settled.iter().any(|(_, owner)| m.is(owner)));
        let complete = last.unsettled == 0
            && last.settled.len() == count
            && last.settled.iter().all(|(_, owner)| known(owner))
            && busy.count() >= managers.len().min(count);
        Ok(complete.then(|| last.clone()))
    })
    .await;
    outcome.or_else(|error| bail!("{error:#}; last seen: {last:?}"))
}

/// Whether a server refused because its cache of a kind defined a moment ago is not filled yet.
fn is_warming_up(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(kube::Error::Api(status)) if status.code == 429)
}
