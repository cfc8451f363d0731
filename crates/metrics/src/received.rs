//! The bytes of an answer, counted while it is read.

use bytes::Bytes;
use http::Response;
use http_body::Frame;
use http_body_util::BodyExt;
use model::wire::Answer;
use prometheus::Histogram;

/// What has come of an answer. Observed when it is dropped.
struct Received {
    bytes: u64,
    sizes: Histogram,
}

impl Received {
    fn count(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        self.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        frame
    }
}

impl Drop for Received {
    #[expect(clippy::cast_precision_loss, reason = "a float holds the size of every body exactly")]
    fn drop(&mut self) {
        self.sizes.observe(self.bytes as f64);
    }
}

/// The same answer. What is read of it is observed when it is dropped.
pub(crate) fn counted(sizes: Histogram, answer: Response<Answer>) -> Response<Answer> {
    let mut received = Received { bytes: 0, sizes };
    answer.map(|body| body.map_frame(move |frame| received.count(frame)).boxed_unsync())
}
