//! One plain HTTP GET on loopback: all that scraping needs.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;

/// How long one scrape may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The largest answer read.
const MAX_BODY_BYTES: usize = 32 << 20;

/// The body of `http://{address}{path}`.
///
/// # Errors
/// If the server is unreachable, slow, or answers other than 200.
pub async fn get(address: SocketAddr, path: &str) -> anyhow::Result<String> {
    let url = format!("http://{address}{path}");
    tokio::time::timeout(TIMEOUT, fetch(&url))
        .await
        .with_context(|| format!("GET {url}: no answer in {TIMEOUT:?}"))?
        .with_context(|| format!("GET {url}"))
}

async fn fetch(url: &str) -> anyhow::Result<String> {
    let client: Client<_, Empty<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let answer = client.get(url.parse()?).await?;
    let status = answer.status();
    ensure!(status.is_success(), "answered {status}");
    let body = Limited::new(answer.into_body(), MAX_BODY_BYTES).collect().await;
    let body = body.map_err(anyhow::Error::from_boxed).context("read the body")?;
    Ok(String::from_utf8(body.to_bytes().into())?)
}
