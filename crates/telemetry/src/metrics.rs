//! The metrics registry and its text form. Each crate registers its own series.

use prometheus::{Registry, TextEncoder};

/// A registry with the series of this process: CPU, memory, file descriptors, start time (`process_*`).
///
/// The process collector reads `/proc`, so the registry starts empty on other systems than Linux.
pub fn registry() -> Registry {
    let registry = Registry::new();
    #[cfg(target_os = "linux")]
    crate::process::Process::of_self()
        .and_then(|process| registry.register(Box::new(process)))
        .expect("the names are well formed, and a new registry holds none that could clash");
    registry
}

/// Every series of `registry` in Prometheus' text format.
///
/// Leaves out a family that cannot be written (a collector may briefly return one without metrics), so
/// that it does not spoil the scrape.
pub fn encode(registry: &Registry) -> String {
    let encoder = TextEncoder::new();
    let mut text = String::new();
    for family in registry.gather() {
        let before = text.len();
        if let Err(error) = encoder.encode_utf8(std::slice::from_ref(&family), &mut text) {
            text.truncate(before);
            tracing::debug!(family = family.name(), %error, "metric family left out of the scrape");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use prometheus::{IntCounterVec, Opts};

    use super::*;

    #[test]
    fn a_scrape_shows_the_process_and_what_rooms_registered() {
        let registry = registry();
        let moves =
            IntCounterVec::new(Opts::new("leasehold_moves_total", "Moves."), &["reason"]).unwrap();
        registry.register(Box::new(moves.clone())).unwrap();
        moves.with_label_values(&["drain"]).inc_by(3);

        let text = encode(&registry);
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
        assert!(encode(&registry).contains("one 1\n"));
    }
}
