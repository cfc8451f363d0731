//! A relay in front of a cluster, which can be cut: nothing passes then, no connection breaks, and no end
//! learns it, as when a network loses every packet. What was sent meanwhile arrives when it is healed.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

/// The most connections through one relay. Further ones wait in the kernel.
const MAX_CONNECTIONS: usize = 256;
/// How much of a connection is read at once, in bytes.
const CHUNK: usize = 16 << 10;

/// A relay, until dropped.
pub struct Relay {
    port: u16,
    cut: watch::Sender<bool>,
    _tasks: JoinSet<()>,
}

impl Relay {
    /// Relays a free loopback port to `to`.
    ///
    /// # Errors
    /// If no port can be bound.
    pub async fn start(to: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let (cut, is_cut) = watch::channel(false);
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, to, is_cut));
        Ok(Self { port, cut, _tasks: tasks })
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Cuts it, or heals it.
    pub fn set_cut(&self, cut: bool) {
        self.cut.send_replace(cut);
    }
}

async fn accept(listener: TcpListener, to: SocketAddr, is_cut: watch::Receiver<bool>) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let permit = Arc::clone(&permits).acquire_owned().await;
        let permit = permit.expect("nobody closes it");
        let Ok((near, _)) = listener.accept().await else { continue };
        let is_cut = is_cut.clone();
        connections.spawn(async move {
            // Either end sees a broken connection, which is what happened.
            let _ = relay(near, to, is_cut).await;
            drop(permit);
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn relay(
    near: TcpStream,
    to: SocketAddr,
    mut is_cut: watch::Receiver<bool>,
) -> io::Result<()> {
    passable(&mut is_cut).await;
    let far = TcpStream::connect(to).await?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
    let there = copy(near_read, far_write, is_cut.clone());
    let back = copy(far_read, near_write, is_cut);
    tokio::try_join!(there, back).map(drop)
}

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut is_cut: watch::Receiver<bool>,
) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    loop {
        let length = from.read(&mut chunk).await?;
        passable(&mut is_cut).await;
        if length == 0 {
            return to.shutdown().await;
        }
        to.write_all(&chunk[..length]).await?;
    }
}

/// Waits while it is cut. A relay that was dropped is not.
async fn passable(is_cut: &mut watch::Receiver<bool>) {
    let _ = is_cut.wait_for(|cut| !cut).await;
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// A server that sends back what it reads, and a connection to it through a relay.
    async fn connected() -> (Relay, TcpStream, JoinSet<()>) {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let relay = Relay::start(server.local_addr().unwrap()).await.unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            loop {
                let (mut stream, _) = server.accept().await.unwrap();
                tokio::spawn(async move {
                    let (mut read, mut write) = stream.split();
                    tokio::io::copy(&mut read, &mut write).await.unwrap();
                });
            }
        });
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, relay.port())).await.unwrap();
        (relay, stream, tasks)
    }

    async fn answer(stream: &mut TcpStream) -> [u8; 4] {
        let mut answer = [0; 4];
        stream.read_exact(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn nothing_passes_while_it_is_cut_and_all_of_it_afterwards() {
        let (relay, mut stream, _tasks) = connected().await;
        stream.write_all(b"ping").await.unwrap();
        assert_eq!(&answer(&mut stream).await, b"ping");

        relay.set_cut(true);
        stream.write_all(b"lost").await.unwrap();
        let silence = tokio::time::timeout(Duration::from_millis(100), answer(&mut stream)).await;
        assert!(silence.is_err());
        // The kernel accepts a new connection, and nobody answers it.
        let port = relay.port();
        let mut other = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        other.write_all(b"more").await.unwrap();
        let silence = tokio::time::timeout(Duration::from_millis(100), answer(&mut other)).await;
        assert!(silence.is_err());

        relay.set_cut(false);
        assert_eq!(&answer(&mut stream).await, b"lost");
        assert_eq!(&answer(&mut other).await, b"more");
    }

    #[tokio::test]
    async fn connections_end_with_the_relay_or_an_end() {
        let (relay, stream, _tasks) = connected().await;
        let (mut read, write) = stream.into_split();
        drop(write);
        assert_eq!(read.read(&mut [0; 4]).await.unwrap(), 0);
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, relay.port())).await.unwrap();
        stream.write_all(b"ping").await.unwrap();
        assert_eq!(&answer(&mut stream).await, b"ping");
        drop(relay);
        // An end of the stream, or a reset.
        assert!(!matches!(stream.read(&mut [0; 4]).await, Ok(1..)));
    }

    #[tokio::test]
    async fn connections_beyond_the_bound_wait_until_one_ends() {
        let (relay, first, _tasks) = connected().await;
        let mut others = Vec::new();
        for _ in 0..MAX_CONNECTIONS {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, relay.port())).await.unwrap();
            stream.write_all(b"ping").await.unwrap();
            others.push(stream);
        }
        let mut last = others.pop().unwrap();
        for stream in &mut others {
            assert_eq!(&answer(stream).await, b"ping");
        }
        let silence = tokio::time::timeout(Duration::from_millis(100), answer(&mut last)).await;
        assert!(silence.is_err());
        drop(first);
        assert_eq!(&answer(&mut last).await, b"ping");
    }
}
