//! Durations in scenario files.

use std::time::Duration;

use serde::{Deserialize, Deserializer};

/// The longest of all. Sums of a few are durations, too.
const MAX: Duration = Duration::from_secs(30 * 24 * 3_600);

/// A duration in jiff's friendly format: `60s`, `2m`, `500ms`.
pub fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    let span: jiff::SignedDuration = text.parse().map_err(|error| {
        serde::de::Error::custom(format!("{text:?} is not a duration like 60s or 2m: {error}"))
    })?;
    match Duration::try_from(span) {
        Ok(duration) if duration <= MAX => Ok(duration),
        Ok(_) => Err(serde::de::Error::custom(format!("{text:?} is more than 720h"))),
        Err(_) => Err(serde::de::Error::custom(format!("{text:?} is negative"))),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_bounds() {
        #[derive(Debug, Deserialize)]
        struct Read {
            #[serde(deserialize_with = "duration")]
            of: Duration,
        }
        let read = |text: &str| toml::from_str::<Read>(&format!("of = {text:?}"));
        assert_eq!(read("720h").unwrap().of, MAX);
        for (text, expect) in [
            ("-1s", "\"-1s\" is negative"),
            ("720h 1s", "\"720h 1s\" is more than 720h"),
            ("900000h", "\"900000h\" is more than 720h"),
            ("soon", "\"soon\" is not a duration like 60s or 2m"),
        ] {
            let error = read(text).unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        }
    }
}
