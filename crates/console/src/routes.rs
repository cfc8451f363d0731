//! The routes: each reads what is kept and answers with a page.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use explain::{NoObject, Sought};
use fleet::{Fleet, FleetEvents};
use jiff::Timestamp;
use maud::{Markup, html};
use model::{Clock, ClusterName, MemberId};
use queue::QueueStatus;
use serde::Deserialize;
use tokio::sync::Semaphore;

use crate::kept::{Kept, ReadAt};
use crate::page::{PATH, Tab, page};
use crate::source::{Said, Source};
use crate::{clusters, events, object, overview, queues};

/// What is said of a fleet that cannot be read, before its reason.
const UNREAD: &str = "The fleet cannot be read";
/// The longest text of a request that is looked for, in bytes.
const MAX_SOUGHT: usize = 1024;
/// How many pages of the fleet are made at once: of ten thousand clusters each takes a while.
const MAX_MADE: usize = 2;
/// What a page may load: our style, our script, and itself again.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The routes of the console.
pub fn router(source: Arc<dyn Source>, clock: Arc<dyn Clock>) -> Router {
    let places = Arc::new(Semaphore::new(MAX_MADE));
    let console = Console { source, clock, kept: Arc::default(), places };
    let text = |kind: &'static str, text: &'static str| {
        get(async move || ([(CONTENT_TYPE, kind)], text).into_response())
    };
    let pages = Router::new()
        .route("/", get(fleet))
        .route("/clusters", get(all_clusters))
        .route("/clusters/{cluster}", get(one_cluster))
        .route("/members/{member}", get(one_member))
        .route("/queues", get(all_queues))
        .route("/object", get(one_object))
        .route("/events", get(all_events))
        .route("/style.css", text("text/css", include_str!("style.css")))
        .route("/live.js", text("text/javascript", include_str!("live.js")))
        .fallback(unknown)
        .layer(map_response(harden))
        .with_state(console);
    Router::new().nest(PATH, pages)
}

#[derive(Clone)]
struct Console {
    source: Arc<dyn Source>,
    clock: Arc<dyn Clock>,
    kept: Arc<AllKept>,
    /// For pages that are made.
    places: Arc<Semaphore>,
}

#[derive(Default)]
struct AllKept {
    fleet: Kept<Result<Arc<Fleet>, String>>,
    queues: Kept<Said<Vec<QueueStatus>>>,
    events: Kept<Result<FleetEvents, String>>,
}

/// What a request asks for.
#[derive(Debug, Default, Deserialize)]
struct Asked {
    #[serde(default)]
    q: String,
    page: Option<usize>,
    #[serde(default)]
    object: String,
}

/// A page, or an error as one.
type Page = Result<Response, Response>;

impl Console {
    /// What was read of the fleet.
    async fn read(&self) -> Arc<ReadAt<Result<Arc<Fleet>, String>>> {
        let read = || {
            let fleet = self.source.fleet();
            Box::pin(async move { fleet.await.map(Arc::new) }) as _
        };
        self.kept.fleet.get(&self.clock, read).await
    }

    /// The fleet, and as of when.
    async fn fleet(&self, tab: Tab) -> Result<(Arc<Fleet>, Timestamp), Response> {
        let read = self.read().await;
        match &read.value {
            Ok(fleet) => Ok((Arc::clone(fleet), read.at)),
            Err(why) => Err(self.unread(tab, UNREAD, read.at, why)),
        }
    }

    /// A page that `make` makes of the fleet as of that time, apart from the threads that work.
    async fn of_fleet(
        self,
        tab: Tab,
        make: impl FnOnce(&Self, &Fleet, Timestamp) -> Response + Send + 'static,
    ) -> Page {
        let (fleet, at) = self.fleet(tab).await?;
        let place = Arc::clone(&self.places).acquire_owned().await.expect("it is never closed");
        let made = tokio::task::spawn_blocking(move || {
            let _place = place;
            make(&self, &fleet, at)
        });
        Ok(made.await.unwrap_or_else(|_| StatusCode::INTERNAL_SERVER_ERROR.into_response()))
    }

    /// A page of what was read at that time.
    fn page(&self, tab: Tab, title: &str, at: Timestamp, body: &Markup) -> Response {
        let page = page(tab, title, &self.source.about(), at, body).into_string();
        ([(CONTENT_TYPE, "text/html; charset=utf-8")], page).into_response()
    }

    fn unread(&self, tab: Tab, title: &str, at: Timestamp, why: &str) -> Response {
        let page = self.page(tab, title, at, &html! { p.problems { (why) } });
        (StatusCode::BAD_GATEWAY, page).into_response()
    }

