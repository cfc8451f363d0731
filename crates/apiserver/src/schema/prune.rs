//! Removes undeclared fields and names them.
//!
//! A node with `x-kubernetes-preserve-unknown-fields` keeps unknown fields, but its declared fields
//! are still pruned. At a resource's root (the object itself, and embedded resources) `apiVersion`,
//! `kind` and `metadata` are always known.

use std::fmt::{Arguments, Write};

use serde_json::{Map, Value};

use super::Schema;

/// Fields of `ObjectMeta`: the server's own schema for metadata of every kind.
const METADATA_FIELDS: &str = "annotations creationTimestamp deletionGracePeriodSeconds \
                               deletionTimestamp finalizers generateName generation labels \
                               managedFields name namespace ownerReferences resourceVersion \
                               selfLink uid";

impl Schema {
    /// Drops every field the schema does not know from a whole object, and gives their paths in the
    /// object's order, such as `spec.schedulingConfig[0].extra`.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        let mut walk = Prune { path: String::new(), dropped: Vec::new() };
        walk.value(object, self, true);
        walk.dropped
    }
}

struct Prune {
    /// Where the walk is.
    path: String,
    dropped: Vec<String>,
}

impl Prune {
    fn value(&mut self, value: &mut Value, schema: &Schema, root: bool) {
        match value {
            Value::Object(fields) => self.object(fields, schema, root),
            Value::Array(items) => {
                let Some(schema) = schema.items.as_deref() else { return };
                for (i, item) in items.iter_mut().enumerate() {
                    let length = self.enter(format_args!("[{i}]"));
                    self.value(item, schema, schema.embedded_resource);
                    self.path.truncate(length);
                }
            }
            _ => {}
        }
    }

    fn object(&mut self, fields: &mut Map<String, Value>, schema: &Schema, root: bool) {
        let root = root || schema.embedded_resource;
        fields.retain(|name, value| {
            let dot = if self.path.is_empty() { "" } else { "." };
            let length = self.enter(format_args!("{dot}{name}"));
            let known = if root && matches!(name.as_str(), "apiVersion" | "kind") {
                true
            } else if root && name == "metadata" {
                self.metadata(value);
                true
            } else if let Some(schema) = schema.field(name) {
                self.value(value, schema, schema.embedded_resource);
                true
            } else {
                schema.keeps_unknown_fields()
            };
            if !known {
                self.dropped.push(self.path.clone());
            }
            self.path.truncate(length);
            known
        });
    }

    fn metadata(&mut self, metadata: &mut Value) {
        let Value::Object(fields) = metadata else { return };
        fields.retain(|name, _| {
            let known = METADATA_FIELDS.split(' ').any(|field| field == name);
            if !known {
                self.dropped.push(format!("{}.{name}", self.path));
            }
            known
        });
    }

    /// Goes one step down; gives the length of the path above.
    fn enter(&mut self, step: Arguments<'_>) -> usize {
        let length = self.path.len();
        // A text takes what is written to it.
        let _ = self.path.write_fmt(step);
        length
    }
}
