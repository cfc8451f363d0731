//! Which cluster a server is: it is asked for the uid of the namespace `kube-system`, which every cluster
//! has and keeps. One request, bounded in time and bytes.
//!
//! The answer is the server's own word. A server can claim to be another cluster, as it can lie in
//! everything else; it can take no name from a cluster that has one: here an engaged cluster keeps its name
//! (`merge`), and the fleet remembers by uid for whom a name stands while any replica has that cluster
//! (`sharding`).

use std::sync::Arc;
use std::time::Duration;

use http::{Request, StatusCode, header::ACCEPT};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use kube::Client;
use kube::client::Body;
use model::error::{chain, foreign};
use model::{ClusterUid, Moment, doubled};
use serde::Deserialize;

use crate::bounds::SMALL_BYTES;

/// What is asked for.
const PATH: &str = "/api/v1/namespaces/kube-system";
/// Only its metadata, if the server can leave the rest out.
const FORM: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// How long an answer may take.
pub(crate) const ASK_TIMEOUT: Duration = Duration::from_secs(5);
/// The first wait before a silent server is asked again; doubles each time.
const RETRY_MIN: Duration = Duration::from_secs(1);
/// The longest wait before that.
const RETRY_MAX: Duration = Duration::from_secs(10);

/// The wait before a server is asked again that has said for a second time that it is another cluster than
/// before; doubles each time.
const FLIP_MIN: Duration = Duration::from_secs(10);
/// The longest wait before that.
const FLIP_MAX: Duration = Duration::from_secs(30 * 60);
/// A server that has said the same for so long begins anew.
const FLIPS_FORGOTTEN_AFTER: Duration = Duration::from_secs(60 * 60);
/// The reason of a cluster whose server is not asked again yet.
pub(crate) const FLIPPING: &str = "its server says each time that it is another cluster; fix: check what answers at the server's \
                                   address: one cluster must, with one namespace kube-system";

/// What a server says about its identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// Which cluster it is.
    Known(ClusterUid),
    /// It answers, but not that: for want of a right, or because it has no such namespace. The text says
    /// what to do.
    Untold(Arc<str>),
    /// It gives no answer that an API server would give. The text says why.
    Silent(Arc<str>),
}

/// How often a server has said lately that it is another cluster than before, or that another fleet works there. Each
/// time, what is cached of it is dropped, and of another cluster all that the fleet knew, so one that does nothing else
/// is left alone.
#[derive(Debug, Default)]
pub(crate) struct Flips {
    times: u32,
    last: Option<Moment>,
}

impl Flips {
    /// It has said so again. Returns how long it is left alone: a cluster is made anew now and then, and
    /// engaged at once.
    pub(crate) fn flipped(&mut self, now: Moment) -> Duration {
        let lately = self.last.is_some_and(|last| now.since(last) < FLIPS_FORGOTTEN_AFTER);
        self.times = if lately { self.times.saturating_add(1) } else { 1 };
        self.last = Some(now);
        match self.times {
            1 => Duration::ZERO,
            times => doubled(FLIP_MIN, times - 2, FLIP_MAX),
        }
    }
}

/// Asks a server which cluster it is.
pub(crate) async fn ask(client: &Client) -> Told {
    match tokio::time::timeout(ASK_TIMEOUT, answer(client)).await {
        Ok(answer) => answer,
        Err(_) => silent(&format!("gives no answer within {}s", ASK_TIMEOUT.as_secs())),
    }
}

/// The wait before attempt number `attempt`, which is at least 1.
pub(crate) fn ask_after(attempt: u32) -> Duration {
    doubled(RETRY_MIN, attempt - 1, RETRY_MAX)
}

async fn answer(client: &Client) -> Told {
    let request = Request::get(PATH).header(ACCEPT, FORM).body(Body::empty());
    let Ok(request) = request else { return silent("cannot be asked") };
    let answer = match client.send(request).await {
        Ok(answer) => answer,
        Err(error) => return silent(&format!("does not answer: {}", chain(&error))),
    };
    let (head, body) = answer.into_parts();
    // The servers of a thousand clusters may be asked at once. The metadata of a namespace has a few KiB.
    match Limited::new(body, SMALL_BYTES).collect().await {
        Ok(body) => read(head.status, &body.to_bytes()),
        Err(why) if why.is::<LengthLimitError>() => silent("says over 64 KiB of its kube-system"),
        Err(why) => silent(&format!("does not answer: {}", foreign(&why.to_string()))),
    }
}

