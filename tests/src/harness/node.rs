//! A whole one-node cluster with real containers: a control plane, containerd, kubelet and
//! kube-proxy in namespaces of their own.
//!
//! The node has a number, from which its names and addresses follow. The machine reaches the node's
//! API server and Pods, and the node reaches the machine, but nothing beyond it.
//!
//! # Invariants
//! - One run at a time has a number: it holds an abstract socket, which the kernel closes however
//!   we die. Whoever gets the number first removes what an earlier run may have left behind.
//! - Dropping the handle kills the first process inside, and with it all of them; then it removes
//!   the network namespace and the cgroups.

use std::fs;
use std::net::Ipv4Addr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::control_plane::{ControlPlane, Spec};
use super::image::Image;
use super::process::{ChildProcess, Launcher, run};
use super::realm::Realm;
use super::{Scene, real_dir, wait};

const START_DEADLINE: Duration = Duration::from_secs(60);
const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";
const CGROUPS: &str = "/sys/fs/cgroup";

/// How often we try to remove a cgroup: the kernel frees it a moment after its last process.
const CGROUP_REMOVALS: usize = 50;

/// A running one-node cluster. Dropping it removes every trace.
pub struct Node {
    // Dropped first, so that nothing starts processes inside any more, ...
    daemons: Vec<ChildProcess>,
    /// Its control plane.
    pub control: ControlPlane,
    launcher: Launcher,
    // ... then everything inside, and what is left outside.
    _realm: Realm,
    outside: Outside,
    /// The node's files; it has the same path inside.
    folder: PathBuf,
}

/// What a node has on the machine outside its namespaces.
#[derive(Debug)]
struct Outside {
    number: u8,
    /// Reserves the number.
    _reservation: UnixListener,
}

impl Node {
    /// Starts a node with `images`, and waits until it is ready.
    pub async fn start(scene: &Scene, name: &str, images: &[&Image]) -> Result<Self> {
        let outside = Outside::reserve()?;
        outside.create()?;
        let folder = scene.dir().join(name).join("node");
        fs::create_dir_all(&folder)?;
        let (pods, address) = (scene.logs().join(name).join("pods"), outside.inner_address());
        let (node_name, pause) = (outside.name(), scene.tools().pause());
        let (address, service_cidr) = (address.to_string(), outside.service_cidr());
        let arguments = [
            &folder,
            &pods,
            Path::new(&node_name),
            Path::new(&address),
            Path::new(&service_cidr),
            &pause,
        ];
        let script = real_dir().join("node/init.sh");
        let logs = scene.logs().join(name);
        let realm = Realm::enter(Some(&node_name), &script, &arguments, &folder, &logs).await?;
        let launcher = realm.launcher()?;
        let tokens = [
            format!("node,system:node:{node_name},node,system:nodes"),
            "proxy,system:kube-proxy,proxy,system:node-proxier".to_owned(),
        ];
        let spec = Spec {
            address: outside.inner_address(),
            service_cidr: &service_cidr,
            tokens: &tokens,
            launcher: launcher.clone(),
            ..Spec::local(name)
        };
        let control = ControlPlane::start(scene, &spec).await?;
        let mut this =
            Self { daemons: Vec::new(), control, launcher, _realm: realm, outside, folder };
        this.control.add_controllers()?;
        this.start_containerd(scene, images).await?;
        this.start_kubelet(scene)?;
        this.start_proxy(scene)?;
        this.control.wait_node_ready(&node_name, &mut this.daemons).await?;
        Ok(this)
    }

    /// The machine's address as seen from inside the node and its Pods.
    pub fn machine_address(&self) -> Ipv4Addr {
        self.outside.outer_address()
    }

    /// Imports an image while the node runs.
    pub fn import(&self, scene: &Scene, image: &Image) -> Result<()> {
        let mut command = self.ctr(scene);
        command.args(["--namespace", "k8s.io", "images", "import"]).arg(image.path());
        run(&mut command).map(drop)
    }

    /// Answers DNS for its Pods and its own processes, as CoreDNS does in clusters of kubeadm.
    pub async fn add_dns(&mut self, scene: &Scene) -> Result<()> {
        let file = self.folder.join("Corefile");
        self.fill("Corefile", &file)?;
        let mut command = self.launcher.command(&scene.tools().coredns());
        command.arg("-conf").arg(file);
        self.spawn("coredns", &command, scene)?;
        let ready = format!("{}:8181", self.outside.inner_address());
        wait::until(START_DEADLINE, "CoreDNS to answer", async || {
            self.daemons.iter_mut().try_for_each(ChildProcess::check_alive)?;
            Ok(answers_ok(&ready, "/ready").await.then_some(()))
        })
        .await?;
        let resolver = self.folder.join("resolv.conf");
        self.fill("resolv.conf", &resolver)?;
        let mut mount = self.launcher.command(Path::new("mount"));
        run(mount.arg("--bind").arg(resolver).arg("/etc/resolv.conf")).map(drop)
    }

