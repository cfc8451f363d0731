//! Bytes through a Tunnel with the real rathole at both ends: from a port of the exit to the
//! backend of the Service. Only the Tunnel's own client can connect, the Service has its address while
//! connections come through, the ports follow those of the Service, and the exit is deleted with it.
//!
//! The exit is a process of this machine. The check starts its client as the Deployment would, with
//! that command line and that Secret. Only the Service's address is replaced, since Pods become ready here
//! and run no process.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tunnel::exit::CONTROL_PORT;

use super::tunnel_traffic::{Backend, echoed, fetch, is_open};
use crate::harness::control_plane::ControlPlane;
use crate::harness::manager::Manager;
use crate::harness::process::ChildProcess;
use crate::harness::{Scene, home, kubectl, wait};

const DEADLINE: Duration = Duration::from_secs(90);
const SERVICE: &str = "/api/v1/namespaces/default/services/nginx-1";
const TUNNEL: &str = "/apis/inlets.inlets.dev/v1alpha1/namespaces/default/tunnels/nginx-1-tunnel";
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/default/deployments/nginx-1-tunnel-client";
const SECRET: &str = "/api/v1/namespaces/default/secrets/nginx-1-tunnel-client";
/// The Service's address in the client's configuration.
const CLUSTER_ADDRESS: &str = "nginx-1.default.svc";
/// A valid key that no exit has: the example in rathole's documentation.
const WRONG_KEY: &str = "GQYTKSbWLBUSZiGfdWPSgek9yoOuaiwGD/GIX8Z1kkE=";

/// Runs the check.
pub async fn run(scene: &Scene) -> Result<()> {
    // First, so that it is dropped after everything that makes exits.
    let exits = Exits(scene.dir().join("exits"));
    require_low_ports().await?;
    let mut plane = ControlPlane::local(scene, "east").await?;
    // The garbage collector deletes what belongs to a deleted Service.
    plane.add_controllers()?;
    plane.add_hollow_node("node-0").await?;
    let mut manager = start(scene, &plane, &exits).await?;
    plane.kubectl.apply_path(&xtask::root().join("examples/tunnel.yaml")).await?;
    let address = host(&plane, &mut manager).await?;
    println!("the host has address {address}");
    let backend = Backend::start().await?;
    let client = client(&plane).await?;
    refusals(scene, &client, &address, &backend).await?;
    let first = client.start(scene, "client", &backend, |config| config)?;
    fetched(&format!("{address}:80"), &backend).await?;
    println!("{} bytes came from {address}:80", backend.body().len());
    addressed(&plane, Some(&address)).await?;
    println!("and the Service has that address");
    drop(first);
    addressed(&plane, None).await?;
    println!("without its client it has none");

    let before = exits.processes();
    other_ports(scene, &plane, &address, &backend).await?;
    ensure!(exits.processes() == before, "the exit was restarted for other ports");
    plane.kubectl.run(&["delete", "service", "nginx-1"]).await?;
    wait::until(DEADLINE, "Tunnel and exit to be gone", async || {
        manager.check_alive()?;
        let tunnel = kubectl::get(&plane.client, TUNNEL).await?;
        Ok((tunnel.is_none() && exits.processes().is_empty()).then_some(()))
    })
    .await?;
    let control = format!("{address}:{CONTROL_PORT}");
    ensure!(!is_open(&control).await, "something still listens there");
    println!("the exit is gone with the Service");
    manager.leave().await
}

/// The example's port is 80.
async fn require_low_ports() -> Result<()> {
    TcpListener::bind("127.77.0.1:80").await.context(
        "the example's Service has port 80, on which this user may not listen: run this as root, or \
         with net.ipv4.ip_unprivileged_port_start=0",
    )?;
    Ok(())
}

