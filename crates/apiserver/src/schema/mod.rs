//! Structural schemas of custom resources: what a `CustomResourceDefinition` says about its
//! objects.
//!
//! In data order: [`Schema::parse`] reads `openAPIV3Schema`; a written object is
//! [pruned](Schema::prune) of unknown fields, [defaulted](Schema::apply_defaults), then
//! [validated](Schema::validate).
//!
//! A definition with a schema that is not [`structural`] is refused.
//!
//! Owns the rules and the texts, which are those of a real API server because clients match on
//! them. Does not own the CRD's lifecycle or the HTTP answer. `x-kubernetes-validations` (CEL) is
//! skipped: its rules do not protect objects of this server.
//!
//! # Invariants
//! - Pure: no IO, no clock; a schema never changes after parsing.
//! - Pruning and defaulting are idempotent.
//! - Object metadata belongs to the server. As in Kubernetes, whatever a schema says about it
//!   besides `name` and `generateName` is ignored.

mod defaults;
mod format;
mod parse;
mod prune;
pub(crate) mod structural;
#[cfg(test)]
mod tests;
mod validate;

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::Value;

/// One node of a structural schema.
#[derive(Debug, Clone, Default)]
pub struct Schema {
    /// `None` where the schema leaves the type open.
    pub(crate) kind: Option<Type>,
    /// `x-kubernetes-int-or-string`.
    pub(crate) int_or_string: bool,
    /// Whether `null` is a valid value.
    pub(crate) nullable: bool,
    /// `x-kubernetes-preserve-unknown-fields`.
    pub(crate) preserve_unknown_fields: bool,
    /// `x-kubernetes-embedded-resource`.
    pub(crate) embedded_resource: bool,
    /// Declared fields.
    pub(crate) properties: BTreeMap<String, Schema>,
    /// Schema of the other fields, where they are allowed.
    pub(crate) additional: Option<Additional>,
    /// Schema of list items.
    pub(crate) items: Option<Box<Schema>>,
    /// Value of an absent field.
    pub(crate) default: Option<Value>,
    /// `x-kubernetes-list-type` with its keys.
    pub(crate) list_type: ListType,
    /// `x-kubernetes-map-type: atomic`.
    pub(crate) map_atomic: bool,
    /// Everything that only validates.
    pub(crate) rules: Rules,
}

/// A JSON type, as in schemas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

/// `additionalProperties`.
#[derive(Debug, Clone)]
pub(crate) enum Additional {
    /// `true`: anything is allowed, and nothing below is pruned.
    Any,
    /// Every other field follows this schema.
    Schema(Box<Schema>),
}

/// How the items of a list are identified.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum ListType {
    /// The list is one value.
    #[default]
    Atomic,
    /// Unique scalars.
    Set,
    /// Unique objects, by these fields.
    Map(Vec<String>),
}

/// Constraints that change nothing about an object's shape.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rules {
    pub(crate) required: Vec<String>,
    pub(crate) minimum: Option<Bound>,
    pub(crate) maximum: Option<Bound>,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) min_length: Option<u64>,
    pub(crate) max_length: Option<u64>,
    pub(crate) pattern: Option<Pattern>,
    pub(crate) format: Option<String>,
    pub(crate) min_items: Option<u64>,
    pub(crate) max_items: Option<u64>,
    pub(crate) unique_items: bool,
    pub(crate) min_properties: Option<u64>,
    pub(crate) max_properties: Option<u64>,
    pub(crate) choices: Vec<Value>,
    pub(crate) all_of: Vec<Schema>,
    pub(crate) any_of: Vec<Schema>,
    pub(crate) one_of: Vec<Schema>,
    pub(crate) not: Option<Box<Schema>>,
}

/// A numeric limit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Bound {
    pub(crate) value: f64,
    pub(crate) exclusive: bool,
}

/// A regular expression, compiled once.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    pub(crate) text: String,
    /// Why it cannot be compiled, if it cannot. Values then fail with that reason, as on a real
    /// server.
    pub(crate) regex: Result<Regex, String>,
}

// === impl Type ===

impl Type {
    /// Its word in schemas and error texts.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

// === impl Schema ===

impl Schema {
    /// The schema of a named field, declared or additional.
    pub(crate) fn field(&self, name: &str) -> Option<&Schema> {
        self.properties.get(name).or(match &self.additional {
            Some(Additional::Schema(schema)) => Some(schema),
            Some(Additional::Any) | None => None,
        })
    }

    /// Whether fields without a schema are kept.
    pub(crate) fn keeps_unknown_fields(&self) -> bool {
        self.preserve_unknown_fields || matches!(&self.additional, Some(Additional::Any))
    }
}
