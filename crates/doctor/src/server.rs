//! One API server: whether it answers, its version and its clock.

use http::Request;
use http::header::DATE;
use http_body_util::{BodyExt, Limited};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use k8s_openapi::apimachinery::pkg::version::Info;
use kube::Client;
use kube::client::Body;

use crate::report::Finding;

/// The oldest release of Kubernetes that is tested, as the chart's `kubeVersion` has it.
pub const OLDEST: (u32, u32) = (1, 30);
/// By how much a server's clock may differ from ours. Sharding does not depend on it, but certificates and tokens
/// do.
const MAX_SKEW: SignedDuration = SignedDuration::from_secs(30);
/// The most bytes of an answer with a version.
const MAX_VERSION_BYTES: usize = 64 << 10;

/// Asks a server for its version. `now` gives the time on our clock.
pub async fn ask_server(client: &Client, about: &str, now: impl Fn() -> Timestamp) -> Vec<Finding> {
    let (said, date) = match version(client).await {
        Ok(answer) => answer,
        Err((code, why)) => {
            let fix = model::error::remedy(code);
            return vec![Finding::failure(about, format!("does not answer: {why}"), fix)];
        }
    };
    let date = date.as_deref().and_then(http_date);
    vec![age(about, &said)]
        .into_iter()
        .chain(date.and_then(|date| skewed(about, now().duration_since(date))))
        .collect()
}

/// The version that a server says it has, and its Date; or the code of another answer, if there is one, and why.
async fn version(client: &Client) -> Result<(Info, Option<String>), (Option<u16>, String)> {
    let request = Request::get("/version").body(Body::empty()).expect("the path is one");
    let silent = |error: &(dyn std::error::Error + 'static)| (None, model::error::chain(error));
    let answer = client.send(request).await.map_err(|error| silent(&error))?;
    let date = answer.headers().get(DATE).and_then(|date| Some(date.to_str().ok()?.to_owned()));
    let status = answer.status();
    let body = Limited::new(answer.into_body(), MAX_VERSION_BYTES).collect().await;
    let bytes = body.map_err(|error| silent(&*error))?.to_bytes();
    if !status.is_success() {
        let said = match serde_json::from_slice::<Status>(&bytes) {
            Ok(status) => status.message.unwrap_or_default(),
            Err(_) => String::from_utf8_lossy(&bytes).into_owned(),
        };
        let said = model::error::foreign(&said);
        return Err((Some(status.as_u16()), format!("it answers {status}: {said}")));
    }
    let unreadable = |_| (Some(status.as_u16()), "its version cannot be read".to_owned());
    let info = serde_json::from_slice(&bytes).map_err(unreadable)?;
    Ok((info, date))
}

/// The time of a Date header.
fn http_date(text: &str) -> Option<Timestamp> {
    jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text).ok()
}

/// Whether the server is of a release that is tested.
fn age(about: &str, said: &Info) -> Finding {
    // Servers of cloud providers add a plus.
    let number = |text: &str| text.trim_end_matches(|c: char| !c.is_ascii_digit()).parse().ok();
    let shown = model::error::foreign(&said.git_version);
    let (major, minor) = OLDEST;
    match number(&said.major).zip(number(&said.minor)) {
        Some(found) if found >= OLDEST => {
            Finding::ok(about, format!("answers, Kubernetes {shown}"))
        }
        Some(_) => Finding::warning(
            about,
            format!("Kubernetes {shown} is older than any that is tested"),
            format!("upgrade it to {major}.{minor} or later"),
        ),
        None => Finding::warning(
            about,
            format!("does not say which release of Kubernetes it is ({shown:?})"),
            "see what answers at this address",
        ),
    }
}

/// Whether the clocks differ too much; `ahead` is by how much ours is ahead.
fn skewed(about: &str, ahead: SignedDuration) -> Option<Finding> {
    let seconds = ahead.as_secs();
    let direction = if seconds > 0 { "behind" } else { "ahead of" };
    (ahead.abs() > MAX_SKEW).then(|| {
        Finding::warning(
            about,
            format!("its clock is {} s {direction} that of this machine", seconds.abs()),
            "run NTP on both: tokens and certificates are judged by the clock",
        )
    })
}

