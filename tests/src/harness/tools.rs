//! The programs that runs need: those of others, built once or installed from Debian and PyPI, and
//! our own. Those of others stay under `target/real/bin`, in folders named after their versions.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::browser;
use super::builds;
pub use super::builds::dockerfile_base;
use super::image::Image;
use super::packages::{self, Package};
use super::prometheus;
use super::servers;
use super::wait::Stopwatch;

const MOTO: &str = "5.2.5";

/// The Debian packages of a real node, each with a file that shows it is installed.
const NODE_PACKAGES: &[Package] = &[
    ("runc", "/usr/sbin/runc"),
    ("containernetworking-plugins", "/usr/lib/cni/bridge"),
    ("nftables", "/usr/sbin/nft"),
    ("conntrack", "/usr/sbin/conntrack"),
    ("iptables", "/usr/sbin/iptables"),
    ("iproute2", "/usr/sbin/ip"),
    ("util-linux", "/usr/bin/nsenter"),
];

/// The Debian packages that kind and its images need beside those of a node.
const KIND_PACKAGES: &[Package] = &[
    ("podman", "/usr/bin/podman"),
    ("netavark", "/usr/lib/podman/netavark"),
    ("aardvark-dns", "/usr/lib/podman/aardvark-dns"),
    ("mmdebstrap", "/usr/bin/mmdebstrap"),
    ("jq", "/usr/bin/jq"),
];

/// The Debian packages of a Tunnel's host with several clients.
const BALANCER_PACKAGES: &[Package] =
    &[("haproxy", "/usr/sbin/haproxy"), ("nftables", "/usr/sbin/nft")];

/// The Debian package that makes root file systems of others.
const IMAGE_PACKAGES: &[Package] = &[("mmdebstrap", "/usr/bin/mmdebstrap")];

/// The arguments of cargo that build the peers in Rust, all at once, so that it builds once what
/// they share. Ours has the allocator of the image, which takes `make` to build.
const PEERS: &[&str] = &[
    "--package=peer-kube-rs",
    "--bin=peer-kube-rs",
    "--package=peer-leasehold",
    "--bin=peer-leasehold",
    "--features=peer-leasehold/jemalloc",
    "--package=leasehold-queue",
    "--example=queue_speed",
];

/// Something a run cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Every Kubernetes component, etcd and kubectl, in one binary.
    Kube,
    /// helm.
    Helm,
    /// kubeconform, and the definitions of others' kinds that the chart makes objects of.
    Kubeconform,
    /// The OpenTelemetry collector.
    Collector,
    /// moto, a stand-in for AWS in Python.
    Moto,
    /// Root, namespaces, containerd and Debian packages: a node that runs containers.
    Node,
    /// kind, podman and the images that they start from.
    Kind,
    /// etcd in two versions, as images, and the workload `register`; a node's DNS.
    Etcd,
    /// memcached, as an image; a node's DNS.
    Memcached,
    /// MySQL, as an image, and the workload `bank`; a node's DNS.
    MySql,
    /// A browser.
    Chromium,
    /// Prometheus and promtool.
    Prometheus,
    /// Our own release binary, static.
    Leasehold,
    /// The example controller with slow reconciles, static.
    Slow,
    /// rathole, which hosts of Tunnels and their clients run, and what divides connections among several.
    Rathole,
    /// The small controller of the benchmarks, on each framework.
    Peers,
}

/// Where the programs are.
#[derive(Clone, Debug)]
pub struct Tools {
    bin: PathBuf,
    /// A `leasehold` that was built elsewhere.
    given: Option<PathBuf>,
}

impl Tools {
    /// The programs of this workspace, built or not; `leasehold` may be given.
    pub fn new(leasehold: Option<&Path>) -> Result<Self> {
        let given = leasehold.map(|path| {
            path.canonicalize().with_context(|| format!("--binary {}", path.display()))
        });
        Ok(Self { bin: target_dir().join("real/bin"), given: given.transpose()? })
    }

    /// Every Kubernetes component.
    pub fn kube(&self) -> PathBuf {
        self.bin.join(builds::kube().folder).join("kube")
    }

    /// The program of pause containers, which hold the namespaces of Pods.
    pub fn pause(&self) -> PathBuf {
        self.bin.join(builds::kube().folder).join("pause")
    }

    /// helm.
    pub fn helm(&self) -> PathBuf {
        self.bin.join(builds::helm().folder).join("helm")
    }

    /// kubeconform.
    pub fn kubeconform(&self) -> PathBuf {
        self.bin.join(builds::kubeconform().folder).join("kubeconform")
    }

    /// The folder of the definitions of others' kinds that the chart makes objects of.
    pub fn chart_definitions(&self) -> PathBuf {
        self.bin.join(builds::chart_definitions().folder)
    }

