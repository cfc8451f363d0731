//! Reads a replica's `/metrics`, as Prometheus does.
//!
//! Owns the request and the few sums that the demo shows. Of the format it reads only lines of
//! `name{labels} value`.

use std::net::SocketAddr;
use std::time::Duration;

use http::Request;
use http::header::HOST;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

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
    /// The replica does not listen.
    #[error("connect to the metrics of {0}")]
    Connect(SocketAddr, #[source] std::io::Error),
    /// The replica does not answer.
    #[error("request the metrics of {0}")]
    Request(SocketAddr, #[source] Box<dyn std::error::Error + Send + Sync>),
    /// The answer broke off or is too long.
    #[error("read the metrics of {0}")]
    Body(SocketAddr, #[source] Box<dyn std::error::Error + Send + Sync>),
    /// The replica does not answer in time.
    #[error("wait for the metrics of {0}")]
    Timeout(SocketAddr, #[source] tokio::time::error::Elapsed),
}

/// The figures of the replica whose metrics are served at `address`.
///
/// # Errors
/// The replica does not answer in time.
pub(crate) async fn scrape(address: SocketAddr) -> Result<Figures, ScrapeError> {
    let text = tokio::time::timeout(TIMEOUT, text(address))
        .await
        .map_err(|elapsed| ScrapeError::Timeout(address, elapsed))??;
    Ok(figures(&text))
}

async fn text(address: SocketAddr) -> Result<String, ScrapeError> {
    let stream = TcpStream::connect(address)
        .await
        .map_err(|source| ScrapeError::Connect(address, source))?;
    let request = |source| ScrapeError::Request(address, source);
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| request(error.into()))?;
    // It ends after the answer. The request gets its errors.
    tokio::spawn(connection);
    let question = Request::get("/metrics").header(HOST, address.to_string());
    let question =
        question.body(Empty::<bytes::Bytes>::new()).map_err(|error| request(error.into()))?;
    let answer = sender.send_request(question).await.map_err(|error| request(error.into()))?;
    let body = Limited::new(answer.into_body(), MAX_BYTES).collect().await;
    let bytes = body.map_err(|source| ScrapeError::Body(address, source))?.to_bytes();
    Ok(String::from_utf8_lossy(&bytes).into_owned())
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
