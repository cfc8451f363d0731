//! A resource: a kind as it is served in one version, and how it is stored. Pure.

use serde_json::{Value, json};

use crate::kinds::KindInfo;
use crate::schema::Schema;
use crate::store::TableId;

/// A kind as it is served in one version.
#[derive(Debug)]
pub struct Resource {
    /// Its names and rules.
    pub info: KindInfo,
    /// The table with its objects.
    pub table: TableId,
    /// How stored objects differ from served ones.
    pub conversion: Conversion,
    /// Schema of a custom kind.
    pub schema: Option<Schema>,
    /// The same schema as it was written.
    pub openapi: Option<Value>,
    /// Declared fields of field selectors, as JSON paths.
    pub selectable: Vec<String>,
}

/// How objects are stored, where that differs from how they are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Conversion {
    /// They do not differ.
    None,
    /// Only in apiVersion, which is this one in the store.
    Version(String),
    /// `events.k8s.io` events are stored as core events.
    Events,
}

/// The table of a group's plural.
pub fn table_id(group: &str, plural: &str) -> TableId {
    if group.is_empty() { plural.into() } else { format!("{plural}.{group}").into() }
}

// === impl Resource ===

impl Resource {
    /// A built-in kind.
    pub fn builtin(info: KindInfo) -> Self {
        let converted = info.storage_group != info.group;
        Self {
            table: table_id(&info.storage_group, &info.plural),
            conversion: if converted { Conversion::Events } else { Conversion::None },
            schema: None,
            openapi: None,
            selectable: Vec::new(),
            info,
        }
    }

    /// A stored object as this resource serves it.
    pub fn served(&self, mut stored: Value) -> Value {
        match &self.conversion {
            Conversion::None => stored,
            Conversion::Version(_) => {
                stored["apiVersion"] = json!(self.info.api_version());
                stored
            }
            Conversion::Events => renamed(&stored, &self.info.api_version(), |(a, b)| (a, b)),
        }
    }

    /// A served object as it is stored.
    pub fn stored(&self, mut served: Value) -> Value {
        match &self.conversion {
            Conversion::None => served,
            Conversion::Version(version) => {
                served["apiVersion"] = json!(version);
                served
            }
            Conversion::Events => renamed(&served, "v1", |(a, b)| (b, a)),
        }
    }
}

/// Fields of events, as the core group and as `events.k8s.io` name them.
pub(crate) const EVENT_FIELDS: &[(&str, &str)] = &[
    ("count", "deprecatedCount"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("involvedObject", "regarding"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("message", "note"),
    ("reportingComponent", "reportingController"),
    ("source", "deprecatedSource"),
];

fn renamed<'t>(
    event: &Value,
    api_version: &str,
    direction: impl Fn((&'t str, &'t str)) -> (&'t str, &'t str),
) -> Value {
    let mut object = event.clone();
    let Some(fields) = object.as_object_mut() else { return object };
    for (from, to) in EVENT_FIELDS.iter().map(|pair| direction(*pair)) {
        if let Some(value) = fields.remove(from) {
            fields.insert(to.to_owned(), value);
        }
    }
    fields.insert("apiVersion".into(), json!(api_version));
    object
}
