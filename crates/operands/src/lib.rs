//! What the controllers of databases share.
//!
//! - [`archive`]: objects that are backups, the schedules that make them, and databases that begin with one
//! - [`backup`]: backups in a folder or a bucket, and what a Job with `leasehold backup` says
//! - [`certificates`]: an authority kept in a Secret, the certificates that it issues, and when one is
//!   issued anew
//! - [`children`]: objects that belong to a database
//! - [`report`]: a status that is written, with Events for what is new in it
//! - [`pod`], [`spec`]: parts of Pods, and values of specs
//! - [`schedule`]: when backups are made, and which of them are kept
//! - [`tls`]: a TLS client over any stream, which trusts one authority
//!
//! Nothing here reads a clock: each decision takes `now`.

#![deny(unreachable_pub)]

pub mod archive;
pub mod backup;
pub mod certificates;
pub mod children;
pub mod pod;
pub mod report;
pub mod schedule;
pub mod spec;
pub mod tls;
