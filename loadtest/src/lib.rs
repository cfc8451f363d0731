//! How load tests measure processes: their metrics, CPU time and memory.

pub mod scrape;
pub mod usage;
