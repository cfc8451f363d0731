//! The routes: each reads a handle of [`Admin`] and answers.

use axum::Router;
use axum::extract::{Path, Query, RawQuery, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use telemetry::Format;

use crate::guard::{CONSOLE, guarded};
use crate::pages::LargePages;
use crate::readiness::Readiness;
use crate::{Admin, probe};

/// Where objects are explained.
const EXPLAIN: &str = "/debug/explain";
const JSON: &str = "application/json";
/// The longest name of an object in a request, in bytes: cluster, kind, namespace and name.
const MAX_OBJECT: usize = 1024;

/// Every route. Where probes are served elsewhere too, those here are guarded like the rest.
pub(crate) fn everything(admin: &Admin, probes_elsewhere: bool) -> Router {
    let large = (admin.clone(), LargePages::default());
    let pages = Router::new()
        .route("/", get(index))
        .route("/metrics", get(metrics).with_state(large.clone()))
        .route(EXPLAIN, get(explain))
        .route("/debug/{view}", get(debug).with_state(large))
        .fallback(unknown)
        .with_state(admin.clone())
        .merge(admin.console.clone().unwrap_or_default());
    let guard = |routes: Router| match admin.guard.clone() {
        Some(guard) => routes.layer(from_fn_with_state(guard, guarded)),
        None => routes,
    };
    if probes_elsewhere {
        guard(pages.merge(checks(admin, false)))
    } else {
        guard(pages).merge(open_checks(admin))
    }
}

/// The probes alone, for whoever asks.
pub(crate) fn probes(admin: &Admin) -> Router {
    let no_probe = async || (StatusCode::NOT_FOUND, "only /livez, /readyz and /healthz are here\n");
    open_checks(admin).fallback(no_probe)
}

/// The probes for whoever asks. A guard withholds their reasons, which may say more than a stranger should
/// know.
fn open_checks(admin: &Admin) -> Router {
    checks(admin, admin.guard.is_some())
}

fn checks(admin: &Admin, withheld: bool) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/healthz", get(healthz))
        .with_state(Probes { admin: admin.clone(), withheld })
}

/// What the probes answer with.
#[derive(Clone)]
struct Probes {
    admin: Admin,
    withheld: bool,
}

async fn index(State(admin): State<Admin>) -> String {
    let mut text = String::from("Leasehold\n\n");
    for (path, what) in [
        ("/livez", "the process answers; ?verbose lists the checks"),
        ("/readyz", "ready to work; ?verbose lists the checks"),
        ("/healthz", "the same as /livez"),
        ("/metrics", "Prometheus metrics"),
    ] {
        text.push_str(&format!("{path:<18}{what}\n"));
    }
    for view in admin.debug.keys() {
        text.push_str(&format!("{:<18}as JSON\n", format!("/debug/{view}")));
    }
    text.push_str(&format!("{EXPLAIN:<18}?object=CLUSTER/KIND/NAMESPACE/NAME, as JSON\n"));
    if admin.console.is_some() {
        text.push_str(&format!("{CONSOLE:<18}pages for people\n"));
    }
    text
}

async fn livez(State(probes): State<Probes>, RawQuery(query): RawQuery) -> Response {
    probes.live("livez", query).await
}

/// By custom this is a probe of liveness: what a restart does not repair must not fail it.
async fn healthz(State(probes): State<Probes>, RawQuery(query): RawQuery) -> Response {
    probes.live("healthz", query).await
}

async fn readyz(State(probes): State<Probes>, RawQuery(query): RawQuery) -> Response {
    let mut ready = (probes.admin.ready)();
    ready.checks.extend(probe::check_all(&probes.admin.readiness).await);
    probes.answer("readyz", query, ready)
}

impl Probes {
    async fn live(&self, path: &str, query: Option<String>) -> Response {
        let checks = probe::check_all(&self.admin.liveness).await;
        self.answer(path, query, Readiness { checks })
    }

    fn answer(&self, path: &str, query: Option<String>, mut readiness: Readiness) -> Response {
        let verbose = query
            .as_deref()
            .into_iter()
            .flat_map(|query| query.split('&'))
            .any(|pair| pair == "verbose" || pair.starts_with("verbose="));
        if self.withheld {
            readiness.withhold();
        }
        let status =
            if readiness.is_ready() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        (status, readiness.text(path, verbose)).into_response()
    }
}