    /// The OpenTelemetry collector.
    pub fn collector(&self) -> PathBuf {
        self.bin.join(builds::collector().folder).join("collector")
    }

    /// The Python environment of moto.
    pub fn moto(&self) -> PathBuf {
        self.bin.join(format!("moto-{MOTO}"))
    }

    /// rathole.
    pub fn rathole(&self) -> PathBuf {
        self.bin.join(builds::rathole().folder).join("bin/rathole")
    }

    /// haproxy.
    pub fn haproxy(&self) -> PathBuf {
        PathBuf::from(BALANCER_PACKAGES[0].1)
    }

    /// kind.
    pub fn kind(&self) -> PathBuf {
        self.bin.join(builds::kind().folder).join("kind")
    }

    /// podman's store of the images that kind and `deploy/Dockerfile` start from.
    pub fn kind_images(&self) -> PathBuf {
        self.bin.join(builds::kind_images().folder).join("storage")
    }

    /// The folder of containerd, its shim and ctr.
    pub fn containerd(&self) -> PathBuf {
        self.bin.join(builds::containerd().folder)
    }

    /// CoreDNS.
    pub fn coredns(&self) -> PathBuf {
        self.bin.join(builds::coredns().folder).join("coredns")
    }

    /// The images of both versions of etcd.
    pub fn etcd_images(&self) -> [Image; 2] {
        servers::ETCD.map(|version| self.image(&servers::etcd(version)))
    }

    /// The images of both versions of memcached.
    pub fn memcached_images(&self) -> [Image; 2] {
        servers::memcached().map(|build| self.image(&build))
    }

    /// MySQL's image.
    pub fn mysql_image(&self) -> Image {
        self.image(&servers::mysql())
    }

    fn image(&self, build: &builds::Build) -> Image {
        Image::at(self.bin.join(&build.folder).join(servers::IMAGE))
    }

    /// A workload: `register` or `bank`.
    pub fn workload(&self, name: &str) -> PathBuf {
        self.bin.join(servers::workloads().folder).join(name)
    }

    /// Our own static release binary.
    pub fn leasehold(&self) -> PathBuf {
        self.given.clone().unwrap_or_else(|| released("leasehold"))
    }

    /// The load test: beside a `leasehold` that was built elsewhere.
    pub fn loadtest(&self) -> PathBuf {
        let given = self.given.as_ref().map(|leasehold| leasehold.with_file_name("loadtest"));
        given.unwrap_or_else(|| released("loadtest"))
    }

    /// The example controller with slow reconciles.
    pub fn slow(&self) -> PathBuf {
        released("examples/slow")
    }

    /// The small controller on controller-runtime.
    pub fn peer_controller_runtime(&self) -> PathBuf {
        self.bin.join(builds::peer_controller_runtime().folder).join("peer")
    }

    /// The small controller on kube-rs.
    pub fn peer_kube_rs(&self) -> PathBuf {
        released("peer-kube-rs")
    }

    /// The small controller on Leasehold.
    pub fn peer_leasehold(&self) -> PathBuf {
        released("peer-leasehold")
    }

    /// The program that measures our queue.
    pub fn queue_speed(&self) -> PathBuf {
        released("examples/queue_speed")
    }

    /// Where the logs of failed runs are kept.
    pub fn failed_dir(&self) -> PathBuf {
        target_dir().join("real/failed")
    }

