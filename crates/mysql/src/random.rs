//! The one place that draws randomness: passwords of the manager's accounts.

#![expect(clippy::disallowed_methods, reason = "a shell: passwords must not be guessed")]

use uuid::Uuid;

/// A password: 32 hexadecimal digits, 122 bits of them from the system's source. An instance follows another
/// by no longer one.
pub(crate) fn password() -> String {
    Uuid::new_v4().simple().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_as_long_as_replication_allows() {
        assert_eq!(password().len(), 32);
        assert_ne!(password(), password());
    }
}
