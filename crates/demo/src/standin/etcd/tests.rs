//! A cluster's life as a client sees it, and one connection with TLS.

use rcgen::{CertificateParams, CertifiedIssuer, KeyPair};
use serde_json::{Value, json};
use tokio_rustls::TlsConnector;

use super::launch::tests::start;
use super::*;

/// A member that runs, as its container knows it.
struct Member {
    process: Arc<dyn Process>,
    etcd: Etcd,
}

impl Member {
    fn start(etcd: &Etcd, name: &str, more: &[&str]) -> Self {
        Self {
            process: etcd.start(&start(name, &format!("volume-{name}"), more)),
            etcd: etcd.clone(),
        }
    }

    fn state(&self) -> State {
        self.process.state().expect("it has a state").borrow().clone()
    }

    fn is_ready(&self) -> bool {
        self.state() == State::Running { ready: true }
    }

    fn last_words(&self) -> String {
        match self.state() {
            State::Exited(exit) => exit.message,
            running => panic!("it runs: {running:?}"),
        }
    }

    /// Code and body of an answer, over a connection of its own.
    async fn ask(&self, path: &str, body: Value) -> (u16, Value) {
        let stream = self.process.connect(2379).expect("it listens");
        request(stream, "POST", path, &body.to_string()).await
    }

    /// What it says of itself.
    async fn status(&self) -> Value {
        let (code, status) = self.ask("/v3/maintenance/status", json!({})).await;
        assert_eq!(code, 200, "{status}");
        status
    }

    /// The code and the words of a refusal.
    async fn refusal(&self, path: &str, body: Value) -> (u16, String) {
        let (code, answer) = self.ask(path, body).await;
        (code, answer["message"].as_str().expect("words").to_owned())
    }
}

