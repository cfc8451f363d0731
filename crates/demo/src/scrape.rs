//! Reads a replica's `/metrics`, as Prometheus does.
//!
//! Owns the request and the few sums that the demo shows. Of the format it reads only lines of
//! `name{labels} value`.

use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

/// A replica that does not answer within this time shows no figures this time.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The largest scrape that is read.
const MAX_BYTES: usize = 16 << 20;

/// What the demo shows of a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    /// Reconciles since the process began.
    pub reconciles: f64,
    /// Of those, the failed ones.
    pub errors: f64,
    /// Keys that wait.
    pub queued: f64,
}

/// A replica could not be scraped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScrapeError {
    /// The address does not form a valid URI.
    #[error("form the address of the metrics of {0}")]
    Address(SocketAddr, #[source] http::uri::InvalidUri),
    /// The replica does not answer.
    #[error("request the metrics of {0}")]
    Request(SocketAddr, #[source] hyper_util::client::legacy::Error),
    /// The answer broke off or is too long.
    #[error("read the metrics of {0}")]
    Body(SocketAddr, #[source] Box<dyn std::error::Error + Send + Sync>),
    /// The replica does not answer in time.
    #[error("wait for the metrics of {0}")]
    Timeout(SocketAddr, #[source] tokio::time::error::Elapsed),
}

/// A client that keeps its connections.
#[derive(Clone, Debug)]
pub(crate) struct Scraper(Client<HttpConnector, Empty<bytes::Bytes>>);

impl Scraper {
    /// A client without connections yet.
    pub(crate) fn new() -> Self {
        Self(Client::builder(TokioExecutor::new()).build_http())
    }

    /// The figures of the replica whose metrics are served at `address`.
    ///
    /// # Errors
    /// The replica does not answer in time.
    pub(crate) async fn figures(&self, address: SocketAddr) -> Result<Figures, ScrapeError> {
        let text = tokio::time::timeout(TIMEOUT, self.text(address))
            .await
            .map_err(|elapsed| ScrapeError::Timeout(address, elapsed))??;
        Ok(figures(&text))
    }

    async fn text(&self, address: SocketAddr) -> Result<String, ScrapeError> {
        let uri = format!("http://{address}/metrics")
            .parse()
            .map_err(|source| ScrapeError::Address(address, source))?;
        let response =
            self.0.get(uri).await.map_err(|source| ScrapeError::Request(address, source))?;
        let body = Limited::new(response.into_body(), MAX_BYTES).collect().await;
        let bytes = body.map_err(|source| ScrapeError::Body(address, source))?.to_bytes();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

fn figures(text: &str) -> Figures {
    Figures {
        reconciles: sum(text, "controller_runtime_reconcile_total"),
        errors: sum(text, "controller_runtime_reconcile_errors_total"),
        queued: sum(text, "workqueue_depth"),
    }
}

/// The sum of all series of this name.
fn sum(text: &str, name: &str) -> f64 {
    text.lines()
        .filter_map(|line| line.strip_prefix(name))
        // Not a longer name that begins alike.
        .filter(|rest| rest.starts_with(['{', ' ']))
        .filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_of_one_name_are_summed_and_longer_names_are_others() {
        let text = "\
# HELP workqueue_depth Keys.
# TYPE workqueue_depth gauge
workqueue_depth{controller=\"tdset\",name=\"tdset\",priority=\"0\"} 3
workqueue_depth{controller=\"tdset\",name=\"a b\",priority=\"-1\"} 4
workqueue_depth_total 9
controller_runtime_reconcile_total{controller=\"tdset\",result=\"success\"} 1.2e3
controller_runtime_reconcile_errors_total 2
";
        assert_eq!(figures(text), Figures { reconciles: 1200.0, errors: 2.0, queued: 7.0 });
        assert_eq!(figures(""), Figures::default());
    }
}