async fn start(scene: &Scene, plane: &ControlPlane, exits: &Exits) -> Result<Manager> {
    home::install(&plane.kubectl).await?;
    let defaults = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "leasehold-tunnel", "namespace": home::NAMESPACE},
        "data": {"provider": "local", "claimServicesWithoutClass": "true"},
    });
    plane.kubectl.apply(&defaults.to_string()).await?;
    let controllers = json!({"controllers": {"tunnel": {"workers": 2}}});
    let (allowed, rathole) = (PathBuf::from("1"), scene.tools().rathole());
    let environment = [
        ("LEASEHOLD_TUNNEL_LOCAL", &*allowed),
        ("LEASEHOLD_TUNNEL_DIR", &*exits.0),
        ("LEASEHOLD_RATHOLE", &*rathole),
    ];
    Manager::start_with(scene, "replica-0", plane, &[plane], &controllers, &environment)
}

/// Waits until the Tunnel's host runs and its client has Pods, through which no connection comes.
async fn host(plane: &ControlPlane, manager: &mut Manager) -> Result<String> {
    wait::until(DEADLINE, "the Tunnel's host to run, and to be unreachable", async || {
        manager.check_alive()?;
        let tunnel = kubectl::get(&plane.client, TUNNEL).await?.unwrap_or_default();
        let status = &tunnel["status"];
        let is_unreachable = status["conditions"][0]["reason"] == "Unreachable";
        Ok(status["hostIP"].as_str().filter(|_| is_unreachable).map(str::to_owned))
    })
    .await
}

/// Waits until the Service has this address, or none.
async fn addressed(plane: &ControlPlane, address: Option<&str>) -> Result<()> {
    wait::until(DEADLINE, &format!("the Service to have address {address:?}"), async || {
        let service = kubectl::get(&plane.client, SERVICE).await?.unwrap_or_default();
        let ingress = &service["status"]["loadBalancer"]["ingress"][0]["ip"];
        Ok((ingress.as_str() == address).then_some(()))
    })
    .await
}

/// How a Pod of the client is started.
struct Client {
    arguments: Vec<String>,
    /// Where the Pod has its configuration.
    folder: String,
    /// The only file in that folder: its name and content.
    file: (String, String),
}

