//! `leasehold console`: pages about a fleet, served on this machine for whoever runs the command.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::HOST;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use clock::SystemClock;
use console::{Answer, PATH, Said, Source};
use explain::{Sought, Told};
use fleet::{Fleet, FleetEvent};
use futures::FutureExt;
use queue::QueueStatus;
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
/// When the home cluster cannot be named or read, or the port is taken.
pub(crate) async fn run(args: &ConsoleArgs, program: &Program) -> anyhow::Result<ExitCode> {
    let home = program.home(&args.home).await?;
    // Whoever cannot read it learns that here, not in a browser.
    home.fleet().await?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, args.port)).await;
    let listener = listener
        .with_context(|| format!("listen on 127.0.0.1:{}; give another with --port", args.port))?;
    let address = listener.local_addr()?;
    let pods = args.ask.pods(&home, program.connect).await?;
    let source = Arc::new(People { home, pods, ask: args.ask.clone() });
    let router = console::router(source, Arc::new(SystemClock))
        .route("/", get(async || Redirect::temporary(PATH)))
        .layer(from_fn(move |request, next| ours(address, request, next)));
    print(&format!("http://{address}{PATH}\n"))?;
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

/// Answers only who asks for this machine by its own name: a page of a stranger whose name leads here would read
/// the fleet with its visitor's rights.
async fn ours(address: SocketAddr, request: Request, next: Next) -> Response {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    let port = address.port();
    let is_ours =
        host.is_some_and(|host| host == address.to_string() || host == format!("localhost:{port}"));
    if is_ours {
        return next.run(request).await;
    }
    let text = format!("ask for http://{address} or http://localhost:{port}\n");
    (StatusCode::MISDIRECTED_REQUEST, text).into_response()
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

    fn events(&self) -> Answer<Result<Vec<FleetEvent>, String>> {
        let home = self.home.clone();
        async move { home.events().await.map_err(said) }.boxed()
    }
}

fn said(error: anyhow::Error) -> String {
    model::error::chain(&*error)
}
