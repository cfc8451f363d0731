//! The commands that ask replicas, against some whose admin servers are reached through home's API server, and with a
//! home that is down (`no_home`); and `leasehold doctor` in the place of a replica.

#[path = "asking/explain.rs"]
mod explain;
#[path = "asking/no_home.rs"]
mod no_home;

use std::fs;
use std::net::SocketAddr;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use apiserver::faults::{Fault, Hook, Request};
use apiserver::status::{ApiError, Reason};
use apiserver::{Matcher, Process, Program, Server, Start};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PostParams;
use kube::{Api, Client};
use leasehold::config::{ClusterSources, Config, Home, KubeconfigSource, Risk};
use leasehold::{Action, Context, Controller, Manager, ObjectKey, ReconcileError, Reconciler};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, DuplexStream};
use tokio::net::TcpStream;
use tokio::process::Child;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

const NAMESPACE: &str = "leasehold-system";
const PATIENCE: Duration = Duration::from_secs(60);
const PORT: u16 = 8443;

/// A cluster where nobody answers.
const NOWHERE: &str = "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]
contexts: [{name: west, context: {cluster: c}}]
current-context: west
";

/// Fails for some objects, and does not come to an end with one.
struct Picky;

impl Reconciler for Picky {
    type Kind = ConfigMap;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        match &*key.name {
            "leaks" => {
                let map = ctx.get::<ConfigMap>(key.namespace.as_deref(), &key.name)?;
                let secret = map.and_then(|map| map.data.clone()).unwrap_or_default();
                let error = format!("no answer to token={}", secret["secret"]);
                Err(ReconcileError::terminal(std::io::Error::other(error)))
            }
            "bad" => Err(ReconcileError::terminal(std::io::Error::other("no such bucket"))),
            "slow" => std::future::pending().await,
            _ => Ok(Action::Done),
        }
    }
}

/// A container in which a replica seems to run: its port is the replica's.
struct Door(SocketAddr);

impl Program for Door {
    fn start(&self, _: &Start) -> Arc<dyn Process> {
        Arc::new(Self(self.0))
    }
}

impl Process for Door {
    fn connect(&self, port: u16) -> Option<DuplexStream> {
        let (near, mut far) = tokio::io::duplex(1 << 16);
        let address = self.0;
        (port == PORT).then(|| {
            tokio::spawn(async move {
                let mut replica = TcpStream::connect(address).await?;
                tokio::io::copy_bidirectional(&mut far, &mut replica).await
            });
            near
        })
    }
}

struct Fleet {
    home: Server,
    east: Server,
    /// Where the replicas' admin servers are.
    addresses: Vec<SocketAddr>,
    stop: CancellationToken,
    dir: tempfile::TempDir,
}

async fn create<K>(client: Client, namespace: Option<&str>, object: Value)
where
    K: kube::Resource<DynamicType = ()> + Clone + std::fmt::Debug,
    K: serde::de::DeserializeOwned + serde::Serialize,
{
    let resource = kube::api::ApiResource::erase::<K>(&());
    let api: Api<kube::api::DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    };
    let object = serde_json::from_value(object).expect("an object");
    api.create(&PostParams::default(), &object).await.expect("created");
}

impl Fleet {
    /// With one replica.
    async fn start() -> Self {
        Self::of(&[&["clusters"]]).await
    }

