//! What the controllers of databases share.
//!
//! - [`backup`]: backups in a folder or a bucket, and what a Job with `leasehold backup` says
//! - [`certificates`]: an authority kept in a Secret, the certificates that it issues, and when one is
//!   issued anew
//! - [`schedule`]: when backups are made, and which of them are kept
//! - [`tls`]: a TLS client over any stream, which trusts one authority
//!
//! Nothing here reads a clock: each decision takes `now`.

#![deny(unreachable_pub)]

pub mod backup;
pub mod certificates;
pub mod schedule;
pub mod tls;