/// What an answer says. Pure.
fn read(status: StatusCode, body: &[u8]) -> Told {
    let of_body = || serde_json::from_slice::<Refusal>(body).unwrap_or_default().message;
    match status.as_u16() {
        200 => match serde_json::from_slice::<Namespace>(body).map(|found| found.metadata.uid) {
            Ok(uid) => match uid.parse() {
                Ok(uid) => Told::Known(uid),
                Err(_) => silent(&format!("answers GET {PATH} with no uid: {:?}", foreign(&uid))),
            },
            Err(error) => {
                silent(&format!("answers GET {PATH} with no namespace: {}", foreign(&error.to_string())))
            }
        },
        401 => Told::Silent(
            format!(
                "its API server answers 401 to GET {PATH}: {}; fix: renew the credentials in the \
             kubeconfig (`leasehold clusters rotate`, if `clusters add` made them)",
                foreign(&of_body())
            )
            .into(),
        ),
        // Anything else may pass.
        403 | 404 => Told::Untold(
            format!(
                "it cannot be told from other clusters: its API server answers {} to GET {PATH}: {}; fix: \
                 give its user, in the namespace kube-system, the verb get on namespaces",
                status.as_u16(),
                foreign(&of_body())
            )
            .into(),
        ),
        code => silent(&format!("answers {code} to GET {PATH}: {}", foreign(&of_body()))),
    }
}

fn silent(what: &str) -> Told {
    let fix = "check the server's address and the network path to it";
    Told::Silent(format!("its API server {what}; fix: {fix}").into())
}

/// What is read of a namespace.
#[derive(Deserialize)]
struct Namespace {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    uid: String,
}

/// What is read of a refusal.
#[derive(Default, Deserialize)]
struct Refusal {
    #[serde(default)]
    message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_changes_again_and_again_is_left_alone_for_longer_and_longer() {
        let (mut flips, mut now) = (Flips::default(), Moment::default());
        let mut flip = |after: Duration| {
            now = now + after;
            flips.flipped(now).as_secs()
        };
        let waits: Vec<_> = (0..11).map(|_| flip(FLIP_MAX)).collect();
        assert_eq!(waits, [0, 10, 20, 40, 80, 160, 320, 640, 1280, 1800, 1800]);
        assert_eq!((flip(FLIPS_FORGOTTEN_AFTER), flip(FLIP_MIN)), (0, 10));
    }

    fn check(status: u16, body: &str, expect: &str) {
        let answer = read(StatusCode::from_u16(status).unwrap(), body.as_bytes());
        let text = match answer {
            Told::Known(uid) => format!("known: {uid}"),
            Told::Untold(text) => format!("untold: {text}"),
            Told::Silent(text) => format!("silent: {text}"),
        };
        assert!(text.starts_with(expect), "{text}");
    }

    #[test]
    fn only_a_uid_is_an_identity() {
        let uid = "4f5c0f1e-7a3b-4a51-9d5c-0c2f3f1f7b11";
        let namespace =
            |uid: &str| format!(r#"{{"metadata":{{"name":"kube-system","uid":{uid}}}}}"#);
        check(200, &namespace(&format!("{uid:?}")), &format!("known: {uid}"));
        for wrong in ["7", "null", "{}", "[]"] {
            check(
                200,
                &namespace(wrong),
                "silent: its API server answers GET /api/v1/namespaces/kube-system with no namespace",
            );
        }
        for wrong in ["", "a b", "\\u001b[2J", &"a".repeat(64), "../x"] {
            check(
                200,
                &namespace(&format!("\"{wrong}\"")),
                "silent: its API server answers GET /api/v1/namespaces/kube-system with no uid",
            );
        }
        check(200, "<html>log in</html>", "silent: its API server answers GET");
        check(200, r#"{"kind":"Namespace"}"#, "silent: its API server answers GET");
    }

    #[test]
    fn a_server_that_may_not_tell_is_no_silent_server() {
        let status = r#"{"kind":"Status","message":"user \"x\" cannot get"}"#;
        check(
            403,
            status,
            "untold: it cannot be told from other clusters: its API server answers 403 to GET /api/v1/namespaces/kube-system: user \"x\" cannot get; fix: give its user, in the namespace kube-system, the verb get",
        );
        check(404, "404 page not found", "untold: ");
        check(401, status, "silent: its API server answers 401");
        for code in [400, 408, 409, 422, 429, 500] {
            check(code, "", &format!("silent: its API server answers {code}"));
        }
        check(503, "{]", "silent: its API server answers 503");
        check(302, "", "silent: its API server answers 302");
    }
}
