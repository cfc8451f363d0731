//! The one place that draws randomness: passwords of the manager's accounts.

#![expect(clippy::disallowed_methods, reason = "a shell: passwords must not be guessed")]

use data_encoding::BASE32_NOPAD;
use uuid::Uuid;

/// What a password begins with: one sign of each kind that MySQL's `validate_password` asks for. None of
/// them means anything to a shell, to SQL or in an option file.
const KINDS: &str = "Aa1-";

/// A password of 32 signs: 28 of them are letters and digits, with 134 bits from the system's source. MySQL
/// follows nobody with a longer one.
pub(crate) fn password() -> String {
    let (first, second) = (Uuid::new_v4(), Uuid::new_v4());
    let drawn = BASE32_NOPAD.encode(&[&first.as_bytes()[..], &second.as_bytes()[..4]].concat());
    format!("{KINDS}{}", &drawn[..28])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyring::is_sign;

    #[test]
    fn a_password_is_as_long_as_mysql_allows() {
        let (one, other) = (password(), password());
        assert_eq!(one.len(), 32);
        assert_ne!(one, other);
    }

    #[test]
    fn a_password_is_of_signs_that_mean_nothing_and_of_all_kinds() {
        let one = password();
        assert!(one.bytes().all(is_sign), "{one}");
        for is_kind in [
            |byte: u8| byte.is_ascii_lowercase(),
            |byte: u8| byte.is_ascii_uppercase(),
            |byte: u8| byte.is_ascii_digit(),
            |byte: u8| !byte.is_ascii_alphanumeric(),
        ] {
            assert!(one.bytes().any(is_kind), "{one}");
        }
    }
}
