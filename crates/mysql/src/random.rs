//! The one place that draws randomness: passwords of the manager's accounts.

#![expect(clippy::disallowed_methods, reason = "a shell: passwords must not be guessed")]

use uuid::Uuid;

/// A password: 64 hexadecimal digits, 244 bits of them from the system's source.
pub(crate) fn password() -> String {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}