    /// With replicas that have these kubeconfigs: `clusters` is that of the cluster `east`, and `nowhere` that of one
    /// that is down.
    async fn of(replicas: &[&[&str]]) -> Self {
        let mut home = Server::builder().name("home").workloads(true);
        let mut addresses = Vec::new();
        for number in 0..replicas.len() {
            let port = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
            let address = port.local_addr().expect("an address");
            addresses.push(address);
            let container = Matcher::Container(format!("manager-{number}"));
            home = home.program(container, Arc::new(Door(address)));
        }
        let home = home.start().await.expect("it starts");
        let east = Server::builder().name("east").start().await.expect("it starts");
        create::<Namespace>(home.client(), None, json!({"metadata": {"name": NAMESPACE}})).await;
        for crd in sharding::api::crds() {
            create::<CustomResourceDefinition>(home.client(), None, json!(crd)).await;
        }
        for name in ["good", "bad"] {
            let map = json!({"metadata": {"name": name}});
            create::<ConfigMap>(east.client(), Some("default"), map).await;
        }
        let dir = tempfile::tempdir().expect("a directory");
        for (name, text) in [
            ("home", home.kubeconfig()),
            ("clusters", east.kubeconfig()),
            ("nowhere", NOWHERE.to_owned()),
        ] {
            fs::write(dir.path().join(name), text).expect("written");
        }
        let stop = CancellationToken::new();
        for (number, kubeconfigs) in replicas.iter().enumerate() {
            let identity = format!("replica-{number}");
            let containers = json!([{"name": format!("manager-{number}"), "image": "leasehold:1"}]);
            let pod = json!({"metadata": {"name": identity}, "spec": {"containers": containers}});
            create::<Pod>(home.client(), Some(NAMESPACE), pod).await;
            let source = |name: &&str| KubeconfigSource {
                path: dir.path().join(name),
                allow: [Risk::Loopback].into(),
                ..KubeconfigSource::default()
            };
            let kubeconfigs = kubeconfigs.iter().map(source).collect();
            let clusters = ClusterSources { kubeconfigs, ..ClusterSources::default() };
            let (path, allow) = (dir.path().join("home"), [Risk::Loopback].into());
            let at = Home::Kubeconfig { path, context: None, allow };
            let mut config = Config::new(at, &identity, clusters);
            config.admin = Some(addresses[number].into());
            let controller = Controller::for_kind::<ConfigMap>("picky").reconciler(Picky);
            tokio::spawn(Manager::new(config).controller(controller).run(stop.clone()));
        }
        Self { home, east, addresses, stop, dir }
    }

    /// What a command does that finds home by this kubeconfig.
    async fn command(&self, args: &[&str], home: &str) -> Output {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command.args(args).arg("--kubeconfig").arg(self.dir.path().join(home));
        timeout(PATIENCE, command.output()).await.expect("in time").expect("the binary runs")
    }

    async fn leasehold(&self, args: &[&str]) -> Output {
        self.command(args, "home").await
    }

    async fn explain(&self, object: &str) -> Output {
        self.leasehold(&["explain", object, "--plaintext"]).await
    }

    /// What is said of an object, once these lines are in it.
    async fn said(&self, object: &str, lines: &[&str]) -> String {
        self.said_to(&["explain", object, "--plaintext"], lines).await
    }

    /// What a command says, once these lines are in it.
    async fn said_to(&self, args: &[&str], lines: &[&str]) -> String {
        let mut last = String::new();
        let said = async {
            while !lines.iter().all(|line| last.contains(line)) {
                let output = self.leasehold(args).await;
                last = String::from_utf8_lossy(&output.stdout).into_owned()
                    + &String::from_utf8_lossy(&output.stderr);
            }
        };
        let in_time = timeout(PATIENCE, said).await.is_ok();
        assert!(in_time, "{args:?}: {lines:?} never came in\n{last}");
        last
    }

    /// The console that finds home by this kubeconfig: its process, its address, and the key to it.
    async fn console(&self, args: &[&str], home: &str) -> (Child, SocketAddr, String) {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command.args(["console", "--port", "0", "--kubeconfig"]).arg(self.dir.path().join(home));
        command.args(args).stdout(Stdio::piped());
        let mut console = command.kill_on_drop(true).spawn().expect("it runs");
        let mut lines = BufReader::new(console.stdout.take().expect("a pipe")).lines();
        let line = timeout(PATIENCE, lines.next_line()).await.expect("in time").expect("text");
        let line = line.expect("an address");
        let found = line.trim_start_matches("http://").split_once("/console?");
        let (host, key) = found.expect("a key");
        (console, host.parse().expect("an address"), key.to_owned())
    }
}

