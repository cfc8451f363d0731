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
        sightings.look();
        let found = match leases.get().await {
            // The other fleet may be there still.
            Err(Failure::Denied(_)) if sightings.is_refused() => return Ok(Standing::Unknown),
            found => found?,
        };
        let annotations = found.as_ref().and_then(|found| found.annotations.as_ref());
        let marks = marks(own, annotations.unwrap_or(&BTreeMap::new()));
        let now = clock.now();
        sightings.observe(own, &marks, now);
        if found.is_none() && sightings.waits(now) {
            return Ok(Standing::Unknown);
        }
        let decision = decide(own, &marks, sightings, now);
        sightings.decided(&decision, now);
        let change = match decision {
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
                found.map(|found| Some(found.metadata)).map_err(|_| Failure::Denied(strange()))
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
        // What the body says of the code is not asked: a proxy's may say nothing of it.
        Err(failure(verb, head.status.as_u16(), &wire::refusal(head.status, &body)))
    }
}

fn requests() -> Request {
    Request::new(Lease::url_path(&(), Some(NAMESPACE)))
}

fn failure(verb: &str, code: u16, error: &Error) -> Failure {
    match (code, verb) {
        (409, _) => Failure::Conflict,
        (404, "get") => Failure::Missing,
        // Somebody deleted it meanwhile: the next attempt creates it.
        (404, "patch") => Failure::Conflict,
        (403 | 404, _) => {
            let fix = format!(
                "give its user, in the namespace {NAMESPACE}, the verb create on leases.coordination.k8s.io, and get \
                 and patch on that one"
            );
            Failure::Denied(denied(verb, error, &fix))
        }
        // Its probe says so, or it passes.
        (401 | 408 | 429, _) => Failure::Other,
        (400..500, _) => {
            let fix = "change what refuses it: a policy, a webhook, or the size of that Lease";
            Failure::Denied(denied(verb, error, fix))
        }
        _ => Failure::Other,
    }
}

fn denied(verb: &str, error: &Error, fix: &str) -> Arc<str> {
    format!(
        "this fleet cannot mark it, so another fleet that works there is not noticed: {verb} Lease \
         {NAMESPACE}/{NAME}: {}; fix: {fix}",
        chain(error)
    )
    .into()
}

