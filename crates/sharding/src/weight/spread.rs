//! The loads of shards that a member reports only in sum.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use model::{ClusterName, MemberId, ShardId};

use super::OwnedShard;
use crate::api::{ClusterLoad, LoadSum, MemberSpec, ShardLoad};

/// What a member reports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reported<'a> {
    shards: &'a [ShardLoad],
    clusters: &'a [ClusterLoad],
    rest: Option<LoadSum>,
}

impl<'a> Reported<'a> {
    pub(crate) fn by(spec: &'a MemberSpec) -> Self {
        Self { shards: &spec.loads, clusters: &spec.cluster_loads, rest: spec.rest_load }
    }
}

/// The loads of single shards. Those of its shards which a member reports only in sum share that in equal
/// parts, and each part may be of one object.
pub(crate) fn spread<'a>(
    reported: &BTreeMap<&'a MemberId, Reported<'a>>,
    shards: &[OwnedShard<'_>],
) -> BTreeMap<&'a MemberId, Cow<'a, [ShardLoad]>> {
    let sums = |member: &MemberId| reported.get(member).is_some_and(|by| !by.clusters.is_empty());
    let mut owned: BTreeMap<&MemberId, Vec<&ShardId>> = BTreeMap::new();
    for OwnedShard { shard, owner, .. } in shards {
        if let Some(owner) = owner.filter(|owner| sums(owner)) {
            owned.entry(owner).or_default().push(shard);
        }
    }
    let of = |(&member, by): (&&'a MemberId, &Reported<'a>)| match owned.get(member) {
        Some(owned) => (member, Cow::Owned(spread_of(by, owned))),
        None => (member, Cow::Borrowed(by.shards)),
    };
    reported.iter().map(of).collect()
}

fn spread_of(by: &Reported<'_>, owned: &[&ShardId]) -> Vec<ShardLoad> {
    let known: BTreeSet<&ShardId> = by.shards.iter().map(|load| &load.shard).collect();
    let mut others: BTreeMap<&ClusterName, Vec<&ShardId>> = BTreeMap::new();
    for shard in owned.iter().filter(|shard| !known.contains(*shard)) {
        others.entry(&shard.cluster).or_default().push(shard);
    }
    let mut loads = by.shards.to_vec();
    for ClusterLoad { cluster, sum } in by.clusters {
        let shards = others.remove(cluster).unwrap_or_default();
        loads.extend(parts(*sum, &shards));
    }
    if let Some(rest) = by.rest {
        let shards: Vec<&ShardId> = others.into_values().flatten().collect();
        loads.extend(parts(rest, &shards));
    }
    loads
}

/// Equal parts of a sum.
fn parts(sum: LoadSum, shards: &[&ShardId]) -> impl Iterator<Item = ShardLoad> {
    let count = (shards.len() as u64).max(1);
    let busy = u32::try_from(u64::from(sum.busy) / count).unwrap_or(u32::MAX);
    let (events, cached) = (sum.events / count, sum.cached / count);
    shards.iter().map(move |&shard| {
        let shard = shard.clone();
        ShardLoad { shard, busy, heaviest: None, events, cached }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reported_in_sum_is_shared_by_the_other_shards() {
        let (a, b): (MemberId, MemberId) = ("a".parse().unwrap(), "b".parse().unwrap());
        let load = |shard: &str, busy| ShardLoad {
            shard: shard.parse().unwrap(),
            busy,
            heaviest: None,
            events: 0,
            cached: 0,
        };
        let sum = |cluster: &str, busy| ClusterLoad {
            cluster: cluster.parse().unwrap(),
            sum: LoadSum { busy, events: 0, cached: 0 },
        };
        let own = |shard: &str, owner| OwnedShard {
            shard: shard.parse().unwrap(),
            owner: Some(owner),
            can_report: true,
        };
        let own_shards = ["c0/g/0/1", "c0/h/0/1", "c0/i/0/1", "c2/g/0/1", "c3/g/0/1"];
        let mut shards = own_shards.map(|shard| own(shard, &a)).to_vec();
        shards.push(own("c1/g/0/1", &b));
        let rest = Some(LoadSum { busy: 14, events: 0, cached: 0 });
        let singles = [load("c0/g/0/1", 900)];
        // It holds no shard of the second cluster any more.
        let sums = [sum("c0", 60), sum("c1", 80)];
        let by = BTreeMap::from([
            (&a, Reported { shards: &singles, clusters: &sums, rest }),
            (&b, Reported { shards: &[], clusters: &[], rest: None }),
        ]);
        let loads = spread(&by, &shards);
        let expect = [
            load("c0/g/0/1", 900),
            load("c0/h/0/1", 30),
            load("c0/i/0/1", 30),
            load("c2/g/0/1", 7),
            load("c3/g/0/1", 7),
        ];
        assert_eq!((&*loads[&a], &*loads[&b]), (&expect[..], &[][..]));
    }
}
