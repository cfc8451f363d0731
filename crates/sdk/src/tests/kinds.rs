//! Kinds that are known at run time, and kinds of which only the metadata is watched.

use std::sync::{Arc, Mutex};

use futures::FutureExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::core::{DynamicObject, PartialObjectMeta};
use serde_json::{Value, json};

use super::world::{World, holding, run, settle};
use crate::{
    Action, Context, Controller, Kind, ObjectKey, ReconcileError, RetryClass, Selector, Watch,
    predicate,
};
use engine::testing::{Asked, config_map};

const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

fn widgets() -> Kind {
    Kind::new("example.com", "v1", "Widget", "widgets", true)
}

fn parts() -> Kind {
    Kind::new("example.com", "v1", "Part", "parts", true)
}

fn object(kind: &Kind, name: &str, version: u64, colour: &str) -> Value {
    json!({"apiVersion": kind.api_version(), "kind": &*kind.kind, "metadata": {"namespace": "ns",
        "name": name, "uid": format!("uid-{name}"), "resourceVersion": version.to_string()},
        "spec": {"colour": colour}})
}

fn owned(mut object: Value, owner: &str) -> Value {
    object["metadata"]["ownerReferences"] = json!([{"apiVersion": "example.com/v1beta1",
        "kind": "Widget", "name": owner, "uid": format!("uid-{owner}"), "controller": true}]);
    object
}

fn colour(object: &DynamicObject) -> Vec<String> {
    object
        .data
        .pointer("/spec/colour")
        .and_then(Value::as_str)
        .map(str::to_owned)
        .into_iter()
        .collect()
}

fn names<'a>(objects: impl IntoIterator<Item = &'a DynamicObject>) -> String {
    let names = objects.into_iter().map(|object| object.metadata.name.clone().unwrap());
    names.collect::<Vec<_>>().join(",")
}

