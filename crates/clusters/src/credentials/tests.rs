//! Credentials against real files, programs, issuers and servers, with a clock that the test moves.

use std::collections::VecDeque;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use jiff::Timestamp;
use kube::config::{AuthInfo, Kubeconfig};
use model::ManualClock;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::connect::Connector;
use crate::provider::{Access, ClusterProvider, Fingerprint, Snapshot, Source};
use crate::role::Role;
use crate::trust::{Environment, Granted};

mod issuers;
mod programs;

const START: i64 = 1_800_000_000;

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(Timestamp::from_second(START).unwrap()))
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A time of the clock, as an `ExecCredential` gives it.
fn at(seconds: i64) -> String {
    Timestamp::from_second(START + seconds).unwrap().to_string()
}

async fn keeper(clock: &Arc<ManualClock>, user: &str) -> Result<Keeper, String> {
    keeper_among(clock, user, renewals()).await
}

fn renewals() -> Renewals {
    Renewals { turns: Turns::new([1; 3]), calls: Calls::new() }
}

async fn keeper_among(
    clock: &Arc<ManualClock>,
    user: &str,
    renewals: Renewals,
) -> Result<Keeper, String> {
    let mut info: AuthInfo = serde_saphyr::from_str(user).unwrap();
    let keeper = async {
        let source =
            CredentialSource::of("k", &mut info, &Granted::everything(), &Turns::new([1; 3]))?;
        Keeper::start("k", source, renewals, Arc::clone(clock) as Arc<dyn Clock>).await
    };
    keeper.await.map_err(|error| error.reason())
}

/// The header of a request sent now.
async fn shown(keeper: &Keeper) -> Result<String, String> {
    let (credential, _) = keeper.show().await.map_err(|error| error.reason())?;
    let header = credential.header.expect("each of these shows a token");
    Ok(header.to_str().unwrap().to_owned())
}

/// A request that begins a renewal, and the end of the renewal.
async fn shown_and_renewed(keeper: &Keeper) -> String {
    let mut settled = keeper.inner.settled.subscribe();
    let shown = shown(keeper).await.unwrap();
    settled.changed().await.unwrap();
    shown
}

/// A credential program that prints the content of a file and counts its runs.
struct Script {
    dir: TempDir,
}

impl Script {
    fn new(body: &str) -> Self {
        let this = Self { dir: tempfile::tempdir().unwrap() };
        fs::write(this.path("run"), format!("#!/bin/sh\ncd \"${{0%/*}}\"\n{body}\n")).unwrap();
        fs::set_permissions(this.path("run"), fs::Permissions::from_mode(0o700)).unwrap();
        this
    }

    fn answering() -> Self {
        Self::new("echo >> runs; cat answer")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn answer(&self, status: &serde_json::Value) {
        let answer = json!({"kind": "ExecCredential", "status": status});
        fs::write(self.path("answer"), answer.to_string()).unwrap();
    }

    fn runs(&self) -> usize {
        fs::read_to_string(self.path("runs")).unwrap().lines().count()
    }

    fn user(&self) -> String {
        format!("{{exec: {{command: {}}}}}", self.path("run").display())
    }
}

#[tokio::test]
async fn a_token_file_is_read_anew_while_requests_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("token");
    fs::write(&path, "one\n").unwrap();
    let clock = clock();
    let keeper = keeper(&clock, &format!("{{tokenFile: {}}}", path.display())).await.unwrap();
    fs::write(&path, "two\n").unwrap();
    clock.advance(seconds(59));
    assert_eq!(shown(&keeper).await.unwrap(), "Bearer one");
    clock.advance(seconds(1));
    assert_eq!(shown_and_renewed(&keeper).await, "Bearer one");
    assert_eq!(shown(&keeper).await.unwrap(), "Bearer two");
    // Some kubeconfigs have a token only for the start.
    fs::remove_file(&path).unwrap();
    clock.advance(seconds(3600));
    assert_eq!(shown_and_renewed(&keeper).await, "Bearer two");
    assert_eq!(shown(&keeper).await.unwrap(), "Bearer two");
}

