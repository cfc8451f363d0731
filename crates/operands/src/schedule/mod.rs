//! When backups are made, and which of them are kept. Pure.
//!
//! A schedule is an expression of cron in a time zone. Where clocks are put forward, a time that the day
//! lacks is left out; where they are put back, a time that comes twice is a run twice. A schedule that
//! must not miss or repeat uses UTC, or an hour at which no clock is changed.

mod cron;
mod retention;

pub(crate) use cron::Schedule;
pub(crate) use retention::Backup;
pub use retention::Retention;
