//! What the server does to objects before it stores them: checks names, sets system fields, fills
//! in defaults, keeps status apart, decides deletion.
//!
//! Everything here is a pure function of the request's object, the stored one and `now`.
//! In data order: [`decode`] reads a body; [`prepare`] sets what belongs to the server;
//! [`defaults`] fills in built-in kinds; [`validate`] checks the rules, those of Events in `event`;
//! [`deletion`] decides how an object is deleted, and [`disruption`] whether a Pod may be evicted.

pub mod decode;
pub mod defaults;
pub mod deletion;
pub mod disruption;
mod event;
pub mod names;
pub mod prepare;
pub mod validate;

use serde_json::Value;

/// `metadata.<field>` as text, or empty.
pub fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// Whether deletion has begun.
pub fn deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// `metadata.finalizers`.
pub fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str)
}

/// Sets or, for `None`, removes a metadata field.
pub fn set_meta(object: &mut Value, field: &str, value: Option<Value>) {
    let Some(metadata) = object["metadata"].as_object_mut() else { return };
    match value {
        Some(value) => metadata.insert(field.into(), value),
        None => metadata.remove(field),
    };
}
