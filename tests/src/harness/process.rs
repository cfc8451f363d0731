//! Child processes that nothing leaves behind.
//!
//! # Invariants
//! - A [`ChildProcess`] runs in a process group of its own and dies with its handle: dropping it,
//!   on whatever path, kills the group and reaps it.
//! - It also dies with the thread that started it: `setpriv --pdeathsig` asks the kernel to kill it
//!   if that thread ends without dropping the handle.

use std::ffi::OsString;
use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};

use super::wait;

/// How many of the last lines of a log an error quotes.
const QUOTED_LOG_LINES: usize = 5;

/// Where processes run: on this machine, or inside the namespaces of a node.
#[derive(Clone, Debug, Default)]
pub struct Launcher {
    /// What precedes every command line: nothing, or `nsenter ...`.
    prefix: Vec<OsString>,
}

/// A running child.
#[derive(Debug)]
pub struct ChildProcess {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Launcher {
    /// Runs processes inside the namespaces of process `pid`.
    pub fn inside(pid: u32) -> Self {
        let pid = pid.to_string();
        let enter =
            ["nsenter", "--target", &pid, "--mount", "--net", "--pid", "--uts", "--ipc", "--"];
        Self { prefix: enter.iter().map(OsString::from).collect() }
    }

    /// The command that runs `program` there.
    pub fn command(&self, program: &Path) -> Command {
        let mut words = self.prefix.iter().map(OsString::as_os_str).chain([program.as_os_str()]);
        let mut command = Command::new(words.next().expect("the program at least"));
        command.args(words);
        command
    }
}

impl ChildProcess {
    /// Starts `command`. Its output goes to `logs/NAME.log`.
    pub fn spawn(name: &str, command: &Command, logs: &Path) -> Result<Self> {
        fs::create_dir_all(logs)?;
        let path = logs.join(format!("{name}.log"));
        let log = File::options().create(true).append(true).open(&path)?;
        let child = dying_with_us(command)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {name}"))?;
        Ok(Self { name: name.to_owned(), child, log: path })
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its output so far.
    pub fn output(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Fails, quoting the end of the log, if the process has ended.
    pub fn check_alive(&mut self) -> Result<()> {
        let Some(status) = self.child.try_wait()? else { return Ok(()) };
        let output = self.output();
        let lines: Vec<&str> = output.lines().collect();
        let tail = lines[lines.len().saturating_sub(QUOTED_LOG_LINES)..].join("\n  ");
        bail!("{} ended ({status}); the end of its log:\n  {tail}", self.name)
    }

    /// Kills it with SIGKILL, at once, and reaps it.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.wait();
    }

    /// Waits until it ends.
    pub fn wait(&mut self) {
        // An error means it was reaped before.
        let _ = self.child.wait();
    }

    /// Asks it with SIGTERM to end, and waits until it does.
    pub async fn terminate(&mut self, deadline: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM);
        let what = format!("{} to end after SIGTERM", self.name);
        let child = &mut self.child;
        wait::until(deadline, &what, async || Ok(child.try_wait()?)).await
    }

    /// Stops it with SIGSTOP; it keeps everything it has open.
    pub fn pause(&mut self) {
        self.signal(Signal::STOP);
    }

    /// Resumes it with SIGCONT.
    pub fn resume(&mut self) {
        self.signal(Signal::CONT);
    }

    fn signal(&mut self, signal: Signal) {
        // Once it is reaped, its id may belong to another process.
        if let Ok(None) = self.child.try_wait()
            && let Some(group) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
        {
            let _ = kill_process_group(group, signal);
        }
    }
}

/// `command`, changed so that the kernel kills it when the thread that starts it ends.
pub fn dying_with_us(command: &Command) -> Command {
    let mut wrapped = Command::new("setpriv");
    wrapped.args(["--pdeathsig", "KILL", "--"]).arg(command.get_program());
    wrapped.args(command.get_args());
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(key, value),
            None => wrapped.env_remove(key),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        wrapped.current_dir(dir);
    }
    wrapped
}

/// A port that nothing listens on at this moment.
pub fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no free port")?;
    Ok(listener.local_addr()?.port())
}

/// Runs a short command and gives its output.
///
/// # Errors
/// If it cannot be started or fails; the error quotes its standard error.
pub fn run(command: &mut Command) -> Result<String> {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let line: Vec<_> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    let line = line.join(" ");
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("run {line}"))?;
    if !output.status.success() {
        bail!("{line}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.kill();
    }
}
