//! The series of the manager as a whole: which build it is, and whether it is ready.

use std::sync::{OnceLock, Weak};

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGauge, IntGaugeVec, Opts, Registry};
use sharding::ProtocolVersions;

use crate::inside::{Handles, Inside};

/// Registers them. Readiness is that of `inside`.
///
/// # Errors
/// If the registry has series of these names.
pub(crate) fn register(registry: &Registry, inside: &Inside) -> Result<(), prometheus::Error> {
    let build = Opts::new("leasehold_build_info", "1, with the version of this build as labels.");
    let build = IntGaugeVec::new(build, &["version", "protocol"])?;
    let protocol = ProtocolVersions::SPOKEN.newest.to_string();
    build.with_label_values(&[env!("CARGO_PKG_VERSION"), &protocol]).set(1);
    registry.register(Box::new(build))?;
    registry.register(Box::new(Ready::new(inside)?))
}

/// `leasehold_ready`, which is asked at each scrape.
struct Ready {
    /// Whoever keeps the registry does not keep the manager.
    inside: Weak<OnceLock<Handles>>,
    gauge: IntGauge,
}

impl Ready {
    fn new(inside: &Inside) -> Result<Self, prometheus::Error> {
        let what = "1 if this replica is ready, as /readyz says without the program's own checks.";
        Ok(Self { inside: inside.downgrade(), gauge: IntGauge::new("leasehold_ready", what)? })
    }
}

impl Collector for Ready {
    fn desc(&self) -> Vec<&Desc> {
        self.gauge.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let ready =
            Inside::upgrade(&self.inside).is_some_and(|inside| inside.readiness().is_ready());
        self.gauge.set(ready.into());
        self.gauge.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manager_that_is_not_assembled_says_which_build_it_is_and_that_it_is_not_ready() {
        let (registry, inside) = (Registry::new(), Inside::default());
        register(&registry, &inside).unwrap();
        let text = telemetry::encode(&registry);
        assert!(text.lines().any(|line| line == "leasehold_ready 0"), "{text}");
        let version = format!("version=\"{}\"}} 1", env!("CARGO_PKG_VERSION"));
        assert!(text.contains("leasehold_build_info{") && text.contains(&version), "{text}");
        assert!(register(&registry, &inside).is_err(), "names are registered once");
    }
}
