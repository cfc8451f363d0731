//! `leasehold version`.

use serde::Serialize;
use sharding::ProtocolVersions;

use crate::builtin;

/// What this build is.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Version {
    version: &'static str,
    /// The versions of the sharding protocol that it speaks, the oldest and the newest. Replicas whose versions
    /// meet work together.
    protocol: [u32; 2],
    /// The built-in controllers.
    controllers: Vec<&'static str>,
    /// The oldest release of Kubernetes that is tested.
    oldest_kubernetes: String,
    /// For which machine it was built: architecture and system.
    platform: String,
    /// Whether it was built without optimization.
    debug: bool,
}

impl Version {
    /// The version of this program.
    pub(super) fn of_this_build() -> Self {
        let ProtocolVersions { oldest, newest } = ProtocolVersions::SPOKEN;
        let (major, minor) = doctor::OLDEST;
        Self {
            version: env!("CARGO_PKG_VERSION"),
            protocol: [oldest, newest],
            controllers: builtin::names(),
            oldest_kubernetes: format!("{major}.{minor}"),
            platform: format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS),
            debug: cfg!(debug_assertions),
        }
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        format!("leasehold {}\n", self.version)
    }
}
