//! One manager process: built if necessary, started as a child, stopped gracefully or killed.

use std::collections::BTreeMap;
use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use loadtest::cpu_share::CpuShare;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::fleet::{Fleet, HOME_NAMESPACE};
use crate::probe::Probe;
use crate::scenario::Scenario;

/// How long a manager may take to drain and exit before it is killed: ten seconds more than the `shutdownGracePeriod`
/// that it has if its configuration says nothing, as Kubernetes waits.
const STOP_GRACE: Duration = Duration::from_secs(70);
/// How many clusters a replica takes from a directory, at the most that a configuration allows.
const MAX_CLUSTERS: u32 = 16_384;

/// The manager's binary.
pub struct Binary {
    path: PathBuf,
    /// Where its processes run.
    pub cpu: Cpu,
}

/// What managers get of the processors; all of it if nothing is said.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cpu {
    /// The one core of all of them.
    pub core: Option<usize>,
    /// The share of a core that each has from its start.
    pub share: Option<f64>,
}

/// One manager process.
pub struct Process {
    /// Its identity, `replica-N`, which it keeps when it is started again.
    pub identity: String,
    /// What is read of it.
    pub probe: Probe,
    pid: u32,
    // Before the process is killed by being dropped: its group would be left.
    share: Option<CpuShare>,
    child: Child,
}

impl Cpu {
    /// The cores of managers, where the load test has these, and the share of each manager.
    pub fn words(self, cores: &str) -> String {
        let cores = self.core.map_or(cores.to_owned(), |core| core.to_string());
        let share = self.share.map(|share| format!(", {:.1} % of a core for each", share * 100.0));
        cores + &share.unwrap_or_default()
    }
}

impl Binary {
    /// The given binary, or else the release binary of this workspace, which is built first.
    ///
    /// # Errors
    /// If there is no such file or the build fails.
    pub async fn find(given: Option<PathBuf>) -> anyhow::Result<Self> {
        if let Some(path) = given {
            ensure!(path.is_file(), "--manager {}: no such file", path.display());
            // A name by itself would be looked for in PATH.
            let path = std::path::absolute(path).context("find the folder of --manager")?;
            return Ok(Self { path, cpu: Cpu::default() });
        }
        // The manager beside a debug build is whatever was built there last.
        if cfg!(debug_assertions) {
            bail!("this is a debug build: run it with --release, or give --manager PATH");
        }
        let me = std::env::current_exe().context("find the path of this program")?;
        let path = me.with_file_name("leasehold");
        println!("building the manager (cargo build --release -p leasehold --features jemalloc)");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml");
        let built = Command::new(cargo)
            .args(["build", "--quiet", "--release", "-p", "leasehold", "--manifest-path", manifest])
            .args(["--features", "jemalloc"])
            .status()
            .await
            .context("run cargo; give a built manager with --manager PATH instead")?;
        ensure!(built.success(), "cargo could not build the manager: {built}; jemalloc takes make");
        ensure!(
            path.is_file(),
            "{} was not built: run this program by cargo, or give --manager PATH",
            path.display()
        );
        Ok(Self { path, cpu: Cpu::default() })
    }

    /// The CRDs that the binary prints.
    ///
    /// # Errors
    /// If the binary fails or prints something else.
    pub async fn crds(&self) -> anyhow::Result<Vec<CustomResourceDefinition>> {
        let text = self.prints("crds").await?;
        serde_saphyr::from_multiple(&text).context("parse the CRDs that the manager prints")
    }

    /// What the binary says of its version.
    ///
    /// # Errors
    /// If the binary fails.
    pub async fn version(&self) -> anyhow::Result<String> {
        Ok(self.prints("--version").await?.trim().to_owned())
    }

    /// The command of a process, which replaces those before it. The kernel kills it when the thread that starts it
    /// ends, here the first of the program: so it does not outlive a load test that is killed.
    fn command(&self) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]);
        if let Some(core) = self.cpu.core {
            command.args(["taskset", "-c", &core.to_string()]);
        }
        command.arg(&self.path);
        command
    }

    async fn prints(&self, argument: &str) -> anyhow::Result<String> {
        let shown = format!("{} {argument}", self.path.display());
        let output = Command::new(&self.path).arg(argument).output().await;
        let output = output.with_context(|| format!("run {shown}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{shown} failed: {said}");
        String::from_utf8(output.stdout).with_context(|| format!("read what {shown} prints"))
    }
}