    /// Lets this machine reach the node and its API server, but none of its Pods.
    pub fn hide_pods(&self) -> Result<()> {
        let hide = format!("route replace unreachable {}", self.outside.pod_cidr());
        run(Command::new("ip").args(hide.split(' '))).map(drop)
    }

    /// Runs processes inside.
    pub fn launcher(&self) -> &Launcher {
        &self.launcher
    }

    /// Its name in the cluster, which is also that of its cgroup.
    pub fn name(&self) -> String {
        self.outside.name()
    }

    /// Its files; they have the same path inside.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    async fn start_containerd(&mut self, scene: &Scene, images: &[&Image]) -> Result<()> {
        let folder = &self.folder;
        fs::create_dir_all(folder.join("cni"))?;
        self.fill("pods.conflist", &folder.join("cni/pods.conflist"))?;
        let config = folder.join("containerd.toml");
        self.fill("containerd.toml", &config)?;
        let bin = scene.tools().containerd();
        let mut command = self.launcher.command(&bin.join("containerd"));
        let path = std::env::var("PATH").unwrap_or_default();
        // containerd finds its shim in PATH.
        command.arg("--config").arg(config).env("PATH", format!("{}:{path}", bin.display()));
        self.spawn("containerd", &command, scene)?;
        wait::until(START_DEADLINE, "containerd to answer", async || {
            self.daemons.iter_mut().try_for_each(ChildProcess::check_alive)?;
            let mut version = self.ctr(scene);
            Ok(version.arg("version").output()?.status.success().then_some(()))
        })
        .await?;
        images.iter().try_for_each(|image| self.import(scene, image))
    }

    fn start_kubelet(&mut self, scene: &Scene) -> Result<()> {
        let outside = &self.outside;
        let (name, address) = (outside.name(), outside.inner_address().to_string());
        let user = format!("system:node:{name}");
        let pair =
            self.control.authority().server(&user, Some("system:nodes"), &[&address, &name])?;
        self.control.write_pair("kubelet", &pair)?;
        let config = self.folder.join("kubelet.yaml");
        self.fill("kubelet.yaml", &config)?;
        let kubeconfig = self.control.write_kubeconfig("kubelet", "node")?;
        let mut command = self.launcher.command(&scene.tools().kube());
        command
            .arg("kubelet")
            .arg(format!("--config={}", config.display()))
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--hostname-override={name}"))
            .arg(format!("--node-ip={address}"))
            .arg("--root-dir=/var/lib/kubelet")
            .arg("--cert-dir=/var/lib/kubelet/pki");
        self.spawn("kubelet", &command, scene)
    }

    fn start_proxy(&mut self, scene: &Scene) -> Result<()> {
        let outside = &self.outside;
        let kubeconfig = self.control.write_kubeconfig("kube-proxy", "proxy")?;
        let mut command = self.launcher.command(&scene.tools().kube());
        command
            .arg("kube-proxy")
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--hostname-override={}", outside.name()))
            .arg(format!("--cluster-cidr={}", outside.pod_cidr()))
            .arg("--proxy-mode=nftables")
            // The connection tracker's limits belong to the machine; leave them alone.
            .args(["--conntrack-max-per-core=0", "--conntrack-min=0"])
            .arg("--conntrack-tcp-timeout-established=0s")
            .arg("--conntrack-tcp-timeout-close-wait=0s");
        self.spawn("kube-proxy", &command, scene)
    }

    fn spawn(&mut self, name: &str, command: &Command, scene: &Scene) -> Result<()> {
        let process = ChildProcess::spawn(name, command, &scene.logs().join(self.control.name()))?;
        self.daemons.push(process);
        Ok(())
    }

    fn ctr(&self, scene: &Scene) -> Command {
        let mut command = self.launcher.command(&scene.tools().containerd().join("ctr"));
        command.args(["--address", CONTAINERD_SOCKET]);
        command
    }

    /// Fills in this node's names and addresses in `tests/real/node/TEMPLATE`, and writes it to
    /// `target`.
    fn fill(&self, template: &str, target: &Path) -> Result<()> {
        let outside = &self.outside;
        let text = fs::read_to_string(real_dir().join("node").join(template))?
            .replace("@FOLDER@", &self.folder.display().to_string())
            .replace("@PKI@", self.control.pki("").trim_end_matches('/'))
            .replace("@CGROUP@", &outside.name())
            .replace("@ADDRESS@", &outside.inner_address().to_string())
            .replace("@KUBECONFIG@", &self.control.kubeconfig.display().to_string())
            .replace("@POD_CIDR@", &outside.pod_cidr())
            .replace("@PAUSE_IMAGE@", super::image::PAUSE);
        Ok(fs::write(target, text)?)
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        self.remove();
    }
}