/// What one reconcile of a widget finds, as text.
fn look(ctx: &Context, key: &ObjectKey) -> Result<String, ReconcileError> {
    let namespace = key.namespace.as_deref();
    let Some(widget) = ctx.get_dynamic::<DynamicObject>(&widgets(), namespace, &key.name)? else {
        return Ok(format!("{} is gone", key.name));
    };
    let types = widget.types.as_ref().map(|types| types.kind.as_str()).unwrap_or_default();
    let uid = widget.metadata.uid.as_deref().unwrap();
    let parts = ctx.owned_by_dynamic::<DynamicObject>(&parts(), uid)?;
    let red = ctx.indexed_dynamic::<DynamicObject>(&widgets(), "colour", "red")?;
    let all = ctx.list_dynamic::<DynamicObject>(&widgets(), None, &Selector::all())?;
    let partial = ctx.get_dynamic::<PartialObjectMeta>(&widgets(), namespace, &key.name)?.unwrap();
    assert_eq!(
        (partial.types, partial.metadata.uid),
        (widget.types.clone(), widget.metadata.uid.clone())
    );
    assert!(ctx.available_dynamic(&widgets())?);
    let unknown = Kind::new("example.com", "v1", "Other", "others", true);
    let error = ctx.get_dynamic::<DynamicObject>(&unknown, None, "x").unwrap_err();
    assert_eq!(error.class(), RetryClass::Terminal);
    Ok(format!(
        "{types} {}: parts {}, red {}, all {}",
        key.name,
        names(&parts),
        names(&red),
        names(&all)
    ))
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_known_at_run_time_is_reconciled_owned_mapped_and_indexed() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&seen);
    let primary = Watch::dynamic(widgets()).index("colour", colour).predicate(
        |old: Option<&DynamicObject>, new: Option<&DynamicObject>| {
            old.map(colour) != new.map(colour)
        },
    );
    let tints = Kind::new("example.com", "v1", "Tint", "tints", false);
    let spec = Controller::for_watch("widgets", primary)
        .owns_with(Watch::dynamic(parts()))
        .watches_with(Watch::dynamic(tints.clone()), |tint: &DynamicObject, lookup| {
            assert_eq!(tint.types.as_ref().unwrap().kind, "Tint");
            let all = lookup.list_dynamic::<DynamicObject>(&widgets(), None, &Selector::all());
            let one = lookup.get_dynamic::<DynamicObject>(&widgets(), Some("ns"), "b");
            assert_eq!(one.is_some(), all.len() == 2);
            let tinted = all.iter().filter(|widget| colour(widget) == colour(tint));
            tinted
                .map(|w| (w.metadata.namespace.clone(), w.metadata.name.clone().unwrap()))
                .collect()
        })
        .reconciler(run(move |ctx, key| {
            let found = look(ctx, key).map(|found| noted.lock().unwrap().push(found));
            std::future::ready(found.map(|()| Action::Done)).boxed()
        }));
    let (world, mut server) = holding(vec![spec], 1);
    let list = |plural: &str| {
        format!(
            "GET /apis/example.com/v1/{plural} watch=true&sendInitialEvents=true&resourceVersion="
        )
    };
    server.expect(&list("widgets")).await.refuse(422, "Invalid");
    let parts =
        server.expect(&list("parts")).await.list(5, &[owned(object(&parts(), "p", 2, ""), "a")]);
    let tints_list = server.expect(&list("tints")).await.list(5, &[]);
    // Pages of some kinds leave out what the list says already.
    let mut items = [object(&widgets(), "a", 3, "red"), object(&widgets(), "b", 4, "blue")];
    items[0].as_object_mut().unwrap().remove("kind");
    items[0].as_object_mut().unwrap().remove("apiVersion");
    server.asked().await.page(5, "", &items);
    let widgets_watch = server.asked().await.watch();
    world.wait_entries(4).await;
    let take = || {
        let mut lines = std::mem::take(&mut *seen.lock().unwrap());
        lines.sort();
        lines
    };
    let all = "all a,b";
    assert_eq!(
        take(),
        [format!("Widget a: parts p, red a, {all}"), format!("Widget b: parts , red a, {all}"),]
    );
    parts.event("ADDED", &owned(object(&self::parts(), "q", 6, ""), "b"));
    world.wait_entries(6).await;
    assert_eq!(take(), [format!("Widget b: parts q, red a, {all}")]);
    widgets_watch.event("MODIFIED", &object(&widgets(), "a", 7, "red"));
    widgets_watch.event("MODIFIED", &object(&widgets(), "b", 8, "red"));
    world.wait_entries(8).await;
    assert_eq!(take(), [format!("Widget b: parts q, red a,b, {all}")], "the predicate saw both");
    tints_list.event("ADDED", &object(&tints, "t", 9, "red"));
    world.wait_entries(12).await;
    assert_eq!(take().len(), 2);
    widgets_watch.event("DELETED", &object(&widgets(), "a", 10, "red"));
    world.wait_entries(14).await;
    assert_eq!(take(), ["a is gone"]);
    world.stop().await;
}

/// Runs a reconcile of widget `a`, and gives the server and what came of it.
async fn writing<F>(act: F) -> (World, engine::testing::Server, Arc<Mutex<Vec<String>>>)
where
    F: for<'a> Fn(
            &'a Context,
            DynamicObject,
        ) -> futures::future::BoxFuture<'a, Result<(), ReconcileError>>
        + Send
        + Sync
        + 'static,
{
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let (noted, act) = (Arc::clone(&seen), Arc::new(act));
    let spec = Controller::for_dynamic("widgets", widgets()).owns_with(Watch::dynamic(parts()));
    let spec = spec.reconciler(run(move |ctx, key| {
        let (noted, act) = (Arc::clone(&noted), Arc::clone(&act));
        async move {
            let widget = ctx.get_dynamic(&widgets(), key.namespace.as_deref(), &key.name)?;
            let result = act(ctx, widget.unwrap()).await;
            noted
                .lock()
                .unwrap()
                .push(result.map_or_else(|e| model::error::chain(&e), |()| "done".into()));
            Ok(Action::Done)
        }
        .boxed()
    }));
    let (world, mut server) = holding(vec![spec], 1);
    for objects in [vec![object(&widgets(), "a", 1, "red")], vec![]] {
        std::mem::forget(server.asked().await.list(5, &objects));
    }
    (world, server, seen)
}

fn echo(asked: Asked, version: u64) -> (String, Value) {
    let (line, body) = (asked.line.clone(), asked.body.clone());
    let mut answer = body.clone();
    answer["metadata"]["resourceVersion"] = version.to_string().into();
    asked.answer(200, &answer);
    (line, body)
}

