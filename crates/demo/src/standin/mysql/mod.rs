//! A stand-in for MySQL: what runs in the Pods of a MySQLCluster on the demo's API servers, and in tests.
//! It answers the statements of the controller in MySQL's protocol, over TLS, on the port for
//! administration. Servers of one API server find each other in memory. Shell.
//!
//! ```text
//!   port 33062 ─▶ session (wire) ─▶ sql ─▶ group: servers receive, acknowledge and apply
//!                                          └─▶ server: settings, sessions, locks ─▶ datadir: what lasts
//! ```
//!
//! There are no tables: a transaction has a number, and at most changes an account. A commit waits for
//! acknowledgements as in MySQL; receiving and applying take no time. Scripts do not run: it does what
//! they and mysqld do together.

use std::collections::BTreeMap;
use std::sync::Arc;

use apiserver::faults::Fault;
use apiserver::{Exit, Process, Program, Start, State};
use tokio::io::DuplexStream;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::{CancellationToken, DropGuard};

use self::datadir::{Change, Gtid};
use self::group::{Group, Launch};
use self::session::serve;
use self::shared::{Id, Key, Servers};
use super::tls::{self, Paths};
use super::volume::volume;

mod datadir;
mod group;
mod server;
mod session;
mod shared;
mod sql;
#[cfg(test)]
mod tests;
mod wire;

/// The port for administration.
const PORT: u16 = 33_062;
/// How many bytes of a connection may be under way in each direction.
const BUFFER: usize = 64 << 10;
/// The version of an image whose tag is none.
const VERSION: &str = "8.4.3";
/// Where its files are mounted.
const ACCOUNTS: &str = "/leasehold-accounts/";
const MY_CNF: &str = "/leasehold/my.cnf";
const TLS: Paths<'_> =
    Paths { certificate: "/leasehold-tls/tls.crt", key: "/leasehold-tls/tls.key", clients: None };

/// The servers of one API server. Clones share them.
#[derive(Clone, Default)]
pub struct MySql(Servers);

/// A transaction that a client committed, or tried to.
#[derive(Clone, Debug)]
pub struct Commit {
    key: Key,
    gtid: Gtid,
}

/// A server, or one that did not start.
struct Running {
    servers: Servers,
    me: Id,
    serving: Option<(u64, TlsAcceptor)>,
    state: watch::Receiver<State>,
    ended: CancellationToken,
    _end: DropGuard,
}

impl Program for MySql {
    fn start(&self, start: &Start) -> Arc<dyn Process> {
        let meta = |field: &str| start.pod["metadata"][field].as_str().unwrap_or_default();
        let me = Id::of(meta("namespace"), meta("name"));
        let (sender, state) = watch::channel(State::Running { ready: false });
        let started =
            tls::acceptor(TLS, &start.files).and_then(|tls| Ok((tls, launch(start, &me)?)));
        let serving = match started {
            Ok((tls, launch)) => {
                let start = self.0.change(&me.key, |group| group.start(launch));
                self.0.tell(&me.key, start, sender);
                Some((start, tls))
            }
            Err(message) => {
                // Whoever follows the state reads it before it waits for another.
                sender.send_replace(State::Exited(Exit { code: 1, message }));
                None
            }
        };
        let ended = CancellationToken::new();
        let end = ended.clone().drop_guard();
        Arc::new(Running { servers: self.0.clone(), me, serving, state, ended, _end: end })
    }
}

/// What a container is told.
fn launch(start: &Start, me: &Id) -> Result<Launch, String> {
    let text = |path: &str| String::from_utf8_lossy(&start.files[path]).into_owned();
    let mut passwords = BTreeMap::new();
    for name in ["leasehold", "replication", "probe", "exporter", "backup"] {
        let path = format!("{ACCOUNTS}{name}");
        let is_there = start.files.get(&path).is_some_and(|password| !password.is_empty());
        if !is_there {
            return Err(format!("init: the password of {name} is empty"));
        }
        passwords.insert(name.to_owned(), text(&path));
    }
    if !start.files.contains_key(MY_CNF) {
        return Err(format!("sh: {MY_CNF}: not found"));
    }
    Ok(Launch {
        name: me.name.clone(),
        volume: volume(start, "/var/lib/mysql/data"),
        version: version(start.spec()["image"].as_str().unwrap_or_default()),
        my_cnf: text(MY_CNF),
        passwords,
    })
}

