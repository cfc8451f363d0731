//! A peer as a process: what is said to it, and what it says in lines of JSON.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;

use super::arena::Arena;
use super::proc;
use crate::real::tools::Tools;
use crate::real::wait;

/// How long anything may take.
const DEADLINE: Duration = Duration::from_secs(120);
/// Lines that wait to be looked at; a reconcile of everything says one for each object.
const MAX_WAITING_LINES: usize = 100_000;
/// How many looks at a process, 0.2 s apart, must find it idle until it counts as quiet.
const QUIET_LOOKS: usize = 5;
/// How much CPU time a quiet process may use meanwhile: Leases are renewed, garbage is collected.
const QUIET_CPU: Duration = Duration::from_millis(10);

/// What the same small controller is written on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// Ours.
    Leasehold,
    /// Go's.
    ControllerRuntime,
    /// Rust's.
    KubeRs,
    /// None: a loop that sends the patches, over a connection of HTTP/1.1 for each that is under way.
    Bare,
    /// The same, over the one connection of HTTP/2 that ours has: what is below ours in any case.
    Shared,
}

impl Peer {
    /// All of them, in the order of the table.
    pub const ALL: [Self; 5] =
        [Self::Leasehold, Self::ControllerRuntime, Self::KubeRs, Self::Bare, Self::Shared];
    /// Those that watch.
    pub const CONTROLLERS: [Self; 3] = [Self::Leasehold, Self::ControllerRuntime, Self::KubeRs];

    /// Its name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Leasehold => "leasehold",
            Self::ControllerRuntime => "controller-runtime",
            Self::KubeRs => "kube-rs",
            Self::Bare => "bare loop",
            Self::Shared => "bare loop over h2",
        }
    }

    /// Whether it watches nothing.
    fn is_bare(self) -> bool {
        matches!(self, Self::Bare | Self::Shared)
    }

    /// Its program.
    pub fn program(self, tools: &Tools) -> PathBuf {
        match self {
            Self::Leasehold | Self::Shared => tools.peer_leasehold(),
            Self::ControllerRuntime => tools.peer_controller_runtime(),
            Self::KubeRs | Self::Bare => tools.peer_kube_rs(),
        }
    }
}

/// What a peer is to do.
#[derive(Clone, Copy, Debug)]
pub struct Task<'a> {
    /// The mode, as on its command line.
    pub mode: &'a str,
    /// The namespace that is watched.
    pub namespace: &'a str,
    /// How many objects there are in it.
    pub objects: usize,
    /// How many are reconciled at once.
    pub workers: usize,
    /// The kubeconfig to go by, if it is not the server's own: then the server's own is that of the
    /// home of a peer that has one.
    pub kubeconfig: Option<&'a Path>,
}

impl Task<'_> {
    /// Where the peer is to work, as arguments.
    fn places<'p>(&'p self, peer: Peer, server: &'p Path) -> Vec<&'p OsStr> {
        let mut places =
            vec![OsStr::new("--kubeconfig"), self.kubeconfig.unwrap_or(server).as_ref()];
        if peer == Peer::Leasehold && self.kubeconfig.is_some() {
            places.extend([OsStr::new("--home"), server.as_ref()]);
        }
        places
    }
}

/// What a peer says.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub enum Line {
    /// It has begun.
    Ready,
    /// Every object was reconciled.
    Done {
        /// For which trigger.
        trigger: u64,
        /// From the trigger's event to the end of the last reconcile.
        seconds: f64,
    },
    /// A reconcile began.
    Started {
        /// Of an object with this `spec.touched`.
        value: u64,
        /// By the wall clock.
        unix_nanos: i64,
    },
    /// How many objects are cached.
    Counted {
        /// All kinds together.
        objects: usize,
    },
    /// What the heap holds.
    Heap {
        /// By the allocator.
        bytes: u64,
        /// By the cache's own count.
        cache_bytes: Option<u64>,
    },
    /// How fast a queue is.
    Queue {
        /// Keys added, taken and finished a second.
        per_second: f64,
        /// The same of a queue without priorities, where the peer has one too.
        plain_per_second: Option<f64>,
    },
}

/// A peer at work. Dropping it kills it.
#[derive(Debug)]
pub struct Running {
    peer: Peer,
    child: Child,
    pid: u32,
    stdin: ChildStdin,
    lines: mpsc::Receiver<String>,
}

