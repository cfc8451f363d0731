//! Streams to Pods: the protocol, the fence on every byte, and their bounds.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, SinkExt, StreamExt};
use http::header::{CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY};
use http::header::{SEC_WEBSOCKET_PROTOCOL, UPGRADE};
use http::{Request, Response};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use kube::client::Body;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::{Message, protocol::Role};
use tower::BoxError;

use super::world::{MAPS, World, listed, maps, settle};
use crate::{Action, Context, PodStream, ReconcileError, RetryClass};
use engine::testing::{PATIENCE, Server, Watch, config_map, server};

/// The kubelet's end of a stream.
type Kubelet = WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>;

/// A client whose upgrades arrive at the receiver, and the server that gets all else.
fn forwarding() -> (kube::Client, Server, mpsc::UnboundedReceiver<(String, Kubelet)>) {
    let (client, server) = server();
    let (sender, kubelets) = mpsc::unbounded_channel();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, sender) = (client.clone(), sender.clone());
        async move {
            if !request.headers().contains_key(UPGRADE) {
                let answer = client.send(request).await?;
                return Ok(answer.map(|body| body.map_err(BoxError::from).boxed_unsync()));
            }
            let (ours, theirs) = tokio::io::duplex(1 << 16);
            let accept = hyper::service::service_fn(move |request| accept(request, sender.clone()));
            let served = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(theirs), accept)
                .with_upgrades();
            tokio::spawn(served);
            let opened = hyper::client::conn::http1::handshake(TokioIo::new(ours)).await;
            let (mut sender, connection) = opened?;
            tokio::spawn(connection.with_upgrades());
            let answer = sender.send_request(request).await?;
            Ok::<_, BoxError>(answer.map(|body| body.map_err(BoxError::from).boxed_unsync()))
        }
        .boxed()
    });
    (kube::Client::new(service, "default"), server, kubelets)
}

async fn accept(
    mut request: Request<Incoming>,
    sender: mpsc::UnboundedSender<(String, Kubelet)>,
) -> Result<Response<Empty<Bytes>>, Infallible> {
    let key = derive_accept_key(request.headers()[SEC_WEBSOCKET_KEY].as_bytes());
    let line = request.uri().to_string();
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let upgraded = upgrade.await.expect("it upgrades");
        let io = TokioIo::new(upgraded);
        let socket = WebSocketStream::from_raw_socket(io, Role::Server, None).await;
        let _ = sender.send((line, socket));
    });
    let answer = Response::builder().status(101);
    let answer = answer.header(CONNECTION, "Upgrade").header(UPGRADE, "websocket");
    let answer = answer.header(SEC_WEBSOCKET_ACCEPT, key);
    let answer = answer.header(SEC_WEBSOCKET_PROTOCOL, "v4.channel.k8s.io");
    Ok(answer.body(Empty::new()).expect("valid"))
}

/// What a reconcile does with its stream.
type Work = Arc<dyn Fn(PodStream) -> BoxFuture<'static, String> + Send + Sync>;

/// A reconcile that dials and works, and a kubelet.
struct Stage {
    world: World,
    kubelets: mpsc::UnboundedReceiver<(String, Kubelet)>,
    results: watch::Receiver<Vec<String>>,
    _list: Watch,
    _server: Server,
}

impl Stage {
    async fn set(
        work: impl Fn(PodStream) -> BoxFuture<'static, String> + Send + Sync + 'static,
    ) -> Self {
        let work: Work = Arc::new(work);
        let (told, results) = watch::channel(Vec::new());
        let spec = maps(move |ctx, _| {
            let (work, told) = (Arc::clone(&work), told.clone());
            async move {
                let result = match dial(ctx).await {
                    Ok(stream) => work(stream).await,
                    Err(error) => format!("{error:?}"),
                };
                told.send_modify(|all| all.push(result));
                Ok(Action::Done)
            }
            .boxed()
        });
        let world = World::start(vec![spec]);
        let (client, mut server, kubelets) = forwarding();
        world.engage_client("east", 1, client);
        world.hold_active("east", 3);
        let list = server.expect(MAPS).await.list(5, &[config_map("a", 1)]);
        Self { world, kubelets, results, _list: list, _server: server }
    }

    /// The kubelet's end, which has said that the port is there.
    async fn kubelet(&mut self) -> Kubelet {
        let next = tokio::time::timeout(PATIENCE, self.kubelets.recv()).await;
        let (line, mut kubelet) = next.expect("an upgrade").expect("a client");
        assert_eq!(line, "/api/v1/namespaces/ns/pods/db-0/portforward?ports=2379");
        for channel in [0, 1] {
            let port = 2379_u16.to_le_bytes();
            let first = Bytes::from(vec![channel, port[0], port[1]]);
            kubelet.send(Message::Binary(first)).await.unwrap();
        }
        kubelet
    }

