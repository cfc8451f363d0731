//! The one place that draws randomness: passwords of the manager's accounts.

#![expect(clippy::disallowed_methods, reason = "a shell: passwords must not be guessed")]

use data_encoding::BASE32_NOPAD;
use uuid::Uuid;

/// A password: 32 letters and digits, 154 bits of them from the system's source. MySQL follows nobody with
/// a longer one.
pub(crate) fn password() -> String {
    let (first, second) = (Uuid::new_v4(), Uuid::new_v4());
    BASE32_NOPAD.encode(&[&first.as_bytes()[..], &second.as_bytes()[..4]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_as_long_as_mysql_allows() {
        let (one, other) = (password(), password());
        assert!(one.len() == 32 && one.bytes().all(|byte| byte.is_ascii_alphanumeric()));
        assert_ne!(one, other);
    }
}
