//! How the programs of others are built: by Go from the module proxy, or by cargo from the crate
//! registry.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use super::real_dir;
use super::wait::Stopwatch;

const KUBERNETES: &str = "1.37.1";
const CONTAINERD: &str = "2.4.2";
const HELM: &str = "3.22.0";
const KIND: &str = "0.33.0";
const KUBECONFORM: &str = "0.8.0";
const PROMETHEUS_OPERATOR: &str = "0.94.1";
const KEDA: &str = "2.21.0";
/// The version that hosts of Tunnels run.
const RATHOLE: &str = tunnel::exit::VERSION;

/// Leaves symbols out, which no run needs.
pub(super) const STRIPPED: &str = "-ldflags=-s -w";

/// What builds a program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Builder {
    Go,
    Cargo,
    Bash,
}

/// One build.
pub struct Build {
    builder: Builder,
    /// Name, version and duration, for people.
    title: String,
    /// The folder of the result; changes with everything that goes into it.
    pub folder: String,
    /// Where the builder runs.
    module: PathBuf,
    /// The arguments of each run of the builder; `{out}` is the folder to build into, `{bin}` that of all
    /// builds.
    commands: Vec<Vec<String>>,
    /// What is made of what the builder left in a folder.
    finish: Option<Finish>,
}

/// See [`Build::finished_by`].
type Finish = Box<dyn Fn(&Path) -> Result<()>>;

/// Every Kubernetes component, etcd and kubectl in one binary, and the program of pause containers.
pub fn kube() -> Build {
    let (major, minor) = ("1", KUBERNETES.split('.').nth(1).expect("a version of three parts"));
    // Without these a server says it is v0.0.0, and clients complain.
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
    let title =
        format!("Kubernetes {KUBERNETES} with etcd and kubectl (about 5 minutes on 2 cores)");
    let commands = vec![
        go_build(&format!("{STRIPPED} {version}"), "kube", "."),
        go_build(STRIPPED, "pause", "./pause"),
    ];
    module(&title, &format!("kube-{KUBERNETES}"), real_dir().join("kube"), commands)
}

/// kind.
pub fn kind() -> Build {
    let package = format!("sigs.k8s.io/kind@v{KIND}");
    let install = words(&["install", "-trimpath", STRIPPED, &package]);
    published(Builder::Go, "kind", KIND, "1 minute", install)
}

/// kubeconform.
pub fn kubeconform() -> Build {
    let package = format!("github.com/yannh/kubeconform/cmd/kubeconform@v{KUBECONFORM}");
    let install = words(&["install", "-trimpath", STRIPPED, &package]);
    published(Builder::Go, "kubeconform", KUBECONFORM, "1 minute", install)
}

/// The definitions of the kinds of the Prometheus operator and of KEDA that our chart makes objects of.
pub fn chart_definitions() -> Build {
    let name = format!("chart-definitions-{PROMETHEUS_OPERATOR}-{KEDA}");
    let title = "definitions of the Prometheus operator and KEDA (about 1 minute)";
    let copy = words(&["definitions.sh", "{out}", PROMETHEUS_OPERATOR, KEDA]);
    script(title, &name, real_dir().join("chart"), copy)
}

/// CoreDNS, as kubeadm configures it.
pub fn coredns() -> Build {
    let commands = vec![go_build(STRIPPED, "coredns", ".")];
    let title = "CoreDNS (about 1 minute)";
    module(title, "coredns", real_dir().join("kind/coredns"), commands)
}

/// The images that clusters of kind and `deploy/Dockerfile` start from, in a store of podman.
pub fn kind_images() -> Build {
    let folder = real_dir().join("kind");
    let [kube, containerd, coredns] =
        [kube(), containerd(), coredns()].map(|build| format!("{{bin}}/{}", build.folder));
    let coredns = format!("{coredns}/coredns");
    let command = words(&["images.sh", "{out}", &kube, &containerd, &coredns, KIND]);
    let mut hash = Sha256::new();
    ["images.sh", "podman.sh", "pretend.sh"]
        .iter()
        .for_each(|file| hash.update(fs::read(folder.join(file)).unwrap_or_default()));
    command.iter().for_each(|word| hash.update(word));
    Build {
        builder: Builder::Bash,
        title: "a node image for kind, and one with a C compiler (about 3 minutes)".to_owned(),
        folder: format!("kind-images-{}", short(hash)),
        module: folder,
        commands: vec![command],
        finish: None,
    }
}

/// The name of the image that `deploy/Dockerfile` compiles in.
pub fn dockerfile_base() -> String {
    let text = fs::read_to_string(xtask::root().join("deploy/Dockerfile")).unwrap_or_default();
    let default = |name: &str| {
        let start = format!("ARG {name}=");
        text.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or_default().to_owned()
    };
    default("BASE").replace("${RUST}", &default("RUST"))
}

/// An OpenTelemetry collector.
pub fn collector() -> Build {
    let commands = vec![go_build(STRIPPED, "collector", ".")];
    let title = "an OpenTelemetry collector (about 1 minute)";
    module(title, "collector", real_dir().join("collector"), commands)
}

