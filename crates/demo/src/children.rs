//! The replicas: child processes `leasehold run`, their files, start and end. Shell.
//!
//! A child cannot outlive the demo. It is killed when its handle is dropped. If the demo itself is
//! killed, the pipe to the child's standard input closes, and the child exits.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use model::{Clock, Moment};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Map, Value, json};
use tokio::process::{Child, ChildStdin, Command};

use crate::layout::{self, Layout, write_private};
use crate::overlap;

/// The controllers of every demo.
const SHOWN: [&str; 2] = ["configmonitor", "tdset"];

/// How long replicas may take to hand over and exit before they are killed.
const STOP_GRACE: Duration = Duration::from_secs(25);

/// The replicas' own bounds, below that.
const DRAIN_TIMEOUT: &str = "5s";
const SHUTDOWN_GRACE_PERIOD: &str = "20s";

/// How many lines of a replica's log are shown when it fails.
const LOG_LINES: usize = 8;

/// Why a replica could not be run.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChildError {
    /// Its files cannot be written.
    #[error("prepare {replica}")]
    Files {
        /// The replica.
        replica: String,
        /// Which file, and why.
        #[source]
        source: layout::LayoutError,
    },
    /// Its process cannot be started or waited for.
    #[error("{what} the process of {replica}")]
    Process {
        /// What was tried.
        what: &'static str,
        /// The replica.
        replica: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// It ended without being asked to.
    #[error("{replica} ended by itself ({status}); the end of {}:\n{tail}", log.display())]
    Ended {
        /// The replica.
        replica: String,
        /// How.
        status: ExitStatus,
        /// Its log.
        log: PathBuf,
        /// The log's last lines.
        tail: String,
    },
}

/// All replicas.
#[derive(Debug)]
pub(crate) struct Children {
    replicas: Vec<Replica>,
    executable: PathBuf,
    /// Variables that each gets beside the environment of this process.
    environment: Vec<(&'static str, &'static str)>,
    clock: Arc<dyn Clock>,
}

/// One replica, running or not.
#[derive(Debug)]
pub(crate) struct Replica {
    name: String,
    admin: SocketAddr,
    folder: PathBuf,
    home: PathBuf,
    clusters: PathBuf,
    /// Their names, and what the configuration says of each.
    controllers: Vec<(&'static str, Value)>,
    process: Option<Process>,
    journals: Vec<JournalFile>,
}

#[derive(Debug)]
struct Process {
    child: Child,
    /// Closes when the demo ends, however it ends.
    _stdin: Option<ChildStdin>,
}

#[derive(Debug)]
struct JournalFile {
    path: PathBuf,
    /// When its process was known to have ended.
    ended: Option<Moment>,
}

impl Children {
    /// The replicas, none of which runs yet, with probes and metrics at these addresses. They run the
    /// controllers in [`SHOWN`] and these `further` ones with their settings, with this `environment` beside ours.
    pub(crate) fn new(
        executable: PathBuf,
        layout: &Layout,
        admin: &[SocketAddr],
        further: impl Iterator<Item = (&'static str, Value)>,
        environment: &[(&'static str, &'static str)],
        clock: Arc<dyn Clock>,
    ) -> Self {
        let shown = SHOWN.into_iter().map(|name| (name, json!({})));
        let controllers: Vec<_> = shown.chain(further).collect();
        let replica = |(index, admin): (usize, &SocketAddr)| {
            let name = format!("replica-{index}");
            Replica {
                admin: *admin,
                folder: absolute(&layout.replica(&name)),
                home: absolute(&layout.home()),
                clusters: absolute(&layout.kubeconfigs()),
                controllers: controllers.clone(),
                process: None,
                journals: Vec::new(),
                name,
            }
        };
        let replicas = admin.iter().enumerate().map(replica).collect();
        Self { replicas, executable, environment: environment.to_vec(), clock }
    }

    /// The replicas, in order.
    pub(crate) fn replicas(&self) -> &[Replica] {
        &self.replicas
    }

    /// Starts every replica.
    ///
    /// # Errors
    /// The first that cannot be started.
    pub(crate) fn start_all(&mut self) -> Result<(), ChildError> {
        (0..self.replicas.len()).try_for_each(|index| self.start(index))
    }

    /// Starts one replica, with a separate journal for this start.
    ///
    /// # Errors
    /// Its files cannot be written or its process cannot be started.
    pub(crate) fn start(&mut self, index: usize) -> Result<(), ChildError> {
        let replica = &mut self.replicas[index];
        let process = replica.spawn(&self.executable, &self.environment)?;
        replica.process = Some(process);
        Ok(())
    }

    /// Kills one replica with SIGKILL and waits until it is dead. Returns the moment of the kill.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) async fn kill(&mut self, index: usize) -> Result<Moment, ChildError> {
        let killed_at = self.clock.now();
        let replica = &mut self.replicas[index];
        if let Some(mut process) = replica.process.take() {
            let failed = |source| ChildError::Process {
                what: "kill",
                replica: replica.name.clone(),
                source,
            };
            process.child.kill().await.map_err(failed)?;
        }
        replica.ended(self.clock.now());
        Ok(killed_at)
    }

