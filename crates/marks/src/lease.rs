//! The Lease with the marks: read, and written by compare-and-swap. It decides nothing. Of what a server
//! answers, only so many bytes are read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::Request as HttpRequest;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Bytes;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{GetParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::core::{Request, request};
use kube::{Client, Error, Resource};
use model::error::chain;
use model::{Clock, wire};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    Change, Decision, MAX_OTHERS, NAME, NAMESPACE, Own, PREFIX, Sightings, Standing, decide, marks,
};

/// How long one look may take, with what it writes.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a look begins anew because somebody else wrote meanwhile.
const ATTEMPTS: usize = 3;
/// The most bytes of an answer: Kubernetes takes 256 KiB of annotations, which escaped are at most twice as long.
const MAX_ANSWER_BYTES: usize = 512 << 10;

/// What a look found.
#[derive(Debug, Default)]
pub struct Looked {
    /// How our fleet stands there.
    pub standing: Standing,
    /// For the next look.
    pub sightings: Sightings,
}

/// Why a request did not succeed.
enum Failure {
    /// Somebody else wrote meanwhile.
    Conflict,
    /// There is no such Lease.
    Missing,
    /// It is not allowed, or what answers is no Lease.
    Denied(Arc<str>),
    /// Anything else, which may pass.
    Other,
}

/// Looks at the marks in a cluster, and writes ours if it is due.
pub async fn look(
    client: &Client,
    own: &Own,
    mut sightings: Sightings,
    clock: &dyn Clock,
) -> Looked {
    let looking = attempts(client, own, &mut sightings, clock);
    let looked = tokio::time::timeout(LOOK_TIMEOUT, looking).await;
    let standing = match looked.unwrap_or(Err(Failure::Other)) {
        Ok(standing) => standing,
        Err(Failure::Denied(reason)) => Standing::Unmarked(reason),
        Err(Failure::Conflict | Failure::Missing | Failure::Other) => Standing::Unknown,
    };
    Looked { standing, sightings }
}

async fn attempts(
    client: &Client,
    own: &Own,
    sightings: &mut Sightings,
    clock: &dyn Clock,
) -> Result<Standing, Failure> {
    let leases = Leases(client);
    for _ in 0..ATTEMPTS {
        let found = leases.get().await?;
        let annotations = found.as_ref().and_then(|found| found.annotations.as_ref());
        let marks = marks(own, annotations.unwrap_or(&BTreeMap::new()));
        let now = clock.now();
        sightings.observe(own, &marks, now);
        let change = match decide(own, &marks, sightings, now) {
            Decision::Stands => return Ok(Standing::Marked),
            Decision::Refused(refusal) => return Ok(Standing::Refused(refusal)),
            Decision::Full => return Ok(Standing::Unmarked(full())),
            Decision::Write(change) => change,
        };
        let written = match found {
            Some(found) => leases.patch(found.resource_version, &change).await,
            None => leases.create(change).await,
        };
        match written {
            Ok(()) => return Ok(Standing::Marked),
            Err(Failure::Conflict) => {}
            Err(failure) => return Err(failure),
        }
    }
    Err(Failure::Conflict)
}

/// The server of the Lease.
struct Leases<'c>(&'c Client);

