//! Custom resources.

use serde_json::{Value, json};

use crate::world::{World, version};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

fn definition() -> Value {
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "required": ["size"], "properties": {
            "size": {"type": "integer", "minimum": 0},
            "color": {"type": "string", "default": "red"}}},
        "status": {"type": "object", "properties": {"ready": {"type": "boolean"}}}}});
    let version = |name: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage,
            "schema": {"openAPIV3Schema": schema},
            "subresources": {"status": {}},
            "selectableFields": [{"jsonPath": ".spec.color"}],
            "additionalPrinterColumns": [{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]})
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "shortNames": ["wd"]},
            "versions": [version("v1", true), version("v1beta1", false)]},
    })
}

fn widget(name: &str, size: i64) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": {"size": size}})
}

async fn world() -> World {
    let world = World::new().await;
    world.post(DEFINITIONS, definition()).await.expect(201);
    world
}

#[tokio::test]
async fn a_definition_is_served_at_once() {
    let world = world().await;
    let stored = world.get(&format!("{DEFINITIONS}/widgets.example.com")).await.expect(200);
    assert_eq!(stored["status"]["acceptedNames"]["listKind"], "WidgetList");
    let resources = world.get("/apis/example.com/v1").await.expect(200);
    assert_eq!(resources["resources"][0]["kind"], "Widget");
    assert_eq!(resources["resources"][1]["name"], "widgets/status");
    let group = world.get("/apis/example.com").await.expect(200);
    assert_eq!(group["preferredVersion"]["version"], "v1");
    let mut other = definition();
    other["metadata"]["name"] = json!("gadgets.example.com");
    other["spec"]["names"] = json!({"kind": "Gadget", "plural": "gadgets", "shortNames": ["wd"]});
    world.post(DEFINITIONS, other).await.expect(201);
    assert_eq!(
        world.get("/apis/example.com/v1/gadgets").await.code,
        404,
        "its short name is taken"
    );
}

#[tokio::test]
async fn objects_follow_their_schema() {
    let world = world().await;
    let mut sloppy = widget("a", 1);
    sloppy["spec"]["unknown"] = json!(1);
    let strict = world.post(&format!("{WIDGETS}?fieldValidation=Strict"), sloppy.clone()).await;
    assert_eq!(
        strict.status(),
        (400, "BadRequest".into(), "Widget in version \"v1\" cannot be handled as a Widget: strict decoding error: unknown field \"spec.unknown\"".into())
    );
    let created = world.post(WIDGETS, sloppy).await;
    assert_eq!(created.headers["warning"], "299 - \"unknown field \\\"spec.unknown\\\"\"");
    let created = created.expect(201);
    assert_eq!(created["spec"], json!({"size": 1, "color": "red"}));
    let wrong = world.post(WIDGETS, widget("b", -1)).await;
    assert_eq!(
        wrong.status().2,
        "Widget.example.com \"b\" is invalid: spec.size: Invalid value: -1: spec.size in body should be greater than or equal to 0"
    );
    let strategic = "application/strategic-merge-patch+json";
    assert_eq!(world.patch(&format!("{WIDGETS}/a"), strategic, json!({})).await.status().0, 415);
}

#[tokio::test]
async fn status_and_spec_are_written_separately() {
    let world = world().await;
    let path = format!("{WIDGETS}/a");
    let mut object = widget("a", 1);
    object["status"] = json!({"ready": true});
    object["metadata"]["generation"] = json!(9);
    let created = world.post(WIDGETS, object).await.expect(201);
    assert!(created.get("status").is_none());
    assert_eq!(created["metadata"]["generation"], 1);
    let both = json!({"spec": {"size": 2}, "status": {"ready": true}});
    let main = world.merge(&path, both.clone()).await.expect(200);
    assert_eq!((main.get("status"), &main["metadata"]["generation"]), (None, &json!(2)));
    let status = world
        .merge(&format!("{path}/status"), json!({"spec": {"size": 7}, "status": {"ready": true}}))
        .await
        .expect(200);
    assert_eq!((&status["spec"]["size"], &status["status"]["ready"]), (&json!(2), &json!(true)));
    assert_eq!(status["metadata"]["generation"], 2);
    let blind = world.put(&path, widget("a", 3)).await;
    assert_eq!(blind.status().0, 422);
}

