//! API servers in processes of their own: one process may not open as many files as ten thousand servers need.
//!
//! ```text
//!   load test ── an order, one line of JSON ──▶ loadtest serve: starts the servers
//!             ◀── the kubeconfig of each, a line of JSON ──
//!             ── end of input ──▶ stops them
//! ```

use std::net::SocketAddr;
use std::process::Stdio;

use anyhow::{Context, bail, ensure};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::client::{Body, ConfigExt};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rustix::process::{Resource, getrlimit};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tower::{BoxError, ServiceBuilder};

use crate::servers::{self, Cluster};

/// Files that a process opens beside those of its clusters: of the home cluster, reports, logs, and its own.
const BESIDE: usize = 256;

/// What a process is to start.
#[derive(Serialize, Deserialize)]
struct Order {
    names: Vec<String>,
    namespaces: Vec<String>,
    definitions: Vec<CustomResourceDefinition>,
}

/// A server that has started.
#[derive(Serialize, Deserialize)]
struct Started {
    address: SocketAddr,
    kubeconfig: String,
}

/// A process with servers, which end with it.
pub struct Host(Child);

/// In how many parts so many clusters are divided, each in a process of its own, where a process may open so many
/// files; 0 if this one has room for all. Each cluster listens, and has connections of replicas and of the load test,
/// which needs none to those in its own process.
fn parts(clusters: usize, replicas: usize, files: usize) -> anyhow::Result<usize> {
    let room = files.saturating_sub(BESIDE);
    if clusters * (1 + replicas) <= room {
        return Ok(0);
    }
    let most = room / (2 + replicas);
    ensure!(
        clusters <= room && most > 0,
        "a process may open {files} files, and the load test needs {} for a connection to each of {clusters} clusters; \
         fix: ulimit -n {}",
        clusters + BESIDE,
        clusters + BESIDE
    );
    Ok(clusters.div_ceil(most))
}

/// The names of clusters, divided among further processes; in no parts if this process has room for all.
///
/// # Errors
/// If no process may open as many files as are needed.
pub fn divided(names: &[String], replicas: usize) -> anyhow::Result<Vec<&[String]>> {
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let files = usize::try_from(files).unwrap_or(usize::MAX);
    Ok(match parts(names.len(), replicas, files)? {
        0 => Vec::new(),
        parts => names.chunks(names.len().div_ceil(parts)).collect(),
    })
}

impl Host {
    /// Starts servers in a process of their own.
    ///
    /// # Errors
    /// If one of them does not start.
    pub async fn start(
        names: &[String],
        namespaces: Vec<String>,
        definitions: Vec<CustomResourceDefinition>,
    ) -> anyhow::Result<(Self, Vec<Cluster>)> {
        let program = std::env::current_exe().context("find this program")?;
        let mut child = Command::new(program)
            .arg("serve")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("start a process for API servers")?;
        let (stdin, stdout) = (child.stdin.as_mut(), child.stdout.take());
        let (Some(stdin), Some(stdout)) = (stdin, stdout) else { bail!("it has no pipes") };
        let order = Order { names: names.to_vec(), namespaces, definitions };
        let order = serde_json::to_string(&order)? + "\n";
        stdin.write_all(order.as_bytes()).await.context("tell a process which servers to start")?;
        Ok((Self(child), clusters(names, stdout).await?))
    }

    /// Stops its servers.
    pub async fn stop(mut self) {
        drop(self.0.stdin.take());
        // However it ended, its servers are gone.
        let _ = self.0.wait().await;
    }
}

/// The clusters of these names, as a process says of them.
async fn clusters(
    names: &[String],
    said: impl AsyncRead + Unpin + Send,
) -> anyhow::Result<Vec<Cluster>> {
    let (mut lines, mut clusters) = (BufReader::new(said).lines(), Vec::new());
    for name in names {
        let line = lines.next_line().await?;
        let line = line.context("a process with API servers ended; it says why above")?;
        let Started { address, kubeconfig } = serde_json::from_str(&line)?;
        let client = client(&kubeconfig).await.with_context(|| format!("connect to {name}"))?;
        clusters.push(Cluster { name: name.clone(), client, kubeconfig, address });
    }
    Ok(clusters)
}

/// A client that speaks HTTP/2, so that all that it asks can share a connection.
async fn client(kubeconfig: &str) -> anyhow::Result<Client> {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig)?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
    let mut tls = config.rustls_client_config()?;
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let https = HttpsConnector::from((tcp, tls));
    let mut http = legacy::Client::builder(TokioExecutor::new());
    // A connection of which only a watch is left counts as idle, and what is asked next would open another beside it.
    http.pool_idle_timeout(None);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .map_err(BoxError::from)
        .service(http.http2_only(true).build::<_, Body>(https));
    Ok(Client::new(service, config.default_namespace))
}

/// Does what an order says, and stops at the end of the input.
///
/// # Errors
/// If there is no order, or a server does not start.
pub async fn serve(
    input: impl AsyncRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
) -> anyhow::Result<()> {
    let mut input = BufReader::new(input);
    let mut order = String::new();
    input.read_line(&mut order).await?;
    let Order { names, namespaces, definitions } = serde_json::from_str(&order)
        .context("`loadtest serve` is what load tests start, and reads an order from them")?;
    let mut servers = Vec::new();
    for name in names {
        let server = servers::start(&name, namespaces.iter().cloned(), &definitions).await?;
        let started = Started { address: server.address(), kubeconfig: server.kubeconfig() };
        output.write_all((serde_json::to_string(&started)? + "\n").as_bytes()).await?;
        output.flush().await?;
        servers.push(server);
    }
    input.read_to_string(&mut order).await?;
    for server in servers {
        server.shutdown().await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Namespace;
    use kube::Api;

    use super::*;

    #[tokio::test]
    async fn what_is_ordered_is_served_until_the_input_ends() {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let (said, mut order) = tokio::io::split(ours);
        let (input, output) = tokio::io::split(theirs);
        let serving = tokio::spawn(serve(input, output));
        let names = ["cluster-001", "cluster-002"].map(str::to_owned);
        let (namespaces, definitions) = (vec!["load-000".to_owned()], Vec::new());
        let told = Order { names: names.to_vec(), namespaces, definitions };
        let told = serde_json::to_string(&told).unwrap() + "\n";
        order.write_all(told.as_bytes()).await.unwrap();
        let clusters = clusters(&names, said).await.unwrap();
        for Cluster { client, .. } in &clusters {
            Api::<Namespace>::all(client.clone()).get("load-000").await.unwrap();
        }
        order.shutdown().await.unwrap();
        serving.await.unwrap().unwrap();
        let gone = Api::<Namespace>::all(clusters[0].client.clone()).get("load-000").await;
        assert!(gone.is_err());
    }

    #[test]
    fn servers_have_processes_of_their_own_where_one_cannot_open_so_many_files() {
        let all = |clusters, files| parts(clusters, 3, files).map_err(|error| error.to_string());
        assert_eq!(all(100, 1_024), Ok(0));
        assert_eq!(all(1_000, 4_256), Ok(0));
        assert_eq!(all(1_001, 4_256), Ok(2));
        assert_eq!(all(10_000, 20_000), Ok(3));
        assert_eq!(all(10_000, 1 << 20), Ok(0));
        let error = all(20_000, 20_000).unwrap_err();
        assert!(error.ends_with("of 20000 clusters; fix: ulimit -n 20256"), "{error}");
    }
}
