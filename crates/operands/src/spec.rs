//! Values of specs, read and bounded, or the reason why they cannot be. Pure.

use jiff::SignedDuration;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The longest of all times in a spec: ten years.
const LONGEST: SignedDuration = SignedDuration::from_hours(87_600);

/// Why a spec cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Invalid {
    /// The reason as a condition has it.
    pub reason: &'static str,
    /// Cause, object and fix.
    pub message: String,
}

/// Reads a time.
///
/// # Errors
/// If it is none, or shorter than `shortest`, or longer than ten years.
pub fn duration(
    field: &str,
    text: &str,
    shortest: SignedDuration,
) -> Result<SignedDuration, Invalid> {
    let found = text.parse::<SignedDuration>().ok();
    found.filter(|found| (shortest..=LONGEST).contains(found)).ok_or_else(|| Invalid {
        reason: "InvalidDuration",
        message: format!(
            "spec.{field} is {text:?}: set a time such as 5m, 1h30m or 720h, at least {shortest:#}"
        ),
    })
}

/// Reads the size of a volume, in bytes.
///
/// # Errors
/// If it is none, or zero.
pub fn size(field: &str, text: &str) -> Result<u128, Invalid> {
    bytes(text).filter(|bytes| *bytes > 0).ok_or_else(|| Invalid {
        reason: "InvalidStorage",
        message: format!("spec.{field} is {text:?}: set a size such as 8Gi"),
    })
}

/// A quantity of Kubernetes that is a whole number with a suffix of bytes, such as `8Gi`.
pub fn bytes(text: &str) -> Option<u128> {
    const SUFFIXES: [(&str, u128); 11] = [
        ("", 1),
        ("k", 1_000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
        ("T", 1_000_000_000_000),
        ("P", 1_000_000_000_000_000),
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("Ti", 1 << 40),
        ("Pi", 1 << 50),
    ];
    let suffix = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number = &text[..text.len() - suffix.len()];
    let (_, times) = SUFFIXES.iter().find(|(known, _)| *known == suffix)?;
    number.parse::<u128>().ok()?.checked_mul(*times)
}

/// Reads a part of a Pod.
///
/// # Errors
/// If it does not fit into a Pod.
pub fn part<T: DeserializeOwned>(field: &str, value: Option<&Value>) -> Result<Option<T>, Invalid> {
    let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(None) };
    T::deserialize(value).map(Some).map_err(|error| Invalid {
        reason: "InvalidPod",
        message: format!("spec.{field} does not fit into a Pod: {error}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_whole_numbers_of_bytes() {
        for (text, expect) in [
            ("8Gi", Some(8 << 30)),
            ("1500M", Some(1_500_000_000)),
            ("12", Some(12)),
            ("0", Some(0)),
            ("", None),
            ("Gi", None),
            ("1.5Gi", None),
            ("-1", None),
            ("8GB", None),
            ("999999999999999999999999999999999999Pi", None),
        ] {
            assert_eq!(bytes(text), expect, "{text:?}");
        }
        assert!(size("storage", "0").unwrap_err().message.contains("spec.storage"));
    }

    #[test]
    fn times_have_bounds() {
        let hour = SignedDuration::from_hours(1);
        assert_eq!(duration("f", "90m", hour), Ok(SignedDuration::from_mins(90)));
        for text in ["", "1", "59m", "-2h", "99999999h"] {
            assert_eq!(duration("f", text, hour).unwrap_err().reason, "InvalidDuration", "{text}");
        }
    }
}