impl Process {
    /// Starts the `life`-th process of an identity, logging into `dir`.
    ///
    /// # Errors
    /// If a file cannot be written or the process not started.
    pub fn start(
        binary: &Binary,
        (identity, life): (&str, u32),
        scenario: &Scenario,
        fleet: &Fleet,
        dir: &Path,
    ) -> anyhow::Result<Self> {
        let name = if life == 1 { identity.to_owned() } else { format!("{identity}.{life}") };
        let admin = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|l| l.local_addr());
        let admin = admin.context("find a free port for the admin server")?;
        let workers = json!({ "workers": scenario.fleet.workers });
        let beside = scenario.fleet.beside.iter().map(String::as_str);
        let controllers: BTreeMap<&str, &Value> =
            beside.chain(["tdset"]).map(|name| (name, &workers)).collect();
        let mut config = json!({
            "home": {
                "kubeconfig": fleet.home_kubeconfig, "context": "home", "allow": ["loopback"],
            },
            "namespace": HOME_NAMESPACE,
            "identity": identity,
            "clusters": {
                "directories": [{
                    "path": fleet.kubeconfigs.dir, "allow": ["loopback"], "maxClusters": MAX_CLUSTERS,
                }],
            },
            "controllers": controllers,
            "admin": { "bind": admin.to_string() },
            "telemetry": { "log": { "format": "json", "filter": "info" } },
        });
        for (key, value) in &scenario.fleet.config {
            config[key] = value.clone();
        }
        let file = dir.join(format!("{name}.yaml"));
        // JSON is YAML.
        std::fs::write(&file, serde_json::to_vec_pretty(&config)?)
            .with_context(|| format!("write {}", file.display()))?;
        let log_path = dir.join(format!("{name}.log"));
        let log =
            File::create(&log_path).with_context(|| format!("create {}", log_path.display()))?;
        let child = binary
            .command()
            .arg("run")
            .arg("--config")
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("share the log file")?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start {name} by setpriv, which util-linux has"))?;
        let pid = child.id().context("the manager ended at once")?;
        let mut admin = kube::Config::new(format!("http://{admin}").parse()?);
        // What is measured is what is sent.
        admin.disable_compression = true;
        let probe = Probe::process(name, pid, Client::try_from(admin)?);
        let share = binary.cpu.share.map(|share| CpuShare::give(pid, share)).transpose()?;
        Ok(Self { identity: identity.to_owned(), probe, pid, share, child })
    }

    /// Fails if the process has ended on its own.
    ///
    /// # Errors
    /// Names the replica and its exit status.
    pub fn check(&mut self) -> anyhow::Result<()> {
        match self.child.try_wait().with_context(|| format!("check {}", self.probe.name))? {
            None => Ok(()),
            Some(status) => bail!("{} ended on its own: {status}; see its log", self.probe.name),
        }
    }

    /// Sends SIGKILL, and waits for the end.
    ///
    /// # Errors
    /// If it cannot be killed.
    pub async fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill().await.with_context(|| format!("kill {}", self.probe.name))
    }

    /// Sends SIGTERM, then SIGKILL after a grace period. True if it ended on its own with exit code
    /// 0.
    pub async fn stop(mut self) -> bool {
        // It stops as fast as it can.
        let lifted = self.share.take().is_none_or(|share| share.lift().is_ok());
        let pid = i32::try_from(self.pid).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            // An error means that it has just ended, which we notice below.
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        match tokio::time::timeout(STOP_GRACE, self.child.wait()).await {
            Ok(status) => lifted && status.is_ok_and(|status| status.success()),
            Err(_) => {
                let _ = self.child.kill().await;
                false
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_does_not_outlive_the_load_test() {
        let binary = |core| Binary { path: "/m".into(), cpu: Cpu { core, share: None } };
        let words = |core| {
            let command = binary(core).command();
            let command = command.as_std();
            let words = std::iter::once(command.get_program()).chain(command.get_args());
            words.map(|word| word.to_str().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(words(None), "setpriv --pdeathsig KILL -- /m");
        assert_eq!(words(Some(1)), "setpriv --pdeathsig KILL -- taskset -c 1 /m");
    }

    #[tokio::test]
    async fn no_other_manager_is_measured_than_the_one_that_is_named() {
        // Cargo runs tests in the folder of the package.
        let given = Binary::find(Some("Cargo.toml".into())).await.unwrap();
        assert!(given.path.is_absolute() && given.path.is_file(), "{}", given.path.display());
        if cfg!(debug_assertions) {
            let error = Binary::find(None).await.err().unwrap().to_string();
            assert!(error.starts_with("this is a debug build: "), "{error}");
        }
    }

    #[test]
    fn what_managers_get_of_the_processors_is_said() {
        let words = |core, share| Cpu { core, share }.words("0-1");
        assert_eq!(words(None, None), "0-1");
        assert_eq!(words(Some(1), None), "1");
        assert_eq!(words(Some(1), Some(0.08)), "1, 8.0 % of a core for each");
    }
}
