//! Whatever a server sends as an object: it is read or refused without a panic, the pass over its text finds what serde
//! finds, and cuts out what it should and nothing else.

use std::sync::Arc;

use serde_json::Value;

use crate::{
    DecodedCache, Entry, PartialFields, StoreOptions, StoreWriter, Transform, partial_metadata,
};

/// The members of this name go, wherever they are but in the metadata.
const DROPPED: &str = "secret";

fn drops(path: &[String]) -> bool {
    path[0] != "metadata" && path.last().is_some_and(|last| last == DROPPED)
}

/// What a transform leaves of a value: it does not look into arrays in arrays.
fn without(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.remove(DROPPED);
            members.values_mut().for_each(without);
        }
        Value::Array(elements) => {
            elements.iter_mut().filter(|element| element.is_object()).for_each(without);
        }
        _ => {}
    }
}

fn header_is_of(entry: &Entry, object: &Value) {
    let (header, metadata) = (&entry.header, &object["metadata"]);
    let text = |key: &str| metadata[key].as_str().unwrap_or_default().to_owned();
    assert_eq!(*header.key.name, *text("name"));
    assert_eq!(header.key.namespace.as_deref().unwrap_or_default(), text("namespace"));
    assert_eq!(header.uid.to_string(), text("uid"));
    assert_eq!(header.resource_version.to_string(), text("resourceVersion"));
    assert_eq!(header.generation, metadata["generation"].as_i64().unwrap_or_default());
    assert_eq!(header.deleting, !metadata["deletionTimestamp"].is_null());
    let labels = metadata["labels"].as_object().cloned().unwrap_or_default();
    let labels: Vec<_> =
        labels.iter().map(|(key, value)| (key.as_str(), value.as_str().unwrap())).collect();
    let mut found: Vec<_> = header.labels.iter().collect();
    found.sort_unstable();
    assert_eq!(found, labels);
}

fn object(input: &[u8]) {
    let Ok(raw) = std::str::from_utf8(input) else { return };
    let partial = partial_metadata(raw, PartialFields { namespace: true, owner: true });
    for is_transformed in [false, true] {
        let options = match is_transformed {
            true => StoreOptions::default().transform(Transform::new(drops)),
            false => StoreOptions::default(),
        };
        let mut writer = StoreWriter::new(options, Arc::new(DecodedCache::new(0)));
        let Ok(entry) = writer.parse(raw) else { continue };
        assert!(entry.json_len() <= raw.len());
        // What is no JSON may pass, and fails when it is decoded.
        let Ok(mut object) = serde_json::from_str::<Value>(raw) else { continue };
        header_is_of(&entry, &object);
        let partial = partial.as_ref().expect("a part of what the whole pass finds");
        let header = &entry.header;
        assert_eq!(*partial.name, *header.key.name);
        assert_eq!(partial.namespace.as_deref(), header.key.namespace.as_deref());
        assert_eq!(*partial.uid, *header.uid.to_string());
        assert_eq!(*partial.resource_version, *header.resource_version.to_string());
        let owner = header.owner.as_ref().map(|owner| owner.uid.to_string());
        assert_eq!(partial.owner.as_deref(), owner.as_deref());
        object["metadata"].as_object_mut().unwrap().remove("managedFields");
        if is_transformed {
            let members = object.as_object_mut().unwrap();
            members.remove(DROPPED);
            let others = members
                .iter_mut()
                .filter(|(key, _)| !["metadata", "apiVersion", "kind"].contains(&key.as_str()));
            others.for_each(|(_, value)| without(value));
        }
        assert_eq!(entry.decode_dynamic::<Value>().unwrap(), object);
        writer.upsert(&entry);
        assert_eq!(writer.parse(raw).unwrap().header.uid, header.uid);
    }
}

#[test]
fn objects() {
    ::fuzz::fuzz!("objects", object);
}
