//! Reads the JSON of an object as a type.

use serde::de::DeserializeOwned;

use super::codec::UnpackError;
use super::header::HeaderError;

/// Why JSON is not the object that it is asked for as.
#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    #[error(transparent)]
    Shape(#[from] serde_json::Error),
    #[error(transparent)]
    Bytes(#[from] UnpackError),
    #[error(transparent)]
    Text(#[from] std::str::Utf8Error),
    #[error(transparent)]
    Member(#[from] HeaderError),
}

/// The object in JSON. Its text is checked as a whole, not string by string; and all of the program
/// reads objects as text, so that the code which does is there once for a type.
pub(super) fn decoded<T: DeserializeOwned>(json: &[u8]) -> Result<T, Problem> {
    Ok(serde_json::from_str(std::str::from_utf8(json)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_are_no_object() {
        let read =
            |json: &[u8]| decoded::<serde_json::Value>(json).map_err(|found| found.to_string());
        assert_eq!(read(br#"{"a": "b"}"#), Ok(serde_json::json!({"a": "b"})));
        let error = read(b"{\"a\": \"\xff\"}").unwrap_err();
        assert!(error.starts_with("invalid utf-8 sequence"), "{error}");
    }
}
