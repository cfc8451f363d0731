//! What the checks need besides our own: built once by Go from the module proxy or by cargo from the
//! crate registry, or installed from Debian. Everything is kept under `target/real/bin`, in folders named after what went into them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use crate::packages::{self, Package};

use super::real_dir;
use super::wait::Stopwatch;

const KUBERNETES: &str = "1.37.1";
const CONTAINERD: &str = "2.4.2";
const HELM: &str = "3.22.0";
const MOTO: &str = "5.2.5";
/// The one that hosts of Tunnels run.
const RATHOLE: &str = leasehold::controllers::tunnel::exit::VERSION;

/// Debian's packages for a real node, each with a file that shows it is there.
const NODE_PACKAGES: &[Package] = &[
    ("runc", "/usr/sbin/runc"),
    ("containernetworking-plugins", "/usr/lib/cni/bridge"),
    ("nftables", "/usr/sbin/nft"),
    ("conntrack", "/usr/sbin/conntrack"),
    ("iptables", "/usr/sbin/iptables"),
    ("iproute2", "/usr/sbin/ip"),
    ("util-linux", "/usr/bin/nsenter"),
];

/// What cargo is asked for to build the peers in Rust. All at once, so that what they share is built
/// once.
const PEERS: &[&str] = &[
    "--package=peer-kube-rs",
    "--bin=peer-kube-rs",
    "--package=peer-leasehold",
    "--bin=peer-leasehold",
    "--package=leasehold-engine",
    "--example=queue_speed",
];

/// Something a check cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Every Kubernetes component, etcd and kubectl, in one binary.
    Kube,
    /// helm.
    Helm,
    /// The OpenTelemetry collector.
    Collector,
    /// moto, a stand-in for AWS in Python.
    Moto,
    /// Root, namespaces, containerd and Debian's packages: a node that runs containers.
    Node,
    /// Our own release binary, static.
    Leasehold,
    /// The example controller whose reconciles take long, likewise.
    Slow,
    /// rathole, which hosts of Tunnels and their clients run.
    Rathole,
    /// The small controller that is compared, on each of what it is compared on.
    Peers,
}

/// Where the built tools are.
#[derive(Clone, Debug)]
pub struct Tools {
    bin: PathBuf,
    /// A `leasehold` that was built elsewhere.
    given: Option<PathBuf>,
}

/// What builds a tool.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Builder {
    Go,
    Cargo,
}

/// One build of somebody else's program.
struct Build {
    /// What does it.
    builder: Builder,
    /// Name, version and why it takes long, for people.
    title: String,
    /// Below [`Tools::bin`]; changes with everything that went into it.
    folder: String,
    /// The module's folder for a build of our own, else where `go install` may run anywhere.
    module: PathBuf,
    /// The arguments of each run of the builder; `{out}` is the folder to build into.
    commands: Vec<Vec<String>>,
}

impl Tools {
    /// The tools of this workspace, built or not; `leasehold` may be given.
    ///
    /// # Errors
    /// If the given one is not there.
    pub fn new(leasehold: Option<&Path>) -> Result<Self> {
        let given = leasehold.map(|path| {
            path.canonicalize().with_context(|| format!("--binary {}", path.display()))
        });
        Ok(Self { bin: target_dir().join("real/bin"), given: given.transpose()? })
    }

    /// Every Kubernetes component.
    pub fn kube(&self) -> PathBuf {
        self.bin.join(kube().folder).join("kube")
    }

    /// The program that holds a Pod's namespaces.
    pub fn pause(&self) -> PathBuf {
        self.bin.join(kube().folder).join("pause")
    }

    /// helm.
    pub fn helm(&self) -> PathBuf {
        self.bin.join(helm().folder).join("helm")
    }

    /// The OpenTelemetry collector.
    pub fn collector(&self) -> PathBuf {
        self.bin.join(collector().folder).join("collector")
    }

