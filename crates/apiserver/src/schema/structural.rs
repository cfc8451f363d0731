//! Whether a schema is structural. A real server refuses other definitions: every field must have a type, and `allOf`,
//! `anyOf`, `oneOf` and `not` must only validate what is declared outside of them.
//!
//! Texts and paths are those of a real server. It also refuses what such a validation names and nothing declares, and
//! most of what a schema says of `metadata`; neither is checked here.

use serde_json::{Value, json};

use crate::status::FieldError;

/// Where a node is in its schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Field,
    Item,
}

/// What must not be below `allOf`, `anyOf`, `oneOf` and `not`, and what it must be instead.
const NOT_NESTED: &[(&str, &str)] = &[
    ("additionalProperties", "undefined"),
    ("default", "undefined"),
    ("description", "empty"),
    ("nullable", "false"),
    ("title", "empty"),
    ("type", "empty"),
    ("x-kubernetes-embedded-resource", "false"),
    ("x-kubernetes-int-or-string", "false"),
    ("x-kubernetes-list-map-keys", "empty"),
    ("x-kubernetes-list-type", "undefined"),
    ("x-kubernetes-preserve-unknown-fields", "false"),
];

/// What is wrong with the schema at `path`, which [`Schema::parse`](super::Schema::parse) must have read.
pub(crate) fn check(schema: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    unsupported(schema, path, &mut errors);
    // A real server cannot ask more of a schema that refers to another.
    if !errors.iter().any(|error| error.path.ends_with(".$ref")) {
        declared(schema, Level::Root, path, &mut errors);
    }
    errors.sort_by_cached_key(ToString::to_string);
    errors
}

/// Keywords that Kubernetes does not have, and keys of lists that an item may lack.
fn unsupported(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut forbid = |keyword: &str, why: &str| {
        errors.push(FieldError::forbidden(format!("{path}.{keyword}"), why));
    };
    if !text(schema, "$ref").is_empty() {
        forbid("$ref", "$ref is not supported");
    }
    if schema["uniqueItems"] == true {
        let why =
            "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        forbid("uniqueItems", why);
    }
    let additional = &schema["additionalProperties"];
    if properties(schema).next().is_some() && (additional.is_object() || *additional == false) {
        let why = "additionalProperties and properties are mutual exclusive";
        forbid("additionalProperties", why);
    }
    if schema["x-kubernetes-list-type"] == "map" {
        keys(schema, path, errors);
    }
    for (child, _, path) in all_children(schema, path) {
        unsupported(child, &path, errors);
    }
    for keyword in ["allOf", "anyOf", "oneOf"] {
        for (i, branch) in schema[keyword].as_array().into_iter().flatten().enumerate() {
            unsupported(branch, &format!("{path}.{keyword}[{i}]"), errors);
        }
    }
    if !schema["not"].is_null() {
        unsupported(&schema["not"], &format!("{path}.not"), errors);
    }
}

/// The keys of a list of type `map` must be fields that every item has.
fn keys(list: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let (items, given) = (&list["items"], &list["x-kubernetes-list-map-keys"]);
    for key in given.as_array().into_iter().flatten().filter_map(Value::as_str) {
        let field = &items["properties"][key];
        let required = items["required"].as_array().is_some_and(|all| all.contains(&json!(key)));
        if field.is_null() {
            let rule = "entries must all be names of item properties";
            let path = format!("{path}.x-kubernetes-list-map-keys");
            errors.push(FieldError::invalid(path, given.clone(), rule));
        } else if !required && field["default"].is_null() {
            let rule = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            let path = format!("{path}.items.properties[{key}].default");
            errors.push(FieldError::required(path, rule));
        }
    }
}

