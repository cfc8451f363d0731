//! The server over real sockets: it answers, ends with its requests at shutdown, releases its ports, says
//! what to do when a port is taken, and survives clients that mean it ill.

use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use leasehold_admin::{Admin, MAX_FROM_ONE_ADDRESS, Readiness, Settings, Tls};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

fn admin() -> Admin {
    Admin {
        registry: telemetry::registry(),
        ready: Arc::new(Readiness::default),
        readiness: Vec::new(),
        liveness: Vec::new(),
        debug: BTreeMap::new(),
        explain: Arc::new(|_| Err("nothing is known".to_owned())),
        console: None,
        guard: None,
    }
}

fn local() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

async fn get(mut stream: impl AsyncRead + AsyncWrite + Unpin, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("send");
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.expect("receive");
    String::from_utf8(response).expect("text")
}

/// A server with these settings: where it listens, and what ends it.
struct Server {
    main: SocketAddr,
    probes: Option<SocketAddr>,
    shutdown: CancellationToken,
    ended: tokio::task::JoinHandle<()>,
}

impl Server {
    async fn start(settings: Settings) -> Self {
        let bound = leasehold_admin::bind(&settings).await.expect("bind");
        let (main, probes) = (bound.address().expect("an address"), bound.probes_address());
        let shutdown = CancellationToken::new();
        let serve = bound.serve(admin(), shutdown.clone());
        let ended = tokio::spawn(async { serve.await.expect("serve") });
        Self { main, probes, shutdown, ended }
    }

    async fn end(self) {
        self.shutdown.cancel();
        self.ended.await.expect("no panic");
        for address in [Some(self.main), self.probes].into_iter().flatten() {
            assert!(TcpStream::connect(address).await.is_err(), "{address} is closed");
        }
    }
}

async fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.expect("connect")
}

#[tokio::test]
async fn serves_until_shutdown_and_releases_the_ports() {
    let probes = Some(local());
    let server = Server::start(Settings { probes, ..local().into() }).await;
    let metrics = get(connect(server.main).await, "/metrics").await;
    assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n"), "{metrics}");
    assert!(metrics.contains("process_start_time_seconds "), "{metrics}");

    let probes = server.probes.expect("a port of its own");
    let ready = get(connect(probes).await, "/readyz").await;
    assert!(ready.ends_with("\r\n\r\nok"), "{ready}");
    let metrics = get(connect(probes).await, "/metrics").await;
    assert!(metrics.starts_with("HTTP/1.1 404"), "{metrics}");
    server.end().await;
}

#[tokio::test]
async fn a_taken_port_is_named_with_a_way_out() {
    let first = leasehold_admin::bind(&local().into()).await.unwrap();
    let taken = first.address().unwrap();
    for (settings, key) in [
        (Settings::from(taken), "admin.bind"),
        (Settings { probes: Some(taken), ..local().into() }, "probes.bind"),
    ] {
        let error = leasehold_admin::bind(&settings).await.unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with(&format!("listen on {taken}, {key} of the conf")), "{text}");
        assert!(text.contains("another process has this port"), "{text}");
        assert!(error.source().is_some(), "the system's own error follows");
    }
}

#[tokio::test]
async fn tls_with_a_certificate_of_files() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    let certificate = file("tls.crt", made.cert.pem());
    let key = file("tls.key", made.signing_key.serialize_pem());
    let tls = Some(Tls::Files { certificate, key });
    let server = Server::start(Settings { tls, ..local().into() }).await;

    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(client));
    let name = "localhost".try_into().unwrap();
    let stream = connector.connect(name, connect(server.main).await).await.unwrap();
    let ready = get(stream, "/readyz").await;
    assert!(ready.ends_with("\r\n\r\nok"), "{ready}");

    // Plain HTTP at the same port is not answered.
    let mut plain = connect(server.main).await;
    plain.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer).await;
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    server.end().await;
}

/// Neither at other addresses nor at its own, which it may share with kubelets.
#[tokio::test]
async fn idle_connections_of_one_client_keep_nobody_out() {
    let server = Server::start(Settings::from(local())).await;
    let mut idle = Vec::new();
    for _ in 0..MAX_FROM_ONE_ADDRESS {
        let mut stream = connect(server.main).await;
        stream.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        idle.push(stream);
    }
    let ready = get(connect(server.main).await, "/readyz").await;
    assert!(ready.ends_with("\r\n\r\nok"), "{ready}");
    assert_eq!(idle[0].read(&mut [0; 1]).await.unwrap_or(0), 0, "the oldest is closed");

    let other = tokio::net::TcpSocket::new_v4().unwrap();
    other.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let ready = get(other.connect(server.main).await.unwrap(), "/readyz").await;
    assert!(ready.ends_with("\r\n\r\nok"), "{ready}");
    server.end().await;
}

#[tokio::test]
async fn a_head_without_end_is_refused() {
    let server = Server::start(Settings::from(local())).await;
    let mut stream = connect(server.main).await;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nX: ").await.unwrap();
    let filler = vec![b'a'; 1 << 20];
    // The server may close before it has read everything.
    let _ = stream.write_all(&filler).await;
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    let text = String::from_utf8_lossy(&answer);
    assert!(text.is_empty() || text.starts_with("HTTP/1.1 431"), "{text}");
    server.end().await;
}
