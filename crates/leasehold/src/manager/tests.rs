//! A part that ends takes the rest along, in order. A loop that hangs fails `/livez`, and nothing of home
//! does.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};

use apiserver::Server;
use apiserver::faults::{Fault, Request};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use model::{Moment, Sleep};
use sharding::LeaseTimings;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;
use crate::config::{ClusterSources, Home, Risk};
use crate::crds::home_crds;

/// The longest that anything here may take, on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);
/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// The shortest that is allowed.
const LEASE: LeaseTimings = LeaseTimings {
    duration: Duration::from_secs(3),
    renew_interval: Duration::from_secs(1),
    margin: Duration::from_millis(500),
};

/// What happens to the thread of liveness when it reads the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trap {
    Open,
    Panic,
    Hang,
}

/// The system's clock, with a trap for the loop of sharding.
#[derive(Debug)]
struct TrappedClock {
    trap: Mutex<Trap>,
    changed: Condvar,
}

impl TrappedClock {
    fn new() -> Arc<Self> {
        Arc::new(Self { trap: Mutex::new(Trap::Open), changed: Condvar::new() })
    }

    fn set(&self, trap: Trap) {
        *self.trap.lock().unwrap() = trap;
        self.changed.notify_all();
    }

    fn enter(&self) {
        if std::thread::current().name() != Some("liveness") {
            return;
        }
        let trap = self.trap.lock().unwrap();
        let is_hanging = |trap: &mut Trap| *trap == Trap::Hang;
        let trap = *self.changed.wait_while(trap, is_hanging).unwrap();
        assert_ne!(trap, Trap::Panic, "the test wants it");
    }
}

impl Clock for TrappedClock {
    fn now(&self) -> Moment {
        self.enter();
        SystemClock.now()
    }

    fn wall(&self) -> Timestamp {
        SystemClock.wall()
    }

    fn sleep_until(&self, moment: Moment) -> Sleep {
        SystemClock.sleep_until(moment)
    }
}

/// A home cluster, and the configuration of a replica in it without controllers and clusters.
async fn home(folder: &Path) -> (Server, Config) {
    let server = Server::builder().name("home").bind("127.0.0.1:0").start().await.unwrap();
    let params = PostParams::default();
    let definitions: Api<CustomResourceDefinition> = Api::all(server.client());
    for crd in home_crds() {
        definitions.create(&params, &crd).await.unwrap();
    }
    let path = folder.join("home.kubeconfig");
    std::fs::write(&path, server.kubeconfig()).unwrap();
    let home = Home::Kubeconfig { path, context: None, allow: [Risk::Loopback].into() };
    let mut config = Config::new(home, "only", ClusterSources::default());
    config.lease = LEASE;
    config.controllers = Some(Default::default());
    let metadata = ObjectMeta { name: Some(config.namespace.clone()), ..ObjectMeta::default() };
    let namespace = Namespace { metadata, ..Namespace::default() };
    Api::all(server.client()).create(&params, &namespace).await.unwrap();
    (server, config)
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let looking = async {
        while !holds().await {
            tokio::time::sleep(LOOK).await;
        }
    };
    assert!(timeout(DEADLINE, looking).await.is_ok(), "{what}: not within {DEADLINE:?}");
}

/// Single work that says whether it runs.
fn work(runs: &Arc<AtomicBool>) -> Runnable {
    let runs = Arc::clone(runs);
    let run = move |ctx: crate::runnable::RunnableContext| {
        let runs = Arc::clone(&runs);
        async move {
            runs.store(true, Ordering::SeqCst);
            ctx.stopping().cancelled().await;
            runs.store(false, Ordering::SeqCst);
            Ok::<_, std::io::Error>(())
        }
    };
    Runnable::new("work", run).single()
}

