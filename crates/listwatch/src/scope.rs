//! Which objects of a kind are watched, and how much of each.

use model::{AnyObject, Selector};

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

/// How much of each object is watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// The whole object.
    #[default]
    Whole,
    /// Its metadata. The server sends nothing else.
    Metadata,
}

impl Form {
    /// What a reader of this type needs: the metadata for `PartialObjectMeta`, else the whole object.
    pub fn of<K: AnyObject>() -> Self {
        if K::metadata_api() { Self::Metadata } else { Self::Whole }
    }
}
