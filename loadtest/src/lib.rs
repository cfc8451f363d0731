//! How load tests measure processes and limit them, draw what they measured, and end by a signal.

pub mod capacity;
pub mod cpu_share;
#[cfg(test)]
mod kind;
pub mod plot;
pub mod scrape;
pub mod signals;
pub mod usage;
