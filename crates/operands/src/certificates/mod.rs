//! Certificates of a database's servers and clients: an authority for each database, kept in a Secret,
//! and the certificates that it issues.
//!
//! ```text
//!   Secret of the authority ──▶ authority_of ──┬─▶ Authority::issue ──▶ Leaf::data ──▶ Secret of a leaf
//!     absent, nothing issued: create           │                                          │
//!     absent, leaves exist: an error           └──────────────── judge ◀──────────────────┘
//!     unreadable: an error                        keep until a time, or issue anew and why
//! ```
//!
//! Everything is pure but for the keys, which `ring` draws, and [`Certificates`], which keeps the Secrets
//! of databases. Secrets have the form of cert-manager:
//! type `kubernetes.io/tls` with `tls.crt`, `tls.key` and `ca.crt`.
//!
//! Invariants:
//! 1. An authority that issued anything is never replaced by another: that would end all trust at once.
//!    It is renewed with the same name and the same key, so that what it issued before is trusted by who
//!    has the new certificate, and the other way round, until the old one ends.
//! 2. A leaf never outlives its authority.
//! 3. What cannot be read is an error that names Secret, key and fix. It is never overwritten.

mod authority;
mod error;
mod judge;
mod keeper;
mod leaf;
mod pem;

pub(crate) use authority::Authority;
use authority::authority_of;
use error::CertificateError;
use judge::{Verdict, judge};
pub use keeper::{Certificates, Wanted};
pub(crate) use leaf::Leaf;
pub use leaf::{LeafSpec, Usage};

use jiff::{SignedDuration, Timestamp};

/// The type of the Secrets.
const SECRET_TYPE: &str = "kubernetes.io/tls";
/// The key of a Secret with the certificate.
pub const CERTIFICATE: &str = "tls.crt";
/// The key of a Secret with the private key, in PKCS#8.
pub const PRIVATE_KEY: &str = "tls.key";
/// The key of a Secret with the certificate of the authority that issued the certificate.
pub const AUTHORITY: &str = "ca.crt";

/// Certificates begin in the past, because some clocks are behind.
const SLACK: SignedDuration = SignedDuration::from_hours(1);

/// When a certificate of this validity is due for renewal: after two thirds of it.
fn renewal(not_before: Timestamp, not_after: Timestamp) -> Timestamp {
    let valid = not_after.duration_since(not_before);
    let due = SignedDuration::from_secs(valid.as_secs() / 3 * 2);
    not_before.checked_add(due).unwrap_or(not_after)
}

#[cfg(test)]
mod tests;
