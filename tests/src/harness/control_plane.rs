//! A real control plane: etcd and kube-apiserver, and on request the controller manager, the
//! scheduler and a hollow node, so that Deployments get Pods.
//!
//! Everything listens on free ports, so several can run side by side. The data is worth nothing, so
//! every process is killed when the handle is dropped.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use jiff::Timestamp;
use kube::Client;

use super::kubectl::{self, Kubectl};
use super::pki::{self, Authority};
use super::process::{ChildProcess, Launcher, free_port};
use super::{Scene, wait};

const READY_DEADLINE: Duration = Duration::from_secs(120);

/// The administrator's token. Only this machine can reach the servers.
const ADMIN_TOKEN: &str = "administrator";

/// The settings of a control plane.
#[derive(Debug)]
pub struct Spec<'a> {
    /// The cluster's name: of its folder, its kubeconfig's context and its logs.
    pub name: &'a str,
    /// The address on which it listens.
    pub address: Ipv4Addr,
    /// The network of the Services' addresses.
    pub service_cidr: &'a str,
    /// Additional lines `token,user,uid,group` of the token file.
    pub tokens: &'a [String],
    /// Who issues its ServiceAccounts' tokens, as their `iss` says.
    pub issuer: &'a str,
    /// Additional flags of the API server.
    pub flags: &'a [&'a str],
    /// Where its processes run.
    pub launcher: Launcher,
}

impl<'a> Spec<'a> {
    /// One on loopback whose only user is the administrator.
    pub fn local(name: &'a str) -> Self {
        Self {
            name,
            address: Ipv4Addr::LOCALHOST,
            service_cidr: "10.0.0.0/24",
            tokens: &[],
            issuer: "https://kubernetes.default.svc",
            flags: &[],
            launcher: Launcher::default(),
        }
    }
}

/// A running control plane. Dropping it stops it.
pub struct ControlPlane {
    name: String,
    /// The API server first, then etcd.
    processes: Vec<ChildProcess>,
    api_server: Vec<String>,
    etcd: Vec<String>,
    parts: Parts,
    /// When it lost its last writes, or all.
    lost: Vec<Timestamp>,
    /// The administrator's kubeconfig; its one context is named after the cluster.
    pub kubeconfig: PathBuf,
    /// kubectl as administrator.
    pub kubectl: Kubectl,
    /// A client as administrator.
    pub client: Client,
}

/// What every process of a control plane needs to start.
#[derive(Debug)]
struct Parts {
    kube: PathBuf,
    dir: PathBuf,
    logs: PathBuf,
    launcher: Launcher,
    authority: Authority,
    server: String,
    /// The names and addresses for which its certificate holds.
    hosts: Vec<String>,
}

impl ControlPlane {
    /// Starts one on loopback.
    pub async fn local(scene: &Scene, name: &str) -> Result<Self> {
        Self::start(scene, &Spec::local(name)).await
    }

    /// Starts etcd and the API server and waits until it is ready.
    pub async fn start(scene: &Scene, spec: &Spec<'_>) -> Result<Self> {
        let dir = scene.dir().join(spec.name);
        fs::create_dir_all(&dir)?;
        let port = free_port()?;
        let parts = Parts {
            kube: scene.tools().kube(),
            logs: scene.logs().join(spec.name),
            launcher: spec.launcher.clone(),
            authority: Authority::new(&format!("{}-ca", spec.name))?,
            server: format!("https://{}:{port}", spec.address),
            hosts: hosts(spec)?,
            dir,
        };
        parts.write_files(spec.tokens)?;
        let kubeconfig = parts.write_kubeconfig("admin", spec.name, ADMIN_TOKEN)?;
        let etcd = format!("http://127.0.0.1:{}", free_port()?);
        let api_server = api_server_flags(&parts.dir, spec, &etcd, port);
        let etcd = etcd_flags(&parts.dir, &etcd, free_port()?);
        let processes =
            vec![parts.spawn("kube-apiserver", &api_server)?, parts.spawn("etcd", &etcd)?];
        let mut this = Self {
            name: spec.name.to_owned(),
            processes,
            api_server,
            etcd,
            client: kubectl::client(&kubeconfig, spec.name).await?,
            kubectl: Kubectl::new(&parts.kube, &kubeconfig, spec.name),
            kubeconfig,
            parts,
            lost: Vec::new(),
        };
        this.wait_ready().await?;
        Ok(this)
    }

