//! The registry with good and bad sources: what it publishes, and what it does not touch.

#![expect(clippy::unwrap_used, reason = "a test that panics has failed")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use leasehold_clusters::registry::RETRY_MIN;
use leasehold_clusters::{
    ClusterProvider, Clusters, Directory, KubeconfigFile, Probing, Registry, Snapshot, State,
    Terms, Trust,
};
use model::{ClusterLabels, ClusterSet, ManualClock};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// How soon a change of a file must be published.
const PROMISE: Duration = Duration::from_secs(2);

fn config(context: &str, server: &str, user: &str) -> String {
    format!(
        "clusters: [{{name: c, cluster: {{server: 'https://{server}:1'}}}}]\n\
         users: [{{name: u, user: {user}}}]\n\
         contexts: [{{name: {context}, context: {{cluster: c, user: u}}}}]\n"
    )
}

const TOKEN: &str = "{token: sesame}";

fn spawn(providers: Vec<Box<dyn ClusterProvider>>) -> (Clusters, prometheus::Registry) {
    spawn_with(providers, Arc::default())
}

fn spawn_with(
    providers: Vec<Box<dyn ClusterProvider>>,
    labels: Arc<ClusterLabels>,
) -> (Clusters, prometheus::Registry) {
    let metrics = prometheus::Registry::new();
    let stop = CancellationToken::new();
    let clock = Arc::new(ManualClock::new(jiff::Timestamp::UNIX_EPOCH));
    let of = (&metrics, labels);
    let disputed = watch::channel(Arc::default()).1;
    let spawned = Registry::spawn(providers, Probing::Off, None, disputed, stop, of, clock);
    let clusters = spawned.unwrap();
    (clusters, metrics)
}

/// `east@1 west(down)`
fn sum(set: &ClusterSet) -> String {
    let line = |(name, _): (&model::ClusterName, _)| match set.get(name) {
        Some(cluster) => format!("{name}@{}", cluster.incarnation),
        None => format!("{name}(down)"),
    };
    set.clusters.iter().map(line).collect::<Vec<_>>().join(" ")
}

/// Waits, on paused time, until the set is `expect`. The promised time is part of the test.
async fn becomes(set: &mut watch::Receiver<Arc<ClusterSet>>, expect: &str) {
    let waited = timeout(PROMISE, set.wait_for(|set| sum(set) == expect)).await.map(|_| ());
    assert!(waited.is_ok(), "expected {expect}, have {}", sum(&set.borrow()));
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
}

#[tokio::test(start_paused = true)]
async fn files_of_a_folder_engage_re_engage_and_disengage_in_time() {
    let dir = tempfile::tempdir().unwrap();
    let (mut clusters, _) = spawn(vec![Directory::new(dir.path()).provider()]);
    clusters.ready().await.unwrap();
    let mut set = clusters.watch();
    assert_eq!(sum(&set.borrow_and_update()), "");
    write(&dir.path().join("a"), &config("east", "e", TOKEN));
    becomes(&mut set, "east@1").await;
    write(&dir.path().join("b"), &config("west", "w", TOKEN));
    becomes(&mut set, "east@1 west@2").await;
    write(&dir.path().join("a"), &config("east", "other", TOKEN));
    becomes(&mut set, "east@3 west@2").await;
    write(&dir.path().join("a"), "nonsense");
    becomes(&mut set, "east(down) west@2").await;
    write(&dir.path().join("a"), &config("east", "e", TOKEN));
    becomes(&mut set, "east@4 west@2").await;
    fs::remove_file(dir.path().join("b")).unwrap();
    becomes(&mut set, "east@4").await;
}

#[tokio::test(start_paused = true)]
async fn a_broken_cluster_is_down_with_its_reason_everywhere_and_alone() {
    let dir = tempfile::tempdir().unwrap();
    let good = dir.path().join("good");
    let bad = dir.path().join("bad");
    write(&good, &config("east", "e", TOKEN));
    write(&bad, &config("west", "w", "{exec: {command: no-such-plugin}}"));
    let labels = Arc::new(ClusterLabels::new(1));
    let providers = vec![
        KubeconfigFile::new(&good, Some(vec!["east".into(), "typo".into()])).provider(),
        KubeconfigFile::new(&bad, None).trusted(Trust::own()).provider(),
    ];
    let (mut clusters, metrics) = spawn_with(providers, Arc::clone(&labels));
    timeout(PROMISE, clusters.settled()).await.unwrap().unwrap();
    assert_eq!(sum(&clusters.watch().borrow()), "east@1 typo(down) west(down)");
    let status = clusters.status();
    let of = |name: &str| status.clusters.iter().find(|c| c.name.as_str() == name).unwrap();
    assert_eq!(of("east").state, State::Engaged);
    assert_eq!(of("west").state, State::Down);
    let reason = of("west").reason.clone().unwrap();
    assert!(reason.contains("context \"west\": credential plugin \"no-such-plugin\""), "{reason}");
    let reason = of("typo").reason.clone().unwrap();
    assert!(reason.ends_with("use one of its contexts: east"), "{reason}");
    let east = labels.keep(&"east".parse().unwrap());
    assert_eq!(ups(&metrics), "east=1 other=0");
    drop(east);
    assert_eq!(ups(&metrics), "other=0 typo=0", "nobody works on the one that can be used");
    let east = labels.keep(&"east".parse().unwrap());
    assert_eq!(east.value(), "east", "those that are down keep no label between scrapes");
}