impl Running {
    /// Starts a peer and waits until it is quiet with everything in its cache.
    ///
    /// # Errors
    /// If it does not come that far.
    pub async fn settled(arena: &Arena<'_>, peer: Peer, task: Task<'_>) -> Result<Self> {
        let mut this = Self::start(arena, peer, task).await?;
        if !peer.is_bare() {
            let what = format!("{} to cache {} objects", peer.name(), task.objects);
            wait::until(DEADLINE, &what, async || {
                Ok((this.count().await? >= task.objects).then_some(()))
            })
            .await?;
        }
        this.quiet().await?;
        Ok(this)
    }

    async fn start(arena: &Arena<'_>, peer: Peer, task: Task<'_>) -> Result<Self> {
        fs::create_dir_all(arena.scene.logs())?;
        let log = arena.scene.logs().join(format!("{}.log", peer.name()));
        let log = File::options().create(true).append(true).open(log)?;
        let mode = if peer.is_bare() { "bare" } else { task.mode };
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(peer.program(arena.scene.tools()))
            .args(task.places(peer, &arena.plane.kubeconfig))
            .args(["--mode", mode, "--namespace", task.namespace])
            .args(["--objects", &task.objects.to_string()])
            .args(["--workers", &task.workers.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", peer.name()))?;
        let pid = child.id().context("it has ended already")?;
        let stdin = child.stdin.take().expect("it was piped");
        let lines = listen(child.stdout.take().expect("it was piped"));
        let mut this = Self { peer, child, pid, stdin, lines };
        this.heard("ready", |line| (line == Line::Ready).then_some(())).await?;
        Ok(this)
    }

    /// The next line of which `wanted` makes something; others are passed over.
    ///
    /// # Errors
    /// If there is none in time, or the peer ends.
    pub async fn heard<T>(&mut self, what: &str, wanted: impl Fn(Line) -> Option<T>) -> Result<T> {
        let name = self.peer.name();
        let search = async {
            while let Some(text) = self.lines.recv().await {
                if let Some(found) = wanted(parse(&text)?) {
                    return Ok(found);
                }
            }
            bail!("{name} ended before it said {what:?}")
        };
        match tokio::time::timeout(DEADLINE, search).await {
            Ok(outcome) => outcome,
            Err(_) => bail!("{name} did not say {what:?} within {} s", DEADLINE.as_secs()),
        }
    }

    /// Asks for something.
    ///
    /// # Errors
    /// If the peer has ended.
    pub async fn ask(&mut self, line: &str) -> Result<()> {
        let name = self.peer.name();
        let text = format!("{line}\n");
        self.stdin.write_all(text.as_bytes()).await.with_context(|| format!("asking {name}"))
    }

    async fn count(&mut self) -> Result<usize> {
        self.ask("count").await?;
        let counted = |line| match line {
            Line::Counted { objects } => Some(objects),
            _ => None,
        };
        self.heard("counted", counted).await
    }

    /// Bytes on its heap: by its allocator, and by its cache's own count where that is more, since
    /// not everything need come from that allocator.
    ///
    /// # Errors
    /// If it does not say.
    pub async fn heap(&mut self) -> Result<(u64, Option<u64>)> {
        self.ask("heap").await?;
        let heap = |line| match line {
            Line::Heap { bytes, cache_bytes } => Some((bytes, cache_bytes)),
            _ => None,
        };
        self.heard("heap", heap).await
    }

    /// Has every object be reconciled, and says how long that took by its own account.
    ///
    /// # Errors
    /// If it does not come to an end.
    pub async fn reconcile_all(&mut self, arena: &Arena<'_>) -> Result<f64> {
        let number = arena.next_number();
        match self.peer {
            peer if peer.is_bare() => self.ask(&format!("trigger {number}")).await?,
            _ => arena.pull_trigger(number).await?,
        }
        let done = |line| match line {
            Line::Done { trigger, seconds } if trigger == number => Some(seconds),
            _ => None,
        };
        self.heard("done", done).await
    }

    /// Its CPU time so far.
    ///
    /// # Errors
    /// If it has ended.
    pub fn cpu(&self) -> Result<Duration> {
        proc::cpu(self.pid)
    }

    /// Its resident memory, in bytes.
    ///
    /// # Errors
    /// If it has ended.
    pub fn resident(&self) -> Result<u64> {
        proc::resident(self.pid)
    }

    /// How many connections it holds to `port`.
    ///
    /// # Errors
    /// If it has ended.
    pub fn connections(&self, port: u16) -> Result<usize> {
        proc::connections(self.pid, port)
    }

    /// Waits until it does nothing for a second.
    ///
    /// # Errors
    /// If it does not come to rest.
    pub async fn quiet(&mut self) -> Result<()> {
        let mut looks = Vec::new();
        let what = format!("{} to come to rest", self.peer.name());
        wait::until(DEADLINE, &what, async || {
            looks.push(proc::cpu(self.pid)?);
            Ok(is_quiet(&looks).then_some(()))
        })
        .await
    }

    /// Has it end in order.
    ///
    /// # Errors
    /// If it does not, or says that something went wrong.
    pub async fn end(mut self) -> Result<()> {
        drop(self.stdin);
        let status = tokio::time::timeout(DEADLINE, self.child.wait()).await;
        let status = status.with_context(|| format!("{} does not end", self.peer.name()))??;
        ensure!(status.success(), "{} ended with {status}", self.peer.name());
        Ok(())
    }
}

/// Whether the last looks at a process's CPU time show none used to speak of.
fn is_quiet(looks: &[Duration]) -> bool {
    let Some(before) = looks.len().checked_sub(1 + QUIET_LOOKS) else { return false };
    looks.last().is_some_and(|last| last.saturating_sub(looks[before]) <= QUIET_CPU)
}

/// Reads all the time, so that a peer never waits for us.
fn listen(stdout: ChildStdout) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(MAX_WAITING_LINES);
    tokio::spawn(async move {
        let mut lines = BufReader::new(stdout).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            if sender.send(line).await.is_err() {
                return;
            }
        }
    });
    receiver
}

