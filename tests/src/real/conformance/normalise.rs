//! Makes the answers of two servers comparable: values that must differ between them (uids,
//! versions, times, tokens) are replaced by words that are the same in both; equal values get equal
//! words. Pure.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Remembers what it has seen. One must be used for all answers of a sequence, in order.
#[derive(Debug, Default)]
pub struct Normaliser {
    /// The word of each value, by kind and value.
    words: BTreeMap<(&'static str, String), String>,
    /// How many words there are of each kind.
    counts: BTreeMap<&'static str, usize>,
}

/// Keys whose values are times of the server's clock.
const MOMENTS: [&str; 5] =
    ["creationTimestamp", "deletionTimestamp", "expirationTimestamp", "lastTransitionTime", "time"];

/// Keys whose values a server assigns from pools of its own.
const ASSIGNED: [&str; 4] = ["clusterIP", "clusterIPs", "nodePort", "serverAddress"];

/// The words that precede the server's own version in the text of a refusal.
const PRESENT_VERSION: &str = "current: ";

impl Normaliser {
    /// The answer, with each value replaced that must differ.
    pub fn normalise(&mut self, mut outcome: Value) -> Value {
        self.visit(&mut outcome);
        outcome
    }

    fn visit(&mut self, value: &mut Value) {
        match value {
            Value::Object(object) => self.visit_object(object),
            Value::Array(items) => {
                items.retain(|item| !is_plain_bookmark(item));
                items.iter_mut().for_each(|item| self.visit(item));
            }
            _ => {}
        }
    }

    fn visit_object(&mut self, object: &mut Map<String, Value>) {
        generated_name(object);
        let list = object.get("items").is_some_and(Value::is_array);
        let bookmark = object.get("type").is_some_and(|kind| kind == "BOOKMARK");
        if list && let Some(metadata) = object.get_mut("metadata") {
            forget_version(metadata);
        }
        if bookmark
            && let Some(metadata) = object.get_mut("object").and_then(|o| o.get_mut("metadata"))
        {
            forget_version(metadata);
        }
        let is_status = object.get("kind").is_some_and(|kind| kind == "Status");
        if is_status {
            sort_causes(object);
        }
        for (key, value) in object.iter_mut() {
            match key.as_str() {
                "uid" => self.name("uid", value),
                "resourceVersion" => self.name("version", value),
                "continue" | "token" => replace(value, "<token>"),
                // One for each token that a server issues.
                "authentication.kubernetes.io/credential-id" => replace(value, "<id>"),
                key if MOMENTS.contains(&key) => replace(value, "<moment>"),
                key if ASSIGNED.contains(&key) => replace(value, "<assigned>"),
                "managedFields" => {
                    order_without_time(value);
                    self.visit(value);
                }
                "message" if is_status => self.rewrite(value),
                _ => self.visit(value),
            }
        }
    }

    /// Replaces a value by its word, the same each time.
    fn name(&mut self, kind: &'static str, value: &mut Value) {
        let Some(text) = value.as_str().filter(|text| !text.is_empty() && !text.starts_with('<'))
        else {
            return;
        };
        let key = (kind, text.to_owned());
        let word = match self.words.get(&key) {
            Some(word) => word.clone(),
            None => {
                let count = self.counts.entry(kind).or_default();
                *count += 1;
                let word = format!("<{kind} {count}>");
                self.words.insert(key, word.clone());
                word
            }
        };
        *value = Value::String(word);
    }

