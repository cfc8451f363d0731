//! Traces: spans batched and sent to an OTLP collector over gRPC.
//!
//! Owns the exporter, its thread and its small runtime, separate from the program's own. So flushing may
//! block any thread without stopping the connection it waits for, and an export in trouble takes no
//! worker from the program.

use std::sync::Mutex;
use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::{SpanExporter as OtlpExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, Sampler, SdkTracerProvider, Span, SpanData,
    SpanExporter, SpanProcessor,
};
use tokio::runtime::Runtime;
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::registry::LookupSpan;

use crate::open_metrics::{Exemplars, LABEL};
use crate::{Error, OtlpConfig};

/// Finished spans that wait for export. Beyond it spans are dropped, never their makers delayed.
const QUEUE_SPANS: usize = 8192;

/// The most spans in one request.
const BATCH_SPANS: usize = 512;

/// How long finished spans wait for company.
const BATCH_DELAY: Duration = Duration::from_secs(2);

/// How long one export may take, retries included.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);

/// A running exporter.
#[derive(Debug)]
pub(crate) struct Exporter {
    provider: SdkTracerProvider,
    exemplars: Exemplars,
    runtime: Runtime,
}

impl<S: Subscriber> Layer<S> for Exemplars {}

/// The span of a reconcile, whose attributes name the controller.
const RECONCILE: &str = "reconcile";

/// Remembers the traces of reconciles. It sees only those that are exported.
impl SpanProcessor for Exemplars {
    fn on_start(&self, _: &mut Span, _: &Context) {}

    fn on_end(&self, span: SpanData) {
        let controller = span.attributes.iter().find(|one| one.key.as_str() == LABEL);
        let Some(controller) = controller.filter(|_| span.name == RECONCILE) else { return };
        let took = span.end_time.duration_since(span.start_time).unwrap_or_default();
        let trace = span.span_context.trace_id().to_string();
        self.remember(&controller.value.as_str(), trace, took, span.end_time);
    }

    fn force_flush(&self) -> OTelSdkResult {
        Ok(())
    }

    fn shutdown_with_timeout(&self, _: Duration) -> OTelSdkResult {
        Ok(())
    }
}

impl Exporter {
    /// Starts exporting. The collector need not be there yet.
    pub(crate) fn start(config: &OtlpConfig) -> Result<Self, Error> {
        if !(0.0..=1.0).contains(&config.sample_ratio) {
            return Err(Error::SampleRatio(config.sample_ratio));
        }
        let endpoint = |source| Error::Endpoint { endpoint: config.endpoint.clone(), source };
        if !config.endpoint.starts_with("http://") {
            return Err(endpoint(None));
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("otlp")
            .enable_all()
            .build()
            .map_err(Error::Runtime)?;
        let exporter = {
            // The connection opens lazily, on the runtime that is entered here.
            let _entered = runtime.enter();
            OtlpExporter::builder()
                .with_tonic()
                .with_endpoint(&config.endpoint)
                .with_timeout(EXPORT_TIMEOUT)
                .build()
                .map_err(|source| endpoint(Some(source)))?
        };
        let exemplars = Exemplars::default();
        let provider = provider(config, Reported::new(exporter), exemplars.clone());
        Ok(Self { provider, exemplars, runtime })
    }

    /// The layer that turns spans into traces.
    pub(crate) fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let traces = tracing_opentelemetry::layer()
            .with_tracer(self.provider.tracer("leasehold"))
            .with_location(false)
            .with_threads(false)
            .with_filter(exported());
        // Beside it, for whoever looks for it in the subscriber; it takes no span.
        traces.and_then(self.exemplars.clone().with_filter(LevelFilter::OFF))
    }

    /// Sends the queued spans, then ends. Blocks for at most `timeout`.
    pub(crate) fn shutdown(self, timeout: Duration) {
        if let Err(error) = self.provider.shutdown_with_timeout(timeout) {
            tracing::warn!(%error, "the last traces were not exported");
        }
        // Dropping a runtime blocks, which an async caller must not do. This does not wait.
        self.runtime.shutdown_background();
    }
}