#[tokio::test]
async fn a_source_that_hangs_delays_nobody_whose_source_answers() {
    let (clock, renewals) = (clock(), renewals());
    let good = Script::answering();
    let answer = |token: &str, ends| json!({"token": token, "expirationTimestamp": at(ends)});
    good.answer(&answer("one", 600));
    let kept = keeper_among(&clock, &good.user(), renewals.clone()).await.unwrap();
    let hangs = Script::new("echo >> runs; exec sleep 1000");
    let user = hangs.user();
    let mut hanging = Box::pin(keeper_among(&clock, &user, renewals.clone()));
    while !hangs.path("runs").exists() {
        let waited = tokio::time::timeout(Duration::from_millis(5), &mut hanging).await;
        assert!(waited.is_err(), "it hangs");
    }
    // It has the only place for the first time. Others need none, or have their own.
    keeper_among(&clock, "{token: t}", renewals.clone()).await.unwrap();
    good.answer(&answer("two", 1200));
    clock.advance(seconds(541));
    assert_eq!(shown_and_renewed(&kept).await, "Bearer one");
    assert_eq!(shown(&kept).await.unwrap(), "Bearer two");
    // Once nobody waits for it, its place is free.
    drop(hanging);
    let new = Script::answering();
    new.answer(&answer("new", 1200));
    let new = keeper_among(&clock, &new.user(), renewals).await.unwrap();
    assert_eq!(shown(&new).await.unwrap(), "Bearer new");
}

