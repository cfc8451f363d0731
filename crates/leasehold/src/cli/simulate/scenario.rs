//! A fleet to simulate: its members, its clusters and the true load of each shard.

use std::collections::BTreeMap;

use clap::ValueEnum;
use model::{ClusterName, GroupName, MemberId, Range, ShardId};
use sharding::api::{MemberSpec, ObjectVersion, ShardLoad};
use sharding::policy::PolicyRecord;
use sharding::record::{MapRecord, MemberRecord};

/// The load of an invented shard, on average: busy milliseconds per second, events per thousand
/// seconds, cached KiB.
const MEAN_LOAD: [f64; 3] = [1_000.0, 10_000.0, 20_000.0];
/// The part of all load that a hot cluster has.
const HOT_PART: f64 = 0.6;

/// A fleet before anything happens to it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scenario {
    /// A title for people.
    pub title: String,
    /// Its namespace in home, if it is not invented.
    pub namespace: Option<String>,
    /// Its members.
    pub members: Vec<MemberRecord>,
    /// Who coordinates; the first of them, if that is not known.
    pub coordinator: Option<MemberId>,
    /// Its clusters and the owners of shards, if any.
    pub maps: Vec<MapRecord>,
    /// The true load of shards; that of their parts and unions follows from it.
    pub loads: Vec<ShardLoad>,
    /// What people want.
    pub policies: Vec<PolicyRecord>,
}

/// The shape of an invented fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// How many members, all equal.
    pub members: u16,
    /// How many clusters.
    pub clusters: u16,
    /// How many controller groups in each.
    pub groups: u16,
    /// How load is spread over clusters; the groups of one cluster are equal.
    pub load: Load,
}

/// How load is spread over clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Load {
    /// All equal.
    Uniform,
    /// The second has half of what the first has, the third a third, and so on.
    Zipf,
    /// One has three fifths of everything, the others are equal.
    OneHot,
}

/// A change of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// None: it is only formed.
    Nothing,
    /// So many members leave.
    Leave(u16),
    /// So many members join.
    Join(u16),
}

impl Scenario {
    /// Invents a fleet that has just been configured.
    pub(crate) fn invent(shape: &Shape, seed: u64) -> Self {
        let Shape { members, clusters, groups, load } = *shape;
        let groups: Vec<GroupName> = (0..groups).map(|n| name(format!("group-{n}"))).collect();
        let clusters: Vec<ClusterName> =
            (0..clusters).map(|n| name(format!("cluster-{n}"))).collect();
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut parts = load.parts(clusters.len());
        rng.shuffle(&mut parts);
        let mut loads = Vec::new();
        for (cluster, part) in clusters.iter().zip(parts) {
            for group in &groups {
                let (cluster, group) = (cluster.clone(), group.clone());
                let shard = ShardId { cluster, group, range: Range::WHOLE };
                loads.push(load_of(shard, part * clusters.len() as f64));
            }
        }
        Self {
            title: format!("invented, {} load, seed {seed}", load.name()),
            namespace: None,
            members: (0..members).map(|n| member(n, &groups)).collect(),
            coordinator: None,
            maps: clusters.into_iter().map(MapRecord::new).collect(),
            loads,
            policies: Vec::new(),
        }
    }

    /// The groups and clusters of the loads, each with its shards.
    pub(super) fn loads_by_group(self) -> BTreeMap<(ClusterName, GroupName), Vec<ShardLoad>> {
        let mut all: BTreeMap<_, Vec<ShardLoad>> = BTreeMap::new();
        for load in self.loads {
            let key = (load.shard.cluster.clone(), load.shard.group.clone());
            all.entry(key).or_default().push(load);
        }
        all
    }
}

impl Load {
    /// The part of all load that each cluster has.
    fn parts(self, clusters: usize) -> Vec<f64> {
        let weights: Vec<f64> = match self {
            Self::Uniform => vec![1.0; clusters],
            Self::Zipf => (1..=clusters).map(|rank| 1.0 / rank as f64).collect(),
            Self::OneHot => {
                let others = (clusters.max(2) - 1) as f64;
                let hot = others * HOT_PART / (1.0 - HOT_PART);
                std::iter::once(hot).chain(std::iter::repeat(1.0)).take(clusters).collect()
            }
        };
        let sum: f64 = weights.iter().sum();
        weights.into_iter().map(|weight| weight / sum).collect()
    }

    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// An invented member that can run these groups.
pub(super) fn member(number: u16, groups: &[GroupName]) -> MemberRecord {
    let identity = format!("member-{number}");
    MemberRecord {
        id: identity.parse().expect("letters and a number make a name"),
        version: ObjectVersion::default(),
        spec: MemberSpec::new(&identity, groups.to_vec()),
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and positive")]
fn load_of(shard: ShardId, times_mean: f64) -> ShardLoad {
    let [busy, events, cached] = MEAN_LOAD.map(|mean| (mean * times_mean).round() as u64);
    // Of many objects, none of which takes much.
    let heaviest = Some(0);
    ShardLoad {
        shard,
        busy: u32::try_from(busy).unwrap_or(u32::MAX),
        heaviest,
        events,
        cached,
        waiting: 0,
    }
}

fn name<T: std::str::FromStr<Err: std::fmt::Debug>>(text: String) -> T {
    text.parse().expect("letters and a number make a name")
}
