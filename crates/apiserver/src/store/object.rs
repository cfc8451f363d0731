//! One stored version of an object: its value, and its JSON written once for everybody.

use std::io::Write;

use bytes::Bytes;
use serde_json::Value;

/// A version of an object. Immutable; shared by readers, events and watchers.
#[derive(Debug)]
pub struct Stored {
    value: Value,
    json: Bytes,
    /// Length of `{"kind":…,"apiVersion":…,` at the start of `json`.
    types: usize,
    revision: u64,
}

impl Stored {
    /// Stamps the revision into the value and writes it down.
    pub fn new(mut value: Value, revision: u64) -> Self {
        value["metadata"]["resourceVersion"] = Value::String(revision.to_string());
        let (json, types) = encode(&value);
        Self { value, json, types, revision }
    }

    /// The object.
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// The object as JSON.
    pub fn json(&self) -> &Bytes {
        &self.json
    }

    /// The object as JSON without kind and apiVersion and without the opening brace, as the
    /// items of typed lists are written: put a `{` before it.
    pub fn json_without_types(&self) -> &[u8] {
        &self.json[self.types..]
    }

    /// Revision of the write that made this version.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// `metadata.uid`, or empty.
    pub fn uid(&self) -> &str {
        self.value["metadata"]["uid"].as_str().unwrap_or_default()
    }
}

/// Writes an object with its kind and apiVersion first, and tells where the rest starts.
fn encode(value: &Value) -> (Bytes, usize) {
    let mut out = Vec::with_capacity(1024);
    out.push(b'{');
    for key in ["kind", "apiVersion"] {
        if let Some(Value::String(text)) = value.get(key) {
            write_entry(&mut out, key, &Value::String(text.clone()));
        }
    }
    let types = out.len();
    for (key, member) in value.as_object().into_iter().flatten() {
        if key != "kind" && key != "apiVersion" {
            write_entry(&mut out, key, member);
        }
    }
    if out.last() == Some(&b',') {
        out.pop();
    }
    out.push(b'}');
    (Bytes::from(out), types)
}

fn write_entry(out: &mut Vec<u8>, key: &str, value: &Value) {
    // A `Vec` takes every write and a `Value` has only string keys, so neither step can fail.
    let written = serde_json::to_writer(&mut *out, key).is_ok()
        && out.write_all(b":").is_ok()
        && serde_json::to_writer(&mut *out, value).is_ok();
    debug_assert!(written, "a JSON value writes into memory");
    out.push(b',');
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn types_come_first_and_can_be_left_out() {
        let object = Stored::new(
            json!({"apiVersion": "v1", "data": {"a": "b"}, "kind": "ConfigMap", "metadata": {"name": "x"}}),
            7,
        );
        let text = std::str::from_utf8(object.json()).unwrap();
        assert_eq!(
            text,
            r#"{"kind":"ConfigMap","apiVersion":"v1","data":{"a":"b"},"metadata":{"name":"x","resourceVersion":"7"}}"#
        );
        assert_eq!(
            std::str::from_utf8(object.json_without_types()).unwrap(),
            r#""data":{"a":"b"},"metadata":{"name":"x","resourceVersion":"7"}}"#
        );
    }
}
