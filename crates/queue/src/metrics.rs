//! The metrics of one queue. Whoever makes the queue registers them.

use prometheus::{Histogram, IntCounter};

/// The metrics of one controller's queue.
#[derive(Clone, Debug)]
pub struct QueueMetrics {
    /// Keys that became ready.
    pub adds: IntCounter,
    /// Delayed adds.
    pub retries: IntCounter,
    /// How long a ready key waits, in seconds.
    pub waited: Histogram,
    /// How long a key is processed, in seconds.
    pub worked: Histogram,
}
