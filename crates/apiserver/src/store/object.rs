//! One stored version of an object: its JSON, which is written once for all readers.
//!
//! A tree of values needs ten times the memory of its text, and most versions are never read again.
//! So only the text is kept, and parsed for each reader. It is kept as the line of the watch event
//! that announces it, which contains every other form.

use std::io::Write;
use std::ops::Range;

use bytes::Bytes;
use serde_json::Value;

use super::line::{EventKind, LINE_END, line_start};

/// A version of an object. Immutable; shared by readers, events and watchers.
#[derive(Debug)]
pub struct Stored {
    uid: Box<str>,
    line: Bytes,
    /// Where in `line` the object is.
    object: Range<usize>,
    /// Where in `line` its metadata are.
    metadata: Range<usize>,
    /// Length of `{"kind":…,"apiVersion":…,` at the start of the object.
    types: usize,
    revision: u64,
}

impl Stored {
    /// Sets the revision in the value, and writes it as an event of `kind`.
    pub fn new(mut value: Value, revision: u64, kind: EventKind) -> Self {
        value["metadata"]["resourceVersion"] = Value::String(revision.to_string());
        let uid = value["metadata"]["uid"].as_str().unwrap_or_default().into();
        let mut line = Vec::with_capacity(1024);
        line_start(&mut line, kind.as_str());
        let start = line.len();
        let (types, metadata) = write_object(&mut line, &value);
        let object = start..line.len();
        line.extend_from_slice(LINE_END);
        Self { uid, line: line.into_boxed_slice().into(), object, metadata, types, revision }
    }

    /// The parsed object; takes some microseconds for each KiB.
    pub fn to_value(&self) -> Value {
        serde_json::from_slice(&self.json()).expect("it was written from a value")
    }

    /// The object as JSON.
    pub fn json(&self) -> Bytes {
        self.line.slice(self.object.clone())
    }

    /// Its metadata as JSON.
    pub fn metadata(&self) -> &[u8] {
        &self.line[self.metadata.clone()]
    }

    /// The line of a watch that announces this version.
    pub fn line(&self) -> &Bytes {
        &self.line
    }

    /// The object as JSON without kind, apiVersion and the opening brace, for the items of typed
    /// lists: put a `{` before it.
    pub fn json_without_types(&self) -> &[u8] {
        &self.line[self.object.start + self.types..self.object.end]
    }

    /// Revision of the write that made this version.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// `metadata.uid`, or empty.
    pub fn uid(&self) -> &str {
        &self.uid
    }
}

/// Writes an object with its kind and apiVersion first. Gives the length of that beginning, and
/// where the metadata are.
fn write_object(out: &mut Vec<u8>, value: &Value) -> (usize, Range<usize>) {
    let start = out.len();
    out.push(b'{');
    for key in ["kind", "apiVersion"] {
        if let Some(text @ Value::String(_)) = value.get(key) {
            write_entry(out, key, text);
        }
    }
    let types = out.len() - start;
    let mut metadata = 0..0;
    for (key, member) in value.as_object().into_iter().flatten() {
        let at = out.len();
        if key != "kind" && key != "apiVersion" {
            write_entry(out, key, member);
        }
        if key == "metadata" {
            // Between its name and the comma.
            metadata = at + r#""metadata":"#.len()..out.len() - 1;
        }
    }
    if out.last() == Some(&b',') {
        out.pop();
    }
    out.push(b'}');
    (types, metadata)
}

fn write_entry(out: &mut Vec<u8>, key: &str, value: &Value) {
    // A `Vec` accepts every write and a `Value` has only string keys, so neither step can fail.
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
            EventKind::Added,
        );
        let json = object.json();
        let text = std::str::from_utf8(&json).unwrap();
        assert_eq!(
            text,
            r#"{"kind":"ConfigMap","apiVersion":"v1","data":{"a":"b"},"metadata":{"name":"x","resourceVersion":"7"}}"#
        );
        assert_eq!(
            std::str::from_utf8(object.json_without_types()).unwrap(),
            r#""data":{"a":"b"},"metadata":{"name":"x","resourceVersion":"7"}}"#
        );
        assert_eq!(
            std::str::from_utf8(object.metadata()).unwrap(),
            r#"{"name":"x","resourceVersion":"7"}"#
        );
    }

    #[test]
    fn the_line_announces_the_object() {
        let object = Stored::new(json!({"metadata": {"name": "x"}}), 7, EventKind::Modified);
        let text = std::str::from_utf8(object.line()).unwrap();
        assert_eq!(
            text,
            "{\"type\":\"MODIFIED\",\"object\":{\"metadata\":{\"name\":\"x\",\"resourceVersion\":\"7\"}}}\n"
        );
        assert_eq!(object.to_value()["metadata"]["name"], "x");
    }
}
