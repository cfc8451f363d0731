//! The writes of a reconciler's context, over an embedded API server: each has its effect, and none
//! is sent that would change nothing.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret};
use kube::Api;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams};
use leasehold::testing::{ApiError, Fault, Reason, TestEnv};
use model::ObjectKey;
use sdk::{Action, Context, Controller, Lifecycle, ReconcileError, Reconciler, mapping};
use serde_json::json;

mod drift;
mod finalize;
mod options;

const FINALIZER: &str = "example.com/notes";

/// Keeps a Secret equal to its ConfigMap, and notes when it cleaned up.
struct Keeper {
    cleaned: Arc<Mutex<Vec<String>>>,
}

impl Reconciler for Keeper {
    type Kind = ConfigMap;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(map) = ctx.get::<ConfigMap>(key.namespace.as_deref(), &key.name)? else {
            return Ok(Action::Done);
        };
        match ctx.finalizer(&*map, FINALIZER).await? {
            Lifecycle::Live(map) => {
                assert!(map.metadata.finalizers.iter().flatten().any(|found| found == FINALIZER));
                let metadata =
                    ObjectMeta { name: Some(key.name.to_string()), ..Default::default() };
                let string_data = map.data.clone();
                let annotations = string_data.clone();
                let metadata = ObjectMeta { annotations, ..metadata };
                ctx.apply_child(&*map, Secret { metadata, ..Default::default() }).await?;
            }
            Lifecycle::Ending => {
                self.cleaned.lock().unwrap().push(key.name.to_string());
                ctx.remove_finalizer(&*map, FINALIZER).await?;
            }
            Lifecycle::Over => {}
        }
        Ok(Action::Done)
    }
}

fn keeper() -> (sdk::ControllerSpec, Arc<Mutex<Vec<String>>>) {
    let cleaned = Arc::new(Mutex::default());
    let reconciler = Keeper { cleaned: Arc::clone(&cleaned) };
    let spec = Controller::for_kind::<ConfigMap>("keeper").namespace("web").owns::<Secret>();
    (spec.field_manager("example.com").reconciler(reconciler), cleaned)
}

async fn say(maps: &Api<ConfigMap>, what: serde_json::Value) {
    let patch = Patch::Merge(json!({ "data": what }));
    maps.patch("a", &PatchParams::default(), &patch).await.unwrap();
}

fn said(secret: &Secret, key: &str) -> Option<String> {
    secret.metadata.annotations.as_ref()?.get(key).cloned()
}

/// The writes of the controller so far.
fn writes(env: &TestEnv) -> usize {
    let ours = |write: &&apiserver::Write| write.user_agent.starts_with("leasehold/");
    env.server().history().iter().filter(ours).count()
}

const MAP: &str = "{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: web}, data: {x: '1', z: '2'}}";

#[tokio::test(start_paused = true)]
async fn an_applied_child_is_maintained_and_written_only_if_it_differs() {
    let mut env = TestEnv::builder().namespace("web").start().await;
    let (spec, _) = keeper();
    env.run([spec]);
    env.apply(MAP).await;
    let (maps, secrets) = (env.api::<ConfigMap>("web"), env.api::<Secret>("web"));
    let secret =
        env.until_object(&secrets, "a", |secret| said(secret, "x").as_deref() == Some("1")).await;
    let owner = &secret.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!((owner.kind.as_str(), owner.controller), ("ConfigMap", Some(true)));
    env.pass(Duration::from_secs(5)).await;
    // The finalizer and the Secret; a label of the ConfigMap causes no write.
    assert_eq!(writes(&env), 2);
    let label = Patch::Merge(json!({"metadata": {"labels": {"new": "label"}}}));
    maps.patch("a", &PatchParams::default(), &label).await.unwrap();
    env.pass(Duration::from_secs(5)).await;
    assert_eq!(writes(&env), 2);
    // Changes of others are reverted; what is no longer desired is removed; what others add stays.
    let edit = Patch::Merge(json!({"metadata": {"annotations": {"x": "9", "theirs": "1"}}}));
    secrets.patch("a", &PatchParams::default(), &edit).await.unwrap();
    env.until_object(&secrets, "a", |secret| said(secret, "x").as_deref() == Some("1")).await;
    say(&maps, json!({"z": null})).await;
    let secret = env.until_object(&secrets, "a", |secret| said(secret, "z").is_none()).await;
    assert_eq!(said(&secret, "theirs").as_deref(), Some("1"));
}

