//! Which cluster each name is: what the registry asks servers, and what it makes of their answers. Servers
//! are real sockets, so time is real.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use leasehold_clusters::{
    ClusterProvider, ClusterStatus, Clusters, KubeconfigFile, Probing, Registry, Snapshot, State,
    Trust,
};
use marks::Marker;
use model::{ClusterSet, DisputedNames, ManualClock};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// The longest that anything here may take on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// A server that gives the same answer to each question for `kube-system`, but for the number of the question in
/// place of `{n}`, no right to look at marks, and its version to others.
#[derive(Clone)]
struct Server {
    port: u16,
    answer: Arc<Mutex<(u16, String)>>,
    questions: Arc<AtomicUsize>,
}

impl Server {
    async fn start(status: u16, body: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let answer = Arc::new(Mutex::new((status, body.to_owned())));
        let server = Self { port, answer, questions: Arc::default() };
        let serving = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serving.clone().serve(stream));
            }
        });
        server
    }

    fn say(&self, status: u16, body: &str) {
        *self.answer.lock().unwrap() = (status, body.to_owned());
    }

    async fn serve(self, mut stream: TcpStream) {
        let mut request = vec![0; 64 << 10];
        while let Ok(read @ 1..) = stream.read(&mut request).await {
            let asks = request[..read].starts_with(b"GET /api/v1/namespaces/kube-system ");
            let is_mark = request[..read].starts_with(b"GET /apis/coordination.k8s.io/");
            let (status, body) = match asks {
                _ if is_mark => (403, r#"{"kind":"Status","code":403}"#.to_owned()),
                true => {
                    let number = 1 + self.questions.fetch_add(1, Ordering::Relaxed);
                    let (status, body) = self.answer.lock().unwrap().clone();
                    (status, body.replace("{n}", &number.to_string()))
                }
                false => (200, r#"{"major":"1","minor":"33","gitVersion":"v1.33.0","gitCommit":"","gitTreeState":"","buildDate":"","goVersion":"","compiler":"","platform":""}"#.to_owned()),
            };
            let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n", body.len());
            if stream.write_all((head + &body).as_bytes()).await.is_err() {
                return;
            }
        }
    }
}

fn told(uid: &str) -> String {
    format!(
        r#"{{"kind":"PartialObjectMetadata","metadata":{{"name":"kube-system","uid":"{uid}"}}}}"#
    )
}

/// Writes a kubeconfig with these servers, each a context of its name.
fn write(path: &Path, token: &str, servers: &[(&str, &Server)]) {
    let list = |entry: &dyn Fn(&str, u16) -> String| -> String {
        servers.iter().map(|(name, server)| entry(name, server.port)).collect()
    };
    let clusters = list(&|name, port| {
        format!("- {{name: {name}, cluster: {{server: 'http://127.0.0.1:{port}'}}}}\n")
    });
    let contexts =
        list(&|name, _| format!("- {{name: {name}, context: {{cluster: {name}, user: u}}}}\n"));
    let users = format!("users: [{{name: u, user: {{token: {token}}}}}]\n");
    fs::write(path, format!("clusters:\n{clusters}contexts:\n{contexts}{users}")).unwrap();
}

async fn spawn(path: &Path) -> Clusters {
    spawn_disputed(&[path], watch::channel(Arc::default()).1).await
}

async fn spawn_disputed(
    paths: &[&Path],
    disputed: watch::Receiver<Arc<DisputedNames>>,
) -> Clusters {
    spawn_with(paths, None, disputed).await
}

async fn spawn_with(
    paths: &[&Path],
    marker: Option<Marker>,
    disputed: watch::Receiver<Arc<DisputedNames>>,
) -> Clusters {
    let mut clusters = of(paths.iter().map(|path| provider(path)).collect(), marker, disputed);
    clusters.ready().await.unwrap();
    clusters
}

fn provider(path: &Path) -> Box<dyn ClusterProvider> {
    KubeconfigFile::new(path, None).trusted(Trust::own()).provider()
}

fn of(
    providers: Vec<Box<dyn ClusterProvider>>,
    marker: Option<Marker>,
    disputed: watch::Receiver<Arc<DisputedNames>>,
) -> Clusters {
    let clock = Arc::new(ManualClock::new(jiff::Timestamp::UNIX_EPOCH));
    let (stop, metrics) = (CancellationToken::new(), prometheus::Registry::new());
    let metrics = (&metrics, Arc::default());
    Registry::spawn(providers, Probing::On, marker, disputed, stop, metrics, clock).unwrap()
}

/// A provider that answers for the first time when it may.
struct Late(Box<dyn ClusterProvider>, Option<oneshot::Receiver<()>>);

impl ClusterProvider for Late {
    fn label(&self) -> String {
        self.0.label()
    }

    fn next(&mut self) -> BoxFuture<'_, Snapshot> {
        let Self(provider, may) = self;
        async move {
            if let Some(may) = may.take() {
                may.await.unwrap();
            }
            provider.next().await
        }
        .boxed()
    }
}

