//! A machine for kind: podman as docker, kind, kubectl, helm and leasehold in PATH, a home folder and a
//! network of its own that reaches nothing outside.
//!
//! # Invariants
//! - Dropping the handle kills every process inside, and with them clusters and network; podman's files
//!   go with the scene.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail};

use super::process::Launcher;
use super::realm::Realm;
use super::{Scene, node, real_dir, tools};

/// The cgroups of podman's containers, in each hierarchy.
const CGROUP: &str = "libpod_parent";

/// The machine.
#[derive(Debug)]
pub struct Kind {
    launcher: Launcher,
    environment: Vec<(&'static str, String)>,
    log: PathBuf,
    _realm: Realm,
    _cgroups: Cgroups,
}

/// Removes podman's cgroups when all inside have ended.
#[derive(Debug)]
struct Cgroups;

impl Kind {
    /// Sets the machine up. `docker push` loads an image into `cluster`.
    pub async fn start(scene: &Scene, cluster: &str) -> Result<Self> {
        let (tools, scripts) = (scene.tools(), real_dir().join("kind"));
        let folder = scene.dir().join("kind");
        let [home, bin] = ["home", "bin"].map(|name| folder.join(name));
        fs::create_dir_all(&home)?;
        fs::create_dir_all(&bin)?;
        let programs = [
            ("docker", scripts.join("docker.sh")),
            ("kind", scripts.join("kind.sh")),
            ("kubectl", tools.kube()),
            ("helm", tools.helm()),
            ("leasehold", tools.leasehold()),
        ];
        for (name, target) in programs {
            symlink(target, bin.join(name))?;
        }
        let (images, pause) = (tools.kind_images(), tools.pause());
        let arguments = [&folder, &images, &pause].map(PathBuf::as_path);
        let logs = scene.logs().join("kind");
        let realm =
            Realm::enter(None, &scripts.join("init.sh"), &arguments, &folder, &logs).await?;
        let path = |path: &Path| path.display().to_string();
        let environment = vec![
            ("PATH", format!("{}:{}", path(&bin), std::env::var("PATH").unwrap_or_default())),
            ("HOME", path(&home)),
            ("TMPDIR", path(&folder.join("tmp"))),
            ("CONTAINERS_CONF", path(&folder.join("containers.conf"))),
            ("CONTAINERS_STORAGE_CONF", path(&folder.join("storage.conf"))),
            ("CONTAINERS_REGISTRIES_CONF", path(&folder.join("registries.conf"))),
            ("KIND", path(&tools.kind())),
            ("KIND_EXPERIMENTAL_PROVIDER", "podman".to_owned()),
            ("KIND_CLUSTER_NAME", cluster.to_owned()),
            ("BUILD_OPTIONS", build_options()?),
            ("LOADTEST", path(&tools.loadtest())),
        ];
        let launcher = realm.launcher()?;
        let log = logs.join("commands.log");
        let this = Self { launcher, environment, log, _realm: realm, _cgroups: Cgroups };
        this.prepare_base().await?;
        Ok(this)
    }

    /// Runs lines of a shell in the workspace's root, the first that fails being the last, and gives
    /// what they print.
    ///
    /// # Errors
    /// If one fails; the error quotes what it said.
    pub async fn shell(&self, lines: &str) -> Result<String> {
        let mut command = self.launcher.command(Path::new("bash"));
        // Who enters a mount namespace stands in its root.
        let script = format!("cd \"$0\"; {lines}");
        command.args(["-euo", "pipefail", "-c", &script]).arg(xtask::root());
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        let mut command = tokio::process::Command::from(command);
        let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await;
        let output = output.context("run bash")?;
        let [said, complaint] =
            [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        let mut log = fs::File::options().create(true).append(true).open(&self.log)?;
        write!(log, "$ {lines}\n{said}{complaint}")?;
        if !output.status.success() {
            bail!("{lines}\n{said}{complaint}({})", output.status);
        }
        Ok(said)
    }

    /// The base image of `deploy/Dockerfile` with this machine's toolchain, which is mounted.
    async fn prepare_base(&self) -> Result<()> {
        let [cargo, rustup] = toolchain()?;
        let target = tools::target_dir();
        let file = format!(
            "FROM localhost/debian\n\
             ENV PATH={0}/bin:/usr/sbin:/usr/bin:/sbin:/bin CARGO_HOME={0} RUSTUP_HOME={1} \
             CARGO_TARGET_DIR={2} CARGO_NET_OFFLINE=true CARGO_INCREMENTAL=0\n",
            cargo.display(),
            rustup.display(),
            target.display(),
        );
        let base = tools::dockerfile_base();
        let build = format!("podman build --quiet --tag {base} --file - /run <<'E'\n{file}E");
        self.shell(&build).await.map(drop)
    }
}

/// What lets `docker build` compile without a network: the machine's toolchain and crates, and what was
/// built before, at the same paths. Without optimisation, as all that checks run.
fn build_options() -> Result<String> {
    let [cargo, rustup] = toolchain()?;
    let mounts = [cargo, rustup, tools::target_dir()];
    let mounts = mounts.iter().map(|path| format!("--volume {0}:{0} ", path.display()));
    Ok(mounts.collect::<String>() + "--build-arg PROFILE=dev")
}

/// The folders of cargo and rustup.
fn toolchain() -> Result<[PathBuf; 2]> {
    let home = std::env::var("HOME").context("HOME is not set")?;
    Ok([("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")].map(|(variable, default)| {
        std::env::var_os(variable).map_or_else(|| Path::new(&home).join(default), PathBuf::from)
    }))
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        node::cgroups(CGROUP).iter().for_each(|folder| node::remove_cgroup(folder));
    }
}