fn provider(
    config: &OtlpConfig,
    exporter: impl SpanExporter + 'static,
    exemplars: Exemplars,
) -> SdkTracerProvider {
    let batches = BatchConfigBuilder::default()
        .with_max_queue_size(QUEUE_SPANS)
        .with_max_export_batch_size(BATCH_SPANS)
        .with_scheduled_delay(BATCH_DELAY)
        .build();
    let resource = Resource::builder_empty()
        .with_service_name("leasehold")
        .with_attribute(KeyValue::new("service.instance.id", config.instance.clone()))
        .with_attribute(KeyValue::new("service.version", env!("CARGO_PKG_VERSION")))
        .build();
    SdkTracerProvider::builder()
        .with_span_processor(
            BatchSpanProcessor::builder(exporter).with_batch_config(batches).build(),
        )
        .with_span_processor(exemplars)
        .with_sampler(Sampler::ParentBased(Box::new(Sampler::TraceIdRatioBased(
            config.sample_ratio,
        ))))
        .with_resource(resource)
        .build()
}

/// The spans that become traces: `info` and above, but none of the transports, because the exporter uses
/// them too.
fn exported() -> Targets {
    let transports = ["h2", "hyper", "hyper_util", "tonic", "tower", "rustls", "opentelemetry"];
    Targets::new()
        .with_default(LevelFilter::INFO)
        .with_targets(transports.map(|target| (target, LevelFilter::OFF)))
}

/// An exporter whose failures are logged less and less often.
#[derive(Debug)]
struct Reported<E> {
    exporter: E,
    outage: Mutex<Outage>,
}

/// Failed exports in a row.
#[derive(Debug, Default)]
struct Outage {
    failures: u64,
    spans_lost: usize,
}

/// What to log about an export.
#[derive(Debug, PartialEq, Eq)]
enum Report {
    Failing { failures: u64, spans_lost: usize },
    Recovered { spans_lost: usize },
}

impl Outage {
    /// Reports the first, second, fourth, eighth failure in a row, and so on.
    fn failed(&mut self, spans: usize) -> Option<Report> {
        self.failures += 1;
        self.spans_lost += spans;
        self.failures
            .is_power_of_two()
            .then_some(Report::Failing { failures: self.failures, spans_lost: self.spans_lost })
    }

    fn succeeded(&mut self) -> Option<Report> {
        let ended = std::mem::take(self);
        (ended.failures > 0).then_some(Report::Recovered { spans_lost: ended.spans_lost })
    }
}

impl<E> Reported<E> {
    fn new(exporter: E) -> Self {
        Self { exporter, outage: Mutex::default() }
    }

    fn report(&self, spans: usize, result: &OTelSdkResult) {
        let report = {
            let mut outage = self.outage.lock().expect("no holder of this lock panics");
            match result {
                Ok(()) => outage.succeeded(),
                Err(_) => outage.failed(spans),
            }
        };
        let cause = result.as_ref().err().map(OTelSdkError::to_string).unwrap_or_default();
        match report {
            Some(Report::Failing { failures, spans_lost }) => {
                tracing::warn!(failures, spans_lost, %cause, "traces cannot be exported");
            }
            Some(Report::Recovered { spans_lost }) => {
                tracing::info!(spans_lost, "traces are exported again");
            }
            None => {}
        }
    }
}

impl<E: SpanExporter> SpanExporter for Reported<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let result = self.exporter.export(batch).await;
        self.report(spans, &result);
        result
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(endpoint: &str, sample_ratio: f64) -> OtlpConfig {
        OtlpConfig { endpoint: endpoint.to_owned(), sample_ratio, instance: "replica-0".to_owned() }
    }

    #[test]
    fn an_outage_is_reported_less_and_less_often_and_its_end_once() {
        let mut outage = Outage::default();
        assert_eq!(outage.succeeded(), None);
        let reported: Vec<_> = (1..=20).filter(|_| outage.failed(10).is_some()).collect();
        assert_eq!(reported, [1, 2, 4, 8, 16]);
        assert_eq!(outage.succeeded(), Some(Report::Recovered { spans_lost: 200 }));
        assert_eq!(outage.succeeded(), None);
        assert_eq!(outage.failed(3), Some(Report::Failing { failures: 1, spans_lost: 3 }));
    }

    #[test]
    fn a_wrong_configuration_is_named() {
        for (endpoint, ratio, expect) in [
            ("localhost:4317", 1.0, "use OTLP endpoint \"localhost:4317\""),
            ("https://collector:4317", 1.0, "use OTLP endpoint \"https://collector:4317\""),
            ("http://", 1.0, "use OTLP endpoint \"http://\""),
            ("http://collector:4317", 1.5, "use OTLP sample ratio 1.5"),
            ("http://collector:4317", f64::NAN, "use OTLP sample ratio NaN"),
        ] {
            let error = Exporter::start(&config(endpoint, ratio)).expect_err(endpoint);
            assert!(error.to_string().starts_with(expect), "{error}");
        }
    }
}