    fn missing(&self, tab: Tab, at: Timestamp, why: &str) -> Response {
        let page = self.page(tab, "Not found", at, &html! { p.problems { (why) } });
        (StatusCode::NOT_FOUND, page).into_response()
    }
}

impl Asked {
    /// What is looked for, and the number of the part.
    fn part(&self) -> (&str, Option<usize>) {
        (if self.q.len() > MAX_SOUGHT { "" } else { self.q.trim() }, self.page)
    }
}

async fn fleet(State(console): State<Console>) -> Page {
    let make = |console: &Console, fleet: &Fleet, at: Timestamp| {
        console.page(Tab::Fleet, "Fleet", at, &overview::overview(fleet, at))
    };
    console.of_fleet(Tab::Fleet, make).await
}

async fn all_clusters(State(console): State<Console>, Query(asked): Query<Asked>) -> Page {
    let make = move |console: &Console, fleet: &Fleet, at: Timestamp| {
        let (wanted, number) = asked.part();
        console.page(Tab::Clusters, "Clusters", at, &clusters::list(fleet, wanted, number))
    };
    console.of_fleet(Tab::Clusters, make).await
}

async fn one_cluster(
    State(console): State<Console>,
    Path(name): Path<String>,
    Query(asked): Query<Asked>,
) -> Page {
    let tab = Tab::Clusters;
    let make = move |console: &Console, fleet: &Fleet, at: Timestamp| {
        let missing = || {
            let unread = fleet.unread_map(&name).map(|problem| problem.to_string());
            console.missing(tab, at, &unread.unwrap_or_else(|| unknown_name("cluster", &name)))
        };
        let cluster = name.parse::<ClusterName>().ok();
        let body = cluster.and_then(|cluster| clusters::one(fleet, &cluster, asked.part(), at));
        body.map_or_else(missing, |body| console.page(tab, &format!("Cluster {name}"), at, &body))
    };
    console.of_fleet(tab, make).await
}

async fn one_member(
    State(console): State<Console>,
    Path(name): Path<String>,
    Query(asked): Query<Asked>,
) -> Page {
    let tab = Tab::Fleet;
    let make = move |console: &Console, fleet: &Fleet, at: Timestamp| {
        let missing = || console.missing(tab, at, &unknown_name("member", &name));
        let member = name.parse::<MemberId>().ok();
        let body = member.and_then(|member| overview::member(fleet, &member, asked.part(), at));
        body.map_or_else(missing, |body| console.page(tab, &format!("Member {name}"), at, &body))
    };
    console.of_fleet(tab, make).await
}

async fn all_queues(State(console): State<Console>) -> Page {
    let home = console.read().await;
    let read = || console.source.queues(home.value.clone().unwrap_or_default());
    let said = console.kept.queues.get(&console.clock, read).await;
    let body = html! { (without_home(&home.value)) (queues::queues(&said.value)) };
    Ok(console.page(Tab::Queues, "Queues", said.at, &body))
}

async fn one_object(State(console): State<Console>, Query(asked): Query<Asked>) -> Page {
    let tab = Tab::Object;
    let ask = |wrong: Option<&str>| {
        let object = if wrong.is_some() { "" } else { asked.object.as_str() };
        console.page(tab, "Object", console.clock.wall(), &object::form(object, wrong))
    };
    let sought: Sought = match asked.object.trim() {
        "" => return Ok(ask(None)),
        long if long.len() > MAX_SOUGHT => {
            let wrong = format!("More than {MAX_SOUGHT} bytes name no object.");
            return Ok((StatusCode::BAD_REQUEST, ask(Some(&wrong))).into_response());
        }
        object => object.parse().map_err(|wrong: NoObject| {
            (StatusCode::BAD_REQUEST, ask(Some(&wrong.to_string()))).into_response()
        })?,
    };
    let home = console.read().await;
    let fleet = home.value.clone().unwrap_or_default();
    let said = console.source.explain(sought.clone(), Arc::clone(&fleet)).await;
    let shards = home.value.is_ok().then(|| fleet.shards_of(&sought.cluster));
    let body = html! {
        (without_home(&home.value))
        (object::explained(&sought, shards.as_deref(), &said, home.at))
    };
    Ok(console.page(tab, "Object", home.at, &body))
}

/// Why home cannot be read, on a page of what replicas say: they know it all the same.
fn without_home(read: &Result<Arc<Fleet>, String>) -> Markup {
    html! { @if let Err(why) = read { p.problems { (UNREAD) ": " (why) } } }
}

