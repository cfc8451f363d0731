//! Parses `openAPIV3Schema` into a [`Schema`]. Unknown keywords are skipped: a real server refuses
//! them when the CRD is created, and we need none of them.

use regex::Regex;
use serde_json::{Map, Value};

use super::{Additional, Bound, ListType, Pattern, Rules, Schema, Type};

/// How deep schemas may nest, because recursion must end.
const MAX_DEPTH: usize = 64;

/// Why a schema cannot be used. Paths start at the schema itself, such as `properties[spec].type`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// A keyword has a value of the wrong shape.
    #[error("schema {path}: expected {expected}")]
    Shape {
        /// Where.
        path: String,
        /// What is expected there.
        expected: &'static str,
    },
    /// `type` is not a JSON type.
    #[error("schema {path}: unsupported type {found:?}")]
    UnknownType {
        /// Where.
        path: String,
        /// What was written.
        found: String,
    },
    /// `x-kubernetes-list-type` is unknown, or `map` without keys.
    #[error("schema {path}: unsupported list type {found:?}")]
    ListType {
        /// Where.
        path: String,
        /// What was written.
        found: String,
    },
    /// It is nested too deeply.
    #[error("schema {path}: nested more than {MAX_DEPTH} levels deep")]
    TooDeep {
        /// Where.
        path: String,
    },
}

impl Schema {
    /// Reads the `openAPIV3Schema` of a CRD version.
    pub fn parse(source: &Value) -> Result<Self, ParseError> {
        Node { source, path: String::new(), depth: 0 }.schema()
    }
}

/// A schema object being read, with its path for messages.
struct Node<'a> {
    source: &'a Value,
    path: String,
    depth: usize,
}

impl<'a> Node<'a> {
    fn schema(&self) -> Result<Schema, ParseError> {
        if self.depth > MAX_DEPTH {
            return Err(ParseError::TooDeep { path: self.path.clone() });
        }
        let map = self.map()?;
        Ok(Schema {
            kind: self.kind(map)?,
            int_or_string: flag(map, "x-kubernetes-int-or-string"),
            nullable: flag(map, "nullable"),
            preserve_unknown_fields: flag(map, "x-kubernetes-preserve-unknown-fields"),
            embedded_resource: flag(map, "x-kubernetes-embedded-resource"),
            properties: self
                .entries("properties")?
                .map(|(name, node)| Ok((name.to_owned(), node.schema()?)))
                .collect::<Result<_, ParseError>>()?,
            additional: self.additional(map)?,
            items: self.child("items").map(|node| node.schema().map(Box::new)).transpose()?,
            default: map.get("default").cloned(),
            list_type: self.list_type(map)?,
            map_atomic: text(map, "x-kubernetes-map-type") == Some("atomic"),
            rules: self.rules(map)?,
        })
    }

