//! Applies that give way to others, that only ask, and of a status; over an embedded API server.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim};
use kube::Api;
use kube::api::{Patch, PatchParams};
use leasehold::testing::TestEnv;
use model::ObjectKey;
use sdk::{
    Action, ApplyConflict, ApplyOptions, Context, Controller, ReconcileError, Reconciler,
    RetryClass,
};
use serde_json::{Value, json};

use super::{MAP, writes};

/// Applies `{data: {ours, x}}` to the ConfigMap `b` for `a`, and notes what comes of it.
struct Polite {
    options: ApplyOptions,
    notes: Arc<Mutex<Vec<String>>>,
}

impl Reconciler for Polite {
    type Kind = ConfigMap;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        if &*key.name != "a" {
            return Ok(Action::Done);
        }
        let wanted = json!({
            "metadata": {"name": "b", "namespace": "web"}, "data": {"ours": "1", "x": "ours"},
        });
        let wanted: ConfigMap = serde_json::from_value(wanted).map_err(ReconcileError::terminal)?;
        let written = ctx.apply_with(&wanted, self.options).await;
        let note = match &written {
            Ok(map) => format!("{:?}", map.data.as_ref().and_then(|data| data.get("x"))),
            Err(error) => {
                assert_eq!(error.class(), RetryClass::Conflict);
                let conflict = ApplyConflict::among(error).expect("the conflict");
                let [only] = conflict.fields() else { panic!("{conflict}") };
                format!("{} owns {}", only.manager, only.field)
            }
        };
        self.notes.lock().unwrap().push(note);
        Ok(Action::Done)
    }
}

/// What the first reconcile notes where somebody else has applied `x` before, and what `b` is then.
async fn noted(options: ApplyOptions) -> (String, Option<Value>, usize) {
    let mut env = TestEnv::builder().namespace("web").start().await;
    let maps: Api<ConfigMap> = env.api("web");
    let theirs = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "b"}, "data": {"x": "theirs"},
    });
    let params = PatchParams::apply("somebody");
    maps.patch("b", &params, &Patch::Apply(theirs)).await.unwrap();
    env.apply(MAP).await;
    let notes = Arc::new(Mutex::default());
    let reconciler = Polite { options, notes: Arc::clone(&notes) };
    env.run([Controller::for_kind::<ConfigMap>("polite").namespace("web").reconciler(reconciler)]);
    env.pass(Duration::from_secs(5)).await;
    let found = maps.get("b").await.unwrap();
    let data = found.data.map(|data| json!(data));
    let note = notes.lock().unwrap().first().cloned().unwrap();
    (note, data, writes(&env))
}

#[tokio::test(start_paused = true)]
async fn without_force_nothing_is_taken_from_others() {
    let (note, data, writes) = noted(ApplyOptions::default().force(false)).await;
    assert_eq!(note, "somebody owns .data.x");
    assert_eq!((data, writes), (Some(json!({"x": "theirs"})), 0));
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_says_what_would_be_and_writes_nothing() {
    let (note, data, writes) = noted(ApplyOptions::default().dry_run()).await;
    assert_eq!(note, r#"Some("ours")"#);
    assert_eq!((data, writes), (Some(json!({"x": "theirs"})), 0));
    let (note, ..) = noted(ApplyOptions::default().dry_run().force(false)).await;
    assert_eq!(note, "somebody owns .data.x");
}

#[tokio::test(start_paused = true)]
async fn by_force_it_is_ours() {
    let (note, data, writes) = noted(ApplyOptions::default()).await;
    assert_eq!(note, r#"Some("ours")"#);
    assert_eq!((data, writes), (Some(json!({"ours": "1", "x": "ours"})), 1));
}

/// Applies the status that the ConfigMap of the claim's name says.
struct Binder;

impl Reconciler for Binder {
    type Kind = PersistentVolumeClaim;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let namespace = key.namespace.as_deref();
        let Some(map) = ctx.get::<ConfigMap>(namespace, &key.name)? else {
            return Ok(Action::Done);
        };
        let text = map.data.as_ref().and_then(|data| data.get("status")).cloned();
        let status: Value =
            serde_json::from_str(&text.unwrap_or_default()).map_err(ReconcileError::terminal)?;
        let claim =
            json!({"metadata": {"name": &*key.name, "namespace": namespace}, "status": status});
        let claim: PersistentVolumeClaim =
            serde_json::from_value(claim).map_err(ReconcileError::terminal)?;
        assert!(ctx.apply_status(&claim).await?.is_some());
        Ok(Action::Done)
    }
}

#[tokio::test(start_paused = true)]
async fn an_applied_status_is_shared_with_others_and_given_up_again() {
    let mut env = TestEnv::builder().namespace("web").start().await;
    env.apply(
        "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a, namespace: web},
          spec: {accessModes: [ReadWriteOnce], storageClassName: '', resources: {requests: {storage: 1Gi}}}}",
    )
    .await;
    let claims: Api<PersistentVolumeClaim> = env.api("web");
    let condition = |kind: &str| json!({"type": kind, "status": "True"});
    let theirs = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "a"},
        "status": {"conditions": [condition("Resizing")]},
    });
    let params = PatchParams::apply("somebody");
    claims.patch_status("a", &params, &Patch::Apply(theirs)).await.unwrap();
    let ours = json!({"phase": "Bound", "capacity": {"storage": "1Gi"}, "conditions": [condition("Ours")]});
    let say = async |env: &TestEnv, status: Value| {
        let text = json!({"status": status.to_string()});
        env.apply(&MAP.replace("{x: '1', z: '2'}", &text.to_string())).await;
        env.pass(Duration::from_secs(5)).await;
        let found = claims.get("a").await.unwrap().status.unwrap();
        let types = found.conditions.iter().flatten().map(|found| found.type_.clone());
        (found.phase.clone(), found.capacity.is_some(), types.collect::<Vec<_>>())
    };
    env.run([Controller::for_kind::<PersistentVolumeClaim>("binder")
        .watches::<ConfigMap>(sdk::mapping::namesake())
        .reconciler(Binder)]);
    let both = |ours: &[&str]| ours.iter().map(ToString::to_string).collect::<Vec<_>>();
    let bound = Some("Bound".to_owned());
    assert_eq!(say(&env, ours.clone()).await, (bound.clone(), true, both(&["Resizing", "Ours"])));
    assert_eq!(writes(&env), 1);
    // Nothing new: nothing is written. What others empty comes back.
    let label = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    claims.patch("a", &PatchParams::default(), &label).await.unwrap();
    env.pass(Duration::from_secs(5)).await;
    assert_eq!(writes(&env), 1);
    let emptied = Patch::Merge(json!({"status": {"conditions": []}}));
    claims.patch_status("a", &PatchParams::default(), &emptied).await.unwrap();
    env.pass(Duration::from_secs(5)).await;
    let found = claims.get("a").await.unwrap().status.unwrap();
    assert_eq!(found.conditions.unwrap().len(), 1);
    assert_eq!(writes(&env), 2);
    // What is named no more is given up, also after a start.
    env.stop().await;
    env.run([Controller::for_kind::<PersistentVolumeClaim>("binder")
        .watches::<ConfigMap>(sdk::mapping::namesake())
        .reconciler(Binder)]);
    assert_eq!(say(&env, json!({"phase": "Bound"})).await, (bound, false, both(&[])));
}