/// What is read of the Lease.
#[derive(Deserialize)]
struct Found {
    metadata: FoundMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FoundMeta {
    resource_version: Option<String>,
    annotations: Option<BTreeMap<String, String>>,
}

impl Leases<'_> {
    async fn get(&self) -> Result<Option<FoundMeta>, Failure> {
        match self.send("get", requests().get_metadata(NAME, &GetParams::default())).await {
            Ok(answer) => {
                let found = serde_json::from_slice::<Found>(&answer);
                found.map(|found| Some(found.metadata)).map_err(|_| Failure::Other)
            }
            Err(Failure::Missing) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    async fn create(&self, change: Change) -> Result<(), Failure> {
        let (fleet, text) = change.put;
        let annotations = [(format!("{PREFIX}{fleet}"), text)].into();
        let metadata = ObjectMeta {
            name: Some(NAME.to_owned()),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        };
        let lease = json!(Lease { metadata, ..Lease::default() }).to_string().into_bytes();
        self.send("create", requests().create(&PostParams::default(), lease)).await.map(drop)
    }

    /// Changes the marks of exactly that version.
    async fn patch(&self, version: Option<String>, change: &Change) -> Result<(), Failure> {
        let (fleet, text) = &change.put;
        let removed = change.remove.iter().map(|fleet| (fleet, Value::Null));
        let annotations: Map<String, Value> = removed
            .chain([(fleet, json!(text))])
            .map(|(fleet, text)| (format!("{PREFIX}{fleet}"), text))
            .collect();
        let body = json!({"metadata": {"resourceVersion": version, "annotations": annotations}});
        let (params, patch) = (PatchParams::default(), Patch::Merge(&body));
        self.send("patch", requests().patch_metadata(NAME, &params, &patch)).await.map(drop)
    }

    /// Sends a request and reads its answer, up to the bound.
    async fn send(
        &self,
        verb: &str,
        request: Result<HttpRequest<Vec<u8>>, request::Error>,
    ) -> Result<Bytes, Failure> {
        let request = request.map_err(|_| Failure::Other)?.map(Body::from);
        let answer = self.0.send(request).await.map_err(|_| Failure::Other)?;
        let (head, body) = answer.into_parts();
        let body = match Limited::new(body, MAX_ANSWER_BYTES).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => return Err(Failure::Denied(long())),
            Err(_) => return Err(Failure::Other),
        };
        if head.status.is_success() {
            return Ok(body);
        }
        Err(failure(verb, &wire::refusal(head.status, &body)))
    }
}

fn requests() -> Request {
    Request::new(Lease::url_path(&(), Some(NAMESPACE)))
}

fn failure(verb: &str, error: &Error) -> Failure {
    match error {
        Error::Api(status) if status.code == 409 => Failure::Conflict,
        Error::Api(status) if verb == "get" && status.code == 404 => Failure::Missing,
        // Somebody deleted it meanwhile: the next attempt creates it.
        Error::Api(status) if verb == "patch" && status.code == 404 => Failure::Conflict,
        Error::Api(status) if matches!(status.code, 403 | 404) => Failure::Denied(
            format!(
                "this fleet cannot mark it, so another fleet that works there is not noticed: {verb} Lease \
                 {NAMESPACE}/{NAME}: {}; fix: give its user, in the namespace {NAMESPACE}, the verb create on \
                 leases.coordination.k8s.io, and get and patch on that one",
                chain(error)
            )
            .into(),
        ),
        _ => Failure::Other,
    }
}

fn full() -> Arc<str> {
    format!(
        "this fleet cannot mark it: {MAX_OTHERS} other fleets have, and no more are allowed; fix: remove the \
         annotations of those that are gone from Lease {NAMESPACE}/{NAME}"
    )
    .into()
}

fn long() -> Arc<str> {
    format!(
        "this fleet cannot mark it, so another fleet that works there is not noticed: the answer about Lease \
         {NAMESPACE}/{NAME} is longer than {} KiB; fix: delete that Lease: each fleet writes its mark anew",
        MAX_ANSWER_BYTES >> 10
    )
    .into()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::stream;
    use http::{Method, Response, StatusCode};
    use http_body::Frame;
    use http_body_util::StreamBody;
    use model::testing::PausedClock;
    use tower::BoxError;

    use super::super::tests::own;
    use super::*;

    /// The bytes of a frame.
    const FRAME: usize = 16 << 10;

    /// What a look finds at a server whose Lease has so many bytes of annotations and which refuses every
    /// write, and how many bytes of each answer were read at most.
    async fn looked(bytes: usize) -> (Standing, usize) {
        let most = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&most);
        let server = tower::service_fn(move |request: HttpRequest<Body>| {
            let status = match *request.method() {
                Method::GET => StatusCode::OK,
                _ => StatusCode::NOT_FOUND,
            };
            let annotations = json!({"x": "y".repeat(bytes)});
            let text = json!({"metadata": {"resourceVersion": "1", "annotations": annotations}});
            let text = text.to_string().into_bytes();
            let (counted, mut read) = (Arc::clone(&counted), 0);
            let frames: Vec<_> = text.chunks(FRAME).map(<[u8]>::to_vec).collect();
            let frames = stream::iter(frames.into_iter().map(move |frame| {
                read += frame.len();
                counted.fetch_max(read, Ordering::Relaxed);
                Ok::<_, BoxError>(Frame::data(Bytes::from(frame)))
            }));
            let answer = Response::builder().status(status).body(StreamBody::new(frames));
            async move { Ok::<_, BoxError>(answer.unwrap()) }
        });
        let client = Client::new(server, "default");
        let clock = PausedClock::new();
        let looked = look(&client, &own("a", &[], "tdset"), Sightings::default(), &*clock).await;
        (looked.standing, most.load(Ordering::Relaxed))
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_lease_of_any_size_only_so_much_is_read() {
        let (standing, read) = looked(16 << 20).await;
        assert!(read <= MAX_ANSWER_BYTES + FRAME, "{read} bytes");
        let Standing::Unmarked(reason) = standing else { panic!("{standing:?}") };
        assert!(reason.contains("longer than 512 KiB; fix: delete that Lease"), "{reason}");
        assert_eq!(looked(1).await.0, Standing::Unknown, "somebody deletes it each time");
    }
}
