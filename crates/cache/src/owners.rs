//! Every owner that an object names, whether it controls the object or not. The header knows only the
//! one that does, so this reads the object's JSON, and of it nothing else.

use serde::Deserialize;

use super::header::{Owner, Uid};

/// An object's `metadata.ownerReferences`.
#[derive(Deserialize)]
pub(super) struct OwnedObject {
    #[serde(default)]
    metadata: OwnedMetadata,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OwnedMetadata {
    #[serde(default)]
    owner_references: Option<Vec<OwnerReference>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OwnerReference {
    api_version: String,
    kind: String,
    name: Box<str>,
    uid: String,
}

impl OwnedObject {
    /// The owners.
    pub(super) fn into_owners(self) -> impl Iterator<Item = Owner> {
        self.metadata.owner_references.into_iter().flatten().map(OwnerReference::into_owner)
    }

    /// The uids of the owners.
    pub(super) fn owner_uids(&self) -> impl Iterator<Item = &str> {
        self.metadata.owner_references.iter().flatten().map(|owner| owner.uid.as_str())
    }
}

impl OwnerReference {
    fn into_owner(self) -> Owner {
        let Self { api_version, kind, name, uid } = self;
        Owner { api_version: api_version.into(), kind: kind.into(), name, uid: Uid::new(&uid) }
    }
}
