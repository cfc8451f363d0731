//! Which clusters can be used, and which another fleet keeps, as metrics: `leasehold_cluster_up` and
//! `leasehold_cluster_refused`, computed when scraped.
//!
//! A replica shows the clusters on which it works, and those that it cannot use.

use std::sync::{Arc, Mutex};

use model::{ClusterLabel, ClusterLabels};
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGaugeVec, Opts};
use tokio::sync::watch;

use crate::status::Status;

/// Computes the metrics.
pub(crate) struct ClustersUp {
    status: watch::Receiver<Arc<Status>>,
    labels: Arc<ClusterLabels>,
    /// One scrape at a time fills and reads it.
    shown: Mutex<Shown>,
    descs: Vec<Desc>,
}

struct Shown {
    up: IntGaugeVec,
    /// A series only for clusters that are refused.
    refused: IntGaugeVec,
    /// The labels of what is shown, until the next scrape.
    kept: Vec<ClusterLabel>,
}

impl ClustersUp {
    pub(crate) fn new(
        status: watch::Receiver<Arc<Status>>,
        labels: Arc<ClusterLabels>,
    ) -> Result<Self, prometheus::Error> {
        let what = "1 if a cluster is engaged and its server answers: of clusters on which this replica \
                    works, and of those that it cannot use.";
        let up = IntGaugeVec::new(Opts::new("leasehold_cluster_up", what), &["cluster"])?;
        let what = "1 if another fleet with the same controllers has its mark in the cluster.";
        let refused = IntGaugeVec::new(Opts::new("leasehold_cluster_refused", what), &["cluster"])?;
        let descs = up.desc().into_iter().chain(refused.desc()).cloned().collect();
        let shown = Mutex::new(Shown { up, refused, kept: Vec::new() });
        Ok(Self { status, labels, shown, descs })
    }
}

impl Collector for ClustersUp {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let status = Arc::clone(&self.status.borrow());
        let mut shown = self.shown.lock().expect("no holder of this lock panics");
        // Else what it keeps itself would count as work.
        shown.kept.clear();
        shown.up.reset();
        shown.refused.reset();
        let (up, down): (Vec<_>, Vec<_>) =
            status.clusters.iter().partition(|cluster| cluster.is_up());
        let up = up.into_iter().filter(|cluster| self.labels.is_kept(&cluster.name));
        let up = up.map(|cluster| (self.labels.keep(&cluster.name), 1)).collect::<Vec<_>>();
        let down = down.into_iter().map(|cluster| {
            let label = self.labels.keep(&cluster.name);
            if cluster.refused {
                shown.refused.with_label_values(&[label.value()]).set(1);
            }
            (label, 0)
        });
        let down = down.collect::<Vec<_>>();
        for (label, value) in up.into_iter().chain(down) {
            // Clusters past the cap share a series: it shows whether all of them can be used.
            shown.up.with_label_values(&[label.value()]).set(value);
            shown.kept.push(label);
        }
        [shown.up.collect(), shown.refused.collect()].concat()
    }
}