#[tokio::test(start_paused = true)]
async fn an_object_waits_for_its_finalizer_through_failures() {
    let mut env = TestEnv::builder().namespace("web").start().await;
    let (spec, cleaned) = keeper();
    env.run([spec]);
    env.apply(MAP).await;
    let maps = env.api::<ConfigMap>("web");
    env.until_object(&maps, "a", |map| map.metadata.finalizers.is_some()).await;
    env.set_faults(|request| match (request.verb, &*request.resource) {
        ("patch", "configmaps") => Fault::Error(ApiError::new(Reason::InternalError, "no leader")),
        _ => Fault::None,
    });
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    env.pass(Duration::from_secs(5)).await;
    assert!(maps.get_opt("a").await.unwrap().is_some(), "it cannot go yet");
    env.end_faults();
    env.until_gone(&maps, "a").await;
    assert!(cleaned.lock().unwrap().len() > 1, "each attempt cleans up again");
    env.until_gone(&env.api::<Secret>("web"), "a").await;
}

/// Writes into the status of a claim that it is bound.
struct Binder;

impl Reconciler for Binder {
    type Kind = PersistentVolumeClaim;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let namespace = key.namespace.as_deref();
        let Some(claim) = ctx.get::<PersistentVolumeClaim>(namespace, &key.name)? else {
            return Ok(Action::Done);
        };
        let mut bound = (*claim).clone();
        bound.status.get_or_insert_default().phase = Some("Bound".to_owned());
        let found = ctx.update_status(&bound).await?;
        assert!(found.is_some(), "it is not gone");
        Ok(Action::Done)
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_is_written_once() {
    let mut env = TestEnv::builder().namespace("web").start().await;
    let spec = Controller::for_kind::<PersistentVolumeClaim>("binder")
        .watches::<ConfigMap>(mapping::namesake())
        .reconciler(Binder);
    env.run([spec]);
    env.apply(
        "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a, namespace: web},
          spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}",
    )
    .await;
    let bound = |claim: &PersistentVolumeClaim| {
        claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound"))
    };
    env.until_object(&env.api("web"), "a", bound).await;
    assert_eq!(writes(&env), 1);
    env.apply(MAP).await;
    env.pass(Duration::from_secs(5)).await;
    assert_eq!(writes(&env), 1, "nothing had changed");
}

/// Writes into the status of a claim how large it is, and removes its conditions.
struct Sizer;

impl Reconciler for Sizer {
    type Kind = PersistentVolumeClaim;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let namespace = key.namespace.as_deref();
        let Some(claim) = ctx.get::<PersistentVolumeClaim>(namespace, &key.name)? else {
            return Ok(Action::Done);
        };
        let status = json!({"capacity": {"storage": "1Gi"}, "conditions": null});
        assert!(ctx.patch_status(&*claim, status).await?, "it is not gone");
        Ok(Action::Done)
    }
}

#[tokio::test(start_paused = true)]
async fn fields_of_a_status_are_patched_once_and_others_left_alone() {
    let mut env = TestEnv::builder().namespace("web").start().await;
    let spec = Controller::for_kind::<PersistentVolumeClaim>("sizer").reconciler(Sizer);
    env.apply(
        "{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a, namespace: web},
          spec: {accessModes: [ReadWriteOnce], storageClassName: '', resources: {requests: {storage: 1Gi}}}}",
    )
    .await;
    let claims = env.api::<PersistentVolumeClaim>("web");
    let condition = json!({"type": "Resizing", "status": "True"});
    let status = json!({"status": {
        "phase": "Bound", "capacity": {"other": "1"}, "conditions": [condition],
    }});
    claims.patch_status("a", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    env.run([spec]);
    let found = env
        .until_object(&claims, "a", |claim| {
            let capacity = claim.status.as_ref().and_then(|status| status.capacity.as_ref());
            capacity.is_some_and(|capacity| capacity.contains_key("storage"))
        })
        .await;
    let status = found.status.unwrap();
    assert_eq!(status.phase.as_deref(), Some("Bound"));
    assert_eq!(status.capacity.unwrap().len(), 2);
    assert!(status.conditions.is_none());
    env.pass(Duration::from_secs(5)).await;
    assert_eq!(writes(&env), 1, "the patch's own echo finds nothing to do");
}
