//! The answer of a server that may be hostile: it has a bound of bytes, and its readers name the fields that they
//! need and that must be there. Types all of whose fields default take hundreds of bytes for each `{}` of a list.

use http::Request;
use http::header::DATE;
use http_body_util::{BodyExt, Limited};
use kube::Client;
use kube::client::Body;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The most bytes of an answer that is small.
pub(crate) const SMALL_BYTES: usize = 64 << 10;

/// A successful answer.
pub(crate) struct Answer {
    pub(crate) date: Option<String>,
    body: Vec<u8>,
}

/// Why there is none.
pub(crate) struct Refusal {
    /// The status of another answer.
    pub(crate) code: Option<u16>,
    pub(crate) why: String,
}

/// What is read of a Status.
#[derive(Deserialize)]
struct Said {
    message: String,
}

/// Sends a request, and reads at most `limit` bytes of the answer.
pub(crate) async fn ask(
    client: &Client,
    request: Request<Vec<u8>>,
    limit: usize,
) -> Result<Answer, Refusal> {
    let answer = client.send(request.map(Body::from)).await.map_err(|error| silent(&error))?;
    let date = answer.headers().get(DATE).and_then(|date| Some(date.to_str().ok()?.to_owned()));
    let status = answer.status();
    let body = Limited::new(answer.into_body(), limit).collect().await;
    let body: Vec<u8> = body.map_err(|error| silent(&*error))?.to_bytes().into();
    if status.is_success() {
        return Ok(Answer { date, body });
    }
    let said = match serde_json::from_slice::<Said>(&body) {
        Ok(said) => said.message,
        Err(_) => String::from_utf8_lossy(&body).into_owned(),
    };
    let why = format!("it answers {status}: {}", model::error::foreign(&said));
    Err(Refusal { code: Some(status.as_u16()), why })
}

fn silent(error: &(dyn std::error::Error + 'static)) -> Refusal {
    Refusal { code: None, why: model::error::chain(error) }
}

impl Answer {
    /// Its fields, or why they cannot be read.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        let unreadable = |error: serde_json::Error| {
            let why = format!("its answer cannot be read: {}", model::error::chain(&error));
            Refusal { code: Some(200), why }
        };
        serde_json::from_slice(&self.body).map_err(unreadable)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use http::Response;
    use tower::service_fn;

    use super::*;

    /// A client of a server that answers each request so.
    pub(crate) fn server(status: u16, body: &str) -> Client {
        let body = body.as_bytes().to_vec();
        let answer = service_fn(move |_: Request<Body>| {
            let answer = Response::builder().status(status).body(Body::from(body.clone()));
            async move { answer }
        });
        Client::new(answer, "default")
    }

    #[tokio::test]
    async fn an_answer_has_a_bound_whatever_its_status_is() {
        for (status, body, expect) in [
            (200, "12345", None),
            (200, "123456", Some("length limit exceeded")),
            (404, "gone!", Some("it answers 404 Not Found: gone!")),
            (404, "123456", Some("length limit exceeded")),
        ] {
            let request = Request::get("/x").body(Vec::new()).unwrap();
            let found = ask(&server(status, body), request, 5).await;
            assert_eq!(found.err().map(|refusal| refusal.why).as_deref(), expect, "{body}");
        }
    }
}
