//! Hosts that are processes of this machine, for development and tests: rathole, on a loopback address
//! of its own. A host with several clients has haproxy too, which listens on the ports that the host was made
//! with. Off unless the manager is started with `LEASEHOLD_TUNNEL_LOCAL=1`.
//!
//! A host outlives the manager that created it, as one of a cloud does. Its facts are a file in a
//! folder that is named after the host, so a request that is repeated creates one host. Its process is
//! the one with that folder's configuration on its command line: a recorded process id would soon
//! belong to another process, and a crash might prevent the record.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use futures::FutureExt;
use jiff::Timestamp;
use rustix::process::{Pid, Signal, kill_process};
use sdk::uid_hash;
use serde::{Deserialize, Serialize};

use super::{Address, AddressRequest, Call, Failure, Host, HostRequest, Kind, Provider, State};
use crate::api::Protocol;
use crate::balance::{self, Addresses};
use crate::exit::Exit;
use crate::names::{CLUSTER_TAG, EXIT_TAG, TUNNEL_TAG, Tag, exit_tag};

const NAME: &str = "local";
const FACTS: &str = "host.json";
const CONFIG: &str = "server.toml";
/// The configuration of haproxy, if the host has several clients.
const BALANCER: &str = "haproxy.cfg";
/// The folder of the reserved addresses, beside those of the hosts.
const ADDRESSES: &str = "addresses";

/// Whether hosts may be processes of this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Local {
    /// They may not.
    #[default]
    Forbidden,
    /// They may.
    Allowed {
        /// The folder of their files.
        folder: PathBuf,
        /// The rathole to run, if there is one.
        rathole: Option<PathBuf>,
        /// The haproxy to run, if there is one.
        haproxy: Option<PathBuf>,
    },
}

impl Local {
    pub(super) fn provider(&self) -> Result<Processes, Failure> {
        match self {
            Self::Forbidden => Err(unequipped(
                "provider local runs a process on the manager's machine, which this manager does not \
                 allow: start it with LEASEHOLD_TUNNEL_LOCAL=1, or choose another provider",
            )),
            Self::Allowed { folder, rathole, haproxy } => {
                let programs = Programs { rathole: rathole.clone(), haproxy: haproxy.clone() };
                Ok(Processes { folder: folder.clone(), programs })
            }
        }
    }
}

/// The hosts in one folder.
pub(super) struct Processes {
    folder: PathBuf,
    programs: Programs,
}

/// What hosts run, as far as it is there.
#[derive(Clone)]
struct Programs {
    rathole: Option<PathBuf>,
    haproxy: Option<PathBuf>,
}

#[derive(Deserialize, Serialize)]
struct Facts {
    tags: BTreeMap<String, String>,
    address: String,
    created: Timestamp,
}

/// A reserved address. Its file has the name of the request.
#[derive(Deserialize, Serialize)]
struct Reserved {
    ip: String,
    region: String,
    host: Option<String>,
    tags: BTreeMap<String, String>,
    created: Timestamp,
}

impl Reserved {
    fn address(&self, id: &str) -> Address {
        Address {
            id: id.to_owned(),
            ip: self.ip.clone(),
            region: self.region.clone(),
            host: self.host.clone(),
            created: Some(self.created),
            tunnel: self.tags.get(TUNNEL_TAG).cloned(),
            cluster: self.tags.get(CLUSTER_TAG).cloned(),
        }
    }

    fn record(&self, path: &Path) -> Result<(), Failure> {
        write(path, &serde_json::to_string(self).unwrap_or_default())
    }
}

impl Provider for Processes {
    fn list_by_tag(&self, tag: Tag) -> Call<Vec<Host>> {
        let folder = self.folder.clone();
        blocking(move || list(&folder, |tags| tags.get(tag.key) == Some(&tag.value)))
    }

