//! Backups in a store: each with its manifest, verified.

use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::manifest::{MAX_BYTES, SUFFIX, check_name};
use super::{Digest, Manifest, Store, StoreError, digest};
use crate::schedule::{Backup, Retention};

/// The most backups that are listed.
const MAX_BACKUPS: usize = 10_000;

/// Backups in a store.
pub struct Vault<'a>(&'a dyn Store);

/// What is known of a backup before it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Draft {
    /// Its name.
    pub name: String,
    /// What it is, such as `etcd-snapshot`.
    pub kind: String,
    /// The version of the database.
    pub version: String,
    /// Whose it is: the uid of the object that asked for it.
    pub owner: String,
}

impl<'a> Vault<'a> {
    /// The backups of a store.
    pub fn new(store: &'a dyn Store) -> Self {
        Self(store)
    }

    /// Stores a file as a backup, or finds that its owner has stored it before.
    ///
    /// # Errors
    /// If the name is another owner's, or the store fails.
    pub async fn store(
        &self,
        file: &Path,
        draft: Draft,
        now: Timestamp,
    ) -> Result<Manifest, StoreError> {
        check_name(&draft.name)?;
        if let Some(found) = self.manifest(&draft.name).await? {
            self.check_owner(&found, &draft.owner)?;
            if self.0.size(&draft.name).await? == Some(found.size) {
                return Ok(found);
            }
        }
        let digest = digest::of(file).await?;
        self.0.put(&draft.name, file, &digest).await?;
        let stored = self.0.size(&draft.name).await?;
        if stored != Some(digest.size) {
            let problem = format!("{} bytes were sent and {stored:?} are there", digest.size);
            return Err(StoreError::Unanswered {
                operation: "store",
                object: self.0.named(&draft.name),
                problem,
            });
        }
        let Digest { size, sha256 } = digest;
        let Draft { name, kind, version, owner } = draft;
        let manifest = Manifest { name, size, sha256, kind, version, owner, created: now };
        let text = serde_json::to_vec_pretty(&manifest).map_err(|_| StoreError::Invalid {
            what: format!("the manifest of {}", manifest.name),
            problem: "it cannot be written as JSON",
        })?;
        self.0.write(&Manifest::key(&manifest.name), text).await?;
        Ok(manifest)
    }

    /// Fetches a backup into a file, which has its name only when it is whole and right. A file that is
    /// right already is kept.
    ///
    /// # Errors
    /// If there is no such backup, if it has another SHA-256 than `expected`, if it is not as its manifest says, or
    /// the store fails.
    pub async fn fetch(
        &self,
        name: &str,
        expected: Option<&str>,
        file: &Path,
    ) -> Result<Manifest, StoreError> {
        check_name(name)?;
        let manifest = self.manifest(name).await?;
        let manifest =
            manifest.ok_or_else(|| StoreError::Missing { object: self.0.named(name) })?;
        if let Some(expected) = expected.filter(|expected| **expected != manifest.sha256) {
            let problem = format!(
                "somebody has put another backup in its place: it has SHA-256 {}, and {expected} was stored",
                manifest.sha256
            );
            return Err(StoreError::Damaged { object: self.0.named(name), problem });
        }
        if file.exists() && digest::of(file).await? == manifest.digest() {
            return Ok(manifest);
        }
        let partial = partial(file);
        let fetched = self.0.get(name, &partial, manifest.size).await?;
        if fetched != manifest.digest() {
            let problem = format!(
                "it has {} bytes with SHA-256 {}, and its manifest says {} with {}",
                fetched.size, fetched.sha256, manifest.size, manifest.sha256
            );
            return Err(StoreError::Damaged { object: self.0.named(name), problem });
        }
        let (failed, file) = (StoreError::file("write", &file.display()), file.to_owned());
        digest::blocking(move || digest::publish(&partial, &file).map_err(failed)).await?;
        Ok(manifest)
    }

    /// The backups whose names begin with a prefix, in order of their names.
    ///
    /// # Errors
    /// If the store fails, or there are too many. A manifest that cannot be read is left out.
    pub async fn list(&self, prefix: &str) -> Result<Vec<Manifest>, StoreError> {
        let keys = self.0.list(prefix).await?;
        let names: Vec<_> = keys.iter().filter_map(|key| key.strip_suffix(SUFFIX)).collect();
        if names.len() > MAX_BACKUPS {
            return Err(StoreError::Invalid {
                what: format!("{} with {} backups", self.0.named(prefix), names.len()),
                problem: "at most 10,000 are listed: name a longer prefix",
            });
        }
        let mut found = Vec::new();
        for name in names {
            match self.manifest(name).await {
                Ok(manifest) => found.extend(manifest),
                Err(StoreError::Damaged { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }

    /// Deletes a backup of an owner, and what an interrupted store left of it. Done twice, it does
    /// nothing.
    ///
    /// # Errors
    /// If the backup is another owner's, or the store fails.
    pub async fn delete(&self, name: &str, owner: &str) -> Result<(), StoreError> {
        check_name(name)?;
        match self.manifest(name).await {
            Ok(Some(found)) => self.check_owner(&found, owner)?,
            // Nothing says whose it is, and nothing can be restored from it.
            Ok(None) | Err(StoreError::Damaged { .. }) => {}
            Err(error) => return Err(error),
        }
        self.0.delete(&Manifest::key(name)).await?;
        self.0.delete(name).await
    }

    /// Deletes the backups below a prefix that retention does not keep, and names them.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn prune(
        &self,
        prefix: &str,
        retention: Retention,
        now: Timestamp,
    ) -> Result<Vec<String>, StoreError> {
        let found = self.list(prefix).await?;
        let backup =
            |found: &Manifest| Backup { name: found.name.clone(), at: found.created, good: true };
        let backups: Vec<_> = found.iter().map(backup).collect();
        let expired = retention.expired(&backups, now);
        for name in &expired {
            self.0.delete(&Manifest::key(name)).await?;
            self.0.delete(name).await?;
        }
        Ok(expired.into_iter().map(str::to_owned).collect())
    }

    async fn manifest(&self, name: &str) -> Result<Option<Manifest>, StoreError> {
        let key = Manifest::key(name);
        let found = self.0.read(&key, MAX_BYTES).await?;
        found.map(|bytes| Manifest::parse(&key, &bytes)).transpose()
    }

    fn check_owner(&self, found: &Manifest, owner: &str) -> Result<(), StoreError> {
        if found.owner == owner {
            return Ok(());
        }
        Err(StoreError::Taken { object: self.0.named(&found.name), owner: found.owner.clone() })
    }
}

/// Where a file is written before it has its name.
fn partial(file: &Path) -> PathBuf {
    let mut name = std::ffi::OsString::from(".");
    name.push(file.file_name().unwrap_or_default());
    name.push(".partial");
    file.with_file_name(name)
}