async fn request<S>(stream: S, method: &str, path: &str, body: &str) -> (u16, Value)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.expect("it speaks HTTP");
    let connection = tokio::spawn(connection);
    let request = Request::builder().method(method).uri(path).header("host", "etcd");
    let request = request.body(Full::<Bytes>::from(body.to_owned())).expect("a request");
    let (parts, body) = sender.send_request(request).await.expect("an answer").into_parts();
    let body = body.collect().await.expect("its end").to_bytes();
    drop(sender);
    connection.await.expect("no panic").expect("an orderly end");
    let text = String::from_utf8_lossy(&body).into_owned();
    (parts.status.as_u16(), serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

const LIST: &str = "/v3/cluster/member/list";
const ADD: &str = "/v3/cluster/member/add";
const PROMOTE: &str = "/v3/cluster/member/promote";
const REMOVE: &str = "/v3/cluster/member/remove";
const MOVE: &str = "/v3/maintenance/transfer-leadership";

fn found(name: &str) -> [String; 2] {
    ["--initial-cluster-token=t".into(), format!("--initial-cluster={name}=http://{name}:2380")]
}

/// Adds a learner, starts it and gives it a vote.
async fn grow(first: &Member, name: &str, members: &[&str]) -> Member {
    let url = format!("http://{name}:2380");
    let (code, added) = first.ask(ADD, json!({"peerURLs": [url], "isLearner": true})).await;
    assert_eq!(code, 200, "{added}");
    let id = added["member"]["ID"].clone();
    let lags = first.refusal(PROMOTE, json!({"ID": id})).await;
    let words = "etcdserver: can only promote a learner member which is in sync with leader";
    assert_eq!(lags, (400, words.to_owned()));
    let all: Vec<String> = members.iter().map(|m| format!("{m}=http://{m}:2380")).collect();
    let all = format!("--initial-cluster={}", all.join(","));
    let member = Member::start(&first.etcd, name, &["--initial-cluster-state=existing", &all]);
    assert!(member.is_ready());
    assert_eq!(member.status().await["isLearner"], true);
    let refused = member.refusal(LIST, json!({"linearizable": true})).await;
    assert_eq!(refused, (400, "etcdserver: rpc not supported for learner".to_owned()));
    let (code, promoted) = first.ask(PROMOTE, json!({"ID": id})).await;
    assert_eq!(code, 200, "{promoted}");
    member
}

async fn three() -> [Member; 3] {
    let arguments = found("a");
    let a = Member::start(&Etcd::default(), "a", &arguments.each_ref().map(String::as_str));
    assert!(a.is_ready());
    let b = grow(&a, "b", &["a", "b"]).await;
    let c = grow(&a, "c", &["a", "b", "c"]).await;
    [a, b, c]
}

fn id(status: &Value) -> String {
    status["header"]["member_id"].as_str().expect("an id").to_owned()
}

#[tokio::test]
async fn a_cluster_grows_by_learners_and_moves_its_leader() {
    let [a, b, c] = three().await;
    let (_, listed) = c.ask(LIST, json!({"linearizable": true})).await;
    let members = listed["members"].as_array().expect("members");
    assert_eq!(members.len(), 3);
    assert!(members.iter().all(|m| m.get("isLearner").is_none() && m["name"] != ""), "{listed}");
    let (one, other) = (a.status().await, b.status().await);
    assert_eq!((&one["leader"], one["version"].as_str()), (&json!(id(&one)), Some("3.6.5")));
    assert_eq!(other["leader"], one["leader"]);

    let (code, _) = a.ask(MOVE, json!({"targetID": id(&other)})).await;
    assert_eq!((code, c.status().await["leader"].clone()), (200, json!(id(&other))));
    let refused = a.refusal(MOVE, json!({"targetID": id(&one)})).await;
    assert_eq!(refused, (400, "etcdserver: not leader".to_owned()));
    let refused = b.refusal(MOVE, json!({"targetID": "7"})).await;
    assert_eq!(refused, (400, "etcdserver: bad leader transferee".to_owned()));

    let taken = a.refusal(ADD, json!({"peerURLs": ["http://b:2380"], "isLearner": true})).await;
    assert_eq!(taken, (400, "etcdserver: Peer URLs already exists".to_owned()));
    let missing = a.refusal(REMOVE, json!({"ID": "7"})).await;
    assert_eq!(missing, (404, "etcdserver: member not found".to_owned()));
    assert_eq!(a.ask("/v3/unknown", json!({})).await.0, 404);
}

#[tokio::test]
async fn without_a_majority_nobody_leads_and_nobody_is_ready() {
    let [a, b, c] = three().await;
    drop(b);
    assert!(a.is_ready() && c.is_ready());
    let url = json!({"peerURLs": ["http://d:2380"]});
    assert_eq!(a.refusal(ADD, url).await, (503, "etcdserver: unhealthy cluster".to_owned()));
    let other = id(&c.status().await);
    let refused = a.refusal(REMOVE, json!({"ID": other})).await;
    assert_eq!(refused, (503, "etcdserver: unhealthy cluster".to_owned()));
    drop(c);
    assert!(!a.is_ready());
    let status = a.status().await;
    assert_eq!(
        (status.get("leader"), &status["errors"]),
        (None, &json!(["etcdserver: no leader"]))
    );
    let refused = a.refusal(LIST, json!({"linearizable": true})).await;
    assert_eq!(refused, (503, "etcdserver: no leader".to_owned()));
    assert_eq!(a.ask(LIST, json!({})).await.0, 200, "what it knows, it tells");
    let probe = a.process.connect(2381).expect("it listens");
    assert_eq!(request(probe, "GET", "/readyz", "").await.0, 503);

    // Its volume says who it is, whatever its arguments say.
    let again = Member::start(&a.etcd, "b", &["--initial-cluster-state=existing"]);
    assert!(a.is_ready() && again.is_ready());
    let health = a.process.connect(2379).expect("it listens");
    let (code, health) = request(health, "GET", "/health", "").await;
    assert_eq!((code, &health["health"]), (200, &json!("true")));
    assert!(a.process.connect(2380).is_some() && a.process.connect(80).is_none());
}

#[tokio::test]
async fn a_member_that_is_removed_ends_and_never_comes_back() {
    let [a, b, c] = three().await;
    let (code, _) = a.ask(REMOVE, json!({"ID": id(&b.status().await)})).await;
    assert_eq!(code, 200);
    let words = "the member has been permanently removed from the cluster";
    assert_eq!(b.last_words(), words);
    let etcd = b.etcd.clone();
    drop(b);
    let again = Member::start(&etcd, "b", &["--initial-cluster-state=existing"]);
    assert_eq!(again.last_words(), words);
    assert!(a.is_ready() && c.is_ready());
}

#[tokio::test]
async fn who_lost_its_data_does_not_found_another_cluster() {
    let [a, b, _c] = three().await;
    let etcd = a.etcd.clone();
    drop(b);
    let lost = |volume: &str, more: &[&str]| Member {
        process: etcd.start(&start("b", volume, more)),
        etcd: etcd.clone(),
    };
    let alone =
        lost("new", &["--initial-cluster-state=existing", "--initial-cluster=b=http://b:2380"]);
    assert!(alone.last_words().starts_with("cannot fetch cluster info"), "{}", alone.last_words());
    let all = "--initial-cluster=a=http://a:2380,b=http://b:2380,c=http://c:2380";
    let joins = lost("new", &["--initial-cluster-state=existing", all]);
    assert_eq!(joins.last_words(), "member \"b\" has already been bootstrapped");
    let few = "--initial-cluster=a=http://a:2380,b=http://b:2380";
    let joins = lost("new", &["--initial-cluster-state=existing", few]);
    assert_eq!(joins.last_words(), "error validating peerURLs: member count is unequal");
}

#[tokio::test]
async fn alarms_are_raised_told_and_ended() {
    let [a, b, _c] = three().await;
    let me = id(&a.status().await);
    let alarm = |action: &str| json!({"action": action, "memberID": me, "alarm": "NOSPACE"});
    a.ask("/v3/maintenance/alarm", alarm("ACTIVATE")).await;
    assert_eq!(b.status().await["errors"].as_array().map(Vec::len), Some(1));
    let (_, told) = b.ask("/v3/maintenance/alarm", json!({"action": "GET"})).await;
    assert_eq!(told["alarms"], json!([{"memberID": me, "alarm": "NOSPACE"}]));
    assert_eq!(a.ask("/v3/maintenance/defragment", json!({})).await.0, 200);
    a.ask("/v3/maintenance/alarm", alarm("DEACTIVATE")).await;
    assert_eq!(b.status().await.get("errors"), None);
}

#[tokio::test]
async fn with_tls_only_clients_of_the_authority_are_answered() {
    let key = || KeyPair::generate().expect("a key");
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, key()).expect("an authority");
    let signed = |name: &str| {
        let key = key();
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        (params.signed_by(&key, &authority).expect("a certificate"), key)
    };
    let (server, server_key) = signed("a.peers");
    let mut start = start("a", "v", &[]);
    let container = &mut start.pod["spec"]["containers"][0]["args"];
    let arguments = container.as_array_mut().expect("arguments");
    let more = [
        "--listen-client-urls=https://0.0.0.0:2379",
        "--cert-file=/tls/tls.crt",
        "--key-file=/tls/tls.key",
        "--trusted-ca-file=/tls/ca.crt",
        "--client-cert-auth=true",
    ];
    arguments.extend(more.map(Value::from));
    arguments.extend(found("a").map(Value::from));
    let etcd = Etcd::default();
    let missing = Member { process: etcd.start(&start), etcd: etcd.clone() };
    assert_eq!(missing.last_words(), "open /tls/tls.crt: no such file or directory");
    let files = [
        ("/tls/tls.crt", server.pem()),
        ("/tls/tls.key", server_key.serialize_pem()),
        ("/tls/ca.crt", authority.pem()),
    ];
    start.files = files.map(|(path, pem)| (path.to_owned(), pem.into_bytes())).into();
    let member = Member { process: etcd.start(&start), etcd: etcd.clone() };

    let mut roots = rustls::RootCertStore::empty();
    roots.add(authority.der().clone()).expect("an authority");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    let (client, client_key) = signed("client");
    let key =
        rustls::pki_types::PrivateKeyDer::try_from(client_key.serialize_der()).expect("a key");
    let known =
        config.clone().with_client_auth_cert(vec![client.der().clone()], key).expect("pair");
    let name = || "a.peers".try_into().expect("a name");
    let stream = member.process.connect(2379).expect("it listens");
    let stream = TlsConnector::from(Arc::new(known)).connect(name(), stream).await.expect("trust");
    let (code, status) = request(stream, "POST", "/v3/maintenance/status", "{}").await;
    assert_eq!((code, &status["version"]), (200, &json!("3.6.5")));

    let unknown = config.with_no_client_auth();
    let stream = member.process.connect(2379).expect("it listens");
    let shaken = TlsConnector::from(Arc::new(unknown)).connect(name(), stream).await;
    let refused = match shaken {
        Err(_) => true,
        // With TLS 1.3 the client learns it with its first read.
        Ok(mut stream) => tokio::io::AsyncReadExt::read(&mut stream, &mut [0; 1]).await.is_err(),
    };
    assert!(refused, "a client without a certificate gets nowhere");
}