    /// Adds the controller manager and the scheduler.
    pub fn add_controllers(&mut self) -> Result<()> {
        let kubeconfig = self.kubeconfig.display();
        let common = |port: u16, name: &str| {
            let mut flags: Vec<String> = ["", "authentication-", "authorization-"]
                .iter()
                .map(|role| format!("--{role}kubeconfig={kubeconfig}"))
                .collect();
            flags.push("--bind-address=127.0.0.1".to_owned());
            flags.push(format!("--secure-port={port}"));
            flags.push(format!("--cert-dir={}", self.parts.dir.join(name).display()));
            flags.push("--leader-elect=false".to_owned());
            flags
        };
        let mut flags = common(free_port()?, "kube-controller-manager");
        flags.push(format!("--service-account-private-key-file={}", self.parts.pki("sa.key")));
        flags.push(format!("--root-ca-file={}", self.parts.pki("ca.crt")));
        flags.push("--use-service-account-credentials=true".to_owned());
        flags.push("--controllers=*,-node-ipam-controller".to_owned());
        let manager = self.parts.spawn("kube-controller-manager", &flags)?;
        let flags = common(free_port()?, "kube-scheduler");
        let scheduler = self.parts.spawn("kube-scheduler", &flags)?;
        self.processes.extend([manager, scheduler]);
        Ok(())
    }

    /// Adds a node whose Pods become ready without running any process, and waits until the node is
    /// ready.
    pub async fn add_hollow_node(&mut self, name: &str) -> Result<()> {
        let node = self.parts.spawn(
            "hollow-node",
            &[
                "--morph=kubelet".to_owned(),
                format!("--name={name}"),
                format!("--kubeconfig={}", self.kubeconfig.display()),
                format!("--kubelet-port={}", free_port()?),
                format!("--kubelet-read-only-port={}", free_port()?),
                "--use-host-image-service=false".to_owned(),
            ],
        )?;
        self.processes.push(node);
        self.wait_node_ready(name, &mut []).await
    }

    /// Waits until node `name` is ready.
    pub async fn wait_node_ready(
        &mut self,
        name: &str,
        daemons: &mut [ChildProcess],
    ) -> Result<()> {
        let path = format!("/api/v1/nodes/{name}");
        let (processes, client) = (&mut self.processes, &self.client);
        wait::until(READY_DEADLINE, &format!("node {name} to be ready"), async || {
            processes
                .iter_mut()
                .chain(daemons.iter_mut())
                .try_for_each(ChildProcess::check_alive)?;
            let node = kubectl::get(client, &path).await?.unwrap_or_default();
            Ok(kubectl::holds(&node, "Ready").then_some(()))
        })
        .await
    }

    /// Kills the API server with SIGKILL; etcd keeps running.
    pub fn kill_api_server(&mut self) {
        self.processes[0].kill();
    }

    /// Starts the API server again and waits until it is ready.
    pub async fn restart_api_server(&mut self) -> Result<()> {
        self.processes[0] = self.parts.spawn("kube-apiserver", &self.api_server)?;
        self.wait_ready().await
    }

    /// Kills the API server and etcd with SIGKILL.
    pub fn stop(&mut self) {
        self.processes[..2].iter_mut().for_each(ChildProcess::kill);
    }

    /// Starts both again, with what [`data`](Self::data) holds now, and waits until they are ready.
    pub async fn resume(&mut self) -> Result<()> {
        self.processes[1] = self.parts.spawn("etcd", &self.etcd)?;
        self.restart_api_server().await
    }

    /// Copies all that it holds to the folder `to`, for which it stops meanwhile.
    pub async fn back_up(&mut self, to: &Path) -> Result<()> {
        self.stop();
        copy(&self.data(), to)?;
        self.resume().await
    }

    /// Holds again what it did when it was backed up to `from`, and nothing that came later.
    pub async fn restore(&mut self, from: &Path) -> Result<()> {
        self.stop();
        self.lost.push(wait::now());
        fs::remove_dir_all(self.data())?;
        copy(from, &self.data())?;
        self.resume().await
    }

    /// When it lost its last writes, or all.
    pub fn lost(&self) -> &[Timestamp] {
        &self.lost
    }

