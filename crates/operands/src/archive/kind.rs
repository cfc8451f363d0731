//! A kind of backups: what it asks for, and what differs between databases.

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::batch::v1::Job;
use kube::Resource;
use kube::core::object::HasStatus;
use sdk::Object;

use super::api::{BackupStatus, DeletionPolicy};
use crate::backup::destination::{Destination, DestinationError};

/// A kind of which each object is one backup, such as EtcdSnapshot.
pub trait Archived:
    Object + Resource<Scope = NamespaceResourceScope> + HasStatus<Status = BackupStatus>
{
    /// The kind of the databases.
    type Database: Object + Resource<Scope = NamespaceResourceScope>;

    /// Its words and names.
    const TERMS: Terms;

    /// What it asks for.
    fn asked(&self) -> Asked<'_>;

    /// The version that a database runs, if a backup can be made of it now.
    fn serving(database: &Self::Database) -> Option<String>;

    /// The Job that saves a database of this version and stores the backup under `key`; `image` is the
    /// manager's own.
    ///
    /// # Errors
    /// If the destination is none.
    fn store(
        &self,
        database: &Self::Database,
        version: &str,
        key: &str,
        image: &str,
    ) -> Result<Job, DestinationError>;
}

/// The words and names of a kind of backups.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// What one of them is called, such as `snapshot`.
    pub noun: &'static str,
    /// The controller of this kind.
    pub controller: &'static str,
    /// The controller that it is a part of.
    pub whole: &'static str,
    /// The finalizer that keeps an object until what it stored is deleted.
    pub finalizer: &'static str,
    /// The annotation of a Job: the object that it works for.
    pub annotation: &'static str,
    /// What is said of a database of which no backup can be made, after its name.
    pub unready: &'static str,
    /// The reason of a condition that one of them cannot be restored.
    pub unusable: &'static str,
    /// What its Jobs look like.
    pub dress: Dress,
}

/// What the Jobs of a database look like.
#[derive(Clone, Copy, Debug)]
pub struct Dress {
    /// Their `app.kubernetes.io/name`.
    pub app: &'static str,
    /// The label with what a Job does. Its Pods must not have the labels that Services select.
    pub role: &'static str,
    /// The user and group of all containers, who is that of the database's Pods too.
    pub user: i64,
}

/// What a backup's spec asks for.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The database, in the object's namespace.
    pub database: &'a str,
    /// Where the backup is stored.
    pub destination: &'a Destination,
    /// What happens to what is stored when the object is deleted.
    pub deletion_policy: DeletionPolicy,
}
