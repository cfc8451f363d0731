//! Where a replica's figures are read: of a process of this machine, or of a Pod through its API server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ::fleet::Way;
use anyhow::{Context, ensure};
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING};
use kube::Client;
use kube::client::Body;
use loadtest::scrape;
use loadtest::usage::{self, Usage};

/// How long one scrape may take.
const SCRAPE_TIMEOUT: Duration = Duration::from_secs(5);

/// Where a replica's figures are read.
#[derive(Clone)]
pub struct Probe {
    /// Its identity, with a number from the second process of it on.
    pub name: String,
    place: Place,
}

#[derive(Clone)]
enum Place {
    /// A process of this machine, and its admin server.
    Process { pid: u32, admin: Client },
    /// A Pod of this home, whose admin server wants this token.
    Pod { home: Client, way: Way, token: Arc<str>, peak_bytes: Arc<AtomicU64> },
}

impl Probe {
    /// Of a process of this machine, whose admin server speaks HTTP.
    pub fn process(name: String, pid: u32, admin: Client) -> Self {
        Self { name, place: Place::Process { pid, admin } }
    }

    /// Of a Pod.
    pub fn pod(name: String, home: Client, way: Way, token: Arc<str>) -> Self {
        Self { name, place: Place::Pod { home, way, token, peak_bytes: Arc::default() } }
    }

    /// The process, if it is one of this machine.
    ///
    /// # Errors
    /// If it is a Pod.
    pub fn pid(&self) -> anyhow::Result<u32> {
        match self.place {
            Place::Process { pid, .. } => Ok(pid),
            Place::Pod { .. } => anyhow::bail!("{} is a Pod", self.name),
        }
    }

    /// Whether CPU time and memory are read of the metrics, too.
    pub fn is_pod(&self) -> bool {
        matches!(self.place, Place::Pod { .. })
    }

    /// CPU time and memory. Those of a Pod are in its metrics, which are asked for if they are not given; the
    /// most memory that it had is the most that was seen.
    ///
    /// # Errors
    /// If the process has ended, or there are no metrics.
    pub fn usage(&self, metrics: Option<&str>) -> anyhow::Result<Usage> {
        match &self.place {
            Place::Process { pid, .. } => {
                usage::of(*pid).with_context(|| format!("{} is gone; see its log", self.name))
            }
            Place::Pod { peak_bytes, .. } => {
                let text = metrics.with_context(|| format!("{} gave no metrics", self.name))?;
                let resident_bytes = scrape::sum(text, "process_resident_memory_bytes") as u64;
                let before = peak_bytes.fetch_max(resident_bytes, Ordering::Relaxed);
                let cpu = scrape::sum(text, "process_cpu_seconds_total");
                let cpu = Duration::try_from_secs_f64(cpu).context("process_cpu_seconds_total")?;
                let peak_resident_bytes = before.max(resident_bytes);
                Ok(Usage { cpu, resident_bytes, anonymous_bytes: None, peak_resident_bytes })
            }
        }
    }

    /// Whether it says that it is ready. Of a Pod, whether its metrics can be read.
    pub async fn is_ready(&self) -> bool {
        let Place::Process { admin, .. } = &self.place else { return self.metrics().await.is_ok() };
        let request = http::Request::get("/readyz").body(Vec::new());
        let request = request.expect("the path is constant and valid");
        let answer = tokio::time::timeout(SCRAPE_TIMEOUT, admin.request_text(request)).await;
        matches!(answer, Ok(Ok(_)))
    }

    /// Its metrics, in the Prometheus text format.
    ///
    /// # Errors
    /// If the admin server does not answer.
    pub async fn metrics(&self) -> anyhow::Result<String> {
        let scrape = async {
            match &self.place {
                Place::Process { admin, .. } => {
                    let request = http::Request::get("/metrics").body(Vec::new())?;
                    Ok(admin.request_text(request).await?)
                }
                Place::Pod { home, way, token, .. } => {
                    let page = ::fleet::get(home.clone(), way, "/metrics", Some(token)).await?;
                    anyhow::Ok(String::from_utf8(page.to_vec())?)
                }
            }
        };
        let answer = tokio::time::timeout(SCRAPE_TIMEOUT, scrape).await;
        let answer = answer.with_context(|| format!("scrape {}", self.name))?;
        answer.with_context(|| format!("scrape {}", self.name))
    }

    /// How many bytes its metrics take when they are compressed. Those of a Pod are read as they are.
    ///
    /// # Errors
    /// If the admin server does not answer, or not compressed.
    pub async fn compressed_bytes(&self) -> anyhow::Result<Option<usize>> {
        let Place::Process { admin, .. } = &self.place else { return Ok(None) };
        let request = http::Request::get("/metrics").header(ACCEPT_ENCODING, "gzip");
        let request = request.body(Body::empty())?;
        let scrape = async {
            let answer = admin.send(request).await?;
            let coding = answer.headers().get(CONTENT_ENCODING);
            ensure!(
                coding.is_some_and(|coding| coding == "gzip"),
                "its metrics are not compressed"
            );
            Ok(answer.into_body().collect_bytes().await?.len())
        };
        let bytes = tokio::time::timeout(SCRAPE_TIMEOUT, scrape).await;
        let bytes = bytes.with_context(|| format!("scrape {}", self.name))?;
        Ok(Some(bytes.with_context(|| format!("scrape {}", self.name))?))
    }
}