#[tokio::test(start_paused = true)]
async fn the_label_of_a_cluster_that_was_down_is_free_once_it_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("a"), &config("west", "w", "{exec: {command: no-such-plugin}}"));
    let labels = Arc::new(ClusterLabels::new(1));
    let providers = vec![Directory::new(dir.path()).provider()];
    let (mut clusters, metrics) = spawn_with(providers, Arc::clone(&labels));
    clusters.ready().await.unwrap();
    let mut set = clusters.watch();
    becomes(&mut set, "west(down)").await;
    assert_eq!(ups(&metrics), "west=0");
    assert_eq!(labels.keep(&"east".parse().unwrap()).value(), "east");
    fs::remove_file(dir.path().join("a")).unwrap();
    becomes(&mut set, "").await;
    assert_eq!(ups(&metrics), "");
    assert_eq!(labels.keep(&"east".parse().unwrap()).value(), "east");
}

fn ups(metrics: &prometheus::Registry) -> String {
    let families = metrics.gather();
    let Some(up) = families.iter().find(|f| f.name() == "leasehold_cluster_up") else {
        return String::new();
    };
    let line = |m: &prometheus::proto::Metric| {
        format!("{}={}", m.get_label()[0].value(), m.get_gauge().get_value())
    };
    up.get_metric().iter().map(line).collect::<Vec<_>>().join(" ")
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_stays_down_for_the_same_reason_is_published_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("k");
    write(&path, &config("east", "e", "{exec: {command: no-such-plugin}}"));
    let (mut clusters, _) =
        spawn(vec![KubeconfigFile::new(&path, None).trusted(Trust::own()).provider()]);
    clusters.settled().await.unwrap();
    let mut status = clusters.watch_status();
    // By then, all providers have answered or are waited for no more.
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert!(status.borrow_and_update().clusters[0].reason.is_some());
    assert!(timeout(RETRY_MIN * 100, status.changed()).await.is_err(), "it is tried meanwhile");
}

#[tokio::test(start_paused = true)]
async fn a_plugin_that_comes_later_is_found_without_a_change_of_the_kubeconfig() {
    let dir = tempfile::tempdir().unwrap();
    let (path, plugin) = (dir.path().join("k"), dir.path().join("plugin"));
    write(&path, &config("east", "e", "{exec: {command: ./plugin}}"));
    let (mut clusters, _) =
        spawn(vec![KubeconfigFile::new(&path, None).trusted(Trust::own()).provider()]);
    clusters.ready().await.unwrap();
    let mut set = clusters.watch();
    becomes(&mut set, "east(down)").await;
    write(
        &plugin,
        "#!/bin/sh\necho '{\"kind\":\"ExecCredential\",\"status\":{\"token\":\"t\"}}'\n",
    );
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(&plugin, executable).unwrap();
    // A program takes real time. Until it has run, the paused clock moves only by `advance`.
    let (ran, has_run) = std::sync::mpsc::channel::<()>();
    tokio::task::spawn_blocking(move || has_run.recv_timeout(Duration::from_secs(20)));
    tokio::time::advance(RETRY_MIN).await;
    let found = timeout(Duration::from_secs(60), set.wait_for(|set| sum(set) == "east@1")).await;
    assert!(found.is_ok(), "{:?}", clusters.status());
    drop(ran);
}

/// Returns what a test sends into a channel.
struct Scripted(watch::Receiver<Option<Snapshot>>);

impl ClusterProvider for Scripted {
    fn label(&self) -> String {
        "script".into()
    }