    /// Holds nothing any more.
    pub async fn empty(&mut self) -> Result<()> {
        self.stop();
        self.lost.push(wait::now());
        fs::remove_dir_all(self.data())?;
        self.resume().await
    }

    /// Starts the API server again with a new certificate authority and other tokens, as lines
    /// `token,user,uid,group`. The administrator's kubeconfig and clients are new; nobody else's are.
    pub async fn renew_certificates(&mut self, tokens: &[String]) -> Result<()> {
        self.kill_api_server();
        self.parts.authority = Authority::new(&format!("{}-new-ca", self.name))?;
        self.parts.write_certificates()?;
        self.parts.write_tokens(tokens)?;
        self.kubeconfig = self.write_kubeconfig("admin", ADMIN_TOKEN)?;
        self.client = kubectl::client(&self.kubeconfig, &self.name).await?;
        self.restart_api_server().await
    }

    /// The folder of etcd's data.
    fn data(&self) -> PathBuf {
        self.parts.dir.join("etcd")
    }

    /// The URL of the API server.
    pub fn server(&self) -> &str {
        &self.parts.server
    }

    /// The cluster's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where the API server writes its audit log.
    pub fn audit_log(&self) -> PathBuf {
        self.parts.dir.join("audit.log")
    }

    /// The certificate authority of its certificates.
    pub fn authority(&self) -> &Authority {
        &self.parts.authority
    }

    /// The path of a file in its `pki` folder.
    pub fn pki(&self, name: &str) -> String {
        self.parts.pki(name)
    }

    /// Writes `pki/NAME.crt` and `pki/NAME.key`.
    pub fn write_pair(&self, name: &str, pair: &pki::Pair) -> Result<()> {
        self.parts.write_pair(name, pair)
    }

    /// Writes a kubeconfig `NAME.kubeconfig` for the holder of `token`.
    pub fn write_kubeconfig(&self, name: &str, token: &str) -> Result<PathBuf> {
        self.parts.write_kubeconfig(name, &self.name, token)
    }

    async fn wait_ready(&mut self) -> Result<()> {
        let (processes, client) = (&mut self.processes, &self.client);
        let what = format!("the API server of {} to be ready", self.name);
        wait::until(READY_DEADLINE, &what, async || {
            processes.iter_mut().try_for_each(ChildProcess::check_alive)?;
            Ok(kubectl::is_ready(client).await.then_some(()))
        })
        .await
    }
}

impl Parts {
    fn write_files(&self, tokens: &[String]) -> Result<()> {
        fs::create_dir_all(self.dir.join("pki"))?;
        fs::create_dir_all(self.dir.join("tmp"))?;
        self.write_certificates()?;
        let (private, public) = pki::signing_key()?;
        fs::write(self.pki("sa.key"), private)?;
        fs::write(self.pki("sa.pub"), public)?;
        self.write_tokens(tokens)
    }

    fn write_certificates(&self) -> Result<()> {
        let hosts: Vec<&str> = self.hosts.iter().map(String::as_str).collect();
        fs::write(self.pki("ca.crt"), &self.authority.certificate)?;
        self.write_pair("apiserver", &self.authority.server("kube-apiserver", None, &hosts)?)?;
        // The API server uses it to ask the kubelet for logs and exec.
        let client = self.authority.client("kube-apiserver-kubelet-client", "system:masters")?;
        self.write_pair("kubelet-client", &client)
    }

    /// The administrator's token, and these.
    fn write_tokens(&self, tokens: &[String]) -> Result<()> {
        let mut text = format!("{ADMIN_TOKEN},admin,admin,system:masters\n");
        tokens.iter().for_each(|line| text.extend([line, "\n"]));
        Ok(fs::write(self.pki("tokens.csv"), text)?)
    }

    fn pki(&self, name: &str) -> String {
        self.dir.join("pki").join(name).display().to_string()
    }

    fn write_pair(&self, name: &str, pair: &pki::Pair) -> Result<()> {
        fs::write(self.pki(&format!("{name}.crt")), &pair.certificate)?;
        Ok(fs::write(self.pki(&format!("{name}.key")), &pair.key)?)
    }

