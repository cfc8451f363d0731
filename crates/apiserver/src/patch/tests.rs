//! Cases with the answers of a real server.

use serde_json::{Value, json};

use super::*;
use crate::kinds::{self, KindInfo};
use crate::schema::Schema;

fn now(second: i64) -> jiff::Timestamp {
    jiff::Timestamp::from_second(1_700_000_000 + second).unwrap()
}

fn deployments() -> KindInfo {
    kinds::builtin().into_iter().find(|k| k.plural == "deployments").unwrap()
}

/// One object and the managers that write it.
struct Bench {
    schema: Box<dyn SchemaLookup>,
    object: Option<Value>,
    second: i64,
}

impl Bench {
    fn builtin() -> Self {
        Self { schema: Box::new(BuiltinTopology), object: None, second: 0 }
    }

    fn custom(schema: Value) -> Self {
        Self { schema: Box::new(Schema::parse(&schema).unwrap()), object: None, second: 0 }
    }

    fn apply_with(&mut self, manager: &str, applied: Value, force: bool) -> Result<(), ApiError> {
        self.second += 1;
        self.object = Some(server_side_apply(ApplyInput {
            current: self.object.as_ref(),
            applied: &applied,
            manager,
            force,
            subresource: None,
            part: Part::AllButStatus,
            api_version: "apps/v1",
            now: now(self.second),
            schema: &*self.schema,
        })?);
        Ok(())
    }

    fn apply(&mut self, manager: &str, spec: Value) -> Result<(), ApiError> {
        self.apply_with(manager, deployment(spec), false)
    }

    fn update(
        &mut self,
        manager: &str,
        subresource: Option<&str>,
        change: impl FnOnce(&mut Value),
    ) {
        self.second += 1;
        let mut object = self.object.clone().unwrap_or_else(|| deployment(json!({})));
        change(&mut object);
        let input = TrackInput {
            current: self.object.as_ref(),
            custom: false,
            manager,
            subresource,
            part: Part::of_request(&deployments(), subresource),
            api_version: "apps/v1",
            now: now(self.second),
            schema: &*self.schema,
        };
        track_update(input, &mut object);
        self.object = Some(object);
    }

    fn spec(&self) -> &Value {
        &self.object.as_ref().unwrap()["spec"]
    }

    /// `fieldsV1` of a manager, or null.
    fn owned(&self, manager: &str) -> Value {
        let entries =
            self.object.as_ref().unwrap()["metadata"]["managedFields"].as_array().cloned();
        let mut entries = entries.unwrap_or_default().into_iter();
        entries.find(|e| e["manager"] == manager).map_or(Value::Null, |e| e["fieldsV1"].clone())
    }
}

fn deployment(spec: Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "d", "namespace": "n"},
        "spec": spec,
    })
}

