//! Shard selectors (KEP-5866): `shardRange(object.metadata.uid, '0x…', '0x…')`, half-open, several
//! joined by `||`. What is hashed is one field of the metadata, by FNV-1a with 64 bits.

use std::fmt;

use serde_json::Value;

/// The fields that can be hashed.
const FIELDS: [&str; 2] = ["object.metadata.uid", "object.metadata.namespace"];
/// The end of the hash space, which is not a hash itself.
const END: u128 = 1 << 64;

/// The objects whose hashes fall into one of several ranges.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardSelector {
    field: &'static str,
    ranges: Vec<(u128, u128)>,
}

impl ShardSelector {
    /// Parses one.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let parsed = text.split("||").map(range).collect::<Result<Vec<_>, _>>()?;
        let field = parsed[0].0;
        if let Some((other, ..)) = parsed.iter().find(|(other, ..)| *other != field) {
            return Err(format!(
                "all shard ranges must use the same field, got {field:?} and {other:?}"
            ));
        }
        let ranges = parsed.into_iter().map(|(_, from, to)| (from, to)).collect();
        Ok(Self { field, ranges })
    }

    /// Whether an object is selected.
    pub fn matches(&self, object: &Value) -> bool {
        let name = self.field.rsplit('.').next().unwrap_or_default();
        let hash = u128::from(fnv(object["metadata"][name].as_str().unwrap_or_default()));
        self.ranges.iter().any(|(from, to)| (*from..*to).contains(&hash))
    }
}

impl fmt::Display for ShardSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (from, to)) in self.ranges.iter().enumerate() {
            let or = if at > 0 { " || " } else { "" };
            write!(f, "{or}shardRange({}, '0x{from:016x}', '0x{to:016x}')", self.field)?;
        }
        Ok(())
    }
}

/// One `shardRange(field, 'from', 'to')`.
fn range(text: &str) -> Result<(&'static str, u128, u128), String> {
    let unexpected = || format!("only shardRange(field, 'from', 'to') is allowed, got {text:?}");
    let inner = text.trim().strip_prefix("shardRange").map(str::trim_start);
    let inner = inner.and_then(|rest| rest.strip_prefix('(')?.strip_suffix(')'));
    let mut parts = inner.ok_or_else(unexpected)?.split(',').map(str::trim);
    let (Some(field), Some(from), Some(to), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(unexpected());
    };
    let known = FIELDS.into_iter().find(|known| *known == field);
    let field = known.ok_or_else(|| {
        format!("unsupported field path {field:?}; supported: {}", FIELDS.join(", "))
    })?;
    let (from, to) = (bound(from)?, bound(to)?);
    if from >= to {
        return Err(format!("shard range start {from:#018x} must be less than end {to:#018x}"));
    }
    Ok((field, from, to))
}

/// A bound: sixteen digits in single quotes, or seventeen for the end of the space.
fn bound(text: &str) -> Result<u128, String> {
    let wrong = || format!("must be a 0x-prefixed 16-digit hex value, got {text:?}");
    let digits = text.strip_prefix("'0x").and_then(|rest| rest.strip_suffix('\''));
    let digits = digits.ok_or_else(wrong)?;
    let lower = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let value = u128::from_str_radix(digits, 16).map_err(|_| wrong())?;
    match digits.len() {
        16 if lower => Ok(value),
        17 if value == END => Ok(value),
        _ => Err(wrong()),
    }
}

fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const LOW: &str = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')";
    const HIGH: &str =
        "shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000')";

    #[test]
    fn what_it_selects() {
        // FNV-1a of "a" is 0xaf63dc4c8601ec8c.
        let object = json!({"metadata": {"uid": "a", "namespace": ""}});
        for (text, expect) in [
            (LOW.to_owned(), false),
            (HIGH.to_owned(), true),
            (format!("{LOW} || {HIGH}"), true),
            (LOW.replace("uid", "namespace"), false),
        ] {
            let selector = ShardSelector::parse(&text).unwrap();
            assert_eq!(selector.matches(&object), expect, "{text}");
            assert_eq!(selector.to_string(), text);
        }
        let dense = LOW.replace(' ', "");
        assert_eq!(ShardSelector::parse(&dense).unwrap().to_string(), LOW);
    }

    #[test]
    fn what_is_refused() {
        for bad in [
            String::new(),
            "true".to_owned(),
            format!("{LOW} && {HIGH}"),
            format!("{LOW} ||"),
            LOW.replace("uid", "name"),
            LOW.replace("'0x8", "'0x0"),
            LOW.replace("'0x8", "'8"),
            LOW.replace("'0x8", "'0x08"),
            LOW.replace("'0x8", "'0xF"),
            LOW.replace('\'', "\""),
            format!("{LOW} || {}", HIGH.replace("uid", "namespace")),
        ] {
            assert!(ShardSelector::parse(&bad).is_err(), "{bad}");
        }
    }
}