/// The version by the tag: `8.4` runs the first of it.
fn version(image: &str) -> String {
    let tag = image.rsplit_once(':').map_or("", |(_, tag)| tag);
    match tag.split('.').map(str::parse::<u32>).collect::<Result<Vec<_>, _>>().as_deref() {
        Ok([_, _, _]) => tag.to_owned(),
        Ok([_, _]) => format!("{tag}.0"),
        _ => VERSION.to_owned(),
    }
}

impl MySql {
    /// A client commits at a server; nothing if that does not run or takes no writes. The answer says how
    /// it goes on.
    pub fn commit(&self, namespace: &str, pod: &str) -> Option<Commit> {
        let me = Id::of(namespace, pod);
        let gtid = self.0.change(&me.key, |group| {
            group.servers.get(pod).filter(|server| server.is_open())?;
            group.write(pod, Change::Nothing).ok()
        });
        Some(Commit { gtid: gtid?, key: me.key })
    }

    /// Whether the client was told that its transaction is committed.
    pub fn is_acknowledged(&self, commit: &Commit) -> bool {
        self.0.read(&commit.key, |group| group.is_acknowledged(&commit.gtid)).unwrap_or(false)
    }

    /// How many transactions a server has not committed, of those that clients of its cluster were told
    /// about.
    pub fn lacking(&self, namespace: &str, pod: &str) -> usize {
        let Id { key, name } = Id::of(namespace, pod);
        self.0.read(&key, |group| group.lacking(&name)).unwrap_or(0)
    }

    /// Whether a server lets an account in with a password.
    pub fn proves(&self, namespace: &str, pod: &str, account: &str, password: &str) -> bool {
        let Id { key, name } = Id::of(namespace, pod);
        let lets_in = |group: &Group| group.servers.get(&name)?.login(account, password).ok();
        self.0.read(&key, lets_in).flatten().is_some()
    }

    /// The rules that were broken: two servers of a cluster that can acknowledge commits at once, or one that
    /// lacks what was acknowledged.
    pub fn wrong(&self) -> Vec<String> {
        self.0.all(|group| group.wrong.clone())
    }

    /// From now on nobody reaches a server, or they do again. It runs on.
    pub fn cut_off(&self, namespace: &str, pod: &str, is_cut: bool) {
        self.0.change(&Id::of(namespace, pod).key, |group| {
            match is_cut {
                true => group.cut_off.insert(pod.to_owned()),
                false => group.cut_off.remove(pod),
            };
            group.settle();
        });
    }

    /// Asks about each query that changes something, from now on: it may be lost, or its answer.
    pub fn set_faults(&self, hook: impl Fn(&str) -> Fault + Send + Sync + 'static) {
        self.0.set_hook(Arc::new(hook));
    }

    /// How many sessions were begun.
    pub fn sessions(&self) -> usize {
        self.0.sessions()
    }
}

impl Process for Running {
    fn connect(&self, port: u16) -> Option<DuplexStream> {
        let (_, tls) = self.serving.as_ref().filter(|_| port == PORT)?;
        let is_cut = |group: &Group| group.cut_off.contains(&self.me.name);
        if self.servers.read(&self.me.key, is_cut).unwrap_or(true) {
            return None;
        }
        let (near, far) = tokio::io::duplex(BUFFER);
        let serving = serve(self.servers.clone(), self.me.clone(), tls.clone(), far);
        tokio::spawn(self.ended.clone().run_until_cancelled_owned(async move {
            if let Err(error) = serving.await {
                tracing::debug!(%error, "mysql's stand-in: a connection ended");
            }
        }));
        Some(near)
    }

    fn state(&self) -> Option<watch::Receiver<State>> {
        Some(self.state.clone())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some((start, _)) = self.serving {
            self.servers.stop(&self.me, start);
        }
    }
}

impl std::fmt::Debug for MySql {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MySql").finish_non_exhaustive()
    }
}
