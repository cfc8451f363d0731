//! A peer as a process: requests to it, and its answers as lines of JSON.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use loadtest::usage::{self, Usage};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;

use super::peer::{Line, Peer, parse};
use super::testbed::{FULL, Testbed};
use crate::harness::{process, wait};

/// How long anything may take.
const DEADLINE: Duration = Duration::from_secs(120);
/// The most lines that wait to be read; a reconcile of everything writes one for each object.
const MAX_WAITING_LINES: usize = 100_000;
/// How many looks at a process, 0.2 s apart, must find it idle before it counts as quiet.
const QUIET_LOOKS: usize = 5;
/// How much CPU time a quiet process may use meanwhile, to renew Leases and collect garbage.
const QUIET_CPU: Duration = Duration::from_millis(10);
/// The state of an established TCP connection in `/proc/PID/net/tcp`.
const ESTABLISHED: &str = "01";

/// A task for a peer.
#[derive(Clone, Copy, Debug)]
pub struct Task<'a> {
    /// The mode, as on its command line.
    pub mode: &'a str,
    /// The namespace that is watched.
    pub namespace: &'a str,
    /// How many objects are in it.
    pub objects: usize,
    /// How many objects are reconciled at once.
    pub workers: usize,
    /// The kubeconfig to use instead of the server's own. A peer that has a home then uses the
    /// server's own for that.
    pub kubeconfig: Option<&'a Path>,
}

impl<'a> Task<'a> {
    /// A task with all objects of the full namespace.
    pub fn full(mode: &'a str, testbed: &Testbed<'_>, workers: usize) -> Self {
        Self { mode, namespace: FULL, objects: testbed.objects, workers, kubeconfig: None }
    }

    /// The arguments that name the peer's clusters.
    fn places<'p>(&'p self, peer: Peer, server: &'p Path) -> Vec<&'p OsStr> {
        let mut places =
            vec![OsStr::new("--kubeconfig"), self.kubeconfig.unwrap_or(server).as_ref()];
        if peer == Peer::Leasehold && self.kubeconfig.is_some() {
            places.extend([OsStr::new("--home"), server.as_ref()]);
        }
        places
    }
}

/// A running peer. Dropping it kills it.
#[derive(Debug)]
pub struct Running {
    peer: Peer,
    child: Child,
    pid: u32,
    stdin: ChildStdin,
    lines: mpsc::Receiver<String>,
}

impl Running {
    /// Starts a peer, and waits until it has cached everything and is quiet.
    pub async fn settled(testbed: &Testbed<'_>, peer: Peer, task: Task<'_>) -> Result<Self> {
        let mut this = Self::cached(testbed, peer, task).await?;
        this.quiet().await?;
        Ok(this)
    }

    /// Starts a peer, and waits until it has cached everything.
    pub async fn cached(testbed: &Testbed<'_>, peer: Peer, task: Task<'_>) -> Result<Self> {
        let mut this = Self::start(testbed, peer, task).await?;
        if !peer.is_bare() {
            let what = format!("{} to cache {} objects", peer.name(), task.objects);
            wait::until(DEADLINE, &what, async || {
                Ok((this.count().await? >= task.objects).then_some(()))
            })
            .await?;
        }
        Ok(this)
    }

