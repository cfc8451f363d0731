//! What carries requests to a cluster.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use kube::client::Body;
use kube::core::Status;

/// The error of a request.
pub type WireError = Box<dyn Error + Send + Sync>;
/// The body of an answer, as it arrives.
pub type Answer = UnsyncBoxBody<Bytes, WireError>;
/// A request under way.
pub type Exchange = Pin<Box<dyn Future<Output = Result<Response<Answer>, WireError>> + Send>>;

/// The connection to a cluster below a [`kube::Client`]. A client sends each request through a channel and
/// a task, which costs more than all processing here, and the channel has 12 KB for as long as the client lives.
#[derive(Clone)]
pub struct Wire {
    send: Arc<dyn Fn(Request<Body>) -> Exchange + Send + Sync>,
    namespace: Arc<str>,
}

impl Wire {
    /// A wire that sends requests with `send`. Requests have a path and no server.
    pub fn new(send: impl Fn(Request<Body>) -> Exchange + Send + Sync + 'static) -> Self {
        Self { send: Arc::new(send), namespace: "default".into() }
    }

    /// The same with the namespace of objects for which none is named.
    #[must_use]
    pub fn within(self, namespace: &str) -> Self {
        Self { namespace: namespace.into(), ..self }
    }

    /// The namespace of objects for which none is named.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Sends one request. Returns the answer when its head has arrived.
    pub fn send(&self, request: Request<Body>) -> Exchange {
        (self.send)(request)
    }

    /// A client over this wire, to use and drop.
    ///
    /// # Panics
    /// Outside of a Tokio runtime, because a client has a task.
    pub fn client(&self) -> kube::Client {
        let wire = self.clone();
        kube::Client::new(tower::service_fn(move |request| wire.send(request)), self.namespace())
    }
}

/// Whether a request to this path watches.
pub fn is_watch(uri: &Uri) -> bool {
    let mut pairs = uri.query().unwrap_or_default().split('&');
    pairs.any(|pair| matches!(pair, "watch" | "watch=true" | "watch=1"))
}

/// The class of an answer, as a label: a server may answer with any status there is. Without one, the word of
/// client-go for a request that got no answer.
pub fn class(status: Option<u16>) -> &'static str {
    match status.map(|status| status / 100) {
        None => "<error>",
        Some(1) => "1xx",
        Some(2) => "2xx",
        Some(3) => "3xx",
        Some(4) => "4xx",
        Some(5) => "5xx",
        Some(_) => "other",
    }
}

/// How many bytes are shown of a refusal that does not come from an API server.
const MAX_REFUSAL_BYTES: usize = 200;

/// What a server says that does not do what it was asked.
pub fn refusal(status: StatusCode, body: &[u8]) -> kube::Error {
    let mut refusal = serde_json::from_slice::<Status>(body).unwrap_or_else(|_| {
        // Not an answer of the API server, but perhaps of a kubelet or a proxy.
        let text = String::from_utf8_lossy(&body[..body.len().min(MAX_REFUSAL_BYTES)]);
        let reason = status.canonical_reason().unwrap_or_default();
        Status::failure(&text, reason).with_code(status.as_u16())
    });
    // A proxy's answer may be JSON and say nothing of it.
    if refusal.code == 0 {
        refusal.code = status.as_u16();
    }
    kube::Error::Api(refusal.boxed())
}

/// A wire through a client.
impl From<kube::Client> for Wire {
    fn from(client: kube::Client) -> Self {
        let namespace = client.default_namespace().to_owned();
        let send = move |request| -> Exchange {
            let client = client.clone();
            Box::pin(async move {
                let answer = client.send(request).await?;
                Ok(answer.map(|body| body.map_err(WireError::from).boxed_unsync()))
            })
        };
        Self::new(send).within(&namespace)
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_the_code_of_its_answer() {
        for (body, message) in [
            (&br#"{"kind":"Status","code":409,"message":"no"}"#[..], "no"),
            (br#"{"error":"quota"}"#, ""),
            (b"<html>", "<html>"),
        ] {
            let kube::Error::Api(refused) = refusal(StatusCode::FORBIDDEN, body) else { panic!() };
            let code = if message == "no" { 409 } else { 403 };
            assert_eq!((refused.code, &*refused.message), (code, message));
        }
    }
}
