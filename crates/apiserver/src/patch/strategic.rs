//! Strategic merge patch: a merge patch that knows which lists are merged by key.
//!
//! Lists are merged by the first key of their [`Topology`], sets of scalars are joined, every other
//! list is replaced. Directives: `$patch: delete | replace | merge`, `$retainKeys`,
//! `$setElementOrder/<list>`, `$deleteFromPrimitiveList/<list>`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::topology::{BuiltinTopology, SchemaLookup, Step, Topology};
use crate::kinds::KindInfo;
use crate::status::ApiError;

const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder/";
const DELETE_ITEMS: &str = "$deleteFromPrimitiveList/";

/// Media types a custom resource can be patched with.
const CUSTOM_RESOURCE_PATCHES: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/apply-patch+yaml",
];

/// Applies a strategic merge patch.
///
/// # Errors
/// 415 for a custom resource, 400 for a body that is not a JSON object or uses an unknown
/// directive.
pub fn apply_strategic(kind: &KindInfo, current: &Value, body: &[u8]) -> Result<Value, ApiError> {
    if kind.custom {
        return Err(ApiError::unsupported_media_type(CUSTOM_RESOURCE_PATCHES));
    }
    let Value::Object(patch) = super::decode(body)? else {
        return Err(ApiError::bad_request("error decoding patch: a patch must be an object"));
    };
    let current = current.as_object().cloned().unwrap_or_default();
    Ok(Value::Object(Strategic::default().object(current, patch)?))
}

/// A merge at one node, with its path.
#[derive(Default)]
struct Strategic {
    path: Vec<String>,
}

/// Path component of a list item; no field of a Kubernetes object has this name.
const ITEM: &str = "[]";

impl Strategic {
    fn object(
        &mut self,
        mut current: Map<String, Value>,
        mut patch: Map<String, Value>,
    ) -> Result<Map<String, Value>, ApiError> {
        match patch.remove(PATCH) {
            None => {}
            Some(Value::String(directive)) => match directive.as_str() {
                "merge" => {}
                "delete" => return Ok(Map::new()),
                "replace" => current.clear(),
                other => return Err(unknown_directive(other)),
            },
            Some(other) => return Err(unknown_directive(&other.to_string())),
        }
        if let Some(Value::Array(keys)) = patch.remove(RETAIN_KEYS) {
            current.retain(|name, _| keys.iter().any(|key| key.as_str() == Some(name)));
        }
        let orders = take_prefixed(&mut patch, ORDER);
        let deletions = take_prefixed(&mut patch, DELETE_ITEMS);
        for (name, unwanted) in deletions {
            if let Some(Value::Array(items)) = current.get_mut(&name) {
                items.retain(|item| !unwanted.contains(item));
            }
        }
        for (name, value) in patch {
            self.path.push(name.clone());
            let merged = self.value(current.remove(&name), value)?;
            self.path.pop();
            if let Some(merged) = merged {
                current.insert(name, merged);
            }
        }
        for (name, order) in orders {
            self.path.push(name.clone());
            if let Some(Value::Array(items)) = current.get_mut(&name) {
                self.reorder(items, &order);
            }
            self.path.pop();
        }
        Ok(current)
    }

    fn value(&mut self, current: Option<Value>, patch: Value) -> Result<Option<Value>, ApiError> {
        Ok(Some(match (current, patch) {
            (_, Value::Null) => return Ok(None),
            (Some(Value::Object(current)), Value::Object(patch)) => {
                Value::Object(self.object(current, patch)?)
            }
            (_, Value::Object(patch)) => Value::Object(self.object(Map::new(), patch)?),
            (Some(Value::Array(current)), Value::Array(patch)) => {
                Value::Array(self.list(current, patch)?)
            }
            (_, Value::Array(patch)) => Value::Array(self.list(Vec::new(), patch)?),
            (_, scalar) => scalar,
        }))
    }

    fn list(&mut self, current: Vec<Value>, patch: Vec<Value>) -> Result<Vec<Value>, ApiError> {
        match self.topology() {
            Topology::Set => {
                let (before, given) = (current.clone(), patch.clone());
                let mut merged = current;
                for item in patch {
                    if !merged.contains(&item) {
                        merged.push(item);
                    }
                }
                Ok(interleave(merged, &before, &given))
            }
            Topology::Map(keys) => {
                let key = &keys[0].name;
                let identities = |items: &[Value]| -> Vec<Value> {
                    items.iter().map(|item| item.get(key).cloned().unwrap_or_default()).collect()
                };
                let (before, given) = (identities(&current), identities(&patch));
                let merged = self.keyed_list(current, patch, key)?;
                let order = interleave(identities(&merged), &before, &given);
                Ok(sorted_by(merged, key, &order))
            }
            Topology::Plain | Topology::Atomic => Ok(patch),
        }
    }