    async fn result(&mut self) -> String {
        let some = self.results.wait_for(|all| !all.is_empty());
        let all = tokio::time::timeout(PATIENCE, some).await.expect("an end").unwrap();
        all[0].clone()
    }
}

async fn dial(ctx: &Context) -> Result<PodStream, ReconcileError> {
    ctx.pod("ns", "db-0").dial(2379).await
}

async fn say(kubelet: &mut Kubelet, channel: u8, text: &str) {
    let frame = [&[channel], text.as_bytes()].concat();
    kubelet.send(Message::Binary(frame.into())).await.unwrap();
}

/// Writes a line, and reads what comes back until the end.
fn ask(mut stream: PodStream) -> BoxFuture<'static, String> {
    async move {
        stream.write_all(b"who leads?").await.unwrap();
        stream.flush().await.unwrap();
        let mut answer = String::new();
        match stream.read_to_string(&mut answer).await {
            Ok(_) => answer,
            Err(error) => format!("{:?}: {error}", error.kind()),
        }
    }
    .boxed()
}

#[tokio::test(start_paused = true)]
async fn bytes_pass_both_ways_until_the_end() {
    let mut stage = Stage::set(ask).await;
    let mut kubelet = stage.kubelet().await;
    let asked = kubelet.next().await.unwrap().unwrap();
    assert_eq!(asked.into_data().as_ref(), b"\0who leads?");
    say(&mut kubelet, 0, "member ").await;
    say(&mut kubelet, 0, "three").await;
    kubelet.close(None).await.unwrap();
    assert_eq!(stage.result().await, "member three");
    stage.world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_port_on_which_nothing_listens_is_refused_with_the_kubelets_words() {
    let mut stage = Stage::set(ask).await;
    let mut kubelet = stage.kubelet().await;
    say(&mut kubelet, 1, "dial tcp4 127.0.0.1:2379: connect: connection refused").await;
    assert_eq!(
        stage.result().await,
        "ConnectionRefused: port 2379 of Pod ns/db-0 is not reached: dial tcp4 127.0.0.1:2379: \
         connect: connection refused"
    );
}

#[tokio::test(start_paused = true)]
async fn frames_that_no_kubelet_sends_end_the_stream() {
    for (frame, expect) in [
        (vec![7, 1], "a frame of an unknown channel"),
        (vec![], "a frame without a channel"),
        (vec![0; (1 << 20) + 1], "Space limit exceeded"),
    ] {
        let mut stage = Stage::set(ask).await;
        let mut kubelet = stage.kubelet().await;
        // The other end may be gone before all of it is sent.
        let _ = kubelet.send(Message::Binary(frame.into())).await;
        let found = stage.result().await;
        assert!(found.starts_with("InvalidData") && found.contains(expect), "{found}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_byte_passes_after_the_lease() {
    let (sent, woken) = (mpsc::unbounded_channel(), Arc::new(tokio::sync::Notify::new()));
    let ((late, mut lates), go) = (sent, Arc::clone(&woken));
    let mut stage = Stage::set(move |mut stream| {
        let (late, go) = (late.clone(), Arc::clone(&go));
        // It lives in a task of its own, which the end of the reconcile does not end.
        tokio::spawn(async move {
            go.notified().await;
            let error = stream.write_all(b"be the leader").await.unwrap_err();
            late.send(error.to_string()).unwrap();
        });
        std::future::pending().boxed()
    })
    .await;
    let mut kubelet = stage.kubelet().await;
    stage.world.lease(Duration::ZERO);
    woken.notify_one();
    let said = lates.recv().await.unwrap();
    assert!(said.contains("was not sent"), "{said}");
    let rest = kubelet.next().await;
    assert!(!matches!(rest, Some(Ok(Message::Binary(_)))), "{rest:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_cut_with_its_reconcile_wherever_it_is_kept() {
    let (kept, mut keeper) = mpsc::unbounded_channel();
    let mut stage = Stage::set(move |stream| {
        kept.send(stream).unwrap();
        std::future::ready("kept".to_owned()).boxed()
    })
    .await;
    let (_, mut kubelet) = stage.kubelets.recv().await.unwrap();
    let mut stream = keeper.recv().await.unwrap();
    let (done, waiting) = oneshot::channel();
    tokio::spawn(async move {
        let mut byte = [0];
        let _ = done.send(stream.read(&mut byte).await.map_err(|error| error.kind()));
    });
    let read = tokio::time::timeout(PATIENCE, waiting).await.expect("it is woken").unwrap();
    assert!(
        matches!(read, Err(io::ErrorKind::ConnectionAborted | io::ErrorKind::Other)),
        "{read:?}"
    );
    assert!(!matches!(kubelet.next().await, Some(Ok(Message::Binary(_)))));
    stage.world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_cluster_has_only_so_many_streams() {
    let keys = engine::MAX_STREAMS + 1;
    let (told, results) = watch::channel(Vec::<String>::new());
    let spec = maps(move |ctx, _| {
        let told = told.clone();
        async move {
            match dial(ctx).await {
                Ok(stream) => std::future::pending::<()>().map(|()| drop(stream)).await,
                Err(error) => told.send_modify(|all| all.push(format!("{error:?}"))),
            }
            Ok(Action::Done)
        }
        .boxed()
    });
    let world = World::start(vec![spec.with_workers(keys)]);
    let (client, mut server, mut kubelets) = forwarding();
    world.engage_client("east", 1, client);
    world.hold_active("east", 3);
    let all: Vec<_> = (0..keys).map(|n| config_map(&format!("m{n}"), 1)).collect();
    let _list = server.expect(MAPS).await.list(5, &all);
    let mut results = results;
    let refused = results.wait_for(|all| !all.is_empty());
    let refused =
        tokio::time::timeout(PATIENCE, refused).await.expect("an end").unwrap()[0].clone();
    assert!(refused.contains("32 streams to Pods of its cluster are open"), "{refused}");
    let mut open = 0;
    while kubelets.try_recv().is_ok() {
        open += 1;
    }
    assert_eq!(open, engine::MAX_STREAMS);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_told_in_the_words_of_the_server() {
    let (told, mut results) = mpsc::unbounded_channel();
    let spec = maps(move |ctx, _| {
        let told = told.clone();
        async move {
            told.send(format!("{:?}", dial(ctx).await.unwrap_err())).unwrap();
            Ok(Action::Done)
        }
        .boxed()
    });
    let (world, mut server, _list) = listed(vec![spec], 3, &["a"]).await;
    let asked = server.asked().await;
    assert_eq!(asked.line, "GET /api/v1/namespaces/ns/pods/db-0/portforward ports=2379");
    asked.answer(500, &serde_json::json!("pod not found (\"db-0_ns\")"));
    let error = results.recv().await.unwrap();
    assert!(error.contains("port 2379 of Pod ns/db-0 was not dialled"), "{error}");
    assert!(error.contains("pod not found"), "{error}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_name_that_would_be_another_request_is_not_sent() {
    const HOSTILE: [(&str, &str); 6] = [
        ("ns", "db-0/exec?command=rm&x="),
        ("ns", "../../../../api/v1/secrets"),
        ("..", "db-0"),
        ("ns", ""),
        ("ns", "a b"),
        ("ns", "a\r\nHost: b"),
    ];
    let (told, mut results) = mpsc::unbounded_channel();
    let spec = maps(move |ctx, _| {
        let told = told.clone();
        async move {
            for (namespace, name) in HOSTILE {
                let error = ctx.pod(namespace, name).dial(80).await.unwrap_err();
                told.send((error.class(), format!("{error:?}"))).unwrap();
            }
            Ok(Action::Done)
        }
        .boxed()
    });
    let (world, mut server, _list) = listed(vec![spec], 3, &["a"]).await;
    for _ in HOSTILE {
        let (class, text) = results.recv().await.unwrap();
        assert_eq!(class, RetryClass::Terminal);
        assert!(text.contains("its namespace or name cannot be one"), "{text}");
    }
    server.quiet(Duration::from_secs(1)).await;
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn upgrades_past_the_fence_are_refused() {
    let (told, mut results) = mpsc::unbounded_channel();
    let spec = maps(move |ctx, _| {
        let told = told.clone();
        async move {
            let request = Request::get("/api/v1/namespaces/ns/pods/db-0/exec?command=rm");
            let request = request.header(UPGRADE, "websocket").body(Vec::new()).unwrap();
            let error = ctx.client().request_text(request).await.unwrap_err();
            told.send(model::error::chain(&error)).unwrap();
            Ok(Action::Done)
        }
        .boxed()
    });
    let (world, mut server, _list) = listed(vec![spec], 3, &["a"]).await;
    let error = results.recv().await.unwrap();
    assert!(error.contains("use ctx.pod(namespace, name).dial(port)"), "{error}");
    server.quiet(Duration::from_secs(1)).await;
    settle().await;
    world.stop().await;
}