    fn next(&mut self) -> BoxFuture<'_, Snapshot> {
        async {
            loop {
                if self.0.changed().await.is_err() {
                    futures::future::pending::<()>().await;
                }
                if let Some(snapshot) = self.0.borrow_and_update().clone() {
                    return snapshot;
                }
            }
        }
        .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_published_before_every_provider_has_answered() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("a"), &config("east", "e", TOKEN));
    let (sender, receiver) = watch::channel(None);
    let (mut clusters, _) =
        spawn(vec![Directory::new(dir.path()).provider(), Box::new(Scripted(receiver))]);
    assert!(timeout(Duration::from_secs(30), clusters.ready()).await.is_err());
    sender.send(Some(Snapshot::default())).unwrap();
    timeout(PROMISE, clusters.ready()).await.unwrap().unwrap();
    assert_eq!(sum(&clusters.watch().borrow()), "east@1");
}

#[tokio::test(start_paused = true)]
async fn one_provider_that_cannot_be_read_keeps_the_clusters_of_the_others_from_nobody() {
    let dir = tempfile::tempdir().unwrap();
    write(&dir.path().join("a"), &config("east", "e", TOKEN));
    let (sender, receiver) = watch::channel(None);
    let (mut clusters, _) =
        spawn(vec![Directory::new(dir.path()).provider(), Box::new(Scripted(receiver))]);
    timeout(Duration::from_secs(61), clusters.ready()).await.unwrap().unwrap();
    assert_eq!(sum(&clusters.watch().borrow()), "east@1");
    assert_eq!(clusters.watch().borrow().open, BTreeSet::from([String::new()]), "any further ones");
    let problems = clusters.status().problems.clone();
    let [told] = &problems[..] else { panic!("{problems:?}") };
    assert!(told.contains("cannot be read since the start"), "{told}");
    sender.send(Some(Snapshot::default())).unwrap();
    let mut status = clusters.watch_status();
    timeout(PROMISE, status.wait_for(|status| status.problems.is_empty())).await.unwrap().unwrap();
    timeout(PROMISE, clusters.watch().wait_for(|set| set.open.is_empty())).await.unwrap().unwrap();
}

/// Each publication costs all that follow it time for each cluster.
#[tokio::test(start_paused = true)]
async fn of_many_clusters_news_is_published_together() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("many");
    let contexts = (1..1000).map(|i| format!("{{name: c{i}, context: {{cluster: c, user: u}}}}, "));
    let contexts = format!("contexts: [{}", contexts.collect::<String>());
    write(&path, &config("c0", "e", TOKEN).replace("contexts: [", &contexts));
    let mut snapshot = KubeconfigFile::new(&path, None).provider().next().await;
    assert_eq!(snapshot.sources.len(), 1000, "{:?}", snapshot.problems);
    let (sender, receiver) = watch::channel(Some(snapshot.clone()));
    let (mut clusters, _) = spawn(vec![Box::new(Scripted(receiver))]);
    sender.send(Some(snapshot.clone())).unwrap();
    timeout(PROMISE, clusters.settled()).await.unwrap().unwrap();
    let (mut status, mut times) = (clusters.watch_status(), 0);
    for number in 0..200 {
        snapshot.problems = vec![number.to_string().into()];
        sender.send(Some(snapshot.clone())).unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
        times += usize::from(status.has_changed().unwrap());
        status.mark_unchanged();
    }
    assert!((3..=6).contains(&times), "{times} in 200 ms");
    let last = status.wait_for(|status| status.problems == snapshot.problems);
    timeout(PROMISE, last).await.unwrap().unwrap();
}

