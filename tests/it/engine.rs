//! The engine against an embedded API server that misbehaves: no change is lost, and deletions
//! during a gap are noticed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apiserver::faults::{Fault, Request};
use apiserver::status::{ApiError, Reason};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use leasehold::testing::TestEnv;
use model::ObjectKey;
use sdk::{Action, Context, Controller, ReconcileError, Reconciler};
use serde_json::json;

use tests::copy::{Copy, seen, wanted};

const NAMESPACE: &str = "maps";

async fn create(api: &Api<ConfigMap>, name: &str) {
    let map = serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": NAMESPACE},
        "data": {"wanted": "0"},
    }));
    api.create(&PostParams::default(), &map.unwrap()).await.unwrap();
}

async fn want(api: &Api<ConfigMap>, name: &str, wanted: &str) {
    let patch = json!({"data": {"wanted": wanted}});
    api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// A world whose engine copies, and the objects whose deletion it noticed.
async fn world(count: usize) -> (TestEnv, Api<ConfigMap>, Arc<Mutex<BTreeSet<String>>>) {
    let mut env = TestEnv::builder().namespace(NAMESPACE).start().await;
    let gone = Arc::new(Mutex::default());
    let reconciler = Copy { gone: Arc::clone(&gone) };
    let spec = Controller::for_kind::<ConfigMap>("copy").namespace(NAMESPACE).workers(4);
    let spec = spec.reconciler(reconciler);
    let api = env.api(NAMESPACE);
    for index in 0..count {
        create(&api, &format!("map-{index}")).await;
    }
    env.run(vec![spec]);
    (env, api, gone)
}

async fn converged(env: &TestEnv, api: &Api<ConfigMap>) {
    env.until("every map to be copied", async || {
        let maps = api.list(&ListParams::default()).await.ok()?;
        maps.items.iter().all(|map| wanted(map).is_some() && wanted(map) == seen(map)).then_some(())
    })
    .await;
}

/// Breaks the engine's requests in turn, whatever they are, but not those of the test's own client.
fn trouble(request: &Request, turn: u32) -> Fault {
    if request.resource != "configmaps" {
        return Fault::None;
    }
    let ours = request.user_agent.starts_with("leasehold/");
    match (request.verb, turn % 5) {
        ("watch", 0) => Fault::Drop,
        ("watch", 1) => Fault::Expire,
        ("watch", 2) => Fault::Error(ApiError::new(Reason::TooManyRequests, "slow down")),
        ("patch", 0) if ours => Fault::DropAnswer,
        ("patch", 1) if ours => Fault::Error(ApiError::new(Reason::InternalError, "no leader")),
        ("patch", 2) if ours => Fault::Delay(Duration::from_secs(2)),
        _ => Fault::None,
    }
}

#[tokio::test(start_paused = true)]
async fn every_change_is_reconciled_through_faults_and_gaps() {
    let (env, api, gone) = world(30).await;
    converged(&env, &api).await;
    let turns = AtomicU32::new(0);
    let hook = move |request: &Request| trouble(request, turns.fetch_add(1, Ordering::Relaxed));
    env.set_faults(hook);
    for round in 0..10 {
        env.server().close_watches();
        env.server().compact();
        // While no watch is open, some are deleted, some change, some are created.
        api.delete(&format!("map-{round}"), &DeleteParams::default()).await.unwrap();
        for index in 10..30 {
            want(&api, &format!("map-{index}"), &format!("{round}-{index}")).await;
        }
        create(&api, &format!("late-{round}")).await;
        env.pass(Duration::from_secs(3)).await;
    }
    env.end_faults();
    converged(&env, &api).await;
    let expect: BTreeSet<_> = (0..10).map(|round| format!("map-{round}")).collect();
    env.until("every delete to surface", async || {
        gone.lock().unwrap().is_superset(&expect).then_some(())
    })
    .await;
    assert_eq!(*gone.lock().unwrap(), expect, "nothing else was taken for gone");
}

#[tokio::test(start_paused = true)]
async fn changes_during_an_outage_are_reconciled() {
    let (env, api, _) = world(5).await;
    converged(&env, &api).await;
    let away = |request: &Request| match request.verb {
        "watch" | "list" if request.resource == "configmaps" => Fault::Drop,
        _ => Fault::None,
    };
    env.set_faults(away);
    env.server().close_watches();
    for index in 0..5 {
        want(&api, &format!("map-{index}"), "changed").await;
    }
    env.pass(Duration::from_secs(600)).await;
    env.end_faults();
    converged(&env, &api).await;
}

/// Makes sure that each ConfigMap has a Secret with a generated name.
struct Child {
    /// Writes without the engine, with its own client.
    naive: Option<kube::Client>,
}

impl Reconciler for Child {
    type Kind = ConfigMap;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let namespace = key.namespace.as_deref();
        let Some(map) = ctx.get::<ConfigMap>(namespace, &key.name)? else {
            return Ok(Action::Done);
        };
        let children = ctx.owned_by::<Secret>(map.metadata.uid.as_deref().unwrap_or_default())?;
        if children.is_empty() {
            let mut child = Secret::default();
            child.metadata.generate_name = Some("child-".to_owned());
            leasehold::set_controller(&*map, &mut child).map_err(ReconcileError::terminal)?;
            let client = self.naive.clone().unwrap_or_else(|| ctx.client());
            let api: Api<Secret> = Api::namespaced(client, namespace.unwrap_or_default());
            api.create(&PostParams::default(), &child).await?;
        }
        Ok(Action::Done)
    }
}

/// How many children a ConfigMap gets that changes five times while the watch of Secrets lags.
async fn children(naive: bool) -> usize {
    let mut env = TestEnv::builder().namespace(NAMESPACE).start().await;
    let naive = naive.then(|| env.client());
    let spec = Controller::for_kind::<ConfigMap>("child").namespace(NAMESPACE).owns::<Secret>();
    env.run([spec.reconciler(Child { naive })]);
    env.pass(Duration::from_secs(1)).await;
    env.set_faults(|request| match (request.verb, &*request.resource) {
        ("watch", "secrets") => Fault::Delay(Duration::from_secs(5)),
        _ => Fault::None,
    });
    env.server().close_watches();
    let maps = env.api(NAMESPACE);
    create(&maps, "parent").await;
    for change in 0..5 {
        want(&maps, "parent", &change.to_string()).await;
        env.pass(Duration::from_secs(1)).await;
    }
    env.pass(Duration::from_secs(20)).await;
    env.api::<Secret>(NAMESPACE).list(&ListParams::default()).await.unwrap().items.len()
}

#[tokio::test(start_paused = true)]
async fn a_child_is_created_once_however_late_the_cache_sees_it() {
    assert_eq!(children(false).await, 1);
    assert!(children(true).await > 1, "this test cannot tell");
}
