//! Checks an object against its type: removes and names unknown fields, and refuses values of the
//! wrong shape.

use std::fmt::{Arguments, Write};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::Value;

use super::{Message, Shape, find};

/// A value that its field cannot hold, in the words of the real decoder.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Mismatch(String);

/// Removes unknown fields from `object` and returns their paths.
///
/// # Errors
/// The first value of the wrong shape.
pub fn conform(message: &'static Message, object: &mut Value) -> Result<Vec<String>, Mismatch> {
    let mut walk = Walk { path: String::new(), unknown: Vec::new() };
    walk.message(message, object, true)?;
    Ok(walk.unknown)
}

struct Walk {
    /// Where the walk is.
    path: String,
    unknown: Vec<String>,
}

impl Walk {
    /// Goes one step down.
    fn down<T>(&mut self, step: Arguments<'_>, visit: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        // A text takes what is written to it.
        let _ = self.path.write_fmt(step);
        let result = visit(self);
        self.path.truncate(length);
        result
    }

    fn message(
        &mut self,
        message: &'static Message,
        object: &mut Value,
        root: bool,
    ) -> Result<(), Mismatch> {
        let Some(fields) = object.as_object_mut() else { return Ok(()) };
        let mut unknown = Vec::new();
        for (name, value) in fields.iter_mut() {
            if root && (name == "kind" || name == "apiVersion") {
                continue;
            }
            let dot = if self.path.is_empty() { "" } else { "." };
            self.down(format_args!("{dot}{name}"), |walk| match message.field(name) {
                Some(field) => walk.value(&field.shape, message, value),
                None => {
                    unknown.push(name.clone());
                    walk.unknown.push(walk.path.clone());
                    Ok(())
                }
            })?;
        }
        fields.retain(|name, _| !unknown.contains(name));
        Ok(())
    }

    /// Checks a value in a field of `owner`.
    fn value(
        &mut self,
        shape: &Shape,
        owner: &'static Message,
        value: &mut Value,
    ) -> Result<(), Mismatch> {
        let fits = match (shape, &mut *value) {
            (_, Value::Null) | (Shape::Json, _) => true,
            (Shape::Bool, Value::Bool(_))
            | (Shape::Text | Shape::Duration, Value::String(_))
            | (Shape::Float, Value::Number(_)) => true,
            (Shape::Integer(_), Value::Number(number)) => number.is_i64(),
            (Shape::IntOrString, Value::String(_)) => true,
            (Shape::IntOrString, Value::Number(number)) => number.is_i64(),
            (Shape::Quantity, Value::String(_)) => true,
            (Shape::Quantity, Value::Number(number)) => {
                *value = Value::String(number.to_string());
                true
            }
            (Shape::Bytes, Value::String(text)) => return check_bytes(text),
            (Shape::Time | Shape::MicroTime, Value::String(text)) => return check_time(text),
            (Shape::Message(name), Value::Object(_)) => {
                let Some(message) = find(name) else { return Ok(()) };
                return self.message(message, value, false);
            }
            (Shape::Texts, Value::Array(_)) => {
                return self.value(&Shape::List(Box::new(Shape::Text)), owner, value);
            }
            (Shape::List(item), Value::Array(items)) => {
                for (at, value) in items.iter_mut().enumerate() {
                    self.down(format_args!("[{at}]"), |walk| walk.value(item, owner, value))?;
                }
                true
            }
            (Shape::Map(item), Value::Object(entries)) => {
                for (key, value) in entries.iter_mut() {
                    self.down(format_args!(".{key}"), |walk| walk.value(item, owner, value))?;
                }
                true
            }
            _ => false,
        };
        if fits { Ok(()) } else { Err(mismatch(shape, owner, &self.path, value)) }
    }
}

fn check_bytes(text: &str) -> Result<(), Mismatch> {
    STANDARD.decode(text).map(drop).map_err(|e| {
        let at = match e {
            base64::DecodeError::InvalidByte(at, _)
            | base64::DecodeError::InvalidLastSymbol(at, _) => at,
            base64::DecodeError::InvalidLength(at) => at,
            base64::DecodeError::InvalidPadding => text.len(),
        };
        Mismatch(format!("illegal base64 data at input byte {at}"))
    })
}

