//! A body in one piece, however small the parts are in which it comes.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use http_body::{Body, Frame};
use tokio::task::coop;

use crate::wire::WireError;

/// The data of a body as one part, once all of it has come: whoever collects a body keeps each of its parts, which takes
/// 32 bytes and more beside its own. Trailers are left out.
pub struct Gathered<B> {
    /// None at its end.
    body: Option<B>,
    bytes: BytesMut,
    limit: usize,
}

impl<B> Gathered<B> {
    /// At most so many bytes of `body`; what is longer fails. How long it may take is up to the reader.
    pub fn new(body: B, limit: usize) -> Self {
        Self { body: Some(body), bytes: BytesMut::new(), limit }
    }
}

impl<B> Body for Gathered<B>
where
    B: Body + Unpin,
    B::Error: Into<WireError>,
{
    type Data = Bytes;
    type Error = WireError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, WireError>>> {
        let this = &mut *self;
        let Some(body) = &mut this.body else { return Poll::Ready(None) };
        let ended = loop {
            // Empty parts could come for ever: others have their turn, deadlines too.
            let turn = ready!(coop::poll_proceed(cx));
            let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
            turn.made_progress();
            match frame.map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) if data.remaining() > this.limit - this.bytes.len() => {
                    break Err(format!("the answer is longer than {} bytes", this.limit).into());
                }
                Some(Ok(Ok(data))) => this.bytes.put(data),
                Some(Ok(Err(_trailers))) => {}
                Some(Err(error)) => break Err(error.into()),
                None => break Ok(Frame::data(std::mem::take(&mut this.bytes).freeze())),
            }
        };
        this.body = None;
        Poll::Ready(Some(ended))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::BodyExt;

    use super::*;

    /// So many parts of a byte.
    struct Parts(usize);

    impl Body for Parts {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            let left = self.0.checked_sub(1);
            self.0 = left.unwrap_or_default();
            Poll::Ready(left.map(|_| Ok(Frame::data(Bytes::from_static(b"x")))))
        }
    }

    #[tokio::test]
    async fn small_parts_become_one_and_what_is_too_long_fails() {
        let mut body = Gathered::new(Parts(1000), 1000);
        let whole = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(whole.len(), 1000);
        assert!(body.frame().await.is_none());
        let error = Gathered::new(Parts(1001), 1000).collect().await.unwrap_err();
        assert_eq!(error.to_string(), "the answer is longer than 1000 bytes");
        assert!(Gathered::new(Parts(0), 0).collect().await.unwrap().to_bytes().is_empty());
    }
}
