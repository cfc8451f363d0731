//! The test kit with replicas, as an author of controllers uses it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apiserver::faults::Fault;
use k8s_openapi::api::core::v1::ConfigMap;
use leasehold::Departure;
use leasehold::testing::{TestEnv, TestReplica};
use model::{ClusterName, MemberId, ObjectKey};
use sdk::{Action, Context, Controller, ControllerSpec, ReconcileError, Reconciler};

const MAP: &str = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: web}}";
/// How long each reconcile takes.
const TAKES: Duration = Duration::from_secs(3);

/// Notes which replica reconciles, and when a reconcile begins and ends.
#[derive(Clone, Default)]
struct Noted(Arc<Mutex<Vec<(&'static str, &'static str)>>>);

impl Noted {
    fn note(&self, replica: &'static str, what: &'static str) {
        self.0.lock().unwrap().push((replica, what));
    }

    fn controller(&self, replica: &'static str) -> [ControllerSpec; 1] {
        let slow = Slow { replica, noted: self.clone() };
        [Controller::for_kind::<ConfigMap>("slow").namespace("web").reconciler(slow)]
    }
}

struct Slow {
    replica: &'static str,
    noted: Noted,
}

impl Reconciler for Slow {
    type Kind = ConfigMap;

    async fn reconcile(&self, _: &Context, _: &ObjectKey) -> Result<Action, ReconcileError> {
        self.noted.note(self.replica, "begins");
        tokio::time::sleep(TAKES).await;
        self.noted.note(self.replica, "ends");
        Ok(Action::Done)
    }
}

fn clusters(replica: &TestReplica) -> BTreeSet<ClusterName> {
    replica.active().into_iter().map(|shard| shard.cluster).collect()
}

async fn until_clusters(env: &TestEnv, replica: &TestReplica, count: usize) {
    let what = format!("a replica with {count} clusters");
    env.until(&what, async || (clusters(replica).len() == count).then_some(())).await;
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_leaves_ends_its_reconciles_before_another_begins() {
    let mut env = TestEnv::builder().clusters(["east", "west"]).namespace("web").start().await;
    let noted = Noted::default();
    let first = env.join(noted.controller("first")).await;
    until_clusters(&env, &first, 2).await;
    let second = env.join(noted.controller("second")).await;
    until_clusters(&env, &second, 1).await;
    assert!(clusters(&first).is_disjoint(&clusters(&second)));

    let of_first = clusters(&first).pop_first().unwrap();
    env.cluster(of_first.as_str()).apply(MAP).await;
    env.until("a reconcile", async || noted.0.lock().unwrap().first().copied()).await;
    assert_eq!(first.leave().await, Departure::HandedOver);
    until_clusters(&env, &second, 2).await;
    env.pass(2 * TAKES).await;
    let expected =
        [("first", "begins"), ("first", "ends"), ("second", "begins"), ("second", "ends")];
    assert_eq!(*noted.0.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_cannot_renew_loses_its_shards_and_returns_as_another_member() {
    let mut env = TestEnv::builder().clusters(["east", "west"]).namespace("web").start().await;
    let noted = Noted::default();
    let first = env.join(noted.controller("first")).await;
    let second = env.join(noted.controller("second")).await;
    until_clusters(&env, &second, 1).await;
    let before: MemberId = first.member();
    let lease = format!("leasehold-member-{before}");
    env.home().set_faults(move |request| match request.verb {
        "update" if request.name == lease => Fault::Drop,
        _ => Fault::None,
    });
    // It stops by itself when its Lease ends, and joins again under a Lease that can be renewed.
    env.until("another member", async || (first.member() != before).then_some(())).await;
    // Others take its old Lease by an update, too.
    env.home().end_faults();
    until_clusters(&env, &first, 1).await;
    until_clusters(&env, &second, 1).await;
    assert!(clusters(&first).is_disjoint(&clusters(&second)));
}

#[tokio::test(start_paused = true)]
async fn a_context_that_a_test_borrows_reads_the_cache_and_writes_through_the_fence() {
    let mut env = TestEnv::builder().namespace("web").start().await;
    env.apply(MAP).await;
    let key = ObjectKey::new(env.cluster("east").name().clone(), Some("web"), "a");
    let ctx = env.context(Controller::for_kind::<ConfigMap>("borrowing"), &key).await;
    let map = ctx.get::<ConfigMap>(Some("web"), "a").unwrap().expect("it is in the cache");
    let mut change = ConfigMap { data: Some([("x".into(), "1".into())].into()), ..(*map).clone() };
    change.metadata.managed_fields = None;
    change.metadata.resource_version = None;
    ctx.apply(&change).await.unwrap();
    let written = env.server().history();
    assert!(written.last().unwrap().user_agent.starts_with("leasehold/"));
    // A clone of its client that outlives the reconcile writes nothing any more.
    let late = kube::Api::<ConfigMap>::namespaced(ctx.client(), "web");
    drop(ctx);
    let refused = late.delete("a", &Default::default()).await.unwrap_err();
    assert!(matches!(refused, kube::Error::Service(_)), "{refused:?}");
}
