//! Which clusters can be used, which another fleet keeps, and when their credentials end, as metrics:
//! `leasehold_cluster_up`, `leasehold_cluster_refused` and `leasehold_credential_*`, computed when scraped.
//!
//! A replica shows the clusters on which it works, and those that it cannot use.

use std::sync::{Arc, Mutex};

use model::{ClusterLabel, ClusterLabels};
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGaugeVec, Opts};
use tokio::sync::watch;

use crate::credentials::CredentialLife;
use crate::status::{ClusterStatus, Status};

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
    /// Series only for credentials whose end is known.
    begins: IntGaugeVec,
    ends: IntGaugeVec,
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
        let gauges = |name: &str, what: &str| {
            let opts = Opts::new(format!("leasehold_credential_{name}_timestamp_seconds"), what);
            IntGaugeVec::new(opts, &["cluster", "source"])
        };
        let begins = gauges("begin", "Since when a cluster's credential is valid.")?;
        let ends = gauges("end", "When a cluster's credential ends, if that is known.")?;
        let shown = Shown { up, refused, begins, ends };
        let descs = shown.all().iter().flat_map(|gauge| gauge.desc()).cloned().collect();
        let shown = Mutex::new(shown);
        Ok(Self { status, labels, shown, descs })
    }
}

impl Collector for ClustersUp {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let status = Arc::clone(&self.status.borrow());
        let shown = self.shown.lock().expect("no holder of this lock panics");
        shown.all().iter().for_each(|gauge| gauge.reset());
        // Those that can be used come first: of clusters past the cap, which share a series, one that cannot
        // be used counts.
        let (up, down): (Vec<_>, Vec<_>) =
            status.clusters.iter().partition(|cluster| cluster.is_up());
        let up = up.into_iter().filter(|cluster| self.labels.is_kept(&cluster.name));
        let up = up.collect::<Vec<_>>();
        // Given back at the end: else what nobody works on would take the labels of what comes to work.
        let mut kept = Vec::new();
        for cluster in up.into_iter().chain(down) {
            let label = self.labels.keep_idle(&cluster.name);
            shown.show(cluster, &label);
            kept.push(label);
        }
        shown.all().iter().flat_map(|gauge| gauge.collect()).collect()
    }
}

impl Shown {
    fn all(&self) -> [&IntGaugeVec; 4] {
        [&self.up, &self.refused, &self.begins, &self.ends]
    }

    fn show(&self, cluster: &ClusterStatus, label: &ClusterLabel) {
        self.up.with_label_values(&[label.value()]).set(cluster.is_up().into());
        if cluster.refused {
            self.refused.with_label_values(&[label.value()]).set(1);
        }
        if let Some(CredentialLife { source, begins, ends }) = cluster.credential {
            let labels = [label.value(), source];
            let (begin, end) =
                (self.begins.with_label_values(&labels), self.ends.with_label_values(&labels));
            // Of clusters past the cap, the one that ends first.
            if end.get() == 0 || ends.as_second() < end.get() {
                begin.set(begins.as_second());
                end.set(ends.as_second());
            }
        }
    }
}