/// What `top`, `doctor`, `events` and `support-bundle` say of the same replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_person_on_call_finds_what_fails_and_takes_it_along() {
    let fleet = Fleet::start().await;
    fleet.said("east/configmaps/default/bad", &["its last reconcile failed for good"]).await;

    let top = fleet.leasehold(&["top", "--plaintext"]).await;
    let text = String::from_utf8_lossy(&top.stdout).into_owned();
    assert!(top.status.success(), "{text}");
    let failing = text.lines().find(|line| line.starts_with("east/default/bad")).expect("a row");
    assert!(failing.contains("picky") && failing.contains("no such bucket"), "{text}");

    let doctor = fleet.leasehold(&["doctor", "--plaintext", "--output", "json"]).await;
    let report: Value = serde_json::from_slice(&doctor.stdout).expect("JSON");
    let found = |level: &str, about: &str, what: &str| {
        let all = report["findings"].as_array().expect("findings");
        let is = |finding: &&Value| {
            finding["level"] == level
                && finding["about"] == about
                && finding["what"].as_str().is_some_and(|text| text.contains(what))
        };
        assert!(all.iter().any(|finding| is(&finding)), "{level} {about} {what}: {report:#}");
    };
    found("warning", "controller picky", "east/default/bad (1 times, failed for good: ");
    found("ok", "home", "answers, Kubernetes");
    found("ok", "fleet", "1 members serve 1 shards");
    found("ok", "member replica-0", "1 of 1 clusters engaged");
    found("ok", "clusters", "kubectl --namespace leasehold-system exec replica-0 -- ");
    assert_eq!(doctor.status.code(), Some(0), "a warning is no failure");

    // With the configuration, it asks the replicas too if it is said how.
    let config = fleet.dir.path().join("l.yaml");
    let text = "home: {kubeconfig: home, allow: [loopback]}\nidentity: r\n\
                clusters: {kubeconfigs: [{path: clusters, allow: [loopback]}]}\ncontrollers: {}\n";
    fs::write(&config, text).expect("written");
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(["doctor", "--address", &fleet.addresses[0].to_string(), "--config"]).arg(&config);
    let output = timeout(PATIENCE, command.output()).await.expect("in time").expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("objects fail: east/default/bad"), "{text}");

    let events = fleet.leasehold(&["events", "--output", "json"]).await;
    let events: Value = serde_json::from_slice(&events.stdout).expect("JSON");
    let reasons: Vec<_> = events.as_array().expect("a list").iter().map(|e| &e["reason"]).collect();
    assert!(reasons.iter().any(|reason| *reason == "Coordinating"), "{events:#}");
}

/// What is served at a path; `host` is what the browser asked for.
async fn page(address: SocketAddr, host: &str, path: &str) -> String {
    let ask = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        std::io::Result::Ok(text)
    };
    timeout(PATIENCE, ask).await.expect("in time").expect("an answer")
}

/// The console of `leasehold console`, which asks all replicas, and that of a replica.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_console_shows_the_fleet_its_queues_and_an_object() {
    let fleet = Fleet::start().await;
    fleet.said("east/configmaps/default/bad", &["its last reconcile failed for good"]).await;
    let (_console, address, key) = fleet.console(&["--plaintext"], "home").await;
    let (host, replica) = (address.to_string(), fleet.addresses[0]);
    for (address, path, expect) in [
        (address, "/console", "Nothing is wrong, as far as home tells"),
        (address, "/console/clusters", "/console/clusters/east"),
        (address, "/console/clusters/east", "east/picky/0/1"),
        (address, "/console/queues", "?object=east%2Fconfigmaps%2Fdefault%2Fbad"),
        (address, "/console/queues", "no such bucket"),
        (
            address,
            "/console/object?object=east/configmaps/default/bad",
            "its last reconcile failed",
        ),
        (address, "/console/events", "Coordinating"),
        (replica, "/console", "Nothing is wrong, as far as home tells"),
        (replica, "/console/queues", "no such bucket"),
        (replica, "/console/object?object=east/configmaps/default/bad", "failed for good"),
        (replica, "/console/events", "a replica has no right to read Events"),
    ] {
        // The replica has no use for the key.
        let path = format!("{path}{}{key}", if path.contains('?') { "&" } else { "?" });
        let text = page(address, &address.to_string(), &path).await;
        assert!(text.contains(expect), "{path}: no {expect:?} in\n{text}");
    }
    // Another user of this machine does not.
    let text = page(address, &host, "/console").await;
    assert!(text.starts_with("HTTP/1.1 401") && !text.contains("Members"), "{text}");
    // A stranger's page whose name leads to this machine does not read the fleet.
    let text = page(address, "rebinds.example.com", "/console").await;
    assert!(text.starts_with("HTTP/1.1 421") && !text.contains("Members"), "{text}");
    let localhost = format!("localhost:{}", address.port());
    let text = page(address, &localhost, &format!("/?{key}")).await;
    assert!(text.contains("location: /console\r\n"), "{text}");
}

