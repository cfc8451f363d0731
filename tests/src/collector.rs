//! An OTLP collector over gRPC on its own port, which keeps the spans that it receives.

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

/// The most batches that wait for the test.
const BATCHES: usize = 256;

/// A running collector. Dropping it stops it.
#[derive(Debug)]
pub struct Collector {
    endpoint: String,
    received: mpsc::Receiver<Vec<Span>>,
    _server: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct Service(mpsc::Sender<Vec<Span>>);

impl Collector {
    /// Starts a collector on a free loopback port.
    ///
    /// # Panics
    /// If loopback has no free port.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let address = listener.local_addr().expect("a bound listener has an address");
        let (sender, received) = mpsc::channel(BATCHES);
        let server = tonic::transport::Server::builder()
            .add_service(TraceServiceServer::new(Service(sender)))
            .serve_with_incoming(TcpIncoming::from(listener));
        let server = tokio::spawn(async {
            server.await.expect("a server on loopback runs until it is aborted");
        });
        Self {
            endpoint: format!("http://{address}"),
            received,
            _server: AbortOnDropHandle::new(server),
        }
    }

    /// Where it listens.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The next spans that arrive.
    ///
    /// # Panics
    /// If the server ended.
    pub async fn next(&mut self) -> Vec<Span> {
        self.received.recv().await.expect("the server lives as long as the collector")
    }
}

#[tonic::async_trait]
impl TraceService for Service {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let resources = request.into_inner().resource_spans.into_iter();
        let spans = resources.flat_map(|r| r.scope_spans).flat_map(|scope| scope.spans).collect();
        self.0.send(spans).await.map_err(|_| Status::unavailable("the test is over"))?;
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}