    /// The Python environment of moto.
    pub fn moto(&self) -> PathBuf {
        self.bin.join(format!("moto-{MOTO}"))
    }

    /// rathole.
    pub fn rathole(&self) -> PathBuf {
        self.bin.join(rathole().folder).join("bin/rathole")
    }

    /// The folder of containerd, its shim and ctr.
    pub fn containerd(&self) -> PathBuf {
        self.bin.join(containerd().folder)
    }

    /// Our own static release binary.
    pub fn leasehold(&self) -> PathBuf {
        let built = || target_dir().join(target_triple()).join("release/leasehold");
        self.given.clone().unwrap_or_else(built)
    }

    /// The example controller whose reconciles take long.
    pub fn slow(&self) -> PathBuf {
        target_dir().join(target_triple()).join("release/examples/slow")
    }

    /// The small controller on controller-runtime.
    pub fn peer_controller_runtime(&self) -> PathBuf {
        self.bin.join(peer_controller_runtime().folder).join("peer")
    }

    /// The small controller on kube-rs.
    pub fn peer_kube_rs(&self) -> PathBuf {
        target_dir().join(target_triple()).join("release/peer-kube-rs")
    }

    /// The small controller on Leasehold.
    pub fn peer_leasehold(&self) -> PathBuf {
        target_dir().join(target_triple()).join("release/peer-leasehold")
    }

    /// What measures our queue.
    pub fn queue_speed(&self) -> PathBuf {
        target_dir().join(target_triple()).join("release/examples/queue_speed")
    }

    /// Where the logs of failed checks are kept.
    pub fn failed_dir(&self) -> PathBuf {
        target_dir().join("real/failed")
    }

    /// Builds and installs what is missing of `needs`, saying what and how long it took.
    ///
    /// # Errors
    /// If something is missing that cannot be built or installed here; the error says how to get it.
    pub fn prepare(&self, needs: &[Need]) -> Result<()> {
        if needs.contains(&Need::Node) {
            require_namespaces()?;
            packages::install("a real node", NODE_PACKAGES)?;
        }
        fs::create_dir_all(&self.bin)?;
        // Two runs side by side must not build the same thing twice.
        let lock = File::create(self.bin.join(".lock"))?;
        lock.lock()?;
        for need in needs {
            match need {
                Need::Kube => self.build(&kube())?,
                Need::Helm => self.build(&helm())?,
                Need::Collector => self.build(&collector())?,
                Need::Moto => self.install_moto()?,
                Need::Node => self.build(&containerd())?,
                Need::Leasehold if self.given.is_some() => {}
                Need::Leasehold => build_release(&[
                    "--package=leasehold",
                    "--bin=leasehold",
                    "--features=controllers",
                ])?,
                Need::Slow => build_release(&["--package=leasehold", "--example=slow"])?,
                Need::Rathole => self.build(&rathole())?,
                Need::Peers => {
                    self.build(&peer_controller_runtime())?;
                    build_release(PEERS)?;
                }
            }
        }
        Ok(())
    }

    /// Into an environment of its own, which cannot be moved afterwards: a file says that it is whole.
    fn install_moto(&self) -> Result<()> {
        let (folder, whole) = (self.moto(), self.moto().join("whole"));
        if whole.exists() {
            return Ok(());
        }
        println!("installing moto {MOTO} (about 1 minute) ...");
        let _ = fs::remove_dir_all(&folder);
        let venv = Command::new("python3").args(["-m", "venv"]).arg(&folder).status();
        if !venv.is_ok_and(|status| status.success()) {
            bail!("Python is needed for moto: install python3 and its venv module");
        }
        let package = format!("moto[server]=={MOTO}");
        let pip =
            Command::new(folder.join("bin/pip")).args(["install", "--quiet", &package]).status()?;
        if !pip.success() {
            bail!("pip could not install {package}");
        }
        fs::write(whole, "").context("mark moto as whole")
    }

