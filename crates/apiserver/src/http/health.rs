//! Probes and the version.

use http::{Response, StatusCode};
use serde_json::json;

use super::answer::{self, Body};
use super::options::Query;

/// The Kubernetes version whose behaviour we follow.
pub(super) const MINOR: &str = "37";
/// The same as a full version.
pub(super) const GIT_VERSION: &str = "v1.37.0+leasehold";

/// A server that answers is alive, ready and healthy, because all of it is in this process.
pub(super) fn probe(path: &str, query: &Query) -> Response<Body> {
    let name = path.trim_matches('/').split('/').next().unwrap_or_default();
    let text = if query.flag("verbose").is_some() || query.all("verbose").len() == 1 {
        format!("[+]ping ok\n[+]store ok\n{name} check passed\n")
    } else {
        "ok".to_owned()
    };
    answer::typed(StatusCode::OK, "text/plain; charset=utf-8", text)
}

/// `/version`.
pub(super) fn version() -> Response<Body> {
    answer::value(
        StatusCode::OK,
        &json!({
            "major": "1", "minor": MINOR, "gitVersion": GIT_VERSION,
            "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": "", "compiler": "rustc",
            "platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
        }),
    )
}
