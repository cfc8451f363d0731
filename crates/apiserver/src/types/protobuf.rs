//! Reads objects in Kubernetes' protobuf encoding: an envelope that names the type, and the
//! object's fields by number. The result is what the same client would have sent as JSON.
//!
//! Answers are never in protobuf: every client that asks for it accepts JSON too.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{Field, Message, Shape, find, of_kind};

/// The media type.
pub const MEDIA_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// First bytes of every body.
const MAGIC: &[u8] = b"k8s\0";
/// How deep messages may nest; recursion must end.
const MAX_DEPTH: usize = 64;

/// Why bytes are not an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The envelope's first bytes are missing.
    #[error("provided data does not appear to be a protobuf message, expected prefix {MAGIC:?}")]
    Magic,
    /// The bytes end within a value, or make no sense as one.
    #[error("proto: malformed message")]
    Malformed,
    /// A message nests too deep.
    #[error("proto: message nested more than {MAX_DEPTH} levels deep")]
    TooDeep,
    /// The envelope names a type that is not in the table.
    #[error("no kind \"{kind}\" is registered for version \"{api_version}\"")]
    UnknownType {
        /// Kind of the envelope.
        kind: String,
        /// API version of the envelope.
        api_version: String,
    },
}

use DecodeError::Malformed;

