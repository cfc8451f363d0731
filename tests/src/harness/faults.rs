//! What happens to Pods of a node: their processes stop or die, their network is cut.
//!
//! The kubelet notices none of it but by what it probes itself: it keeps running, and port-forward
//! through it still reaches a Pod that others cannot reach.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::node::Node;
use super::process::run;

/// The tables that hold the rules against one Pod: what bridges pass on, and what is routed.
const FAMILIES: [&str; 2] = ["bridge", "inet"];

impl Node {
    /// Kills the processes of a container with SIGKILL, from outside. `container` is its id in a
    /// Pod's status without the runtime's name, which is also in the name of its cgroup.
    pub fn kill_container(&self, container: &str) -> Result<()> {
        self.signal_container(container, Signal::KILL)
    }

    /// Stops the processes of a container with SIGSTOP; they keep all that they have open.
    pub fn pause_container(&self, container: &str) -> Result<()> {
        self.signal_container(container, Signal::STOP)
    }

    /// Lets the processes of a container continue.
    pub fn resume_container(&self, container: &str) -> Result<()> {
        self.signal_container(container, Signal::CONT)
    }

    fn signal_container(&self, container: &str, signal: Signal) -> Result<()> {
        let node = format!("/{}/", self.name());
        let mut found = 0;
        for entry in fs::read_dir("/proc")?.flatten() {
            let id = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
            let Some(id) = id.and_then(Pid::from_raw) else { continue };
            let cgroup = fs::read_to_string(entry.path().join("cgroup")).unwrap_or_default();
            if cgroup.contains(&node) && cgroup.contains(container) {
                // With the first of them the others end.
                let sent = kill_process(id, signal);
                ensure!(
                    sent.is_ok() || found > 0,
                    "signal {id} of container {container}: {sent:?}"
                );
                found += 1;
            }
        }
        ensure!(found > 0, "no process is in container {container}");
        Ok(())
    }

    /// Drops all packets between a Pod and other Pods, Services and machines, both ways. The kubelet's
    /// probes still arrive.
    pub fn cut(&self, pod: Ipv4Addr) -> Result<()> {
        let table = table(pod);
        for family in FAMILIES {
            let rules = format!(
                "add table {family} {table}; add chain {family} {table} forward \
                 {{ type filter hook forward priority -200; policy accept; }}; \
                 add rule {family} {table} forward ip saddr {pod} drop; \
                 add rule {family} {table} forward ip daddr {pod} drop"
            );
            self.filter(&[&rules])?;
        }
        Ok(())
    }

    /// Ends a [`cut`](Self::cut).
    pub fn mend(&self, pod: Ipv4Addr) -> Result<()> {
        let delete = |family: &&str| self.filter(&["delete", "table", family, &table(pod)]);
        FAMILIES.iter().try_for_each(delete)
    }

    fn filter(&self, words: &[&str]) -> Result<()> {
        run(self.launcher().command(Path::new("nft")).args(words)).map(drop)
    }
}

fn table(pod: Ipv4Addr) -> String {
    format!("cut-{pod}").replace(['.', '-'], "_")
}

/// The id of a container of a Pod, without the name of the runtime.
pub fn container_id(pod: &Value, container: &str) -> Result<String> {
    let all = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    let mut ids =
        all.filter(|status| status["name"] == container && status["state"]["running"].is_object());
    let id = ids.next().and_then(|status| status["containerID"].as_str()?.split("//").nth(1));
    let name = super::kubectl::name(pod);
    Ok(id.with_context(|| format!("Pod {name} has no running container {container}"))?.to_owned())
}

/// The address of a Pod.
pub fn address(pod: &Value) -> Result<Ipv4Addr> {
    let name = super::kubectl::name(pod);
    let address = pod["status"]["podIP"].as_str();
    Ok(address.with_context(|| format!("Pod {name} has no address"))?.parse()?)
}
