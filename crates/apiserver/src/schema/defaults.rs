//! Fills in absent fields, and `null`s that mean absence.

use serde_json::{Map, Value};

use super::{Additional, Schema};

impl Schema {
    /// Fills in defaults below every object that is present.
    ///
    /// A `null` in a field that is not nullable means absence: it is replaced by the default, or
    /// removed where there is none. Items of lists keep their `null`s, for validation to refuse.
    pub fn apply_defaults(&self, object: &mut Value) {
        match object {
            Value::Object(fields) => self.default_fields(fields),
            Value::Array(items) => {
                if let Some(schema) = self.items.as_deref() {
                    items.iter_mut().for_each(|item| schema.apply_defaults(item));
                }
            }
            _ => {}
        }
    }

    fn default_fields(&self, fields: &mut Map<String, Value>) {
        fields.retain(|name, value| {
            !value.is_null() || self.field(name).is_none_or(|schema| schema.nullable)
        });
        for (name, schema) in &self.properties {
            if let (Some(default), false) = (&schema.default, fields.contains_key(name)) {
                fields.insert(name.clone(), default.clone());
            }
        }
        for (name, value) in fields {
            if let Some(schema) = self.properties.get(name) {
                schema.apply_defaults(value);
            } else if let Some(Additional::Schema(schema)) = &self.additional {
                schema.apply_defaults(value);
            }
        }
    }
}
