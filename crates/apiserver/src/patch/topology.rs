//! How each node of an object merges: per field, per item, or as one value.
//!
//! Custom resources say so in their schema (`x-kubernetes-list-type`, `-list-map-keys`,
//! `-map-type`); built-in kinds in the tables here, which also serve the metadata of both.

use serde_json::Value;

use crate::schema::{ListType, Schema};

/// One step down into an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'a> {
    /// A field of an object or an entry of a map.
    Field(&'a str),
    /// Any item of a list.
    Item,
}

/// How a node merges.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Topology {
    /// Objects by field, lists as one value.
    #[default]
    Plain,
    /// One value, objects included.
    Atomic,
    /// A list of unique scalars.
    Set,
    /// A list of objects that these fields identify.
    Map(Vec<MapKey>),
}

/// A field that identifies the items of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct MapKey {
    /// Field name.
    pub name: String,
    /// Value of an item that lacks the field.
    pub default: Option<Value>,
}

/// The merge behaviour of every node of one kind.
pub trait SchemaLookup: Send + Sync {
    /// How the node at `path` merges.
    fn topology(&self, path: &[Step<'_>]) -> Topology;

    /// Objects that exist in every value of the kind, even an empty one, and that nobody owns.
    fn skeleton(&self) -> Value {
        Value::Null
    }
}

/// The built-in kinds. One table serves all: the names below mean the same wherever they appear.
#[derive(Debug, Clone, Copy, Default)]
pub struct BuiltinTopology;

/// Lists merged by key, as `(list field, keys)`.
const KEYED_LISTS: &[(&str, &[&str])] = &[
    ("addresses", &["type"]),
    ("conditions", &["type"]),
    ("containers", &["name"]),
    ("env", &["name"]),
    ("ephemeralContainers", &["name"]),
    ("hostAliases", &["ip"]),
    ("imagePullSecrets", &["name"]),
    ("initContainers", &["name"]),
    ("ownerReferences", &["uid"]),
    ("podIPs", &["ip"]),
    ("resourceClaims", &["name"]),
    ("secrets", &["name"]),
    ("topologySpreadConstraints", &["topologyKey", "whenUnsatisfiable"]),
    ("volumeDevices", &["devicePath"]),
    ("volumeMounts", &["mountPath"]),
    ("volumes", &["name"]),
    ("webhooks", &["name"]),
];

/// Objects that are one value, wherever they appear.
const ATOMIC_OBJECTS: &[&str] = &[
    "claimRef",
    "configMapKeyRef",
    "configMapRef",
    "fieldRef",
    "involvedObject",
    "labelSelector",
    "namespaceSelector",
    "nodeSelector",
    "podSelector",
    "regarding",
    "related",
    "resourceFieldRef",
    "roleRef",
    "scaleTargetRef",
    "secretKeyRef",
    "secretRef",
    "selector",
    "targetRef",
];

// === impl BuiltinTopology ===

impl SchemaLookup for BuiltinTopology {
    fn topology(&self, path: &[Step<'_>]) -> Topology {
        match path {
            // Entries of these maps are plain values, whatever their names.
            [Step::Field("data" | "binaryData" | "stringData"), ..]
            | [.., Step::Field("labels" | "annotations" | "matchLabels"), Step::Field(_)] => {
                Topology::Plain
            }
            [Step::Field("metadata"), Step::Field("finalizers")]
            | [Step::Field("spec"), Step::Field("finalizers")] => Topology::Set,
            [.., Step::Field("ownerReferences" | "imagePullSecrets"), Step::Item] => {
                Topology::Atomic
            }
            [
                ..,
                Step::Field("containers" | "initContainers"),
                Step::Item,
                Step::Field("ports"),
            ] => keys(&["containerPort"], true),
            [Step::Field("spec"), Step::Field("ports")] => keys(&["port"], true),
            [.., Step::Field(name)] => {
                if let Some((_, names)) = KEYED_LISTS.iter().find(|(list, _)| list == name) {
                    keys(names, false)
                } else if ATOMIC_OBJECTS.contains(name) {
                    Topology::Atomic
                } else {
                    Topology::Plain
                }
            }
            _ => Topology::Plain,
        }
    }

    fn skeleton(&self) -> Value {
        serde_json::json!({
            "metadata": {},
            "source": {},
            "deprecatedSource": {},
            "spec": {
                "strategy": {}, "updateStrategy": {},
                "template": {"metadata": {}, "spec": {}},
            },
            "status": {"loadBalancer": {}},
        })
    }
}

fn keys(names: &[&str], with_protocol: bool) -> Topology {
    let mut keys: Vec<MapKey> =
        names.iter().map(|name| MapKey { name: (*name).to_owned(), default: None }).collect();
    if with_protocol {
        keys.push(MapKey { name: "protocol".into(), default: Some(Value::from("TCP")) });
    }
    Topology::Map(keys)
}

// === impl Schema ===

impl SchemaLookup for Schema {
    fn topology(&self, path: &[Step<'_>]) -> Topology {
        if let [Step::Field("metadata"), ..] = path {
            return BuiltinTopology.topology(path);
        }
        let mut node = self;
        for step in path {
            let next = match step {
                Step::Field(name) => node.field(name),
                Step::Item => node.items.as_deref(),
            };
            match next {
                Some(next) => node = next,
                None => return Topology::Plain,
            }
        }
        match &node.list_type {
            _ if node.map_atomic => Topology::Atomic,
            ListType::Atomic => Topology::Plain,
            ListType::Set => Topology::Set,
            ListType::Map(names) => Topology::Map(names.iter().map(|n| node.key(n)).collect()),
        }
    }

    fn skeleton(&self) -> Value {
        serde_json::json!({ "metadata": {} })
    }
}

impl Schema {
    fn key(&self, name: &str) -> MapKey {
        let field = self.items.as_deref().and_then(|item| item.properties.get(name));
        MapKey { name: name.to_owned(), default: field.and_then(|f| f.default.clone()) }
    }
}