    /// The replicas that somebody else has ended since the last time, and how they ended.
    ///
    /// # Errors
    /// One has ended by itself; the error shows the end of its log.
    pub(crate) fn ended(&mut self) -> Result<Vec<(usize, ExitStatus)>, ChildError> {
        let now = self.clock.now();
        let ended = self.replicas.iter_mut().enumerate().filter_map(|(index, replica)| {
            let status = replica.look(now).transpose()?;
            Some(status.map(|status| (index, status)))
        });
        ended.collect()
    }

    /// Asks every replica to hand over and exit, waits for that, and kills those that do not. Returns
    /// the names of the killed ones.
    pub(crate) async fn stop(&mut self) -> Vec<String> {
        for replica in &self.replicas {
            replica.terminate();
        }
        // One grace period for all: they stop at the same time.
        let deadline = tokio::time::sleep(STOP_GRACE);
        tokio::pin!(deadline);
        let mut stubborn = Vec::new();
        for replica in &mut self.replicas {
            let Some(mut process) = replica.process.take() else { continue };
            let in_time = tokio::select! {
                ended = process.child.wait() => ended.is_ok(),
                () = &mut deadline => false,
            };
            if !in_time {
                stubborn.push(replica.name.clone());
                if let Err(error) = process.child.kill().await {
                    tracing::warn!(replica = replica.name, %error, "cannot be killed");
                }
            }
            replica.ended(self.clock.now());
        }
        stubborn
    }

    /// Checks the journals of all replicas that have ended against each other.
    ///
    /// # Errors
    /// A journal cannot be read; the text says which and why.
    pub(crate) fn evidence(&self) -> Result<overlap::Evidence, String> {
        let now = self.clock.now();
        let mut texts = Vec::new();
        for file in self.replicas.iter().flat_map(|replica| &replica.journals) {
            let name = file.path.display().to_string();
            match std::fs::read_to_string(&file.path) {
                Ok(text) => texts.push((name, text, file.ended.unwrap_or(now))),
                // A replica that was stopped right at its start wrote none.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(format!("read journal {name}: {error}")),
            }
        }
        let journals: Vec<_> = texts
            .iter()
            .map(|(name, text, ended)| overlap::Journal {
                name: name.clone(),
                text,
                ended_us: micros(*ended),
            })
            .collect();
        overlap::check(&journals).map_err(|error| model::error::chain(&error))
    }
}

impl Replica {
    /// Its name, which is also its identity.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Where its probes and metrics are.
    pub(crate) fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Whether its process runs, as far as the demo knows.
    pub(crate) fn is_running(&self) -> bool {
        self.process.is_some()
    }

