//! The commands that show or change a fleet, against members over an embedded home cluster.

mod clusters;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use apiserver::Server;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use leasehold::clock::SystemClock;
use model::ownership::acknowledge_drains;
use model::{ClusterSet, ClusterState, Hold, Holding, Ownership, Unmeasured};
use serde_json::{Value, json};
use sharding::api::FleetPolicy;
use sharding::{Config, Sharding};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::timeout;

const NAMESPACE: &str = "leasehold-system";
const PATIENCE: Duration = Duration::from_secs(60);

/// A home cluster with its members.
struct Fleet {
    server: Server,
    clusters: watch::Sender<Arc<ClusterSet>>,
    members: Vec<Sharding>,
    dir: tempfile::TempDir,
}

impl Fleet {
    async fn start(members: u64, clusters: usize) -> Self {
        let server = Server::builder().name("home").start().await.expect("the server starts");
        let namespaces = Api::<Namespace>::all(server.client());
        let namespace =
            serde_json::from_value(json!({"metadata": {"name": NAMESPACE}})).expect("a namespace");
        namespaces.create(&PostParams::default(), &namespace).await.expect("created");
        let definitions = Api::<CustomResourceDefinition>::all(server.client());
        for crd in sharding::api::crds() {
            definitions.create(&PostParams::default(), &crd).await.expect("created");
        }
        let down =
            |n| (format!("c{n}").parse().expect("a name"), ClusterState::Down("not needed".into()));
        let set = ClusterSet { clusters: (0..clusters).map(down).collect(), ..Default::default() };
        let clusters = watch::channel(Arc::new(set)).0;
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join("home"), server.kubeconfig()).expect("written");
        let mut fleet = Self { server, clusters, members: Vec::new(), dir };
        for number in 0..members {
            fleet.join(number);
        }
        fleet
    }

    /// Another member, with the least of an engine: it acknowledges each drain at once.
    fn join(&mut self, number: u64) {
        let groups = BTreeSet::from(["g".parse().expect("a name")]);
        self.join_as(Config::new(&format!("replica-{number}"), groups, number));
    }

    fn join_as(&mut self, config: Config) {
        let sharding = Sharding::spawn(
            self.server.client(),
            config,
            self.clusters.subscribe(),
            Arc::new(Unmeasured),
            Arc::new(SystemClock),
            &prometheus::Registry::new(),
        );
        let sharding = sharding.expect("the settings are right");
        self.members.push(sharding.clone());
        tokio::spawn(acknowledge_drains(sharding));
    }

    /// Waits until each member holds this many shards, and none of them is changing hands.
    async fn balanced(&self, each: usize) {
        for member in &self.members {
            let mut owned = member.watch();
            let even = owned.wait_for(|owned| {
                let active = |holding: &Holding| holding.hold == Hold::Active;
                owned.holdings.len() == each && owned.holdings.values().all(active)
            });
            timeout(PATIENCE, even).await.expect("in time").expect("the member lives");
        }
    }

    async fn leasehold(&self, args: &[&str]) -> Output {
        let kubeconfig: PathBuf = self.dir.path().join("home");
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_leasehold"));
        command.args(args).arg(kubeconfig);
        timeout(PATIENCE, command.output()).await.expect("in time").expect("the binary runs")
    }

    async fn json(&self, args: &[&str]) -> Value {
        let output = self.leasehold(args).await;
        // The clusters of these fleets are down, which `status` says by its exit code.
        let known = matches!(output.status.code(), Some(0 | 3));
        assert!(known, "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_live_fleet_is_simulated_without_being_touched() {
    let fleet = Fleet::start(3, 6).await;
    fleet.balanced(2).await;
    let writes = || {
        let written = fleet.server.history().into_iter();
        written.filter(|write| write.resource.starts_with("shardmaps")).count()
    };
    let before = writes();
    let report = fleet.json(&["simulate", "--leave", "1", "--output", "json", "--from-live"]).await;
    assert_eq!((&report["moves"], &report["excess"]), (&json!(2), &json!(0)), "{report}");
    assert_eq!(report["after"]["members"], 2);
    assert_eq!(report["after"]["shards"], 6);
    assert_eq!(writes(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_is_drained_and_taken_back() {
    let fleet = Fleet::start(2, 4).await;
    fleet.balanced(2).await;
    let dry = ["drain", "replica-1", "--dry-run", "--output", "json", "--kubeconfig"];
    assert_eq!(fleet.json(&dry).await["spec"]["drain"], true);
    let status = fleet.json(&["status", "--output", "json", "--kubeconfig"]).await;
    let members = status["members"].as_array().unwrap();
    assert!(members.iter().all(|member| member["drain"] == false), "{status:#}");
    let drained = fleet.leasehold(&["drain", "replica-1", "--wait", "--kubeconfig"]).await;
    let drained = stdout(&drained);
    assert!(drained.contains("asked to drain, 2 shards"), "{drained}");
    assert!(drained.ends_with("replica-1: drained\n"), "{drained}");
    let status = fleet.json(&["status", "--output", "json", "--kubeconfig"]).await;
    let members = status["members"].as_array().unwrap();
    let of = |identity: &str| members.iter().find(|m| m["identity"] == identity).unwrap();
    assert_eq!((&of("replica-1")["drain"], &of("replica-1")["shards"]), (&json!(true), &json!(0)));
    assert_eq!((&of("replica-0")["drain"], &of("replica-0")["shards"]), (&json!(false), &json!(4)));
    let undone = fleet.leasehold(&["drain", "replica-1", "--undo", "--kubeconfig"]).await;
    assert!(stdout(&undone).contains("takes shards again"));
    fleet.balanced(2).await;
    let unknown = fleet.leasehold(&["drain", "replica-7", "--kubeconfig"]).await;
    assert_eq!(unknown.status.code(), Some(1));
    let text = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(text.contains("no member \"replica-7\"") && text.contains("replica-1"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn people_pause_pin_and_limit_what_a_fleet_does() {
    let fleet = Fleet::start(2, 4).await;
    fleet.balanced(2).await;
    let run = async |args: &[&str]| fleet.leasehold(&[args, &["--kubeconfig"]].concat()).await;
    let status = async || fleet.json(&["status", "--output", "json", "--kubeconfig"]).await;
    let owner = |status: &Value, shard: &str| {
        let shards = status["shards"].as_array().unwrap().iter();
        let mut found = shards.filter(|found| found["shard"] == shard);
        found.next().expect("a shard")["owner"].as_str().map(str::to_owned)
    };

    let pause = ["pause", "--cluster", "c0", "--cluster", "c1", "--reason", "an upgrade", "--wait"];
    let paused = stdout(&run(&pause).await);
    assert!(paused.contains("nobody owns any of 2 shards"), "{paused}");
    let said = status().await;
    for (shard, is_owned) in [("c0/g/0/1", false), ("c1/g/0/1", false), ("c2/g/0/1", true)] {
        assert_eq!(owner(&said, shard).is_some(), is_owned, "{said:#}");
    }
    let listed = stdout(&run(&["policies"]).await);
    assert!(listed.contains("2 of 4") && listed.contains("an upgrade"), "{listed}");
    assert!(listed.contains("system:"), "the user who wrote it: {listed}");
    let settled = stdout(&run(&["status", "--wait", "30s"]).await);
    assert!(settled.contains("paused by pause-c0-") && settled.contains("2 shards are paused"));
    // To say it again changes nothing; to resume less than was paused is refused.
    assert!(stdout(&run(&pause).await).contains("nobody owns any of 2"));
    let part = run(&["resume", "--cluster", "c0"]).await;
    let text = String::from_utf8_lossy(&part.stderr).into_owned();
    assert!(!part.status.success() && text.contains("no pause selects exactly these"), "{text}");
    let resume = ["resume", "--cluster", "c1", "--cluster", "c0"];
    assert!(stdout(&run(&resume).await).contains("lifted"));
    fleet.balanced(2).await;

    let file = fleet.dir.path().join("pause.yaml");
    let policy = json!({
        "apiVersion": "leasehold.dev/v1alpha1", "kind": "FleetPolicy", "metadata": {"name": "p"},
        "spec": {"shards": {"clusters": ["c2"]}, "pause": true},
    });
    std::fs::write(&file, policy.to_string()).expect("written");
    let file = file.to_str().expect("UTF-8");
    let next = ["simulate", "--policy", file, "--next", "--output", "json", "--from-live"];
    let next = fleet.json(&next).await;
    let steps = next.as_array().unwrap();
    assert_eq!(steps.len(), 1, "{next}");
    assert!(steps[0].as_str().unwrap().starts_with("c2/g/0/1: replica-"), "{next}");
    let why = "drains for nobody: people paused it";
    assert!(steps[0].as_str().unwrap().ends_with(why), "{next}");

    let pin = ["pin", "--shard", "c3/g/0/1", "--member", "replica-1", "--required"];
    let pinned = stdout(&run(&pin).await);
    assert!(pinned.contains(", for 1 of 4 shards, 1 of 2 members; take it back"), "{pinned}");
    // By the id that `status` shows, the same is said again.
    let id = fleet.members[1].status().member.to_string();
    let again = ["pin", "--shard", "c3/g/0/1", "--member", &id];
    let again = stdout(&run(&again).await);
    assert!(again.contains(r#"before, it said pin {"names":["replica-1"],"required":true}"#));
    assert!(stdout(&run(&pin).await).contains("before, it said"), "{again}");
    let name = pinned.split(':').next().unwrap();
    let has_it = async {
        let owned = async || owner(&status().await, "c3/g/0/1");
        while !owned().await.is_some_and(|owner| owner.starts_with("replica-1")) {}
    };
    timeout(PATIENCE, has_it).await.expect("in time");
    let limit = ["limit", "--member", "replica-1", "--max-shards", "1"];
    assert!(stdout(&run(&limit).await).contains("maxShards"));
    let moved = async {
        let done = |status: &Value| {
            let shards = status["shards"].as_array().unwrap().iter();
            let of = |owner: &str| {
                let its = |shard: &&Value| {
                    shard["owner"].as_str().is_some_and(|of| of.starts_with(owner))
                };
                shards.clone().filter(its).map(|shard| shard["shard"].clone()).collect::<Vec<_>>()
            };
            of("replica-1") == ["c3/g/0/1"] && of("replica-0").len() == 3
        };
        while !done(&status().await) {}
    };
    timeout(PATIENCE, moved).await.expect("in time");
    let lifted = stdout(&run(&["lift", name]).await);
    assert!(lifted.contains("lifted"), "{lifted}");
    let unknown = run(&["lift", "nothing"]).await;
    let text = String::from_utf8_lossy(&unknown.stderr).into_owned();
    let there = r#"no FleetPolicy "nothing" in the fleet: there is limit-replica-1-"#;
    assert!(!unknown.status.success() && text.contains(there), "{text}");
    // What selects nothing is not written, unless somebody insists.
    let policies = async || stdout(&run(&["policies"]).await).lines().count();
    let before = policies().await;
    for (wrong, why) in [
        (
            &["pause", "--cluster", "c9", "--wait"][..],
            r#"no cluster with shards "c9" in the fleet: there are c0, c1, c2, c3"#,
        ),
        (&["weigh", "--group", "gg", "--busy", "5"], r#"no controller group "gg""#),
        (&["pin", "--cluster", "c0", "--member", "replica-9", "--required"], "there are replica-0"),
        (&["limit", "--cordon"], "say whom to cordon"),
    ] {
        let refused = run(wrong).await;
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(1) && text.contains(why), "{wrong:?}: {text}");
    }
    assert_eq!(policies().await, before);
    let forced = run(&["pause", "--cluster", "c9", "--wait", "--force"]).await;
    let text = String::from_utf8_lossy(&forced.stderr).into_owned();
    assert!(text.contains("is written, and stays until `leasehold lift pause-c9-"), "{text}");
    assert_eq!(policies().await, before + 1);
    // What says nothing is refused by the home cluster's definition.
    assert!(!run(&["limit", "--member", "replica-1"]).await.status.success());
}

/// Several people pause the same, with several tools.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_pauses_or_resumes_learns_what_others_have_said() {
    let fleet = Fleet::start(1, 2).await;
    fleet.balanced(2).await;
    let run = async |args: &[&str]| fleet.leasehold(&[args, &["--kubeconfig"]].concat()).await;
    let stderr = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    let policies = Api::<FleetPolicy>::namespaced(fleet.server.client(), NAMESPACE);
    let count = async || policies.list(&ListParams::default()).await.expect("a list").items.len();
    let pause = ["pause", "--cluster", "c0"];
    // Whoever only asks what it would do.
    let dry = stdout(&run(&[&pause[..], &["--dry-run"]].concat()).await);
    assert!(dry.ends_with(" (dry run: nothing is written)\n"), "{dry}");
    let dry = run(&[&pause[..], &["--dry-run", "--output", "json"]].concat()).await;
    let dry: Value = serde_json::from_str(&stdout(&dry)).expect("JSON");
    assert_eq!(dry["spec"], json!({"pause": true, "shards": {"clusters": ["c0"]}}), "{dry}");
    assert_eq!(count().await, 0);
    let paused = stdout(&run(&pause).await);
    let name = paused.split(':').next().unwrap();
    let dry = stdout(&run(&["lift", name, "--dry-run"]).await);
    assert_eq!(dry, format!("{name}: lifted (dry run: nothing is written)\n"));
    assert_eq!(count().await, 1);
    // Another says the same pause and more: then neither is taken back by the way.
    let shards = json!({"clusters": ["c0"]});
    let more = serde_json::from_value(json!({"pause": true, "busy": 5, "shards": shards}));
    let more = FleetPolicy::new("z", more.expect("a spec"));
    policies.create(&PostParams::default(), &more).await.expect("created");
    let both = run(&["resume", "--cluster", "c0"]).await;
    let text = stderr(&both);
    assert!(text.contains("z says more than a pause, so nothing is taken back; fix: "), "{text}");
    assert_eq!((both.status.code(), count().await), (Some(1), 2));
    let lifted = stdout(&run(&["lift", "z", "--output", "json"]).await);
    let lifted: Value = serde_json::from_str(&lifted).expect("JSON");
    assert_eq!(lifted["status"], "Success", "{lifted}");
    stdout(&run(&["pause", "--all"]).await);
    // Somebody limits the pause of the cluster by hand: what they set stays when it is said again.
    let by_hand = PatchParams { field_manager: Some("kubectl-edit".into()), ..Default::default() };
    let groups = Patch::Merge(json!({"spec": {"shards": {"groups": ["h"]}}}));
    policies.patch(name, &by_hand, &groups).await.expect("written");
    let again = run(&pause).await;
    let text = stderr(&again);
    assert!(again.status.code() == Some(1) && text.contains("says something else"), "{text}");
    assert!(text.contains(r#""groups":["h"]"#), "{text}");
    // A name that is wrong keeps the others from being deleted.
    let wrong = run(&["lift", name, "nothing"]).await;
    assert_eq!(wrong.status.code(), Some(1), "{}", stderr(&wrong));
    stdout(&run(&["lift", name, name]).await);
    stdout(&run(&pause).await);
    let resumed = run(&["resume", "--cluster", "c0"]).await;
    let text = stderr(&resumed);
    assert!(stdout(&resumed).contains("lifted"), "{text}");
    assert!(text.contains("1 of 1 shards stay paused, by pause-all-"), "{text}");
    let last = run(&["resume", "--all"]).await;
    assert!(stdout(&last).contains("lifted") && !stderr(&last).contains("stay paused"));
}

/// Who looks for what is not there does not see a fleet that is well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_name_is_refused_with_those_that_there_are() {
    let fleet = Fleet::start(2, 2).await;
    fleet.balanced(1).await;
    let clusters = r#"no cluster "c9" in the fleet: there are c0, c1"#;
    for (line, why) in [
        (&["status", "--cluster", "c9", "--kubeconfig"][..], clusters),
        (&["status", "--cluster", "c9", "--wait", "1s", "--kubeconfig"], clusters),
        (&["status", "--member", "replica-9", "--kubeconfig"], r#"no member "replica-9""#),
        (&["events", "--cluster", "c9", "--kubeconfig"], clusters),
        (&["explain", "c9/ConfigMap/a/b", "--kubeconfig"], clusters),
        (&["pause", "-n", "other", "--all", "--kubeconfig"], "no fleet in namespace other of "),
    ] {
        let refused = fleet.leasehold(line).await;
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(1) && text.contains(why), "{line:?}: {text}");
    }
    let one = ["status", "-o", "json", "--member", "replica-1", "--kubeconfig"];
    let one = fleet.json(&one).await;
    assert_eq!(one["members"].as_array().map(Vec::len), Some(1), "{one:#}");
    assert_eq!(one["members"][0]["identity"], "replica-1");
    // The Events of a cluster say that it is down.
    let of_one = ["events", "--cluster", "c1", "-o", "json", "--kubeconfig"];
    let told = async {
        let is =
            |event: &Value| event["reason"] == "ClusterDown" && event["related"] == "ShardMap/c1";
        while !fleet.json(&of_one).await.as_array().unwrap().iter().any(is) {}
    };
    timeout(PATIENCE, told).await.expect("in time");
}

/// Answers as the admin server of a member does, without queues, to somebody who may not read metrics.
async fn stand_in(member: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address").to_string();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 1024];
            let length = stream.read(&mut request).await.unwrap_or_default();
            let is_who = request[..length].starts_with(b"GET /debug/shards ");
            let body = if is_who { json!({"member": member}) } else { json!([]) }.to_string();
            let is_metrics = request[..length].starts_with(b"GET /metrics ");
            let status = if is_metrics { "403 Forbidden" } else { "200 OK" };
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
            let _ = stream.write_all((head + &body).as_bytes()).await;
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_that_are_no_pods_are_asked_at_their_addresses() {
    let fleet = Fleet::start(2, 2).await;
    fleet.balanced(1).await;
    let silent = fleet.leasehold(&["top", "--kubeconfig"]).await;
    let text = String::from_utf8_lossy(&silent.stdout).into_owned();
    assert_eq!(silent.status.code(), Some(1), "{text}");
    assert!(text.contains("no Pods, give --address IP:PORT for each"), "{text}");
    let out = fleet.dir.path().join("bundle").display().to_string();
    let bundle = fleet.leasehold(&["support-bundle", "--out", &out, "--kubeconfig"]).await;
    let text = String::from_utf8_lossy(&bundle.stderr).into_owned();
    assert_eq!(text.matches("left out: members/replica-").count(), 2, "a line for each: {text}");

    let mut at = Vec::new();
    for member in fleet.members.iter().rev() {
        at.push(stand_in(member.status().member.to_string()).await);
    }
    let one = ["top", "--address", &at[0], "--kubeconfig"];
    let one = stdout(&fleet.leasehold(&one).await);
    assert!(one.contains("queues of replica-1 only, and 2 members live"), "{one}");
    let both = ["top", "-o", "json", "--address", &at[0], "--address", &at[1], "--kubeconfig"];
    assert_eq!(fleet.json(&both).await["queuesOf"], json!(["replica-1", "replica-0"]));
    // Memory and the credential of home are in what it does not show.
    let doctor = ["doctor", "-o", "json", "--address", &at[0], "--kubeconfig"];
    let report = fleet.json(&doctor).await;
    let unseen = "does not show /metrics: it answers 403 Forbidden";
    let findings = report["findings"].as_array().expect("findings");
    let is = |finding: &&Value| {
        finding["about"] == "member replica-1"
            && finding["what"].as_str().is_some_and(|what| what.starts_with(unseen))
    };
    assert_eq!(findings.iter().filter(is).count(), 1, "{report:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_of_another_installation_takes_no_part() {
    let mut fleet = Fleet::start(2, 4).await;
    fleet.balanced(2).await;
    let leases = Api::<Lease>::namespaced(fleet.server.client(), NAMESPACE);
    let lease = leases.get("leasehold-coordinator").await.expect("a Lease");
    let annotations = lease.metadata.annotations.expect("annotations");
    assert_eq!(annotations["leasehold.dev/installation"], "standalone");

    let groups = BTreeSet::from(["g".parse().expect("a name")]);
    let installation = "laptop".to_owned();
    fleet.join_as(Config { installation, ..Config::new("laptop", groups, 9) });
    let stranger = fleet.members.pop().expect("it joined");
    let refused = async {
        let text = "belongs to the installation \"standalone\", and this replica is of \"laptop\"";
        while !stranger.status().problems.iter().any(|problem| problem.contains(text)) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, refused).await.expect("it says why");
    fleet.balanced(2).await;
    assert!(stranger.watch().borrow().holdings.is_empty());
}

/// Kubeconfigs for a folder, by the name of their context, each with its secrets in another place, none of
/// them usable.
fn planted_kubeconfigs() -> Vec<(&'static str, String)> {
    let nowhere = "https://127.0.0.1:1";
    let with = |name, server: &str, user: &str| {
        let text = format!(
            "clusters: [{{name: c, cluster: {{server: '{server}'}}}}]\n\
             users: [{{name: u, user: {{{user}}}}}]\n\
             contexts: [{{name: {name}, context: {{cluster: c, user: u}}}}]\n"
        );
        (name, text)
    };
    let program = "exec: {command: sh, args: [PLANTED], env: [{name: A, value: PLANTED}], \
                   apiVersion: client.authentication.k8s.io/v1}";
    let oidc = "auth-provider: {name: oidc, config: {idp-issuer-url: 'https://127.0.0.1:1', client-id: x, \
                client-secret: PLANTED, id-token: PLANTED.e30.PLANTED, refresh-token: PLANTED}}";
    let (base64, pem) = ("'PLANTED!'", "UExBTlRFRA==");
    let certificate = |data| format!("client-certificate-data: {data}, client-key-data: {data}");
    vec![
        with("token", nowhere, "token: PLANTED"),
        with("line", nowhere, "token: \"PLANTED\\nPLANTED\""),
        with("password", nowhere, "username: me, password: PLANTED"),
        with("base64", nowhere, &certificate(base64)),
        with("pem", nowhere, &certificate(pem)),
        with("token-file", nowhere, "tokenFile: token.txt"),
        with("program", nowhere, program),
        with("oidc", nowhere, oidc),
        with("url", "https://me:PLANTED@127.0.0.1:1", "token: PLANTED"),
        with("no-url", "me:PLANTED@127.0.0.1:x", "token: PLANTED"),
        with("proxy", "https://127.0.0.1:1', proxy-url: 'http://me:PLANTED@127.0.0.1:1", ""),
        with("no-proxy", "https://127.0.0.1:1', proxy-url: 'ftp://me:PLANTED@:x", ""),
        ("broken", "users: [{name: u, user: {token: PLANTED\n".to_owned()),
        ("mistaken", "users: PLANTED\ncontexts: [PLANTED]\n".to_owned()),
    ]
}

/// Secrets in every input of a replica that logs all it can: they are nowhere in what it shows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_of_the_inputs_are_shown_nowhere() {
    let fleet = Fleet::start(0, 0).await;
    let dir = fleet.dir.path();
    let write = |name: &str, text: &str| std::fs::write(dir.join(name), text).expect("written");
    std::fs::create_dir(dir.join("clusters")).expect("made");
    for (name, text) in planted_kubeconfigs() {
        write(&format!("clusters/{name}"), &text);
    }
    write("clusters/token.txt", "PLANTED\nPLANTED");
    // A program that says what it should not.
    write("helper", "echo 'PLANTED {'; echo PLANTED >&2; echo 'not logged in' >&2; exit 1\n");
    let helper = dir.join("helper");
    write(
        "named",
        &format!(
            "clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:1'}}}}]\n\
         users: [{{name: u, user: {{exec: {{command: sh, args: [{}], interactiveMode: Never, \
         apiVersion: client.authentication.k8s.io/v1}}}}}}]\n\
         contexts: [{{name: named, context: {{cluster: c, user: u}}}}]\n",
            helper.display()
        ),
    );
    for (name, data) in [
        ("labelled", json!({"kubeconfig": "users: [{name: u, user: {token: PLANTED"})),
        ("argo", json!({"server": "https://127.0.0.1:1", "config": "{\"bearerToken\": PLANTED}"})),
    ] {
        let labels = match name {
            "argo" => json!({"argocd.argoproj.io/secret-type": "cluster", "found": "yes"}),
            _ => json!({"found": "yes"}),
        };
        let secret = json!({"metadata": {"name": name, "labels": labels}, "stringData": data});
        let request = http::Request::post(format!("/api/v1/namespaces/{NAMESPACE}/secrets"));
        let request = request.header("content-type", "application/json");
        let request = request.body(secret.to_string().into_bytes()).expect("a request");
        fleet.server.client().request_text(request).await.expect("created");
    }
    write(
        "l.yaml",
        &format!(
            "home: {{kubeconfig: home, allow: [loopback]}}\nidentity: r\nadmin: {{bind: '127.0.0.1:0'}}\n\
         clusters:\n  directories: [{{path: clusters, allow: [loopback, insecureTls]}}]\n  \
         kubeconfigs: [{{path: named, allow: [loopback]}}]\n  \
         secrets: [{{selector: found, allow: [loopback]}}]\n  \
         credentialPlugins: [{{command: sh, args: ['{}']}}]\n\
         telemetry: {{log: {{filter: 'debug,leasehold_clusters=trace,leasehold=trace'}}}}\n",
            helper.display()
        ),
    );

    let mut child = tokio::process::Command::new(env!("CARGO_BIN_EXE_leasehold"))
        .args(["run", "--config"])
        .arg(dir.join("l.yaml"))
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("it starts");
    let mut log = child.stderr.take().expect("a pipe");
    let mut shown = until_logged(&mut log, "probes and metrics are served").await;
    let address = shown.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next());
    let address = address.expect("the log names the address").to_owned();
    let get = async |path: &str| {
        let config = kube::Config::new(format!("http://{address}").parse().expect("a URL"));
        let client = kube::Client::try_from(config).expect("a client");
        let request = http::Request::get(path).body(Vec::new()).expect("a request");
        client.request_text(request).await.unwrap_or_default()
    };
    // Each cluster has failed in its own way.
    let expected = planted_kubeconfigs().len() + 3;
    let tried = async {
        loop {
            let view: Value =
                serde_json::from_str(&get("/debug/clusters").await).unwrap_or_default();
            let clusters = view["clusters"].as_array().cloned().unwrap_or_default();
            let failed = clusters.iter().filter(|cluster| cluster["reason"].is_string());
            if clusters.len() >= expected && failed.count() == clusters.len() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    timeout(PATIENCE, tried).await.expect("every cluster fails in time");
    for path in ["/metrics", "/debug/clusters", "/debug/shards", "/debug/queues", "/readyz?verbose"]
    {
        shown += &get(path).await;
    }
    shown += &String::from_utf8_lossy(&fleet.leasehold(&["status", "--kubeconfig"]).await.stdout);
    let pid =
        child.id().and_then(|id| rustix::process::Pid::from_raw(id as i32)).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it lives");
    tokio::io::AsyncReadExt::read_to_string(&mut log, &mut shown).await.expect("text");
    let output = child.wait_with_output().await.expect("it ends");
    shown += &String::from_utf8_lossy(&output.stdout);
    for write in fleet.server.history() {
        if write.resource != "secrets" {
            shown += &format!("{write:?}");
        }
    }
    assert!(shown.contains("not logged in"), "the program's last line is for people");
    let leaks: Vec<_> = shown.lines().filter(|line| line.contains("PLANTED")).collect();
    assert!(leaks.is_empty(), "{}", leaks.join("\n"));
    let encoded = shown.lines().find(|line| line.contains("UExBTlRFRA"));
    assert_eq!(encoded, None);
}

/// Reads a log until it has this text.
async fn until_logged(log: &mut (impl tokio::io::AsyncRead + Unpin), text: &str) -> String {
    let mut found = String::new();
    while !found.contains(text) || !found.ends_with('\n') {
        let mut bytes = [0; 1024];
        let read = tokio::io::AsyncReadExt::read(log, &mut bytes).await.expect("a log");
        assert!(read > 0, "it ended early: {found}");
        found.push_str(&String::from_utf8_lossy(&bytes[..read]));
    }
    found
}