    fn list(&self) -> Call<Vec<Host>> {
        let folder = self.folder.clone();
        blocking(move || list(&folder, |tags| tags.contains_key(TUNNEL_TAG)))
    }

    fn create(&self, wanted: HostRequest) -> Call<Host> {
        let (home, programs) = (self.folder.join(&wanted.name), self.programs.clone());
        blocking(move || create(&home, &programs, &wanted))
    }

    fn get(&self, id: String) -> Call<Option<Host>> {
        let home = self.folder.join(id);
        blocking(move || Ok(read(&home)?.map(|facts| host(&home, facts))))
    }

    fn delete(&self, id: String) -> Call<()> {
        let home = self.folder.join(id);
        blocking(move || {
            if read(&home)?.is_none() {
                return Ok(());
            }
            stop(&home);
            fs::remove_dir_all(&home).map_err(|error| io("remove", &home, &error))
        })
    }

    fn reconfigure(&self, id: String, exit: Exit) -> Option<Call<()>> {
        let (home, programs) = (self.folder.join(id), self.programs.clone());
        Some(blocking(move || reconfigure(&home, &programs, &exit)))
    }

    fn tells_address(&self) -> bool {
        false
    }

    fn addresses(&self) -> Call<Vec<Address>> {
        let folder = self.folder.clone();
        blocking(move || reserved(&folder))
    }

    fn reserve(&self, wanted: AddressRequest) -> Call<Address> {
        let folder = self.folder.clone();
        blocking(move || reserve(&folder, &wanted))
    }

    /// The host that has it listens on no other address. A host that had it before is gone or is about to go.
    fn assign(&self, id: String, host: String) -> Call<()> {
        let (folder, programs) = (self.folder.clone(), self.programs.clone());
        blocking(move || assign(&folder, &programs, &id, &host))
    }

    fn release(&self, id: String) -> Call<()> {
        let path = self.folder.join(ADDRESSES).join(id);
        blocking(move || remove(&path))
    }
}

impl Programs {
    fn rathole(&self) -> Result<&Path, Failure> {
        self.rathole.as_deref().ok_or_else(|| {
            unequipped(
                "provider local needs the program rathole: put it into PATH, or name it in \
                 LEASEHOLD_RATHOLE",
            )
        })
    }

    fn haproxy(&self) -> Result<&Path, Failure> {
        self.haproxy.as_deref().ok_or_else(|| {
            unequipped(
                "provider local needs the program haproxy for several clients: put it into PATH, or name it in \
                 LEASEHOLD_HAPROXY",
            )
        })
    }

    /// Whether a host that is told this can run.
    fn check(&self, exit: &Exit) -> Result<(), Failure> {
        self.rathole()?;
        if exit.clients > 1 { self.haproxy().map(drop) } else { Ok(()) }
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

fn list(
    folder: &Path,
    wanted: impl Fn(&BTreeMap<String, String>) -> bool,
) -> Result<Vec<Host>, Failure> {
    let mut hosts = Vec::new();
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(hosts),
        entries => entries.map_err(|error| io("read", folder, &error))?,
    };
    for entry in entries.flatten() {
        let Some(facts) = read(&entry.path())? else { continue };
        if wanted(&facts.tags) {
            hosts.push(host(&entry.path(), facts));
        }
    }
    Ok(hosts)
}

/// Creates a host. The facts come before the process, so that no crash leaves one that no list shows.
fn create(home: &Path, programs: &Programs, wanted: &HostRequest) -> Result<Host, Failure> {
    programs.check(&wanted.exit)?;
    if let Some(facts) = read(home)? {
        return Ok(host(home, facts));
    }
    fs::create_dir_all(home).map_err(|error| io("create", home, &error))?;
    let address = address(&wanted.name);
    tell(home, &address, &wanted.exit)?;
    let tags = wanted.tags.iter().map(|tag| (tag.key.to_owned(), tag.value.clone())).collect();
    let facts = Facts { tags, address, created: wanted.now };
    record(home, &facts)?;
    start(home, programs)?;
    // A process that started a moment ago may not show its command line yet.
    Ok(Host { state: State::Starting, ..host(home, facts) })
}

/// The reserved addresses. One whose host is gone waits for another.
fn reserved(folder: &Path) -> Result<Vec<Address>, Failure> {
    let folder = folder.join(ADDRESSES);
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(|error| io("read", &folder, &error))?,
    };
    let mut addresses = Vec::new();
    for entry in entries.flatten() {
        if entry.path().extension().is_some_and(|is| is == "partial") {
            continue;
        }
        // One that was released a moment ago.
        let Ok(text) = fs::read(entry.path()) else { continue };
        let Ok(facts) = serde_json::from_slice::<Reserved>(&text) else { continue };
        addresses.push(facts.address(&entry.file_name().to_string_lossy()));
    }
    Ok(addresses)
}

