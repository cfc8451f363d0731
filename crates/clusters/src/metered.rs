//! Connections that break when a server sends too much that is no part of an answer: interim answers, settings, pings,
//! frames of answers that nobody reads. The library takes them in as fast as they come, so nothing else ends them. It
//! keeps none but interim answers of HTTP/2, each in some 200 bytes, until their request is polled: after what its
//! connection reads in one turn, which is 128 KiB at most. Bytes are counted below TLS, and the count goes with each
//! answer to its reader ([`Unread`]).

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::coop;

use crate::bounds::Unread;

/// The most such bytes on a connection of HTTP/1.1, which reads little ahead.
pub(crate) const HTTP1_BYTES: usize = 1 << 20;
/// The most on one of HTTP/2, with what waits in its window for readers.
pub(crate) const HTTP2_BYTES: usize = 20 << 20;

/// So many bytes are one of the 128 things that tokio lets a task do in one turn.
const TURN: usize = 1 << 10;

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
        let come = buffer.filled().len() - before;
        self.unread.come(come);
        for _ in 0..come / TURN {
            // A long read uses up more of the task's turn than a read of one byte.
            let Poll::Ready(left) = coop::poll_proceed(cx) else { break };
            left.made_progress();
        }
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

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    /// Else a server could have a connection take in megabytes before the request that it belongs to is polled.
    #[tokio::test]
    async fn a_turn_reads_so_much_and_no_more() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        let mut sent = vec![0; 32 * TURN];
        server.write_all(&sent).await.unwrap();
        while stream.peek(&mut sent).await.unwrap() < sent.len() {}
        let mut metered = Metered { stream, unread: Unread::default(), limit: None };
        tokio::task::yield_now().await;
        let left = poll_fn(|cx| {
            let mut buffer = ReadBuf::new(&mut sent);
            assert!(Pin::new(&mut metered).poll_read(cx, &mut buffer).is_ready());
            assert_eq!(buffer.filled().len(), 32 * TURN);
            let mut left = 0;
            while let Poll::Ready(proceeds) = coop::poll_proceed(cx) {
                proceeds.made_progress();
                left += 1;
            }
            Poll::Ready(left)
        });
        assert_eq!(left.await, 128 - 1 - 32);
    }
}
