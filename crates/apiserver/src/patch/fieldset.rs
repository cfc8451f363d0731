//! Sets of field paths, as trees, and their `fieldsV1` form.
//!
//! A node is a member if its own path is in the set; in `fieldsV1` a member with children has a
//! `"."`. Empty nodes are not kept.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value, json};

/// One step of a field path, in the form it has inside `fieldsV1`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathElement {
    /// `f:name`: a field.
    Field(String),
    /// `k:{"name":"a"}`: the list item with these key fields, as compact JSON with sorted keys.
    Key(String),
    /// `v:"a"`: the set item with this value, as compact JSON.
    Value(String),
    /// `i:0`: the list item at this position. It is only read, never written.
    Index(usize),
}

/// A set of field paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FieldSet {
    /// Whether the path of this node is in the set.
    pub(crate) member: bool,
    /// The paths below.
    pub(crate) children: BTreeMap<PathElement, FieldSet>,
}

// === impl PathElement ===

impl PathElement {
    /// Reads one key of `fieldsV1`; `None` for anything else.
    fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        Some(match kind {
            "f" => Self::Field(rest.to_owned()),
            // Parsed and written again, so that equal keys in different notation compare equal.
            "k" => Self::Key(serde_json::from_str::<Value>(rest).ok()?.to_string()),
            "v" => Self::Value(serde_json::from_str::<Value>(rest).ok()?.to_string()),
            "i" => Self::Index(rest.parse().ok()?),
            _ => return None,
        })
    }

    fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(key) => format!("k:{key}"),
            Self::Value(value) => format!("v:{value}"),
            Self::Index(index) => format!("i:{index}"),
        }
    }
}

/// Its form in conflict texts: `.spec`, `[name="nginx"]`, `[="finalizer"]`, `[0]`.
impl fmt::Display for PathElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(key) => {
                let fields: Map<String, Value> = serde_json::from_str(key).unwrap_or_default();
                let pairs: Vec<String> = fields.iter().map(|(k, v)| format!("{k}={v}")).collect();
                write!(f, "[{}]", pairs.join(","))
            }
            Self::Value(value) => write!(f, "[={value}]"),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

// === impl FieldSet ===

impl FieldSet {
    /// Parses `fieldsV1`, and skips what it does not understand.
    pub fn from_fields_v1(fields: &Value) -> Self {
        let Value::Object(map) = fields else { return Self::default() };
        let children: BTreeMap<_, _> = map
            .iter()
            .filter_map(|(key, below)| {
                let mut child = Self::from_fields_v1(below);
                child.member |= child.children.is_empty();
                Some((PathElement::parse(key)?, child))
            })
            .collect();
        Self { member: map.contains_key("."), children }
    }

    /// Writes `fieldsV1`.
    pub fn to_fields_v1(&self) -> Value {
        let mut map = Map::new();
        if self.member && !self.children.is_empty() {
            map.insert(".".into(), json!({}));
        }
        for (element, child) in &self.children {
            map.insert(element.encode(), child.to_fields_v1());
        }
        Value::Object(map)
    }

    /// Whether no path is in the set.
    pub fn is_empty(&self) -> bool {
        !self.member && self.children.values().all(Self::is_empty)
    }

    /// The child node, created if absent.
    pub(crate) fn enter(&mut self, element: PathElement) -> &mut FieldSet {
        self.children.entry(element).or_default()
    }

    /// Removes nodes without paths.
    pub(crate) fn tidy(&mut self) {
        self.children.retain(|_, child| {
            child.tidy();
            child.member || !child.children.is_empty()
        });
    }

    /// Adds every path of the other set.
    pub fn unite(&mut self, other: &Self) {
        self.member |= other.member;
        for (element, theirs) in &other.children {
            self.enter(element.clone()).unite(theirs);
        }
    }

    /// Every path in both sets.
    pub fn intersection(&self, other: &Self) -> Self {
        let common = |(element, ours): (&PathElement, &Self)| {
            Some((element.clone(), ours.intersection(other.children.get(element)?)))
        };
        let children = self.children.iter().filter_map(common).collect();
        let mut set = Self { member: self.member && other.member, children };
        set.tidy();
        set
    }

    /// Removes every path of the other set.
    pub fn subtract(&mut self, other: &Self) {
        self.member &= !other.member;
        for (element, theirs) in &other.children {
            let Some(ours) = self.children.get_mut(element) else { continue };
            ours.subtract(theirs);
            if !ours.member && ours.children.is_empty() {
                self.children.remove(element);
            }
        }
    }

    /// Every path of the set in its form for conflict texts, in order.
    pub fn paths(&self) -> Vec<String> {
        let mut found = Vec::new();
        self.collect_paths("", &mut found);
        found
    }

    fn collect_paths(&self, prefix: &str, found: &mut Vec<String>) {
        if self.member {
            found.push(prefix.to_owned());
        }
        for (element, child) in &self.children {
            child.collect_paths(&format!("{prefix}{element}"), found);
        }
    }
}
