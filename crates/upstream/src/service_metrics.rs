//! Metrics of calls to outside services.

use std::time::Duration;

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

use crate::outcome::Outcome;

const BUCKETS: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];

/// The families. Clones share them.
#[derive(Clone, Debug)]
pub struct ServiceMetrics {
    requests: IntCounterVec,
    duration: HistogramVec,
    held: IntCounterVec,
}

impl ServiceMetrics {
    /// Makes and registers them.
    ///
    /// # Errors
    /// If series of these names are registered already.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let metrics = Self {
            requests: IntCounterVec::new(
                Opts::new(
                    "leasehold_external_requests_total",
                    "Calls to services outside of Kubernetes, by how they ended.",
                ),
                &["external_service", "result"],
            )?,
            duration: HistogramVec::new(
                HistogramOpts::new(
                    "leasehold_external_request_duration_seconds",
                    "How long they took.",
                )
                .buckets(BUCKETS.to_vec()),
                &["external_service"],
            )?,
            held: IntCounterVec::new(
                Opts::new(
                    "leasehold_external_held_back_total",
                    "Reconciles put off because the budget of such a service was spent.",
                ),
                &["external_service"],
            )?,
        };
        registry.register(Box::new(metrics.requests.clone()))?;
        registry.register(Box::new(metrics.duration.clone()))?;
        registry.register(Box::new(metrics.held.clone()))?;
        Ok(metrics)
    }

    /// Creates the series of a service, at zero, before its first call.
    pub(super) fn begin(&self, service: &str) {
        self.held.with_label_values(&[service]);
        self.requests.with_label_values(&[service, "answered"]);
        self.duration.with_label_values(&[service]);
    }

    pub(super) fn observe(&self, service: &str, outcome: &Outcome, took: Duration) {
        let result = match outcome {
            Outcome::Answered => "answered",
            Outcome::Overloaded { .. } => "overloaded",
            Outcome::Unavailable { .. } => "unavailable",
            Outcome::Unanswered { .. } => "unanswered",
            Outcome::Dropped => "dropped",
        };
        self.requests.with_label_values(&[service, result]).inc();
        self.duration.with_label_values(&[service]).observe(took.as_secs_f64());
    }

    pub(super) fn held(&self, service: &str) {
        self.held.with_label_values(&[service]).inc();
    }
}
