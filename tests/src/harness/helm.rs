//! helm, with its own folders, so that it neither reads nor changes the user's.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use tokio::process::Command;

use super::Scene;
use super::control_plane::ControlPlane;
use super::home::NAMESPACE;

/// The one value of our chart without a default.
pub const IMAGE: &str = "image.repository=registry.example.com/leasehold";

/// helm for one cluster.
#[derive(Debug)]
pub struct Helm {
    program: PathBuf,
    home: PathBuf,
    kubeconfig: PathBuf,
}

/// The folder of our chart.
pub fn chart() -> PathBuf {
    xtask::root().join("deploy/charts/leasehold")
}

/// The arguments of `helm template` for our chart, with `more`.
pub fn template(more: &[&str]) -> Vec<String> {
    let chart = chart().display().to_string();
    let common = ["--namespace", NAMESPACE, "--kube-version", "1.37.1", "--set", IMAGE];
    let arguments = ["template", "leasehold", &chart].into_iter().chain(common);
    arguments.chain(more.iter().copied()).map(str::to_owned).collect()
}

impl Helm {
    /// helm as the administrator of `cluster`.
    pub fn new(scene: &Scene, cluster: &ControlPlane) -> Self {
        Self {
            program: scene.tools().helm(),
            home: scene.dir().join("helm"),
            kubeconfig: cluster.kubeconfig.clone(),
        }
    }

    /// Runs helm and gives its output.
    ///
    /// # Errors
    /// If it fails; the error quotes the arguments and the output.
    pub async fn run(&self, args: &[impl AsRef<str>]) -> Result<String> {
        match self.output(args).await? {
            (true, said, _) => Ok(said),
            (false, said, complaint) => {
                bail!("helm {}: {}{}", line(args), complaint.trim(), said.trim())
            }
        }
    }

    /// Runs helm, which must fail, and gives its output.
    pub async fn refused(&self, args: &[impl AsRef<str>]) -> Result<String> {
        match self.output(args).await? {
            (true, ..) => bail!("helm {} should have been refused", line(args)),
            (false, said, complaint) => Ok(complaint + &said),
        }
    }

    async fn output(&self, args: &[impl AsRef<str>]) -> Result<(bool, String, String)> {
        let output = Command::new(&self.program)
            .args(args.iter().map(AsRef::as_ref))
            .env("KUBECONFIG", &self.kubeconfig)
            .envs(["CACHE", "CONFIG", "DATA"].map(|kind| (format!("HELM_{kind}_HOME"), &self.home)))
            .kill_on_drop(true)
            .output()
            .await
            .context("cannot start helm")?;
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Ok((output.status.success(), text(&output.stdout), text(&output.stderr)))
    }
}

fn line(args: &[impl AsRef<str>]) -> String {
    args.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(" ")
}