async fn metrics(
    State((admin, pages)): State<(Admin, LargePages)>,
    headers: HeaderMap,
) -> Response {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let format = Format::accepted(accept);
    let render = move || telemetry::encode(&admin.registry, format);
    pages.answer(&headers, format.media_type(), render).await
}

async fn debug(
    State((admin, pages)): State<(Admin, LargePages)>,
    Path(view): Path<String>,
    headers: HeaderMap,
) -> Response {
    let Some(read) = admin.debug.get(view.as_str()).cloned() else {
        let known: Vec<_> = admin.debug.keys().map(|name| format!("/debug/{name}")).collect();
        let text = format!("there is no view {view:?}; there are {}\n", known.join(", "));
        return (StatusCode::NOT_FOUND, text).into_response();
    };
    pages.answer(&headers, JSON, move || json(&read())).await
}

async fn explain(
    State(admin): State<Admin>,
    Query(pairs): Query<Vec<(String, String)>>,
) -> Response {
    let object = pairs.iter().find(|(name, _)| name == "object");
    let object = object.map_or("", |(_, object)| object.as_str());
    let answer = match object.len() {
        0 => Err("say which object: ?object=CLUSTER/KIND/NAMESPACE/NAME".to_owned()),
        length if length > MAX_OBJECT => {
            Err(format!("more than {MAX_OBJECT} bytes name no object"))
        }
        _ => (admin.explain)(object),
    };
    match answer {
        Ok(answer) => ([(CONTENT_TYPE, JSON)], json(&answer)).into_response(),
        Err(wrong) => (StatusCode::BAD_REQUEST, wrong + "\n").into_response(),
    }
}

/// A value as JSON for people.
fn json(value: &serde_json::Value) -> String {
    serde_json::to_string_pretty(value).expect("a JSON value always serialises") + "\n"
}