    fn keyed_list(
        &mut self,
        mut merged: Vec<Value>,
        mut patch: Vec<Value>,
        key: &str,
    ) -> Result<Vec<Value>, ApiError> {
        let directive = |item: &Value, name: &str| item.get(PATCH).is_some_and(|d| d == name);
        if patch.iter().any(|item| directive(item, "replace")) {
            patch.retain(|item| !directive(item, "replace"));
            merged.clear();
        }
        for item in patch {
            let identity = item.get(key).cloned().ok_or_else(|| {
                ApiError::bad_request(format!(
                    "map: {item} does not contain declared merge key: {key}"
                ))
            })?;
            if directive(&item, "delete") {
                merged.retain(|m| m.get(key) != Some(&identity));
                continue;
            }
            let at = merged.iter().position(|m| m.get(key) == Some(&identity));
            let current = at.map(|at| merged[at].take());
            self.path.push(ITEM.into());
            let value = self.value(current, item)?.unwrap_or(Value::Null);
            self.path.pop();
            match at {
                Some(at) => merged[at] = value,
                None => merged.push(value),
            }
        }
        Ok(merged)
    }

    /// Puts items into the given order; items it does not name stay before the named item they
    /// preceded.
    fn reorder(&self, items: &mut Vec<Value>, order: &[Value]) {
        let identity = |item: &Value| match self.topology() {
            Topology::Map(keys) => item.get(&keys[0].name).cloned().unwrap_or_default(),
            _ => item.clone(),
        };
        let rank: BTreeMap<String, usize> =
            order.iter().enumerate().map(|(i, item)| (identity(item).to_string(), i)).collect();
        let mut followers: BTreeMap<usize, Vec<Value>> = BTreeMap::new();
        let mut waiting = Vec::new();
        for item in items.drain(..) {
            match rank.get(&identity(&item).to_string()) {
                None => waiting.push(item),
                Some(at) => {
                    let group = followers.entry(*at).or_default();
                    group.append(&mut waiting);
                    group.push(item);
                }
            }
        }
        items.extend(followers.into_values().flatten());
        items.append(&mut waiting);
    }

    fn topology(&self) -> Topology {
        let steps: Vec<Step<'_>> = self
            .path
            .iter()
            .map(|step| if step == ITEM { Step::Item } else { Step::Field(step) })
            .collect();
        BuiltinTopology.topology(&steps)
    }
}

/// The order of a merged list on a real server: the items of the patch in its order, the others as
/// they were, each before the first item of the patch that it preceded.
fn interleave(merged: Vec<Value>, before: &[Value], given: &[Value]) -> Vec<Value> {
    let at = |list: &[Value], item: &Value| list.iter().position(|other| other == item);
    let (mut named, rest): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|item| given.contains(item));
    named.sort_by_key(|item| at(given, item));
    let mut named = named.into_iter().peekable();
    let mut ordered = Vec::new();
    for item in rest {
        let mine = at(before, &item);
        while let Some(next) = named.next_if(|next| {
            let theirs = at(before, next);
            theirs.is_none() || theirs < mine
        }) {
            ordered.push(next);
        }
        ordered.push(item);
    }
    ordered.extend(named);
    ordered
}

/// `items` in the order of their identities in `order`.
fn sorted_by(mut items: Vec<Value>, key: &str, order: &[Value]) -> Vec<Value> {
    items.sort_by_key(|item| order.iter().position(|identity| item.get(key) == Some(identity)));
    items
}

fn take_prefixed(patch: &mut Map<String, Value>, prefix: &str) -> Vec<(String, Vec<Value>)> {
    let names: Vec<String> = patch.keys().filter(|k| k.starts_with(prefix)).cloned().collect();
    names
        .into_iter()
        .filter_map(|name| match patch.remove(&name)? {
            Value::Array(items) => Some((name[prefix.len()..].to_owned(), items)),
            _ => None,
        })
        .collect()
}

fn unknown_directive(directive: &str) -> ApiError {
    ApiError::bad_request(format!("Unknown patch type found: {directive}"))
}
