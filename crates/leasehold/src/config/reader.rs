//! Reads sections of a parsed file, and notes every problem instead of stopping at the first.
//!
//! A [`Section`] knows its path and which keys were read, so that [`Section::finish`] can name the
//! unknown keys and suggest a similar known one.

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::problem::Problem;

/// Reads one value: the value itself, or what would be allowed instead.
pub(super) trait Read<T>: Fn(&Value) -> Result<T, String> {}

impl<T, F: Fn(&Value) -> Result<T, String>> Read<T> for F {}

/// Where problems are noted.
#[derive(Debug, Default)]
pub(super) struct Notes(RefCell<Vec<Problem>>);

/// One mapping of the file.
#[derive(Debug)]
pub(super) struct Section<'a> {
    path: String,
    map: Option<&'a Map<String, Value>>,
    asked: RefCell<Vec<&'static str>>,
    notes: &'a Notes,
}

impl Notes {
    /// Notes a problem.
    pub(super) fn add(&self, problem: Problem) {
        self.0.borrow_mut().push(problem);
    }

    /// All problems noted.
    pub(super) fn into_problems(self) -> Vec<Problem> {
        self.0.into_inner()
    }
}

impl<'a> Section<'a> {
    /// The file's outermost mapping.
    pub(super) fn root(value: &'a Value, notes: &'a Notes) -> Self {
        Self::new(String::new(), value, notes)
    }

    /// `value` as a section; nothing counts as an empty one, anything else is a problem.
    pub(super) fn new(path: String, value: &'a Value, notes: &'a Notes) -> Self {
        let map = value.as_object();
        if map.is_none() && !value.is_null() {
            notes.add(Problem::value(&path, value, "a section with keys of its own"));
        }
        Self { path, map, asked: RefCell::default(), notes }
    }

    /// The path of a key of this section.
    pub(super) fn path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Whether the file says anything under `key`.
    pub(super) fn has(&self, key: &'static str) -> bool {
        self.raw(key).is_some()
    }

    /// Notes a problem with a key of this section.
    pub(super) fn problem(&self, key: &str, message: impl Into<String>) {
        self.notes.add(Problem::new(self.path(key), message));
    }

    /// The value under `key`, if it is there and allowed.
    pub(super) fn value<T>(&self, key: &'static str, read: impl Read<T>) -> Option<T> {
        let found = self.raw(key)?;
        self.read(&self.path(key), found, read)
    }

    /// As [`Section::value`], with `default` for an absent key: `None` means that the value is not
    /// allowed.
    pub(super) fn value_or<T>(
        &self,
        key: &'static str,
        read: impl Read<T>,
        default: T,
    ) -> Option<T> {
        if self.has(key) { self.value(key, read) } else { Some(default) }
    }

    /// The values of the list under `key`, those that are allowed.
    pub(super) fn list<T>(&self, key: &'static str, read: impl Read<T>) -> Option<Vec<T>> {
        let items = self.items(key)?;
        Some(items.into_iter().filter_map(|(path, item)| self.read(&path, item, &read)).collect())
    }

    /// The values of the section under `key`, under any names, those that are allowed.
    pub(super) fn values<T>(&self, key: &'static str, read: impl Read<T>) -> BTreeMap<String, T> {
        let section = self.section(key);
        let entries = section.map.into_iter().flatten();
        let pair = |(name, value): (&String, &Value)| {
            let path = section.path(name);
            Some((name.clone(), self.read(&path, value, &read)?))
        };
        entries.filter_map(pair).collect()
    }

    /// The section under `key`; an empty one if the file has none.
    pub(super) fn section(&self, key: &'static str) -> Section<'a> {
        Section::new(self.path(key), self.raw(key).unwrap_or(&Value::Null), self.notes)
    }

    /// The sections of the list under `key`.
    pub(super) fn sections(&self, key: &'static str) -> Vec<Section<'a>> {
        let items = self.items(key).unwrap_or_default();
        items.into_iter().map(|(path, item)| Section::new(path, item, self.notes)).collect()
    }

    /// The sections of this one, under any names.
    pub(super) fn named(&self) -> Vec<(&'a str, Section<'a>)> {
        let entries = self.map.into_iter().flatten();
        entries
            .map(|(name, value)| (name.as_str(), Section::new(self.path(name), value, self.notes)))
            .collect()
    }

    /// Notes every key that was not read.
    pub(super) fn finish(self) {
        let asked = self.asked.take();
        for key in self.map.into_iter().flat_map(Map::keys) {
            if !asked.contains(&key.as_str()) {
                self.notes.add(Problem::new(self.path(key), unknown(key, &asked)));
            }
        }
    }

    fn raw(&self, key: &'static str) -> Option<&'a Value> {
        let mut asked = self.asked.borrow_mut();
        if !asked.contains(&key) {
            asked.push(key);
        }
        self.map?.get(key).filter(|value| !value.is_null())
    }

    fn items(&self, key: &'static str) -> Option<Vec<(String, &'a Value)>> {
        let found = self.raw(key)?;
        let path = self.path(key);
        let Some(items) = found.as_array() else {
            self.notes.add(Problem::value(&path, found, "a list"));
            return None;
        };
        Some(items.iter().enumerate().map(|(n, item)| (format!("{path}[{n}]"), item)).collect())
    }

    fn read<T>(&self, path: &str, found: &Value, read: impl Read<T>) -> Option<T> {
        let value = read(found);
        value.map_err(|allowed| self.notes.add(Problem::value(path, found, &allowed))).ok()
    }
}

/// The message for an unknown key.
pub(super) fn unknown(key: &str, known: &[&str]) -> String {
    let known_text = known.join(", ");
    match nearest(key, known) {
        Some(near) => format!("unknown key; did you mean {near}? Known here: {known_text}"),
        None => format!("unknown key; known here: {known_text}"),
    }
}

/// The known key that is most similar to `key`.
fn nearest<'k>(key: &str, known: &[&'k str]) -> Option<&'k str> {
    // Case and separators do not count: drain_timeout is drainTimeout.
    let plain = |text: &str| text.replace(['_', '-'], "").to_lowercase();
    let wanted = plain(key);
    let distance = |known: &str| strsim::damerau_levenshtein(&wanted, &plain(known));
    let best = known.iter().min_by_key(|known| distance(known))?;
    let tolerated = (wanted.chars().count() / 3).clamp(1, 3);
    (distance(best) <= tolerated).then_some(*best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_near_miss_gets_a_suggestion() {
        let known = ["controllers", "drainTimeout", "home", "admin"];
        for (key, expect) in [
            ("controlers", Some("controllers")),
            ("drain_timeout", Some("drainTimeout")),
            ("Home", Some("home")),
            ("amdin", Some("admin")),
            ("hoem", Some("home")),
            ("replicas", None),
            ("x", None),
        ] {
            assert_eq!(nearest(key, &known), expect, "{key}");
        }
    }
}