fn check_time(text: &str) -> Result<(), Mismatch> {
    text.parse::<Timestamp>().map(drop).map_err(|_| {
        Mismatch(format!(
            "parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?} as \"2006\""
        ))
    })
}

fn mismatch(shape: &Shape, owner: &Message, path: &str, value: &Value) -> Mismatch {
    let found = match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(number) if matches!(shape, Shape::Integer(_)) => format!("number {number}"),
        Value::Number(_) => "number".to_owned(),
        Value::String(_) => "string".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
    };
    // Indexes and map keys are not part of a Go field's name.
    let field = path.split('[').next().unwrap_or(path);
    Mismatch(format!(
        "json: cannot unmarshal {found} into Go struct field {}.{field} of type {}",
        owner.short_name(),
        go_type(shape)
    ))
}

fn go_type(shape: &Shape) -> String {
    match shape {
        Shape::Bool => "bool".into(),
        Shape::Integer(word) => (*word).into(),
        Shape::Float => "float64".into(),
        Shape::Text => "string".into(),
        Shape::Bytes => "[]uint8".into(),
        Shape::Time => "v1.Time".into(),
        Shape::MicroTime => "v1.MicroTime".into(),
        Shape::Duration => "v1.Duration".into(),
        Shape::Quantity => "resource.Quantity".into(),
        Shape::IntOrString => "intstr.IntOrString".into(),
        Shape::Json => "runtime.RawExtension".into(),
        Shape::Message(name) => {
            let mut parts = name.rsplit('.');
            let (kind, version) =
                (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            format!("{version}.{kind}")
        }
        Shape::Texts => "[]string".into(),
        Shape::List(item) => format!("[]{}", go_type(item)),
        Shape::Map(value) => format!("map[string]{}", go_type(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(kind: &str, mut object: Value) -> Result<(Vec<String>, Value), String> {
        let unknown = conform(find(kind).unwrap(), &mut object).map_err(|e| e.to_string())?;
        Ok((unknown, object))
    }

    #[test]
    fn unknown_fields_are_taken_out_and_named() {
        let object = json!({
            "kind": "Deployment", "apiVersion": "apps/v1", "dat": 1,
            "metadata": {"name": "a", "labels": {"any": "thing"}},
            "spec": {"template": {"spec": {"containers": [{"name": "c", "color": "red", "livenessProbe": {"httpGet": {"port": "http"}}}]}}},
        });
        let (unknown, kept) = check("apps.v1.Deployment", object).unwrap();
        assert_eq!(unknown, ["dat", "spec.template.spec.containers[0].color"]);
        assert_eq!(
            kept["spec"]["template"]["spec"]["containers"][0]["livenessProbe"]["httpGet"]["port"],
            "http"
        );
        assert!(kept.get("dat").is_none());
    }

    #[test]
    fn values_of_the_wrong_shape_are_refused_as_go_does() {
        let cases = [
            (
                "core.v1.ConfigMap",
                json!({"data": {"a": 1}}),
                "json: cannot unmarshal number into Go struct field ConfigMap.data.a of type string",
            ),
            (
                "apps.v1.Deployment",
                json!({"spec": {"replicas": "2"}}),
                "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
            ),
            (
                "apps.v1.Deployment",
                json!({"spec": 1}),
                "json: cannot unmarshal number into Go struct field Deployment.spec of type v1.DeploymentSpec",
            ),
            ("core.v1.Secret", json!({"data": {"a": "%"}}), "illegal base64 data at input byte 0"),
        ];
        for (kind, object, expected) in cases {
            assert_eq!(check(kind, object).unwrap_err(), expected);
        }
    }

    #[test]
    fn amounts_may_be_numbers() {
        let object = json!({"spec": {"containers": [{"resources": {"limits": {"cpu": 2}}}]}});
        let (_, kept) = check("core.v1.Pod", object).unwrap();
        assert_eq!(kept["spec"]["containers"][0]["resources"]["limits"]["cpu"], "2");
    }
}