/// Reads an object out of its envelope.
///
/// # Errors
/// The bytes are not an object of a known type.
pub fn decode(body: &[u8]) -> Result<Value, DecodeError> {
    let body = body.strip_prefix(MAGIC).ok_or(DecodeError::Magic)?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for field in Reader(body) {
        match field? {
            (1, Wire::Bytes(types)) => {
                for field in Reader(types) {
                    match field? {
                        (1, Wire::Bytes(text)) => api_version = utf8(text)?,
                        (2, Wire::Bytes(text)) => kind = utf8(text)?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let message = message_of(&api_version, &kind);
    let message = message.ok_or_else(|| DecodeError::UnknownType {
        kind: kind.clone(),
        api_version: api_version.clone(),
    })?;
    let mut fields = decode_message(message, raw, 0)?;
    fields.insert("apiVersion".into(), json!(api_version));
    fields.insert("kind".into(), json!(kind));
    Ok(Value::Object(fields))
}

fn message_of(api_version: &str, kind: &str) -> Option<&'static Message> {
    // Options belong to every group.
    if kind == "DeleteOptions" {
        return find("meta.v1.DeleteOptions");
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    of_kind(group, version, kind)
}

/// A value on the wire.
enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message, one after the other.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (first, rest) = self.0.split_first().ok_or(Malformed)?;
            self.0 = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn field(&mut self) -> Result<(u32, Wire<'a>), DecodeError> {
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| Malformed)?;
        let wire = match tag & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => {
                let bytes = self.take(8)?.try_into().map_err(|_| Malformed)?;
                Wire::Fixed64(u64::from_le_bytes(bytes))
            }
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
                Wire::Bytes(self.take(length)?)
            }
            5 => {
                let bytes = self.take(4)?.try_into().map_err(|_| Malformed)?;
                Wire::Varint(u64::from(u32::from_le_bytes(bytes)))
            }
            _ => return Err(Malformed),
        };
        Ok((number, wire))
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<(u32, Wire<'a>), DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

fn decode_message(
    message: &'static Message,
    bytes: &[u8],
    depth: usize,
) -> Result<Map<String, Value>, DecodeError> {
    if depth > MAX_DEPTH {
        return Err(DecodeError::TooDeep);
    }
    let mut out = Map::new();
    for read in Reader(bytes) {
        let (number, wire) = read?;
        let Some(field) = message.fields.iter().find(|f| f.number == number) else { continue };
        match &field.shape {
            Shape::List(item) => {
                let value = decode_value(item, wire, depth)?;
                let list = out.entry(field.name).or_insert_with(|| json!([]));
                if let Value::Array(items) = list {
                    items.push(value);
                }
            }
            Shape::Map(item) => {
                let (key, value) = decode_entry(item, wire, depth)?;
                let map = out.entry(field.name).or_insert_with(|| json!({}));
                map[key] = value;
            }
            shape => {
                let value = decode_value(shape, wire, depth)?;
                match value {
                    Value::Object(fields) if field.inline => out.extend(fields),
                    value if is_dropped(field, &value) => {}
                    value => drop(out.insert(field.name.to_owned(), value)),
                }
            }
        }
    }
    Ok(out)
}

/// Whether the value would be absent from the JSON of the same object: protobuf contains zeros that
/// JSON leaves out.
fn is_dropped(field: &Field, value: &Value) -> bool {
    let zero = match value {
        Value::Null => return true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    };
    zero && !field.keeps_zero
}

fn decode_entry(
    item: &Shape,
    wire: Wire<'_>,
    depth: usize,
) -> Result<(String, Value), DecodeError> {
    let Wire::Bytes(bytes) = wire else { return Err(Malformed) };
    let (mut key, mut value) = (String::new(), Value::Null);
    for field in Reader(bytes) {
        match field? {
            (1, Wire::Bytes(text)) => key = utf8(text)?,
            (2, wire) => value = decode_value(item, wire, depth)?,
            _ => {}
        }
    }
    if value.is_null() && matches!(item, Shape::Text | Shape::Bytes) {
        value = json!("");
    }
    Ok((key, value))
}

fn decode_value(shape: &Shape, wire: Wire<'_>, depth: usize) -> Result<Value, DecodeError> {
    Ok(match (shape, wire) {
        (Shape::Bool, Wire::Varint(bits)) => json!(bits != 0),
        (Shape::Integer(_), Wire::Varint(bits)) => json!(bits.cast_signed()),
        (Shape::Float, Wire::Fixed64(bits)) => json!(f64::from_bits(bits)),
        (Shape::Text, Wire::Bytes(text)) => json!(utf8(text)?),
        (Shape::Bytes, Wire::Bytes(bytes)) => json!(STANDARD.encode(bytes)),
        (Shape::Time, Wire::Bytes(bytes)) => time(bytes, "%Y-%m-%dT%H:%M:%SZ")?,
        (Shape::MicroTime, Wire::Bytes(bytes)) => time(bytes, "%Y-%m-%dT%H:%M:%S.%6fZ")?,
        (Shape::Duration, Wire::Bytes(bytes)) => {
            json!(format!("{}ns", number(bytes, 1)?.cast_signed()))
        }
        (Shape::Quantity, Wire::Bytes(bytes)) => json!(text(bytes, 1)?),
        (Shape::IntOrString, Wire::Bytes(bytes)) => match number(bytes, 1)? {
            0 => json!(number(bytes, 2)?.cast_signed()),
            _ => json!(text(bytes, 3)?),
        },
        (Shape::Json, Wire::Bytes(bytes)) => json_in(bytes)?,
        (Shape::Texts, Wire::Bytes(bytes)) => texts_in(bytes)?,
        (Shape::Message(name), Wire::Bytes(bytes)) => {
            let message = find(name).ok_or(Malformed)?;
            Value::Object(decode_message(message, bytes, depth + 1)?)
        }
        _ => return Err(Malformed),
    })
}

/// The texts of a message that has nothing else.
fn texts_in(bytes: &[u8]) -> Result<Value, DecodeError> {
    let mut texts = Vec::new();
    for field in Reader(bytes) {
        if let (1, Wire::Bytes(text)) = field? {
            texts.push(json!(utf8(text)?));
        }
    }
    Ok(Value::Array(texts))
}

fn utf8(bytes: &[u8]) -> Result<String, DecodeError> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| Malformed)
}

/// A number of a small message; absent is zero.
fn number(bytes: &[u8], wanted: u32) -> Result<u64, DecodeError> {
    let mut found = 0;
    for field in Reader(bytes) {
        if let (number, Wire::Varint(value)) = field?
            && number == wanted
        {
            found = value;
        }
    }
    Ok(found)
}

/// A text of a small message; absent is empty.
fn text(bytes: &[u8], wanted: u32) -> Result<String, DecodeError> {
    let mut found = String::new();
    for field in Reader(bytes) {
        if let (number, Wire::Bytes(value)) = field?
            && number == wanted
        {
            found = utf8(value)?;
        }
    }
    Ok(found)
}

/// Seconds and nanoseconds; the zero time means none.
fn time(bytes: &[u8], format: &str) -> Result<Value, DecodeError> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let nanos = i32::try_from(number(bytes, 2)?.cast_signed()).map_err(|_| Malformed)?;
    let seconds = number(bytes, 1)?.cast_signed();
    let time = Timestamp::new(seconds, nanos).map_err(|_| Malformed)?;
    Ok(json!(time.strftime(format).to_string()))
}

fn json_in(bytes: &[u8]) -> Result<Value, DecodeError> {
    for field in Reader(bytes) {
        if let (1, Wire::Bytes(raw)) = field? {
            return serde_json::from_slice(raw).map_err(|_| Malformed);
        }
    }
    Ok(Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A length-delimited field.
    fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2, u8::try_from(bytes.len()).unwrap()];
        out.extend_from_slice(bytes);
        out
    }

    fn enveloped(api_version: &str, kind: &str, raw: &[u8]) -> Vec<u8> {
        let types = [field(1, api_version.as_bytes()), field(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), field(1, &types), field(2, raw)].concat()
    }

    #[test]
    fn a_configmap_as_kubectl_sends_it() {
        // Captured from `kubectl create configmap a --from-literal=x=y`.
        let body = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x1b\x0a\x11\x0a\x01a\x12\0\x1a\0\x22\0*\x002\08\0B\0\x12\x06\x0a\x01x\x12\x01y\x1a\0\x22\0";
        assert_eq!(
            decode(body).unwrap(),
            json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {"x": "y"}})
        );
    }

    #[test]
    fn zeros_stay_where_they_mean_something() {
        // spec { replicas: 0, minReadySeconds: 0, strategy { type: "" } }
        let spec = [vec![0x08, 0x00], vec![0x28, 0x00], field(4, &field(1, b""))].concat();
        let object = decode(&enveloped("apps/v1", "Deployment", &field(2, &spec))).unwrap();
        assert_eq!(object["spec"], json!({"replicas": 0}));
    }

    #[test]
    fn special_types_take_their_json_form() {
        // A Lease: spec { renewTime { seconds: 1, nanos: 500000000 } }
        let time = [vec![0x08, 0x01], vec![0x10, 0x80, 0xca, 0xb5, 0xee, 0x01]].concat();
        let lease = enveloped("coordination.k8s.io/v1", "Lease", &field(2, &field(4, &time)));
        assert_eq!(decode(&lease).unwrap()["spec"]["renewTime"], "1970-01-01T00:00:01.500000Z");
        // A Service: spec { ports { targetPort { type: 1, strVal: "web" } } }
        let port = field(1, &field(4, &[vec![0x08, 0x01], field(3, b"web")].concat()));
        let service = enveloped("v1", "Service", &field(2, &port));
        assert_eq!(decode(&service).unwrap()["spec"]["ports"][0]["targetPort"], "web");
        // A Secret: data { a: bytes }
        let entry = [field(1, b"a"), field(2, b"\xff\x00")].concat();
        let secret = decode(&enveloped("v1", "Secret", &field(2, &entry))).unwrap();
        assert_eq!(secret["data"]["a"], "/wA=");
        // A SubjectAccessReview: spec { extra { a: { items: "b", items: "c" } } }
        let entry = [field(1, b"a"), field(2, &[field(1, b"b"), field(1, b"c")].concat())].concat();
        let review = field(2, &field(5, &entry));
        let review = enveloped("authorization.k8s.io/v1", "SubjectAccessReview", &review);
        assert_eq!(decode(&review).unwrap()["spec"]["extra"], json!({"a": ["b", "c"]}));
    }

    #[test]
    fn other_bytes_are_refused() {
        assert_eq!(decode(b"{}"), Err(DecodeError::Magic));
        assert_eq!(decode(b"k8s\0\x0a\xff"), Err(Malformed));
        let unknown = decode(&enveloped("x/v1", "Y", b""));
        assert!(matches!(unknown, Err(DecodeError::UnknownType { .. })), "{unknown:?}");
    }

    proptest! {
        /// For any bytes, the result is a value or an error.
        #[test]
        fn no_bytes_make_it_panic(raw in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = decode(&enveloped("v1", "Pod", &raw));
            let _ = decode(&[MAGIC.to_vec(), raw].concat());
        }
    }
}