    fn spawn(
        &mut self,
        executable: &Path,
        environment: &[(&str, &str)],
    ) -> Result<Process, ChildError> {
        let number = self.journals.len() + 1;
        let journal = self.folder.join(format!("journal-{number}.jsonl"));
        let config = self.folder.join("config.yaml");
        let files = |source| ChildError::Files { replica: self.name.clone(), source };
        write_private(&config, &self.config(&journal)).map_err(files)?;
        let process =
            |source| ChildError::Process { what: "start", replica: self.name.clone(), source };
        let log = File::options().create(true).append(true).open(self.log()).map_err(process)?;
        let mut child = Command::new(executable)
            .args(["run", "--exit-with-stdin", "--config"])
            .arg(&config)
            .envs(environment.iter().copied())
            .stdin(Stdio::piped())
            .stdout(log.try_clone().map_err(process)?)
            .stderr(log)
            // Ctrl-C is for the demo, which then stops its replicas in order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(process)?;
        let stdin = child.stdin.take();
        self.journals.push(JournalFile { path: journal, ended: None });
        Ok(Process { child, _stdin: stdin })
    }

    fn config(&self, journal: &Path) -> String {
        let controllers: Map<_, _> =
            self.controllers.iter().map(|(name, own)| ((*name).to_owned(), own.clone())).collect();
        let config = json!({
            "controllers": controllers,
            "home": {"kubeconfig": self.home, "context": "home", "allow": ["loopback"]},
            "identity": self.name,
            "clusters": {"directories": [{"path": self.clusters, "allow": ["loopback"]}]},
            "drainTimeout": DRAIN_TIMEOUT,
            "shutdownGracePeriod": SHUTDOWN_GRACE_PERIOD,
            "admin": {"bind": self.admin.to_string()},
            "journal": journal,
        });
        serde_saphyr::to_string(&config).expect("a JSON value can be written as YAML")
    }

    fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    fn terminate(&self) {
        let id = self.process.as_ref().and_then(|process| process.child.id());
        let Some(pid) = id.and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)) else { return };
        // It may have ended this moment.
        let _ = kill_process(pid, Signal::TERM);
    }

    /// How it has ended, if somebody else has ended it.
    fn look(&mut self, now: Moment) -> Result<Option<ExitStatus>, ChildError> {
        let Some(process) = &mut self.process else { return Ok(None) };
        let status = process.child.try_wait().map_err(|source| ChildError::Process {
            what: "watch",
            replica: self.name.clone(),
            source,
        })?;
        let Some(status) = status else { return Ok(None) };
        self.process = None;
        self.ended(now);
        if was_told(status) {
            return Ok(Some(status));
        }
        let log = self.log();
        let tail = last_lines(&log, LOG_LINES);
        Err(ChildError::Ended { replica: self.name.clone(), status, log, tail })
    }

    fn ended(&mut self, now: Moment) {
        if let Some(journal) = self.journals.last_mut() {
            journal.ended.get_or_insert(now);
        }
    }
}

/// Whether a replica that ended so was told to: by a signal, which it obeys with success or cannot survive.
fn was_told(status: ExitStatus) -> bool {
    let signals = [Signal::KILL, Signal::TERM, Signal::INT].map(|signal| Some(signal.as_raw()));
    status.success() || signals.contains(&status.signal())
}

/// Microseconds on the clock that journals are stamped with.
pub(crate) fn micros(moment: Moment) -> u64 {
    u64::try_from(moment.since_origin().as_micros()).unwrap_or(u64::MAX)
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn last_lines(path: &Path, count: usize) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    let tail = &lines[lines.len().saturating_sub(count)..];
    tail.iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_that_somebody_ends_has_not_failed() {
        // As wait(2) has them: a signal below, an exit code above.
        for (raw, expect) in
            [(9, true), (15, true), (0, true), (1 << 8, false), (101 << 8, false), (6, false)]
        {
            let status = ExitStatus::from_raw(raw);
            assert_eq!(was_told(status), expect, "{status}");
        }
    }
}
