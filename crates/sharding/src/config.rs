//! The settings of a member.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use model::{ClusterLabels, DisputedNames, GroupName, GroupTraits, Living};
use tokio::sync::watch;

use crate::api::{DEFAULT_CAPACITY, MAX_GROUPS, MemberContainer};
use crate::versions::ProtocolVersions;

/// The settings of one member.
#[derive(Clone, Debug)]
pub struct Config {
    /// The namespace in the home cluster that holds Leases, Members and ShardMaps.
    pub namespace: String,
    /// The installation: replicas with one configuration. Those of another take no part in this namespace.
    pub installation: String,
    /// The name of the process, the same in each of its incarnations: that of the pod or the host.
    pub identity: String,
    /// The timings of its Lease.
    pub lease: LeaseTimings,
    /// How long reconciles of a shard may go on after its drain began; then they are cancelled.
    pub drain_timeout: Duration,
    /// The controller groups this process runs.
    pub groups: BTreeSet<GroupName>,
    /// Details of these groups. Groups without details may be divided by object.
    pub traits: BTreeMap<GroupName, GroupTraits>,
    /// How much this member can carry, relative to the others (1 to 1000).
    pub capacity: u32,
    /// The zone in which this process runs, by which FleetPolicies may select it.
    pub zone: Option<String>,
    /// The versions of the protocol that it speaks. Only tests set others than this code's own.
    pub speaks: ProtocolVersions,
    /// An object that becomes the owner of Members and their Leases, so that Kubernetes deletes them when
    /// an installation is removed. ShardMaps and the coordinator's Lease have no owner: they outlive it.
    pub owner: Option<OwnerReference>,
    /// The container of this process, if it is certain of it: see
    /// [`own_container`](crate::own_container).
    pub container: Option<MemberContainer>,
    /// Which clusters have metric label values of their own.
    pub cluster_labels: Arc<ClusterLabels>,
    /// Gets the names of clusters that stand for others here than in the fleet.
    pub disputed: watch::Sender<Arc<DisputedNames>>,
    /// Gets the members that may live.
    pub living: watch::Sender<Arc<Living>>,
    /// Seeds the random suffixes of member ids and the jitter of retries.
    pub seed: u64,
}

/// The timings of Leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTimings {
    /// A Lease runs out this long after its last renewal.
    pub duration: Duration,
    /// How often a member renews its Lease.
    pub renew_interval: Duration,
    /// For clocks that run at different rates: a member stops this much before its Lease runs out,
    /// and others wait this much longer before they take the Lease.
    pub margin: Duration,
}

/// The installation of those that do not name theirs. It is not `leasehold`, as people call the release of a chart: so
/// what somebody starts on a laptop takes no part in that release's namespace.
pub const DEFAULT_INSTALLATION: &str = "standalone";

/// The longest duration of a Lease. Nobody believes a Lease that says more.
pub const MAX_LEASE: Duration = Duration::from_secs(600);

/// Why a member cannot work with its settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The identity cannot become part of object names.
    #[error(
        "identity {0:?} cannot name a member: use 1 to 63 of a-z, 0-9, '-' and '.', each part between dots beginning and ending with a letter or digit"
    )]
    Identity(String),
    /// The installation is no name.
    #[error(
        "installation {0:?} is no name: use 1 to 63 of a-z, 0-9, '-' and '.', each part between dots beginning and ending with a letter or digit"
    )]
    Installation(String),
    /// The zone is no name.
    #[error(
        "zone {0:?} is no name: use 1 to 63 of a-z, 0-9, '-' and '.', each part between dots beginning and ending with a letter or digit"
    )]
    Zone(String),
    /// The timings leave no room for a renewal that fails once.
    #[error(
        "lease timings of {duration:?} / {renew_interval:?} with a margin of {margin:?} leave no room for a failed renewal: the duration must exceed twice the interval plus the margin"
    )]
    Timings {
        /// The duration of the Lease.
        duration: Duration,
        /// The interval of renewals.
        renew_interval: Duration,
        /// The margin.
        margin: Duration,
    },
    /// The Lease lasts longer than others believe.
    #[error("a lease duration of {0:?} is too long: at most {max:?}", max = MAX_LEASE)]
    Duration(Duration),
    /// The capacity is out of bounds.
    #[error("capacity {0} is out of bounds: use 1 to 1000")]
    Capacity(u32),
    /// More groups than a Member has room for.
    #[error(
        "{0} controller groups are too many for one member: at most {max}; fix: let controllers that belong \
         together name one group, or run some of them in another installation",
        max = MAX_GROUPS
    )]
    Groups(usize),
}

