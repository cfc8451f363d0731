//! `leasehold console`: pages about a fleet, served on this machine for whoever runs the command. It is read with that
//! user's rights, so whoever else is on the machine must not see it: the address that is printed has a key, which the
//! browser keeps as a cookie.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{COOKIE, HOST, SET_COOKIE};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use clock::SystemClock;
use console::{Answer, PATH, Said, Source};
use explain::{Sought, Told};
use fleet::{Fleet, FleetEvents};
use futures::FutureExt;
use queue::QueueStatus;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::net::TcpListener;

use crate::home::{HomeArgs, HomeCluster};
use crate::output::print;
use crate::program::Program;
use crate::replicas::{AskArgs, Replicas};
use crate::{explain as explaining, top};

/// Arguments of `leasehold console`.
#[derive(Debug, clap::Args)]
pub(crate) struct ConsoleArgs {
    /// The port on 127.0.0.1. With 0 the system takes a free one.
    #[arg(long, value_name = "PORT", default_value_t = 8090)]
    port: u16,
    /// How the replicas are asked.
    #[command(flatten)]
    ask: AskArgs,
    /// Which fleet.
    #[command(flatten)]
    home: HomeArgs,
}

/// Serves the pages until interrupted.
///
/// # Errors
/// When the home cluster cannot be named, or cannot be read and no addresses are given, or the port is taken.
pub(crate) async fn run(args: &ConsoleArgs, program: &Program) -> anyhow::Result<ExitCode> {
    let home = program.home(&args.home).await?;
    let pods = args.ask.pods(&home, program.connect).await?;
    // Whoever cannot read it learns that here, not in a browser.
    Replicas::of(&pods, &args.ask)?.or_without(home.fleet().await)?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, args.port)).await;
    let listener = listener
        .with_context(|| format!("listen on 127.0.0.1:{}; give another with --port", args.port))?;
    let address = listener.local_addr()?;
    let source = Arc::new(People { home, pods, ask: args.ask.clone() });
    let door = ConsoleDoor { address, key: draw()? };
    print(&format!("http://{address}{PATH}?key={}\n", door.key))?;
    let router = console::router(source, Arc::new(SystemClock))
        .route("/", get(async || Redirect::temporary(PATH)))
        .layer(from_fn_with_state(Arc::new(door), ours));
    let interrupted = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    serve(listener, router, interrupted).await?;
    Ok(ExitCode::SUCCESS)
}