/// A node that declares what an object has.
fn declared(schema: &Value, level: Level, path: &str, errors: &mut Vec<FieldError>) {
    let kind = text(schema, "type");
    let is = |keyword: &str| schema[keyword] == true;
    let at = |keyword: &str| format!("{path}.{keyword}");
    let embedded = is("x-kubernetes-embedded-resource");
    let mixed = is("x-kubernetes-int-or-string");
    let open = is("x-kubernetes-preserve-unknown-fields");
    if kind == "array" && schema["items"].is_null() {
        errors.push(FieldError::required(at("items"), "must be specified"));
    }
    if embedded && kind != "object" {
        let rule = "must be object if x-kubernetes-embedded-resource is true";
        errors.push(match kind {
            "" => FieldError::required(at("type"), rule),
            kind => FieldError::invalid(at("type"), kind, rule),
        });
    } else if kind.is_empty() && !mixed && !open {
        let rule = match level {
            Level::Root => "must not be empty at the root",
            Level::Field => "must not be empty for specified object fields",
            Level::Item => "must not be empty for specified array items",
        };
        errors.push(FieldError::required(at("type"), rule));
    }
    if level == Level::Root {
        if !matches!(kind, "" | "object") {
            errors.push(FieldError::invalid(at("type"), kind, "must be object at the root"));
        }
        if !schema["additionalProperties"].is_null() {
            let rule = "must not be used at the root";
            errors.push(FieldError::forbidden(at("additionalProperties"), rule));
        }
    }
    if embedded && !open && properties(schema).next().is_none() {
        let rule = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        errors.push(FieldError::required(at("properties"), rule));
    }
    if mixed {
        let rule = "must be false if x-kubernetes-int-or-string is true";
        for keyword in ["x-kubernetes-embedded-resource", "x-kubernetes-preserve-unknown-fields"] {
            if is(keyword) {
                errors.push(FieldError::invalid(at(keyword), true, rule));
            }
        }
    }
    let (in_any_of, in_all_of) = (is_mixed(schema), is_mixed(&schema["allOf"][0]));
    validations(schema, in_any_of, in_all_of, path, errors);
    for (child, level, path) in all_children(schema, path) {
        declared(child, level, &path, errors);
    }
}

/// The one use of types in `anyOf` that is allowed.
fn is_mixed(schema: &Value) -> bool {
    schema["anyOf"] == json!([{"type": "integer"}, {"type": "string"}])
}

/// What only validates, below a node. Types may be in its `anyOf`, or in that of the first of its `allOf`.
fn validations(
    schema: &Value,
    in_any_of: bool,
    in_all_of: bool,
    path: &str,
    errors: &mut Vec<FieldError>,
) {
    for keyword in ["allOf", "anyOf", "oneOf"] {
        if keyword == "anyOf" && in_any_of {
            continue;
        }
        let branches = schema[keyword].as_array().into_iter().flatten();
        for (i, branch) in branches.enumerate() {
            let may_have_types = keyword == "allOf" && in_all_of && i == 0;
            nested(branch, may_have_types, &format!("{path}.{keyword}[{i}]"), errors);
        }
    }
    if !schema["not"].is_null() {
        nested(&schema["not"], false, &format!("{path}.not"), errors);
    }
}

/// A node that only validates.
fn nested(schema: &Value, may_have_types: bool, path: &str, errors: &mut Vec<FieldError>) {
    validations(schema, may_have_types, false, path, errors);
    for (keyword, state) in NOT_NESTED {
        let found = &schema[*keyword];
        let is_unset = match found {
            Value::Null => true,
            Value::Bool(false) => *state != "undefined",
            Value::String(text) => *state != "undefined" && text.is_empty(),
            Value::Array(items) => *state != "undefined" && items.is_empty(),
            _ => false,
        };
        if !is_unset {
            let rule = format!("must be {state} to be structural");
            errors.push(FieldError::forbidden(format!("{path}.{keyword}"), rule));
        }
    }
    if properties(schema).any(|(name, _)| name == "metadata") {
        let path = format!("{path}.properties[metadata]");
        errors.push(FieldError::forbidden(path, "must not be specified in a nested context"));
    }
    for (child, _, path) in children(schema, path) {
        nested(child, false, &path, errors);
    }
}

/// A schema below a node, with its level and path.
type Child<'a> = (&'a Value, Level, String);

/// The schemas of a node's fields and items, and of the values of a map.
fn all_children<'a>(schema: &'a Value, path: &'a str) -> impl Iterator<Item = Child<'a>> {
    children(schema, path).chain(child(schema, path, "additionalProperties", Level::Field))
}

/// The schemas of a node's fields and items.
fn children<'a>(schema: &'a Value, path: &'a str) -> impl Iterator<Item = Child<'a>> {
    let field = move |(name, field): (&'a String, &'a Value)| {
        (field, Level::Field, format!("{path}.properties[{name}]"))
    };
    properties(schema).map(field).chain(child(schema, path, "items", Level::Item))
}