    fn map(&self) -> Result<&'a Map<String, Value>, ParseError> {
        self.source.as_object().ok_or_else(|| self.shape("", "an object"))
    }

    fn shape(&self, keyword: &str, expected: &'static str) -> ParseError {
        ParseError::Shape { path: self.join(keyword), expected }
    }

    fn join(&self, keyword: &str) -> String {
        match (self.path.as_str(), keyword) {
            ("", keyword) => keyword.to_owned(),
            (path, "") => path.to_owned(),
            (path, keyword) => format!("{path}.{keyword}"),
        }
    }

    fn child(&self, keyword: &str) -> Option<Node<'a>> {
        let source = self.source.get(keyword)?;
        Some(Node { source, path: self.join(keyword), depth: self.depth + 1 })
    }

    fn entries(
        &self,
        keyword: &'static str,
    ) -> Result<impl Iterator<Item = (&'a str, Node<'a>)>, ParseError> {
        static EMPTY: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
        let entries = match self.source.get(keyword) {
            None | Some(Value::Null) => &*EMPTY,
            Some(Value::Object(entries)) => entries,
            Some(_) => return Err(self.shape(keyword, "an object of schemas")),
        };
        let (path, depth) = (self.join(keyword), self.depth + 1);
        Ok(entries.iter().map(move |(name, source)| {
            (name.as_str(), Node { source, path: format!("{path}[{name}]"), depth })
        }))
    }

    fn list(&self, keyword: &'static str) -> Result<Vec<Schema>, ParseError> {
        let items = match self.source.get(keyword) {
            None | Some(Value::Null) => return Ok(Vec::new()),
            Some(Value::Array(items)) => items,
            Some(_) => return Err(self.shape(keyword, "a list of schemas")),
        };
        let path = self.join(keyword);
        items
            .iter()
            .enumerate()
            .map(|(i, source)| {
                Node { source, path: format!("{path}[{i}]"), depth: self.depth + 1 }.schema()
            })
            .collect()
    }

    fn kind(&self, map: &Map<String, Value>) -> Result<Option<Type>, ParseError> {
        Ok(Some(match text(map, "type") {
            None | Some("") => return Ok(None),
            Some("object") => Type::Object,
            Some("array") => Type::Array,
            Some("string") => Type::String,
            Some("integer") => Type::Integer,
            Some("number") => Type::Number,
            Some("boolean") => Type::Boolean,
            Some(other) => {
                return Err(ParseError::UnknownType {
                    path: self.join("type"),
                    found: other.to_owned(),
                });
            }
        }))
    }

    fn additional(&self, map: &Map<String, Value>) -> Result<Option<Additional>, ParseError> {
        Ok(match map.get("additionalProperties") {
            None | Some(Value::Null | Value::Bool(false)) => None,
            Some(Value::Bool(true)) => Some(Additional::Any),
            Some(source) => {
                let node =
                    Node { source, path: self.join("additionalProperties"), depth: self.depth + 1 };
                Some(Additional::Schema(Box::new(node.schema()?)))
            }
        })
    }

    fn list_type(&self, map: &Map<String, Value>) -> Result<ListType, ParseError> {
        let keys = strings(map, "x-kubernetes-list-map-keys");
        match text(map, "x-kubernetes-list-type") {
            None | Some("atomic") => Ok(ListType::Atomic),
            Some("set") => Ok(ListType::Set),
            Some("map") if !keys.is_empty() => Ok(ListType::Map(keys)),
            Some(other) => Err(ParseError::ListType {
                path: self.join("x-kubernetes-list-type"),
                found: other.to_owned(),
            }),
        }
    }

    fn rules(&self, map: &Map<String, Value>) -> Result<Rules, ParseError> {
        let bound = |limit: &str, exclusive: &str| {
            map.get(limit)
                .and_then(Value::as_f64)
                .map(|value| Bound { value, exclusive: flag(map, exclusive) })
        };
        Ok(Rules {
            required: strings(map, "required"),
            minimum: bound("minimum", "exclusiveMinimum"),
            maximum: bound("maximum", "exclusiveMaximum"),
            multiple_of: map.get("multipleOf").and_then(Value::as_f64),
            min_length: count(map, "minLength"),
            max_length: count(map, "maxLength"),
            pattern: text(map, "pattern").filter(|p| !p.is_empty()).map(Pattern::compile),
            format: text(map, "format").filter(|f| !f.is_empty()).map(str::to_owned),
            min_items: count(map, "minItems"),
            max_items: count(map, "maxItems"),
            unique_items: flag(map, "uniqueItems"),
            min_properties: count(map, "minProperties"),
            max_properties: count(map, "maxProperties"),
            choices: map.get("enum").and_then(Value::as_array).cloned().unwrap_or_default(),
            all_of: self.list("allOf")?,
            any_of: self.list("anyOf")?,
            one_of: self.list("oneOf")?,
            not: self.child("not").map(|node| node.schema().map(Box::new)).transpose()?,
        })
    }
}

// === impl Pattern ===

impl Pattern {
    fn compile(text: &str) -> Self {
        Self { text: text.to_owned(), regex: Regex::new(text).map_err(|e| e.to_string()) }
    }
}

fn flag(map: &Map<String, Value>, keyword: &str) -> bool {
    map.get(keyword).and_then(Value::as_bool).unwrap_or(false)
}

fn text<'a>(map: &'a Map<String, Value>, keyword: &str) -> Option<&'a str> {
    map.get(keyword).and_then(Value::as_str)
}

fn count(map: &Map<String, Value>, keyword: &str) -> Option<u64> {
    map.get(keyword).and_then(Value::as_u64)
}

fn strings(map: &Map<String, Value>, keyword: &str) -> Vec<String> {
    let items = map.get(keyword).and_then(Value::as_array);
    items.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}