#[cfg(test)]
mod tests {
    use http::Response;
    use tower::service_fn;

    use super::*;
    use crate::report::Level;

    const NOW: &str = "2026-11-26T18:00:00Z";

    /// What is found at a server that answers so.
    async fn found(status: u16, date: &'static str, body: String) -> Vec<(Level, String)> {
        let answer = service_fn(move |_: Request<Body>| {
            let answer = Response::builder().status(status).header(DATE, date);
            let answer = answer.body(Body::from(body.clone().into_bytes())).unwrap();
            async move { Ok::<_, std::convert::Infallible>(answer) }
        });
        let client = Client::new(answer, "default");
        let now = || NOW.parse().unwrap();
        let found = ask_server(&client, "home", now).await;
        found.into_iter().map(|finding| (finding.level, finding.what)).collect()
    }

    #[tokio::test]
    async fn a_credential_that_is_refused_is_no_matter_of_the_network() {
        let answer = service_fn(|_: Request<Body>| async {
            let answer = Response::builder().status(401).body(Body::empty()).unwrap();
            Ok::<_, std::convert::Infallible>(answer)
        });
        let client = Client::new(answer, "default");
        let found = ask_server(&client, "home", || NOW.parse().unwrap()).await;
        let fix = found[0].fix.as_deref().unwrap();
        assert!(fix.starts_with("renew the credentials"), "{fix}");
    }

    fn info(major: &str, minor: &str) -> String {
        let git = format!("v{major}.{minor}.1");
        serde_json::json!({"major": major, "minor": minor, "gitVersion": git, "gitCommit": "",
            "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "", "platform": ""})
        .to_string()
    }

    #[tokio::test]
    async fn each_thing_that_can_be_wrong_with_a_server_is_found() {
        const IN_TIME: &str = "Thu, 26 Nov 2026 18:00:10 GMT";
        const LATE: &str = "Thu, 26 Nov 2026 17:59:00 GMT";
        let long = format!("{{\"major\": \"{}\"}}", "1".repeat(MAX_VERSION_BYTES));
        for (status, date, body, level, expect) in [
            (200, IN_TIME, info("1", "34"), Level::Ok, "answers, Kubernetes v1.34.1"),
            (200, IN_TIME, info("1", "30+"), Level::Ok, "answers, Kubernetes v1.30+.1"),
            (200, IN_TIME, info("1", "29"), Level::Warning, "Kubernetes v1.29.1 is older than"),
            (200, IN_TIME, info("", ""), Level::Warning, "does not say which release"),
            (200, LATE, info("1", "34"), Level::Warning, "its clock is 60 s behind that of this"),
            (401, IN_TIME, "no token\n".into(), Level::Failure, "it answers 401 Unauthorized: no"),
            (200, IN_TIME, "[]".into(), Level::Failure, "its version cannot be read"),
            (200, IN_TIME, long, Level::Failure, "length limit exceeded"),
        ] {
            let found = found(status, date, body).await;
            let matches = |(l, what): &(Level, String)| *l == level && what.contains(expect);
            assert!(found.iter().any(matches), "{expect}: {found:?}");
        }
    }

    #[tokio::test]
    async fn a_server_that_cannot_be_reached_is_a_failure_with_its_cause() {
        let answer = service_fn(|_: Request<Body>| async {
            Err::<Response<Body>, _>(std::io::Error::other("no route to host"))
        });
        let client = Client::new(answer, "default");
        let found = ask_server(&client, "cluster east", || NOW.parse().unwrap()).await;
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].level, Level::Failure);
        let fix = found[0].fix.as_deref().unwrap();
        assert_eq!(fix, "see whether the server runs and can be reached from here");
        assert!(found[0].what.ends_with("no route to host"), "{}", found[0].what);
    }
}
