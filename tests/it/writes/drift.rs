//! What others change in an applied object: `apply` puts right exactly what server-side apply owns,
//! and sends nothing while nobody changes anything.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::rbac::v1::Role;
use kube::Api;
use kube::CustomResource;
use kube::api::{Patch, PatchParams};
use leasehold::testing::{Fault, Request, TestEnv};
use model::ObjectKey;
use sdk::{Action, Context, Controller, Object, ReconcileError, Reconciler};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::MAP;

/// Longer than any reconcile takes.
const SETTLED: Duration = Duration::from_secs(5);

/// Applies one object for the ConfigMap `a`.
struct Applier<K>(K);

impl<K: Object> Reconciler for Applier<K> {
    type Kind = ConfigMap;

    async fn reconcile(&self, ctx: &Context, key: &ObjectKey) -> Result<Action, ReconcileError> {
        if &*key.name == "a" {
            ctx.apply(&self.0).await?;
        }
        Ok(Action::Done)
    }
}

/// A cluster in which `wanted` is applied, and what is sent for it.
struct Stage<K> {
    env: TestEnv,
    api: Api<K>,
    wanted: K,
    sent: Arc<AtomicUsize>,
}

impl<K> Stage<K>
where
    K: Object + kube::Resource<DynamicType = (), Scope = NamespaceResourceScope>,
{
    async fn start(crds: &[Value], wanted: Value) -> Self {
        let crds = crds.iter().map(|crd| serde_json::from_value(crd.clone()).unwrap());
        let env = TestEnv::builder().crds(crds).namespace("web").start().await;
        let sent = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&sent);
        env.set_faults(move |request: &Request| {
            if request.verb == "patch" && request.user_agent.starts_with("leasehold/") {
                counted.fetch_add(1, Ordering::SeqCst);
            }
            Fault::None
        });
        env.apply(MAP).await;
        let wanted: K = serde_json::from_value(wanted).unwrap();
        let mut stage = Self { api: env.api("web"), env, wanted, sent };
        stage.run();
        stage.env.until_object(&stage.api, "x", |_| true).await;
        stage.rests().await;
        stage
    }

    fn run(&mut self) {
        let spec = Controller::for_kind::<ConfigMap>("applier")
            .namespace("web")
            .watches::<K>(|_, _| vec![(Some("web".into()), "a".into())])
            .reconciler(Applier(self.wanted.clone()));
        self.env.run([spec]);
    }

    /// How many applies were sent since the last time, when all is quiet.
    async fn sent(&self) -> usize {
        self.env.pass(SETTLED).await;
        self.sent.swap(0, Ordering::SeqCst)
    }

    /// Nothing is sent while nobody changes anything, however often the key runs.
    async fn rests(&self) {
        self.sent().await;
        let maps = self.env.api::<ConfigMap>("web");
        for number in 0..3 {
            super::say(&maps, json!({"number": number.to_string()})).await;
            self.env.pass(SETTLED).await;
        }
        assert_eq!(self.sent().await, 0, "{:#}", self.found().await);
    }

    async fn found(&self) -> Value {
        let mut found = serde_json::to_value(self.api.get("x").await.unwrap()).unwrap();
        found["metadata"]["managedFields"].take();
        found
    }

    /// Somebody patches the object; what is found at `at` when all is quiet again.
    async fn after(&self, patch: Value, at: &str) -> Value {
        let patch = Patch::Merge(patch);
        self.api.patch("x", &PatchParams::default(), &patch).await.unwrap();
        let (sent, found) = (self.sent().await, self.found().await);
        assert_eq!(sent, 1, "a change by others is answered once: {found:#}");
        self.rests().await;
        found.pointer(at).cloned().unwrap_or_default()
    }

    /// What `wanted` says at `at` stands again after each of these changes there.
    async fn puts_right(&self, at: &str, changes: impl IntoIterator<Item = Value>) {
        let wanted =
            serde_json::to_value(&self.wanted).unwrap().pointer(at).cloned().unwrap_or_default();
        for change in changes {
            let patch = at.rsplit('/').filter(|step| !step.is_empty());
            let patch = patch.fold(change.clone(), |inner, step| json!({ step: inner }));
            assert_eq!(self.after(patch, at).await, wanted, "{at} changed to {change}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_list_that_is_one_value_is_put_right_as_a_whole() {
    let get = json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]});
    let edit = json!({"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["patch"]});
    let rules = json!([get, edit]);
    let mut stage = Stage::<Role>::start(
        &[],
        json!({"metadata": {"name": "x", "namespace": "web"}, "rules": rules}),
    )
    .await;
    let all = json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]});
    let mut wider = get.clone();
    wider["verbs"] = json!(["get", "list", "delete"]);
    let mut narrower = get.clone();
    narrower["resourceNames"] = json!(["only"]);
    let changes = [
        json!([get, edit, all]),
        json!([get]),
        json!([]),
        json!(null),
        json!([edit, get]),
        json!([wider, edit]),
        json!([narrower, edit]),
        json!([get, get]),
    ];
    stage.puts_right("/rules", changes).await;
    // The same while nobody looks, and exactly what is wanted needs no write after a start.
    stage.env.stop().await;
    stage.run();
    assert_eq!(stage.sent().await, 0);
    stage.env.stop().await;
    let patch = Patch::Merge(json!({"rules": [get, edit, all]}));
    stage.api.patch("x", &PatchParams::default(), &patch).await.unwrap();
    stage.run();
    stage
        .env
        .until_object(&stage.api, "x", |role| role.rules.as_ref().map(Vec::len) == Some(2))
        .await;
}

