//! Failures as clients see them: `Status` objects with the reasons, codes, texts and details of a
//! real API server, because clients match on all four.
//!
//! Owns the vocabulary ([`ApiError`], [`Reason`], `FieldError`) and its JSON form. Owns no HTTP:
//! the `http` module turns an [`ApiError`] into a response.

mod field;
mod reason;

use std::fmt;

use serde_json::{Map, Value, json};

pub(crate) use field::{FieldError, FieldErrorKind};
pub use reason::Reason;

use crate::kinds::KindInfo;

/// One cause inside a Status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// For example `FieldValueInvalid` or `FieldManagerConflict`.
    pub reason: String,
    /// Human-readable, without the field's path.
    pub message: String,
    /// Path of the offending field, or empty.
    pub field: String,
}

/// The object of a failure.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Details {
    /// Object name, or empty.
    pub name: String,
    /// API group, or empty.
    pub group: String,
    /// Plural resource, or the kind for `Invalid`; empty where neither is known.
    pub kind: String,
    /// The object's uid, or empty.
    pub uid: String,
    /// Each separate cause.
    pub causes: Vec<Cause>,
    /// Hint for the client, in seconds; also sent as `Retry-After`.
    pub retry_after_seconds: Option<u32>,
}

/// A request that failed, in the terms of the Kubernetes API.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// HTTP status code.
    pub code: u16,
    /// Machine-readable reason.
    pub reason: Reason,
    /// Text for people; clients match on some of them.
    pub message: String,
    /// What it was about. Boxed: errors travel through every signature.
    pub details: Option<Box<Details>>,
    /// A token to continue with an inconsistent list, for expired pages only.
    pub continue_token: Option<Box<str>>,
}

// === impl ApiError ===