    /// Builds and installs what is missing of `needs`, and prints what and how long it took.
    ///
    /// # Errors
    /// If something cannot be built or installed here; the error says how to get it.
    pub fn prepare(&self, needs: &[Need]) -> Result<()> {
        if needs.contains(&Need::Node) || needs.contains(&Need::Kind) {
            require_namespaces()?;
            packages::install("a real node", NODE_PACKAGES)?;
        }
        if needs.contains(&Need::Kind) {
            packages::install("kind", KIND_PACKAGES)?;
        }
        if needs.iter().any(|need| [Need::Memcached, Need::MySql].contains(need)) {
            packages::install("an image from Debian", IMAGE_PACKAGES)?;
        }
        if needs.contains(&Need::Rathole) {
            packages::install("a host with several clients", BALANCER_PACKAGES)?;
        }
        if needs.contains(&Need::Chromium) {
            browser::install()?;
        }
        fs::create_dir_all(&self.bin)?;
        // Two runs side by side must not build the same thing twice.
        let lock = File::create(self.bin.join(".lock"))?;
        lock.lock()?;
        let build = |all: &[builds::Build]| all.iter().try_for_each(|one| one.run(&self.bin));
        for need in needs {
            match need {
                Need::Kube => build(&[builds::kube()])?,
                Need::Helm => build(&[builds::helm()])?,
                Need::Kubeconform => build(&[builds::kubeconform(), builds::chart_definitions()])?,
                Need::Collector => build(&[builds::collector()])?,
                Need::Moto => self.install_moto()?,
                Need::Node => build(&[builds::containerd()])?,
                Need::Kind => {
                    build(&[builds::containerd(), builds::coredns(), builds::kind()])?;
                    build(&[builds::kind_images()])?;
                    install_image_tools()?;
                    if self.given.is_none() {
                        build_release(&["--package=loadtest"])?;
                    }
                }
                Need::Etcd => {
                    let [from, to] = servers::ETCD.map(servers::etcd);
                    build(&[builds::coredns(), from, to, servers::workloads()])?;
                }
                Need::Memcached => {
                    let [from, to] = servers::memcached();
                    build(&[builds::coredns(), from, to])?;
                }
                Need::MySql => build(&[builds::coredns(), servers::mysql(), servers::workloads()])?,
                Need::Chromium => {}
                Need::Prometheus => prometheus::install()?,
                Need::Leasehold if self.given.is_some() => {}
                Need::Leasehold => build_release(&[
                    "--package=leasehold",
                    "--bin=leasehold",
                    "--features=controllers",
                ])?,
                Need::Slow => build_release(&["--package=leasehold", "--example=slow"])?,
                Need::Rathole => build(&[builds::rathole()])?,
                Need::Peers => {
                    build(&[builds::peer_controller_runtime()])?;
                    build_release(PEERS)?;
                }
            }
        }
        Ok(())
    }

    /// Installs moto into a Python environment of its own. That cannot be renamed when it is
    /// complete, so a file marks it as complete.
    fn install_moto(&self) -> Result<()> {
        let (folder, complete) = (self.moto(), self.moto().join("whole"));
        if complete.exists() {
            return Ok(());
        }
        println!("installing moto {MOTO} (about 1 minute) ...");
        let _ = fs::remove_dir_all(&folder);
        let venv = Command::new("python3").args(["-m", "venv"]).arg(&folder).status();
        if !venv.is_ok_and(|status| status.success()) {
            bail!("moto needs Python: install python3 and its venv module");
        }
        let package = format!("moto[server]=={MOTO}");
        let mut pip = Command::new(folder.join("bin/pip"));
        let status = pip.args(["install", "--quiet", &package]).status()?;
        ensure!(status.success(), "pip could not install {package}");
        fs::write(complete, "").context("mark moto as complete")
    }
}

/// What `.ci/binary` needs in `docker build`, which has no network here.
fn install_image_tools() -> Result<()> {
    let script = xtask::root().join(".ci/binary");
    let status = Command::new("bash").arg(script).arg("--tools").status()?;
    ensure!(status.success(), ".ci/binary could not install what it needs");
    Ok(())
}

/// Builds `leasehold` without optimisation and linked dynamically, whatever the environment asks
/// for; gives its path.
pub fn build_debug() -> Result<PathBuf> {
    let mut command = xtask::cargo();
    command.args(["build", "--package=leasehold", "--bin=leasehold"]);
    let status = command.env_remove("RUSTFLAGS").env_remove("CARGO_BUILD_TARGET").status()?;
    ensure!(status.success(), "cargo could not build leasehold");
    Ok(target_dir().join("debug/leasehold"))
}

/// Builds programs of ours for release, static. Keeps the environment's flags, so that there is
/// nothing to do after other builds with them.
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
    ensure!(status.success(), "cargo could not build {words}");
    eprintln!("built it in {watch}");
    Ok(())
}

/// Where [`build_release`] leaves a program.
fn released(program: &str) -> PathBuf {
    target_dir().join(target_triple()).join("release").join(program)
}

fn target_triple() -> String {
    std::env::var("CARGO_BUILD_TARGET")
        .unwrap_or_else(|_| format!("{}-unknown-linux-gnu", std::env::consts::ARCH))
}

/// Where cargo puts what it builds.
pub fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| xtask::root().join("target"), |dir| xtask::root().join(dir))
}

fn require_namespaces() -> Result<()> {
    ensure!(
        rustix::process::getuid().is_root(),
        "a real node needs root (namespaces, mounts, a network bridge): run this as root, or choose other checks with --only"
    );
    let namespaces = ["--mount", "--net", "--pid", "--uts", "--ipc", "--fork", "true"];
    let tried = Command::new("unshare").args(namespaces).output();
    ensure!(
        tried.is_ok_and(|output| output.status.success()),
        "a real node needs Linux namespaces, and unshare may not make them here: run on a machine or in a privileged container, or choose other checks with --only"
    );
    Ok(())
}
