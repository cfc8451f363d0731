//! One replica, with its own proxy to each API server and its own user.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use kube::Client;
use serde_json::{Value, json};

use super::history::Life;
use crate::harness::manager::Manager;
use crate::harness::process::free_port;
use crate::harness::{Scene, wait};
use crate::proxy::{Passage, Proxy};

/// The name of the home cluster.
pub const HOME: &str = "home";

/// How long a replica may take to answer on loopback. One that is stopped never answers.
const ANSWER_DEADLINE: Duration = Duration::from_secs(1);

/// An API server that a replica connects to.
#[derive(Clone, Debug)]
pub struct Server {
    /// The cluster's name, and its kubeconfig's context.
    pub name: String,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// Whether each replica is a user of its own there, whose token is its identity.
    pub has_users: bool,
}

/// A replica and its proxies.
pub struct Replica {
    manager: Manager,
    proxies: BTreeMap<String, Proxy>,
    admin: Client,
    pauses: Vec<(jiff::Timestamp, jiff::Timestamp)>,
    journal: PathBuf,
}

/// What is left of a replica that has ended.
#[derive(Debug)]
pub struct Remains {
    /// When its process ran.
    pub life: Life,
    /// Its journal.
    pub journal: PathBuf,
}

impl Replica {
    /// Starts `command` as a replica over `servers`, the home cluster first.
    ///
    /// # Errors
    /// If it cannot be started.
    pub async fn start(
        scene: &Scene,
        identity: &str,
        command: Command,
        servers: &[Server],
        controllers: &Value,
    ) -> Result<Self> {
        let dir = scene.dir().join(identity);
        fs::create_dir_all(&dir)?;
        let mut proxies = BTreeMap::new();
        let mut kubeconfigs = Vec::new();
        for server in servers {
            let mut kubeconfig = read(&server.kubeconfig)?;
            let proxy = Proxy::of_kubeconfig(&mut kubeconfig).await?;
            if server.has_users {
                kubeconfig["users"][0]["user"] = json!({"token": identity});
            }
            let path = dir.join(format!("{}.kubeconfig", server.name));
            fs::write(&path, kubeconfig.to_string())?;
            kubeconfigs.push(path);
            proxies.insert(server.name.clone(), proxy);
        }
        let workload: Vec<Value> =
            kubeconfigs[1..].iter().map(|p| json!({"path": p, "allow": ["loopback"]})).collect();
        let bind = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let journal = dir.join("journal.jsonl");
        let config = json!({
            "home": {"kubeconfig": kubeconfigs[0], "allow": ["loopback"]},
            "clusters": {"kubeconfigs": workload},
            "controllers": controllers,
            "admin": {"bind": bind},
            "journal": journal,
        });
        let manager = Manager::spawn(scene, identity, command, config)?;
        let admin = kube::Config::new(format!("http://{bind}").parse()?);
        Ok(Self { manager, proxies, admin: Client::try_from(admin)?, pauses: Vec::new(), journal })
    }

    /// Its identity.
    pub fn identity(&self) -> &str {
        self.manager.identity()
    }

    /// Whether `member` is one of its incarnations.
    pub fn is(&self, member: &str) -> bool {
        self.manager.is(member)
    }

    /// A client of its admin server.
    pub fn admin(&self) -> &Client {
        &self.admin
    }

    /// Changes what passes between it and `cluster`.
    ///
    /// # Errors
    /// If there is no such cluster.
    pub fn disturb(&self, cluster: &str, passage: Passage) -> Result<()> {
        let proxy = self.proxies.get(cluster);
        proxy.with_context(|| format!("there is no cluster {cluster}"))?.set(passage);
        Ok(())
    }

    /// Stops it with SIGSTOP for a while.
    pub async fn sleep(&mut self, time: Duration) {
        let stopped = wait::now();
        self.manager.process().pause();
        tokio::time::sleep(time).await;
        // Before the signal, because from then on it runs again.
        self.pauses.push((stopped, wait::now()));
        self.manager.process().resume();
    }

    /// Kills it.
    pub fn kill(mut self) -> Remains {
        self.manager.kill();
        self.remains()
    }

    /// Asks it to leave and waits until it has.
    ///
    /// # Errors
    /// If it does not leave in time, or could not hand over.
    pub async fn leave(mut self) -> Result<Remains> {
        self.manager.leave().await?;
        Ok(self.remains())
    }

    /// Fails if it has ended.
    ///
    /// # Errors
    /// If it has ended.
    pub fn check_alive(&mut self) -> Result<()> {
        self.manager.check_alive()
    }

    fn remains(self) -> Remains {
        let identity = self.identity().to_owned();
        let life = Life { identity, pauses: self.pauses, ended: wait::now() };
        Remains { life, journal: self.journal }
    }
}

/// What an admin server says about its shards, if it answers.
pub async fn own_view(admin: &Client) -> Option<Value> {
    let request = http::Request::get("/debug/shards").body(Vec::new()).ok()?;
    tokio::time::timeout(ANSWER_DEADLINE, admin.request(request)).await.ok()?.ok()
}

/// An admin server's metrics, if it answers.
pub async fn metrics(admin: &Client) -> Option<String> {
    let request = http::Request::get("/metrics").body(Vec::new()).ok()?;
    tokio::time::timeout(ANSWER_DEADLINE, admin.request_text(request)).await.ok()?.ok()
}

fn read(kubeconfig: &Path) -> Result<Value> {
    let text = fs::read_to_string(kubeconfig)?;
    serde_saphyr::from_str(&text).with_context(|| format!("read {}", kubeconfig.display()))
}