#[test]
fn a_json_patch_applies_whole_or_not_at_all() {
    let current = json!({"a": 1, "list": [1]});
    let patched = apply_json(
        &current,
        br#"[{"op":"test","path":"/a","value":1},{"op":"add","path":"/list/-","value":2}]"#,
    );
    assert_eq!(patched.unwrap(), json!({"a": 1, "list": [1, 2]}));
    let failed = apply_json(&current, br#"[{"op":"test","path":"/a","value":2}]"#).unwrap_err();
    assert_eq!(
        failed.to_status(),
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "the server rejected our request due to an error in our request",
            "reason": "Invalid", "details": {}, "code": 422,
        })
    );
    assert_eq!(apply_json(&current, b"{}").unwrap_err().code, 400);
    assert_eq!(apply_json(&current, br#"[{"op":"jump"}]"#).unwrap_err().code, 400);
}

#[test]
fn a_json_patch_has_a_limit() {
    let patch = |n: usize| {
        let op = json!({"op": "test", "path": "/a", "value": 1});
        serde_json::to_vec(&vec![op; n]).unwrap()
    };
    assert!(apply_json(&json!({"a": 1}), &patch(MAX_JSON_PATCH_OPERATIONS)).is_ok());
    let error = apply_json(&json!({"a": 1}), &patch(MAX_JSON_PATCH_OPERATIONS + 1)).unwrap_err();
    assert_eq!(error.code, 413);
    assert_eq!(
        error.message,
        "Request entity too large: The allowed maximum operations in a JSON patch is 10000, got 10001"
    );
}

#[test]
fn a_merge_patch_removes_by_null_and_replaces_lists() {
    let current = json!({"a": {"b": 1, "c": 2}, "l": [1, 2]});
    let patched = apply_merge(&current, br#"{"a":{"b":null,"d":3},"l":[3]}"#).unwrap();
    assert_eq!(patched, json!({"a": {"c": 2, "d": 3}, "l": [3]}));
    assert_eq!(apply_merge(&current, b"[1]").unwrap_err().code, 400);
    assert_eq!(apply_merge(&current, b"{").unwrap_err().code, 400);
}

#[test]
fn a_strategic_merge_knows_its_lists() {
    let current = deployment(json!({
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
        "template": {"spec": {
            "containers": [{"name": "a", "image": "a:1", "env": [{"name": "X", "value": "1"}]}, {"name": "b"}],
            "tolerations": [{"key": "old"}],
        }},
    }));
    let cases = [
        (
            json!({"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}]}]}),
            json!([
                // A real server puts new items before those whose place it does not know.
                {"name": "a", "image": "a:1", "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "1"}]},
                {"name": "b"},
            ]),
        ),
        (json!({"containers": [{"name": "a", "$patch": "delete"}]}), json!([{"name": "b"}])),
        (json!({"containers": [{"$patch": "replace"}, {"name": "c"}]}), json!([{"name": "c"}])),
        (
            json!({
                "$setElementOrder/containers": [{"name": "b"}, {"name": "c"}, {"name": "a"}],
                "containers": [{"name": "c"}],
            }),
            json!([
                {"name": "b"}, {"name": "c"},
                {"name": "a", "image": "a:1", "env": [{"name": "X", "value": "1"}]},
            ]),
        ),
    ];
    for (pod_patch, containers) in cases {
        let patch = json!({"spec": {"template": {"spec": pod_patch}}});
        let body = serde_json::to_vec(&patch).unwrap();
        let patched = apply_strategic(&deployments(), &current, &body).unwrap();
        assert_eq!(patched["spec"]["template"]["spec"]["containers"], containers, "{pod_patch}");
        assert_eq!(patched["spec"]["template"]["spec"]["tolerations"], json!([{"key": "old"}]));
    }
}

#[test]
fn strategic_directives_reach_maps_and_primitive_lists() {
    let current = json!({
        "metadata": {"finalizers": ["a", "b"], "labels": {"x": "1"}},
        "spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}},
    });
    let patch = |body: Value| {
        apply_strategic(&deployments(), &current, &serde_json::to_vec(&body).unwrap())
    };
    let patched = patch(json!({
        "metadata": {
            "finalizers": ["c"], "$deleteFromPrimitiveList/finalizers": ["a"],
            "labels": {"$patch": "replace", "y": "2"},
        },
        "spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}},
    }));
    assert_eq!(
        patched.unwrap(),
        json!({
            "metadata": {"finalizers": ["c", "b"], "labels": {"y": "2"}},
            "spec": {"strategy": {"type": "Recreate"}},
        })
    );
    assert_eq!(patch(json!({"spec": {"$patch": "explode"}})).unwrap_err().code, 400);
    let custom = KindInfo { custom: true, ..deployments() };
    assert_eq!(apply_strategic(&custom, &current, b"{}").unwrap_err().code, 415);
}

#[test]
fn an_apply_creates_and_owns_leaves_and_items() {
    let mut bench = Bench::builtin();
    bench
        .apply(
            "me",
            json!({
                "replicas": 2,
                "selector": {"matchLabels": {"app": "d"}},
                "template": {"spec": {"containers": [
                    {"name": "c", "image": "i:1", "ports": [{"containerPort": 80}]},
                ]}},
            }),
        )
        .unwrap();
    assert_eq!(
        bench.owned("me"),
        json!({"f:spec": {
            "f:replicas": {},
            "f:selector": {},
            "f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {
                ".": {}, "f:name": {}, "f:image": {},
                "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {
                    ".": {}, "f:containerPort": {},
                }},
            }}}},
        }})
    );
}

