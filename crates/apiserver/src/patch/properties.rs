//! Laws of server-side apply and of merge patch, over random objects.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::fieldset::FieldSet;
use super::*;

/// A spec with scalars, a map, a keyed list and a list that is one value.
fn spec() -> impl Strategy<Value = Value> {
    let labels = btree_map("[a-c]", "[xyz]", 0..3);
    let containers = btree_map("[a-c]", proptest::option::of("[xyz]"), 0..3);
    (proptest::option::of(0..3), labels, containers, proptest::option::of(vec("[xyz]", 0..3)))
        .prop_map(|(replicas, labels, containers, args)| {
            let mut spec = Map::new();
            if let Some(replicas) = replicas {
                spec.insert("replicas".into(), json!(replicas));
            }
            if let Some(args) = args {
                spec.insert("args".into(), json!(args));
            }
            if !labels.is_empty() {
                spec.insert("extra".into(), json!(labels));
            }
            let containers: Vec<Value> = containers
                .into_iter()
                .map(|(name, image)| match image {
                    Some(image) => json!({"name": name, "image": image}),
                    None => json!({"name": name}),
                })
                .collect();
            if !containers.is_empty() {
                spec.insert("containers".into(), json!(containers));
            }
            Value::Object(spec)
        })
}

/// Any JSON without nulls below the top, since a null in a merge patch means removal.
fn document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![any::<bool>().prop_map(Value::from), (0..3).prop_map(Value::from)];
    let tree = leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..3).prop_map(Value::from),
            btree_map("[a-c]", inner, 0..3).prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    });
    btree_map("[a-c]", tree, 0..4).prop_map(|m| Value::Object(m.into_iter().collect()))
}

fn object(spec: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
}

fn apply(
    current: Option<&Value>,
    manager: &str,
    spec: &Value,
    force: bool,
    second: i64,
) -> Result<Value, ApiError> {
    server_side_apply(ApplyInput {
        current,
        applied: &object(spec),
        manager,
        force,
        subresource: None,
        part: Part::Whole,
        api_version: "v1",
        now: jiff::Timestamp::from_second(second).unwrap(),
        schema: &BuiltinTopology,
    })
}

fn owned(object: &Value, manager: &str) -> FieldSet {
    let managers = managed::ManagedFields::read(object);
    let entry = managers.0.into_iter().find(|e| e.manager.name == manager);
    entry.map(|e| e.fields).unwrap_or_default()
}

/// A random history of forced applies by two managers.
fn history(steps: &[(bool, Value)]) -> Option<Value> {
    let mut current = None;
    for (i, (second_manager, spec)) in steps.iter().enumerate() {
        let manager = if *second_manager { "b" } else { "a" };
        current = Some(apply(current.as_ref(), manager, spec, true, i as i64).unwrap());
    }
    current
}

fn steps() -> impl Strategy<Value = Vec<(bool, Value)>> {
    vec((any::<bool>(), spec()), 0..4)
}

proptest! {
    #[test]
    fn force_never_conflicts_and_applying_twice_changes_nothing(past in steps(), spec in spec()) {
        let current = history(&past);
        let once = apply(current.as_ref(), "a", &spec, true, 100).unwrap();
        let twice = apply(Some(&once), "a", &spec, false, 200).unwrap();
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn applied_fields_are_owned_and_hold_the_applied_values(past in steps(), spec in spec()) {
        let result = apply(history(&past).as_ref(), "a", &spec, true, 100).unwrap();
        let applied = typed::field_set(&BuiltinTopology, &json!({"spec": spec}));
        prop_assert_eq!(owned(&result, "a"), applied);
        // Merging again changes nothing.
        let merged = typed::merge(&BuiltinTopology, &result, &object(&spec));
        let left = typed::compare(&BuiltinTopology, &result, &merged);
        prop_assert!(left.is_same(), "{:?}", left);
    }

    #[test]
    fn a_conflict_is_about_a_field_of_the_other_manager(past in steps(), spec in spec()) {
        let Some(current) = history(&past) else { return Ok(()) };
        if let Err(error) = apply(Some(&current), "c", &spec, false, 100) {
            let mut theirs = owned(&current, "a");
            theirs.unite(&owned(&current, "b"));
            for cause in error.details.unwrap().causes {
                prop_assert!(theirs.paths().contains(&cause.field), "nobody owns {}", cause.field);
            }
        }
    }

    #[test]
    fn a_manager_that_applies_nothing_leaves_what_others_own(past in steps()) {
        let Some(current) = history(&past) else { return Ok(()) };
        let result = apply(Some(&current), "a", &json!({}), true, 100).unwrap();
        prop_assert_eq!(owned(&result, "b"), owned(&current, "b"));
        let held = typed::field_set(&BuiltinTopology, &json!({"spec": result["spec"]}));
        let mut lost = owned(&result, "b");
        lost.subtract(&held);
        prop_assert!(lost.is_empty(), "b owns what is gone: {:?}", lost.paths());
    }

    #[test]
    fn fields_v1_survives_a_round_trip(value in document()) {
        let set = typed::field_set(&BuiltinTopology, &value);
        prop_assert_eq!(FieldSet::from_fields_v1(&set.to_fields_v1()), set);
    }

    #[test]
    fn set_operations_are_those_of_sets(a in document(), b in document()) {
        let set = |v| typed::field_set(&BuiltinTopology, v);
        let (a, b) = (set(&a), set(&b));
        let (mut united, mut other) = (a.clone(), b.clone());
        united.unite(&b);
        other.unite(&a);
        prop_assert_eq!(&united, &other);
        let mut rest = a.clone();
        rest.subtract(&b);
        prop_assert!(rest.intersection(&b).is_empty());
        rest.unite(&a.intersection(&b));
        prop_assert_eq!(rest, a);
    }

    #[test]
    fn a_merge_patch_is_idempotent_and_its_values_win(target in document(), patch in document()) {
        let body = serde_json::to_vec(&patch).unwrap();
        let once = apply_merge(&target, &body).unwrap();
        prop_assert_eq!(&apply_merge(&once, &body).unwrap(), &once);
        for (name, value) in patch.as_object().unwrap() {
            if !value.is_object() {
                prop_assert_eq!(&once[name], value);
            }
        }
        for (name, value) in target.as_object().unwrap() {
            if patch.get(name).is_none() {
                prop_assert_eq!(&once[name], value);
            }
        }
    }
}
