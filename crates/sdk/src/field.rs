//! One field of an object as JSON, without the rest of it.

use std::fmt::Display;

use serde::ser::{self, Impossible, Serialize, SerializeMap, SerializeStruct, Serializer};
use serde_json::value::{Serializer as ToValue, Value};

/// The value of a field of what serialises as an object; `None` if it has none of that name.
///
/// # Errors
/// If it serialises as anything else, or the field does not serialise as JSON.
pub(crate) fn field<T: Serialize>(
    object: &T,
    name: &'static str,
) -> Result<Option<Value>, serde_json::Error> {
    object.serialize(Picks { name, found: None, is_next: false })
}

/// Serialises to one field alone.
struct Picks {
    name: &'static str,
    found: Option<Value>,
    /// Whether the value of the key just given is the one: of maps, whose keys come by themselves.
    is_next: bool,
}

type Found = Result<Option<Value>, serde_json::Error>;
type Never = Impossible<Option<Value>, serde_json::Error>;

fn no_object() -> serde_json::Error {
    ser::Error::custom("not an object")
}

impl SerializeStruct for Picks {
    type Ok = Option<Value>;
    type Error = serde_json::Error;

    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        key: &'static str,
        value: &T,
    ) -> Result<(), Self::Error> {
        if key == self.name {
            self.found = Some(value.serialize(ToValue)?);
        }
        Ok(())
    }

    fn end(self) -> Found {
        Ok(self.found)
    }
}

impl SerializeMap for Picks {
    type Ok = Option<Value>;
    type Error = serde_json::Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Self::Error> {
        self.is_next = key.serialize(ToValue)? == self.name;
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Self::Error> {
        if self.is_next {
            self.found = Some(value.serialize(ToValue)?);
        }
        Ok(())
    }

    fn end(self) -> Found {
        Ok(self.found)
    }
}

/// What is no object has no fields.
macro_rules! refuse {
    ($($method:ident($type:ty)),* $(,)?) => {
        $(fn $method(self, _: $type) -> Found {
            Err(no_object())
        })*
    };
}

impl Serializer for Picks {
    type Ok = Option<Value>;
    type Error = serde_json::Error;
    type SerializeSeq = Never;
    type SerializeTuple = Never;
    type SerializeTupleStruct = Never;
    type SerializeTupleVariant = Never;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Never;

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, Self::Error> {
        Ok(self)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self, Self::Error> {
        Ok(self)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Found {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Found {
        value.serialize(self)
    }

    refuse! {
        serialize_bool(bool), serialize_i8(i8), serialize_i16(i16), serialize_i32(i32),
        serialize_i64(i64), serialize_u8(u8), serialize_u16(u16), serialize_u32(u32),
        serialize_u64(u64), serialize_f32(f32), serialize_f64(f64), serialize_char(char),
        serialize_str(&str), serialize_bytes(&[u8]), serialize_unit_struct(&'static str),
    }

    fn serialize_none(self) -> Found {
        Err(no_object())
    }

    fn serialize_unit(self) -> Found {
        Err(no_object())
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, _: &'static str) -> Found {
        Err(no_object())
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Found {
        Err(no_object())
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Never, Self::Error> {
        Err(no_object())
    }

    fn serialize_tuple(self, _: usize) -> Result<Never, Self::Error> {
        Err(no_object())
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Never, Self::Error> {
        Err(no_object())
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Never, Self::Error> {
        Err(no_object())
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Never, Self::Error> {
        Err(no_object())
    }

    fn collect_str<T: Display + ?Sized>(self, _: &T) -> Found {
        Err(no_object())
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::core::DynamicObject;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_field_is_what_the_whole_object_has() {
        let json = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
            "status": {"phase": "Running", "conditions": []},
        });
        let typed: Pod = serde_json::from_value(json.clone()).unwrap();
        let dynamic: DynamicObject = serde_json::from_value(json.clone()).unwrap();
        for name in ["status", "metadata", "kind", "spec"] {
            let whole = serde_json::to_value(&typed).unwrap();
            assert_eq!(field(&typed, name).unwrap().as_ref(), whole.get(name), "{name}");
            assert_eq!(field(&dynamic, name).unwrap().as_ref(), json.get(name), "{name}");
            assert_eq!(field(&Some(&json), name).unwrap().as_ref(), json.get(name), "{name}");
        }
    }

    #[test]
    fn what_is_no_object_has_no_fields() {
        for value in [json!([1]), json!(1), json!("status"), json!(null)] {
            assert_eq!(field(&value, "status").unwrap_err().to_string(), "not an object");
        }
    }
}