#[test]
fn a_conflict_names_the_manager_and_the_field() {
    let mut bench = Bench::builtin();
    bench.update("kubectl-client-side-apply", None, |d| d["spec"] = json!({"replicas": 1}));
    let before = bench.object.clone();
    let error = bench.apply("me", json!({"replicas": 3})).unwrap_err();
    assert_eq!(error.code, 409);
    assert_eq!(
        error.message,
        "Apply failed with 1 conflict: conflict with \"kubectl-client-side-apply\" using apps/v1: \
         .spec.replicas"
    );
    assert_eq!(
        error.to_status()["details"]["causes"],
        json!([{
            "reason": "FieldManagerConflict",
            "message": "conflict with \"kubectl-client-side-apply\" using apps/v1",
            "field": ".spec.replicas",
        }])
    );
    assert_eq!(bench.object, before);

    bench.apply_with("me", deployment(json!({"replicas": 3})), true).unwrap();
    assert_eq!(bench.spec()["replicas"], 3);
    assert_eq!(bench.owned("kubectl-client-side-apply"), Value::Null);
    assert_eq!(bench.owned("me"), json!({"f:spec": {"f:replicas": {}}}));
}

#[test]
fn several_conflicts_are_listed_per_manager() {
    let mut bench = Bench::builtin();
    bench.apply("a", json!({"replicas": 1})).unwrap();
    bench.update("b", None, |d| {
        d["spec"]["template"] = json!({"spec": {"containers": [{"name": "c", "image": "i:1"}]}});
    });
    let theirs = json!({
        "replicas": 2, "template": {"spec": {"containers": [{"name": "c", "image": "i:2"}]}},
    });
    let error = bench.apply("me", theirs).unwrap_err();
    assert_eq!(
        error.message,
        "Apply failed with 2 conflicts: conflicts with \"a\":\n- .spec.replicas\n\
         conflicts with \"b\" using apps/v1:\n- .spec.template.spec.containers[name=\"c\"].image"
    );
}

#[test]
fn the_same_value_is_shared_and_survives_one_owner() {
    let mut bench = Bench::builtin();
    bench.apply("a", json!({"replicas": 1, "paused": true})).unwrap();
    bench.apply("b", json!({"replicas": 1})).unwrap();
    bench.apply("a", json!({"paused": true})).unwrap();
    assert_eq!(*bench.spec(), json!({"replicas": 1, "paused": true}));
    bench.apply("b", json!({})).unwrap();
    assert_eq!(*bench.spec(), json!({"paused": true}));
}

#[test]
fn what_an_applier_drops_is_removed_unless_someone_else_owns_it() {
    let mut bench = Bench::builtin();
    let containers = |list: Value| json!({"template": {"spec": {"containers": list}}});
    bench.apply("a", containers(json!([{"name": "x", "image": "i"}, {"name": "y"}]))).unwrap();
    bench.update("defaults", None, |d| {
        d["spec"]["template"]["spec"]["containers"][1]["tty"] = json!(true);
    });
    bench.apply("b", containers(json!([{"name": "x", "stdin": true}]))).unwrap();
    bench.apply("a", containers(json!([{"name": "z"}]))).unwrap();
    assert_eq!(
        bench.spec()["template"]["spec"]["containers"],
        // x stays for b without a's image; y stays, bare, for the field somebody else owns.
        json!([{"name": "x", "stdin": true}, {"name": "y", "tty": true}, {"name": "z"}])
    );
}

#[test]
fn a_dropped_item_takes_unowned_fields_along() {
    let mut bench = Bench::builtin();
    let spec = json!({"template": {"spec": {"volumes": [{"name": "v"}, {"name": "w"}]}}});
    bench.apply("a", spec).unwrap();
    let object = bench.object.as_mut().unwrap();
    object["spec"]["template"]["spec"]["volumes"][0]["emptyDir"] = json!({});
    bench.apply("a", json!({"template": {"spec": {"volumes": [{"name": "w"}]}}})).unwrap();
    assert_eq!(bench.spec()["template"]["spec"]["volumes"], json!([{"name": "w"}]));
}