fn strange() -> Arc<str> {
    format!(
        "this fleet cannot mark it, so another fleet that works there is not noticed: what its server answers to get \
         Lease {NAMESPACE}/{NAME} is no Lease; fix: check the server's address, and what answers there"
    )
    .into()
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
    use super::super::{RETURN, STALE_AFTER, UNSEEN_COUNTS};
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

    /// What a look finds at a server that answers so to reads, and with this code to writes.
    async fn answered(
        (code, body): &(u16, Value),
        write: u16,
        sightings: Sightings,
        clock: &PausedClock,
    ) -> Looked {
        let (code, body) = (*code, body.to_string());
        let server = tower::service_fn(move |request: HttpRequest<Body>| {
            let (code, text) = match *request.method() {
                Method::GET => (code, body.clone()),
                _ => (write, json!({"message": "not so"}).to_string()),
            };
            let answer = Response::builder().status(code).body(Body::from(text.into_bytes()));
            async move { Ok::<_, BoxError>(answer.unwrap()) }
        });
        let client = Client::new(server, "default");
        look(&client, &own("a", &[], "tdset"), sightings, clock).await
    }

    /// A Lease with these marks.
    fn lease(fleets: &[&str]) -> (u16, Value) {
        let mark = |fleet: &&str| {
            let own = own(fleet, &[], "tdset");
            (format!("{PREFIX}{fleet}"), own.text(0, own.claim.clone()))
        };
        let annotations: BTreeMap<_, _> = fleets.iter().map(mark).collect();
        (200, json!({"metadata": {"resourceVersion": "1", "annotations": annotations}}))
    }

    #[tokio::test(start_paused = true)]
    async fn whatever_refuses_a_mark_for_good_is_said() {
        let none = (404, json!({}));
        for (read, write, expect) in [
            (none.clone(), 403, "; fix: give its user"),
            (none.clone(), 404, "; fix: give its user"),
            // A policy, a webhook, annotations that are too long.
            (none.clone(), 422, "; fix: change what refuses it"),
            (none.clone(), 400, "; fix: change what refuses it"),
            (none.clone(), 413, "; fix: change what refuses it"),
            (lease(&[]), 422, "patch Lease kube-public/leasehold-fleets"),
            // Of a proxy, whose body names no code.
            ((403, json!({"error": "forbidden"})), 200, "; fix: give its user"),
            ((200, json!({"kind": "Status"})), 200, "is no Lease; fix: check the server's address"),
            // What passes, or is said elsewhere.
            (none.clone(), 401, ""),
            (none.clone(), 429, ""),
            (none, 503, ""),
        ] {
            let looked = answered(&read, write, Sightings::default(), &PausedClock::new()).await;
            let said: &str = match &looked.standing {
                Standing::Unmarked(reason) => reason,
                _ => "",
            };
            assert!(said.contains(expect), "{read:?}, {write}: {said}");
            assert_eq!(said.is_empty(), expect.is_empty(), "{read:?}, {write}: {said}");
        }
    }

    /// Looks again at a server that answers so, and says how our fleet stands there then.
    async fn again(
        looked: Looked,
        read: &(u16, Value),
        write: u16,
        clock: &PausedClock,
    ) -> (Looked, &'static str) {
        let Looked { standing: mut before, sightings } = looked;
        let Looked { standing, sightings } = answered(read, write, sightings, clock).await;
        before.turn(standing);
        let text = match &before {
            Standing::Unknown => "unknown",
            Standing::Marked => "marked",
            Standing::Unmarked(_) => "unmarked",
            Standing::Refused(_) => "refused",
        };
        (Looked { standing: before, sightings }, text)
    }

    #[tokio::test(start_paused = true)]
    async fn who_may_not_look_stays_refused_and_who_may_not_write_does_not() {
        let (clock, denied) = (PausedClock::new(), (403, json!({})));
        let (looked, stands) = again(Looked::default(), &lease(&["b"]), 403, &clock).await;
        assert_eq!(stands, "refused");
        let (looked, stands) = again(looked, &denied, 403, &clock).await;
        assert_eq!(stands, "refused", "the other may be there still");
        let (_, stands) = again(looked, &lease(&[]), 403, &clock).await;
        assert_eq!(stands, "unmarked", "the other is gone");
    }

    #[tokio::test(start_paused = true)]
    async fn who_was_refused_waits_when_the_lease_is_gone_and_not_when_a_mark_is() {
        let (clock, gone) = (PausedClock::new(), (404, json!({})));
        let (looked, _) = again(Looked::default(), &lease(&["b"]), 200, &clock).await;
        let (looked, stands) = again(looked, &gone, 200, &clock).await;
        assert_eq!(stands, "refused", "who works there marks it first");
        clock.suspend(RETURN - Duration::from_secs(1));
        let (looked, stands) = again(looked, &gone, 200, &clock).await;
        assert_eq!(stands, "refused");
        clock.suspend(Duration::from_secs(1));
        let (_, stands) = again(looked, &gone, 200, &clock).await;
        assert_eq!(stands, "marked", "nobody came");
        let (looked, _) = again(Looked::default(), &lease(&["b"]), 200, &clock).await;
        let (_, stands) = again(looked, &lease(&[]), 200, &clock).await;
        assert_eq!(stands, "marked", "somebody took that mark away");
    }

    /// Both fleets are cut off from the cluster, or its server is down.
    #[tokio::test(start_paused = true)]
    async fn a_mark_does_not_become_stale_while_nobody_can_look() {
        let (clock, down) = (PausedClock::new(), (503, json!({})));
        let (mut looked, mut stands) = again(Looked::default(), &lease(&["b"]), 200, &clock).await;
        assert_eq!(stands, "refused");
        for _ in 0..60 {
            clock.suspend(Duration::from_secs(10));
            (looked, stands) = again(looked, &down, 200, &clock).await;
            assert_eq!(stands, "refused");
        }
        (looked, stands) = again(looked, &lease(&["b"]), 200, &clock).await;
        assert_eq!(stands, "refused", "the other could not renew it");
        clock.suspend(STALE_AFTER - UNSEEN_COUNTS - Duration::from_secs(1));
        (looked, stands) = again(looked, &lease(&["b"]), 200, &clock).await;
        assert_eq!(stands, "refused");
        clock.suspend(Duration::from_secs(1));
        (_, stands) = again(looked, &lease(&["b"]), 200, &clock).await;
        assert_eq!(stands, "marked", "the other does not");
    }
}
