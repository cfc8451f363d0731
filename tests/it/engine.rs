//! The engine against an embedded API server that misbehaves: no change is lost, and deletes in a
//! gap surface.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apiserver::faults::{Fault, Request};
use apiserver::status::{ApiError, Reason};
use engine::{Action, Context, Controller, ReconcileError, Reconciler};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use model::ObjectKey;
use serde_json::json;
use tests::solo::Solo;

const NAMESPACE: &str = "maps";

/// Copies `data.wanted` of a ConfigMap to its annotation `seen`, and remembers which were gone.
struct Copy {
    gone: Arc<Mutex<BTreeSet<String>>>,
}

impl Reconciler for Copy {
    type Kind = ConfigMap;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let namespace = key.namespace.as_deref();
        let Some(map) = ctx.get::<ConfigMap>(namespace, &key.name)? else {
            self.gone.lock().unwrap().insert(key.name.to_string());
            return Ok(Action::Done);
        };
        let Some(wanted) = wanted(&map).filter(|wanted| seen(&map) != Some(wanted)) else {
            return Ok(Action::Done);
        };
        let api: Api<ConfigMap> = Api::namespaced(ctx.client(), namespace.unwrap_or_default());
        let patch = json!({"metadata": {"annotations": {"seen": wanted}}});
        api.patch(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(Action::Done)
    }
}

fn wanted(map: &ConfigMap) -> Option<&str> {
    Some(map.data.as_ref()?.get("wanted")?.as_str())
}

fn seen(map: &ConfigMap) -> Option<&str> {
    Some(map.metadata.annotations.as_ref()?.get("seen")?.as_str())
}

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

/// A world whose engine copies, and what it saw go.
async fn world(count: usize) -> (Solo, Api<ConfigMap>, Arc<Mutex<BTreeSet<String>>>) {
    let mut solo = Solo::new("2026-11-21T12:00:00Z", Vec::new(), &[NAMESPACE]).await;
    let gone = Arc::new(Mutex::default());
    let reconciler = Copy { gone: Arc::clone(&gone) };
    let spec = Controller::for_kind::<ConfigMap>("copy").namespace(NAMESPACE).workers(4);
    let spec = spec.reconciler(reconciler);
    let api = solo.api(NAMESPACE);
    for index in 0..count {
        create(&api, &format!("map-{index}")).await;
    }
    solo.start(vec![spec]);
    (solo, api, gone)
}

async fn converged(solo: &Solo, api: &Api<ConfigMap>) {
    solo.until("every map to be copied", async || {
        let maps = api.list(&ListParams::default()).await.ok()?;
        maps.items.iter().all(|map| wanted(map).is_some() && wanted(map) == seen(map)).then_some(())
    })
    .await;
}

/// Breaks what the engine asks for in turn, whatever it is; leaves the test's own client alone.
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
async fn every_change_is_followed_through_trouble_and_gaps() {
    let (solo, api, gone) = world(30).await;
    converged(&solo, &api).await;
    let turns = AtomicU32::new(0);
    let hook = move |request: &Request| trouble(request, turns.fetch_add(1, Ordering::Relaxed));
    solo.server().set_faults(Some(Arc::new(hook)));
    for round in 0..10 {
        solo.server().close_watches();
        solo.server().compact();
        // While no watch is open: some go, some change, some are made.
        api.delete(&format!("map-{round}"), &DeleteParams::default()).await.unwrap();
        for index in 10..30 {
            want(&api, &format!("map-{index}"), &format!("{round}-{index}")).await;
        }
        create(&api, &format!("late-{round}")).await;
        solo.pass(Duration::from_secs(3)).await;
    }
    solo.server().set_faults(None);
    converged(&solo, &api).await;
    let expect: BTreeSet<_> = (0..10).map(|round| format!("map-{round}")).collect();
    solo.until("every delete to surface", async || {
        gone.lock().unwrap().is_superset(&expect).then_some(())
    })
    .await;
    assert_eq!(*gone.lock().unwrap(), expect, "nothing else was taken for gone");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_is_caught_up_with() {
    let (solo, api, _) = world(5).await;
    converged(&solo, &api).await;
    let away = |request: &Request| match request.verb {
        "watch" | "list" if request.resource == "configmaps" => Fault::Drop,
        _ => Fault::None,
    };
    solo.server().set_faults(Some(Arc::new(away)));
    solo.server().close_watches();
    for index in 0..5 {
        want(&api, &format!("map-{index}"), "changed").await;
    }
    solo.pass(Duration::from_secs(600)).await;
    solo.server().set_faults(None);
    converged(&solo, &api).await;
}
