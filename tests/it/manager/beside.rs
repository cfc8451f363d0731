//! What a program runs beside its controllers: runnables, single ones among them, and checks.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use leasehold::Runnable;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::*;

/// Who runs single work, and whether two ever did at once.
#[derive(Clone, Default)]
struct Stage {
    on: Arc<AtomicUsize>,
    overlapped: Arc<AtomicBool>,
    /// Each run: the identity and the epoch.
    runs: Arc<Mutex<Vec<(String, u64)>>>,
}

/// A run, until it is dropped.
struct OnStage(Stage);

impl Stage {
    fn enter(&self, identity: &str, epoch: u64) -> OnStage {
        self.runs.lock().unwrap().push((identity.to_owned(), epoch));
        if self.on.fetch_add(1, Ordering::SeqCst) > 0 {
            self.overlapped.store(true, Ordering::SeqCst);
        }
        OnStage(self.clone())
    }

    fn last(&self) -> Option<(String, u64)> {
        self.runs.lock().unwrap().last().cloned()
    }

    /// Single work of a replica, which runs until it is told to stop.
    fn work(&self, identity: &str) -> Runnable {
        let (stage, identity) = (self.clone(), identity.to_owned());
        Runnable::new("solo", move |ctx| {
            let (stage, identity) = (stage.clone(), identity.clone());
            async move {
                assert!(ctx.may_act());
                let _here = stage.enter(&identity, ctx.token().expect("it is single").epoch.0);
                ctx.stopping().cancelled().await;
                Ok::<_, std::io::Error>(())
            }
        })
        .single()
    }
}

impl Drop for OnStage {
    fn drop(&mut self) {
        self.0.on.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn single_work_runs_on_one_replica_and_moves_when_that_one_leaves() {
    let dir = tempfile::tempdir().unwrap();
    let (home_server, home) = home(dir.path()).await;
    let stage = Stage::default();
    let everywhere: Arc<Mutex<BTreeMap<&str, u32>>> = Arc::default();
    // No controller, and no cluster.
    let mut replicas = BTreeMap::new();
    for identity in ["first", "second", "third"] {
        let counts = Arc::clone(&everywhere);
        let count = Runnable::new("count", move |ctx| {
            *counts.lock().unwrap().entry(identity).or_default() += 1;
            assert!(ctx.token().is_none() && ctx.clusters().is_empty());
            async { Ok::<_, std::io::Error>(()) }
        });
        let replica = Replica::start_with(identity, &home, &ClusterSources::default(), |manager| {
            manager.runnable(stage.work(identity)).runnable(count.every(LOOK))
        });
        replicas.insert(identity.to_owned(), replica);
    }
    until("every replica counts", async || {
        let counts = everywhere.lock().unwrap();
        counts.len() == 3 && counts.values().all(|count| *count > 2)
    })
    .await;
    let mut epoch = 0;
    while replicas.len() > 1 {
        let is_next = || stage.last().filter(|(identity, _)| replicas.contains_key(identity));
        until("one of them runs it", async || is_next().is_some()).await;
        let (identity, at) = is_next().unwrap();
        assert!(at > epoch, "{identity} runs it at {at}, after {epoch}");
        epoch = at;
        let replica = replicas.remove(&identity).unwrap();
        assert_eq!(replica.leave().await, Departure::HandedOver);
    }
    until("the last of them runs it", async || {
        stage.last().is_some_and(|(identity, _)| replicas.contains_key(&identity))
    })
    .await;
    let shards = fleet(&home_server.client()).await.shards;
    let shards: Vec<_> = shards.iter().map(|shard| shard.shard.to_string()).collect();
    assert_eq!(shards, ["fleet.leasehold.dev/single.solo/0/1"]);
    for (_, replica) in replicas {
        assert_eq!(replica.leave().await, Departure::HandedOver);
    }
    let runs = stage.runs.lock().unwrap().clone();
    assert!(!stage.overlapped.load(Ordering::SeqCst), "two at once: {runs:?}");
    assert_eq!(runs.len(), 3, "{runs:?}");
    assert_eq!(stage.on.load(Ordering::SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn single_work_writes_through_the_fence_beside_controllers() {
    let dir = tempfile::tempdir().unwrap();
    let (home_server, home) = home(dir.path()).await;
    let east = server("east").await;
    let clusters = sources(dir.path(), &[&east]);
    let report = Runnable::new("report", |ctx| async move {
        let name = "east".parse()?;
        // A failure is tried again, so there need be no waiting for the cluster.
        let client = ctx.client(&name).ok_or("the east is not engaged yet")?;
        let api: Api<ConfigMap> = Api::namespaced(client, "default");
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "report"}});
        api.patch("report", &PatchParams::apply("report"), &Patch::Apply(object)).await?;
        Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    });
    let replica = Replica::start_with("only", &home, &clusters, |manager| {
        manager.controller(copy()).runnable(report.single())
    });
    let api: Api<ConfigMap> = Api::namespaced(east.client(), "default");
    until("the report is written", async || api.get_opt("report").await.unwrap().is_some()).await;
    want(&east.client(), "one").await;
    until("the controller runs", async || converged(&east.client(), "one").await).await;
    let history = east.history();
    let write = history.iter().find(|write| write.user_agent.contains("single.report"));
    let agent = &write.expect("it is written by the runnable").user_agent;
    let shards = fleet(&home_server.client()).await.shards;
    let shard = shards.iter().find(|shard| shard.shard.group.as_str() == "single.report");
    let (shard, epoch) = shard.map(|shard| (shard.shard.to_string(), shard.epoch)).unwrap();
    assert_eq!(shard, "fleet.leasehold.dev/single.report/0/1");
    assert!(agent.contains(&format!("shard={shard}; epoch={epoch}; ")), "{agent}");
    assert_eq!(replica.leave().await, Departure::HandedOver);
}

/// The answer to a probe, from its first line to its body.
async fn probe(address: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    Some(answer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checks_of_the_program_are_asked_by_probes() {
    let dir = tempfile::tempdir().unwrap();
    let (_home_server, home) = home(dir.path()).await;
    // A port that was free a moment ago.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let is_open = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&is_open);
    let mut config = Config::new(home, "only", ClusterSources::default());
    config.admin = Some(address.into());
    let manager = Manager::new(config)
        .controller(copy())
        .readiness_check("database", move || {
            let is_open = asked.load(Ordering::SeqCst);
            async move { if is_open { Ok(()) } else { Err("it is closed") } }
        })
        .liveness_check("loop", || async {
            std::future::pending::<()>().await;
            Ok::<_, std::io::Error>(())
        });
    let stop = CancellationToken::new();
    let run = tokio::spawn(manager.run(stop.clone()));
    let answers = async |path: &str, status: &str, text: &str| {
        let answer = probe(address, path).await.unwrap_or_default();
        answer.starts_with(&format!("HTTP/1.1 {status}")) && answer.contains(text)
    };
    until("it is not ready, and says why", async || {
        answers("/readyz", "503", "[-]database failed: it is closed\n").await
    })
    .await;
    is_open.store(true, Ordering::SeqCst);
    until("it is ready", async || {
        answers("/readyz?verbose", "200", "[+]informers ok\n[+]database ok\n").await
    })
    .await;
    let hung = "[-]loop failed: no answer within 750ms\n";
    until("it is not live", async || answers("/livez", "503", hung).await).await;
    until("it is not healthy", async || answers("/healthz", "503", hung).await).await;
    stop.cancel();
    assert_eq!(run.await.unwrap().unwrap(), Departure::HandedOver);
}