fn deployment() -> Value {
    json!({
        "metadata": {"name": "x", "namespace": "web", "labels": {"app": "x"}},
        "spec": {
            "selector": {"matchLabels": {"app": "x"}},
            "template": {
                "metadata": {"labels": {"app": "x"}},
                "spec": {"containers": [{
                    "name": "app", "image": "app:1", "args": ["--one", "--two"],
                    "env": [{"name": "A", "value": "1"}], "ports": [{"containerPort": 80}],
                }]},
            },
        },
    })
}

/// The lists of a Pod are maps: others may have elements of their own there. And servers fill in much.
#[tokio::test(start_paused = true)]
async fn in_a_list_that_is_a_map_others_keep_what_is_theirs() {
    let mut stage = Stage::<Deployment>::start(&[], deployment()).await;
    const CONTAINERS: &str = "/spec/template/spec/containers";
    let found = stage.found().await;
    let ours = &found.pointer(CONTAINERS).unwrap()[0];
    let containers = |change: &dyn Fn(&mut Value)| {
        let mut ours = ours.clone();
        change(&mut ours);
        json!({"spec": {"template": {"spec": {"containers": [ours]}}}})
    };
    // Elements of others stay.
    let theirs = containers(&|ours| {
        ours["env"] = json!([{"name": "A", "value": "1"}, {"name": "THEIRS", "value": "2"}]);
    });
    let found = stage.after(theirs, CONTAINERS).await;
    assert_eq!(
        found[0]["env"],
        json!([{"name": "A", "value": "1"}, {"name": "THEIRS", "value": "2"}])
    );
    let theirs = containers(&|ours| {
        let theirs = json!({"containerPort": 9090, "protocol": "TCP"});
        ours["ports"].as_array_mut().unwrap().push(theirs);
    });
    assert_eq!(stage.after(theirs, CONTAINERS).await[0]["ports"].as_array().map(Vec::len), Some(2));
    let replicas = stage.after(json!({"spec": {"replicas": 7}}), "/spec/replicas").await;
    assert_eq!(replicas, 7, "no field of ours");
    // What is ours does not stay changed.
    for (field, expect, change) in [
        ("image", json!("app:1"), json!("app:2")),
        ("args", json!(["--one", "--two"]), json!(["--two", "--one"])),
        ("args", json!(["--one", "--two"]), json!([])),
        ("env", json!([{"name": "A", "value": "1"}]), json!([{"name": "A", "value": "9"}])),
        ("env", json!([{"name": "A", "value": "1"}]), json!([])),
        ("ports", json!([{"containerPort": 80, "protocol": "TCP"}]), json!([])),
    ] {
        let patch = containers(&|ours| ours[field] = change.clone());
        assert_eq!(stage.after(patch, CONTAINERS).await[0][field], expect, "{field} to {change}");
    }
    stage.puts_right("/metadata/labels", [json!({"app": "y"}), json!({"app": null})]).await;
    // What the server filled in is not known after a start: once more is sent, and changes nothing.
    let version = stage.found().await["metadata"]["resourceVersion"].take();
    stage.env.stop().await;
    stage.run();
    assert_eq!(stage.sent().await, 1);
    stage.rests().await;
    assert_eq!(stage.found().await["metadata"]["resourceVersion"], version);
}