impl ApiError {
    /// An error with the reason's own code and no details.
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            code: reason.code(),
            reason,
            message: message.into(),
            details: None,
            continue_token: None,
        }
    }

    /// 400.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(Reason::BadRequest, message)
    }

    /// 401.
    pub(crate) fn unauthorized() -> Self {
        Self::new(Reason::Unauthorized, "Unauthorized")
    }

    /// 403 about one object.
    pub(crate) fn forbidden(kind: &KindInfo, name: &str, why: &str) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {why}", kind.group_resource());
        Self::new(Reason::Forbidden, message).about(kind, name)
    }

    /// 404 for an object.
    pub(crate) fn not_found(kind: &KindInfo, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", kind.group_resource());
        Self::new(Reason::NotFound, message).about(kind, name)
    }

    /// 404 for a path whose group and version exist and whose resource does not.
    pub(crate) fn no_such_resource() -> Self {
        Self {
            details: Some(Box::default()),
            ..Self::new(Reason::NotFound, "the server could not find the requested resource")
        }
    }

    /// 405.
    pub(crate) fn method_not_allowed() -> Self {
        Self {
            details: Some(Box::default()),
            ..Self::new(
                Reason::MethodNotAllowed,
                "the server does not allow this method on the requested resource",
            )
        }
    }

    /// 406 with the media types that can be produced, as for custom kinds.
    pub(crate) fn not_accepted(supported: &[&str]) -> Self {
        let message =
            format!("only the following media types are accepted: {}", supported.join(", "));
        Self::new(Reason::NotAcceptable, message)
    }

    /// 406 with the media types that can be produced, as for built-in kinds.
    pub(crate) fn not_acceptable(supported: &[&str]) -> Self {
        let message =
            format!("406: Not Acceptable\n\nAvailable representations: {}", supported.join(", "));
        Self { details: Some(Box::default()), ..Self::new(Reason::NotAcceptable, message) }
    }

    /// 409 because the name is taken.
    pub(crate) fn already_exists(kind: &KindInfo, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", kind.group_resource());
        Self::new(Reason::AlreadyExists, message).about(kind, name)
    }

    /// 409 because all generated names were taken.
    pub(crate) fn generated_name_exists(kind: &KindInfo, name: &str) -> Self {
        let message = format!(
            "{} \"{name}\" already exists, the server was not able to generate a unique name for the object",
            kind.group_resource()
        );
        Self::new(Reason::AlreadyExists, message).about(kind, name).retry_after(1)
    }

    /// 409 for any cause, in these words.
    pub(crate) fn conflict_because(kind: &KindInfo, name: &str, why: &str) -> Self {
        let message =
            format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.group_resource());
        Self::new(Reason::Conflict, message).about(kind, name)
    }

    /// 409 because the object has changed since the client read it.
    pub(crate) fn conflict(kind: &KindInfo, name: &str) -> Self {
        Self::conflict_because(
            kind,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 409 of server-side apply, one cause per contested field: `(manager text, field path)`.
    pub(crate) fn apply_conflict(causes: Vec<Cause>, message: impl Into<String>) -> Self {
        Self {
            details: Some(Box::new(Details { causes, ..Details::default() })),
            ..Self::new(Reason::Conflict, message)
        }
    }

    /// 410 in these words.
    pub(crate) fn expired(message: impl Into<String>) -> Self {
        Self::new(Reason::Expired, message)
    }

    /// 410 for a watch that starts before the event window.
    pub(crate) fn too_old(requested: u64, oldest: u64) -> Self {
        Self::expired(format!("too old resource version: {requested} ({oldest})"))
    }

    /// 504 for a resource version that the server has not reached.
    pub(crate) fn too_large_resource_version(requested: u64, current: u64) -> Self {
        let message =
            format!("Timeout: Too large resource version: {requested}, current: {current}");
        let cause = Cause {
            reason: "ResourceVersionTooLarge".into(),
            message: "Too large resource version".into(),
            field: String::new(),
        };
        let details =
            Details { causes: vec![cause], retry_after_seconds: Some(1), ..Details::default() };
        Self { details: Some(Box::new(details)), ..Self::new(Reason::Timeout, message) }
    }

    /// 413 in these words.
    pub(crate) fn too_large(message: impl Into<String>) -> Self {
        Self::new(Reason::RequestEntityTooLarge, message)
    }

    /// 415 without a list of media types, as for built-in kinds.
    pub(crate) fn unsupported_patch() -> Self {
        let message = "415: Unsupported Media Type";
        Self { details: Some(Box::default()), ..Self::new(Reason::UnsupportedMediaType, message) }
    }

    /// 415 with the accepted media types.
    pub(crate) fn unsupported_media_type(supported: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            supported.join(", ")
        );
        Self::new(Reason::UnsupportedMediaType, message)
    }

    /// 422 for an object of this kind. Errors keep their order.
    pub(crate) fn invalid(kind: &KindInfo, name: &str, errors: &[FieldError]) -> Self {
        Self::invalid_kind(&kind.group, &kind.kind, name, errors)
    }

    /// 422 for a kind that has no [`KindInfo`], such as `ListOptions`.
    pub(crate) fn invalid_kind(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let list = match texts.as_slice() {
            [] => "[]".to_owned(),
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let causes = errors
            .iter()
            .map(|e| Cause {
                reason: e.kind.reason().to_owned(),
                message: e.message(),
                field: e.path.clone(),
            })
            .collect();
        let details = Details {
            name: name.to_owned(),
            group: group.to_owned(),
            kind: kind.to_owned(),
            causes,
            ..Details::default()
        };
        let message = format!("{qualified} \"{name}\" is invalid: {list}");
        Self { details: Some(Box::new(details)), ..Self::new(Reason::Invalid, message) }
    }

    /// 500.
    pub(crate) fn internal(message: impl fmt::Display) -> Self {
        Self::new(Reason::InternalError, format!("Internal error occurred: {message}"))
    }

    /// 500 in these words, without a reason.
    pub(crate) fn unknown(message: impl Into<String>) -> Self {
        Self::new(Reason::Unknown, message)
    }

    /// Adds `Retry-After`.
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.details.get_or_insert_default().retry_after_seconds = Some(seconds);
        self
    }

    fn about(mut self, kind: &KindInfo, name: &str) -> Self {
        self.details = Some(Box::new(Details {
            name: name.to_owned(),
            group: kind.group.clone(),
            kind: kind.plural.clone(),
            ..Details::default()
        }));
        self
    }

    /// The `Status` object.
    pub(crate) fn to_status(&self) -> Value {
        let mut metadata = Map::new();
        if let Some(token) = &self.continue_token {
            metadata.insert("continue".into(), json!(token));
        }
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": self.message,
            "code": self.code,
        });
        if self.reason != Reason::Unknown {
            status["reason"] = json!(self.reason.as_str());
        }
        if let Some(details) = &self.details {
            status["details"] = details.to_value();
        }
        status
    }

    /// Seconds for the `Retry-After` header, if any.
    pub(crate) fn retry_after_seconds(&self) -> Option<u32> {
        self.details.as_ref().and_then(|d| d.retry_after_seconds)
    }
}

impl Details {
    fn to_value(&self) -> Value {
        let mut out = Map::new();
        for (key, text) in
            [("name", &self.name), ("group", &self.group), ("kind", &self.kind), ("uid", &self.uid)]
        {
            if !text.is_empty() {
                out.insert(key.into(), json!(text));
            }
        }
        if !self.causes.is_empty() {
            out.insert("causes".into(), self.causes.iter().map(Cause::to_value).collect());
        }
        if let Some(seconds) = self.retry_after_seconds {
            out.insert("retryAfterSeconds".into(), json!(seconds));
        }
        Value::Object(out)
    }
}

impl Cause {
    fn to_value(&self) -> Value {
        let mut out = Map::new();
        for (key, text) in
            [("reason", &self.reason), ("message", &self.message), ("field", &self.field)]
        {
            if !text.is_empty() {
                out.insert(key.into(), json!(text));
            }
        }
        Value::Object(out)
    }
}

/// The `Status` of a delete that removed the object.
pub(crate) fn deleted(kind: &KindInfo, name: &str, uid: &str) -> Value {
    let details = Details {
        name: name.to_owned(),
        group: kind.group.clone(),
        kind: kind.plural.clone(),
        uid: uid.to_owned(),
        ..Details::default()
    };
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details.to_value(),
    })
}

#[cfg(test)]
mod tests;