impl Default for LeaseTimings {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(8),
            renew_interval: Duration::from_secs(2),
            margin: Duration::from_millis(500),
        }
    }
}

impl LeaseTimings {
    /// How long others must see no renewal of a Lease before they may take it.
    pub fn silence(&self) -> Duration {
        self.duration + self.margin
    }

    /// How long a renewal may go unanswered before it counts as failed. Shorter than the interval, so
    /// that a lost renewal is repeated before the next one is due.
    pub(crate) fn renewal_deadline(&self) -> Duration {
        self.renew_interval * 3 / 4
    }

    /// How long a member may act after it sent a renewal.
    pub fn validity(&self) -> Duration {
        self.duration.saturating_sub(self.margin)
    }
}

impl Config {
    /// The defaults, for this process.
    pub fn new(identity: &str, groups: BTreeSet<GroupName>, seed: u64) -> Self {
        Self {
            namespace: "leasehold-system".to_owned(),
            installation: DEFAULT_INSTALLATION.to_owned(),
            identity: identity.to_owned(),
            lease: LeaseTimings::default(),
            drain_timeout: Duration::from_secs(30),
            groups,
            traits: BTreeMap::new(),
            capacity: DEFAULT_CAPACITY,
            zone: None,
            speaks: ProtocolVersions::SPOKEN,
            owner: None,
            container: None,
            cluster_labels: Arc::default(),
            disputed: watch::Sender::default(),
            living: watch::Sender::default(),
            seed,
        }
    }

    /// Whether a member can work with these settings.
    ///
    /// # Errors
    /// The first setting it cannot work with.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.identity.parse::<model::MemberId>().is_err() {
            return Err(ConfigError::Identity(self.identity.clone()));
        }
        if self.installation.parse::<model::MemberId>().is_err() {
            return Err(ConfigError::Installation(self.installation.clone()));
        }
        if let Some(zone) =
            self.zone.as_ref().filter(|zone| zone.parse::<model::MemberId>().is_err())
        {
            return Err(ConfigError::Zone(zone.clone()));
        }
        let LeaseTimings { duration, renew_interval, margin } = self.lease;
        if duration <= renew_interval * 2 + margin || renew_interval.is_zero() {
            return Err(ConfigError::Timings { duration, renew_interval, margin });
        }
        if duration > MAX_LEASE {
            return Err(ConfigError::Duration(duration));
        }
        if !(1..=1000).contains(&self.capacity) {
            return Err(ConfigError::Capacity(self.capacity));
        }
        if self.groups.len() > MAX_GROUPS {
            return Err(ConfigError::Groups(self.groups.len()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timings_must_survive_one_failed_renewal() {
        let mut config = Config::new("replica-0", BTreeSet::new(), 1);
        assert_eq!(config.validate(), Ok(()));
        config.lease.renew_interval = Duration::from_secs(4);
        assert_eq!(
            config.validate().unwrap_err().to_string(),
            "lease timings of 8s / 4s with a margin of 500ms leave no room for a failed renewal: the duration must exceed twice the interval plus the margin"
        );
    }

    #[test]
    fn more_groups_than_a_member_has_room_for_are_refused() {
        let groups = |n| (0..n).map(|n| format!("g{n}").parse().unwrap()).collect();
        assert_eq!(Config::new("replica-0", groups(MAX_GROUPS), 1).validate(), Ok(()));
        let refused = Config::new("replica-0", groups(MAX_GROUPS + 1), 1).validate();
        assert!(refused.unwrap_err().to_string().starts_with("129 controller groups are too many"));
    }

    #[test]
    fn an_identity_must_be_a_name() {
        let config = Config::new("Replica 0", BTreeSet::new(), 1);
        assert!(matches!(config.validate(), Err(ConfigError::Identity(_))));
        let named = Config { identity: "replica-0".to_owned(), ..config };
        assert_eq!(named.validate(), Ok(()));
        let odd = Config { installation: "a b".to_owned(), ..named };
        assert!(matches!(odd.validate(), Err(ConfigError::Installation(_))));
        let odd = Config { zone: Some(String::new()), installation: "a".to_owned(), ..odd };
        assert!(matches!(odd.validate(), Err(ConfigError::Zone(_))));
    }
}
