//! What is wrong with a field of an object, in the real server's words.

use std::fmt;

use serde_json::Value;

/// What is wrong with a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FieldErrorKind {
    /// It is missing.
    Required,
    /// It is well-formed, but wrong.
    Invalid,
    /// It has the wrong JSON type.
    TypeInvalid,
    /// It is twice in a set.
    Duplicate,
    /// It is not in the enumeration.
    NotSupported,
    /// It must not be set here.
    Forbidden,
    /// It has more bytes or characters than allowed.
    TooLong,
    /// It has more items than allowed.
    TooMany,
}

impl FieldErrorKind {
    fn title(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::Duplicate => "Duplicate value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
        }
    }

    /// Its word in the cause of a Status.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Duplicate => "FieldValueDuplicate",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
        }
    }

    fn shows_value(self) -> bool {
        !matches!(self, Self::Required | Self::Forbidden | Self::TooLong)
    }
}

/// One broken rule of an object, with the path of its field.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FieldError {
    /// For example `spec.ports[0].port`.
    pub path: String,
    /// What is wrong.
    pub kind: FieldErrorKind,
    /// The wrong value, shown if the kind of error shows one.
    pub value: Value,
    /// The rule, in words; may be empty.
    pub detail: String,
}

impl FieldError {
    /// Any error.
    pub fn new(
        kind: FieldErrorKind,
        path: impl Into<String>,
        value: impl Into<Value>,
        detail: impl Into<String>,
    ) -> Self {
        Self { path: path.into(), kind, value: value.into(), detail: detail.into() }
    }

    /// The field is well-formed and wrong.
    pub fn invalid(
        path: impl Into<String>,
        value: impl Into<Value>,
        detail: impl Into<String>,
    ) -> Self {
        Self::new(FieldErrorKind::Invalid, path, value, detail)
    }

    /// The field must be given.
    pub fn required(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Required, path, Value::Null, detail)
    }

    /// The field must not be given here.
    pub fn forbidden(path: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(FieldErrorKind::Forbidden, path, Value::Null, detail)
    }

    /// The value is outside an enumeration.
    pub fn not_supported(
        path: impl Into<String>,
        value: impl Into<Value>,
        supported: &[&str],
    ) -> Self {
        let list: Vec<String> = supported.iter().map(|v| format!("\"{v}\"")).collect();
        let detail = format!("supported values: {}", list.join(", "));
        Self::new(FieldErrorKind::NotSupported, path, value, detail)
    }

    /// The error without the path, as in a Status cause.
    pub fn message(&self) -> String {
        let mut text = self.kind.title().to_owned();
        if self.kind.shows_value() {
            text.push_str(": ");
            text.push_str(&shown(&self.value));
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message())
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        other => other.to_string(),
    }
}
