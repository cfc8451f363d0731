//! Objects that are backups of a database, the schedules that make them, and a database that begins with
//! one: the same for each database, but for the tools in the Jobs.
//!
//! ```text
//!   schedule ──▶ an object for each backup ──▶ plan ──▶ Job: the database's tool saves, we store
//!   a database ──▶ restore ──▶ Job on the volume of its first server: we fetch, its tool restores
//! ```
//!
//! [`Archived`] is a kind of which each object is one backup, [`Scheduled`] one that makes them. `api` has
//! what they write in their specs and statuses. [`jobs`] makes the Jobs, and `seen` reads what became of
//! them. `plan` decides the next step of a backup, `reconcile` takes it. [`restore`] does both for a
//! database that begins with one.
//!
//! Each step can be taken twice. A name at a destination belongs to the uid of one object, so a Job that
//! runs again finds what the first one stored. A volume gets its data by one rename, which never replaces
//! data.

mod api;
mod calls;
pub mod jobs;
mod kind;
mod plan;
mod reconcile;
pub mod restore;
mod schedule;
mod seen;
mod settings;
#[cfg(test)]
mod testkind;

pub use api::{BackupPhase, BackupStatus, DeletionPolicy, ScheduleStatus, Scheduling};
pub use kind::{Archived, Asked, Dress, Terms};
pub use reconcile::controller;
pub use schedule::{Scheduled, controller as scheduler};
pub use seen::{JobSeen, Outcome};
pub use settings::Settings;
