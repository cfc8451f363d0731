//! Reads `metadata.managedFields` into managers, and writes them back.

use serde_json::{Map, Value, json};

use super::fieldset::FieldSet;

/// The most update managers of one object; older ones are merged, as on a real server.
pub(crate) const MAX_UPDATE_MANAGERS: usize = 10;

/// The manager that older update managers are merged into.
const ANCIENT: &str = "ancient-changes";

/// The identity of a manager, for ownership.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Manager {
    pub(crate) operation: Operation,
    pub(crate) name: String,
    /// For an applier, only the latest version it used: its identity does not depend on it.
    pub(crate) api_version: String,
    /// Empty for the object itself.
    pub(crate) subresource: String,
}

/// How a manager came to own its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Apply,
    Update,
}

/// One entry of `managedFields`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) manager: Manager,
    /// RFC 3339, or empty.
    pub(crate) time: String,
    pub(crate) fields: FieldSet,
}

/// All entries of one object.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ManagedFields(pub(crate) Vec<Entry>);

// === impl Manager ===

impl Manager {
    /// Whether both are the same manager.
    pub(crate) fn is(&self, other: &Self) -> bool {
        let version = self.operation == Operation::Apply || self.api_version == other.api_version;
        version
            && self.operation == other.operation
            && self.name == other.name
            && self.subresource == other.subresource
    }

    /// Its name in conflict texts.
    pub(crate) fn describe(&self) -> String {
        let mut text = format!("{:?}", self.name);
        if !self.subresource.is_empty() {
            text.push_str(&format!(" with subresource {:?}", self.subresource));
        }
        if self.operation == Operation::Update {
            text.push_str(&format!(" using {}", self.api_version));
        }
        text
    }
}

// === impl ManagedFields ===

impl ManagedFields {
    /// Parses the entries of an object; skips an entry that is not an object or has another format.
    pub(crate) fn read(object: &Value) -> Self {
        let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array);
        Self(entries.into_iter().flatten().filter_map(Entry::read).collect())
    }

    /// The entries from which a write starts. Clients may hand over fields by writing
    /// managedFields, and clear them with `[{}]`. If it is absent, empty or unreadable, the stored
    /// entries are used, so that clients which ignore it do no harm.
    pub(crate) fn of_update(live: Option<&Value>, new: &Value, subresource: bool) -> Self {
        let stored = || live.map(Self::read).unwrap_or_default();
        let sent = new.pointer("/metadata/managedFields").and_then(Value::as_array);
        match sent.map(Vec::as_slice) {
            _ if subresource => stored(),
            None | Some([]) => stored(),
            Some([only]) if *only == json!({}) => Self::default(),
            Some(entries) => entries
                .iter()
                .map(Entry::read)
                .collect::<Option<Vec<_>>>()
                .map_or_else(stored, Self),
        }
    }

    /// Writes the entries into an object, in a real server's order, or removes the field.
    pub(crate) fn write(mut self, object: &mut Value) {
        self.0.retain(|entry| !entry.fields.is_empty());
        self.merge_ancient();
        self.0.sort_by(|a, b| a.rank().cmp(&b.rank()));
        let Some(metadata) = metadata(object) else { return };
        if self.0.is_empty() {
            metadata.remove("managedFields");
        } else {
            let entries = self.0.iter().map(Entry::write).collect();
            metadata.insert("managedFields".into(), Value::Array(entries));
        }
    }

    pub(crate) fn position(&self, manager: &Manager) -> Option<usize> {
        self.0.iter().position(|entry| entry.manager.is(manager))
    }

    fn merge_ancient(&mut self) {
        let is_update = |e: &Entry| e.manager.operation == Operation::Update;
        let updates = self.0.iter().filter(|e| is_update(e)).count();
        if updates <= MAX_UPDATE_MANAGERS {
            return;
        }
        self.0.sort_by(|a, b| (is_update(b), &b.time).cmp(&(is_update(a), &a.time)));
        // Updates come first now, the newest before the oldest; the merged manager takes one place.
        let old: Vec<Entry> = self.0.drain(MAX_UPDATE_MANAGERS - 1..updates).collect();
        for entry in old {
            let bucket = Manager { name: ANCIENT.into(), ..entry.manager };
            match self.position(&bucket) {
                Some(at) => {
                    let into = &mut self.0[at];
                    into.fields.unite(&entry.fields);
                    into.time = into.time.clone().max(entry.time);
                }
                None => self.0.push(Entry { manager: bucket, ..entry }),
            }
        }
    }
}

// === impl Entry ===

impl Entry {
    /// Its place among the entries of an object.
    fn rank(&self) -> (Operation, &str, &Manager) {
        (self.manager.operation, &self.time, &self.manager)
    }

    fn read(entry: &Value) -> Option<Self> {
        let text =
            |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let operation = match entry.get("operation")?.as_str()? {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return None,
        };
        let manager = Manager {
            operation,
            name: text("manager"),
            api_version: text("apiVersion"),
            subresource: text("subresource"),
        };
        let fields = FieldSet::from_fields_v1(entry.get("fieldsV1")?);
        Some(Self { manager, time: text("time"), fields })
    }

    fn write(&self) -> Value {
        let mut entry = json!({
            "manager": self.manager.name,
            "operation": match self.manager.operation {
                Operation::Apply => "Apply",
                Operation::Update => "Update",
            },
            "apiVersion": self.manager.api_version,
            "fieldsType": "FieldsV1",
            "fieldsV1": self.fields.to_fields_v1(),
        });
        if !self.time.is_empty() {
            entry["time"] = json!(self.time);
        }
        if !self.manager.subresource.is_empty() {
            entry["subresource"] = json!(self.manager.subresource);
        }
        entry
    }
}

/// The metadata of an object, created if absent; `None` if it is not an object.
fn metadata(object: &mut Value) -> Option<&mut Map<String, Value>> {
    object.as_object_mut()?.entry("metadata").or_insert_with(|| json!({})).as_object_mut()
}
