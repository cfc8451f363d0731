//! Connections to Pods, over TLS and in process, and the programs that run in them.

use std::sync::{Arc, Mutex};

use futures::{SinkExt, StreamExt};
use http::{HeaderMap, Method};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use leasehold_apiserver::{Builder, Exit, Matcher, Process, Program, Server, Start, State};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::{self, Message};

use crate::world::{DEADLINE, PODS, World, is_ready};

/// A program that repeats what it hears on port 7, says goodbye on port 8, and tells of its starts.
#[derive(Default)]
struct Station {
    starts: Mutex<Vec<(Start, watch::Sender<State>)>>,
    /// Whether it is Ready as soon as it starts.
    unready: bool,
}

struct Echo {
    state: watch::Receiver<State>,
}

impl Program for Station {
    fn start(&self, start: &Start) -> Arc<dyn Process> {
        let (sender, state) = watch::channel(State::Running { ready: !self.unready });
        self.starts.lock().unwrap().push((start.clone(), sender));
        Arc::new(Echo { state })
    }
}

impl Process for Echo {
    fn connect(&self, port: u16) -> Option<DuplexStream> {
        let (near, mut far) = tokio::io::duplex(1024);
        match port {
            7 => drop(tokio::spawn(async move {
                let (mut reader, mut writer) = tokio::io::split(far);
                tokio::io::copy(&mut reader, &mut writer).await
            })),
            8 => drop(tokio::spawn(async move { far.write_all(b"bye").await })),
            _ => return None,
        }
        Some(near)
    }

    fn state(&self) -> Option<watch::Receiver<State>> {
        Some(self.state.clone())
    }
}

impl Station {
    /// Says how the last process that was started is now.
    fn say(&self, state: State) {
        self.starts.lock().unwrap().last().unwrap().1.send(state).unwrap();
    }

    fn count(&self) -> usize {
        self.starts.lock().unwrap().len()
    }
}

fn with(station: &Arc<Station>) -> Builder {
    let program = station.clone();
    Server::builder()
        .name("east")
        .token("secret")
        .workloads(true)
        .program(Matcher::Image("example.org/station:".into()), program)
}

fn pod(name: &str, spec: Value) -> Value {
    let containers = json!([
        {"name": "main", "image": "example.org/station:1"}, {"name": "other", "image": "i:1"},
    ]);
    let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": containers}});
    for (field, value) in spec.as_object().unwrap() {
        pod["spec"][field] = value.clone();
    }
    pod
}

/// Watches a Pod until `done`.
async fn until(world: &World, name: &str, what: &str, done: impl Fn(&Value) -> bool) -> Value {
    world.until(PODS, name, what, done).await
}