/// A watch ends when nobody reads it any more, though nothing changes that it could print.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_ends_with_its_reader() {
    let fleet = Fleet::start().await;
    fleet.said("east/configmaps/default/good", &["its key is not queued"]).await;
    for watch in ["status", "events"] {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command.args([watch, "--watch", "--kubeconfig"]).arg(fleet.dir.path().join("home"));
        let mut child = command.stdout(Stdio::piped()).kill_on_drop(true).spawn().expect("it runs");
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        lines.next_line().await.expect("a line");
        drop(lines);
        let status = timeout(PATIENCE, child.wait()).await.expect("in time").expect("it ends");
        assert!(status.success(), "{watch}");
    }
}

/// Secrets in the places where people put them: they are not in a bundle, and all else is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_support_bundle_has_no_secrets_in_it() {
    const PLANTED: &str = "open-Sesame-31";
    let fleet = Fleet::start().await;
    let home = fleet.home.client();
    let chart =
        json!({"app.kubernetes.io/name": "fleet", "app.kubernetes.io/part-of": "leasehold"});
    let secret = json!({"metadata": {"name": "cluster-east", "labels": chart},
        "stringData": {"kubeconfig": format!("token: {PLANTED}")}});
    create::<Secret>(home.clone(), Some(NAMESPACE), secret).await;
    let map = json!({"metadata": {"name": "leasehold", "labels": chart, "annotations":
        {"kubectl.kubernetes.io/last-applied-configuration": format!("{{\"x\": \"{PLANTED}\"}}")}},
        "data": {"config.yaml": format!("otlp: {{headers: {{authorization: 'Bearer {PLANTED}'}}}}\n\
            clusters: {{credentialPlugins: [{{\"args\":[\"--client-secret\",\"{PLANTED}\"],\"env\":{{\"A\":\"{PLANTED}\"}}}}]}}\n\
            workers: 8"),
        "auth.yaml": format!("auth:\n  key: {PLANTED}\nuser: kept"),
        "secret.yaml": format!("a: 1\n---\nkind: Secret\nstringData: {{license: {PLANTED}}}\n"),
        "pairs": format!("- key: DB_PASSWORD\n  value: {PLANTED}\n- {{id: password, value: {PLANTED}}}\n"),
        ".netrc": format!("machine h login bob password {PLANTED}\n"),
        "Dockerfile": format!("ENV API_TOKEN {PLANTED}\nRUN curl -u bob:{PLANTED} postgres://u:a/{PLANTED}@h\n")}});
    create::<ConfigMap>(home.clone(), Some(NAMESPACE), map).await;
    let pod = json!({"metadata": {"name": "leasehold-1", "labels": chart}, "spec": {"containers": [
        {"name": "other", "image": "leasehold:1", "args": [format!("--password={PLANTED}"), format!("agent --token {PLANTED}")],
            "env": [{"name": "HARMLESS", "value": PLANTED}]},
        {"name": "client", "image": "mysql:8", "args": ["-u", format!("bob:{PLANTED}"), format!("-p{PLANTED}")]}]}});
    create::<Pod>(home.clone(), Some(NAMESPACE), pod).await;
    // A controller's error with a secret in it: what replicas say is searched too.
    let map = json!({"metadata": {"name": "leaks"}, "data": {"secret": PLANTED}});
    create::<ConfigMap>(fleet.east.client(), Some("default"), map).await;
    fleet.said("east/ConfigMap/default/leaks", &["its last reconcile failed"]).await;

    let out = fleet.dir.path().join("bundle.tar.gz");
    let args = ["support-bundle", "--plaintext", "--out", out.to_str().expect("UTF-8")];
    let wrong = fleet.leasehold(&[&args[..], &["--token-file", "nowhere"]].concat()).await;
    assert_eq!((wrong.status.code(), out.exists()), (Some(1), false), "there is no half of one");
    let made = fleet.leasehold(&args).await;
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let again = fleet.leasehold(&args).await;
    assert_eq!(again.status.code(), Some(1), "what is there is not overwritten");
    let files = unpacked(&out);
    for (name, text) in &files {
        assert!(!text.contains("Sesame"), "{name}:\n{text}");
    }
    let part = |name: &str| {
        let found = files.iter().find(|(path, _)| path.ends_with(name));
        found.map_or_else(|| panic!("no {name} in {:?}", files.keys()), |(_, text)| text.as_str())
    };
    assert!(part("fleet.json").contains("\"shard\": \"east/picky/0/1\""));
    assert!(part("home/shardmaps.json").contains("east"));
    assert!(part("home/events.json").contains("Coordinating"));
    assert!(part("chart/configmaps.json").contains("workers: 8"));
    assert!(part("chart/pods.json").contains("HARMLESS"));
    assert!(part("queues.json").contains("picky"), "{}", part("queues.json"));
    assert!(part("metrics.txt").contains("leasehold_build_info"));
    assert!(part("readyz.txt").contains("[+]home ok"));
    assert!(part("version.json").contains(env!("CARGO_PKG_VERSION")));
    assert!(!files.keys().any(|name| name.contains("secret")), "{:?}", files.keys());
}

