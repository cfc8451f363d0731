//! One cluster under two names: in one configuration, in those of two replicas, and while it is renamed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use model::ObjectKey;
use sdk::{Action, Context, ReconcileError, Reconciler};

use super::*;

/// Notes under which names of its cluster objects are reconciled, and copies as [`Copy`] does.
#[derive(Clone, Default)]
struct Noted(Arc<Mutex<BTreeSet<String>>>);

impl Noted {
    fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().iter().cloned().collect()
    }

    fn start(&self, identity: &str, home: &Home, folders: &[&DirectorySource]) -> Replica {
        let directories = folders.iter().map(|&folder| folder.clone()).collect();
        let sources = ClusterSources { directories, ..Default::default() };
        let noting = Noting { noted: self.clone(), copy: Copy::default() };
        let copy = Controller::for_kind::<ConfigMap>("copy").reconciler(noting);
        Replica::start_with(identity, home, &sources, |manager| manager.controller(copy))
    }
}

struct Noting {
    noted: Noted,
    copy: Copy,
}

impl Reconciler for Noting {
    type Kind = ConfigMap;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        self.noted.0.lock().unwrap().insert(key.cluster.to_string());
        self.copy.reconcile(ctx, key).await
    }
}

/// A folder with a server's kubeconfig, whose clusters get this prefix.
fn folder(dir: &Path, prefix: &str, server: &Server) -> DirectorySource {
    let path = dir.join(prefix);
    fs::create_dir(&path).unwrap();
    fs::write(path.join("east"), server.kubeconfig()).unwrap();
    let (prefix, allow) = (Some(prefix.parse().unwrap()), [Risk::Loopback].into());
    DirectorySource { prefix, allow, ..DirectorySource::new(path) }
}

/// The names of all shards' clusters, each with its epoch.
async fn shards(home: &Client) -> Vec<(String, u64)> {
    let shards = fleet(home).await.shards;
    shards.iter().map(|shard| (shard.shard.cluster.to_string(), shard.epoch.0)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_with_two_names_is_worked_on_under_one_and_keeps_its_epochs_when_renamed() {
    let dir = tempfile::tempdir().unwrap();
    let (home_server, home) = home(dir.path()).await;
    let (home_client, east) = (home_server.client(), server("east").await);
    let folders = [folder(dir.path(), "a", &east), folder(dir.path(), "b", &east)];
    let noted = Noted::default();
    let both: Vec<_> = folders.iter().collect();
    let first = noted.start("first", &home, &both);
    let second = noted.start("second", &home, &both);

    want(&east.client(), "one").await;
    until("the first value", async || converged(&east.client(), "one").await).await;
    until("both replicas say that the second name is none", async || {
        let members = fleet(&home_client).await.members;
        let of_b = |member: &fleet::FleetMember| {
            let mut down = member.down_clusters.iter();
            down.any(|down| {
                let texts = ["the same cluster as a.east", "/a/east", "/b/east", "fix: "];
                down.cluster.as_str() == "b.east"
                    && texts.iter().all(|text| down.reason.contains(text))
            })
        };
        members.len() == 2 && members.iter().all(of_b)
    })
    .await;
    assert_eq!(noted.names(), ["a.east"]);
    let before = shards(&home_client).await;
    assert_eq!(before.len(), 1, "{before:?}");

    // The first name goes, the second stays: the cluster is renamed.
    fs::remove_file(dir.path().join("a").join("east")).unwrap();
    until("the epochs go on under the second name", async || {
        shards(&home_client).await == [("b.east".to_owned(), before[0].1 + 1)]
    })
    .await;
    want(&east.client(), "two").await;
    until("the second value", async || converged(&east.client(), "two").await).await;
    for replica in [first, second] {
        assert_eq!(replica.leave().await, Departure::HandedOver);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_that_call_a_cluster_differently_do_not_both_work_on_it() {
    let dir = tempfile::tempdir().unwrap();
    let (_home_server, home) = home(dir.path()).await;
    let east = server("east").await;
    let folders = [folder(dir.path(), "a", &east), folder(dir.path(), "b", &east)];
    let noted = Noted::default();
    let first = noted.start("first", &home, &[&folders[0]]);
    want(&east.client(), "one").await;
    until("the first value", async || converged(&east.client(), "one").await).await;
    let second = noted.start("second", &home, &[&folders[1]]);
    // As long as a fleet needs to share its work anew.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(noted.names(), ["a.east"]);
    // When the one leaves, the other goes on under its name.
    assert_eq!(first.leave().await, Departure::HandedOver);
    want(&east.client(), "two").await;
    until("the second value", async || converged(&east.client(), "two").await).await;
    assert_eq!(noted.names(), ["a.east", "b.east"]);
    assert_eq!(second.leave().await, Departure::HandedOver);
}