/// `east=u1@3`: the name, which cluster it is, and its incarnation; or `east: ` and why it is down.
fn text(status: &ClusterStatus) -> String {
    let uid = status.uid.as_ref().map_or("?", |uid| uid.as_str());
    match (status.state, status.incarnation) {
        (State::Engaged, Some(number)) => format!("{}={uid}@{number}", status.name),
        _ => format!("{}: {}", status.name, status.reason.as_deref().unwrap_or_default()),
    }
}

async fn until(clusters: &Clusters, name: &str, holds: impl Fn(&str) -> bool) -> String {
    let mut status = clusters.watch_status();
    let is_it = |status: &&ClusterStatus| status.name.as_str() == name;
    let mut last = String::new();
    let waited = tokio::time::timeout(DEADLINE, async {
        loop {
            last = status
                .borrow_and_update()
                .clusters
                .iter()
                .find(is_it)
                .map_or_else(String::new, text);
            if holds(&last) {
                return;
            }
            status.changed().await.unwrap();
        }
    });
    assert!(waited.await.is_ok(), "{name} stays {last:?}");
    last
}

async fn becomes(clusters: &Clusters, name: &str, expect: &str) {
    until(clusters, name, |text| text == expect).await;
}

#[tokio::test]
async fn servers_tell_which_cluster_they_are_and_two_names_may_be_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("k");
    let (one, two) = (Server::start(200, &told("u1")).await, Server::start(200, &told("u2")).await);
    write(&path, "t", &[("east", &one), ("east-2", &one), ("west", &two)]);
    let clusters = spawn(&path).await;
    for (name, uid) in [("east", "=u1@"), ("east-2", "=u1@"), ("west", "=u2@")] {
        until(&clusters, name, |text| text.contains(uid)).await;
        let set = clusters.watch().borrow().clone();
        let identity = set.get(&name.parse().unwrap()).unwrap().identity.clone().unwrap();
        assert!(identity.origin.contains(&format!("context \"{name}\"")), "{identity:?}");
    }
}

/// The fleet must know a renamed cluster before the map of its old name is gone. Looks at marks, which may be refused,
/// take longer.
#[tokio::test]
async fn what_a_server_tells_is_known_before_it_is_engaged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("k");
    let server = Server::start(200, &told("u1")).await;
    write(&path, "t", &[("east", &server)]);
    let marker = Marker {
        fleet: watch::channel("fleet".parse().ok()).1,
        installation: "leasehold".to_owned(),
        namespace: "home".to_owned(),
        by: "replica-0".to_owned(),
        claim: [("tdset".to_owned(), BTreeSet::new())].into_iter().collect(),
        living: watch::channel(Arc::default()).1,
    };
    let clusters = spawn_with(&[&path], Some(marker), watch::channel(Arc::default()).1).await;
    let mut set = clusters.watch();
    let is_known = |set: &Arc<ClusterSet>| !set.identities().is_empty();
    let known = tokio::time::timeout(DEADLINE, set.wait_for(is_known)).await.unwrap().unwrap();
    assert_eq!(known.identities()[&"east".parse().unwrap()].uid.as_str(), "u1");
    assert!(known.get(&"east".parse().unwrap()).is_none(), "its marks are looked at again");
}