    fn build(&self, build: &Build) -> Result<()> {
        let folder = self.bin.join(&build.folder);
        if folder.exists() {
            return Ok(());
        }
        if build.builder == Builder::Go {
            require_go(&build.title)?;
        }
        println!("building {} ...", build.title);
        let watch = Stopwatch::start();
        // Renamed only when complete, so that an interrupted build is never taken for a whole one.
        let partial = self.bin.join(format!("{}.partial", build.folder));
        let _ = fs::remove_dir_all(&partial);
        fs::create_dir_all(&partial)?;
        let out = partial.to_str().context("a path that is not UTF-8")?;
        for arguments in &build.commands {
            let mut command = match build.builder {
                Builder::Go => Command::new("go"),
                Builder::Cargo => xtask::cargo(),
            };
            let status = command
                .args(arguments.iter().map(|word| word.replace("{out}", out)))
                .current_dir(&build.module)
                .env("CGO_ENABLED", "0")
                .env("GOBIN", out)
                .status()?;
            if !status.success() {
                bail!("{} failed in {}", arguments.join(" "), build.module.display());
            }
        }
        fs::rename(&partial, &folder)?;
        println!("built {} in {watch}", build.title);
        Ok(())
    }
}

fn kube() -> Build {
    let module = real_dir().join("kube");
    let (major, minor) = ("1", KUBERNETES.split('.').nth(1).expect("a version of three parts"));
    // A server built without these says it is v0.0.0, and clients complain.
    let version = [
        format!("gitVersion=v{KUBERNETES}"),
        format!("gitMajor={major}"),
        format!("gitMinor={minor}"),
        format!("gitCommit={}", "0".repeat(40)),
        "gitTreeState=clean".to_owned(),
        "buildDate=1970-01-01T00:00:00Z".to_owned(),
    ]
    .map(|setting| format!("-X k8s.io/component-base/version.{setting}"))
    .join(" ");
    Build {
        builder: Builder::Go,
        title: format!(
            "Kubernetes {KUBERNETES} with etcd and kubectl (about 5 minutes on 2 cores)"
        ),
        folder: format!("kube-{KUBERNETES}-{}", digest(&module)),
        module,
        commands: vec![
            words(&[
                "build",
                "-trimpath",
                &format!("-ldflags=-s -w {version}"),
                "-o",
                "{out}/kube",
                ".",
            ]),
            words(&["build", "-trimpath", "-ldflags=-s -w", "-o", "{out}/pause", "./pause"]),
        ],
    }
}

fn collector() -> Build {
    let module = real_dir().join("collector");
    Build {
        builder: Builder::Go,
        title: "an OpenTelemetry collector (about 1 minute)".to_owned(),
        folder: format!("collector-{}", digest(&module)),
        module,
        commands: vec![words(&[
            "build",
            "-trimpath",
            "-ldflags=-s -w",
            "-o",
            "{out}/collector",
            ".",
        ])],
    }
}

fn peer_controller_runtime() -> Build {
    let module = xtask::root().join("loadtest/peers/controller-runtime");
    Build {
        builder: Builder::Go,
        title: "the peer on controller-runtime (about 2 minutes)".to_owned(),
        folder: format!("peer-controller-runtime-{}", digest(&module)),
        module,
        commands: vec![words(&["build", "-trimpath", "-ldflags=-s -w", "-o", "{out}/peer", "."])],
    }
}

fn containerd() -> Build {
    let module = "github.com/containerd/containerd/v2";
    let package = |name| format!("{module}/cmd/{name}@v{CONTAINERD}");
    let flags = format!("-ldflags=-s -w -X {module}/version.Version={CONTAINERD}");
    let packages = ["containerd", "containerd-shim-runc-v2", "ctr"].map(package);
    let mut install = words(&["install", "-trimpath", &flags]);
    install.extend(packages);
    Build {
        builder: Builder::Go,
        title: format!("containerd {CONTAINERD} (about 2 minutes)"),
        folder: format!("containerd-{CONTAINERD}"),
        module: real_dir(),
        commands: vec![install],
    }
}