#[test]
fn live_items_keep_their_place_among_applied_ones() {
    let mut bench = Bench::builtin();
    let env = |names: &[&str]| -> Value {
        let env: Vec<Value> = names.iter().map(|n| json!({"name": n, "value": "1"})).collect();
        json!({"template": {"spec": {"containers": [{"name": "c", "env": env}]}}})
    };
    bench.apply("a", env(&["L1", "S1", "L2", "S2", "L3"])).unwrap();
    bench.apply("b", env(&["S2", "N", "S1"])).unwrap();
    let found = &bench.spec()["template"]["spec"]["containers"][0]["env"];
    let names: Vec<&str> =
        found.as_array().unwrap().iter().map(|e| e["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["L1", "S2", "N", "S1", "L2", "L3"]);
}

#[test]
fn items_that_cannot_be_identified_are_refused() {
    let mut bench = Bench::builtin();
    let pod = |list: Value| json!({"template": {"spec": {"containers": list}}});
    let error = bench.apply("a", pod(json!([{"name": "c"}, {"name": "c"}]))).unwrap_err();
    assert_eq!(
        error.message,
        "failed to create typed patch object (n/d; apps/v1, Kind=Deployment): \
         .spec.template.spec.containers: duplicate entries for key [name=\"c\"]"
    );
    let error = bench.apply("a", pod(json!([{"image": "c"}]))).unwrap_err();
    assert!(error.message.ends_with(
        "associative list with keys has an element that omits key field \"name\" \
         (and doesn't have default value)"
    ));
}

#[test]
fn an_apply_with_managed_fields_or_another_version_is_refused() {
    let mut bench = Bench::builtin();
    let mut applied = deployment(json!({}));
    applied["metadata"]["managedFields"] = json!([{"manager": "x"}]);
    let error = bench.apply_with("a", applied, false).unwrap_err();
    assert_eq!((error.code, error.message.as_str()), (400, "metadata.managedFields must be nil"));
    let mut applied = deployment(json!({}));
    applied["apiVersion"] = json!("apps/v2");
    assert_eq!(bench.apply_with("a", applied, false).unwrap_err().code, 400);
}

#[test]
fn status_is_kept_apart() {
    let mut bench = Bench::builtin();
    bench.apply("me", json!({"replicas": 1})).unwrap();
    bench.update("controller", Some("status"), |d| d["status"] = json!({"readyReplicas": 1}));
    let books = &bench.object.as_ref().unwrap()["metadata"]["managedFields"];
    assert_eq!(books[1]["subresource"], "status");
    assert_eq!(books[1]["fieldsV1"], json!({"f:status": {"f:readyReplicas": {}}}));
    bench.update("marker", Some("status"), |d| {
        d["metadata"]["annotations"] = json!({"a": "1"});
        d["metadata"]["labels"] = json!({"no": "status of a Deployment has labels"});
    });
    let annotations = json!({"f:metadata": {"f:annotations": {".": {}, "f:a": {}}}});
    assert_eq!(bench.owned("marker"), annotations);
    let mut applied = deployment(json!({"replicas": 1}));
    applied["status"] = json!({"readyReplicas": 9});
    bench.apply_with("me", applied, false).unwrap();
    assert_eq!(bench.object.as_ref().unwrap()["status"], json!({"readyReplicas": 1}));
}

#[test]
fn an_update_takes_what_it_changes_and_nothing_else() {
    let mut bench = Bench::builtin();
    bench.apply("me", json!({"replicas": 1, "paused": true})).unwrap();
    bench.update("scaler", None, |d| d["spec"]["replicas"] = json!(5));
    assert_eq!(bench.owned("me"), json!({"f:spec": {"f:paused": {}}}));
    assert_eq!(bench.owned("scaler"), json!({"f:spec": {"f:replicas": {}}}));
    let before = bench.object.clone();
    bench.update("other", None, |_| {});
    assert_eq!(bench.object, before, "a write without a change keeps the books");
    bench.update("other", None, |d| drop(d["spec"].as_object_mut().unwrap().remove("paused")));
    assert_eq!(bench.owned("me"), Value::Null);
}

#[test]
fn a_create_owns_new_maps_but_not_those_of_every_object() {
    let mut bench = Bench::builtin();
    bench.update("kubectl-create", None, |d| {
        d["metadata"]["labels"] = json!({"app": "d"});
        d["spec"] = json!({"replicas": 1, "template": {"metadata": {"labels": {"app": "d"}}}});
    });
    assert_eq!(
        bench.owned("kubectl-create"),
        json!({
            "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
            "f:spec": {
                "f:replicas": {},
                "f:template": {"f:metadata": {"f:labels": {".": {}, "f:app": {}}}},
            },
        })
    );
}

#[test]
fn a_client_can_hand_over_fields_and_clear_ownership() {
    let mut bench = Bench::builtin();
    bench.apply("me", json!({"replicas": 1})).unwrap();
    let books = |manager: &str, operation: &str| {
        json!([{"manager": manager, "operation": operation, "apiVersion": "apps/v1",
            "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}}}}])
    };
    for (managed_fields, owner) in
        [(books("heir", "Apply"), "heir"), (json!([]), "heir"), (books("thief", "Steal"), "heir")]
    {
        bench.update("x", None, |d| d["metadata"]["managedFields"] = managed_fields);
        assert_eq!(bench.owned(owner), json!({"f:spec": {"f:replicas": {}}}));
        assert_eq!(bench.owned("me"), Value::Null);
    }
    bench.update("x", Some("status"), |d| d["metadata"]["managedFields"] = books("y", "Apply"));
    assert_eq!(bench.owned("y"), Value::Null, "a subresource does not reach the books");
    bench.update("x", None, |d| d["metadata"]["managedFields"] = json!([{}]));
    assert_eq!(bench.object.as_ref().unwrap()["metadata"].get("managedFields"), None);
    let error = bench.apply("you", json!({"replicas": 2})).unwrap_err();
    assert!(error.message.contains("\"before-first-apply\" using apps/v1: .spec.replicas"));
}

#[test]
fn update_managers_are_bounded() {
    let mut bench = Bench::builtin();
    for i in 0..20 {
        bench.update(&format!("m{i}"), None, |d| d["spec"][format!("f{i}")] = json!(i));
    }
    let books = bench.object.as_ref().unwrap()["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(books.len(), managed::MAX_UPDATE_MANAGERS);
    let ancient = bench.owned("ancient-changes");
    assert!(ancient["f:spec"].get("f:f0").is_some() && ancient["f:spec"].get("f:f19").is_none());
    assert_ne!(bench.owned("m19"), Value::Null);
}

#[test]
fn a_custom_schema_decides_how_its_lists_merge() {
    let list = |kind: &str, keys: Value| {
        json!({
            "type": "array", "x-kubernetes-list-type": kind, "x-kubernetes-list-map-keys": keys,
            "items": {"type": "object", "properties": {"id": {"type": "string"}}},
        })
    };
    let mut bench = Bench::custom(json!({"type": "object", "properties": {"spec": {
        "type": "object",
        "properties": {
            "map": list("map", json!(["id"])),
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "atomic": list("atomic", json!([])),
            "one": {"type": "object", "x-kubernetes-map-type": "atomic"},
        },
    }}}));
    bench.apply("a", json!({"map": [{"id": "1"}], "set": ["x"], "one": {"k": 1}})).unwrap();
    bench.apply("b", json!({"map": [{"id": "2"}], "set": ["y"], "atomic": [{"id": "1"}]})).unwrap();
    assert_eq!(bench.spec()["map"], json!([{"id": "1"}, {"id": "2"}]));
    assert_eq!(bench.spec()["set"], json!(["x", "y"]));
    assert_eq!(
        bench.owned("a"),
        json!({"f:spec": {
            "f:map": {"k:{\"id\":\"1\"}": {".": {}, "f:id": {}}},
            "f:set": {"v:\"x\"": {}},
            "f:one": {},
        }})
    );
    let error = bench.apply("c", json!({"atomic": [{"id": "2"}]})).unwrap_err();
    assert!(error.message.ends_with("conflict with \"b\": .spec.atomic"), "{}", error.message);
    bench.apply("a", json!({})).unwrap();
    assert_eq!(bench.spec().get("one"), None);
    assert_eq!(bench.spec()["set"], json!(["y"]));
}
