//! What carries requests to a cluster.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use kube::client::Body;

/// What may go wrong on the way.
pub type WireError = Box<dyn Error + Send + Sync>;
/// The body of an answer, as it comes in.
pub type Answer = UnsyncBoxBody<Bytes, WireError>;
/// A request under way.
pub type Exchange = Pin<Box<dyn Future<Output = Result<Response<Answer>, WireError>> + Send>>;

/// The way to a cluster as it is below a [`kube::Client`]: a client has each request cross a channel
/// and a task of its own, which costs more than all that is done to it here.
#[derive(Clone)]
pub struct Wire(Arc<dyn Fn(Request<Body>) -> Exchange + Send + Sync>);

impl Wire {
    /// A way that `send` goes. Requests have a path and no server.
    pub fn new(send: impl Fn(Request<Body>) -> Exchange + Send + Sync + 'static) -> Self {
        Self(Arc::new(send))
    }

    /// Sends one request. Gives the answer once its head has come.
    pub fn send(&self, request: Request<Body>) -> Exchange {
        (self.0)(request)
    }
}

/// The way through a client.
impl From<kube::Client> for Wire {
    fn from(client: kube::Client) -> Self {
        Self::new(move |request| {
            let client = client.clone();
            Box::pin(async move {
                let answer = client.send(request).await?;
                Ok(answer.map(|body| body.map_err(WireError::from).boxed_unsync()))
            })
        })
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").finish_non_exhaustive()
    }
}
