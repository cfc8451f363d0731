//! How a controller watches its kinds, on an embedded API server: in several namespaces, without
//! Rust types, by their metadata alone, and without those that the cluster does not have.

use std::sync::{Arc, Mutex};

use apiserver::faults::{Fault, Request};
use apiserver::status::{ApiError, Reason};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::{DynamicObject, PartialObjectMeta};
use leasehold::testing::TestEnv;
use model::ObjectKey;
use sdk::{
    Action, Context, Controller, Kind, ReconcileError, Reconciler, Selector, Watch, mapping,
};
use serde_json::json;

const CRD: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Widget, plural: widgets, singular: widget, listKind: WidgetList}
  versions:
    - name: v1
      served: true
      storage: true
      subresources: {status: {}}
      schema:
        openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
";

fn widgets() -> Kind {
    Kind::new("example.com", "v1", "Widget", "widgets", true)
}

/// Refuses the engine's lists and watches for which `is_refused` holds, as a server without rights does.
fn refuse(env: &TestEnv, is_refused: impl Fn(&Request) -> bool + Send + Sync + 'static) {
    env.set_faults(move |request| {
        let reads = ["list", "watch"].contains(&request.verb);
        match reads && request.name.is_empty() && is_refused(request) {
            true => Fault::Error(ApiError::new(Reason::Forbidden, "no rights")),
            false => Fault::None,
        }
    });
}

/// Writes down for each ConfigMap the widgets that it owns.
struct Inventory;

impl Reconciler for Inventory {
    type Kind = ConfigMap;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let Some(map) = ctx.get::<ConfigMap>(key.namespace.as_deref(), &key.name)? else {
            return Ok(Action::Done);
        };
        let uid = map.metadata.uid.as_deref().unwrap_or_default();
        let owned = ctx.owned_by_dynamic::<DynamicObject>(&widgets(), uid)?;
        let found = match ctx.available_dynamic(&widgets())? {
            true => owned.len().to_string(),
            false => "unknown".to_owned(),
        };
        let mut seen = ConfigMap::default();
        seen.metadata.name = map.metadata.name.clone();
        seen.metadata.namespace = map.metadata.namespace.clone();
        seen.metadata.annotations = Some([("widgets".to_owned(), found)].into());
        ctx.apply(&seen).await?;
        Ok(Action::Done)
    }
}

fn annotation(map: &ConfigMap) -> Option<&str> {
    Some(map.metadata.annotations.as_ref()?.get("widgets")?.as_str())
}

#[tokio::test(start_paused = true)]
async fn a_controller_joins_a_kind_when_it_is_installed_and_when_it_is_granted() {
    let mut env = TestEnv::builder().namespace("web").start().await;
    env.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: web}}").await;
    let maps = env.api::<ConfigMap>("web");
    let uid = maps.get("a").await.unwrap().metadata.uid.unwrap();
    env.run([Controller::for_kind::<ConfigMap>("inventory")
        .namespace("web")
        .owns_with(Watch::dynamic(widgets()).optional())
        .reconciler(Inventory)]);
    env.until_object(&maps, "a", |map| annotation(map) == Some("unknown")).await;
    refuse(&env, |request| request.resource == "widgets");
    env.apply(CRD).await;
    let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": uid, "controller": true});
    let metadata = json!({"name": "w", "namespace": "web", "ownerReferences": [owner]});
    let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata});
    env.apply(&widget.to_string()).await;
    // Installed, and still not to be looked at.
    env.pass(std::time::Duration::from_secs(60)).await;
    assert_eq!(annotation(&maps.get("a").await.unwrap()), Some("unknown"));
    env.end_faults();
    env.until_object(&maps, "a", |map| annotation(map) == Some("1")).await;
}

/// Gives each widget a ready condition and a ConfigMap.
struct Widgets(Kind);