#[tokio::test]
async fn a_server_that_may_not_tell_is_engaged_as_before_with_what_to_repair() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("k");
    let server = Server::start(403, r#"{"message":"user x cannot get namespaces"}"#).await;
    write(&path, "t", &[("east", &server)]);
    let clusters = spawn(&path).await;
    becomes(&clusters, "east", "east=?@1").await;
    let unidentified = clusters.status().clusters[0].unidentified.clone().unwrap();
    assert!(
        unidentified.contains("user x cannot get namespaces; fix: give its user"),
        "{unidentified}"
    );
    assert!(clusters.watch().borrow().get(&"east".parse().unwrap()).unwrap().identity.is_none());
}

#[tokio::test]
async fn what_is_no_answer_of_an_api_server_engages_nothing_and_holds_nobody_up() {
    let huge = format!(r#"{{"metadata":{{"uid":"u1","name":"{}"}}}}"#, "x".repeat(65 << 10));
    let dir = tempfile::tempdir().unwrap();
    let good = Server::start(200, &told("u9")).await;
    for (number, (status, body)) in
        [(200, "<html>log in</html>"), (200, &huge), (200, "{}"), (200, &told("")), (500, "")]
            .into_iter()
            .enumerate()
    {
        let path = dir.path().join(number.to_string());
        let bad = Server::start(status, body).await;
        write(&path, "t", &[("east", &bad), ("west", &good)]);
        let clusters = spawn(&path).await;
        until(&clusters, "west", |text| text.starts_with("west=u9@")).await;
        let down = until(&clusters, "east", |text| text.contains("its API server")).await;
        assert!(down.starts_with("east: its API server") && down.contains("; fix: "), "{down}");
        assert_eq!(down.contains("says over 64 KiB"), body == huge, "{down}");
        bad.say(200, &told("u1"));
        until(&clusters, "east", |text| text.starts_with("east=u1@")).await;
    }
}

/// The first connections to all at once would take all of the machine.
#[tokio::test]
async fn of_many_servers_that_are_new_some_are_asked_at_once() {
    const CLUSTERS: usize = 400;
    const AT_ONCE: usize = 64;
    // In which others would come, too short for one that waits to be late.
    const MOMENT: Duration = Duration::from_millis(100);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("all");
    let answer = Arc::new(Mutex::new((200, told("u{n}"))));
    let server = Server { port, answer, questions: Arc::default() };
    let names: Vec<_> = (0..CLUSTERS).map(|number| format!("c{number}")).collect();
    write(&path, "t", &names.iter().map(|name| (&**name, &server)).collect::<Vec<_>>());
    let mut clusters = of(vec![provider(&path)], None, watch::channel(Arc::default()).1);
    let (mut waiting, mut answered, mut most) = (Vec::new(), 0, 0);
    while answered < CLUSTERS {
        let is_enough = waiting.len() >= AT_ONCE.min(CLUSTERS - answered);
        let wait = if is_enough { MOMENT } else { DEADLINE };
        match timeout(wait, listener.accept()).await {
            Ok(stream) => waiting.push(stream.unwrap().0),
            Err(_) => {
                assert!(is_enough, "only {} are asked", waiting.len());
                (most, answered) = (most.max(waiting.len()), answered + waiting.len());
                for stream in waiting.drain(..) {
                    tokio::spawn(server.clone().serve(stream));
                }
            }
        }
    }
    timeout(DEADLINE, clusters.settled()).await.unwrap().unwrap();
    // Others begin when these keep it waiting for a second.
    assert!(most < CLUSTERS / 2, "{most} at once");
}

#[tokio::test]
async fn an_identity_is_remembered_and_another_cluster_is_another_incarnation() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("k");
    let (server, other) = (Server::start(200, &told("u1")).await, Server::start(503, "").await);
    write(&path, "t", &[("east", &server)]);
    let clusters = spawn(&path).await;
    becomes(&clusters, "east", "east=u1@1").await;
    // The server restarts while its token changes: it stays engaged.
    server.say(503, "");
    write(&path, "t2", &[("east", &server)]);
    becomes(&clusters, "east", "east=u1@2").await;
    // The cluster is made anew behind the same address.
    server.say(200, &told("u2"));
    write(&path, "t3", &[("east", &server)]);
    becomes(&clusters, "east", "east=u2@4").await;
    // Behind another address it may be any cluster.
    write(&path, "t3", &[("east", &other)]);
    until(&clusters, "east", |text| text.starts_with("east: its API server answers 503")).await;
    other.say(200, &told("u3"));
    becomes(&clusters, "east", "east=u3@5").await;
}