/// The small controller on controller-runtime that is compared with ours.
pub fn peer_controller_runtime() -> Build {
    let folder = xtask::root().join("loadtest/peers/controller-runtime");
    let commands = vec![go_build(STRIPPED, "peer", ".")];
    let title = "the peer on controller-runtime (about 2 minutes)";
    module(title, "peer-controller-runtime", folder, commands)
}

/// containerd, its shim and ctr.
pub fn containerd() -> Build {
    let module = "github.com/containerd/containerd/v2";
    let package = |name| format!("{module}/cmd/{name}@v{CONTAINERD}");
    let flags = format!("{STRIPPED} -X {module}/version.Version={CONTAINERD}");
    let mut install = words(&["install", "-trimpath", &flags]);
    install.extend(["containerd", "containerd-shim-runc-v2", "ctr"].map(package));
    published(Builder::Go, "containerd", CONTAINERD, "2 minutes", install)
}

/// helm.
pub fn helm() -> Build {
    let package = format!("helm.sh/helm/v3/cmd/helm@v{HELM}");
    let flags = format!("{STRIPPED} -X helm.sh/helm/v3/internal/version.version=v{HELM}");
    let install = words(&["install", "-trimpath", &flags, &package]);
    published(Builder::Go, "helm", HELM, "1 minute", install)
}

/// rathole, without the lock file of its release: that holds a crate that no compiler of today
/// takes (<https://github.com/time-rs/time/issues/693>).
pub fn rathole() -> Build {
    let install = [
        "install",
        "rathole",
        // It carries a few megabytes, so it need not be optimised; it is built in half the time.
        "--debug",
        &format!("--version={RATHOLE}"),
        "--no-default-features",
        "--features=server,client,noise",
        "--root={out}",
    ];
    published(Builder::Cargo, "rathole", RATHOLE, "2 minutes", words(&install))
}

impl Build {
    /// The build followed by `finish`, which is given the folder.
    pub(super) fn finished_by(self, finish: impl Fn(&Path) -> Result<()> + 'static) -> Self {
        Self { finish: Some(Box::new(finish)), ..self }
    }

    /// Builds it below `bin` unless it is there.
    pub fn run(&self, bin: &Path) -> Result<()> {
        let folder = bin.join(&self.folder);
        if folder.exists() {
            return Ok(());
        }
        if self.builder == Builder::Go {
            require_go(&self.title)?;
        }
        println!("building {} ...", self.title);
        let watch = Stopwatch::start();
        // Renamed only when complete, so that nobody takes an interrupted build for a complete one.
        let partial = bin.join(format!("{}.partial", self.folder));
        let _ = fs::remove_dir_all(&partial);
        fs::create_dir_all(&partial)?;
        let [out, all] =
            [&partial, bin].map(|path| path.to_str().context("a path that is not UTF-8"));
        let (out, all) = (out?, all?);
        for arguments in &self.commands {
            let mut command = match self.builder {
                Builder::Go => Command::new("go"),
                Builder::Cargo => xtask::cargo(),
                Builder::Bash => Command::new("bash"),
            };
            let fill = |word: &String| word.replace("{out}", out).replace("{bin}", all);
            let status = command
                .args(arguments.iter().map(fill))
                .current_dir(&self.module)
                .env("CGO_ENABLED", "0")
                .env("GOBIN", out)
                .status()?;
            if !status.success() {
                bail!("{} failed in {}", arguments.join(" "), self.module.display());
            }
        }
        if let Some(finish) = &self.finish {
            finish(&partial)?;
        }
        fs::rename(&partial, &folder)?;
        println!("built {} in {watch}", self.title);
        Ok(())
    }
}

/// A build by a script of this repository.
pub(super) fn script(title: &str, name: &str, folder: PathBuf, command: Vec<String>) -> Build {
    Build { builder: Builder::Bash, ..module(title, name, folder, vec![command]) }
}

/// A build of a Go module of this repository.
pub(super) fn module(
    title: &str,
    name: &str,
    module: PathBuf,
    commands: Vec<Vec<String>>,
) -> Build {
    let folder = format!("{name}-{}", digest(&module));
    Build { builder: Builder::Go, title: title.to_owned(), folder, module, commands, finish: None }
}

/// A build of what others publish.
fn published(
    builder: Builder,
    name: &str,
    version: &str,
    duration: &str,
    command: Vec<String>,
) -> Build {
    Build {
        builder,
        title: format!("{name} {version} (about {duration})"),
        folder: format!("{name}-{version}"),
        module: real_dir(),
        commands: vec![command],
        finish: None,
    }
}

pub(super) fn go_build(flags: &str, program: &str, package: &str) -> Vec<String> {
    words(&["build", "-trimpath", flags, "-o", &format!("{{out}}/{program}"), package])
}

pub(super) fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
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

/// A digest of every file of a module.
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
    short(hash)
}

/// The start of a digest, enough to tell builds apart.
fn short(hash: Sha256) -> String {
    hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect()
}
