//! Which clusters each replica has configured and reaches, the rules about them (S7), and bugs to plant.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use leasehold_sharding::LeaseTimings;
use leasehold_sharding::api::DownCluster;
use leasehold_sharding::handover::Entry;
use leasehold_sharding::lease;
use leasehold_sharding::node::Input;
use leasehold_sharding::record::{Kind, Object, Observation, WriteOutcome};
use model::{ClusterName, MemberId};

use super::{Fleet, Happening, MS};
use crate::server::Commit;

/// After that long, others must have heard what a live replica has configured: its Lease is taken before,
/// if it cannot say so, and no watch is silent for longer.
const HEARD_US: u64 = 30_000 * MS;

/// The clusters of a replica.
#[derive(Debug, Default)]
pub struct Reached {
    /// Those that it has configured, and since when.
    configured: BTreeMap<ClusterName, u64>,
    /// Those that do not answer it.
    unreached: BTreeSet<ClusterName>,
    /// Those that never answered it, so that it has no client for them.
    silent: BTreeSet<ClusterName>,
}

/// A bug planted around the nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bug {
    #[default]
    None,
    /// Nobody reads what Members say about their clusters.
    IgnoresReports,
    /// After a change of home's history, the engine of a member that lost all goes on with what it held.
    HoldOn,
    /// The coordinator names owners at the epochs that follow those in home's maps.
    ForgetEpochs,
    /// A map that somebody deleted is made anew with other owners than it had.
    ForgetsOwners,
    /// A map that a list lacks is taken to be deleted just as it was seen last.
    BelievesGaps,
    /// Nobody looks at the time of day.
    ForgetTime,
    /// A coordinator plans before it has read the policies.
    ForgetsPauses,
    /// Home that refuses to list policies once has none.
    BelievesRefusals,
    /// Policies are as they are listed, before a renewal shows that home is the same.
    BelievesLists,
    /// The map of a paused cluster goes as soon as nobody has the cluster configured.
    ForgetsRemovedPauses,
    /// No map says by which former names its cluster is paused, once the map of that name is gone.
    ForgetsFormerNames,
    /// Who reads home anew after a change of its history knows nothing of before.
    ForgetsLostPauses,
    /// All Leases are believed to last as long as most do.
    ForgetsDurations,
    /// Each coordinator takes itself for the first one.
    ForgetsOffices,
    /// Nobody says that it does not know all of its clusters.
    HidesOpenSources,
    /// Nobody says which clusters it does not reach.
    HidesFailures,
    /// Clusters that are gone all at once are told a few at a time, so that they are no mass.
    LosesInParts,
    /// Everybody is believed to speak the first two versions of the protocol.
    BelievesAllSpeak,
    /// Every map is read as one in the first version of the protocol.
    ReadsAllVersions,
}

impl Reached {
    pub fn configure(&mut self, clusters: &BTreeSet<ClusterName>, now_us: u64) {
        self.configured.retain(|cluster, _| clusters.contains(cluster));
        for cluster in clusters {
            self.configured.entry(cluster.clone()).or_insert(now_us);
        }
    }

    pub fn silence(&mut self, silent: &BTreeSet<ClusterName>) {
        self.silent.clone_from(silent);
    }

    pub fn has(&self, cluster: &ClusterName) -> bool {
        self.configured.contains_key(cluster) && !self.silent.contains(cluster)
    }

    fn serves(&self, cluster: &ClusterName) -> bool {
        self.has(cluster) && !self.unreached.contains(cluster)
    }
}

pub fn clusters(numbers: impl IntoIterator<Item = usize>) -> BTreeSet<ClusterName> {
    numbers.into_iter().map(|n| format!("c{n}").parse().expect("a name")).collect()
}

impl Fleet {
    /// A replica has these clusters configured from now on.
    pub fn configure(&mut self, replica: usize, set: &BTreeSet<ClusterName>) {
        let Reached { configured, .. } = &self.replicas[replica].reached;
        let gone: Vec<_> = configured.keys().filter(|name| !set.contains(*name)).cloned().collect();
        if self.bug == Bug::LosesInParts && gone.len() > 10 {
            let mut part: BTreeSet<ClusterName> = configured.keys().cloned().collect();
            for some in gone.chunks(10) {
                part.retain(|name| !some.contains(name));
                self.configure(replica, &part.clone());
                self.run_for(12_000);
            }
            return;
        }
        let (now_us, configured) = (self.now_us, &mut self.replicas[replica]);
        configured.reached.configure(set, now_us);
        let now = configured.clock.read(now_us);
        let silent = configured.reached.silent.iter().cloned();
        let down = silent.map(|cluster| DownCluster { cluster, reason: "no answer".to_owned() });
        configured.node.handle(Input::Clusters(set.clone(), down.collect()), now);
        self.schedule(0, replica, Happening::Step);
    }