/// The status line of the answer of a probe, or nothing.
async fn status(address: SocketAddr, path: &str) -> String {
    let asked = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.map(|_| answer)
    };
    let answer: std::io::Result<String> = asked.await;
    answer.unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_of_the_sharding_loop_stops_all_work_and_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (_server, config) = home(folder.path()).await;
    let (clock, runs) = (TrappedClock::new(), Arc::new(AtomicBool::new(false)));
    let mut manager = Manager::new(config).runnable(work(&runs));
    manager.clock = clock.clone();
    let run = tokio::spawn(manager.run(CancellationToken::new()));
    until("the work runs", async || runs.load(Ordering::SeqCst)).await;
    clock.set(Trap::Panic);
    let ended = timeout(DEADLINE, run).await.expect("the process ends").unwrap();
    let said = ended.unwrap_err().to_string();
    assert!(said.starts_with("the sharding loop panicked: "), "{said}");
    assert!(said.contains("the test wants it"), "{said}");
    assert!(!runs.load(Ordering::SeqCst), "its work goes on");
}

/// A part that ends by itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Registry,
    Admin,
}

/// Ends a part of a replica at work, and returns what the replica says. It must have handed everything over.
async fn without(part: Part) -> String {
    let folder = tempfile::tempdir().unwrap();
    let (_server, config) = home(folder.path()).await;
    let runs = Arc::new(AtomicBool::new(false));
    let singles = vec![work(&runs).into_single()];
    let (ends, stop) = (CancellationToken::new(), CancellationToken::new());
    let until_when = |other: Part| if other == part { ends.clone() } else { stop.clone() };
    let (metrics, clock) = (telemetry::registry(), Arc::new(SystemClock));
    let registry = until_when(Part::Registry);
    let parts = assemble(&config, Vec::new(), singles, &metrics, clock, &registry).await.unwrap();
    let inside = Inside::default();
    let admin = inside.admin(metrics, Checks::default(), None, None);
    let admin = tokio::spawn(serve(None, admin, until_when(Part::Admin)));
    let (sharding, stopping) = (parts.sharding.clone(), CancellationToken::new());
    let running = Running::start(parts, &inside, admin, stop.clone());
    let end = async {
        until("the work runs", async || runs.load(Ordering::SeqCst)).await;
        ends.cancel();
    };
    let (ended, ()) = tokio::join!(running.until(&stopping, DEADLINE), end);
    assert!(stopping.is_cancelled(), "what runs beside is told");
    assert!(!runs.load(Ordering::SeqCst), "its work goes on");
    assert_eq!(sharding.leave().await, Departure::HandedOver);
    ended.unwrap_err().to_string()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_the_registry_hands_everything_over_and_is_an_error() {
    let said = without(Part::Registry).await;
    assert!(said.starts_with("the registry of clusters ended by itself"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_end_of_the_admin_server_hands_everything_over_and_is_an_error() {
    let said = without(Part::Admin).await;
    assert!(said.starts_with("the admin server ended by itself"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loop_that_hangs_is_not_live_and_one_without_home_is() {
    let folder = tempfile::tempdir().unwrap();
    let (server, mut config) = home(folder.path()).await;
    // A port that was free a moment ago.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    config.admin = Some(address.into());
    let clock = TrappedClock::new();
    let mut manager = Manager::new(config);
    manager.clock = clock.clone();
    let run = tokio::spawn(manager.run(CancellationToken::new()));
    let is = async |path: &str, code: &str| status(address, path).await.contains(code);
    until("it is ready", async || is("/readyz", "200").await).await;
    clock.set(Trap::Hang);
    until("a loop that hangs is noticed", async || is("/livez", "503").await).await;
    clock.set(Trap::Open);
    until("a loop that goes on is live", async || is("/livez", "200").await).await;
    until("it is ready again", async || is("/readyz", "200").await).await;
    // Home accepts requests and answers none: the Lease runs out, and the loop turns.
    server.set_faults(Some(Arc::new(|_: &Request| Fault::Delay(DEADLINE * 10))));
    until("it is not ready", async || is("/readyz", "503").await).await;
    let mut asked = 0;
    until("twice the Lease's duration is over", async || {
        assert!(is("/livez", "200").await, "home's silence is no reason to restart");
        asked += 1;
        asked >= 2 * LEASE.duration.as_millis() / LOOK.as_millis()
    })
    .await;
    run.abort();
}
