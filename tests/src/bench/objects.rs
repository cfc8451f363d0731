//! The objects that peers cache and reconcile: those of the engine's own measurements, in a form
//! that an API server accepts.

#[path = "../../../crates/cache/examples/objects/mod.rs"]
mod synthetic;

use serde_json::{Value, json};

/// The metadata that the server itself writes.
const OF_THE_SERVER: [&str; 5] =
    ["creationTimestamp", "generation", "managedFields", "resourceVersion", "uid"];

/// The name of a custom resource.
pub fn name(index: usize) -> String {
    format!("bench-{index:05}")
}

/// A Pod of about 8 KB.
pub fn pod(index: usize, namespace: &str) -> Value {
    prepare(&synthetic::pod(index), namespace)
}

/// A custom resource of about 2.3 KB.
pub fn custom(index: usize, namespace: &str) -> Value {
    let mut object = prepare(&synthetic::custom(index), namespace);
    object["apiVersion"] = json!("bench.leasehold.dev/v1");
    object["kind"] = json!("Bench");
    object["metadata"]["name"] = json!(name(index));
    object
}

/// The definition of the custom resource.
pub fn definition() -> Value {
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "benches.bench.leasehold.dev"},
        "spec": {
            "group": "bench.leasehold.dev",
            "scope": "Namespaced",
            "names": {"kind": "Bench", "listKind": "BenchList", "plural": "benches", "singular": "bench"},
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {"spec": anything, "status": anything},
                }},
            }],
        },
    })
}

fn prepare(text: &str, namespace: &str) -> Value {
    let mut object: Value = serde_json::from_str(text).expect("synthetic objects are JSON");
    let metadata = object["metadata"].as_object_mut().expect("an object has metadata");
    OF_THE_SERVER.iter().for_each(|key| drop(metadata.remove(*key)));
    metadata.insert("namespace".to_owned(), json!(namespace));
    object
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn objects_have_the_documented_size_and_names_of_their_own() {
        for (object, bytes) in
            [(pod as fn(usize, &str) -> Value, 6_500..9_500), (custom, 1_800..2_800)]
        {
            let all: Vec<Value> = (0..500).map(|index| object(index, "bench")).collect();
            let names: BTreeSet<_> =
                all.iter().map(|o| o["metadata"]["name"].to_string()).collect();
            assert_eq!(names.len(), all.len());
            let mean = all.iter().map(|object| object.to_string().len()).sum::<usize>() / all.len();
            assert!(bytes.contains(&mean), "{mean} B");
        }
    }

    #[test]
    fn objects_have_no_metadata_of_the_server() {
        for object in [pod(1, "bench"), custom(1, "bench")] {
            assert!(OF_THE_SERVER.iter().all(|key| object["metadata"].get(key).is_none()));
            assert!(object["status"].is_object());
        }
    }
}