/// Serves until `stop`; who is still reading then is cut off.
async fn serve(
    listener: TcpListener,
    router: Router,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<()> {
    tokio::select! {
        served = axum::serve(listener, router) => served.context("serve the console"),
        () = stop => Ok(()),
    }
}

/// Who is let in.
struct ConsoleDoor {
    address: SocketAddr,
    /// What those show who were told the address by the command.
    key: String,
}

/// A key that nobody guesses.
fn draw() -> anyhow::Result<String> {
    let mut bytes = [0; 16];
    SystemRandom::new()
        .fill(&mut bytes)
        .ok()
        .context("draw a key: the system gives no random bytes")?;
    Ok(format!("{:032x}", u128::from_be_bytes(bytes)))
}

impl ConsoleDoor {
    /// The name of the cookie: browsers send the cookies of a machine to all its ports.
    fn cookie(&self) -> String {
        format!("leasehold-console-{}", self.address.port())
    }

    fn has_key(&self, request: &Request) -> bool {
        let pairs = request.uri().query().unwrap_or_default().split('&');
        let asked = pairs.filter_map(|pair| pair.strip_prefix("key="));
        let (cookies, name) = (request.headers().get_all(COOKIE), self.cookie());
        let cookies = cookies.iter().filter_map(|cookies| cookies.to_str().ok());
        let pairs = cookies.flat_map(|cookies| cookies.split(';'));
        let kept = pairs.filter_map(|pair| pair.trim().strip_prefix(&*name)?.strip_prefix('='));
        asked.chain(kept).any(|key| is_same(key, &self.key))
    }
}

/// Whether two texts are the same, in a time that does not depend on where they differ.
fn is_same(one: &str, other: &str) -> bool {
    let differs = one.bytes().zip(other.bytes()).fold(0, |differs, (a, b)| differs | (a ^ b));
    one.len() == other.len() && differs == 0
}

/// Answers only who has the key and asks for this machine by its own name: a page of a stranger whose name leads here
/// would read the fleet with its visitor's rights.
async fn ours(State(door): State<Arc<ConsoleDoor>>, request: Request, next: Next) -> Response {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    let (address, port) = (door.address, door.address.port());
    let is_ours =
        host.is_some_and(|host| host == address.to_string() || host == format!("localhost:{port}"));
    if !is_ours {
        let text = format!("ask for http://{address} or http://localhost:{port}\n");
        return (StatusCode::MISDIRECTED_REQUEST, text).into_response();
    }
    if !door.has_key(&request) {
        let text = "open the address that `leasehold console` has printed: it has a key\n";
        return (StatusCode::UNAUTHORIZED, text).into_response();
    }
    let mut response = next.run(request).await;
    let cookie = format!("{}={}; Path=/; HttpOnly; SameSite=Strict", door.cookie(), door.key);
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    response
}

/// A fleet with the rights of whoever runs the command.
struct People {
    home: HomeCluster,
    /// Where the replicas' Pods are.
    pods: HomeCluster,
    ask: AskArgs,
}

impl Source for People {
    fn about(&self) -> String {
        self.home.namespace.clone()
    }

    fn fleet(&self) -> Answer<Result<Fleet, String>> {
        let home = self.home.clone();
        async move { home.fleet().await.map_err(said) }.boxed()
    }

    fn queues(&self, fleet: Arc<Fleet>) -> Answer<Said<Vec<QueueStatus>>> {
        let (pods, ask) = (self.pods.clone(), self.ask.clone());
        async move {
            match Replicas::of(&pods, &ask) {
                Ok(replicas) => top::queues(&replicas, &fleet)
                    .await
                    .into_iter()
                    .map(|(replica, said_)| (replica.member, said_.map_err(said)))
                    .collect(),
                Err(error) => vec![("replicas".to_owned(), Err(said(error)))],
            }
        }
        .boxed()
    }

    fn explain(&self, sought: Sought, fleet: Arc<Fleet>) -> Answer<Said<Told>> {
        let (pods, ask) = (self.pods.clone(), self.ask.clone());
        async move {
            match Replicas::of(&pods, &ask) {
                Ok(replicas) => explaining::told(&replicas, &fleet, &sought)
                    .await
                    .asked
                    .into_iter()
                    .map(|(replica, told)| (replica.member, told))
                    .collect(),
                Err(error) => vec![("replicas".to_owned(), Err(said(error)))],
            }
        }
        .boxed()
    }

    fn events(&self) -> Answer<Result<FleetEvents, String>> {
        let home = self.home.clone();
        async move { home.events().await.map_err(said) }.boxed()
    }
}

fn said(error: anyhow::Error) -> String {
    model::error::chain(&*error)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn only_who_has_the_key_is_answered() {
        let key = draw().unwrap();
        assert!(key.len() == 32 && key != draw().unwrap());
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 8090));
        let door = Arc::new(ConsoleDoor { address, key: key.clone() });
        let router =
            Router::new().route(PATH, get(async || "a page")).layer(from_fn_with_state(door, ours));
        let ask = |host: &str, query: &str, cookie: &str| {
            let request = Request::get(format!("{PATH}?{query}"))
                .header(HOST, host)
                .header(COOKIE, cookie)
                .body(Body::empty())
                .unwrap();
            router.clone().oneshot(request).map(Result::unwrap)
        };
        let (ours, wrong) = ("127.0.0.1:8090", "0".repeat(32));
        for (host, query, cookie, expect) in [
            (ours, "", "", 401),
            (ours, "key=", "leasehold-console-8090=", 401),
            (ours, &*format!("key={wrong}"), "", 401),
            (ours, "", &*format!("leasehold-console-8091={key}"), 401),
            ("evil.example.com", &*format!("key={key}"), "", 421),
            (ours, &*format!("page=2&key={key}"), "", 200),
            ("localhost:8090", "", &*format!("a=b; leasehold-console-8090={key}"), 200),
        ] {
            let answer = ask(host, query, cookie).await;
            assert_eq!(answer.status().as_u16(), expect, "{host} {query} {cookie}");
            let cookie = answer.headers().get(SET_COOKIE);
            assert_eq!(cookie.is_some(), expect == 200, "{cookie:?}");
        }
    }
}