impl Outside {
    fn reserve() -> Result<Self> {
        for number in 1..=200 {
            let name = SocketAddr::from_abstract_name(format!("leasehold-node-{number}"))?;
            if let Ok(reservation) = UnixListener::bind_addr(&name) {
                let this = Self { number, _reservation: reservation };
                this.remove();
                return Ok(this);
            }
        }
        bail!("200 test nodes run on this machine already")
    }

    fn name(&self) -> String {
        format!("leasehold-node-{}", self.number)
    }

    /// The outer end of the virtual cable.
    fn cable(&self) -> String {
        format!("lh{}", self.number)
    }

    fn outer_address(&self) -> Ipv4Addr {
        Ipv4Addr::new(172, 30, self.number, 1)
    }

    fn inner_address(&self) -> Ipv4Addr {
        Ipv4Addr::new(172, 30, self.number, 2)
    }

    fn pod_cidr(&self) -> String {
        format!("10.244.{}.0/24", self.number)
    }

    fn service_cidr(&self) -> String {
        format!("10.96.{}.0/24", self.number)
    }

    /// Makes the network namespace, a virtual cable between it and the machine, and the cgroups.
    fn create(&self) -> Result<()> {
        let (space, cable) = (self.name(), self.cable());
        let (outer, inner) = (self.outer_address(), self.inner_address());
        for line in [
            format!("netns add {space}"),
            format!("link add {cable} type veth peer name eth0 netns {space}"),
            format!("address add {outer}/30 dev {cable}"),
            format!("link set {cable} up"),
            format!("-n {space} link set lo up"),
            format!("-n {space} address add {inner}/30 dev eth0"),
            format!("-n {space} link set eth0 up"),
            format!("route replace {} via {inner} dev {cable}", self.pod_cidr()),
        ] {
            run(Command::new("ip").args(line.split(' ')))?;
        }
        for cgroup in cgroups(&self.name()) {
            fs::create_dir_all(&cgroup).with_context(|| format!("create {}", cgroup.display()))?;
            // Nothing can run in a new cpuset, which is empty.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                let parent = cgroup.parent().expect("it lies below the root").join(file);
                if let Ok(value) = fs::read(parent) {
                    let _ = fs::write(cgroup.join(file), value);
                }
            }
        }
        Ok(())
    }

    /// Removes whatever of it exists.
    fn remove(&self) {
        // Where Pods were hidden, the route has no cable.
        let _ = run(Command::new("ip").args(["route", "flush", "exact", &self.pod_cidr()]));
        // Any other goes with the cable. The cable would go with the namespace, but only later, and
        // not at all while something holds on to what an earlier run left behind.
        if Path::new("/sys/class/net").join(self.cable()).exists() {
            let _ = run(Command::new("ip").args(["link", "delete", &self.cable()]));
        }
        if Path::new("/run/netns").join(self.name()).exists() {
            let _ = run(Command::new("ip").args(["netns", "delete", &self.name()]));
        }
        for cgroup in cgroups(&self.name()) {
            for _ in 0..CGROUP_REMOVALS {
                remove_cgroup(&cgroup);
                if !cgroup.exists() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// Whether a GET of a path is answered with 200.
async fn answers_ok(address: &str, path: &str) -> bool {
    let exchange = async {
        let mut connection = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.0\r\n\r\n");
        connection.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        connection.take(1024).read_to_end(&mut answer).await?;
        std::io::Result::Ok(answer.starts_with(b"HTTP/1.0 200"))
    };
    exchange.await.unwrap_or(false)
}

/// The cgroup of a name: one folder in the unified hierarchy, or one per controller in the old ones.
pub(super) fn cgroups(name: &str) -> Vec<PathBuf> {
    let root = Path::new(CGROUPS);
    if root.join("cgroup.controllers").exists() {
        return vec![root.join(name)];
    }
    let old = fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path());
    let controllers = old.filter(|path| path.is_dir() && !path.is_symlink());
    controllers.map(|path| path.join(name)).collect()
}

/// Removes a cgroup and those in it, the innermost first. Their files go with them.
pub(super) fn remove_cgroup(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_cgroup(&entry.path());
        }
    }
    let _ = fs::remove_dir(folder);
}
