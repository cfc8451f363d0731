//! A place for objects.

use std::path::Path;

use futures::future::BoxFuture;

use super::{Digest, StoreError};

/// A place for objects, each with a key of parts that slashes divide. An object is there as a whole or
/// not at all. Whoever uses it checks keys and keeps manifests: [`super::Vault`].
pub trait Store: Send + Sync {
    /// Stores the content of a file, which has this digest.
    fn put<'a>(
        &'a self,
        key: &'a str,
        file: &'a Path,
        digest: &'a Digest,
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Stores a few bytes.
    fn write<'a>(&'a self, key: &'a str, bytes: Vec<u8>) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Writes an object into a file, which is created or emptied, and gives its digest. Fails if the
    /// object has more bytes than `limit`.
    fn get<'a>(
        &'a self,
        key: &'a str,
        file: &'a Path,
        limit: u64,
    ) -> BoxFuture<'a, Result<Digest, StoreError>>;

    /// Reads a small object; `None` if there is none. Fails if it has more bytes than `limit`.
    fn read<'a>(
        &'a self,
        key: &'a str,
        limit: u64,
    ) -> BoxFuture<'a, Result<Option<Vec<u8>>, StoreError>>;

    /// The size of an object; `None` if there is none.
    fn size<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<u64>, StoreError>>;

    /// The keys that begin with `prefix`, in order.
    fn list<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Vec<String>, StoreError>>;

    /// Deletes an object. One that does not exist is deleted already.
    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), StoreError>>;

    /// A key, as messages name it.
    fn named(&self, key: &str) -> String;
}
