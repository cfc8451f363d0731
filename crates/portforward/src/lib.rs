//! Connections to ports of Pods, through the API server of their cluster: the way to a server whose Pod
//! network the manager cannot reach.
//!
//! ```text
//!   PodStream ── frames ──▶ API server ──▶ kubelet ──▶ localhost:port, inside of the Pod
//!       └ asks before each frame whether it may pass
//! ```
//!
//! The API server authorises it as `pods/portforward`. The kubelet dials inside of the Pod's own network,
//! so that it works where no packet reaches the Pod from outside. The protocol is the one of
//! [`kubectl port-forward`] over WebSocket, `v4.channel.k8s.io`: each frame begins with the number of its
//! channel, 0 for data and 1 for the kubelet's error; the first on each has the port.
//!
//! # Invariants
//! - No byte is sent or read unless whoever opened the stream allows it at that moment: see [`MayPass`].
//! - A stream that is cut passes nothing more, wherever it is kept, and wakes who waits for it.
//! - Nobody else holds the connection: no task sends what was written before.
//!
//! The crate `engine` opens streams behind its gate, and its fence allows or cuts them.
//!
//! A server may still work on bytes that it got before the stream was cut, as with a write that hangs in
//! the network. Where that matters, the next owner ends the sessions of earlier ones first.
//!
//! [`kubectl port-forward`]: https://kubernetes.io/docs/tasks/access-application-cluster/port-forward-access-application-cluster/

mod dial;

use std::fmt::{self, Display};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use futures::task::AtomicWaker;
use futures::{Sink, Stream};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{self, Message};

pub use dial::{DIAL_TIMEOUT, DialError, MAX_STREAMS, dial};

/// The most data in a frame that is sent, in bytes.
const MAX_CHUNK: usize = 32 << 10;
/// The most bytes of the kubelet's error that are shown.
const MAX_SHOWN: usize = 600;

const DATA: u8 = 0;
const ERROR: u8 = 1;

/// A port of a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodPort {
    /// The Pod's namespace.
    pub namespace: String,
    /// The Pod's name.
    pub pod: String,
    /// The TCP port on which its server listens, on localhost.
    pub port: u16,
}

impl Display for PodPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "port {} of Pod {}/{}", self.port, self.namespace, self.pod)
    }
}

/// Whether a byte may pass now between this program and that port; if not, why.
pub type MayPass = Arc<dyn Fn(&PodPort) -> io::Result<()> + Send + Sync>;

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// The connection of a stream, until it is cut.
pub struct Line {
    socket: Mutex<Option<Socket>>,
    reader: AtomicWaker,
    writer: AtomicWaker,
}

/// A TCP connection to a port of a Pod. See the module's text for what it guarantees.
///
/// Nothing is known of the server when a stream opens: if nothing listens on the port, the first read
/// fails with [`io::ErrorKind::ConnectionRefused`] and the kubelet's text. The protocol has no half-close:
/// shutting down the stream ends both directions.
pub struct PodStream {
    line: Arc<Line>,
    may_pass: MayPass,
    port: PodPort,
    /// Data that came and was not read yet.
    unread: Bytes,
    /// Whether the first frame of each channel has come.
    begun: [bool; 2],
    _slot: OwnedSemaphorePermit,
}

// === impl Line ===

impl Line {
    /// Ends the connection at once, and wakes who waits for it.
    pub fn cut(&self) {
        drop(self.socket().take());
        self.reader.wake();
        self.writer.wake();
    }

    fn socket(&self) -> MutexGuard<'_, Option<Socket>> {
        self.socket.lock().expect("no holder of this lock panics")
    }
}

// === impl PodStream ===

impl PodStream {
    fn new(socket: Socket, may_pass: MayPass, port: PodPort, slot: OwnedSemaphorePermit) -> Self {
        let (reader, writer) = (AtomicWaker::new(), AtomicWaker::new());
        let line = Arc::new(Line { socket: Mutex::new(Some(socket)), reader, writer });
        Self { line, may_pass, port, unread: Bytes::new(), begun: [false; 2], _slot: slot }
    }