/// A websocket over TLS, as any client opens it.
async fn dial(
    world: &World,
    request: http::Request<()>,
) -> Result<WebSocketStream<tokio_rustls::client::TlsStream<TcpStream>>, tungstenite::Error> {
    let kubeconfig = Kubeconfig::from_yaml(&world.server.kubeconfig()).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.unwrap();
    let mut roots = rustls::RootCertStore::empty();
    for certificate in config.root_cert.unwrap() {
        roots.add(certificate.into()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let tcp = TcpStream::connect(world.server.address()).await.unwrap();
    let name = world.server.address().ip().into();
    let tls = tokio_rustls::TlsConnector::from(Arc::new(tls)).connect(name, tcp).await.unwrap();
    Ok(tokio_tungstenite::client_async(request, tls).await?.0)
}

fn request(world: &World, pod: &str, query: &str, token: &str) -> http::Request<()> {
    let url = format!("wss://{}{PODS}/{pod}/portforward?{query}", world.server.address());
    let mut request = url.into_client_request().unwrap();
    let headers = request.headers_mut();
    headers.insert("authorization", format!("Bearer {token}").parse().unwrap());
    // The order in which kube-rs offers them.
    let offered = "v5.channel.k8s.io, v4.channel.k8s.io";
    headers.insert("sec-websocket-protocol", offered.parse().unwrap());
    request
}

/// The next message, as its channel and data; `None` when the websocket has ended.
async fn next<S>(socket: &mut WebSocketStream<S>) -> Option<(u8, Vec<u8>)>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let message = tokio::time::timeout(DEADLINE, socket.next()).await.expect("a message in time");
    match message? {
        Ok(Message::Binary(data)) => Some((data[0], data[1..].to_vec())),
        Ok(Message::Close(frame)) => {
            assert_eq!(u16::from(frame.expect("a reason").code), 1000);
            None
        }
        Ok(other) => panic!("unexpected {other:?}"),
        Err(_) => None,
    }
}

async fn ready(station: &Arc<Station>) -> World {
    let world = World::with(with(station)).await;
    world.post(PODS, pod("p", json!({}))).await.expect(201);
    until(&world, "p", "the Pod is Ready", is_ready).await;
    world
}

#[tokio::test]
async fn bytes_go_both_ways_on_every_port_and_each_names_its_port() {
    let world = ready(&Arc::default()).await;
    let mut socket =
        dial(&world, request(&world, "p", "ports=7&ports=8,9", "secret")).await.unwrap();
    let mut heard = vec![Vec::new(); 6];
    socket.send(Message::Binary([&[0u8][..], b"hello"].concat().into())).await.unwrap();
    // Nobody reads an error channel, nor one that is not there.
    socket.send(Message::Binary([&[1u8][..], b"ignored"].concat().into())).await.unwrap();
    socket.send(Message::Binary([&[99u8][..], b"ignored"].concat().into())).await.unwrap();
    while heard[0].len() < 7 || heard[2].len() < 5 || heard[5].len() < 3 {
        let (channel, data) = next(&mut socket).await.expect("more");
        heard[usize::from(channel)].extend(data);
    }
    assert_eq!(heard[0], b"\x07\0hello");
    assert_eq!(heard[1], b"\x07\0");
    assert_eq!(heard[2], b"\x08\0bye");
    assert_eq!((&heard[3][..], &heard[4][..]), (&b"\x08\0"[..], &b"\x09\0"[..]));
    let refused = String::from_utf8(heard[5][2..].to_vec()).unwrap();
    assert!(refused.starts_with("error forwarding port 9 to pod "), "{refused}");
    assert!(refused.contains("dial tcp4 127.0.0.1:9: connect: connection refused"), "{refused}");
    world.server.shutdown().await;
    while next(&mut socket).await.is_some() {}
}

#[tokio::test]
async fn the_websocket_ends_when_every_port_has() {
    let world = ready(&Arc::default()).await;
    let mut socket = dial(&world, request(&world, "p", "ports=8&ports=9", "secret")).await.unwrap();
    let mut bytes = 0;
    while let Some((_, data)) = next(&mut socket).await {
        bytes += data.len();
    }
    assert!(bytes > 11, "both ports were heard");
}

#[tokio::test]
async fn a_message_that_is_too_large_ends_the_connection() {
    let world = ready(&Arc::default()).await;
    let mut socket = dial(&world, request(&world, "p", "ports=7", "secret")).await.unwrap();
    let huge = Message::Binary(vec![0; (1 << 20) + 2].into());
    // Sending may fail already, if the server is quick.
    let _ = socket.send(huge).await;
    while let Some((_, data)) = next(&mut socket).await {
        assert_eq!(data.len(), 2, "only the name of the port comes back");
    }
}

#[tokio::test]
async fn a_client_in_process_connects_too() {
    let world = ready(&Arc::default()).await;
    let mut socket = in_process(&world.server.client(), "p").await.unwrap();
    socket.send(Message::Binary([&[0u8][..], b"hello"].concat().into())).await.unwrap();
    let mut heard = Vec::new();
    while heard.len() < 7 {
        let (channel, data) = next(&mut socket).await.expect("more");
        heard.extend(data.into_iter().filter(|_| channel == 0));
    }
    assert_eq!(heard, b"\x07\0hello");
    let refused = in_process(&world.server.client(), "none").await.unwrap_err();
    assert_eq!((refused.0, &refused.1["reason"]), (404, &json!("NotFound")));
}

async fn in_process(
    client: &Client,
    pod: &str,
) -> Result<WebSocketStream<TokioIo<Upgraded>>, (u16, Value)> {
    let request = http::Request::get(format!("{PODS}/{pod}/portforward?ports=7"))
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .body(kube::client::Body::empty())
        .unwrap();
    let response = client.send(request).await.unwrap();
    if response.status() != 101 {
        let status = response.status().as_u16();
        let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap();
        return Err((status, serde_json::from_slice(&body.to_bytes()).unwrap()));
    }
    // The example of RFC 6455.
    assert_eq!(response.headers()["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    let upgraded = TokioIo::new(hyper::upgrade::on(response).await.unwrap());
    Ok(WebSocketStream::from_raw_socket(upgraded, Role::Client, None).await)
}

/// Status and body of a refused handshake.
async fn refused(world: &World, request: http::Request<()>) -> (u16, HeaderMap, String) {
    match dial(world, request).await {
        Err(tungstenite::Error::Http(response)) => {
            let (parts, body) = response.into_parts();
            let body = String::from_utf8(body.unwrap_or_default()).unwrap();
            (parts.status.as_u16(), parts.headers, body)
        }
        other => panic!("not refused: {other:?}"),
    }
}

#[tokio::test]
async fn refusals_are_those_of_a_real_server() {
    let world = World::with(Server::builder().name("east").token("secret")).await;
    world.post(PODS, pod("unscheduled", json!({}))).await.expect(201);
    world.post(PODS, pod("lost", json!({"nodeName": "gone"}))).await.expect(201);
    world.post(PODS, pod("pending", json!({"nodeName": "embedded"}))).await.expect(201);
    let path = |pod: &str, query: &str| format!("{PODS}/{pod}/portforward{query}");
    let cases = [
        ("none", "", 404, "NotFound", "pods \"none\" not found"),
        (
            "unscheduled",
            "?ports=1",
            400,
            "BadRequest",
            "pod unscheduled does not have a host assigned",
        ),
        ("lost", "?ports=1", 404, "NotFound", "pods \"gone\" not found"),
        ("pending", "?ports=1", 400, "BadRequest", "Upgrade request required"),
        ("none", "?ports=1&dryRun=All", 400, "BadRequest", "dryRun is not supported"),
        (
            "none",
            "?ports=x",
            400,
            "BadRequest",
            "cannot convert to []int32: strconv.ParseUint: parsing \"x\": invalid syntax",
        ),
        (
            "none",
            "?ports=65536",
            400,
            "BadRequest",
            "cannot convert to []int32: strconv.ParseUint: parsing \"65536\": value out of range",
        ),
    ];
    for (pod, query, code, reason, message) in cases {
        let expected = (code, reason.to_owned(), message.to_owned());
        assert_eq!(world.get(&path(pod, query)).await.status(), expected);
        assert_eq!(world.post(&path(pod, query), json!({})).await.status(), expected);
    }
    assert_eq!(world.put(&path("pending", ""), json!({})).await.status().0, 405);

    let (code, _, text) = refused(&world, request(&world, "pending", "ports=1", "secret")).await;
    assert_eq!((code, text.as_str()), (500, "pod not found (\"pending_default\")"));
    let (code, _, text) = refused(&world, request(&world, "pending", "", "secret")).await;
    assert_eq!((code, text.as_str()), (400, "query parameter \"port\" is required"));
    let (code, _, text) = refused(&world, request(&world, "pending", "ports=0", "secret")).await;
    assert_eq!((code, text.as_str()), (400, "port \"0\" must be > 0"));
    let (code, _, _) = refused(&world, request(&world, "none", "ports=1", "secret")).await;
    assert_eq!(code, 404);
}

#[tokio::test]
async fn only_the_channel_protocol_is_spoken() {
    let world = ready(&Arc::default()).await;
    let mut asked = request(&world, "p", "ports=7", "secret");
    asked
        .headers_mut()
        .insert("sec-websocket-protocol", "SPDY/3.1+portforward.k8s.io".parse().unwrap());
    assert_eq!(refused(&world, asked).await.0, 403);
}

#[tokio::test]
async fn it_takes_the_rights_to_get_and_to_create() {
    let station: Arc<Station> = Arc::default();
    let world = World::with(with(&station).rbac(true)).await;
    world.post(PODS, pod("p", json!({}))).await.expect(201);
    until(&world, "p", "the Pod is Ready", is_ready).await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    world.post(accounts, json!({"metadata": {"name": "robot"}})).await.expect(201);
    let issued = world.post(&format!("{accounts}/robot/token"), json!({})).await.expect(201);
    let token = issued["status"]["token"].as_str().unwrap();
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    let rules = |verbs: Value| json!([{"verbs": verbs, "apiGroups": [""], "resources": ["pods/portforward"]}]);
    let role = json!({"metadata": {"name": "r"}, "rules": rules(json!(["get"]))});
    world.post(&format!("{rbac}/roles"), role).await.expect(201);
    let binding = json!({
        "metadata": {"name": "r"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}],
    });
    world.post(&format!("{rbac}/rolebindings"), binding).await.expect(201);
    let (code, _, text) = refused(&world, request(&world, "p", "ports=7", token)).await;
    let status: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &status["message"]), (403, &json!("pods \"p\" is forbidden: ")));
    let both = json!({"rules": rules(json!(["get", "create"]))});
    world.merge(&format!("{rbac}/roles/r"), both).await.expect(200);
    dial(&world, request(&world, "p", "ports=7", token)).await.unwrap();
    let path = format!("{PODS}/p/portforward");
    let stranger = world.acting("jane", Method::GET, &path, Value::Null).await;
    assert_eq!(stranger.code, 403);
}