    async fn start(testbed: &Testbed<'_>, peer: Peer, task: Task<'_>) -> Result<Self> {
        fs::create_dir_all(testbed.scene.logs())?;
        let log = testbed.scene.logs().join(format!("{}.log", peer.name()));
        let log = File::options().create(true).append(true).open(log)?;
        let mode = if peer.is_bare() { "bare" } else { task.mode };
        let program = std::process::Command::new(peer.program(testbed.scene.tools()));
        let mut child = Command::from(process::dying_with_us(&program))
            .args(task.places(peer, &testbed.plane.kubeconfig))
            .args(["--mode", mode, "--namespace", task.namespace])
            .args(["--objects", &task.objects.to_string()])
            .args(["--workers", &task.workers.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start {}", peer.name()))?;
        let pid = child.id().context("the peer has ended already")?;
        let stdin = child.stdin.take().expect("it was piped");
        let lines = listen(child.stdout.take().expect("it was piped"));
        let mut this = Self { peer, child, pid, stdin, lines };
        this.heard("ready", |line| (line == Line::Ready).then_some(())).await?;
        Ok(this)
    }

    /// What `wanted` makes of the next line for which it gives something; others are skipped.
    pub async fn heard<T>(&mut self, what: &str, wanted: impl Fn(Line) -> Option<T>) -> Result<T> {
        let name = self.peer.name();
        let search = async {
            while let Some(text) = self.lines.recv().await {
                if let Some(found) = wanted(parse(&text)?) {
                    return Ok(found);
                }
            }
            bail!("{name} ended before it wrote {what:?}")
        };
        match tokio::time::timeout(DEADLINE, search).await {
            Ok(outcome) => outcome,
            Err(_) => bail!("{name} did not write {what:?} within {} s", DEADLINE.as_secs()),
        }
    }

    /// Sends a request.
    pub async fn ask(&mut self, line: &str) -> Result<()> {
        let name = self.peer.name();
        let text = format!("{line}\n");
        self.stdin.write_all(text.as_bytes()).await.with_context(|| format!("ask {name}"))
    }

    async fn count(&mut self) -> Result<usize> {
        self.ask("count").await?;
        let counted = |line| match line {
            Line::Counted { objects } => Some(objects),
            _ => None,
        };
        self.heard("counted", counted).await
    }

    /// Bytes on its heap: by its allocator's count and by its cache's own, since not all of the
    /// cache comes from that allocator.
    pub async fn heap(&mut self) -> Result<(u64, Option<u64>)> {
        self.ask("heap").await?;
        let heap = |line| match line {
            Line::Heap { bytes, cache_bytes } => Some((bytes, cache_bytes)),
            _ => None,
        };
        self.heard("heap", heap).await
    }

    /// Triggers a reconcile of every object. Returns how many seconds that took, as the peer reports.
    pub async fn reconcile_all(&mut self, testbed: &Testbed<'_>) -> Result<f64> {
        let number = testbed.next_number();
        match self.peer {
            peer if peer.is_bare() => self.ask(&format!("trigger {number}")).await?,
            _ => testbed.pull_trigger(number).await?,
        }
        let done = |line| match line {
            Line::Done { trigger, seconds } if trigger == number => Some(seconds),
            _ => None,
        };
        self.heard("done", done).await
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its CPU time and memory so far.
    pub fn usage(&self) -> Result<Usage> {
        usage::of(self.pid)
    }

    /// How many TCP connections it has to `port`.
    pub fn connections(&self, port: u16) -> Result<usize> {
        connections(self.pid, port)
    }

    /// Waits until it has done nothing for a second.
    pub async fn quiet(&mut self) -> Result<()> {
        let mut looks = Vec::new();
        let what = format!("{} to be idle", self.peer.name());
        wait::until(DEADLINE, &what, async || {
            looks.push(usage::cpu(self.pid)?);
            Ok(is_quiet(&looks).then_some(()))
        })
        .await
    }

    /// Asks it to end and waits until it has.
    pub async fn end(mut self) -> Result<()> {
        drop(self.stdin);
        let status = tokio::time::timeout(DEADLINE, self.child.wait()).await;
        let status = status.with_context(|| format!("{} does not end", self.peer.name()))??;
        ensure!(status.success(), "{} ended with {status}", self.peer.name());
        Ok(())
    }
}

/// Whether the last looks at the CPU time of a process show next to none.
fn is_quiet(looks: &[Duration]) -> bool {
    let Some(before) = looks.len().checked_sub(1 + QUIET_LOOKS) else { return false };
    looks.last().is_some_and(|last| last.saturating_sub(looks[before]) <= QUIET_CPU)
}

/// Reads lines all the time, so that a peer never waits for us.
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

fn connections(pid: u32, port: u16) -> Result<usize> {
    let mut own = BTreeSet::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        // An error means that it was closed meanwhile.
        let Ok(target) = fs::read_link(entry?.path()) else { continue };
        let target = target.to_string_lossy();
        let inode = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        own.extend(inode.map(str::to_owned));
    }
    let all = ["tcp", "tcp6"].map(|file| fs::read_to_string(format!("/proc/{pid}/net/{file}")));
    let tables = all.iter().flatten();
    Ok(tables.flat_map(|text| inodes(text, port)).filter(|inode| own.contains(*inode)).count())
}

/// The inodes of established connections to `port`.
fn inodes(table: &str, port: u16) -> impl Iterator<Item = &str> {
    let remote = format!(":{port:04X}");
    table.lines().skip(1).filter_map(move |line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_ours = fields.get(2)?.ends_with(&remote) && *fields.get(3)? == ESTABLISHED;
        fields.get(9).copied().filter(|_| is_ours)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn established_connections_to_the_port_are_found() {
        let table = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:A001 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 111 1
   1: 0100007F:A002 0100007F:1F90 06 00000000:00000000 00:00000000 00000000     0        0 222 1
   2: 0100007F:1F90 0100007F:A001 01 00000000:00000000 00:00000000 00000000     0        0 333 1
   3: 0100007F:A003 0100007F:1F91 01 00000000:00000000 00:00000000 00000000     0        0 444 1
";
        assert_eq!(inodes(table, 8080).collect::<Vec<_>>(), ["111"]);
        assert_eq!(inodes(table, 8081).collect::<Vec<_>>(), ["444"]);
        assert_eq!(inodes("", 8080).count(), 0);
        assert_eq!(connections(std::process::id(), 1).unwrap(), 0);
    }

    #[test]
    fn quiet_means_idle_for_a_second() {
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