fn reserve(folder: &Path, wanted: &AddressRequest) -> Result<Address, Failure> {
    let known = reserved(folder)?.into_iter().find(|address| address.id == wanted.name);
    if let Some(known) = known {
        return Ok(known);
    }
    let folder = folder.join(ADDRESSES);
    fs::create_dir_all(&folder).map_err(|error| io("create", &folder, &error))?;
    let facts = Reserved {
        ip: address(&format!("reserved {}", wanted.name)),
        region: wanted.region.clone(),
        host: None,
        tags: wanted.tags.iter().map(|tag| (tag.key.to_owned(), tag.value.clone())).collect(),
        created: wanted.now,
    };
    facts.record(&folder.join(&wanted.name))?;
    Ok(facts.address(&wanted.name))
}

/// Restarts a host on an address, and then records that it has it: a crash in between repeats it.
fn assign(folder: &Path, programs: &Programs, id: &str, host: &str) -> Result<(), Failure> {
    let (path, home) = (folder.join(ADDRESSES).join(id), folder.join(host));
    let gone = |what: &str| Failure::new(NAME, Kind::Gone, format!("there is no {what}"));
    let text = fs::read(&path).map_err(|_| gone(id))?;
    let mut facts: Reserved = serde_json::from_slice(&text).map_err(|_| gone(id))?;
    let Some(mut told) = read(&home)? else { return Err(gone(host)) };
    if told.address != facts.ip {
        let (old, new) = (format!("{}:", told.address), format!("{}:", facts.ip));
        programs.rathole()?;
        stop(&home);
        for config in configs(&home) {
            let before =
                fs::read_to_string(&config).map_err(|error| io("read", &config, &error))?;
            write(&config, &before.replace(&old, &new))?;
        }
        told.address.clone_from(&facts.ip);
        record(&home, &told)?;
        start(&home, programs)?;
    }
    facts.host = Some(host.to_owned());
    facts.record(&path)
}

/// Stops a running host; starts a stopped one with the new configuration and tags it. The ports of the
/// old process are free only when it has ended.
fn reconfigure(home: &Path, programs: &Programs, exit: &Exit) -> Result<(), Failure> {
    programs.check(exit)?;
    let Some(mut facts) = read(home)? else { return Ok(()) };
    if stop(home) {
        return Ok(());
    }
    tell(home, &facts.address, exit)?;
    start(home, programs)?;
    let tag = exit_tag(exit.digest());
    facts.tags.insert(tag.key.to_owned(), tag.value);
    record(home, &facts)
}

/// Writes what a host at an address runs.
fn tell(home: &Path, address: &str, exit: &Exit) -> Result<(), Failure> {
    let addresses = addresses(home, address);
    write(&home.join(CONFIG), &exit.config(&addresses))?;
    let balancer = home.join(BALANCER);
    if exit.clients > 1 {
        let ports = exit.ports.iter().filter(|port| port.protocol == Protocol::Tcp);
        let ports = ports.map(|port| port.port);
        return write(&balancer, &balance::process(exit.clients, &addresses, ports));
    }
    remove(&balancer)
}