#[tokio::test]
async fn a_program_decides_when_its_pod_is_ready_and_starts_again_after_it_has_ended() {
    let station = Arc::new(Station { unready: true, ..Station::default() });
    let world = World::with(with(&station)).await;
    world.post(PODS, pod("p", json!({}))).await.expect(201);
    let running = until(&world, "p", "it runs", |pod| pod["status"]["phase"] == "Running").await;
    assert!(!is_ready(&running));
    assert_eq!(running["spec"]["nodeName"], "embedded");
    {
        let starts = station.starts.lock().unwrap();
        let (start, _) = &starts[0];
        assert_eq!((start.container.as_str(), start.restarts), ("main", 0));
        assert_eq!(start.spec()["image"], "example.org/station:1");
        assert_eq!(start.pod["status"]["podIP"], running["status"]["podIP"]);
    }
    station.say(State::Running { ready: true });
    until(&world, "p", "it is Ready", is_ready).await;
    station.say(State::Exited(Exit { code: 3, message: "tired".into() }));
    let again = until(&world, "p", "it starts again", |pod| {
        pod["status"]["containerStatuses"][0]["restartCount"] == 1
    })
    .await;
    let container = &again["status"]["containerStatuses"][0];
    let last = &container["lastState"]["terminated"];
    assert_eq!((&last["exitCode"], &last["message"]), (&json!(3), &json!("tired")));
    assert_eq!(container["ready"], false);
    assert_eq!(station.starts.lock().unwrap()[1].0.restarts, 1);

    world.delete(&format!("{PODS}/p"), json!({})).await.expect(200);
    let told = station.starts.lock().unwrap()[1].1.clone();
    tokio::time::timeout(DEADLINE, told.closed()).await.expect("it ends with its Pod");
    assert_eq!(station.count(), 2);
}

