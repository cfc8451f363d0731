//! Spans reach a real OTLP receiver over gRPC as one linked trace. A slow or missing receiver does no
//! harm.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_telemetry::{Format, LogConfig, OtlpConfig};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, Span};
use prometheus::{HistogramOpts, HistogramVec, Registry};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};
use tracing::{Dispatch, info_span};

/// The most requests that the receiver keeps for the test.
const REQUESTS: usize = 64;

/// Longer than any flush. Reached only when something hangs.
const DEADLINE: Duration = Duration::from_secs(60);

struct Receiver(mpsc::Sender<ResourceSpans>);

#[tonic::async_trait]
impl TraceService for Receiver {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        for spans in request.into_inner().resource_spans {
            self.0.send(spans).await.map_err(|_| Status::unavailable("the test is over"))?;
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
    let address = listener.local_addr().expect("a bound listener has an address");
    (listener, format!("http://{address}"))
}

/// A receiver on a port of its own, and its received requests.
async fn receiver() -> (String, mpsc::Receiver<ResourceSpans>) {
    let (listener, endpoint) = listen().await;
    let (sender, received) = mpsc::channel(REQUESTS);
    let server = tonic::transport::Server::builder()
        .add_service(TraceServiceServer::new(Receiver(sender)))
        .serve_with_incoming(TcpIncoming::from(listener));
    tokio::spawn(server);
    (endpoint, received)
}

fn subscriber(endpoint: &str, sample_ratio: f64) -> (Dispatch, leasehold_telemetry::Guard) {
    let otlp = OtlpConfig {
        endpoint: endpoint.to_owned(),
        sample_ratio,
        instance: "replica-0".to_owned(),
    };
    leasehold_telemetry::build(&LogConfig::default(), Some(&otlp), std::io::sink)
        .expect("a usable configuration")
}

/// The spans of one change in the engine. Each is the child of the one before, although that one has
/// ended by then.
fn one_change() {
    let watch = info_span!("watch.event", cluster = "east", kind = "TDSet");
    let queue = info_span!(parent: &watch, "queue", controller = "tdset");
    drop(watch);
    let reconcile = info_span!(
        parent: &queue, "reconcile", controller = "tdset", key = "east/temp/a", epoch = 3
    );
    drop(queue);
    reconcile.in_scope(|| {
        info_span!("api", method = "PATCH", status = 200).in_scope(|| tracing::info!("sent"));
        // Spans of the transport are not exported.
        info_span!(target: "h2::client", "handshake").in_scope(|| ());
    });
}

async fn flush(guard: leasehold_telemetry::Guard, timeout: Duration) {
    let ended = tokio::task::spawn_blocking(move || guard.shutdown(timeout));
    tokio::time::timeout(DEADLINE, ended)
        .await
        .expect("the flush hangs")
        .expect("the flush panics");
}

fn attribute<'a>(
    attributes: &'a [opentelemetry_proto::tonic::common::v1::KeyValue],
    key: &str,
) -> &'a str {
    use opentelemetry_proto::tonic::common::v1::any_value::Value;
    let found = attributes.iter().find(|a| a.key == key).and_then(|a| a.value.as_ref());
    match found.and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text,
        other => panic!("attribute {key} is {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_trace_links_watch_event_queue_reconcile_and_api() {
    let (endpoint, mut received) = receiver().await;
    let (dispatch, guard) = subscriber(&endpoint, 1.0);
    tracing::dispatcher::with_default(&dispatch, one_change);
    flush(guard, Duration::from_secs(10)).await;

    let batch = received.recv().await.expect("one batch was flushed");
    let resource = batch.resource.expect("a batch names its resource").attributes;
    assert_eq!(attribute(&resource, "service.name"), "leasehold");
    assert_eq!(attribute(&resource, "service.instance.id"), "replica-0");

    let spans: BTreeMap<String, Span> = batch
        .scope_spans
        .into_iter()
        .flat_map(|scope| scope.spans)
        .map(|span| (span.name.clone(), span))
        .collect();
    let names: Vec<_> = spans.keys().map(String::as_str).collect();
    assert_eq!(names, ["api", "queue", "reconcile", "watch.event"]);
    for (parent, child) in [("watch.event", "queue"), ("queue", "reconcile"), ("reconcile", "api")]
    {
        assert_eq!(spans[child].parent_span_id, spans[parent].span_id, "{parent} -> {child}");
        assert_eq!(spans[child].trace_id, spans[parent].trace_id, "{parent} -> {child}");
    }
    assert!(spans["watch.event"].parent_span_id.is_empty(), "the watch event is the root");
    assert_eq!(attribute(&spans["reconcile"].attributes, "key"), "east/temp/a");
    assert_eq!(spans["api"].events.len(), 1, "log lines belong to their span");
}

