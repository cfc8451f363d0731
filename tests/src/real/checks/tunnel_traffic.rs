//! Traffic for a Tunnel: a small backend for HTTP and datagrams, and its clients.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// How long one exchange may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// More than any buffer on the way.
const BODY_BYTES: usize = 1 << 20;
/// Into how many pieces a slow answer is divided, and the pause before each.
const PIECES: usize = 32;
const PAUSE: Duration = Duration::from_millis(250);
/// What is asked for a slow answer.
const SLOW: &str = "/slow";
const LOOPBACK: (Ipv4Addr, u16) = (Ipv4Addr::LOCALHOST, 0);

/// The most connections that are opened to fill a queue of two.
const FILLING: usize = 8;

/// The backend of the Service. Dropping it stops it.
pub struct Backend {
    listener: Arc<TcpListener>,
    http: SocketAddr,
    echo: SocketAddr,
    body: Vec<u8>,
    /// What takes connections. Without it the kernel still does.
    serving: JoinSet<()>,
    _echoing: JoinSet<()>,
}

impl Backend {
    /// Starts it.
    pub async fn start() -> Result<Self> {
        let (listener, socket) =
            (TcpListener::bind(LOOPBACK).await?, UdpSocket::bind(LOOPBACK).await?);
        let body: Vec<u8> = (0..BODY_BYTES).map(|index| (index % 251) as u8).collect();
        let (http, echo) = (listener.local_addr()?, socket.local_addr()?);
        let mut echoing = JoinSet::new();
        echoing.spawn(echo_back(socket));
        let (listener, serving) = (Arc::new(listener), JoinSet::new());
        let mut backend = Self { listener, http, echo, body, serving, _echoing: echoing };
        backend.resume();
        Ok(backend)
    }

    /// From now on connections open, and nothing reads, answers or ends them: as one whose process hangs.
    pub fn hang(&mut self) {
        self.serving = JoinSet::new();
    }

    /// It serves, those that opened meanwhile too.
    pub fn resume(&mut self) {
        self.serving = JoinSet::new();
        self.serving.spawn(serve(Arc::clone(&self.listener), self.body.clone()));
    }

    /// What it answers.
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The backend's address for each port that the Service may have.
    pub fn addresses(&self) -> [(u16, SocketAddr); 3] {
        [(80, self.http), (8080, self.http), (5353, self.echo)]
    }
}

/// An address to which packets are lost, as where a NetworkPolicy drops them: its queue of connections is full, so that
/// the kernel drops all that would open another.
pub struct Blackhole {
    /// The address.
    pub address: SocketAddr,
    _listener: TcpListener,
    _queue: Vec<TcpStream>,
}

impl Blackhole {
    /// Opens one.
    pub async fn open() -> Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(LOOPBACK.into())?;
        let listener = socket.listen(1)?;
        let address = listener.local_addr()?;
        let mut queue = Vec::new();
        while let Ok(opened) = timeout(PATIENCE, TcpStream::connect(address)).await {
            queue.push(opened?);
            ensure!(
                queue.len() <= FILLING,
                "{address} takes more connections than its queue has room for"
            );
        }
        Ok(Self { address, _listener: listener, _queue: queue })
    }
}

async fn serve(listener: Arc<TcpListener>, body: Vec<u8>) {
    // They end with this task.
    let mut answers = JoinSet::new();
    while let Ok((mut connection, _)) = listener.accept().await {
        let mut request = [0; 1024];
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        let body = body.clone();
        answers.spawn(async move {
            // An error means that the client has gone away.
            let Ok(read @ 1..) = connection.read(&mut request).await else { return };
            let slow = format!("GET {SLOW} ");
            let (pieces, pause) = match request[..read].starts_with(slow.as_bytes()) {
                true => (PIECES, PAUSE),
                false => (1, Duration::ZERO),
            };
            let _ = connection.write_all(head.as_bytes()).await;
            for piece in body.chunks(body.len() / pieces) {
                sleep(pause).await;
                let _ = connection.write_all(piece).await;
            }
            let _ = connection.shutdown().await;
        });
    }
}

async fn echo_back(socket: UdpSocket) {
    let mut datagram = [0; 1024];
    while let Ok((bytes, from)) = socket.recv_from(&mut datagram).await {
        let _ = socket.send_to(&datagram[..bytes], from).await;
    }
}

/// The body that an address answers with.
pub async fn fetch(address: &str) -> Result<Vec<u8>> {
    exchange(address, "/", PATIENCE).await
}

/// The same, at a pace by which it takes eight seconds.
pub async fn fetch_slowly(address: &str) -> Result<Vec<u8>> {
    exchange(address, SLOW, PAUSE * 4 * PIECES as u32).await
}

async fn exchange(address: &str, path: &str, patience: Duration) -> Result<Vec<u8>> {
    let exchange = async {
        let mut connection = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: tunnel\r\n\r\n");
        connection.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        connection.read_to_end(&mut answer).await?;
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").context("no answer")?;
        ensure!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"), "refused");
        Ok(answer.split_off(end + 4))
    };
    timeout(patience, exchange).await.with_context(|| format!("{address} does not answer"))?
}

/// Whether something listens at an address.
pub async fn is_open(address: &str) -> bool {
    TcpStream::connect(address).await.is_ok()
}

/// Whether a datagram comes back from an address.
pub async fn echoed(to: SocketAddr) -> Result<bool> {
    const DATAGRAM: &[u8] = b"there and back";
    let socket = UdpSocket::bind(LOOPBACK).await?;
    socket.send_to(DATAGRAM, to).await?;
    let mut answer = [0; 64];
    let answered = timeout(PATIENCE, socket.recv(&mut answer)).await;
    Ok(matches!(answered, Ok(Ok(bytes)) if &answer[..bytes] == DATAGRAM))
}