#[tokio::test]
async fn versions_are_two_views_of_one_object() {
    let world = world().await;
    world.post(WIDGETS, widget("a", 1)).await.expect(201);
    let beta = "/apis/example.com/v1beta1/namespaces/default/widgets";
    let read = world.get(&format!("{beta}/a")).await.expect(200);
    assert_eq!(read["apiVersion"], "example.com/v1beta1");
    let list = world.get(beta).await.expect(200);
    assert_eq!(list["items"][0]["apiVersion"], "example.com/v1beta1");
    world.merge(&format!("{beta}/a"), json!({"spec": {"size": 5}})).await.expect(200);
    let read = world.get(&format!("{WIDGETS}/a")).await.expect(200);
    assert_eq!((&read["apiVersion"], &read["spec"]["size"]), (&json!("example.com/v1"), &json!(5)));
}

#[tokio::test]
async fn declared_fields_and_columns_work() {
    let world = world().await;
    world.post(WIDGETS, widget("a", 1)).await.expect(201);
    let red = world.get(&format!("{WIDGETS}?fieldSelector=spec.color%3Dred")).await.expect(200);
    assert_eq!(red["items"].as_array().unwrap().len(), 1);
    assert_eq!(world.get(&format!("{WIDGETS}?fieldSelector=spec.size%3D1")).await.status().0, 400);
    let table =
        world.get_as(WIDGETS, "application/json;as=Table;v=v1;g=meta.k8s.io").await.expect(200);
    assert_eq!(table["columnDefinitions"][1]["name"], "Size");
}

#[tokio::test]
async fn the_objects_of_a_deleted_definition_are_deleted() {
    let world = world().await;
    let created = world.post(WIDGETS, widget("a", 1)).await.expect(201);
    let mut events =
        world.watch(&format!("{WIDGETS}?watch=1&resourceVersion={}", version(&created))).await;
    world.delete(&format!("{DEFINITIONS}/widgets.example.com"), json!({})).await.expect(200);
    assert_eq!(events.brief().await.0, "DELETED");
    assert!(events.next().await.is_none());
    assert_eq!(world.get(WIDGETS).await.code, 404);
    world.post(DEFINITIONS, definition()).await.expect(201);
    let list = world.get(WIDGETS).await.expect(200);
    assert_eq!(list["items"], json!([]));
}

#[tokio::test]
async fn a_broken_definition_is_refused() {
    let world = World::new().await;
    let mut wrong = definition();
    wrong["metadata"]["name"] = json!("gadgets.example.com");
    let refused = world.post(DEFINITIONS, wrong).await;
    assert_eq!(
        refused.status().2,
        "CustomResourceDefinition.apiextensions.k8s.io \"gadgets.example.com\" is invalid: metadata.name: \
         Invalid value: \"gadgets.example.com\": must be spec.names.plural+\".\"+spec.group"
    );
    let mut untyped = definition();
    for version in untyped["spec"]["versions"].as_array_mut().unwrap() {
        let schema = &mut version["schema"]["openAPIV3Schema"];
        schema["properties"]["spec"]["properties"]["any"] = json!({});
    }
    assert_eq!(
        world.post(DEFINITIONS, untyped).await.status().2,
        "CustomResourceDefinition.apiextensions.k8s.io \"widgets.example.com\" is invalid: \
         spec.validation.openAPIV3Schema.properties[spec].properties[any].type: Required value: must \
         not be empty for specified object fields"
    );
}
