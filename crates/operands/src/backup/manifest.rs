//! What is known of a backup, stored beside it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Digest, StoreError};

/// What the key of a manifest ends with.
pub(super) const SUFFIX: &str = ".manifest.json";
/// The longest manifest that is read, in bytes.
pub(super) const MAX_BYTES: u64 = 64 << 10;
/// The longest name, in bytes.
const MAX_NAME: usize = 512;

/// What is known of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Its name at its destination, such as `shop/carts-2026-03-01-02-30`.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its SHA-256, in lowercase hexadecimal.
    pub sha256: String,
    /// What it is, such as `etcd-snapshot`.
    pub kind: String,
    /// The version of the database.
    pub version: String,
    /// Whose it is: the uid of the object that asked for it.
    pub owner: String,
    /// When it was stored.
    pub created: Timestamp,
}

impl Manifest {
    pub(super) fn key(name: &str) -> String {
        format!("{name}{SUFFIX}")
    }

    pub(super) fn parse(key: &str, bytes: &[u8]) -> Result<Self, StoreError> {
        let damaged = |problem: String| StoreError::Damaged { object: key.to_owned(), problem };
        let manifest: Self = serde_json::from_slice(bytes)
            .map_err(|error| damaged(format!("it is no manifest: {error}")))?;
        if Self::key(&manifest.name) != key {
            return Err(damaged(format!("it is of {:?}", manifest.name)));
        }
        Ok(manifest)
    }

    pub(super) fn digest(&self) -> Digest {
        Digest { size: self.size, sha256: self.sha256.clone() }
    }
}

/// Whether a name can be one in a folder and in a bucket.
pub(super) fn check_name(name: &str) -> Result<(), StoreError> {
    let is_part = |part: &str| {
        !part.is_empty()
            && !part.starts_with('.')
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    if name.len() <= MAX_NAME && name.split('/').all(is_part) && !name.ends_with(SUFFIX) {
        return Ok(());
    }
    Err(StoreError::Invalid {
        what: format!("the name {name:?}"),
        problem: "write letters, digits, dots, hyphens and slashes, and no part that begins with a dot",
    })
}
