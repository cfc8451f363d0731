//! What the checks of Tunnels look at in the cluster, and the clients, which they run as their Pods would: with that
//! command line and that Secret. Only the Service's address is replaced, since Pods become ready here and run no process.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

use super::tunnel_traffic::{Backend, fetch};
use crate::harness::control_plane::ControlPlane;
use crate::harness::manager::Manager;
use crate::harness::process::ChildProcess;
use crate::harness::{Scene, kubectl, wait};

/// How long each step may take.
pub const DEADLINE: Duration = Duration::from_secs(90);
/// The example's Service.
pub const SERVICE: &str = "/api/v1/namespaces/default/services/nginx-1";
/// Its Tunnel.
pub const TUNNEL: &str =
    "/apis/inlets.inlets.dev/v1alpha1/namespaces/default/tunnels/nginx-1-tunnel";
/// Its first client, and the start of the others' names.
pub const CLIENT: &str = "nginx-1-tunnel-client";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
/// The Service's address in the client's configuration.
const CLUSTER_ADDRESS: &str = "nginx-1.default.svc";

/// Waits until the Tunnel's host runs and its client has Pods, through which no connection comes.
pub async fn host(plane: &ControlPlane, manager: &mut Manager) -> Result<String> {
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
pub async fn addressed(plane: &ControlPlane, address: Option<&str>) -> Result<()> {
    wait::until(DEADLINE, &format!("the Service to have address {address:?}"), async || {
        let service = kubectl::get(&plane.client, SERVICE).await?.unwrap_or_default();
        let ingress = &service["status"]["loadBalancer"]["ingress"][0]["ip"];
        Ok((ingress.as_str() == address).then_some(()))
    })
    .await
}

/// How a Pod of the client is started.
pub struct Client {
    arguments: Vec<String>,
    /// Where the Pod has its configuration.
    folder: String,
    /// The only file in that folder: its name and content.
    pub file: (String, String),
}

/// Reads the Deployment and the Secret of a client.
pub async fn client(plane: &ControlPlane, name: &str) -> Result<Client> {
    let get = async |folder: &str| {
        let path = format!("{folder}/{name}");
        let found = kubectl::get(&plane.client, &path).await?;
        found.with_context(|| format!("there is no {path}"))
    };
    let (deployment, secret): (Value, Value) = (get(DEPLOYMENTS).await?, get(SECRETS).await?);
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
    pub fn start(
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

/// Waits until an address sends all bytes of the backend.
pub async fn fetched(address: &str, backend: &Backend) -> Result<()> {
    let what = format!("bytes from {address}");
    let found = wait::until(DEADLINE, &what, async || Ok(fetch(address).await.ok())).await?;
    ensure!(found == backend.body(), "{address} sends other bytes than the backend");
    Ok(())
}
