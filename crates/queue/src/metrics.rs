//! The metrics of one queue. Whoever makes the queue registers them.

use std::sync::Arc;
use std::time::Duration;

use model::{ClusterLabels, ClusterName, ControllerName};
use prometheus::{Histogram, HistogramVec, IntCounter};

/// The metrics of one controller's queue.
#[derive(Clone, Debug)]
pub struct QueueMetrics {
    /// The controller, a label of [`Self::waited_by_cluster`].
    pub controller: ControllerName,
    /// Keys that became ready.
    pub adds: IntCounter,
    /// Delayed adds.
    pub retries: IntCounter,
    /// How long a ready key waits, in seconds.
    pub waited: Histogram,
    /// How long a key is processed, in seconds.
    pub worked: Histogram,
    /// How long a ready key waits, by cluster and controller, in seconds.
    pub waited_by_cluster: HistogramVec,
    /// Which clusters have series of their own.
    pub labels: Arc<ClusterLabels>,
}

impl QueueMetrics {
    /// Counts one key given out.
    pub(crate) fn popped(&self, cluster: &ClusterName, waited: Duration) {
        let waited = waited.as_secs_f64();
        self.waited.observe(waited);
        let labels = [self.labels.of(cluster), self.controller.as_str()];
        self.waited_by_cluster.with_label_values(&labels).observe(waited);
    }
}