/// Where a host listens that has this address for everybody.
fn addresses(home: &Path, public: &str) -> Addresses {
    let name = home.file_name().unwrap_or_default().to_string_lossy();
    Addresses::process(public, &name, address)
}

/// The configurations of a host's processes.
fn configs(home: &Path) -> impl Iterator<Item = PathBuf> {
    let balancer = Some(home.join(BALANCER)).filter(|config| config.exists());
    std::iter::once(home.join(CONFIG)).chain(balancer)
}

fn record(home: &Path, facts: &Facts) -> Result<(), Failure> {
    write(&home.join(FACTS), &serde_json::to_string(facts).unwrap_or_default())
}

/// Starts a host's processes. Their output goes to a file beside their configurations.
fn start(home: &Path, programs: &Programs) -> Result<(), Failure> {
    let log = home.join("log");
    let log = fs::File::create(&log).map_err(|error| io("write", &log, &error))?;
    for config in configs(home) {
        let file = config.to_string_lossy();
        let (program, arguments) = match config.ends_with(CONFIG) {
            true => (programs.rathole()?, Exit::arguments(&file).to_vec()),
            false => (programs.haproxy()?, balance::arguments(&file).to_vec()),
        };
        let output = || log.try_clone().map_err(|error| io("write", program, &error));
        tokio::process::Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(output()?)
            .stderr(output()?)
            // Hosts must not get the signals to the manager's process group.
            .process_group(0)
            .spawn()
            .map_err(|error| io("run", program, &error))?;
    }
    Ok(())
}

/// An address of 127.0.0.0/8 that follows from the host's name.
fn address(name: &str) -> String {
    let [.., a, b, c] = uid_hash(name).to_be_bytes();
    Ipv4Addr::new(127, 64 | a, b, c.clamp(1, 254)).to_string()
}

/// The facts of a host. One without a file of facts was not completed, and has no process.
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
    Host {
        id: home.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        state: match configs(home).any(|config| processes(&config).is_empty()) {
            true => State::Stopped,
            false => State::Running,
        },
        address: Some(facts.address),
        ipv6: None,
        created: Some(facts.created),
        tunnel: facts.tags.get(TUNNEL_TAG).cloned(),
        cluster: facts.tags.get(CLUSTER_TAG).cloned(),
        exit: facts.tags.get(EXIT_TAG).cloned(),
    }
}

/// Sends SIGTERM to the host's processes. Returns whether there were any.
fn stop(home: &Path) -> bool {
    let found: Vec<_> = configs(home).flat_map(|config| processes(&config)).collect();
    for pid in &found {
        // It may have ended a moment ago.
        let _ = kill_process(*pid, Signal::TERM);
    }
    !found.is_empty()
}

/// The processes with a configuration on their command lines. A process that has ended has no command line, even
/// before it is reaped.
fn processes(config: &Path) -> Vec<Pid> {
    let has_it = |process: &Path| {
        let line = fs::read(process.join("cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).any(|word| word == config.as_os_str().as_encoded_bytes())
    };
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ours = all.filter(|process| has_it(&process.path()));
    ours.filter_map(|process| Pid::from_raw(process.file_name().to_str()?.parse().ok()?)).collect()
}

/// Writes a file beside and renames it, so that it is there whole or not at all, for its owner only.
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

/// Removes a file, if it is there.
fn remove(path: &Path) -> Result<(), Failure> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(io("remove", path, &error)),
        _ => Ok(()),
    }
}

fn io(what: &str, path: &Path, error: &std::io::Error) -> Failure {
    unequipped(format!("cannot {what} {}: {error}", path.display()))
}

fn unequipped(message: impl AsRef<str>) -> Failure {
    Failure::new(NAME, Kind::Unequipped, message)
}

#[cfg(test)]
#[path = "local_tests.rs"]
mod tests;