/// Reads the Deployment and the Secret of the client.
async fn client(plane: &ControlPlane) -> Result<Client> {
    let get = async |path| {
        let found = kubectl::get(&plane.client, path).await?;
        found.with_context(|| format!("there is no {path}"))
    };
    let (deployment, secret): (Value, Value) = (get(DEPLOYMENT).await?, get(SECRET).await?);
    let pod = &deployment["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    ensure!(pod["volumes"][0]["secret"]["secretName"] == secret["metadata"]["name"], "{pod}");
    let arguments = serde_json::from_value(container["args"].clone())?;
    let folder = serde_json::from_value(container["volumeMounts"][0]["mountPath"].clone())?;
    let data = secret["data"].as_object().and_then(|data| data.iter().next());
    let (name, content) = data.context("the Secret is empty")?;
    let content = BASE64.decode(content.as_str().unwrap_or_default())?;
    Ok(Client { arguments, folder, file: (name.clone(), String::from_utf8(content)?) })
}

impl Client {
    /// Starts rathole as a Pod would, after `change` may have changed its configuration.
    fn start(
        &self,
        scene: &Scene,
        name: &str,
        backend: &Backend,
        change: impl FnOnce(String) -> String,
    ) -> Result<ChildProcess> {
        let mounted = scene.dir().join(name);
        fs::create_dir_all(&mounted)?;
        let mut config = self.file.1.clone();
        for (port, address) in backend.addresses() {
            config =
                config.replace(&format!("{CLUSTER_ADDRESS}:{port}\""), &format!("{address}\""));
        }
        ensure!(!config.contains(CLUSTER_ADDRESS), "a port without a backend: {config}");
        fs::write(mounted.join(&self.file.0), change(config))?;
        let here = mounted.to_str().context("a path that is not UTF-8")?;
        let mut command = Command::new(scene.tools().rathole());
        command.args(self.arguments.iter().map(|word| word.replace(&self.folder, here)));
        ChildProcess::spawn(name, &command, &scene.logs())
    }
}

/// A client with another token cannot connect, nor one that expects another key, nor one that asks for another port.
async fn refusals(scene: &Scene, right: &Client, address: &str, backend: &Backend) -> Result<()> {
    let entry = |key: &str| {
        let found = right.file.1.lines().find_map(|line| line.strip_prefix(&format!("{key} = ")));
        found.map(str::to_owned).with_context(|| format!("the client's configuration has no {key}"))
    };
    let (token, key) = (entry("token")?, entry("remote_public_key")?);
    let (asked, other) = ("[client.services.tcp-80]", "[client.services.tcp-81]");
    for (name, value, wrong, says) in [
        ("wrong-token", token, "\"wrong\"".to_owned(), "Incorrect token"),
        ("another-port", asked.to_owned(), other.to_owned(), "Incorrect token"),
        ("wrong-key", key, format!("\"{WRONG_KEY}\""), "Failed to do noise handshake"),
    ] {
        let mut client =
            right.start(scene, name, backend, |config| config.replace(&value, &wrong))?;
        wait::until(DEADLINE, &format!("{name}: {says}"), async || {
            client.check_alive()?;
            Ok(client.output().contains(says).then_some(()))
        })
        .await
        .with_context(|| client.output())?;
        for port in [80, 81] {
            ensure!(!is_open(&format!("{address}:{port}")).await, "{name}: a port was opened");
        }
        println!("{name}: refused, {says:?}");
    }
    Ok(())
}

/// Waits until an address sends all bytes of the backend.
async fn fetched(address: &str, backend: &Backend) -> Result<()> {
    let what = format!("bytes from {address}");
    let found = wait::until(DEADLINE, &what, async || Ok(fetch(address).await.ok())).await?;
    ensure!(found == backend.body(), "{address} sends other bytes than the backend");
    Ok(())
}

/// When the ports of the Service change, the same exit listens on the new ones and no longer on the old ones.
async fn other_ports(
    scene: &Scene,
    plane: &ControlPlane,
    address: &str,
    backend: &Backend,
) -> Result<()> {
    let ports = json!([
        {"name": "web", "port": 8080},
        {"name": "echo", "port": 5353, "protocol": "UDP"},
    ]);
    kubectl::merge(&plane.client, SERVICE, &json!({"spec": {"ports": ports}})).await?;
    let changed =
        wait::until(DEADLINE, "the client to be configured for the new ports", async || {
            let client = client(plane).await?;
            Ok(client.file.1.contains(":8080\"").then_some(client))
        })
        .await?;
    let mut client = changed.start(scene, "client-of-others", backend, |config| config)?;
    fetched(&format!("{address}:8080"), backend).await?;
    let to: SocketAddr = format!("{address}:5353").parse()?;
    wait::until(DEADLINE, "a datagram to come back", async || {
        client.check_alive()?;
        Ok(echoed(to).await?.then_some(()))
    })
    .await?;
    // rathole closes it at the first connection after it has missed the client that asked for it.
    wait::until(DEADLINE, "port 80 to be closed", async || {
        Ok((!is_open(&format!("{address}:80")).await).then_some(()))
    })
    .await?;
    println!("after a change of ports, TCP from {address}:8080 and UDP from {address}:5353");
    Ok(())
}

/// The folder of the exits. They outlive the manager on purpose, but must not outlive the check.
struct Exits(PathBuf);

impl Exits {
    /// The processes whose command lines name a file in the folder.
    fn processes(&self) -> Vec<Pid> {
        let ours = self.0.as_os_str().as_encoded_bytes();
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let ours = all.filter(|process| {
            let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
            line.split(|byte| *byte == 0).any(|word| word.starts_with(ours))
        });
        let id = |name: &str| Pid::from_raw(name.parse().ok()?);
        ours.filter_map(|process| id(process.file_name().to_str()?)).collect()
    }
}

impl Drop for Exits {
    fn drop(&mut self) {
        for exit in self.processes() {
            // It does not matter if it has just ended.
            let _ = kill_process(exit, Signal::KILL);
        }
    }
}
