//! A Tunnel with two clients and the real haproxy before them: bytes pass both, one that is killed takes only what it
//! carries with it, one that hangs is left out, and the Tunnel says how many are connected. A machine's program and
//! rules are those that its programs take.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use futures::future::join_all;
use serde_json::{Value, json};
use tunnel::balance::Addresses;
use tunnel::credentials::Credentials;
use tunnel::exit::Exit;

use super::tunnel_pods::{CLIENT, DEADLINE, TUNNEL, addressed, client, fetched, host};
use super::tunnel_traffic::{Backend, fetch, fetch_slowly};
use crate::harness::control_plane::ControlPlane;
use crate::harness::manager::Manager;
use crate::harness::{Scene, home, kubectl, process, wait};

/// Runs this part of the check, in whose cluster there is no Tunnel.
pub async fn run(scene: &Scene, plane: &ControlPlane, manager: &mut Manager) -> Result<()> {
    for clients in 1..=2 {
        machine(scene, clients)?;
    }
    println!(
        "a machine writes what a process is told, and haproxy and nft take their configurations"
    );
    let defaults = format!("/api/v1/namespaces/{}/configmaps/leasehold-tunnel", home::NAMESPACE);
    kubectl::merge(&plane.client, &defaults, &json!({"data": {"clients": "2"}})).await?;
    plane.kubectl.apply_path(&xtask::root().join("examples/tunnel.yaml")).await?;
    let address = host(plane, manager).await?;
    counted(plane, 0).await?;
    let backend = Backend::start().await?;
    let names = [CLIENT.to_owned(), format!("{CLIENT}-1")];
    let [first, second] = [client(plane, &names[0]).await?, client(plane, &names[1]).await?];
    let start = |client: &super::tunnel_pods::Client, name: &str| {
        client.start(scene, name, &backend, |config| config)
    };
    let mut first_pod = start(&first, "first-client")?;
    let mut second_pod = start(&second, "second-client")?;
    let to = format!("{address}:80");
    counted(plane, 2).await?;
    addressed(plane, Some(&address)).await?;
    println!("two clients are connected, and the Service has address {address}");

    // By turns, so that each client has some of these.
    let downloads = (0..4).map(|_| fetch_slowly(&to));
    let killing = async {
        tokio::time::sleep(std::time::Duration::from_secs(2)).await;
        first_pod.kill();
    };
    let (downloads, ()) = tokio::join!(join_all(downloads), killing);
    let whole = downloads.iter().flatten().filter(|body| *body == backend.body()).count();
    ensure!(
        (1..4).contains(&whole),
        "{whole} of 4 downloads came through, where each client had some"
    );
    served(&to, &backend).await?;
    counted(plane, 1).await?;
    addressed(plane, Some(&address)).await?;
    println!("one was killed: what went through the other came whole, and the address stays");

    first_pod = start(&first, "first-client-again")?;
    counted(plane, 2).await?;
    // As on a node that is lost: what it has open stays open, and nothing answers.
    second_pod.pause();
    let missed = wait::Stopwatch::start();
    counted(plane, 1).await?;
    served(&to, &backend).await?;
    println!("one hung: it was left out after {missed} at most");
    second_pod.resume();
    counted(plane, 2).await?;
    first_pod.check_alive()?;
    fetched(&to, &backend).await?;
    plane.kubectl.run(&["delete", "service", "nginx-1"]).await?;
    wait::until(DEADLINE, "the Tunnel with two clients to be gone", async || {
        manager.check_alive()?;
        Ok(kubectl::get(&plane.client, TUNNEL).await?.is_none().then_some(()))
    })
    .await
}

/// Waits until the Tunnel says that so many of two clients are connected.
async fn counted(plane: &ControlPlane, live: usize) -> Result<()> {
    let message = format!("{live} of 2 clients {} connected", if live == 1 { "is" } else { "are" });
    wait::until(DEADLINE, &message, async || {
        let tunnel = kubectl::get(&plane.client, TUNNEL).await?.unwrap_or_default();
        let told = tunnel["status"]["conditions"].as_array().cloned().unwrap_or_default();
        Ok(told.iter().any(|told| told["message"] == *message).then_some(()))
    })
    .await
}

/// Every one of some connections, by turns to each client that counts, sends all bytes.
async fn served(address: &str, backend: &Backend) -> Result<()> {
    wait::until(DEADLINE, "every connection to come through", async || {
        for _ in 0..10 {
            if fetch(address).await.ok().as_deref() != Some(backend.body()) {
                return Ok(None);
            }
        }
        Ok(Some(()))
    })
    .await
}

/// What a machine is told: its program writes what the same host as a process is told, and the other programs take
/// theirs.
fn machine(scene: &Scene, clients: usize) -> Result<()> {
    let (archives, ports) = (Default::default(), Vec::new());
    let exit = Exit { credentials: Credentials::draw()?, ports, archives, address: None, clients };
    let folder = scene.dir().join(format!("machine-{clients}"));
    let text = exit.user_data();
    let config = text.strip_prefix("#cloud-config\n").context("it is not for cloud-init")?;
    let config: Value = serde_json::from_str(config)?;
    for file in config["write_files"].as_array().context("no files")? {
        let path = Path::new(file["path"].as_str().context("no path")?);
        let path = folder.join(path.file_name().context("no name")?);
        fs::create_dir_all(&folder)?;
        fs::write(path, BASE64.decode(file["content"].as_str().context("no content")?)?)?;
    }
    let written = folder.join("written");
    fs::create_dir_all(&written)?;
    let mut program = Command::new("python3");
    program.arg(folder.join("leasehold-exit-config"));
    program.env("CREDENTIALS_DIRECTORY", &folder).env("RUNTIME_DIRECTORY", &written);
    process::run(&mut program)?;
    let written = fs::read_to_string(written.join("server.toml"))?;
    let sorted = |text: &str| {
        let mut services: Vec<_> = text.split("\n\n").map(|it| it.trim().to_owned()).collect();
        services.sort_unstable();
        services
    };
    let told = exit.config(&Addresses::machine("[::]"));
    ensure!(sorted(&written) == sorted(&told), "a machine writes another configuration");
    process::run(Command::new("sh").arg("-n").arg(folder.join("leasehold-exit")))?;
    if clients > 1 {
        let haproxy = scene.tools().haproxy();
        process::run(Command::new(haproxy).args(["-c", "-f"]).arg(folder.join("haproxy.cfg")))?;
        let mut alone = Command::new("unshare");
        alone.args(["--user", "--map-root-user", "--net", "nft", "-c", "-f"]);
        process::run(alone.arg(folder.join("balance.nft")))?;
    }
    Ok(())
}
