//! Encodes objects and lists in the form that the client asked for.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::negotiate::Form;
use crate::resource::{Conversion, Resource};
use crate::store::Stored;
use crate::table;

/// The metadata of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ListMeta {
    pub(crate) revision: u64,
    pub(crate) next: Option<String>,
    pub(crate) remaining: Option<usize>,
    /// The shard selector that was applied.
    pub(crate) shard: Option<String>,
}

/// Writes objects of one resource in one form.
#[derive(Debug, Clone)]
pub(crate) struct Encoder {
    pub(crate) resource: Arc<Resource>,
    pub(crate) form: Form,
    /// How much of the objects table rows include.
    pub(crate) include: table::IncludeObject,
}

impl Encoder {
    /// A stored object.
    pub(crate) fn stored(&self, object: &Stored, now: Timestamp) -> Bytes {
        if self.is_verbatim() {
            return object.json();
        }
        if self.form == Form::Metadata {
            // No conversion changes them.
            return partial(object.metadata()).into();
        }
        self.value(&self.resource.served(object.to_value()), now)
    }

    /// An object in its served version.
    pub(crate) fn value(&self, object: &Value, now: Timestamp) -> Bytes {
        match self.form {
            Form::Object => object.to_string().into(),
            Form::Metadata => partial(object["metadata"].to_string().as_bytes()).into(),
            Form::Table => {
                let mut table = self.table([object], now);
                let version = &object["metadata"]["resourceVersion"];
                table["metadata"] = json!({ "resourceVersion": version });
                table.to_string().into()
            }
        }
    }

    /// Whether stored objects and their events can be sent as they are.
    pub(crate) fn is_verbatim(&self) -> bool {
        self.form == Form::Object && self.resource.conversion == Conversion::None
    }

    /// A list of stored objects.
    pub(crate) fn list(&self, items: &[Arc<Stored>], meta: &ListMeta, now: Timestamp) -> Vec<u8> {
        match self.form {
            Form::Object => self.plain_list(items, meta),
            Form::Metadata => {
                let head = list_head("PartialObjectMetadataList", "meta.k8s.io/v1", meta);
                let items: Vec<_> = items.iter().map(|o| partial(o.metadata())).collect();
                [head.as_bytes(), items.join(&b',').as_slice(), b"]}"].concat()
            }
            Form::Table => {
                let items: Vec<Value> =
                    items.iter().map(|o| self.resource.served(o.to_value())).collect();
                let mut table = self.table(&items, now);
                table["metadata"] = meta.to_value();
                table.to_string().into_bytes()
            }
        }
    }

    fn plain_list(&self, items: &[Arc<Stored>], meta: &ListMeta) -> Vec<u8> {
        let info = &self.resource.info;
        let size: usize = items.iter().map(|o| o.json().len() + 1).sum();
        let mut out = Vec::with_capacity(size + 256);
        out.extend_from_slice(list_head(&info.list_kind, &info.api_version(), meta).as_bytes());
        for (at, object) in items.iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            match &self.resource.conversion {
                // Typed lists leave out what the list already says; custom ones repeat it.
                Conversion::None if !info.custom => {
                    out.push(b'{');
                    out.extend_from_slice(object.json_without_types());
                }
                Conversion::None => out.extend_from_slice(&object.json()),
                _ => {
                    let mut served = self.resource.served(object.to_value());
                    if let Some(fields) = served.as_object_mut().filter(|_| !info.custom) {
                        fields.remove("kind");
                        fields.remove("apiVersion");
                    }
                    out.extend_from_slice(served.to_string().as_bytes());
                }
            }
        }
        out.extend_from_slice(b"]}");
        out
    }

    fn table<'a>(&self, items: impl IntoIterator<Item = &'a Value>, now: Timestamp) -> Value {
        table::render(&self.resource.info, items, self.include, now)
    }

    /// A bookmark: only how far the watch is.
    pub(crate) fn bookmark(&self, revision: u64, initial_end: bool) -> Bytes {
        let (kind, api_version) = match self.form {
            Form::Object | Form::Table => {
                (self.resource.info.kind.clone(), self.resource.info.api_version())
            }
            Form::Metadata => ("PartialObjectMetadata".into(), "meta.k8s.io/v1".into()),
        };
        let mut object = json!({
            "kind": kind, "apiVersion": api_version,
            "metadata": {"resourceVersion": revision.to_string()},
        });
        if initial_end {
            object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        Bytes::from(object.to_string())
    }
}

/// The beginning of a list, before its items.
fn list_head(kind: &str, api_version: &str, meta: &ListMeta) -> String {
    let meta = meta.to_value();
    format!(r#"{{"kind":"{kind}","apiVersion":"{api_version}","metadata":{meta},"items":["#)
}

/// An object of which only the metadata are shown.
fn partial(metadata: &[u8]) -> Vec<u8> {
    let head = br#"{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":"#;
    [head.as_slice(), metadata, b"}"].concat()
}

impl ListMeta {
    fn to_value(&self) -> Value {
        let mut meta = json!({"resourceVersion": self.revision.to_string()});
        if let Some(next) = &self.next {
            meta["continue"] = json!(next);
        }
        if let Some(remaining) = self.remaining {
            meta["remainingItemCount"] = json!(remaining);
        }
        if let Some(shard) = &self.shard {
            meta["shardInfo"] = json!({ "selector": shard });
        }
        meta
    }
}