    /// Replaces values by their words in a text that quotes them.
    fn rewrite(&mut self, value: &mut Value) {
        let Some(text) = value.as_str() else { return };
        let mut text = text.to_owned();
        for ((kind, known), word) in &self.words {
            // A version without brackets might be part of another number.
            text = match *kind {
                "version" => text.replace(&format!("({known})"), &format!("({word})")),
                _ => text.replace(known.as_str(), word),
            };
        }
        if let Some((before, after)) = text.split_once(PRESENT_VERSION) {
            let rest = after.trim_start_matches(|c: char| c.is_ascii_digit());
            text = format!("{before}{PRESENT_VERSION}<version of the server>{rest}");
        }
        *value = Value::String(text);
    }
}

/// A real server lists several faults of one object in varying order, and once more in the text.
fn sort_causes(status: &mut Map<String, Value>) {
    let causes = status.get_mut("details").and_then(|details| details["causes"].as_array_mut());
    let Some(causes) = causes.filter(|causes| causes.len() > 1) else { return };
    causes.sort_by_cached_key(Value::to_string);
    if let Some(Value::String(message)) = status.get_mut("message")
        && let Some((before, _)) = message.split_once("is invalid: [")
    {
        *message = format!("{before}is invalid: <the causes>");
    }
}

/// Entries are ordered by operation, time, manager, version and subresource. Times are whole
/// seconds, so the order shows whether a second ended between two requests. Entries in the right
/// order are sorted without the time; others are marked.
fn order_without_time(managed: &mut Value) {
    const ORDER: [&str; 5] = ["operation", "time", "manager", "apiVersion", "subresource"];
    let key = |entry: &Value, fields: &[&str]| -> Vec<String> {
        fields.iter().map(|field| entry[field].as_str().unwrap_or_default().to_owned()).collect()
    };
    let Some(entries) = managed.as_array_mut() else { return };
    if entries.is_sorted_by_key(|entry| key(entry, &ORDER)) {
        let [operation, _, rest @ ..] = ORDER;
        let others = [&[operation][..], &rest].concat();
        entries.sort_by_cached_key(|entry| key(entry, &others));
    } else {
        entries.push(Value::from("<out of order>"));
    }
}

/// A bookmark that only says how far the watch is; a server sends it at any time.
fn is_plain_bookmark(event: &Value) -> bool {
    event["type"] == "BOOKMARK" && event["object"]["metadata"]["annotations"].is_null()
}

fn replace(value: &mut Value, word: &str) {
    let absent = value.is_null() || value.as_str().is_some_and(str::is_empty);
    if !absent {
        *value = Value::String(word.to_owned());
    }
}

/// A list has the version of the whole server, which others change too.
fn forget_version(metadata: &mut Value) {
    if let Some(version) = metadata.get_mut("resourceVersion") {
        replace(version, "<version of the server>");
    }
}

/// `generateName` adds random characters.
fn generated_name(metadata: &mut Map<String, Value>) {
    let prefix = metadata.get("generateName").and_then(Value::as_str).map(str::to_owned);
    if let (Some(prefix), Some(Value::String(name))) = (prefix, metadata.get_mut("name"))
        && let Some(suffix) = name.strip_prefix(&prefix)
    {
        *name = format!("{prefix}<{} characters>", suffix.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn equal_values_get_equal_words_in_texts_too() {
        let mut normaliser = Normaliser::default();
        let object = |uid: &str, version: &str| {
            json!({"kind": "Thing", "metadata": {
                "uid": uid, "resourceVersion": version, "creationTimestamp": "2026-01-01T00:00:00Z",
            }})
        };
        let first = normaliser.normalise(object("a-a", "1001"));
        assert_eq!(first["metadata"]["creationTimestamp"], "<moment>");
        let second = normaliser.normalise(object("a-a", "1002"));
        assert_eq!(first["metadata"]["uid"], second["metadata"]["uid"]);
        assert_ne!(first["metadata"]["resourceVersion"], second["metadata"]["resourceVersion"]);
        let refusal = json!({"kind": "Status", "message": "uid is a-a, version (1002)"});
        let refusal = normaliser.normalise(refusal);
        assert_eq!(refusal["message"], "uid is <uid 1>, version (<version 2>)");
    }

    #[test]
    fn causes_are_sorted() {
        let status = |causes: Value, message: &str| {
            let status = json!({
                "kind": "Status", "details": {"causes": causes}, "message": message,
            });
            Normaliser::default().normalise(status)
        };
        let (a, b) = (json!({"field": "a"}), json!({"field": "b"}));
        let first = status(json!([a, b]), "X \"x\" is invalid: [a: bad, b: bad]");
        assert_eq!(first, status(json!([b, a]), "X \"x\" is invalid: [b: bad, a: bad]"));
        assert_ne!(first, status(json!([a]), "X \"x\" is invalid: a: bad"));
    }

    #[test]
    fn versions_of_lists_bookmarks_and_generated_names_are_replaced() {
        let mut normaliser = Normaliser::default();
        let list = json!({"metadata": {"resourceVersion": "7", "continue": "abc"}, "items": []});
        let list = normaliser.normalise(list);
        assert_eq!(list["metadata"]["resourceVersion"], "<version of the server>");
        assert_eq!(list["metadata"]["continue"], "<token>");
        let mut bookmark = |annotations: Value| {
            let metadata = json!({"resourceVersion": "8", "annotations": annotations});
            normaliser.normalise(json!([{"type": "BOOKMARK", "object": {"metadata": metadata}}]))
        };
        let end = bookmark(json!({"k8s.io/initial-events-end": "true"}));
        let version = &end[0]["object"]["metadata"]["resourceVersion"];
        assert_eq!(version, "<version of the server>");
        assert_eq!(bookmark(Value::Null), json!([]));
        let object = json!({"metadata": {"generateName": "a-", "name": "a-x7k2p"}});
        assert_eq!(normaliser.normalise(object)["metadata"]["name"], "a-<5 characters>");
    }

    #[test]
    fn managers_are_compared_as_if_within_one_second() {
        let entry = |manager: &str, second: u32| json!({"operation": "Apply", "manager": manager, "time": format!("2026-01-01T00:00:0{second}Z")});
        let normalised = |entries: [Value; 2]| {
            Normaliser::default().normalise(json!({"managedFields": entries}))
        };
        let right = normalised([entry("a", 1), entry("b", 1)]);
        assert_eq!(right["managedFields"].as_array().unwrap().len(), 2);
        assert_eq!(normalised([entry("b", 1), entry("a", 2)]), right, "a second ended between");
        assert_ne!(normalised([entry("b", 1), entry("a", 1)]), right, "managers are out of order");
        assert_ne!(normalised([entry("a", 2), entry("b", 1)]), right, "times are out of order");
    }
}
