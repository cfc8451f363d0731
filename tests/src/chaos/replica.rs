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
use super::journal;
use crate::harness::manager::Manager;
use crate::harness::process::free_port;
use crate::harness::{Scene, wait};
use crate::proxy::{Passage, Proxy};

/// The name of the home cluster.
pub const HOME: &str = "home";

/// The folder of its kubeconfigs of workload clusters, and the one in which they are while they are gone.
const CLUSTERS: &str = "clusters";
const EMPTIED: &str = "emptied";

/// How long it may take until a replica under load is in the midst of a reconcile.
const RECONCILE_DEADLINE: Duration = Duration::from_secs(60);

/// How long a replica may take to answer on loopback. One that is stopped never answers.
const ANSWER_DEADLINE: Duration = Duration::from_secs(1);

/// An API server that a replica connects to.
#[derive(Clone, Debug)]
pub struct Server {
    /// The cluster's name, and its kubeconfig's context.
    pub name: String,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// The replica's token, where it is a user of its own; elsewhere it is the administrator.
    pub token: Option<String>,
}

/// A replica and its proxies.
pub struct Replica {
    manager: Manager,
    proxies: BTreeMap<String, Proxy>,
    dir: PathBuf,
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
    pub async fn start(
        scene: &Scene,
        identity: &str,
        command: Command,
        servers: &[Server],
        controllers: &Value,
    ) -> Result<Self> {
        let dir = scene.dir().join(identity);
        fs::create_dir_all(dir.join(CLUSTERS))?;
        let mut proxies = BTreeMap::new();
        for server in servers {
            let proxy = Proxy::of_kubeconfig(&mut read(&server.kubeconfig)?).await?;
            write(&dir, server, &proxy)?;
            proxies.insert(server.name.clone(), proxy);
        }
        let bind = SocketAddr::from(([127, 0, 0, 1], free_port()?));
        let journal = dir.join("journal.jsonl");
        let config = json!({
            "home": {"kubeconfig": dir.join(HOME), "allow": ["loopback"]},
            "clusters": {"directories": [{"path": dir.join(CLUSTERS), "allow": ["loopback"]}]},
            "controllers": controllers,
            "admin": {"bind": bind},
            "journal": journal,
        });
        let manager = Manager::spawn(scene, identity, command, config)?;
        let admin = kube::Config::new(format!("http://{bind}").parse()?);
        let admin = Client::try_from(admin)?;
        Ok(Self { manager, proxies, dir, admin, pauses: Vec::new(), journal })
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
    pub fn disturb(&self, cluster: &str, passage: Passage) -> Result<()> {
        let proxy = self.proxies.get(cluster);
        proxy.with_context(|| format!("there is no cluster {cluster}"))?.set(passage);
        Ok(())
    }

    /// Writes its kubeconfig of a server anew.
    pub fn rewrite(&self, server: &Server) -> Result<()> {
        let proxy = self.proxies.get(&server.name).context("there is no such cluster")?;
        write(&self.dir, server, proxy)
    }

    /// Empties the folder of its workload clusters' kubeconfigs, as the kubelet does when the mounted Secret
    /// is emptied.
    pub fn empty_clusters(&self) -> Result<()> {
        self.swap_clusters(CLUSTERS, EMPTIED)
    }

    /// Ends [`empty_clusters`](Self::empty_clusters).
    pub fn refill_clusters(&self) -> Result<()> {
        self.swap_clusters(EMPTIED, CLUSTERS)
    }

    fn swap_clusters(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (self.dir.join(from), self.dir.join(to));
        fs::create_dir_all(&to)?;
        for file in fs::read_dir(&from)? {
            let file = file?;
            fs::rename(file.path(), to.join(file.file_name()))?;
        }
        Ok(())
    }

    /// Stops it with SIGSTOP for a while, in the midst of reconciles. Returns how many.
    pub async fn sleep_in_reconcile(&mut self, time: Duration) -> Result<usize> {
        let (manager, journal, pauses) = (&mut self.manager, &self.journal, &mut self.pauses);
        let what = "a reconcile to stop in";
        let (stopped, running) = wait::until(RECONCILE_DEADLINE, what, async || {
            let stopped = wait::now();
            manager.process().pause();
            let dispatches = journal::parse(&fs::read_to_string(journal)?, wait::boot()?)?;
            let running = dispatches.iter().filter(|dispatch| dispatch.until.is_none()).count();
            if running == 0 {
                pauses.push((stopped, wait::now()));
                manager.process().resume();
            }
            Ok((running > 0).then_some((stopped, running)))
        })
        .await?;
        tokio::time::sleep(time).await;
        self.wake(stopped);
        Ok(running)
    }

    /// Stops it with SIGSTOP for a while.
    pub async fn sleep(&mut self, time: Duration) {
        let stopped = wait::now();
        self.manager.process().pause();
        tokio::time::sleep(time).await;
        self.wake(stopped);
    }

    fn wake(&mut self, stopped: jiff::Timestamp) {
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
    pub async fn leave(mut self) -> Result<Remains> {
        self.manager.leave().await?;
        Ok(self.remains())
    }

    /// Fails if it has ended.
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

/// Writes a kubeconfig that leads through a proxy, at once: it may be read at any time.
fn write(dir: &Path, server: &Server, proxy: &Proxy) -> Result<()> {
    let mut kubeconfig = read(&server.kubeconfig)?;
    proxy.lead(&mut kubeconfig);
    if let Some(token) = &server.token {
        kubeconfig["users"][0]["user"] = json!({"token": token});
    }
    let folder = if server.name == HOME { dir.to_owned() } else { dir.join(CLUSTERS) };
    let new = dir.join("new.kubeconfig");
    fs::write(&new, kubeconfig.to_string())?;
    Ok(fs::rename(&new, folder.join(&server.name))?)
}

fn read(kubeconfig: &Path) -> Result<Value> {
    let text = fs::read_to_string(kubeconfig)?;
    serde_saphyr::from_str(&text).with_context(|| format!("read {}", kubeconfig.display()))
}
