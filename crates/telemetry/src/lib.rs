//! Logs, traces and the metrics registry: how the manager reports what it does.
//!
//! Owns: the process's [`tracing`] subscriber (JSON or text lines on standard error, spans to an OTLP
//! collector over gRPC), the Prometheus registry with the process collector, and the text encoding of
//! that registry. Does not own: what is logged or measured, which each crate decides, or the HTTP routes
//! of the metrics, which are in `admin`.
//!
//! ```text
//!   tracing ──▶ log layer   ──▶ standard error
//!           └─▶ trace layer ──▶ bounded batch queue ──▶ own thread ──▶ OTLP collector
//! ```
//!
//! # Invariants
//! - Logging and tracing never fail the caller, and a slow or missing collector never makes it wait: a
//!   full queue drops spans, and failing exports are logged less and less often.
//! - Spans of the exporter's own transport are never exported, so that no export causes another.
//! - A span with the field `otel.kind` is only for traces: without a collector it costs nothing, and no
//!   log line shows its fields.

mod allocator;
mod log;
mod metrics;
mod open_metrics;
mod process;
#[cfg(feature = "otlp")]
mod trace;

use std::time::Duration;

use tracing::Dispatch;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
#[cfg(feature = "otlp")]
use tracing_subscriber::registry::LookupSpan;

pub use crate::allocator::allocated;
pub use crate::log::{LogConfig, LogFormat};
pub use crate::metrics::{Format, encode, registry};
pub use crate::process::{memory_limit, raise_open_files};

/// How long a dropped guard waits until the collector has taken the last spans.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(3);

/// Where traces go.
#[derive(Clone, Debug, PartialEq)]
pub struct OtlpConfig {
    /// The collector's gRPC endpoint, `http://host:port`.
    pub endpoint: String,
    /// The share of new traces to keep, 0.0 to 1.0. For a trace that another process began, that
    /// process has decided.
    pub sample_ratio: f64,
    /// Distinguishes this process from other replicas (`service.instance.id`): the member's identity.
    pub instance: String,
}

/// Why telemetry could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The log filter does not parse.
    #[error(
        "parse log filter {filter:?}: write a level (error, warn, info, debug, trace) or directives like info,leasehold_engine=debug"
    )]
    Filter {
        /// The filter as given.
        filter: String,
        /// What is wrong with it.
        #[source]
        source: ParseError,
    },
    /// The configuration asks for the export of traces, and this build cannot export them.
    #[cfg(not(feature = "otlp"))]
    #[error("export traces to {0:?}: this program was built without the feature `otlp`")]
    Unsupported(String),
    /// The collector's address cannot be used.
    #[cfg(feature = "otlp")]
    #[error(
        "use OTLP endpoint {endpoint:?}: write it http://host:port, the collector's gRPC port is usually 4317"
    )]
    Endpoint {
        /// The endpoint as given.
        endpoint: String,
        /// What is wrong with it, where the exporter says more.
        #[source]
        source: Option<opentelemetry_otlp::ExporterBuildError>,
    },
    /// The sampling ratio is not between 0 and 1.
    #[cfg(feature = "otlp")]
    #[error("use OTLP sample ratio {0}: it is a share of traces, from 0.0 to 1.0")]
    SampleRatio(f64),
    /// The threads that export traces could not start.
    #[cfg(feature = "otlp")]
    #[error("start the runtime that exports traces")]
    Runtime(#[source] std::io::Error),
    /// The process already has a subscriber.
    #[error("install the subscriber: this process has one already")]
    Installed,
}

/// Keeps the exporter alive. Dropping it flushes for at most three seconds.
#[derive(Debug)]
#[must_use = "dropping the guard ends the export of traces"]
pub struct Guard {
    #[cfg(feature = "otlp")]
    exporter: Option<trace::Exporter>,
}

impl Guard {
    /// Sends the queued spans and stops exporting. Blocks for at most `timeout`.
    pub fn shutdown(mut self, timeout: Duration) {
        self.stop(timeout);
    }

    #[cfg(feature = "otlp")]
    fn stop(&mut self, timeout: Duration) {
        if let Some(exporter) = self.exporter.take() {
            exporter.shutdown(timeout);
        }
    }

    #[cfg(not(feature = "otlp"))]
    fn stop(&mut self, _: Duration) {}
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.stop(FLUSH_TIMEOUT);
    }
}

/// Installs the process's subscriber: logs to standard error, traces to `otlp` if given.
///
/// # Errors
/// See [`Error`]. Nothing is installed then.
pub fn init(log: &LogConfig, otlp: Option<&OtlpConfig>) -> Result<Guard, Error> {
    let (dispatch, guard) = build(log, otlp, std::io::stderr)?;
    tracing::dispatcher::set_global_default(dispatch).map_err(|_| Error::Installed)?;
    Ok(guard)
}

/// Makes the subscriber without installing it. Log lines go to `writer`. For tests, and for programs that
/// use their own subscriber for part of their work.
///
/// # Errors
/// See [`Error`].
pub fn build<W>(
    log: &LogConfig,
    otlp: Option<&OtlpConfig>,
    writer: W,
) -> Result<(Dispatch, Guard), Error>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let logging = tracing_subscriber::registry().with(log::layer(log, writer)?);
    export(logging, otlp)
}

/// Adds the export of traces, if configured.
#[cfg(feature = "otlp")]
fn export<S>(logging: S, otlp: Option<&OtlpConfig>) -> Result<(Dispatch, Guard), Error>
where
    S: tracing::Subscriber + for<'s> LookupSpan<'s> + Send + Sync + 'static,
{
    let exporter = otlp.map(trace::Exporter::start).transpose()?;
    // Not an optional layer: beside one, even an absent one, every span is created.
    let dispatch = match &exporter {
        Some(exporter) => Dispatch::new(logging.with(exporter.layer())),
        None => Dispatch::new(logging),
    };
    Ok((dispatch, Guard { exporter }))
}

/// Refuses to export traces.
#[cfg(not(feature = "otlp"))]
fn export<S>(logging: S, otlp: Option<&OtlpConfig>) -> Result<(Dispatch, Guard), Error>
where
    S: tracing::Subscriber + Send + Sync + 'static,
{
    match otlp {
        Some(otlp) => Err(Error::Unsupported(otlp.endpoint.clone())),
        None => Ok((Dispatch::new(logging), Guard {})),
    }
}
