//! The embedded API server as a separate process: `leasehold apiserver`.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use kube::Client;

use super::kubectl::{self, Kubectl};
use super::process::{ChildProcess, free_port};
use super::{Scene, wait};

const READY_DEADLINE: Duration = Duration::from_secs(20);

/// A running embedded server. Dropping it stops it.
pub struct Embedded {
    _process: ChildProcess,
    /// Its name: of its kubeconfig's one context, and of its log.
    pub name: String,
    /// The administrator's kubeconfig.
    pub kubeconfig: PathBuf,
    /// kubectl as its administrator.
    pub kubectl: Kubectl,
    /// A client as its administrator.
    pub client: Client,
}

impl Embedded {
    /// Starts one. If `alive`, stand-ins for the controllers of a real cluster run in it.
    pub async fn start(scene: &Scene, name: &str, alive: bool) -> Result<Self> {
        let kubeconfig = scene.dir().join(format!("{name}.kubeconfig"));
        let mut command = Command::new(scene.tools().leasehold());
        command.args(["apiserver", "--name", name, "--port", &free_port()?.to_string()]);
        command.args(["--authorization-mode", "RBAC"]);
        command.arg("--kubeconfig").arg(&kubeconfig);
        let alive = alive.to_string();
        command.args(["--workloads", &alive, "--garbage-collector", &alive]);
        let mut process = ChildProcess::spawn(name, &command, &scene.logs())?;
        let client = wait::until(READY_DEADLINE, "the embedded server to be ready", async || {
            process.check_alive()?;
            let Ok(client) = kubectl::client(&kubeconfig, name).await else { return Ok(None) };
            Ok(kubectl::is_ready(&client).await.then_some(client))
        })
        .await?;
        let kubectl = Kubectl::new(&scene.tools().kube(), &kubeconfig, name);
        Ok(Self { _process: process, name: name.to_owned(), kubeconfig, kubectl, client })
    }
}