fn helm() -> Build {
    let package = format!("helm.sh/helm/v3/cmd/helm@v{HELM}");
    let version = format!("-ldflags=-s -w -X helm.sh/helm/v3/internal/version.version=v{HELM}");
    Build {
        builder: Builder::Go,
        title: format!("helm {HELM} (about 1 minute)"),
        folder: format!("helm-{HELM}"),
        module: real_dir(),
        commands: vec![words(&["install", "-trimpath", &version, &package])],
    }
}

/// Without the lock file of its release, which holds a crate that no compiler of today takes
/// (<https://github.com/time-rs/time/issues/693>).
fn rathole() -> Build {
    let version = format!("--version={RATHOLE}");
    // Not optimised: it carries a few megabytes, and is built in half the time.
    let install = [
        "install",
        "rathole",
        "--debug",
        &version,
        "--no-default-features",
        "--features=server,client,noise",
        "--root={out}",
    ];
    let install = words(&install);
    Build {
        builder: Builder::Cargo,
        title: format!("rathole {RATHOLE} (about 2 minutes)"),
        folder: format!("rathole-{RATHOLE}-debug"),
        module: real_dir(),
        commands: vec![install],
    }
}

fn require_go(title: &str) -> Result<()> {
    let found = Command::new("go").arg("version").stdout(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        bail!(
            "Go is needed to build {title} and is not in PATH: get 1.26 or later from https://go.dev/dl"
        );
    }
    Ok(())
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

/// What went into a build of our own: every file of its module.
fn digest(module: &Path) -> String {
    fn files(dir: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            match entry.path() {
                path if path.is_dir() => files(&path, found),
                path => found.push(path),
            }
        }
    }
    let mut found = Vec::new();
    files(module, &mut found);
    found.sort();
    let mut hash = Sha256::new();
    for path in found {
        hash.update(path.strip_prefix(module).unwrap_or(&path).as_os_str().as_encoded_bytes());
        hash.update(fs::read(&path).unwrap_or_default());
    }
    hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}

/// Builds what of our own is `wanted`, static. Asks for what the environment asks for where it does,
/// so that a run after other builds of the same kind has nothing to do.
fn build_release(wanted: &[&str]) -> Result<()> {
    let words = wanted.join(" ");
    eprintln!("building {words}, static, in release ...");
    let watch = Stopwatch::start();
    let mut flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    if !flags.contains("+crt-static") {
        flags.push_str(" -C target-feature=+crt-static");
    }
    let status = xtask::cargo()
        .args(["build", "--release", "--target", &target_triple()])
        .args(wanted)
        .env("RUSTFLAGS", flags.trim())
        .status()?;
    if !status.success() {
        bail!("cargo could not build {words}");
    }
    eprintln!("built it in {watch}");
    Ok(())
}

fn target_triple() -> String {
    std::env::var("CARGO_BUILD_TARGET")
        .unwrap_or_else(|_| format!("{}-unknown-linux-gnu", std::env::consts::ARCH))
}

fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| xtask::root().join("target"), |dir| xtask::root().join(dir))
}

fn require_namespaces() -> Result<()> {
    if !rustix::process::getuid().is_root() {
        bail!(
            "a real node needs root (namespaces, mounts, a network bridge): run this as root, or choose other checks with --only"
        );
    }
    let namespaces = ["--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "true"];
    let tried = Command::new("unshare").args(namespaces).output();
    if !tried.is_ok_and(|output| output.status.success()) {
        bail!(
            "a real node needs Linux namespaces, and unshare may not make them here: run on a machine or in a container that is privileged, or choose other checks with --only"
        );
    }
    Ok(())
}
