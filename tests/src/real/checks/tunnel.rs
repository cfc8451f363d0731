//! Bytes through a Tunnel with the real rathole at both ends: from a port of the exit to the
//! backend of the Service. Only the Tunnel's own client can connect, the Service has its address while
//! connections come through, its client lives and its backend ends what is ended, the ports follow those of the Service,
//! and the exit is deleted with it. Then the same with two clients.
//!
//! The exit is a process of this machine.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tokio::net::TcpListener;
use tunnel::exit::CONTROL_PORT;

use super::tunnel_clients;
use super::tunnel_pods::{
    CLIENT, Client, DEADLINE, SERVICE, TUNNEL, addressed, client, fetched, host,
};
use super::tunnel_traffic::{Backend, Blackhole, echoed, is_open};
use crate::harness::control_plane::ControlPlane;
use crate::harness::manager::Manager;
use crate::harness::{Scene, home, kubectl, wait};

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
    let mut backend = Backend::start().await?;
    let client = client(&plane, CLIENT).await?;
    refusals(scene, &client, &address, &backend).await?;
    let mut first = client.start(scene, "client", &backend, |config| config)?;
    fetched(&format!("{address}:80"), &backend).await?;
    println!("{} bytes came from {address}:80", backend.body().len());
    addressed(&plane, Some(&address)).await?;
    println!("and the Service has that address");
    // As on a node that is lost: what it has open stays open, and nothing answers.
    first.pause();
    ensure!(is_open(&format!("{address}:80")).await, "the host has missed its client already");
    let missed = wait::Stopwatch::start();
    addressed(&plane, None).await?;
    println!("its client hung: the address went after {missed} at most");
    first.resume();
    addressed(&plane, Some(&address)).await?;
    drop(first);
    addressed(&plane, None).await?;
    println!("without its client it has none");
    silences(scene, &plane, &client, &address, &mut backend).await?;

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
    tunnel_clients::run(scene, &plane, &mut manager).await?;
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
    let haproxy = scene.tools().haproxy();
    let environment = [
        ("LEASEHOLD_TUNNEL_LOCAL", &*allowed),
        ("LEASEHOLD_TUNNEL_DIR", &*exits.0),
        ("LEASEHOLD_RATHOLE", &*rathole),
        ("LEASEHOLD_HAPROXY", &*haproxy),
    ];
    Manager::start_with(scene, "replica-0", plane, &[plane], &controllers, &environment)
}

/// A client with another token cannot connect, nor one that expects another key, nor one that asks for another port.
async fn refusals(scene: &Scene, right: &Client, address: &str, backend: &Backend) -> Result<()> {
    let (asked, other) = ("[client.services.tcp-80]", "[client.services.tcp-81]");
    let (_, from) =
        right.file.1.split_once(asked).context("the client does not ask for port 80")?;
    let entry = |key: &str| {
        let found = from.lines().find_map(|line| line.strip_prefix(&format!("{key} = ")));
        found.map(str::to_owned).with_context(|| format!("the client's configuration has no {key}"))
    };
    let (token, key) = (entry("token")?, entry("remote_public_key")?);
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

/// The host's port opens, and no backend is behind it: the client's packets to the Service are lost, or the backend
/// hangs. There is no address then, and it comes and goes with a backend that ends what is ended.
async fn silences(
    scene: &Scene,
    plane: &ControlPlane,
    client: &Client,
    address: &str,
    backend: &mut Backend,
) -> Result<()> {
    let (lost, [(_, http), ..]) = (Blackhole::open().await?, backend.addresses());
    let lossy = client.start(scene, "lossy-client", backend, |config| {
        config.replace(&http.to_string(), &lost.address.to_string())
    })?;
    unanswered(plane).await?;
    ensure!(is_open(&format!("{address}:80")).await, "the client is not connected");
    addressed(plane, None).await?;
    println!("a client whose packets are lost opens the host's port, and there is no address");
    drop(lossy);
    let _client = client.start(scene, "client-again", backend, |config| config)?;
    fetched(&format!("{address}:80"), backend).await?;
    addressed(plane, Some(address)).await?;
    backend.hang();
    let missed = wait::Stopwatch::start();
    addressed(plane, None).await?;
    println!("its backend hung: the address went after {missed} at most");
    unanswered(plane).await?;
    backend.resume();
    addressed(plane, Some(address)).await
}

/// Waits until the Tunnel says that nothing came back of a connection that opened.
async fn unanswered(plane: &ControlPlane) -> Result<()> {
    wait::until(DEADLINE, "the Tunnel to miss an answer", async || {
        let tunnel = kubectl::get(&plane.client, TUNNEL).await?.unwrap_or_default();
        let told = &tunnel["status"]["conditions"][0]["message"];
        let told = told.as_str().unwrap_or_default();
        Ok(told.contains("after the probe ended its half").then_some(()))
    })
    .await
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
            let client = client(plane, CLIENT).await?;
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
