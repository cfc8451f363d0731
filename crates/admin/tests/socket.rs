//! The server over a real socket: it answers, finishes its requests at shutdown, releases the port, and
//! says what to do when a port is taken.

use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use leasehold_admin::{Admin, Readiness};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

fn admin() -> Admin {
    Admin {
        registry: telemetry::registry(),
        ready: Arc::new(Readiness::default),
        readiness: Vec::new(),
        liveness: Vec::new(),
        debug: BTreeMap::new(),
    }
}

async fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.expect("connect");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("send");
    let mut response = String::new();
    stream.read_to_string(&mut response).await.expect("receive");
    response
}

#[tokio::test]
async fn serves_until_shutdown_and_releases_the_port() {
    let listener = leasehold_admin::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let server = tokio::spawn(leasehold_admin::serve(listener, admin(), shutdown.clone()));

    let metrics = get(address, "/metrics").await;
    assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n"), "{metrics}");
    assert!(metrics.contains("process_start_time_seconds "), "{metrics}");

    shutdown.cancel();
    server.await.unwrap().unwrap();
    assert!(TcpStream::connect(address).await.is_err(), "the port is closed");
}

#[tokio::test]
async fn a_taken_port_is_named_with_a_way_out() {
    let first = leasehold_admin::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = first.local_addr().unwrap();
    let error = leasehold_admin::bind(address).await.unwrap_err();
    let text = error.to_string();
    assert!(text.starts_with(&format!("listen on {address} for probes and metrics")), "{text}");
    assert!(text.contains("another process has this port"), "{text}");
    assert!(error.source().is_some(), "the system's own error follows");
}
