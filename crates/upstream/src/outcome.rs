//! What the end of a request says about the cluster, apart from what it says to the sender.
//!
//! | how a request ends | breaker | limit | pause |
//! |---|---|---|---|
//! | no connection, one that breaks, no head of an answer in time | failure | | |
//! | 502, 503, 504 | failure | halved | `Retry-After` |
//! | 429 | answered | halved | `Retry-After` |
//! | any other answer, refusals and 500 included, and the 429 of an eviction | answered | grows if used, shrinks if slow | |
//! | dropped by its sender after [`UNANSWERED`], while nothing at all was heard | failure | | |
//! | dropped otherwise | nothing | nothing | |
//!
//! A request without an answer does not change the limit: requests that hang keep their places, and a
//! limit below their number would block all requests. Once they open the breaker, the limit starts
//! over.
//!
//! A 4xx is about the request: the server is there and has read it. So does a 500: one
//! broken webhook is enough to cause it. A proxy before a server that is gone answers 502, 503 or 504.
//! Where only one API of many is unavailable that way, answers of the others keep the breaker closed.

use std::time::Duration;

use http::header::RETRY_AFTER;
use http::{HeaderMap, StatusCode};

/// A request without an answer for this long counts as failed even if its sender gave up, as a write
/// does when the Lease ends.
pub(crate) const UNANSWERED: Duration = Duration::from_secs(1);
/// The longest `Retry-After` that is honoured in full.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// How a request ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answered.
    Answered,
    /// Refused by a server that has too much to do.
    Overloaded {
        /// The answer.
        cause: String,
        /// When it wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// Answered by a proxy before a server that is gone or not ready.
    Unavailable {
        /// The answer.
        cause: String,
        /// When it wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// Not answered.
    Unanswered {
        /// What happened instead.
        cause: String,
    },
    /// Dropped by its sender.
    Dropped,
}

impl Outcome {
    /// The outcome that the head of an answer tells.
    pub fn of(path: &str, status: StatusCode, headers: &HeaderMap) -> Self {
        let retry_after = retry_after(headers);
        let cause = || format!("the server answers {status}");
        match status {
            // A PodDisruptionBudget refuses, not an overloaded server.
            StatusCode::TOO_MANY_REQUESTS if path.ends_with("/eviction") => Self::Answered,
            StatusCode::TOO_MANY_REQUESTS => Self::Overloaded { cause: cause(), retry_after },
            StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE
            | StatusCode::GATEWAY_TIMEOUT => Self::Unavailable { cause: cause(), retry_after },
            _ => Self::Answered,
        }
    }

    /// No answer came, for this reason.
    pub fn unanswered(error: &(dyn std::error::Error + 'static)) -> Self {
        Self::Unanswered { cause: model::error::chain(error) }
    }
}

/// In seconds, as API servers send it. Dates are ignored: no API server sends one.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds).min(MAX_RETRY_AFTER))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_about_the_cluster_or_about_the_request() {
        let pod = "/api/v1/namespaces/ns/pods/a";
        let eviction = "/api/v1/namespaces/ns/pods/a/eviction";
        for (path, status, header, expect) in [
            (pod, 200, "", "answered"),
            (pod, 400, "", "answered"),
            (pod, 401, "", "answered"),
            (pod, 403, "", "answered"),
            (pod, 404, "", "answered"),
            (pod, 409, "", "answered"),
            (pod, 410, "", "answered"),
            (pod, 422, "", "answered"),
            (pod, 500, "1", "answered"),
            (eviction, 429, "10", "answered"),
            (pod, 429, "", "overloaded None"),
            (pod, 429, "3", "overloaded Some(3s)"),
            (pod, 429, "99999", "overloaded Some(60s)"),
            (pod, 429, "Wed, 21 Oct 2015 07:28:00 GMT", "overloaded None"),
            (pod, 502, "", "unavailable None"),
            (pod, 503, "1", "unavailable Some(1s)"),
            (eviction, 504, "", "unavailable None"),
        ] {
            let mut headers = HeaderMap::new();
            if !header.is_empty() {
                headers.insert(RETRY_AFTER, header.parse().unwrap());
            }
            let found = Outcome::of(path, StatusCode::from_u16(status).unwrap(), &headers);
            let found = match found {
                Outcome::Answered => "answered".to_owned(),
                Outcome::Overloaded { retry_after, .. } => format!("overloaded {retry_after:?}"),
                Outcome::Unavailable { retry_after, .. } => format!("unavailable {retry_after:?}"),
                Outcome::Unanswered { .. } | Outcome::Dropped => "no answer".to_owned(),
            };
            assert_eq!(found, expect, "{status} {path}");
        }
    }
}
