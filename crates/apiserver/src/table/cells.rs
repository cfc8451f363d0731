//! Cells that several kinds share.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Row, age};
use crate::selector::label;

/// The text of an empty cell.
pub(crate) const NONE: &str = "<none>";
/// The text of a cell for what has no value.
pub(crate) const UNSET: &str = "<unset>";

impl Row<'_> {
    /// The value at a JSON pointer, null if absent.
    pub(crate) fn at(&self, pointer: &str) -> &Value {
        self.object.pointer(pointer).unwrap_or(&Value::Null)
    }

    /// The text at a JSON pointer, empty if absent.
    pub(crate) fn text(&self, pointer: &str) -> &str {
        self.at(pointer).as_str().unwrap_or_default()
    }

    /// The text at a JSON pointer, this one if absent.
    pub(crate) fn text_or<'s>(&'s self, pointer: &str, absent: &'s str) -> &'s str {
        match self.text(pointer) {
            "" => absent,
            text => text,
        }
    }

    /// The text at a JSON pointer, `<none>` if absent.
    pub(crate) fn text_or_none(&self, pointer: &str) -> Value {
        json!(self.text_or(pointer, NONE))
    }

    /// The number at a JSON pointer, 0 if absent.
    pub(crate) fn number(&self, pointer: &str) -> i64 {
        self.at(pointer).as_i64().unwrap_or(0)
    }

    /// The list at a JSON pointer, empty if absent.
    pub(crate) fn list(&self, pointer: &str) -> &[Value] {
        self.at(pointer).as_array().map(Vec::as_slice).unwrap_or_default()
    }

    /// How many entries the map or list at a JSON pointer has.
    pub(crate) fn length(&self, pointer: &str) -> usize {
        match self.at(pointer) {
            Value::Object(map) => map.len(),
            Value::Array(list) => list.len(),
            _ => 0,
        }
    }

    /// The time at a JSON pointer.
    pub(crate) fn time(&self, pointer: &str) -> Option<Timestamp> {
        self.text(pointer).parse().ok()
    }

    /// The time since the one at a JSON pointer.
    pub(crate) fn since(&self, pointer: &str) -> Value {
        json!(self.time(pointer).map_or("<unknown>".into(), |at| age::since(at, self.now)))
    }
}

pub(crate) fn name(row: &Row<'_>) -> Value {
    json!(row.text("/metadata/name"))
}

pub(crate) fn age(row: &Row<'_>) -> Value {
    row.since("/metadata/creationTimestamp")
}

pub(crate) fn created_at(row: &Row<'_>) -> Value {
    json!(row.text("/metadata/creationTimestamp"))
}

/// The first items of a list, and how many more there are.
pub(crate) fn first(items: &[String], most: usize, separator: &str) -> String {
    let shown = items[..items.len().min(most)].join(separator);
    match items.len().saturating_sub(most) {
        0 => shown,
        more => format!("{shown} + {more} more..."),
    }
}

/// One field of every container at a JSON pointer, joined by commas.
pub(crate) fn containers(row: &Row<'_>, pointer: &str, field: &str) -> Value {
    let containers = row.list(pointer);
    let fields: Vec<&str> = containers.iter().filter_map(|c| c[field].as_str()).collect();
    json!(fields.join(","))
}

/// Where the containers of a Pod template are.
const TEMPLATE: &str = "/spec/template/spec/containers";

pub(crate) fn container_names(row: &Row<'_>) -> Value {
    containers(row, TEMPLATE, "name")
}

pub(crate) fn container_images(row: &Row<'_>) -> Value {
    containers(row, TEMPLATE, "image")
}

/// A `LabelSelector` or a map of labels, as text.
pub(crate) fn selector(row: &Row<'_>) -> Value {
    selector_at(row, "/spec/selector")
}

/// The same of another place.
pub(crate) fn selector_at(row: &Row<'_>, pointer: &str) -> Value {
    let mut terms = label::terms(row.at(pointer));
    terms.sort();
    json!(if terms.is_empty() { NONE.to_owned() } else { terms.join(",") })
}
