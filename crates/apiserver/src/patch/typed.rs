//! Walks values under a [`SchemaLookup`]: which paths a value sets, how two values differ, how an
//! applied value merges into a live one, and what is removed when ownership ends.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::fieldset::{FieldSet, PathElement};
use super::topology::{MapKey, SchemaLookup, Step, Topology};

/// How a new value differs from an old one.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Comparison {
    pub(crate) added: FieldSet,
    pub(crate) modified: FieldSet,
    pub(crate) removed: FieldSet,
}

/// An object without members.
static EMPTY: LazyLock<Value> = LazyLock::new(|| Value::Object(Map::new()));

/// A position in the schema while walking.
pub(crate) struct Walk<'a, 'p> {
    schema: &'a dyn SchemaLookup,
    path: Vec<Step<'p>>,
}

/// How a node is merged.
enum Shape<'v> {
    /// Merged per field.
    Fields(&'v Map<String, Value>),
    /// Merged per item.
    Items(BTreeMap<PathElement, &'v Value>),
    /// One value.
    Leaf,
}

// === impl Comparison ===

impl Comparison {
    pub(crate) fn is_same(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    /// Paths whose value is new.
    pub(crate) fn touched(&self) -> FieldSet {
        let mut touched = self.added.clone();
        touched.unite(&self.modified);
        touched
    }

    /// Adds what differs at an element and below it.
    fn insert(&mut self, element: &PathElement, below: Self) {
        let sides = [
            (&mut self.added, below.added),
            (&mut self.modified, below.modified),
            (&mut self.removed, below.removed),
        ];
        for (side, set) in sides {
            if set.member || !set.children.is_empty() {
                side.children.insert(element.clone(), set);
            }
        }
    }
}

/// Every path `value` sets.
pub(crate) fn field_set(schema: &dyn SchemaLookup, value: &Value) -> FieldSet {
    let mut set = FieldSet::default();
    Walk { schema, path: Vec::new() }.collect(value, &mut set);
    set.member = false;
    set.tidy();
    set
}

/// How `new` differs from `old`, but for managedFields. What the skeleton has is not new.
pub(crate) fn compare(schema: &dyn SchemaLookup, old: &Value, new: &Value) -> Comparison {
    let mut result = Comparison::default();
    let walk = &mut Walk { schema, path: Vec::new() };
    walk.compare(Some(old), Some(new), &schema.skeleton(), &mut result);
    for set in [&mut result.added, &mut result.modified, &mut result.removed] {
        set.member = false;
        set.tidy();
    }
    result
}

/// `live` with everything `applied` sets.
pub(crate) fn merge(schema: &dyn SchemaLookup, live: &Value, applied: &Value) -> Value {
    Walk { schema, path: Vec::new() }.merge(live, applied)
}

/// Removes from `value` what `last` set and nobody in `kept` sets.
pub(crate) fn prune(
    schema: &dyn SchemaLookup,
    value: &mut Value,
    last: &FieldSet,
    kept: &FieldSet,
) {
    prune_node(schema, &mut Vec::new(), value, last, kept);
}

/// The first list item that lacks its key or repeats one, in the words of a real server.
pub(crate) fn check_items(schema: &dyn SchemaLookup, value: &Value) -> Result<(), String> {
    Walk { schema, path: Vec::new() }.check_items(value, "")
}

// === impl Walk ===

impl<'p> Walk<'_, 'p> {
    fn down<T>(&mut self, step: Step<'p>, visit: impl FnOnce(&mut Self) -> T) -> T {
        self.path.push(step);
        let result = visit(self);
        self.path.pop();
        result
    }

    fn shape<'v>(&self, value: &'v Value) -> Shape<'v> {
        match (value, self.schema.topology(&self.path)) {
            (Value::Object(fields), topology) if topology != Topology::Atomic => {
                Shape::Fields(fields)
            }
            (Value::Array(items), topology) => match elements(items, &topology) {
                Some(elements) => Shape::Items(elements.into_iter().zip(items).collect()),
                None => Shape::Leaf,
            },
            _ => Shape::Leaf,
        }
    }

    fn collect(&mut self, value: &'p Value, set: &mut FieldSet) {
        match self.shape(value) {
            Shape::Fields(fields) => {
                set.member |= fields.is_empty();
                for (name, value) in fields {
                    let below = set.enter(PathElement::Field(name.clone()));
                    self.down(Step::Field(name), |walk| walk.collect(value, below));
                }
            }
            Shape::Items(items) => {
                for (element, value) in items {
                    let below = set.enter(element);
                    self.down(Step::Item, |walk| walk.collect(value, below));
                    below.member = true;
                }
            }
            Shape::Leaf => set.member = true,
        }
    }

    /// Marks a subtree that only one side has: every node of it, not just the leaves.
    fn collect_whole(&mut self, value: &'p Value, set: &mut FieldSet) {
        set.member = true;
        match self.shape(value) {
            Shape::Fields(fields) => {
                for (name, value) in fields {
                    let below = set.enter(PathElement::Field(name.clone()));
                    self.down(Step::Field(name), |walk| walk.collect_whole(value, below));
                }
            }
            Shape::Items(items) => {
                for (element, value) in items {
                    let below = set.enter(element);
                    self.down(Step::Item, |walk| walk.collect_whole(value, below));
                }
            }
            Shape::Leaf => {}
        }
    }

    fn compare(
        &mut self,
        old: Option<&'p Value>,
        new: Option<&'p Value>,
        skeleton: &Value,
        out: &mut Comparison,
    ) {
        let (old, new) = match (old, new) {
            (None, None) => return,
            (None, Some(new)) if new.is_object() && skeleton.is_object() => (&*EMPTY, new),
            (None, Some(new)) => return self.collect_whole(new, &mut out.added),
            (Some(old), None) => return self.collect_whole(old, &mut out.removed),
            (Some(old), Some(new)) => (old, new),
        };
        match (self.shape(old), self.shape(new)) {
            (Shape::Fields(old), Shape::Fields(new)) => {
                let gone = old.keys().filter(|name| !new.contains_key(*name));
                for name in new.keys().chain(gone) {
                    let (old, new) = (old.get(name), new.get(name));
                    let managed = self.path == [Step::Field("metadata")] && name == "managedFields";
                    if managed || old == new {
                        continue;
                    }
                    let mut below = Comparison::default();
                    self.down(Step::Field(name), |walk| {
                        walk.compare(old, new, &skeleton[name], &mut below);
                    });
                    out.insert(&PathElement::Field(name.clone()), below);
                }
            }
            (Shape::Items(old), Shape::Items(new)) => {
                let gone = old.keys().filter(|element| !new.contains_key(*element));
                for element in new.keys().chain(gone) {
                    let (old, new) = (old.get(element).copied(), new.get(element).copied());
                    if old == new {
                        continue;
                    }
                    let mut below = Comparison::default();
                    self.down(Step::Item, |walk| {
                        walk.compare(old, new, &Value::Null, &mut below);
                    });
                    out.insert(element, below);
                }
            }
            _ if old == new => {}
            _ => out.modified.member = true,
        }
    }

    fn merge(&mut self, live: &'p Value, applied: &'p Value) -> Value {
        match (self.shape(live), self.shape(applied)) {
            (Shape::Fields(live), Shape::Fields(applied)) => {
                let mut merged = live.clone();
                for (name, value) in applied {
                    let value = match live.get(name) {
                        Some(live) => self.down(Step::Field(name), |walk| walk.merge(live, value)),
                        None => value.clone(),
                    };
                    merged.insert(name.clone(), value);
                }
                Value::Object(merged)
            }
            (Shape::Items(by_element), Shape::Items(_)) => {
                self.merge_items(live, applied, &by_element)
            }
            _ => applied.clone(),
        }
    }

    /// The applied items in their order. A live item that is not applied comes as soon as every
    /// shared item before it has been placed, before new ones.
    fn merge_items(
        &mut self,
        live: &'p Value,
        applied: &'p Value,
        by_element: &BTreeMap<PathElement, &'p Value>,
    ) -> Value {
        let topology = self.schema.topology(&self.path);
        let list = |value: &'p Value| -> Vec<(PathElement, &'p Value)> {
            let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
            elements(items, &topology).unwrap_or_default().into_iter().zip(items).collect()
        };
        let (live, applied) = (list(live), list(applied));
        let shared: BTreeSet<&PathElement> = applied.iter().map(|(e, _)| e).collect();
        let mut placed = BTreeSet::new();
        let mut merged = Vec::with_capacity(live.len() + applied.len());
        let mut waiting = live.iter().peekable();
        for (element, item) in &applied {
            let ready = |(e, _): &&(PathElement, &Value)| !shared.contains(e) || placed.contains(e);
            while let Some((element, item)) = waiting.next_if(ready) {
                if !shared.contains(element) {
                    merged.push((*item).clone());
                }
            }
            placed.insert(element);
            merged.push(match by_element.get(element) {
                Some(live) => self.down(Step::Item, |walk| walk.merge(live, item)),
                None => (*item).clone(),
            });
        }
        let rest = waiting.filter(|(e, _)| !shared.contains(e));
        merged.extend(rest.map(|(_, item)| (*item).clone()));
        Value::Array(merged)
    }

    fn check_items(&mut self, value: &'p Value, at: &str) -> Result<(), String> {
        match value {
            Value::Object(fields) => fields.iter().try_for_each(|(name, value)| {
                let at = format!("{at}.{name}");
                self.down(Step::Field(name), |walk| walk.check_items(value, &at))
            }),
            Value::Array(items) => {
                let topology = self.schema.topology(&self.path);
                if matches!(topology, Topology::Plain | Topology::Atomic) {
                    return Ok(());
                }
                let mut seen = BTreeSet::new();
                for (i, item) in items.iter().enumerate() {
                    let element = element(item, &topology).map_err(|why| format!("{at}: {why}"))?;
                    if !seen.insert(element.clone()) {
                        return Err(format!("{at}: duplicate entries for key {element}"));
                    }
                    let at = format!("{at}[{i}]");
                    self.down(Step::Item, |walk| walk.check_items(item, &at))?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// The path steps are owned, because removal changes the value it walks.
fn prune_node(
    schema: &dyn SchemaLookup,
    path: &mut Vec<OwnedStep>,
    value: &mut Value,
    last: &FieldSet,
    kept: &FieldSet,
) {
    let none = FieldSet::default();
    match value {
        Value::Object(fields) => {
            for (element, last) in &last.children {
                let PathElement::Field(name) = element else { continue };
                let Some(value) = fields.get_mut(name) else { continue };
                match kept.children.get(element) {
                    // Nobody sets anything at or below it any more.
                    None => drop(fields.remove(name)),
                    Some(kept) => {
                        path.push(OwnedStep::Field(name.clone()));
                        prune_node(schema, path, value, last, kept);
                        path.pop();
                    }
                }
            }
        }
        Value::Array(items) => {
            let steps: Vec<Step<'_>> = path.iter().map(OwnedStep::borrow).collect();
            let topology = schema.topology(&steps);
            drop(steps);
            items.retain_mut(|item| {
                let Ok(element) = element(item, &topology) else { return true };
                let Some(last) = last.children.get(&element) else { return true };
                match kept.children.get(&element) {
                    None if last.member => false,
                    kept => {
                        path.push(OwnedStep::Item);
                        let held = with_keys(kept.unwrap_or(&none), &topology);
                        prune_node(schema, path, item, last, &held);
                        path.pop();
                        true
                    }
                }
            });
        }
        _ => {}
    }
}

/// An item that stays keeps the fields that identify it.
fn with_keys(kept: &FieldSet, topology: &Topology) -> FieldSet {
    let mut kept = kept.clone();
    if let Topology::Map(keys) = topology {
        for key in keys {
            kept.enter(PathElement::Field(key.name.clone())).member = true;
        }
    }
    kept
}

enum OwnedStep {
    Field(String),
    Item,
}

impl OwnedStep {
    fn borrow(&self) -> Step<'_> {
        match self {
            Self::Field(name) => Step::Field(name),
            Self::Item => Step::Item,
        }
    }
}

/// The identities of a list's items; `None` if the list is one value, or does not have the form of
/// its topology.
fn elements(items: &[Value], topology: &Topology) -> Option<Vec<PathElement>> {
    match topology {
        Topology::Plain | Topology::Atomic => None,
        _ => items.iter().map(|item| element(item, topology).ok()).collect(),
    }
}

fn element(item: &Value, topology: &Topology) -> Result<PathElement, String> {
    match topology {
        Topology::Set => Ok(PathElement::Value(item.to_string())),
        Topology::Map(keys) => map_element(item, keys),
        Topology::Plain | Topology::Atomic => Err("not an associative list".into()),
    }
}

fn map_element(item: &Value, keys: &[MapKey]) -> Result<PathElement, String> {
    let fields =
        item.as_object().ok_or("associative list with keys may not have non-map elements")?;
    let mut key = Map::new();
    for MapKey { name, default } in keys {
        match fields.get(name).filter(|v| !v.is_null()).or(default.as_ref()) {
            Some(value) => drop(key.insert(name.clone(), value.clone())),
            None => {
                return Err(format!(
                    "associative list with keys has an element that omits key field {name:?} \
                     (and doesn't have default value)"
                ));
            }
        }
    }
    Ok(PathElement::Key(Value::Object(key).to_string()))
}