    fn write_kubeconfig(&self, name: &str, context: &str, token: &str) -> Result<PathBuf> {
        let path = self.dir.join(format!("{name}.kubeconfig"));
        let ca = BASE64.encode(&self.authority.certificate);
        let server = &self.server;
        fs::write(
            &path,
            format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: {context}\n\
                 clusters:\n- name: {context}\n  cluster: {{server: \"{server}\", certificate-authority-data: {ca}}}\n\
                 users:\n- name: {context}-{name}\n  user: {{token: {token}}}\n\
                 contexts:\n- name: {context}\n  context: {{cluster: {context}, user: {context}-{name}}}\n"
            ),
        )?;
        Ok(path)
    }

    fn spawn(&self, component: &str, flags: &[String]) -> Result<ChildProcess> {
        let mut command: Command = self.launcher.command(&self.kube);
        // The hollow kubelet leaves folders in TMPDIR; there they go with our own folder.
        command.arg(component).args(flags).env("TMPDIR", self.dir.join("tmp"));
        ChildProcess::spawn(component, &command, &self.logs)
    }
}

/// One member, which never syncs to disk: a test's data dies with the test.
fn etcd_flags(dir: &Path, client: &str, peer_port: u16) -> Vec<String> {
    let peer = format!("http://127.0.0.1:{peer_port}");
    vec![
        format!("--data-dir={}", dir.join("etcd").display()),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        "--quota-backend-bytes=2147483648".to_owned(),
        "--log-level=error".to_owned(),
        "--unsafe-no-fsync".to_owned(),
    ]
}

fn api_server_flags(dir: &Path, spec: &Spec<'_>, etcd: &str, port: u16) -> Vec<String> {
    let pki = |name: &str| dir.join("pki").join(name).display().to_string();
    let policy = super::real_dir().join("audit-policy.yaml");
    // The `kubernetes` Service cannot have an endpoint on loopback, and needs none.
    let reconciler = if spec.address.is_loopback() { "none" } else { "lease" };
    let mut flags = vec![
        format!("--endpoint-reconciler-type={reconciler}"),
        format!("--etcd-servers={etcd}"),
        format!("--bind-address={}", spec.address),
        format!("--advertise-address={}", spec.address),
        format!("--secure-port={port}"),
        format!("--cert-dir={}", dir.join("kube-apiserver").display()),
        format!("--tls-cert-file={}", pki("apiserver.crt")),
        format!("--tls-private-key-file={}", pki("apiserver.key")),
        format!("--client-ca-file={}", pki("ca.crt")),
        format!("--token-auth-file={}", pki("tokens.csv")),
        format!("--service-account-issuer={}", spec.issuer),
        format!("--service-account-key-file={}", pki("sa.pub")),
        format!("--service-account-signing-key-file={}", pki("sa.key")),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        "--allow-privileged=true".to_owned(),
        format!("--service-cluster-ip-range={}", spec.service_cidr),
        format!("--kubelet-client-certificate={}", pki("kubelet-client.crt")),
        format!("--kubelet-client-key={}", pki("kubelet-client.key")),
        format!("--kubelet-certificate-authority={}", pki("ca.crt")),
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
        format!("--audit-policy-file={}", policy.display()),
        format!("--audit-log-path={}", dir.join("audit.log").display()),
        // In megabytes. By default the server renames the file at 100, and half of the evidence
        // with it.
        "--audit-log-maxsize=100000".to_owned(),
    ];
    flags.extend(spec.flags.iter().map(|flag| (*flag).to_owned()));
    flags
}

/// What the API server is called.
fn hosts(spec: &Spec<'_>) -> Result<Vec<String>> {
    let names =
        ["127.0.0.1", "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
    let addresses = [spec.address, first_address(spec.service_cidr)?];
    let addresses = addresses.iter().map(ToString::to_string);
    Ok(addresses.chain(names.map(str::to_owned)).collect())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let status = Command::new("cp").arg("-a").arg(from).arg(to).status()?;
    ensure!(status.success(), "cp {} {}: {status}", from.display(), to.display());
    Ok(())
}

/// The first usable address of a network, which the `kubernetes` Service gets.
fn first_address(cidr: &str) -> Result<Ipv4Addr> {
    let network: Ipv4Addr = cidr.split('/').next().unwrap_or_default().parse()?;
    Ok(Ipv4Addr::from(u32::from(network) + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kubernetes_service_has_the_first_address() {
        assert_eq!(first_address("10.96.7.0/24").unwrap(), Ipv4Addr::new(10, 96, 7, 1));
        assert!(first_address("ten").is_err());
    }
}
