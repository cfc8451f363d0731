//! Durations in scenario files.

use std::time::Duration;

use serde::{Deserialize, Deserializer};

/// A duration in jiff's friendly format: `60s`, `2m`, `500ms`.
pub fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    let span: jiff::SignedDuration = text.parse().map_err(|error| {
        serde::de::Error::custom(format!("{text:?} is not a duration like 60s or 2m: {error}"))
    })?;
    Duration::try_from(span).map_err(|_| serde::de::Error::custom(format!("{text:?} is negative")))
}

/// The same where the key may be absent.
pub fn optional_duration<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Duration>, D::Error> {
    duration(deserializer).map(Some)
}

/// Writes a duration so that it can be read again.
pub fn seconds<S: serde::Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{}s", value.as_secs_f64()))
}

/// The same where it may be absent.
pub fn optional_seconds<S: serde::Serializer>(
    value: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => seconds(value, serializer),
        None => serializer.serialize_none(),
    }
}
