//! How load tests measure processes and limit them, and draw what they measured.

pub mod capacity;
pub mod cpu_share;
#[cfg(test)]
mod kind;
pub mod plot;
pub mod scrape;
pub mod usage;