#[tokio::test(start_paused = true)]
async fn what_is_read_of_a_run_time_kind_is_written_as_ever() {
    let (world, mut server, seen) = writing(|ctx, widget| {
        async move {
            let part =
                DynamicObject::new("p", &parts().api_resource()).data(json!({"spec": {"size": 1}}));
            let part = ctx.apply_child(&widget, part).await?;
            assert_eq!(part.metadata.resource_version.as_deref(), Some("6"));
            ctx.patch_status(&widget, json!({"ready": true})).await?;
            ctx.finalizer(&widget, "example.com/a").await?;
            ctx.publish(crate::Event::normal(&widget, "Made", "Make", "a part")).await;
            ctx.delete(&part).await
        }
        .boxed()
    })
    .await;
    let (line, body) = echo(server.asked().await, 6);
    assert!(line.starts_with("PATCH /apis/example.com/v1/namespaces/ns/parts/p"), "{line}");
    assert_eq!((&body["kind"], &body["spec"]), (&json!("Part"), &json!({"size": 1})));
    let owner = json!({"apiVersion": "example.com/v1", "kind": "Widget", "name": "a",
        "uid": "uid-a", "controller": true});
    assert_eq!(body["metadata"]["ownerReferences"], json!([owner]));
    let asked = server.asked().await;
    assert!(asked.line.starts_with("PATCH /apis/example.com/v1/namespaces/ns/widgets/a/status"));
    asked.answer(200, &object(&widgets(), "a", 7, "red"));
    let asked = server.asked().await;
    assert_eq!(asked.body["metadata"]["finalizers"], json!(["example.com/a"]));
    asked.answer(200, &object(&widgets(), "a", 8, "red"));
    let (_, event) = echo(server.asked().await, 9);
    assert_eq!(
        event["regarding"],
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "name": "a", "namespace": "ns", "uid": "uid-a"})
    );
    let asked = server.asked().await;
    assert!(asked.line.starts_with("DELETE /apis/example.com/v1/namespaces/ns/parts/p"));
    asked.answer(200, &json!({"kind": "Status", "status": "Success"}));
    world.wait_entries(2).await;
    assert_eq!(*seen.lock().unwrap(), ["done"]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_object_whose_kind_nobody_knows_is_not_written() {
    let (world, _server, seen) = writing(|ctx, mut widget| {
        async move {
            let other = Kind::new("example.com", "v1", "Other", "others", true);
            let other = DynamicObject::new("o", &other.api_resource());
            let error = ctx.apply(&other).await.unwrap_err();
            assert_eq!(error.class(), RetryClass::Terminal);
            assert!(model::error::chain(&error).contains("example.com/v1 Other"), "{error:?}");
            widget.types = None;
            ctx.delete(&widget).await
        }
        .boxed()
    })
    .await;
    settle().await;
    let seen = seen.lock().unwrap().clone();
    let expect = "reconcile failed for good: write an object that has neither apiVersion nor kind";
    assert_eq!(seen, [expect]);
    world.stop().await;
}

fn partial(name: &str, version: u64, note: &str) -> Value {
    json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {
        "namespace": "ns", "name": name, "uid": format!("uid-{name}"), "annotations": {"note": note},
        "resourceVersion": version.to_string(), "labels": {"for": "a"}}})
}

fn is_partial(asked: &Asked) -> bool {
    asked.request.headers.get("accept").is_some_and(|accept| {
        let accept = accept.to_str().unwrap();
        accept.starts_with(METADATA)
            || accept.starts_with(&METADATA.replacen("Metadata;", "MetadataList;", 1))
    })
}

type Meta = PartialObjectMeta<Secret>;