    /// Its connection, for who may have to cut it.
    pub fn line(&self) -> &Arc<Line> {
        &self.line
    }

    /// Whether a byte may pass now. If not, none ever will.
    fn ask(&self) -> io::Result<()> {
        (self.may_pass)(&self.port).inspect_err(|_| self.line.cut())
    }

    /// Does something with the connection, if it is not cut.
    fn with_socket<T>(
        &self,
        act: impl FnOnce(Pin<&mut Socket>) -> Poll<Result<T, tungstenite::Error>>,
    ) -> Poll<io::Result<T>> {
        match &mut *self.line.socket() {
            None => Poll::Ready(Err(io::Error::new(
                io::ErrorKind::ConnectionAborted,
                format!("the stream to {} was cut: its reconcile has ended", self.port),
            ))),
            Some(socket) => act(Pin::new(socket)).map_err(|error| self.broken(error)),
        }
    }

    fn broken(&self, error: tungstenite::Error) -> io::Error {
        let kind = match &error {
            tungstenite::Error::Io(error) => error.kind(),
            tungstenite::Error::ConnectionClosed | tungstenite::Error::AlreadyClosed => {
                io::ErrorKind::BrokenPipe
            }
            _ => io::ErrorKind::InvalidData,
        };
        let text = model::error::chain(&error);
        io::Error::new(kind, format!("the stream to {} broke: {text}", self.port))
    }

    /// Takes in one frame: its data, or the error that it tells.
    fn take(&mut self, mut frame: Bytes) -> io::Result<()> {
        let invalid = |why: &str| {
            let text = format!("the stream to {}: {why}", self.port);
            io::Error::new(io::ErrorKind::InvalidData, text)
        };
        if frame.is_empty() {
            return Err(invalid("a frame without a channel"));
        }
        let channel = frame.get_u8();
        let Some(begun) = self.begun.get_mut(usize::from(channel)) else {
            return Err(invalid("a frame of an unknown channel"));
        };
        if !std::mem::replace(begun, true) {
            return match frame.as_ref() == self.port.port.to_le_bytes() {
                true => Ok(()),
                false => Err(invalid("the first frame does not have the port")),
            };
        }
        match channel {
            DATA => self.unread = frame,
            ERROR if frame.is_empty() => {}
            _ => {
                let text = String::from_utf8_lossy(&frame[..frame.len().min(MAX_SHOWN)]);
                let text = format!("{} is not reached: {text}", self.port);
                return Err(io::Error::new(io::ErrorKind::ConnectionRefused, text));
            }
        }
        Ok(())
    }
}

impl AsyncRead for PodStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            self.ask()?;
            if !self.unread.is_empty() {
                let part = self.unread.len().min(buffer.remaining());
                buffer.put_slice(&self.unread.split_to(part));
                return Poll::Ready(Ok(()));
            }
            self.line.reader.register(cx.waker());
            let next = self.with_socket(|socket| socket.poll_next(cx).map(Option::transpose));
            match ready!(next)? {
                Some(Message::Binary(frame)) => self.take(frame)?,
                None | Some(Message::Close(_)) => return Poll::Ready(Ok(())),
                // Pings are answered below.
                Some(_) => {}
            }
        }
    }
}

impl AsyncWrite for PodStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.ask()?;
        self.line.writer.register(cx.waker());
        ready!(self.with_socket(|socket| socket.poll_ready(cx)))?;
        let part = &data[..data.len().min(MAX_CHUNK)];
        let mut frame = BytesMut::with_capacity(part.len() + 1);
        frame.put_u8(DATA);
        frame.put_slice(part);
        let message = Message::Binary(frame.freeze());
        ready!(self.with_socket(|socket| Poll::Ready(socket.start_send(message))))?;
        Poll::Ready(Ok(part.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.ask()?;
        self.line.writer.register(cx.waker());
        self.with_socket(|socket| socket.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.ask()?;
        self.line.writer.register(cx.waker());
        self.with_socket(|socket| socket.poll_close(cx))
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").finish_non_exhaustive()
    }
}

impl fmt::Debug for PodStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PodStream").field("port", &self.port).finish_non_exhaustive()
    }
}
