//! Which fleet this is: the uid of its namespace in the home cluster, followed while the process runs. A home
//! that was emptied and filled again has another one; a home that was restored has the same.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, Error};
use model::FleetId;
use model::error::chain;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// How long home may take for an answer, and how long the start waits for the first one.
const TIMEOUT: Duration = Duration::from_secs(5);
const FIRST_WAIT: Duration = Duration::from_secs(2);
/// The time between two questions: while it is not known, when it is known, and when it may not be asked. A home that
/// is back gives this process shards as soon as it has joined, and by then it must have looked at the marks.
const UNKNOWN_INTERVAL: Duration = Duration::from_secs(1);
const KNOWN_INTERVAL: Duration = Duration::from_secs(30);
const FORBIDDEN_INTERVAL: Duration = Duration::from_secs(300);

/// What home says.
#[derive(Debug)]
enum Answer {
    Known(FleetId),
    /// It may not be asked. The text says what to grant.
    Forbidden(Arc<str>),
    /// No answer, which may pass.
    Silent,
}

/// Follows the id of the fleet whose namespace in `home` this is, until `stop`. Returns when home has answered,
/// or has taken too long.
pub async fn follow(
    home: Client,
    namespace: String,
    stop: CancellationToken,
) -> watch::Receiver<Option<FleetId>> {
    let (sender, mut known) = watch::channel(None);
    tokio::spawn(async move {
        tokio::select! {
            () = stop.cancelled() => {}
            () = ask_on(Api::all(home), namespace, sender) => {}
        }
    });
    // A home that is late is learnt of later: until it answers, this process owns nothing either.
    let _ = tokio::time::timeout(FIRST_WAIT, known.changed()).await;
    known
}

async fn ask_on(api: Api<Namespace>, namespace: String, sender: watch::Sender<Option<FleetId>>) {
    let mut warned: Option<Arc<str>> = None;
    loop {
        let asked = tokio::time::timeout(TIMEOUT, api.get_metadata(&namespace)).await;
        let uid = asked.map(|found| found.map(|found| found.metadata.uid.unwrap_or_default()));
        let pause = match uid.map_or(Answer::Silent, |uid| read(&namespace, uid)) {
            Answer::Known(id) => {
                let is_news = |known: &mut Option<FleetId>| {
                    let is_news = known.as_ref() != Some(&id);
                    *known = Some(id.clone());
                    is_news
                };
                if sender.send_if_modified(is_news) {
                    info!(fleet = %id, "this fleet is known by the uid of its namespace in the home cluster");
                }
                KNOWN_INTERVAL
            }
            Answer::Forbidden(reason) => {
                if warned.as_ref() != Some(&reason) {
                    warn!("{reason}");
                    warned = Some(reason);
                    // That is an answer too: nobody need wait for another.
                    sender.send_modify(|_| ());
                }
                FORBIDDEN_INTERVAL
            }
            Answer::Silent if sender.borrow().is_some() => KNOWN_INTERVAL,
            Answer::Silent => UNKNOWN_INTERVAL,
        };
        tokio::time::sleep(pause).await;
    }
}

/// What an answer says. Pure.
fn read(namespace: &str, uid: Result<String, Error>) -> Answer {
    match uid {
        Ok(uid) => uid.parse().map_or(Answer::Silent, Answer::Known),
        Err(error) if is_forbidden(&error) => Answer::Forbidden(
            format!(
                "this fleet cannot mark its clusters, so another fleet that works there is not noticed: get \
                 Namespace {namespace} of the home cluster: {}; fix: give this process, in that namespace, the \
                 verb get on namespaces, or set clusters.mark to false",
                chain(&error)
            )
            .into(),
        ),
        Err(_) => Answer::Silent,
    }
}

fn is_forbidden(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.code == 403)
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;
    use kube::core::Status;
    use model::Clock;
    use model::testing::PausedClock;
    use serde_json::json;
    use tower::BoxError;

    use super::*;

    /// When the service of home is back, by the paused clock.
    const BACK: Duration = Duration::from_secs(11);

    #[tokio::test(start_paused = true)]
    async fn a_home_that_is_late_is_learnt_of_as_soon_as_it_is_back() {
        let clock = PausedClock::new();
        let of_server = Arc::clone(&clock);
        let server = tower::service_fn(move |_: Request<Body>| {
            let is_back = of_server.now().since_origin() >= BACK;
            let answer = json!({
                "apiVersion": "meta.k8s.io/v1",
                "kind": "PartialObjectMetadata",
                "metadata": {"name": "ns", "uid": "f1"},
            });
            let code = if is_back { 200 } else { 503 };
            let body = Body::from(answer.to_string().into_bytes());
            let answer = Response::builder().status(code).body(body);
            async move { Ok::<_, BoxError>(answer.unwrap()) }
        });
        let client = Client::new(server, "default");
        let mut known = follow(client, "ns".to_owned(), CancellationToken::new()).await;
        assert_eq!(*known.borrow(), None, "nobody waits for it for long");
        known.changed().await.unwrap();
        assert_eq!(known.borrow().as_ref().map(FleetId::as_str), Some("f1"));
        let late = clock.now().since_origin() - BACK;
        assert!(late <= Duration::from_secs(1), "{late:?}");
    }

    #[test]
    fn only_a_uid_names_a_fleet_and_only_a_refusal_is_reported() {
        let failed = |code| Err(Error::Api(Status::failure("no", "x").with_code(code).boxed()));
        for (uid, expect) in [
            (Ok("4f5c0f1e-7a3b".to_owned()), "Known"),
            (Ok(String::new()), "Silent"),
            (Ok("a b".to_owned()), "Silent"),
            (failed(403), "Forbidden"),
            (failed(404), "Silent"),
            (failed(401), "Silent"),
            (failed(503), "Silent"),
        ] {
            let answer = format!("{:?}", read("ns", uid));
            assert!(answer.starts_with(expect), "{answer}");
        }
        let Answer::Forbidden(reason) = read("ns", failed(403)) else { panic!("not forbidden") };
        assert!(reason.contains("get Namespace ns") && reason.contains("; fix: give"), "{reason}");
    }
}