/// The page of metrics for a reader of OpenMetrics, after one change that took a moment.
fn page_after_one_change(dispatch: &Dispatch) -> String {
    const ACCEPT: &str = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5";
    assert_eq!(Format::accepted(ACCEPT), Format::Prometheus, "nothing exports traces here");
    let registry = Registry::new();
    let opts = HistogramOpts::new("controller_runtime_reconcile_time_seconds", "Took.");
    let took = HistogramVec::new(opts, &["controller"]).expect("a usable name");
    registry.register(Box::new(took.clone())).expect("a new registry is empty");
    took.with_label_values(&["tdset"]).observe(0.001);
    tracing::dispatcher::with_default(dispatch, || {
        one_change();
        assert_eq!(Format::accepted("text/plain"), Format::Prometheus);
        leasehold_telemetry::encode(&registry, Format::accepted(ACCEPT))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_leads_to_the_trace_that_the_collector_has() {
    let (endpoint, mut received) = receiver().await;
    let (dispatch, guard) = subscriber(&endpoint, 1.0);
    let page = page_after_one_change(&dispatch);
    flush(guard, Duration::from_secs(10)).await;

    let batch = received.recv().await.expect("one batch was flushed");
    let mut spans = batch.scope_spans.into_iter().flat_map(|scope| scope.spans);
    let trace = spans.next().expect("a change has spans").trace_id;
    let trace: String = trace.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(page.matches(&format!("# {{trace_id=\"{trace}\"}} ")).count(), 1, "{page}");
    assert!(page.ends_with("# EOF\n"), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_trace_that_is_not_kept_is_neither_sent_nor_an_exemplar() {
    let (endpoint, mut received) = receiver().await;
    let (dispatch, guard) = subscriber(&endpoint, 0.0);
    let page = page_after_one_change(&dispatch);
    assert!(page.contains("le=\"+Inf\"} 1\n") && !page.contains("trace_id"), "{page}");
    flush(guard, Duration::from_secs(10)).await;
    assert!(received.try_recv().is_err());
}

/// A receiver that accepts connections and never answers. Creating far more spans than the queue holds
/// does not wait for it, and the flush ends in time.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_receiver_blocks_nobody() {
    let (listener, endpoint) = listen().await;
    let (dispatch, guard) = subscriber(&endpoint, 1.0);
    let made = tokio::task::spawn_blocking(move || {
        tracing::dispatcher::with_default(&dispatch, || (0..20_000).for_each(|_| one_change()));
    });
    tokio::time::timeout(DEADLINE, made).await.expect("making spans hangs").unwrap();
    flush(guard, Duration::from_millis(100)).await;
    drop(listener);
}

/// A guard may be dropped from async code, in any runtime, without a receiver.
#[tokio::test]
async fn a_guard_is_dropped_inside_a_runtime() {
    let (listener, endpoint) = listen().await;
    drop(listener);
    let (dispatch, guard) = subscriber(&endpoint, 1.0);
    tracing::dispatcher::with_default(&dispatch, one_change);
    drop(guard);
}
