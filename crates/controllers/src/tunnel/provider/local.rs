//! Hosts that are processes of this machine, for development and tests: chisel, on a loopback address
//! of its own. Off unless the manager is started with `LEASEHOLD_TUNNEL_LOCAL=1`.
//!
//! A host outlives the manager that made it, as one of a cloud does. What is known of it is a file in
//! a folder, named after the host, so that a create which is made twice makes one. A process counts as
//! ours only while its command line names that file's folder: a process id is soon another's.

use std::fs;
use std::io::{ErrorKind, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use futures::FutureExt;
use jiff::Timestamp;
use model::uid_hash;
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

use super::{Call, Failure, Host, Kind, Provider, State, Wanted};
use crate::tunnel::exit::Exit;
use crate::tunnel::names::{TUNNEL_TAG, Tag};

const NAME: &str = "local";
const FACTS: &str = "host.json";

/// Whether hosts may be processes of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Local {
    /// They may not.
    #[default]
    Forbidden,
    /// They may.
    Allowed {
        /// Where what is known of them is kept.
        folder: PathBuf,
        /// The chisel to run, if there is one.
        chisel: Option<PathBuf>,
    },
}

impl Local {
    pub(super) fn provider(&self) -> Result<Processes, Failure> {
        match self {
            Self::Forbidden => Err(unequipped(
                "provider local runs a process on the manager's machine, which this manager does not \
                 allow: start it with LEASEHOLD_TUNNEL_LOCAL=1, or choose another provider",
            )),
            Self::Allowed { folder, chisel } => {
                Ok(Processes { folder: folder.clone(), chisel: chisel.clone() })
            }
        }
    }
}

/// The hosts in one folder.
pub(super) struct Processes {
    folder: PathBuf,
    chisel: Option<PathBuf>,
}

#[derive(Deserialize, Serialize)]
struct Facts {
    tags: Vec<(String, String)>,
    address: String,
    created: Timestamp,
    pid: Option<i32>,
}

impl Provider for Processes {
    fn list_by_tag(&self, tag: Tag) -> Call<Vec<Host>> {
        let folder = self.folder.clone();
        blocking(move || {
            let mut hosts = Vec::new();
            let entries = match fs::read_dir(&folder) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(hosts),
                entries => entries.map_err(|error| io("read", &folder, &error))?,
            };
            for entry in entries.flatten() {
                let Some(facts) = read(&entry.path())? else { continue };
                if facts.tags.iter().any(|(key, value)| key == tag.key && *value == tag.value) {
                    hosts.push(host(&entry.path(), facts));
                }
            }
            Ok(hosts)
        })
    }

    fn create(&self, wanted: Wanted) -> Call<Host> {
        let home = self.folder.join(&wanted.name);
        let chisel = self.chisel.clone();
        async move {
            let Some(chisel) = chisel else {
                return Err(unequipped(
                    "provider local needs the program chisel: put it into PATH, or name it in \
                     LEASEHOLD_CHISEL",
                ));
            };
            tokio::task::spawn_blocking(move || create(&home, &chisel, &wanted))
                .await
                .map_err(|error| Failure::new(NAME, Kind::Unanswered, error.to_string()))?
        }
        .boxed()
    }

    fn get(&self, id: String) -> Call<Option<Host>> {
        let home = self.folder.join(id);
        blocking(move || Ok(read(&home)?.map(|facts| host(&home, facts))))
    }

    fn delete(&self, id: String) -> Call<()> {
        let home = self.folder.join(id);
        blocking(move || {
            let Some(facts) = read(&home)? else { return Ok(()) };
            if let Some(pid) = facts.pid.filter(|pid| runs(*pid, &home)).and_then(Pid::from_raw) {
                // One that ended a moment ago is as good.
                let _ = kill_process(pid, Signal::TERM);
            }
            fs::remove_dir_all(&home).map_err(|error| io("remove", &home, &error))
        })
    }
}

fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Call<T> {
    async move {
        let done = tokio::task::spawn_blocking(work).await;
        done.map_err(|error| Failure::new(NAME, Kind::Unanswered, error.to_string()))?
    }
    .boxed()
}

fn create(home: &Path, chisel: &Path, wanted: &Wanted) -> Result<Host, Failure> {
    if let Some(facts) = read(home)? {
        return Ok(host(home, facts));
    }
    fs::create_dir_all(home).map_err(|error| io("make", home, &error))?;
    let (key, users) = (home.join("host.key"), home.join("users.json"));
    write(&key, &wanted.exit.credentials.host_key)?;
    write(&users, &wanted.exit.users())?;
    let address = address(&wanted.name);
    let arguments = Exit::arguments(&address, &key.to_string_lossy(), &users.to_string_lossy());
    let log = home.join("log");
    let log = fs::File::create(&log).map_err(|error| io("write", &log, &error))?;
    let child = tokio::process::Command::new(chisel)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        // A signal to the manager's group is not meant for its hosts.
        .process_group(0)
        .spawn()
        .map_err(|error| io("run", chisel, &error))?;
    let tags = wanted.tags.iter().map(|tag| (tag.key.to_owned(), tag.value.clone())).collect();
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
    let facts = Facts { tags, address, created: wanted.now, pid };
    write(&home.join(FACTS), &serde_json::to_string(&facts).unwrap_or_default())?;
    Ok(host(home, facts))
}

/// An address of 127.0.0.0/8 that follows from the host's name, and is none that others use.
fn address(name: &str) -> String {
    let [.., a, b, c] = uid_hash(name).to_be_bytes();
    Ipv4Addr::new(127, 64 | a, b, c.clamp(1, 254)).to_string()
}

/// What is known of a host. One without a file of facts was not completed, and has no process.
fn read(home: &Path) -> Result<Option<Facts>, Failure> {
    let path = home.join(FACTS);
    match fs::read(&path) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(None)
        }
        Err(error) => Err(io("read", &path, &error)),
        Ok(text) => Ok(serde_json::from_slice(&text).ok()),
    }
}

fn host(home: &Path, facts: Facts) -> Host {
    let runs = facts.pid.is_some_and(|pid| runs(pid, home));
    let tunnel = facts.tags.into_iter().find(|(key, _)| key == TUNNEL_TAG);
    Host {
        id: home.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        state: if runs { State::Running } else { State::Stopped },
        address: Some(facts.address),
        created: Some(facts.created),
        tunnel: tunnel.map(|(_, value)| value),
    }
}

/// Whether the process of that id is the one whose files are in `home`.
fn runs(pid: i32, home: &Path) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    String::from_utf8_lossy(&line).contains(&*home.to_string_lossy())
}

/// Written beside and renamed, so that a file is there whole or not at all; for our eyes only.
fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let partial = path.with_extension("partial");
    let written = || {
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(true);
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        options.open(&partial)?.write_all(text.as_bytes())?;
        fs::rename(&partial, path)
    };
    written().map_err(|error| io("write", path, &error))
}

fn io(what: &str, path: &Path, error: &std::io::Error) -> Failure {
    unequipped(format!("cannot {what} {}: {error}", path.display()))
}

fn unequipped(message: impl Into<String>) -> Failure {
    Failure::new(NAME, Kind::Unequipped, message)
}

#[cfg(test)]
#[path = "local_tests.rs"]
mod tests;