/// Goes on until a program has run. The time of the test stands still meanwhile.
async fn until_run(going: &mut (impl Future + Unpin), script: &Script, runs: usize) {
    while !script.path("runs").exists() || script.runs() < runs {
        assert!(futures::poll!(&mut *going).is_pending(), "it hangs");
        std::thread::sleep(Duration::from_millis(1));
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_first_credential_that_hangs_makes_way_for_those_that_come_after_it() {
    // A program takes real time. Until this ends, the paused clock moves only by `advance`.
    let (over, is_over) = std::sync::mpsc::channel::<()>();
    tokio::task::spawn_blocking(move || is_over.recv_timeout(seconds(60)));
    let (clock, renewals) = (clock(), renewals());
    let scripts = [0; 2].map(|_| Script::new("echo >> runs; exec sleep 1000"));
    let users = scripts.each_ref().map(Script::user);
    let [mut one, mut two] =
        users.each_ref().map(|user| Box::pin(keeper_among(&clock, user, renewals.clone())));
    until_run(&mut one, &scripts[0], 1).await;
    // It goes on in the place for what takes long; there is none for the next.
    tokio::time::advance(FIRST_PROMPT).await;
    until_run(&mut two, &scripts[1], 1).await;
    tokio::time::advance(FIRST_PROMPT).await;
    let new = Script::answering();
    new.answer(&json!({"token": "new"}));
    let new = keeper_among(&clock, &new.user(), renewals.clone()).await.unwrap();
    assert_eq!(shown(&new).await.unwrap(), "Bearer new");
    // Its program has been ended, and is begun again when it is its turn.
    drop(one);
    until_run(&mut two, &scripts[1], 2).await;
    assert_eq!(scripts[0].runs(), 1);
    drop(over);
}

#[tokio::test]
async fn a_token_stands_in_for_a_token_file_that_is_not_there() {
    let missing = keeper(&clock(), "{tokenFile: /nowhere/token}").await.err().unwrap();
    assert!(missing.starts_with("k: cannot read its tokenFile /nowhere/token"), "{missing}");
    let both = keeper(&clock(), "{tokenFile: /nowhere/token, token: sesame}").await.unwrap();
    assert_eq!(shown(&both).await.unwrap(), "Bearer sesame");
}

#[tokio::test]
async fn a_password_is_shown_as_one() {
    let keeper = keeper(&clock(), "{username: u, password: p}").await.unwrap();
    assert_eq!(shown(&keeper).await.unwrap(), "Basic dTpw");
}

/// A test server: the headers it received, and its answers.
struct Server {
    address: std::net::SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
}

/// Answers a request: `String` is its `Authorization` header, `Bytes` its body.
type Answering = dyn FnMut(&str, &str, &str) -> (StatusCode, serde_json::Value) + Send;

impl Server {
    async fn start(tls: Option<TlsAcceptor>, answer: Box<Answering>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let answer = Arc::new(Mutex::new(answer));
        let for_task = Arc::clone(&seen);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (seen, answer, tls) = (Arc::clone(&for_task), Arc::clone(&answer), tls.clone());
                tokio::spawn(async move {
                    let mut certificate = None;
                    let stream: Box<dyn Stream> = match tls {
                        None => Box::new(stream),
                        Some(tls) => {
                            let stream = tls.accept(stream).await.unwrap();
                            let shown = stream.get_ref().1.peer_certificates().unwrap();
                            certificate = Some(STANDARD.encode(&shown[0]));
                            Box::new(stream)
                        }
                    };
                    let service = service_fn(move |request: Request<Incoming>| {
                        let (seen, answer) = (Arc::clone(&seen), Arc::clone(&answer));
                        let certificate = certificate.clone();
                        async move {
                            let header = request.headers().get(AUTHORIZATION).cloned();
                            let header = header.map(|header| header.to_str().unwrap().to_owned());
                            let shown = header.or(certificate).unwrap_or_default();
                            let path = request.uri().path().to_owned();
                            let body = request.into_body().collect().await?.to_bytes();
                            let body = String::from_utf8(body.to_vec()).unwrap();
                            seen.lock().unwrap().push(shown.clone());
                            let (status, body) = answer.lock().unwrap()(&path, &shown, &body);
                            let body = Full::new(Bytes::from(body.to_string()));
                            let response = Response::builder().status(status).body(body).unwrap();
                            Ok::<_, hyper::Error>(response)
                        }
                    });
                    let server = auto::Builder::new(TokioExecutor::new());
                    let _ = server.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { address, seen }
    }

    fn seen(&self) -> Vec<String> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }

    async fn client(&self, clock: &Arc<ManualClock>, cluster: &str, user: &str) -> kube::Client {
        let text = format!(
            "clusters: [{{name: c, cluster: {{{cluster}}}}}]\nusers: [{{name: u, user: {user}}}]\n\
             contexts: [{{name: east, context: {{cluster: c, user: u}}}}]\n"
        );
        let kubeconfig = Arc::new(serde_saphyr::from_str::<Kubeconfig>(&text).unwrap());
        let access = Access::own(kubeconfig, "east");
        let connector = Connector::new(Role::Workload, Arc::clone(clock) as Arc<dyn Clock>);
        connector.client("k", &access).await.unwrap()
    }
}

trait Stream: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin {}

impl<T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin> Stream for T {}

fn version() -> serde_json::Value {
    json!({"major": "1", "minor": "37", "gitVersion": "v1.37.1", "gitCommit": "", "gitTreeState": "",
           "buildDate": "", "goVersion": "", "compiler": "", "platform": ""})
}

#[tokio::test]
async fn what_a_server_refuses_is_renewed_and_nothing_is_sent_twice() {
    let good = Arc::new(Mutex::new("Bearer one"));
    let for_server = Arc::clone(&good);
    let answer = move |_: &str, shown: &str, _: &str| match shown == *for_server.lock().unwrap() {
        true => (StatusCode::OK, version()),
        false => (StatusCode::UNAUTHORIZED, json!({"kind": "Status", "code": 401})),
    };
    let server = Server::start(None, Box::new(answer)).await;
    let script = Script::answering();
    script.answer(&json!({"token": "one"}));
    let clock = clock();
    let cluster = format!("server: 'http://{}'", server.address);
    let client = server.client(&clock, &cluster, &script.user()).await;
    client.apiserver_version().await.unwrap();
    clock.advance(seconds(3600));
    client.apiserver_version().await.unwrap();
    *good.lock().unwrap() = "Bearer two";
    script.answer(&json!({"token": "two"}));
    client.apiserver_version().await.unwrap_err();
    client.apiserver_version().await.unwrap();
    assert_eq!(server.seen(), ["Bearer one", "Bearer one", "Bearer one", "Bearer two"]);
    assert_eq!(script.runs(), 2);
    // A server that refuses everything does not cause a run of the program each time.
    *good.lock().unwrap() = "Bearer nothing";
    for _ in 0..20 {
        client.apiserver_version().await.unwrap_err();
    }
    assert_eq!(script.runs(), 2);
}

/// A certificate authority and its client certificates.
struct Authority {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    certificate: rcgen::Certificate,
}

impl Authority {
    fn new() -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new([]).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).unwrap();
        Self { issuer: rcgen::Issuer::new(params, key), certificate }
    }

    fn pair(&self) -> (rcgen::Certificate, rcgen::KeyPair) {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    /// A server's TLS, which demands a certificate of this authority.
    fn acceptor(&self) -> TlsAcceptor {
        use tokio_rustls::rustls::{RootCertStore, ServerConfig, crypto, server};
        let provider = Arc::new(crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.der().clone()).unwrap();
        let clients = server::WebPkiClientVerifier::builder_with_provider(
            Arc::new(roots),
            Arc::clone(&provider),
        );
        let (certificate, key) = self.pair();
        let key = tokio_rustls::rustls::pki_types::PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients.build().unwrap())
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec()];
        TlsAcceptor::from(Arc::new(config))
    }
}

