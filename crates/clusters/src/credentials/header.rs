//! Values of the `Authorization` header.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;

use crate::error::Unusable;

/// The most bytes of a value: it is kept for each cluster. API servers take a megabyte for all headers, and tokens
/// have a few thousand.
const MAX_HEADER_BYTES: usize = 64 << 10;

/// `Authorization: Bearer`.
pub(super) fn bearer(origin: &str, token: &str) -> Result<HeaderValue, Unusable> {
    value(origin, format!("Bearer {}", token.trim()))
}

/// `Authorization: Basic`.
pub(super) fn basic(origin: &str, user: &str, password: &str) -> Result<HeaderValue, Unusable> {
    value(origin, basic_text(user, password))
}

/// The text of `Authorization: Basic`.
pub(super) fn basic_text(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

fn value(origin: &str, text: String) -> Result<HeaderValue, Unusable> {
    let refused = |source| Unusable::Client { origin: origin.to_owned(), source };
    if text.len() > MAX_HEADER_BYTES {
        let why = format!("the credential has more than {MAX_HEADER_BYTES} bytes");
        return Err(refused(why.into()));
    }
    let mut value = HeaderValue::try_from(text).map_err(|error| refused(error.into()))?;
    value.set_sensitive(true);
    Ok(value)
}
