//! The metrics registry and its text form. Each crate registers its own series.

use prometheus::{Registry, TextEncoder};

use crate::open_metrics::{self, Exemplars};

/// A registry with the series of this process: CPU, memory, file descriptors, start time (`process_*`), and what
/// the allocator holds (`leasehold_allocator_*`).
///
/// The process collector reads `/proc`, so the registry starts empty on other systems than Linux.
pub fn registry() -> Registry {
    let registry = Registry::new();
    if cfg!(target_os = "linux") {
        crate::process::Process::of_self()
            .and_then(|process| registry.register(Box::new(process)))
            .expect("the names are well formed, and a new registry holds none that could clash");
    }
    crate::allocator::Allocator::of_self()
        .and_then(|allocator| registry.register(Box::new(allocator)))
        .expect("the names are well formed, and a new registry holds none that could clash");
    registry
}

/// A text format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus', which every reader knows.
    Prometheus,
    /// OpenMetrics, in which a bucket may lead to a trace.
    OpenMetrics,
}

impl Format {
    /// The format for a reader who accepts these media types: OpenMetrics only where spans become traces, so
    /// that it has something to add.
    pub fn accepted(accept: &str) -> Self {
        match exemplars().is_some() && accept.contains("application/openmetrics-text") {
            true => Self::OpenMetrics,
            false => Self::Prometheus,
        }
    }

    /// Its media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The traces that this thread's subscriber remembers, if it exports any.
fn exemplars() -> Option<Exemplars> {
    tracing::dispatcher::get_default(|subscriber| subscriber.downcast_ref::<Exemplars>().cloned())
}

/// Every series of `registry` as text.
///
/// Leaves out a family that cannot be written (a collector may briefly return one without metrics), so
/// that it does not spoil the scrape.
pub fn encode(registry: &Registry, format: Format) -> String {
    let encoder = TextEncoder::new();
    let exemplars = exemplars().unwrap_or_default();
    let (mut page, mut text) = (String::new(), String::new());
    for family in registry.gather() {
        text.clear();
        if let Err(error) = encoder.encode_utf8(std::slice::from_ref(&family), &mut text) {
            tracing::debug!(family = family.name(), %error, "metric family left out of the scrape");
            continue;
        }
        match format {
            Format::Prometheus => page.push_str(&text),
            Format::OpenMetrics => open_metrics::append(&mut page, &family, &text, &exemplars),
        }
    }
    if format == Format::OpenMetrics {
        page.push_str("# EOF\n");
    }
    page
}

#[cfg(test)]
mod tests {
    use prometheus::{IntCounterVec, Opts};

    use super::*;

    #[test]
    fn a_scrape_shows_the_process_and_what_crates_registered() {
        let registry = registry();
        let moves =
            IntCounterVec::new(Opts::new("leasehold_moves_total", "Moves."), &["reason"]).unwrap();
        registry.register(Box::new(moves.clone())).unwrap();
        moves.with_label_values(&["drain"]).inc_by(3);

        let text = encode(&registry, Format::Prometheus);
        assert!(text.contains("leasehold_moves_total{reason=\"drain\"} 3\n"), "{text}");
        #[cfg(target_os = "linux")]
        for series in ["process_resident_memory_bytes ", "process_cpu_seconds_total "] {
            assert!(text.contains(series), "{series} in {text}");
        }
    }

    #[test]
    fn a_vector_without_a_member_does_not_spoil_the_scrape() {
        let registry = Registry::new();
        let empty = IntCounterVec::new(Opts::new("empty_total", "None yet."), &["x"]).unwrap();
        let one = prometheus::IntGauge::new("one", "One.").unwrap();
        registry.register(Box::new(empty)).unwrap();
        registry.register(Box::new(one.clone())).unwrap();
        one.set(1);
        assert!(encode(&registry, Format::Prometheus).contains("one 1\n"));
    }
}