    /// Whether a source of clusters is open that a replica could not read yet.
    pub fn leave_open(&mut self, replica: usize, is_open: bool) {
        let is_said = is_open && self.bug != Bug::HidesOpenSources;
        let now = self.replicas[replica].clock.read(self.now_us);
        let open = is_said.then(String::new).into_iter().collect();
        self.replicas[replica].node.handle(Input::Open(open), now);
    }

    /// These clusters and no others do not answer a replica from now on.
    pub fn cut_from(&mut self, replica: usize, set: BTreeSet<ClusterName>) {
        self.replicas[replica].reached.unreached = set;
    }

    /// What a replica's engine and probes say now.
    pub fn failing(&self, replica: usize) -> Input {
        let of = &self.replicas[replica];
        let owned = of.node.published().owned;
        let asks = |cluster: &ClusterName| {
            self.probes || owned.holdings.keys().any(|shard| shard.cluster == *cluster)
        };
        let failing = of.reached.unreached.iter().filter(|name| {
            self.bug != Bug::HidesFailures
                && of.reached.configured.contains_key(*name)
                && asks(name)
        });
        Input::Failing(failing.map(|name| (name.clone(), Arc::from("no answer"))).collect())
    }

    /// An input as a replica gets it.
    pub fn seen(&self, input: Input) -> Input {
        let forgets = [
            Bug::IgnoresReports,
            Bug::ForgetsDurations,
            Bug::ForgetsOffices,
            Bug::BelievesAllSpeak,
            Bug::ReadsAllVersions,
        ];
        if !forgets.contains(&self.bug) {
            return input;
        }
        let forget = |object: Object| match object {
            Object::Member(mut member) if self.bug == Bug::IgnoresReports => {
                member.spec.clusters = None;
                Object::Member(member)
            }
            Object::Member(mut member) if self.bug == Bug::BelievesAllSpeak => {
                let spec = &mut member.spec;
                (spec.protocol_version, spec.oldest_protocol_version) = (2, Some(1));
                Object::Member(member)
            }
            Object::Map(mut map) if self.bug == Bug::ReadsAllVersions => {
                map.protocol = 1;
                Object::Map(map)
            }
            Object::Lease(mut lease) if self.bug == Bug::ForgetsDurations => {
                lease.duration = LeaseTimings::default().duration;
                Object::Lease(lease)
            }
            Object::Lease(mut lease) if self.bug == Bug::ForgetsOffices => {
                lease.transitions = 0;
                Object::Lease(lease)
            }
            other => other,
        };
        match input {
            Input::Observed(Observation::Applied(object)) => {
                Input::Observed(Observation::Applied(forget(object)))
            }
            Input::Observed(Observation::Listed(kind, version, objects)) => {
                let objects = objects.into_iter().map(forget).collect();
                Input::Observed(Observation::Listed(kind, version, objects))
            }
            Input::Completed(target, WriteOutcome::Done(Some(object))) => {
                Input::Completed(target, WriteOutcome::Done(Some(forget(object))))
            }
            other => other,
        }
    }

    /// S7: the map of a cluster that a live replica has configured, and had time to say so, is not
    /// deleted. One of two names of a cluster is another matter (S8).
    pub fn check_removal(&self, commit: &Commit) {
        let (Some(Object::Map(map)), None) = (&commit.before, &commit.after) else { return };
        if self.oracle.clusters.contains_key(&map.cluster) {
            return;
        }
        for replica in self.replicas.iter().filter(|replica| !replica.gone) {
            let since = replica.reached.configured.get(&map.cluster);
            let heard = since.is_some_and(|&since| since + HEARD_US <= self.now_us);
            let id = replica.node.id();
            assert!(
                !heard || !self.holds_lease(id),
                "S7: the map of {} is deleted while {id} has it configured",
                map.cluster
            );
        }
    }

    fn holds_lease(&self, id: &MemberId) -> bool {
        match self.server.get(Kind::Lease, &lease::member_lease_name(id)) {
            Some(Object::Lease(record)) => record.holder.as_deref() == Some(id.as_str()),
            _ => false,
        }
    }

    /// S7: the clusters that some live replica has configured and reaches, but of which a shard has no
    /// such owner.
    pub fn unserved(&self) -> BTreeSet<ClusterName> {
        let alive = || self.replicas.iter().filter(|replica| !replica.gone);
        let all: BTreeSet<&ClusterName> =
            alive().flat_map(|replica| replica.reached.configured.keys()).collect();
        let served = |cluster: &ClusterName| {
            let Some(Object::Map(map)) = self.server.get(Kind::Map, cluster.as_str()) else {
                return false;
            };
            map.entries.values().all(|entry| {
                let owner = entry.owner().filter(|_| matches!(entry, Entry::Owned { .. }));
                let serves =
                    |owner| alive().any(|r| r.node.id() == owner && r.reached.serves(cluster));
                owner.is_some_and(serves)
            })
        };
        let could = |cluster: &ClusterName| alive().any(|replica| replica.reached.serves(cluster));
        all.into_iter().filter(|name| could(name) && !served(name)).cloned().collect()
    }
}