/// Reads one line.
///
/// # Errors
/// If it is none that is known.
pub fn parse(line: &str) -> Result<Line> {
    serde_json::from_str(line).with_context(|| format!("a peer said {line:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_every_kind_are_read() {
        for (text, expect) in [
            (r#"{"event":"ready"}"#, Line::Ready),
            (
                r#"{"event":"done","trigger":2,"count":3,"seconds":0.5}"#,
                Line::Done { trigger: 2, seconds: 0.5 },
            ),
            (
                r#"{"event":"started","value":1,"unix_nanos":1795000000000000001}"#,
                Line::Started { value: 1, unix_nanos: 1_795_000_000_000_000_001 },
            ),
            (r#"{"event":"counted","objects":4}"#, Line::Counted { objects: 4 }),
            (r#"{"event":"heap","bytes":5}"#, Line::Heap { bytes: 5, cache_bytes: None }),
            (
                r#"{"event":"heap","bytes":5,"cache_bytes":4}"#,
                Line::Heap { bytes: 5, cache_bytes: Some(4) },
            ),
            (
                r#"{"event":"queue","keys":9,"per_second":7.5}"#,
                Line::Queue { per_second: 7.5, plain_per_second: None },
            ),
        ] {
            assert_eq!(parse(text).unwrap(), expect, "{text}");
        }
    }

    #[test]
    fn what_is_no_line_is_an_error_that_quotes_it() {
        for text in ["", "panic", r#"{"event":"dune"}"#, r#"{"event":"done"}"#] {
            assert!(parse(text).unwrap_err().to_string().contains(&format!("{text:?}")), "{text}");
        }
    }

    #[test]
    fn quiet_is_a_second_of_nothing() {
        let looks = |millis: &[u64]| -> Vec<_> {
            millis.iter().copied().map(Duration::from_millis).collect()
        };
        for (millis, expect) in [
            (&[][..], false),
            (&[50, 50, 50, 50, 50], false),
            (&[50, 50, 50, 50, 50, 50], true),
            (&[10, 50, 50, 50, 50, 60, 60], true),
            (&[10, 50, 50, 50, 50, 70, 70], false),
            (&[10, 20, 30, 40, 50, 60, 70], false),
        ] {
            assert_eq!(is_quiet(&looks(millis)), expect, "{millis:?}");
        }
    }
}