#[tokio::test]
async fn a_pod_that_is_not_restarted_finishes_with_its_program() {
    let station: Arc<Station> = Arc::default();
    let world = World::with(with(&station)).await;
    let one = json!([{"name": "main", "image": "example.org/station:1"}]);
    for (name, code, phase) in [("good", 0, "Succeeded"), ("bad", 1, "Failed")] {
        let spec = json!({"restartPolicy": "Never", "containers": one});
        world.post(PODS, pod(name, spec)).await.expect(201);
        until(&world, name, "it is Ready", is_ready).await;
        station.say(State::Exited(Exit { code, message: String::new() }));
        let done = until(&world, name, phase, |pod| pod["status"]["phase"] == phase).await;
        let ended = &done["status"]["containerStatuses"][0]["state"]["terminated"];
        assert_eq!(ended["exitCode"], code);
        assert!(!is_ready(&done));
        let (code, _, _) = refused(&world, request(&world, name, "ports=7", "secret")).await;
        assert_eq!(code, 500, "nothing runs there any more");
    }
    assert_eq!(station.count(), 2);
}

#[tokio::test]
async fn a_connection_ends_with_the_client() {
    /// Keeps the far ends of its connections.
    #[derive(Default)]
    struct Quiet(Mutex<Vec<DuplexStream>>);
    struct Listening(Arc<Quiet>);
    struct Quiets(Arc<Quiet>);
    impl Program for Quiets {
        fn start(&self, _: &Start) -> Arc<dyn Process> {
            Arc::new(Listening(self.0.clone()))
        }
    }
    impl Process for Listening {
        fn connect(&self, _: u16) -> Option<DuplexStream> {
            let (near, far) = tokio::io::duplex(16);
            self.0.0.lock().unwrap().push(far);
            Some(near)
        }
    }
    let quiet: Arc<Quiet> = Arc::default();
    let server = Server::builder().name("east").token("secret").workloads(true);
    let program = Arc::new(Quiets(quiet.clone()));
    let world = World::with(server.program(Matcher::Container("main".into()), program)).await;
    world.post(PODS, pod("p", json!({}))).await.expect(201);
    until(&world, "p", "the Pod is Ready", is_ready).await;
    let socket = dial(&world, request(&world, "p", "ports=1", "secret")).await.unwrap();
    let mut far = quiet.0.lock().unwrap().pop().unwrap();
    drop(socket);
    let ended = tokio::time::timeout(DEADLINE, far.read(&mut [0; 1])).await;
    assert_eq!(ended.expect("in time").unwrap(), 0);
}