#[tokio::test]
async fn a_client_certificate_that_a_program_renews_is_shown_by_new_connections() {
    let authority = Authority::new();
    let answer = |_: &str, _: &str, _: &str| (StatusCode::OK, version());
    let server = Server::start(Some(authority.acceptor()), Box::new(answer)).await;
    let script = Script::answering();
    let give = |until: i64| {
        let (certificate, key) = authority.pair();
        script.answer(&json!({
            "clientCertificateData": certificate.pem(), "clientKeyData": key.serialize_pem(),
            "expirationTimestamp": at(until),
        }));
        STANDARD.encode(certificate.der())
    };
    let (one, clock) = (give(600), clock());
    let cluster = format!(
        "server: 'https://{}', certificate-authority-data: {}",
        server.address,
        STANDARD.encode(authority.certificate.pem())
    );
    let client = server.client(&clock, &cluster, &script.user()).await;
    client.apiserver_version().await.unwrap();
    client.apiserver_version().await.unwrap();
    assert_eq!(server.seen(), [one.clone(), one]);
    let two = give(1200);
    clock.advance(seconds(601));
    client.apiserver_version().await.unwrap();
    assert_eq!(server.seen(), [two]);
}

/// A token that ends that many seconds after the start. Nobody checks its signature here.
fn jwt(name: &str, until: i64) -> String {
    let claims = json!({"sub": name, "exp": START + until}).to_string();
    format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims))
}

/// An issuer whose clients identify themselves by parameters, and that accepts each refresh token once.
async fn issuer(mut answers: VecDeque<serde_json::Value>) -> (Server, Arc<Mutex<Vec<String>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let for_server = Arc::clone(&asked);
    let address = Arc::new(Mutex::new(String::new()));
    let own = Arc::clone(&address);
    let answer = move |path: &str, shown: &str, body: &str| {
        let own = own.lock().unwrap();
        if path == "/.well-known/openid-configuration" {
            return (
                StatusCode::OK,
                json!({"issuer": *own, "token_endpoint": format!("{own}/token")}),
            );
        }
        for_server.lock().unwrap().push(body.to_owned());
        if !shown.is_empty() {
            return (StatusCode::UNAUTHORIZED, json!({"error": "invalid_client"}));
        }
        match answers.pop_front() {
            Some(answer) => (StatusCode::OK, answer),
            None => (StatusCode::BAD_REQUEST, json!({"error": "invalid_grant"})),
        }
    };
    let server = Server::start(None, Box::new(answer)).await;
    *address.lock().unwrap() = format!("http://{}", server.address);
    (server, asked)
}

#[tokio::test]
async fn an_issuer_gives_tokens_until_it_takes_the_refresh_token_no_more() {
    let (server, asked) = issuer(VecDeque::from([
        json!({"id_token": jwt("two", 1200), "refresh_token": "r2"}),
        json!({"id_token": jwt("three", 1800)}),
    ]))
    .await;
    let user = format!(
        "{{auth-provider: {{name: oidc, config: {{idp-issuer-url: 'http://{}', client-id: 'c d', \
         client-secret: s, id-token: {}, refresh-token: r1}}}}}}",
        server.address,
        jwt("one", 600)
    );
    let clock = clock();
    let keeper = keeper(&clock, &user).await.unwrap();
    let bearer = |name: &str, until: i64| format!("Bearer {}", jwt(name, until));
    assert_eq!(shown(&keeper).await.unwrap(), bearer("one", 600));
    assert_eq!(asked.lock().unwrap().len(), 0, "the kubeconfig's own token is good");
    clock.advance(seconds(540));
    assert_eq!(shown_and_renewed(&keeper).await, bearer("one", 600));
    assert_eq!(shown(&keeper).await.unwrap(), bearer("two", 1200));
    clock.advance(seconds(660));
    assert_eq!(shown(&keeper).await.unwrap(), bearer("three", 1800));
    clock.advance(seconds(600));
    let error = shown(&keeper).await.unwrap_err();
    assert!(
        error.ends_with(
            "gave no token: it refuses the refresh token with 400 Bad Request; fix: log in again, and \
             put the new id-token and refresh-token into the kubeconfig"
        ),
        "{error}"
    );
    let form = |token: &str| {
        format!("grant_type=refresh_token&refresh_token={token}&client_id=c%20d&client_secret=s")
    };
    let asked = std::mem::take(&mut *asked.lock().unwrap());
    assert_eq!(
        asked,
        ["grant_type=refresh_token&refresh_token=r1", &form("r1"), &form("r2"), &form("r2")]
    );
}

