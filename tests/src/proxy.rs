//! A TCP proxy between one process and one server that delays, drops or cuts what passes.
//!
//! It passes bytes and knows nothing of TLS, so the process and the server see each other's
//! certificates. A silent proxy behaves like a network that loses packets: connections stay open,
//! nothing arrives, and what was sent meanwhile arrives late, as if TCP had repeated it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::task::AbortOnDropHandle;

/// How much is read at once.
const BUFFER_BYTES: usize = 16 * 1024;

/// What a proxy does with bytes and connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// Bytes pass.
    Open,
    /// Bytes pass after this time, one piece after the other.
    Slow(Duration),
    /// Nothing passes; connections stay open.
    Silent,
    /// Connections are closed, new ones too.
    Cut,
    /// Connections are closed, and new ones get this answer to whatever they ask.
    Answered(&'static [u8]),
}

impl Passage {
    /// Whether connections to the server stay open.
    fn carries(self) -> bool {
        !matches!(self, Self::Cut | Self::Answered(_))
    }
}

/// A proxy in front of one server. Dropping it closes its connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    passage: watch::Sender<Passage>,
    connections: Arc<AtomicUsize>,
    _task: AbortOnDropHandle<()>,
}

impl Proxy {
    /// A proxy to the server at `target`, open.
    pub async fn to(target: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("no free port")?;
        let address = listener.local_addr()?;
        let (passage, followed) = watch::channel(Passage::Open);
        let connections = Arc::<AtomicUsize>::default();
        let task = tokio::spawn(accept(listener, target, followed, Arc::clone(&connections)));
        Ok(Self { address, passage, connections, _task: AbortOnDropHandle::new(task) })
    }

    /// A proxy to the server of a kubeconfig, which is changed to lead through it.
    pub async fn of_kubeconfig(kubeconfig: &mut Value) -> Result<Self> {
        let server = kubeconfig.pointer("/clusters/0/cluster/server");
        let server = server.context("a kubeconfig without a cluster")?;
        let url = server.as_str().unwrap_or_default();
        let target = url.strip_prefix("https://").unwrap_or(url).parse();
        let target =
            target.with_context(|| format!("{url:?} is not an address of this machine"))?;
        let proxy = Self::to(target).await?;
        proxy.lead(kubeconfig);
        Ok(proxy)
    }

    /// Changes a kubeconfig to lead through it.
    pub fn lead(&self, kubeconfig: &mut Value) {
        kubeconfig["clusters"][0]["cluster"]["server"] = format!("https://{}", self.address).into();
    }

    /// The address on which the proxy listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes what the proxy does from now on.
    pub fn set(&self, passage: Passage) {
        self.passage.send_replace(passage);
    }

    /// How many connections it has accepted so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

async fn accept(
    listener: TcpListener,
    target: SocketAddr,
    passage: watch::Receiver<Passage>,
    count: Arc<AtomicUsize>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                // An error means that the client gave up this one connection.
                let Ok((near, _)) = accepted else { continue };
                count.fetch_add(1, Ordering::Relaxed);
                connections.spawn(connect(near, target, passage.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Carries one connection. Both ends see how it ends; nobody else needs to know.
async fn connect(near: TcpStream, target: SocketAddr, mut passage: watch::Receiver<Passage>) {
    let now = *passage.borrow();
    if let Passage::Answered(answer) = now {
        let _ = self::answer(near, answer).await;
        return;
    }
    let mut cut = passage.clone();
    let carry = async {
        pass(&mut passage).await;
        let far = TcpStream::connect(target).await?;
        // Small requests must not wait for more bytes.
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        let ((near_read, near_write), (far_read, far_write)) =
            (near.into_split(), far.into_split());
        let there = pump(near_read, far_write, passage.clone());
        let back = pump(far_read, near_write, passage);
        tokio::try_join!(there, back).map(drop)
    };
    tokio::select! {
        _ = carry => {}
        _ = cut.wait_for(|passage| !passage.carries()) => {}
    }
}

/// Answers the first request, which is small enough to arrive at once, and closes.
async fn answer(mut near: TcpStream, answer: &[u8]) -> io::Result<()> {
    let mut request = [0; BUFFER_BYTES];
    let _ = near.read(&mut request).await?;
    near.write_all(answer).await?;
    near.shutdown().await
}

/// Carries one direction until it ends.
async fn pump(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut passage: watch::Receiver<Passage>,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let count = from.read(&mut buffer).await?;
        pass(&mut passage).await;
        match count {
            0 => return to.shutdown().await,
            _ => to.write_all(&buffer[..count]).await?,
        }
    }
}

/// Waits until bytes may pass.
async fn pass(passage: &mut watch::Receiver<Passage>) {
    let now = passage.wait_for(|passage| *passage != Passage::Silent).await.map(|now| *now);
    if let Ok(Passage::Slow(time)) = now {
        tokio::time::sleep(time).await;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A server that sends back what it receives.
    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.into_split();
                    let _ = tokio::io::copy(&mut read, &mut write).await;
                });
            }
        });
        address
    }

    async fn exchange(stream: &mut TcpStream) -> io::Result<u8> {
        stream.write_all(&[7]).await?;
        stream.read_u8().await
    }

    #[tokio::test]
    async fn an_open_proxy_passes_and_a_cut_one_closes() {
        let proxy = Proxy::to(echo().await).await.unwrap();
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(exchange(&mut stream).await.unwrap(), 7);
        proxy.set(Passage::Cut);
        assert!(exchange(&mut stream).await.is_err());
        let mut refused = TcpStream::connect(proxy.address()).await.unwrap();
        assert!(exchange(&mut refused).await.is_err());
        proxy.set(Passage::Slow(Duration::from_millis(1)));
        let mut again = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(exchange(&mut again).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn a_kubeconfig_can_lead_through_a_proxy() {
        let server = |url: &str| json!({"clusters": [{"cluster": {"server": url}}]});
        let mut kubeconfig = server(&format!("https://{}", echo().await));
        let proxy = Proxy::of_kubeconfig(&mut kubeconfig).await.unwrap();
        assert_eq!(kubeconfig, server(&format!("https://{}", proxy.address())));
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(exchange(&mut stream).await.unwrap(), 7);
        assert!(Proxy::of_kubeconfig(&mut json!({})).await.is_err());
    }

    #[tokio::test]
    async fn a_proxy_that_answers_closes_open_connections_and_does_not_ask_the_server() {
        let proxy = Proxy::to(echo().await).await.unwrap();
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(exchange(&mut stream).await.unwrap(), 7);
        proxy.set(Passage::Answered(b"no"));
        assert!(exchange(&mut stream).await.is_err());
        let mut answered = TcpStream::connect(proxy.address()).await.unwrap();
        answered.write_all(&[7]).await.unwrap();
        let mut answer = String::new();
        answered.read_to_string(&mut answer).await.unwrap();
        assert_eq!((&*answer, proxy.connections()), ("no", 2));
    }

    #[tokio::test]
    async fn a_silent_proxy_keeps_bytes_until_it_opens() {
        let proxy = Proxy::to(echo().await).await.unwrap();
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(exchange(&mut stream).await.unwrap(), 7);
        proxy.set(Passage::Silent);
        let answer = tokio::time::timeout(Duration::from_millis(100), exchange(&mut stream)).await;
        assert!(answer.is_err(), "something passed");
        proxy.set(Passage::Open);
        assert_eq!(stream.read_u8().await.unwrap(), 7);
    }
}
