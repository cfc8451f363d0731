//! Namespaces of their own, with a first process whose end is the end of everything inside.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};

use super::process::{ChildProcess, Launcher};
use super::wait;

const START_DEADLINE: Duration = Duration::from_secs(60);

/// Mount, pid, uts and ipc namespaces. Dropping it kills every process inside.
#[derive(Debug)]
pub struct Realm {
    init: ChildProcess,
}

impl Realm {
    /// Enters the namespaces with `bash SCRIPT ARGUMENTS...` as first process, which makes a file
    /// `ready` in `folder` when all is set up, and stays. `network` is that of `ip netns NAME`, or a new
    /// one that reaches nothing.
    pub async fn enter(
        network: Option<&str>,
        script: &Path,
        arguments: &[&Path],
        folder: &Path,
        logs: &Path,
    ) -> Result<Self> {
        // Not `ip netns exec`, which mounts a /sys without cgroups.
        let mut command = Command::new(if network.is_some() { "nsenter" } else { "unshare" });
        match network {
            Some(name) => command.arg(format!("--net=/run/netns/{name}")).arg("unshare"),
            None => command.arg("--net"),
        };
        command
            .args(["--mount", "--pid", "--uts", "--ipc", "--fork", "--mount-proc"])
            .args(["--kill-child=KILL", "--propagation", "private", "bash"])
            .arg(script)
            .args(arguments);
        let init = ChildProcess::spawn("init", &command, logs)?;
        let mut this = Self { init };
        let ready = folder.join("ready");
        wait::until(START_DEADLINE, "namespaces of their own", async || {
            this.init.check_alive()?;
            Ok(ready.exists().then_some(()))
        })
        .await?;
        Ok(this)
    }

    /// Runs processes inside.
    pub fn launcher(&self) -> Result<Launcher> {
        self.first_process().map(Launcher::inside)
    }

    /// The id that the first process inside has outside.
    fn first_process(&self) -> Result<u32> {
        let outer = self.init.id();
        let children = fs::read_to_string(format!("/proc/{outer}/task/{outer}/children"))?;
        let first = children.split_whitespace().next().context("nothing runs inside")?;
        Ok(first.parse()?)
    }
}

impl Drop for Realm {
    fn drop(&mut self) {
        // The kernel reaps the first process of a pid namespace only after all the others.
        if let Ok(first) = self.first_process()
            && let Some(pid) = i32::try_from(first).ok().and_then(Pid::from_raw)
        {
            let _ = kill_process(pid, Signal::KILL);
            self.init.wait();
        }
        self.init.kill();
    }
}
