//! Which objects of a kind are watched.

use model::Selector;

/// Which objects of a kind are watched. Sent to the server, so that others are neither transferred
/// nor cached.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scope {
    /// Only this namespace.
    pub namespace: Option<String>,
    /// Only objects with these labels.
    pub labels: Selector,
    /// Only objects with these fields, in the server's syntax, as in `spec.nodeName=a`. Empty: all.
    pub fields: String,
}