#[tokio::test]
async fn a_server_that_is_another_cluster_each_time_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("k");
    let server = Server::start(200, &told("u{n}")).await;
    write(&path, "t", &[("east", &server)]);
    let clusters = spawn(&path).await;
    becomes(&clusters, "east", "east=u1@1").await;
    // Who has just told is not asked at once; with each new client it is.
    write(&path, "t2", &[("east", &server)]);
    becomes(&clusters, "east", "east=u2@3").await;
    write(&path, "t3", &[("east", &server)]);
    until(&clusters, "east", |text| text.contains("each time that it is another cluster")).await;
    assert_eq!(server.questions.load(Ordering::Relaxed), 3);
    // Once it says the same again, it is engaged.
    server.say(200, &told("u3"));
    becomes(&clusters, "east", "east=u3@5").await;
    assert_eq!(server.questions.load(Ordering::Relaxed), 4);
}

/// A replica that starts begins with the first of two clusters of a name. The fleet knows the other.
#[tokio::test]
async fn of_two_clusters_of_a_name_a_replica_that_starts_finds_the_one_that_the_fleet_knows() {
    let dir = tempfile::tempdir().unwrap();
    let (new, old) = (dir.path().join("a-new"), dir.path().join("c1"));
    let (one, two) = (Server::start(200, &told("u1")).await, Server::start(200, &told("u2")).await);
    write(&new, "t", &[("c1", &two)]);
    write(&old, "t", &[("c1", &one)]);
    let (disputes, disputed) = watch::channel(Arc::default());
    let clusters = spawn_disputed(&[&new, &old], disputed).await;
    let engaged = until(&clusters, "c1", |text| text.starts_with("c1=u2@")).await;
    // Perhaps its other source was read first: then it was engaged before, and that was not published.
    let number: u64 = engaged["c1=u2@".len()..].parse().unwrap();
    let say = |uid: &str| {
        disputes.send_replace(Arc::new([("c1".parse().unwrap(), uid.parse().unwrap())].into()));
    };
    // It does not answer: that is no reason to go back.
    one.say(503, "");
    say("u1");
    until(&clusters, "c1", |text| text.starts_with("c1: its API server answers 503")).await;
    disputes.send_replace(Arc::default());
    write(&new, "t2", &[("c1", &two)]);
    one.say(200, &told("u1"));
    becomes(&clusters, "c1", &format!("c1=u1@{}", number + 1)).await;
    let problems = &clusters.status().problems;
    assert!(problems[0].contains("/a-new, context \"c1\" is left out"), "{problems:?}");
}

#[tokio::test]
async fn what_another_source_takes_away_at_the_start_is_never_published() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    let (one, two) = (Server::start(200, &told("u1")).await, Server::start(200, &told("u2")).await);
    write(&first, "t", &[("c1", &one)]);
    write(&second, "t", &[("c1", &two)]);
    let (answer, may) = oneshot::channel();
    let providers: Vec<Box<dyn ClusterProvider>> =
        vec![Box::new(Late(provider(&first), Some(may))), provider(&second)];
    let mut clusters = of(providers, None, watch::channel(Arc::default()).1);
    // Time enough to engage the second.
    let early = tokio::time::timeout(Duration::from_millis(500), clusters.ready()).await;
    assert!(early.is_err(), "published before it is known which source has the name");
    answer.send(()).unwrap();
    clusters.ready().await.unwrap();
    let set = clusters.watch().borrow().clone();
    let c1 = set.get(&"c1".parse().unwrap()).unwrap();
    assert_eq!(c1.identity.as_ref().unwrap().uid.as_str(), "u1");
}
