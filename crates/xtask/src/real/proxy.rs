//! A proxy in front of an HTTP server of this machine, that can throttle and cut.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What a throttling proxy answers to everything.
const THROTTLED: &[u8] = b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 2\r\n\
    content-length: 0\r\nconnection: close\r\n\r\n";

/// What becomes of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// They reach the server.
    Pass,
    /// They are answered with 429.
    Throttle,
    /// They are closed.
    Cut,
}

/// A running proxy. Ends when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    mode: watch::Sender<Mode>,
    connections: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// Starts one in front of that port of this machine.
    ///
    /// # Errors
    /// If it finds no port of its own.
    pub async fn start(server: u16) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let mode = watch::Sender::new(Mode::Pass);
        let (modes, connections) = (mode.subscribe(), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&connections);
        let task = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(serve(connection, server, modes.clone()));
            }
        });
        Ok(Self { port, mode, connections, task })
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Changes the mode; connections that are open are closed.
    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// How many connections were opened so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut connection: TcpStream, server: u16, mut modes: watch::Receiver<Mode>) {
    let mode = *modes.borrow_and_update();
    let served = async {
        match mode {
            Mode::Pass => {
                let mut server = TcpStream::connect(("127.0.0.1", server)).await?;
                copy_bidirectional(&mut connection, &mut server).await?;
            }
            Mode::Throttle => {
                // The request is small, and comes whole.
                let mut request = [0; 16_384];
                let _ = connection.read(&mut request).await?;
                connection.write_all(THROTTLED).await?;
                connection.shutdown().await?;
            }
            Mode::Cut => {}
        }
        Ok::<_, std::io::Error>(())
    };
    // A connection that fails ends, as it would without us.
    tokio::select! {
        _ = served => {}
        _ = modes.changed() => {}
    }
}
