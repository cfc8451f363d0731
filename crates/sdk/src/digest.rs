//! Digests of JSON, of text and of values alike. Members of objects count in any order. Pure.
//!
//! What is digested is not kept: a server may answer with megabytes of numbers, of which each would take 32
//! bytes as a value.

use std::fmt;
use std::hash::{BuildHasher, Hasher};

use serde::Deserializer;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Which members of an object count.
#[derive(Clone, Copy)]
pub(crate) enum Concern<'a> {
    /// All of them.
    All,
    /// Those that this names, each as it says.
    Some(&'a dyn Fn(&str) -> Option<Concern<'a>>),
    /// Those with these keys.
    Keys(&'a Map<String, Value>),
}

impl<'a> Concern<'a> {
    /// What counts of a member.
    fn of(self, key: &str) -> Option<Self> {
        match self {
            Self::All => Some(Self::All),
            Self::Some(concern) => concern(key),
            Self::Keys(keys) => keys.contains_key(key).then_some(Self::All),
        }
    }
}

/// Digests what counts of the JSON that it reads.
pub(crate) struct Digest<'a, H> {
    pub(crate) concern: Concern<'a>,
    pub(crate) hasher: &'a H,
}

impl<'de, H: BuildHasher> DeserializeSeed<'de> for Digest<'_, H> {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<u64, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de, H: BuildHasher> Visitor<'de> for Digest<'_, H> {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<u64, E> {
        Ok(self.hasher.hash_one("null"))
    }

    fn visit_bool<E>(self, value: bool) -> Result<u64, E> {
        Ok(self.hasher.hash_one(("bool", value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<u64, E> {
        Ok(self.hasher.hash_one(("signed", value)))
    }

    fn visit_u64<E>(self, value: u64) -> Result<u64, E> {
        Ok(self.hasher.hash_one(("unsigned", value)))
    }

    fn visit_f64<E>(self, value: f64) -> Result<u64, E> {
        Ok(self.hasher.hash_one(("float", value.to_bits())))
    }

    fn visit_str<E>(self, value: &str) -> Result<u64, E> {
        Ok(self.hasher.hash_one(("text", value)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<u64, A::Error> {
        let mut digest = self.hasher.build_hasher();
        while let Some(element) = from.next_element_seed(Digest { ..self })? {
            digest.write_u64(element);
        }
        Ok(self.hasher.hash_one(("list", digest.finish())))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<u64, A::Error> {
        let mut sum = 0u64;
        while let Some(key) = from.next_key::<String>()? {
            let Some(concern) = self.concern.of(&key) else {
                from.next_value::<IgnoredAny>()?;
                continue;
            };
            let value = from.next_value_seed(Digest { concern, ..self })?;
            sum = sum.wrapping_add(self.hasher.hash_one((key, value)));
        }
        Ok(self.hasher.hash_one(("object", sum)))
    }
}

#[cfg(test)]
mod tests {
    use std::hash::RandomState;

    use serde_json::json;

    use super::*;

    #[test]
    fn text_and_values_have_one_digest_and_other_json_has_another() {
        let hasher = RandomState::new();
        let all = || Digest { concern: Concern::All, hasher: &hasher };
        let of = |text: &str| {
            let of_text = all().deserialize(&mut serde_json::Deserializer::from_str(text)).unwrap();
            let value: Value = serde_json::from_str(text).unwrap();
            assert_eq!(of_text, all().deserialize(&value).unwrap(), "{text}");
            of_text
        };
        assert_eq!(of(r#"{"a":1,"b":{"c":[2,"\u0061"]}}"#), of(r#"{"b":{"c":[2,"a"]},"a":1}"#));
        let texts = r#"null true false 0 1 -1 1.5 1.0 "1" "" [] {} [1] [[1]] [1,2] [2,1] {"a":1} {"a":null}
            {"a":1,"b":2} {"a":2,"b":1} {"a":{"b":1}} [{"a":1}]"#;
        let texts: Vec<_> = texts.split_whitespace().collect();
        let digests: std::collections::HashSet<u64> = texts.iter().map(|text| of(text)).collect();
        assert_eq!(digests.len(), texts.len());
    }

    #[test]
    fn only_what_is_concerned_counts() {
        let (hasher, wanted) = (RandomState::new(), json!({"x": 0}));
        let keys = |key: &str| (key == "a").then(|| Concern::Keys(wanted.as_object().unwrap()));
        let of = |value: Value| {
            Digest { concern: Concern::Some(&keys), hasher: &hasher }.deserialize(&value).unwrap()
        };
        let held = of(json!({"a": {"x": {"y": 1}}}));
        assert_eq!(held, of(json!({"a": {"x": {"y": 1}, "z": 2}, "b": 3})));
        assert_ne!(held, of(json!({"a": {"x": {"y": 1, "z": 2}}})));
        assert_ne!(held, of(json!({"a": {}})));
    }
}
