//! One API server: whether it answers, its version and its clock.

use http::Request;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::version::Info;
use kube::Client;

use crate::answer::{Refusal, SMALL_BYTES, ask};
use crate::report::Finding;

/// The oldest release of Kubernetes that is tested, as the chart's `kubeVersion` has it.
pub const OLDEST: (u32, u32) = (1, 30);
/// By how much a server's clock may differ from ours. Sharding does not depend on it, but certificates and tokens
/// do.
const MAX_SKEW: SignedDuration = SignedDuration::from_secs(30);
/// Of so many requests to home a share says something, and from which share on home is slow: where the alert begins.
const FEW: f64 = 100.0;
const SLOW_SHARE: f64 = 0.01;
/// An answer that takes longer is slow.
const SLOW: SignedDuration = SignedDuration::from_secs(1);
const FASTER: &str = "see whether the server or its etcd is overloaded, or far from here; of home, LeaseholdHomeSlow in \
                      the runbook says more";

/// Asks a server for its version. `now` gives the time on our clock.
pub async fn ask_server(client: &Client, about: &str, now: impl Fn() -> Timestamp) -> Vec<Finding> {
    let asked = now();
    let (said, date) = match version(client).await {
        Ok(answer) => answer,
        Err(Refusal { code, why }) => {
            let fix = model::error::remedy(code);
            return vec![Finding::failure(about, format!("does not answer: {why}"), fix)];
        }
    };
    let answered = now();
    let took = answered.duration_since(asked);
    let slow = (took > SLOW).then(|| {
        let what = format!("takes {:.1} s to answer", took.as_secs_f64());
        Finding::warning(about, what, FASTER)
    });
    let date = date.as_deref().and_then(http_date);
    let skewed = date.and_then(|date| skewed(about, answered.duration_since(date)));
    [Some(age(about, &said)), slow, skewed].into_iter().flatten().collect()
}

/// What a member's `/metrics` tell of how long home takes to answer it: none of a few requests, and if one in a hundred
/// at most takes longer than a second.
pub fn of_home_latency(member: &str, metrics: &str) -> Option<Finding> {
    let sum = |part: &str| -> f64 {
        let of = |line: &str| {
            let (labels, value) =
                line.strip_prefix("leasehold_home_request_seconds_")?.rsplit_once(' ')?;
            (labels.starts_with(part) && (part == "count" || labels.contains("le=\"1\"")))
                .then(|| value.parse::<f64>().ok())?
        };
        metrics.lines().filter_map(of).sum()
    };
    let (all, prompt) = (sum("count"), sum("bucket"));
    let share = (all - prompt) / all;
    let what = format!(
        "of its {all:.0} requests to home, {:.0} % took longer than a second",
        share * 100.0
    );
    (all >= FEW && share > SLOW_SHARE)
        .then(|| Finding::warning(format!("member {member}"), what, FASTER))
}

/// The version that a server says it has, and its Date.
async fn version(client: &Client) -> Result<(Info, Option<String>), Refusal> {
    let request = Request::get("/version").body(Vec::new()).expect("the path is one");
    let answer = ask(client, request, SMALL_BYTES).await?;
    let unreadable = |it: Refusal| Refusal { why: "its version cannot be read".to_owned(), ..it };
    Ok((answer.read().map_err(unreadable)?, answer.date))
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
    use http::header::DATE;
    use kube::client::Body;
    use tower::service_fn;

    use super::*;
    use crate::answer::tests::server;
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
        let found = ask_server(&server(401, ""), "home", || NOW.parse().unwrap()).await;
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
        let long = format!("{{\"major\": \"{}\"}}", "1".repeat(SMALL_BYTES));
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
    async fn a_server_that_takes_long_is_told() {
        let client = server(200, &info("1", "34"));
        let asked = std::cell::Cell::new(0);
        let now = || {
            asked.set(asked.get() + 3);
            NOW.parse::<Timestamp>().unwrap() + SignedDuration::from_secs(asked.get())
        };
        let found = ask_server(&client, "home", now).await;
        let found: Vec<_> = found.iter().map(|finding| finding.what.as_str()).collect();
        assert_eq!(found, ["answers, Kubernetes v1.34.1", "takes 3.0 s to answer"]);
    }

    #[test]
    fn a_home_that_often_takes_more_than_a_second_is_told() {
        let told = |all: u32, prompt: u32| {
            let of =
                |part: &str, count: u32| format!("leasehold_home_request_seconds_{part} {count}\n");
            let metrics = [
                of("bucket{verb=\"GET\",le=\"0.1\"}", 0),
                of("bucket{verb=\"GET\",le=\"1\"}", prompt),
                of("bucket{verb=\"GET\",le=\"10\"}", all),
                of("count{verb=\"GET\"}", all),
                of("bucket{verb=\"PUT\",le=\"1\"}", 100),
                of("count{verb=\"PUT\"}", 100),
            ];
            of_home_latency("m-0", &metrics.concat()).map(|finding| finding.what)
        };
        assert_eq!((told(100, 99), told(0, 0), of_home_latency("m-0", "")), (None, None, None));
        let what = "of its 200 requests to home, 5 % took longer than a second";
        assert_eq!(told(100, 90).as_deref(), Some(what));
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