async fn unknown() -> (StatusCode, &'static str) {
    (StatusCode::NOT_FOUND, "no such page; / lists them\n")
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::body::Body;
    use axum::http::Request;
    use http_body_util::BodyExt;
    use tower::ServiceExt;

    use super::*;
    use crate::{CHECK_TIMEOUT, Check, Guard, Probe, ReviewFn, Verdict, ViewFn};

    fn admin(ready: bool) -> Admin {
        let registry = prometheus::Registry::new();
        let gauge = prometheus::IntGauge::new("leasehold_shards_unowned", "Shards.").unwrap();
        registry.register(Box::new(gauge)).unwrap();
        let shards: ViewFn = Arc::new(|| serde_json::json!({"member": "replica-0-x7"}));
        let outcome = if ready { Ok(()) } else { Err("no answer yet".to_owned()) };
        Admin {
            registry,
            ready: Arc::new(move || Readiness {
                checks: vec![Check::new("home", outcome.clone())],
            }),
            readiness: Vec::new(),
            liveness: Vec::new(),
            debug: [("shards", shards)].into(),
            explain: Arc::new(|object| match object {
                "east/Pod/a/b" => Ok(serde_json::json!({"member": "replica-0-x7"})),
                other => Err(format!("{other:?} names no object")),
            }),
            console: Some(
                Router::new().route("/console/clusters", axum::routing::get(async || "east")),
            ),
            guard: None,
        }
    }

    async fn get(ready: bool, path: &str) -> (u16, String, String) {
        ask(admin(ready), path).await
    }

    async fn ask(admin: Admin, path: &str) -> (u16, String, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        answered(everything(&admin, false).oneshot(request).await.unwrap()).await
    }

    async fn answered(response: Response) -> (u16, String, String) {
        let kind = response.headers()[CONTENT_TYPE].to_str().unwrap().to_owned();
        let status = response.status().as_u16();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, kind, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn each_probe_says_what_fails() {
        for (ready, path, status, body) in [
            (true, "/livez", 200, "ok"),
            (false, "/livez", 200, "ok"),
            (true, "/readyz", 200, "ok"),
            (true, "/readyz?verbose", 200, "[+]home ok\nreadyz check passed\n"),
            (false, "/healthz?timeout=1s&verbose=1", 200, "healthz check passed\n"),
            (false, "/readyz", 503, "[-]home failed: no answer yet\nreadyz check failed\n"),
            (false, "/healthz", 200, "ok"),
        ] {
            let (found, _, text) = get(ready, path).await;
            assert_eq!((found, text.as_str()), (status, body), "{path}, ready: {ready}");
        }
    }

    #[tokio::test]
    async fn checks_of_the_program_are_listed_with_ours() {
        let probe = |name: &str, outcome: Result<(), &'static str>| {
            Probe::new(name, CHECK_TIMEOUT, move || async move { outcome.map_err(str::to_owned) })
        };
        let with = |live| Admin {
            readiness: vec![probe("database", Ok(()))],
            liveness: vec![probe("loop", live)],
            ..admin(true)
        };
        for (live, path, status, body) in [
            (Ok(()), "/livez", 200, "ok"),
            (Ok(()), "/livez?verbose", 200, "[+]loop ok\nlivez check passed\n"),
            (Err("stuck"), "/livez", 503, "[-]loop failed: stuck\nlivez check failed\n"),
            (Err("stuck"), "/readyz", 200, "ok"),
            (Ok(()), "/readyz?verbose", 200, "[+]home ok\n[+]database ok\nreadyz check passed\n"),
            (
                Err("stuck"),
                "/healthz?verbose",
                503,
                "[-]loop failed: stuck\nhealthz check failed\n",
            ),
        ] {
            let (found, _, text) = ask(with(live), path).await;
            assert_eq!((found, text.as_str()), (status, body), "{path}, {live:?}");
        }
    }

    #[tokio::test]
    async fn metrics_are_prometheus_text() {
        let (status, kind, text) = get(true, "/metrics").await;
        assert_eq!((status, kind.as_str()), (200, Format::Prometheus.media_type()));
        assert!(text.contains("leasehold_shards_unowned 0\n"), "{text}");
    }

    #[tokio::test]
    async fn views_are_json_and_an_unknown_one_names_the_known() {
        let (status, kind, text) = get(true, "/debug/shards").await;
        assert_eq!((status, kind.as_str()), (200, "application/json"));
        assert_eq!(text, "{\n  \"member\": \"replica-0-x7\"\n}\n");

        let (status, _, text) = get(true, "/debug/shrads").await;
        assert_eq!(status, 404);
        assert_eq!(text, "there is no view \"shrads\"; there are /debug/shards\n");
    }

    /// With a thousand clusters a view has megabytes too.
    #[tokio::test]
    async fn views_are_rendered_elsewhere_and_who_takes_them_slowly_keeps_no_memory() {
        let here = std::thread::current().id();
        let large: ViewFn = Arc::new(move || {
            assert_ne!(std::thread::current().id(), here, "the threads that work do other things");
            serde_json::Value::from("x".repeat(20 << 20))
        });
        let routes = everything(&Admin { debug: [("large", large)].into(), ..admin(true) }, false);
        let ask = async || {
            let request = Request::get("/debug/large").body(Body::empty()).unwrap();
            routes.clone().oneshot(request).await.unwrap()
        };
        let (first, second) = (ask().await, ask().await);
        assert_eq!(first.status(), 200, "a view that panics has no page");
        first.into_body().collect().await.unwrap_err();
        assert!(second.into_body().collect().await.unwrap().to_bytes().len() > 20 << 20);
    }

    #[tokio::test]
    async fn an_object_is_explained_and_a_wrong_question_is_answered_with_its_fault() {
        for object in ["east/Pod/a/b", "east%2FPod%2Fa%2Fb"] {
            let path = format!("/debug/explain?object={object}&verbose");
            let (status, kind, text) = get(true, &path).await;
            assert_eq!((status, kind.as_str()), (200, "application/json"), "{path}");
            assert_eq!(text, "{\n  \"member\": \"replica-0-x7\"\n}\n");
        }
        for (query, expect) in [
            ("?object=x%23%2By", "\"x#+y\" names no object"),
            ("", "say which object"),
            ("?objects=x", "say which object"),
            ("?object=x", "\"x\" names no object"),
            (&format!("?object={}", "x".repeat(MAX_OBJECT + 1)), "more than 1024 bytes"),
        ] {
            let (status, _, text) = get(true, &format!("/debug/explain{query}")).await;
            assert_eq!(status, 400, "{query}");
            assert!(text.starts_with(expect), "{query}: {text}");
        }
    }

    #[tokio::test]
    async fn the_index_lists_every_page_and_every_page_answers() {
        let (_, _, index) = get(true, "/").await;
        let paths: Vec<_> = index.lines().filter_map(|line| line.split(' ').next()).collect();
        let paths: Vec<_> = paths.into_iter().filter(|path| path.starts_with('/')).collect();
        let expect =
            ["/livez", "/readyz", "/healthz", "/metrics", "/debug/shards", EXPLAIN, CONSOLE];
        assert_eq!(paths, expect);
        for path in paths {
            let path = if path == CONSOLE { "/console/clusters" } else { path };
            let status = if path == EXPLAIN { 400 } else { 200 };
            assert_eq!(get(true, path).await.0, status, "{path}");
        }
        assert_eq!(get(true, "/nothing").await.0, 404);
    }

    /// With a guard that knows one token: what of each path a stranger sees, and what its owner.
    #[tokio::test]
    async fn a_guard_keeps_all_but_bare_probes_from_strangers() {
        let review: ReviewFn = Arc::new(|token, _| {
            let verdict = if token == "good" { Verdict::Allowed } else { Verdict::Unknown };
            Box::pin(async move { Ok(verdict) })
        });
        let clock = Arc::new(model::ManualClock::new(jiff::Timestamp::UNIX_EPOCH));
        let admin = Admin { guard: Some(Guard::new(review, clock)), ..admin(false) };
        let ask = async |routes: Router, path: &str, token: &str| {
            let request = Request::get(path).header("authorization", format!("Bearer {token}"));
            answered(routes.oneshot(request.body(Body::empty()).unwrap()).await.unwrap()).await
        };
        let withheld = "[-]home failed: reason withheld\nreadyz check failed\n";
        let told = "[-]home failed: no answer yet\nreadyz check failed\n";
        for path in [
            "/",
            "/metrics",
            "/debug/shards",
            "/debug/explain?object=east/Pod/a/b",
            "/console/clusters",
            "/console/nothing",
            "/debug/nothing",
            "/nothing",
        ] {
            for elsewhere in [false, true] {
                let (status, _, text) = ask(everything(&admin, elsewhere), path, "bad").await;
                assert_eq!(status, 401, "{path}: {text}");
                let (status, ..) = ask(everything(&admin, elsewhere), path, "good").await;
                assert_eq!(status, if path.ends_with("nothing") { 404 } else { 200 }, "{path}");
            }
        }
        for (routes, token, expect) in [
            (everything(&admin, false), "good", (503, withheld)),
            (everything(&admin, false), "bad", (503, withheld)),
            (probes(&admin), "good", (503, withheld)),
            (everything(&admin, true), "good", (503, told)),
        ] {
            let (status, _, text) = ask(routes, "/readyz", token).await;
            assert_eq!((status, text.as_str()), expect, "{token}");
        }
        // A browser shows a token as the password of anybody, and only to the console.
        let good = format!("Basic {}", data_encoding::BASE64.encode(b"me:good"));
        for (path, header, expect) in [
            ("/console/clusters", good.as_str(), (200, None)),
            ("/console/clusters", "Basic bWU6YmFk", (401, Some("Basic"))),
            ("/consoles", good.as_str(), (401, Some("Bearer"))),
            ("/metrics", good.as_str(), (401, Some("Bearer"))),
        ] {
            let request = Request::get(path).header("authorization", header);
            let request = request.body(Body::empty()).unwrap();
            let answer = everything(&admin, true).oneshot(request).await.unwrap();
            let asks = answer.headers().get("www-authenticate").map(|asks| asks.to_str().unwrap());
            let scheme = asks.and_then(|asks| asks.split(' ').next());
            assert_eq!((answer.status().as_u16(), scheme), expect, "{path}");
        }
        let (status, ..) = ask(everything(&admin, true), "/readyz", "bad").await;
        assert_eq!(status, 401);
        let (status, _, text) = ask(probes(&admin), "/metrics", "good").await;
        assert_eq!(status, 404, "probes have nothing else: {text}");
    }
}