#[tokio::test]
async fn an_answer_that_has_begun_does_not_stand_still() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let user = format!(
        "{{auth-provider: {{name: oidc, config: {{idp-issuer-url: 'http://{}', client-id: c, \
         refresh-token: r}}}}}}",
        listener.local_addr().unwrap()
    );
    let (clock, turns) = (clock(), Turns::new([1, 1, 0]));
    let keeper = keeper_among(&clock, &user, Renewals { turns, calls: Calls::new() });
    let issuer = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        assert_ne!(stream.read(&mut [0; 1024]).await.unwrap(), 0);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{").await.unwrap();
        // Its connection is dropped, with what has come.
        let _ended = stream.read_to_end(&mut Vec::new()).await;
    };
    tokio::select! {
        _ = keeper => unreachable!("there is no place for what takes long"),
        ended = tokio::time::timeout(seconds(60), issuer) => ended.unwrap(),
    }
}

#[tokio::test]
async fn issuers_that_cannot_be() {
    let check = async |config: &str, expect: &str| {
        let user = format!("{{auth-provider: {{name: oidc, config: {{{config}}}}}}}");
        let error = keeper(&clock(), &user).await.err().unwrap();
        assert!(error.contains(expect), "{error}");
    };
    let token = jwt("old", -1);
    check("idp-issuer-url: 'http://issuer.test'", "http://issuer.test/ is not an https URL").await;
    check(
        &format!("idp-issuer-url: 'https://issuer.test', id-token: {token}"),
        "its token has ended, and there is no refresh-token to get another",
    )
    .await;
    check(
        "idp-issuer-url: 'https://issuer.test', idp-certificate-authority-data: '?'",
        "its idp-certificate-authority-data is no base64",
    )
    .await;
    let error = keeper(&clock(), "{auth-provider: {name: azure}}").await.err().unwrap();
    assert!(
        error.contains("auth-provider \"azure\" is not supported; fix: use an exec"),
        "{error}"
    );
}

#[test]
fn debugging_prints_no_secret() {
    let credential: Credential = HeaderValue::from_static("Bearer sesame").into();
    assert!(!format!("{credential:?}").contains("sesame"));
}

/// Says what the test tells it, and that it is asked again.
struct Told {
    asked: tokio::sync::mpsc::UnboundedSender<()>,
    sources: tokio::sync::mpsc::UnboundedReceiver<Source>,
}

impl ClusterProvider for Told {
    fn label(&self) -> String {
        "told".to_owned()
    }

    fn next(&mut self) -> futures::future::BoxFuture<'_, Snapshot> {
        self.asked.send(()).unwrap();
        Box::pin(async {
            let source = self.sources.recv().await.expect("the test goes on");
            Snapshot { sources: vec![source], ..Snapshot::default() }
        })
    }
}

#[tokio::test]
async fn the_home_client_follows_its_source_but_to_no_other_server() {
    let server = Server::start(None, Box::new(|_, _, _| (StatusCode::OK, version()))).await;
    let here = format!("http://{}", server.address);
    let (asked, mut requests) = tokio::sync::mpsc::unbounded_channel();
    let (tell, sources) = tokio::sync::mpsc::unbounded_channel();
    let told = |server: &str, user: &str| {
        let text = format!(
            "clusters: [{{name: c, cluster: {{server: '{server}'}}}}]\n\
             users: [{{name: u, user: {user}}}]\n\
             contexts: [{{name: home, context: {{cluster: c, user: u}}}}]\n"
        );
        let access = Access::own(Arc::new(Kubeconfig::from_yaml(&text).unwrap()), "home");
        let (name, origin) = ("home".parse().unwrap(), "home.yaml".into());
        let fingerprint = Fingerprint::of([text.as_bytes()]);
        let access = Ok(access);
        tell.send(Source { name, origin, fingerprint, access, asked: None }).unwrap();
    };
    told(&here, "{token: one}");
    let provider = Box::new(Told { asked, sources });
    let client = crate::following::client(provider, clock()).await.unwrap().client;
    requests.recv().await.unwrap();
    for (at, user, shown) in [
        (&*here, "{token: two}", "Bearer two"),
        ("https://127.0.0.1:1", "{token: three}", "Bearer two"),
        (&*here, "{tokenFile: /no/such/file}", "Bearer two"),
        (&*here, "{token: four}", "Bearer four"),
    ] {
        requests.recv().await.unwrap();
        told(at, user);
        // It asks again when it has dealt with that.
        while requests.is_empty() {
            tokio::task::yield_now().await;
        }
        client.apiserver_version().await.unwrap();
        assert_eq!(server.seen(), [shown], "{at} {user}");
    }
}