fn child<'a>(schema: &'a Value, path: &str, keyword: &str, level: Level) -> Option<Child<'a>> {
    let found = &schema[keyword];
    found.is_object().then(|| (found, level, format!("{path}.{keyword}")))
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema["properties"].as_object().into_iter().flatten()
}

fn text<'a>(schema: &'a Value, keyword: &str) -> &'a str {
    schema[keyword].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::Schema;
    use super::*;

    /// What is wrong with a schema whose `properties[spec]` is this one.
    fn wrong(spec: &Value) -> String {
        let schema = json!({"type": "object", "properties": {"spec": spec}});
        assert!(Schema::parse(&schema).is_ok(), "{schema}");
        let texts: Vec<String> = check(&schema, "_").iter().map(ToString::to_string).collect();
        texts.join("; ").replace("_.properties[spec]", "")
    }

    #[test]
    fn what_a_real_server_accepts() {
        let mixed = json!([{"type": "integer"}, {"type": "string"}]);
        let item = json!({"type": "object", "required": ["id"],
            "properties": {"id": {"type": "string"}}});
        for spec in [
            json!({"type": "object", "properties": {"a": {"type": "string"}}}),
            json!({"type": "object", "additionalProperties": {"type": "string"}}),
            json!({"type": "array", "items": {"type": "object"}}),
            json!({"x-kubernetes-preserve-unknown-fields": true}),
            json!({"x-kubernetes-int-or-string": true}),
            json!({"x-kubernetes-int-or-string": true, "anyOf": mixed}),
            json!({"x-kubernetes-int-or-string": true, "allOf": [{"anyOf": mixed}]}),
            json!({"type": "object", "oneOf": [{"required": ["a"]}, {"properties": {"a": {}}}]}),
            json!({"type": "object", "x-kubernetes-embedded-resource": true,
                "x-kubernetes-preserve-unknown-fields": true}),
            json!({"type": "array", "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["id"], "items": item}),
        ] {
            assert_eq!(wrong(&spec), "", "{spec}");
        }
    }

    #[test]
    fn what_a_real_server_refuses() {
        let text = json!({"type": "string"});
        for (spec, expected) in [
            (
                json!({"type": "object", "properties": {"a": {}}}),
                ".properties[a].type: Required value: must not be empty for specified object \
                 fields",
            ),
            (
                json!({"type": "object", "additionalProperties": {}}),
                ".additionalProperties.type: Required value: must not be empty for specified \
                 object fields",
            ),
            (
                json!({"type": "array", "items": {}}),
                ".items.type: Required value: must not be empty for specified array items",
            ),
            (json!({"type": "array"}), ".items: Required value: must be specified"),
            (
                json!({"type": "object", "anyOf": [{"type": "object", "description": "one"}]}),
                ".anyOf[0].description: Forbidden: must be empty to be structural; \
                 .anyOf[0].type: Forbidden: must be empty to be structural",
            ),
            (
                json!({"type": "object", "not": {"properties": {"a": {"default": false}}}}),
                ".not.properties[a].default: Forbidden: must be undefined to be structural",
            ),
            (
                json!({"type": "array", "uniqueItems": true, "items": {}}),
                ".items.type: Required value: must not be empty for specified array items; \
                 .uniqueItems: Forbidden: uniqueItems cannot be set to true since the runtime \
                 complexity becomes quadratic",
            ),
            // Of a schema that refers to another, nothing else is named.
            (
                json!({"type": "object", "properties": {"a": {}}, "not": {"$ref": "#/b"}}),
                ".not.$ref: Forbidden: $ref is not supported",
            ),
            (
                json!({"type": "object", "properties": {"a": text}, "additionalProperties": false}),
                ".additionalProperties: Forbidden: additionalProperties and properties are mutual \
                 exclusive",
            ),
            (
                json!({"type": "array", "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["id"],
                    "items": {"type": "object", "properties": {"id": text}}}),
                ".items.properties[id].default: Required value: this property is in \
                 x-kubernetes-list-map-keys, so it must have a default or be a required property",
            ),
        ] {
            assert_eq!(wrong(&spec), expected, "{spec}");
        }
        let errors = check(&json!({"type": "array", "items": text}), "_");
        let expected = "_.type: Invalid value: \"array\": must be object at the root";
        assert_eq!(errors[0].to_string(), expected);
    }
}