async fn all_events(State(console): State<Console>, Query(asked): Query<Asked>) -> Page {
    let read = console.kept.events.get(&console.clock, || console.source.events()).await;
    let (tab, at) = (Tab::Events, read.at);
    match &read.value {
        Ok(read) => Ok(console.page(tab, "Events", at, &events::events(read, asked.part(), at))),
        Err(why) => Err(console.unread(tab, "The Events cannot be read", at, why)),
    }
}

async fn unknown(State(console): State<Console>) -> Response {
    console.missing(Tab::Fleet, console.clock.wall(), "There is no such page.")
}

fn unknown_name(what: &str, name: &str) -> String {
    format!("Home knows no {what} {name:?}. It may be gone, or not there yet.")
}

/// What keeps a browser from doing more with a page than to show it.
async fn harden(mut response: Response) -> Response {
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread::{self, ThreadId};
    use std::time::Duration;

    use axum::body::Body;
    use axum::http::Request;
    use explain::{Explanation, Told};
    use fleet::{FleetEvent, UnreadObject};
    use futures::FutureExt;
    use http_body_util::BodyExt;
    use model::ManualClock;
    use queue::{FailingKey, FailureStatus};
    use sharding::api::Phase;
    use tower::ServiceExt;

    use super::*;
    use crate::source::Answer;
    use crate::source::tests::{down, fleet, shard};

    const EVIL: &str = "<script>alert(1)</script>";

    /// A fleet of so many clusters, in which everything that a cluster can say is markup.
    #[derive(Default)]
    struct Stub {
        clusters: usize,
        broken: bool,
        reads: AtomicUsize,
        /// Where the last page was made.
        made_on: Mutex<Option<ThreadId>>,
    }

    impl Source for Stub {
        fn about(&self) -> String {
            *self.made_on.lock().unwrap() = Some(thread::current().id());
            EVIL.into()
        }

        fn fleet(&self) -> Answer<Result<Fleet, String>> {
            self.reads.fetch_add(1, Ordering::Relaxed);
            let shards = (0..self.clusters).flat_map(|cluster| {
                let name = |range: &str| format!("c-{cluster:05}/widgets/{range}");
                ["0/2", "1/2"].map(|r| shard(&name(r), Some("m-0"), Phase::Owned))
            });
            let mut fleet = fleet(shards.collect());
            fleet.members[0].identity = EVIL.into();
            fleet.members[1].down_clusters = vec![down("c-00000", EVIL)];
            fleet.unread = vec![UnreadObject {
                resource: "shardmaps.leasehold.dev",
                name: "odd".into(),
                why: "shardmaps.leasehold.dev odd cannot be read".into(),
                later: None,
            }];
            let read = if self.broken { Err(EVIL.to_owned()) } else { Ok(fleet) };
            async move { read }.boxed()
        }

        fn queues(&self, _: Arc<Fleet>) -> Answer<Said<Vec<QueueStatus>>> {
            let failure = FailureStatus {
                result: "failed".into(),
                error: EVIL.into(),
                times: 3,
                last_seconds: 1.0,
                first_seconds: 9.0,
            };
            let queue = QueueStatus {
                controller: "widgets".parse().unwrap(),
                resource: Some("widgets.example.com".into()),
                depth: 1,
                delayed: 0,
                running: 0,
                oldest_seconds: 0.5,
                clusters: [("c-00000".parse().unwrap(), 1)].into(),
                longest: Vec::new(),
                failing: vec![FailingKey { key: "c-00000/ns/a&b".into(), failure }],
            };
            async { vec![("m-0".into(), Ok(vec![queue])), (EVIL.into(), Err(EVIL.into()))] }.boxed()
        }

        fn explain(&self, sought: Sought, _: Arc<Fleet>) -> Answer<Said<Told>> {
            let explanation = Explanation {
                controllers: Vec::new(),
                kinds: vec![EVIL.into()],
                held_back: None,
                quarantined: Some(EVIL.into()),
            };
            let (configured, down) = (true, Some(format!("{EVIL} {}", sought.name)));
            let told = Told { member: EVIL.into(), configured, down, explanation };
            async { vec![("m-0".into(), Ok(told))] }.boxed()
        }

        fn events(&self) -> Answer<Result<FleetEvents, String>> {
            let event = FleetEvent {
                at: jiff::Timestamp::UNIX_EPOCH,
                warning: true,
                reason: EVIL.into(),
                about: EVIL.into(),
                related: None,
                note: EVIL.into(),
                by: EVIL.into(),
            };
            async { Ok(FleetEvents { all: vec![event], is_cut: true }) }.boxed()
        }
    }

    fn console(stub: Stub) -> (Router, Arc<Stub>, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::new(jiff::Timestamp::UNIX_EPOCH));
        let source = Arc::new(stub);
        (router(Arc::clone(&source) as _, Arc::clone(&clock) as _), source, clock)
    }

    async fn get(router: &Router, path: &str) -> (u16, String) {
        let request = Request::get(path).body(Body::empty()).unwrap();
        let answer = router.clone().oneshot(request).await.unwrap();
        assert_eq!(answer.headers()[CONTENT_SECURITY_POLICY], POLICY, "{path}");
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn each_page_shows_what_there_is_and_never_runs_what_a_cluster_says() {
        let (router, ..) = console(Stub { clusters: 3, ..Stub::default() });
        for (path, code, expect) in [
            ("/console", 200, "down for some member"),
            ("/console/clusters?q=00001", 200, "/console/clusters/c-00001"),
            ("/console/clusters/c-00000", 200, "c-00000/widgets/0/2"),
            ("/console/clusters/c-9", 404, "Home knows no cluster"),
            ("/console/clusters/odd", 404, "odd cannot be read"),
            ("/console/clusters/%3Cscript%3E", 404, "Home knows no cluster"),
            ("/console/members/m-0", 200, "c-00002/widgets/1/2"),
            ("/console/members/m-9", 404, "Home knows no member"),
            ("/console/queues", 200, "?object=c-00000%2Fwidgets.example.com%2Fns%2Fa%26b"),
            ("/console/object", 200, "CLUSTER/KIND/NAMESPACE/NAME"),
            ("/console/object?object=c-00000/widgets/ns/a", 200, "c-00000/widgets/0/2"),
            ("/console/object?object=%3Cscript%3E", 400, "names no object"),
            ("/console/events", 200, "alert(1)"),
            ("/console/events", 200, "there are more Events than are read"),
            ("/console/nothing", 404, "There is no such page"),
            ("/console/style.css", 200, "prefers-color-scheme"),
            ("/console/live.js", 200, "fetch(location.href"),
        ] {
            let (found, text) = get(&router, path).await;
            assert_eq!(found, code, "{path}: {text}");
            assert!(text.contains(expect), "{path}: {text}");
            let scripts = text.matches("<script").count();
            assert_eq!(scripts, usize::from(text.contains("<html")), "{path}: {text}");
        }
        let long = "x".repeat(MAX_SOUGHT + 1);
        let (code, _) = get(&router, &format!("/console/object?object={long}")).await;
        assert_eq!(code, 400);
    }

    #[tokio::test]
    async fn a_fleet_that_cannot_be_read_is_said_with_its_reason() {
        let (router, ..) = console(Stub { broken: true, ..Stub::default() });
        for (path, code, told) in [
            ("/console", 502, ""),
            ("/console/clusters", 502, ""),
            // Replicas need no home to say what they know.
            ("/console/queues", 200, "Answers of 1 of 2 replicas"),
            ("/console/object?object=c-00000/widgets/ns/a", 200, "cannot use cluster c-00000"),
        ] {
            let (found, text) = get(&router, path).await;
            assert_eq!(found, code, "{path}: {text}");
            assert!(text.contains(UNREAD) && text.contains(told), "{path}: {text}");
            assert!(text.contains("&lt;script&gt;alert(1)"), "{path}: {text}");
            assert!(!text.contains("Home has none"), "{path}: {text}");
        }
    }

    #[tokio::test]
    async fn pages_of_a_large_fleet_are_bounded_and_readers_share_what_is_read() {
        let (router, source, clock) = console(Stub { clusters: 10_000, ..Stub::default() });
        for path in ["/console", "/console/clusters?page=7", "/console/members/m-0"] {
            let (code, text) = get(&router, path).await;
            assert_eq!(code, 200);
            assert!(text.len() < 128 << 10, "{path}: {} bytes", text.len());
            let made_on = source.made_on.lock().unwrap().take();
            assert_ne!(made_on, Some(thread::current().id()), "{path}: threads that work made it");
        }
        assert_eq!(source.reads.load(Ordering::Relaxed), 1, "within two seconds");
        clock.advance(Duration::from_secs(1));
        let (_, text) = get(&router, "/console").await;
        assert!(text.contains("1970-01-01 00:00:00 UTC"), "it says when it was read: {text}");
        clock.advance(Duration::from_secs(1));
        get(&router, "/console").await;
        assert_eq!(source.reads.load(Ordering::Relaxed), 2);
    }
}