impl Reconciler for Widgets {
    type Kind = DynamicObject;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let found = ctx.get_dynamic(&self.0, key.namespace.as_deref(), &key.name)?;
        let Some(widget): Option<DynamicObject> = found else { return Ok(Action::Done) };
        let mut map = ConfigMap::default();
        map.metadata.name = widget.metadata.name.clone();
        map.data = Some([("size".to_owned(), widget.data["spec"]["size"].to_string())].into());
        ctx.apply_child(&widget, map).await?;
        ctx.patch_status(&widget, json!({"observed": widget.data["spec"]["size"]})).await?;
        Ok(Action::Done)
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_read_from_its_definition_is_reconciled() {
    let crd = serde_saphyr::from_str(CRD).unwrap();
    let kind = Kind::of_crd(&crd).unwrap();
    assert_eq!(kind, widgets());
    let mut env = TestEnv::builder().crd(crd).namespace("web").start().await;
    let controller = Controller::for_dynamic("widgets", kind.clone()).owns::<ConfigMap>();
    env.run([controller.reconciler(Widgets(kind.clone()))]);
    let widget = |size| {
        json!({"apiVersion": "example.com/v1", "kind": "Widget",
            "metadata": {"name": "w", "namespace": "web"}, "spec": {"size": size}})
    };
    let resource = kind.api_resource();
    let api: kube::Api<DynamicObject> = kube::Api::namespaced_with(env.client(), "web", &resource);
    let maps = env.api::<ConfigMap>("web");
    for size in [1, 2] {
        env.apply(&widget(size).to_string()).await;
        env.until_object(&api, "w", |widget| widget.data["status"]["observed"] == size).await;
        let map = maps.get("w").await.unwrap();
        assert_eq!(map.data.unwrap()["size"], size.to_string());
    }
    // A child that somebody deletes is created again: its owner is known by a kind without a Rust type.
    maps.delete("w", &Default::default()).await.unwrap();
    env.until_object(&maps, "w", |_| true).await;
}

/// Notes what it finds of a Secret, and of which form.
struct Peek(Arc<Mutex<Vec<String>>>);

impl Reconciler for Peek {
    type Kind = ConfigMap;

    async fn reconcile(&self, ctx: &Context, _: &ObjectKey) -> Result<Action, ReconcileError> {
        let found = ctx.list::<PartialObjectMeta<Secret>>(None, &Selector::all())?;
        let text = found.iter().map(|secret| {
            let name = secret.metadata.name.as_deref().unwrap_or_default();
            format!("{} {name}", secret.types.as_ref().map_or("", |types| &types.kind))
        });
        self.0.lock().unwrap().extend(text);
        Ok(Action::Done)
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_asked_for_metadata_sends_nothing_else() {
    let mut env = TestEnv::builder().namespace("web").start().await;
    env.apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: s, namespace: web}}").await;
    let secret = |key: &str| {
        json!({"apiVersion": "v1", "kind": "Secret", "stringData": {key: "hidden"},
            "metadata": {"name": "s", "namespace": "web"}})
    };
    env.apply(&secret("first").to_string()).await;
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    env.run([Controller::for_kind::<ConfigMap>("peek")
        .namespaces(["web"])
        .watches_with(Watch::<Secret>::all().metadata_only(), mapping::namesake())
        .reconciler(Peek(Arc::clone(&seen)))]);
    let look = async |count| {
        let found = async || (seen.lock().unwrap().len() >= count).then_some(());
        env.until("the Secret to be looked at", found).await;
    };
    look(1).await;
    // A change of what is not transferred is still a change.
    env.apply(&secret("second").to_string()).await;
    look(2).await;
    // It is the server that leaves the rest out: the list's objects and the watch's say so.
    let seen = seen.lock().unwrap().clone();
    assert!(seen.iter().all(|line| line == "PartialObjectMetadata s"), "{seen:?}");
}

/// Copies the namespace of each ConfigMap to its annotation.
struct Inside(Arc<Mutex<Vec<String>>>);

impl Reconciler for Inside {
    type Kind = ConfigMap;

    async fn reconcile(&self, ctx: &Context, _: &ObjectKey) -> Result<Action, ReconcileError> {
        let all = ctx.list::<ConfigMap>(None, &Selector::all())?;
        let names = all.iter().map(|map| format!("{:?}", map.metadata.namespace));
        *self.0.lock().unwrap() = names.collect();
        Ok(Action::Done)
    }
}

#[tokio::test(start_paused = true)]
async fn rights_in_some_namespaces_are_enough() {
    let mut env =
        TestEnv::builder().namespace("web").namespace("api").namespace("db").start().await;
    for namespace in ["web", "api", "db"] {
        let map = format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: a, namespace: {namespace}}}}}"
        );
        env.apply(&map).await;
    }
    refuse(&env, |request| !["web", "api"].contains(&request.namespace.as_str()));
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    env.run([Controller::for_kind::<ConfigMap>("inside")
        .namespaces(["web", "api"])
        .reconciler(Inside(Arc::clone(&seen)))]);
    env.until("both to be found", async || {
        (*seen.lock().unwrap() == [r#"Some("api")"#, r#"Some("web")"#]).then_some(())
    })
    .await;
}