/// A folder or file that a new replica cannot read must not look as if its clusters had been removed.
#[tokio::test(start_paused = true)]
async fn a_folder_or_file_that_could_not_be_read_since_the_start_is_open() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, file) = (dir.path().join("folder"), dir.path().join("file"));
    let chosen = KubeconfigFile::new(dir.path().join("missing"), Some(vec!["west".to_owned()]));
    let terms = Terms { prefix: "team-a".parse().ok(), ..Terms::default() };
    let (mut clusters, _) = spawn(vec![
        Directory::new(&folder).terms(terms).provider(),
        KubeconfigFile::new(&file, None).provider(),
        chosen.provider(),
    ]);
    clusters.ready().await.unwrap();
    let mut set = clusters.watch();
    assert_eq!(set.borrow().open, BTreeSet::from([String::new(), "team-a.".to_owned()]));
    fs::create_dir(&folder).unwrap();
    write(&folder.join("a"), &config("east", "e", TOKEN));
    timeout(
        PROMISE,
        set.wait_for(|set| set.clusters.contains_key(&"team-a.east".parse().unwrap())),
    )
    .await
    .unwrap()
    .unwrap();
    assert_eq!(set.borrow().open, BTreeSet::from([String::new()]), "there is the file");
    write(&file, &config("north", "n", TOKEN));
    timeout(PROMISE, set.wait_for(|set| set.open.is_empty())).await.unwrap().unwrap();
    // Later nothing is unknown: what they named is still there, and what comes is new.
    fs::remove_file(&file).unwrap();
    write(&folder.join("b"), "no kubeconfig: [");
    assert!(timeout(PROMISE, set.wait_for(|set| !set.open.is_empty())).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_name_is_reported_and_the_first_stays() {
    let dir = tempfile::tempdir().unwrap();
    for (file, server) in [("a", "one"), ("b", "two")] {
        write(&dir.path().join(file), &config("east", server, TOKEN));
    }
    let (mut clusters, _) = spawn(vec![Directory::new(dir.path()).provider()]);
    clusters.ready().await.unwrap();
    let mut set = clusters.watch();
    becomes(&mut set, "east@1").await;
    let problems = &clusters.status().problems;
    assert_eq!(problems.len(), 1);
    assert!(
        problems[0].contains("/b, context \"east\" is left out: the name east"),
        "{problems:?}"
    );
}

/// Who adds a file takes nothing from a cluster in use, wherever the file stands in the order.
#[tokio::test(start_paused = true)]
async fn a_newcomer_takes_no_name_from_a_cluster_that_has_it() {
    let dir = tempfile::tempdir().unwrap();
    let of = |name: &str| dir.path().join(name);
    write(&of("c1.yaml"), &config("c1", "one", TOKEN));
    let (mut clusters, _) = spawn(vec![Directory::new(dir.path()).provider()]);
    clusters.ready().await.unwrap();
    let mut set = clusters.watch();
    becomes(&mut set, "c1@1").await;
    write(&of("a-new.yaml"), &config("c1", "two", TOKEN));
    write(&of("z"), &config("z", "z", TOKEN));
    becomes(&mut set, "c1@1 z@2").await;
    let problems = clusters.status().problems.clone();
    let [told] = &problems[..] else { panic!("{problems:?}") };
    assert!(
        told.contains("/a-new.yaml, context \"c1\" is left out: the name c1 belongs"),
        "{told}"
    );
    assert!(told.contains("/c1.yaml, context \"c1\"; fix: rename or remove"), "{told}");
    // Its own file may lead elsewhere meanwhile, or be damaged for a moment.
    write(&of("c1.yaml"), &config("c1", "moved", TOKEN));
    becomes(&mut set, "c1@3 z@2").await;
    write(&of("c1.yaml"), &config("c1", "moved", "{token: renewed}"));
    becomes(&mut set, "c1@4 z@2").await;
    let origin = |clusters: &Clusters| clusters.status().clusters[0].origin.to_string();
    assert!(origin(&clusters).contains("/c1.yaml"), "{}", origin(&clusters));
    // Another file that leads there goes on with it, and a newcomer only when there is none.
    write(&of("b.yaml"), &config("c1", "moved", TOKEN));
    write(&of("z"), &config("z", "z2", TOKEN));
    becomes(&mut set, "c1@4 z@5").await;
    fs::remove_file(of("c1.yaml")).unwrap();
    becomes(&mut set, "c1@6 z@5").await;
    assert!(origin(&clusters).contains("/b.yaml"), "{}", origin(&clusters));
    fs::remove_file(of("b.yaml")).unwrap();
    becomes(&mut set, "c1@7 z@5").await;
    assert!(origin(&clusters).contains("/a-new.yaml"), "{}", origin(&clusters));
    assert_eq!(clusters.status().problems.len(), 0);
}

/// Who takes a kubeconfig away and brings it back again and again waits as one does who changes it.
#[tokio::test(start_paused = true)]
async fn a_cluster_that_goes_and_comes_back_again_and_again_is_engaged_later_and_later() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a");
    let (mut clusters, _) = spawn(vec![Directory::new(dir.path()).provider()]);
    clusters.ready().await.unwrap();
    let mut set = clusters.watch();
    for time in 1..=11 {
        write(&file, &config("east", "e", TOKEN));
        becomes(&mut set, &format!("east@{time}")).await;
        fs::remove_file(&file).unwrap();
        becomes(&mut set, "").await;
    }
    write(&file, &config("east", "e", TOKEN));
    becomes(&mut set, "east(down)").await;
    assert!(timeout(PROMISE, set.wait_for(|set| sum(set) == "east@12")).await.is_err());
    timeout(RETRY_MIN, set.wait_for(|set| sum(set) == "east@12")).await.unwrap().unwrap();
}
