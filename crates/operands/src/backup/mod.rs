//! Backups at a destination: stored, fetched, listed and deleted.
//!
//! ```text
//!   file ──check──▶ store ──▶ NAME ──▶ NAME.manifest.json      a volume's folder, or a bucket
//!   file ◀──────── fetch ◀── size and sha256 as the manifest says, or an error
//! ```
//!
//! [`destination`] says where, as a resource does, and mounts it into a Pod. [`Store`] is a place for
//! objects: [`Folder`] or [`BucketStore`](s3::BucketStore). `vault` stores backups in it. [`check`] judges a file
//! before it is stored. [`report`] is what a Job says when it ends.
//!
//! Invariants:
//! 1. A backup exists if its manifest does. The manifest is written after everything else and deleted
//!    before everything else. So a crash leaves no backup that cannot be restored.
//! 2. Nothing is overwritten: a name that is taken by another owner's backup is refused. The same owner
//!    gets the backup that is there, so a repeated Job does no harm.
//! 3. What is fetched has the size and the SHA-256 of its manifest before it gets its name.

pub mod check;
pub mod destination;
mod digest;
mod error;
mod folder;
mod manifest;
pub mod report;
pub mod s3;
mod store;
#[cfg(test)]
mod tests;
mod vault;

pub use digest::Digest;
pub use error::StoreError;
pub use folder::Folder;
pub use manifest::Manifest;
pub use store::Store;
pub use vault::{Draft, Vault};
