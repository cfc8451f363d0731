//! Connections that break when a server sends too much that is no part of an answer: interim answers, settings, pings,
//! frames of answers that nobody reads. The library takes them in as fast as they come, so nothing else ends them. It
//! keeps none but interim answers of HTTP/2, each in some 200 bytes, until their request is polled: after what its
//! connection reads in one turn. Bytes are counted below TLS, and the count goes with each answer to its reader
//! ([`Unread`]).

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::bounds::Unread;

/// The most such bytes on a connection of HTTP/1.1, which reads little ahead.
pub(crate) const HTTP1_BYTES: usize = 1 << 20;
/// The most on one of HTTP/2, with what waits in its window for readers.
pub(crate) const HTTP2_BYTES: usize = 20 << 20;

/// A connection. Without a limit, its bytes are the business of somebody else.
#[derive(Debug)]
pub(crate) struct Metered {
    pub(crate) stream: TcpStream,
    pub(crate) unread: Unread,
    pub(crate) limit: Option<usize>,
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buffer))?;
        self.unread.come(buffer.filled().len() - before);
        Poll::Ready(match self.limit.filter(|limit| self.unread.is_more_than(*limit)) {
            Some(limit) => Err(io::Error::other(format!(
                "the server sends more than {limit} bytes that are no part of an answer"
            ))),
            None => Ok(()),
        })
    }
}

impl AsyncWrite for Metered {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Connection for Metered {
    fn connected(&self) -> Connected {
        self.stream.connected().extra(self.unread.clone())
    }
}