#[tokio::test(start_paused = true)]
async fn a_map_that_is_one_value_is_put_right_as_a_whole() {
    let spec = json!({"selector": {"app": "x"}, "ports": [{"port": 80}]});
    let stage = Stage::<Service>::start(
        &[],
        json!({"metadata": {"name": "x", "namespace": "web"}, "spec": spec}),
    )
    .await;
    let changes = [json!({"more": "x"}), json!({"app": "y"}), json!({"app": null}), json!(null)];
    stage.puts_right("/spec/selector", changes).await;
}

/// Of everything that a schema can say of lists and maps, one.
#[derive(Clone, Debug, CustomResource, Deserialize, Serialize)]
#[kube(group = "example.com", version = "v1", kind = "Shape", namespaced, schema = "disabled")]
struct ShapeSpec {
    #[serde(flatten)]
    fields: Map<String, Value>,
}

fn shapes() -> Value {
    let text = json!({"type": "string"});
    let list = |kind: &str, items: &Value| {
        let mut list = json!({"type": "array", "x-kubernetes-list-type": kind, "items": items});
        if kind == "map" {
            list["x-kubernetes-list-map-keys"] = json!(["id"]);
        }
        list
    };
    let item = json!({"type": "object", "required": ["id"], "properties": {
        "id": text, "value": text, "mode": {"type": "string", "default": "auto"},
    }});
    let map = |kind: &str| json!({"type": "object", "x-kubernetes-map-type": kind, "additionalProperties": text});
    let spec = json!({"type": "object", "properties": {
        "atomic": list("atomic", &item), "set": list("set", &text), "map": list("map", &item),
        "one": map("atomic"), "many": map("granular"), "scalar": text,
        "none": list("atomic", &text), "nothing": map("atomic"),
    }});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "shapes.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Shape", "listKind": "ShapeList", "plural": "shapes", "singular": "shape"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {
                "openAPIV3Schema": {"type": "object", "properties": {"spec": spec}},
            }}],
        },
    })
}

#[tokio::test(start_paused = true)]
async fn every_shape_of_a_custom_resource_is_put_right_as_its_schema_says() {
    let (one, two) = (json!({"id": "1", "value": "x"}), json!({"id": "2", "value": "y"}));
    let wanted = json!({
        "apiVersion": "example.com/v1", "kind": "Shape",
        "metadata": {"name": "x", "namespace": "web"},
        "spec": {
            "atomic": [one, two], "set": ["a", "b"], "map": [one], "one": {"k": "1"},
            "many": {"k": "1"}, "scalar": "s", "none": [], "nothing": {},
        },
    });
    let stage = Stage::<Shape>::start(&[shapes()], wanted).await;
    let spec = |field: &str, value: &Value| json!({"spec": {field: value}});
    let filled = |mut item: Value| {
        item["mode"] = "auto".into();
        item
    };
    let (one, two, other) = (filled(one), filled(two), json!({"id": "3", "mode": "auto"}));
    let (ours, theirs) = (json!([one, two]), json!([one, two, other]));
    let mut odd = one.clone();
    odd["mode"] = "manual".into();
    for (field, change, expect) in [
        ("atomic", theirs, &ours),
        ("atomic", json!([two, one]), &ours),
        ("atomic", json!([one]), &ours),
        ("atomic", json!([]), &ours),
        ("atomic", json!([odd, two]), &ours),
        ("set", json!(["b"]), &json!(["a", "b"])),
        ("set", json!(["a", "b", "theirs"]), &json!(["a", "b", "theirs"])),
        ("map", json!([one, other]), &json!([one, other])),
        ("map", json!([odd, other]), &json!([odd, other])),
        ("map", json!([other]), &json!([other, one])),
        ("one", json!({"more": "2"}), &json!({"k": "1"})),
        ("one", json!({"k": null}), &json!({"k": "1"})),
        ("many", json!({"more": "2"}), &json!({"k": "1", "more": "2"})),
        ("many", json!({"k": "9"}), &json!({"k": "1", "more": "2"})),
        ("many", json!({"k": null}), &json!({"k": "1", "more": "2"})),
        ("scalar", json!("t"), &json!("s")),
        ("scalar", json!(null), &json!("s")),
        ("none", json!(["theirs"]), &json!([])),
        ("nothing", json!({"theirs": "1"}), &json!({})),
    ] {
        let found = stage.after(spec(field, &change), &format!("/spec/{field}")).await;
        assert_eq!(found, *expect, "{field} changed to {change}");
    }
}