/// The files of a bundle.
fn unpacked(path: &std::path::Path) -> std::collections::BTreeMap<String, String> {
    let file = fs::File::open(path).expect("it was written");
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(file));
    let entries = archive.entries().expect("a tar file").map(|entry| {
        let mut entry = entry.expect("an entry");
        let name = entry.path().expect("a path").display().to_string();
        let mut text = String::new();
        std::io::Read::read_to_string(&mut entry, &mut text).expect("text");
        (name, text)
    });
    entries.collect()
}

/// As a replica sees it: each thing that can be wrong with a cluster, and what is right once it was added.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_doctor_finds_each_thing_that_is_wrong_with_a_cluster() {
    let fleet = Fleet::start().await;
    let dir = fleet.dir.path();
    let old: Hook = Arc::new(|request: &Request| match request.path.as_str() {
        "/version" => Fault::Error(ApiError::new(Reason::InternalError, "broken")),
        _ => Fault::None,
    });
    let broken = Server::builder().name("broken").faults(old).start().await.expect("it starts");
    let strict = Server::builder().name("strict").rbac(true).start().await.expect("it starts");
    create::<Namespace>(strict.client(), None, json!({"metadata": {"name": "shop"}})).await;
    // A user without rights, but to read what the server offers.
    create::<ServiceAccount>(strict.client(), Some("shop"), json!({"metadata": {"name": "fleet"}}))
        .await;
    let accounts = Api::<ServiceAccount>::namespaced(strict.client(), "shop");
    let (params, asked) = (PostParams::default(), TokenRequest::default());
    let answer = accounts.create_token_request("fleet", &params, &asked).await.expect("a token");
    let token = answer.status.and_then(|status| status.token).expect("a token");
    let kubeconfig: Value = serde_saphyr::from_str(&strict.kubeconfig()).expect("YAML");
    let mut poor = kubeconfig.clone();
    poor["users"][0]["user"] = json!({"token": token});
    for (name, text) in [
        ("broken", broken.kubeconfig()),
        ("east", fleet.east.kubeconfig()),
        ("poor", poor.to_string()),
        (
            "nowhere",
            "clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}]\n\
             contexts: [{name: nowhere, context: {cluster: c}}]\n"
                .to_owned(),
        ),
    ] {
        fs::write(dir.join(format!("{name}.kubeconfig")), text).expect("written");
    }
    let sources: Vec<_> = ["broken", "east", "poor", "nowhere", "missing"]
        .map(|name| format!("{{path: {name}.kubeconfig, allow: [loopback]}}"))
        .into();
    let text = format!(
        "home: {{kubeconfig: home, allow: [loopback]}}\nidentity: r\nclusters: {{kubeconfigs: [{}]}}\n\
         controllers: {{tdset: {{namespaces: [shop]}}}}\n",
        sources.join(", ")
    );
    let config = dir.join("l.yaml");
    fs::write(&config, text).expect("written");
    let report = async || {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command.args(["doctor", "--config"]).arg(&config);
        let output = timeout(PATIENCE, command.output()).await.expect("in time").expect("it runs");
        (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
    };
    let (text, code) = report().await;
    assert_eq!(code, Some(3), "{text}");
    let line = |about: &str, what: &str| {
        let is = |line: &str| line.contains(about) && line.contains(what);
        assert!(text.lines().any(is), "{about}: {what} in\n{text}");
    };
    line("cluster broken", "does not answer: it answers 500 Internal Server Error: broken");
    line("cluster nowhere", "its API server does not answer: ");
    line("cluster missing", "cannot read");
    line("cluster east", "does not serve schedule.rs/TDSet (v1), which tdset needs");
    line(
        "fix:",
        "leasehold crds --for workload | kubectl apply --server-side --force-conflicts -f -",
    );
    line("cluster strict", "our user lacks rights that tdset needs: ");
    line("ok       cluster east", "tdset has its");
    line("ok       home", "home has its");
    line("sizing", "2 clusters have ");

    // One cluster alone, once it has what it lacked.
    for crd in leasehold::crds::workload_crds() {
        create::<CustomResourceDefinition>(fleet.east.client(), None, json!(crd)).await;
    }
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_leasehold"));
    command.args(["doctor", "--cluster", "east", "--config"]).arg(&config);
    let output = timeout(PATIENCE, command.output()).await.expect("in time").expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!text.contains("cluster strict"), "{text}");
    let about_east: Vec<_> = text.lines().filter(|line| line.contains("cluster east")).collect();
    assert!(about_east.iter().all(|line| line.starts_with("ok ")), "{text}");
}