#[tokio::test(start_paused = true)]
async fn of_a_kind_only_metadata_may_be_watched() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&seen);
    let note = |secret: &Meta| {
        secret.metadata.annotations.iter().flatten().map(|(_, v)| v.clone()).collect()
    };
    let watch = Watch::<Secret>::all().metadata_only().index("note", note).predicate(
        predicate::or(predicate::labels_changed(), |_: Option<&Meta>, new: Option<&Meta>| {
            new.is_some_and(|secret| secret.metadata.annotations.is_some())
        }),
    );
    let spec = Controller::for_kind::<ConfigMap>("maps")
        .watches_with(watch, |secret: &Meta, lookup| {
            let all = lookup.list::<Meta>(None, &Selector::all());
            assert!(lookup.get::<Meta>(Some("ns"), "s").is_some() && !all.is_empty());
            let name = secret.metadata.labels.as_ref().and_then(|labels| labels.get("for"));
            name.map(|name| (secret.metadata.namespace.clone(), name.clone())).into_iter().collect()
        })
        .reconciler(run(move |ctx, _| {
            let found = ctx.get::<Meta>(Some("ns"), "s").unwrap().unwrap();
            let version = found.metadata.resource_version.clone().unwrap();
            let noted_as = ctx.indexed::<Meta>("note", "x").unwrap().len();
            let listed = ctx.list::<Meta>(None, &"for=a".parse().unwrap()).unwrap().len();
            let whole = ctx.get::<Secret>(Some("ns"), "s").unwrap_err();
            assert!(
                model::error::chain(&whole).ends_with("read it as PartialObjectMeta"),
                "{whole:?}"
            );
            assert!(ctx.list::<Secret>(None, &Selector::all()).is_err());
            assert!(ctx.available::<Meta>().unwrap());
            noted.lock().unwrap().push(format!("s@{version} {noted_as} {listed}"));
            std::future::ready(Ok(Action::Done)).boxed()
        }));
    let (world, mut server) = holding(vec![spec], 1);
    let maps = server.asked().await;
    assert!(!is_partial(&maps));
    let _maps = maps.list(5, &[config_map("a", 1)]);
    let secrets = server.asked().await;
    assert!(is_partial(&secrets), "{secrets:?}");
    let secrets = secrets.list(5, &[partial("s", 2, "x")]);
    world.wait_entries(2).await;
    secrets.event("MODIFIED", &partial("s", 6, "y"));
    world.wait_entries(4).await;
    assert_eq!(*seen.lock().unwrap(), ["s@2 1 1", "s@6 0 1"]);
    let informers = world.status.informers();
    let metadata: Vec<_> =
        informers.iter().map(|one| (one.kind.as_str(), one.metadata_only)).collect();
    assert_eq!(metadata, [("ConfigMap", false), ("Secret", true)]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn metadata_alone_is_reconciled_and_written() {
    type Meta = PartialObjectMeta<ConfigMap>;
    // Whole objects of the kind, for another controller, are another watch.
    let whole = Controller::for_kind::<ConfigMap>("whole").reconciler(run(super::world::idle));
    let spec = Controller::for_kind::<Meta>("maps").reconciler(run(|ctx, key| {
        async move {
            let namespace = key.namespace.as_deref();
            let Some(map) = ctx.get::<Meta>(namespace, &key.name)? else { return Ok(Action::Done) };
            let mut wanted = Meta::default();
            wanted.metadata.name = map.metadata.name.clone();
            wanted.metadata.namespace = map.metadata.namespace.clone();
            wanted.metadata.labels = Some([("seen".to_owned(), "yes".to_owned())].into());
            ctx.apply(&wanted).await?;
            Ok(Action::Done)
        }
        .boxed()
    }));
    let (world, mut server) = holding(vec![spec, whole], 1);
    let mut lists = Vec::new();
    let mut partial_watch = None;
    for _ in 0..2 {
        let asked = server.asked().await;
        if is_partial(&asked) {
            partial_watch = Some(asked.list(5, &[partial("m", 2, "x")]));
        } else {
            lists.push(asked.list(5, &[config_map("m", 2)]));
        }
    }
    let (line, body) = echo(server.asked().await, 6);
    assert!(line.starts_with("PATCH /api/v1/namespaces/ns/configmaps/m"), "{line}");
    assert_eq!((&body["apiVersion"], &body["kind"]), (&json!("v1"), &json!("ConfigMap")));
    // As applied, it is not applied again.
    let mut applied = partial("m", 6, "x");
    for field in ["labels", "annotations"] {
        applied["metadata"][field] = body["metadata"][field].clone();
    }
    partial_watch.as_ref().unwrap().event("MODIFIED", &applied);
    world.wait_entries(6).await;
    settle().await;
    server.quiet(std::time::Duration::from_secs(60)).await;
    world.stop().await;
}

#[test]
#[should_panic(expected = "call metadata_only before predicate and index")]
fn what_was_said_of_whole_objects_does_not_hold_of_metadata() {
    let _ = Watch::<Secret>::all().predicate(predicate::labels_changed()).metadata_only();
}