/// What people get wrong most: the context of another cluster, and a token that has ended.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_no_home_and_one_that_lets_nobody_in_are_named_with_what_to_do() {
    let east = Server::builder().name("east").start().await.expect("it starts");
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("k");
    let status = async |text: &str, command: &str| {
        fs::write(&path, text).expect("written");
        let mut run = tokio::process::Command::new(env!("CARGO_BIN_EXE_leasehold"));
        run.args([command, "--context", "east", "--kubeconfig"]).arg(&path);
        let output = timeout(PATIENCE, run.output()).await.expect("in time").expect("it runs");
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&text).into_owned())
    };
    let (code, text) = status(&east.kubeconfig(), "status").await;
    assert_eq!(code, Some(1), "{text}");
    let shown = format!("read the fleet from {} (context \"east\" of ", east.url());
    assert!(text.contains(&shown), "{text}");
    assert!(
        text.contains("; fix: is this the home cluster of a fleet? If not, name that"),
        "{text}"
    );

    let (code, text) = status(&east.kubeconfig(), "doctor").await;
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("fix: is this the home cluster of a fleet?"), "{text}");

    let kubeconfig: Value = serde_saphyr::from_str(&east.kubeconfig()).expect("YAML");
    let token = kubeconfig["users"][0]["user"]["token"].as_str().expect("a token");
    let stale = east.kubeconfig().replace(token, "stale");
    let (code, text) = status(&stale, "status").await;
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(&shown) && text.contains(": the API server answers 401: "), "{text}");
    assert!(text.contains("; fix: renew the credentials in the kubeconfig"), "{text}");
    assert!(!text.contains("Status {"), "{text}");
    let (code, text) = status(&stale, "doctor").await;
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("fix: renew the credentials in the kubeconfig"), "{text}");
    east.shutdown().await;
}
